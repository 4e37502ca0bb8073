//! The life of volumes, as scenarios that need only an API server: the same functions run against the
//! stand-in and against a real control plane, on real mounts and loop devices.

use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::api::{DeleteParams, ListParams, PostParams};
use nix::mount::MsFlags;
use nix::sys::signal::Signal;
use serde_json::json;

use crate::support::daemon::{Daemon, Process, provisor};
use crate::support::disks::{Loop, Mounted};
use crate::support::site::{
    ClassDir, LogEntry, Site, World, name_of, object, phase_of, uid_of, until,
};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Declares the scenarios once, as functions to run and as a list of their names.
macro_rules! scenarios {
    ($($name:ident),+ $(,)?) => {
        /// Makes a test of each scenario; `$world` gives the API server.
        macro_rules! tests_of_scenarios {
            ($world:expr) => {
                $(
                    #[test]
                    fn $name() {
                        let world = $world;
                        let runtime = tokio::runtime::Builder::new_current_thread()
                            .enable_all()
                            .build()
                            .expect("a runtime can be made");
                        runtime.block_on(async {
                            // A scenario that hangs must fail, not stop the suite.
                            let limit = std::time::Duration::from_secs(300);
                            tokio::time::timeout(limit, crate::scenarios::$name(&world))
                                .await
                                .expect("the scenario ends in time");
                        });
                    }
                )+
            };
        }
        pub(crate) use tests_of_scenarios;
    };
}

scenarios! {
    a_mount_lives_from_offer_to_offer,
    a_device_lives_from_offer_to_offer,
    a_device_in_filesystem_mode_is_offered_and_wiped_as_a_device,
    a_plain_directory_is_refused_with_a_reason,
    volumes_of_others_are_never_touched,
    a_retained_volume_is_left_alone,
    a_volume_deleted_by_hand_is_wiped_before_it_goes,
    a_busy_volume_is_wiped_only_once_it_is_free,
    a_replaced_mount_is_never_wiped,
    a_volume_given_back_by_hand_is_not_wiped_any_further,
    the_storage_class_may_come_late,
    the_node_may_come_late,
    a_taken_name_is_refused_and_left_alone,
    a_kill_amid_a_hundred_thousand_files_leaks_nothing,
    a_kill_amid_a_gibibyte_device_leaks_nothing,
    a_signal_stops_it_and_the_next_process_goes_on,
    upstreams_volumes_are_adopted_as_they_are,
}

/// Mounts a fresh tmpfs as an entry.
fn mount(class: &ClassDir, entry: &str) -> Mounted {
    let point = class.dir.join(entry);
    fs::create_dir_all(&point).expect("the directory is ours");
    Mounted::tmpfs_of(&point, "64m")
}

/// Leaves a tenant's file.
fn leave(disk: &Mounted) {
    fs::write(disk.point().join("marker"), "x").expect("the volume takes files");
}

/// Binds the volume, runs `write` as the Pod would, and releases it.
async fn use_once(site: &Site<'_>, pv: &PersistentVolume, write: impl FnOnce()) {
    site.bind(pv).await;
    write();
    site.unclaim(pv).await;
}

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

const MARKER: &[u8] = b"tenant one was here";

/// Where the markers of a device are: its start, middle and end.
fn places(size: u64) -> [u64; 3] {
    [0, size / 2, size - MARKER.len() as u64]
}

fn write_markers(device: &Path, size: u64) {
    let file = fs::OpenOptions::new()
        .write(true)
        .open(device)
        .expect("the device opens");
    for place in places(size) {
        file.write_all_at(MARKER, place)
            .expect("the device takes data");
    }
    file.sync_all().expect("the device syncs");
}

