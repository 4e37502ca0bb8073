//! The only code that destroys data.
//!
//! Two things stand between a wish and a wipe. [`hold`] opens the entry and checks what it is on the
//! very descriptors that will be used; [`Held::permit`] then checks the PersistentVolume as it was
//! read from the API server *after* that, and the storage once more. What comes out is a [`Permit`],
//! which nobody else can make, and [`wipe`] takes nothing else. A wipe that was verified yields a
//! [`Proof`], which is what allows the caller to delete the PersistentVolume.
//!
//! Whatever is ambiguous is a refusal. Everything here blocks and belongs on a worker thread.

mod block;
mod command;
mod contents;
mod guard;
mod job;
mod progress;

pub use guard::{FACTS_LIFETIME, Held, Live, Permit, Request, Witness, hold};
pub use job::{Proof, wipe};
pub use progress::{CHECKPOINT_BYTES, Control, Progress};
