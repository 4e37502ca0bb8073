//! The watch over this node's Node, of which only the metadata is fetched: its status changes all
//! the time and is large.

use std::sync::Arc;

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

/// Sends the facts of the Node `name` until `cancel`: after each list, and whenever one changed.
pub async fn watch_node(
    client: Client,
    name: &str,
    tx: mpsc::Sender<ClusterEvent>,
    metrics: Arc<Metrics>,
    cancel: CancellationToken,
) {
    let target = Target {
        api: Api::<PartialObjectMeta<Node>>::all(client),
        kind: WatchKind::Nodes,
        label_selector: None,
        field_selector: Some(format!("metadata.name={name}")),
        page_size: 1,
    };
    let mut known = None;
    let news = |change| {
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
    let watch = Box::pin(follow(target, metrics, keep, news, tx));
    cancel.run_until_cancelled(watch).await;
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
