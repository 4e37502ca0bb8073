//! Uses by the kernel itself through a path: loop devices and swap space.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::libc;

use super::mounts::Namespace;
use super::{Kind, Target, User};
use crate::node::identity::printable;
use crate::sys::files;
use crate::sys::loops::{self, Backing};
use crate::sys::mountinfo::unescape;
use crate::volume::DevNum;

pub(super) fn users(target: &Target, namespaces: &[Namespace], pv: &str) -> Vec<User> {
    let kind = &target.kind;
    let on_loops = bound_loops()
        .filter(|bound| is_behind(kind, bound, namespaces, pv))
        .map(|bound| User::Loop {
            name: bound.name,
            backing: printable(&bound.file),
        });
    let on_swap = swaps()
        .into_iter()
        .filter(|swap| is_swap(kind, swap, namespaces))
        .map(|swap| User::Swap(printable(&swap.path)));
    on_loops.chain(on_swap).collect()
}

/// A loop device that something is bound to.
struct BoundLoop {
    name: String,
    /// The file behind it, by the name that the kernel remembers.
    file: PathBuf,
    /// What the device itself answers; it can only be asked where its node is.
    backing: Option<Backing>,
}

fn bound_loops() -> impl Iterator<Item = BoundLoop> {
    fs::read_dir("/sys/block")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let dir = entry.path();
            let mut file = fs::read(dir.join("loop/backing_file")).ok()?;
            file.truncate(file.trim_ascii_end().len());
            let number: Option<DevNum> = fs::read_to_string(dir.join("dev"))
                .ok()
                .and_then(|text| text.trim().parse().ok());
            let node = Path::new("/dev").join(&name);
            let is_its_node = files::stat_path(&node).is_ok_and(|stat| {
                stat.kind == files::Kind::BlockDevice && Some(stat.rdev) == number
            });
            let backing = is_its_node
                .then(|| {
                    let mut options = OpenOptions::new();
                    options
                        .read(true)
                        .custom_flags(libc::O_NONBLOCK)
                        .open(&node)
                        .ok()
                })
                .flatten()
                .and_then(loops::backing);
            Some(BoundLoop {
                name,
                file: OsString::from_vec(file).into(),
                backing,
            })
        })
}

fn is_behind(kind: &Kind, bound: &BoundLoop, namespaces: &[Namespace], pv: &str) -> bool {
    match kind {
        Kind::Device { numbers, names } => {
            // The kubelet binds the node at <its directory>/volumeDevices/<volume>/<pod>.
            let map = format!("/volumeDevices/{pv}/");
            let is_map = bound
                .file
                .as_os_str()
                .as_bytes()
                .windows(map.len())
                .any(|w| w == map.as_bytes());
            let is_node = names
                .iter()
                .any(|name| bound.file == Path::new("/dev").join(name));
            is_map
                || is_node
                || bound
                    .backing
                    .is_some_and(|backing| numbers.contains(&backing.rdev))
        }
        Kind::Filesystem {
            device,
            file_devices,
            ..
        } => match bound.backing {
            Some(backing) => {
                file_devices.contains(&backing.device)
                    && kind.has_file(&bound.file, None, namespaces)
            }
            None => is_placed(kind, *device, &bound.file, namespaces),
        },
    }
}

fn is_swap(kind: &Kind, swap: &Swap, namespaces: &[Namespace]) -> bool {
    match kind {
        Kind::Device { numbers, .. } => swap.device().is_some_and(|n| numbers.contains(&n)),
        Kind::Filesystem { device, .. } => is_placed(kind, *device, &swap.path, namespaces),
    }
}

/// Whether some namespace says that a path lies on the volume's filesystem, and in the volume.
fn is_placed(kind: &Kind, device: DevNum, path: &Path, namespaces: &[Namespace]) -> bool {
    namespaces.iter().any(|namespace| {
        namespace
            .table
            .holding(path)
            .is_some_and(|m| m.device == device)
    }) && kind.has_file(path, None, namespaces)
}

/// One line of /proc/swaps.
#[derive(Debug)]
pub(crate) struct Swap {
    path: PathBuf,
}

impl Swap {
    /// The device that is swapped on; `None` for a file.
    pub(crate) fn device(&self) -> Option<DevNum> {
        let node = files::stat_path(&self.path).ok();
        match node.filter(|stat| stat.kind == files::Kind::BlockDevice) {
            Some(stat) => Some(stat.rdev),
            // The host's node may be missing in our /dev.
            None => {
                let dev = Path::new("/sys/class/block")
                    .join(self.path.file_name()?)
                    .join("dev");
                fs::read_to_string(dev).ok()?.trim().parse().ok()
            }
        }
    }
}

/// What is swapped on.
pub(crate) fn swaps() -> Vec<Swap> {
    parse_swaps(&fs::read("/proc/swaps").unwrap_or_default())
}

fn parse_swaps(text: &[u8]) -> Vec<Swap> {
    text.split(|b| *b == b'\n')
        .skip(1)
        .filter_map(|line| line.split(|b| b.is_ascii_whitespace()).next())
        .filter(|path| path.starts_with(b"/"))
        .map(|path| Swap {
            path: unescape(path).into(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swaps_are_read() {
        let text = b"Filename\t\tType\t\tSize\n/dev/sda2    partition\t1\n/a\\040b\tfile 2\n";
        let paths: Vec<_> = parse_swaps(text)
            .into_iter()
            .map(|swap| swap.path)
            .collect();
        assert_eq!(paths, [PathBuf::from("/dev/sda2"), PathBuf::from("/a b")]);
    }
}
