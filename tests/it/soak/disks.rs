//! What the soak mounts and unmounts, over and over while others look.

use std::path::Path;

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use crate::support::retried;

/// Mounts a new tmpfs.
pub(super) fn mount_tmpfs(point: &Path, bytes: u64) -> bool {
    let size = format!("size={bytes}");
    try_mount(
        "tmpfs".as_ref(),
        point,
        Some("tmpfs"),
        MsFlags::empty(),
        &size,
    )
}

/// Mounts a device's ext4.
pub(super) fn mount_ext4(device: &Path, point: &Path) -> bool {
    try_mount(device, point, Some("ext4"), MsFlags::empty(), "")
}

/// Mounts a directory in a second place.
pub(super) fn mount_bind(source: &Path, point: &Path) -> bool {
    try_mount(source, point, None, MsFlags::MS_BIND, "")
}

fn try_mount(
    source: &Path,
    point: &Path,
    fs_type: Option<&str>,
    flags: MsFlags,
    data: &str,
) -> bool {
    retried(|| mount(Some(source), point, fs_type, flags, Some(data)).is_ok())
}

/// Unmounts the topmost mount; false when somebody has it open for longer than a moment.
pub(super) fn unmount(point: &Path, lazily: bool) -> bool {
    let flags = if lazily {
        MntFlags::MNT_DETACH
    } else {
        MntFlags::empty()
    };
    retried(|| match umount2(point, flags) {
        Ok(()) => true,
        Err(Errno::EBUSY) => false,
        Err(errno) => panic!("umount {}: {errno}", point.display()),
    })
}

/// A UUID in text form, from two numbers.
pub(super) fn uuid(high: u64, low: u64) -> String {
    let hex = format!("{high:016x}{low:016x}");
    [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ]
    .join("-")
}
