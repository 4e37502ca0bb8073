//! Noticing that something changed. An event only says "look again"; what is there, inspection tells.
//!
//! Three sources, because none sees everything: inotify sees names come and go in a directory but no
//! mounts; the kernel wakes pollers of mountinfo for mounts; and its uevents tell about devices behind
//! links that do not change. One thread waits for the last two and keeps the inotify watches on the
//! directories that the paths lead to now. What all of them lose, the caller's slow timer finds.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use thiserror::Error;

use crate::volume::ClassName;

mod devices;
mod directory;
mod mounts;

use devices::Devices;
use directory::Directories;
use mounts::Mounts;

/// The shortest time between two looks at the kernel's events. Whoever reads the mount table at every
/// wake slows everybody else's mounts many times over; at 50 ms it can't be measured.
const QUIET: Duration = Duration::from_millis(50);
/// A device's links appear some milliseconds after the kernel's event, and what udev knows about a
/// slow disk up to seconds after; so a device event is repeated after these times.
const ECHOES: [Duration; 3] = [
    Duration::from_millis(100),
    Duration::from_secs(1),
    Duration::from_secs(5),
];

/// How long a watch may take to end. Its thread opens the watched directories, and one on a dead network
/// mount keeps it; then it is left behind rather than waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// What has to be looked at again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dirt {
    /// One class's directory.
    Class(ClassName),
    /// Everything.
    All,
}

/// Why nothing can be watched at all.
#[derive(Debug, Error)]
pub enum WatchError {
    /// No thread, or no socket to wake it.
    #[error("the watching thread could not be started")]
    Thread(#[source] io::Error),
}

/// Watches until it is dropped.
#[derive(Debug)]
pub struct Watch {
    sources: Sources,
    /// The thread's last word; the sender goes with the thread also by a panic.
    end: Mutex<Receiver<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What tells of changes; lives on when the watch ends.
#[derive(Clone, Debug)]
pub struct Sources {
    shared: Arc<Shared>,
    working: Vec<&'static str>,
}

impl Sources {
    /// The sources that are in use.
    pub fn working(&self) -> &[&'static str] {
        &self.working
    }

    /// What can't be watched at this time, and why.
    pub fn warnings(&self) -> Vec<String> {
        self.shared.warnings().iter().cloned().collect()
    }
}

impl Watch {
    /// Watches the directories of the classes, calling `dirty` from threads of its own for each change,
    /// and once for each class when its directory is watched. `dirty` must not block. A source that
    /// can't be had is a warning, not an error.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start<F>(targets: Vec<(ClassName, PathBuf)>, dirty: F) -> Result<Self, WatchError>
    where
        F: Fn(Dirt) + Send + Sync + Clone + 'static,
    {
        let (waker, wakeable) = UnixStream::pair().map_err(WatchError::Thread)?;
        waker.set_nonblocking(true).map_err(WatchError::Thread)?;
        wakeable.set_nonblocking(true).map_err(WatchError::Thread)?;
        let shared = Arc::new(Shared {
            waker,
            stop: AtomicBool::new(false),
            warnings: Mutex::default(),
        });
        let mut working = Vec::new();
        let mut keep = |name, warning: Option<String>| match warning {
            None => working.push(name),
            Some(text) => shared.warn(format!("{name}: {text}")),
        };
        // Opened here, because a mount namespace belongs to the thread that opens the table.
        let mounts = Mounts::open();
        keep("mountinfo", mounts.as_ref().err().cloned());
        let devices = Devices::open();
        keep("uevents", devices.as_ref().err().cloned());
        let directories = Directories::open(targets, dirty.clone(), Arc::clone(&shared));
        keep("inotify", directories.as_ref().err().cloned());

        let mut worker = Worker {
            shared: Arc::clone(&shared),
            wakeable,
            mounts: mounts.ok(),
            devices: devices.ok(),
            directories: directories.ok(),
            echoes: BTreeSet::new(),
            dirty,
        };
        let (ended, end) = channel();
        let thread = thread::Builder::new()
            .name("watch".into())
            .spawn(move || {
                worker.run();
                drop(worker);
                // Whoever drops the watch may have given up waiting.
                let _ = ended.send(());
            })
            .map_err(WatchError::Thread)?;
        Ok(Self {
            sources: Sources { shared, working },
            end: Mutex::new(end),
            thread: Some(thread),
        })
    }

    /// Compares the watched directories with what their paths lead to now. For the slow timer: a
    /// renamed ancestor of a directory makes no event.
    pub fn recheck(&self) {
        self.sources.shared.wake();
    }

