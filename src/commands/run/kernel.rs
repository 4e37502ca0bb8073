//! The watch over the kernel's side, which begins anew when the configuration has other directories.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::dirty::Dirty;
use crate::config::Config;
use crate::error::Chain;
use crate::node::watch::{Dirt, Watch, WatchError};
use crate::serve::SourceStatus;
use crate::volume::ClassName;

/// Marks classes dirty for as long as it lives.
pub(super) struct Kernel {
    watch: Watch,
    targets: Vec<(ClassName, PathBuf)>,
    dirty: Arc<Dirty>,
}

impl Kernel {
    pub(super) fn start(config: &Config, dirty: Arc<Dirty>) -> Result<Self, WatchError> {
        let targets = targets(config);
        let watch = start(targets.clone(), &dirty)?;
        Ok(Self {
            watch,
            targets,
            dirty,
        })
    }

    /// What tells of changes, for `/status`.
    pub(super) fn sources(&self) -> Vec<SourceStatus> {
        let working = self.watch.sources().iter().map(|name| SourceStatus {
            name: (*name).to_owned(),
            working: true,
            detail: String::new(),
        });
        let broken = self
            .watch
            .warnings()
            .into_iter()
            .map(|detail| SourceStatus {
                name: "kernel".to_owned(),
                working: false,
                detail,
            });
        working.chain(broken).collect()
    }

    /// Follows the configuration until `cancel`.
    pub(super) async fn run(
        mut self,
        mut configs: watch::Receiver<Arc<Config>>,
        cancel: CancellationToken,
    ) {
        // Cancel-safe: what is cut short is only a watch that nobody needs any more.
        while let Some(Ok(())) = cancel.run_until_cancelled(configs.changed()).await {
            let targets = targets(&configs.borrow_and_update());
            if targets != self.targets {
                self.retarget(targets).await;
            }
        }
        // Its end waits for its thread, which a dead filesystem may hold.
        tokio::task::spawn_blocking(move || drop(self));
    }

    /// Watches other directories. The new watch begins before the old one ends, and what happened while
    /// it began is looked for.
    async fn retarget(&mut self, targets: Vec<(ClassName, PathBuf)>) {
        let (dirty, wanted) = (Arc::clone(&self.dirty), targets.clone());
        let started = tokio::task::spawn_blocking(move || start(wanted, &dirty)).await;
        match started {
            Ok(Ok(watch)) => {
                debug!(directories = targets.len(), "watching anew");
                let old = std::mem::replace(&mut self.watch, watch);
                tokio::task::spawn_blocking(move || drop(old));
                self.targets = targets;
                self.dirty.mark(Dirt::All);
            }
            Ok(Err(error)) => warn!(error = %Chain(&error), "can't watch the new directories"),
            Err(error) => warn!(%error, "can't watch the new directories"),
        }
    }
}

fn targets(config: &Config) -> Vec<(ClassName, PathBuf)> {
    config
        .classes
        .values()
        .map(|class| (class.name.clone(), class.mount_dir.clone()))
        .collect()
}

fn start(targets: Vec<(ClassName, PathBuf)>, dirty: &Arc<Dirty>) -> Result<Watch, WatchError> {
    let dirty = Arc::clone(dirty);
    let watch = Watch::start(targets, move |dirt| dirty.mark(dirt))?;
    for warning in watch.warnings() {
        warn!("{warning}");
    }
    Ok(watch)
}
