use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::mount::MsFlags;
use provisor::config::Class;
use provisor::node::identity;
use provisor::node::inspect::Inspector;
use provisor::node::kubelet::KubeletView;
use provisor::volume::{Found, Identity, Medium, Reason, Refusal, Scan, Volume, VolumeMode};

use super::subdir;
use crate::support::bay::Bay;
use crate::support::disks::{Loop, Mounted, Swap, class, fifo, output};
use crate::support::fuse::Mute;
use crate::support::meanwhile;

/// How long a probe may take.
const DEADLINE: Duration = Duration::from_secs(2);

pub(super) type Outcome = Result<Volume, Refusal>;

pub(super) async fn look(inspector: &Inspector, class: &Class) -> BTreeMap<String, Outcome> {
    match inspector.scan(class).await {
        Scan::Entries(found) => found
            .into_iter()
            .map(|found| match found {
                Found::Volume(volume) => (volume.entry.to_string(), Ok(volume)),
                Found::Refused { entry, refusal } => (entry, Err(refusal)),
            })
            .collect(),
        Scan::Refused(refusal) => panic!("the directory was refused: {refusal}"),
    }
}

#[test]
fn a_scan_can_be_a_task() {
    fn is_send<T: Send>(_: &T) {}
    let class = class("c", Path::new("/nowhere"), VolumeMode::Block);
    let inspector = Inspector::new(KubeletView::off());
    is_send(&inspector.scan(&class));
}

async fn look_once(class: &Class) -> BTreeMap<String, Outcome> {
    look(&Inspector::new(KubeletView::off()), class).await
}

pub(super) fn reasons(outcomes: &BTreeMap<String, Outcome>) -> BTreeMap<&str, Option<Reason>> {
    outcomes
        .iter()
        .map(|(name, outcome)| (name.as_str(), outcome.as_ref().err().map(|r| r.reason)))
        .collect()
}

#[tokio::test]
async fn everything_that_is_no_volume_has_its_reason() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for name in [
        "plain",
        "lost+found",
        ".hidden",
        "with space",
        "back\\slash",
    ] {
        subdir(dir.path(), name);
    }
    subdir(dir.path(), OsStr::from_bytes(b"bytes\xff"));
    File::create(at("file")).unwrap();
    File::create(at("README.txt")).unwrap();
    fifo(&at("fifo"));
    let _socket = UnixListener::bind(at("socket")).unwrap();
    symlink("/dev/null", at("link-to-char")).unwrap();
    symlink("nowhere", at("link-to-nothing")).unwrap();
    symlink("circle", at("circle")).unwrap();
    symlink(at("plain"), at("link-to-dir")).unwrap();
    let outcomes = look_once(&class("c", dir.path(), VolumeMode::Filesystem)).await;
    let want = BTreeMap::from([
        (".hidden", Some(Reason::Ignored)),
        ("README.txt", Some(Reason::Ignored)),
        ("back\\slash", Some(Reason::BadName)),
        ("bytes\\xff", Some(Reason::BadName)),
        ("circle", Some(Reason::DanglingLink)),
        ("fifo", Some(Reason::NotAVolume)),
        ("file", Some(Reason::NotAVolume)),
        ("link-to-char", Some(Reason::NotAVolume)),
        ("link-to-dir", Some(Reason::LinkToDirectory)),
        ("link-to-nothing", Some(Reason::DanglingLink)),
        ("lost+found", Some(Reason::Ignored)),
        ("plain", Some(Reason::NotMounted)),
        ("socket", Some(Reason::NotAVolume)),
        ("with space", Some(Reason::BadName)),
    ]);
    assert_eq!(reasons(&outcomes), want);
    let plain = outcomes["plain"].as_ref().unwrap_err();
    assert!(plain.detail.contains("nothing is mounted on it"), "{plain}");
}

#[tokio::test]
async fn the_directory_itself_must_be_real() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let real = subdir(dir.path(), "real");
    symlink(&real, at("link")).unwrap();
    subdir(&real, "inner");
    File::create(at("file")).unwrap();
    let cases = [
        ("missing", Reason::DirectoryMissing),
        ("link", Reason::DirectoryUnsafe),
        ("link/inner", Reason::DirectoryUnsafe),
        ("file", Reason::DirectoryUnsafe),
    ];
    for (name, want) in cases {
        let class = class("c", &at(name), VolumeMode::Filesystem);
        match Inspector::new(KubeletView::off()).scan(&class).await {
            Scan::Refused(refusal) => assert_eq!(refusal.reason, want, "{name}: {refusal}"),
            scan @ Scan::Entries(_) => panic!("{name}: {scan:?}"),
        }
    }
}

