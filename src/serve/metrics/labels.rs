//! The closed sets that label values come from.

use crate::volume::VolumeMode;

/// A kind of call to the API server; label `method`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiMethod {
    /// GET of one PersistentVolume.
    Get,
    /// LIST of anything.
    List,
    /// The start of a watch.
    Watch,
    /// Creation of a PersistentVolume.
    Create,
    /// Change of a PersistentVolume.
    Patch,
    /// Deletion of a PersistentVolume.
    Delete,
    /// Creation of an Event.
    Event,
    /// A question for our own rights.
    Review,
}

impl ApiMethod {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::Event => "event",
            Self::Review => "review",
        }
    }
}

/// What is watched on the API server; label `kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchKind {
    /// This node's PersistentVolumes.
    PersistentVolumes,
    /// StorageClasses.
    StorageClasses,
    /// This node's Node.
    Nodes,
}

impl WatchKind {
    /// The kind as the API's plural.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PersistentVolumes => "persistentvolumes",
            Self::StorageClasses => "storageclasses",
            Self::Nodes => "nodes",
        }
    }
}

/// How a volume is wiped; label `type` (contract MET-04).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CleanType {
    /// By this process or a child of it.
    Process,
    /// By a Job.
    Job,
}

impl CleanType {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Job => "job",
        }
    }
}

/// `spec.volumeMode`, or what upstream calls it when it is not known.
pub(super) fn mode(mode: Option<VolumeMode>) -> &'static str {
    mode.map_or("unknown", VolumeMode::as_str)
}

/// The capacity in steps of 500 GiB, rounded up, as in upstream's label (contract MET-06).
pub(super) fn capacity_step(bytes: u64) -> String {
    const STEP_GIB: u64 = 500;
    let steps = bytes.div_ceil(STEP_GIB << 30);
    format!("{}G", steps * STEP_GIB)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn met_06_capacities_are_steps_of_500_gib() {
        const GIB: u64 = 1 << 30;
        for (bytes, want) in [
            (0, "0G"),
            (1, "500G"),
            (500 * GIB, "500G"),
            (500 * GIB + 1, "1000G"),
            (3 << 40, "3500G"),
        ] {
            assert_eq!(capacity_step(bytes), want, "{bytes}");
        }
    }
}
