//! Refusals that need real mounts and devices.

use std::fs;
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;
use provisor::clean::{Live, hold};
use provisor::volume::{Identity, Reason, Refusal};

use super::rig::{Formatted, Volume, tmpfs};
use crate::support::disks::{Loop, Mounted};
use crate::support::wait_until;

fn reason<T>(result: Result<T, Refusal>) -> Reason {
    result.err().expect("it is refused").reason
}

#[test]
fn a_released_volume_gets_its_permit() {
    let (volume, _mount) = Volume::mounted(tmpfs);
    let permit = volume.permit().unwrap();
    assert_eq!((permit.pv(), permit.uid()), ("local-pv-1", "uid-1"));
    let disk = Loop::new(1 << 20);
    Volume::linked(&disk).permit().unwrap();
}

#[test]
fn facts_read_before_the_volume_was_held_are_stale() {
    let (volume, _mount) = Volume::mounted(tmpfs);
    let live = volume.live();
    let held = hold(volume.request.clone(), &volume.node).unwrap();
    let now = Instant::now();
    assert_eq!(
        reason(held.permit(&live, &volume.node, now)),
        Reason::StaleFacts
    );
    let held = hold(volume.request.clone(), &volume.node).unwrap();
    let live = volume.live();
    let later = Instant::now() + Duration::from_secs(11);
    assert_eq!(
        reason(held.permit(&live, &volume.node, later)),
        Reason::StaleFacts
    );
}

#[test]
fn w01_a_volume_deleted_meanwhile_is_not_wiped() {
    let (volume, _mount) = Volume::mounted(tmpfs);
    let held = hold(volume.request.clone(), &volume.node).unwrap();
    let live = Live {
        pv: None,
        read_at: Instant::now(),
    };
    assert_eq!(
        reason(held.permit(&live, &volume.node, Instant::now())),
        Reason::PvGone
    );
}

#[test]
fn users_are_asked_for_twice() {
    let (volume, _mount) = Volume::mounted(tmpfs);
    let held = hold(volume.request.clone(), &volume.node).unwrap();
    volume
        .node
        .users
        .lock()
        .unwrap()
        .extend((1..8).map(|i| format!("pod {i}")));
    let refusal = held
        .permit(&volume.live(), &volume.node, Instant::now())
        .unwrap_err();
    assert_eq!(refusal.reason, Reason::InUse);
    assert!(refusal.detail.contains("pod 5; and 2 more"), "{refusal}");
    assert_eq!(
        reason(hold(volume.request.clone(), &volume.node)),
        Reason::InUse
    );
}

#[test]
fn w06_another_mount_at_the_entry_is_refused() {
    let (volume, mount) = Volume::mounted(tmpfs);
    drop(mount);
    assert_eq!(reason(volume.permit()), Reason::NotMounted);
    let _other = tmpfs(&volume.path);
    assert_eq!(reason(volume.permit()), Reason::EntryReplaced);
}

#[test]
fn a_mount_that_is_replaced_while_held_is_refused() {
    let (volume, _mount) = Volume::mounted(tmpfs);
    let held = hold(volume.request.clone(), &volume.node).unwrap();
    let _over = tmpfs(&volume.path);
    assert_eq!(
        reason(held.permit(&volume.live(), &volume.node, Instant::now())),
        Reason::EntryReplaced
    );
}

#[test]
fn a_record_of_another_storage_on_the_live_object_is_refused() {
    let (mut volume, _mount) = Volume::mounted(tmpfs);
    if let Some(Identity::Filesystem(fs)) = &mut volume.pv.identity {
        fs.root = "/elsewhere".into();
    }
    assert_eq!(reason(volume.permit()), Reason::EntryReplaced);
}

#[test]
fn a_record_of_another_boot_is_refused() {
    let (mut volume, _mount) = Volume::mounted(tmpfs);
    if let Identity::Filesystem(fs) = &mut volume.request.recorded {
        (fs.boot, fs.uuid) = ("before".into(), None);
    }
    assert_eq!(reason(volume.permit()), Reason::IdentityUnknown);
}

