//! Whether something is on a volume already, asked only for classes with `requireEmpty`.
//!
//! A device is read only when something may have been written since the last time: the kernel counts
//! the writes of each device, and the number of the medium tells whether it is still the same.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;

use crate::node::identity::{self, DeviceFacts};
use crate::node::signature;
use crate::sys::{block, inode};
use crate::volume::{DevNum, Reason, Refusal};

/// What was found on devices.
#[derive(Debug, Default)]
pub(super) struct Memo(Mutex<HashMap<DevNum, (Mark, Option<&'static str>)>>);

/// Equal only if nothing was written in between.
#[derive(Debug, PartialEq, Eq)]
struct Mark {
    diskseq: u64,
    size_bytes: u64,
    /// Of the device and of the disk that it is a part of.
    writes: Vec<String>,
}

impl Mark {
    /// `None` when the kernel does not count.
    fn of(facts: &DeviceFacts) -> Option<Self> {
        let identity = &facts.identity;
        let numbers = [Some(identity.device), facts.whole];
        let writes: Option<Vec<String>> = numbers.into_iter().flatten().map(writes).collect();
        Some(Self {
            diskseq: identity.diskseq?,
            size_bytes: identity.size_bytes,
            writes: writes?,
        })
    }
}

/// How often and how much was written, discarded and flushed (Documentation/block/stat.rst).
fn writes(number: DevNum) -> Option<String> {
    let dir = Path::new("/sys/dev/block").join(number.to_string());
    let is_counted = |dir: &Path| fs::read(dir.join("queue/iostats")).ok();
    // A partition has its disk's queue.
    let counted = is_counted(&dir).or_else(|| is_counted(&dir.join("..")))?;
    if counted.first() != Some(&b'1') {
        return None;
    }
    let stat = fs::read_to_string(dir.join("stat")).ok()?;
    let counters: Vec<&str> = stat.split_whitespace().collect();
    let (requests, sectors) = (counters.get(4)?, counters.get(6)?);
    let discards = counters.get(11..).unwrap_or_default().join(" ");
    Some(format!("{requests} {sectors} {discards}"))
}

/// What is on the device that `object` names without opening it; `None` when it is empty.
pub(super) fn of_device(
    memo: &Memo,
    object: BorrowedFd<'_>,
    facts: &DeviceFacts,
) -> Result<Option<String>, Refusal> {
    let number = facts.identity.device;
    let mark = Mark::of(facts);
    let mut known = memo.0.lock().unwrap_or_else(PoisonError::into_inner);
    let found = match (known.get(&number), &mark) {
        (Some((then, found)), Some(now)) if then == now => *found,
        _ => {
            known.remove(&number);
            drop(known);
            let found = read(object, facts)?;
            if let Some(mark) = mark {
                let mut known = memo.0.lock().unwrap_or_else(PoisonError::into_inner);
                known.insert(number, (mark, found));
            }
            found
        }
    };
    Ok(found.map(|what| format!("device {} holds {what}", facts.name)))
}

fn read(object: BorrowedFd<'_>, facts: &DeviceFacts) -> Result<Option<&'static str>, Refusal> {
    let unreadable = |why: String| {
        let detail = format!(
            "device {} can't be read to see whether it is empty: {why}",
            facts.name
        );
        Refusal::new(Reason::Unreadable, detail)
    };
    // Reading makes udev probe nothing anew, and without a claim it is in nobody's way.
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK;
    let device = inode::reopen(object, flags).map_err(|e| unreadable(e.to_string()))?;
    let geometry = block::geometry(&device).map_err(|e| unreadable(e.to_string()))?;
    let is_same = geometry.number == facts.identity.device
        && geometry.size_bytes == facts.identity.size_bytes
        && (geometry.diskseq.is_none() || geometry.diskseq == facts.identity.diskseq);
    if !is_same {
        return Err(unreadable("it was replaced meanwhile".into()));
    }
    signature::content(device.as_fd(), geometry.size_bytes).map_err(|e| unreadable(e.to_string()))
}

/// What is in the root directory of a filesystem; `None` when it is empty but for `lost+found`.
pub(super) fn of_directory(dir: BorrowedFd<'_>) -> Result<Option<String>, Refusal> {
    let unreadable = |errno: Errno| {
        let detail = format!("it can't be read to see whether it is empty: {errno}");
        Refusal::new(Reason::Unreadable, detail)
    };
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let mut reader = Dir::openat(dir, ".", flags, Mode::empty()).map_err(unreadable)?;
    for entry in reader.iter() {
        let entry = entry.map_err(unreadable)?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b".." | b"lost+found") {
            let name = identity::printable(Path::new(OsStr::from_bytes(name)));
            return Ok(Some(format!("the filesystem holds {name:?}")));
        }
    }
    Ok(None)
}
