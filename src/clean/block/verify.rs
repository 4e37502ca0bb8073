//! Reads a device back past the page cache: what is verified is the device, not our own writes in
//! memory.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::layout::{SAMPLE_BYTES, samples};
use crate::clean::progress::Control;
use crate::sys::block::{Aligned, Geometry, direct, drop_cache, random, read_at};
use crate::volume::{DevNum, Reason, Refusal};

/// Size of one read; a longer range is read in several.
const READ_BYTES: u64 = 1 << 20;
/// [`SAMPLE_BYTES`] as a step.
#[expect(clippy::cast_possible_truncation, reason = "4096")]
const SAMPLE_STEP: usize = SAMPLE_BYTES as usize;

/// Refuses unless every sampled place of the device is zero.
pub(super) fn zeros(
    fd: BorrowedFd<'_>,
    geometry: Geometry,
    control: &Control<'_>,
) -> Result<(), Refusal> {
    let mut reader = Reader::open(fd, geometry.number)?;
    let places = samples(geometry.size_bytes, random_source()?);
    for (start, length) in places {
        control.go_on()?;
        let mut offset = start;
        while offset < start + length {
            let size = READ_BYTES.min(start + length - offset);
            let data = reader.read(offset, size)?;
            if let Some(at) = data.iter().position(|byte| *byte != 0) {
                return Err(Refusal::new(
                    Reason::VerifyFailed,
                    format!(
                        "device {} still has data at offset {}; somebody else writes to it, or it \
                         does not do what it is told",
                        geometry.number,
                        offset + at as u64
                    ),
                ));
            }
            offset += size;
        }
    }
    Ok(())
}

/// Random numbers that nobody can foresee, so that nobody can prepare the places that are looked at.
fn random_source() -> Result<impl FnMut() -> u64, Refusal> {
    let mut state = random()
        .map_err(|errno| Refusal::new(Reason::WipeFailed, format!("no random numbers: {errno}")))?;
    Ok(move || {
        // Mixed with fresh ones where they can be had, which is always after the first.
        state = state.wrapping_mul(6_364_136_223_846_793_005) ^ random().unwrap_or(state >> 7);
        state
    })
}

/// Reads ranges of one device, by direct I/O where it is had.
struct Reader<'a> {
    buffered: BorrowedFd<'a>,
    direct: Option<OwnedFd>,
    number: DevNum,
    buffer: Aligned,
}

impl<'a> Reader<'a> {
    /// Prepares for reading the open device `fd`.
    fn open(fd: BorrowedFd<'a>, number: DevNum) -> Result<Self, Refusal> {
        let direct = direct(fd).ok();
        if direct.is_none() {
            drop_cache(fd).map_err(|errno| failed(number, 0, &errno.into()))?;
        }
        Ok(Self {
            buffered: fd,
            direct,
            number,
            buffer: Aligned::zeroed(usize::try_from(READ_BYTES).unwrap_or(0)),
        })
    }

    /// The bytes of a range of at most 1 MiB.
    fn read(&mut self, offset: u64, length: u64) -> Result<&[u8], Refusal> {
        let size = usize::try_from(length).unwrap_or(0).min(self.buffer.len());
        let data = &mut self.buffer[..size];
        let failed = |error: io::Error| failed(self.number, offset, &error);
        match &self.direct {
            Some(direct) => match read_at(direct.as_fd(), data, offset) {
                // Another alignment than ours: through the page cache, emptied before.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                    drop_cache(self.buffered).map_err(|errno| failed(errno.into()))?;
                    read_at(self.buffered, data, offset).map_err(failed)?;
                }
                result => result.map_err(failed)?,
            },
            None => read_at(self.buffered, data, offset).map_err(failed)?,
        }
        Ok(data)
    }
}

/// What was at the sampled places before somebody else wiped them: a digest of each block that was
/// not all zeros, 16 bytes a block.
pub(in crate::clean) struct Marks {
    /// Keyed at random, so that no data can be made to collide.
    state: RandomState,
    size_bytes: u64,
    list: Vec<(u64, u64)>,
}

impl Marks {
    /// Reads the sampled places of a device.
    pub(in crate::clean) fn take(
        fd: BorrowedFd<'_>,
        geometry: Geometry,
        control: &Control<'_>,
    ) -> Result<Self, Refusal> {
        let mut reader = Reader::open(fd, geometry.number)?;
        let mut marks = Self {
            state: RandomState::new(),
            size_bytes: geometry.size_bytes,
            list: Vec::new(),
        };
        for (start, length) in samples(geometry.size_bytes, random_source()?) {
            control.go_on()?;
            for offset in (start..start + length).step_by(SAMPLE_STEP) {
                let data = reader.read(offset, marks.length_at(offset))?;
                if data.iter().any(|byte| *byte != 0) {
                    marks.list.push((offset, marks.state.hash_one(data)));
                }
            }
        }
        Ok(marks)
    }

    /// The offset of a place that has the same data still.
    pub(in crate::clean) fn first_left(
        &self,
        fd: BorrowedFd<'_>,
        geometry: Geometry,
        control: &Control<'_>,
    ) -> Result<Option<u64>, Refusal> {
        let mut reader = Reader::open(fd, geometry.number)?;
        for (offset, digest) in &self.list {
            control.go_on()?;
            let data = reader.read(*offset, self.length_at(*offset))?;
            if self.state.hash_one(data) == *digest {
                return Ok(Some(*offset));
            }
        }
        Ok(None)
    }

    fn length_at(&self, offset: u64) -> u64 {
        SAMPLE_BYTES.min(self.size_bytes - offset)
    }
}

fn failed(number: DevNum, offset: u64, error: &io::Error) -> Refusal {
    Refusal::new(
        Reason::WipeFailed,
        format!("can't read device {number} at {offset}: {error}"),
    )
}