    /// What tells of changes.
    pub fn sources(&self) -> &Sources {
        &self.sources
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let shared = &self.sources.shared;
        shared.stop.store(true, Ordering::SeqCst);
        shared.wake();
        let end = self.end.get_mut().unwrap_or_else(PoisonError::into_inner);
        let is_stuck = end.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout);
        if let Some(thread) = self.thread.take().filter(|_| !is_stuck) {
            // It has ended either way; a panic was already reported.
            let _ = thread.join();
        }
    }
}

/// What the threads have in common.
#[derive(Debug)]
struct Shared {
    waker: UnixStream,
    stop: AtomicBool,
    warnings: Mutex<BTreeSet<String>>,
}

impl Shared {
    /// Makes the watching thread look at its directories again.
    fn wake(&self) {
        // A full buffer means that it is woken already.
        let _ = (&self.waker).write(&[0]);
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    fn warn(&self, text: String) {
        self.warnings().insert(text);
    }

    fn warnings(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The watching thread.
struct Worker<F> {
    shared: Arc<Shared>,
    wakeable: UnixStream,
    mounts: Option<Mounts>,
    devices: Option<Devices>,
    directories: Option<Directories>,
    /// When to call everything dirty once more.
    echoes: BTreeSet<Instant>,
    dirty: F,
}

impl<F: Fn(Dirt)> Worker<F> {
    fn run(&mut self) {
        self.rearm(false);
        while !self.shared.is_stopped() {
            let due = self.echoes.first().copied();
            let Some(ready) = self.wait(due, true) else {
                return;
            };
            if ready.device {
                self.echoes = ECHOES.iter().map(|after| Instant::now() + *after).collect();
            }
            let echo = due.is_some_and(|due| due <= Instant::now());
            if echo {
                self.echoes.pop_first();
            }
            if ready.mount || ready.woken {
                self.rearm(ready.mount);
            }
            if ready.mount || ready.device || echo {
                (self.dirty)(Dirt::All);
                if !self.rest() {
                    return;
                }
            }
        }
    }

    /// Lets events collect, but not a request for the directories.
    fn rest(&mut self) -> bool {
        let end = Instant::now() + QUIET;
        while !self.shared.is_stopped() && Instant::now() < end {
            match self.wait(Some(end), false) {
                Some(ready) if ready.woken => self.rearm(false),
                Some(_) => {}
                None => return false,
            }
        }
        true
    }

    /// Waits for an event or the time `due`. `None` when waiting fails for good.
    fn wait(&self, due: Option<Instant>, for_kernel: bool) -> Option<Ready> {
        let timeout = match due {
            None => PollTimeout::NONE,
            // Rounded up: a wake just before the time would spin.
            Some(due) => {
                let left = due.saturating_duration_since(Instant::now());
                PollTimeout::try_from(left.as_millis() + 1).unwrap_or(PollTimeout::MAX)
            }
        };
        let mut fds = vec![PollFd::new(self.wakeable.as_fd(), PollFlags::POLLIN)];
        let mounts = self.mounts.as_ref().filter(|_| for_kernel);
        let devices = self.devices.as_ref().filter(|_| for_kernel);
        fds.extend(mounts.map(|mounts| PollFd::new(mounts.as_fd(), Mounts::EVENTS)));
        fds.extend(devices.map(|devices| PollFd::new(devices.as_fd(), PollFlags::POLLIN)));
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => {
                self.shared
                    .warn(format!("waiting for the kernel failed: {errno}"));
                return None;
            }
        }
        let mut fired = fds
            .iter()
            .map(|fd| fd.revents().is_some_and(|events| !events.is_empty()));
        let mut ready = Ready {
            woken: fired.next().unwrap_or(false),
            ..Ready::default()
        };
        if mounts.is_some() {
            ready.mount = fired.next().unwrap_or(false);
        }
        if let Some(devices) = devices {
            ready.device = fired.next().unwrap_or(false) && devices.drain();
        }
        if ready.woken {
            let mut buffer = [0; 64];
            while matches!((&self.wakeable).read(&mut buffer), Ok(1..)) {}
        }
        Some(ready)
    }

    fn rearm(&mut self, remounted: bool) {
        let Some(directories) = &mut self.directories else {
            return;
        };
        for class in directories.rearm(remounted) {
            (self.dirty)(Dirt::Class(class));
        }
    }
}

/// What a wait ended with.
#[derive(Clone, Copy, Debug, Default)]
struct Ready {
    woken: bool,
    mount: bool,
    device: bool,
}
