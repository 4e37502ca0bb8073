//! Block devices by descriptor: the exclusive claim, geometry, zeroing by the kernel, direct I/O.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, OFlag, fallocate};
use nix::poll::{PollTimeout, poll};
use nix::sys::stat::{SFlag, fstat};

use super::inode::reopen;
use crate::volume::DevNum;

/// Direct I/O wants its memory aligned to the logical block; no device has larger ones than a page.
const ALIGNMENT: usize = 4096;

mod requests {
    //! `<linux/fs.h>`.
    nix::ioctl_read!(size64, 0x12, 114, u64);
    nix::ioctl_read!(diskseq, 0x12, 128, u64);
    nix::ioctl_read_bad!(
        logical_block,
        nix::request_code_none!(0x12, 104),
        libc::c_int
    );
    nix::ioctl_none_bad!(flush_buffers, nix::request_code_none!(0x12, 97));
    nix::ioctl_none_bad!(read_partitions, nix::request_code_none!(0x12, 95));
    nix::ioctl_write_ptr_bad!(zero_out, nix::request_code_none!(0x12, 127), [u64; 2]);
}

/// What a descriptor of a block device says about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// `st_rdev`.
    pub(crate) number: DevNum,
    /// Whole size in bytes.
    pub(crate) size_bytes: u64,
    /// Smallest unit of direct I/O.
    pub(crate) block_bytes: u64,
    /// Number of the medium, where the kernel has one (Linux 5.15).
    pub(crate) diskseq: Option<u64>,
}

/// Whether `fd`, which may be `O_PATH`, is a block device, and its number.
///
/// # Errors
/// Whatever `fstat` answers.
pub(crate) fn device_number(fd: impl AsFd) -> Result<Option<DevNum>, Errno> {
    let stat = fstat(fd)?;
    let is_block = SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) == SFlag::S_IFBLK;
    Ok(is_block.then(|| DevNum::from_raw(stat.st_rdev)))
}

/// Opens the block device behind `fd` for writing and claims it. While the answer is open nobody can
/// mount, format, swap on or assemble the device, or claim its partitions or its whole.
///
/// # Errors
/// `EBUSY` where somebody else has such a claim; `ENOTBLK` for anything but a block device.
pub(crate) fn claim(fd: impl AsFd) -> Result<OwnedFd, Errno> {
    if device_number(&fd)?.is_none() {
        return Err(Errno::ENOTBLK);
    }
    reopen(fd, OFlag::O_RDWR | OFlag::O_EXCL | OFlag::O_NONBLOCK)
}

/// Claims as [`claim`] does, and waits up to `patience` for somebody else's claim to end.
///
/// A little is always needed: a child of this process has a copy of every descriptor between its fork
/// and its exec, and with it every claim that was just given up here.
///
/// # Errors
/// As [`claim`].
pub(crate) fn claim_within(fd: impl AsFd, patience: Duration) -> Result<OwnedFd, Errno> {
    let start = Instant::now();
    loop {
        match claim(&fd) {
            Err(Errno::EBUSY) if start.elapsed() < patience => pause()?,
            result => return result,
        }
    }
}

