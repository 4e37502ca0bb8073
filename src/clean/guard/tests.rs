//! Every refusal that needs no mount and no device; those that do are in the integration tests.

use std::os::unix::fs::symlink;
use std::path::Path;

use rstest::rstest;

use super::*;
use crate::pv::{Claim, FINALIZER, Phase, Policy, node_label};
use crate::volume::VolumeMode;

fn filesystem() -> Identity {
    Identity::Filesystem(FilesystemIdentity {
        fs_type: "ext4".into(),
        uuid: Some("u1".into()),
        root: "/".into(),
        device: DevNum { major: 7, minor: 0 },
        boot: "b1".into(),
    })
}

fn device() -> Identity {
    Identity::Device(DeviceIdentity {
        wwn: None,
        serial: Some("s1".into()),
        partition: None,
        partition_uuid: None,
        size_bytes: 1 << 20,
        device: DevNum { major: 7, minor: 0 },
        diskseq: None,
        boot: "b1".into(),
    })
}

fn request(mount_dir: &Path, recorded: Identity) -> Request {
    Request {
        pv: "local-pv-1".into(),
        uid: "uid-1".into(),
        claim_uid: Some("claim-1".into()),
        node: NodeFacts {
            name: "node-1".into(),
            uid: "n".into(),
            hostname: Some("host-1".into()),
            labels: std::collections::BTreeMap::new(),
            taints: None,
        },
        class: Class::new(
            crate::volume::ClassName::new("fast"),
            "/mnt/disks".into(),
            mount_dir.into(),
        ),
        entry: EntryName::parse("vol1".as_ref()).unwrap(),
        recorded,
    }
}

fn released() -> Pv {
    Pv {
        name: "local-pv-1".into(),
        uid: "uid-1".into(),
        resource_version: "7".into(),
        deleting: false,
        finalizers: vec![FINALIZER.into()],
        node_label: Some(node_label("node-1")),
        provisioned_by: None,
        class: crate::volume::ClassName::new("fast"),
        path: Some("/mnt/disks/vol1".into()),
        mode: VolumeMode::Filesystem,
        policy: Policy::Delete,
        capacity: "1Gi".into(),
        hostnames: vec!["host-1".into()],
        phase: Phase::Released,
        claim: Some(Claim {
            namespace: "default".into(),
            name: "data".into(),
            uid: Some("claim-1".into()),
        }),
        identity: Some(filesystem()),
        cleaning: None,
    }
}

/// Judges `pv`, read after the descriptors were taken.
fn judged(request: &Request, pv: Option<Pv>) -> Result<(), Reason> {
    let now = Instant::now();
    let live = Live { pv, read_at: now };
    live::check(request, &live, now, now)
        .map(drop)
        .map_err(|refusal| refusal.reason)
}

#[test]
fn a_released_volume_passes() {
    let request = request(Path::new("/x"), filesystem());
    assert_eq!(judged(&request, Some(released())), Ok(()));
    let deleted = Pv {
        deleting: true,
        ..released()
    };
    assert_eq!(judged(&request, Some(deleted)), Ok(()));
}

