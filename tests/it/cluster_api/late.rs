//! The Node and the StorageClasses, which may come late, change and go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use provisor::cluster::{ClusterEvent, Nodes, watch_classes, watch_node};
use provisor::config::Config;
use provisor::pv::{ClassFacts, NodeFacts, Policy};
use provisor::serve::Metrics;
use provisor::volume::ClassName;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{NODE, Watch, connect};
use crate::support::apiserver::{Action, ApiServer, Fault, Verb};

fn node(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name,
        "labels": {"kubernetes.io/hostname": "host-1"}}})
}

fn class(name: &str, policy: &str) -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
        "provisioner": "kubernetes.io/no-provisioner", "reclaimPolicy": policy,
        "mountOptions": ["noatime"]})
}

/// The watch, and how its configuration is changed.
fn watch_this_node(server: &ApiServer) -> (Watch, watch::Sender<Arc<Config>>) {
    let (sender, configs) = watch::channel(Arc::default());
    let watch = Watch::start(|tx, metrics, cancel| {
        let watch = watch_node(connect(server), NODE, configs, tx, metrics, cancel);
        tokio::spawn(watch);
    });
    (watch, sender)
}

impl Watch {
    async fn node(&mut self) -> Option<NodeFacts> {
        match self.next().await {
            ClusterEvent::Node(facts) => facts,
            other => panic!("not about the node: {other:?}"),
        }
    }

    async fn classes(&mut self) -> BTreeMap<ClassName, ClassFacts> {
        match self.next().await {
            ClusterEvent::Classes(facts) => facts,
            other => panic!("not about classes: {other:?}"),
        }
    }
}

#[tokio::test]
async fn w_25_a_node_may_come_late_change_and_go() {
    let server = ApiServer::start();
    let (mut watch, _config) = watch_this_node(&server);
    assert_eq!(watch.node().await, None);
    server.put(node("n2"));
    server.put(node(NODE));
    let first = watch.node().await.expect("it is there now");
    assert_eq!(
        (first.name.as_str(), first.hostname.as_deref()),
        (NODE, Some("host-1"))
    );
    // A heartbeat is no news, so that the next event is the label's.
    server.modify("nodes", "", NODE, |n| {
        n["status"]["phase"] = json!("Running");
    });
    server.modify("nodes", "", NODE, |n| {
        n["metadata"]["labels"]["zone"] = json!("z");
    });
    let labelled = watch.node().await.expect("it is still there");
    assert_eq!(labelled.labels["zone"], "z");
    server.remove("nodes", "", NODE);
    assert_eq!(watch.node().await, None);
    server.put(node(NODE));
    assert_ne!(watch.node().await.expect("it came back").uid, first.uid);
}

#[tokio::test]
async fn of_the_node_only_the_metadata_is_fetched() {
    let server = ApiServer::start();
    server.inject(Fault::new(Action::NoStreamingLists));
    server.put(node(NODE));
    let (mut watch, _config) = watch_this_node(&server);
    assert_eq!(watch.node().await.expect("it is there").taints, None);
    let requests = server.requests_matching(|r| r.path == "/api/v1/nodes");
    assert!(requests.iter().any(|r| r.verb == Verb::List));
    for request in requests {
        assert!(
            request.accept.contains("PartialObjectMetadata"),
            "{}",
            request.accept
        );
        assert_eq!(request.param("fieldSelector"), "metadata.name=n1");
    }
}

#[tokio::test]
async fn the_taints_are_fetched_while_one_is_to_be_removed() {
    let server = ApiServer::start();
    server.put(node(NODE));
    let (mut watch, config) = watch_this_node(&server);
    assert_eq!(watch.node().await.expect("it is there").taints, None);
    let switched = |on| {
        Arc::new(Config {
            remove_not_ready_taint: on,
            not_ready_taint_key: Some("a".into()),
            ..Config::default()
        })
    };
    config.send_replace(switched(true));
    let before = watch.node().await.expect("it is there");
    assert_eq!(before.taints, Some(vec![]));
    let taint = json!({"key": "a", "value": "v", "effect": "NoExecute",
        "timeAdded": "2026-12-01T12:00:00Z"});
    server.modify("nodes", "", NODE, |n| {
        n["status"]["phase"] = json!("Running");
    });
    server.modify("nodes", "", NODE, |n| {
        n["spec"]["taints"] = json!([taint]);
    });
    let tainted = watch.node().await.expect("it is there");
    assert_eq!(tainted.taints, Some(vec![taint]), "word for word");
    config.send_replace(switched(false));
    assert_eq!(watch.node().await.expect("it is there").taints, None);
    // Who goes on without a configuration goes on as it was.
    drop(config);
    server.remove("nodes", "", NODE);
    assert_eq!(watch.node().await, None);
}

