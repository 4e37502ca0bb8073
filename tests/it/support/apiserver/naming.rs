//! The syntax of names, labels, annotations and finalizers, in the server's words.

use serde_json::{Map, Value, json};

use super::failure::Cause;
use super::object::{list, text};

/// Why something is not a DNS-1123 subdomain.
pub(super) const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case \
    alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. \
    'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
/// Why something is not a label key.
pub(super) const NAME_PART: &str = "name part must consist of alphanumeric characters, '-', '_' or \
    '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or \
    '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric \
    characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. \
    'MyValue',  or 'my_value',  or '12345', regex used for validation is \
    '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const ANNOTATIONS_LIMIT_BYTES: usize = 256 * 1024;

/// Checks what all kinds have in common.
pub(super) fn check_metadata(object: &Value, causes: &mut Vec<Cause>) {
    let name = text(object, "/metadata/name");
    if name.is_empty() {
        causes.push(Cause::required(
            "metadata.name",
            "name or generateName is required",
        ));
    } else if name.len() > 253 {
        let why = "must be no more than 253 characters";
        causes.push(Cause::invalid("metadata.name", &json!(name), why));
    } else if !is_subdomain(name) {
        causes.push(Cause::invalid("metadata.name", &json!(name), SUBDOMAIN));
    }
    let empty = Map::new();
    let fields = |pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_object)
            .unwrap_or(&empty)
    };
    for (key, value) in fields("/metadata/labels") {
        check_key(key, "metadata.labels", causes);
        let word = value.as_str().unwrap_or_default();
        if word.len() > 63 {
            let why = "must be no more than 63 bytes";
            causes.push(Cause::invalid("metadata.labels", value, why));
        } else if !word.is_empty() && !is_name_part(word) {
            causes.push(Cause::invalid("metadata.labels", value, LABEL_VALUE));
        }
    }
    let annotations = fields("/metadata/annotations");
    for key in annotations.keys() {
        check_key(&key.to_lowercase(), "metadata.annotations", causes);
    }
    let size: usize = annotations
        .iter()
        .map(|(key, value)| key.len() + value.as_str().map_or(0, str::len))
        .sum();
    if size > ANNOTATIONS_LIMIT_BYTES {
        let why = format!("may not be more than {ANNOTATIONS_LIMIT_BYTES} bytes");
        causes.push(Cause::invalid("metadata.annotations", &json!(""), &why));
    }
    for finalizer in list(object, "/metadata/finalizers") {
        let name = finalizer.as_str().unwrap_or_default();
        check_key(name, "metadata.finalizers", causes);
        if is_key(name) && !name.contains('/') && !["orphan", "foregroundDeletion"].contains(&name)
        {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            causes.push(Cause::invalid("metadata.finalizers", finalizer, why));
        }
    }
}

fn check_key(key: &str, field: &str, causes: &mut Vec<Cause>) {
    if !is_key(key) {
        causes.push(Cause::invalid(field, &json!(key), NAME_PART));
    }
}

/// Whether it is a key of a label: a name, with or without a domain before it.
pub(super) fn is_key(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, name)) => is_subdomain(prefix) && name.len() <= 63 && is_name_part(name),
        None => key.len() <= 63 && is_name_part(key),
    }
}

fn is_name_part(text: &str) -> bool {
    let is_edge = |letter: Option<char>| letter.is_some_and(|c| c.is_ascii_alphanumeric());
    text.chars()
        .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        && is_edge(text.chars().next())
        && is_edge(text.chars().last())
}

/// Whether it is a DNS-1123 subdomain.
pub(super) fn is_subdomain(text: &str) -> bool {
    text.split('.').all(|part| {
        !part.is_empty()
            && part
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
            && !part.starts_with('-')
            && !part.ends_with('-')
    })
}
