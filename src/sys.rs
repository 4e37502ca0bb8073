//! The kernel's interfaces that no crate wraps safely: the only module with `unsafe`.

pub mod block;
pub mod inode;
pub mod files;
pub mod loops;
pub mod mountinfo;
