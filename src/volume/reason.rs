//! The closed list of reasons why something is not done.

use std::fmt;

use serde::{Serialize, Serializer};

/// Declares [`Reason`] with its spelling in one place, so that no reason can lack one.
macro_rules! reasons {
    ($($(#[doc = $doc:expr])+ $name:ident,)+) => {
        /// Why an entry is not offered, or a released volume not reclaimed. The list is closed: the
        /// text is a metric label, an Event reason and a word in `/status`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Reason {
            /// Every reason there is.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The reason as one CamelCase word.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                }
            }
        }
    };
}

reasons! {
    /// The discovery directory does not exist (yet).
    DirectoryMissing,
    /// The discovery directory is not a directory or is reached through a symbolic link.
    DirectoryUnsafe,
    /// The StorageClass of this name does not exist (yet).
    StorageClassMissing,
    /// The StorageClass's reclaim policy is neither Delete nor Retain.
    PolicyUnsupported,
    /// The Node object is missing or has no `kubernetes.io/hostname` label.
    NodeUnknown,
    /// The Pod lacks something that it needs to see what it decides about.
    NodeSetup,

    /// The entry is expected furniture of a directory: a dotfile, `lost+found`, a README.
    Ignored,
    /// The name can't be part of a PersistentVolume path.
    BadName,
    /// A plain directory, on which nothing is mounted.
    NotMounted,
    /// A directory in a class of mode Block.
    WrongMode,
    /// Neither a directory nor a block device: a file, a socket, a FIFO.
    NotAVolume,
    /// A symbolic link that leads nowhere.
    DanglingLink,
    /// A symbolic link to a directory; only links to block devices are followed.
    LinkToDirectory,
    /// The filesystem or the device is read-only.
    ReadOnly,
    /// The device or filesystem has no bytes.
    ZeroSize,
    /// Somebody uses it: another mount, a holder, swap, an open descriptor, an exclusive claim.
    InUse,
    /// It holds something already, and its class has `requireEmpty`.
    ForeignSignature,
    /// The device has partitions.
    Partitioned,
    /// A probe did not come back in time; the entry is asked again once it does.
    Hung,
    /// The kernel answered an error.
    Unreadable,
    /// Another entry, class or PersistentVolume is the same storage.
    SameStorage,
    /// The kubelet does not see the same thing at the path that the PersistentVolume would name.
    NotOnHost,
    /// A PersistentVolume of that name exists and is not ours.
    NameTaken,
    /// The API server refused the object.
    ApiRefused,

    /// The PersistentVolume does not exist any more.
    PvGone,
    /// The PersistentVolume's UID is not the one that the decision was made for.
    PvReplaced,
    /// The PersistentVolume is not Released.
    NotReleased,
    /// The claim reference changed or is missing.
    ClaimChanged,
    /// The reclaim policy is not Delete.
    NotDelete,
    /// The facts are too old to destroy by.
    StaleFacts,
    /// The PersistentVolume is another node's or another provisioner's.
    NotOurs,
    /// The class of the PersistentVolume is not in the configuration.
    ClassUnknown,
    /// The PersistentVolume's path is not a direct child of its class's directory.
    PathOutside,
    /// The entry is gone.
    EntryMissing,
    /// The entry is another mount or device than the one that was offered.
    EntryReplaced,
    /// The PersistentVolume carries no usable record of what was offered.
    NotRecorded,
    /// Nothing that survives a reboot identifies the storage, and there was a reboot.
    IdentityUnknown,
    /// Something is mounted inside the volume.
    NestedMount,
    /// The wipe failed.
    WipeFailed,
    /// After the wipe there was still data.
    VerifyFailed,
    /// The wipe was stopped: shut-down, or the volume is no longer released.
    Cancelled,
    /// A retained volume's object was deleted while its data is still there.
    DataRetained,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// A reason with the sentence that a person needs: what was found and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// The closed reason.
    pub reason: Reason,
    /// What was found, in words.
    pub detail: String,
}

impl Refusal {
    /// A refusal for `reason`, explained by `detail`.
    pub fn new(reason: Reason, detail: impl Into<String>) -> Self {
        Self {
            reason,
            detail: detail.into(),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.detail)
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_reason_has_its_own_word() {
        let words: BTreeSet<_> = Reason::ALL.iter().map(|r| r.as_str()).collect();
        assert_eq!(words.len(), Reason::ALL.len());
        assert!(
            words
                .iter()
                .all(|w| w.chars().all(|c| c.is_ascii_alphabetic()))
        );
    }
}