#[test]
fn w07_a_device_that_became_a_directory_is_refused_and_the_reverse() {
    let disk = Loop::new(1 << 20);
    let block = Volume::linked(&disk);
    fs::remove_file(&block.path).unwrap();
    fs::create_dir(&block.path).unwrap();
    let _mount = tmpfs(&block.path);
    assert_eq!(reason(block.permit()), Reason::EntryReplaced);

    let (directory, mount) = Volume::mounted(tmpfs);
    drop(mount);
    fs::remove_dir(&directory.path).unwrap();
    symlink(&disk.node, &directory.path).unwrap();
    assert_eq!(reason(directory.permit()), Reason::EntryReplaced);
}

#[test]
fn w06_a_link_to_another_device_is_refused() {
    let (disk, other) = (Loop::new(1 << 20), Loop::new(1 << 20));
    let volume = Volume::linked(&disk);
    let relink = |to: &Loop| {
        fs::remove_file(&volume.path).unwrap();
        symlink(&to.node, &volume.path).unwrap();
    };
    relink(&other);
    assert_eq!(reason(volume.permit()), Reason::EntryReplaced);
    relink(&disk);
    let held = hold(volume.request.clone(), &volume.node).unwrap();
    relink(&other);
    assert_eq!(
        reason(held.permit(&volume.live(), &volume.node, Instant::now())),
        Reason::EntryReplaced
    );
}

#[test]
fn the_discovery_directory_itself_is_no_volume() {
    let (volume, mount) = Volume::mounted(tmpfs);
    drop(mount);
    let _bind = Mounted::bind(volume.dir.path(), &volume.path);
    assert_eq!(reason(volume.permit()), Reason::PathOutside);
}

#[test]
fn a_device_that_is_claimed_is_in_use() {
    let disk = Loop::new(1 << 20);
    let volume = Volume::linked(&disk);
    let claim = fs::OpenOptions::new()
        .read(true)
        .custom_flags(OFlag::O_EXCL.bits())
        .open(&disk.node)
        .unwrap();
    assert_eq!(reason(volume.permit()), Reason::InUse);
    drop(claim);
    let _permit = volume.permit().unwrap();
    assert_eq!(
        reason(volume.permit()),
        Reason::InUse,
        "the permit claims it"
    );
}

#[test]
fn a_device_that_is_mounted_in_another_namespace_is_in_use() {
    let Formatted {
        volume: _fs,
        mount,
        disk,
    } = Formatted::ext4();
    drop(mount);
    let volume = Volume::linked(&disk);
    let point = tempfile::tempdir().unwrap();
    let mut holder = Command::new("unshare")
        .args(["-m", "--propagation", "private", "sh", "-c"])
        .arg("mount \"$0\" \"$1\" && touch \"$1/ready\" && echo ready && read line")
        .arg(&disk.node)
        .arg(point.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = [0; 5];
    std::io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut line).unwrap();
    assert_eq!(reason(volume.permit()), Reason::InUse);
    drop(holder.stdin.take());
    holder.wait().unwrap();
    wait_until("the device is free", || volume.permit().is_ok());
}

/// The kubelet claims the device itself while it takes the volume down.
#[test]
fn a_device_that_has_users_is_not_claimed() {
    let disk = Loop::new(1 << 20);
    let volume = Volume::linked(&disk);
    let _claim = fs::OpenOptions::new()
        .read(true)
        .custom_flags(OFlag::O_EXCL.bits())
        .open(&disk.node)
        .unwrap();
    volume.node.users.lock().unwrap().push("pod x".into());
    let refusal = volume.permit().unwrap_err();
    assert_eq!(refusal.reason, Reason::InUse);
    assert!(refusal.detail.contains("pod x"), "{refusal}");
}
