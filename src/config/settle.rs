//! From what was read to what is in force.
//!
//! What can't be used keeps its last good form: a class, a label, a whole key. Of classes whose
//! directories overlap one is refused, and it is never the one that was there before.

use std::collections::BTreeMap;
use std::path::Path;

use super::read::{Place, Reader};
use super::{Class, Config};
use crate::volume::ClassName;

/// The keys and values of a ConfigMap, read one by one.
#[derive(Debug, Default)]
pub(super) struct Draft {
    /// Whatever is not a class.
    pub(super) config: Config,
    /// Classes that are right in themselves, in the order of the text.
    pub(super) classes: Vec<(Place, Class)>,
    /// Classes that can't be used.
    pub(super) refused: BTreeMap<ClassName, Place>,
    /// Labels that can't be used.
    pub(super) refused_labels: BTreeMap<String, Place>,
    /// Whole keys that can't be used.
    pub(super) unusable: BTreeMap<&'static str, Place>,
    /// Where `removeNodeNotReadyTaint` stands.
    pub(super) taint_switch: Option<Place>,
    pub(super) reader: Reader,
}

impl Draft {
    /// Makes the configuration, with the last good form of what can't be used.
    pub(super) fn settle(mut self, last: &Config) -> Config {
        self.keep_keys(last);
        self.keep_labels(last);
        self.check_taint();
        self.config.classes = self.settle_classes(last);
        self.config.findings = self.reader.findings;
        self.config
            .findings
            .sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
        self.config
    }

    fn keep_keys(&mut self, last: &Config) {
        let config = &mut self.config;
        for (key, at) in &self.unusable {
            let before = config.clone();
            match *key {
                "nodeLabelsForPV" => config.node_labels.clone_from(&last.node_labels),
                "labelsForPV" => config.labels.clone_from(&last.labels),
                "useAlphaAPI" => config.use_alpha_api = last.use_alpha_api,
                "useJobForCleaning" => config.use_job_for_cleaning = last.use_job_for_cleaning,
                "jobTolerations" => config.job_tolerations.clone_from(&last.job_tolerations),
                "minResyncPeriod" => config.min_resync_period = last.min_resync_period,
                "useNodeNameOnly" => config.use_node_name_only = last.use_node_name_only,
                "setPVOwnerRef" => config.set_pv_owner_ref = last.set_pv_owner_ref,
                "removeNodeNotReadyTaint" => {
                    config.remove_not_ready_taint = last.remove_not_ready_taint;
                }
                "provisionerNotReadyNodeTaintKey" => {
                    config
                        .not_ready_taint_key
                        .clone_from(&last.not_ready_taint_key);
                }
                "whenClassGone" => config.class_gone.action = last.class_gone.action,
                "withdrawClassAfter" => config.class_gone.after = last.class_gone.after,
                // Its classes are kept one by one.
                _ => {}
            }
            if *config != before {
                say_kept(&mut self.reader, at);
            }
        }
    }

    fn keep_labels(&mut self, last: &Config) {
        for (key, at) in &self.refused_labels {
            if let Some(value) = last.labels.get(key) {
                self.config.labels.insert(key.clone(), value.clone());
                say_kept(&mut self.reader, at);
            }
        }
    }

    /// Upstream's chart has a default for the key, its program has none.
    fn check_taint(&mut self) {
        if self.config.remove_not_ready_taint
            && self.config.startup_taint().is_none()
            && let Some(at) = &self.taint_switch
        {
            let text = "removes nothing without provisionerNotReadyNodeTaintKey; set it to the taint's key";
            self.reader.warn(at, text);
        }
    }

    fn settle_classes(&mut self, last: &Config) -> BTreeMap<ClassName, Class> {
        if let Some(at) = self.unusable.get("storageClassMap") {
            if !last.classes.is_empty() {
                say_kept(&mut self.reader, at);
            }
            return last.classes.clone();
        }
        let mut settled: BTreeMap<ClassName, Class> = BTreeMap::new();
        let mut keep = std::mem::take(&mut self.refused);
        let (stay, change): (Vec<_>, Vec<_>) = std::mem::take(&mut self.classes)
            .into_iter()
            .partition(|(_, class)| {
                last.classes
                    .get(&class.name)
                    .is_some_and(|old| same_place(old, class))
            });
        for (at, class) in stay.into_iter().chain(change) {
            match settled.values().find(|other| overlaps(other, &class)) {
                Some(other) => {
                    let text = format!(
                        "its directory is that of class {}, or one is inside the other",
                        other.name
                    );
                    self.reader.error(&at, text);
                    keep.insert(class.name, at);
                }
                None => {
                    settled.insert(class.name.clone(), class);
                }
            }
        }
        for (name, at) in keep {
            let Some(class) = last.classes.get(&name) else {
                continue;
            };
            match settled.values().find(|other| overlaps(other, class)) {
                Some(other) => {
                    let text = format!("its last good form makes way for class {}", other.name);
                    self.reader.error(&at, text);
                }
                None => {
                    say_kept(&mut self.reader, &at);
                    settled.insert(name, class.clone());
                }
            }
        }
        settled
    }
}

fn say_kept(reader: &mut Reader, at: &Place) {
    reader.error(
        at,
        "not in force as written; its last good form stays in force",
    );
}

fn same_place(a: &Class, b: &Class) -> bool {
    a.host_dir == b.host_dir && a.mount_dir == b.mount_dir
}

fn overlaps(a: &Class, b: &Class) -> bool {
    let nested = |a: &Path, b: &Path| a.starts_with(b) || b.starts_with(a);
    nested(&a.host_dir, &b.host_dir) || nested(&a.mount_dir, &b.mount_dir)
}
