//! What `/status` shows: the owner's view of everything, in a shape that a person and a script can
//! read. The gauges of `/metrics` are counted from the same snapshot, so that the two never disagree.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::pv::Phase;
use crate::volume::{ClassName, Reason, Refusal, VolumeMode};

/// A snapshot, published by the owner after each pass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Our version.
    pub version: &'static str,
    /// The node.
    pub node: String,
    /// What keeps everything from being offered, or the startup taint on the Node, if something does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refusal: Option<Refusal>,
    /// Where notice of changes comes from, and whether it does.
    pub sources: Vec<SourceStatus>,
    /// What is wrong or odd in the configuration, and what the Pod lacks, in words.
    pub findings: Vec<String>,
    /// The classes, with the outcome for each of their entries.
    pub classes: BTreeMap<ClassName, ClassStatus>,
    /// Wipes in progress.
    pub jobs: Vec<JobStatus>,
}

/// One source of notice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceStatus {
    /// `mounts`, `directories`, `devices`, `volumes`, ...
    pub name: String,
    /// Whether it works now.
    pub working: bool,
    /// Which way it works, or what is wrong.
    pub detail: String,
}

/// One class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClassStatus {
    /// The discovery directory as the host sees it.
    pub directory: String,
    /// `spec.volumeMode` of its PersistentVolumes.
    pub mode: VolumeMode,
    /// Why nothing of the class is offered, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refusal: Option<Refusal>,
    /// Its entries, by name.
    pub entries: Vec<EntryStatus>,
}

/// One entry of a class, or a PersistentVolume of it whose entry is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EntryStatus {
    /// Its name.
    pub entry: String,
    /// What became of it.
    pub outcome: Outcome,
    /// Why, if it is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// What was found and what to do about it, in words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// The PersistentVolume, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pv: Option<String>,
    /// Its phase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Capacity of the PersistentVolume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_bytes: Option<u64>,
}

/// What became of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// Its PersistentVolume is free, or about to be created.
    Offered,
    /// Its PersistentVolume is in use or retained, so that it is left alone.
    Kept,
    /// It is released or withdrawn, and on its way back.
    Reclaiming,
    /// It is not offered or not reclaimed, for a reason.
    Refused,
}

impl Outcome {
    /// Every outcome there is.
    pub const ALL: [Self; 4] = [Self::Offered, Self::Kept, Self::Reclaiming, Self::Refused];

    /// The outcome as one lower-case word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Offered => "offered",
            Self::Kept => "kept",
            Self::Reclaiming => "reclaiming",
            Self::Refused => "refused",
        }
    }
}

/// A wipe in progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JobStatus {
    /// The PersistentVolume.
    pub pv: String,
    /// Its class.
    pub class: ClassName,
    /// The method in words.
    pub method: String,
    /// Bytes or files done so far, as the method counts.
    pub done: u64,
    /// Of how many, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// How long it has been running.
    pub seconds: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_shape_is_stable() {
        let entry = EntryStatus {
            entry: "sda".into(),
            outcome: Outcome::Refused,
            reason: Some(Reason::InUse),
            detail: "mounted on /".into(),
            pv: None,
            phase: None,
            capacity_bytes: None,
        };
        let class = ClassStatus {
            directory: "/mnt/fast".into(),
            entries: vec![entry],
            ..ClassStatus::default()
        };
        let status = Status {
            version: "1",
            node: "n".into(),
            classes: BTreeMap::from([(ClassName::new("fast"), class)]),
            ..Status::default()
        };
        assert_eq!(
            serde_json::to_value(&status).unwrap(),
            json!({"version": "1", "node": "n", "sources": [], "findings": [], "jobs": [],
                "classes": {"fast": {"directory": "/mnt/fast", "mode": "Filesystem", "entries": [
                    {"entry": "sda", "outcome": "refused", "reason": "InUse",
                        "detail": "mounted on /"}]}}})
        );
    }
}
