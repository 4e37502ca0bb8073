//! The watch over this node's Node, of which only the metadata is fetched: its status changes all
//! the time and is large.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use kube::core::metadata::PartialObjectMeta;
use kube::{Api, Client};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::ClusterEvent;
use super::follow::{Change, Target, follow};
use crate::pv::{LABEL_HOSTNAME, NodeFacts};
use crate::serve::{Metrics, WatchKind};

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
