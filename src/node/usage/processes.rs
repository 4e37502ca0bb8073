//! Uses by processes: open descriptors, working and root directories, programs.

use std::fs;
use std::path::{Path, PathBuf};

use super::mounts::Namespace;
use super::{Kind, Process, Target, User, pids};
use crate::node::identity::printable;
use crate::sys::files;

/// At most one use for each process: the first is reason enough.
pub(super) fn users(target: &Target, namespaces: &[Namespace]) -> Vec<User> {
    let own = std::process::id();
    pids()
        .filter(|pid| *pid != own)
        .filter_map(|pid| {
            let (by, what) = links(pid)
                .find(|(_, path)| is_use(&target.kind, path, namespaces))
                .map(|(by, path)| {
                    let what = fs::read_link(&path).map(|name| printable(&name));
                    (by, what.unwrap_or_default())
                })?;
            Some(User::Open {
                process: Process::of(pid),
                by,
                what,
            })
        })
        .collect()
}

/// The links by which the kernel shows what a process has: name and path of each. A process that is
/// gone, or that we may not look into, has none.
fn links(pid: u32) -> impl Iterator<Item = (String, PathBuf)> {
    let dir = PathBuf::from(format!("/proc/{pid}"));
    let descriptors = fs::read_dir(dir.join("fd"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| format!("fd/{}", entry.file_name().to_string_lossy()));
    ["cwd", "root", "exe"]
        .into_iter()
        .map(str::to_owned)
        .chain(descriptors)
        .map(move |by| {
            let path = dir.join(&by);
            (by, path)
        })
}

fn is_use(kind: &Kind, link: &Path, namespaces: &[Namespace]) -> bool {
    let Ok(stat) = files::stat_path(link) else {
        return false;
    };
    match kind {
        Kind::Device { numbers, .. } => {
            stat.kind == files::Kind::BlockDevice && numbers.contains(&stat.rdev)
        }
        Kind::Filesystem { file_devices, .. } => {
            file_devices.contains(&stat.device)
                && fs::read_link(link)
                    .is_ok_and(|name| kind.has_file(&name, stat.mount_id, namespaces))
        }
    }
}
