//! The part of kube-controller-manager that a PersistentVolume meets: phases, binding of claims that
//! name a volume, and the protection finalizers.
//!
//! The controllers run to rest inside each change, so a client never sees the time that the real
//! ones take: the answer to a write shows the object from before they reacted, the next read after.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::object::{has, is_held, list, map, meta, now, remove_finalizer, text};
use super::store::{Change, Store};
use super::write::mark_deleted;

/// More rounds than any chain of reactions takes; a bug would otherwise hang the server.
const MAX_ROUNDS: usize = 16;

/// Whether the emulated controllers react.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Controllers {
    is_on: bool,
}

impl Controllers {
    /// They do, as in a healthy cluster.
    pub(crate) fn on() -> Self {
        Self { is_on: true }
    }

    /// They do not: volumes stay Pending, and what is protected stays when it is deleted.
    pub(crate) fn off() -> Self {
        Self { is_on: false }
    }

    pub(super) fn is_on(self) -> bool {
        self.is_on
    }
}

/// Reacts to what has changed after version `seen`, until there is nothing to do; gives the version
/// up to which that is so.
pub(super) fn settle(store: &mut Store, seen: u64) -> u64 {
    let mut seen = seen;
    for _ in 0..MAX_ROUNDS {
        if store.version() == seen {
            break;
        }
        let volumes = concerned(store.since(seen));
        seen = store.version();
        sync_namespaces(store);
        sync_claims(store);
        sync_volumes(store, &volumes);
    }
    seen
}

/// The volumes that changes are about. A claim names its volume; one that does not is not bound.
fn concerned(changes: &[Change]) -> BTreeSet<String> {
    changes
        .iter()
        .filter_map(|change| match change.resource {
            "persistentvolumes" => Some(change.name.clone()),
            "persistentvolumeclaims" => Some(text(&change.object, "/spec/volumeName").to_owned()),
            _ => None,
        })
        .collect()
}

/// Binds a volume and a claim to each other, whatever either says.
pub(super) fn bind(store: &mut Store, volume: &str, namespace: &str, claim: &str) {
    let Some(pvc) = store
        .get("persistentvolumeclaims", namespace, claim)
        .cloned()
    else {
        return;
    };
    let Some(pv) = store.modify("persistentvolumes", "", volume, |pv| {
        let is_prebound = has(pv, "/spec/claimRef");
        if !is_prebound {
            let by_controller = (
                "pv.kubernetes.io/bound-by-controller".to_owned(),
                json!("yes"),
            );
            map(&mut pv["metadata"], "annotations").extend([by_controller]);
        }
        pv["spec"]["claimRef"] = json!({
            "kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": namespace,
            "name": claim, "uid": pvc["metadata"]["uid"],
            "resourceVersion": pvc["metadata"]["resourceVersion"],
        });
    }) else {
        return;
    };
    set_phase(store, volume, "Bound", None);
    store.modify("persistentvolumeclaims", namespace, claim, |pvc| {
        let complete = ("pv.kubernetes.io/bind-completed".to_owned(), json!("yes"));
        map(&mut pvc["metadata"], "annotations").extend([complete]);
        pvc["spec"]["volumeName"] = json!(volume);
        pvc["status"] = json!({
            "phase": "Bound", "accessModes": pv["spec"]["accessModes"],
            "capacity": pv["spec"]["capacity"],
        });
    });
}

/// Sets a volume's phase and, with it, its message.
pub(super) fn set_phase(store: &mut Store, volume: &str, phase: &str, message: Option<&str>) {
    store.modify("persistentvolumes", "", volume, |pv| {
        if text(pv, "/status/phase") == phase {
            return;
        }
        pv["status"] = json!({"phase": phase, "lastPhaseTransitionTime": now()});
        if let Some(message) = message {
            pv["status"]["message"] = json!(message);
        }
    });
}

