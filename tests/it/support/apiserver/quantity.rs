//! Quantities such as `10Gi`: what is one, and how the server writes it.

use serde_json::{Value, json};

/// Brings quantities into the form that the server writes.
pub(super) fn canonicalize(object: &mut Value) {
    for pointer in ["/spec/capacity/storage", "/spec/resources/requests/storage"] {
        if let Some(slot) = object.pointer_mut(pointer)
            && let Some(better) = slot.as_str().and_then(canonical_quantity)
        {
            *slot = json!(better);
        }
    }
}

/// Whether it is text of a quantity; the schema only says that it is text.
pub(super) fn is_quantity(text: &str) -> bool {
    let digits = text.trim_start_matches(['+', '-']);
    let suffix = digits.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    const SUFFIXES: [&str; 16] = [
        "", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei",
    ];
    let is_exponent = suffix
        .strip_prefix(['e', 'E'])
        .is_some_and(|power| !power.is_empty() && power.parse::<i32>().is_ok());
    digits.len() > suffix.len() && (SUFFIXES.contains(&suffix) || is_exponent)
}

/// Whether it is above zero.
pub(super) fn is_positive(amount: &Value) -> bool {
    let text = amount.as_str().unwrap_or_default();
    !text.starts_with('-')
        && text
            .chars()
            .take_while(|c| c.is_ascii_digit() || *c == '.')
            .any(|c| ('1'..='9').contains(&c))
}

/// The shortest whole-number form with the same kind of suffix; `None` when it is not whole.
fn canonical_quantity(text: &str) -> Option<String> {
    const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    const DECIMAL: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];
    let suffix = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let mut number: u128 = text[..text.len() - suffix.len()].parse().ok()?;
    let (scale, suffixes) = if suffix.ends_with('i') {
        (1024, BINARY)
    } else {
        (1000, DECIMAL)
    };
    let mut power = suffixes.iter().position(|known| *known == suffix)?;
    while number != 0 && number.is_multiple_of(scale) && power + 1 < suffixes.len() {
        number /= scale;
        power += 1;
    }
    Some(format!("{number}{}", suffixes[power]))
}
