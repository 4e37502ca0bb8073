//! One open directory of the walk, and the single steps in it.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use nix::errno::Errno;
use nix::fcntl::{OFlag, renameat};
use nix::sys::stat::{SFlag, fstat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::printable;
use crate::sys::inode;

/// Flags that forbid removing, or make each removal wait for the disk (150 to 300 times slower).
const HINDERING_FLAGS: libc::c_int =
    inode::IMMUTABLE | inode::APPEND | inode::SYNC | inode::DIRSYNC;

/// Longest path that a message shows.
const SHOWN_PATH: usize = 400;

/// An open directory. It stays open until all below it is gone, so that every step is anchored; the
/// walk bounds the depth, and with it how many are open.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) dir: OwnedFd,
    pub(super) parent: Option<Arc<Node>>,
    pub(super) name: CString,
    pub(super) depth: usize,
    /// Its contents go, itself stays: the root and `lost+found`.
    pub(super) is_kept: bool,
    /// One for whoever reads it, one for each child that is not gone yet. Whoever brings it to zero
    /// owns the node.
    pub(super) pending: AtomicUsize,
    /// How often it was read.
    pub(super) passes: AtomicU32,
    /// The last reading found nothing.
    pub(super) was_empty: AtomicBool,
}

impl Node {
    /// A node for the open directory `dir`.
    pub(super) fn new(
        dir: OwnedFd,
        parent: Option<Arc<Self>>,
        name: CString,
        is_kept: bool,
    ) -> Arc<Self> {
        Arc::new(Self {
            dir,
            depth: parent.as_ref().map_or(0, |parent| parent.depth + 1),
            parent,
            name,
            is_kept,
            pending: AtomicUsize::new(1),
            passes: AtomicU32::new(0),
            was_empty: AtomicBool::new(false),
        })
    }

    /// Gives back one token; true for whoever gives back the last.
    pub(super) fn release(&self) -> bool {
        self.pending.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// The path of `name` in it, for messages.
    pub(super) fn path_of(&self, place: &str, name: &CStr) -> String {
        let mut parts = vec![printable(name.to_bytes())];
        let mut node = Some(self);
        while let Some(here) = node {
            if here.parent.is_some() {
                parts.push(printable(here.name.to_bytes()));
            }
            node = here.parent.as_deref();
        }
        parts.push(place.to_owned());
        parts.reverse();
        let path = parts.join("/");
        match path.char_indices().nth(SHOWN_PATH) {
            Some((end, _)) => format!("{}...", &path[..end]),
            None => path,
        }
    }

    /// Takes away what would hinder removing entries of this directory.
    pub(super) fn unhinder(&self) -> Result<(), Errno> {
        inode::clear_flags(&self.dir, HINDERING_FLAGS)
    }

    /// Opens a directory in it, never across a mount or a link.
    pub(super) fn open(&self, name: &CStr) -> Result<OwnedFd, Errno> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NONBLOCK;
        inode::open_within(self.dir.as_fd(), name, flags)
    }

    /// Removes a name that is not a directory.
    pub(super) fn unlink(&self, name: &CStr) -> Result<(), Errno> {
        self.insist(name, || {
            unlinkat(&self.dir, name, UnlinkatFlags::NoRemoveDir)
        })
    }

    /// Removes an empty directory.
    pub(super) fn rmdir(&self, name: &CStr) -> Result<(), Errno> {
        self.insist(name, || unlinkat(&self.dir, name, UnlinkatFlags::RemoveDir))
    }

    /// Moves a name to another directory of the volume.
    pub(super) fn move_to(&self, name: &CStr, to: &Self, new: &CStr) -> Result<(), Errno> {
        self.insist(name, || renameat(&self.dir, name, &to.dir, new))
    }

    /// Does `step`, which needs `name` to be removable; a refusal for immutable or append-only is
    /// answered once by clearing the flags of both the entry and this directory.
    fn insist(&self, name: &CStr, step: impl Fn() -> Result<(), Errno>) -> Result<(), Errno> {
        match step() {
            Err(Errno::EPERM) => {
                self.unhinder()?;
                self.unhinder_entry(name)?;
                step()
            }
            result => result,
        }
    }

    /// Looks through `O_PATH` before the entry is opened for the flags: the name may be a device by
    /// now, whose driver must not be woken, or a FIFO.
    fn unhinder_entry(&self, name: &CStr) -> Result<(), Errno> {
        let seen = match inode::open_within(self.dir.as_fd(), name, OFlag::O_PATH) {
            Err(Errno::ENOENT) => return Ok(()),
            result => result?,
        };
        let kind = SFlag::from_bits_truncate(fstat(&seen)?.st_mode & SFlag::S_IFMT.bits());
        if kind != SFlag::S_IFREG && kind != SFlag::S_IFDIR {
            return Ok(());
        }
        let entry = inode::reopen(&seen, OFlag::O_RDONLY | OFlag::O_NONBLOCK)?;
        inode::clear_flags(&entry, HINDERING_FLAGS)
    }
}

/// Whether a name is `.` or `..`.
pub(super) fn is_dot(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}
