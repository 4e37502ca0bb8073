//! `selector`: further nodes from which the volumes of a class can be reached (contract CFG-37).
//!
//! Each term is an alternative to the node's own hostname. What the API server would refuse in a
//! PersistentVolume is found here, before there is one.

use std::fmt;

use super::read::{Place, Reader};
use super::syntax::{is_label_key, is_label_value};
use super::yaml::Node;

/// Requirements that a node has to meet, all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelectorTerm {
    /// About its labels.
    pub expressions: Vec<Requirement>,
    /// About its fields.
    pub fields: Vec<Requirement>,
}

/// One requirement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The label, or `metadata.name`.
    pub key: String,
    /// How its value compares.
    pub operator: Operator,
    /// To what.
    pub values: Vec<String>,
}

/// The operators of the Kubernetes API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// One of the values.
    In,
    /// None of the values.
    NotIn,
    /// There, whatever its value.
    Exists,
    /// Not there.
    DoesNotExist,
    /// Greater than the one value, as a number.
    Gt,
    /// Less than the one value, as a number.
    Lt,
}

impl Operator {
    const ALL: [Self; 6] = [
        Self::In,
        Self::NotIn,
        Self::Exists,
        Self::DoesNotExist,
        Self::Gt,
        Self::Lt,
    ];

    /// The spelling of the Kubernetes API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::In => "In",
            Self::NotIn => "NotIn",
            Self::Exists => "Exists",
            Self::DoesNotExist => "DoesNotExist",
            Self::Gt => "Gt",
            Self::Lt => "Lt",
        }
    }

    fn parse(text: &str) -> Result<Self, String> {
        let known = Self::ALL
            .into_iter()
            .find(|operator| operator.as_str() == text);
        known.ok_or_else(|| {
            let all: Vec<_> = Self::ALL.into_iter().map(Self::as_str).collect();
            format!("{text:?} is not an operator; one of {}", all.join(", "))
        })
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The one field that a node can be selected by.
const FIELD: &str = "metadata.name";

/// Reads the list of terms.
pub(super) fn read(reader: &mut Reader, at: &Place, node: &Node) -> Option<Vec<SelectorTerm>> {
    let items = reader.list(at, node)?;
    let mut terms = Vec::new();
    for (n, item) in items.iter().enumerate() {
        let at = at.item(n, item.line);
        let fields = reader.fields(&at, item, &["matchExpressions", "matchFields"])?;
        let mut term = SelectorTerm::default();
        for field in fields {
            let of_fields = field.name == "matchFields";
            let items = reader.list(&field.place, field.value)?;
            for (n, item) in items.iter().enumerate() {
                let at = field.place.item(n, item.line);
                let requirement = requirement(reader, &at, item)?;
                match check(&requirement, of_fields) {
                    Err(why) => reader.error(&at, why),
                    Ok(()) if of_fields => term.fields.push(requirement),
                    Ok(()) => term.expressions.push(requirement),
                }
            }
        }
        if term == SelectorTerm::default() {
            reader.warn(&at, "a term without requirements selects no node");
        }
        terms.push(term);
    }
    Some(terms)
}

fn requirement(reader: &mut Reader, at: &Place, node: &Node) -> Option<Requirement> {
    let (mut key, mut operator, mut values) = (None, None, Vec::new());
    for field in reader.fields(at, node, &["key", "operator", "values"])? {
        match field.name {
            "key" => key = Some(reader.text(&field.place, field.value)?),
            "operator" => {
                operator = Some(reader.parsed(&field.place, field.value, Operator::parse)?);
            }
            _ => values = reader.texts(&field.place, field.value)?,
        }
    }
    let (Some(key), Some(operator)) = (key, operator) else {
        reader.error(at, "key and operator are both required");
        return None;
    };
    Some(Requirement {
        key,
        operator,
        values,
    })
}

/// The rules by which the API server takes a requirement.
fn check(requirement: &Requirement, of_fields: bool) -> Result<(), String> {
    let Requirement {
        key,
        operator,
        values,
    } = requirement;
    if of_fields {
        let one_name = matches!(operator, Operator::In | Operator::NotIn) && values.len() == 1;
        return match key == FIELD && one_name {
            true => Ok(()),
            false => Err(format!(
                "matchFields takes {FIELD} In or NotIn with one value"
            )),
        };
    }
    if !is_label_key(key) {
        return Err(format!("{key:?} can't be the key of a label"));
    }
    let fits = match operator {
        Operator::In | Operator::NotIn => !values.is_empty(),
        Operator::Exists | Operator::DoesNotExist => values.is_empty(),
        Operator::Gt | Operator::Lt => values.len() == 1 && values[0].parse::<i64>().is_ok(),
    };
    if !fits {
        return Err(match operator {
            Operator::In | Operator::NotIn => format!("{operator} needs values"),
            Operator::Exists | Operator::DoesNotExist => format!("{operator} takes no values"),
            Operator::Gt | Operator::Lt => format!("{operator} takes one value, a whole number"),
        });
    }
    match values.iter().find(|value| !is_label_value(value)) {
        Some(value) => Err(format!("{value:?} can't be the value of a label")),
        None => Ok(()),
    }
}
