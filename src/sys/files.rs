//! Opening and asking about files without following links, waiting for a server, or waking an
//! automount.
//!
//! `O_PATH` descriptors name an object without opening it: a FIFO does not block, a device's driver is
//! not called. They still pin the mount, so nobody keeps one.

use std::ffi::{CStr, CString, OsStr};
use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::{statfs, statvfs};

use crate::volume::DevNum;

/// What kind of object a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A block device node.
    BlockDevice,
    /// A character device node.
    CharDevice,
    /// A symbolic link.
    Symlink,
    /// A regular file.
    File,
    /// A FIFO.
    Fifo,
    /// A socket.
    Socket,
    /// Something that this version does not know.
    Unknown,
}

/// What the kernel tells about an object without asking a remote server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// What it is.
    pub kind: Kind,
    /// `st_dev`.
    pub device: DevNum,
    /// `st_ino`.
    pub inode: u64,
    /// The device that a device node stands for.
    pub rdev: DevNum,
    /// The mount that it was reached through, as in mountinfo.
    pub mount_id: Option<u64>,
    /// Whether it is the root of that mount; `None` before Linux 5.8.
    pub is_mount_root: Option<bool>,
}

/// Asks about an open object.
///
/// # Errors
/// The errno of statx(2).
pub fn stat(fd: BorrowedFd<'_>) -> nix::Result<Stat> {
    let mut stat = statx(fd.as_raw_fd(), c"", libc::AT_EMPTY_PATH)?;
    if stat.mount_id.is_none() {
        stat.mount_id = mount_id_from_fdinfo(fd);
    }
    Ok(stat)
}

/// Asks about the object at `path`, following links, magic ones of `/proc` included.
///
/// # Errors
/// The errno of statx(2).
pub fn stat_path(path: &Path) -> nix::Result<Stat> {
    let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::EINVAL)?;
    statx(libc::AT_FDCWD, &path, 0)
}

#[expect(unsafe_code, reason = "nix has no statx")]
fn statx(dir: libc::c_int, path: &CStr, flags: libc::c_int) -> nix::Result<Stat> {
    let flags = flags | libc::AT_NO_AUTOMOUNT | libc::AT_STATX_DONT_SYNC;
    let mask = libc::STATX_BASIC_STATS | libc::STATX_MNT_ID;
    let mut buffer = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: `path` is NUL-terminated and `buffer` is writable for the size of a statx; both outlive
    // the call. A bad descriptor is only an error.
    let result = unsafe { libc::statx(dir, path.as_ptr(), flags, mask, buffer.as_mut_ptr()) };
    Errno::result(result)?;
    // SAFETY: all-zero bytes are a valid statx, and the kernel has filled it.
    let raw = unsafe { buffer.assume_init() };
    let number = |major: u32, minor: u32| DevNum {
        major: u64::from(major),
        minor: u64::from(minor),
    };
    let kind = match libc::mode_t::from(raw.stx_mode) & libc::S_IFMT {
        libc::S_IFDIR => Kind::Directory,
        libc::S_IFBLK => Kind::BlockDevice,
        libc::S_IFCHR => Kind::CharDevice,
        libc::S_IFLNK => Kind::Symlink,
        libc::S_IFREG => Kind::File,
        libc::S_IFIFO => Kind::Fifo,
        libc::S_IFSOCK => Kind::Socket,
        _ => Kind::Unknown,
    };
    let root_bit = u64::from(libc::STATX_ATTR_MOUNT_ROOT.unsigned_abs());
    Ok(Stat {
        kind,
        device: number(raw.stx_dev_major, raw.stx_dev_minor),
        inode: raw.stx_ino,
        rdev: number(raw.stx_rdev_major, raw.stx_rdev_minor),
        mount_id: (raw.stx_mask & libc::STATX_MNT_ID != 0).then_some(raw.stx_mnt_id),
        is_mount_root: (raw.stx_attributes_mask & root_bit != 0)
            .then_some(raw.stx_attributes & root_bit != 0),
    })
}

/// The mount id before Linux 5.8.
fn mount_id_from_fdinfo(fd: BorrowedFd<'_>) -> Option<u64> {
    let path = format!("/proc/thread-self/fdinfo/{}", fd.as_raw_fd());
    let text = fs::read_to_string(path).ok()?;
    text.lines()
        .find_map(|line| line.strip_prefix("mnt_id:"))
        .and_then(|id| id.trim().parse().ok())
}

