//! The watch over the kernel's side, which begins anew when the configuration has other directories.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::dirty::Dirty;
use crate::config::Config;
use crate::error::Chain;
use crate::node::watch::{Dirt, Sources, Watch, WatchError};
use crate::volume::ClassName;

/// Directories are compared with what their paths lead to at this interval: a renamed ancestor makes no event.
const RECHECK: Duration = Duration::from_secs(300);

/// Directories that could not be watched are tried again after so long.
const RETRY: Duration = Duration::from_secs(30);

/// Marks classes dirty for as long as it lives.
pub(super) struct Kernel {
    watch: Watch,
    targets: Vec<(ClassName, PathBuf)>,
    dirty: Arc<Dirty>,
    sources: watch::Sender<Sources>,
}

impl Kernel {
    pub(super) fn start(config: &Config, dirty: Arc<Dirty>) -> Result<Self, WatchError> {
        let targets = targets(config);
        let watch = start(targets.clone(), &dirty)?;
        let sources = watch::Sender::new(watch.sources().clone());
        Ok(Self {
            watch,
            targets,
            dirty,
            sources,
        })
    }

    /// What tells of changes, for `/status`.
    pub(super) fn sources(&self) -> watch::Receiver<Sources> {
        self.sources.subscribe()
    }

    /// Follows the configuration until `cancel`.
    pub(super) async fn run(
        mut self,
        mut configs: watch::Receiver<Arc<Config>>,
        cancel: CancellationToken,
    ) {
        loop {
            let wanted = targets(&configs.borrow_and_update());
            let is_watched = wanted == self.targets || self.retarget(wanted).await;
            let pause = if is_watched { RECHECK } else { RETRY };
            // Cancel-safe: what is cut short is only a wait.
            tokio::select! {
                () = cancel.cancelled() => break,
                changed = configs.changed() => if changed.is_err() {
                    break;
                },
                () = tokio::time::sleep(pause) => self.watch.recheck(),
            }
        }
        // Its end waits for its thread, which a dead filesystem may hold.
        tokio::task::spawn_blocking(move || drop(self));
    }

    /// Watches other directories, and says whether it does. The new watch begins before the old one ends,
    /// and what happened while it began is looked for.
    async fn retarget(&mut self, targets: Vec<(ClassName, PathBuf)>) -> bool {
        let (dirty, wanted) = (Arc::clone(&self.dirty), targets.clone());
        let started = tokio::task::spawn_blocking(move || start(wanted, &dirty)).await;
        let watch = match started {
            Ok(Ok(watch)) => watch,
            Ok(Err(error)) => {
                warn!(error = %Chain(&error), "can't watch the new directories");
                return false;
            }
            Err(error) => {
                warn!(%error, "can't watch the new directories");
                return false;
            }
        };
        debug!(directories = targets.len(), "watching anew");
        self.sources.send_replace(watch.sources().clone());
        let old = std::mem::replace(&mut self.watch, watch);
        tokio::task::spawn_blocking(move || drop(old));
        self.targets = targets;
        self.dirty.mark(Dirt::All);
        true
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
    for warning in watch.sources().warnings() {
        warn!("{warning}");
    }
    Ok(watch)
}
