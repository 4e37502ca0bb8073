//! Empties a mounted filesystem and gives its root back as `mkfs` makes it.
//!
//! Everything starts at one descriptor, the root of the volume's own mount. Each step names a single
//! component below a directory that is already open, follows no link and enters no other mount, so a
//! tenant who still runs and renames, links and mounts as fast as it can only ever changes which of
//! its own files go first.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::unistd::syncfs;

use super::progress::{Control, Done};
use crate::sys::inode::{self, words};
use crate::volume::{Reason, Refusal};

mod nested;
mod reset;
mod tree;
mod walk;

/// Where `fsck` of the ext family puts what it finds. `mkfs` makes it with blocks in reserve, so it
/// is emptied and kept.
const LOST_AND_FOUND: &CStr = c"lost+found";
/// Mode of a root directory and of `lost+found` as `mkfs` makes them.
const ROOT_MODE: u32 = 0o755;
const LOST_AND_FOUND_MODE: u32 = 0o700;

/// Removes everything below `root`, the root of mount `mount`, and resets the root itself.
///
/// `fs_type` is empty for a directory of a larger filesystem, in which `lost+found` means nothing.
pub(super) fn empty(
    root: &OwnedFd,
    mount: u64,
    fs_type: &str,
    place: &str,
    control: &Control<'_>,
) -> Result<Done, Refusal> {
    // Before anything is removed: half a wipe helps nobody when a mount inside stops it anyway.
    nested::refuse(mount, place)?;
    let manner = Manner::of(fs_type);
    let files = walk::remove_all(root, place, manner, control)?;
    reset::root(root, ROOT_MODE).map_err(|errno| failed("reset the root of", place, errno))?;
    if manner.keeps_lost_and_found {
        reset_lost_and_found(root, place)?;
    }
    // An unlink that is not committed comes back after a power cut.
    syncfs(root).map_err(|errno| failed("flush", place, errno))?;
    verify(root, place, manner)?;
    // A mount that came during the walk hid what is below it.
    nested::refuse(mount, place)?;
    Ok(Done {
        method: format!("removed {files} files and directories"),
        bytes: 0,
        files,
    })
}

/// How a filesystem likes to be emptied (measured: one thread in one directory always; more than
/// four gain nothing, xfs is best with two).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Manner {
    workers: usize,
    by_inode: bool,
    keeps_lost_and_found: bool,
}

impl Manner {
    fn of(fs_type: &str) -> Self {
        let is_ext = matches!(fs_type, "ext2" | "ext3" | "ext4");
        Self {
            workers: if fs_type == "xfs" { 2 } else { 4 },
            // The hash order of ext4 directories is random in inodes: sorting saves a third.
            by_inode: is_ext,
            keeps_lost_and_found: is_ext,
        }
    }
}

fn failed(verb: &str, path: &str, errno: Errno) -> Refusal {
    let advice = match errno {
        Errno::EROFS => {
            "; it is read-only: a read-only subvolume, or the filesystem went read-only after an \
             error"
        }
        Errno::EPERM => "; perhaps it is an active swap file",
        Errno::EIO | Errno::EUCLEAN => {
            "; the disk or the filesystem is damaged, look at the kernel log"
        }
        _ => "",
    };
    Refusal::new(
        Reason::WipeFailed,
        format!("can't {verb} {path}: {}{advice}", words(errno)),
    )
}

fn mounted_inside(path: &str) -> Refusal {
    Refusal::new(
        Reason::NestedMount,
        format!("something is mounted inside the volume, on {path}; unmount it, it is not entered"),
    )
}

/// A name as text for sentences, whatever bytes it has.
fn printable(name: &[u8]) -> String {
    std::ffi::OsStr::from_bytes(name)
        .to_string_lossy()
        .escape_debug()
        .to_string()
}

fn open_lost_and_found(root: BorrowedFd<'_>) -> Result<Option<OwnedFd>, Errno> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NONBLOCK;
    match inode::open_within(root, LOST_AND_FOUND, flags) {
        Ok(dir) => Ok(Some(dir)),
        Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => Ok(None),
        Err(errno) => Err(errno),
    }
}

fn reset_lost_and_found(root: &OwnedFd, place: &str) -> Result<(), Refusal> {
    let result = open_lost_and_found(root.as_fd()).and_then(|dir| match dir {
        Some(dir) => reset::root(&dir, LOST_AND_FOUND_MODE),
        None => Ok(()),
    });
    result.map_err(|errno| failed("reset lost+found of", place, errno))
}

/// Looks for itself whether nothing is left, through a descriptor of its own.
fn verify(root: &OwnedFd, place: &str, manner: Manner) -> Result<(), Refusal> {
    let left = |name: &CStr, dir: &str| {
        Refusal::new(
            Reason::VerifyFailed,
            format!(
                "{:?} is in {place}{dir} after the wipe; somebody still writes to the volume",
                printable(name.to_bytes())
            ),
        )
    };
    let unreadable = |errno| failed("read back", place, errno);
    for name in names(root.as_fd()).map_err(unreadable)? {
        if !(manner.keeps_lost_and_found && name.as_c_str() == LOST_AND_FOUND) {
            return Err(left(&name, ""));
        }
        let kept = open_lost_and_found(root.as_fd()).map_err(unreadable)?;
        let Some(kept) = kept else {
            return Err(left(&name, ""));
        };
        if let Some(inner) = names(kept.as_fd()).map_err(unreadable)?.first() {
            return Err(left(inner, "/lost+found"));
        }
    }
    Ok(())
}

/// The first few names in a directory, read anew.
fn names(dir: BorrowedFd<'_>) -> Result<Vec<std::ffi::CString>, Errno> {
    let anew = inode::open_within(dir, c".", OFlag::O_RDONLY | OFlag::O_DIRECTORY)?;
    let mut dir = Dir::from_fd(anew)?;
    let mut names = Vec::new();
    for entry in dir.iter() {
        let entry = entry?;
        if !tree::is_dot(entry.file_name()) {
            names.push(entry.file_name().to_owned());
        }
        if names.len() > 1 {
            break;
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xfs_gets_two_workers_and_ext_its_inode_order() {
        assert_eq!(Manner::of("xfs").workers, 2);
        assert!(!Manner::of("xfs").by_inode);
        assert!(Manner::of("ext4").by_inode && Manner::of("ext4").keeps_lost_and_found);
        assert!(!Manner::of("").keeps_lost_and_found && !Manner::of("tmpfs").by_inode);
    }

    #[test]
    fn odd_names_are_printable() {
        assert_eq!(printable(b"a\nb"), "a\\nb");
        assert_eq!(printable(b"\xff"), "\u{fffd}");
    }
}