/// Waits a moment for something that nothing announces.
///
/// # Errors
/// Whatever `poll` answers.
pub(crate) fn pause() -> Result<(), Errno> {
    match poll(&mut [], PollTimeout::from(20_u8)) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Reads the geometry of the open device `fd`.
///
/// # Errors
/// `ENOTBLK` for anything but a block device, and whatever the requests answer.
#[expect(unsafe_code, reason = "the block device ioctls have no safe wrapper")]
pub(crate) fn geometry(fd: impl AsFd) -> Result<Geometry, Errno> {
    let number = device_number(&fd)?.ok_or(Errno::ENOTBLK)?;
    let raw = fd.as_fd().as_raw_fd();
    let (mut size_bytes, mut block, mut sequence) = (0_u64, 0, 0_u64);
    // SAFETY: the request writes a u64.
    unsafe { requests::size64(raw, &raw mut size_bytes) }?;
    // SAFETY: the request writes an int.
    unsafe { requests::logical_block(raw, &raw mut block) }?;
    // SAFETY: the request writes a u64.
    let diskseq = match unsafe { requests::diskseq(raw, &raw mut sequence) } {
        Ok(_) => Some(sequence),
        Err(Errno::ENOTTY | Errno::EINVAL) => None,
        Err(errno) => return Err(errno),
    };
    Ok(Geometry {
        number,
        size_bytes,
        block_bytes: u64::try_from(block).unwrap_or(512).max(512),
        diskseq,
    })
}

/// Makes a range read back as zeros by releasing it. The kernel's contract for block devices is
/// zeros or an error, never stale data.
///
/// # Errors
/// `EOPNOTSUPP` where the device has no such command.
pub(crate) fn punch(fd: BorrowedFd<'_>, offset: u64, length: u64) -> Result<(), Errno> {
    let mode = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    fallocate(fd, mode, signed(offset)?, signed(length)?)
}

/// Makes a range read back as zeros by the device's command, or by the kernel writing zeros.
///
/// # Errors
/// Whatever the device answers.
#[expect(unsafe_code, reason = "the block device ioctls have no safe wrapper")]
pub(crate) fn zero(fd: BorrowedFd<'_>, offset: u64, length: u64) -> Result<(), Errno> {
    let mode = FallocateFlags::FALLOC_FL_ZERO_RANGE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    match fallocate(fd, mode, signed(offset)?, signed(length)?) {
        Err(Errno::EOPNOTSUPP) => {
            let range = [offset, length];
            // SAFETY: the request reads two u64.
            unsafe { requests::zero_out(fd.as_raw_fd(), &raw const range) }.map(drop)
        }
        other => other,
    }
}

/// Writes out and forgets what the page cache holds of the device.
///
/// # Errors
/// Whatever the request answers.
#[expect(unsafe_code, reason = "the block device ioctls have no safe wrapper")]
pub(crate) fn drop_cache(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: the request takes no argument.
    unsafe { requests::flush_buffers(fd.as_raw_fd()) }.map(drop)
}

/// Has the kernel read the partition table again.
///
/// # Errors
/// `EINVAL` for devices that can't have partitions, `EBUSY` while one of them is in use.
#[expect(unsafe_code, reason = "the block device ioctls have no safe wrapper")]
pub(crate) fn read_partitions(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: the request takes no argument.
    unsafe { requests::read_partitions(fd.as_raw_fd()) }.map(drop)
}

/// Opens the device behind `fd` once more for direct I/O, without the page cache.
///
/// # Errors
/// `EINVAL` where the device refuses direct I/O; `ENXIO` if it is not the same device.
pub(crate) fn direct(fd: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let again = reopen(fd, OFlag::O_RDWR | OFlag::O_DIRECT | OFlag::O_NONBLOCK)?;
    if device_number(&again)? != device_number(fd)? {
        return Err(Errno::ENXIO);
    }
    Ok(again)
}

/// A random number of the kernel's.
///
/// # Errors
/// Whatever `getrandom` answers.
#[expect(unsafe_code, reason = "getrandom has no safe wrapper")]
pub(crate) fn random() -> Result<u64, Errno> {
    let mut number = [0_u8; 8];
    // SAFETY: the call writes at most the given length.
    let result = unsafe { libc::getrandom(number.as_mut_ptr().cast(), number.len(), 0) };
    match Errno::result(result)? {
        8 => Ok(u64::from_ne_bytes(number)),
        _ => Err(Errno::EIO),
    }
}

/// A buffer that direct I/O takes.
pub(crate) struct Aligned {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl Aligned {
    /// A buffer of `length` zeros.
    pub(crate) fn zeroed(length: usize) -> Self {
        let memory = vec![0; length + ALIGNMENT];
        // The vector is never grown, so its memory does not move.
        let start = memory.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Self {
            memory,
            start,
            length,
        }
    }
}

impl std::ops::Deref for Aligned {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.length]
    }
}

impl std::ops::DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.length]
    }
}

/// An offset or length as the kernel's signed type.
pub(crate) fn signed(bytes: u64) -> Result<i64, Errno> {
    i64::try_from(bytes).map_err(|_| Errno::EFBIG)
}

/// Writes all of `data` at `offset`.
///
/// # Errors
/// Whatever `pwrite` answers; `WriteZero` at the end of the device.
pub(crate) fn write_at(fd: BorrowedFd<'_>, data: &[u8], offset: u64) -> io::Result<()> {
    let mut done = 0;
    while done < data.len() {
        let at = signed(offset + done as u64)?;
        match nix::sys::uio::pwrite(fd, &data[done..], at) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(bytes) => done += bytes,
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Fills `data` from `offset`.
///
/// # Errors
/// Whatever `pread` answers; `UnexpectedEof` at the end of the device.
pub(crate) fn read_at(fd: BorrowedFd<'_>, data: &mut [u8], offset: u64) -> io::Result<()> {
    let mut done = 0;
    while done < data.len() {
        let at = signed(offset + done as u64)?;
        match nix::sys::uio::pread(fd, &mut data[done..], at) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => done += bytes,
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_buffers_are_aligned_and_whole() {
        for length in [1, 512, 4096, 1 << 20] {
            let mut buffer = Aligned::zeroed(length);
            assert_eq!(buffer.as_ptr().align_offset(ALIGNMENT), 0);
            assert_eq!(buffer.len(), length);
            buffer.fill(7);
            assert!(buffer.iter().all(|byte| *byte == 7));
        }
    }
}
