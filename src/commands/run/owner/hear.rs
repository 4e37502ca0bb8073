//! What the API server showed, taken in.

use std::sync::atomic::Ordering;

use tokio::time::Instant;
use tracing::debug;

use super::{Job, Owner};
use crate::cluster::{ClusterEvent, VolumeEvent};
use crate::pv::{Phase, Pv};
use crate::serve::Gate;

impl Owner {
    /// Takes in what a watch says.
    pub(super) fn hear(&mut self, event: ClusterEvent) {
        self.changed = true;
        match event {
            ClusterEvent::Volumes(VolumeEvent::Synced(list)) => {
                self.report.pass(Gate::Volumes);
                self.known.volumes = true;
                for pv in &list {
                    self.offering.told(&pv.name, &pv.uid);
                }
                let new = list.into_iter().map(|pv| (pv.name.clone(), pv)).collect();
                let old = std::mem::replace(&mut self.volumes, new);
                // What happened while no watch was open has to be waited for no longer.
                let now = Instant::now();
                for (name, pv) in old {
                    let is_as_before = self.volumes.get(&name).is_some_and(|new| {
                        new.uid == pv.uid && new.phase == pv.phase && new.claim == pv.claim
                    });
                    if !is_as_before {
                        self.retries.hurry(&name, now);
                    }
                }
                let names: Vec<String> = self.busy.keys().cloned().collect();
                names.iter().for_each(|name| self.check_job(name));
            }
            ClusterEvent::Volumes(VolumeEvent::Applied(pv)) => {
                self.offering.told(&pv.name, &pv.uid);
                self.apply(*pv);
            }
            ClusterEvent::Volumes(VolumeEvent::Deleted { name, uid }) => {
                self.offering.told(&name, &uid);
                if self.volumes.get(&name).is_some_and(|pv| pv.uid == uid) {
                    self.volumes.remove(&name);
                }
                self.retries.hurry(&name, Instant::now());
                self.check_job(&name);
            }
            ClusterEvent::Classes(classes) => {
                self.report.pass(Gate::Classes);
                self.known.classes = true;
                for name in classes
                    .keys()
                    .filter(|name| !self.classes.contains_key(*name))
                {
                    self.scan_after.remove(name);
                }
                self.classes = classes;
            }
            // Logged and counted where it is seen; what is known stays until there is better.
            ClusterEvent::Watch { kind, error } => {
                self.report.watch(kind, error.as_ref());
                self.stale = true;
            }
            ClusterEvent::Node(facts) => self.hear_node(facts),
            ClusterEvent::Rights(missing) => {
                self.report.rights(&missing);
                if missing.is_empty() {
                    self.retries.hurry_all(Instant::now());
                }
                self.stale = true;
            }
        }
    }

    /// Takes in a PersistentVolume, unless it is older than what is known: a watch may lag behind what
    /// our own writes returned.
    pub(super) fn apply(&mut self, pv: Pv) {
        let name = pv.name.clone();
        if let Some(known) = self.volumes.get(&name) {
            if known.uid == pv.uid && is_older(&pv.resource_version, &known.resource_version) {
                return;
            }
            if known.phase != pv.phase || known.claim != pv.claim {
                self.retries.hurry(&name, Instant::now());
            }
        }
        self.volumes.insert(name.clone(), pv);
        self.check_job(&name);
    }

    /// Stops the wipe of a volume that is no longer released to us (pitfall W-04).
    fn check_job(&self, name: &str) {
        let Some(Job::Reclaim {
            uid,
            claim_uid,
            cancel,
            ..
        }) = self.busy.get(name)
        else {
            return;
        };
        let still = self.volumes.get(name).is_some_and(|pv| {
            pv.uid == *uid && pv.phase == Phase::Released && pv.claim_uid() == claim_uid.as_deref()
        });
        if !still && !cancel.load(Ordering::Relaxed) {
            debug!(pv = name, "not released any more");
            cancel.store(true, Ordering::Relaxed);
        }
    }
}

/// Resource versions are numbers that grow (KEP-5504, Kubernetes 1.35); where they are not, nothing is
/// older.
fn is_older(version: &str, than: &str) -> bool {
    match (version.parse::<u64>(), than.parse::<u64>()) {
        (Ok(version), Ok(than)) => version < than,
        _ => false,
    }
}
