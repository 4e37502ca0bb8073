//! What it costs to wait: CPU time, wake-ups, memory, requests.

use std::fs;
use std::time::Duration;

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::json;

use crate::disks::Mounted;
use crate::figures::{Settings, Table};
use crate::process::{Daemon, Memory};
use crate::site::{Site, World, object, until};

const VOLUMES: usize = 9;

/// After its start the daemon says what it did, and its idle threads end after 10 s.
const SETTLE: Duration = Duration::from_secs(12);

const FOREIGN: &str = "bench.provisor.dev/foreign";

pub(crate) async fn measure(world: &World, settings: &Settings, table: &Table) {
    if !settings.wants("idle") && !settings.wants("memory") {
        return;
    }
    let site = Site::new(world).await;
    let class = site.class("idle", "").await;
    let _disks: Vec<Mounted> = (0..VOLUMES)
        .map(|number| {
            let point = class.dir.join(format!("vol{number}"));
            fs::create_dir(&point).expect("the directory is ours");
            Mounted::tmpfs_of(&point, "1m")
        })
        .collect();
    let daemon = Daemon::start(site.setup()).await;
    until("all are offered", async || {
        let mine = ListParams::default().labels(&format!(
            "provisor.dev/node={}",
            provisor::pv::node_label(&site.node)
        ));
        let all = site
            .pvs()
            .list_metadata(&mine)
            .await
            .expect("they can be listed");
        (all.items.len() == VOLUMES).then_some(())
    })
    .await;
    tokio::time::sleep(SETTLE).await;
    let memory = daemon.memory();
    if settings.wants("idle") {
        idle(&daemon, settings.choose(20, 120), table).await;
    }
    drop(daemon);

    if settings.wants("memory") {
        let number = settings.choose(2_000, 20_000);
        foreign(&site, number).await;
        let daemon = Daemon::start(site.setup()).await;
        tokio::time::sleep(SETTLE).await;
        let crowded = daemon.memory();
        let text = |memory: Memory| {
            format!(
                "{:.1} MiB ({:.1} anonymous)",
                mib(memory.resident),
                mib(memory.anonymous)
            )
        };
        let what = format!("RSS with {VOLUMES} PVs; beside {number} foreign ones, restarted");
        let growth = format!("{:.2}", mib(crowded.resident) / mib(memory.resident));
        table.row(
            &what,
            &text(crowded),
            &format!("without: {}", text(memory)),
            &growth,
        );
        table.note("budget: 12 MiB, and unchanged; upstream, measured: 40 MiB and 161 MiB");
        drop(daemon);
        remove_foreign(&site).await;
    }
    site.clean_up().await;
}

#[expect(
    clippy::cast_precision_loss,
    reason = "KiB of a process fit many times"
)]
fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}

async fn idle(daemon: &Daemon, seconds: u64, table: &Table) {
    let requests = daemon.requests();
    // What the question itself cost is over by then.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (before, events) = (daemon.counters(), uevents());
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let (after, events) = (daemon.counters(), uevents() - events);
    let requests = daemon.requests() - requests;
    let span = Duration::from_secs(seconds).as_secs_f64();
    let cpu = after.cpu.saturating_sub(before.cpu).as_secs_f64() / span * 100.0;
    let switches =
        u32::try_from(after.switches.saturating_sub(before.switches)).unwrap_or(u32::MAX);
    let switches = f64::from(switches) / span;
    let what = format!("idle for {seconds} s with {VOLUMES} volumes: CPU, of one core");
    table.row(
        &what,
        &format!("{cpu:.4} %"),
        "budget 0.005 %, upstream 0.033 %",
        "",
    );
    let wakes = format!("{switches:.2} per s");
    table.row(
        "  context switches",
        &wakes,
        "budget 0.2, upstream 4.9 per s",
        "",
    );
    let threads = format!("{requests}; {} threads", daemon.threads());
    table.row("  requests to the API server", &threads, "", "");
    if events > 0 {
        table.note(&format!(
            "not idle: the kernel told of {events} changes of devices meanwhile"
        ));
    }
}

/// How many events about devices the kernel has sent, to everybody on this machine.
fn uevents() -> u64 {
    let number = fs::read_to_string("/sys/kernel/uevent_seqnum").unwrap_or_default();
    number.trim().parse().unwrap_or(0)
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
                    "provisor.dev/identity": "x".repeat(200),
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
