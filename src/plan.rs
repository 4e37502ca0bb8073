//! Every decision, as a pure function: what the kernel shows and what the API server shows go in,
//! one [`Step`] for each class problem, entry and PersistentVolume comes out. No clock, no I/O.
//!
//! Volumes come before entries: a PersistentVolume that exists settles what its entry is. Whatever is
//! left over is offered or refused. Acting on the steps, and when to try again, is the caller's.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use crate::config::{Class, Config};
use crate::pv::{ClassFacts, NodeFacts, Offer, Policy, Pv, long_name};
use crate::volume::{ClassName, EntryName, Found, Identity, Reason, Refusal, Scan, Volume};

mod reclaim;
mod step;

pub use step::{Adopt, Keep, LetGo, Reclaim, Refuse, Stage, Step, Subject, Untaint, Withdraw};

/// Everything that a decision is made from.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The configuration in force.
    pub config: &'a Config,
    /// This node, once it is known.
    pub node: Option<&'a NodeFacts>,
    /// The StorageClasses that exist.
    pub classes: &'a BTreeMap<ClassName, ClassFacts>,
    /// What was last found in each class's directory; a class that was not looked at yet is absent.
    pub scans: &'a BTreeMap<ClassName, Scan>,
    /// The PersistentVolumes that carry this node's label, by name.
    pub volumes: &'a BTreeMap<String, Pv>,
    /// For how long the entry or the class of a PersistentVolume has been gone; one that is absent is not
    /// known to be, or was seen a moment ago.
    pub gone: &'a BTreeMap<String, Duration>,
    /// Names of PersistentVolumes that somebody else has.
    pub taken: &'a BTreeSet<String>,
    /// What PersistentVolumes are just being made for, or may have been made for although the call
    /// failed, by their names.
    pub offering: &'a BTreeMap<String, Identity>,
    /// The startup taint that is gone by our doing.
    pub untainted: Option<&'a Untaint>,
}

/// Decides what to do. Deterministic: the same view gives the same steps in the same order.
pub fn plan(view: &View<'_>) -> Vec<Step> {
    let Some(node) = view.node else {
        return vec![Step::refuse_node(
            "the Node object does not exist yet; waiting for it",
        )];
    };
    if node.hostname.is_none() {
        return vec![Step::refuse_node(
            "the Node has no label kubernetes.io/hostname, which a local volume's affinity needs",
        )];
    }
    let mut planner = Planner::new(view, node);
    for (pv, identity) in view.offering {
        planner.take_storage(identity, pv);
    }
    for pv in view.volumes.values() {
        planner.volume(pv);
    }
    for class in view.config.classes.values() {
        planner.class(class);
    }
    planner.startup_taint();
    planner.steps
}

