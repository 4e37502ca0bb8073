//! One watch over all PersistentVolumes that notes when it saw what.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::runtime::watcher;
use kube::{Api, Client};
use tokio::sync::watch;

use crate::site::phase_of;

/// Nothing that is waited for takes longer, unless it never comes.
const LIMIT: Duration = Duration::from_secs(60);

/// A PersistentVolume at a moment.
#[derive(Clone, Debug)]
pub(crate) struct Sighting {
    pub(crate) at: Instant,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) phase: String,
    pub(crate) is_gone: bool,
}

/// All that was seen.
pub(crate) struct Sightings {
    log: Arc<Mutex<Vec<Sighting>>>,
    count: watch::Receiver<usize>,
    task: tokio::task::JoinHandle<()>,
}

impl Sightings {
    /// Watches from now on.
    pub(crate) fn begin(client: Client) -> Self {
        let log = Arc::new(Mutex::new(Vec::new()));
        let writer = Arc::clone(&log);
        let (sender, count) = watch::channel(0);
        let mut stream = watcher(
            Api::<PersistentVolume>::all(client),
            watcher::Config::default(),
        )
        .boxed();
        let task = tokio::spawn(async move {
            while let Ok(Some(event)) = stream.try_next().await {
                let (pv, is_gone) = match event {
                    watcher::Event::Apply(pv) | watcher::Event::InitApply(pv) => (pv, false),
                    watcher::Event::Delete(pv) => (pv, true),
                    watcher::Event::Init | watcher::Event::InitDone => continue,
                };
                let sighting = Sighting {
                    at: Instant::now(),
                    phase: phase_of(&pv).to_owned(),
                    name: pv.metadata.name.unwrap_or_default(),
                    uid: pv.metadata.uid.unwrap_or_default(),
                    is_gone,
                };
                let mut log = writer.lock().unwrap_or_else(PoisonError::into_inner);
                log.push(sighting);
                sender.send_replace(log.len());
            }
        });
        Self { log, count, task }
    }

    /// How many there are: what is seen from now on comes after these.
    pub(crate) fn mark(&self) -> usize {
        *self.count.borrow()
    }

    /// Waits for the first sighting after `mark` that `is_it`.
    pub(crate) async fn until(
        &self,
        what: &str,
        mark: usize,
        is_it: impl Fn(&Sighting) -> bool,
    ) -> Sighting {
        let mut found = self.until_all(what, mark, 1, is_it).await;
        found.remove(0)
    }

    /// Waits for the first `number` sightings after `mark` that `is_it`, one for each name.
    pub(crate) async fn until_all(
        &self,
        what: &str,
        mark: usize,
        number: usize,
        is_it: impl Fn(&Sighting) -> bool,
    ) -> Vec<Sighting> {
        let mut count = self.count.clone();
        let mut names = std::collections::HashSet::new();
        let mut found = Vec::new();
        let mut next = mark;
        let search = async {
            loop {
                let end = *count.borrow_and_update();
                let new =
                    self.log.lock().unwrap_or_else(PoisonError::into_inner)[next..end].to_vec();
                next = end;
                let fits = new
                    .into_iter()
                    .filter(|s| is_it(s) && names.insert(s.name.clone()));
                found.extend(fits);
                if found.len() >= number {
                    return;
                }
                count.changed().await.expect("the watch goes on");
            }
        };
        let result = tokio::time::timeout(LIMIT, search).await;
        assert!(
            result.is_ok(),
            "not within {LIMIT:?}: {what}; {} of {number}",
            found.len()
        );
        found
    }
}

impl Drop for Sightings {
    fn drop(&mut self) {
        self.task.abort();
    }
}
