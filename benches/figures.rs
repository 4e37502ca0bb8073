//! What the benchmarks have in common: their arguments, series of times, and a table in which each of
//! our figures stands beside its peer's from the same run. Nothing here is asserted; a ratio says more
//! than a limit would, on a machine that has other things to do.

use std::io::{self, Write};
use std::time::Duration;

/// What the command line asks for: `cargo bench --bench discovery -- --long idle`.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The full size of everything, not what fits in a minute.
    pub(crate) is_long: bool,
    parts: Vec<String>,
}

impl Settings {
    pub(crate) fn from_args() -> Self {
        let words: Vec<String> = std::env::args().skip(1).collect();
        Self {
            is_long: words.iter().any(|word| word == "--long"),
            // Cargo adds `--bench`.
            parts: words
                .into_iter()
                .filter(|word| !word.starts_with("--"))
                .collect(),
        }
    }

    /// Whether a part is to run: all do unless some are named.
    pub(crate) fn wants(&self, part: &str) -> bool {
        self.parts.is_empty() || self.parts.iter().any(|word| word == part)
    }

    /// The one or the other, by the size that is asked for.
    pub(crate) fn choose<T>(&self, short: T, long: T) -> T {
        if self.is_long { long } else { short }
    }
}

/// Times of one kind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series(Vec<Duration>);

impl Series {
    pub(crate) fn push(&mut self, time: Duration) {
        self.0.push(time);
        self.0.sort();
    }

    /// The time that so many percent of all do not exceed.
    pub(crate) fn percentile(&self, percent: usize) -> Duration {
        let rank = (self.0.len() * percent).div_ceil(100).max(1);
        self.0.get(rank - 1).copied().unwrap_or_default()
    }

    /// This median over the other's.
    pub(crate) fn over(&self, peer: &Self) -> String {
        ratio(self.percentile(50), peer.percentile(50))
    }
}

/// One time over another.
pub(crate) fn ratio(ours: Duration, peer: Duration) -> String {
    format!("{:.2}", ours.as_secs_f64() / peer.as_secs_f64())
}

/// A time with the digits that are worth reading.
pub(crate) fn time(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        1.0.. => format!("{seconds:.2} s"),
        0.1.. => format!("{:.0} ms", seconds * 1e3),
        _ => format!("{:.2} ms", seconds * 1e3),
    }
}

/// The results, printed as they come.
#[derive(Debug, Default)]
pub(crate) struct Table;

impl Table {
    /// Begins with the headline.
    pub(crate) fn new(title: &str) -> Self {
        let table = Self;
        table.line(&format!("\n{title}"));
        table.row("", "Provisor", "peer", "ratio");
        table
    }

    /// A figure and its peer.
    pub(crate) fn row(&self, what: &str, ours: &str, peer: &str, ratio: &str) {
        self.line(&format!("{what:<54} {ours:<32} {peer:<32} {ratio}").trim_end());
    }

    /// A remark.
    pub(crate) fn note(&self, text: &str) {
        self.line(&format!("  {text}"));
    }

    fn line(&self, text: &impl std::fmt::Display) {
        // A bench whose output nobody reads any more may go on.
        let _ = writeln!(io::stdout(), "{text}");
    }
}