#[rstest]
#[case::name(|pv: &mut Pv| pv.name = "local-pv-2".into(), Reason::PvReplaced)]
#[case::uid(|pv: &mut Pv| pv.uid = "uid-2".into(), Reason::PvReplaced)]
#[case::label(|pv: &mut Pv| pv.node_label = None, Reason::NotOurs)]
#[case::other_label(|pv: &mut Pv| pv.node_label = Some("node-2".into()), Reason::NotOurs)]
#[case::affinity(|pv: &mut Pv| pv.hostnames = vec![], Reason::NotOurs)]
#[case::wide_affinity(|pv: &mut Pv| pv.hostnames.push("host-2".into()), Reason::NotOurs)]
#[case::unprotected(|pv: &mut Pv| { pv.deleting = true; pv.finalizers = vec![]; }, Reason::PvGone)]
#[case::available(|pv: &mut Pv| pv.phase = Phase::Available, Reason::NotReleased)]
#[case::bound(|pv: &mut Pv| pv.phase = Phase::Bound, Reason::NotReleased)]
#[case::bound_and_deleting(|pv: &mut Pv| { pv.phase = Phase::Bound; pv.deleting = true; }, Reason::NotReleased)]
#[case::failed(|pv: &mut Pv| pv.phase = Phase::Failed, Reason::NotReleased)]
#[case::unknown(|pv: &mut Pv| pv.phase = Phase::Unknown, Reason::NotReleased)]
#[case::no_claim(|pv: &mut Pv| pv.claim = None, Reason::ClaimChanged)]
#[case::claim_by_name(|pv: &mut Pv| pv.claim.as_mut().unwrap().uid = None, Reason::ClaimChanged)]
#[case::other_claim(|pv: &mut Pv| pv.claim.as_mut().unwrap().uid = Some("claim-2".into()), Reason::ClaimChanged)]
#[case::retain(|pv: &mut Pv| pv.policy = Policy::Retain, Reason::NotDelete)]
#[case::recycle(|pv: &mut Pv| pv.policy = Policy::Other, Reason::NotDelete)]
#[case::class(|pv: &mut Pv| pv.class = crate::volume::ClassName::new("slow"), Reason::ClassUnknown)]
#[case::not_local(|pv: &mut Pv| pv.path = None, Reason::PathOutside)]
#[case::block(|pv: &mut Pv| pv.mode = VolumeMode::Block, Reason::WrongMode)]
#[case::no_record(|pv: &mut Pv| pv.identity = None, Reason::NotRecorded)]
fn a_changed_object_is_refused(#[case] change: fn(&mut Pv), #[case] want: Reason) {
    let mut pv = released();
    change(&mut pv);
    let request = request(Path::new("/x"), filesystem());
    assert_eq!(judged(&request, Some(pv)), Err(want));
}

#[rstest]
#[case("/mnt/disks")]
#[case("/mnt/disks/")]
#[case("/mnt/disks/.")]
#[case("/mnt/disks/..")]
#[case("/mnt/disks/vol1/")]
#[case("/mnt/disks/vol1/deeper")]
#[case("/mnt/disks/../disks/vol1")]
#[case("/mnt/disks//vol1")]
#[case("/mnt/disks2/vol1")]
#[case("/mnt/disks/vol2")]
#[case("/mnt")]
#[case("/")]
#[case("")]
#[case("vol1")]
#[case("mnt/disks/vol1")]
fn w08_other_paths_are_refused(#[case] path: &str) {
    let pv = Pv {
        path: Some(path.into()),
        ..released()
    };
    let request = request(Path::new("/x"), filesystem());
    assert_eq!(judged(&request, Some(pv)), Err(Reason::PathOutside));
}

#[test]
fn w01_absent_and_old_facts_are_refused() {
    let request = request(Path::new("/x"), filesystem());
    assert_eq!(judged(&request, None), Err(Reason::PvGone));
    let taken_at = Instant::now();
    let live = |read_at| Live {
        pv: Some(released()),
        read_at,
    };
    let reason = |live: &Live, now| {
        live::check(&request, live, taken_at, now)
            .map(drop)
            .map_err(|refusal| refusal.reason)
    };
    let second = Duration::from_secs(1);
    let before = live(taken_at.checked_sub(second).unwrap());
    assert_eq!(reason(&before, taken_at), Err(Reason::StaleFacts));
    let after = live(taken_at + second);
    let limit = after.read_at + FACTS_LIFETIME;
    assert_eq!(reason(&after, limit), Ok(()));
    assert_eq!(
        reason(&after, limit + Duration::from_millis(1)),
        Err(Reason::StaleFacts)
    );
}

#[test]
fn a_block_class_takes_devices_only() {
    let block = |recorded| {
        let mut request = request(Path::new("/x"), recorded);
        request.class.volume_mode = VolumeMode::Block;
        request
    };
    let pv = Pv {
        mode: VolumeMode::Block,
        ..released()
    };
    assert_eq!(judged(&block(device()), Some(pv.clone())), Ok(()));
    assert_eq!(
        judged(&block(filesystem()), Some(pv)),
        Err(Reason::WrongMode)
    );
    // The kubelet formats devices for classes of mode Filesystem.
    assert_eq!(
        judged(&request(Path::new("/x"), device()), Some(released())),
        Ok(())
    );
}

