//! Who uses a piece of storage right now. Asked before it is wiped.
//!
//! The API server can't tell: `kubectl delete pod --force` releases a volume while its containers
//! still run. An exclusive open can't tell either: it does not see plain descriptors, the loop device
//! and the node that the kubelet puts over a Block volume, or any use of a directory. So all that
//! /proc and sysfs show is asked, in every mount namespace, and what is ambiguous counts as a use.
//!
//! Not seen: a mapping of a file that is no longer open, and a namespace that no process is in.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use super::identity::{self, DeviceFacts};
use crate::config::Class;
use crate::sys::files;
use crate::sys::mountinfo::{self, Mount, MountTable};
use crate::volume::{DevNum, EntryName, Identity, Reason, Refusal};

mod backing;
mod mounts;
mod processes;

pub(crate) use backing::swaps;
use mounts::Namespace;

/// What is asked about.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The storage as it is now; the device number must be of this boot.
    pub identity: &'a Identity,
    /// Its class.
    pub class: &'a Class,
    /// Its name in the class's directory.
    pub entry: &'a EntryName,
    /// The PersistentVolume, by whose name the kubelet calls its own devices.
    pub pv: &'a str,
}

/// One use of a piece of storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum User {
    /// It, or a directory of it, is mounted.
    Mount {
        /// Where, as that process sees it.
        point: String,
        /// A process that sees it.
        process: Process,
    },
    /// Its device node is bound somewhere, as the kubelet does for a Block volume.
    DeviceNode {
        /// Where, as that process sees it.
        point: String,
        /// A process that sees it.
        process: Process,
    },
    /// A loop device is on top of it, or of a file in it.
    Loop {
        /// The loop device.
        name: String,
        /// What is behind it, as the kernel calls it.
        backing: String,
    },
    /// The kernel has stacked something on it: device mapper, md, btrfs.
    Holder(String),
    /// It is, or has in it, swap space.
    Swap(String),
    /// A process has something of it open.
    Open {
        /// The process.
        process: Process,
        /// `fd/4`, `cwd`, `root` or `exe`.
        by: String,
        /// What, as the kernel calls it.
        what: String,
    },
}

/// A process, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number in our view.
    pub pid: u32,
    /// Its name.
    pub name: String,
}

impl Process {
    fn of(pid: u32) -> Self {
        let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
        Self {
            pid,
            name: String::from_utf8_lossy(&name).trim_end().to_owned(),
        }
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({})", self.pid, self.name)
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mount { point, process } => write!(f, "mounted at {point} as {process} sees it"),
            Self::DeviceNode { point, process } => {
                write!(f, "device node bound at {point} as {process} sees it")
            }
            Self::Loop { name, backing } => write!(f, "under loop device {name} ({backing})"),
            Self::Holder(name) => write!(f, "used by {name}"),
            Self::Swap(path) => write!(f, "swap space {path}"),
            Self::Open { process, by, what } => write!(f, "open in {process}: {by} is {what}"),
        }
    }
}

/// Everyone who uses the storage, apart from the discovery directory itself and this process.
///
/// # Errors
/// [`Reason::Unreadable`] when something that could be a use can't be looked at.
pub fn users(subject: Subject<'_>) -> Result<Vec<User>, Refusal> {
    let target = Target::of(&subject)?;
    let namespaces = mounts::namespaces()?;
    let mut users = mounts::users(&target, &namespaces);
    users.extend(target.holders.iter().cloned().map(User::Holder));
    users.extend(backing::users(&target, &namespaces, subject.pv));
    users.extend(processes::users(&target, &namespaces));
    Ok(users)
}

/// The subject, resolved to what /proc and sysfs show of it.
struct Target {
    kind: Kind,
    holders: Vec<String>,
    /// What the discovery mount is mounted upon. Its copies in other namespaces are upon the same
    /// place; a mount made for a container never is, wherever the container has it.
    upon: Option<(DevNum, PathBuf)>,
}

enum Kind {
    Device {
        /// The device, its partitions, and the disk that it is a partition of.
        numbers: BTreeSet<DevNum>,
        /// Names in /dev of the device and its partitions.
        names: Vec<String>,
    },
    Filesystem {
        /// The device number in mountinfo.
        device: DevNum,
        /// The device numbers that files show: those of a btrfs differ from the one in mountinfo.
        file_devices: BTreeSet<DevNum>,
        /// The directory of the filesystem that is the volume.
        root: PathBuf,
    },
}

impl Target {
    fn of(subject: &Subject<'_>) -> Result<Self, Refusal> {
        let unreadable =
            |what| move |error| Refusal::new(Reason::Unreadable, format!("{what}: {error}"));
        let own = MountTable::read(mountinfo::OWN).map_err(unreadable("our mounts"))?;
        let path = subject.class.mount_path(subject.entry);
        let stat = files::open_directory(&subject.class.mount_dir)
            .and_then(|dir| files::peek(dir.as_fd(), subject.entry.as_str().as_ref()))
            .and_then(|object| files::stat(object.as_fd()))
            .ok();
        let discovery = stat
            .and_then(|stat| own.by_id(stat.mount_id?))
            .filter(|mount| mount.point.as_os_str() == path.as_os_str());
        let upon = discovery.and_then(|mount| own.upon(mount));
        match subject.identity {
            Identity::Device(device) => {
                let facts = identity::of_device(device.device)?;
                Ok(Self {
                    upon,
                    holders: facts.holders.clone(),
                    kind: Kind::device(&facts),
                })
            }
            Identity::Filesystem(filesystem) => {
                let ours = discovery.filter(|mount| {
                    mount.device == filesystem.device
                        && identity::printable(&mount.root) == filesystem.root
                });
                let root = ours.map_or_else(|| (&filesystem.root).into(), |m| m.root.clone());
                let mut file_devices = BTreeSet::from([filesystem.device]);
                if let (Some(stat), Some(_)) = (stat, ours) {
                    file_devices.insert(stat.device);
                }
                Ok(Self {
                    upon,
                    holders: Vec::new(),
                    kind: Kind::Filesystem {
                        device: filesystem.device,
                        file_devices,
                        root,
                    },
                })
            }
        }
    }
}

impl Kind {
    fn device(facts: &DeviceFacts) -> Self {
        let numbers = [facts.identity.device]
            .into_iter()
            .chain(facts.partition_numbers.iter().copied())
            .chain(facts.whole)
            .collect();
        let names = [facts.name.clone()]
            .into_iter()
            .chain(facts.partitions.iter().cloned())
            .collect();
        Self::Device { numbers, names }
    }

    /// Whether a file, known by the name that the kernel gives it, lies in the volume. A name that
    /// no namespace can place counts as one that does.
    fn has_file(&self, name: &Path, mount_id: Option<u64>, namespaces: &[Namespace]) -> bool {
        let Self::Filesystem { device, root, .. } = self else {
            return false;
        };
        if root.as_os_str() == "/" {
            return true;
        }
        let places: Vec<PathBuf> = namespaces
            .iter()
            .filter_map(|namespace| match mount_id {
                Some(id) => namespace.table.by_id(id),
                None => namespace.table.holding(name),
            })
            .filter(|mount: &&Mount| mount.device == *device)
            .filter_map(|mount| mount.inside(name))
            .collect();
        places.is_empty() || places.iter().any(|place| place.starts_with(root))
    }
}

/// The processes that we can see, in ascending order.
pub(crate) fn pids() -> impl Iterator<Item = u32> {
    let pids: BTreeSet<u32> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    pids.into_iter()
}
