//! What other nodes' volumes cost: memory, and bytes read from the API server until all is known and done.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use futures::{StreamExt, stream};
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING};
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::config::Kubeconfig;
use serde::Deserialize;
use serde_json::json;

use super::wire::Wire;
use super::{SETTLE, VOLUMES};
use crate::daemon::Setup;
use crate::figures::Table;
use crate::process::{Daemon, Memory};
use crate::site::{Site, object};

const FOREIGN: &str = "bench.provisor.dev/foreign";

/// What an informer without a selector begins with: everything, at whatever version the server's cache has.
const LIST_OF_ALL: &str = "/api/v1/persistentvolumes?resourceVersion=0";

pub(super) async fn measure(site: &Site<'_>, number: usize, table: &Table) {
    let access = site.world.access().await;
    let wire = Wire::to(&access.cluster_url).await;
    let kubeconfig = site.root.path().join("kubeconfig-by-wire");
    wire.kubeconfig(&site.setup().kubeconfig, &kubeconfig);
    let setup = Setup {
        kubeconfig,
        ..site.setup().clone()
    };
    let alone = start(&setup, &wire, table).await;
    foreign(site, number).await;
    let crowded = start(&setup, &wire, table).await;
    table.note("peer: one list of all PVs, packed where the server does it for client-go; ours: all requests");
    table.row(
        &format!("RSS with {VOLUMES} PVs; beside {number} foreign ones"),
        &crowded.to_string(),
        &format!("without: {alone}"),
        &format!("{:.2}", crowded.resident() / alone.resident()),
    );
    table.note("budget: 12 MiB, and unchanged; upstream, measured: 40 MiB and 161 MiB");
    remove_foreign(site).await;
}

/// Starts the daemon on volumes that it has offered before, lets it settle, and prints what it has read
/// beside the peer; its memory then.
async fn start(setup: &Setup, wire: &Wire, table: &Table) -> Memory {
    let before = wire.read();
    let daemon = Daemon::start(setup).await;
    tokio::time::sleep(SETTLE).await;
    let ours = wire.read() - before;
    let (requests, memory) = (daemon.requests(), daemon.memory());
    // Its end may take an answer more, which has to come through here.
    let end = tokio::task::spawn_blocking(move || drop(daemon)).await;
    end.expect("it ends");
    let plain = list_all(&setup.kubeconfig, wire, "identity").await;
    let packed = list_all(&setup.kubeconfig, wire, "gzip").await;
    let number = plain.number.unwrap_or_default();
    let mut peer = kib(plain.bytes);
    if packed.is_packed {
        peer = format!("{peer}, {} packed", kib(packed.bytes));
    }
    table.row(
        &format!("read from start to rest, {number} PVs in the cluster"),
        &format!("{}, {requests} requests", kib(ours)),
        &peer,
        &share(ours, packed.bytes),
    );
    memory
}

/// The full list, as it came.
struct Listed {
    bytes: u64,
    is_packed: bool,
    /// How many there are, unless they are packed.
    number: Option<usize>,
}

#[derive(Deserialize)]
struct List {
    items: Vec<serde::de::IgnoredAny>,
}

async fn list_all(kubeconfig: &Path, wire: &Wire, encoding: &str) -> Listed {
    let config = Kubeconfig::read_from(kubeconfig).expect("it was written for this");
    let config = kube::Config::from_custom_kubeconfig(config, &Default::default())
        .await
        .expect("it was written for this");
    let client = provisor::cluster::client(config).expect("the configuration is whole");
    let before = wire.read();
    let request = http::Request::get(LIST_OF_ALL)
        .header(ACCEPT_ENCODING, encoding)
        .body(kube::client::Body::empty())
        .expect("the request is whole");
    let answer = client.send(request).await.expect("they can be listed");
    assert!(answer.status().is_success(), "{:?}", answer.status());
    let is_packed = answer.headers().get(CONTENT_ENCODING).is_some();
    let body = answer.into_body().collect().await.expect("the list comes");
    let bytes = wire.read() - before;
    let list: Option<List> = serde_json::from_slice(&body.to_bytes()).ok();
    Listed {
        bytes,
        is_packed,
        number: list.map(|list| list.items.len()),
    }
}

fn kib(bytes: u64) -> String {
    let kib = bytes.div_ceil(1024);
    if kib < 10 * 1024 {
        format!("{kib} KiB")
    } else {
        format!("{} MiB", kib / 1024)
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share needs few digits")]
fn share(ours: u64, peer: u64) -> String {
    format!("{:.3}", ours as f64 / peer as f64)
}

/// As many PersistentVolumes of other nodes.
async fn foreign(site: &Site<'_>, number: usize) {
    let host = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": ["elsewhere"]});
    let volumes = (0..number).map(|entry| {
        object::<PersistentVolume>(json!({
            "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {
                "name": format!("foreign-{entry}-{}", site.node),
                "labels": {"provisor.dev/node": "elsewhere", FOREIGN: site.node},
                "annotations": {
                    "pv.kubernetes.io/provisioned-by": "local-volume-provisioner-elsewhere",
                    "provisor.dev/identity": record(entry),
                },
            },
            "spec": {
                "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Delete", "storageClassName": "elsewhere",
                "volumeMode": "Filesystem", "local": {"path": format!("/mnt/elsewhere/{entry}")},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [host]}]}},
            },
        }))
    });
    if let Some(server) = site.world.server() {
        volumes.for_each(|volume| drop(server.put(volume)));
        return;
    }
    let (pvs, params) = (site.pvs(), PostParams::default());
    stream::iter(volumes)
        .for_each_concurrent(16, async |volume| {
            pvs.create(&params, &volume).await.expect("it can be made");
        })
        .await;
}

/// As long as the record of a disk, and as hard to pack.
fn record(entry: usize) -> String {
    let words = (0..6).map(|word| {
        let mut hasher = DefaultHasher::new();
        (entry, word).hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    });
    let words: Vec<String> = words.collect();
    format!(
        r#"{{"kind":"filesystem","fsType":"ext4","uuid":"{}","boot":"{}","root":"/"}}"#,
        words[..3].concat(),
        words[3..].concat()
    )
}

async fn remove_foreign(site: &Site<'_>) {
    if site.world.server().is_none() {
        let all = ListParams::default().labels(&format!("{FOREIGN}={}", site.node));
        // What stays is seen by whoever owns the cluster.
        let _ = site
            .pvs()
            .delete_collection(&DeleteParams::default(), &all)
            .await;
    }
}
