//! Durations as Go writes them (contract CFG-16): `5m0s`, `1h30m`, `-500ms`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A signed duration with Go's range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GoDuration {
    nanos: i64,
}

/// The units that Go knows, in nanoseconds. Both letters that look like a micro sign are in use.
const UNITS: [(&str, f64); 8] = [
    ("ns", 1.0),
    ("us", 1e3),
    ("\u{b5}s", 1e3),
    ("\u{3bc}s", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("m", 6e10),
    ("h", 3.6e12),
];

/// The bound of Go's range; 2^63 is exact in both types.
const MAX_NANOS: f64 = 9_223_372_036_854_775_808.0;

impl GoDuration {
    /// Reads a time that can be waited for.
    ///
    /// # Errors
    /// Why the text is none.
    pub fn read_wait(text: &str) -> Result<Duration, String> {
        let negative = || format!("{text:?} is negative");
        text.parse::<Self>()?.wait().ok_or_else(negative)
    }

    /// As a time that can be waited for; `None` when it is negative.
    pub fn wait(self) -> Option<Duration> {
        u64::try_from(self.nanos).ok().map(Duration::from_nanos)
    }
}

impl FromStr for GoDuration {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("{text:?} is not a duration like 5m or 1h30m: {why}");
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        if unsigned == "0" {
            return Ok(Self { nanos: 0 });
        }
        if unsigned.is_empty() {
            return Err(wrong("it is empty"));
        }
        let (mut rest, mut nanos) = (unsigned, 0.0);
        while !rest.is_empty() {
            let is_digit = |c: char| c.is_ascii_digit() || c == '.';
            let unit_at = rest
                .find(|c| !is_digit(c))
                .ok_or_else(|| wrong("a unit is missing"))?;
            let (number, tail) = rest.split_at(unit_at);
            let next = tail.find(is_digit).unwrap_or(tail.len());
            let (unit, tail) = tail.split_at(next);
            let number: f64 = number.parse().map_err(|_| wrong("a number is missing"))?;
            let known = UNITS.iter().find(|(name, _)| *name == unit);
            let (_, factor) = known.ok_or_else(|| wrong(&format!("there is no unit {unit:?}")))?;
            nanos += number * factor;
            rest = tail;
        }
        if nanos >= MAX_NANOS {
            return Err(wrong("it is too long"));
        }
        #[expect(
            clippy::cast_possible_truncation,
            reason = "it is below 2^63; less than a nanosecond goes"
        )]
        let nanos = nanos as i64;
        Ok(Self {
            nanos: if text.starts_with('-') { -nanos } else { nanos },
        })
    }
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ns", self.nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    #[rstest]
    #[case("0", 0)]
    #[case("5m0s", 300_000_000_000)]
    #[case("1h30m", 5_400_000_000_000)]
    #[case("500ms", 500_000_000)]
    #[case("-5m", -300_000_000_000)]
    #[case("+5m", 300_000_000_000)]
    #[case("1.5h", 5_400_000_000_000)]
    #[case(".5s", 500_000_000)]
    #[case("1.s", 1_000_000_000)]
    #[case("1µs", 1000)]
    #[case("1μs", 1000)]
    fn cfg_16_durations_are_gos(#[case] text: &str, #[case] nanos: i64) {
        assert_eq!(text.parse(), Ok(GoDuration { nanos }));
    }

    #[rstest]
    #[case("")]
    #[case("5")]
    #[case("5 minutes")]
    #[case(".s")]
    #[case("--5m")]
    #[case("1e3s")]
    #[case("1h-1m")]
    #[case("3000000h")]
    #[case("m")]
    fn cfg_16_what_go_refuses_is_refused(#[case] text: &str) {
        assert!(text.parse::<GoDuration>().is_err());
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(nanos in -1_000_000_000_000_000_i64..1_000_000_000_000_000) {
            prop_assert_eq!(GoDuration { nanos }.to_string().parse(), Ok(GoDuration { nanos }));
        }

        #[test]
        fn parsing_never_fails_hard(text in "[-+.0-9a-zµ]{0,20}|.*") {
            let _ = text.parse::<GoDuration>();
        }
    }
}
