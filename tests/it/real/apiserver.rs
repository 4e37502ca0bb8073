//! What the stand-in can't prove: that a real API server, with the rights of the chart and no more,
//! does what `cluster` relies on.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, PersistentVolume};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::AuthInfo;
use kube::{Api, Client};
use provisor::cluster::{
    ClusterEvent, Created, EventKind, EventSink, Nodes, VolumeEvent, Volumes, client,
    watch_classes, watch_node, watch_volumes,
};
use provisor::pv::{Cleaning, CleaningState, FINALIZER, Pv};
use provisor::serve::Metrics;
use provisor::volume::{ClassName, DevNum, FilesystemIdentity, Identity};
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::cluster;

const NODE: &str = "real-node";
const CLASS: &str = "real-class";
const PV: &str = "real-pv";
const LIMIT: Duration = Duration::from_secs(20);

async fn admin() -> Client {
    cluster::world().client().await
}

/// A client with the rights of the DaemonSet's ServiceAccount and no more.
async fn daemon() -> Client {
    cluster::grant_rights();
    let token = cluster::kubectl(&["-n", "provisor", "create", "token", "provisor"]);
    let mut access = cluster::world().access().await;
    access.auth_info = AuthInfo {
        token: Some(token.into()),
        ..AuthInfo::default()
    };
    client(access).expect("its credentials are valid")
}

fn read<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> T {
    serde_json::from_value(value).expect("the fixture fits the type")
}

fn manifest(name: &str, labelled: bool) -> PersistentVolume {
    let labels = if labelled {
        json!({"provisor.dev/node": NODE})
    } else {
        json!({})
    };
    read(json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": labels,
            "annotations": {"pv.kubernetes.io/provisioned-by": "local-volume-provisioner-real-node"},
            "finalizers": if labelled { vec![FINALIZER] } else { vec![] }},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Delete", "storageClassName": CLASS,
            "local": {"path": format!("/mnt/{name}")},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE]}]}]}}}
    }))
}

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let found = tokio::time::timeout(LIMIT, future).await;
    found.unwrap_or_else(|_| panic!("{what}: not within {LIMIT:?}"))
}

async fn next(rx: &mut mpsc::Receiver<ClusterEvent>) -> ClusterEvent {
    within("an event", rx.recv())
        .await
        .expect("the watch goes on")
}

async fn applied(rx: &mut mpsc::Receiver<ClusterEvent>, wanted: impl Fn(&Pv) -> bool) -> Box<Pv> {
    loop {
        match next(rx).await {
            ClusterEvent::Volumes(VolumeEvent::Applied(pv)) if wanted(&pv) => return pv,
            _ => {}
        }
    }
}

