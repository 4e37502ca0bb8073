//! What the real server refuses to store, as far as a provisioner can get it wrong, and the defaults
//! that it fills in.

use serde_json::{Value, json};

use super::failure::{Cause, Failure};
use super::naming::{NAME_PART, SUBDOMAIN, check_metadata, is_key, is_subdomain};
use super::object::{add_finalizer, has, list, map, meta, now, text};
use super::quantity::is_positive;
use super::resource::Resource;

const ACCESS_MODES: [&str; 4] = [
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOnce",
    "ReadWriteOncePod",
];

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

/// The volume sources: every field of the spec that is a map and not a setting.
fn sources(object: &Value) -> Vec<(&String, &Value)> {
    const SETTINGS: [&str; 3] = ["capacity", "claimRef", "nodeAffinity"];
    let spec = object.pointer("/spec").and_then(Value::as_object);
    spec.into_iter()
        .flatten()
        .filter(|(name, value)| value.is_object() && !SETTINGS.contains(&name.as_str()))
        .collect()
}
