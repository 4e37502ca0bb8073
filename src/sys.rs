//! The kernel's interfaces that no crate wraps safely: the only module with `unsafe`.

pub mod block;
pub mod files;
pub mod inode;
pub mod loops;
pub mod mountinfo;
