use std::fs::{self, File};
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use nix::mount::{MntFlags, umount2};
use provisor::node::watch::{Dirt, Watch};
use provisor::volume::ClassName;

use super::subdir;
use crate::support::disks::{Loop, Mounted};

/// How long an event may take on a machine that is busy with other tests.
const LIMIT: Duration = Duration::from_secs(5);
/// How long it stays silent before silence is believed.
const SILENCE: Duration = Duration::from_millis(150);

fn class() -> Dirt {
    Dirt::Class(ClassName::new("c"))
}

fn watch(dir: &Path) -> (Watch, Receiver<Dirt>) {
    let (send, receive) = channel();
    let watch = Watch::start(vec![(ClassName::new("c"), dir.to_owned())], move |dirt| {
        let _ = send.send(dirt);
    })
    .unwrap();
    assert_eq!(
        watch.sources().working(),
        ["mountinfo", "uevents", "inotify"],
        "{:?}",
        watch.sources().warnings()
    );
    (watch, receive)
}

/// Waits until `dirt` is told.
fn expect(receive: &Receiver<Dirt>, dirt: &Dirt, after: &str) {
    let end = Instant::now() + LIMIT;
    while let Ok(told) = receive.recv_timeout(end.saturating_duration_since(Instant::now())) {
        if told == *dirt {
            return;
        }
    }
    panic!("{dirt:?} was not told after {after}");
}

/// Drops what was told, until the class has been silent for a while. Other tests' devices make noise
/// for all classes.
fn settle(receive: &Receiver<Dirt>) {
    let end = Instant::now() + LIMIT;
    let mut quiet_since = Instant::now();
    while quiet_since.elapsed() < SILENCE {
        assert!(Instant::now() < end, "the class is never quiet");
        if receive.recv_timeout(SILENCE / 3) == Ok(class()) {
            quiet_since = Instant::now();
        }
    }
}

#[test]
fn names_that_come_and_go_are_told_but_not_our_own_reading() {
    let dir = tempfile::tempdir().unwrap();
    let (_watch, told) = watch(dir.path());
    settle(&told);
    let entry = subdir(dir.path(), "entry");
    expect(&told, &class(), "mkdir");
    settle(&told);
    fs::rename(&entry, dir.path().join("other")).unwrap();
    expect(&told, &class(), "rename");
    settle(&told);
    fs::remove_dir(dir.path().join("other")).unwrap();
    expect(&told, &class(), "rmdir");
    settle(&told);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    let end = Instant::now() + SILENCE;
    while let Ok(dirt) = told.recv_timeout(end.saturating_duration_since(Instant::now())) {
        assert_ne!(dirt, class(), "reading the directory is no change");
    }
}

/// An ancestor that is renamed makes no event; the slow timer finds it out.
#[test]
fn another_directory_of_the_same_path_is_watched_after_a_recheck() {
    let root = tempfile::tempdir().unwrap();
    let grandparent = subdir(root.path(), "grandparent");
    let parent = subdir(&grandparent, "parent");
    let dir = subdir(&parent, "dir");
    let (watch, told) = watch(&dir);
    settle(&told);
    fs::rename(&grandparent, root.path().join("away")).unwrap();
    fs::create_dir_all(&dir).unwrap();
    // Not settled before: somebody else's mount may have made it look already.
    watch.recheck();
    expect(&told, &class(), "a recheck");
    settle(&told);
    subdir(&dir, "entry");
    expect(&told, &class(), "mkdir in the new directory");
}

#[test]
fn mounts_are_told_fast() {
    let dir = tempfile::tempdir().unwrap();
    let point = subdir(dir.path(), "vol");
    let (_watch, told) = watch(dir.path());
    settle(&told);
    let mount = Mounted::tmpfs(&point);
    expect(&told, &Dirt::All, "mount");
    settle(&told);
    drop(mount);
    expect(&told, &Dirt::All, "umount");
}

