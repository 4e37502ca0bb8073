//! What a tenant with root in the volume can try while it is emptied.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use provisor::config::Cleaner;
use provisor::volume::Reason;

use super::rig::{Formatted, Volume, tmpfs};
use crate::support::disks::Mounted;
use crate::support::meanwhile;

#[test]
fn w12_directories_swapped_with_links_lead_nowhere() {
    let outside = tempfile::tempdir().unwrap();
    for file in 0..100 {
        fs::write(outside.path().join(format!("f{file}")), "keep").unwrap();
    }
    for _ in 0..20 {
        let (volume, _mount) = Volume::mounted(tmpfs);
        let at = |name: String| volume.path.join(name);
        for directory in 0..50 {
            fs::create_dir(at(format!("d{directory}"))).unwrap();
            for file in 0..100 {
                fs::write(at(format!("d{directory}/f{file}")), "").unwrap();
            }
            symlink(outside.path(), at(format!("l{directory}"))).unwrap();
        }
        let swap = || {
            for i in 0..50 {
                let (a, b) = (at(format!("d{i}")), at(format!("l{i}")));
                let _ = renameat2(AT_FDCWD, &a, AT_FDCWD, &b, RenameFlags::RENAME_EXCHANGE);
            }
        };
        let _ = meanwhile(swap, || volume.must_wipe(&Cleaner::Zero));
        assert!(volume.names().is_empty());
    }
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 100);
}

#[test]
fn directories_moved_about_are_all_found() {
    let (volume, _mount) = Volume::mounted(tmpfs);
    for i in 0..200 {
        let dir = volume.path.join(format!("a/b{}/c{i}", i % 5));
        fs::create_dir_all(&dir).unwrap();
        for file in 0..20 {
            fs::write(dir.join(format!("f{file}")), "").unwrap();
        }
    }
    let shuffle = || {
        for i in 0..200 {
            let from = volume.path.join(format!("a/b{}/c{i}", i % 5));
            let _ = fs::rename(&from, volume.path.join(format!("m{i}")));
        }
    };
    let _ = meanwhile(shuffle, || volume.must_wipe(&Cleaner::Zero));
    assert!(volume.names().is_empty());
}

#[test]
fn a_file_that_comes_after_the_walk_does_not_verify() {
    let (volume, _mount) = Volume::mounted(tmpfs);
    let late = |_| fs::write(volume.path.join("late"), "").unwrap();
    let never = AtomicBool::new(false);
    let refusal = volume
        .wipe_with(&Cleaner::Zero, 0, &never, &late, &|_| {})
        .unwrap_err();
    assert_eq!(refusal.reason, Reason::VerifyFailed, "{refusal}");
    assert!(refusal.detail.contains("\"late\""), "{refusal}");
}

/// Whoever writes may pause when the wipe looks, so both answers are right; that one comes is tested.
#[test]
fn a_volume_that_is_filled_all_the_time_gets_an_answer() {
    let (volume, _mount) = Volume::mounted(tmpfs);
    let fill = || {
        for i in 0..50 {
            let _ = fs::create_dir_all(volume.path.join(format!("d{i}/e")));
            let _ = fs::write(volume.path.join(format!("f{i}")), "");
        }
    };
    if let Err(refusal) = meanwhile(fill, || volume.wipe(&Cleaner::Zero)) {
        let expected = [Reason::WipeFailed, Reason::VerifyFailed];
        assert!(expected.contains(&refusal.reason), "{refusal}");
    }
    let _ = volume.must_wipe(&Cleaner::Zero);
}

#[test]
fn w12_a_nested_mount_survives_and_nothing_is_removed() {
    let (volume, _mount) = Volume::mounted(tmpfs);
    let inner = volume.path.join("a/inner");
    fs::create_dir_all(&inner).unwrap();
    fs::write(volume.path.join("mine"), "secret").unwrap();
    let nested = tmpfs(&inner);
    fs::write(inner.join("file"), "keep").unwrap();
    let refusal = volume.wipe(&Cleaner::Zero).unwrap_err();
    assert_eq!(refusal.reason, Reason::NestedMount);
    assert!(refusal.detail.contains("/vol1/a/inner"), "{refusal}");
    assert!(inner.join("file").exists() && volume.path.join("mine").exists());
    drop(nested);
    let _ = volume.must_wipe(&Cleaner::Zero);
}

