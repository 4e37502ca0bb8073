//! The open storage itself: a directory that is a mount's root, or a device claimed exclusively.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{Mode, SFlag, fstat, fstatat};

use super::{Request, Witness};
use crate::sys::block::{self, Geometry};
use crate::sys::inode::{self, MountOf, words};
use crate::volume::{DevNum, Identity, Reason, Refusal};

/// How long a claim that is only passing is waited for.
const PATIENCE: Duration = Duration::from_millis(500);

/// What the wipe works on.
#[derive(Debug)]
pub(in crate::clean) enum Target {
    /// The root directory of the volume's mount.
    Directory {
        /// Open for reading; every step of the walk starts here.
        root: OwnedFd,
        /// The mount's id in this mount namespace.
        mount: u64,
    },
    /// A block device.
    Device {
        /// Open with `O_EXCL` for reading and writing.
        device: OwnedFd,
        /// What the descriptor said when it was opened.
        geometry: Geometry,
    },
}

impl Target {
    /// Opens the entry as the kind of storage that was recorded (W-07): a device that became a
    /// directory, or the other way round, is another storage whatever it holds.
    pub(super) fn open(request: &Request) -> Result<Self, Refusal> {
        let parent = open_parent(request)?;
        match &request.recorded {
            Identity::Filesystem(_) => open_mount(request, &parent),
            Identity::Device(_) => {
                let looked_at = find_device(request, &parent)?;
                let device = block::claim_within(&looked_at, PATIENCE)
                    .map_err(|errno| refuse_claim(request, errno))?;
                let geometry = block::geometry(&device)
                    .map_err(|errno| unreadable(request, "ask the size of", errno))?;
                if geometry.size_bytes == 0 {
                    return Err(Refusal::new(
                        Reason::ZeroSize,
                        format!("the device at {} has no bytes", request.place()),
                    ));
                }
                Ok(Self::Device { device, geometry })
            }
        }
    }

    /// Refuses unless the entry's name still leads to what is held.
    pub(super) fn still_at(&self, request: &Request) -> Result<(), Refusal> {
        let parent = open_parent(request)?;
        let same = match self {
            Self::Directory { root, mount } => {
                let Self::Directory {
                    root: now,
                    mount: id,
                } = open_mount(request, &parent)?
                else {
                    return Err(replaced(request, "is no directory any more"));
                };
                // A mount id can be used again, but not while the held descriptor pins the mount.
                id == *mount
                    && matches!(
                        (fstat(root), fstat(&now)),
                        (Ok(a), Ok(b)) if (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino)
                    )
            }
            Self::Device { geometry, .. } => {
                let now = find_device(request, &parent)?;
                matches!(block::device_number(&now), Ok(Some(number)) if number == geometry.number)
            }
        };
        if same {
            Ok(())
        } else {
            Err(replaced(
                request,
                "leads to something else than a moment ago",
            ))
        }
    }

    /// What the witness says it is, checked against what the descriptor says.
    pub(super) fn identity(&self, witness: &dyn Witness) -> Result<Identity, Refusal> {
        match self {
            Self::Directory { root, .. } => Ok(Identity::Filesystem(
                witness.identity_of_directory(root.as_fd())?,
            )),
            Self::Device { geometry, .. } => {
                let told = witness.identity_of_device(geometry.number)?;
                let sequence_differs =
                    matches!((told.diskseq, geometry.diskseq), (Some(a), Some(b)) if a != b);
                if told.device != geometry.number
                    || told.size_bytes != geometry.size_bytes
                    || sequence_differs
                {
                    return Err(Refusal::new(
                        Reason::EntryReplaced,
                        format!(
                            "device {} changed while it was looked at: its descriptor says {} \
                             bytes, sysfs {}",
                            geometry.number, geometry.size_bytes, told.size_bytes
                        ),
                    ));
                }
                Ok(Identity::Device(told))
            }
        }
    }
}

/// The number of the device that the entry leads to, without opening it.
pub(super) fn find_device_number(request: &Request) -> Result<DevNum, Refusal> {
    let parent = open_parent(request)?;
    let device = find_device(request, &parent)?;
    match block::device_number(&device) {
        Ok(Some(number)) => Ok(number),
        Ok(None) => Err(replaced(request, "is no block device any more")),
        Err(errno) => Err(unreadable(request, "look at", errno)),
    }
}

fn replaced(request: &Request, what: &str) -> Refusal {
    Refusal::new(
        Reason::EntryReplaced,
        format!("{} {what}; it is looked at again", request.place()),
    )
}

fn unreadable(request: &Request, verb: &str, errno: Errno) -> Refusal {
    Refusal::new(
        Reason::Unreadable,
        format!("can't {verb} {}: {}", request.place(), words(errno)),
    )
}

fn missing(request: &Request) -> Refusal {
    Refusal::new(
        Reason::EntryMissing,
        format!(
            "{} does not exist; bring the volume back, or delete PersistentVolume {} by hand if \
             its disk is gone for good",
            request.place(),
            request.pv
        ),
    )
}

