//! What a piece of storage is, asked without opening the device.
//!
//! Opening is avoided because it wakes sleeping disks, makes udev probe again when it was for writing,
//! and can hang on a device that fails. Everything stands in sysfs and in udev's database. Sysfs is
//! asked first, so that the same disk has the same name whether or not udev has seen it.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::sys::files;
use crate::sys::mountinfo::{Mount, MountTable};
use crate::volume::{DevNum, DeviceIdentity, FilesystemIdentity, Reason, Refusal};

mod names;

/// The unit of `size` in sysfs, whatever the device's own sectors are.
const SYSFS_SECTOR_BYTES: u64 = 512;

/// Filesystem types whose `f_fsid` is made from their UUID. That of others, such as xfs, is only the
/// device number once more (statfs(2)).
const FSID_IS_UUID: &[&str] = &["ext2", "ext3", "ext4", "btrfs", "tmpfs"];

/// How often a device that changes is looked at again.
const LOOKS: usize = 3;

/// What the kernel tells about a block device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFacts {
    /// What it is.
    pub identity: DeviceIdentity,
    /// The kernel's name, as the node in `/dev` is called: `loop0`, `cciss/c0d0`.
    pub name: String,
    /// Writes are refused.
    pub read_only: bool,
    /// Who is stacked on it, on its partitions or on the disk that it is a part of: `dm-0`, `md127`, and
    /// `btrfs <uuid>` for a member of a mounted btrfs.
    pub holders: Vec<String>,
    /// Its partitions by the kernel's name.
    pub partitions: Vec<String>,
    /// Device numbers of its partitions.
    pub partition_numbers: Vec<DevNum>,
    /// For a partition, the device that it is a part of.
    pub whole: Option<DevNum>,
}

/// The kernel's name for this boot.
pub fn boot_id() -> String {
    static BOOT: OnceLock<String> = OnceLock::new();
    BOOT.get_or_init(
        || match fs::read_to_string("/proc/sys/kernel/random/boot_id") {
            Ok(id) if !id.trim().is_empty() => id.trim().to_owned(),
            // Must not be equal to what another boot would say: then nothing is believed across restarts.
            _ => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH);
                format!("unknown-{}", now.unwrap_or_default().as_nanos())
            }
        },
    )
    .clone()
}

/// What is mounted by `mount`, whose root directory is open as `dir` (not by `O_PATH`).
///
/// # Errors
/// [`Reason::Unreadable`] when the filesystem answers an error, [`Reason::EntryReplaced`] when the
/// mounted directory was removed.
pub fn of_directory(dir: BorrowedFd<'_>, mount: &Mount) -> Result<FilesystemIdentity, Refusal> {
    if mount.root.as_os_str().as_bytes().ends_with(b"//deleted") {
        let detail = "the directory that is mounted here was removed; unmount it";
        return Err(Refusal::new(Reason::EntryReplaced, detail));
    }
    let failed = |errno| {
        let detail = format!("the filesystem does not tell what it is: {errno}");
        Refusal::new(Reason::Unreadable, detail)
    };
    let mut uuid = files::filesystem_uuid(dir).map_err(failed)?;
    if uuid.is_none() {
        uuid = names::Database::of(mount.device).filesystem_uuid();
    }
    if uuid.is_none() && FSID_IS_UUID.contains(&mount.fs_type.as_str()) {
        let fsid = files::filesystem_id(dir).map_err(failed)?;
        uuid = (fsid != 0).then(|| format!("fsid:{fsid:016x}"));
    }
    Ok(FilesystemIdentity {
        fs_type: mount.fs_type.clone(),
        uuid,
        root: printable(&mount.root),
        device: mount.device,
        boot: boot_id(),
    })
}

/// What is mounted where the open directory `dir` is the root of a mount in our own namespace.
///
/// # Errors
/// As [`of_directory`], and [`Reason::NotMounted`] when `dir` is no mount's root.
pub fn of_mount(dir: BorrowedFd<'_>) -> Result<FilesystemIdentity, Refusal> {
    let unreadable = |what: String| Refusal::new(Reason::Unreadable, what);
    let stat = files::stat(dir).map_err(|e| unreadable(format!("statx: {e}")))?;
    if stat.is_mount_root == Some(false) {
        return Err(Refusal::new(
            Reason::NotMounted,
            "nothing is mounted on it any more",
        ));
    }
    let table = MountTable::read("/proc/thread-self/mountinfo")
        .map_err(|e| unreadable(format!("mountinfo: {e}")))?;
    let mount = stat
        .mount_id
        .and_then(|id| table.by_id(id))
        .ok_or_else(|| {
            Refusal::new(
                Reason::EntryReplaced,
                "it was unmounted while it was looked at",
            )
        })?;
    of_directory(dir, mount)
}

/// A path as text: as it is, or with its bytes spelled out where it is not UTF-8.
pub(crate) fn printable(path: &Path) -> String {
    match path.to_str() {
        Some(text) => text.to_owned(),
        None => path.as_os_str().as_bytes().escape_ascii().to_string(),
    }
}

/// What the block device of this number is. All facts are of one medium: while one goes, the kernel
/// already counts the next one and still shows the old size.
///
/// # Errors
/// [`Reason::Unreadable`] when the kernel has no such device, does not tell its size, or tells another
/// story each time.
pub fn of_device(number: DevNum) -> Result<DeviceFacts, Refusal> {
    for _ in 0..LOOKS {
        if let Some(facts) = look_at_device(number)? {
            return Ok(facts);
        }
    }
    let detail = format!("block device {number} keeps changing while it is looked at");
    Err(Refusal::new(Reason::Unreadable, detail))
}

