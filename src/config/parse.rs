//! Upstream's dialect: one YAML document a key, read leniently where upstream is lenient.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use serde_json::{Map, Value};

use super::{Class, Cleaner, Config, Finding, NamePattern, Severity};
use crate::volume::ClassName;

/// The access modes of the Kubernetes API.
const ACCESS_MODES: [&str; 4] = [
    "ReadWriteOnce",
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOncePod",
];

/// Keys of upstream that this version reads past, and what that means.
const NOT_IN_FORCE: [(&str, &str); 7] = [
    (
        "useAlphaAPI",
        "the affinity always goes to spec.nodeAffinity",
    ),
    (
        "useJobForCleaning",
        "volumes are wiped by the daemon itself",
    ),
    ("jobTolerations", "volumes are wiped by the daemon itself"),
    (
        "minResyncPeriod",
        "changes are watched, nothing is resynchronised",
    ),
    ("removeNodeNotReadyTaint", "no taint is removed"),
    ("provisionerNotReadyNodeTaintKey", "no taint is removed"),
    (
        "selector",
        "PersistentVolumes are bound to their node's hostname alone",
    ),
];

/// Reads the keys and values of the ConfigMap. Never fails: what can't be used is a finding.
pub fn parse(values: &BTreeMap<String, String>) -> Config {
    let mut reader = Reader::default();
    let mut config = Config::default();
    for (key, text) in values {
        let value = match serde_saphyr::from_str::<Value>(text) {
            Ok(value) => value,
            Err(error) => {
                let text = error.to_string();
                let line = text.lines().next().unwrap_or_default();
                reader.error(key, format!("not YAML: {line}"));
                continue;
            }
        };
        if value.is_null() {
            continue;
        }
        match key.to_ascii_lowercase().as_str() {
            "storageclassmap" => config.classes = reader.classes(key, &value),
            "nodelabelsforpv" => {
                config.node_labels = reader.strings(key, &value).unwrap_or_default();
            }
            "labelsforpv" => config.labels = reader.labels(key, &value),
            "usenodenameonly" => {
                config.use_node_name_only = reader.boolean(key, &value).unwrap_or_default();
            }
            "setpvownerref" => {
                config.set_pv_owner_ref = reader.boolean(key, &value).unwrap_or_default();
            }
            _ => reader.unread(key, key, &value),
        }
    }
    config.findings = reader.findings;
    config
}

/// Collects findings while values are read.
#[derive(Default)]
struct Reader {
    findings: Vec<Finding>,
}

impl Reader {
    fn error(&mut self, key: &str, text: impl Into<String>) {
        self.find(Severity::Error, key, text);
    }

    fn warn(&mut self, key: &str, text: impl Into<String>) {
        self.find(Severity::Warning, key, text);
    }

    fn find(&mut self, severity: Severity, key: &str, text: impl Into<String>) {
        self.findings.push(Finding {
            severity,
            key: key.to_owned(),
            text: text.into(),
        });
    }

