//! This node's Node: the watch over it, and the removal of a taint.
//!
//! Of the object only the metadata is fetched, since its status changes all the time and is large. Only
//! while the configuration has a startup taint to remove it is fetched whole, for `spec.taints`.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::CONTENT_TYPE;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ListParams;
use kube::core::metadata::PartialObjectMeta;
use kube::core::{DeserializeGuard, Resource};
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::follow::{Change, Decoded, Target, follow};
use super::{ApiError, ClusterEvent, MANAGER, call, patch};
use crate::config::Config;
use crate::pv::{LABEL_HOSTNAME, NodeFacts, thin_resource};
use crate::serve::{ApiMethod, Metrics, WatchKind};

/// Nodes listed at a time.
const PAGE: u32 = 500;

/// The watch has so long to say its first word before the Node is read without it.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often the Node is read then.
const READ_AGAIN: Duration = Duration::from_secs(60);

/// A Node with only the fields that we read.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct WireNode {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct Spec {
    #[serde(default)]
    taints: Vec<Value>,
}

thin_resource!(WireNode, Node);

/// Sends the facts of the Node `name` until `cancel`: after each list, and whenever one changed. Its taints
/// are among them while the configuration has one to remove. With upstream's rights, which are only to get it
/// (contract RBAC-04), it is read from time to time.
pub async fn watch_node(
    client: Client,
    name: &str,
    mut configs: watch::Receiver<Arc<Config>>,
    tx: mpsc::Sender<ClusterEvent>,
    metrics: Arc<Metrics>,
    cancel: CancellationToken,
) {
    let wants_taints = |config: &Arc<Config>| config.startup_taint().is_some();
    let watched = async {
        loop {
            let whole = wants_taints(&configs.borrow_and_update());
            let heard = CancellationToken::new();
            let outlet = Outlet {
                owner: tx.clone(),
                heard: heard.clone(),
            };
            let (client, counts) = (client.clone(), Arc::clone(&metrics));
            let read = read_node(client.clone(), name, whole, &tx, &metrics);
            let watch = match whole {
                true => {
                    follow_as::<DeserializeGuard<WireNode>, _>(client, name, keep, outlet, counts)
                }
                false => {
                    let keep = keep_meta;
                    follow_as::<PartialObjectMeta<Node>, _>(client, name, keep, outlet, counts)
                }
            };
            let read = Box::pin(heard.run_until_cancelled(read));
            let both = async { tokio::join!(watch, read) };
            let other_form = async {
                let other = configs.wait_for(|config| wants_taints(config) != whole);
                if other.await.is_err() {
                    // Nobody can change the configuration any more.
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                // Cancel-safe: the owner is gone.
                _ = both => return,
                // Cancel-safe: the next watch begins with all there is.
                () = other_form => {}
            }
        }
    };
    cancel.run_until_cancelled(watched).await;
}

/// Where the word of the watch goes, and that there was a first one.
struct Outlet {
    owner: mpsc::Sender<ClusterEvent>,
    heard: CancellationToken,
}

/// Follows the Node in one of its forms until the owner is gone.
fn follow_as<K, F>(
    client: Client,
    name: &str,
    keep: F,
    outlet: Outlet,
    metrics: Arc<Metrics>,
) -> BoxFuture<'static, ()>
where
    K: Decoded + Resource<DynamicType = ()> + Clone + DeserializeOwned,
    K: std::fmt::Debug + Send + Sync + 'static,
    F: Fn(K::Object) -> Result<NodeFacts, &'static str> + Send + Sync + 'static,
{
    let target = Target {
        api: Api::<K>::all(client),
        kind: WatchKind::Nodes,
        label_selector: None,
        field_selector: Some(only(name)),
        page_size: 1,
    };
    let mut known = None;
    let Outlet { owner, heard } = outlet;
    let news = move |change| {
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
    follow(target, metrics, keep, news, owner).boxed()
}

/// Reads the Node by its name, for as long as nobody stops it.
async fn read_node(
    client: Client,
    name: &str,
    whole: bool,
    tx: &mpsc::Sender<ClusterEvent>,
    metrics: &Metrics,
) {
    let (nodes, metas) = (
        Api::<WireNode>::all(client.clone()),
        Api::<Node>::all(client),
    );
    let mut pause = PATIENCE;
    loop {
        tokio::time::sleep(pause).await;
        pause = READ_AGAIN;
        let answer = match whole {
            true => {
                let node = call(metrics, ApiMethod::Get, nodes.get(name)).await;
                node.map(|node| keep(node).ok())
            }
            false => {
                let node = call(metrics, ApiMethod::Get, metas.get_metadata(name)).await;
                node.map(|node| keep_meta(node).ok())
            }
        };
        let facts = match answer {
            Ok(facts) => facts,
            Err(ApiError::NotFound(_)) => None,
            // The watch has the same trouble and says so.
            Err(_) => continue,
        };
        if tx.send(ClusterEvent::Node(facts)).await.is_err() {
            return;
        }
    }
}

fn only(name: &str) -> String {
    format!("metadata.name={name}")
}

/// The calls on Nodes. Each is one attempt with a deadline.
#[derive(Clone)]
pub struct Nodes {
    client: Client,
    api: Api<WireNode>,
    metrics: Arc<Metrics>,
}

impl Nodes {
    /// Calls through `client`, counted in `metrics`.
    pub fn new(client: Client, metrics: Arc<Metrics>) -> Self {
        Self {
            api: Api::all(client.clone()),
            client,
            metrics,
        }
    }

    /// The Node `name` as it is now, or `None` if there is none. By a list of one: the watch needs that
    /// verb anyway, and nothing needs `get`.
    ///
    /// # Errors
    /// Any [`ApiError`].
    pub async fn find(&self, name: &str) -> Result<Option<NodeFacts>, ApiError> {
        let params = ListParams::default().fields(&only(name));
        let list = call(&self.metrics, ApiMethod::List, self.api.list(&params)).await?;
        let kept = list.items.into_iter().next().map(keep).transpose();
        kept.map_err(|why| ApiError::Unreadable(why.to_owned()))
    }

    /// Takes every taint with `key` off the Node, and leaves everything else as it is.
    ///
    /// # Errors
    /// [`ApiError::Conflict`] when the Node is another one or these taints are not where `node` has them,
    /// or any other.
    pub async fn remove_taint(&self, node: &NodeFacts, key: &str) -> Result<(), ApiError> {
        let unwritable = |e: &dyn std::fmt::Display| ApiError::Invalid(e.to_string());
        let path = WireNode::url_path(&(), None);
        let uri = format!("{path}/{}?fieldManager={MANAGER}", node.name);
        let body = serde_json::to_vec(&patch::untaint(node, key)).map_err(|e| unwritable(&e))?;
        // kube's own JSON patch is one more dependency.
        let request = http::Request::patch(uri)
            .header(CONTENT_TYPE, "application/json-patch+json")
            .body(body)
            .map_err(|e| unwritable(&e))?;
        let answer = self.client.request::<WireNode>(request);
        match call(&self.metrics, ApiMethod::Patch, answer).await {
            Ok(_) => Ok(()),
            // A test that fails is answered as if the patch were wrong (seen on 1.37).
            Err(ApiError::Invalid(why)) => Err(ApiError::Conflict(why)),
            Err(error) => Err(error),
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
        let kept = page
            .items
            .into_iter()
            .filter_map(|node| keep_meta(node).ok());
        all.extend(kept);
        params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
        if params.continue_token.is_none() {
            return Ok(all);
        }
    }
}

fn keep(node: WireNode) -> Result<NodeFacts, &'static str> {
    facts(node.metadata, Some(node.spec.taints))
}

fn keep_meta(node: PartialObjectMeta<Node>) -> Result<NodeFacts, &'static str> {
    facts(node.metadata, None)
}

fn facts(metadata: ObjectMeta, taints: Option<Vec<Value>>) -> Result<NodeFacts, &'static str> {
    let labels = metadata.labels.unwrap_or_default();
    Ok(NodeFacts {
        name: metadata.name.ok_or("it has no metadata.name")?,
        uid: metadata.uid.ok_or("it has no metadata.uid")?,
        hostname: labels.get(LABEL_HOSTNAME).cloned(),
        labels,
        taints,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn facts_are_read() {
        let metadata = json!({"name": "n", "uid": "u", "labels": {"kubernetes.io/hostname": "h"}});
        let meta = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": metadata});
        let facts = keep_meta(serde_json::from_value(meta).unwrap()).unwrap();
        assert_eq!(facts.hostname.as_deref(), Some("h"));
        assert_eq!((facts.name.as_str(), facts.uid.as_str()), ("n", "u"));
        assert_eq!(facts.has_taint("a"), None);

        let taint =
            json!({"key": "a", "effect": "NoSchedule", "timeAdded": "2026-12-01T00:00:00Z"});
        for (spec, taints) in [
            (
                json!({"taints": [taint], "podCIDR": "10.0.0.0/24"}),
                vec![taint],
            ),
            (json!({}), vec![]),
        ] {
            let whole = json!({"metadata": metadata, "spec": spec, "status": {"phase": "x"}});
            let facts = keep(serde_json::from_value(whole).unwrap()).unwrap();
            assert_eq!(facts.has_taint("a"), Some(!taints.is_empty()));
            assert_eq!(facts.has_taint("b"), Some(false));
            assert_eq!(facts.taints, Some(taints));
        }
    }
}
