//! Reads a device back past the page cache: what is verified is the device, not our own writes in
//! memory.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::layout::{SAMPLE_BYTES, samples};
use crate::clean::job::Control;
use crate::sys::block::{Aligned, Geometry, direct, drop_cache, random, read_at};
use crate::volume::{DevNum, Reason, Refusal};

/// Size of one read; a longer range is read in several.
const READ_BYTES: u64 = 1 << 20;

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
pub(in crate::clean) fn random_source() -> Result<impl FnMut() -> u64, Refusal> {
    let mut state = random()
        .map_err(|errno| Refusal::new(Reason::WipeFailed, format!("no random numbers: {errno}")))?;
    Ok(move || {
        // Mixed with fresh ones where they can be had, which is always after the first.
        state = state.wrapping_mul(6_364_136_223_846_793_005) ^ random().unwrap_or(state >> 7);
        state
    })
}

/// Reads ranges of one device, by direct I/O where it is had.
pub(in crate::clean) struct Reader<'a> {
    buffered: BorrowedFd<'a>,
    direct: Option<OwnedFd>,
    number: DevNum,
    buffer: Aligned,
}

impl<'a> Reader<'a> {
    /// Prepares for reading the open device `fd`.
    pub(in crate::clean) fn open(fd: BorrowedFd<'a>, number: DevNum) -> Result<Self, Refusal> {
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
    pub(in crate::clean) fn read(&mut self, offset: u64, length: u64) -> Result<&[u8], Refusal> {
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

    /// A digest of each sampled place that is not all zeros. `std`'s hasher is keyed at random.
    pub(in crate::clean) fn marks(
        &mut self,
        places: impl Iterator<Item = (u64, u64)>,
        control: &Control<'_>,
    ) -> Result<Vec<Mark>, Refusal> {
        use std::hash::BuildHasher;
        let state = std::hash::RandomState::new();
        let mut marks = Vec::new();
        for (start, length) in places {
            control.go_on()?;
            let end = start + length;
            let mut offset = start;
            while offset < end {
                let size = SAMPLE_BYTES.min(end - offset);
                let data = self.read(offset, size)?;
                if data.iter().any(|byte| *byte != 0) {
                    marks.push(Mark {
                        offset,
                        length: size,
                        digest: state.hash_one(data),
                        state: state.clone(),
                    });
                }
                offset += size;
            }
        }
        Ok(marks)
    }
}

/// What was at one place before somebody else wiped it.
#[derive(Debug)]
pub(in crate::clean) struct Mark {
    offset: u64,
    length: u64,
    digest: u64,
    state: std::hash::RandomState,
}

impl Mark {
    /// Whether the place has the same data still; its offset if so.
    pub(in crate::clean) fn is_left(
        &self,
        reader: &mut Reader<'_>,
    ) -> Result<Option<u64>, Refusal> {
        use std::hash::BuildHasher;
        let data = reader.read(self.offset, self.length)?;
        Ok((self.state.hash_one(data) == self.digest).then_some(self.offset))
    }
}

fn failed(number: DevNum, offset: u64, error: &io::Error) -> Refusal {
    Refusal::new(
        Reason::WipeFailed,
        format!("can't read device {number} at {offset}: {error}"),
    )
}
