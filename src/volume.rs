//! The words of Provisor as types, without any I/O.
//!
//! A *class* has a discovery directory; a name in it is an *entry*; an entry that passes inspection
//! is a *volume* with a capacity and an *identity*. Whatever does not pass is a *refusal* with a
//! reason from one closed list, which is also the metric label and the Event reason.

use std::ffi::OsStr;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

mod identity;
mod reason;

pub use identity::{DevNum, DeviceIdentity, FilesystemIdentity, Identity, Likeness};
pub use reason::{Reason, Refusal};

/// The name of a StorageClass, which is also the key of its class in the configuration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClassName(String);

impl ClassName {
    /// Wraps `name` as it stands in the configuration.
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ClassName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One name in a discovery directory that can safely be part of `spec.local.path`.
///
/// The kubelet does not decode the octal escapes of mountinfo and passes paths through format
/// strings, so names with white space, backslash, `%` or control characters would be misread by it;
/// they are refused here, and so is whatever is not exactly one path component of UTF-8.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct EntryName(String);

impl EntryName {
    /// Checks a raw directory entry name.
    ///
    /// # Errors
    /// A [`Refusal`] with [`Reason::BadName`] that names the offending character.
    pub fn parse(raw: &OsStr) -> Result<Self, Refusal> {
        let refuse = |why: String| Err(Refusal::new(Reason::BadName, why));
        let Some(name) = raw.to_str() else {
            return refuse("the name is not UTF-8, which a PersistentVolume path must be".into());
        };
        if name.is_empty() || name == "." || name == ".." || name.contains('/') {
            return refuse(format!("{name:?} is not one path component"));
        }
        let misread = |c: &char| c.is_whitespace() || c.is_control() || *c == '\\' || *c == '%';
        if let Some(bad) = name.chars().find(misread) {
            return refuse(format!(
                "the kubelet misreads {bad:?} in a path; rename the entry without it"
            ));
        }
        Ok(Self(name.to_owned()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EntryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// `spec.volumeMode` of a PersistentVolume.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum VolumeMode {
    /// The Pod sees a directory.
    #[default]
    Filesystem,
    /// The Pod sees a block device.
    Block,
}

impl VolumeMode {
    /// The spelling of the Kubernetes API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Filesystem => "Filesystem",
            Self::Block => "Block",
        }
    }
}

impl fmt::Display for VolumeMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for VolumeMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "Filesystem" => Ok(Self::Filesystem),
            "Block" => Ok(Self::Block),
            other => Err(format!(
                "volumeMode {other:?} is neither Filesystem nor Block"
            )),
        }
    }
}

/// What an entry is on disk, whatever mode its class offers it in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum Medium {
    /// A mount point: offered in mode Filesystem, wiped by removing its contents.
    Mount,
    /// A block device or a link to one: offered in mode Block, or in mode Filesystem when the class
    /// lets the kubelet format it; wiped as a device in both.
    Device,
}

/// An entry that passed inspection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Volume {
    /// Its name in the discovery directory.
    pub entry: EntryName,
    /// What it is on disk.
    pub medium: Medium,
    /// Whole size in bytes, not yet rounded for the PersistentVolume.
    pub capacity_bytes: u64,
    /// What the storage is, whatever path leads to it.
    pub identity: Identity,
    /// Mount flags that the kubelet's bind mount would drop (`nosuid`, `nodev`, `noexec`, ...), to be
    /// carried in `spec.mountOptions`. Sorted; empty for devices.
    pub mount_flags: Vec<String>,
    /// What is on it already, in words, if its class wants only empty ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contents: Option<String>,
}

/// The outcome of inspecting one entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Found {
    /// It can be offered.
    Volume(Volume),
    /// It can't, and why.
    Refused {
        /// The entry's name, made printable.
        entry: String,
        /// Why it is not a volume.
        refusal: Refusal,
    },
}

impl Found {
    /// The entry's name, made printable.
    pub fn name(&self) -> &str {
        match self {
            Self::Volume(volume) => volume.entry.as_str(),
            Self::Refused { entry, .. } => entry,
        }
    }
}

/// The outcome of inspecting one class's directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Scan {
    /// The directory was read; one outcome for each entry that matches the name pattern.
    Entries(Vec<Found>),
    /// The directory itself can't be used; nothing is known about its entries.
    Refused(Refusal),
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn ordinary_names_are_entry_names() {
        for name in [
            "vol1",
            "nvme-eui.0025388b91",
            "disk_1.ext4",
            "ünïcode",
            "a:b,c=d",
        ] {
            assert_eq!(EntryName::parse(OsStr::new(name)).unwrap().as_str(), name);
        }
    }

    #[test]
    fn names_that_the_kubelet_misreads_are_refused() {
        let bad: [&[u8]; 11] = [
            b"", b".", b"..", b"a/b", b"a b", b"a\tb", b"a\nb", b"a\\b", b"50%", b"\x7f", b"\xff",
        ];
        for name in bad {
            let refusal = EntryName::parse(OsStr::from_bytes(name)).unwrap_err();
            assert_eq!(refusal.reason, Reason::BadName, "{name:?}");
        }
    }
}
