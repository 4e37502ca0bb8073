//! Reading and changing API objects as plain JSON, and what every object gets at birth.

use std::fs;
use std::io::Read;
use std::sync::atomic::{AtomicU32, Ordering};

use k8s_openapi::jiff::{Timestamp, fmt::strtime};
use serde_json::{Map, Value, json};

/// The text at `pointer`, or nothing.
pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// The list at `pointer`, or an empty one.
pub(super) fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object
        .pointer(pointer)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// Whether something other than null is at `pointer`.
pub(super) fn has(object: &Value, pointer: &str) -> bool {
    object
        .pointer(pointer)
        .is_some_and(|value| !value.is_null())
}

/// The map at key `name`, made when it is not there.
pub(super) fn map<'a>(object: &'a mut Value, name: &str) -> &'a mut Map<String, Value> {
    if !object.is_object() {
        *object = json!({});
    }
    let slot = &mut object[name];
    if !slot.is_object() {
        *slot = json!({});
    }
    slot.as_object_mut()
        .expect("it was made an object on the line before")
}

/// The object's metadata, made when it is not there.
pub(super) fn meta(object: &mut Value) -> &mut Map<String, Value> {
    map(object, "metadata")
}

/// Sets or, with null, removes a top-level field.
pub(super) fn assign(object: &mut Value, name: &str, value: Option<&Value>) {
    let Some(fields) = object.as_object_mut() else {
        return;
    };
    match value {
        Some(value) if !value.is_null() => fields.insert(name.to_owned(), value.clone()),
        _ => fields.remove(name),
    };
}

/// Removes what a server leaves out when it writes an object: nulls, empty metadata maps and lists,
/// and managedFields, which this server does not keep.
pub(super) fn prune(object: &mut Value) {
    fn drop_nulls(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.retain(|_, field| !field.is_null());
                fields.values_mut().for_each(drop_nulls);
            }
            Value::Array(items) => items.iter_mut().for_each(drop_nulls),
            _ => {}
        }
    }
    drop_nulls(object);
    let metadata = meta(object);
    metadata.remove("managedFields");
    metadata.remove("selfLink");
    for name in ["labels", "annotations", "finalizers", "ownerReferences"] {
        let is_empty = match metadata.get(name) {
            Some(Value::Object(fields)) => fields.is_empty(),
            Some(Value::Array(items)) => items.is_empty(),
            _ => false,
        };
        if is_empty {
            metadata.remove(name);
        }
    }
}

/// Whether the object waits for somebody before it may go away.
pub(super) fn is_held(object: &Value) -> bool {
    let of_namespace =
        text(object, "/kind") == "Namespace" && !list(object, "/spec/finalizers").is_empty();
    !list(object, "/metadata/finalizers").is_empty() || of_namespace
}

/// Adds a finalizer if it is not there.
pub(super) fn add_finalizer(object: &mut Value, name: &str) {
    let slot = meta(object)
        .entry("finalizers")
        .or_insert_with(|| json!([]));
    if let Some(items) = slot.as_array_mut()
        && !items.iter().any(|item| item == name)
    {
        items.push(json!(name));
    }
}

/// Removes a finalizer; tells whether it was there.
pub(super) fn remove_finalizer(object: &mut Value, name: &str) -> bool {
    let Some(items) = meta(object)
        .get_mut("finalizers")
        .and_then(Value::as_array_mut)
    else {
        return false;
    };
    let before = items.len();
    items.retain(|item| item != name);
    items.len() != before
}

/// Now, as API objects spell it.
pub(super) fn now() -> String {
    strtime::format("%Y-%m-%dT%H:%M:%SZ", Timestamp::now())
        .expect("the format has only directives that a timestamp can fill")
}

/// A random version 4 UUID.
pub(super) fn random_uid() -> String {
    match fs::read_to_string("/proc/sys/kernel/random/uuid") {
        Ok(text) => text.trim().to_owned(),
        Err(_) => format!("00000000-0000-4000-8000-{:012x}", serial()),
    }
}

/// Five letters that the server adds to a `generateName`, of its alphabet without vowels.
pub(super) fn random_suffix() -> String {
    const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut bytes = [0_u8; 5];
    let read = fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    if read.is_err() {
        bytes.copy_from_slice(&format!("{:05}", serial() % 100_000).as_bytes()[..5]);
    }
    bytes
        .iter()
        .map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()]))
        .collect()
}

fn serial() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