#[tokio::test]
async fn mounts_are_volumes_with_size_flags_and_identity() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Loop::new(64 << 20);
    disk.format();
    let (tmpfs, ext4, bind, read_only, stacked) = (
        subdir(dir.path(), "tmpfs"),
        subdir(dir.path(), "ext4"),
        subdir(dir.path(), "bind"),
        subdir(dir.path(), "read-only"),
        subdir(dir.path(), "stacked"),
    );
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC | MsFlags::MS_RELATIME;
    let _mounts = [
        Mounted::tmpfs(&tmpfs),
        Mounted::device(&disk.node, &ext4, "ext4", flags),
        Mounted::tmpfs(&stacked),
        Mounted::device(&disk.node, &stacked, "ext4", MsFlags::empty()),
        Mounted::tmpfs(&read_only),
        Mounted::bind(&ext4.join("lost+found"), &bind),
    ];
    _mounts[4].remount(MsFlags::MS_RDONLY);
    let outcomes = look_once(&class("c", dir.path(), VolumeMode::Filesystem)).await;
    let volume = |name: &str| {
        outcomes[name]
            .as_ref()
            .unwrap_or_else(|r| panic!("{name}: {r}"))
    };
    let fs_identity = |name: &str| match &volume(name).identity {
        Identity::Filesystem(identity) => identity.clone(),
        Identity::Device(device) => panic!("{name}: {device:?}"),
    };
    assert_eq!(volume("tmpfs").capacity_bytes, 1 << 20);
    assert_eq!(volume("tmpfs").medium, Medium::Mount);
    assert!(
        fs_identity("tmpfs").uuid.is_some(),
        "a tmpfs has a UUID of its own"
    );
    assert_eq!(volume("ext4").mount_flags, ["noexec", "nosuid"]);
    let uuid = output(
        Command::new("blkid")
            .args(["-p", "-s", "UUID", "-o", "value"])
            .arg(&disk.node),
    );
    assert_eq!(fs_identity("ext4").uuid.as_deref(), Some(uuid.as_str()));
    assert_eq!(fs_identity("ext4").device, disk.number());
    assert_eq!(fs_identity("ext4").root, "/");
    assert_eq!(fs_identity("bind").root, "/lost+found");
    assert_eq!(
        fs_identity("stacked").fs_type,
        "ext4",
        "the topmost mount counts"
    );
    assert_eq!(
        outcomes["read-only"].as_ref().unwrap_err().reason,
        Reason::ReadOnly
    );

    let block = look_once(&class("c", dir.path(), VolumeMode::Block)).await;
    assert!(
        block
            .values()
            .all(|o| o.as_ref().unwrap_err().reason == Reason::WrongMode),
        "{block:?}"
    );
}