#[test]
fn w12_a_nested_bind_mount_of_the_same_filesystem_survives() {
    let ext4 = Formatted::ext4();
    let (source, target) = (ext4.volume.path.join("s"), ext4.volume.path.join("t/u"));
    fs::create_dir_all(&source).unwrap();
    fs::create_dir_all(&target).unwrap();
    fs::write(source.join("file"), "keep").unwrap();
    let _bind = Mounted::bind(&source, &target);
    let refusal = ext4.volume.wipe(&Cleaner::Zero).unwrap_err();
    assert_eq!(refusal.reason, Reason::NestedMount);
    assert!(source.join("file").exists());
}

#[test]
fn a_file_that_is_a_mount_survives() {
    let (volume, _mount) = Volume::mounted(tmpfs);
    let outside = tempfile::NamedTempFile::new().unwrap();
    fs::write(volume.path.join("file"), "").unwrap();
    let _bind = Mounted::bind(outside.path(), &volume.path.join("file"));
    let refusal = volume.wipe(&Cleaner::Zero).unwrap_err();
    assert_eq!(refusal.reason, Reason::NestedMount);
    assert!(outside.path().exists());
}

/// The first look can't see a mount that comes later, so the walk must not enter it either.
#[test]
fn a_mount_that_appears_during_the_walk_is_not_entered() {
    let ext4 = Formatted::ext4();
    let outside = tempfile::tempdir().unwrap();
    let victim = tmpfs(outside.path());
    fs::write(outside.path().join("file"), "keep").unwrap();
    let root = &ext4.volume.path;
    for file in 0..9000 {
        fs::create_dir_all(root.join(format!("d{}", file % 90))).unwrap();
        fs::write(root.join(format!("d{}/f{file}", file % 90)), "").unwrap();
    }
    let nested = std::sync::Mutex::new(Vec::new());
    let mount_all = |_| {
        let mut nested = nested.lock().unwrap();
        if nested.is_empty() {
            for directory in 0..90 {
                let target = root.join(format!("d{directory}"));
                nested.extend(Mounted::try_bind(outside.path(), &target));
            }
        }
    };
    let never = AtomicBool::new(false);
    let refusal = ext4
        .volume
        .wipe_with(&Cleaner::Zero, 0, &never, &mount_all, &|_| {})
        .unwrap_err();
    assert_eq!(refusal.reason, Reason::NestedMount, "{refusal}");
    assert!(outside.path().join("file").exists());
    drop((nested, victim));
}

/// Runs itself again under a low limit of descriptors, which belongs to a whole process.
#[test]
fn a_tree_of_3_000_levels_is_removed_with_few_descriptors() {
    const CHILD: &str = "PROVISOR_TEST_FEW_DESCRIPTORS";
    if std::env::var_os(CHILD).is_none() {
        let test = "clean::hazards::a_tree_of_3_000_levels_is_removed_with_few_descriptors";
        let status = Command::new("sh")
            .args(["-c", "ulimit -n 160 && exec \"$0\" \"$@\""])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", test])
            .env(CHILD, "1")
            .status()
            .unwrap();
        assert!(status.success());
        return;
    }
    let ext4 = Formatted::ext4();
    for start in ["a", "b", "c", "d", "e"] {
        plant_deep(&ext4.volume.path, start, 3000);
    }
    let proof = ext4.volume.must_wipe(&Cleaner::Zero);
    assert_eq!(proof.files(), 5 * (3000 + 3000));
    assert_eq!(ext4.volume.names(), ["lost+found"]);
}

/// A chain of directories with a file in each; deeper than any path may be long.
fn plant_deep(root: &Path, start: &str, levels: usize) {
    use nix::fcntl::{OFlag, open, openat};
    use nix::sys::stat::{Mode, mkdirat};
    let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let mut dir = open(root, flags, Mode::empty()).unwrap();
    for level in 0..levels {
        let name = if level == 0 { start } else { "d" };
        mkdirat(&dir, name, Mode::S_IRWXU).unwrap();
        dir = openat(&dir, name, flags, Mode::empty()).unwrap();
        openat(&dir, "f", OFlag::O_CREAT | OFlag::O_WRONLY, Mode::S_IRWXU).unwrap();
    }
}