fn name_of(request: &Request) -> Result<CString, Refusal> {
    CString::new(request.entry.as_str())
        .map_err(|_| Refusal::new(Reason::BadName, "the entry's name has a NUL byte"))
}

fn open_parent(request: &Request) -> Result<OwnedFd, Refusal> {
    let dir = &request.class.mount_dir;
    inode::open_directory(dir).map_err(|errno| match errno {
        Errno::ENOENT => Refusal::new(
            Reason::DirectoryMissing,
            format!("{} does not exist", dir.display()),
        ),
        Errno::ELOOP | Errno::ENOTDIR => Refusal::new(
            Reason::DirectoryUnsafe,
            format!(
                "{} is not a directory or is reached through a symbolic link; configure the real \
                 path",
                dir.display()
            ),
        ),
        errno => unreadable(request, "reach", errno),
    })
}

/// Opens the entry as the root of a mount. Anything less is a directory on the parent's filesystem:
/// the disk is not mounted, and emptying the directory would prove nothing (W-02).
fn open_mount(request: &Request, parent: &OwnedFd) -> Result<Target, Refusal> {
    let name = name_of(request)?;
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NONBLOCK;
    let root = inode::open_entry(parent.as_fd(), &name, flags).map_err(|errno| match errno {
        Errno::ENOENT => missing(request),
        Errno::ELOOP => replaced(
            request,
            "was offered as a mounted directory and is a symbolic link now",
        ),
        Errno::ENOTDIR => replaced(
            request,
            "was offered as a mounted directory and is none now",
        ),
        errno => unreadable(request, "open", errno),
    })?;
    let ask = |fd: &OwnedFd| {
        inode::mount_of(fd).map_err(|errno| unreadable(request, "ask the mount of", errno))
    };
    let (above, MountOf { id, is_root }) = (ask(parent)?, ask(&root)?);
    if !is_root || id == above.id {
        return Err(Refusal::new(
            Reason::NotMounted,
            format!(
                "nothing is mounted on {}; mount the volume again, emptying the bare directory \
                 would wipe nothing",
                request.place()
            ),
        ));
    }
    not_above(request, parent, &root)?;
    Ok(Target::Directory { root, mount: id })
}

/// Refuses a mount that shows the discovery directory itself or the whole root directory: whoever
/// bind-mounts those did not mean a volume.
fn not_above(request: &Request, parent: &OwnedFd, root: &OwnedFd) -> Result<(), Refusal> {
    let key = |stat: nix::sys::stat::FileStat| (stat.st_dev, stat.st_ino);
    let ask = |stat: Result<_, Errno>| {
        stat.map(key)
            .map_err(|errno| unreadable(request, "ask the inode of", errno))
    };
    let entry = ask(fstat(root))?;
    let top = ask(nix::sys::stat::stat("/"))?;
    if entry == ask(fstat(parent))? || entry == top {
        return Err(Refusal::new(
            Reason::PathOutside,
            format!(
                "{} shows the discovery directory or the root directory itself",
                request.place()
            ),
        ));
    }
    Ok(())
}

/// Finds the device that the entry is or links to, without opening it: `O_PATH` wakes no driver.
fn find_device(request: &Request, parent: &OwnedFd) -> Result<OwnedFd, Refusal> {
    let name = name_of(request)?;
    let stat = fstatat(parent, name.as_c_str(), AtFlags::AT_SYMLINK_NOFOLLOW);
    let kind = match stat {
        Ok(stat) => SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()),
        Err(Errno::ENOENT) => return Err(missing(request)),
        Err(errno) => return Err(unreadable(request, "look at", errno)),
    };
    let path = if kind == SFlag::S_IFLNK {
        openat(
            parent,
            name.as_c_str(),
            OFlag::O_PATH | OFlag::O_CLOEXEC,
            Mode::empty(),
        )
    } else {
        inode::open_entry(parent.as_fd(), &name, OFlag::O_PATH)
    };
    let path = path.map_err(|errno| match errno {
        Errno::ENOENT => missing(request),
        errno => unreadable(request, "look at", errno),
    })?;
    // Whatever the race above let through, this is asked of the descriptor that goes on.
    match block::device_number(&path) {
        Ok(Some(_)) => Ok(path),
        Ok(None) => Err(replaced(
            request,
            "was offered as a block device and is none now",
        )),
        Err(errno) => Err(unreadable(request, "look at", errno)),
    }
}

fn refuse_claim(request: &Request, errno: Errno) -> Refusal {
    match errno {
        Errno::EBUSY => Refusal::new(
            Reason::InUse,
            format!(
                "the device at {} is claimed: mounted (perhaps in another mount namespace), swap, \
                 or part of LVM, RAID or dm; release it there",
                request.place()
            ),
        ),
        Errno::EROFS | Errno::EACCES => Refusal::new(
            Reason::ReadOnly,
            format!(
                "the device at {} can't be opened for writing: {}",
                request.place(),
                words(errno)
            ),
        ),
        Errno::ENXIO | Errno::ENODEV => missing(request),
        errno => unreadable(request, "claim", errno),
    }
}
