//! The patch formats: RFC 7386 merge patch, RFC 6902 JSON patch, and strategic merge as far as
//! metadata needs it.

use serde_json::{Map, Value, json};

/// Applies a merge patch (RFC 7386).
pub(super) fn merge(target: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let Some(fields) = target.as_object_mut() else {
        return;
    };
    for (name, change) in patch {
        if change.is_null() {
            fields.remove(name);
        } else {
            merge(fields.entry(name.as_str()).or_insert(Value::Null), change);
        }
    }
}

/// Applies a strategic merge patch: maps are merged; finalizers, owner references, conditions and
/// taints too, by their merge keys; other lists are replaced.
pub(super) fn strategic(target: &mut Value, patch: &Value) {
    const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
    let Some(patch) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let Some(fields) = target.as_object_mut() else {
        return;
    };
    for (name, change) in patch {
        if let Some(list) = name.strip_prefix(DELETE_FROM) {
            if let (Some(items), Some(gone)) = (
                fields.get_mut(list).and_then(Value::as_array_mut),
                change.as_array(),
            ) {
                items.retain(|item| !gone.contains(item));
            }
        } else if name.starts_with('$') {
            // Ordering directives change nothing that a client could rely on.
        } else if change.is_null() {
            fields.remove(name);
        } else if let (Some(key), Some(changes)) = (merge_key(name), change.as_array()) {
            merge_list(fields, name, key, changes);
        } else {
            strategic(fields.entry(name.as_str()).or_insert(Value::Null), change);
        }
    }
}

/// The patch merge key of the lists that are merged; empty for lists of plain values.
fn merge_key(list: &str) -> Option<&'static str> {
    match list {
        "finalizers" => Some(""),
        "ownerReferences" => Some("uid"),
        "conditions" | "addresses" => Some("type"),
        "taints" => Some("key"),
        _ => None,
    }
}

fn merge_list(fields: &mut Map<String, Value>, name: &str, key: &str, changes: &[Value]) {
    let slot = fields.entry(name).or_insert_with(|| json!([]));
    let old = slot.as_array().cloned().unwrap_or_default();
    let is_same = |a: &Value, b: &Value| {
        if key.is_empty() {
            a == b
        } else {
            a[key] == b[key]
        }
    };
    // The real server puts new items first.
    let mut merged: Vec<Value> = Vec::new();
    for change in changes {
        let found = old.iter().find(|item| is_same(item, change)).cloned();
        let is_removed = change["$patch"] == "delete";
        match found {
            _ if is_removed => {}
            Some(mut item) => {
                strategic(&mut item, change);
                merged.push(item);
            }
            None => merged.push(change.clone()),
        }
    }
    merged.extend(
        old.into_iter()
            .filter(|item| !changes.iter().any(|change| is_same(item, change))),
    );
    *slot = Value::Array(merged);
}

/// A JSON patch that can't be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JsonPatchError {
    /// It is not a list of operations.
    Malformed,
    /// An operation does not fit the object, or a `test` failed.
    Unfit,
}

/// Applies a JSON patch (RFC 6902). Like the real server's library, `replace` may create a field.
pub(super) fn json_patch(target: &mut Value, patch: &Value) -> Result<(), JsonPatchError> {
    let operations = patch.as_array().ok_or(JsonPatchError::Malformed)?;
    for operation in operations {
        let word = |name: &str| operation.get(name).and_then(Value::as_str);
        let path = word("path").ok_or(JsonPatchError::Unfit)?;
        let value = || operation.get("value").cloned().unwrap_or(Value::Null);
        let from = || word("from").ok_or(JsonPatchError::Unfit);
        match word("op").ok_or(JsonPatchError::Unfit)? {
            "add" => insert(target, path, value(), true)?,
            "replace" => insert(target, path, value(), false)?,
            "remove" => drop(take(target, path)?),
            "move" => {
                let moved = take(target, from()?)?;
                insert(target, path, moved, true)?;
            }
            "copy" => {
                let copied = target
                    .pointer(from()?)
                    .cloned()
                    .ok_or(JsonPatchError::Unfit)?;
                insert(target, path, copied, true)?;
            }
            "test" => {
                if target.pointer(path).unwrap_or(&Value::Null) != &value() {
                    return Err(JsonPatchError::Unfit);
                }
            }
            _ => return Err(JsonPatchError::Unfit),
        }
    }
    Ok(())
}

fn parent<'a>(
    target: &'a mut Value,
    path: &str,
) -> Result<(&'a mut Value, String), JsonPatchError> {
    let (above, last) = path.rsplit_once('/').ok_or(JsonPatchError::Unfit)?;
    let last = last.replace("~1", "/").replace("~0", "~");
    Ok((
        target.pointer_mut(above).ok_or(JsonPatchError::Unfit)?,
        last,
    ))
}

fn insert(
    target: &mut Value,
    path: &str,
    value: Value,
    is_shifting: bool,
) -> Result<(), JsonPatchError> {
    if path.is_empty() {
        *target = value;
        return Ok(());
    }
    let (parent, last) = parent(target, path)?;
    match parent {
        Value::Object(fields) => {
            fields.insert(last, value);
        }
        Value::Array(items) if last == "-" => items.push(value),
        Value::Array(items) => {
            let index: usize = last.parse().map_err(|_| JsonPatchError::Unfit)?;
            if is_shifting && index <= items.len() {
                items.insert(index, value);
            } else {
                *items.get_mut(index).ok_or(JsonPatchError::Unfit)? = value;
            }
        }
        _ => return Err(JsonPatchError::Unfit),
    }
    Ok(())
}

fn take(target: &mut Value, path: &str) -> Result<Value, JsonPatchError> {
    let (parent, last) = parent(target, path)?;
    match parent {
        Value::Object(fields) => fields.remove(&last).ok_or(JsonPatchError::Unfit),
        Value::Array(items) => {
            let index: usize = last.parse().map_err(|_| JsonPatchError::Unfit)?;
            if index < items.len() {
                Ok(items.remove(index))
            } else {
                Err(JsonPatchError::Unfit)
            }
        }
        _ => Err(JsonPatchError::Unfit),
    }
}
