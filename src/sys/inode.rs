//! Inodes by descriptor: opening beneath a directory, mounts, inode flags, extended attributes.
//!
//! Only [`open_directory`] takes a path of more than one component, and it follows no link on the
//! way. An `O_PATH` descriptor is how an unknown object is looked at: opening a FIFO or a
//! device for reading has side effects, `O_PATH` has none.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::Mode;

/// `FS_IMMUTABLE_FL`: nothing can be changed, not even by root.
pub(crate) const IMMUTABLE: libc::c_int = 0x10;
/// `FS_APPEND_FL`: a file can't be unlinked, entries of a directory neither.
pub(crate) const APPEND: libc::c_int = 0x20;
/// `FS_NODUMP_FL`.
pub(crate) const NODUMP: libc::c_int = 0x40;
/// `FS_NOATIME_FL`.
pub(crate) const NOATIME: libc::c_int = 0x80;
/// `FS_SYNC_FL`: each change waits for the disk.
pub(crate) const SYNC: libc::c_int = 0x8;
/// `FS_DIRSYNC_FL`: each change of the directory waits for the disk.
pub(crate) const DIRSYNC: libc::c_int = 0x1_0000;

/// The mount that an open object was reached through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MountOf {
    /// The id in the first column of mountinfo.
    pub(crate) id: u64,
    /// The object is the root of that mount.
    pub(crate) is_root: bool,
}

/// Opens the directory at an absolute path with `O_PATH`, following no symbolic link on the way.
///
/// # Errors
/// `ELOOP` where a component is a link, and whatever `openat2` answers.
pub(crate) fn open_directory(path: &Path) -> Result<OwnedFd, Errno> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    openat2(AT_FDCWD, path, how)
}

/// Opens `name` in `dir`, never through a link; the last component may be another mount's root.
///
/// # Errors
/// `ELOOP` for a link (unless `flags` has `O_PATH | O_NOFOLLOW`), and whatever `openat2` answers.
pub(crate) fn open_entry(dir: BorrowedFd<'_>, name: &CStr, flags: OFlag) -> Result<OwnedFd, Errno> {
    let how = OpenHow::new()
        .flags(flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC)
        .resolve(
            ResolveFlag::RESOLVE_BENEATH
                | ResolveFlag::RESOLVE_NO_SYMLINKS
                | ResolveFlag::RESOLVE_NO_MAGICLINKS,
        );
    openat2(dir, name, how)
}

/// Opens `name` in `dir` as [`open_entry`] does, and answers `EXDEV` where something is mounted on
/// it: also for a bind mount of the same filesystem, which device numbers can't tell.
///
/// # Errors
/// See above.
pub(crate) fn open_within(
    dir: BorrowedFd<'_>,
    name: &CStr,
    flags: OFlag,
) -> Result<OwnedFd, Errno> {
    let how = OpenHow::new()
        .flags(flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC)
        .resolve(
            ResolveFlag::RESOLVE_BENEATH
                | ResolveFlag::RESOLVE_NO_XDEV
                | ResolveFlag::RESOLVE_NO_SYMLINKS
                | ResolveFlag::RESOLVE_NO_MAGICLINKS,
        );
    openat2(dir, name, how)
}

/// Opens the very object behind `fd` once more with other flags; no path is looked up.
///
/// # Errors
/// Whatever `open` answers; `ENOENT` when `/proc` is not mounted.
pub(crate) fn reopen(fd: impl AsFd, flags: OFlag) -> Result<OwnedFd, Errno> {
    let path = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    open(path.as_str(), flags | OFlag::O_CLOEXEC, Mode::empty())
}