/// One look; `None` when the medium changed during it.
fn look_at_device(number: DevNum) -> Result<Option<DeviceFacts>, Refusal> {
    let dir = sysfs_dir(number);
    let unreadable = |what: &str| {
        let detail = format!("the kernel tells no {what} of block device {number}");
        Refusal::new(Reason::Unreadable, detail)
    };
    let name = kernel_name(&dir).ok_or_else(|| unreadable("name"))?;
    let partition: Option<u32> = read_number(&dir.join("partition"));
    // `..` is taken after the link is followed, so this is the directory of the whole disk.
    let whole_dir = partition.map(|_| dir.join(".."));
    let whole = whole_dir
        .as_deref()
        .and_then(|dir| read_number(&dir.join("dev")));
    let disk_dir = whole_dir.as_deref().unwrap_or(&dir);
    let medium = || read_number::<u64>(&disk_dir.join("diskseq"));
    let diskseq = medium();
    let sectors: u64 = read_number(&dir.join("size")).ok_or_else(|| unreadable("size"))?;
    let database = names::Database::of(number);

    let mut holders = holders_of(&dir, &name);
    // Who has the whole disk has each part of it.
    if let Some(whole_dir) = &whole_dir {
        let whole_name = fs::read_link(&dir).ok();
        let whole_name = whole_name
            .as_deref()
            .and_then(|link| link.parent()?.file_name());
        holders.extend(holders_of(
            whole_dir,
            &whole_name.unwrap_or_default().to_string_lossy(),
        ));
    }
    let (mut partitions, mut partition_numbers) = (Vec::new(), Vec::new());
    for part_dir in partition_dirs(&dir, &name) {
        partition_numbers.extend(read_number::<DevNum>(&part_dir.join("dev")));
        if let Some(part_name) = part_dir
            .file_name()
            .map(|n| n.to_string_lossy().into_owned())
        {
            holders.extend(holders_of(&part_dir, &part_name));
            partitions.push(part_name);
        }
    }
    let facts = DeviceFacts {
        identity: DeviceIdentity {
            wwn: names::wwn(disk_dir, &database),
            serial: names::serial(disk_dir, &database),
            partition,
            partition_uuid: partition.and_then(|_| names::partition_uuid(&dir, &database)),
            size_bytes: sectors.saturating_mul(SYSFS_SECTOR_BYTES),
            device: number,
            diskseq,
            boot: boot_id(),
        },
        name: name.replace('!', "/"),
        read_only: read_number::<u8>(&dir.join("ro")).is_some_and(|ro| ro != 0),
        holders,
        partitions,
        partition_numbers,
        whole,
    };
    Ok((medium() == diskseq).then_some(facts))
}

fn sysfs_dir(number: DevNum) -> PathBuf {
    PathBuf::from(format!("/sys/dev/block/{number}"))
}

fn kernel_name(dir: &Path) -> Option<String> {
    let target = fs::read_link(dir).ok()?;
    Some(target.file_name()?.to_string_lossy().into_owned())
}

fn holders_of(dir: &Path, name: &str) -> Vec<String> {
    let mut holders: Vec<String> = children(&dir.join("holders")).collect();
    // A btrfs claims its members without a holder, and mountinfo shows the device number of none.
    let filesystems = children(Path::new("/sys/fs/btrfs")).filter(|_| !name.is_empty());
    holders.extend(
        filesystems
            .filter(|uuid| {
                Path::new("/sys/fs/btrfs")
                    .join(uuid)
                    .join("devices")
                    .join(name)
                    .exists()
            })
            .map(|uuid| format!("btrfs {uuid}")),
    );
    holders.sort();
    holders
}

fn partition_dirs(dir: &Path, name: &str) -> Vec<PathBuf> {
    // The kernel calls a partition after its disk, so nothing else in the directory has to be asked.
    let mut dirs: Vec<PathBuf> = children(dir)
        .filter(|child| child.starts_with(name))
        .map(|child| dir.join(child))
        .filter(|child| child.join("partition").exists())
        .collect();
    dirs.sort();
    dirs
}

fn children(dir: &Path) -> impl Iterator<Item = String> {
    fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
}

fn read_text(path: &Path) -> Option<String> {
    let raw = read_attribute(path)?;
    Some(String::from_utf8_lossy(&raw).trim().to_owned())
}

/// What an attribute in sysfs holds, which is no more than a page and comes by one read (sysfs(5)). A device
/// has twenty of them to be read, so each call less counts.
fn read_attribute(path: &Path) -> Option<Vec<u8>> {
    let mut page = [0; 4096];
    let length = File::open(path).ok()?.read(&mut page).ok()?;
    page.get(..length).map(<[u8]>::to_vec)
}

fn read_number<T: std::str::FromStr>(path: &Path) -> Option<T> {
    read_text(path)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_does_not_exist_is_unreadable() {
        let number = DevNum {
            major: 4000,
            minor: 1,
        };
        assert_eq!(of_device(number).unwrap_err().reason, Reason::Unreadable);
    }

    #[test]
    fn the_boot_has_one_name() {
        assert_eq!(boot_id(), boot_id());
        assert!(boot_id().len() >= 16, "{}", boot_id());
    }

    #[test]
    fn paths_that_are_not_utf8_are_spelled_out() {
        let odd = Path::new(std::ffi::OsStr::from_bytes(b"/a\xff"));
        assert_eq!(printable(odd), "/a\\xff");
        assert_eq!(printable(Path::new("/ä")), "/ä");
    }
}