/// Every byte of the image behind the device.
fn is_zero(image: &Path) -> bool {
    fs::read(image)
        .expect("the image is ours")
        .iter()
        .all(|byte| *byte == 0)
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

/// A Released volume with policy Delete at `dir/entry`, made by somebody else.
fn foreign(
    name: &str,
    class: &ClassDir,
    entry: &str,
    host: &str,
    label: Option<&str>,
) -> PersistentVolume {
    let labels = label.map(|label| json!({"provisor.dev/node": label}));
    object(json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {
            "name": name, "labels": labels,
            "annotations": {"pv.kubernetes.io/provisioned-by": "somebody-else"},
        },
        "spec": {
            "capacity": {"storage": "64Mi"}, "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Delete", "storageClassName": class.name,
            "local": {"path": class.dir.join(entry)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": [host]}]}]}},
        },
    }))
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

pub(crate) async fn a_taken_name_is_refused_and_left_alone(world: &World) {
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
    let now = site.pvs().get(&name).await.expect("it is there");
    assert_eq!(uid_of(&now), uid_of(&taken));
    assert!(now.metadata.labels.is_none(), "it was not adopted");
    site.pvs()
        .delete(&name, &DeleteParams::default())
        .await
        .expect("it can be deleted");
    site.clean_up().await;
}

/// Kills the daemon amid a wipe a few times, then lets it finish. `dirty` says whether data is still
/// there; no volume may be Available while it is.
async fn kill_amid_wipe(
    site: &Site<'_>,
    class: &ClassDir,
    entry: &str,
    fill: impl FnOnce(),
    dirty: impl Fn() -> bool,
) {
    let process = Process::start(site.setup());
    let pv = site.until_phase(class, entry, "Available").await;
    site.bind(&pv).await;
    fill();
    let log = site.watch_log().await;
    site.unclaim(&pv).await;
    let mut process = process;
    for round in 0..3 {
        let began = until("the wipe begins", async || {
            let pv = site
                .pvs()
                .get_opt(name_of(&pv))
                .await
                .expect("the API server answers")?;
            let marks = pv.metadata.annotations.as_ref()?;
            let marked = marks.get("provisor.dev/cleaning")?;
            marked.contains("started").then_some(())
        });
        began.await;
        // Somewhere within the wipe, later each time.
        tokio::time::sleep(Duration::from_millis(15 * (round + 1))).await;
        process.kill();
        let entries = log.entries();
        let offered = offered(&entries, uid_of(&pv));
        assert!(
            offered.is_empty() || !dirty(),
            "offered while dirty: {offered:?}"
        );
        process = Process::start(site.setup());
        if !dirty() {
            break;
        }
    }
    let again = site.until_offered_again(class, entry, &pv).await;
    assert!(!dirty(), "offered while dirty");
    let entries = log.entries();
    let gone = entries
        .iter()
        .position(|e| e.uid == uid_of(&pv) && e.phase == "gone");
    let new = entries.iter().position(|e| e.uid == uid_of(&again));
    assert!(
        gone < new,
        "the old volume goes before the new one comes: {entries:?}"
    );
    process.kill();
}

/// The entries of the log that offer a volume other than `old`.
fn offered<'a>(log: &'a [LogEntry], old: &str) -> Vec<&'a LogEntry> {
    log.iter()
        .filter(|e| e.uid != old && e.phase == "Available")
        .collect()
}

pub(crate) async fn a_kill_amid_a_hundred_thousand_files_leaks_nothing(world: &World) {
    let site = Site::new(world).await;
    let fast = site.class("fast", "").await;
    // Large enough for the inodes that mkfs makes in proportion.
    let device = Loop::new(4 * GIB);
    device.format();
    let point = fast.dir.join("vol1");
    fs::create_dir(&point).expect("the directory is ours");
    let disk = Mounted::device(&device.node, &point, "ext4", MsFlags::empty());
    let fill = || {
        for dir in 0..100 {
            let dir = disk.point().join(format!("dir{dir}"));
            fs::create_dir(&dir).expect("the volume takes directories");
            for file in 0..1000 {
                fs::write(dir.join(file.to_string()), "x").expect("the volume takes files");
            }
        }
    };
    let dirty = || {
        let mut names = fs::read_dir(disk.point()).expect("readable").flatten();
        names.any(|entry| entry.file_name() != "lost+found")
    };
    kill_amid_wipe(&site, &fast, "vol1", fill, dirty).await;
    site.clean_up().await;
}

pub(crate) async fn a_kill_amid_a_gibibyte_device_leaks_nothing(world: &World) {
    let site = Site::new(world).await;
    // Passes of random data make the wipe long enough to be killed.
    let shred = "  volumeMode: Block\n  blockCleanerCommand: [/scripts/shred.sh, \"1\"]";
    let blocks = site.class("blocks", shred).await;
    let device = Loop::new(GIB);
    symlink(&device.node, blocks.dir.join("disk1")).expect("the directory is ours");
    let fill = || {
        let file = fs::OpenOptions::new()
            .write(true)
            .open(&device.node)
            .expect("it opens");
        let block = vec![0xa5; usize::try_from(MIB).expect("small")];
        for at in 0..1024 {
            file.write_all_at(&block, at * MIB)
                .expect("the device takes data");
        }
        file.sync_all().expect("the device syncs");
    };
    let dirty = || {
        let image = fs::File::open(&device.file).expect("the image is ours");
        let mut block = vec![0; usize::try_from(MIB).expect("small")];
        (0..1024).any(|at| {
            image
                .read_exact_at(&mut block, at * MIB)
                .expect("the image is whole");
            block.iter().any(|byte| *byte != 0)
        })
    };
    kill_amid_wipe(&site, &blocks, "disk1", fill, dirty).await;
    site.clean_up().await;
}

pub(crate) async fn a_signal_stops_it_and_the_next_process_goes_on(world: &World) {
    let site = Site::new(world).await;
    let fast = site.class("fast", "").await;
    let disk = mount(&fast, "vol1");
    let process = Process::start(site.setup());
    let pv = site.until_phase(&fast, "vol1", "Available").await;
    process.signal(Signal::SIGTERM);
    let (status, took) = process.wait();
    assert!(status.success(), "{status}");
    assert!(took < Duration::from_secs(10), "{took:?}");
    // Released while nobody looks.
    use_once(&site, &pv, || leave(&disk)).await;
    let process = Process::start(site.setup());
    site.until_offered_again(&fast, "vol1", &pv).await;
    assert!(!disk.point().join("marker").exists());
    process.signal(Signal::SIGTERM);
    process.signal(Signal::SIGTERM);
    let (_, took) = process.wait();
    assert!(took < Duration::from_secs(5), "{took:?}");
    site.clean_up().await;
}

