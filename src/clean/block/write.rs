//! Writing over a range by the fastest way that the device has.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::sys::block::{Aligned, direct, punch, random, write_at, zero};
use crate::volume::{DevNum, Reason, Refusal};

/// Size of one direct write.
const WRITE_BYTES: u64 = 1 << 20;
/// Direct writes in flight; more than four gain little on any device measured.
const DEPTH: usize = 4;

/// What is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Zeros,
    Random,
}

/// The rungs of the ladder, best first. A device that refuses one never gets asked for it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rung {
    Punch,
    Zero,
    Write,
}

/// Writes through the claimed descriptor of one device.
pub(super) struct Writer<'a> {
    fd: BorrowedFd<'a>,
    number: DevNum,
    rung: Rung,
    /// A second description of the device, opened when first needed; `Some(None)` where direct I/O is
    /// refused.
    direct: Option<Option<OwnedFd>>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(fd: BorrowedFd<'a>, number: DevNum) -> Self {
        Self {
            fd,
            number,
            rung: Rung::Punch,
            direct: None,
        }
    }

    /// The way that zeros were written in the end, in words.
    pub(super) fn method(&self) -> &'static str {
        match self.rung {
            Rung::Punch => "zeroed by releasing the blocks",
            Rung::Zero => "zeroed by the kernel",
            Rung::Write => "zeroed by writing",
        }
    }

    /// Writes `content` over a range.
    pub(super) fn write(
        &mut self,
        content: Content,
        offset: u64,
        length: u64,
    ) -> Result<(), Refusal> {
        if content == Content::Random {
            return self.write_out(content, offset, length);
        }
        loop {
            let result = match self.rung {
                Rung::Punch => punch(self.fd, offset, length),
                Rung::Zero => zero(self.fd, offset, length),
                Rung::Write => return self.write_out(content, offset, length),
            };
            // Devices refuse with all kinds of errors what they do not have, some only for part of a
            // range. Whatever it was, the next rung tells whether the device works at all.
            if result.is_ok() {
                return Ok(());
            }
            self.rung = match self.rung {
                Rung::Punch => Rung::Zero,
                Rung::Zero | Rung::Write => Rung::Write,
            };
        }
    }

    /// Writes blocks of 1 MiB from a few threads at once.
    fn write_out(&mut self, content: Content, offset: u64, length: u64) -> Result<(), Refusal> {
        let number = self.number;
        let failed = |at: u64, error: &dyn std::fmt::Display| {
            Refusal::new(
                Reason::WipeFailed,
                format!("can't write to device {number} at {at}: {error}"),
            )
        };
        let seed = random().map_err(|errno| failed(offset, &errno))?;
        let fd = self.fd;
        let direct = self
            .direct
            .get_or_insert_with(|| direct(fd).ok())
            .as_ref()
            .map(AsFd::as_fd);
        let next = AtomicU64::new(0);
        let failure = Mutex::new(None);
        let work = || {
            let mut buffer = Aligned::zeroed(usize::try_from(WRITE_BYTES.min(length)).unwrap_or(0));
            loop {
                let from = next.fetch_add(WRITE_BYTES, Ordering::Relaxed);
                if from >= length {
                    return;
                }
                let size = WRITE_BYTES.min(length - from);
                let block = &mut buffer[..usize::try_from(size).unwrap_or(0)];
                if content == Content::Random {
                    fill(block, seed ^ from);
                }
                let at = offset + from;
                if let Err(error) = write_block(direct, fd, block, at) {
                    next.store(length, Ordering::Relaxed);
                    if let Ok(mut failure) = failure.lock() {
                        failure.get_or_insert((at, error));
                    }
                    return;
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..DEPTH {
                scope.spawn(work);
            }
            work();
        });
        match failure.into_inner() {
            Ok(None) => Ok(()),
            Ok(Some((at, error))) => Err(failed(at, &error)),
            Err(_) => Err(failed(offset, &"a writer panicked")),
        }
    }
}

/// Writes one block past the page cache, or through it where the device wants another alignment.
fn write_block(
    direct: Option<BorrowedFd<'_>>,
    buffered: BorrowedFd<'_>,
    block: &[u8],
    at: u64,
) -> std::io::Result<()> {
    match direct.map(|fd| write_at(fd, block, at)) {
        Some(Err(error)) if error.raw_os_error() == Some(libc::EINVAL) => {
            write_at(buffered, block, at)
        }
        Some(result) => result,
        None => write_at(buffered, block, at),
    }
}

/// Fills `block` with noise that does not compress: splitmix64, as no secret depends on it.
fn fill(block: &mut [u8], seed: u64) {
    let mut state = seed;
    for word in block.chunks_mut(8) {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        word.copy_from_slice(&z.to_ne_bytes()[..word.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_differs_by_seed_and_fills_odd_lengths() {
        let (mut a, mut b) = ([0_u8; 1003], [0_u8; 1003]);
        fill(&mut a, 1);
        fill(&mut b, 2);
        assert_ne!(a, b);
        assert!(a[995..].iter().any(|byte| *byte != 0));
    }
}
