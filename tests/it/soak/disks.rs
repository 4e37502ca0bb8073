//! What the soak plugs in and out: loop devices that keep their number, and mounts.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use provisor::volume::DevNum;

use crate::support::nap;

/// How often something that is busy for a moment is tried again, with a nap in between.
const TRIES: usize = 200;
/// Loop devices from here on: other tests take the first free ones or those from 200.
const FIRST_NUMBER: u32 = 240;
const NUMBERS: u32 = 400;

/// A loop device that goes and comes under one number, as a bay for disks does.
#[derive(Debug)]
pub(super) struct Bay {
    /// The device's node.
    pub(super) node: PathBuf,
    /// The file behind it.
    pub(super) image: PathBuf,
    pub(super) size: u64,
    pub(super) is_attached: bool,
    /// Keeps other soaks on this machine from taking the number while nothing is attached.
    _lock: File,
}

impl Bay {
    /// Takes a number that nobody uses, and attaches a disk of zeros.
    pub(super) fn new(dir: &Path, name: &str, size: u64) -> Self {
        let image = dir.join(name);
        blank(&image, size);
        // Somewhere else for each process, so that two suites on one machine seldom meet.
        let start = std::time::SystemTime::UNIX_EPOCH
            .elapsed()
            .map_or(0, |since| since.subsec_micros() % NUMBERS);
        let (node, lock) = (0..NUMBERS)
            .map(|step| FIRST_NUMBER + (start + step) % NUMBERS)
            .find_map(|number| {
                let node = PathBuf::from(format!("/dev/loop{number}"));
                // The kernel makes the device when something is attached for the first time.
                let known = lock(number);
                if matches!(known, Some(Err(_))) || !losetup(&node, &image) {
                    return None;
                }
                match known.or_else(|| lock(number)) {
                    Some(Ok(lock)) => Some((node, lock)),
                    _ => {
                        losetup_detach(&node);
                        None
                    }
                }
            })
            .expect("a free loop device with a high number");
        Self {
            node,
            image,
            size,
            is_attached: true,
            _lock: lock,
        }
    }

    /// The kernel's name.
    fn name(&self) -> &str {
        self.node
            .file_name()
            .and_then(|name| name.to_str())
            .expect("a node has a plain name")
    }

    /// The device number.
    pub(super) fn number(&self) -> DevNum {
        let text = fs::read_to_string(format!("/sys/block/{}/dev", self.name())).expect("number");
        text.trim().parse().expect("a device number")
    }

    /// Attaches the image; tells whether it could.
    pub(super) fn attach(&mut self) -> bool {
        self.is_attached = (0..TRIES).any(|_| losetup(&self.node, &self.image) || pause());
        self.is_attached
    }

    /// Detaches it and waits until nobody has it open any more.
    pub(super) fn detach(&mut self) {
        let backing = format!("/sys/block/{}/loop/backing_file", self.name());
        let gone = (0..TRIES * 5).any(|_| {
            losetup_detach(&self.node);
            !Path::new(&backing).exists() || pause()
        });
        assert!(gone, "{} does not get free", self.name());
        self.is_attached = false;
    }

    /// Puts another disk of zeros into it.
    pub(super) fn blank(&self) {
        blank(&self.image, self.size);
    }

    /// Makes an ext4 with that UUID; tells whether it could.
    pub(super) fn format(&self, uuid: &str) -> bool {
        let made = Command::new("mkfs.ext4")
            .args([
                "-q",
                "-F",
                "-b",
                "1024",
                "-N",
                "64",
                "-O",
                "^has_journal",
                "-U",
                uuid,
            ])
            .arg(&self.node)
            .output();
        made.is_ok_and(|output| output.status.success())
    }
}

impl Drop for Bay {
    fn drop(&mut self) {
        losetup_detach(&self.node);
    }
}

/// Locks a loop device's number; none while there is no such device.
fn lock(number: u32) -> Option<Result<File, TryLockError>> {
    let file = File::open(format!("/sys/block/loop{number}/size")).ok()?;
    Some(file.try_lock().map(|()| file))
}

fn losetup_detach(node: &Path) {
    // Fails when it is detached already.
    let _ = Command::new("losetup").arg("--detach").arg(node).output();
}

fn losetup(node: &Path, image: &Path) -> bool {
    let attached = Command::new("losetup").arg(node).arg(image).output();
    attached.is_ok_and(|output| output.status.success())
}

/// Waits a moment; false, so that it ends a chain of tries.
fn pause() -> bool {
    nap();
    false
}

fn blank(image: &Path, size: u64) {
    File::create(image)
        .and_then(|file| file.set_len(size))
        .expect("the directory is ours");
}

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
    (0..TRIES).any(|_| mount(Some(source), point, fs_type, flags, Some(data)).is_ok() || pause())
}

/// Unmounts the topmost mount; false when somebody has it open for longer than a moment.
pub(super) fn unmount(point: &Path, lazily: bool) -> bool {
    let flags = if lazily {
        MntFlags::MNT_DETACH
    } else {
        MntFlags::empty()
    };
    (0..TRIES).any(|_| match umount2(point, flags) {
        Ok(()) => true,
        Err(Errno::EBUSY) => pause(),
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
