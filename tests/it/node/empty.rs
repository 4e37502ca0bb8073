//! Classes that want only empty volumes, and the disk of the node itself.

use std::fs;
use std::os::unix::fs::{FileExt, FileTypeExt, symlink};
use std::path::Path;

use provisor::config::Class;
use provisor::node::inspect::Inspector;
use provisor::node::kubelet::KubeletView;
use provisor::volume::{Found, Reason, Refusal, Scan, Volume, VolumeMode};

use crate::support::disks::{Loop, Mounted, class};

const MIB: u64 = 1 << 20;

fn empty_ones(dir: &Path, mode: VolumeMode) -> Class {
    Class {
        require_empty: true,
        ..class("c", dir, mode)
    }
}

/// The only entry of the class.
async fn only(inspector: &Inspector, class: &Class) -> Result<Volume, Refusal> {
    match inspector.scan(class).await {
        Scan::Entries(mut found) if found.len() == 1 => match found.remove(0) {
            Found::Volume(volume) => Ok(volume),
            Found::Refused { refusal, .. } => Err(refusal),
        },
        other => panic!("{other:?}"),
    }
}

fn inspector() -> Inspector {
    Inspector::new(KubeletView::off())
}

/// How often the device was read.
fn reads(disk: &Loop) -> u64 {
    let stat = fs::read_to_string(format!("/sys/block/{}/stat", disk.name())).unwrap();
    stat.split_whitespace().next().unwrap().parse().unwrap()
}

fn write(disk: &Loop, bytes: &[u8], offset: u64) {
    let device = fs::OpenOptions::new().write(true).open(&disk.node).unwrap();
    device.write_all_at(bytes, offset).unwrap();
    device.sync_all().unwrap();
}

#[tokio::test]
async fn what_is_on_a_device_is_told_and_so_is_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Loop::new(64 * MIB);
    symlink(&disk.node, dir.path().join("disk")).unwrap();
    let (class, inspector) = (empty_ones(dir.path(), VolumeMode::Block), inspector());
    assert_eq!(only(&inspector, &class).await.unwrap().contents, None);

    let before = reads(&disk);
    assert_eq!(only(&inspector, &class).await.unwrap().contents, None);
    assert_eq!(reads(&disk), before, "nothing was written, nothing is read");

    disk.format();
    let contents = only(&inspector, &class).await.unwrap().contents.unwrap();
    assert!(contents.contains("ext4"), "{contents}");
    write(&disk, &vec![0; 64 << 20], 0);
    assert_eq!(only(&inspector, &class).await.unwrap().contents, None);
    write(&disk, b"x", 64 * MIB - 1);
    let contents = only(&inspector, &class).await.unwrap().contents.unwrap();
    assert!(contents.contains("nothing identifies"), "{contents}");
}

#[tokio::test]
async fn without_being_asked_for_no_device_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Loop::new(64 * MIB);
    disk.format();
    symlink(&disk.node, dir.path().join("disk")).unwrap();
    let class = class("c", dir.path(), VolumeMode::Block);
    let before = reads(&disk);
    assert_eq!(only(&inspector(), &class).await.unwrap().contents, None);
    assert_eq!(reads(&disk), before);
}

#[tokio::test]
async fn a_device_that_can_not_be_read_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Loop::new(64 * MIB);
    symlink(&disk.node, dir.path().join("disk")).unwrap();
    // What is behind the end of its file fails with EIO.
    let file = fs::OpenOptions::new().write(true).open(&disk.file).unwrap();
    file.set_len(8 * MIB).unwrap();
    let class = empty_ones(dir.path(), VolumeMode::Block);
    let refusal = only(&inspector(), &class).await.unwrap_err();
    assert_eq!(refusal.reason, Reason::Unreadable, "{refusal}");
    assert!(refusal.detail.contains(&disk.name()), "{refusal}");
}

#[tokio::test]
async fn a_filesystem_may_hold_nothing_but_lost_and_found() {
    let dir = tempfile::tempdir().unwrap();
    let point = dir.path().join("vol");
    fs::create_dir(&point).unwrap();
    let _fs = Mounted::tmpfs(&point);
    let (class, inspector) = (empty_ones(dir.path(), VolumeMode::Filesystem), inspector());
    fs::create_dir(point.join("lost+found")).unwrap();
    assert_eq!(only(&inspector, &class).await.unwrap().contents, None);
    fs::write(point.join(".data"), "x").unwrap();
    let contents = only(&inspector, &class).await.unwrap().contents.unwrap();
    assert!(contents.contains(".data"), "{contents}");
}

#[tokio::test]
async fn the_disk_of_the_node_itself_is_never_a_volume() {
    let table = fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
    let root = table
        .lines()
        .filter(|line| line.split(' ').nth(4) == Some("/"))
        .filter_map(|line| line.split(" - ").nth(1)?.split(' ').nth(1))
        .next_back()
        .expect("there is a root");
    let is_device = fs::metadata(root).is_ok_and(|m| m.file_type().is_block_device());
    if !is_device {
        // A root that is no device, as in a container, can't be linked to.
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    symlink(root, dir.path().join("disk")).unwrap();
    let class = class("c", dir.path(), VolumeMode::Block);
    let refusal = only(&inspector(), &class).await.unwrap_err();
    assert_eq!(refusal.reason, Reason::InUse);
    assert!(refusal.detail.contains("root filesystem"), "{refusal}");
}
