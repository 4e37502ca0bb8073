//! One wipe from permit to proof.

use std::time::{Duration, Instant};

use super::guard::{Permit, Target};
use super::progress::{Control, Done};
use super::{block, command, contents};
use crate::config::Cleaner;
use crate::volume::{Identity, Refusal};

/// Evidence that a volume was wiped and verified. Only [`wipe`] makes one.
#[must_use = "the PersistentVolume may be deleted by it"]
#[derive(Debug)]
pub struct Proof {
    pv: String,
    uid: String,
    claim_uid: Option<String>,
    done: Done,
    duration: Duration,
}

impl Proof {
    /// `metadata.name` of the PersistentVolume.
    pub fn pv(&self) -> &str {
        &self.pv
    }

    /// `metadata.uid` of the PersistentVolume.
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// UID of the claim whose data was wiped.
    pub fn claim_uid(&self) -> Option<&str> {
        self.claim_uid.as_deref()
    }

    /// How it was wiped, in words.
    pub fn method(&self) -> &str {
        &self.done.method
    }

    /// Bytes wiped; 0 for a filesystem.
    pub fn bytes(&self) -> u64 {
        self.done.bytes
    }

    /// Files and directories removed; 0 for a device.
    pub fn files(&self) -> u64 {
        self.done.files
    }

    /// How long it took, verification included.
    pub fn duration(&self) -> Duration {
        self.duration
    }
}

/// Wipes the volume that `permit` is for, and verifies it.
///
/// `plan` says how a device is wiped; a filesystem is always emptied. `resume_at` is what an earlier
/// wipe of the same release said at its last checkpoint, or 0; it is trusted up to one checkpoint
/// before it, and the verification covers everything.
///
/// # Errors
/// Cancelled, NestedMount, InUse, EntryReplaced, StaleFacts, WipeFailed or VerifyFailed. The volume
/// may be wiped in part by then.
pub fn wipe(
    permit: Permit,
    plan: &Cleaner,
    resume_at: u64,
    control: &Control<'_>,
) -> Result<Proof, Refusal> {
    let start = Instant::now();
    let (request, target) = permit.redeem(start)?;
    control.go_on()?;
    let done = match target {
        Target::Directory { root, mount } => {
            let fs_type = match &request.recorded {
                Identity::Filesystem(fs) if fs.root == "/" => fs.fs_type.as_str(),
                _ => "",
            };
            contents::empty(&root, mount, fs_type, &request.place(), control)?
        }
        Target::Device { device, geometry } => match plan {
            Cleaner::Zero => block::wipe(&device, geometry, 0, resume_at, control)?,
            Cleaner::Overwrite { passes } => {
                block::wipe(&device, geometry, *passes, resume_at, control)?
            }
            Cleaner::Command(words) => {
                let path = request.class.mount_path(&request.entry);
                command::run(device, geometry, words, &path, control)?
            }
        },
    };
    Ok(Proof {
        pv: request.pv,
        uid: request.uid,
        claim_uid: request.claim_uid,
        done,
        duration: start.elapsed(),
    })
}
