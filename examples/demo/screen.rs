//! What the demo prints: one line an event, in three columns. The time is from the event's cause.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use anyhow::Context;

/// Width of the column with the times, and of the one with the words.
const TIME: usize = 12;
const WORD: usize = 15;

/// Lines are not longer, so that they fit in a usual terminal.
const WIDTH: usize = 100;

/// How an event is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    /// Done from outside: by an administrator, a user, a Pod.
    Cause,
    /// What the daemon made of it.
    Effect,
    /// The daemon said no.
    Refusal,
}

/// Standard output.
#[derive(Debug)]
pub(crate) struct Screen {
    colour: bool,
}

impl Screen {
    /// Colours only where a person looks and does not mind (no-color.org).
    pub(crate) fn new() -> Self {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        Self {
            colour: io::stdout().is_terminal() && !unwanted && !dumb,
        }
    }

    /// A headline.
    pub(crate) fn title(&self, text: &str) -> anyhow::Result<()> {
        let (on, off) = self.paint("1");
        self.line(&format!("\n{on}{text}{off}"))
    }

    /// What somebody did.
    pub(crate) fn cause(&self, word: &str, text: &str) -> anyhow::Result<()> {
        self.event(Tone::Cause, None, word, text)
    }

    /// What came of it, so long after.
    pub(crate) fn effect(&self, after: Duration, word: &str, text: &str) -> anyhow::Result<()> {
        self.event(Tone::Effect, Some(after), word, text)
    }

    /// One event.
    pub(crate) fn event(
        &self,
        tone: Tone,
        after: Option<Duration>,
        word: &str,
        text: &str,
    ) -> anyhow::Result<()> {
        let (on, off) = self.paint(match tone {
            Tone::Cause => "36",
            Tone::Effect => "32",
            Tone::Refusal => "33",
        });
        let time = after.map(millis).unwrap_or_default();
        let mut lines = wrap(text, WIDTH - TIME - WORD - 2).into_iter();
        let first = lines.next().unwrap_or_default();
        self.line(&format!("{time:>TIME$}  {on}{word:<WORD$}{off}{first}"))?;
        for rest in lines {
            self.line(&format!("{:indent$}{rest}", "", indent = TIME + WORD + 2))?;
        }
        Ok(())
    }

    fn paint(&self, code: &str) -> (String, &'static str) {
        if self.colour {
            (format!("\x1b[{code}m"), "\x1b[0m")
        } else {
            (String::new(), "")
        }
    }

    fn line(&self, text: &str) -> anyhow::Result<()> {
        let mut out = io::stdout().lock();
        writeln!(out, "{text}")
            .and_then(|()| out.flush())
            .context("can't write to standard output")
    }
}

/// Milliseconds with as many digits as are worth reading.
pub(crate) fn millis(time: Duration) -> String {
    let millis = time.as_secs_f64() * 1e3;
    if millis < 100.0 {
        format!("{millis:.1} ms")
    } else {
        format!("{millis:.0} ms")
    }
}

/// A number with separators between thousands.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Breaks at spaces; a word that is longer than a line gets one of its own.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let used = lines.last().map_or(0, |line| line.chars().count());
        if used > 0 && used + 1 + word.chars().count() > width {
            lines.push(word.to_owned());
        } else if let Some(line) = lines.last_mut() {
            if used > 0 {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}