#[tokio::test]
async fn devices_are_volumes_unless_somebody_has_them() {
    let dir = tempfile::tempdir().unwrap();
    let mounts = tempfile::tempdir().unwrap();
    let link = |disk: &Loop, name: &str| symlink(&disk.node, dir.path().join(name)).unwrap();
    let free = Loop::new(8 << 20);
    link(&free, "free");
    symlink("free", dir.path().join("twice")).unwrap();
    let mounted = Loop::new(8 << 20);
    mounted.format();
    link(&mounted, "mounted");
    let _mount = Mounted::device(&mounted.node, mounts.path(), "ext4", MsFlags::empty());
    let parted = Loop::new(8 << 20);
    link(&parted, "parted");
    output(
        Command::new("addpart")
            .arg(&parted.node)
            .args(["1", "2048", "4096"]),
    );
    symlink(
        format!("{}p1", parted.node.display()),
        dir.path().join("partition"),
    )
    .unwrap();
    let empty = Loop::new(0);
    link(&empty, "empty");
    let sealed = Loop::over(&mounted.file, &["--read-only"]);
    link(&sealed, "sealed");
    let node = dir.path().join("node");
    File::create(&node).unwrap();
    let _node = Mounted::bind(&free.node, &node);

    let outcomes = look_once(&class("c", dir.path(), VolumeMode::Block)).await;
    let want = BTreeMap::from([
        ("empty", Some(Reason::ZeroSize)),
        ("free", None),
        ("mounted", Some(Reason::InUse)),
        ("node", None),
        ("parted", Some(Reason::Partitioned)),
        ("partition", None),
        ("sealed", Some(Reason::ReadOnly)),
        ("twice", None),
    ]);
    assert_eq!(reasons(&outcomes), want, "{outcomes:#?}");
    let volume = outcomes["free"].as_ref().unwrap();
    assert_eq!(
        (volume.capacity_bytes, volume.medium),
        (8 << 20, Medium::Device)
    );
    assert_eq!(
        volume.identity,
        outcomes["twice"].as_ref().unwrap().identity
    );
    let Identity::Device(partition) = &outcomes["partition"].as_ref().unwrap().identity else {
        panic!("{outcomes:?}");
    };
    assert_eq!(
        (partition.partition, partition.size_bytes),
        (Some(1), 4096 * 512)
    );
    let facts = identity::of_device(partition.device).unwrap();
    assert_eq!(facts.whole, Some(parted.number()));
    assert_eq!(
        facts.identity.diskseq,
        identity::of_device(parted.number())
            .unwrap()
            .identity
            .diskseq
    );
    output(Command::new("delpart").arg(&parted.node).arg("1"));
}

/// No mount table shows these.
#[tokio::test]
async fn swap_space_and_members_of_a_filesystem_are_in_use() {
    let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let swap = Loop::new(8 << 20);
    let members = [Loop::new(128 << 20), Loop::new(128 << 20)];
    let mut mkfs = Command::new("mkfs.btrfs");
    mkfs.args(["-q", "-f", "-m", "raid1"]);
    output(mkfs.args(members.iter().map(|member| &member.node)));
    for (name, disk) in [
        ("swap", &swap),
        ("first", &members[0]),
        ("second", &members[1]),
    ] {
        symlink(&disk.node, dir.path().join(name)).unwrap();
    }
    let class = class("c", dir.path(), VolumeMode::Block);
    assert!(look_once(&class).await.values().all(Result::is_ok));

    let in_use = {
        let _swap = Swap::on(&swap);
        let option = format!("device={}", members[1].node.display());
        let mut mount = Command::new("mount");
        mount.args(["-o", &option]).arg(&members[0].node);
        output(mount.arg(elsewhere.path()));
        let _btrfs = Mounted::guard(elsewhere.path());
        look_once(&class).await
    };
    let details = [
        ("swap", "is swap space"),
        ("first", "btrfs"),
        ("second", "btrfs"),
    ];
    for (name, detail) in details {
        let refusal = in_use[name].as_ref().unwrap_err();
        assert_eq!(refusal.reason, Reason::InUse, "{refusal}");
        assert!(refusal.detail.contains(detail), "{refusal}");
    }
    assert!(look_once(&class).await.values().all(Result::is_ok));
}

#[tokio::test]
async fn a_new_medium_is_another_device() {
    let dir = tempfile::tempdir().unwrap();
    let mut bay = Bay::new(dir.path(), "medium", 8 << 20);
    let before = identity::of_device(bay.number()).unwrap().identity;
    bay.detach();
    assert!(bay.attach());
    let after = identity::of_device(bay.number()).unwrap().identity;
    assert_eq!(before.device, after.device);
    let likeness = Identity::Device(after).compare(&Identity::Device(before));
    assert_eq!(likeness, provisor::volume::Likeness::Different("diskseq"));
}

/// While a medium goes, the kernel already counts the next one and still shows the old size.
#[test]
fn the_facts_about_a_device_are_all_of_one_medium() {
    let dir = tempfile::tempdir().unwrap();
    let mut bay = Bay::new(dir.path(), "medium", 4 << 20);
    let number = bay.number();
    let mut seen = BTreeSet::new();
    let look = || {
        if let Ok(facts) = identity::of_device(number)
            && facts.identity.size_bytes != 0
        {
            seen.insert(facts.identity.diskseq);
        }
    };
    let change = || {
        let sequence = || {
            let path = format!("/sys/dev/block/{number}/diskseq");
            fs::read_to_string(path).unwrap().trim().parse::<u64>().ok()
        };
        let mut media = BTreeSet::from([sequence()]);
        for _ in 0..100 {
            bay.detach();
            assert!(bay.attach());
            media.insert(sequence());
        }
        media
    };
    let media = meanwhile(look, change);
    let never: Vec<_> = seen.difference(&media).collect();
    assert!(never.is_empty(), "media that never were: {never:?}");
}

