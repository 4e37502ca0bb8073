//! What is wrong with the way we were started, told once at start-up: a daemon that can't see is
//! silent about what it does not see.

use std::fmt;
use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use crate::config::Class;
use crate::sys::files;
use crate::sys::mountinfo::{self, MountTable};
use crate::volume::ClassName;

/// Something about this process's surroundings that keeps it from seeing or comparing. Its text says
/// what is lost and what to add to the DaemonSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lack {
    /// Our own mount table can't be read; why.
    Mounts(String),
    /// Mounts made later on the host do not show up in a class's directory.
    Propagation {
        /// The class.
        class: ClassName,
        /// Its directory.
        dir: PathBuf,
    },
    /// `/dev` has no block devices.
    Devices,
    /// udev's database can't be seen.
    Udev,
    /// Only our own processes can be seen.
    Processes,
    /// Process 1 can't be looked into; why.
    Init(String),
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mounts(why) => write!(
                f,
                "the mount table can't be read, so no mount is seen ({why}): leave /proc as the \
                 container runtime mounts it; no volumeMount of the DaemonSet may cover it"
            ),
            Self::Propagation { class, dir } => write!(
                f,
                "class {class}: mounts made later on the host will not be seen in {dir}: set \
                 mountPropagation: HostToContainer on its volumeMount in the DaemonSet",
                dir = dir.display()
            ),
            Self::Devices => f.write_str(
                "no block device is in /dev, so neither devices nor links to them can be offered: \
                 add a hostPath volume of /dev to the DaemonSet and mount it at /dev",
            ),
            Self::Udev => f.write_str(
                "/run/udev/data is missing, so disks whose names only udev knows can't be told apart \
                 after a reboot: add a hostPath volume of /run/udev to the DaemonSet and mount it \
                 there with readOnly: true",
            ),
            Self::Processes => f.write_str(
                "the host's processes can't be seen, so use of a volume outside this container is \
                 not noticed before it is wiped: set hostPID: true in the DaemonSet",
            ),
            Self::Init(why) => write!(
                f,
                "process 1 can't be looked into ({why}), so nobody knows whether a volume is in use \
                 and none is ever wiped: set privileged: true in the DaemonSet's securityContext, or \
                 add the capability SYS_PTRACE"
            ),
        }
    }
}

/// Everything that this process lacks. Opens the classes' directories, which may block.
pub fn findings<'a>(classes: impl IntoIterator<Item = &'a Class>) -> Vec<Lack> {
    let mut lacks = Vec::new();
    let surroundings = surroundings();
    match MountTable::read(mountinfo::OWN) {
        Ok(_) if surroundings == Surroundings::Host => {}
        Ok(table) => lacks.extend(classes.into_iter().filter_map(|c| propagation(&table, c))),
        Err(error) => lacks.push(Lack::Mounts(error.to_string())),
    }
    if !Path::new("/dev/disk").exists() && block_nodes() == 0 {
        lacks.push(Lack::Devices);
    }
    if !Path::new("/run/udev/data").exists() {
        lacks.push(Lack::Udev);
    }
    if surroundings == Surroundings::Container {
        lacks.push(Lack::Processes);
    }
    if let Err(error) = MountTable::read(mountinfo::HOST) {
        lacks.push(Lack::Init(error.to_string()));
    }
    lacks
}

/// A container's mount that neither receives nor shares events never shows what the host mounts later.
fn propagation(table: &MountTable, class: &Class) -> Option<Lack> {
    let dir = files::open_directory(&class.mount_dir).ok()?;
    let stat = files::stat(dir.as_fd()).ok()?;
    let mount = table.by_id(stat.mount_id?)?;
    let is_deaf = mount.shared.is_none() && mount.master.is_none();
    is_deaf.then(|| Lack::Propagation {
        class: class.name.clone(),
        dir: class.mount_dir.clone(),
    })
}

fn block_nodes() -> usize {
    fs::read_dir("/sys/class/block")
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| Path::new("/dev").join(entry.file_name()).exists())
        .count()
}

/// Where we run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Surroundings {
    /// On the host itself.
    Host,
    /// In a container that sees the host's processes.
    HostPid,
    /// In a container that sees only its own processes.
    Container,
}

fn surroundings() -> Surroundings {
    let init = fs::read_link("/proc/1/ns/mnt").ok();
    let own = fs::read_link("/proc/thread-self/ns/mnt").ok();
    // Only the initial PID namespace shows the kernel's threads. A node may be a container itself.
    let has_kernel_threads =
        fs::read_to_string("/proc/2/comm").is_ok_and(|comm| comm.trim_end() == "kthreadd");
    match (init == own, has_kernel_threads) {
        (true, true) => Surroundings::Host,
        (false, _) if init.is_some() => Surroundings::HostPid,
        (_, true) => Surroundings::HostPid,
        _ => Surroundings::Container,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_lack_tells_what_to_add_to_the_daemonset() {
        let lacks = [
            Lack::Mounts("x".into()),
            Lack::Propagation {
                class: ClassName::new("fast"),
                dir: "/mnt/fast".into(),
            },
            Lack::Devices,
            Lack::Udev,
            Lack::Processes,
            Lack::Init("x".into()),
        ];
        for (lack, word) in lacks.into_iter().zip([
            "volumeMount",
            "mountPropagation: HostToContainer",
            "hostPath volume of /dev",
            "hostPath volume of /run/udev",
            "hostPID: true",
            "privileged: true",
        ]) {
            let text = lack.to_string();
            assert!(text.contains("DaemonSet") && text.contains(word), "{text}");
        }
    }
}
