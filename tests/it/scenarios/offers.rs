//! What is offered, what is not, and what is said about it.

use std::fs;
use std::os::unix::fs::symlink;

use crate::support::daemon::Daemon;
use crate::support::disks::Loop;
use crate::support::site::{Site, World, until};

pub(crate) async fn what_the_pod_lacks_is_said_at_the_start(world: &World) {
    let site = Site::new(world).await;
    // The mount namespace of the tests is private, so what the host mounts later is never seen.
    let fast = site.class("fast", "").await;
    let daemon = Daemon::start(site.setup());
    let note = site.until_event(&site.node, "NodeSetup").await;
    assert!(note.contains("DaemonSet"), "{note}");
    until("/status and /metrics show it", async || {
        let (_, status) = daemon.get("/status")?;
        let (_, metrics) = daemon.get("/metrics")?;
        let deaf = format!("NodeSetup: class {}: ", fast.name);
        let shown = status.contains(&deaf) && metrics.contains("NodeSetup");
        shown.then_some(())
    })
    .await;
    site.clean_up().await;
}

pub(crate) async fn a_disk_with_something_on_it_waits_until_it_is_empty(world: &World) {
    let site = Site::new(world).await;
    let settings = "  volumeMode: Block\n  requireEmpty: true";
    let blocks = site.class("blocks", settings).await;
    let _daemon = Daemon::start(site.setup());
    let disk = Loop::new(32 << 20);
    disk.format();
    symlink(&disk.node, blocks.dir.join("disk1")).expect("the directory is ours");
    let note = site.until_event(&site.node, "ForeignSignature").await;
    assert!(note.contains("ext4") && note.contains("disk1"), "{note}");
    assert!(site.pv_at(&blocks, "disk1").await.is_none());

    // Wiped by hand; the kernel says nothing about that, but udev and the slow timer do.
    fs::write(&disk.node, vec![0; 32 << 20]).expect("the device takes data");
    fs::write(format!("/sys/block/{}/uevent", disk.name()), "change").expect("root may");
    let pv = site.until_phase(&blocks, "disk1", "Available").await;

    // What a tenant leaves is wiped, and then it is empty again.
    site.bind(&pv).await;
    disk.format();
    site.unclaim(&pv).await;
    site.until_offered_again(&blocks, "disk1", &pv).await;
    site.clean_up().await;
}
