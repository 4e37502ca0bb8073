//! Very many volumes at once.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::api::PostParams;
use nix::sched::{CloneFlags, unshare};
use provisor::commands::run::OFFERS_AT_ONCE;
use tokio::sync::mpsc;

use super::Bench;
use crate::disks::Mounted;
use crate::figures::{Table, ratio, time};
use crate::sightings::Sighting;
use crate::site::ClassDir;

/// A shelf of disks that all come up together, and then some.
const VOLUMES: usize = 1000;

/// Where the mounts of a burst are seen.
#[derive(Clone, Copy)]
enum View {
    /// By the daemon too.
    Shared,
    /// By the mounting thread alone, which loses them when it ends.
    Private,
}

impl Bench<'_> {
    /// One mount after the other, until the last volume is seen. The peer mounts as many, where the daemon
    /// does not see it, and posts each as soon as it is mounted.
    pub(super) async fn burst(&self, class: &ClassDir, table: &Table) {
        let names: std::collections::HashSet<String> = (0..VOLUMES)
            .map(|entry| self.name(class, &format!("vol{entry}")))
            .collect();
        let mark = self.seen.mark();
        let began = Instant::now();
        let mounter = Mounter::start(&class.dir, View::Shared);
        let is_ours = |s: &Sighting| names.contains(&s.name);
        let all = self.all_seen("all volumes", mark, is_ours).await;
        let ours = last(&all) - began;
        let (mounting, disks) = mounter.end(began);

        let model = all.first().expect("it has waited for them");
        let model = self.peer_of(&model.name, 0).await;
        let peers: Vec<PersistentVolume> = (0..VOLUMES)
            .map(|entry| {
                let mut peer = model.clone();
                peer.metadata.name = Some(format!("peer-burst-{entry}-{}", self.site.node));
                peer
            })
            .collect();
        let aside = self.site.root.path().join("aside");
        fs::create_dir(&aside).expect("the directory is ours");
        let mark = self.seen.mark();
        let began = Instant::now();
        let mut mounter = Mounter::start(&aside, View::Private);
        let (pvs, params) = (self.site.pvs(), PostParams::default());
        let mounted = stream::poll_fn(|context| mounter.mounted.poll_recv(context));
        mounted
            .for_each_concurrent(OFFERS_AT_ONCE, async |entry| {
                pvs.create(&params, &peers[entry])
                    .await
                    .expect("it can be made");
            })
            .await;
        let is_peer = |s: &Sighting| s.name.starts_with("peer-burst-");
        let bare = last(&self.all_seen("all peers", mark, is_peer).await) - began;
        let (peer_mounting, _) = mounter.end(began);
        drop(disks);

        let what = format!("{VOLUMES} mounts in a row -> the last PV");
        table.row(&what, &time(ours), &time(bare), &ratio(ours, bare));
        table.note(&format!(
            "of it until the last mount {}, the peer's {}; both with {OFFERS_AT_ONCE} POSTs at once",
            time(mounting),
            time(peer_mounting)
        ));
    }

    async fn all_seen(
        &self,
        what: &str,
        mark: usize,
        is_it: impl Fn(&Sighting) -> bool,
    ) -> Vec<Sighting> {
        self.seen.until_all(what, mark, VOLUMES, is_it).await
    }
}

fn last(all: &[Sighting]) -> Instant {
    let last = all.iter().map(|sighting| sighting.at).max();
    last.expect("it has waited for them")
}

/// A thread that makes directories and mounts a tmpfs on each, so that whoever waits for the effect is not
/// kept from it.
struct Mounter {
    /// The numbers of the mounts, as they are made.
    mounted: mpsc::UnboundedReceiver<usize>,
    thread: std::thread::JoinHandle<(Instant, Vec<Mounted>)>,
}

impl Mounter {
    fn start(dir: &Path, view: View) -> Self {
        let (send, mounted) = mpsc::unbounded_channel();
        let dir = dir.to_owned();
        let thread = std::thread::spawn(move || {
            if let View::Private = view {
                // Of this thread alone, and what the benchmark runs in has no propagation.
                unshare(CloneFlags::CLONE_NEWNS).expect("root may have a namespace");
            }
            let mount = |entry| {
                let point: PathBuf = dir.join(format!("vol{entry}"));
                fs::create_dir(&point).expect("the directory is ours");
                let disk = Mounted::tmpfs_of(&point, "1m");
                // Nobody asks for the numbers of ours.
                let _ = send.send(entry);
                disk
            };
            let disks = (0..VOLUMES).map(mount).collect();
            (Instant::now(), disks)
        });
        Self { mounted, thread }
    }

    /// How long the last mount took since `began`, and the mounts. Those of a private view are gone with
    /// it.
    fn end(self, began: Instant) -> (Duration, Vec<Mounted>) {
        let (end, disks) = self.thread.join().expect("everything can be mounted");
        (end - began, disks)
    }
}
