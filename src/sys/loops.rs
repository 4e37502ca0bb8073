//! Loop devices: what is behind them (loop(4)).

use std::os::fd::{AsFd, AsRawFd};

use crate::volume::DevNum;

/// What is behind a loop device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backing {
    /// The filesystem that holds the backing file.
    pub device: DevNum,
    /// The backing file's inode.
    pub inode: u64,
    /// The device, when the backing file is a device node.
    pub rdev: DevNum,
}

mod ioctl {
    /// `struct loop_info64` of linux/loop.h.
    #[repr(C)]
    pub(super) struct Info {
        pub(super) device: u64,
        pub(super) inode: u64,
        pub(super) rdevice: u64,
        pub(super) offset: u64,
        pub(super) size_limit: u64,
        pub(super) numbers: [u32; 4],
        pub(super) names: [[u8; 64]; 2],
        pub(super) key: [u8; 32],
        pub(super) init: [u64; 2],
    }

    // LOOP_GET_STATUS64
    nix::ioctl_read_bad!(get_status, 0x4C05, Info);
}

/// Asks an open loop device. `None` for one that is not bound, and for whatever is no loop device.
#[expect(unsafe_code, reason = "an ioctl")]
pub fn backing(device: impl AsFd) -> Option<Backing> {
    let mut info = ioctl::Info {
        device: 0,
        inode: 0,
        rdevice: 0,
        offset: 0,
        size_limit: 0,
        numbers: [0; 4],
        names: [[0; 64]; 2],
        key: [0; 32],
        init: [0; 2],
    };
    // SAFETY: the ioctl writes one loop_info64, which `info` mirrors and which outlives the call.
    unsafe { ioctl::get_status(device.as_fd().as_raw_fd(), &raw mut info) }.ok()?;
    Some(Backing {
        device: DevNum::from_raw(info.device),
        inode: info.inode,
        rdev: DevNum::from_raw(info.rdevice),
    })
}