/// One pass over a view.
struct Planner<'a> {
    view: &'a View<'a>,
    node: &'a NodeFacts,
    /// What was found, by class and entry.
    found: HashMap<(&'a ClassName, &'a str), &'a Found>,
    /// Entries that a PersistentVolume already stands for.
    settled: HashSet<(&'a ClassName, String)>,
    /// Storage that is spoken for, with who has it.
    storage: HashMap<String, Vec<(&'a Identity, String)>>,
    steps: Vec<Step>,
}

impl<'a> Planner<'a> {
    fn new(view: &'a View<'a>, node: &'a NodeFacts) -> Self {
        let mut found = HashMap::new();
        for (class, scan) in view.scans {
            let Scan::Entries(entries) = scan else {
                continue;
            };
            for entry in entries {
                found.insert((class, entry.name()), entry);
            }
        }
        Self {
            view,
            node,
            found,
            settled: HashSet::new(),
            storage: HashMap::new(),
            steps: Vec::new(),
        }
    }

    /// Decides about one existing PersistentVolume.
    fn volume(&mut self, pv: &'a Pv) {
        if let Some(identity) = &pv.identity {
            self.take_storage(identity, &pv.name);
        }
        let class = self.view.config.classes.get(&pv.class);
        let entry = class.and_then(|class| class.entry_of(pv.path.as_deref()?));
        if let (Some(class), Some(entry)) = (class, &entry) {
            self.settled
                .insert((&class.name, entry.as_str().to_owned()));
        }
        let subject = Subject::volume(pv, entry.as_ref());
        let step = match self.decide(pv, class, entry.as_ref()) {
            Ok(step) => step,
            Err(refusal) => Step::Refuse(Refuse { subject, refusal }),
        };
        self.steps.push(step);
    }

    fn decide(
        &self,
        pv: &Pv,
        class: Option<&'a Class>,
        entry: Option<&EntryName>,
    ) -> Result<Step, Refusal> {
        if !pv.is_own(self.node) {
            return Err(Refusal::new(
                Reason::NotOurs,
                "it carries this node's label but not this node's affinity; it is left alone",
            ));
        }
        let gone_for = self.view.gone.get(&pv.name);
        let withdraw_after = self.view.config.gone_policy(&pv.class).withdraw_after();
        let is_given_up =
            withdraw_after.is_some_and(|after| gone_for.is_some_and(|gone_for| *gone_for >= after));
        let homeless = |why| reclaim::homeless(pv, why, is_given_up);
        let Some(class) = class else {
            let why = format!(
                "class {} is not in the configuration; add it to go on with its volumes",
                pv.class
            );
            return homeless(Refusal::new(Reason::ClassUnknown, why));
        };
        let Some(entry) = entry else {
            let why = format!(
                "path {:?} is not a direct child of {}",
                pv.path.as_deref().unwrap_or_default(),
                class.host_dir.display()
            );
            return homeless(Refusal::new(Reason::PathOutside, why));
        };
        let keep = || {
            Step::Keep(Keep {
                subject: Subject::volume(pv, Some(entry)),
                phase: pv.phase,
            })
        };
        let Some(Scan::Entries(_)) = self.view.scans.get(&class.name) else {
            // Nothing is known about the directory: whatever it is, it can wait.
            return Ok(keep());
        };
        let found = self.found.get(&(&class.name, entry.as_str())).copied();
        reclaim::decide(pv, entry, found, is_given_up).map(|step| step.unwrap_or_else(keep))
    }

    /// Decides about the entries of one class that no PersistentVolume stands for.
    fn class(&mut self, class: &'a Class) {
        let entries = match self.view.scans.get(&class.name) {
            None => return,
            Some(Scan::Refused(refusal)) => return self.refuse_class(class, refusal.clone()),
            Some(Scan::Entries(entries)) => entries,
        };
        let facts = match self.view.classes.get(&class.name) {
            None => {
                return self.refuse_class(
                    class,
                    Refusal::new(
                        Reason::StorageClassMissing,
                        format!(
                            "StorageClass {} does not exist yet; nothing is offered",
                            class.name
                        ),
                    ),
                );
            }
            Some(facts) if facts.policy == Policy::Other => {
                return self.refuse_class(
                    class,
                    Refusal::new(
                        Reason::PolicyUnsupported,
                        format!(
                            "the reclaim policy of {} is not Delete or Retain",
                            class.name
                        ),
                    ),
                );
            }
            Some(facts) => facts,
        };
        for found in entries {
            if self
                .settled
                .contains(&(&class.name, found.name().to_owned()))
            {
                continue;
            }
            let step = match found {
                Found::Refused { refusal, .. } => Err(refusal.clone()),
                Found::Volume(volume) => self.offer(class, facts, volume),
            };
            let refused = |refusal| {
                let subject = Subject::entry(&class.name, found.name());
                Step::Refuse(Refuse { subject, refusal })
            };
            self.steps.push(step.unwrap_or_else(refused));
        }
    }

    fn offer(
        &mut self,
        class: &Class,
        facts: &ClassFacts,
        volume: &'a Volume,
    ) -> Result<Step, Refusal> {
        let mut offer = Offer::new(self.node, class, facts, volume);
        // The name is short and may collide (pitfall W-23); then a longer one is used.
        if self.view.taken.contains(&offer.pv) || self.view.volumes.contains_key(&offer.pv) {
            offer.pv = long_name(volume.entry.as_str(), &self.node.name, class.name.as_str());
        }
        if let Some(holder) = self.storage_holder(&volume.identity, &offer.pv) {
            return Err(Refusal::new(
                Reason::SameStorage,
                format!("it is the same storage as {holder}, which is offered already"),
            ));
        }
        if let Some(contents) = &volume.contents {
            return Err(Refusal::new(
                Reason::ForeignSignature,
                format!(
                    "{contents}, and the class has requireEmpty; empty it (wipefs and blkdiscard for a \
                     device), or take requireEmpty away to offer it as it is"
                ),
            ));
        }
        if let Some(other) = self.view.volumes.get(&offer.pv) {
            return Err(Refusal::new(
                Reason::NameTaken,
                format!(
                    "PersistentVolume {} stands for {:?}",
                    other.name, other.path
                ),
            ));
        }
        self.take_storage(&volume.identity, &offer.pv);
        Ok(Step::Offer(offer))
    }

    /// The startup taint goes once for each Node object, when every class was looked at: whoever puts it
    /// back later means it. The step is the last one, because it waits for the offers before it.
    fn startup_taint(&mut self) {
        let (classes, scans) = (&self.view.config.classes, self.view.scans);
        // Without a class nothing was looked at.
        if classes.is_empty() || !classes.keys().all(|class| scans.contains_key(class)) {
            return;
        }
        let Some(key) = self.view.config.startup_taint() else {
            return;
        };
        let untaint = Untaint {
            uid: self.node.uid.clone(),
            key: key.to_owned(),
        };
        if self.node.has_taint(key) == Some(true) && self.view.untainted != Some(&untaint) {
            self.steps.push(Step::Untaint(untaint));
        }
    }

    fn refuse_class(&mut self, class: &Class, refusal: Refusal) {
        self.steps.push(Step::Refuse(Refuse {
            subject: Subject::class(&class.name),
            refusal,
        }));
    }

    fn take_storage(&mut self, identity: &'a Identity, holder: &str) {
        for key in identity.keys() {
            self.storage
                .entry(key)
                .or_default()
                .push((identity, holder.to_owned()));
        }
    }

    /// Who has the storage, other than `pv` itself.
    fn storage_holder(&self, identity: &Identity, pv: &str) -> Option<&str> {
        identity
            .keys()
            .iter()
            .filter_map(|key| self.storage.get(key))
            .flatten()
            .find(|(taken, holder)| holder != pv && taken.shares_storage(identity))
            .map(|(_, holder)| holder.as_str())
    }
}

#[cfg(test)]
mod tests;
