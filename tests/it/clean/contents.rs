//! Emptying filesystems.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use provisor::config::Cleaner;
use provisor::volume::Reason;

use super::rig::{Formatted, Volume, run, tmpfs};

/// A tree of `directories` x `files`.
fn plant(root: &Path, directories: usize, files: usize) {
    for directory in 0..directories {
        let dir = root.join(format!("d{}/e{directory}", directory % 7));
        fs::create_dir_all(&dir).unwrap();
        for file in 0..files {
            fs::write(dir.join(format!("f{file}")), "secret").unwrap();
        }
    }
}

#[test]
fn a_tree_of_20_000_files_is_emptied_and_lost_and_found_kept() {
    let ext4 = Formatted::ext4();
    plant(&ext4.volume.path, 100, 200);
    fs::write(ext4.volume.path.join("lost+found/#12"), "found").unwrap();
    fs::create_dir(ext4.volume.path.join("lost+found/#13")).unwrap();
    let reported = AtomicU64::new(0);
    let proof = ext4
        .volume
        .wipe_with(
            &Cleaner::Zero,
            0,
            &AtomicBool::new(false),
            &|progress| {
                reported.fetch_max(progress.files, Ordering::Relaxed);
            },
            &|_| panic!("a filesystem has no checkpoints"),
        )
        .unwrap();
    // 20,000 files, 7 + 100 directories, two in lost+found.
    assert_eq!(proof.files(), 20_109);
    assert_eq!(reported.load(Ordering::Relaxed), 20_109);
    assert_eq!((proof.pv(), proof.uid()), ("local-pv-1", "uid-1"));
    assert_eq!(proof.claim_uid(), Some("claim-1"));
    assert!(proof.method().contains("20109 files"), "{}", proof.method());
    assert_eq!(ext4.volume.names(), ["lost+found"]);
    let kept = ext4.volume.path.join("lost+found");
    assert_eq!(fs::read_dir(&kept).unwrap().count(), 0);
    assert_eq!(fs::metadata(&kept).unwrap().mode() & 0o7777, 0o700);
    let device = ext4.disk.node.to_str().unwrap();
    drop(ext4.mount);
    run("e2fsck", &["-fn", device]);
}

#[test]
fn a_flat_directory_larger_than_a_batch_is_emptied() {
    let (volume, _mount) = Volume::mounted(tmpfs);
    for file in 0..40_000 {
        fs::write(volume.path.join(format!("{file}")), "").unwrap();
    }
    assert_eq!(volume.wipe(&Cleaner::Zero).unwrap().files(), 40_000);
    assert!(volume.names().is_empty());
}

#[test]
fn more_subdirectories_than_a_batch_are_removed() {
    let (volume, _mount) = Volume::mounted(tmpfs);
    for directory in 0..40_000 {
        fs::create_dir(volume.path.join(format!("{directory}"))).unwrap();
    }
    assert_eq!(volume.wipe(&Cleaner::Zero).unwrap().files(), 40_000);
    assert!(volume.names().is_empty());
}

#[test]
fn xfs_and_btrfs_are_emptied() {
    let xfs = Formatted::new("xfs", 512 << 20);
    plant(&xfs.volume.path, 50, 20);
    let _ = xfs.volume.must_wipe(&Cleaner::Zero);
    assert!(xfs.volume.names().is_empty());

    let btrfs = Formatted::new("btrfs", 256 << 20);
    plant(&btrfs.volume.path, 50, 20);
    let subvolume = btrfs.volume.path.join("d1/sub");
    run(
        "btrfs",
        &["-q", "subvolume", "create", subvolume.to_str().unwrap()],
    );
    fs::write(subvolume.join("inside"), "secret").unwrap();
    let _ = btrfs.volume.must_wipe(&Cleaner::Zero);
    assert!(btrfs.volume.names().is_empty());
}

