//! What the real server refuses to store, as far as a provisioner can get it wrong, and the defaults
//! that it fills in.

use serde_json::{Value, json};

use super::failure::{Cause, Failure};
use super::object::{add_finalizer, has, list, map, meta, now, text};
use super::resource::Resource;

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
    characters, '-' or '.', and must start and end with an alphanumeric character (e.g. \
    'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const NAME_PART: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and \
    must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or \
    '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric \
    characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. \
    'MyValue',  or 'my_value',  or '12345', regex used for validation is \
    '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

const ACCESS_MODES: [&str; 4] = [
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOnce",
    "ReadWriteOncePod",
];
const ANNOTATIONS_LIMIT_BYTES: usize = 256 * 1024;

/// Fills in what the server and its admission plugins add to a new object.
pub(super) fn default_new(resource: &Resource, object: &mut Value) {
    match resource.plural {
        "persistentvolumes" => {
            object["status"] = json!({"phase": "Pending", "lastPhaseTransitionTime": now()});
            let spec = map(object, "spec");
            spec.entry("persistentVolumeReclaimPolicy")
                .or_insert_with(|| json!("Retain"));
            spec.entry("volumeMode")
                .or_insert_with(|| json!("Filesystem"));
            add_finalizer(object, "kubernetes.io/pv-protection");
        }
        "persistentvolumeclaims" => {
            object["status"] = json!({"phase": "Pending"});
            map(object, "spec")
                .entry("volumeMode")
                .or_insert_with(|| json!("Filesystem"));
            add_finalizer(object, "kubernetes.io/pvc-protection");
        }
        "namespaces" => {
            let name = json!(text(object, "/metadata/name"));
            object["status"] = json!({"phase": "Active"});
            object["spec"] = json!({"finalizers": ["kubernetes"]});
            map(meta_value(object), "labels").insert("kubernetes.io/metadata.name".into(), name);
        }
        "storageclasses" => {
            for (name, value) in [
                ("reclaimPolicy", "Delete"),
                ("volumeBindingMode", "Immediate"),
            ] {
                if !has(object, &format!("/{name}")) {
                    object[name] = json!(value);
                }
            }
        }
        _ => {}
    }
}

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

/// Checks a new object.
pub(super) fn check_new(resource: &Resource, object: &Value) -> Result<(), Failure> {
    let mut causes = Vec::new();
    check_metadata(object, &mut causes);
    match resource.plural {
        "persistentvolumes" => check_volume(object, &mut causes),
        "persistentvolumeclaims" => check_claim(object, &mut causes),
        "storageclasses" if text(object, "/provisioner").is_empty() => {
            causes.push(Cause::required("provisioner", ""));
        }
        "events" => check_event(resource, object, &mut causes),
        _ => {}
    }
    refuse(resource, object, &causes)
}

/// Checks a changed object against what it was.
pub(super) fn check_change(resource: &Resource, old: &Value, new: &Value) -> Result<(), Failure> {
    let mut causes = Vec::new();
    check_metadata(new, &mut causes);
    let field = |pointer: &str| (old.pointer(pointer), new.pointer(pointer));
    let differs = |pointer: &str| field(pointer).0 != field(pointer).1;
    let shown = |pointer: &str| field(pointer).1.cloned().unwrap_or(Value::Null);
    if has(old, "/metadata/deletionTimestamp") {
        let known = list(old, "/metadata/finalizers");
        let added: Vec<_> = list(new, "/metadata/finalizers")
            .iter()
            .filter(|name| !known.contains(name))
            .map(Value::to_string)
            .collect();
        if !added.is_empty() {
            let why = format!(
                "no new finalizers can be added if the object is being deleted, \
                 found new finalizers []string{{{}}}",
                added.join(", "),
            );
            causes.push(Cause::forbidden("metadata.finalizers", &why));
        }
    }
    match resource.plural {
        "persistentvolumes" => {
            check_volume(new, &mut causes);
            if sources(old) != sources(new) {
                let field = "spec.persistentvolumesource";
                let why = "spec.persistentvolumesource is immutable after creation";
                causes.push(Cause::forbidden(field, why));
            }
            if differs("/spec/volumeMode") {
                let value = shown("/spec/volumeMode");
                causes.push(Cause::invalid("volumeMode", &value, "field is immutable"));
            }
            if has(old, "/spec/nodeAffinity") && differs("/spec/nodeAffinity") {
                let why = "field is immutable, except for updating from beta label to GA";
                causes.push(Cause::invalid(
                    "nodeAffinity",
                    &shown("/spec/nodeAffinity"),
                    why,
                ));
            }
        }
        "storageclasses" => {
            for (field, pointer) in [
                ("provisioner", "/provisioner"),
                ("reclaimPolicy", "/reclaimPolicy"),
                ("volumeBindingMode", "/volumeBindingMode"),
                ("parameters", "/parameters"),
            ] {
                if differs(pointer) {
                    causes.push(Cause::invalid(field, &Value::Null, "field is immutable"));
                }
            }
        }
        _ => {}
    }
    refuse(resource, new, &causes)
}

/// A field of the metadata that no change may touch.
pub(super) fn immutable(resource: &Resource, object: &Value, field: &str) -> Failure {
    let value = object["metadata"][field].clone();
    let field = format!("metadata.{field}");
    let causes = [Cause::invalid(field, &value, "field is immutable")];
    Failure::invalid(resource, text(object, "/metadata/name"), &causes)
}

fn refuse(resource: &Resource, object: &Value, causes: &[Cause]) -> Result<(), Failure> {
    if causes.is_empty() {
        return Ok(());
    }
    Err(Failure::invalid(
        resource,
        text(object, "/metadata/name"),
        causes,
    ))
}

fn meta_value(object: &mut Value) -> &mut Value {
    meta(object);
    &mut object["metadata"]
}

fn check_metadata(object: &Value, causes: &mut Vec<Cause>) {
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
    let empty = serde_json::Map::new();
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

fn check_volume(object: &Value, causes: &mut Vec<Cause>) {
    let modes = list(object, "/spec/accessModes");
    if modes.is_empty() {
        causes.push(Cause::required("spec.accessModes", ""));
    }
    for mode in modes {
        check_word(mode, "spec.accessModes", &ACCESS_MODES, causes);
    }
    let capacity = object.pointer("/spec/capacity").and_then(Value::as_object);
    if capacity.is_none_or(serde_json::Map::is_empty) {
        causes.push(Cause::required("spec.capacity", ""));
    }
    match capacity.and_then(|fields| fields.get("storage")) {
        Some(amount) if capacity.is_some_and(|fields| fields.len() == 1) => {
            if !is_positive(amount) {
                let why = "must be greater than zero";
                causes.push(Cause::invalid("spec.capacity[storage]", amount, why));
            }
        }
        _ => {
            let value = capacity.map_or(Value::Null, |fields| json!(fields));
            causes.push(Cause::unsupported("spec.capacity", &value, &["storage"]));
        }
    }
    if let Some(terms) = object.pointer("/spec/nodeAffinity/required") {
        check_terms(terms, causes);
    }
    let sources = sources(object);
    match sources.as_slice() {
        [] => causes.push(Cause::required("spec", "must specify a volume type")),
        [_] => {}
        _ => {
            let why = "may not specify more than 1 volume type";
            causes.push(Cause::forbidden("spec.local", why));
        }
    }
    if has(object, "/spec/local") {
        let path = text(object, "/spec/local/path");
        if path.is_empty() {
            causes.push(Cause::required("spec.local.path", ""));
        } else if path.split('/').any(|part| part == "..") {
            causes.push(Cause::invalid(
                "spec.local.path",
                &json!(path),
                "must not contain '..'",
            ));
        }
        if !has(object, "/spec/nodeAffinity/required") {
            let why = "Local volume requires node affinity";
            causes.push(Cause::required("spec.nodeAffinity", why));
        }
    }
    let class = text(object, "/spec/storageClassName");
    if !class.is_empty() && !is_subdomain(class) {
        causes.push(Cause::invalid(
            "spec.storageClassName",
            &json!(class),
            SUBDOMAIN,
        ));
    }
    for (field, allowed) in [
        (
            "persistentVolumeReclaimPolicy",
            &["Delete", "Recycle", "Retain"][..],
        ),
        ("volumeMode", &["Block", "Filesystem"][..]),
    ] {
        check_word(
            &object["spec"][field],
            &format!("spec.{field}"),
            allowed,
            causes,
        );
    }
}

fn check_claim(object: &Value, causes: &mut Vec<Cause>) {
    if list(object, "/spec/accessModes").is_empty() {
        let why = "at least 1 access mode is required";
        causes.push(Cause::required("spec.accessModes", why));
    }
    if !has(object, "/spec/resources/requests/storage") {
        causes.push(Cause::required("spec.resources[storage]", ""));
    }
}

fn check_event(resource: &Resource, object: &Value, causes: &mut Vec<Cause>) {
    let is_newer = !resource.group.is_empty();
    if !is_newer || !has(object, "/eventTime") {
        let about = text(object, "/involvedObject/namespace");
        let namespace = text(object, "/metadata/namespace");
        let fits = about == namespace || (about.is_empty() && namespace == "default");
        if !fits {
            let why = "does not match event.namespace";
            causes.push(Cause::invalid(
                "involvedObject.namespace",
                &json!(about),
                why,
            ));
        }
    }
    if !is_newer {
        return;
    }
    if !has(object, "/eventTime") {
        causes.push(Cause::required("eventTime", ""));
    }
    for (field, pointer) in [
        ("reportingController", "/reportingComponent"),
        ("reportingInstance", "/reportingInstance"),
        ("action", "/action"),
        ("reason", "/reason"),
    ] {
        let word = text(object, pointer);
        if word.is_empty() {
            causes.push(Cause::required(field, ""));
        } else if field == "reportingController" && !is_key(word) {
            causes.push(Cause::invalid(field, &json!(word), NAME_PART));
        } else if word.len() > 128 {
            causes.push(Cause::invalid(
                field,
                &json!(""),
                "can have at most 128 characters",
            ));
        }
    }
    if text(object, "/message").len() > 1024 {
        causes.push(Cause::invalid(
            "message",
            &json!(""),
            "can have at most 1024 characters",
        ));
    }
    let kind = text(object, "/type");
    if kind != "Normal" && kind != "Warning" {
        causes.push(Cause::invalid(
            "type",
            &json!(""),
            &format!("has invalid value: {kind}"),
        ));
    }
}

fn check_terms(required: &Value, causes: &mut Vec<Cause>) {
    let field = "spec.nodeAffinity.required.nodeSelectorTerms";
    let terms = list(required, "/nodeSelectorTerms");
    if terms.is_empty() {
        let why = "must have at least one node selector term";
        causes.push(Cause::required(field, why));
    }
    for (i, term) in terms.iter().enumerate() {
        for (j, expression) in list(term, "/matchExpressions").iter().enumerate() {
            let is_set = ["In", "NotIn"].contains(&text(expression, "/operator"));
            if is_set && list(expression, "/values").is_empty() {
                let field = format!("{field}[{i}].matchExpressions[{j}].values");
                let why = "must be specified when `operator` is 'In' or 'NotIn'";
                causes.push(Cause::required(field, why));
            }
        }
    }
}

fn check_word(value: &Value, field: &str, allowed: &[&str], causes: &mut Vec<Cause>) {
    if !allowed.iter().any(|word| value == word) {
        causes.push(Cause::unsupported(field, value, allowed));
    }
}

fn check_key(key: &str, field: &str, causes: &mut Vec<Cause>) {
    if !is_key(key) {
        causes.push(Cause::invalid(field, &json!(key), NAME_PART));
    }
}

/// The volume sources: every field of the spec that is a map and not a setting.
fn sources(object: &Value) -> Vec<(&String, &Value)> {
    const SETTINGS: [&str; 3] = ["capacity", "claimRef", "nodeAffinity"];
    let spec = object.pointer("/spec").and_then(Value::as_object);
    spec.into_iter()
        .flatten()
        .filter(|(name, value)| value.is_object() && !SETTINGS.contains(&name.as_str()))
        .collect()
}

fn is_key(key: &str) -> bool {
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

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(|part| {
        !part.is_empty()
            && part
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
            && !part.starts_with('-')
            && !part.ends_with('-')
    })
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

fn is_positive(amount: &Value) -> bool {
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
    while number != 0 && number % scale == 0 && power + 1 < suffixes.len() {
        number /= scale;
        power += 1;
    }
    Some(format!("{number}{}", suffixes[power]))
}
