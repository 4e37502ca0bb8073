//! Our own mounts, never older than what they are asked about.
//!
//! The kernel gives the number of a mount that is gone to the next one, so a table that was read earlier
//! may say of a number what was true of another mount. A descriptor keeps its mount's number, which makes
//! a table that was read while it was open tell the truth. An older one of the same scan is as good as
//! long as the kernel says that nothing was mounted or unmounted since (proc_pid_mounts(5)). Not one of an
//! earlier scan: paths in it change with each rename of a directory above them, and of that it says nothing.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::sys::mountinfo::{self, MountTable};

/// Most tables are no longer.
const USUAL_BYTES: usize = 16 << 10;

/// The mount table of this process.
#[derive(Debug)]
pub(super) struct OwnMounts {
    file: File,
    /// Held while the kernel is asked: it says only once that something changed.
    table: Mutex<Arc<MountTable>>,
}

impl OwnMounts {
    pub(super) fn read() -> io::Result<Self> {
        let file = File::open(mountinfo::OWN)?;
        let table = Mutex::new(Arc::new(read(&file)?));
        Ok(Self { file, table })
    }

    /// The table as it is now, or as good as that.
    pub(super) fn now(&self) -> io::Result<Arc<MountTable>> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if self.has_changed()? {
            *table = Arc::new(read(&self.file)?);
        }
        Ok(Arc::clone(&table))
    }

    fn has_changed(&self) -> io::Result<bool> {
        let events = PollFlags::POLLPRI | PollFlags::POLLERR;
        let mut fds = [PollFd::new(self.file.as_fd(), events)];
        match poll(&mut fds, PollTimeout::ZERO) {
            Ok(ready) => Ok(ready > 0),
            // Rather once too often.
            Err(Errno::EINTR) => Ok(true),
            Err(errno) => Err(errno.into()),
        }
    }
}

fn read(mut file: &File) -> io::Result<MountTable> {
    let mut text = Vec::with_capacity(USUAL_BYTES);
    file.rewind()?;
    file.read_to_end(&mut text)?;
    Ok(MountTable::parse(&text))
}
