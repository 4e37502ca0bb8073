//! One wipe from permit to proof.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::guard::{Permit, Target};
use super::{block, command, contents};
use crate::config::Cleaner;
use crate::volume::{Identity, Reason, Refusal};

/// Bytes between two checkpoints of a device wipe.
pub const CHECKPOINT_BYTES: u64 = 1 << 30;

/// How far a wipe has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes written so far, over all passes; 0 for a filesystem.
    pub done_bytes: u64,
    /// Bytes that will be written in all; 0 for a filesystem.
    pub total_bytes: u64,
    /// Files and directories removed so far; 0 for a device.
    pub files: u64,
}

/// How the caller watches and stops a wipe. All of it may be used from several threads.
#[derive(Clone, Copy)]
pub struct Control<'a> {
    /// Set it to stop; it is looked at before each file, directory and 64 MiB, and while a program
    /// of the user's own runs.
    pub cancel: &'a AtomicBool,
    /// Told every now and then, and once with everything done before the verification.
    pub progress: &'a (dyn Fn(Progress) + Sync),
    /// Told an offset up to which everything is wiped and flushed: what to record, and to pass as
    /// `resume_at` to a later wipe with the same cleaner.
    pub checkpoint: &'a (dyn Fn(u64) + Sync),
}

impl Control<'_> {
    /// Refuses once the caller asked to stop.
    pub(super) fn go_on(&self) -> Result<(), Refusal> {
        if self.cancel.load(Ordering::Relaxed) {
            return Err(Refusal::new(
                Reason::Cancelled,
                "the wipe was stopped and will go on later if the volume is still released",
            ));
        }
        Ok(())
    }
}

/// What was done to a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Done {
    /// The method in words.
    pub(super) method: String,
    /// Bytes wiped.
    pub(super) bytes: u64,
    /// Files and directories removed.
    pub(super) files: u64,
}

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
