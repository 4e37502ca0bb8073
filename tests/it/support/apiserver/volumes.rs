//! The cluster as a test moves it by hand: volumes, claims and any other object, past the API.

use std::sync::Arc;

use k8s_openapi::Resource as _;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use serde::Serialize;
use serde_json::{Value, json};

use super::ApiServer;
use super::controllers;
use super::object::{has, is_held, meta, prune, text};
use super::resource::Resource;
use super::validation::default_new;
use super::write::mark_deleted;

impl ApiServer {
    /// Stores an object as it is, instead of one of the same name; only uid, creation time and
    /// version are filled in. A new object gets the defaults of its kind where it has no status.
    pub(crate) fn put(&self, object: impl Serialize) -> Value {
        let mut object = serde_json::to_value(object).expect("an API object is valid JSON");
        let (version, kind) = (text(&object, "/apiVersion"), text(&object, "/kind"));
        let resource = Resource::of_kind(version, kind)
            .unwrap_or_else(|| panic!("the stand-in does not serve {version} {kind}"));
        prune(&mut object);
        if !has(&object, "/status") {
            default_new(resource, &mut object);
        }
        self.shared
            .change(|state| Value::clone(&state.store.put(resource.plural, object)))
    }

    /// An object by the plural name of its resource; `namespace` is empty for cluster-scoped ones.
    pub(crate) fn get(&self, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        self.shared.read(|state| {
            state
                .store
                .get(plural, namespace, name)
                .map(|object| Value::clone(object))
        })
    }

    /// Changes an object as another client would; gives it as it is after the controllers reacted.
    pub(crate) fn modify(
        &self,
        plural: &str,
        namespace: &str,
        name: &str,
        change: impl FnOnce(&mut Value),
    ) -> Option<Value> {
        let plural = served(plural);
        self.shared
            .change(|state| state.store.modify(plural, namespace, name, change))?;
        self.get(plural, namespace, name)
    }

    /// Deletes an object as a client would: what holds it keeps it. Tells whether it was there.
    pub(crate) fn delete(&self, plural: &str, namespace: &str, name: &str) -> bool {
        let plural = served(plural);
        self.shared.change(|state| {
            let store = &mut state.store;
            match store.get(plural, namespace, name).cloned() {
                None => false,
                Some(object) if !is_held(&object) => {
                    store.remove(plural, namespace, name).is_some()
                }
                Some(object) if has(&object, "/metadata/deletionTimestamp") => true,
                Some(_) => store
                    .modify(plural, namespace, name, mark_deleted)
                    .is_some(),
            }
        })
    }

    /// Removes an object at once, whatever holds it. Tells whether it was there.
    pub(crate) fn remove(&self, plural: &str, namespace: &str, name: &str) -> bool {
        let plural = served(plural);
        self.shared
            .change(|state| state.store.remove(plural, namespace, name).is_some())
    }

    /// One PersistentVolume.
    pub(crate) fn pv(&self, name: &str) -> Option<Value> {
        self.get("persistentvolumes", "", name)
    }

    /// All PersistentVolumes in the order of their names.
    pub(crate) fn pvs(&self) -> Vec<Value> {
        self.all("persistentvolumes")
    }

    /// The phase of a PersistentVolume; empty when there is none.
    pub(crate) fn phase(&self, pv: &str) -> String {
        self.pv(pv)
            .map(|pv| text(&pv, "/status/phase").to_owned())
            .unwrap_or_default()
    }

    /// All Events of both API groups, in the form of core/v1.
    pub(crate) fn events(&self) -> Vec<Value> {
        self.all("events")
    }

    /// All objects of a resource.
    pub(crate) fn all(&self, plural: &str) -> Vec<Value> {
        let objects: Vec<Arc<Value>> = self.shared.read(|state| state.store.all(plural));
        objects.iter().map(|object| Value::clone(object)).collect()
    }

    /// Creates a claim that fits the volume and binds both. The namespace is made if need be.
    pub(crate) fn bind(&self, pv: &str, namespace: &str, claim: &str) {
        let volume = self
            .pv(pv)
            .unwrap_or_else(|| panic!("no PersistentVolume {pv} to bind"));
        if self.get("namespaces", "", namespace).is_none() {
            self.put(json!({
                "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace},
            }));
        }
        let plural = served("persistentvolumeclaims");
        let object = claim_for(&volume, pv, namespace, claim);
        self.shared.change(|state| {
            state.store.put(plural, object);
            controllers::bind(&mut state.store, pv, namespace, claim);
        });
    }