    /// A key that has no effect: upstream's, or nobody's.
    fn unread(&mut self, key: &str, name: &str, value: &Value) {
        let known = NOT_IN_FORCE
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name));
        match known {
            Some(_) if value == &Value::Bool(false) => {}
            Some((_, why)) => self.warn(key, format!("not in force in this version: {why}")),
            None => self.warn(key, "unknown key, ignored"),
        }
    }

    fn classes(&mut self, key: &str, value: &Value) -> BTreeMap<ClassName, Class> {
        let Some(map) = value.as_object() else {
            self.error(key, "must be a map of StorageClass names to their settings");
            return BTreeMap::new();
        };
        let mut classes: BTreeMap<ClassName, Class> = BTreeMap::new();
        for (name, settings) in map {
            let path = format!("{key}.{name}");
            let Some(settings) = settings.as_object() else {
                self.error(&path, "must be a map of settings");
                continue;
            };
            let Some(class) = self.class(&path, name, settings) else {
                continue;
            };
            if let Some(other) = classes.values().find(|other| overlaps(other, &class)) {
                self.error(
                    &path,
                    format!(
                        "its directory is that of class {}, or one inside the other",
                        other.name
                    ),
                );
                continue;
            }
            classes.insert(class.name.clone(), class);
        }
        classes
    }

    /// `None` when the class can't be used; why is then among the findings.
    fn class(&mut self, path: &str, name: &str, settings: &Map<String, Value>) -> Option<Class> {
        let before = self.errors();
        if !is_dns_subdomain(name) {
            self.error(
                path,
                format!("{name:?} can't be the name of a StorageClass"),
            );
        }
        let (mut host_dir, mut mount_dir) = (None, None);
        let (mut volume_mode, mut fs_type) = (None, None);
        let mut access_mode = None;
        let (mut pattern, mut cleaner) = (NamePattern::default(), Cleaner::Zero);
        for (key, value) in settings.iter().filter(|(_, value)| !value.is_null()) {
            let at = format!("{path}.{key}");
            match key.to_ascii_lowercase().as_str() {
                "hostdir" => host_dir = self.directory(&at, value),
                "mountdir" => mount_dir = self.directory(&at, value),
                "volumemode" => volume_mode = self.parsed(&at, value, str::parse),
                "accessmode" => access_mode = self.parsed(&at, value, access),
                "fstype" => fs_type = self.string(&at, value).filter(|text| !text.is_empty()),
                "namepattern" => {
                    pattern = self
                        .parsed(&at, value, NamePattern::parse)
                        .unwrap_or_default();
                }
                "blockcleanercommand" => {
                    let words = self.strings(&at, value).unwrap_or_default();
                    match Cleaner::parse(&words) {
                        Ok(parsed) => cleaner = parsed,
                        Err(why) => self.error(&at, why),
                    }
                }
                _ => self.unread(&at, key, value),
            }
        }
        if self.errors() > before {
            return None;
        }
        let (Some(host_dir), Some(mount_dir)) = (host_dir, mount_dir) else {
            self.error(path, "hostDir and mountDir are both required");
            return None;
        };
        Some(Class {
            name: ClassName::new(name),
            host_dir,
            mount_dir,
            volume_mode: volume_mode.unwrap_or_default(),
            access_mode: access_mode.unwrap_or_else(|| ACCESS_MODES[0].to_owned()),
            fs_type,
            pattern,
            cleaner,
        })
    }

    fn errors(&self) -> usize {
        self.findings
            .iter()
            .filter(|f| f.severity == Severity::Error)
            .count()
    }

    /// An absolute path, made normal.
    fn directory(&mut self, key: &str, value: &Value) -> Option<PathBuf> {
        let text = self.string(key, value)?;
        let Some(path) = normal(&text) else {
            self.error(key, format!("{text:?} is not an absolute path without .."));
            return None;
        };
        if path.as_os_str() != text.as_str() {
            self.warn(key, format!("read as {}", path.display()));
        }
        Some(path)
    }

    fn parsed<T, E: ToString>(
        &mut self,
        key: &str,
        value: &Value,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Option<T> {
        let text = self.string(key, value).filter(|text| !text.is_empty())?;
        parse(&text)
            .map_err(|error| self.error(key, error.to_string()))
            .ok()
    }

    /// A scalar as text (contract CFG-06).
    fn string(&mut self, key: &str, value: &Value) -> Option<String> {
        match value {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            Value::Bool(flag) => Some(flag.to_string()),
            Value::Null => Some(String::new()),
            Value::Array(_) | Value::Object(_) => {
                self.error(key, "must be text");
                None
            }
        }
    }

    fn strings(&mut self, key: &str, value: &Value) -> Option<Vec<String>> {
        let Some(items) = value.as_array() else {
            self.error(key, "must be a list");
            return None;
        };
        items.iter().map(|item| self.string(key, item)).collect()
    }

    fn labels(&mut self, key: &str, value: &Value) -> BTreeMap<String, String> {
        let Some(map) = value.as_object() else {
            self.error(key, "must be a map of labels");
            return BTreeMap::new();
        };
        map.iter()
            .filter_map(|(label, value)| {
                let text = self.string(&format!("{key}.{label}"), value)?;
                Some((label.clone(), text))
            })
            .collect()
    }

    /// YAML 1.1 booleans (contract CFG-05).
    fn boolean(&mut self, key: &str, value: &Value) -> Option<bool> {
        match value {
            Value::Bool(flag) => return Some(*flag),
            Value::String(text) => match text.to_ascii_lowercase().as_str() {
                "true" | "yes" | "on" | "y" => return Some(true),
                "false" | "no" | "off" | "n" => return Some(false),
                _ => {}
            },
            _ => {}
        }
        self.error(key, "must be true or false");
        None
    }
}

fn access(text: &str) -> Result<String, String> {
    match ACCESS_MODES.contains(&text) {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "{text:?} is not an access mode; one of {}",
            ACCESS_MODES.join(", ")
        )),
    }
}

/// The path without doubled slashes and dots; `None` when it is relative or climbs.
fn normal(text: &str) -> Option<PathBuf> {
    let path = Path::new(text);
    let climbs = path.components().any(|part| part == Component::ParentDir);
    (path.is_absolute() && !climbs).then(|| path.components().collect())
}

fn overlaps(a: &Class, b: &Class) -> bool {
    let nested = |a: &Path, b: &Path| a.starts_with(b) || b.starts_with(a);
    nested(&a.host_dir, &b.host_dir) || nested(&a.mount_dir, &b.mount_dir)
}

/// DNS-1123 subdomain, which the name of every StorageClass is.
fn is_dns_subdomain(name: &str) -> bool {
    let alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    name.len() <= 253
        && name.split('.').all(|label| {
            label.starts_with(alphanumeric)
                && label.ends_with(alphanumeric)
                && label.chars().all(|c| alphanumeric(c) || c == '-')
        })
}
