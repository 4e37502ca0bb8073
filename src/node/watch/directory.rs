//! Names in directories, by inotify.
//!
//! inotify watches inodes, not paths: it stays on a directory that was renamed or covered by a mount,
//! and says nothing about a new one at the old path. So after every change that could matter, the path
//! is compared with what was armed. While a directory is missing, its nearest existing ancestor is
//! watched instead.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use nix::libc;
use notify::event::{EventKind, ModifyKind};
use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};

use super::{Dirt, Shared};
use crate::sys::files;
use crate::volume::{ClassName, DevNum};

/// The inotify watches of all classes.
pub(super) struct Directories {
    watcher: RecommendedWatcher,
    classes: Arc<Classes>,
    /// What each path led to when it was armed.
    armed: BTreeMap<PathBuf, Place>,
    lost: Arc<Mutex<BTreeSet<PathBuf>>>,
    shared: Arc<Shared>,
}

impl Directories {
    /// Starts inotify; nothing is watched before [`Self::rearm`].
    pub(super) fn open<F>(
        targets: Vec<(ClassName, PathBuf)>,
        dirty: F,
        shared: Arc<Shared>,
    ) -> Result<Self, String>
    where
        F: Fn(Dirt) + Send + 'static,
    {
        let classes = Arc::new(Classes(targets));
        let lost = Arc::new(Mutex::default());
        let handler = Handler {
            classes: Arc::clone(&classes),
            lost: Arc::clone(&lost),
            shared: Arc::clone(&shared),
            dirty,
        };
        let watcher =
            notify::recommended_watcher(move |event| handler.on(event)).map_err(explain)?;
        Ok(Self {
            watcher,
            classes,
            armed: BTreeMap::new(),
            lost,
            shared,
        })
    }

    /// Puts the watches on what the paths lead to now. Answers the classes whose directory is another
    /// one than before, whose changes in between nobody has seen. After a change of the mounts,
    /// `remounted`, roots of mounts are armed anew: the same filesystem mounted again has the same
    /// inode, but the watch ended with the first mount.
    pub(super) fn rearm(&mut self, remounted: bool) -> Vec<ClassName> {
        let lost = std::mem::take(&mut *self.lost.lock().unwrap_or_else(PoisonError::into_inner));
        let before: Vec<Option<Place>> = self.nearest();
        let wanted: BTreeMap<&PathBuf, Place> = before
            .iter()
            .flatten()
            .map(|place| (&place.path, place.clone()))
            .collect();
        let is_kept = |path: &PathBuf, armed: &Place| {
            wanted.get(path) == Some(armed)
                && !lost.contains(path)
                && !(remounted && armed.is_mount_root)
        };
        let moved = self
            .classes
            .0
            .iter()
            .zip(&before)
            .filter(|(_, place)| match place {
                // A new directory may have the inode number of the one that was removed.
                Some(place) => {
                    lost.contains(&place.path) || self.armed.get(&place.path) != Some(place)
                }
                None => false,
            })
            .map(|((class, _), _)| class.clone())
            .collect();

        let (kept, stale): (BTreeMap<_, _>, BTreeMap<_, _>) = std::mem::take(&mut self.armed)
            .into_iter()
            .partition(|(path, armed)| is_kept(path, armed));
        self.armed = kept;
        for path in stale.keys() {
            // The kernel has often dropped it already.
            let _ = self.watcher.unwatch(path);
        }
        for (path, place) in wanted {
            if self.armed.contains_key(path) {
                continue;
            }
            match self.watcher.watch(path, RecursiveMode::NonRecursive) {
                Ok(()) => {
                    self.armed.insert(path.clone(), place);
                }
                Err(error) => self.shared.warn(format!("inotify: {}", explain(error))),
            }
        }
        // What changed between the look and the watch made no event.
        if self.nearest() != before {
            self.shared.wake();
        }
        moved
    }

    fn nearest(&self) -> Vec<Option<Place>> {
        self.classes
            .0
            .iter()
            .map(|(_, target)| nearest(target))
            .collect()
    }
}

/// A directory that is or will be watched.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    path: PathBuf,
    device: DevNum,
    inode: u64,
    is_mount_root: bool,
}

