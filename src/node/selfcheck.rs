//! What is wrong with the way we were started, told once at start-up: a daemon that can't see is
//! silent about what it does not see.

use std::fs;
use std::os::fd::AsFd;
use std::path::Path;

use crate::config::Class;
use crate::sys::files;
use crate::sys::mountinfo::{self, MountTable};

/// Everything about this process's surroundings that will keep it from seeing or comparing, each with
/// what to do about it.
pub fn findings<'a>(classes: impl IntoIterator<Item = &'a Class>) -> Vec<String> {
    let mut findings = Vec::new();
    let surroundings = surroundings();
    match MountTable::read(mountinfo::OWN) {
        Ok(_) if surroundings == Surroundings::Host => {}
        Ok(table) => findings.extend(classes.into_iter().filter_map(|c| propagation(&table, c))),
        Err(error) => findings.push(format!(
            "the mount table can't be read, so no mount will be seen: {error}"
        )),
    }
    if !Path::new("/dev/disk").exists() && block_nodes() == 0 {
        findings.push(
            "no block device is in /dev: mount the host's /dev into the container, or devices and \
             links to them can't be offered"
                .into(),
        );
    }
    if !Path::new("/run/udev/data").exists() {
        findings.push(
            "/run/udev/data is missing: mount it read-only, or disks whose names only udev knows can't \
             be told apart after a reboot"
                .into(),
        );
    }
    if surroundings == Surroundings::Container {
        findings.push(
            "the host's processes can't be seen: set hostPID: true, or use of a volume outside this \
             container is not noticed before it is wiped"
                .into(),
        );
    }
    if let Err(error) = MountTable::read(mountinfo::HOST) {
        findings.push(format!(
            "process 1 can't be looked into ({error}): give the container SYS_PTRACE or make it \
             privileged, or no volume is ever wiped, since nobody knows whether it is in use"
        ));
    }
    findings
}

/// A container's mount that neither receives nor shares events never shows what the host mounts later.
fn propagation(table: &MountTable, class: &Class) -> Option<String> {
    let dir = files::open_directory(&class.mount_dir).ok()?;
    let stat = files::stat(dir.as_fd()).ok()?;
    let mount = table.by_id(stat.mount_id?)?;
    (mount.shared.is_none() && mount.master.is_none()).then(|| {
        format!(
            "class {}: mounts made later on the host will not be seen in {}: set mountPropagation: \
             HostToContainer on its volumeMount",
            class.name,
            class.mount_dir.display()
        )
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
    fn findings_tell_what_to_do() {
        for finding in findings([]) {
            assert!(finding.contains(": "), "{finding}");
        }
    }
}
