//! What a volume goes through when all is well.

use std::fs;
use std::os::unix::fs::symlink;

use kube::api::DeleteParams;

use super::{MIB, is_zero, leave, mount, use_once, write_markers};
use crate::support::daemon::{Daemon};
use crate::support::disks::{Loop};
use crate::support::site::{Site, World, name_of, uid_of, until};

pub(crate) async fn a_mount_lives_from_offer_to_offer(world: &World) {
    let site = Site::new(world).await;
    let fast = site.class("fast", "").await;
    let daemon = Daemon::start(site.setup());
    until("it is ready", async || {
        daemon.get("/readyz").filter(|(code, _)| *code == 200)
    })
    .await;

    let disk = mount(&fast, "vol1");
    let pv = site.until_phase(&fast, "vol1", "Available").await;
    let spec = pv.spec.clone().expect("a volume has a spec");
    assert_eq!(
        name_of(&pv),
        provisor::pv::name("vol1", &site.node, &fast.name)
    );
    assert_eq!(spec.capacity.expect("capacity")["storage"].0, "64Mi");
    assert_eq!(spec.volume_mode.as_deref(), Some("Filesystem"));
    assert_eq!(spec.access_modes, Some(vec!["ReadWriteOnce".to_owned()]));
    assert_eq!(
        spec.persistent_volume_reclaim_policy.as_deref(),
        Some("Delete")
    );

    use_once(&site, &pv, || {
        let point = disk.point();
        fs::write(point.join("marker"), "tenant one").expect("the volume takes files");
        fs::create_dir_all(point.join("a/b/c")).expect("the volume takes directories");
        symlink("/etc/passwd", point.join("a/link")).expect("the volume takes links");
    })
    .await;
    site.until_offered_again(&fast, "vol1", &pv).await;
    let left: Vec<_> = fs::read_dir(disk.point()).expect("readable").collect();
    assert!(left.is_empty(), "{left:?}");

    until("/status shows it", async || {
        let (_, status) = daemon.get("/status")?;
        (status.contains("\"entry\":\"vol1\"") && status.contains("offered")).then_some(())
    })
    .await;
    let (_, metrics) = daemon.get("/metrics").expect("it answers");
    let counted = "local_volume_provisioner_persistentvolume_delete_total{mode=\"Filesystem\",type=\"process\"} 1";
    assert!(metrics.contains(counted), "{metrics}");
    daemon.stop().expect("it stops cleanly");
    site.clean_up().await;
}

pub(crate) async fn a_device_lives_from_offer_to_offer(world: &World) {
    let site = Site::new(world).await;
    let blocks = site.class("blocks", "  volumeMode: Block").await;
    let daemon = Daemon::start(site.setup());
    let size = 256 * MIB;
    let disk = Loop::new(size);
    symlink(&disk.node, blocks.dir.join("disk1")).expect("the directory is ours");

    let pv = site.until_phase(&blocks, "disk1", "Available").await;
    let spec = pv.spec.clone().expect("a volume has a spec");
    assert_eq!(spec.volume_mode.as_deref(), Some("Block"));
    assert_eq!(spec.capacity.expect("capacity")["storage"].0, "256Mi");
    use_once(&site, &pv, || {
        write_markers(&disk.node, size);
        assert!(!is_zero(&disk.file));
    })
    .await;
    site.until_offered_again(&blocks, "disk1", &pv).await;
    assert!(is_zero(&disk.file), "the device must read back as zeros");
    daemon.stop().expect("it stops cleanly");
    site.clean_up().await;
}

