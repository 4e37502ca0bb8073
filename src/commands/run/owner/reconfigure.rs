//! A new configuration comes into force while everything that runs goes on.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{Owner, Tools};
use crate::config::Config;
use crate::node::watch::Dirt;
use crate::volume::ClassName;

/// A new class is looked at when its StorageClass is heard of, or this much later: else it would be
/// refused for a moment, and the refusal said, only because the API server has to be asked anew.
const FACTS_FIRST: Duration = Duration::from_secs(1);

impl Owner {
    /// Plans by `config` from now on. Workers that run finish by the one that they began with; a wipe
    /// of a class that is gone is finished too, because its data was promised to be.
    pub(super) fn reconfigure(&mut self, config: &Arc<Config>) {
        let now = Instant::now();
        let old = std::mem::replace(&mut self.config, Arc::clone(config));
        self.report.reconfigured(config);
        self.tools = Arc::new(Tools {
            config: Arc::clone(config),
            ..Tools::clone(&self.tools)
        });
        let names: BTreeSet<ClassName> = config.classes.keys().cloned().collect();
        self.dirty.follow(names.clone());
        self.names.send_if_modified(|known| {
            let changed = *known != names;
            *known = names;
            changed
        });
        // What was found by another definition of a class says nothing about this one.
        let is_same = |name: &ClassName| {
            let class = config.classes.get(name);
            class.is_some() && class == old.classes.get(name)
        };
        self.scans.retain(|name, _| is_same(name));
        self.scan_after.retain(|name, _| is_same(name));
        for name in config.classes.keys().filter(|name| !is_same(name)) {
            if !old.classes.contains_key(name) {
                self.scan_after.insert(name.clone(), now + FACTS_FIRST);
            }
            self.dirty.mark(Dirt::Class(name.clone()));
        }
        // The old configuration may have been why a step failed.
        self.retries.hurry_all(now);
        self.changed = true;
        self.stale = true;
    }
}
