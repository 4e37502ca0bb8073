//! Mount tables, never older than what they are asked about.
//!
//! The kernel gives the number of a mount that is gone to the next one, so a table that was read earlier
//! may say of a number what was true of another mount. A descriptor keeps its mount's number, which makes
//! a table that was read while it was open tell the truth. An older one is as good as long as the
//! kernel says that nothing was mounted or unmounted since (proc_pid_mounts(5)), so that one event costs
//! one reading, however many classes look.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::sys::mountinfo::{self, MountTable};

/// Most tables are no longer.
const USUAL_BYTES: usize = 16 << 10;

/// The tables that a look at a directory needs.
#[derive(Debug)]
pub(super) struct Tables {
    /// That of this process.
    pub(super) own: Table,
    /// That of process 1.
    pub(super) host: Table,
}

impl Default for Tables {
    fn default() -> Self {
        Self {
            own: Table::of(mountinfo::OWN),
            host: Table::of(mountinfo::HOST),
        }
    }
}

/// The table of one mount namespace, opened when it is first asked for. The namespace that a file in `/proc`
/// was opened in stays its own, whatever becomes of the thread that opened it.
#[derive(Debug)]
pub(super) struct Table {
    path: &'static str,
    /// Held while the kernel is asked: it says only once that something changed.
    known: Mutex<Option<Known>>,
}

#[derive(Debug)]
struct Known {
    file: File,
    table: Arc<MountTable>,
}

impl Table {
    fn of(path: &'static str) -> Self {
        Self {
            path,
            known: Mutex::new(None),
        }
    }

    /// The table as it is now, or as good as that.
    pub(super) fn now(&self) -> io::Result<Arc<MountTable>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // What fails is forgotten: the kernel does not say a second time that something changed.
        let fresh = match known.take() {
            Some(known) if !has_changed(&known.file)? => known,
            Some(Known { file, .. }) => Known {
                table: Arc::new(read(&file)?),
                file,
            },
            None => {
                let file = File::open(self.path)?;
                Known {
                    table: Arc::new(read(&file)?),
                    file,
                }
            }
        };
        let table = Arc::clone(&fresh.table);
        *known = Some(fresh);
        Ok(table)
    }
}

fn has_changed(file: &File) -> io::Result<bool> {
    let events = PollFlags::POLLPRI | PollFlags::POLLERR;
    let mut fds = [PollFd::new(file.as_fd(), events)];
    match poll(&mut fds, PollTimeout::ZERO) {
        Ok(ready) => Ok(ready > 0),
        // Rather once too often.
        Err(Errno::EINTR) => Ok(true),
        Err(errno) => Err(errno.into()),
    }
}

fn read(mut file: &File) -> io::Result<MountTable> {
    let mut text = Vec::with_capacity(USUAL_BYTES);
    file.rewind()?;
    file.read_to_end(&mut text)?;
    Ok(MountTable::parse(&text))
}