#[test]
fn a_read_only_subvolume_fails_the_wipe() {
    let btrfs = Formatted::new("btrfs", 256 << 20);
    let path = |name: &str| btrfs.volume.path.join(name).to_str().unwrap().to_owned();
    run("btrfs", &["-q", "subvolume", "create", &path("sub")]);
    fs::write(path("sub/inside"), "secret").unwrap();
    run(
        "btrfs",
        &[
            "-q",
            "subvolume",
            "snapshot",
            "-r",
            &path("sub"),
            &path("snapshot"),
        ],
    );
    let refusal = btrfs.volume.wipe(&Cleaner::Zero).unwrap_err();
    assert_eq!(refusal.reason, Reason::WipeFailed);
    assert!(refusal.detail.contains("read-only subvolume"), "{refusal}");
}

#[test]
fn odd_names_and_odd_files_are_removed() {
    let ext4 = Formatted::ext4();
    let root = &ext4.volume.path;
    let long = vec![b'x'; 255];
    for name in [
        &b"-rf"[..],
        b"a\nb",
        b"\xff\xfe",
        b" ",
        b"*",
        b"\\",
        b"...",
        &long,
    ] {
        fs::write(root.join(OsStr::from_bytes(name)), "secret").unwrap();
        let dir = [name, b"d"].concat();
        fs::create_dir(root.join(OsStr::from_bytes(&dir[dir.len().saturating_sub(255)..])))
            .unwrap();
    }
    let mode = nix::sys::stat::Mode::S_IRWXU;
    nix::unistd::mkfifo(&root.join("fifo"), mode).unwrap();
    let device = nix::sys::stat::makedev(1, 3);
    nix::sys::stat::mknod(
        &root.join("null"),
        nix::sys::stat::SFlag::S_IFCHR,
        mode,
        device,
    )
    .unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap();
    let open = fs::File::create(root.join("open")).unwrap();
    let _ = ext4.volume.must_wipe(&Cleaner::Zero);
    assert_eq!(ext4.volume.names(), ["lost+found"]);
    drop(open);
}

#[test]
fn targets_of_links_survive() {
    let outside = tempfile::tempdir().unwrap();
    let file = outside.path().join("file");
    fs::write(&file, "keep").unwrap();
    let (volume, _mount) = Volume::mounted(tmpfs);
    symlink(outside.path(), volume.path.join("directory")).unwrap();
    symlink(&file, volume.path.join("file")).unwrap();
    symlink("..", volume.path.join("up")).unwrap();
    symlink("/", volume.path.join("top")).unwrap();
    symlink("loop", volume.path.join("loop")).unwrap();
    assert_eq!(volume.wipe(&Cleaner::Zero).unwrap().files(), 5);
    assert_eq!(fs::read_to_string(&file).unwrap(), "keep");
}

#[test]
fn immutable_append_only_and_sync_are_cleared() {
    let ext4 = Formatted::ext4();
    let path = |name: &str| ext4.volume.path.join(name).to_str().unwrap().to_owned();
    fs::create_dir_all(path("a/b")).unwrap();
    fs::create_dir_all(path("c")).unwrap();
    for name in ["a/file", "a/b/file", "c/file", "log"] {
        fs::write(path(name), "secret").unwrap();
    }
    run("chattr", &["+S", &path("a")]);
    run("chattr", &["+D", &path("c")]);
    run(
        "chattr",
        &[
            "+i",
            &path("a/file"),
            &path("a/b/file"),
            &path("a/b"),
            &path("a"),
        ],
    );
    run("chattr", &["+a", &path("log"), &path("c")]);
    run("chattr", &["+aD", &path("")]);
    let _ = ext4.volume.must_wipe(&Cleaner::Zero);
    assert_eq!(ext4.volume.names(), ["lost+found"]);
    let flags = run("lsattr", &["-d", &path("")]);
    assert!(
        !flags
            .split(' ')
            .next()
            .unwrap()
            .contains(['a', 'D', 'i', 'S']),
        "{flags}"
    );
}

