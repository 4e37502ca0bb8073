//! What it costs to wait: CPU time, wake-ups, memory, requests, and what is read of the API server.

use std::fs;
use std::time::Duration;

use kube::api::ListParams;

use crate::disks::Mounted;
use crate::figures::{Settings, Table};
use crate::process::Daemon;
use crate::site::{Site, World, until};

mod crowd;
mod wire;

const VOLUMES: usize = 9;

/// By so much the clock of the process may differ from the sum over its threads, which are read one after
/// the other.
const UNACCOUNTED: Duration = Duration::from_micros(20);

/// After its start the daemon says what it did, and its idle threads end after 10 s.
const SETTLE: Duration = Duration::from_secs(12);

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
    if settings.wants("idle") {
        tokio::time::sleep(SETTLE).await;
        idle(&daemon, settings.choose(20, 120), table).await;
    }
    drop(daemon);
    if settings.wants("memory") {
        crowd::measure(&site, settings.choose(2_000, 20_000), table).await;
    }
    site.clean_up().await;
}

async fn idle(daemon: &Daemon, seconds: u64, table: &Table) {
    let requests = daemon.requests();
    // What the question itself cost is over by then.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (before, events) = (daemon.counters(), uevents());
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let (after, events) = (daemon.counters(), uevents() - events);
    let population = daemon.population();
    let memory = daemon.memory();
    let requests = daemon.requests() - requests;

    let span = Duration::from_secs(seconds).as_secs_f64();
    let used = after.since(before);
    let cpu = used.cpu.as_secs_f64() / span * 100.0;
    let switches = f64::from(u32::try_from(used.switches).unwrap_or(u32::MAX)) / span;
    table.row(
        &format!("idle for {seconds} s with {VOLUMES} volumes: CPU, of one core"),
        &format!("{cpu:.4} %"),
        "budget 0.005 %, upstream 0.033 %",
        "",
    );
    table.row(
        "  context switches",
        &format!("{switches:.2} per s"),
        "budget 0.2, upstream 4.9 per s",
        "",
    );
    table.row(
        "  RSS",
        &memory.to_string(),
        "budget 12 MiB, upstream 40 MiB",
        "",
    );
    table.row(
        "  requests to the API server",
        &requests.to_string(),
        "",
        "",
    );
    table.note(&format!(
        "all of its {} threads and {} children count",
        population.threads, population.children
    ));
    let ended = used.cpu.saturating_sub(used.living_cpu);
    if ended > UNACCOUNTED {
        table.note(&format!(
            "{ended:?} of CPU were used by threads that have ended; their context switches are not in it"
        ));
    }
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