/// A volume exactly as upstream 2.9 makes it, in one of its two name modes.
fn upstreams(
    site: &Site<'_>,
    class: &ClassDir,
    entry: &str,
    provisioner: &str,
) -> PersistentVolume {
    object(json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {
            "name": provisor::pv::name(entry, &site.node, &class.name),
            "annotations": {"pv.kubernetes.io/provisioned-by": provisioner},
        },
        "spec": {
            "capacity": {"storage": "1Mi"}, "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Delete", "storageClassName": class.name,
            "volumeMode": "Filesystem",
            "local": {"path": class.dir.join(entry)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": [site.node]}]}]}},
        },
    }))
}

/// Fifty volumes of upstream, half of them labelled by `provisor adopt` first, half met by their name.
pub(crate) async fn upstreams_volumes_are_adopted_as_they_are(world: &World) {
    let site = Site::new(world).await;
    let fast = site.class("fast", "").await;
    let mut disks = Vec::new();
    let mut made = Vec::new();
    for number in 0..50 {
        let entry = format!("vol{number}");
        disks.push(mount(&fast, &entry));
        let uid = "0f3c7a9e-1b2d-4c5e-8f90-123456789abc";
        let provisioner = match number % 2 {
            0 => format!("local-volume-provisioner-{}", site.node),
            _ => format!("local-volume-provisioner-{}-{uid}", site.node),
        };
        let pv = upstreams(&site, &fast, &entry, &provisioner);
        made.push(
            site.pvs()
                .create(&PostParams::default(), &pv)
                .await
                .expect("it can be made"),
        );
        if number == 24 {
            let kubeconfig = site.setup().kubeconfig.clone();
            let run = move |args: &'static [&'static str]| {
                let kubeconfig = kubeconfig.clone();
                tokio::task::spawn_blocking(move || provisor(args, &[("KUBECONFIG", &kubeconfig)]))
            };
            // Others may have volumes on this cluster too: only this node's lines count.
            let count = |out: &str, what: &str| {
                let line = format!("{what} for {}", site.node);
                out.lines().filter(|text| text.ends_with(&line)).count()
            };
            let (success, out, err) = run(&["adopt", "--dry-run"]).await.expect("it runs");
            assert!(
                success && count(&out, "would be labelled") == 25,
                "{out}{err}"
            );
            let (success, out, err) = run(&["adopt"]).await.expect("it runs");
            assert!(success && count(&out, ": labelled") == 25, "{out}{err}");
            let (success, out, err) = run(&["adopt"]).await.expect("it runs");
            assert!(success && count(&out, "labelled") == 0, "{out}{err}");
        }
    }
    // A foreign volume has the name of one more entry.
    let taken = provisor::pv::name("vol50", &site.node, &fast.name);
    let foreign = foreign(&taken, &fast, "elsewhere", &site.node, None);
    let foreign = site
        .pvs()
        .create(&PostParams::default(), &foreign)
        .await
        .expect("it can be made");
    disks.push(mount(&fast, "vol50"));

    let _daemon = Daemon::start(site.setup());
    site.until_event(&site.node, "NameTaken").await;
    for pv in &made {
        let now = until("it is adopted", async || {
            let now = site.pvs().get(name_of(pv)).await.expect("it is there");
            let marks = now.metadata.annotations.clone().unwrap_or_default();
            let finalizers = now.metadata.finalizers.clone().unwrap_or_default();
            (marks.contains_key("provisor.dev/identity")
                && finalizers.iter().any(|f| f == provisor::pv::FINALIZER))
            .then_some(now)
        })
        .await;
        assert_eq!(uid_of(&now), uid_of(pv));
        let capacity = now.spec.and_then(|spec| spec.capacity).expect("capacity");
        assert_eq!(capacity["storage"].0, "1Mi", "the capacity is left alone");
    }
    let all = site
        .pvs()
        .list(&ListParams::default())
        .await
        .expect("volumes can be listed");
    let of_class = all.items.iter().filter(|pv| {
        pv.spec
            .as_ref()
            .and_then(|s| s.storage_class_name.as_deref())
            == Some(&fast.name)
    });
    assert_eq!(of_class.count(), 51, "none was made twice");
    // An adopted volume goes through its life like any other.
    use_once(&site, &made[7], || leave(&disks[7])).await;
    site.until_offered_again(&fast, "vol7", &made[7]).await;
    let now = site.pvs().get(&taken).await.expect("it is there");
    assert_eq!(uid_of(&now), uid_of(&foreign));
    site.pvs()
        .delete(&taken, &DeleteParams::default())
        .await
        .expect("it can be deleted");
    site.clean_up().await;
}
