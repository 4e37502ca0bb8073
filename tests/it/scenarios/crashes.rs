//! Killed or stopped in the middle, and started again.

use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::time::Duration;

use nix::mount::MsFlags;
use nix::sys::signal::Signal;

use super::{GIB, MIB, leave, mount, use_once};
use crate::support::daemon::Process;
use crate::support::disks::{Loop, Mounted};
use crate::support::site::{ClassDir, LogEntry, Site, World, name_of, uid_of, until};

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
    // The log is a watch of its own: it may hear of the new volume later than the reads above.
    let (gone, new) = until("the log tells of both volumes", async || {
        let entries = log.entries();
        let mut of_old = entries.iter();
        let gone = of_old.position(|e| e.uid == uid_of(&pv) && e.phase == "gone")?;
        let new = entries.iter().position(|e| e.uid == uid_of(&again))?;
        Some((gone, new))
    })
    .await;
    assert!(
        gone < new,
        "the old volume goes before the new one comes: {:?}",
        log.entries()
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