#[tokio::test]
async fn a_pattern_chooses_and_names_are_sorted() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["vol10", "vol2", "other", "vol1"] {
        subdir(dir.path(), name);
    }
    let mut class = class("c", dir.path(), VolumeMode::Filesystem);
    class.pattern = provisor::config::NamePattern::parse("vol*").unwrap();
    let Scan::Entries(found) = Inspector::new(KubeletView::off()).scan(&class).await else {
        panic!("refused");
    };
    let names: Vec<_> = found
        .iter()
        .map(|found| match found {
            Found::Refused { entry, .. } => entry.as_str(),
            Found::Volume(volume) => volume.entry.as_str(),
        })
        .collect();
    assert_eq!(names, ["vol1", "vol10", "vol2"]);
}

#[tokio::test]
async fn a_hung_entry_holds_up_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let good = subdir(dir.path(), "good");
    let _good = Mounted::tmpfs(&good);
    let mute: Vec<_> = (0..10)
        .map(|i| Mute::mount(&subdir(dir.path(), format!("mute{i}"))))
        .collect();
    let inspector = Inspector::new(KubeletView::off());
    let class = class("c", dir.path(), VolumeMode::Filesystem);

    let begin = Instant::now();
    let outcomes = look(&inspector, &class).await;
    let first = begin.elapsed();
    assert!(
        first < 10 * DEADLINE,
        "they were waited for one after the other: {first:?}"
    );
    assert_eq!(outcomes["mute0"].as_ref().unwrap_err().reason, Reason::Hung);
    assert_eq!(
        outcomes.values().filter(|o| o.is_err()).count(),
        10,
        "{outcomes:?}"
    );
    assert!(outcomes["good"].is_ok(), "{outcomes:?}");

    let begin = Instant::now();
    let outcomes = look(&inspector, &class).await;
    let second = begin.elapsed();
    assert!(second < DEADLINE, "they were waited for again: {second:?}");
    assert_eq!(outcomes["mute0"].as_ref().unwrap_err().reason, Reason::Hung);
    assert!(outcomes["good"].is_ok(), "{outcomes:?}");

    drop(mute);
    let begin = Instant::now();
    loop {
        let outcomes = look(&inspector, &class).await;
        if reasons(&outcomes)["mute0"] == Some(Reason::NotMounted) {
            break;
        }
        assert!(
            begin.elapsed() < Duration::from_secs(5),
            "still hung: {outcomes:?}"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The kernel gives the number of a mount that is gone to the next one.
#[test]
fn what_is_mounted_during_a_look_is_not_taken_for_what_was() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let _other = Mounted::tmpfs_of(other.path(), "2m");
    let source = subdir(other.path(), "source");
    let point = subdir(dir.path(), "vol");
    let inspector = Inspector::new(KubeletView::off());
    let class = class("c", dir.path(), VolumeMode::Filesystem);
    let swap = || {
        drop(Mounted::tmpfs_of(&point, "1m"));
        drop(Mounted::bind(&source, &point));
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let look_often = || {
        let mut seen: Vec<Volume> = Vec::new();
        for _ in 0..500 {
            let mut outcomes = runtime.block_on(look(&inspector, &class));
            seen.extend(outcomes.remove("vol").and_then(Result::ok));
        }
        seen
    };
    let seen = meanwhile(swap, look_often);
    assert!(!seen.is_empty());
    for volume in seen {
        let Identity::Filesystem(filesystem) = &volume.identity else {
            panic!("{volume:?}");
        };
        let bytes = if filesystem.root == "/source" {
            2 << 20
        } else {
            1 << 20
        };
        assert_eq!(
            volume.capacity_bytes, bytes,
            "two mounts in one: {volume:?}"
        );
    }
}
