//! From a cause on the node to its effect on the API server.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use serde_json::json;

use crate::disks::{Loop, Mounted};
use crate::figures::{Series, Settings, Table, time};
use crate::process::Daemon;
use crate::sightings::Sightings;
use crate::site::{ClassDir, Site, World, name_of, uid_of};

mod burst;

/// Between two causes. The daemon looks at mounts at most once in 50 ms; the odd step keeps causes from
/// falling into one place of its rhythm.
const GAP: Duration = Duration::from_millis(130);
const GAP_STEP: Duration = Duration::from_millis(7);

/// What is aimed at for a volume that comes, however it comes.
const BUDGET: &str =
    "budget: p50 2x a bare POST of that PV, max 100 ms; upstream, measured: 2.9 s, max 9.9 s";

/// The label by which the peer's objects are told and removed; the daemon does not look at them.
const PEER: &str = "bench.provisor.dev/peer";

/// Everything that is waited for here.
struct Bench<'w> {
    site: Site<'w>,
    seen: Sightings,
}

pub(crate) async fn measure(world: &World, settings: &Settings, table: &Table) {
    let parts = ["mounts", "links", "reclaim", "burst"];
    if !parts.iter().any(|part| settings.wants(part)) {
        return;
    }
    let site = Site::new(world).await;
    let fast = site.class("fast", "").await;
    let blocks = site.class("blocks", "  volumeMode: Block").await;
    let burst = site.class("burst", "").await;
    let links = if settings.wants("links") {
        settings.choose(12, 40)
    } else {
        0
    };
    let devices: Vec<Loop> = (0..links).map(|_| Loop::new(16 << 20)).collect();
    let mounts: usize = settings.choose(50, 200);
    for number in 0..mounts {
        fs::create_dir(fast.dir.join(format!("vol{number}"))).expect("the directory is ours");
    }
    let seen = Sightings::begin(site.client.clone());
    let daemon = Daemon::start(site.setup()).await;
    let bench = Bench { site, seen };
    // The last echo of the devices' own events comes 5 s after them.
    pause(Duration::from_secs(if links > 0 { 6 } else { 2 })).await;

    if settings.wants("mounts") {
        bench.mounts(&fast, mounts, table).await;
    }
    if settings.wants("links") {
        bench.links(&blocks, &devices, table).await;
    }
    if settings.wants("reclaim") {
        bench.reclaims(&fast, settings.choose(20, 100), table).await;
    }
    if settings.wants("burst") {
        bench.burst(&burst, table).await;
    }
    drop(daemon);
    bench.clean_up().await;
}

async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Median, 90th percentile and maximum, in words.
pub(crate) fn summary(series: &Series) -> String {
    let [p50, p90, max] = [50, 90, 100].map(|percent| time(series.percentile(percent)));
    format!("{p50} / {p90} / {max}")
}

fn gap(round: usize) -> Duration {
    GAP + GAP_STEP * u32::try_from(round % 10).unwrap_or(0)
}

