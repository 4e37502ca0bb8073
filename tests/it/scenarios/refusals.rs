//! What must not be offered, and what must not be wiped.

use std::fs;
use std::os::unix::fs::symlink;

use kube::api::{DeleteParams, PostParams};
use serde_json::json;

use super::{GIB, MIB, foreign, is_zero, leave, mount, use_once, write_markers};
use crate::support::daemon::{Daemon};
use crate::support::disks::{Loop, Mounted};
use crate::support::site::{Site, World, name_of, phase_of, uid_of, until};

pub(crate) async fn a_plain_directory_is_refused_with_a_reason(world: &World) {
    let site = Site::new(world).await;
    let fast = site.class("fast", "").await;
    fs::create_dir(fast.dir.join("plain")).expect("the directory is ours");
    let daemon = Daemon::start(site.setup());
    until("it is ready", async || {
        daemon.get("/readyz").filter(|(code, _)| *code == 200)
    })
    .await;

    let note = site.until_event(&site.node, "NotMounted").await;
    assert!(note.contains("plain"), "{note}");
    until("/status and /metrics show it", async || {
        let (_, status) = daemon.get("/status")?;
        let (_, metrics) = daemon.get("/metrics")?;
        let shown = status.contains("NotMounted") && metrics.contains("reason=\"NotMounted\"} 1");
        shown.then_some(())
    })
    .await;
    assert!(site.pv_at(&fast, "plain").await.is_none());
    site.clean_up().await;
}

pub(crate) async fn volumes_of_others_are_never_touched(world: &World) {
    let site = Site::new(world).await;
    let fast = site.class("fast", "").await;
    let disks = [mount(&fast, "vol1"), mount(&fast, "vol2")];
    for disk in &disks {
        fs::write(disk.point().join("precious"), "data").expect("the volume takes files");
    }
    // Another provisioner's on this node, and one with our label that belongs to another node.
    let node = provisor::pv::node_label(&site.node);
    let others = [
        foreign(
            &format!("theirs-{}", site.node),
            &fast,
            "vol1",
            &site.node,
            None,
        ),
        foreign(
            &format!("forged-{}", site.node),
            &fast,
            "vol2",
            "elsewhere",
            Some(&node),
        ),
    ];
    let mut made = Vec::new();
    for other in &others {
        let pv = site
            .pvs()
            .create(&PostParams::default(), other)
            .await
            .expect("it can be made");
        until("it is Available", async || {
            let pv = site.pvs().get(name_of(&pv)).await.expect("it is there");
            (phase_of(&pv) == "Available").then_some(())
        })
        .await;
        use_once(&site, &pv, || {}).await;
        made.push(pv);
    }
    let daemon = Daemon::start(site.setup());
    let (own, entry) = (mount(&fast, "vol3"), "vol3");
    // Once its own volume went through a whole life, the others have had every chance.
    let pv = site.until_phase(&fast, entry, "Available").await;
    use_once(&site, &pv, || leave(&own)).await;
    site.until_offered_again(&fast, entry, &pv).await;
    let note = site.until_event(name_of(&made[1]), "NotOurs").await;
    assert!(note.contains("left alone"), "{note}");
    for (pv, disk) in made.iter().zip(&disks) {
        let now = site.pvs().get(name_of(pv)).await.expect("it is there");
        assert_eq!((uid_of(&now), phase_of(&now)), (uid_of(pv), "Released"));
        assert_eq!(
            now.metadata.finalizers, pv.metadata.finalizers,
            "nothing was put on it"
        );
        assert!(disk.point().join("precious").exists());
    }
    daemon.stop().expect("it stops cleanly");
    for pv in &made {
        site.pvs()
            .delete(name_of(pv), &DeleteParams::default())
            .await
            .expect("it can be deleted");
    }
    site.clean_up().await;
}

pub(crate) async fn pv_18_a_taken_name_is_left_alone_and_a_longer_one_used(world: &World) {
    let site = Site::new(world).await;
    let fast = site.class("fast", "").await;
    let name = provisor::pv::name("vol1", &site.node, &fast.name);
    let taken = foreign(&name, &fast, "other", &site.node, None);
    let taken = site
        .pvs()
        .create(&PostParams::default(), &taken)
        .await
        .expect("it can be made");
    let _daemon = Daemon::start(site.setup());
    let _disk = mount(&fast, "vol1");
    let note = site.until_event(&site.node, "NameTaken").await;
    assert!(note.contains(&name), "{note}");
    let longer = site.until_phase(&fast, "vol1", "Available").await;
    assert_eq!(name_of(&longer), provisor::pv::long_name("vol1", &site.node, &fast.name));
    let now = site.pvs().get(&name).await.expect("it is there");
    assert_eq!(uid_of(&now), uid_of(&taken));
    assert!(now.metadata.labels.is_none(), "it was not adopted");
    site.pvs()
        .delete(&name, &DeleteParams::default())
        .await
        .expect("it can be deleted");
    site.clean_up().await;
}

