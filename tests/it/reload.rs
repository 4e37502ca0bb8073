//! Edits of the configuration while the daemon runs, on real mounts and devices.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::PersistentVolume;

use crate::support::daemon::Daemon;
use crate::support::disks::{Loop, Mounted};
use crate::support::site::{ClassDir, Site, World, name_of, uid_of, until};

const MIB: u64 = 1 << 20;

/// Runs a test with a node of its own on a stand-in.
fn run(test: impl AsyncFnOnce(&Site<'_>)) {
    let world = World::stand_in();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime can be made");
    runtime.block_on(async { test(&Site::new(&world).await).await });
}

/// A class as it stands in the ConfigMap.
fn text(class: &ClassDir, settings: &str) -> String {
    let dir = class.dir.display();
    format!(
        "{}:\n  hostDir: {dir}\n  mountDir: {dir}\n{settings}\n",
        class.name
    )
}

/// Puts another value in the place of a key's, at once.
fn edit(site: &Site<'_>, key: &str, value: &str) {
    let new = site.root.path().join("edited");
    fs::write(&new, value).expect("the directory is ours");
    fs::rename(&new, site.setup().config_dir.join(key)).expect("the directory is ours");
}

fn mount(class: &ClassDir, entry: &str) -> Mounted {
    let point = class.dir.join(entry);
    fs::create_dir_all(&point).expect("the directory is ours");
    Mounted::tmpfs_of(&point, "16m")
}

/// Waits until the daemon counts `applied` and `refused` changes of the configuration.
async fn until_reloads(daemon: &Daemon, applied: u32, refused: u32) {
    let wanted = [("applied", applied), ("refused", refused)]
        .map(|(result, n)| format!("provisor_config_reload_total{{result=\"{result}\"}} {n}\n"));
    until(&format!("{wanted:?}"), async || {
        let (_, metrics) = daemon.get("/metrics")?;
        wanted
            .iter()
            .all(|line| metrics.contains(line))
            .then_some(())
    })
    .await;
}

async fn until_status(daemon: &Daemon, is_so: impl Fn(&str) -> bool) {
    until("the status is so", async || {
        let (_, status) = daemon.get("/status")?;
        is_so(&status).then_some(())
    })
    .await;
}

#[test]
fn cfg_60_61_a_class_that_is_added_is_offered_without_a_restart() {
    run(async |site| {
        let daemon = Daemon::start(site.setup());
        until("it is ready", async || {
            daemon.get("/readyz").filter(|(code, _)| *code == 200)
        })
        .await;
        // Its directory is there before the class, and its StorageClass is.
        let late = ClassDir {
            name: format!("late-{}", site.node),
            dir: site.root.path().join("late"),
        };
        let _first = mount(&late, "vol1");
        site.create_storage_class(&late, "Delete").await;
        edit(site, "storageClassMap", &text(&late, ""));
        site.until_phase(&late, "vol1", "Available").await;
        // What appears in it later is seen too.
        let _second = mount(&late, "vol2");
        site.until_phase(&late, "vol2", "Available").await;
        let (_, metrics) = daemon.get("/metrics").expect("it answers");
        assert!(!metrics.contains("StorageClassMissing"), "{metrics}");
        daemon.stop().expect("it stops cleanly");
    });
}

#[test]
fn a_class_that_is_removed_keeps_its_volumes_and_offers_nothing_new() {
    run(async |site| {
        let stays = site.class("stays", "").await;
        let goes = site.class("goes", "").await;
        let daemon = Daemon::start(site.setup());
        let _disks = [mount(&goes, "vol1"), mount(&stays, "vol1")];
        let kept = site.until_phase(&goes, "vol1", "Available").await;
        site.until_phase(&stays, "vol1", "Available").await;

        edit(site, "storageClassMap", &text(&stays, ""));
        until_reloads(&daemon, 1, 0).await;
        let _late = [mount(&goes, "vol2"), mount(&stays, "vol2")];
        site.until_phase(&stays, "vol2", "Available").await;
        assert!(site.pv_at(&goes, "vol2").await.is_none());
        site.until_event(name_of(&kept), "ClassUnknown").await;
        let now = site.until_phase(&goes, "vol1", "Available").await;
        assert_eq!(uid_of(&now), uid_of(&kept));
        // Nothing of it is wiped either, until the class is back.
        site.bind(&kept).await;
        site.unclaim(&kept).await;
        site.until_phase(&goes, "vol1", "Released").await;
        edit(
            site,
            "storageClassMap",
            &(text(&stays, "") + &text(&goes, "")),
        );
        site.until_offered_again(&goes, "vol1", &kept).await;
        site.until_phase(&goes, "vol2", "Available").await;
    });
}

#[test]
fn a_class_that_is_removed_takes_its_free_volumes_along_if_told_so() {
    run(async |site| {
        let stays = site.class("stays", "").await;
        let goes = site.class("goes", "").await;
        site.write_key("whenClassGone", "withdraw");
        site.write_key("withdrawClassAfter", "1s");
        let daemon = Daemon::start(site.setup());
        let disks = [mount(&goes, "free"), mount(&goes, "used")];
        let free = site.until_phase(&goes, "free", "Available").await;
        let used = site.until_phase(&goes, "used", "Available").await;
        site.bind(&used).await;

        // As long as anything is refused, a class may be missing for that.
        edit(site, "labelsForPV", "not/a/label: x");
        until_reloads(&daemon, 0, 1).await;
        edit(site, "storageClassMap", &text(&stays, ""));
        until_reloads(&daemon, 0, 2).await;
        site.until_event(name_of(&free), "ClassUnknown").await;
        edit(site, "labelsForPV", "");
        site.until_event(name_of(&free), "Withdrawn").await;
        until("the free one is withdrawn", async || {
            site.pv_at(&goes, "free").await.is_none().then_some(())
        })
        .await;
        let now = site.until_phase(&goes, "used", "Bound").await;
        assert_eq!(uid_of(&now), uid_of(&used));
        assert!(now.metadata.deletion_timestamp.is_none());

        drop(disks);
        daemon.stop().expect("it stops cleanly");
    });
}

#[test]
fn a_changed_pattern_takes_effect() {
    run(async |site| {
        let fast = site.class("fast", "  namePattern: \"a*\"").await;
        let daemon = Daemon::start(site.setup());
        let _disks = [mount(&fast, "a1"), mount(&fast, "b1")];
        let first = site.until_phase(&fast, "a1", "Available").await;
        assert!(site.pv_at(&fast, "b1").await.is_none());
        edit(
            site,
            "storageClassMap",
            &text(&fast, "  namePattern: \"b*\"\n  fsType: xfs"),
        );
        let second = site.until_phase(&fast, "b1", "Available").await;
        let local = second
            .spec
            .and_then(|spec| spec.local)
            .expect("it is local");
        assert_eq!(local.fs_type.as_deref(), Some("xfs"));
        // What exists is never changed.
        let now = site.until_phase(&fast, "a1", "Available").await;
        assert_eq!(uid_of(&now), uid_of(&first));
        until_reloads(&daemon, 1, 0).await;
    });
}

#[test]
fn pv_19_labels_that_are_edited_are_those_of_the_next_volume() {
    run(async |site| {
        let fast = site.class("fast", "").await;
        site.write_key("labelsForPV", "shelf: one");
        let daemon = Daemon::start(site.setup());
        let label = |pv: &PersistentVolume| {
            let labels = pv.metadata.labels.as_ref().expect("labels");
            labels.get("shelf").cloned()
        };
        let _first = mount(&fast, "vol1");
        let first = site.until_phase(&fast, "vol1", "Available").await;
        assert_eq!(label(&first).as_deref(), Some("one"));
        fs::remove_file(site.setup().config_dir.join("labelsForPV")).expect("it is ours");
        until_reloads(&daemon, 1, 0).await;
        let _second = mount(&fast, "vol2");
        let pv = site.until_phase(&fast, "vol2", "Available").await;
        assert_eq!(label(&pv), None);
        // No configuration changes what exists.
        let now = site.until_phase(&fast, "vol1", "Available").await;
        assert_eq!(now, first);
    });
}

#[test]
fn cfg_07_w_13_a_bad_edit_changes_nothing_and_is_said() {
    run(async |site| {
        let (a, b) = (site.class("a", "").await, site.class("b", "").await);
        let daemon = Daemon::start(site.setup());
        let _disks = [mount(&a, "vol1"), mount(&b, "vol1")];
        site.until_phase(&a, "vol1", "Available").await;
        site.until_phase(&b, "vol1", "Available").await;

        // One class is wrong: it stays as it was, and the edit of the other is taken.
        let bad = text(&a, "  volumeMode: Tape") + &text(&b, "  fsType: xfs");
        edit(site, "storageClassMap", &bad);
        until_reloads(&daemon, 0, 1).await;
        let note = site.until_event(&site.node, "ConfigRefused").await;
        assert!(note.contains("storageClassMap.a-"), "{note}");
        let _late = [mount(&a, "vol2"), mount(&b, "vol2")];
        site.until_phase(&a, "vol2", "Available").await;
        let pv = site.until_phase(&b, "vol2", "Available").await;
        assert_eq!(
            pv.spec
                .and_then(|s| s.local)
                .and_then(|l| l.fs_type)
                .as_deref(),
            Some("xfs")
        );
        let shown = ["last good form stays in force", "volumeMode (line 4)"];
        until_status(&daemon, |status| {
            shown.iter().all(|text| status.contains(text))
        })
        .await;
        let (_, metrics) = daemon.get("/metrics").expect("it answers");
        assert!(
            metrics.contains("provisor_config_findings{severity=\"error\"} 2"),
            "{metrics}"
        );

        // Nothing can be read at all.
        edit(site, "storageClassMap", "a: [");
        until_reloads(&daemon, 0, 2).await;
        let _later = mount(&a, "vol3");
        site.until_phase(&a, "vol3", "Available").await;

        edit(site, "storageClassMap", &text(&a, ""));
        until_reloads(&daemon, 1, 2).await;
        until_status(&daemon, |status| !status.contains("last good form")).await;
        let (_, metrics) = daemon.get("/metrics").expect("it answers");
        assert!(
            metrics.contains("provisor_config_findings{severity=\"error\"} 0"),
            "{metrics}"
        );
        daemon.stop().expect("it stops cleanly");
    });
}

/// A cleaner that says when it begins and waits for a word before it wipes.
struct SlowCleaner {
    begun: PathBuf,
    go: PathBuf,
    program: PathBuf,
}

impl SlowCleaner {
    fn new(dir: &Path) -> Self {
        use std::os::unix::fs::PermissionsExt;
        let cleaner = Self {
            begun: dir.join("begun"),
            go: dir.join("go"),
            program: dir.join("cleaner"),
        };
        let script = format!(
            "#!/bin/sh\necho x >> {}\nwhile [ ! -e {} ]; do sleep 0.02; done\n\
             exec dd if=/dev/zero of=\"$LOCAL_PV_BLKDEVICE\" bs=1M count=8 conv=fsync,notrunc\n",
            cleaner.begun.display(),
            cleaner.go.display()
        );
        fs::write(&cleaner.program, script).expect("the directory is ours");
        fs::set_permissions(&cleaner.program, fs::Permissions::from_mode(0o755)).expect("ours");
        cleaner
    }

    fn setting(&self) -> String {
        format!(
            "  volumeMode: Block\n  blockCleanerCommand: [{}]",
            self.program.display()
        )
    }
}

#[test]
fn a_wipe_is_not_disturbed_by_a_reload() {
    run(async |site| {
        let cleaner = SlowCleaner::new(site.root.path());
        let blocks = site.class("blocks", &cleaner.setting()).await;
        let daemon = Daemon::start(site.setup());
        let disk = Loop::new(8 * MIB);
        symlink(&disk.node, blocks.dir.join("disk1")).expect("the directory is ours");
        let pv = site.until_phase(&blocks, "disk1", "Available").await;
        site.bind(&pv).await;
        fs::write(&disk.node, "tenant one").expect("the device takes data");
        site.unclaim(&pv).await;
        until("the wipe begins", async || {
            cleaner.begun.exists().then_some(())
        })
        .await;

        // Its class is changed, then goes, while it runs.
        let changed = "  volumeMode: Block\n  blockCleanerCommand: [/bin/false]\n  namePattern: x*";
        edit(site, "storageClassMap", &text(&blocks, changed));
        until_reloads(&daemon, 1, 0).await;
        edit(site, "storageClassMap", "");
        until_reloads(&daemon, 2, 0).await;
        assert_eq!(
            site.until_phase(&blocks, "disk1", "Released")
                .await
                .metadata
                .uid,
            pv.metadata.uid
        );

        fs::write(&cleaner.go, "").expect("the directory is ours");
        until("the volume is gone", async || {
            site.pv_at(&blocks, "disk1").await.is_none().then_some(())
        })
        .await;
        assert_eq!(
            fs::read_to_string(&cleaner.begun).expect("it began"),
            "x\n",
            "it ran once"
        );
        assert!(
            fs::read(&disk.file)
                .expect("ours")
                .iter()
                .all(|byte| *byte == 0)
        );
        edit(site, "storageClassMap", &text(&blocks, &cleaner.setting()));
        site.until_offered_again(&blocks, "disk1", &pv).await;
    });
}
