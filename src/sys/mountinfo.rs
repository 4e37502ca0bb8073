//! `/proc/*/mountinfo`, read as bytes: names need not be UTF-8, and one odd line must not hide the
//! others (proc_pid_mountinfo(5)).
//!
//! The table is a snapshot in the order of the kernel. A mount point can occur more than once: mounts
//! are stacked, and a mount below a directory that was covered later is still listed. So a lookup by
//! path is a hint, and the mount id of an open descriptor is the proof.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::volume::DevNum;

/// The table of this thread. Not `/proc/self`, which is the main thread's: a mount namespace belongs
/// to a thread.
pub const OWN: &str = "/proc/thread-self/mountinfo";
/// The table of process 1: the host's, when the pod has `hostPID`.
pub const HOST: &str = "/proc/1/mountinfo";

/// One line of mountinfo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The mount's number, which may be used again after an unmount.
    pub id: u64,
    /// The mount that it is mounted upon; not in the table when that is out of the reader's sight.
    pub parent: u64,
    /// `st_dev` of the filesystem.
    pub device: DevNum,
    /// The directory or file of the filesystem that is mounted; ends in `//deleted` once removed.
    pub root: PathBuf,
    /// Where it is mounted, as seen from the reader's root.
    pub point: PathBuf,
    /// Options of this mount: `rw`, `nosuid`, ...
    pub options: Vec<String>,
    /// Peer group that the mount shares events with.
    pub shared: Option<u64>,
    /// Peer group that the mount receives events from.
    pub master: Option<u64>,
    /// `ext4`, `tmpfs`, ...
    pub fs_type: String,
    /// What was mounted, as the mounter called it.
    pub source: OsString,
    /// Options of the filesystem itself: `rw`, `emergency_ro`, ...
    pub super_options: Vec<String>,
}

impl Mount {
    /// Whether writes fail, by the mount's or by the filesystem's flags.
    pub fn is_read_only(&self) -> bool {
        let is_ro = |o: &String| o == "ro" || o == "emergency_ro";
        self.options.iter().chain(&self.super_options).any(is_ro)
    }

    /// Where `path`, as the table's reader sees it, lies inside the filesystem; `None` unless it is
    /// at or below the mount point.
    pub fn inside(&self, path: &Path) -> Option<PathBuf> {
        let rest = path.strip_prefix(&self.point).ok()?;
        Some(if rest.as_os_str().is_empty() {
            self.root.clone()
        } else {
            self.root.join(rest)
        })
    }
}

/// A snapshot of a mount namespace.
#[derive(Clone, Debug, Default)]
pub struct MountTable {
    mounts: Vec<Mount>,
    by_id: HashMap<u64, usize>,
    malformed: usize,
}

impl MountTable {
    /// Reads and parses a table, such as [`OWN`].
    ///
    /// # Errors
    /// When the file can't be read.
    pub fn read(path: impl AsRef<Path>) -> io::Result<Self> {
        fs::read(path).map(|text| Self::parse(&text))
    }