fn sync_volumes(store: &mut Store, names: &BTreeSet<String>) {
    for name in names {
        let Some(pv) = store.get("persistentvolumes", "", name).cloned() else {
            continue;
        };
        let uid = text(&pv, "/spec/claimRef/uid");
        if uid.is_empty() {
            set_phase(store, name, "Available", None);
        } else {
            let namespace = text(&pv, "/spec/claimRef/namespace");
            let claim = text(&pv, "/spec/claimRef/name");
            let is_there = store
                .get("persistentvolumeclaims", namespace, claim)
                .is_some_and(|claim| text(claim, "/metadata/uid") == uid);
            let is_past = ["Released", "Failed"].contains(&text(&pv, "/status/phase"));
            if is_there {
                set_phase(store, name, "Bound", None);
            } else if !is_past {
                set_phase(store, name, "Released", None);
                fail_without_deleter(store, name, &pv);
            }
        }
        store.modify("persistentvolumes", "", name, |pv| {
            let is_free = text(pv, "/status/phase") != "Bound";
            if has(pv, "/metadata/deletionTimestamp") && is_free {
                remove_finalizer(pv, "kubernetes.io/pv-protection");
            }
        });
    }
}

/// A released volume that is to be deleted, and does not say by whom, is the in-tree plugins' to
/// delete; there is none for local volumes.
fn fail_without_deleter(store: &mut Store, name: &str, pv: &Value) {
    let provisioner = "/metadata/annotations/pv.kubernetes.io~1provisioned-by";
    if text(pv, "/spec/persistentVolumeReclaimPolicy") == "Delete" && !has(pv, provisioner) {
        let message = format!(
            "error getting deleter volume plugin for volume {name:?}: no volume plugin matched"
        );
        set_phase(store, name, "Failed", Some(&message));
    }
}

fn sync_claims(store: &mut Store) {
    for pvc in store.all("persistentvolumeclaims") {
        let namespace = text(&pvc, "/metadata/namespace");
        let name = text(&pvc, "/metadata/name");
        if has(&pvc, "/metadata/deletionTimestamp") {
            store.modify("persistentvolumeclaims", namespace, name, |pvc| {
                remove_finalizer(pvc, "kubernetes.io/pvc-protection");
            });
            continue;
        }
        let volume = text(&pvc, "/spec/volumeName");
        let pv = store.get("persistentvolumes", "", volume).cloned();
        match (text(&pvc, "/status/phase"), pv) {
            ("Pending", Some(pv)) if is_open_to(&pv, namespace, name, &pvc) => {
                bind(store, volume, namespace, name);
            }
            ("Bound", None) => {
                store.modify("persistentvolumeclaims", namespace, name, |pvc| {
                    pvc["status"]["phase"] = json!("Lost");
                });
            }
            _ => {}
        }
    }
}

/// Whether a claim that names this volume may have it.
fn is_open_to(pv: &Value, namespace: &str, name: &str, pvc: &Value) -> bool {
    let Some(reference) = pv.pointer("/spec/claimRef") else {
        return !has(pv, "/metadata/deletionTimestamp")
            && text(pv, "/spec/storageClassName") == text(pvc, "/spec/storageClassName");
    };
    let uid = text(reference, "/uid");
    text(reference, "/namespace") == namespace
        && text(reference, "/name") == name
        && (uid.is_empty() || uid == text(pvc, "/metadata/uid"))
}

/// Empties deleted namespaces and lets them go.
fn sync_namespaces(store: &mut Store) {
    const NAMESPACED: [&str; 2] = ["persistentvolumeclaims", "events"];
    for namespace in store.all("namespaces") {
        if !has(&namespace, "/metadata/deletionTimestamp") {
            continue;
        }
        let name = text(&namespace, "/metadata/name");
        let mut is_empty = true;
        for resource in NAMESPACED {
            for object in store.all(resource) {
                if text(&object, "/metadata/namespace") != name {
                    continue;
                }
                is_empty = false;
                let object_name = text(&object, "/metadata/name");
                if !is_held(&object) {
                    store.remove(resource, name, object_name);
                } else if !has(&object, "/metadata/deletionTimestamp") {
                    store.modify(resource, name, object_name, mark_deleted);
                }
            }
        }
        if is_empty && !list(&namespace, "/spec/finalizers").is_empty() {
            store.modify("namespaces", "", name, |namespace| {
                meta(namespace);
                map(namespace, "spec").remove("finalizers");
            });
        }
    }
}
