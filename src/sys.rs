//! The kernel's interfaces that no crate wraps safely: the only module with `unsafe`.

pub(crate) mod block;
pub mod files;
pub(crate) mod inode;
pub mod loops;
pub mod mountinfo;
