//! Loop devices that keep their number when what is in them goes.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::Command;

use provisor::volume::DevNum;

use super::disks::device_number;
use super::{retried, wait_until};

/// Loop devices from here on: other tests take the first free ones.
const FIRST_NUMBER: u32 = 240;
const NUMBERS: u32 = 400;

/// A loop device that goes and comes under one number, as a bay for disks does.
#[derive(Debug)]
pub(crate) struct Bay {
    /// The device's node.
    pub(crate) node: PathBuf,
    /// The file behind it.
    pub(crate) image: PathBuf,
    pub(crate) size: u64,
    pub(crate) is_attached: bool,
    /// Keeps other tests on this machine from taking the number while nothing is attached.
    _lock: File,
}

impl Bay {
    /// Takes a number that nobody uses, and attaches a disk of zeros.
    pub(crate) fn new(dir: &Path, name: &str, size: u64) -> Self {
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

    /// The device number.
    pub(crate) fn number(&self) -> DevNum {
        device_number(&self.node)
    }

    /// Attaches the image; tells whether it could.
    pub(crate) fn attach(&mut self) -> bool {
        self.is_attached = retried(|| losetup(&self.node, &self.image));
        self.is_attached
    }

    /// Detaches it and waits until nobody has it open any more.
    pub(crate) fn detach(&mut self) {
        let backing = format!("/sys/dev/block/{}/loop/backing_file", self.number());
        wait_until(&format!("{} gets free", self.node.display()), || {
            losetup_detach(&self.node);
            !Path::new(&backing).exists()
        });
        self.is_attached = false;
    }

    /// Puts another disk of zeros into it.
    pub(crate) fn blank(&self) {
        blank(&self.image, self.size);
    }

    /// Makes an ext4 with that UUID; tells whether it could.
    pub(crate) fn format(&self, uuid: &str) -> bool {
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

fn blank(image: &Path, size: u64) {
    File::create(image)
        .and_then(|file| file.set_len(size))
        .expect("the directory is ours");
}
