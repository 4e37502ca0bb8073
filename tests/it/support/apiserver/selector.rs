//! Label and field selectors.

use serde_json::Value;

use super::failure::Failure;
use super::object::text;
use super::resource::Resource;

/// Which objects of a resource a list or a watch is about.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope {
    /// Empty for all namespaces.
    pub(super) namespace: String,
    labels: Vec<Requirement>,
    fields: Vec<(String, bool, String)>,
}

#[derive(Clone, Debug)]
enum Requirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
}

impl Scope {
    /// Reads the selectors of a request.
    pub(super) fn parse(
        resource: &Resource,
        namespace: &str,
        labels: &str,
        fields: &str,
    ) -> Result<Self, Failure> {
        let labels = split(labels)
            .iter()
            .map(|part| requirement(part))
            .collect::<Result<_, _>>()?;
        let fields = split(fields)
            .iter()
            .map(|part| field(resource, part))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            namespace: namespace.to_owned(),
            labels,
            fields,
        })
    }

    /// Adds the name in the path of an old-style watch.
    pub(super) fn named(mut self, name: &str) -> Self {
        if !name.is_empty() {
            self.fields
                .push(("metadata.name".to_owned(), true, name.to_owned()));
        }
        self
    }

    /// Whether anything but the namespace restricts it.
    pub(super) fn is_selective(&self) -> bool {
        !self.labels.is_empty() || !self.fields.is_empty()
    }

    /// Whether a stored object belongs to it.
    pub(super) fn matches(&self, object: &Value) -> bool {
        let is_here =
            self.namespace.is_empty() || text(object, "/metadata/namespace") == self.namespace;
        let labels = object.pointer("/metadata/labels");
        is_here
            && self
                .labels
                .iter()
                .all(|requirement| requirement.holds(labels))
            && self.fields.iter().all(|(path, wants_equal, value)| {
                (field_value(object, path) == *value) == *wants_equal
            })
    }
}

impl Requirement {
    fn holds(&self, labels: Option<&Value>) -> bool {
        let value = |key: &String| labels.and_then(|map| map.get(key)).and_then(Value::as_str);
        match self {
            Self::In(key, values) => value(key).is_some_and(|v| values.iter().any(|w| w == v)),
            Self::NotIn(key, values) => value(key).is_none_or(|v| values.iter().all(|w| w != v)),
            Self::Exists(key) => value(key).is_some(),
            Self::Absent(key) => value(key).is_none(),
        }
    }
}

/// Splits at commas outside of parentheses.
fn split(selector: &str) -> Vec<&str> {
    let mut depth = 0_u32;
    selector
        .split(|letter| {
            match letter {
                '(' => depth += 1,
                ')' => depth = depth.saturating_sub(1),
                _ => {}
            }
            letter == ',' && depth == 0
        })
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .collect()
}

fn requirement(part: &str) -> Result<Requirement, Failure> {
    let key = |text: &str| {
        let text = text.trim();
        let is_word = !text.is_empty()
            && text
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c));
        if is_word {
            Ok(text.to_owned())
        } else {
            Err(unparsable(part))
        }
    };
    let one = |text: &str| Ok::<_, Failure>(vec![text.trim().to_owned()]);
    if let Some(absent) = part.strip_prefix('!') {
        return Ok(Requirement::Absent(key(absent)?));
    }
    if let Some((left, right)) = part.split_once("!=") {
        return Ok(Requirement::NotIn(key(left)?, one(right)?));
    }
    if let Some((left, right)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return Ok(Requirement::In(key(left)?, one(right)?));
    }
    if let Some((left, right)) = part.split_once('(') {
        let values = right.strip_suffix(')').ok_or_else(|| unparsable(part))?;
        let values = values
            .split(',')
            .map(|value| value.trim().to_owned())
            .collect();
        return match left.trim().rsplit_once(char::is_whitespace) {
            Some((left, "in")) => Ok(Requirement::In(key(left)?, values)),
            Some((left, "notin")) => Ok(Requirement::NotIn(key(left)?, values)),
            _ => Err(unparsable(part)),
        };
    }
    Ok(Requirement::Exists(key(part)?))
}

fn unparsable(part: &str) -> Failure {
    let found = part.split_whitespace().nth(1).unwrap_or(part);
    let expected = "in, notin, =, ==, !=, gt, lt";
    Failure::bad_request(format!(
        "unable to parse requirement: found '{found}', expected: {expected}"
    ))
}

fn field(resource: &Resource, part: &str) -> Result<(String, bool, String), Failure> {
    let (path, wants_equal, value) = if let Some((path, value)) = part.split_once("!=") {
        (path, false, value)
    } else if let Some((path, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        (path, true, value)
    } else {
        let message = format!("invalid selector: '{part}'; can't understand '{part}'");
        return Err(Failure::bad_request(message));
    };
    let path = path.trim();
    let more: &[&str] = match resource.plural {
        "nodes" => &["spec.unschedulable"],
        "namespaces" => &["status.phase"],
        "events" => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "reason",
            "type",
            "reportingComponent",
            "reportingController",
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
        ],
        _ => &[],
    };
    if ["metadata.name", "metadata.namespace"].contains(&path) || more.contains(&path) {
        return Ok((path.to_owned(), wants_equal, value.to_owned()));
    }
    let message = if more.is_empty() {
        let known = r#"only "metadata.name", "metadata.namespace""#;
        format!("{path:?} is not a known field selector: {known}")
    } else {
        format!("field label not supported: {path}")
    };
    Err(Failure::bad_request(message))
}

fn field_value(object: &Value, path: &str) -> String {
    let path = path
        .replace("regarding.", "involvedObject.")
        .replace("reportingController", "reportingComponent");
    match object.pointer(&format!("/{}", path.replace('.', "/"))) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Bool(flag)) => flag.to_string(),
        _ if path == "spec.unschedulable" => "false".to_owned(),
        _ => String::new(),
    }
}
