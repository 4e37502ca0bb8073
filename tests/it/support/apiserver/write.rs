//! The verbs that change objects: create, update, patch, apply and delete.
//!
//! Each runs whole under the lock of the state, so two clients never see half of one.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::body::{decoded, place};
use super::failure::{Cause, Failure};
use super::object::{assign, has, is_held, meta, now, prune, random_suffix, random_uid, text};
use super::patch::{JsonPatchError, json_patch, merge, strategic};
use super::quantity::canonicalize;
use super::resource::{Resource, Target};
use super::store::Store;
use super::validation::{check_change, check_new, default_new, immutable};

/// The patch formats besides apply.
const PATCH_TYPES: [&str; 3] = [
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/json-patch+json",
];

/// How a write is meant.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WriteOptions<'a> {
    /// Check and answer, but store nothing.
    pub(super) is_dry_run: bool,
    /// Refuse unknown fields rather than drop them.
    pub(super) is_strict: bool,
    /// Who writes; needed by apply.
    pub(super) manager: &'a str,
}

/// What every apply said last, by object UID and field manager: what it does not say any more goes.
pub(super) type Applied = BTreeMap<(String, String), Value>;

/// The answer to a write: the HTTP code and the object or Status.
pub(super) type Answer = Result<(u16, Value), Failure>;

/// POST to a collection.
pub(super) fn create(
    store: &mut Store,
    target: &Target,
    options: WriteOptions<'_>,
    body: &Value,
) -> Answer {
    let resource = target.resource;
    let mut object = decoded(target, options.is_strict, body)?;
    let metadata = meta(&mut object);
    if metadata.contains_key("resourceVersion") {
        let message = "resourceVersion should not be set on objects to be created";
        return Err(Failure::new(500, "", message));
    }
    for name in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        metadata.remove(name);
    }
    let prefix = metadata
        .get("generateName")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if !metadata.contains_key("name") && !prefix.is_empty() {
        let name = format!("{prefix}{}", random_suffix());
        metadata.insert("name".to_owned(), json!(name));
    }
    place(target, &mut object)?;
    if resource.is_namespaced && store.get("namespaces", "", &target.namespace).is_none() {
        let namespaces = Resource::of_plural("namespaces");
        let namespaces = namespaces.ok_or_else(Failure::no_such_path)?;
        return Err(Failure::not_found(namespaces, &target.namespace));
    }
    if resource.has_status {
        assign(&mut object, "status", None);
    }
    default_new(resource, &mut object);
    canonicalize(&mut object);
    prune(&mut object);
    check_new(resource, &object)?;
    let name = text(&object, "/metadata/name");
    if let Some(other) = store.get(resource.plural, &target.namespace, name) {
        let is_deleted = has(other, "/metadata/deletionTimestamp");
        return Err(Failure::already_exists(resource, name, is_deleted));
    }
    if options.is_dry_run {
        let metadata = meta(&mut object);
        metadata.insert("uid".to_owned(), json!(random_uid()));
        metadata.insert("creationTimestamp".to_owned(), json!(now()));
        return Ok((201, resource.shown(&object)));
    }
    Ok((201, resource.shown(&store.put(resource.plural, object))))
}

/// PUT of an object or of its status.
pub(super) fn update(
    store: &mut Store,
    target: &Target,
    options: WriteOptions<'_>,
    body: &Value,
) -> Answer {
    let mut object = decoded(target, options.is_strict, body)?;
    place(target, &mut object)?;
    let old = existing(store, target)?;
    let uid = text(&object, "/metadata/uid");
    let record = text(&old, "/metadata/uid");
    if !uid.is_empty() && uid != record {
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: /registry/{}/{}, ResourceVersion: 0, \
             AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, \
             UID in object meta: {record}",
            target.resource.plural, target.name,
        );
        return Err(Failure::conflict(target.resource, &target.name, &why));
    }
    commit(store, target, options, &old, object)
}

/// PATCH in any of the formats but apply.
pub(super) fn patch(
    store: &mut Store,
    target: &Target,
    options: WriteOptions<'_>,
    content_type: &str,
    body: &Value,
) -> Answer {
    if !PATCH_TYPES.contains(&content_type) {
        return Err(Failure::new(
            415,
            "UnsupportedMediaType",
            "415: Unsupported Media Type",
        ));
    }
    let old = existing(store, target)?;
    let mut patched = target.resource.shown(&old);
    match content_type {
        "application/merge-patch+json" => merge(&mut patched, body),
        "application/strategic-merge-patch+json" => strategic(&mut patched, body),
        _ => {
            json_patch(&mut patched, body).map_err(|error| match error {
                JsonPatchError::Malformed => Failure::bad_request(
                    "error decoding patch: json: cannot unmarshal object into Go value of type \
                     []handlers.jsonPatchOp",
                ),
                JsonPatchError::Unfit => Failure::unprocessable(),
            })?;
        }
    }
    let mut object = decoded(target, options.is_strict, &patched)?;
    place(target, &mut object)?;
    commit(store, target, options, &old, object)
}

