//! Looking at one entry.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;

use super::{Survey, contents, system};
use crate::config::Class;
use crate::node::identity::{self, DeviceFacts};
use crate::node::kubelet::noun;
use crate::sys::files::{self, Kind, Stat};
use crate::sys::mountinfo::{Mount, MountTable};
use crate::volume::{DevNum, EntryName, Identity, Medium, Reason, Refusal, Volume, VolumeMode};

/// Mount flags that the kubelet's bind mount drops (they are flags of the mount, not of the
/// filesystem, and its second mount call sets them anew).
const CARRIED_FLAGS: &[&str] = &["noatime", "nodev", "noexec", "nosuid"];

fn refuse<T>(reason: Reason, detail: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::new(reason, detail))
}

fn unreadable(errno: Errno) -> Refusal {
    Refusal::new(
        Reason::Unreadable,
        format!("it can't be looked at: {errno}"),
    )
}

/// How often an entry that changes is looked at again.
const LOOKS: usize = 3;

/// What one look at an entry came to.
enum Look {
    /// It is gone.
    Gone,
    /// It is a volume.
    Volume(Box<Volume>),
    /// It leads to another device than when the look began.
    Changed,
}

/// Whether it is a volume. `None` when it is gone.
pub(super) fn examine(
    survey: &Survey,
    class: &Class,
    raw: &OsStr,
) -> Result<Option<Volume>, Refusal> {
    for _ in 0..LOOKS {
        match look(survey, class, raw)? {
            Look::Gone => return Ok(None),
            Look::Volume(volume) => return Ok(Some(*volume)),
            Look::Changed => {}
        }
    }
    refuse(
        Reason::Unreadable,
        "it keeps changing while it is looked at; it is looked at again after its next change",
    )
}

fn look(survey: &Survey, class: &Class, raw: &OsStr) -> Result<Look, Refusal> {
    let furniture = is_furniture(raw);
    let entry = EntryName::parse(raw);
    if raw.to_str().is_none() && !furniture {
        // The pattern can't be asked either.
        return entry.map(|_| Look::Gone);
    }
    let object = match files::peek(survey.dir.as_fd(), raw) {
        Ok(object) => object,
        Err(Errno::ENOENT) => return Ok(Look::Gone),
        Err(errno) => return Err(unreadable(errno)),
    };
    let stat = files::stat(object.as_fd()).map_err(unreadable)?;
    match stat.kind {
        Kind::Directory => {
            // Asked while the object is held, so that the number in `stat` is no other mount's.
            let table = match stat.is_mount_root {
                Some(false) => None,
                _ => Some(survey.mounts()?),
            };
            let mount = table
                .as_ref()
                .and_then(|table| mount_at(table, class, raw, &stat));
            match mount {
                None if furniture => refuse(Reason::Ignored, "furniture of a directory"),
                _ if class.volume_mode == VolumeMode::Block => refuse(
                    Reason::WrongMode,
                    "the class has volumeMode Block and this is a directory; link a block device there",
                ),
                None => entry.and(refuse(
                    Reason::NotMounted,
                    "nothing is mounted on it; mount a filesystem or bind mount a directory there",
                )),
                Some(mount) => {
                    let volume = directory(survey, class, entry?, object.as_fd(), &stat, mount)?;
                    Ok(Look::Volume(Box::new(volume)))
                }
            }
        }
        Kind::BlockDevice => steady_device(survey, class, raw, entry?, object.as_fd(), &stat),
        Kind::Symlink => {
            let through = match files::peek_through(survey.dir.as_fd(), raw) {
                Ok(through) => through,
                Err(Errno::ENOENT | Errno::ENOTDIR) => {
                    return refuse(
                        Reason::DanglingLink,
                        "the link leads nowhere; waiting for the device, or remove the link",
                    );
                }
                Err(Errno::ELOOP) => {
                    return refuse(
                        Reason::DanglingLink,
                        "the link leads in a circle; remove it",
                    );
                }
                Err(errno) => return Err(unreadable(errno)),
            };
            let target = files::stat(through.as_fd()).map_err(unreadable)?;
            match target.kind {
                Kind::BlockDevice => {
                    steady_device(survey, class, raw, entry?, through.as_fd(), &target)
                }
                _ if furniture => refuse(Reason::Ignored, "furniture of a directory"),
                Kind::Directory => refuse(
                    Reason::LinkToDirectory,
                    "only links to block devices are followed; bind mount the directory there instead",
                ),
                kind => refuse(
                    Reason::NotAVolume,
                    format!(
                        "the link leads to a {}; only block devices can be linked",
                        noun(kind)
                    ),
                ),
            }
        }
        _ if furniture => refuse(Reason::Ignored, "furniture of a directory"),
        kind => refuse(
            Reason::NotAVolume,
            format!(
                "a {} is neither a mounted directory nor a block device",
                noun(kind)
            ),
        ),
    }
}

