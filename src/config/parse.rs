//! Upstream's dialect: one YAML document a key, read leniently where upstream is lenient.
//!
//! Reading gives a [`Draft`]: what can be used, and the names of what can't. [`Draft::settle`] makes
//! the configuration of it.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use super::read::{Field, Place, Reader};
use super::settle::Draft;
use super::yaml::{self, Node};
use super::{
    Class, Cleaner, Config, GoDuration, NamePattern, WhenGone, keys, selector, syntax, toleration,
};
use crate::volume::ClassName;

/// The access modes of the Kubernetes API; the first is upstream's default.
const ACCESS_MODES: [&str; 4] = [
    "ReadWriteOnce",
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOncePod",
];

/// Reads the keys and values of the ConfigMap. Never fails: what can't be used is a finding.
pub fn parse(values: &BTreeMap<String, String>) -> Config {
    parse_over(values, &Config::default())
}

/// As [`parse`], but what can't be used stays as it is in `last`, the configuration in force.
pub fn parse_over(values: &BTreeMap<String, String>, last: &Config) -> Config {
    draft(values).settle(last)
}

fn draft(values: &BTreeMap<String, String>) -> Draft {
    let mut draft = Draft::default();
    let mut seen: BTreeMap<&str, Place> = BTreeMap::new();
    for (file, text) in values {
        let Some(name) = keys::find(&keys::TOP, file) else {
            draft
                .reader
                .unknown(&Place::file(file, 1), file, &keys::TOP);
            continue;
        };
        let (at, node) = match yaml::parse(text) {
            Ok(Some(node)) => (Place::file(file, node.line), node),
            Ok(None) => continue,
            Err(error) => {
                let at = Place::file(file, error.line);
                draft.reader.error(&at, format!("not YAML: {}", error.text));
                draft.unusable.insert(name, at);
                continue;
            }
        };
        if let Some(earlier) = seen.insert(name, at.clone()) {
            draft
                .reader
                .warn(&earlier, format!("{file} counts instead"));
        }
        if node.is_null() {
            continue;
        }
        if draft.key(name, &at, &node).is_none() {
            draft.unusable.insert(name, at);
        }
    }
    draft
}

impl Draft {
    /// Reads one key; `None` when it can't be used as a whole.
    fn key(&mut self, name: &str, at: &Place, node: &Node) -> Option<()> {
        let (reader, config) = (&mut self.reader, &mut self.config);
        match name {
            "storageClassMap" => return self.classes(at, node),
            "labelsForPV" => return self.labels(at, node),
            "nodeLabelsForPV" => {
                config.node_labels = reader.faultless(|r| node_labels(r, at, node))??;
            }
            "useAlphaAPI" => {
                config.use_alpha_api = reader.boolean(at, node)?;
                if config.use_alpha_api {
                    let text =
                        "API servers since Kubernetes 1.10 refuse local volumes in this form";
                    reader.warn(at, format!("{text}; take the key out"));
                }
            }
            "useNodeNameOnly" => config.use_node_name_only = reader.boolean(at, node)?,
            "setPVOwnerRef" => config.set_pv_owner_ref = reader.boolean(at, node)?,
            "useJobForCleaning" => {
                config.use_job_for_cleaning = reader.boolean(at, node)?;
                if config.use_job_for_cleaning {
                    reader.warn(at, "not in force: volumes are wiped by the daemon itself");
                }
            }
            "jobTolerations" => {
                config.job_tolerations = reader.faultless(|r| toleration::read(r, at, node))??;
                if !config.job_tolerations.is_empty() {
                    reader.warn(at, "not in force: volumes are wiped by the daemon itself");
                }
            }
            "minResyncPeriod" => {
                let text = match &node.value {
                    yaml::Value::Scalar(super::scalar::Scalar::Text(text)) => text,
                    _ => {
                        reader.error(at, "must be a duration like 5m or 1h30m");
                        return None;
                    }
                };
                let parsed = text
                    .parse()
                    .map_err(|why: String| reader.error(at, why))
                    .ok()?;
                config.min_resync_period = Some(parsed);
            }
            "removeNodeNotReadyTaint" => {
                config.remove_not_ready_taint = reader.boolean(at, node)?;
                self.taint_switch = Some(at.clone());
            }
            "provisionerNotReadyNodeTaintKey" => {
                config.not_ready_taint_key =
                    reader.faultless(|r| r.parsed(at, node, toleration::key))?;
            }
            "whenClassGone" => {
                if let Some(action) = reader.faultless(|r| r.parsed(at, node, when_gone))? {
                    config.class_gone.action = action;
                }
            }
            "withdrawClassAfter" => {
                if let Some(after) =
                    reader.faultless(|r| r.parsed(at, node, GoDuration::read_wait))?
                {
                    config.class_gone.after = after;
                }
            }
            other => unreachable!("{other} is in the table of keys"),
        }
        Some(())
    }

    fn classes(&mut self, at: &Place, node: &Node) -> Option<()> {
        let map = self.reader.map(at, node)?;
        for entry in &map.entries {
            let at = at.key(&entry.key, entry.line);
            let read = |reader: &mut Reader| class(reader, &at, &entry.key, &entry.value);
            match self.reader.faultless(read).flatten() {
                Some(class) => self.classes.push((at, class)),
                None => {
                    self.refused.insert(ClassName::new(&entry.key), at);
                }
            }
        }
        Some(())
    }

