//! Which devices the node itself runs from.

use std::fs;
use std::path::Path;

use crate::node::identity::DeviceFacts;
use crate::sys::files::{self, Kind};
use crate::sys::mountinfo::MountTable;
use crate::volume::DevNum;

/// The device of the root filesystem and what it is made of, as far as `table`, the host's, shows it.
pub(super) fn devices(table: &MountTable) -> Vec<DevNum> {
    // The last one covers the others.
    let Some(root) = table.mounts().iter().rfind(|m| m.point == Path::new("/")) else {
        return Vec::new();
    };
    let mut found = vec![root.device];
    // btrfs and others have a number of their own, and name their device only here.
    found.extend(
        files::stat_path(Path::new(&root.source))
            .ok()
            .filter(|stat| root.device.major == 0 && stat.kind == Kind::BlockDevice)
            .map(|stat| stat.rdev),
    );
    let mut next = 0;
    while let Some(device) = found.get(next).copied() {
        next += 1;
        for below in slaves(device) {
            if !found.contains(&below) {
                found.push(below);
            }
        }
    }
    found
}

/// What a device mapper or md device is made of.
fn slaves(device: DevNum) -> Vec<DevNum> {
    let dir = format!("/sys/dev/block/{device}/slaves");
    fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|slave| {
            let number = fs::read_to_string(slave.path().join("dev")).ok()?;
            number.trim().parse().ok()
        })
        .collect()
}

/// Whether the device, a part of it or the disk that it is a part of is among the `system` ones. A
/// partition beside the system's is not.
pub(super) fn holds(facts: &DeviceFacts, system: &[DevNum]) -> bool {
    let own = [Some(facts.identity.device), facts.whole];
    own.iter()
        .flatten()
        .chain(&facts.partition_numbers)
        .any(|number| system.contains(number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::DeviceIdentity;

    fn number(minor: u64) -> DevNum {
        DevNum { major: 8, minor }
    }

    fn device(minor: u64, whole: Option<u64>, parts: &[u64]) -> DeviceFacts {
        DeviceFacts {
            identity: DeviceIdentity {
                wwn: None,
                serial: None,
                partition: None,
                partition_uuid: None,
                size_bytes: 1,
                device: number(minor),
                diskseq: None,
                boot: String::new(),
            },
            name: "sda".into(),
            read_only: false,
            holders: Vec::new(),
            partitions: Vec::new(),
            partition_numbers: parts.iter().copied().map(number).collect(),
            whole: whole.map(number),
        }
    }

    #[test]
    fn the_last_root_counts() {
        let table = MountTable::parse(
            b"1 0 0:2 / / rw - rootfs rootfs rw\n20 1 4000:5 / / rw - ext4 /dev/none rw\n",
        );
        let root = DevNum {
            major: 4000,
            minor: 5,
        };
        assert_eq!(devices(&table), [root]);
        assert_eq!(devices(&MountTable::default()), []);
    }

    #[test]
    fn a_device_holds_the_system_by_its_parts_or_its_whole() {
        let system = [number(2)];
        assert!(holds(&device(2, None, &[]), &system), "itself");
        assert!(holds(&device(2, Some(0), &[]), &system), "a partition");
        assert!(holds(&device(0, None, &[1, 2]), &system), "its disk");
        assert!(holds(&device(3, Some(2), &[]), &system), "a part of it");
        assert!(!holds(&device(1, Some(0), &[]), &system), "a neighbour");
        assert!(!holds(&device(16, None, &[17]), &system), "another disk");
    }
}
