//! `jobTolerations`: taints that cleaning Jobs put up with (contract CFG-15).

use super::read::{Place, Reader};
use super::scalar::Scalar;
use super::syntax::is_label_key;
use super::yaml::{Node, Value};

/// A toleration of the Kubernetes API.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Toleration {
    /// The taint; `None` for every taint.
    pub key: Option<String>,
    /// `Equal` (the default) or `Exists`.
    pub operator: Option<String>,
    /// The taint's value.
    pub value: Option<String>,
    /// The taint's effect; `None` for all effects.
    pub effect: Option<String>,
    /// How long `NoExecute` is put up with.
    pub toleration_seconds: Option<i64>,
}

const KEYS: [&str; 5] = ["key", "operator", "value", "effect", "tolerationSeconds"];
const OPERATORS: [&str; 2] = ["Equal", "Exists"];
const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// Reads the list of tolerations.
pub(super) fn read(reader: &mut Reader, at: &Place, node: &Node) -> Option<Vec<Toleration>> {
    let items = reader.list(at, node)?;
    let mut all = Vec::new();
    for (n, item) in items.iter().enumerate() {
        let at = at.item(n, item.line);
        let toleration = reader.faultless(|reader| toleration(reader, &at, item))??;
        let exists = toleration.operator.as_deref() == Some("Exists");
        if toleration.key.is_none() && !exists {
            reader.error(&at, "without a key the operator must be Exists");
        }
        if exists && toleration.value.is_some() {
            reader.error(&at, "Exists takes no value");
        }
        all.push(toleration);
    }
    Some(all)
}

fn toleration(reader: &mut Reader, at: &Place, item: &Node) -> Option<Toleration> {
    let mut toleration = Toleration::default();
    for field in reader.fields(at, item, &KEYS)? {
        let (at, value) = (&field.place, field.value);
        match field.name {
            "key" => toleration.key = reader.parsed(at, value, key),
            "operator" => toleration.operator = reader.parsed(at, value, one_of(&OPERATORS)),
            "effect" => toleration.effect = reader.parsed(at, value, one_of(&EFFECTS)),
            "value" => toleration.value = reader.text(at, value).filter(|text| !text.is_empty()),
            _ => toleration.toleration_seconds = seconds(reader, at, value),
        }
    }
    Some(toleration)
}

/// The key of a taint, which has the syntax of a label's.
pub(super) fn key(text: &str) -> Result<String, String> {
    match is_label_key(text) {
        true => Ok(text.to_owned()),
        false => Err(format!("{text:?} can't be the key of a taint")),
    }
}

fn one_of(words: &[&str]) -> impl Fn(&str) -> Result<String, String> {
    move |text| match words.contains(&text) {
        true => Ok(text.to_owned()),
        false => Err(format!("{text:?} is not one of {}", words.join(", "))),
    }
}

fn seconds(reader: &mut Reader, at: &Place, node: &Node) -> Option<i64> {
    if let Value::Scalar(Scalar::Int(number)) = &node.value
        && let Ok(seconds) = i64::try_from(*number)
    {
        return Some(seconds);
    }
    reader.error(at, "must be a number of seconds");
    None
}