/// Opens a directory for reading; no component of the absolute `path` may be a link.
///
/// # Errors
/// `ELOOP` for a link, `ENOTDIR` for something else, `ENOENT` when it is missing.
pub fn open_directory(path: &Path) -> nix::Result<OwnedFd> {
    let how = OpenHow::new()
        .flags(OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    openat2(AT_FDCWD, path, how)
}

/// Names the direct child `name` of `dir` without opening it; a link is named itself.
///
/// # Errors
/// The errno of openat2(2); `EINVAL` unless `name` is one component.
pub fn peek(dir: BorrowedFd<'_>, name: &OsStr) -> nix::Result<OwnedFd> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_NO_MAGICLINKS);
    openat2(dir, component(name)?, how)
}

/// Names what the direct child `name` of `dir` leads to, over any number of links.
///
/// # Errors
/// `ENOENT` for a link that leads nowhere, `ELOOP` for one that leads to itself.
pub fn peek_through(dir: BorrowedFd<'_>, name: &OsStr) -> nix::Result<OwnedFd> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_NO_MAGICLINKS);
    openat2(dir, component(name)?, how)
}

fn component(name: &OsStr) -> nix::Result<&OsStr> {
    let is_one =
        !name.is_empty() && name != ".." && name != "." && !name.as_bytes().contains(&b'/');
    is_one.then_some(name).ok_or(Errno::EINVAL)
}

/// Opens for reading the directory that an `O_PATH` descriptor names: the very same one, whatever has
/// happened to its path since.
///
/// # Errors
/// The errno of openat2(2).
pub fn reopen_directory(dir: BorrowedFd<'_>) -> nix::Result<OwnedFd> {
    let how = OpenHow::new()
        .flags(OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_BENEATH);
    openat2(dir, ".", how)
}

/// Names the object that a process whose root directory is `root` finds at `path`; absolute links are
/// taken from that root.
///
/// # Errors
/// The errno of openat2(2).
pub fn peek_in_root(root: BorrowedFd<'_>, path: &Path) -> nix::Result<OwnedFd> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    openat2(root, path, how)
}

/// Names the root directory of process `pid` in its own mount namespace.
///
/// # Errors
/// `EACCES` without the right to trace the process, `ENOENT` once it is gone.
pub fn root_of(pid: u32) -> nix::Result<OwnedFd> {
    let how = OpenHow::new().flags(OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC);
    openat2(AT_FDCWD, format!("/proc/{pid}/root").as_str(), how)
}

/// The whole size of a filesystem in bytes. A remote one may take its time to answer.
///
/// # Errors
/// The errno of fstatvfs(3).
pub fn filesystem_size(fd: impl AsFd) -> nix::Result<u64> {
    let facts = statvfs::fstatvfs(fd)?;
    Ok(facts.blocks().saturating_mul(facts.fragment_size()))
}

/// `f_fsid` of a filesystem; what it is made of differs by filesystem type.
///
/// # Errors
/// The errno of fstatfs(2).
#[expect(unsafe_code, reason = "libc hides the two words of fsid_t")]
pub fn filesystem_id(fd: impl AsFd) -> nix::Result<u64> {
    let facts = statfs::fstatfs(fd)?;
    // SAFETY: fsid_t is two 32-bit integers and nothing else (statfs(2)); any bytes are a valid array.
    let words: [u32; 2] = unsafe { std::mem::transmute(facts.filesystem_id()) };
    Ok(u64::from(words[0]) | u64::from(words[1]) << 32)
}

mod uuid_ioctl {
    /// `struct fsuuid2` of linux/fs.h.
    #[repr(C)]
    pub(super) struct Uuid {
        pub(super) len: u8,
        pub(super) bytes: [u8; 16],
    }

    nix::ioctl_read!(get, 0x15, 0, Uuid);
}

/// The UUID that a filesystem tells by itself (Linux 6.9); `None` when it has none or can't tell.
///
/// # Errors
/// Other errors of the ioctl, such as `EIO`.
#[expect(unsafe_code, reason = "an ioctl")]
pub fn filesystem_uuid(dir: impl AsFd) -> nix::Result<Option<String>> {
    let mut answer = uuid_ioctl::Uuid {
        len: 0,
        bytes: [0; 16],
    };
    // SAFETY: the ioctl writes at most the 17 bytes of `answer`, which outlives the call.
    match unsafe { uuid_ioctl::get(dir.as_fd().as_raw_fd(), &raw mut answer) } {
        Ok(_) => {}
        Err(Errno::ENOTTY | Errno::EOPNOTSUPP | Errno::EINVAL) => return Ok(None),
        Err(errno) => return Err(errno),
    }
    let bytes = answer.bytes.get(..usize::from(answer.len)).unwrap_or(&[]);
    if bytes.iter().all(|b| *b == 0) {
        return Ok(None);
    }
    let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    Ok(Some(match (hex.len(), hex.get(..8)) {
        (32, Some(first)) => format!(
            "{first}-{}-{}-{}-{}",
            &hex[8..12],
            &hex[12..16],
            &hex[16..20],
            &hex[20..]
        ),
        _ => hex,
    }))
}
