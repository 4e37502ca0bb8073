//! Which classes have to be looked at: set by any thread, taken by the owner. Marks coalesce, so that
//! a storm of kernel events costs one scan.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::node::watch::Dirt;
use crate::volume::ClassName;

/// The set of dirty classes.
#[derive(Debug)]
pub(super) struct Dirty {
    classes: Mutex<Classes>,
    changed: Notify,
}

#[derive(Debug)]
struct Classes {
    all: BTreeSet<ClassName>,
    marked: BTreeSet<ClassName>,
}

impl Dirty {
    /// Every one of `classes` starts dirty.
    pub(super) fn new(classes: impl Iterator<Item = ClassName>) -> Self {
        let all: BTreeSet<_> = classes.collect();
        let marked = all.clone();
        Self {
            classes: Mutex::new(Classes { all, marked }),
            changed: Notify::new(),
        }
    }

    /// There are other classes from now on; none of them is dirty for that.
    pub(super) fn follow(&self, all: BTreeSet<ClassName>) {
        self.lock().all = all;
    }

    /// Marks what an event is about.
    pub(super) fn mark(&self, dirt: Dirt) {
        let mut classes = self.lock();
        match dirt {
            Dirt::All => classes.marked = classes.all.clone(),
            Dirt::Class(class) => {
                classes.marked.insert(class);
            }
        }
        drop(classes);
        self.changed.notify_one();
    }

    /// Takes all marks.
    pub(super) fn take(&self) -> BTreeSet<ClassName> {
        std::mem::take(&mut self.lock().marked)
    }

    fn lock(&self) -> MutexGuard<'_, Classes> {
        self.classes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next mark. Cancel-safe: a mark that came in between is kept for the next call.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }
}
