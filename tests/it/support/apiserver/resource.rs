//! The table of resources that are served, and which of them a path names.
//!
//! A new resource is one line of [`RESOURCES`].

use k8s_openapi::api::core::v1::{Event, Namespace, Node, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

/// Everything that is served.
pub(super) const RESOURCES: &[Resource] = &[
    Resource::cluster("", "persistentvolumes", "PersistentVolume")
        .short("pv")
        .with_status()
        .echoed()
        .typed::<PersistentVolume>(),
    Resource::namespaced("", "persistentvolumeclaims", "PersistentVolumeClaim")
        .short("pvc")
        .with_status()
        .echoed()
        .typed::<PersistentVolumeClaim>(),
    Resource::cluster("", "nodes", "Node")
        .short("no")
        .with_status()
        .typed::<Node>(),
    Resource::cluster("", "namespaces", "Namespace")
        .short("ns")
        .with_status()
        .echoed()
        .typed::<Namespace>(),
    Resource::namespaced("", "events", "Event")
        .short("ev")
        .typed::<Event>(),
    Resource::namespaced("events.k8s.io", "events", "Event")
        .short("ev")
        .typed::<Event>(),
    Resource::cluster("storage.k8s.io", "storageclasses", "StorageClass")
        .short("sc")
        .echoed()
        .typed::<StorageClass>(),
];

/// Field names of an Event in core/v1 and in events.k8s.io/v1. Both groups show the same objects.
const EVENT_FIELDS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("count", "deprecatedCount"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("source", "deprecatedSource"),
];

/// One kind of object in one API group, always version v1.
#[derive(Debug)]
pub(super) struct Resource {
    /// Empty for the core group.
    pub(super) group: &'static str,
    /// The name in paths. It is also the key in the store: the two groups of events share one.
    pub(super) plural: &'static str,
    pub(super) kind: &'static str,
    /// What people type instead of the plural name.
    pub(super) short: &'static str,
    pub(super) is_namespaced: bool,
    pub(super) has_status: bool,
    /// DELETE answers with the object rather than with a Status.
    pub(super) is_echoed: bool,
    /// Reads and writes an object as its schema says: unknown fields go, wrong types are errors.
    decode: fn(Value) -> Result<Value, String>,
}

impl Resource {
    const fn cluster(group: &'static str, plural: &'static str, kind: &'static str) -> Self {
        let (is_namespaced, has_status, is_echoed) = (false, false, false);
        Self {
            group,
            plural,
            kind,
            short: "",
            is_namespaced,
            has_status,
            is_echoed,
            decode: Ok,
        }
    }

    const fn namespaced(group: &'static str, plural: &'static str, kind: &'static str) -> Self {
        Self {
            is_namespaced: true,
            ..Self::cluster(group, plural, kind)
        }
    }

    const fn short(self, short: &'static str) -> Self {
        Self { short, ..self }
    }

    const fn with_status(self) -> Self {
        Self {
            has_status: true,
            ..self
        }
    }

    const fn echoed(self) -> Self {
        Self {
            is_echoed: true,
            ..self
        }
    }

    const fn typed<K: Serialize + DeserializeOwned>(self) -> Self {
        Self {
            decode: through::<K>,
            ..self
        }
    }

    /// The resource that stores objects of `kind`.
    pub(super) fn of_kind(api_version: &str, kind: &str) -> Option<&'static Self> {
        RESOURCES
            .iter()
            .find(|r| r.kind == kind && r.api_version() == api_version)
    }

    /// The first resource of the table with that plural name.
    pub(super) fn of_plural(plural: &str) -> Option<&'static Self> {
        RESOURCES.iter().find(|resource| resource.plural == plural)
    }

    pub(super) fn api_version(&self) -> String {
        if self.group.is_empty() {
            "v1".to_owned()
        } else {
            format!("{}/v1", self.group)
        }
    }

    pub(super) fn qualified_plural(&self) -> String {
        qualified(self.plural, self.group)
    }

    pub(super) fn qualified_kind(&self) -> String {
        qualified(self.kind, self.group)
    }

    /// Turns a body into the stored form.
    pub(super) fn decode(&self, body: Value) -> Result<Value, String> {
        let mut stored = body;
        if self.is_newer_event() {
            rename(&mut stored, |(core, newer)| (newer, core));
        }
        let version = if self.is_newer_event() {
            "v1".to_owned()
        } else {
            self.api_version()
        };
        stored["apiVersion"] = json!(version);
        stored["kind"] = json!(self.kind);
        (self.decode)(stored)
    }

    /// A stored object as this group shows it.
    pub(super) fn shown(&self, stored: &Value) -> Value {
        let mut shown = stored.clone();
        if self.is_newer_event() {
            rename(&mut shown, |names| names);
            shown["apiVersion"] = json!(self.api_version());
        }
        shown
    }

    fn is_newer_event(&self) -> bool {
        self.group == "events.k8s.io"
    }
}

fn qualified(name: &str, group: &str) -> String {
    if group.is_empty() {
        name.to_owned()
    } else {
        format!("{name}.{group}")
    }
}

fn through<K: Serialize + DeserializeOwned>(body: Value) -> Result<Value, String> {
    let typed: K = serde_json::from_value(body).map_err(|error| error.to_string())?;
    serde_json::to_value(typed).map_err(|error| error.to_string())
}

fn rename<'a>(object: &mut Value, order: impl Fn((&'a str, &'a str)) -> (&'a str, &'a str)) {
    let Some(fields) = object.as_object_mut() else {
        return;
    };
    for names in EVENT_FIELDS {
        let (from, to) = order(names);
        if let Some(value) = fields.remove(from) {
            fields.insert(to.to_owned(), value);
        }
    }
}

/// What a path under `/api` or `/apis` names.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) resource: &'static Resource,
    /// Empty for cluster-scoped resources, and for a list over all namespaces.
    pub(super) namespace: String,
    /// Empty for the collection.
    pub(super) name: String,
    /// The path ends in `/status`.
    pub(super) is_status: bool,
    /// The old `/watch/` form of the path.
    pub(super) is_watch: bool,
}

impl Target {
    /// Reads a path; `None` when no served resource is there.
    pub(super) fn parse(path: &str) -> Option<Self> {
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        let (group, rest) = match parts.as_slice() {
            ["api", "v1", rest @ ..] => ("", rest),
            ["apis", group, "v1", rest @ ..] => (*group, rest),
            _ => return None,
        };
        let (is_watch, rest) = match rest {
            ["watch", rest @ ..] => (true, rest),
            rest => (false, rest),
        };
        let (namespace, rest) = match rest {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() && rest != ["status"] => {
                (*namespace, rest)
            }
            rest => ("", rest),
        };
        let (plural, name, is_status) = match rest {
            [plural] => (plural, "", false),
            [plural, name] => (plural, *name, false),
            [plural, name, "status"] => (plural, *name, true),
            _ => return None,
        };
        let resource = RESOURCES
            .iter()
            .find(|r| r.group == group && r.plural == *plural)?;
        let fits = resource.is_namespaced || namespace.is_empty();
        let is_addressed = name.is_empty() || !resource.is_namespaced || !namespace.is_empty();
        (fits && is_addressed && (!is_status || resource.has_status)).then(|| Self {
            resource,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            is_status,
            is_watch,
        })
    }
}
