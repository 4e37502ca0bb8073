//! Zeroes a block device through the descriptor that claims it, and reads back that it did.
//!
//! Signature areas go first, so that a crash midway never leaves something that anybody would mount
//! or assemble. Then random passes if asked for, then zeros in steps; each checkpoint is flushed
//! before it is told. What counts in the end is [`verify`], past the page cache and over the whole
//! device, also after a resume.

use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::unistd::fdatasync;

use super::progress::{CHECKPOINT_BYTES, Control, Done, Progress};
use crate::sys::block::{self as device, Geometry};
use crate::sys::inode::words;
use crate::volume::{Reason, Refusal};

mod layout;
pub(super) mod verify;
mod write;

use layout::STEP_BYTES;
use write::{Content, Writer};

/// Writes `passes` times random data and then zeros over the whole device, and verifies the zeros.
///
/// Offsets of progress, checkpoints and `resume_at` count through all passes.
pub(super) fn wipe(
    fd: &OwnedFd,
    geometry: Geometry,
    passes: u32,
    resume_at: u64,
    control: &Control<'_>,
) -> Result<Done, Refusal> {
    let size = geometry.size_bytes;
    let total = size.saturating_mul(u64::from(passes) + 1);
    let mut writer = Writer::new(fd.as_fd(), geometry.number);
    for (offset, length) in layout::signature_areas(size) {
        control.go_on()?;
        writer.write(Content::Zeros, offset, length)?;
    }
    flush(fd, geometry)?;
    let mut done = layout::resume_point(resume_at, total);
    let mut flushed = done;
    while done < total {
        control.go_on()?;
        let (pass, offset) = (done / size, done % size);
        let length = STEP_BYTES.min(size - offset);
        let content = if pass < u64::from(passes) {
            Content::Random
        } else {
            Content::Zeros
        };
        writer.write(content, offset, length)?;
        done += length;
        if done - flushed >= CHECKPOINT_BYTES || done == total {
            flush(fd, geometry)?;
            flushed = done;
            (control.checkpoint)(done);
        }
        (control.progress)(Progress {
            done_bytes: done,
            total_bytes: total,
            files: 0,
        });
    }
    if let Err(refusal) = verify::zeros(fd.as_fd(), geometry, control) {
        // What was recorded proved wrong: the next attempt starts from the beginning.
        if refusal.reason == Reason::VerifyFailed {
            (control.checkpoint)(0);
        }
        return Err(refusal);
    }
    // A device that grew meanwhile has an end that nobody wiped.
    let now = device::geometry(fd).map_err(|errno| failed("ask the size of", geometry, errno))?;
    if now != geometry {
        return Err(Refusal::new(
            Reason::VerifyFailed,
            format!(
                "device {} changed during the wipe: {geometry:?} is {now:?} now",
                now.number
            ),
        ));
    }
    // The tenant's partitions are gone from the disk; have the kernel forget them too. Loop devices,
    // partitions and others can't have any, and a stale table is found again by inspection.
    let _ = device::read_partitions(fd.as_fd());
    let mut method = writer.method().to_owned();
    if passes > 0 {
        method = format!("{passes} passes of random data, then {method}");
    }
    Ok(Done {
        method,
        bytes: size,
        files: 0,
    })
}

fn flush(fd: &OwnedFd, geometry: Geometry) -> Result<(), Refusal> {
    fdatasync(fd).map_err(|errno| failed("flush", geometry, errno))
}

fn failed(verb: &str, geometry: Geometry, errno: Errno) -> Refusal {
    Refusal::new(
        Reason::WipeFailed,
        format!("can't {verb} device {}: {}", geometry.number, words(errno)),
    )
}