#[tokio::test]
async fn a_taint_is_removed_only_where_it_was_seen() {
    let server = ApiServer::start();
    let metrics = Arc::new(Metrics::new("test"));
    let nodes = Nodes::new(connect(&server), metrics);
    assert_eq!(nodes.find(NODE).await, Ok(None));
    let put = |keys: &[&str]| {
        let taint = |key: &&str| json!({"key": key, "effect": "NoSchedule"});
        let taints: Vec<Value> = keys.iter().map(taint).collect();
        let mut object = node(NODE);
        object["spec"] = json!({"taints": taints});
        server.put(object);
    };
    let now = async || {
        nodes
            .find(NODE)
            .await
            .expect("it answers")
            .expect("it is there")
    };
    put(&["a", "b"]);
    let old = now().await;
    server.modify("nodes", "", NODE, |n| {
        n["spec"]["taints"]
            .as_array_mut()
            .expect("a list")
            .swap(0, 1);
    });
    let error = nodes.remove_taint(&old, "a").await.unwrap_err();
    assert_eq!(error.reason(), "Conflict", "{error}");
    let read = now().await;
    assert_eq!(read.has_taint("a"), Some(true));
    // Whatever else changes is nobody's business here.
    server.modify("nodes", "", NODE, |n| {
        n["metadata"]["labels"]["zone"] = json!("z");
    });
    nodes
        .remove_taint(&read, "a")
        .await
        .expect("nothing is in its way");
    assert_eq!(
        (now().await.has_taint("a"), now().await.has_taint("b")),
        (Some(false), Some(true))
    );

    // Another Node of that name with the very same taints.
    server.remove("nodes", "", NODE);
    put(&["b", "a"]);
    let error = nodes.remove_taint(&read, "a").await.unwrap_err();
    assert_eq!(error.reason(), "Conflict", "{error}");
    server.remove("nodes", "", NODE);
    let error = nodes.remove_taint(&read, "a").await.unwrap_err();
    assert_eq!(error.reason(), "NotFound", "{error}");
}

#[tokio::test]
async fn a_class_may_come_late_change_and_go() {
    let server = ApiServer::start();
    server.put(class("other", "Delete"));
    let (names, receiver) = watch::channel(BTreeSet::from([ClassName::new("fast")]));
    let mut watch = Watch::start(|tx, metrics, cancel| {
        let watch = watch_classes(connect(&server), receiver, tx, metrics, cancel);
        tokio::spawn(watch);
    });
    let fast = ClassName::new("fast");
    assert!(watch.classes().await.is_empty());
    server.put(class("fast", "Retain"));
    let facts = &watch.classes().await[&fast];
    assert_eq!(facts.policy, Policy::Retain);
    assert_eq!(facts.mount_options, ["noatime"]);
    server.put(class("fast", "Delete"));
    assert_eq!(watch.classes().await[&fast].policy, Policy::Delete);

    names.send_replace(BTreeSet::from([fast.clone(), ClassName::new("other")]));
    assert_eq!(watch.classes().await.len(), 2, "the configuration changed");
    let asked = server.requests_matching(|r| r.path.ends_with("storageclasses"));
    let selectors: Vec<_> = asked.iter().map(|r| r.param("fieldSelector")).collect();
    assert_eq!(selectors, ["metadata.name=fast", ""], "one connection each");
    drop(names);

    server.remove("storageclasses", "", "fast");
    assert!(!watch.classes().await.contains_key(&fast));
}