#[test]
fn w32_the_root_is_reset() {
    let ext4 = Formatted::ext4();
    let root = &ext4.volume.path;
    let text = root.to_str().unwrap();
    chown(root, Some(1234), Some(5678)).unwrap();
    fs::set_permissions(root, fs::Permissions::from_mode(0o2777)).unwrap();
    set_xattr(root, "user.tenant", b"secret");
    // Default ACL: owner rwx, user 1234 rwx, group r-x, mask rwx, other r-x, in the kernel's form.
    let mut acl = vec![2, 0, 0, 0];
    for (tag, perm, id) in [
        (1_u16, 7_u16, u32::MAX),
        (2, 7, 1234),
        (4, 5, u32::MAX),
        (16, 7, u32::MAX),
        (32, 5, u32::MAX),
    ] {
        acl.extend(tag.to_le_bytes());
        acl.extend(perm.to_le_bytes());
        acl.extend(id.to_le_bytes());
    }
    set_xattr(root, "system.posix_acl_access", &acl);
    set_xattr(root, "system.posix_acl_default", &acl);
    run("chattr", &["+dA", text]);
    let lost = root.join("lost+found");
    chown(&lost, Some(1234), Some(5678)).unwrap();
    fs::set_permissions(&lost, fs::Permissions::from_mode(0o1777)).unwrap();

    let _ = ext4.volume.must_wipe(&Cleaner::Zero);
    let data = fs::metadata(root).unwrap();
    assert_eq!(
        (data.uid(), data.gid(), data.mode() & 0o7777),
        (0, 0, 0o755)
    );
    assert_eq!(xattr_names(root), "");
    let flags = run("lsattr", &["-d", text]);
    assert!(
        !flags.split(' ').next().unwrap().contains(['d', 'A']),
        "{flags}"
    );
    let data = fs::metadata(&lost).unwrap();
    assert_eq!(
        (data.uid(), data.gid(), data.mode() & 0o7777),
        (0, 0, 0o700)
    );
}

/// By python's standard library, as `std` has no extended attributes and `setfattr` is not everywhere.
fn set_xattr(path: &Path, name: &str, value: &[u8]) {
    let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
    let code = "import os,sys; os.setxattr(sys.argv[1], sys.argv[2], bytes.fromhex(sys.argv[3]))";
    run("python3", &["-c", code, path.to_str().unwrap(), name, &hex]);
}

fn xattr_names(path: &Path) -> String {
    let code = "import os,sys; print(*os.listxattr(sys.argv[1]))";
    run("python3", &["-c", code, path.to_str().unwrap()])
}

#[test]
fn a_read_only_filesystem_fails_the_wipe() {
    let ext4 = Formatted::ext4();
    fs::write(ext4.volume.path.join("file"), "secret").unwrap();
    run(
        "mount",
        &["-o", "remount,ro", ext4.volume.path.to_str().unwrap()],
    );
    let refusal = ext4.volume.wipe(&Cleaner::Zero).unwrap_err();
    assert_eq!(refusal.reason, Reason::WipeFailed);
    assert!(refusal.detail.contains("/vol1/file"), "{refusal}");
    assert!(refusal.detail.contains("read-only"), "{refusal}");
}

#[test]
fn an_active_swap_file_fails_the_wipe() {
    let ext4 = Formatted::ext4();
    let swap = ext4.volume.path.join("swap");
    let text = swap.to_str().unwrap();
    fs::write(&swap, vec![0; 1 << 20]).unwrap();
    fs::set_permissions(&swap, fs::Permissions::from_mode(0o600)).unwrap();
    run("mkswap", &[text]);
    run("swapon", &[text]);
    let refusal = ext4.volume.wipe(&Cleaner::Zero);
    run("swapoff", &[text]);
    let refusal = refusal.unwrap_err();
    assert_eq!(refusal.reason, Reason::WipeFailed);
    assert!(refusal.detail.contains("swap file"), "{refusal}");
    let _ = ext4.volume.must_wipe(&Cleaner::Zero);
}

#[test]
fn a_cancelled_wipe_stops_and_can_be_done_again() {
    let (volume, _mount) = Volume::mounted(tmpfs);
    plant(&volume.path, 100, 200);
    let cancel = AtomicBool::new(false);
    let stop = |_| cancel.store(true, Ordering::Relaxed);
    let refusal = volume
        .wipe_with(&Cleaner::Zero, 0, &cancel, &stop, &|_| {})
        .unwrap_err();
    assert_eq!(refusal.reason, Reason::Cancelled);
    assert!(!volume.names().is_empty());
    let _ = volume.must_wipe(&Cleaner::Zero);
    assert!(volume.names().is_empty());
}
