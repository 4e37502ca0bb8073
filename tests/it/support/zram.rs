//! zram devices: they come with a true `add` event of the kernel and go with a true `remove`, where a
//! loop device only changes.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::Duration;

use provisor::volume::DevNum;

use super::disks::device_number;
use super::{retried, succeeds_within};

const CONTROL: &str = "/sys/class/zram-control";
/// How long somebody else may have the right.
const PATIENCE: Duration = Duration::from_secs(300);

/// The right to add and remove devices, until it is dropped. Their numbers are the whole machine's, and a
/// link to one that is gone must not lead to somebody else's.
#[derive(Debug)]
pub(crate) struct Zrams {
    _lock: File,
}

impl Zrams {
    /// Waits until nobody else has it.
    pub(crate) fn take() -> Self {
        let control = format!("{CONTROL}/hot_remove");
        let lock = OpenOptions::new()
            .write(true)
            .open(control)
            .unwrap_or_else(|error| panic!("zram is needed: modprobe zram ({error})"));
        assert!(
            succeeds_within(PATIENCE, || lock.try_lock().is_ok()),
            "another test of this machine keeps the zram devices to itself"
        );
        Self { _lock: lock }
    }

    /// Adds a device, with the lowest number that is free.
    #[expect(clippy::unused_self, reason = "who adds must have the right")]
    pub(crate) fn add(&self, bytes: u64) -> Zram {
        let number = fs::read_to_string(format!("{CONTROL}/hot_add")).expect("zram adds a device");
        let device = Zram {
            number: number.trim().parse().expect("a number"),
        };
        let size = format!("/sys/block/zram{}/disksize", device.number);
        fs::write(size, bytes.to_string()).expect("the new device takes a size");
        device
    }
}

/// A zram device; removed when dropped.
#[derive(Debug)]
pub(crate) struct Zram {
    /// The kernel's number of it.
    pub(crate) number: u32,
}

impl Zram {
    /// Where the device of that number is while there is one.
    pub(crate) fn node(number: u32) -> PathBuf {
        format!("/dev/zram{number}").into()
    }

    /// Removes it; false while somebody has it open.
    pub(crate) fn remove(&self) -> bool {
        let gone = format!("{CONTROL}/hot_remove");
        retried(|| fs::write(&gone, self.number.to_string()).is_ok())
    }

    /// The device number.
    pub(crate) fn device(&self) -> DevNum {
        device_number(&Self::node(self.number))
    }
}

impl Drop for Zram {
    fn drop(&mut self) {
        if Path::new(&format!("/sys/block/zram{}", self.number)).exists() {
            self.remove();
        }
    }
}
