//! The kernel's side on real mounts and devices. Needs root; see `tests/runner.sh`.

mod empty;
mod inspect;
mod kubelet;
mod renames;
mod selfcheck;
mod udev;
mod usage;
mod watch;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

fn subdir(dir: &Path, name: impl AsRef<OsStr>) -> PathBuf {
    let path = dir.join(name.as_ref());
    fs::create_dir(&path).unwrap();
    path
}
