//! The watch over this node's Node, of which only the metadata is fetched: its status changes all
//! the time and is large.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::core::metadata::PartialObjectMeta;
use kube::{Api, Client};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::follow::{Change, Target, follow};
use super::{ApiError, ClusterEvent, call};
use crate::pv::{LABEL_HOSTNAME, NodeFacts};
use crate::serve::{ApiMethod, Metrics, WatchKind};

/// Nodes listed at a time.
const PAGE: u32 = 500;

/// The watch has so long to say its first word before the Node is read without it.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often the Node is read then.
const READ_AGAIN: Duration = Duration::from_secs(60);

/// Sends the facts of the Node `name` until `cancel`: after each list, and whenever one changed. With
/// upstream's rights, which are only to get it (contract RBAC-04), it is read from time to time.
pub async fn watch_node(
    client: Client,
    name: &str,
    tx: mpsc::Sender<ClusterEvent>,
    metrics: Arc<Metrics>,
    cancel: CancellationToken,
) {
    let heard = CancellationToken::new();
    let read = heard.run_until_cancelled(read_node(client.clone(), name, &tx, &metrics));
    let target = Target {
        api: Api::<PartialObjectMeta<Node>>::all(client),
        kind: WatchKind::Nodes,
        label_selector: None,
        field_selector: Some(format!("metadata.name={name}")),
        page_size: 1,
    };
    let mut known = None;
    let news = |change| {
        heard.cancel();
        let (now, always): (Option<NodeFacts>, _) = match change {
            Change::Listed(all) => (all.into_iter().next(), true),
            Change::Applied(facts) => (Some(facts), false),
            Change::Deleted { .. } => (None, false),
        };
        // The heartbeats of the kubelet change the object and none of its facts.
        if now == known && !always {
            return None;
        }
        known.clone_from(&now);
        Some(ClusterEvent::Node(now))
    };
    let watch = follow(target, Arc::clone(&metrics), keep, news, tx.clone());
    let both = Box::pin(async { tokio::join!(watch, read) });
    cancel.run_until_cancelled(both).await;
}

/// Reads the Node by its name, for as long as nobody stops it.
async fn read_node(client: Client, name: &str, tx: &mpsc::Sender<ClusterEvent>, metrics: &Metrics) {
    let api = Api::<Node>::all(client);
    let mut pause = PATIENCE;
    loop {
        tokio::time::sleep(pause).await;
        pause = READ_AGAIN;
        let facts = match call(metrics, ApiMethod::Get, api.get_metadata(name)).await {
            Ok(node) => keep(node).ok(),
            Err(ApiError::NotFound(_)) => None,
            // The watch has the same trouble and says so.
            Err(_) => continue,
        };
        if tx.send(ClusterEvent::Node(facts)).await.is_err() {
            return;
        }
    }
}

/// The facts of every Node of the cluster, for one-shot commands.
///
/// # Errors
/// Any [`ApiError`].
pub async fn list_nodes(
    client: &Client,
    metrics: &Arc<Metrics>,
) -> Result<Vec<NodeFacts>, ApiError> {
    let api = Api::<Node>::all(client.clone());
    let mut params = ListParams::default().limit(PAGE);
    let mut all = Vec::new();
    loop {
        let page = call(metrics, ApiMethod::List, api.list_metadata(&params)).await?;
        // A Node without a name or UID never leaves an API server.
        all.extend(page.items.into_iter().filter_map(|node| keep(node).ok()));
        params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
        if params.continue_token.is_none() {
            return Ok(all);
        }
    }
}

fn keep(node: PartialObjectMeta<Node>) -> Result<NodeFacts, &'static str> {
    let labels = node.metadata.labels.unwrap_or_default();
    Ok(NodeFacts {
        name: node.metadata.name.ok_or("it has no metadata.name")?,
        uid: node.metadata.uid.ok_or("it has no metadata.uid")?,
        hostname: labels.get(LABEL_HOSTNAME).cloned(),
        labels,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn facts_are_read() {
        let node = serde_json::from_value(json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": {"name": "n", "uid": "u", "labels": {"kubernetes.io/hostname": "h"}}}))
        .unwrap();
        let facts = keep(node).unwrap();
        assert_eq!(facts.hostname.as_deref(), Some("h"));
        assert_eq!((facts.name.as_str(), facts.uid.as_str()), ("n", "u"));
    }
}
