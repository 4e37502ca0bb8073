//! Reading values as what they should be, leniently where upstream is lenient, and taking down what
//! is wrong with each.

use super::keys;
use super::scalar::Scalar;
use super::yaml::{Map, Node, Value};
use super::{Finding, Severity};

/// Where a value stands.
#[derive(Clone, Debug)]
pub(super) struct Place {
    file: String,
    path: String,
    line: usize,
}

impl Place {
    /// A whole key of the ConfigMap.
    pub(super) fn file(name: &str, line: usize) -> Self {
        Self {
            file: name.to_owned(),
            path: name.to_owned(),
            line,
        }
    }

    /// A key below this place.
    pub(super) fn key(&self, name: &str, line: usize) -> Self {
        Self {
            file: self.file.clone(),
            path: format!("{}.{name}", self.path),
            line,
        }
    }

    /// An item of the list at this place.
    pub(super) fn item(&self, number: usize, line: usize) -> Self {
        Self {
            file: self.file.clone(),
            path: format!("{}[{number}]", self.path),
            line,
        }
    }
}

/// A known key of a map, with its value.
pub(super) struct Field<'a> {
    /// As this version spells it.
    pub(super) name: &'static str,
    pub(super) place: Place,
    pub(super) value: &'a Node,
}

/// Collects findings while values are read.
#[derive(Debug, Default)]
pub(super) struct Reader {
    pub(super) findings: Vec<Finding>,
    errors: usize,
}

impl Reader {
    pub(super) fn error(&mut self, at: &Place, text: impl Into<String>) {
        self.errors += 1;
        self.find(Severity::Error, at, text.into());
    }

    pub(super) fn warn(&mut self, at: &Place, text: impl Into<String>) {
        self.find(Severity::Warning, at, text.into());
    }

    fn find(&mut self, severity: Severity, at: &Place, text: String) {
        let Place { file, path, line } = at.clone();
        self.findings.push(Finding {
            severity,
            file,
            key: path,
            line,
            text,
        });
    }

    /// What `read` gives, unless it finds an error.
    pub(super) fn faultless<T>(&mut self, read: impl FnOnce(&mut Self) -> T) -> Option<T> {
        let before = self.errors;
        let value = read(self);
        (self.errors == before).then_some(value)
    }

    /// A scalar as text (contract CFG-06).
    pub(super) fn text(&mut self, at: &Place, node: &Node) -> Option<String> {
        match &node.value {
            Value::Scalar(scalar) => Some(scalar.to_text()),
            Value::List(_) | Value::Map(_) => {
                self.error(at, format!("must be text, not {}", kind(node)));
                None
            }
        }
    }

    /// Text that `parse` makes something of; `None` for empty text too.
    pub(super) fn parsed<T, E: ToString>(
        &mut self,
        at: &Place,
        node: &Node,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Option<T> {
        let text = self.text(at, node).filter(|text| !text.is_empty())?;
        parse(&text)
            .map_err(|error| self.error(at, error.to_string()))
            .ok()
    }

    /// A list of scalars as text.
    pub(super) fn texts(&mut self, at: &Place, node: &Node) -> Option<Vec<String>> {
        let items = self.list(at, node)?;
        let read = items.iter().enumerate();
        read.map(|(n, item)| self.text(&at.item(n, item.line), item))
            .collect()
    }

    pub(super) fn list<'a>(&mut self, at: &Place, node: &'a Node) -> Option<&'a [Node]> {
        match &node.value {
            Value::List(items) => Some(items),
            Value::Scalar(Scalar::Null) => Some(&[]),
            _ => {
                self.error(at, format!("must be a list, not {}", kind(node)));
                None
            }
        }
    }

    pub(super) fn map<'a>(&mut self, at: &Place, node: &'a Node) -> Option<&'a Map> {
        let Value::Map(map) = &node.value else {
            self.error(at, format!("must be a map, not {}", kind(node)));
            return None;
        };
        for (line, key) in &map.repeated {
            self.warn(
                &at.key(key, *line),
                "stands here twice; the last one counts",
            );
        }
        Some(map)
    }

    /// YAML 1.1 booleans (contract CFG-05): quoted ones are text, which is no boolean.
    pub(super) fn boolean(&mut self, at: &Place, node: &Node) -> Option<bool> {
        if let Value::Scalar(Scalar::Bool(flag)) = &node.value {
            return Some(*flag);
        }
        let why = match &node.value {
            Value::Scalar(Scalar::Text(text)) => match Scalar::plain(text) {
                Scalar::Bool(flag) => format!("must be true or false; take the quotes off {flag}"),
                _ => format!("must be true or false, not {text:?}"),
            },
            _ => format!("must be true or false, not {}", kind(node)),
        };
        self.error(at, why);
        None
    }

    /// The keys of a map that are in `known`, whatever their case (contract CFG-04). Keys without a
    /// value are skipped, as if they were not there; of several spellings of a key the greatest
    /// counts, which is the one that upstream reads last.
    pub(super) fn fields<'a>(
        &mut self,
        at: &Place,
        node: &'a Node,
        known: &[&'static str],
    ) -> Option<Vec<Field<'a>>> {
        let map = self.map(at, node)?;
        let mut entries: Vec<_> = map.entries.iter().collect();
        entries.sort_by(|a, b| a.key.cmp(&b.key));
        let mut fields: Vec<Field<'a>> = Vec::new();
        for entry in entries {
            let place = at.key(&entry.key, entry.line);
            let Some(name) = keys::find(known, &entry.key) else {
                self.unknown(&place, &entry.key, known);
                continue;
            };
            if entry.value.is_null() {
                continue;
            }
            if let Some(at) = fields.iter().position(|field| field.name == name) {
                let earlier = fields.remove(at);
                self.warn(&earlier.place, format!("{} counts instead", entry.key));
            }
            fields.push(Field {
                name,
                place,
                value: &entry.value,
            });
        }
        fields.sort_by_key(|field| field.place.line);
        Some(fields)
    }

    /// A key that nobody reads.
    pub(super) fn unknown(&mut self, at: &Place, name: &str, known: &[&'static str]) {
        let text = match keys::nearest(known, name) {
            Some(key) => format!("unknown key, ignored; {key} is meant?"),
            None => "unknown key, ignored".to_owned(),
        };
        self.warn(at, text);
    }
}

/// What a value is, in words.
fn kind(node: &Node) -> String {
    match &node.value {
        Value::List(_) => "a list".to_owned(),
        Value::Map(_) => "a map".to_owned(),
        Value::Scalar(Scalar::Null) => "nothing".to_owned(),
        Value::Scalar(Scalar::Int(_) | Scalar::Float(_)) => "a number".to_owned(),
        Value::Scalar(Scalar::Bool(flag)) => flag.to_string(),
        Value::Scalar(Scalar::Text(text)) => format!("the text {text:?}"),
    }
}