/// The PV controllers write too; what they do must be over before a version is relied on.
async fn settled(volumes: &Volumes, name: &str) -> Pv {
    let settled = async {
        loop {
            let pv = volumes.get(name).await.expect("it is readable");
            let pv = pv.expect("it exists");
            let protected = |f: &String| f == "kubernetes.io/pv-protection";
            if pv.phase == provisor::pv::Phase::Available && pv.finalizers.iter().any(protected) {
                return pv;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    within("the controllers", settled).await
}

fn cleaning(pv: &Pv) -> Cleaning {
    Cleaning {
        pv_uid: pv.uid.clone(),
        claim_uid: None,
        state: CleaningState::Wiped,
        method: "test".into(),
        done_bytes: 7,
    }
}

fn identity() -> Identity {
    Identity::Filesystem(FilesystemIdentity {
        fs_type: "ext4".into(),
        uuid: Some("u".into()),
        root: "/".into(),
        device: DevNum { major: 7, minor: 0 },
        boot: "b".into(),
    })
}

#[tokio::test]
async fn preconditions_watch_and_finalizer_work() {
    let metrics = Arc::new(Metrics::new("test"));
    let volumes = Volumes::new(daemon().await, Arc::clone(&metrics));
    let (tx, mut rx) = mpsc::channel(8);
    let cancel = CancellationToken::new();
    tokio::spawn(watch_volumes(
        daemon().await,
        NODE,
        tx,
        Arc::clone(&metrics),
        cancel.clone(),
    ));
    let first = next(&mut rx).await;
    assert_eq!(
        first,
        ClusterEvent::Volumes(VolumeEvent::Synced(Vec::new()))
    );

    let manifest_pv = manifest(PV, true);
    assert!(matches!(
        volumes.create(&manifest_pv).await.unwrap(),
        Created::New(_)
    ));
    assert_eq!(volumes.create(&manifest_pv).await.unwrap(), Created::Exists);
    applied(&mut rx, |pv| pv.phase == provisor::pv::Phase::Available).await;
    let pv = settled(&volumes, PV).await;

    let other_uid = Pv {
        uid: "00000000-0000-0000-0000-000000000000".into(),
        ..pv.clone()
    };
    let error = volumes.mark(&other_uid, &cleaning(&pv), true).await;
    assert_eq!(error.unwrap_err().reason(), "Conflict", "UID in a patch");
    let marked = volumes.mark(&pv, &cleaning(&pv), true).await.unwrap();
    assert_eq!(marked.current_cleaning(), Some(&cleaning(&pv)));
    assert!(marked.is_protected());
    let error = volumes.mark(&pv, &cleaning(&pv), true).await;
    assert_eq!(
        error.unwrap_err().reason(),
        "Conflict",
        "version in a patch"
    );

    for (uid, version) in [
        (other_uid.uid.as_str(), marked.resource_version.as_str()),
        (&pv.uid, &pv.resource_version),
    ] {
        let error = volumes.delete(PV, uid, version).await.unwrap_err();
        assert_eq!(error.reason(), "Conflict", "{uid} {version}");
    }
    volumes
        .delete(PV, &marked.uid, &marked.resource_version)
        .await
        .unwrap();
    let deleting = applied(&mut rx, |pv| {
        pv.deleting && pv.finalizers == [FINALIZER.to_owned()]
    })
    .await;
    let error = volumes
        .adopt(
            &Pv {
                finalizers: vec!["x.dev/y".into()],
                deleting: false,
                ..(*deleting).clone()
            },
            &identity(),
            NODE,
        )
        .await
        .unwrap_err();
    assert_eq!(error.reason(), "Invalid", "a finalizer on one that goes");
    volumes.let_go(&deleting).await.unwrap();
    loop {
        if let ClusterEvent::Volumes(VolumeEvent::Deleted { name, uid }) = next(&mut rx).await {
            assert_eq!((name.as_str(), uid.as_str()), (PV, pv.uid.as_str()));
            break;
        }
    }
    assert_eq!(volumes.get(PV).await.unwrap(), None);
    volumes
        .delete(PV, &pv.uid, &pv.resource_version)
        .await
        .unwrap();
    volumes.let_go(&deleting).await.unwrap();
    cancel.cancel();
}

#[tokio::test]
async fn adoption_brings_a_volume_into_sight() {
    let metrics = Arc::new(Metrics::new("test"));
    let volumes = Volumes::new(daemon().await, Arc::clone(&metrics));
    let name = "upstreams-pv";
    volumes.create(&manifest(name, false)).await.unwrap();
    let pv = settled(&volumes, name).await;
    let node = "another-real-node";
    assert_eq!(volumes.list(Some(node)).await.unwrap(), []);
    let adopted = volumes.adopt(&pv, &identity(), node).await.unwrap();
    assert!(adopted.is_protected() && adopted.identity == Some(identity()));
    let own = volumes.list(Some(node)).await.unwrap();
    assert_eq!(own, std::slice::from_ref(&adopted));
    assert!(volumes.list(None).await.unwrap().contains(&adopted));
    // The mark that ends our protection, and then the deletion of exactly what was marked.
    let marked = volumes
        .mark(&adopted, &cleaning(&adopted), false)
        .await
        .unwrap();
    assert!(!marked.is_protected());
    volumes
        .delete(name, &marked.uid, &marked.resource_version)
        .await
        .unwrap();
    let gone = async {
        while volumes.get(name).await.unwrap().is_some() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    within("the deletion", gone).await;
}

#[tokio::test]
async fn a_taint_goes_with_the_rights_of_the_chart() {
    const NAME: &str = "real-tainted-node";
    let nodes: Api<Node> = Api::all(admin().await);
    let ours = Nodes::new(daemon().await, Arc::new(Metrics::new("test")));
    let right = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/startup-taint.yaml");
    cluster::kubectl(&["apply", "-f", right]);
    let taint = |key: &str, effect: &str| json!({"key": key, "effect": effect});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NAME}, "spec": {
        "taints": [taint("example.com/a", "NoSchedule"), taint("example.com/b", "NoSchedule"),
            taint("example.com/a", "PreferNoSchedule")]}});
    let params = PostParams::default();
    nodes.create(&params, &read(node)).await.unwrap();
    // The node controllers put taints of their own on it, and may be quicker; a right takes a moment.
    let removed = async {
        loop {
            let seen = ours.find(NAME).await.unwrap().expect("it is there");
            match ours.remove_taint(&seen, "example.com/a").await {
                Ok(()) => return seen,
                Err(error) => {
                    let passes = ["Conflict", "Forbidden"].contains(&error.reason());
                    assert!(passes, "{error}");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        }
    };
    let seen = within("the removal", removed).await;
    let now = ours.find(NAME).await.unwrap().expect("it is there");
    assert_eq!(now.has_taint("example.com/a"), Some(false));
    assert_eq!(now.has_taint("example.com/b"), Some(true));
    // What was seen is not so any more.
    let error = ours.remove_taint(&seen, "example.com/a").await.unwrap_err();
    assert_eq!(error.reason(), "Conflict", "{error}");
    nodes.delete(NAME, &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn node_and_class_may_come_late() {
    let (admin, metrics) = (admin().await, Arc::new(Metrics::new("test")));
    let nodes: Api<Node> = Api::all(admin.clone());
    let classes: Api<StorageClass> = Api::all(admin);
    let cancel = CancellationToken::new();
    let (tx, mut rx) = mpsc::channel(8);
    let (_config, configs) = watch::channel(Arc::default());
    tokio::spawn(watch_node(
        daemon().await,
        NODE,
        configs,
        tx,
        Arc::clone(&metrics),
        cancel.clone(),
    ));
    assert_eq!(next(&mut rx).await, ClusterEvent::Node(None));
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {
        "name": NODE, "labels": {"kubernetes.io/hostname": "h"}}});
    let params = PostParams::default();
    nodes.create(&params, &read(node)).await.unwrap();
    match next(&mut rx).await {
        ClusterEvent::Node(Some(facts)) => assert_eq!(facts.hostname.as_deref(), Some("h")),
        other => panic!("{other:?}"),
    }
    // A heartbeat is no news; a label is.
    let beat = json!({"status": {"conditions": [{"type": "Ready", "status": "True",
        "lastHeartbeatTime": "2026-12-01T00:00:00Z"}]}});
    let patch = PatchParams::default();
    nodes
        .patch_status(NODE, &patch, &Patch::Merge(beat))
        .await
        .unwrap();
    let label = json!({"metadata": {"labels": {"zone": "z"}}});
    nodes
        .patch(NODE, &patch, &Patch::Merge(label))
        .await
        .unwrap();
    loop {
        // The node controllers set labels of their own.
        if let ClusterEvent::Node(Some(facts)) = next(&mut rx).await
            && facts.labels.contains_key("zone")
        {
            break;
        }
    }
    nodes.delete(NODE, &DeleteParams::default()).await.unwrap();
    assert_eq!(next(&mut rx).await, ClusterEvent::Node(None));

    let (_names, names) = watch::channel(BTreeSet::from([ClassName::new(CLASS)]));
    let (tx, mut rx) = mpsc::channel(8);
    tokio::spawn(watch_classes(
        daemon().await,
        names,
        tx,
        metrics,
        cancel.clone(),
    ));
    assert_eq!(next(&mut rx).await, ClusterEvent::Classes(BTreeMap::new()));
    let class = json!({"metadata": {"name": CLASS}, "provisioner": "kubernetes.io/no-provisioner"});
    classes.create(&params, &read(class)).await.unwrap();
    match next(&mut rx).await {
        ClusterEvent::Classes(facts) => {
            assert_eq!(
                facts[&ClassName::new(CLASS)].policy,
                provisor::pv::Policy::Delete
            );
        }
        other => panic!("{other:?}"),
    }
    classes
        .delete(CLASS, &DeleteParams::default())
        .await
        .unwrap();
    assert_eq!(next(&mut rx).await, ClusterEvent::Classes(BTreeMap::new()));
    cancel.cancel();
}

#[tokio::test]
async fn events_are_accepted() {
    let metrics = Arc::new(Metrics::new("test"));
    let (sink, task) = EventSink::new(daemon().await, "pod-1", Arc::clone(&metrics));
    let note = "ü".repeat(2000);
    sink.node("n", "uid-n", EventKind::Warning, "InUse", &note);
    sink.pv("p", "uid-p", EventKind::Normal, "Offered", "a volume");
    let class = ClassName::new("c");
    sink.class(
        &class,
        EventKind::Warning,
        "StorageClassMissing",
        "create it",
    );
    let cancel = CancellationToken::new();
    cancel.cancel();
    task.run(cancel).await;
    let events: Api<Event> = Api::namespaced(admin().await, "default");
    let all = events
        .list(&ListParams::default().fields("reportingController=provisor"))
        .await;
    let all = all.unwrap_or_else(|e| panic!("{e}")).items;
    for kind in ["Node", "PersistentVolume", "StorageClass"] {
        let of_kind = |e: &&Event| {
            e.regarding.as_ref().and_then(|r| r.kind.as_deref()) == Some(kind)
                && e.reporting_instance.as_deref() == Some("pod-1")
        };
        assert!(all.iter().any(|e| of_kind(&e)), "{kind}: {all:?}");
    }
    assert!(metrics.render().contains("provisor_events_dropped_total 0"));
}
