//! The objects, one counter of versions for all of them, and every change since the start.
//!
//! The log is kept whole, so that any older state can be rebuilt: that is what continued lists, stale
//! lists and watches read. [`Store::compact`] only forbids clients to ask for it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::object::{is_held, meta, now, random_uid, text};

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeKind {
    /// It came.
    Added,
    /// It is another than before.
    Modified,
    /// It is gone.
    Deleted,
}

/// One change of one object.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// The resource version that the change made.
    pub(crate) version: u64,
    /// When, counted from the start of the server.
    pub(crate) at: Duration,
    /// The resource's plural name.
    pub(crate) resource: &'static str,
    /// Empty for cluster-scoped objects.
    pub(crate) namespace: String,
    /// The object's name.
    pub(crate) name: String,
    /// What happened.
    pub(crate) kind: ChangeKind,
    /// The object as it was, unless it was added.
    pub(crate) before: Option<Arc<Value>>,
    /// The object as it is, or as it was when it was deleted.
    pub(crate) object: Arc<Value>,
}

/// Objects of one resource by namespace and name.
pub(super) type Objects = BTreeMap<(String, String), Arc<Value>>;

/// All objects and their history.
#[derive(Debug)]
pub(super) struct Store {
    started: Instant,
    version: u64,
    compacted: u64,
    objects: BTreeMap<&'static str, Objects>,
    log: Vec<Change>,
}

impl Store {
    /// A store at version 1, without objects.
    pub(super) fn new(started: Instant) -> Self {
        Self {
            started,
            version: 1,
            compacted: 0,
            objects: BTreeMap::new(),
            log: Vec::new(),
        }
    }

    pub(super) fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn log(&self) -> &[Change] {
        &self.log
    }

    /// The changes that made versions above `version`.
    pub(super) fn since(&self, version: u64) -> &[Change] {
        &self.log[self.log.partition_point(|change| change.version <= version)..]
    }

    /// Whether a client may still ask for what happened after `version`.
    pub(super) fn remembers(&self, version: u64) -> bool {
        version >= self.compacted
    }

    /// Forgets, as far as clients can tell, everything before now. Burns one version, so that
    /// whoever is at the latest version of an object is behind, as after a real compaction.
    pub(super) fn compact(&mut self) {
        self.version += 1;
        self.compacted = self.version;
    }

    pub(super) fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<&Arc<Value>> {
        self.objects
            .get(resource)?
            .get(&(namespace.to_owned(), name.to_owned()))
    }

    /// All objects of a resource in the order of their names.
    pub(super) fn all(&self, resource: &str) -> Vec<Arc<Value>> {
        self.objects
            .get(resource)
            .map_or_else(Vec::new, |all| all.values().cloned().collect())
    }

    /// The objects of a resource as they were at `version`.
    pub(super) fn at(&self, resource: &str, version: u64) -> Objects {
        let mut objects = self.objects.get(resource).cloned().unwrap_or_default();
        for change in self.since(version).iter().rev() {
            if change.resource != resource {
                continue;
            }
            let key = (change.namespace.clone(), change.name.clone());
            match &change.before {
                Some(before) => objects.insert(key, before.clone()),
                None => objects.remove(&key),
            };
        }
        objects
    }

    /// Stores an object under the names in its metadata; gives what was stored.
    pub(super) fn put(&mut self, resource: &'static str, mut object: Value) -> Arc<Value> {
        let namespace = text(&object, "/metadata/namespace").to_owned();
        let name = text(&object, "/metadata/name").to_owned();
        self.version += 1;
        let metadata = meta(&mut object);
        metadata.entry("uid").or_insert_with(|| json!(random_uid()));
        metadata
            .entry("creationTimestamp")
            .or_insert_with(|| json!(now()));
        metadata.insert(
            "resourceVersion".to_owned(),
            json!(self.version.to_string()),
        );
        let object = Arc::new(object);
        let key = (namespace.clone(), name.clone());
        let before = self
            .objects
            .entry(resource)
            .or_default()
            .insert(key, object.clone());
        let kind = if before.is_some() {
            ChangeKind::Modified
        } else {
            ChangeKind::Added
        };
        self.record(resource, namespace, name, kind, before, object.clone());
        object
    }

    /// Changes a stored object and stores it, or removes it when nothing holds a deleted one any
    /// more. Nothing happens when it is not there or stays the same.
    pub(super) fn modify(
        &mut self,
        resource: &'static str,
        namespace: &str,
        name: &str,
        change: impl FnOnce(&mut Value),
    ) -> Option<Arc<Value>> {
        let before = self.get(resource, namespace, name)?.clone();
        let mut after = Value::clone(&before);
        change(&mut after);
        if *before == after {
            return Some(before);
        }
        Some(self.replace(resource, after))
    }

    /// Stores a new form of an existing object, or removes it when it was deleted and nothing holds
    /// it any more; then the answer keeps the version that it had, as the real server's does.
    pub(super) fn replace(&mut self, resource: &'static str, after: Value) -> Arc<Value> {
        let is_deleted = after.pointer("/metadata/deletionTimestamp").is_some();
        if !is_deleted || is_held(&after) {
            return self.put(resource, after);
        }
        let namespace = text(&after, "/metadata/namespace");
        self.remove(resource, namespace, text(&after, "/metadata/name"));
        Arc::new(after)
    }

    /// Removes an object, whatever holds it; gives its last form with the version of the removal.
    pub(super) fn remove(
        &mut self,
        resource: &'static str,
        namespace: &str,
        name: &str,
    ) -> Option<Arc<Value>> {
        let key = (namespace.to_owned(), name.to_owned());
        let before = self.objects.get_mut(resource)?.remove(&key)?;
        self.version += 1;
        let mut last = Value::clone(&before);
        meta(&mut last).insert(
            "resourceVersion".to_owned(),
            json!(self.version.to_string()),
        );
        let last = Arc::new(last);
        let (namespace, name) = key;
        self.record(
            resource,
            namespace,
            name,
            ChangeKind::Deleted,
            Some(before),
            last.clone(),
        );
        Some(last)
    }

    fn record(
        &mut self,
        resource: &'static str,
        namespace: String,
        name: String,
        kind: ChangeKind,
        before: Option<Arc<Value>>,
        object: Arc<Value>,
    ) {
        let (version, at) = (self.version, self.started.elapsed());
        self.log.push(Change {
            version,
            at,
            resource,
            namespace,
            name,
            kind,
            before,
            object,
        });
    }
}
