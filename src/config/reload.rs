//! Following the mounted ConfigMap: a thread that reads it again when it changes, for as long as the
//! daemon runs.
//!
//! inotify watches the directory, in which the kubelet swaps the link `..data`; whatever happens there
//! is a reason to read, and the reading decides whether anything changed. A slow timer finds what made
//! no event. A reading that fails leaves everything as it is, with a finding that says so.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use thiserror::Error;

use super::{Config, Finding, LoadError, Severity, load_over};
use crate::error::Chain;

/// A swap makes several events, and an editor several writes; they are over within this time.
const QUIET: Duration = Duration::from_millis(5);

/// Events that don't end can't put a reading off for longer.
const PATIENCE: Duration = Duration::from_millis(200);

/// inotify can lose events, and the directory itself can be replaced.
const REREAD: Duration = Duration::from_secs(300);

/// The same where there is no inotify, or the directory is not there; upstream reads as often (CFG-53).
const REREAD_UNWATCHED: Duration = Duration::from_secs(5);

/// Why the configuration can't be followed.
#[derive(Debug, Error)]
pub enum ReloadError {
    /// No thread.
    #[error("the thread that follows the configuration could not be started")]
    Thread(#[source] std::io::Error),
}

/// Follows a directory until it is dropped.
#[derive(Debug)]
pub struct Reloader {
    wake: Sender<Wake>,
    thread: Option<JoinHandle<()>>,
}

/// Why the thread wakes.
enum Wake {
    Changed,
    Stop,
}

impl Reloader {
    /// Follows `dir`, of which `current` was read. Each configuration that differs from the one before
    /// it goes to `notify`, on a thread of its own.
    ///
    /// # Errors
    /// When no thread can be started. Without inotify the slow timer does alone.
    pub fn start(
        dir: PathBuf,
        current: Arc<Config>,
        notify: impl Fn(Arc<Config>) + Send + 'static,
    ) -> Result<Self, ReloadError> {
        let (wake, wakes) = channel();
        let mut follower = Follower {
            directory: Directory::new(&dir, &wake),
            dir,
            wakes,
            current,
            notify,
        };
        let thread = thread::Builder::new()
            .name("config".into())
            .spawn(move || follower.run())
            .map_err(ReloadError::Thread)?;
        // What changed between the first reading and the watch made no event.
        let _ = wake.send(Wake::Changed);
        Ok(Self {
            wake,
            thread: Some(thread),
        })
    }
}

impl Drop for Reloader {
    fn drop(&mut self) {
        // A thread that has ended needs no word.
        let _ = self.wake.send(Wake::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The inotify watch on the directory, where one can be had.
struct Directory {
    dir: PathBuf,
    watcher: Option<RecommendedWatcher>,
    is_watched: bool,
}

impl Directory {
    fn new(dir: &Path, wake: &Sender<Wake>) -> Self {
        let wake = wake.clone();
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            // Our own reading opens files.
            let is_ours = event.is_ok_and(|event| {
                matches!(
                    event.kind,
                    EventKind::Access(notify::event::AccessKind::Open(_))
                )
            });
            if !is_ours {
                let _ = wake.send(Wake::Changed);
            }
        });
        let mut directory = Self {
            dir: dir.to_owned(),
            watcher: watcher.ok(),
            is_watched: false,
        };
        directory.arm();
        directory
    }

    /// Watches what the path leads to now.
    fn arm(&mut self) {
        if let Some(watcher) = &mut self.watcher {
            let _ = watcher.unwatch(&self.dir);
            // A directory that is missing is tried again with the next reading.
            let watched = watcher.watch(&self.dir, RecursiveMode::NonRecursive);
            self.is_watched = watched.is_ok();
        }
    }

    /// How long nothing needs to be read without an event.
    fn trusted_for(&self) -> Duration {
        match self.is_watched {
            true => REREAD,
            false => REREAD_UNWATCHED,
        }
    }
}

struct Follower<F> {
    dir: PathBuf,
    directory: Directory,
    wakes: Receiver<Wake>,
    current: Arc<Config>,
    notify: F,
}

impl<F: Fn(Arc<Config>)> Follower<F> {
    fn run(&mut self) {
        loop {
            match self.wakes.recv_timeout(self.directory.trusted_for()) {
                Ok(Wake::Changed) => {}
                Ok(Wake::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => self.directory.arm(),
            }
            if !self.settle() {
                return;
            }
            let fresh = match load_over(&self.dir, &self.current) {
                Ok(fresh) => fresh,
                Err(error) => {
                    // What comes in its place is another directory.
                    self.directory.is_watched = false;
                    kept(&self.dir, &self.current, &error)
                }
            };
            if fresh != *self.current {
                self.current = Arc::new(fresh);
                (self.notify)(Arc::clone(&self.current));
            }
        }
    }

    /// Waits until the events of one change are over; whether to go on at all.
    fn settle(&self) -> bool {
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.wakes.recv_timeout(QUIET.min(left)) {
                Ok(Wake::Changed) => {}
                Ok(Wake::Stop) | Err(RecvTimeoutError::Disconnected) => return false,
                Err(RecvTimeoutError::Timeout) => return true,
            }
        }
    }
}

/// What is in force when `dir` can't be read, where `last` was until now.
fn kept(dir: &Path, last: &Config, error: &LoadError) -> Config {
    Config {
        findings: vec![unreadable(dir, error)],
        ..last.clone()
    }
}

fn unreadable(dir: &Path, error: &LoadError) -> Finding {
    Finding {
        severity: Severity::Error,
        file: String::new(),
        key: dir.display().to_string(),
        line: 1,
        text: format!("{}; all that was good stays in force", Chain(error)),
    }
}

#[cfg(test)]
mod tests;
