//! What a piece of storage is, whatever path leads to it, and when two descriptions mean the same.
//!
//! Part of an identity survives a reboot (filesystem UUID, WWN, serial, partition UUID), part only
//! holds for this boot (device number, diskseq). Paths and link names are never part of it: they
//! change on re-enumeration, and a swapped disk keeps them.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A device number as `major:minor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct DevNum {
    /// The driver's number.
    pub major: u64,
    /// The device's number within the driver.
    pub minor: u64,
}

impl DevNum {
    /// Splits a `dev_t`.
    pub fn from_raw(dev: u64) -> Self {
        Self {
            major: nix::sys::stat::major(dev),
            minor: nix::sys::stat::minor(dev),
        }
    }

    /// The `dev_t` of this number.
    pub fn to_raw(self) -> u64 {
        nix::sys::stat::makedev(self.major, self.minor)
    }
}

impl fmt::Display for DevNum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

impl FromStr for DevNum {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a device number like 8:16");
        let (major, minor) = text.split_once(':').ok_or_else(wrong)?;
        Ok(Self {
            major: major.parse().map_err(|_| wrong())?,
            minor: minor.parse().map_err(|_| wrong())?,
        })
    }
}

impl From<DevNum> for String {
    fn from(number: DevNum) -> Self {
        number.to_string()
    }
}

impl TryFrom<String> for DevNum {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// What a volume is. Written on the PersistentVolume when it is offered, compared before a wipe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum Identity {
    /// A mounted filesystem, or a directory of one (a bind mount).
    Filesystem(FilesystemIdentity),
    /// A block device.
    Device(DeviceIdentity),
}

/// What a mounted filesystem is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FilesystemIdentity {
    /// `ext4`, `xfs`, `tmpfs`, ...
    pub fs_type: String,
    /// The filesystem's own UUID, where it tells one. A tmpfs has a new one at each mount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// The directory of the filesystem that is mounted: `/`, or the source of a bind mount.
    pub root: String,
    /// The device number of this boot.
    pub device: DevNum,
    /// `/proc/sys/kernel/random/boot_id` when this was written.
    pub boot: String,
}

/// What a block device is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceIdentity {
    /// World Wide Name (`ID_WWN`, NVMe EUI, `wwid` in sysfs).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wwn: Option<String>,
    /// Serial number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Partition number, for a partition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<u32>,
    /// Partition UUID, for a partition of a GPT.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition_uuid: Option<String>,
    /// Whole size in bytes.
    pub size_bytes: u64,
    /// The device number of this boot.
    pub device: DevNum,
    /// The kernel's number of the medium, never used twice in one boot (Linux 5.15).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diskseq: Option<u64>,
    /// `/proc/sys/kernel/random/boot_id` when this was written.
    pub boot: String,
}

/// The answer to "are these two the same storage?".
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Likeness {
    /// They are.
    Same,
    /// They are not; which property tells so.
    Different(&'static str),
    /// Nothing that survives a reboot tells, and there was a reboot. Counts as no.
    Unknown,
}

impl Identity {
    /// Compares what is there now with what was recorded.
    pub fn compare(&self, recorded: &Self) -> Likeness {
        match (self, recorded) {
            (Self::Filesystem(now), Self::Filesystem(then)) => now.compare(then),
            (Self::Device(now), Self::Device(then)) => now.compare(then),
            _ => Likeness::Different("kind"),
        }
    }

    /// The device number of this boot.
    pub fn device(&self) -> DevNum {
        match self {
            Self::Filesystem(fs) => fs.device,
            Self::Device(device) => device.device,
        }
    }
}

impl Identity {
    /// Whether wiping one would touch the other: the same storage, a directory inside the other's
    /// directory, or a device and the filesystem on it.
    pub fn shares_storage(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Filesystem(a), Self::Filesystem(b)) => {
                a.is_same_filesystem(b)
                    && (Path::new(&a.root).starts_with(&b.root)
                        || Path::new(&b.root).starts_with(&a.root))
            }
            (Self::Device(a), Self::Device(b)) => a.compare(b) == Likeness::Same,
            (Self::Filesystem(fs), Self::Device(device))
            | (Self::Device(device), Self::Filesystem(fs)) => {
                fs.boot == device.boot && fs.device == device.device
            }
        }
    }

    /// Texts of which two identities that share storage have at least one in common; for finding them
    /// without comparing each with each.
    pub fn keys(&self) -> Vec<String> {
        let (boot, lasting) = match self {
            Self::Filesystem(fs) => (&fs.boot, vec![&fs.uuid]),
            Self::Device(device) => (
                &device.boot,
                vec![&device.wwn, &device.serial, &device.partition_uuid],
            ),
        };
        let mut keys: Vec<String> = lasting.into_iter().flatten().cloned().collect();
        keys.push(format!("{boot}/{}", self.device()));
        keys
    }
}

