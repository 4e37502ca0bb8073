//! Mounts: the kernel marks every open mountinfo when something is mounted, unmounted, moved or
//! remounted in its namespace (proc_pid_mounts(5)). The mark is cleared by the poll that reports it,
//! so nothing has to be read here.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};

use nix::poll::PollFlags;

use crate::sys::mountinfo;

/// The mount table of the thread that opened it.
#[derive(Debug)]
pub(super) struct Mounts {
    table: File,
}

impl Mounts {
    pub(super) const EVENTS: PollFlags = PollFlags::POLLPRI.union(PollFlags::POLLERR);

    pub(super) fn open() -> Result<Self, String> {
        let table = File::open(mountinfo::OWN).map_err(|error| error.to_string())?;
        Ok(Self { table })
    }
}

impl AsFd for Mounts {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.table.as_fd()
    }
}
