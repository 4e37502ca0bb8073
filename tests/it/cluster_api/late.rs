//! The Node and the StorageClasses, which may come late, change and go.

use std::collections::{BTreeMap, BTreeSet};

use provisor::cluster::{ClusterEvent, watch_classes, watch_node};
use provisor::pv::{ClassFacts, NodeFacts, Policy};
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

fn watch_this_node(server: &ApiServer) -> Watch {
    Watch::start(|tx, metrics, cancel| {
        let watch = watch_node(connect(server), NODE, tx, metrics, cancel);
        tokio::spawn(watch);
    })
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
    let mut watch = watch_this_node(&server);
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
    let mut watch = watch_this_node(&server);
    watch.node().await;
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
