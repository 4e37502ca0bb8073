//! Real disks for the demo: a tmpfs for everybody, a loop device for root. Guards undo what was made.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};
use nix::mount::{MntFlags, MsFlags, mount, umount2};

pub(crate) const MIB: u64 = 1 << 20;

/// A mount; unmounted when dropped.
#[derive(Debug)]
pub(crate) struct Mounted {
    point: PathBuf,
}

impl Mounted {
    /// A new, empty tmpfs.
    pub(crate) fn tmpfs(point: &Path, size_bytes: u64) -> anyhow::Result<Self> {
        fs::create_dir_all(point).with_context(|| format!("can't make {}", point.display()))?;
        let options = format!("size={size_bytes}");
        Self::new(
            "tmpfs".as_ref(),
            point,
            Some("tmpfs"),
            MsFlags::empty(),
            Some(&options),
        )
    }

    /// A directory or a device node, in a second place, as the kubelet gives it to a Pod.
    pub(crate) fn bind(source: &Path, point: &Path) -> anyhow::Result<Self> {
        let failed = || format!("can't make {}", point.display());
        if source.is_dir() {
            fs::create_dir_all(point).with_context(failed)?;
        } else {
            let parent = point.parent().unwrap_or(point);
            fs::create_dir_all(parent)
                .and_then(|()| File::create(point))
                .with_context(failed)?;
        }
        Self::new(source, point, None, MsFlags::MS_BIND, None)
    }

    fn new(
        source: &Path,
        point: &Path,
        fs_type: Option<&str>,
        flags: MsFlags,
        options: Option<&str>,
    ) -> anyhow::Result<Self> {
        mount(Some(source), point, fs_type, flags, options)
            .with_context(|| format!("can't mount {}", point.display()))?;
        Ok(Self {
            point: point.to_owned(),
        })
    }

    pub(crate) fn point(&self) -> &Path {
        &self.point
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // The namespace ends soon in any case, and its mounts with it.
        let _ = umount2(&self.point, MntFlags::MNT_DETACH);
    }
}

/// What a tenant leaves behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Data {
    pub(crate) files: u64,
    pub(crate) directories: u64,
    pub(crate) bytes: u64,
}

const DIRECTORIES: u64 = 25;
const FILES_EACH: u64 = 40;
const FILE_BYTES: usize = 4096;

/// Writes as a tenant would: directories, files, a hidden one, and a link that leads out.
pub(crate) fn fill(dir: &Path) -> anyhow::Result<Data> {
    let mut data = Data::default();
    let block = [0xa5; FILE_BYTES];
    let mut write = |path: PathBuf| {
        data.files += 1;
        data.bytes += FILE_BYTES as u64;
        fs::write(&path, block).with_context(|| format!("can't write {}", path.display()))
    };
    for number in 0..DIRECTORIES {
        let below = dir.join(format!("shard-{number}"));
        fs::create_dir(&below).with_context(|| format!("can't make {}", below.display()))?;
        for file in 0..FILES_EACH {
            write(below.join(format!("{file}.db")))?;
        }
    }
    write(dir.join(".secret"))?;
    symlink("/etc/passwd", dir.join("a-way-out")).context("can't make a link")?;
    data.directories = DIRECTORIES;
    data.files += 1;
    Ok(data)
}

/// How much there is below a directory, by a look at every entry.
pub(crate) fn census(dir: &Path) -> anyhow::Result<Data> {
    let mut data = Data::default();
    let mut waiting = vec![dir.to_owned()];
    while let Some(dir) = waiting.pop() {
        let unreadable = || format!("can't read {}", dir.display());
        for entry in fs::read_dir(&dir).with_context(unreadable)? {
            let entry = entry.with_context(unreadable)?;
            let facts = entry.metadata().with_context(unreadable)?;
            if facts.is_dir() {
                data.directories += 1;
                waiting.push(entry.path());
            } else {
                data.files += 1;
                data.bytes += if facts.is_file() { facts.len() } else { 0 };
            }
        }
    }
    Ok(data)
}

/// A loop device over a sparse file. The kernel detaches it when the last descriptor is closed, so
/// that it goes even when this process is killed.
#[derive(Debug)]
pub(crate) struct Loop {
    pub(crate) node: PathBuf,
    image: File,
    size_bytes: u64,
    /// Keeps the device.
    _open: File,
}

impl Loop {
    pub(crate) fn new(image: &Path, size_bytes: u64) -> anyhow::Result<Self> {
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(image);
        let file = file.with_context(|| format!("can't make {}", image.display()))?;
        file.set_len(size_bytes).context("can't size the image")?;
        let node = PathBuf::from(losetup(&["--find", "--show", &image.to_string_lossy()])?);
        let open = File::open(&node);
        // With a descriptor open, this only marks the device to go with the last one (loop(4)).
        let detached = losetup(&["--detach", &node.to_string_lossy()]);
        let _open = open.with_context(|| format!("can't open {}", node.display()))?;
        detached?;
        Ok(Self {
            node,
            image: file,
            size_bytes,
            _open,
        })
    }

    /// Writes through the device, as a tenant would; the places written to.
    pub(crate) fn mark(&self, through: &Path) -> anyhow::Result<usize> {
        const MARK: &[u8] = b"a tenant was here";
        let device = OpenOptions::new().write(true).open(through);
        let device = device.with_context(|| format!("can't open {}", through.display()))?;
        let last = self.size_bytes - MIB;
        let places: Vec<u64> = (0..=last)
            .step_by(usize::try_from(16 * MIB)?)
            .chain([last])
            .collect();
        for place in &places {
            device
                .write_all_at(MARK, *place)
                .context("can't write to the device")?;
        }
        device.sync_all().context("can't flush the device")?;
        Ok(places.len())
    }

    /// How many MiB of the image behind the device are not zero.
    pub(crate) fn dirty_mib(&self) -> anyhow::Result<u64> {
        let mut block = vec![0; usize::try_from(MIB)?];
        let zeros = block.clone();
        let mut dirty = 0;
        for at in 0..self.size_bytes / MIB {
            self.image
                .read_exact_at(&mut block, at * MIB)
                .context("can't read the image")?;
            dirty += u64::from(block != zeros);
        }
        Ok(dirty)
    }
}

fn losetup(arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("losetup").args(arguments).output();
    let output = output.context("can't run losetup, which is part of util-linux")?;
    if !output.status.success() {
        bail!(
            "losetup: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    let text = String::from_utf8(output.stdout).context("losetup names no device")?;
    ensure!(!text.contains('\u{fffd}'), "losetup names no device");
    Ok(text.trim().to_owned())
}