/// The device as a volume, if the entry still leads to the node that was asked about. A device is asked by
/// its number, which may be another device's by then; a node goes with its device, so that the same node
/// means the same device.
fn steady_device(
    survey: &Survey,
    class: &Class,
    raw: &OsStr,
    entry: EntryName,
    object: BorrowedFd<'_>,
    before: &Stat,
) -> Result<Look, Refusal> {
    let volume = device(survey, class, entry, object, before)?;
    let now = files::peek_through(survey.dir.as_fd(), raw).and_then(|fd| files::stat(fd.as_fd()));
    let is_same = now.is_ok_and(|now| {
        (now.kind, now.device, now.inode, now.rdev)
            == (before.kind, before.device, before.inode, before.rdev)
    });
    Ok(match is_same {
        true => Look::Volume(Box::new(volume)),
        false => Look::Changed,
    })
}

fn is_furniture(raw: &OsStr) -> bool {
    let name = raw.as_encoded_bytes();
    name == b"lost+found" || name.starts_with(b".") || name.starts_with(b"README")
}

/// The mount whose root the object is, if it is mounted at the entry itself.
fn mount_at<'a>(
    table: &'a MountTable,
    class: &Class,
    raw: &OsStr,
    stat: &Stat,
) -> Option<&'a Mount> {
    if stat.is_mount_root == Some(false) {
        return None;
    }
    let mount = table.by_id(stat.mount_id?)?;
    (mount.point.as_os_str() == class.mount_dir.join(raw).as_os_str()).then_some(mount)
}

fn directory(
    survey: &Survey,
    class: &Class,
    entry: EntryName,
    object: BorrowedFd<'_>,
    stat: &Stat,
    mount: &Mount,
) -> Result<Volume, Refusal> {
    if mount.is_read_only() {
        return refuse(
            Reason::ReadOnly,
            "it is mounted read-only; look for errors of the filesystem and mount it read-write",
        );
    }
    if let Some(kubelet) = &survey.kubelet {
        kubelet.check(&class.host_path(&entry), stat)?;
    }
    let capacity_bytes = files::filesystem_size(object).map_err(unreadable)?;
    if capacity_bytes == 0 {
        return refuse(Reason::ZeroSize, "the filesystem says that it has no bytes");
    }
    let (identity, contents) = {
        // Closed at the end of this block: an open descriptor makes the host's umount fail.
        let dir = files::reopen_directory(object).map_err(unreadable)?;
        let identity = identity::of_directory(dir.as_fd(), mount)?;
        let contents = match class.require_empty {
            true => contents::of_directory(dir.as_fd())?,
            false => None,
        };
        (identity, contents)
    };
    let is_set = |flag: &&&str| mount.options.iter().any(|o| o == **flag);
    Ok(Volume {
        entry,
        medium: Medium::Mount,
        capacity_bytes,
        identity: Identity::Filesystem(identity),
        mount_flags: CARRIED_FLAGS
            .iter()
            .filter(is_set)
            .map(|f| (*f).to_owned())
            .collect(),
        contents,
    })
}

fn device(
    survey: &Survey,
    class: &Class,
    entry: EntryName,
    object: BorrowedFd<'_>,
    stat: &Stat,
) -> Result<Volume, Refusal> {
    let facts = identity::of_device(stat.rdev)?;
    let name = &facts.name;
    if facts.read_only {
        return refuse(Reason::ReadOnly, format!("device {name} is read-only"));
    }
    if facts.identity.size_bytes == 0 {
        return refuse(
            Reason::ZeroSize,
            format!("device {name} has no bytes: no medium, or detached"),
        );
    }
    check_free(survey, &facts)?;
    if let Some(kubelet) = &survey.kubelet {
        kubelet.check(&class.host_path(&entry), stat)?;
    }
    let contents = match class.require_empty {
        true => contents::of_device(&survey.memo, object, &facts)?,
        false => None,
    };
    Ok(Volume {
        entry,
        medium: Medium::Device,
        capacity_bytes: facts.identity.size_bytes,
        identity: Identity::Device(facts.identity),
        mount_flags: Vec::new(),
        contents,
    })
}

/// What can be seen without opening it. Whoever wipes asks more, and with a claim.
fn check_free(survey: &Survey, facts: &DeviceFacts) -> Result<(), Refusal> {
    let name = &facts.name;
    if system::holds(facts, &survey.system) {
        return refuse(
            Reason::InUse,
            format!("device {name} holds the root filesystem of this node; it is never offered"),
        );
    }
    if !facts.holders.is_empty() {
        let holders = facts.holders.join(", ");
        return refuse(Reason::InUse, format!("device {name} is used by {holders}"));
    }
    if !facts.partitions.is_empty() {
        let partitions = facts.partitions.join(", ");
        return refuse(
            Reason::Partitioned,
            format!("device {name} has partitions ({partitions}); offer those, or remove them"),
        );
    }
    let own: Option<DevNum> = Some(facts.identity.device);
    for number in own.into_iter().chain(facts.whole) {
        if let Some(point) = survey.mount_point_of(number)? {
            return refuse(
                Reason::InUse,
                format!("device {name} is mounted at {point}"),
            );
        }
        if survey.swaps.contains(&number) {
            return refuse(Reason::InUse, format!("device {name} is swap space"));
        }
    }
    Ok(())
}
