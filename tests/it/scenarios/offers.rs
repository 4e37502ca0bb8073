//! What is offered, what is not, and what is said about it.

use std::fs;
use std::os::unix::fs::symlink;

use k8s_openapi::api::core::v1::PersistentVolume;

use crate::support::daemon::Daemon;
use crate::support::disks::{Loop, Mounted};
use crate::support::site::{Site, World, name_of, phase_of, uid_of, until};

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

fn capacity(pv: &PersistentVolume) -> String {
    let spec = pv.spec.as_ref().expect("a volume has a spec");
    let capacity = spec.capacity.as_ref().expect("a volume has a capacity");
    capacity["storage"].0.clone()
}

pub(crate) async fn a_free_volume_that_was_replaced_is_offered_anew(world: &World) {
    let site = Site::new(world).await;
    let fast = site.class("fast", "").await;
    let _daemon = Daemon::start(site.setup());
    let point = fast.dir.join("vol1");
    fs::create_dir(&point).expect("the directory is ours");
    let disk = Mounted::tmpfs_of(&point, "64m");
    let old = site.until_phase(&fast, "vol1", "Available").await;
    drop(disk);
    let other = Mounted::tmpfs_of(&point, "32m");
    fs::write(other.point().join("precious"), "x").expect("the volume takes files");
    let new = site.until_offered_again(&fast, "vol1", &old).await;
    assert_eq!(name_of(&new), name_of(&old));
    assert_eq!(
        (capacity(&old), capacity(&new)),
        ("64Mi".into(), "32Mi".into())
    );
    assert!(point.join("precious").exists(), "nothing is wiped for that");
    let note = site.until_event(name_of(&old), "Withdrawn").await;
    assert!(note.contains("UUID"), "{note}");
    site.clean_up().await;
}

pub(crate) async fn a_free_volume_that_is_gone_is_kept_or_withdrawn(world: &World) {
    let site = Site::new(world).await;
    let kept = site.class("kept", "").await;
    let settings = "  whenGone: withdraw\n  withdrawAfter: 1s";
    let gone = site.class("gone", settings).await;
    let _daemon = Daemon::start(site.setup());
    let mut disks = Vec::new();
    for (class, entry) in [(&kept, "vol1"), (&gone, "vol1"), (&gone, "used")] {
        let point = class.dir.join(entry);
        fs::create_dir(&point).expect("the directory is ours");
        disks.push(Mounted::tmpfs_of(&point, "8m"));
    }
    let keeps = site.until_phase(&kept, "vol1", "Available").await;
    let goes = site.until_phase(&gone, "vol1", "Available").await;
    let used = site.until_phase(&gone, "used", "Available").await;
    site.bind(&used).await;
    drop(disks);
    until("the free one is withdrawn", async || {
        site.pv_at(&gone, "vol1").await.is_none().then_some(())
    })
    .await;
    for (pv, phase) in [(&keeps, "Available"), (&used, "Bound")] {
        site.until_event(name_of(pv), "EntryMissing").await;
        let now = site.pvs().get(name_of(pv)).await.expect("it is there");
        assert_eq!((uid_of(&now), phase_of(&now)), (uid_of(pv), phase));
        assert!(now.metadata.deletion_timestamp.is_none());
    }
    let _back = Mounted::tmpfs_of(&gone.dir.join("vol1"), "8m");
    let new = site.until_phase(&gone, "vol1", "Available").await;
    assert_ne!(uid_of(&new), uid_of(&goes));
    site.clean_up().await;
}
