//! The PersistentVolume: what we write, what we read back, and the names in both.
//!
//! [`manifest`] builds the object that is created; [`wire::WirePv`] is the thin form that is read
//! (a full typed PersistentVolume takes 3.5 KB of memory); [`Pv`] is what is kept of it. Everything
//! that any later process must know is on the object itself: label, identity, cleaning state.

use serde::{Deserialize, Serialize};

use crate::volume::{ClassName, Identity, VolumeMode};

mod build;
mod name;
mod wire;

pub use build::{ClassFacts, NodeFacts, Offer, manifest};
pub use name::{capacity, long_name, name, node_label, parse_quantity, quantity};
pub(crate) use wire::thin_resource;
pub use wire::{MalformedPv, WirePv};

/// Label that selects a node's own PersistentVolumes; its value is [`node_label`].
pub const LABEL_NODE: &str = "provisor.dev/node";
/// Annotation with the [`Identity`] of what was offered, as JSON.
pub const ANNOTATION_IDENTITY: &str = "provisor.dev/identity";
/// Annotation with the [`Cleaning`] state, as JSON.
pub const ANNOTATION_CLEANING: &str = "provisor.dev/cleaning";
/// Annotation that tells kube-controller-manager to leave reclaiming to us (contract PV-03).
pub const ANNOTATION_PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// Annotation with the node affinity as JSON, in alpha mode (contract PV-12).
pub const ANNOTATION_AFFINITY: &str = "volume.alpha.kubernetes.io/node-affinity";
/// Finalizer that keeps a deleted PersistentVolume until its volume is wiped.
pub const FINALIZER: &str = "provisor.dev/reclaim";
/// The node label that the affinity names (contract PV-11).
pub const LABEL_HOSTNAME: &str = "kubernetes.io/hostname";

/// `status.phase` of a PersistentVolume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Phase {
    /// Not yet seen by the PV controller.
    #[default]
    Pending,
    /// Free to be claimed.
    Available,
    /// Claimed.
    Bound,
    /// Its claim is gone; the data is still there.
    Released,
    /// The PV controller failed to reclaim it.
    Failed,
    /// A phase that this version does not know.
    Unknown,
}

impl Phase {
    /// Reads the API's spelling; an absent phase is Pending.
    pub fn parse(text: Option<&str>) -> Self {
        match text {
            None | Some("" | "Pending") => Self::Pending,
            Some("Available") => Self::Available,
            Some("Bound") => Self::Bound,
            Some("Released") => Self::Released,
            Some("Failed") => Self::Failed,
            Some(_) => Self::Unknown,
        }
    }
}

/// `persistentVolumeReclaimPolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Policy {
    /// Wipe the volume and offer it again.
    Delete,
    /// Leave the volume alone.
    Retain,
    /// Anything else, `Recycle` included: left alone.
    Other,
}

impl Policy {
    /// Reads the API's spelling; an absent policy of a StorageClass means Delete (contract PV-14).
    pub fn parse(text: Option<&str>) -> Self {
        match text {
            None | Some("Delete") => Self::Delete,
            Some("Retain") => Self::Retain,
            Some(_) => Self::Other,
        }
    }

    /// The spelling of the Kubernetes API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Delete => "Delete",
            Self::Retain => "Retain",
            Self::Other => "Recycle",
        }
    }
}

/// `spec.claimRef`, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Claim {
    /// Namespace of the claim.
    pub namespace: String,
    /// Name of the claim.
    pub name: String,
    /// UID of the claim; absent when somebody reserved the volume by name.
    pub uid: Option<String>,
}

/// How far the wipe of a released volume has come. Keyed by the UIDs of volume and claim, so that a
/// stale success can never stand for a later release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cleaning {
    /// UID of the PersistentVolume that this state belongs to.
    pub pv_uid: String,
    /// UID of the claim whose data is wiped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_uid: Option<String>,
    /// How far it is.
    pub state: CleaningState,
    /// The method in words, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub method: String,
    /// Bytes from the start of the device that are wiped and flushed; a later process goes on here.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub done_bytes: u64,
}

/// The step of a [`Cleaning`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CleaningState {
    /// Written before the first destructive call.
    Started,
    /// Wiped and proven; only the object is left to delete.
    Wiped,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that serde asks for"
)]
fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

/// What is kept of a PersistentVolume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pv {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// `metadata.finalizers`.
    pub finalizers: Vec<String>,
    /// Value of the label [`LABEL_NODE`].
    pub node_label: Option<String>,
    /// Value of the annotation [`ANNOTATION_PROVISIONED_BY`].
    pub provisioned_by: Option<String>,
    /// `spec.storageClassName`.
    pub class: ClassName,
    /// `spec.local.path`; `None` for a volume that is not local.
    pub path: Option<String>,
    /// `spec.volumeMode`.
    pub mode: VolumeMode,
    /// `spec.persistentVolumeReclaimPolicy`.
    pub policy: Policy,
    /// `spec.capacity.storage` as written.
    pub capacity: String,
    /// The values that the first term of the node affinity allows for [`LABEL_HOSTNAME`].
    pub hostnames: Vec<String>,
    /// `status.phase`.
    pub phase: Phase,
    /// `spec.claimRef`.
    pub claim: Option<Claim>,
    /// The recorded identity, if there is one that can be read.
    pub identity: Option<Identity>,
    /// The recorded cleaning state, if there is one that can be read.
    pub cleaning: Option<Cleaning>,
}

impl Pv {
    /// UID of the claim that the volume is or was bound to.
    pub fn claim_uid(&self) -> Option<&str> {
        self.claim.as_ref().and_then(|claim| claim.uid.as_deref())
    }

    /// Whether [`FINALIZER`] is on it.
    pub fn is_protected(&self) -> bool {
        self.finalizers.iter().any(|f| f == FINALIZER)
    }

    /// The cleaning state, if it belongs to this very release of this very volume.
    pub fn current_cleaning(&self) -> Option<&Cleaning> {
        self.cleaning
            .as_ref()
            .filter(|c| c.pv_uid == self.uid && c.claim_uid.as_deref() == self.claim_uid())
    }

    /// Whether it was made by us for the node `facts`: our label, and an affinity to this host alone.
    pub fn is_own(&self, facts: &NodeFacts) -> bool {
        self.node_label.as_deref() == Some(node_label(&facts.name).as_str())
            && facts
                .hostname
                .as_ref()
                .is_some_and(|host| self.hostnames == [host.as_str()])
    }

    /// Whether the reference provisioner made it on the node `facts` and nobody of ours has seen it yet:
    /// its provisioner's name and an affinity to this host alone.
    pub fn is_upstreams(&self, facts: &NodeFacts) -> bool {
        self.node_label.is_none()
            && self.path.is_some()
            && self
                .provisioned_by
                .as_deref()
                .is_some_and(|by| facts.is_provisioner(by))
            && facts
                .hostname
                .as_ref()
                .is_some_and(|host| self.hostnames == [host.as_str()])
    }
}
