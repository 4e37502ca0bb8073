//! Reads the object in the body of a write: schema, kind, and the names that the path demands.

use serde_json::{Value, json};

use super::failure::Failure;
use super::object::{meta, prune, text};
use super::quantity::is_quantity;
use super::resource::Target;

/// Reads a body by its schema; refuses another kind than the path's.
pub(super) fn decoded(target: &Target, is_strict: bool, body: &Value) -> Result<Value, Failure> {
    let resource = target.resource;
    let (kind, version) = (text(body, "/kind"), text(body, "/apiVersion"));
    let refused = |why: &str| {
        let kind = if kind.is_empty() { resource.kind } else { kind };
        let version = if version.is_empty() { "v1" } else { version };
        Failure::bad_request(format!(
            "{kind} in version {version:?} cannot be handled as a {}: {why}",
            resource.kind,
        ))
    };
    if !body.is_object() {
        return Err(refused("json: cannot unmarshal into Go value"));
    }
    if !kind.is_empty() && kind != resource.kind {
        return Err(refused("unknown conversion"));
    }
    if !version.is_empty() && version != resource.api_version() {
        return Err(refused("no kind is registered for this version"));
    }
    for pointer in ["/spec/capacity/storage", "/spec/resources/requests/storage"] {
        if body
            .pointer(pointer)
            .and_then(Value::as_str)
            .is_some_and(|text| !is_quantity(text))
        {
            return Err(refused(
                "quantities must match the regular expression \
                 '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            ));
        }
    }
    let mut object = resource
        .decode(body.clone())
        .map_err(|error| refused(&error))?;
    if is_strict && let Some(path) = unknown_field(body, &resource.shown(&object), "") {
        return Err(refused(&format!(
            "strict decoding error: unknown field {path:?}"
        )));
    }
    prune(&mut object);
    Ok(object)
}

/// Fills in name and namespace from the path, or refuses others.
pub(super) fn place(target: &Target, object: &mut Value) -> Result<(), Failure> {
    let name = text(object, "/metadata/name");
    if !target.name.is_empty() && name != target.name {
        return Err(Failure::bad_request(if name.is_empty() {
            "name must be provided".to_owned()
        } else {
            let url = &target.name;
            format!("the name of the object ({name}) does not match the name on the URL ({url})")
        }));
    }
    let namespace = text(object, "/metadata/namespace");
    if !target.resource.is_namespaced {
        meta(object).remove("namespace");
        return Ok(());
    }
    if !namespace.is_empty() && namespace != target.namespace {
        return Err(Failure::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    meta(object).insert("namespace".to_owned(), json!(target.namespace));
    Ok(())
}

/// The path of a field of the body that the schema does not know.
fn unknown_field(body: &Value, known: &Value, path: &str) -> Option<String> {
    match (body, known) {
        (Value::Object(fields), Value::Object(known)) => fields.iter().find_map(|(name, value)| {
            let path = if path.is_empty() {
                name.clone()
            } else {
                format!("{path}.{name}")
            };
            match known.get(name) {
                Some(known) => unknown_field(value, known, &path),
                None if value.is_null() || path == "metadata.managedFields" => None,
                None => Some(path),
            }
        }),
        (Value::Array(items), Value::Array(known)) => items
            .iter()
            .zip(known)
            .enumerate()
            .find_map(|(i, (item, known))| unknown_field(item, known, &format!("{path}[{i}]"))),
        _ => None,
    }
}