impl Bench<'_> {
    async fn mounts(&self, class: &ClassDir, rounds: usize, table: &Table) {
        let (mut ours, mut bare, mut answered) = <(Series, Series, Series)>::default();
        let mut disks = Vec::new();
        for round in 0..rounds {
            pause(gap(round)).await;
            let point = class.dir.join(format!("vol{round}"));
            let mark = self.seen.mark();
            disks.push(Mounted::tmpfs_of(&point, "1m"));
            let began = Instant::now();
            let name = self.name(class, &format!("vol{round}"));
            let sighting = self
                .seen
                .until("the volume", mark, |s| s.name == name)
                .await;
            ours.push(sighting.at - began);

            pause(gap(round)).await;
            let (seen, answer) = self.post(&self.peer_of(&name, round).await).await;
            bare.push(seen);
            answered.push(answer);
        }
        let what = format!("mount(2) returns -> PV, {rounds} x, p50 / p90 / max");
        table.row(&what, &summary(&ours), &summary(&bare), &ours.over(&bare));
        table.note(&format!(
            "the bare POST alone, to its answer: {}",
            summary(&answered)
        ));
        table.note(BUDGET);
    }

    async fn links(&self, class: &ClassDir, devices: &[Loop], table: &Table) {
        let (mut ours, mut bare) = <(Series, Series)>::default();
        for (round, device) in devices.iter().enumerate() {
            pause(gap(round)).await;
            let entry = format!("disk{round}");
            let (mark, name) = (self.seen.mark(), self.name(class, &entry));
            symlink(&device.node, class.dir.join(&entry)).expect("the directory is ours");
            let began = Instant::now();
            let sighting = self
                .seen
                .until("the volume", mark, |s| s.name == name)
                .await;
            ours.push(sighting.at - began);
            pause(gap(round)).await;
            bare.push(self.post(&self.peer_of(&name, round).await).await.0);
        }
        let what = format!(
            "symlink(2) returns -> PV, {} x, p50 / p90 / max",
            devices.len()
        );
        table.row(&what, &summary(&ours), &summary(&bare), &ours.over(&bare));
        table.note(BUDGET);
    }

    /// Released to Available again, of a filesystem with little in it.
    async fn reclaims(&self, class: &ClassDir, rounds: usize, table: &Table) {
        let point = class.dir.join("again");
        fs::create_dir(&point).expect("the directory is ours");
        let disk = Mounted::tmpfs_of(&point, "1m");
        let name = self.name(class, "again");
        let mark = self.seen.mark();
        self.seen
            .until("it is offered", mark, |s| {
                s.name == name && s.phase == "Available"
            })
            .await;
        let mut peer = self.peer_of(&name, 0).await;
        peer.metadata.name = Some(format!("peer-chain-{name}"));

        let (mut ours, mut bare, mut deletion) = <(Series, Series, Series)>::default();
        for round in 0..rounds {
            let pv = self.site.pvs().get(&name).await.expect("it is offered");
            self.site.bind(&pv).await;
            for file in 0..5 {
                fs::write(disk.point().join(file.to_string()), "x").expect("it takes files");
            }
            pause(gap(round)).await;
            let began = self.released(&pv).await;
            let mark = self.seen.mark();
            let is_new = |s: &crate::sightings::Sighting| {
                s.name == name && s.uid != uid_of(&pv) && s.phase == "Available"
            };
            ours.push(
                self.seen
                    .until("it is offered again", mark, is_new)
                    .await
                    .at
                    - began,
            );
            pause(gap(round)).await;
            let (whole, deleting) = self.chain(&peer).await;
            bare.push(whole);
            deletion.push(deleting);
        }
        let what = format!("Released -> Available again, {rounds} x, p50 / p90 / max");
        table.row(&what, &summary(&ours), &summary(&bare), &ours.over(&bare));
        table.note("peer: PATCH, PATCH, DELETE, wait until it is gone, POST; both until Available");
        table.note(&format!(
            "budget: 100 ms + deletion, which is {} here; upstream, measured: 30 s",
            time(deletion.percentile(50))
        ));
    }

    /// Deletes the claim; when the volume was seen Released.
    async fn released(&self, pv: &PersistentVolume) -> Instant {
        let mark = self.seen.mark();
        self.site.unclaim(pv).await;
        let uid = uid_of(pv);
        let is_it = |s: &crate::sightings::Sighting| s.uid == uid && s.phase == "Released";
        self.seen.until("it is Released", mark, is_it).await.at
    }

    /// The calls that a reclaim can't do without, on a volume that nobody else looks at: until it is
    /// Available again, and how much of that was its deletion.
    async fn chain(&self, peer: &PersistentVolume) -> (Duration, Duration) {
        let (pvs, name) = (self.site.pvs(), name_of(peer));
        let mark = self.seen.mark();
        let old = pvs
            .create(&PostParams::default(), peer)
            .await
            .expect("it can be made");
        let is_free = |s: &crate::sightings::Sighting| s.name == name && s.phase == "Available";
        self.seen
            .until("the peer is Available", mark, is_free)
            .await;
        self.site.bind(&old).await;
        let began = self.released(&old).await;
        let mark = self.seen.mark();
        for state in ["started", "wiped"] {
            let change = json!({"metadata": {"annotations": {PEER: state}}});
            let change = Patch::Merge(change);
            pvs.patch(name, &PatchParams::default(), &change)
                .await
                .expect("it can be patched");
        }
        let only = Preconditions {
            uid: old.metadata.uid.clone(),
            resource_version: None,
        };
        let params = DeleteParams {
            preconditions: Some(only),
            ..DeleteParams::default()
        };
        let deleting = Instant::now();
        pvs.delete(name, &params).await.expect("it can be deleted");
        let gone = self
            .seen
            .until("the peer is gone", mark, |s| {
                s.uid == uid_of(&old) && s.is_gone
            })
            .await;
        let mark = self.seen.mark();
        pvs.create(&PostParams::default(), peer)
            .await
            .expect("it can be made");
        let took = self
            .seen
            .until("the peer is Available", mark, is_free)
            .await
            .at
            - began;
        let mark = self.seen.mark();
        pvs.delete(name, &DeleteParams::default())
            .await
            .expect("it can be deleted");
        self.seen
            .until("the peer is gone", mark, |s| s.name == name && s.is_gone)
            .await;
        (took, gone.at - deleting)
    }

    fn name(&self, class: &ClassDir, entry: &str) -> String {
        provisor::pv::name(entry, &self.site.node, &class.name)
    }

    /// The same object as the volume `name`, but for its name, and for the marks of the daemon's own.
    async fn peer_of(&self, name: &str, round: usize) -> PersistentVolume {
        let mut peer = self.site.pvs().get(name).await.expect("it was seen");
        let meta = &mut peer.metadata;
        meta.name = Some(format!("peer-{round}-{name}"));
        meta.uid = None;
        meta.resource_version = None;
        meta.creation_timestamp = None;
        meta.managed_fields = None;
        meta.owner_references = None;
        meta.finalizers = None;
        meta.labels = Some([(PEER.to_owned(), self.site.node.clone())].into());
        peer.status = None;
        peer
    }

    /// Creates it: until it is seen, and until the answer.
    async fn post(&self, peer: &PersistentVolume) -> (Duration, Duration) {
        let (pvs, mark) = (self.site.pvs(), self.seen.mark());
        let began = Instant::now();
        pvs.create(&PostParams::default(), peer)
            .await
            .expect("it can be made");
        let answered = began.elapsed();
        let name = name_of(peer);
        let sighting = self.seen.until("the peer", mark, |s| s.name == name).await;
        (sighting.at - began, answered)
    }

    async fn clean_up(self) {
        if self.site.world.server().is_none() {
            let peers =
                kube::api::ListParams::default().labels(&format!("{PEER}={}", self.site.node));
            // What stays is seen by whoever owns the cluster.
            let _ = self
                .site
                .pvs()
                .delete_collection(&DeleteParams::default(), &peers)
                .await;
        }
        self.site.clean_up().await;
    }
}