pub(crate) async fn a_busy_volume_is_wiped_only_once_it_is_free(world: &World) {
    let site = Site::new(world).await;
    let fast = site.class("fast", "").await;
    let blocks = site.class("blocks", "  volumeMode: Block").await;
    let _daemon = Daemon::start(site.setup());
    let disk = mount(&fast, "vol1");
    let device = Loop::new(32 * MIB);
    symlink(&device.node, blocks.dir.join("disk1")).expect("the directory is ours");
    let pv = site.until_phase(&fast, "vol1", "Available").await;
    let block = site.until_phase(&blocks, "disk1", "Available").await;

    // A Pod that was deleted by force: its bind mount and its descriptor are still there.
    let elsewhere = site.root.path().join("pods-volume");
    fs::create_dir(&elsewhere).expect("the directory is ours");
    let bind = Mounted::bind(disk.point(), &elsewhere);
    let claim = fs::OpenOptions::new()
        .read(true)
        .open(&device.node)
        .expect("the device opens");
    let loop_over = Loop::over(&device.node, &[]);
    use_once(&site, &pv, || leave(&disk)).await;
    use_once(&site, &block, || write_markers(&device.node, 32 * MIB)).await;

    let note = site.until_event(name_of(&pv), "InUse").await;
    assert!(note.contains("pods-volume"), "{note}");
    site.until_event(name_of(&block), "InUse").await;
    assert!(disk.point().join("marker").exists());
    assert!(!is_zero(&device.file));
    drop((bind, claim, loop_over));
    site.until_offered_again(&fast, "vol1", &pv).await;
    site.until_offered_again(&blocks, "disk1", &block).await;
    assert!(!disk.point().join("marker").exists());
    assert!(is_zero(&device.file));
    site.clean_up().await;
}

pub(crate) async fn a_replaced_mount_is_never_wiped(world: &World) {
    let site = Site::new(world).await;
    let fast = site.class("fast", "").await;
    let _daemon = Daemon::start(site.setup());
    let disk = mount(&fast, "vol1");
    let pv = site.until_phase(&fast, "vol1", "Available").await;
    site.bind(&pv).await;
    let point = disk.point().to_owned();
    drop(disk);
    let other = Mounted::tmpfs_of(&point, "64m");
    fs::write(other.point().join("precious"), "x").expect("the volume takes files");
    site.unclaim(&pv).await;
    let note = site.until_event(name_of(&pv), "EntryReplaced").await;
    assert!(note.contains("UUID"), "{note}");
    drop(other);
    fs::write(point.join("precious"), "x").expect("the directory is ours");
    site.until_event(name_of(&pv), "EntryMissing").await;
    assert!(point.join("precious").exists());
    let now = site.until_phase(&fast, "vol1", "Released").await;
    assert_eq!(uid_of(&now), uid_of(&pv));
    site.clean_up().await;
}

/// Pitfall W-04: an administrator clears the claim of a volume whose wipe runs already.
pub(crate) async fn a_volume_given_back_by_hand_is_not_wiped_any_further(world: &World) {
    let site = Site::new(world).await;
    let shred = "  volumeMode: Block\n  blockCleanerCommand: [/scripts/shred.sh, \"20\"]";
    let blocks = site.class("blocks", shred).await;
    let daemon = Daemon::start(site.setup());
    let device = Loop::new(GIB);
    symlink(&device.node, blocks.dir.join("disk1")).expect("the directory is ours");
    let pv = site.until_phase(&blocks, "disk1", "Available").await;
    use_once(&site, &pv, || {}).await;
    let running = async || {
        let (_, status) = daemon.get("/status")?;
        Some(status.contains("\"jobs\":[{"))
    };
    until("the wipe runs", async || {
        running().await.filter(|running| *running)
    })
    .await;
    site.patch_pv(name_of(&pv), json!({"spec": {"claimRef": null}}))
        .await;
    let now = site.until_phase(&blocks, "disk1", "Available").await;
    assert_eq!(uid_of(&now), uid_of(&pv));
    until("the wipe stops", async || {
        running().await.filter(|running| !*running)
    })
    .await;
    daemon.stop().expect("it stops cleanly");
    let now = site.pvs().get(name_of(&pv)).await.expect("it is there");
    assert_eq!((uid_of(&now), phase_of(&now)), (uid_of(&pv), "Available"));
    site.clean_up().await;
}