#[test]
fn many_mounts_are_told_at_most_every_50_ms() {
    let dir = tempfile::tempdir().unwrap();
    let (_watch, told) = watch(dir.path());
    settle(&told);
    while told.try_recv().is_ok() {}
    let begin = Instant::now();
    let point = subdir(dir.path(), "vol");
    for _ in 0..500 {
        drop(Mounted::tmpfs(&point));
    }
    expect(&told, &Dirt::All, "mounts");
    let rounds = begin.elapsed().as_millis() / 50 + 2;
    let count = told.try_iter().filter(|dirt| *dirt == Dirt::All).count();
    assert!(count as u128 <= rounds, "{count} in {rounds} rounds");
}

#[test]
fn a_directory_that_goes_and_comes_is_watched_again() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("a/b/disks");
    let (_watch, told) = watch(&target);
    settle(&told);
    let works = |told: &Receiver<Dirt>, after: &str| {
        settle(told);
        File::create(target.join("entry")).unwrap();
        expect(told, &class(), after);
        fs::remove_file(target.join("entry")).unwrap();
        settle(told);
    };
    fs::create_dir_all(&target).unwrap();
    expect(&told, &class(), "creation with its parents");
    works(&told, "creation with its parents");

    fs::remove_dir(&target).unwrap();
    expect(&told, &class(), "removal");
    fs::create_dir(&target).unwrap();
    expect(&told, &class(), "a second creation");
    works(&told, "a second creation");

    fs::rename(&target, dir.path().join("moved")).unwrap();
    expect(&told, &class(), "being renamed");
    fs::create_dir(&target).unwrap();
    works(&told, "being renamed and made again");

    let mount = Mounted::tmpfs(&target);
    expect(&told, &Dirt::All, "being covered");
    works(&told, "being covered");
    umount2(&target, MntFlags::MNT_DETACH).unwrap();
    expect(&told, &Dirt::All, "being uncovered");
    works(&told, "being uncovered");
    drop(mount);
}

#[test]
fn the_same_filesystem_mounted_again_is_watched_again() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Loop::new(16 << 20);
    disk.format();
    let mount = || Mounted::device(&disk.node, dir.path(), "ext4", nix::mount::MsFlags::empty());
    let first = mount();
    let (_watch, told) = watch(dir.path());
    settle(&told);
    while told.try_recv().is_ok() {}
    let elsewhere = tempfile::tempdir().unwrap();
    let _other = Mounted::tmpfs(elsewhere.path());
    expect(&told, &Dirt::All, "another mount");
    // Right after a wake mounts are not looked at, so both are one change.
    umount2(dir.path(), MntFlags::empty()).unwrap();
    std::mem::forget(first);
    let _second = mount();
    expect(&told, &Dirt::All, "mounting again");
    settle(&told);
    File::create(dir.path().join("entry")).unwrap();
    expect(
        &told,
        &class(),
        "a file in the filesystem that was mounted again",
    );
}

#[test]
fn more_events_than_the_queue_holds_mean_all() {
    let dir = tempfile::tempdir().unwrap();
    let _fs = Mounted::tmpfs(dir.path());
    let (_watch, told) = watch(dir.path());
    settle(&told);
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let limit: usize = limit.trim().parse().unwrap();
    // Each round makes three events, faster than they can be handled one by one.
    let (one, two) = (dir.path().join("1"), dir.path().join("2"));
    File::create(&one).unwrap();
    for _ in 0..limit * 4 {
        fs::rename(&one, &two).unwrap();
        fs::rename(&two, &one).unwrap();
    }
    expect(&told, &class(), "renames");
    settle(&told);
    fs::remove_file(&one).unwrap();
    expect(&told, &class(), "the flood");
}

#[test]
fn devices_are_told_and_told_again_for_their_links() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Loop::new(8 << 20);
    let (_watch, told) = watch(dir.path());
    settle(&told);
    while told.try_recv().is_ok() {}
    disk.detach();
    expect(&told, &Dirt::All, "a detached loop device");
    expect(&told, &Dirt::All, "the time that udev needs");
}

#[test]
fn a_watch_ends_when_it_is_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let (watch, told) = watch(dir.path());
    settle(&told);
    drop(watch);
    while told.try_recv().is_ok() {}
    let point = subdir(dir.path(), "vol");
    let _mount = Mounted::tmpfs(&point);
    assert_eq!(told.recv_timeout(SILENCE).ok(), None, "told after the end");
}
