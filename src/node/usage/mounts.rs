//! Uses by mounting, in every mount namespace that some process is in.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use nix::libc;

use super::{Kind, Process, Target, User, pids};
use crate::node::identity::printable;
use crate::sys::mountinfo::{self, Mount, MountTable};
use crate::volume::{DevNum, Reason, Refusal};

/// A mount namespace, as one of its processes sees it.
pub(super) struct Namespace {
    pub(super) pid: u32,
    pub(super) table: MountTable,
}

/// Every mount namespace, ours first.
pub(super) fn namespaces() -> Result<Vec<Namespace>, Refusal> {
    let unreadable = |whose: String, error: &io::Error| {
        let detail = format!(
            "the mounts of {whose} can't be read ({error}), so nobody knows who uses the volume; give \
             the container hostPID and SYS_PTRACE, or make it privileged"
        );
        Refusal::new(Reason::Unreadable, detail)
    };
    let ours = |error| unreadable("this process".into(), &error);
    let own_name = fs::read_link("/proc/thread-self/ns/mnt").map_err(ours)?;
    let mut namespaces = vec![Namespace {
        pid: std::process::id(),
        table: MountTable::read(mountinfo::OWN).map_err(ours)?,
    }];
    for (name, members) in members(&unreadable)? {
        if name == own_name.as_os_str() {
            continue;
        }
        let mut partial = None;
        let mut whole = None;
        for pid in members {
            match MountTable::read(format!("/proc/{pid}/mountinfo")) {
                Ok(table) if is_chrooted(pid) => {
                    partial.get_or_insert(Namespace { pid, table });
                }
                Ok(table) => {
                    whole = Some(Namespace { pid, table });
                    break;
                }
                Err(error) if is_out_of_sight(pid, &error) => {}
                Err(error) => return Err(unreadable(Process::of(pid).to_string(), &error)),
            }
        }
        namespaces.extend(whole.or(partial));
    }
    // A line that makes no sense may be the one that matters.
    if let Some(odd) = namespaces.iter().find(|n| n.table.malformed() > 0) {
        let error = io::Error::new(ErrorKind::InvalidData, "a line makes no sense");
        return Err(unreadable(Process::of(odd.pid).to_string(), &error));
    }
    Ok(namespaces)
}

type Unreadable<'a> = &'a dyn Fn(String, &io::Error) -> Refusal;

fn members(unreadable: Unreadable<'_>) -> Result<BTreeMap<OsString, Vec<u32>>, Refusal> {
    let mut members: BTreeMap<OsString, Vec<u32>> = BTreeMap::new();
    for pid in pids() {
        match fs::read_link(format!("/proc/{pid}/ns/mnt")) {
            Ok(name) => members.entry(name.into_os_string()).or_default().push(pid),
            Err(error) if is_out_of_sight(pid, &error) => {}
            Err(error) => return Err(unreadable(Process::of(pid).to_string(), &error)),
        }
    }
    Ok(members)
}

/// Whether a process whose mounts can't be read may be passed over: it is gone, or a zombie, which has
/// no namespace any more; or it has rights that we lack, so that a Pod without CAP_SYS_PTRACE can't
/// look into it at all. Only the kubelet must be seen: it is what mounts volumes for Pods.
fn is_out_of_sight(pid: u32, error: &io::Error) -> bool {
    match error.kind() {
        ErrorKind::NotFound => true,
        ErrorKind::PermissionDenied => Process::of(pid).name != "kubelet",
        _ => matches!(error.raw_os_error(), Some(libc::ESRCH | libc::EINVAL)),
    }
}

/// A process in a chroot sees only the mounts below it.
fn is_chrooted(pid: u32) -> bool {
    fs::read_link(format!("/proc/{pid}/root")).is_ok_and(|root| root.as_os_str() != "/")
}

pub(super) fn users(target: &Target, namespaces: &[Namespace]) -> Vec<User> {
    // The copies of one mount in many namespaces are one use.
    let mut seen: BTreeSet<(DevNum, PathBuf, (DevNum, PathBuf))> = BTreeSet::new();
    let mut users = Vec::new();
    for Namespace { pid, table } in namespaces {
        for mount in table.mounts() {
            let Some(make) = use_by(&target.kind, mount) else {
                continue;
            };
            let upon = table.upon(mount);
            if upon.is_some() && upon == target.upon && is_whole(&target.kind, mount) {
                continue;
            }
            let place = upon.unwrap_or_else(|| (mount.device, mount.point.clone()));
            if seen.insert((mount.device, mount.root.clone(), place)) {
                users.push(make(printable(&mount.point), Process::of(*pid)));
            }
        }
    }
    users
}

/// Whether the very volume is mounted, not a directory inside it.
fn is_whole(kind: &Kind, mount: &Mount) -> bool {
    match kind {
        Kind::Filesystem { root, .. } => mount.root == *root,
        Kind::Device { .. } => true,
    }
}

type MakeUser = fn(String, Process) -> User;

fn use_by(kind: &Kind, mount: &Mount) -> Option<MakeUser> {
    let mounted: MakeUser = |point, process| User::Mount { point, process };
    let bound: MakeUser = |point, process| User::DeviceNode { point, process };
    match kind {
        // A mount of a directory above ours is the disk's own mount, that the administrator bound
        // ours from.
        Kind::Filesystem { device, root, .. } => {
            (mount.device == *device && mount.root.starts_with(root)).then_some(mounted)
        }
        Kind::Device { numbers, .. } if numbers.contains(&mount.device) => Some(mounted),
        Kind::Device { names, .. } => {
            let is_node = names
                .iter()
                .any(|name| mount.root == Path::new("/").join(name));
            // Where nodes are made by hand, /dev is a tmpfs, and its files may be anything.
            let is_dev = mount.fs_type == "devtmpfs"
                || (mount.fs_type == "tmpfs"
                    && mount
                        .point
                        .components()
                        .any(|c| c.as_os_str() == "volumeDevices"));
            (is_node && is_dev).then_some(bound)
        }
    }
}