/// Knows nothing: entries that are refused before it is asked.
struct Nobody;

impl Witness for Nobody {
    fn identity_of_directory(&self, _: BorrowedFd<'_>) -> Result<FilesystemIdentity, Refusal> {
        panic!("asked about a directory")
    }

    fn identity_of_device(&self, _: DevNum) -> Result<DeviceIdentity, Refusal> {
        panic!("asked about a device")
    }

    fn users(
        &self,
        _: &Identity,
        _: &Class,
        _: &EntryName,
        _: &str,
    ) -> Result<Vec<String>, Refusal> {
        panic!("asked about users")
    }
}

fn entry_refused(recorded: Identity, make: impl FnOnce(&Path)) -> Reason {
    let dir = tempfile::tempdir().unwrap();
    make(&dir.path().join("vol1"));
    hold(request(dir.path(), recorded), &Nobody)
        .unwrap_err()
        .reason
}

#[test]
fn w02_w07_entries_of_another_kind_are_refused() {
    let dir = |path: &Path| std::fs::create_dir(path).unwrap();
    let file = |path: &Path| std::fs::write(path, "x").unwrap();
    let link = |to: &'static str| move |path: &Path| symlink(to, path).unwrap();
    let fifo = |path: &Path| {
        nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    };
    assert_eq!(entry_refused(filesystem(), |_| {}), Reason::EntryMissing);
    assert_eq!(entry_refused(filesystem(), dir), Reason::NotMounted);
    assert_eq!(entry_refused(filesystem(), file), Reason::EntryReplaced);
    assert_eq!(entry_refused(filesystem(), fifo), Reason::EntryReplaced);
    assert_eq!(
        entry_refused(filesystem(), link("/proc")),
        Reason::EntryReplaced
    );
    assert_eq!(entry_refused(device(), |_| {}), Reason::EntryMissing);
    assert_eq!(
        entry_refused(device(), link("/nowhere/at/all")),
        Reason::EntryMissing
    );
    assert_eq!(entry_refused(device(), dir), Reason::EntryReplaced);
    assert_eq!(entry_refused(device(), file), Reason::EntryReplaced);
    assert_eq!(entry_refused(device(), fifo), Reason::EntryReplaced);
    assert_eq!(
        entry_refused(device(), link("/dev/null")),
        Reason::EntryReplaced
    );
    assert_eq!(
        entry_refused(device(), link("/proc")),
        Reason::EntryReplaced
    );
}

#[test]
fn a_directory_behind_a_link_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let real = dir.path().join("real/disks");
    std::fs::create_dir_all(real.join("vol1")).unwrap();
    let reason = |path: &str| {
        hold(request(&dir.path().join(path), filesystem()), &Nobody)
            .unwrap_err()
            .reason
    };
    symlink("real", dir.path().join("middle")).unwrap();
    symlink("real/disks", dir.path().join("last")).unwrap();
    assert_eq!(reason("real/disks"), Reason::NotMounted);
    assert_eq!(reason("middle/disks"), Reason::DirectoryUnsafe);
    assert_eq!(reason("last"), Reason::DirectoryUnsafe);
    assert_eq!(reason("missing"), Reason::DirectoryMissing);
}

/// They are made on one worker thread and used on another.
#[test]
fn permits_can_be_sent() {
    fn sent<T: Send + 'static>() {}
    sent::<Request>();
    sent::<Held>();
    sent::<Permit>();
    sent::<crate::clean::Proof>();
}

#[test]
fn an_old_permit_is_worth_nothing() {
    let request = request(Path::new("/x"), filesystem());
    let granted_at = Instant::now();
    let permit = |request: &Request| Permit {
        request: request.clone(),
        target: Target::Directory {
            root: std::fs::File::open("/proc").unwrap().into(),
            mount: 0,
        },
        granted_at,
    };
    let limit = granted_at + FACTS_LIFETIME;
    assert!(permit(&request).redeem(limit).is_ok());
    let refusal = permit(&request)
        .redeem(limit + Duration::from_secs(1))
        .unwrap_err();
    assert_eq!(refusal.reason, Reason::StaleFacts);
}
