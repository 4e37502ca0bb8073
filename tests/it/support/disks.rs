//! Real mounts and loop devices, which need root. Each guard undoes what it made when it is dropped,
//! also when the test panics.

use std::ffi::CString;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use provisor::config::Class;
use provisor::volume::{ClassName, DevNum, EntryName, VolumeMode};

/// How often a free loop device is asked for again.
const RACES: usize = 20;

/// A mount; unmounted when dropped, even while somebody uses it.
#[derive(Debug)]
pub(crate) struct Mounted {
    point: PathBuf,
}

impl Mounted {
    /// Mounts a new tmpfs of 1 MiB.
    pub(crate) fn tmpfs(point: &Path) -> Self {
        Self::tmpfs_of(point, "1m")
    }

    /// Mounts a new tmpfs of that size.
    pub(crate) fn tmpfs_of(point: &Path, size: &str) -> Self {
        let (source, size) = (Some(Path::new("tmpfs")), format!("size={size}"));
        Self::new(source, point, Some("tmpfs"), MsFlags::empty(), &size)
    }

    /// Mounts a device's filesystem.
    pub(crate) fn device(device: &Path, point: &Path, fs_type: &str, flags: MsFlags) -> Self {
        Self::new(Some(device), point, Some(fs_type), flags, "")
    }

    /// Mounts a directory or file in a second place.
    pub(crate) fn bind(source: &Path, point: &Path) -> Self {
        Self::new(Some(source), point, None, MsFlags::MS_BIND, "")
    }

    /// Sets the flags of the mount, not of its filesystem.
    pub(crate) fn remount(&self, flags: MsFlags) {
        let flags = flags | MsFlags::MS_REMOUNT | MsFlags::MS_BIND;
        mount(None::<&str>, &self.point, None::<&str>, flags, None::<&str>).expect("remount");
    }

    /// The same, where the kernel may say no.
    pub(crate) fn try_bind(source: &Path, point: &Path) -> nix::Result<Self> {
        Self::try_new(Some(source), point, None, MsFlags::MS_BIND, "")
    }

    fn new(
        source: Option<&Path>,
        point: &Path,
        fs_type: Option<&str>,
        flags: MsFlags,
        data: &str,
    ) -> Self {
        Self::try_new(source, point, fs_type, flags, data)
            .unwrap_or_else(|errno| panic!("mount on {}: {errno}", point.display()))
    }

    fn try_new(
        source: Option<&Path>,
        point: &Path,
        fs_type: Option<&str>,
        flags: MsFlags,
        data: &str,
    ) -> nix::Result<Self> {
        mount(source, point, fs_type, flags, Some(data))?;
        Ok(Self::guard(point))
    }

    /// Where it is mounted.
    pub(crate) fn point(&self) -> &Path {
        &self.point
    }

    /// A guard for what a test mounts by itself.
    pub(crate) fn guard(point: &Path) -> Self {
        Self {
            point: point.to_owned(),
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // It may have been unmounted by the test already.
        let _ = umount2(&self.point, MntFlags::MNT_DETACH);
    }
}

/// A loop device over a sparse file; detached when dropped.
#[derive(Debug)]
pub(crate) struct Loop {
    /// Its node.
    pub(crate) node: PathBuf,
    /// The file behind it.
    pub(crate) file: PathBuf,
    _dir: Option<tempfile::TempDir>,
}

impl Loop {
    /// Makes a device of `bytes` bytes, all zero.
    pub(crate) fn new(bytes: u64) -> Self {
        let dir = tempfile::tempdir().expect("directory for a loop device");
        let mut device = Self::on(&dir.path().join("disk.img"), bytes);
        device._dir = Some(dir);
        device
    }

    /// The same, over a sparse file that is made at `file`.
    pub(crate) fn on(file: &Path, bytes: u64) -> Self {
        File::create(file)
            .and_then(|f| f.set_len(bytes))
            .expect("file for a loop device");
        Self::over(file, &["--partscan"])
    }

    /// Puts a device over a file, or over another device.
    pub(crate) fn over(file: &Path, options: &[&str]) -> Self {
        // losetup's choice of a free device races with other processes that attach one.
        let attach = || {
            let mut losetup = Command::new("losetup");
            losetup.args(["--find", "--show"]).args(options).arg(file);
            try_output(&mut losetup)
        };
        let mut node = attach();
        for _ in 0..RACES {
            node = node.or_else(|_| attach());
        }
        Self {
            node: node.unwrap_or_else(|said| panic!("{said}")).into(),
            file: file.to_owned(),
            _dir: None,
        }
    }

    /// Takes the medium out, as far as a loop device has one.
    pub(crate) fn detach(&self) {
        output(Command::new("losetup").arg("--detach").arg(&self.node));
    }

    /// Makes an ext4 on it.
    pub(crate) fn format(&self) {
        self.format_as("ext4", &["-q", "-F"]);
    }

    /// Makes a filesystem on it, with options of its mkfs.
    pub(crate) fn format_as(&self, fs_type: &str, options: &[&str]) {
        let mut mkfs = Command::new(format!("mkfs.{fs_type}"));
        output(mkfs.args(options).arg(&self.node));
    }

    /// The kernel's name, as in `/sys/block`.
    pub(crate) fn name(&self) -> String {
        self.node
            .file_name()
            .expect("node's name")
            .to_string_lossy()
            .into_owned()
    }

    /// The device number.
    pub(crate) fn number(&self) -> DevNum {
        device_number(&self.node)
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // It may have been detached by the test already.
        let _ = Command::new("losetup")
            .arg("--detach")
            .arg(&self.node)
            .output();
    }
}

/// The number of the device that a node, or a link to one, stands for.
pub(crate) fn device_number(node: &Path) -> DevNum {
    DevNum::from_raw(fs::metadata(node).expect("the node is there").rdev())
}

/// Swap space; no longer used when dropped.
#[derive(Debug)]
pub(crate) struct Swap<'a> {
    disk: &'a Loop,
}

impl<'a> Swap<'a> {
    /// Makes a device swap space, and swaps on it.
    pub(crate) fn on(disk: &'a Loop) -> Self {
        output(Command::new("mkswap").arg(&disk.node));
        output(Command::new("swapon").arg(&disk.node));
        Self { disk }
    }
}

impl Drop for Swap<'_> {
    fn drop(&mut self) {
        let _ = Command::new("swapoff").arg(&self.disk.node).output();
    }
}

/// Runs a program and gives its output; panics with what it says when it fails.
pub(crate) fn output(command: &mut Command) -> String {
    try_output(command).unwrap_or_else(|said| panic!("{said}"))
}

fn try_output(command: &mut Command) -> Result<String, String> {
    let output = command
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(format!("{command:?}: {}", text(&output.stderr))),
    }
}

/// Makes a FIFO.
pub(crate) fn fifo(path: &Path) {
    let path = CString::new(path.as_os_str().as_bytes()).expect("path of a FIFO");
    nix::unistd::mkfifo(path.as_c_str(), nix::sys::stat::Mode::S_IRUSR).expect("mkfifo");
}

/// A class over `dir`, which host and daemon see at the same path.
pub(crate) fn class(name: &str, dir: &Path, volume_mode: VolumeMode) -> Class {
    Class {
        volume_mode,
        ..Class::new(ClassName::new(name), dir.to_owned(), dir.to_owned())
    }
}

/// An entry's name.
pub(crate) fn entry(name: &str) -> EntryName {
    EntryName::parse(name.as_ref()).expect("a good name")
}
