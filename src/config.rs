//! The configuration: upstream's ConfigMap, mounted as a directory, read into checked types.
//!
//! [`load`] takes one consistent snapshot of the directory; [`parse`] reads upstream's dialect. A class
//! that is wrong is refused with a finding and does not take the others down. A [`Reloader`] follows the
//! directory; what an edit breaks keeps its last good form.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::volume::{ClassName, EntryName, VolumeMode};

mod cleaner;
mod duration;
mod keys;
mod load;
mod parse;
mod pattern;
mod read;
mod reload;
mod scalar;
mod selector;
mod settle;
mod syntax;
mod toleration;
mod yaml;

pub use cleaner::Cleaner;
pub use duration::GoDuration;
pub use load::{DEFAULT_DIR, LoadError, load, load_over};
pub use parse::{parse, parse_over};
pub use pattern::{NamePattern, PatternError};
pub use reload::{ReloadError, Reloader};
pub use selector::{Operator, Requirement, SelectorTerm};
pub use toleration::Toleration;

/// What is in force, and what was found wrong on the way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// The usable classes (contract CFG-10).
    pub classes: BTreeMap<ClassName, Class>,
    /// Node labels that are copied to each PersistentVolume (CFG-11).
    pub node_labels: Vec<String>,
    /// Labels of each PersistentVolume; they win over node labels (CFG-12).
    pub labels: BTreeMap<String, String>,
    /// The affinity of PersistentVolumes is an annotation, as before Kubernetes 1.10 (CFG-13).
    pub use_alpha_api: bool,
    /// Block devices are wiped by Jobs (CFG-14). Not in force.
    pub use_job_for_cleaning: bool,
    /// What those Jobs tolerate (CFG-15). Not in force.
    pub job_tolerations: Vec<Toleration>,
    /// How often upstream resynchronises (CFG-16). Everything is watched here; it has no effect.
    pub min_resync_period: Option<GoDuration>,
    /// The provisioner's name leaves out the node's UID (CFG-17).
    pub use_node_name_only: bool,
    /// PersistentVolumes are owned by their Node and go with it (CFG-18).
    pub set_pv_owner_ref: bool,
    /// The Node's startup taint goes once its volumes are offered (CFG-19).
    pub remove_not_ready_taint: bool,
    /// The key of that taint (CFG-20).
    pub not_ready_taint_key: Option<String>,
    /// What becomes of an Available volume whose class is not in the configuration.
    pub class_gone: GonePolicy,
    /// Everything that is wrong or odd, key by key.
    pub findings: Vec<Finding>,
}

impl Config {
    /// The key of the taints that go from the Node once its volumes are offered; `None` if none does.
    pub fn startup_taint(&self) -> Option<&str> {
        self.not_ready_taint_key
            .as_deref()
            .filter(|_| self.remove_not_ready_taint)
    }
}

/// One class, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// The StorageClass.
    pub name: ClassName,
    /// The discovery directory as the host and the kubelet see it: the prefix of `spec.local.path`
    /// (CFG-30). Absolute and normal.
    pub host_dir: PathBuf,
    /// The same directory as this process sees it (CFG-31). Absolute and normal.
    pub mount_dir: PathBuf,
    /// `spec.volumeMode` of its PersistentVolumes (CFG-33).
    pub volume_mode: VolumeMode,
    /// The one access mode of its PersistentVolumes (CFG-34).
    pub access_mode: String,
    /// `spec.local.fsType` (CFG-35).
    pub fs_type: Option<String>,
    /// Which entries are looked at (CFG-36).
    pub pattern: NamePattern,
    /// How its block devices are wiped (CFG-32).
    pub cleaner: Cleaner,
    /// Other nodes from which its volumes can be reached (CFG-37).
    pub selector: Vec<SelectorTerm>,
    /// A volume that holds something already is not offered. After a wipe of ours it holds nothing.
    pub require_empty: bool,
    /// What becomes of an Available volume whose entry is gone.
    pub gone: GonePolicy,
}

/// What becomes of a volume that nobody has claimed when what it stands for is gone, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GonePolicy {
    /// Whether it stays.
    pub action: WhenGone,
    /// For how long the entry or class is gone before the volume is withdrawn.
    pub after: Duration,
}

impl Default for GonePolicy {
    fn default() -> Self {
        Self {
            action: WhenGone::Keep,
            // Longer than a node takes to bring its disks back.
            after: Duration::from_secs(300),
        }
    }
}

impl GonePolicy {
    /// When a volume is withdrawn; `None` when it is kept.
    pub fn withdraw_after(self) -> Option<Duration> {
        (self.action == WhenGone::Withdraw).then_some(self.after)
    }
}

/// See [`GonePolicy::action`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenGone {
    /// It stays: what it stands for is expected back.
    #[default]
    Keep,
    /// Its PersistentVolume is deleted.
    Withdraw,
}

impl Config {
    /// What becomes of free volumes of `class` when their entry is gone, or the class itself. A class that
    /// is missing from a configuration with errors may be missing for those, and says nothing.
    pub fn gone_policy(&self, class: &ClassName) -> GonePolicy {
        let is_sound = || self.findings.iter().all(|f| f.severity < Severity::Error);
        match self.classes.get(class) {
            Some(class) => class.gone,
            None if is_sound() => self.class_gone,
            None => GonePolicy::default(),
        }
    }
}

impl Class {
    /// A class with everything else at its default.
    pub fn new(name: ClassName, host_dir: PathBuf, mount_dir: PathBuf) -> Self {
        Self {
            name,
            host_dir,
            mount_dir,
            volume_mode: VolumeMode::default(),
            access_mode: "ReadWriteOnce".to_owned(),
            fs_type: None,
            pattern: NamePattern::default(),
            cleaner: Cleaner::Zero,
            selector: Vec::new(),
            require_empty: false,
            gone: GonePolicy::default(),
        }
    }

    /// `spec.local.path` for `entry` (contract PV-07).
    pub fn host_path(&self, entry: &EntryName) -> String {
        self.host_dir
            .join(entry.as_str())
            .to_string_lossy()
            .into_owned()
    }

    /// Where this process finds `entry`.
    pub fn mount_path(&self, entry: &EntryName) -> PathBuf {
        self.mount_dir.join(entry.as_str())
    }

    /// The entry that a `spec.local.path` stands for: `None` unless it is a direct child of the
    /// class's directory, spelled in the one normal way.
    pub fn entry_of(&self, path: &str) -> Option<EntryName> {
        let host_dir = self.host_dir.to_str()?;
        let rest = path.strip_prefix(host_dir)?;
        let name = if host_dir == "/" {
            rest
        } else {
            rest.strip_prefix('/')?
        };
        EntryName::parse(name.as_ref()).ok()
    }
}

/// The JSON schema of the ConfigMap's data.
pub const SCHEMA: &str = include_str!("../config/schema.json");

/// How much a [`Finding`] matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Something works differently from what somebody may expect.
    Warning,
    /// A class or a key is not in force.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

/// Something wrong or odd in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// The key of the ConfigMap, which is the name of a file in the mounted directory.
    pub file: String,
    /// Where in it: `storageClassMap.fast.hostDir`.
    pub key: String,
    /// The line of the file, from 1.
    pub line: usize,
    /// What, and what to do.
    pub text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            severity,
            key,
            line,
            text,
            ..
        } = self;
        write!(f, "{severity}: {key} (line {line}): {text}")
    }
}

#[cfg(test)]
mod tests;