    /// Parses the text of a table. Lines that make no sense are skipped and counted.
    pub fn parse(text: &[u8]) -> Self {
        let mut table = Self::default();
        for line in text.split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
            match parse_line(line) {
                Some(mount) => {
                    table.by_id.insert(mount.id, table.mounts.len());
                    table.mounts.push(mount);
                }
                None => table.malformed += 1,
            }
        }
        table
    }

    /// Every mount, in the order of the kernel.
    pub fn mounts(&self) -> &[Mount] {
        &self.mounts
    }

    /// How many lines were skipped.
    pub fn malformed(&self) -> usize {
        self.malformed
    }

    /// The mount of this number.
    pub fn by_id(&self, id: u64) -> Option<&Mount> {
        self.by_id.get(&id).and_then(|i| self.mounts.get(*i))
    }

    /// The topmost of the mounts at `point`.
    pub fn at(&self, point: &Path) -> Option<&Mount> {
        let here: Vec<&Mount> = self
            .mounts
            .iter()
            .filter(|m| m.point.as_os_str() == point.as_os_str())
            .collect();
        here.iter()
            .rev()
            .find(|m| here.iter().all(|other| other.parent != m.id))
            .or(here.last())
            .copied()
    }

    /// The mounts of a filesystem.
    pub fn of_device(&self, device: DevNum) -> impl Iterator<Item = &Mount> {
        self.mounts.iter().filter(move |m| m.device == device)
    }

    /// The mounts strictly below `point`.
    pub fn below<'a>(&'a self, point: &'a Path) -> impl Iterator<Item = &'a Mount> {
        self.mounts
            .iter()
            .filter(move |m| m.point.starts_with(point) && m.point.as_os_str() != point.as_os_str())
    }

    /// The mount that `path` lies on: the topmost at the longest mount point that is a prefix of it.
    pub fn holding(&self, path: &Path) -> Option<&Mount> {
        path.ancestors().find_map(|point| self.at(point))
    }

    /// What `mount` is mounted upon, as a place inside the parent's filesystem. Copies of a mount in
    /// other namespaces are upon the same place, wherever that is visible there; a bind mount made for
    /// a container is not.
    pub fn upon(&self, mount: &Mount) -> Option<(DevNum, PathBuf)> {
        let parent = self.by_id(mount.parent)?;
        Some((parent.device, parent.inside(&mount.point)?))
    }
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|b| *b == b' ');
    let id = number(fields.next()?)?;
    let parent = number(fields.next()?)?;
    let device = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let root = PathBuf::from(unescape(fields.next()?));
    let point = PathBuf::from(unescape(fields.next()?));
    let options = split_options(fields.next()?);
    let (mut shared, mut master) = (None, None);
    loop {
        match fields.next()? {
            b"-" => break,
            tag => {
                if let Some(group) = tag.strip_prefix(b"shared:") {
                    shared = Some(number(group)?);
                } else if let Some(group) = tag.strip_prefix(b"master:") {
                    master = Some(number(group)?);
                }
            }
        }
    }
    let fs_type = unescape(fields.next()?).to_string_lossy().into_owned();
    let source = unescape(fields.next()?);
    let super_options = split_options(fields.next()?);
    let is_place = |path: &Path| path.has_root();
    // The root of a pseudo filesystem, such as a bound namespace file, is no path: "mnt:[4026531840]".
    (is_place(&point) && !root.as_os_str().is_empty() && !fs_type.is_empty()).then_some(Mount {
        id,
        parent,
        device,
        root,
        point,
        options,
        shared,
        master,
        fs_type,
        source,
        super_options,
    })
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn split_options(text: &[u8]) -> Vec<String> {
    text.split(|b| *b == b',')
        .map(|option| unescape(option).to_string_lossy().into_owned())
        .collect()
}

/// Decodes the kernel's `\ooo` for space, tab, newline and backslash. A backslash that starts no such
/// escape is kept.
pub fn unescape(text: &[u8]) -> OsString {
    if !text.contains(&b'\\') {
        return OsStr::from_bytes(text).to_owned();
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, tail)) = rest.split_first() {
        match octal(rest) {
            Some(decoded) => {
                out.push(decoded);
                rest = rest.get(4..).unwrap_or_default();
            }
            None => {
                out.push(byte);
                rest = tail;
            }
        }
    }
    OsString::from_vec(out)
}

fn octal(text: &[u8]) -> Option<u8> {
    let [b'\\', digits @ ..] = text.get(..4)? else {
        return None;
    };
    let value = digits.iter().try_fold(0_u32, |sum, digit| {
        matches!(digit, b'0'..=b'7').then(|| sum * 8 + u32::from(digit - b'0'))
    })?;
    u8::try_from(value).ok()
}

#[cfg(test)]
mod tests;