/// Which mount `fd` was reached through (Linux 5.8).
///
/// # Errors
/// `ENOSYS` where the kernel does not tell the mount.
#[expect(unsafe_code, reason = "statx with AT_EMPTY_PATH has no safe wrapper")]
pub(crate) fn mount_of(fd: impl AsFd) -> Result<MountOf, Errno> {
    let mut answer = std::mem::MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the path is a NUL-terminated constant, `answer` is writable and of the type that the
    // call fills.
    let result = unsafe {
        libc::statx(
            fd.as_fd().as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            libc::STATX_MNT_ID,
            answer.as_mut_ptr(),
        )
    };
    Errno::result(result)?;
    // SAFETY: all-zero bytes are a valid `statx`, and the kernel filled the rest.
    let answer = unsafe { answer.assume_init() };
    let root = u64::from(libc::STATX_ATTR_MOUNT_ROOT.unsigned_abs());
    let told = answer.stx_mask & libc::STATX_MNT_ID != 0 && answer.stx_attributes_mask & root != 0;
    if !told {
        return Err(Errno::ENOSYS);
    }
    Ok(MountOf {
        id: answer.stx_mnt_id,
        is_root: answer.stx_attributes & root != 0,
    })
}

/// Clears those of the inode flags `unwanted` that are set. Does nothing on filesystems without
/// flags. `fd` must be of a regular file or directory: a device driver would take the request for
/// its own.
///
/// # Errors
/// `EPERM` without CAP_LINUX_IMMUTABLE, `EROFS`, `EIO`.
#[expect(unsafe_code, reason = "the inode flag ioctls have no safe wrapper")]
pub(crate) fn clear_flags(fd: impl AsFd, unwanted: libc::c_int) -> Result<(), Errno> {
    let raw = fd.as_fd().as_raw_fd();
    // The request is declared with a long, but the kernel reads and writes an int.
    let mut flags: libc::c_int = 0;
    // SAFETY: the request writes one int to the address.
    match Errno::result(unsafe { libc::ioctl(raw, libc::FS_IOC_GETFLAGS, &raw mut flags) }) {
        Ok(_) => {}
        Err(Errno::ENOTTY | Errno::EOPNOTSUPP | Errno::EINVAL) => return Ok(()),
        Err(errno) => return Err(errno),
    }
    if flags & unwanted == 0 {
        return Ok(());
    }
    flags &= !unwanted;
    // SAFETY: the request reads one int from the address.
    match Errno::result(unsafe { libc::ioctl(raw, libc::FS_IOC_SETFLAGS, &raw const flags) }) {
        // Flags that can be read and not set. If they are in the way, the next step tells.
        Ok(_) | Err(Errno::ENOTTY | Errno::EOPNOTSUPP) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Names of the extended attributes of `fd`, POSIX ACLs included; none where there are no such things.
///
/// # Errors
/// Whatever `flistxattr` answers.
#[expect(unsafe_code, reason = "extended attributes have no safe wrapper")]
pub(crate) fn xattrs(fd: impl AsFd) -> Result<Vec<CString>, Errno> {
    /// `XATTR_LIST_MAX` of the kernel: no list is longer.
    const LONGEST_LIST: usize = 65_536;
    let mut names = vec![0_u8; LONGEST_LIST];
    // SAFETY: the call writes at most `names.len()` bytes to `names`.
    let result = unsafe {
        libc::flistxattr(
            fd.as_fd().as_raw_fd(),
            names.as_mut_ptr().cast(),
            names.len(),
        )
    };
    let length = match Errno::result(result) {
        Ok(length) => usize::try_from(length).unwrap_or(0),
        Err(Errno::EOPNOTSUPP) => 0,
        Err(errno) => return Err(errno),
    };
    names.truncate(length);
    Ok(names
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .filter_map(|name| CString::new(name).ok())
        .collect())
}

/// Removes one extended attribute; one that is gone already is fine.
///
/// # Errors
/// Whatever `fremovexattr` answers.
#[expect(unsafe_code, reason = "extended attributes have no safe wrapper")]
pub(crate) fn remove_xattr(fd: impl AsFd, name: &CStr) -> Result<(), Errno> {
    // SAFETY: `name` is NUL-terminated and outlives the call.
    let result = unsafe { libc::fremovexattr(fd.as_fd().as_raw_fd(), name.as_ptr()) };
    match Errno::result(result) {
        Ok(_) | Err(Errno::ENODATA) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// An [`Errno`] as an [`io::Error`], for messages in words.
pub(crate) fn words(errno: Errno) -> io::Error {
    io::Error::from(errno)
}
