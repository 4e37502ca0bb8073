//! Block devices: the kernel's own uevents. udev's, which come later and say more, reach a pod only
//! with `hostNetwork`, so they are not relied upon.

use std::os::fd::{AsFd, BorrowedFd};

use udev::{MonitorBuilder, MonitorSocket};

/// A socket that receives the uevents of block devices.
pub(super) struct Devices {
    socket: MonitorSocket,
}

impl Devices {
    pub(super) fn open() -> Result<Self, String> {
        let socket = MonitorBuilder::new_kernel()
            .and_then(|monitor| monitor.match_subsystem("block"))
            .and_then(MonitorBuilder::listen)
            .map_err(|error| error.to_string())?;
        Ok(Self { socket })
    }

    /// Takes all events that wait. The answer is always that there was one: when too many came, the
    /// socket drops them and libudev says nothing, so being ready is the only sign.
    pub(super) fn drain(&self) -> bool {
        while self.socket.iter().next().is_some() {}
        true
    }
}

impl AsFd for Devices {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