pub(crate) async fn a_device_in_filesystem_mode_is_offered_and_wiped_as_a_device(world: &World) {
    let site = Site::new(world).await;
    let raw = site.class("raw", "  fsType: ext4").await;
    let _daemon = Daemon::start(site.setup());
    let disk = Loop::new(64 * MIB);
    symlink(&disk.node, raw.dir.join("disk1")).expect("the directory is ours");

    let pv = site.until_phase(&raw, "disk1", "Available").await;
    let spec = pv.spec.clone().expect("a volume has a spec");
    assert_eq!(spec.volume_mode.as_deref(), Some("Filesystem"));
    assert_eq!(spec.local.expect("local").fs_type.as_deref(), Some("ext4"));
    use_once(&site, &pv, || disk.format()).await;
    site.until_offered_again(&raw, "disk1", &pv).await;
    assert!(is_zero(&disk.file), "the device must read back as zeros");
    site.clean_up().await;
}

pub(crate) async fn a_retained_volume_is_left_alone(world: &World) {
    let site = Site::new(world).await;
    let kept = site.class_without_object("kept", "");
    site.create_storage_class(&kept, "Retain").await;
    let gone = site.class("gone", "").await;
    let _daemon = Daemon::start(site.setup());
    let (retained, other) = (mount(&kept, "vol1"), mount(&gone, "vol1"));
    let pv = site.until_phase(&kept, "vol1", "Available").await;
    use_once(&site, &pv, || leave(&retained)).await;
    site.until_phase(&kept, "vol1", "Released").await;
    // A neighbour with policy Delete goes through its life meanwhile.
    let neighbour = site.until_phase(&gone, "vol1", "Available").await;
    use_once(&site, &neighbour, || leave(&other)).await;
    site.until_offered_again(&gone, "vol1", &neighbour).await;
    let now = site.until_phase(&kept, "vol1", "Released").await;
    assert_eq!(uid_of(&now), uid_of(&pv));
    assert!(retained.point().join("marker").exists());

    // Deleted by hand, its name stays taken until the data is dealt with.
    site.pvs()
        .delete(name_of(&pv), &DeleteParams::default())
        .await
        .expect("it can be deleted");
    site.until_event(name_of(&pv), "DataRetained").await;
    assert!(retained.point().join("marker").exists());
    site.clean_up().await;
}

pub(crate) async fn a_volume_deleted_by_hand_is_wiped_before_it_goes(world: &World) {
    let site = Site::new(world).await;
    let fast = site.class("fast", "").await;
    let _daemon = Daemon::start(site.setup());
    let disk = mount(&fast, "vol1");
    let pv = site.until_phase(&fast, "vol1", "Available").await;
    site.bind(&pv).await;
    fs::write(disk.point().join("marker"), "x").expect("the volume takes files");
    site.pvs()
        .delete(name_of(&pv), &DeleteParams::default())
        .await
        .expect("it can be deleted");
    site.unclaim(&pv).await;
    site.until_offered_again(&fast, "vol1", &pv).await;
    assert!(!disk.point().join("marker").exists());
    site.clean_up().await;
}

pub(crate) async fn the_storage_class_may_come_late(world: &World) {
    let site = Site::new(world).await;
    let late = site.class_without_object("late", "");
    let _disk = mount(&late, "vol1");
    let _daemon = Daemon::start(site.setup());
    let note = site.until_event(&site.node, "StorageClassMissing").await;
    assert!(note.contains(&late.name), "{note}");
    assert!(site.pv_at(&late, "vol1").await.is_none());
    site.create_storage_class(&late, "Delete").await;
    site.until_phase(&late, "vol1", "Available").await;
    site.clean_up().await;
}

pub(crate) async fn the_node_may_come_late(world: &World) {
    let site = Site::without_node(world).await;
    let fast = site.class("fast", "").await;
    let _disk = mount(&fast, "vol1");
    let daemon = Daemon::start(site.setup());
    until("it says so", async || {
        let (_, status) = daemon.get("/status")?;
        status.contains("NodeUnknown").then_some(())
    })
    .await;
    assert!(site.pv_at(&fast, "vol1").await.is_none());
    site.create_node().await;
    site.until_phase(&fast, "vol1", "Available").await;
    site.clean_up().await;
}
