//! Which classes have to be looked at: set by any thread, taken by the owner. Marks coalesce, so that
//! a storm of kernel events costs one scan.

use std::collections::BTreeSet;
use std::sync::Mutex;

use tokio::sync::Notify;

use crate::node::watch::Dirt;
use crate::volume::ClassName;

/// The set of dirty classes.
#[derive(Debug)]
pub(super) struct Dirty {
    all: BTreeSet<ClassName>,
    marked: Mutex<BTreeSet<ClassName>>,
    changed: Notify,
}

impl Dirty {
    /// Every one of `classes` starts dirty.
    pub(super) fn new(classes: impl Iterator<Item = ClassName>) -> Self {
        let all: BTreeSet<_> = classes.collect();
        Self {
            marked: Mutex::new(all.clone()),
            all,
            changed: Notify::new(),
        }
    }

    /// Marks what an event is about.
    pub(super) fn mark(&self, dirt: Dirt) {
        let mut marked = self
            .marked
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        match dirt {
            Dirt::All => marked.clone_from(&self.all),
            Dirt::Class(class) => {
                marked.insert(class);
            }
        }
        self.changed.notify_one();
    }

    /// Takes all marks.
    pub(super) fn take(&self) -> BTreeSet<ClassName> {
        std::mem::take(
            &mut self
                .marked
                .lock()
                .unwrap_or_else(|poisoned| poisoned.into_inner()),
        )
    }

    /// Waits for the next mark. Cancel-safe: a mark that came in between is kept for the next call.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }
}
