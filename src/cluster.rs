//! The API server's side: what it shows is sent to the owner, what the owner decides is written.
//!
//! Three watches (own PersistentVolumes, StorageClasses, this node's Node) run as tasks and send
//! [`ClusterEvent`]s over one bounded channel. An event says what the API server showed at some time
//! in the past; nothing that can't be undone may be done by it. Every other call is one attempt with
//! a deadline that ends in an [`ApiError`]: whether and when to try again is for the owner to say,
//! who knows what else changed meanwhile. Nothing here keeps state of its own but the watches.

use std::collections::BTreeMap;

use crate::pv::{ClassFacts, NodeFacts, Pv};
use crate::serve::WatchKind;
use crate::volume::ClassName;

mod backoff;
mod classes;
mod client;
mod error;
mod events;
mod follow;
mod patch;
mod rights;
mod this_node;
mod volumes;

pub use backoff::{Backoff, some_of};
pub use classes::watch_classes;
pub use client::{CALL_DEADLINE, ClientError, call, client, config};
pub use error::ApiError;
pub use events::{EventKind, EventSink, EventTask};
pub use rights::{Right, watch_rights};
pub use this_node::{Nodes, list_nodes, watch_node};
pub use volumes::{Created, Volumes, watch_volumes};

/// The field manager and reporting controller under which we write.
pub const MANAGER: &str = "provisor";

/// What the API server showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterEvent {
    /// Something about this node's PersistentVolumes.
    Volumes(VolumeEvent),
    /// The StorageClasses that exist among the configured ones: the whole set, at the end of each
    /// list and whenever a fact or the configuration changed. A name that is not in it does not
    /// exist (yet, or any more).
    Classes(BTreeMap<ClassName, ClassFacts>),
    /// A watch has a new kind of trouble, or works again. Until then what it showed may be out of date.
    Watch {
        /// Which.
        kind: WatchKind,
        /// What is wrong; `None` when the server has sent something again.
        error: Option<ApiError>,
    },
    /// This node's Node, at the end of each list and whenever a fact changed. `None` when there is
    /// no such Node (yet, or any more).
    Node(Option<NodeFacts>),
    /// The rights that we were found to lack, all of them; none when they were granted meanwhile.
    Rights(Vec<Right>),
}

/// What was shown about the PersistentVolumes that carry this node's label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeEvent {
    /// All there are. What was known before and is not in it is out of sight: deleted, or without
    /// the label. An object that can't be decoded is not in it either.
    Synced(Vec<Pv>),
    /// One is new or has changed.
    Applied(Box<Pv>),
    /// One was deleted or has lost the label.
    Deleted {
        /// `metadata.name`.
        name: String,
        /// `metadata.uid` of the one that is gone; a successor has another.
        uid: String,
    },
}