impl FilesystemIdentity {
    fn is_same_filesystem(&self, other: &Self) -> bool {
        match (&self.uuid, &other.uuid) {
            (Some(a), Some(b)) => a == b,
            _ => self.boot == other.boot && self.device == other.device,
        }
    }

    fn compare(&self, then: &Self) -> Likeness {
        if self.fs_type != then.fs_type {
            return Likeness::Different("filesystem type");
        }
        if self.root != then.root {
            return Likeness::Different("directory inside the filesystem");
        }
        match (&self.uuid, &then.uuid) {
            (Some(a), Some(b)) if a == b => Likeness::Same,
            (Some(_), Some(_)) => Likeness::Different("filesystem UUID"),
            _ if self.boot != then.boot => Likeness::Unknown,
            _ if self.device == then.device => Likeness::Same,
            _ => Likeness::Different("device number"),
        }
    }
}

impl DeviceIdentity {
    fn compare(&self, then: &Self) -> Likeness {
        if self.size_bytes != then.size_bytes {
            return Likeness::Different("size");
        }
        if self.partition != then.partition {
            return Likeness::Different("partition number");
        }
        let lasting = [
            ("WWN", &self.wwn, &then.wwn),
            ("serial number", &self.serial, &then.serial),
            ("partition UUID", &self.partition_uuid, &then.partition_uuid),
        ];
        let mut equal = false;
        for (what, now, then) in lasting {
            match (now, then) {
                (Some(a), Some(b)) if a == b => equal = true,
                (Some(_), Some(_)) => return Likeness::Different(what),
                _ => {}
            }
        }
        if equal {
            return Likeness::Same;
        }
        if self.boot != then.boot {
            return Likeness::Unknown;
        }
        if self.device != then.device {
            return Likeness::Different("device number");
        }
        match (self.diskseq, then.diskseq) {
            (Some(a), Some(b)) if a != b => Likeness::Different("diskseq"),
            _ => Likeness::Same,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filesystem() -> FilesystemIdentity {
        FilesystemIdentity {
            fs_type: "ext4".into(),
            uuid: Some("u1".into()),
            root: "/".into(),
            device: DevNum { major: 7, minor: 0 },
            boot: "b1".into(),
        }
    }

    fn device() -> DeviceIdentity {
        DeviceIdentity {
            wwn: None,
            serial: None,
            partition: None,
            partition_uuid: None,
            size_bytes: 1 << 30,
            device: DevNum { major: 7, minor: 0 },
            diskseq: Some(5),
            boot: "b1".into(),
        }
    }

    #[test]
    fn filesystem_likeness() {
        let base = filesystem();
        let other_device = DevNum { major: 7, minor: 1 };
        type Case = (
            fn(&mut FilesystemIdentity),
            fn(&mut FilesystemIdentity),
            Likeness,
        );
        let cases: [Case; 7] = [
            (|_| {}, |_| {}, Likeness::Same),
            (|n| n.boot = "b2".into(), |_| {}, Likeness::Same),
            (
                |n| n.uuid = Some("u2".into()),
                |_| {},
                Likeness::Different("filesystem UUID"),
            ),
            (
                |n| n.fs_type = "xfs".into(),
                |_| {},
                Likeness::Different("filesystem type"),
            ),
            (
                |n| n.root = "/a".into(),
                |_| {},
                Likeness::Different("directory inside the filesystem"),
            ),
            (|n| n.uuid = None, |_| {}, Likeness::Same),
            (
                |n| n.boot = "b2".into(),
                |t| t.uuid = None,
                Likeness::Unknown,
            ),
        ];
        for (i, (change_now, change_then, want)) in cases.into_iter().enumerate() {
            let (mut now, mut then) = (base.clone(), base.clone());
            change_now(&mut now);
            change_then(&mut then);
            assert_eq!(now.compare(&then), want, "case {i}");
        }
        let moved = FilesystemIdentity {
            uuid: None,
            device: other_device,
            ..base.clone()
        };
        assert_eq!(moved.compare(&base), Likeness::Different("device number"));
    }

    #[test]
    fn device_likeness() {
        let base = device();
        let serial = |s: &str| DeviceIdentity {
            serial: Some(s.into()),
            ..device()
        };
        assert_eq!(base.compare(&base), Likeness::Same);
        let medium = DeviceIdentity {
            diskseq: Some(6),
            ..device()
        };
        assert_eq!(medium.compare(&base), Likeness::Different("diskseq"));
        let grown = DeviceIdentity {
            size_bytes: 1 << 31,
            ..serial("s")
        };
        assert_eq!(grown.compare(&serial("s")), Likeness::Different("size"));
        let rebooted = DeviceIdentity {
            boot: "b2".into(),
            ..device()
        };
        assert_eq!(rebooted.compare(&base), Likeness::Unknown);
        let renamed = DeviceIdentity {
            boot: "b2".into(),
            device: DevNum { major: 8, minor: 1 },
            diskseq: None,
            ..serial("s")
        };
        assert_eq!(renamed.compare(&serial("s")), Likeness::Same);
        assert_eq!(
            serial("t").compare(&serial("s")),
            Likeness::Different("serial number")
        );
        let second = DeviceIdentity {
            partition: Some(2),
            ..serial("s")
        };
        assert_eq!(
            second.compare(&serial("s")),
            Likeness::Different("partition number")
        );
    }

    #[test]
    fn nested_directories_and_a_device_with_its_filesystem_share_storage() {
        let at = |root: &str| {
            Identity::Filesystem(FilesystemIdentity {
                root: root.into(),
                ..filesystem()
            })
        };
        let elsewhere = Identity::Filesystem(FilesystemIdentity {
            uuid: Some("u2".into()),
            device: DevNum { major: 7, minor: 9 },
            ..filesystem()
        });
        for (a, b, shares) in [
            (at("/"), at("/a"), true),
            (at("/a/b"), at("/a"), true),
            (at("/a"), at("/b"), false),
            (at("/a"), at("/ab"), false),
            (at("/"), Identity::Device(device()), true),
            (at("/"), elsewhere.clone(), false),
            (elsewhere, Identity::Device(device()), false),
        ] {
            assert_eq!(a.shares_storage(&b), shares, "{a:?} {b:?}");
            assert_eq!(b.shares_storage(&a), shares, "{b:?} {a:?}");
            if shares {
                assert!(a.keys().iter().any(|key| b.keys().contains(key)));
            }
        }
    }

    #[test]
    fn kinds_never_match() {
        let (fs, dev) = (
            Identity::Filesystem(filesystem()),
            Identity::Device(device()),
        );
        assert_eq!(fs.compare(&dev), Likeness::Different("kind"));
    }

    #[test]
    fn identity_survives_json() {
        for identity in [
            Identity::Filesystem(filesystem()),
            Identity::Device(device()),
        ] {
            let text = serde_json::to_string(&identity).unwrap();
            assert_eq!(serde_json::from_str::<Identity>(&text).unwrap(), identity);
        }
        assert!(serde_json::from_str::<Identity>(r#"{"kind":"device","device":"x"}"#).is_err());
    }
}
