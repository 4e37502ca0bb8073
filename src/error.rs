//! Printing an error with its causes.

use std::error::Error;
use std::fmt;

/// Displays an error and its sources, joined by colons. A source that its parent's text ends with
/// already is left out, since some crates print it twice.
pub struct Chain<'a>(pub &'a (dyn Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut last = self.0.to_string();
        f.write_str(&last)?;
        let mut source = self.0.source();
        while let Some(error) = source {
            let text = error.to_string();
            if !last.ends_with(&text) {
                write!(f, ": {text}")?;
                last = text;
            }
            source = error.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thiserror::Error;

    #[derive(Debug, Error)]
    #[error("inner")]
    struct Inner;

    #[derive(Debug, Error)]
    enum Outer {
        #[error("outer")]
        Plain(#[source] Inner),
        #[error("outer: inner")]
        Doubled(#[source] Inner),
    }

    #[test]
    fn each_cause_is_printed_once() {
        for error in [Outer::Plain(Inner), Outer::Doubled(Inner)] {
            assert_eq!(Chain(&error).to_string(), "outer: inner");
        }
    }
}