    /// [`ApiServer::bind`] for a volume that others may take away at any moment. Tells whether it was the
    /// one of that UID, and free.
    pub(crate) fn try_bind(&self, pv: &str, uid: &str, namespace: &str, claim: &str) -> bool {
        let Some(volume) = self.pv(pv) else {
            return false;
        };
        let is_free = text(&volume, "/metadata/uid") == uid
            && text(&volume, "/status/phase") == "Available"
            && !has(&volume, "/metadata/deletionTimestamp");
        if !is_free {
            return false;
        }
        let object = claim_for(&volume, pv, namespace, claim);
        self.shared.change(|state| {
            let now = state.store.get("persistentvolumes", "", pv);
            let version = "/metadata/resourceVersion";
            if now.is_none_or(|now| text(now, version) != text(&volume, version)) {
                return false;
            }
            state.store.put(served("persistentvolumeclaims"), object);
            controllers::bind(&mut state.store, pv, namespace, claim);
            true
        })
    }

    /// Deletes the claim of a bound volume; the volume is Released.
    pub(crate) fn release(&self, pv: &str) {
        let volume = self
            .pv(pv)
            .unwrap_or_else(|| panic!("no PersistentVolume {pv} to release"));
        let claim = text(&volume, "/spec/claimRef/name");
        let namespace = text(&volume, "/spec/claimRef/namespace");
        self.shared.change(|state| {
            state
                .store
                .remove("persistentvolumeclaims", namespace, claim);
            controllers::set_phase(&mut state.store, pv, "Released", None);
        });
    }

    /// Sets the phase of a volume. Running controllers may set it again at once.
    pub(crate) fn set_phase(&self, pv: &str, phase: &str) {
        self.shared
            .change(|state| controllers::set_phase(&mut state.store, pv, phase, None));
    }

    /// Deletes an object and puts another with the same name and a new UID in its place.
    pub(crate) fn recreate(&self, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        let plural = served(plural);
        let mut object = self.get(plural, namespace, name)?;
        for field in [
            "uid",
            "creationTimestamp",
            "resourceVersion",
            "deletionTimestamp",
        ] {
            meta(&mut object).remove(field);
        }
        Some(self.shared.change(|state| {
            state.store.remove(plural, namespace, name);
            Value::clone(&state.store.put(plural, object))
        }))
    }
}

/// A claim that fits a volume and names it.
fn claim_for(volume: &Value, pv: &str, namespace: &str, claim: &str) -> Value {
    let spec = &volume["spec"];
    let mut object = json!({
        "apiVersion": PersistentVolumeClaim::API_VERSION, "kind": PersistentVolumeClaim::KIND,
        "metadata": {"name": claim, "namespace": namespace},
        "spec": {
            "accessModes": spec["accessModes"], "volumeMode": spec["volumeMode"],
            "storageClassName": spec["storageClassName"], "volumeName": pv,
            "resources": {"requests": spec["capacity"]},
        },
    });
    if let Some(resource) = Resource::of_plural("persistentvolumeclaims") {
        default_new(resource, &mut object);
    }
    object
}

/// The static form of a plural name.
fn served(plural: &str) -> &'static str {
    Resource::of_plural(plural)
        .unwrap_or_else(|| panic!("the stand-in does not serve {plural}"))
        .plural
}

/// A PersistentVolume of the `local` type as a provisioner makes it, for tests that need one.
pub(crate) fn local_pv(name: &str, node: &str, class: &str) -> Value {
    let hostname = json!({
        "key": "kubernetes.io/hostname", "operator": "In", "values": [node],
    });
    json!({
        "apiVersion": PersistentVolume::API_VERSION, "kind": PersistentVolume::KIND,
        "metadata": {
            "name": name, "annotations": {"pv.kubernetes.io/provisioned-by": "example.com/local"},
        },
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Delete", "storageClassName": class,
            "volumeMode": "Filesystem", "local": {"path": format!("/mnt/{class}/{name}")},
            "nodeAffinity": {
                "required": {"nodeSelectorTerms": [{"matchExpressions": [hostname]}]},
            },
        },
    })
}