/// The directory at `target`, or its nearest ancestor that there is. Links are not followed: what is
/// behind one will not be used.
fn nearest(target: &Path) -> Option<Place> {
    target.ancestors().find_map(|path| {
        let stat = files::open_directory(path)
            .and_then(|dir| files::stat(dir.as_fd()))
            .ok()?;
        Some(Place {
            path: path.to_owned(),
            device: stat.device,
            inode: stat.inode,
            is_mount_root: stat.is_mount_root != Some(false),
        })
    })
}

fn explain(error: notify::Error) -> String {
    let paths: Vec<String> = error
        .paths
        .iter()
        .map(|p| p.display().to_string())
        .collect();
    let what = match error.kind {
        notify::ErrorKind::MaxFilesWatch => {
            "too many watches; raise the sysctl fs.inotify.max_user_watches".to_owned()
        }
        notify::ErrorKind::Io(error) if error.raw_os_error() == Some(libc::EMFILE) => {
            "too many inotify users; raise the sysctl fs.inotify.max_user_instances".to_owned()
        }
        notify::ErrorKind::Io(error) => error.to_string(),
        kind => format!("{kind:?}"),
    };
    if paths.is_empty() {
        what
    } else {
        format!("{}: {what}", paths.join(", "))
    }
}

#[derive(Debug)]
struct Classes(Vec<(ClassName, PathBuf)>);

/// What notify's thread calls. It must not touch the watches itself: notify would wait for its own
/// thread.
struct Handler<F> {
    classes: Arc<Classes>,
    /// Armed paths on which the kernel has ended the watch, or is about to.
    lost: Arc<Mutex<BTreeSet<PathBuf>>>,
    shared: Arc<Shared>,
    dirty: F,
}

impl<F: Fn(Dirt)> Handler<F> {
    fn on(&self, event: notify::Result<Event>) {
        if self.shared.is_stopped() {
            return;
        }
        match event {
            // Our own reading of a directory is an access.
            Ok(event) if matches!(event.kind, EventKind::Access(_)) => {}
            Ok(event) if !event.need_rescan() => {
                for path in &event.paths {
                    self.changed(path, event.kind);
                }
            }
            // The kernel dropped events, or notify can't read them.
            Ok(_) | Err(_) => {
                self.shared.wake();
                (self.dirty)(Dirt::All);
            }
        }
    }

    fn changed(&self, path: &Path, kind: EventKind) {
        let is_name = !matches!(
            kind,
            EventKind::Modify(ModifyKind::Data(_) | ModifyKind::Metadata(_))
        );
        let mut leads_to_target = false;
        for (class, target) in &self.classes.0 {
            leads_to_target |= target.starts_with(path);
            if is_name && (path == target || path.parent() == Some(target)) {
                (self.dirty)(Dirt::Class(class.clone()));
            }
        }
        if leads_to_target {
            if matches!(
                kind,
                EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_))
            ) {
                let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
                lost.insert(path.to_owned());
            }
            self.shared.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::AtomicBool;

    use notify::event::{AccessKind, CreateKind, Flag};

    use super::*;

    /// What is told about an event.
    fn told(event: notify::Result<Event>) -> Vec<Dirt> {
        let told = Mutex::new(Vec::new());
        let (waker, _wakeable) = UnixStream::pair().unwrap();
        let handler = Handler {
            classes: Arc::new(Classes(vec![(ClassName::new("c"), "/d".into())])),
            lost: Arc::default(),
            shared: Arc::new(Shared {
                waker,
                stop: AtomicBool::new(false),
                warnings: Mutex::default(),
            }),
            dirty: |dirt| told.lock().unwrap().push(dirt),
        };
        handler.on(event);
        told.into_inner().unwrap()
    }

    #[test]
    fn lost_events_mean_all() {
        let overflow = Event::new(EventKind::Other).set_flag(Flag::Rescan);
        assert_eq!(told(Ok(overflow)), [Dirt::All]);
        assert_eq!(told(Err(notify::Error::generic("x"))), [Dirt::All]);
    }

    #[test]
    fn names_mean_their_class_and_reading_means_nothing() {
        let class = Dirt::Class(ClassName::new("c"));
        let event = |kind, path: &str| Ok(Event::new(kind).add_path(path.into()));
        let created = EventKind::Create(CreateKind::Any);
        assert_eq!(told(event(created, "/d/entry")), [class]);
        assert_eq!(told(event(created, "/d/entry/deeper")), []);
        let read = EventKind::Access(AccessKind::Any);
        assert_eq!(told(event(read, "/d")), []);
    }
}
