//! Block devices: the kernel's own uevents. udev's, which come later and say more, reach a pod only
//! with `hostNetwork`, so they are not relied upon.

use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::socket::{setsockopt, sockopt};
use udev::{MonitorBuilder, MonitorSocket};

/// Room for about a thousand events; the default holds 256 of a burst. What does not fit is lost and
/// noticed all the same, so this only spares a second look.
const BUFFER_BYTES: usize = 1 << 20;

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
        // Beyond the system's limit only with CAP_NET_ADMIN. Without it the buffer stays as it is.
        if setsockopt(&socket.as_fd(), sockopt::RcvBufForce, &BUFFER_BYTES).is_err() {
            let _ = setsockopt(&socket.as_fd(), sockopt::RcvBuf, &BUFFER_BYTES);
        }
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::{Duration, Instant};

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;

    fn ready(devices: &Devices) -> PollFlags {
        let mut fds = [PollFd::new(devices.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO).unwrap();
        fds[0].revents().unwrap()
    }

    /// Has the kernel announce a block device that does not change.
    fn announce(times: usize) {
        let any = fs::read_dir("/sys/block").unwrap().next().unwrap();
        let uevent = any.unwrap().path().join("uevent");
        for _ in 0..times {
            fs::write(&uevent, "change").expect("root may ask for uevents");
        }
    }

    #[test]
    fn lost_events_are_noticed_and_then_it_is_quiet() {
        let devices = Devices::open().unwrap();
        // The kernel rounds up to its least, which a handful of events fills.
        setsockopt(&devices.as_fd(), sockopt::RcvBuf, &0).unwrap();
        announce(100);
        let flags = ready(&devices);
        assert!(flags.contains(PollFlags::POLLERR), "ENOBUFS: {flags:?}");
        let end = Instant::now() + Duration::from_secs(5);
        while !ready(&devices).is_empty() {
            assert!(devices.drain());
            assert!(Instant::now() < end, "it spins");
        }
        announce(1);
        assert!(!ready(&devices).is_empty(), "it still hears");
    }

    #[test]
    fn a_burst_fits_into_the_buffer() {
        let devices = Devices::open().unwrap();
        announce(500);
        let flags = ready(&devices);
        assert_eq!(flags, PollFlags::POLLIN, "nothing was lost");
    }
}
