//! What the daemon notices, and that nothing can keep it from noticing: devices that go and come, entries
//! that hang, a thousand entries at once, more events than the kernel keeps.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use serde_json::Value;

use crate::support::apiserver::{Action, Fault, Request, Verb};
use crate::support::daemon::Daemon;
use crate::support::disks::{Loop, Mounted};
use crate::support::fuse::Mute;
use crate::support::site::{ClassDir, Site, World, name_of, until};
use crate::support::zram::{Zram, Zrams};
use crate::support::{Running, meanwhile, nap};

/// Why `/status` says that an entry is refused; empty when it is not.
fn reason(daemon: &Daemon, class: &ClassDir, entry: &str) -> Option<String> {
    let (_, status) = daemon.get("/status")?;
    let status: Value = serde_json::from_str(&status).ok()?;
    let entries = status["classes"][&class.name]["entries"]
        .as_array()?
        .clone();
    let shown = entries.iter().find(|shown| shown["entry"] == entry)?;
    Some(shown["reason"].as_str().unwrap_or_default().to_owned())
}

async fn until_reason(daemon: &Daemon, class: &ClassDir, entry: &str, wanted: &str) {
    until(&format!("{entry} is {wanted:?}"), async || {
        (reason(daemon, class, entry)? == wanted).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_hung_entry_stays_hung_through_a_whole_life_of_its_neighbour() {
    let world = World::stand_in();
    let site = Site::new(&world).await;
    let fast = site.class("fast", "").await;
    let subdir = |name: &str| {
        let path = fast.dir.join(name);
        fs::create_dir(&path).expect("the directory is ours");
        path
    };
    let revived = Mute::mount(&subdir("revived"));
    let dead = Mute::mount(&subdir("dead"));
    // Somebody has a file of a hung filesystem open; who looks for users of others must not ask for it.
    let root =
        open(&fast.dir.join("dead"), OFlag::O_PATH, Mode::empty()).expect("no server is asked");
    let sleep = Command::new("sleep")
        .arg("600")
        .stdin(Stdio::from(root))
        .spawn();
    let _holder = Running(sleep.expect("sleep starts"));
    let daemon = Daemon::start(site.setup());
    for hung in ["revived", "dead"] {
        until_reason(&daemon, &fast, hung, "Hung").await;
    }

    let begun = Instant::now();
    let good = Mounted::tmpfs(&subdir("good"));
    let pv = site.until_phase(&fast, "good", "Available").await;
    site.bind(&pv).await;
    fs::write(good.point().join("marker"), "x").expect("the volume takes files");
    site.unclaim(&pv).await;
    let pv = site.until_offered_again(&fast, "good", &pv).await;
    assert!(!good.point().join("marker").exists());
    let took = begun.elapsed();
    // The directory is looked at three times at least, and a probe may take 2 s.
    assert!(
        took < Duration::from_secs(3 * 2),
        "the hung entries were waited for: {took:?}"
    );
    drop(good);
    until_reason(&daemon, &fast, "good", "EntryMissing").await;
    for hung in ["revived", "dead"] {
        assert_eq!(reason(&daemon, &fast, hung).as_deref(), Some("Hung"));
        assert!(site.pv_at(&fast, hung).await.is_none());
    }
    drop(pv);

    // The end of a hang makes no event; the probe itself comes back.
    let _revived = revived.answer();
    site.until_phase(&fast, "revived", "Available").await;
    let dead = dead.die();
    until_reason(&daemon, &fast, "dead", "Unreadable").await;
    drop(dead);
    until_reason(&daemon, &fast, "dead", "NotMounted").await;
    daemon.stop().expect("it stops cleanly");
}

#[tokio::test]
async fn a_thousand_entries_at_once_do_not_keep_a_released_volume_waiting() {
    const ENTRIES: usize = 1000;
    let world = World::stand_in();
    let site = Site::new(&world).await;
    let fast = site.class("fast", "").await;
    let server = world.server().expect("it is the stand-in");
    let daemon = Daemon::start(site.setup());
    // The last in the order of names.
    let last = fast.dir.join("zzz");
    fs::create_dir(&last).expect("the directory is ours");
    let disk = Mounted::tmpfs(&last);
    let pv = site.until_phase(&fast, "zzz", "Available").await;
    site.bind(&pv).await;
    fs::write(disk.point().join("marker"), "x").expect("the volume takes files");

    // A server that takes its time, so that the burst lasts.
    let slow = Fault::new(Action::Delay(Duration::from_millis(100)));
    server.inject(slow.verb(Verb::Create).path("/api/v1/persistentvolumes"));
    let mounts: Vec<Mounted> = (0..ENTRIES)
        .map(|number| {
            let point = fast.dir.join(format!("entry{number}"));
            fs::create_dir(&point).expect("the directory is ours");
            Mounted::tmpfs(&point)
        })
        .collect();
    until("the burst runs", async || {
        (server.pvs().len() > 50).then_some(())
    })
    .await;
    site.unclaim(&pv).await;
    let released = Instant::now();
    until("it is offered again", async || {
        let now = server.pv(name_of(&pv))?;
        let is_new = now["metadata"]["uid"].as_str() != pv.metadata.uid.as_deref();
        (is_new && now["status"]["phase"] == "Available").then_some(())
    })
    .await;
    let (took, offered) = (released.elapsed(), server.pvs().len());
    assert!(
        offered < ENTRIES,
        "it waited {took:?} for the end of the burst: {offered} volumes are there"
    );
    assert!(!disk.point().join("marker").exists());
    server.lift_all();
    until("each entry has its volume", async || {
        (server.pvs().len() == ENTRIES + 1).then_some(())
    })
    .await;
    drop(mounts);
    daemon.stop().expect("it stops cleanly");
}

/// The link stays as it is and no mount changes: only the device's own events tell.
#[tokio::test]
async fn a_device_that_goes_and_comes_behind_its_link_is_followed() {
    const BYTES: u64 = 4 << 20;
    let world = World::stand_in();
    let site = Site::new(&world).await;
    let blocks = site.class("blocks", "  volumeMode: Block").await;
    let zrams = Zrams::take();
    let number = {
        let device = zrams.add(BYTES);
        assert!(device.remove(), "nobody has it open");
        device.number
    };
    symlink(Zram::node(number), blocks.dir.join("disk")).expect("the directory is ours");
    let daemon = Daemon::start(site.setup());
    until_reason(&daemon, &blocks, "disk", "DanglingLink").await;

    let device = zrams.add(BYTES);
    assert_eq!(device.number, number, "the lowest that is free");
    let pv = site.until_phase(&blocks, "disk", "Available").await;
    assert!(device.remove(), "who offers it does not open it");
    until_reason(&daemon, &blocks, "disk", "EntryMissing").await;
    assert!(
        site.pv_at(&blocks, "disk").await.is_some(),
        "it may come back"
    );

    // Another medium of the same number.
    let device = zrams.add(BYTES);
    assert_eq!(device.number, number, "the lowest that is free");
    site.until_offered_again(&blocks, "disk", &pv).await;
    daemon.stop().expect("it stops cleanly");
}

/// The kernel drops events of a directory that change faster than anybody reads them.
#[tokio::test]
async fn a_flood_of_events_hides_no_entry() {
    let world = World::stand_in();
    let site = Site::new(&world).await;
    let blocks = site.class("blocks", "  volumeMode: Block").await;
    let disks: Vec<Loop> = (0..3).map(|_| Loop::new(4 << 20)).collect();
    let daemon = Daemon::start(site.setup());
    until("it is ready", async || {
        daemon.get("/readyz").filter(|(code, _)| *code == 200)
    })
    .await;
    let (one, two) = (blocks.dir.join("one"), blocks.dir.join("two"));
    fs::write(&one, "").expect("the directory is ours");
    let flood = || {
        fs::rename(&one, &two).expect("the file is ours");
        fs::rename(&two, &one).expect("the file is ours");
    };
    meanwhile(flood, || {
        for (number, disk) in disks.iter().enumerate() {
            for _ in 0..10 {
                nap();
            }
            // Only inotify can tell of a link.
            let link = blocks.dir.join(format!("disk{number}"));
            symlink(&disk.node, link).expect("the directory is ours");
        }
        for _ in 0..50 {
            nap();
        }
    });
    for number in 0..disks.len() {
        site.until_phase(&blocks, &format!("disk{number}"), "Available")
            .await;
    }
    fs::remove_file(blocks.dir.join("disk0")).expect("the directory is ours");
    until_reason(&daemon, &blocks, "disk0", "EntryMissing").await;
    daemon.stop().expect("it stops cleanly");
}

/// While the API server takes its time over a creation, the entry goes and its storage comes back under
/// another name, in another class.
#[tokio::test]
async fn storage_that_is_just_being_offered_is_not_offered_again() {
    let world = World::stand_in();
    let site = Site::new(&world).await;
    let first = site.class("first", "").await;
    let second = site.class("second", "").await;
    let server = world.server().expect("it is the stand-in");
    let daemon = Daemon::start(site.setup());
    let source = site.root.path().join("source");
    let points = [second.dir.join("vol"), first.dir.join("vol")];
    for dir in points.iter().chain([&source]) {
        fs::create_dir(dir).expect("the directory is ours");
    }
    for class in [&first, &second] {
        until_reason(&daemon, class, "vol", "NotMounted").await;
    }
    let path = "/api/v1/persistentvolumes";
    let is_create = |request: &Request| request.verb == Verb::Create && request.path == path;
    let slow = Fault::new(Action::Delay(Duration::from_secs(1)));
    server.inject(slow.verb(Verb::Create).path(path));
    let _source = Mounted::tmpfs(&source);
    let gone = Mounted::bind(&source, &points[0]);
    until("it is being offered", async || {
        (!server.requests_matching(is_create).is_empty()).then_some(())
    })
    .await;
    drop(gone);
    let _again = Mounted::bind(&source, &points[1]);
    until_reason(&daemon, &first, "vol", "SameStorage").await;
    until_reason(&daemon, &second, "vol", "EntryMissing").await;
    until_reason(&daemon, &first, "vol", "SameStorage").await;
    assert_eq!(server.requests_matching(is_create).len(), 1);
    assert!(site.pv_at(&first, "vol").await.is_none());
    daemon.stop().expect("it stops cleanly");
}
