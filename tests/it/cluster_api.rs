//! `cluster` over the stand-in API server: watches and calls, in good and in bad weather.

mod calls;
mod late;
mod streaming;
mod watching;

use std::sync::Arc;
use std::time::Duration;

use provisor::cluster::{ClusterEvent, VolumeEvent, Volumes, client, watch_volumes};
use provisor::pv::{FINALIZER, Pv};
use provisor::serve::Metrics;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::support::apiserver::{ApiServer, local_pv};

const NODE: &str = "n1";
const CLASS: &str = "fast";
/// Longer than anything takes, a deadline of ten seconds and a backoff included.
const LIMIT: Duration = Duration::from_secs(40);

fn connect(server: &ApiServer) -> kube::Client {
    client(server.client_config()).expect("plain HTTP needs no credentials")
}

fn volumes(server: &ApiServer) -> (Volumes, Arc<Metrics>) {
    let metrics = Arc::new(Metrics::new("test"));
    let volumes = Volumes::new(connect(server), Arc::clone(&metrics));
    (volumes, metrics)
}

/// A PersistentVolume as we make it.
fn own_pv(name: &str) -> Value {
    let mut pv = local_pv(name, NODE, CLASS);
    pv["metadata"]["labels"] = json!({"provisor.dev/node": NODE});
    pv["metadata"]["finalizers"] = json!([FINALIZER]);
    pv
}

/// A running watch, which ends with it.
struct Watch {
    events: mpsc::Receiver<ClusterEvent>,
    metrics: Arc<Metrics>,
    _guard: DropGuard,
}

impl Watch {
    /// Starts what `spawn` spawns.
    fn start(
        spawn: impl FnOnce(mpsc::Sender<ClusterEvent>, Arc<Metrics>, CancellationToken),
    ) -> Self {
        let (sender, events) = mpsc::channel(8);
        let (cancel, metrics) = (CancellationToken::new(), Arc::new(Metrics::new("test")));
        spawn(sender, Arc::clone(&metrics), cancel.clone());
        Self {
            events,
            metrics,
            _guard: cancel.drop_guard(),
        }
    }

    fn volumes(server: &ApiServer) -> Self {
        Self::start(|tx, metrics, cancel| {
            let watch = watch_volumes(connect(server), NODE, tx, metrics, cancel);
            tokio::spawn(watch);
        })
    }

    /// The next event, trouble included.
    async fn any(&mut self) -> ClusterEvent {
        let event = tokio::time::timeout(LIMIT, self.events.recv()).await;
        event.expect("an event in time").expect("the watch goes on")
    }

    /// The next event that is not about trouble.
    async fn next(&mut self) -> ClusterEvent {
        loop {
            match self.any().await {
                ClusterEvent::Watch { .. } => {}
                event => return event,
            }
        }
    }

    async fn next_volumes(&mut self) -> VolumeEvent {
        match self.next().await {
            ClusterEvent::Volumes(event) => event,
            other => panic!("not about volumes: {other:?}"),
        }
    }

    /// The names in the list that must come next.
    async fn synced(&mut self) -> Vec<String> {
        match self.next_volumes().await {
            VolumeEvent::Synced(all) => all.into_iter().map(|pv| pv.name).collect(),
            other => panic!("not a list: {other:?}"),
        }
    }

    /// The first change of `name`; others are passed over.
    async fn applied(&mut self, name: &str) -> Pv {
        loop {
            match self.next_volumes().await {
                VolumeEvent::Applied(pv) if pv.name == name => return *pv,
                VolumeEvent::Applied(_) => {}
                other => panic!("not a change of {name}: {other:?}"),
            }
        }
    }

    /// The first deletion; changes are passed over.
    async fn deleted(&mut self) -> (String, String) {
        loop {
            match self.next_volumes().await {
                VolumeEvent::Deleted { name, uid } => return (name, uid),
                VolumeEvent::Applied(_) => {}
                other @ VolumeEvent::Synced(_) => panic!("not a deletion: {other:?}"),
            }
        }
    }
}
