//! What a wipe and its caller tell each other while it runs, and what it says of itself at the end.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::volume::{Reason, Refusal};

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
