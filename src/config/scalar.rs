//! Plain scalars by the rules of YAML 1.1, as upstream's decoder has them (contract CFG-05, CFG-06).
//!
//! `012` is ten, `yes` is true, and where text is wanted they are written out again: `"10"`, `"true"`.

/// What a scalar stands for.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Scalar {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    /// Anything quoted, and anything plain that is nothing else.
    Text(String),
}

impl Scalar {
    /// Resolves a plain scalar, one without quotes.
    pub(super) fn plain(text: &str) -> Self {
        match text {
            "" | "~" | "null" | "Null" | "NULL" => return Self::Null,
            "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
                return Self::Bool(true);
            }
            "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off"
            | "OFF" => return Self::Bool(false),
            ".nan" | ".NaN" | ".NAN" => return Self::Float(f64::NAN),
            ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => {
                return Self::Float(f64::INFINITY);
            }
            "-.inf" | "-.Inf" | "-.INF" => return Self::Float(f64::NEG_INFINITY),
            _ => {}
        }
        let number = match text.as_bytes().first() {
            Some(b'.') => float(text).map(Self::Float),
            Some(b'+' | b'-' | b'0'..=b'9') => {
                let digits = text.replace('_', "");
                integer(&digits)
                    .map(Self::Int)
                    .or_else(|| float(&digits).map(Self::Float))
            }
            _ => None,
        };
        number.unwrap_or_else(|| Self::Text(text.to_owned()))
    }

    /// The text that upstream makes of it where text is wanted.
    pub(super) fn to_text(&self) -> String {
        match self {
            Self::Null => String::new(),
            Self::Bool(flag) => flag.to_string(),
            Self::Int(number) => number.to_string(),
            Self::Float(number) => float_text(*number),
            Self::Text(text) => text.clone(),
        }
    }

    /// The text that upstream makes of it as a key; there is no null key.
    pub(super) fn into_key(self) -> Option<String> {
        match self {
            Self::Null => None,
            Self::Text(text) => Some(text),
            Self::Float(number) if number.is_nan() => Some(".nan".to_owned()),
            Self::Float(f64::INFINITY) => Some(".inf".to_owned()),
            Self::Float(f64::NEG_INFINITY) => Some("-.inf".to_owned()),
            other => Some(other.to_text()),
        }
    }
}

/// Go's `ParseInt(text, 0, 64)`, then `ParseUint`.
fn integer(text: &str) -> Option<i128> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let prefix = digits.get(..2).map(str::to_ascii_lowercase);
    let (radix, digits) = match prefix.as_deref() {
        Some("0x") => (16, &digits[2..]),
        Some("0o") => (8, &digits[2..]),
        Some("0b") => (2, &digits[2..]),
        Some(_) if digits.starts_with('0') => (8, &digits[1..]),
        _ => (10, digits),
    };
    if !digits.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    let number = i128::from_str_radix(digits, radix).ok()?;
    let number = if negative { -number } else { number };
    let unsigned = digits.len() == text.len() || text.starts_with('0');
    let max = if unsigned {
        i128::from(u64::MAX)
    } else {
        i128::from(i64::MAX)
    };
    (i128::from(i64::MIN)..=max)
        .contains(&number)
        .then_some(number)
}

/// A number with a point or an exponent; `None` for whatever is out of range.
fn float(text: &str) -> Option<f64> {
    let number_like = |c: char| c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E' | '+' | '-');
    if !text.chars().all(number_like) {
        return None;
    }
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

/// Go's `FormatFloat(number, 'g', -1, 32)`, which upstream's decoder writes numbers with.
fn float_text(number: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "upstream rounds to 32 bits too"
    )]
    let number = number as f32;
    if !number.is_finite() {
        return match number {
            f32::INFINITY => "+Inf",
            f32::NEG_INFINITY => "-Inf",
            _ => "NaN",
        }
        .to_owned();
    }
    let scientific = format!("{number:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    // Go writes an exponent outside these bounds.
    if (-4..6).contains(&exponent) {
        return number.to_string();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("012", "10")]
    #[case("0x10", "16")]
    #[case("1.50", "1.5")]
    #[case("1e3", "1000")]
    #[case("y", "true")]
    #[case("yes", "true")]
    #[case("on", "true")]
    #[case("True", "true")]
    #[case("n", "false")]
    #[case("OFF", "false")]
    #[case("~", "")]
    #[case("null", "")]
    #[case("", "")]
    #[case("2024-01-02", "2024-01-02")]
    #[case("2024-01-02T03:04:05Z", "2024-01-02T03:04:05Z")]
    #[case("0o17", "15")]
    #[case("0b101", "5")]
    #[case("1_000", "1000")]
    #[case("-0x10", "-16")]
    #[case("+12", "12")]
    #[case("08", "8")]
    #[case("0", "0")]
    #[case("-0", "0")]
    #[case("18446744073709551615", "18446744073709551615")]
    #[case(".5", "0.5")]
    #[case("5.", "5")]
    #[case("-1.25", "-1.25")]
    #[case("1e-3", "0.001")]
    #[case("1e5", "100000")]
    #[case("1e6", "1e+06")]
    #[case("1000000", "1000000")]
    #[case("16777217.5", "1.6777218e+07")]
    #[case("0.00001", "1e-05")]
    #[case("99999999999999999999", "1e+20")]
    #[case("0.1", "0.1")]
    #[case("1.2.3", "1.2.3")]
    #[case("1e999", "1e999")]
    #[case("12abc", "12abc")]
    #[case("0x", "0x")]
    #[case("-", "-")]
    #[case("+", "+")]
    #[case(".", ".")]
    #[case(".inf", "+Inf")]
    #[case("-.INF", "-Inf")]
    #[case(".nan", "NaN")]
    #[case("yEs", "yEs")]
    #[case("1:30", "1:30")]
    #[case("NVMe", "NVMe")]
    fn cfg_06_plain_scalars_are_written_out_as_upstream_does(
        #[case] plain: &str,
        #[case] want: &str,
    ) {
        assert_eq!(Scalar::plain(plain).to_text(), want);
    }

    #[rstest]
    #[case("123", Some("123"))]
    #[case("yes", Some("true"))]
    #[case("1.50", Some("1.5"))]
    #[case(".inf", Some(".inf"))]
    #[case("-.inf", Some("-.inf"))]
    #[case(".nan", Some(".nan"))]
    #[case("fast", Some("fast"))]
    #[case("~", None)]
    fn cfg_06_keys_are_text(#[case] plain: &str, #[case] want: Option<&str>) {
        assert_eq!(Scalar::plain(plain).into_key().as_deref(), want);
    }
}
