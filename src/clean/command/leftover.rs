//! Processes that a cleaner left behind outside its process group, with the device still open: they
//! could write to it after the verification, and no exclusive claim would stop them.

use std::fs;
use std::io;
use std::path::Path;

use crate::volume::DevNum;

/// A process of our mount namespace, in which the program ran, that has the device open.
pub(super) fn holder(device: DevNum, path: &Path) -> io::Result<Option<u32>> {
    let own = fs::read_link("/proc/self/ns/mnt")?;
    for entry in fs::read_dir("/proc")?.flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // Processes come and go while this reads; one that is gone has nothing open.
        let is_ours = || fs::read_link(entry.path().join("ns/mnt")).is_ok_and(|ns| ns == own);
        if pid != std::process::id() && is_ours() && has_open(&entry.path(), device, path) {
            return Ok(Some(pid));
        }
    }
    Ok(None)
}

fn has_open(process: &Path, device: DevNum, path: &Path) -> bool {
    let Ok(descriptors) = fs::read_dir(process.join("fd")) else {
        return false;
    };
    descriptors.flatten().any(|descriptor| {
        // Only what can be the device is asked further: a dead network filesystem would hang.
        let candidate = fs::read_link(descriptor.path())
            .is_ok_and(|link| link.starts_with("/dev") || link.starts_with(path));
        candidate
            && fs::metadata(descriptor.path()).is_ok_and(|data| {
                use std::os::unix::fs::{FileTypeExt, MetadataExt};
                data.file_type().is_block_device() && DevNum::from_raw(data.rdev()) == device
            })
    })
}
