//! Looking at a class's directory: which entries are volumes, and why the others are not.
//!
//! Entries are classified without being opened, so that a FIFO does not block and a dead network
//! filesystem is asked as little as possible. What can block all the same runs as a probe on its own
//! thread with a deadline; a probe that does not come back costs its entry a refusal and nobody else
//! anything.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;

use super::identity;
use super::kubelet::{KubeletRoot, KubeletView};
use crate::config::Class;
use crate::sys::files;
use crate::sys::mountinfo::{self, MountTable};
use crate::volume::{ClassName, DevNum, Found, Reason, Refusal, Scan, Volume};

mod contents;
mod entry;
mod pool;
mod system;
mod table;

use contents::Memo;
use pool::Pool;
use table::OwnMounts;

/// Looks at classes. One lives as long as the daemon, because it remembers which probes still hang.
#[derive(Debug)]
pub struct Inspector {
    view: Arc<KubeletView>,
    pool: Arc<Pool>,
    memo: Arc<Memo>,
}

impl Inspector {
    /// An inspector that compares what it finds with what `view` shows.
    pub fn new(view: KubeletView) -> Self {
        Self::telling(view, |_| {})
    }

    /// The same, which calls `answered` from a thread of its own with the class of each hung entry that
    /// answers at last: no event of the kernel tells of that.
    pub fn telling(
        view: KubeletView,
        answered: impl Fn(&ClassName) + Send + Sync + 'static,
    ) -> Self {
        Self {
            view: Arc::new(view),
            pool: Arc::new(Pool::new(Box::new(answered))),
            memo: Arc::default(),
        }
    }

    /// Looks at every entry of a class, in the order of their names.
    pub async fn scan(&self, class: &Class) -> Scan {
        let class = Arc::new(class.clone());
        let survey = {
            let (view, class) = (Arc::clone(&self.view), Arc::clone(&class));
            let memo = Arc::clone(&self.memo);
            let key = (class.name.clone(), OsString::new());
            self.pool
                .probe(key, move || Survey::take(&view, memo, &class))
                .await
        };
        let survey = match survey {
            Ok(Ok(survey)) => Arc::new(survey),
            Ok(Err(refusal)) | Err(refusal) => return Scan::Refused(refusal),
        };
        let is_looked_at = |name: &&OsString| match name.to_str() {
            Some(text) => class.pattern.matches(text),
            None => true,
        };
        let names = survey.names.iter().filter(is_looked_at).cloned().collect();
        let look = {
            let class = Arc::clone(&class);
            move |name: &OsString| entry::examine(&survey, &class, name)
        };
        let found = self.pool.walk(&class.name, names, look).await;
        Scan::Entries(found.into_iter().filter_map(told).collect())
    }
}

/// What is told of an entry; nothing when it has gone in the meantime.
fn told(
    (name, outcome): (OsString, Result<Result<Option<Volume>, Refusal>, Refusal>),
) -> Option<Found> {
    match outcome.and_then(|result| result) {
        Ok(volume) => volume.map(Found::Volume),
        Err(refusal) => Some(Found::Refused {
            entry: identity::printable(Path::new(&name)),
            refusal,
        }),
    }
}

/// What the probes of one scan have in common.
#[derive(Debug)]
struct Survey {
    dir: OwnedFd,
    names: Vec<OsString>,
    own: OwnMounts,
    /// The host's table, where it is another than our own and we may see it.
    host: Option<MountTable>,
    swaps: Vec<DevNum>,
    /// What the node itself runs from.
    system: Vec<DevNum>,
    memo: Arc<Memo>,
    kubelet: Option<KubeletRoot>,
}

impl Survey {
    fn take(view: &KubeletView, memo: Arc<Memo>, class: &Class) -> Result<Self, Refusal> {
        let dir = open(&class.mount_dir)?;
        let names = names(dir.as_fd(), &class.mount_dir)?;
        let own = OwnMounts::read().map_err(unreadable_mounts)?;
        let host = host_table();
        let system = match &host {
            Some(host) => system::devices(host),
            None => system::devices(own.now().map_err(unreadable_mounts)?.as_ref()),
        };
        Ok(Self {
            dir,
            names,
            system,
            memo,
            own,
            host,
            swaps: swap_devices(),
            kubelet: view.root(),
        })
    }

    /// Our mounts, at least as new as any descriptor that the caller holds.
    fn mounts(&self) -> Result<Arc<MountTable>, Refusal> {
        self.own.now().map_err(unreadable_mounts)
    }

    /// The first mount point of a device, in our view or the host's.
    fn mount_point_of(&self, device: DevNum) -> Result<Option<String>, Refusal> {
        let own = self.mounts()?;
        let point = [Some(own.as_ref()), self.host.as_ref()]
            .into_iter()
            .flatten()
            .find_map(|table| table.of_device(device).next())
            .map(|mount| identity::printable(&mount.point));
        Ok(point)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn unreadable_mounts(error: io::Error) -> Refusal {
    Refusal::new(
        Reason::Unreadable,
        format!("our mounts can't be read: {error}"),
    )
}

fn open(path: &Path) -> Result<OwnedFd, Refusal> {
    let shown = path.display();
    files::open_directory(path).map_err(|errno| match errno {
        Errno::ENOENT => Refusal::new(
            Reason::DirectoryMissing,
            format!("{shown} does not exist; waiting for it"),
        ),
        Errno::ELOOP => Refusal::new(
            Reason::DirectoryUnsafe,
            format!("{shown} is reached through a symbolic link; name the real directory"),
        ),
        Errno::ENOTDIR => Refusal::new(
            Reason::DirectoryUnsafe,
            format!("{shown} is not a directory, or is below something that is not one"),
        ),
        errno => Refusal::new(
            Reason::Unreadable,
            format!("{shown} can't be opened: {errno}"),
        ),
    })
}

fn names(dir: BorrowedFd<'_>, path: &Path) -> Result<Vec<OsString>, Refusal> {
    let failed = |errno| {
        Refusal::new(
            Reason::Unreadable,
            format!("{} can't be read: {errno}", path.display()),
        )
    };
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let mut reader = Dir::openat(dir, ".", flags, Mode::empty()).map_err(failed)?;
    let mut names = Vec::new();
    for entry in reader.iter() {
        let entry = entry.map_err(failed)?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name != "." && name != ".." {
            names.push(name.to_owned());
        }
    }
    names.sort();
    Ok(names)
}

fn host_table() -> Option<MountTable> {
    let host = fs::read_link("/proc/1/ns/mnt").ok()?;
    let own = fs::read_link("/proc/thread-self/ns/mnt").ok()?;
    (host != own).then(|| MountTable::read(mountinfo::HOST).ok())?
}

/// Devices that are swapped on.
fn swap_devices() -> Vec<DevNum> {
    super::usage::swaps()
        .iter()
        .filter_map(|swap| swap.device())
        .collect()
}