    fn labels(&mut self, at: &Place, node: &Node) -> Option<()> {
        let map = self.reader.map(at, node)?;
        for entry in &map.entries {
            let at = at.key(&entry.key, entry.line);
            let read = |reader: &mut Reader| {
                let value = reader.text(&at, &entry.value)?;
                if !syntax::is_label_key(&entry.key) {
                    reader.error(&at, format!("{:?} can't be the key of a label", entry.key));
                }
                if !syntax::is_label_value(&value) {
                    reader.error(&at, format!("{value:?} can't be the value of a label"));
                }
                Some(value)
            };
            match self.reader.faultless(read).flatten() {
                Some(value) => {
                    self.config.labels.insert(entry.key.clone(), value);
                }
                None => {
                    self.refused_labels.insert(entry.key.clone(), at);
                }
            }
        }
        Some(())
    }
}

fn node_labels(reader: &mut Reader, at: &Place, node: &Node) -> Option<Vec<String>> {
    let labels = reader.texts(at, node)?;
    for label in labels.iter().filter(|label| !syntax::is_label_key(label)) {
        reader.error(at, format!("{label:?} can't be the key of a label"));
    }
    Some(labels)
}

/// Reads a class. When it can't be used, why is among the findings.
fn class(reader: &mut Reader, at: &Place, name: &str, node: &Node) -> Option<Class> {
    if !syntax::is_subdomain(name) {
        reader.error(at, format!("{name:?} can't be the name of a StorageClass"));
    }
    let mut class = Class::new(ClassName::new(name), PathBuf::new(), PathBuf::new());
    let fields = reader.fields(at, node, &keys::CLASS)?;
    for field in &fields {
        setting(reader, &mut class, field);
    }
    for key in ["hostDir", "mountDir"] {
        if !fields.iter().any(|field| field.name == key) {
            reader.error(
                at,
                format!("{key} is missing; hostDir and mountDir are both required"),
            );
        }
    }
    Some(class)
}

fn setting(reader: &mut Reader, class: &mut Class, field: &Field<'_>) {
    let (at, node) = (&field.place, field.value);
    match field.name {
        "hostDir" => class.host_dir = directory(reader, at, node).unwrap_or_default(),
        "mountDir" => class.mount_dir = directory(reader, at, node).unwrap_or_default(),
        "volumeMode" => {
            class.volume_mode = reader.parsed(at, node, str::parse).unwrap_or_default();
        }
        "accessMode" => {
            if let Some(mode) = reader.parsed(at, node, access_mode) {
                class.access_mode = mode;
            }
        }
        "fsType" => class.fs_type = reader.text(at, node).filter(|text| !text.is_empty()),
        "namePattern" => {
            class.pattern = reader
                .parsed(at, node, NamePattern::parse)
                .unwrap_or_default();
            if let Some(fixed) = class.pattern.without_space() {
                let text = "white space is part of a glob, so that it never matches";
                reader.warn(at, format!("{text}; write {fixed:?}"));
            }
        }
        "blockCleanerCommand" => {
            let Some(words) = reader.texts(at, node) else {
                return;
            };
            match Cleaner::parse(&words) {
                Ok(cleaner) => class.cleaner = cleaner,
                Err(why) => reader.error(at, why),
            }
        }
        "selector" => class.selector = selector::read(reader, at, node).unwrap_or_default(),
        "requireEmpty" => class.require_empty = reader.boolean(at, node).unwrap_or_default(),
        "whenGone" => {
            class.gone.action = reader.parsed(at, node, when_gone).unwrap_or_default();
        }
        "withdrawAfter" => {
            if let Some(after) = reader.parsed(at, node, GoDuration::read_wait) {
                class.gone.after = after;
            }
        }
        other => unreachable!("{other} is in the table of keys"),
    }
}

fn when_gone(text: &str) -> Result<WhenGone, String> {
    match text {
        "keep" => Ok(WhenGone::Keep),
        "withdraw" => Ok(WhenGone::Withdraw),
        other => Err(format!("{other:?} is neither keep nor withdraw")),
    }
}

/// An absolute path, made normal.
fn directory(reader: &mut Reader, at: &Place, node: &Node) -> Option<PathBuf> {
    let text = reader.text(at, node)?;
    let Some(path) = normal(&text) else {
        reader.error(at, format!("{text:?} is not an absolute path without .."));
        return None;
    };
    if path.as_os_str() != text.as_str() {
        reader.warn(at, format!("read as {}", path.display()));
    }
    Some(path)
}

/// The path without doubled slashes and dots; `None` when it is relative or climbs.
fn normal(text: &str) -> Option<PathBuf> {
    let path = Path::new(text);
    let climbs = path.components().any(|part| part == Component::ParentDir);
    (path.is_absolute() && !climbs && !text.contains('\0')).then(|| path.components().collect())
}

fn access_mode(text: &str) -> Result<String, String> {
    match ACCESS_MODES.contains(&text) {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "{text:?} is not an access mode; one of {}",
            ACCESS_MODES.join(", ")
        )),
    }
}
