//! The kernel's side: what is on this node, and when it changes. Nothing here changes anything.
//!
//! [`watch`] says when to look, [`inspect`] looks at a class's directory, [`identity`] says what a
//! piece of storage is, [`usage`] who uses it. No descriptor on a volume outlives a look: one would
//! make the host's `umount` fail.

pub mod identity;
pub mod inspect;
pub mod kubelet;
pub mod selfcheck;
mod signature;
pub mod usage;
pub mod watch;
