//! A cleaner program of the user's own (contract DEL-12), held to a result.
//!
//! Such tools claim the device themselves, so our claim is given up while they run; a plain read-only
//! descriptor pins the device meanwhile and leads back to it, whatever the names do. The program gets
//! a path, as upstream's contract has it, and a success is not believed: each sampled place that had
//! data must have changed. (A program that only writes new signatures fails that, as it should.)

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::OFlag;

use super::block::verify::Marks;
use super::progress::{Control, Done};
use crate::sys::block::{self, Geometry};
use crate::sys::inode::{reopen, words};
use crate::volume::{Reason, Refusal};

mod child;
mod leftover;

/// How long a program may run. `shred` with its three passes takes three hours for 1 TiB.
const DEADLINE: Duration = Duration::from_secs(24 * 3600);
/// How long somebody else's short use is waited for: udev, and children of this process between fork
/// and exec, which have a copy of every descriptor of ours.
const PATIENCE: Duration = Duration::from_secs(5);

/// Runs `program` on the device and verifies that it changed what was there.
pub(super) fn run(
    device: OwnedFd,
    geometry: Geometry,
    program: &[String],
    path: &Path,
    control: &Control<'_>,
) -> Result<Done, Refusal> {
    let marks = Marks::take(device.as_fd(), geometry, control)?;
    let pin = reopen(&device, OFlag::O_RDONLY | OFlag::O_NONBLOCK)
        .map_err(|errno| failed("hold", path, errno))?;
    // The program looks the path up again. Whoever can change the directory meanwhile is the host's
    // root; the sampled places below tell at least whether it was this device that was wiped.
    leads_to(path, geometry)?;
    drop(device);
    child::run(program, path, DEADLINE, control)?;
    let device = claim_again(&pin, path)?;
    same_device(&device, geometry, path)?;
    nobody_left(geometry, path)?;
    if let Some(offset) = marks.first_left(device.as_fd(), geometry, control)? {
        return Err(Refusal::new(
            Reason::VerifyFailed,
            format!(
                "the cleaner succeeded but the program left data in place, at offset {offset} of \
                 device {}",
                geometry.number
            ),
        ));
    }
    Ok(Done {
        method: format!("wiped by {}", program.first().map_or("", String::as_str)),
        bytes: geometry.size_bytes,
        files: 0,
    })
}

fn failed(verb: &str, path: &Path, errno: Errno) -> Refusal {
    Refusal::new(
        Reason::WipeFailed,
        format!(
            "can't {verb} the device at {}: {}",
            path.display(),
            words(errno)
        ),
    )
}

fn leads_to(path: &Path, geometry: Geometry) -> Result<(), Refusal> {
    let stat = nix::sys::stat::stat(path).map_err(|errno| failed("find", path, errno))?;
    if crate::volume::DevNum::from_raw(stat.st_rdev) == geometry.number {
        return Ok(());
    }
    Err(Refusal::new(
        Reason::EntryReplaced,
        format!(
            "{} does not lead to device {} any more",
            path.display(),
            geometry.number
        ),
    ))
}

/// Claims the pinned device again, with a little patience for short claims of others.
fn claim_again(pin: &OwnedFd, path: &Path) -> Result<OwnedFd, Refusal> {
    block::claim_within(pin, PATIENCE).map_err(|errno| match errno {
        Errno::EBUSY => Refusal::new(
            Reason::InUse,
            format!(
                "somebody claimed the device at {} while its cleaner ran and holds it",
                path.display()
            ),
        ),
        errno => failed("claim", path, errno),
    })
}

/// Refuses while a process that the program left has the device open.
fn nobody_left(geometry: Geometry, path: &Path) -> Result<(), Refusal> {
    let start = Instant::now();
    loop {
        let holder = leftover::holder(geometry.number, path).map_err(|error| {
            Refusal::new(
                Reason::WipeFailed,
                format!("can't look for processes that the cleaner left: {error}"),
            )
        })?;
        match holder {
            None => return Ok(()),
            Some(_) if start.elapsed() < PATIENCE => {
                block::pause().map_err(|errno| failed("wait for", path, errno))?;
            }
            Some(pid) => {
                return Err(Refusal::new(
                    Reason::InUse,
                    format!(
                        "process {pid} still has {} open after its cleaner ended; end it",
                        path.display()
                    ),
                ));
            }
        }
    }
}

fn same_device(device: &OwnedFd, then: Geometry, path: &Path) -> Result<(), Refusal> {
    let now = block::geometry(device).map_err(|errno| failed("ask the size of", path, errno))?;
    if now == then {
        return Ok(());
    }
    Err(Refusal::new(
        Reason::EntryReplaced,
        format!(
            "the device at {} is another one since its cleaner ran: {now:?} was {then:?}",
            path.display()
        ),
    ))
}