/// PATCH by server-side apply: creates the object, or merges into it and removes what the same
/// manager applied before and does not any more. Ownership by others is not tracked.
pub(super) fn apply(
    store: &mut Store,
    applied: &mut Applied,
    target: &Target,
    options: WriteOptions<'_>,
    body: &Value,
) -> Answer {
    if options.manager.is_empty() {
        let cause = Cause::required("fieldManager", "is required for apply patch");
        return Err(Failure::invalid_options("PatchOptions", &cause));
    }
    let mut wanted = body.clone();
    meta(&mut wanted)
        .entry("name")
        .or_insert_with(|| json!(target.name));
    let (code, object) = match existing(store, target) {
        Err(_) if !target.is_status => create(store, target, options, &wanted)?,
        Err(failure) => return Err(failure),
        Ok(old) => {
            let mut patched = target.resource.shown(&old);
            let key = (
                text(&old, "/metadata/uid").to_owned(),
                options.manager.to_owned(),
            );
            if let Some(before) = applied.get(&key) {
                withdraw(&mut patched, before, &wanted);
            }
            strategic(&mut patched, &wanted);
            let mut object = decoded(target, options.is_strict, &patched)?;
            place(target, &mut object)?;
            commit(store, target, options, &old, object)?
        }
    };
    if !options.is_dry_run {
        let uid = text(&object, "/metadata/uid").to_owned();
        applied.insert((uid, options.manager.to_owned()), wanted);
    }
    Ok((code, object))
}

/// DELETE of one object.
pub(super) fn delete(
    store: &mut Store,
    target: &Target,
    options: WriteOptions<'_>,
    body: &Value,
) -> Answer {
    let resource = target.resource;
    let old = existing(store, target)?;
    let uid = text(&old, "/metadata/uid").to_owned();
    let wanted = text(body, "/preconditions/uid");
    if !wanted.is_empty() && wanted != uid {
        let why = format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). \
             The object might have been deleted and then recreated",
        );
        return Err(Failure::precondition(resource, &target.name, &why));
    }
    let version = text(&old, "/metadata/resourceVersion");
    let wanted = text(body, "/preconditions/resourceVersion");
    if !wanted.is_empty() && wanted != version {
        let why = format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the \
             ResourceVersion in record ({version}). The object might have been modified",
        );
        return Err(Failure::precondition(resource, &target.name, &why));
    }
    if is_held(&old) {
        let mut after = old;
        if !has(&after, "/metadata/deletionTimestamp") {
            mark_deleted(&mut after);
            if !options.is_dry_run {
                after = Value::clone(&store.put(resource.plural, after));
            }
        }
        return Ok((200, resource.shown(&after)));
    }
    let mut last = old;
    if !options.is_dry_run
        && let Some(removed) = store.remove(resource.plural, &target.namespace, &target.name)
    {
        last = Value::clone(&removed);
    }
    if resource.is_echoed {
        return Ok((200, resource.shown(&last)));
    }
    let mut details = json!({"name": target.name, "kind": resource.plural, "uid": uid});
    if !resource.group.is_empty() {
        details["group"] = json!(resource.group);
    }
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": details,
    });
    Ok((200, status))
}

/// Marks an object that something holds as deleted.
pub(super) fn mark_deleted(object: &mut Value) {
    let is_namespace = text(object, "/kind") == "Namespace";
    let metadata = meta(object);
    metadata.insert("deletionTimestamp".to_owned(), json!(now()));
    if is_namespace {
        object["status"] = json!({"phase": "Terminating"});
    } else {
        metadata.insert("deletionGracePeriodSeconds".to_owned(), json!(0));
    }
}

/// The last part of every change of an existing object.
fn commit(
    store: &mut Store,
    target: &Target,
    options: WriteOptions<'_>,
    old: &Value,
    mut object: Value,
) -> Answer {
    let resource = target.resource;
    let version = text(&object, "/metadata/resourceVersion");
    if !version.is_empty() && version != text(old, "/metadata/resourceVersion") {
        return Err(Failure::modified(resource, &target.name));
    }
    for field in ["uid", "creationTimestamp"] {
        let value = &object["metadata"][field];
        if value.is_null() {
            object["metadata"][field] = old["metadata"][field].clone();
        } else if *value != old["metadata"][field] {
            return Err(immutable(resource, &object, field));
        }
    }
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        match &old["metadata"][field] {
            Value::Null if !object["metadata"][field].is_null() => {
                return Err(immutable(resource, &object, field));
            }
            kept => object["metadata"][field] = kept.clone(),
        }
    }
    object["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
    if target.is_status {
        assign(&mut object, "spec", old.get("spec"));
        let (before, after) = (text(old, "/status/phase"), text(&object, "/status/phase"));
        if resource.plural == "persistentvolumes" && before != after {
            object["status"]["lastPhaseTransitionTime"] = json!(now());
        }
    } else if resource.has_status {
        assign(&mut object, "status", old.get("status"));
    }
    canonicalize(&mut object);
    prune(&mut object);
    check_change(resource, old, &object)?;
    if object == *old || options.is_dry_run {
        return Ok((200, resource.shown(&object)));
    }
    Ok((200, resource.shown(&store.replace(resource.plural, object))))
}

fn existing(store: &Store, target: &Target) -> Result<Value, Failure> {
    store
        .get(target.resource.plural, &target.namespace, &target.name)
        .map(|object| Value::clone(object))
        .ok_or_else(|| Failure::not_found(target.resource, &target.name))
}

/// Removes from `object` what `before` has and `wanted` has not.
fn withdraw(object: &mut Value, before: &Value, wanted: &Value) {
    let (Some(fields), Some(before)) = (object.as_object_mut(), before.as_object()) else {
        return;
    };
    for (name, was) in before {
        match (wanted.get(name), fields.get_mut(name)) {
            (None, Some(_)) if was.is_object() => {
                if let Some(field) = fields.get_mut(name) {
                    withdraw(field, was, &Value::Null);
                }
            }
            (None, _) => drop(fields.remove(name)),
            (Some(wanted), Some(field)) => withdraw(field, was, wanted),
            (Some(_), None) => {}
        }
    }
}
