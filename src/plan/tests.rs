//! Tables: one node, one class, and what each state of an entry and its PersistentVolume leads to.

use super::*;
use crate::config::parse;
use crate::pv::{Claim, Cleaning, CleaningState, FINALIZER, Phase, node_label};
use crate::volume::{DevNum, DeviceIdentity, FilesystemIdentity, Medium};
use rstest::rstest;

mod gone;
mod startup_taint;

/// A node with one class `fast` and an entry `vol1`, all well, for each test to break.
struct World {
    config: Config,
    node: NodeFacts,
    classes: BTreeMap<ClassName, ClassFacts>,
    scans: BTreeMap<ClassName, Scan>,
    volumes: BTreeMap<String, Pv>,
    gone: BTreeMap<String, Duration>,
    taken: BTreeSet<String>,
    offering: BTreeMap<String, Identity>,
    untainted: Option<Untaint>,
}

impl World {
    fn new() -> Self {
        let text = "fast: {hostDir: /mnt/fast, mountDir: /mnt/fast}";
        let fast = ClassName::new("fast");
        let facts = ClassFacts {
            policy: Policy::Delete,
            mount_options: Vec::new(),
        };
        Self {
            config: parse(&BTreeMap::from([("storageClassMap".into(), text.into())])),
            node: NodeFacts {
                name: "n".into(),
                uid: "nu".into(),
                hostname: Some("h".into()),
                labels: BTreeMap::new(),
                taints: None,
            },
            classes: BTreeMap::from([(fast.clone(), facts)]),
            scans: BTreeMap::from([(fast, Scan::Entries(vec![volume("vol1", "u1")]))]),
            volumes: BTreeMap::new(),
            gone: BTreeMap::new(),
            taken: BTreeSet::new(),
            offering: BTreeMap::new(),
            untainted: None,
        }
    }

    fn plan(&self) -> Vec<Step> {
        plan(&View {
            config: &self.config,
            node: Some(&self.node),
            classes: &self.classes,
            scans: &self.scans,
            volumes: &self.volumes,
            gone: &self.gone,
            taken: &self.taken,
            offering: &self.offering,
            untainted: self.untainted.as_ref(),
        })
    }

    fn scan(&mut self, entries: Vec<Found>) {
        self.scans
            .insert(ClassName::new("fast"), Scan::Entries(entries));
    }

    /// The one step of a world with this volume in it.
    fn step_for(mut self, pv: Pv) -> Step {
        self.volumes.insert(pv.name.clone(), pv);
        let mut steps = self.plan();
        assert_eq!(steps.len(), 1, "{steps:?}");
        steps.remove(0)
    }
}

fn identity(uuid: &str) -> Identity {
    Identity::Filesystem(FilesystemIdentity {
        fs_type: "ext4".into(),
        uuid: Some(uuid.into()),
        root: "/".into(),
        device: DevNum { major: 7, minor: 1 },
        boot: "b".into(),
    })
}

fn device() -> Identity {
    Identity::Device(DeviceIdentity {
        wwn: None,
        serial: None,
        partition: None,
        partition_uuid: None,
        size_bytes: 1 << 30,
        device: DevNum { major: 7, minor: 1 },
        diskseq: Some(5),
        boot: "b".into(),
    })
}

fn volume(entry: &str, uuid: &str) -> Found {
    Found::Volume(Volume {
        entry: EntryName::parse(entry.as_ref()).unwrap(),
        medium: Medium::Mount,
        capacity_bytes: 1 << 30,
        identity: identity(uuid),
        mount_flags: Vec::new(),
        contents: None,
    })
}

fn refused(entry: &str, reason: Reason) -> Found {
    Found::Refused {
        entry: entry.into(),
        refusal: Refusal::new(reason, "x"),
    }
}

/// An Available PersistentVolume of ours for `vol1`.
fn pv() -> Pv {
    Pv {
        name: crate::pv::name("vol1", "n", "fast"),
        uid: "pu".into(),
        resource_version: "1".into(),
        deleting: false,
        finalizers: vec![FINALIZER.into()],
        node_label: Some(node_label("n")),
        provisioned_by: None,
        class: ClassName::new("fast"),
        path: Some("/mnt/fast/vol1".into()),
        mode: crate::volume::VolumeMode::Filesystem,
        policy: Policy::Delete,
        capacity: "1Gi".into(),
        hostnames: vec!["h".into()],
        phase: Phase::Available,
        claim: None,
        identity: Some(identity("u1")),
        cleaning: None,
    }
}

fn released() -> Pv {
    let claim = Claim {
        namespace: "ns".into(),
        name: "c".into(),
        uid: Some("cu".into()),
    };
    Pv {
        phase: Phase::Released,
        claim: Some(claim),
        ..pv()
    }
}

/// A step in one word, with the reason of a refusal.
fn word(step: &Step) -> String {
    match step {
        Step::Offer(_) => "offer".into(),
        Step::Adopt(_) => "adopt".into(),
        Step::Reclaim(r) => format!("{:?}", r.stage),
        Step::LetGo(_) => "let go".into(),
        Step::Withdraw(_) => "withdraw".into(),
        Step::Untaint(_) => "untaint".into(),
        Step::Keep(_) => "keep".into(),
        Step::Refuse(r) => r.refusal.reason.to_string(),
    }
}

fn words(steps: &[Step]) -> Vec<String> {
    steps.iter().map(word).collect()
}

#[test]
fn a_new_volume_is_offered_under_upstreams_name() {
    let steps = World::new().plan();
    let [Step::Offer(offer)] = steps.as_slice() else {
        panic!("{steps:?}")
    };
    assert_eq!(offer.pv, crate::pv::name("vol1", "n", "fast"));
    assert_eq!(offer.path, "/mnt/fast/vol1");
    assert_eq!(offer.policy, Policy::Delete);
}

#[test]
fn nothing_happens_before_the_node_is_known() {
    let mut world = World::new();
    world.node.hostname = None;
    assert_eq!(words(&world.plan()), ["NodeUnknown"]);
    let view = View {
        config: &world.config,
        node: None,
        classes: &world.classes,
        scans: &world.scans,
        volumes: &world.volumes,
        gone: &world.gone,
        taken: &world.taken,
        offering: &world.offering,
        untainted: None,
    };
    assert_eq!(words(&plan(&view)), ["NodeUnknown"]);
}

#[test]
fn a_class_without_storage_class_offers_nothing_and_says_so() {
    let mut world = World::new();
    world.classes.clear();
    assert_eq!(words(&world.plan()), ["StorageClassMissing"]);
}

#[test]
fn a_recycle_class_offers_nothing_and_says_so() {
    let mut world = World::new();
    world
        .classes
        .values_mut()
        .for_each(|facts| facts.policy = Policy::Other);
    assert_eq!(words(&world.plan()), ["PolicyUnsupported"]);
}

#[test]
fn refused_entries_and_directories_keep_their_reason() {
    let mut world = World::new();
    world.scan(vec![
        refused("dir", Reason::NotMounted),
        volume("vol1", "u1"),
    ]);
    assert_eq!(words(&world.plan()), ["NotMounted", "offer"]);
    let refusal = Refusal::new(Reason::DirectoryMissing, "x");
    world
        .scans
        .insert(ClassName::new("fast"), Scan::Refused(refusal));
    assert_eq!(words(&world.plan()), ["DirectoryMissing"]);
}

#[test]
fn the_same_storage_is_offered_once() {
    let mut world = World::new();
    world.scan(vec![
        volume("a", "u1"),
        volume("b", "u1"),
        volume("c", "u2"),
    ]);
    assert_eq!(words(&world.plan()), ["offer", "SameStorage", "offer"]);
    world.volumes.insert(pv().name, pv());
    assert_eq!(
        words(&world.plan()),
        ["EntryMissing", "SameStorage", "SameStorage", "offer"]
    );
}

#[test]
fn a_volume_that_holds_something_is_not_offered_where_that_is_asked_for() {
    let Found::Volume(volume) = volume("vol1", "u1") else {
        unreachable!()
    };
    let full = || {
        Found::Volume(Volume {
            contents: Some("device sdb holds xfs".into()),
            ..volume.clone()
        })
    };
    let mut world = World::new();
    world.scan(vec![full()]);
    assert_eq!(words(&world.plan()), ["ForeignSignature"]);
    // Once it is offered, what it holds is the tenant's.
    for phase in [Phase::Available, Phase::Bound] {
        let mut world = World::new();
        world.scan(vec![full()]);
        assert_eq!(word(&world.step_for(Pv { phase, ..pv() })), "keep");
    }
    let mut world = World::new();
    world.scan(vec![full()]);
    assert_eq!(word(&world.step_for(released())), "Wipe { resume_at: 0 }");
}

#[test]
fn w_23_a_name_that_another_volume_of_ours_has_leads_to_a_longer_one() {
    let mut world = World::new();
    let other = Pv {
        path: Some("/mnt/fast/other".into()),
        identity: None,
        ..pv()
    };
    world.volumes.insert(other.name.clone(), other);
    world.scan(vec![volume("vol1", "u1"), volume("other", "u2")]);
    let steps = world.plan();
    assert_eq!(words(&steps), ["adopt", "offer"]);
    let Step::Offer(offer) = &steps[1] else {
        panic!("{steps:?}")
    };
    assert_eq!(offer.pv, long_name("vol1", "n", "fast"));
}

#[rstest]
#[case::free(pv(), "keep")]
#[case::bound(Pv { phase: Phase::Bound, ..pv() }, "keep")]
#[case::another_nodes(Pv { hostnames: vec!["other".into()], ..released() }, "NotOurs")]
#[case::two_nodes(Pv { hostnames: vec!["h".into(), "i".into()], ..released() }, "NotOurs")]
#[case::unlabelled(Pv { node_label: None, ..released() }, "NotOurs")]
#[case::unprotected(Pv { finalizers: vec![], ..pv() }, "adopt")]
#[case::unrecorded(Pv { identity: None, ..pv() }, "adopt")]
#[case::swapped(Pv { identity: Some(identity("u9")), ..pv() }, "withdraw")]
#[case::swapped_retained(
    Pv { identity: Some(identity("u9")), policy: Policy::Retain, ..pv() },
    "withdraw"
)]
#[case::swapped_pending(
    Pv { identity: Some(identity("u9")), phase: Phase::Pending, ..pv() },
    "EntryReplaced"
)]
#[case::swapped_claimed(
    Pv { identity: Some(identity("u9")), claim: released().claim, ..pv() },
    "EntryReplaced"
)]
#[case::swapped_bound(
    Pv { identity: Some(identity("u9")), phase: Phase::Bound, ..pv() },
    "EntryReplaced"
)]
#[case::released(released(), "Wipe { resume_at: 0 }")]
#[case::retained(Pv { policy: Policy::Retain, ..released() }, "keep")]
#[case::recycled(Pv { policy: Policy::Other, ..released() }, "PolicyUnsupported")]
#[case::released_unrecorded(Pv { identity: None, ..released() }, "NotRecorded")]
#[case::released_swapped(Pv { identity: Some(identity("u9")), ..released() }, "EntryReplaced")]
#[case::outside(Pv { path: Some("/mnt/fast".into()), ..released() }, "PathOutside")]
#[case::deeper(Pv { path: Some("/mnt/fast/a/b".into()), ..released() }, "PathOutside")]
#[case::no_path(Pv { path: None, ..released() }, "PathOutside")]
#[case::failed(Pv { phase: Phase::Failed, ..released() }, "NotReleased")]
#[case::deleted_free(Pv { deleting: true, ..pv() }, "let go")]
#[case::deleted_free_bare(Pv { deleting: true, finalizers: vec![], ..pv() }, "keep")]
#[case::deleted_bound(Pv { deleting: true, phase: Phase::Bound, ..pv() }, "keep")]
#[case::deleted_released(Pv { deleting: true, ..released() }, "Wipe { resume_at: 0 }")]
#[case::deleted_retained(
    Pv { deleting: true, policy: Policy::Retain, ..released() },
    "DataRetained"
)]
fn a_volume_and_its_step(#[case] pv: Pv, #[case] want: &str) {
    // A volume whose path or class names no entry leaves the entry to be planned for itself.
    let mut world = World::new();
    if pv.path != self::pv().path || pv.class != self::pv().class {
        world.scan(vec![]);
    }
    assert_eq!(word(&world.step_for(pv)), want);
}

#[rstest]
#[case::gone(vec![], "EntryMissing")]
#[case::unmounted(vec![refused("vol1", Reason::NotMounted)], "EntryMissing")]
#[case::detached(vec![refused("vol1", Reason::DanglingLink)], "EntryMissing")]
#[case::without_medium(vec![refused("vol1", Reason::ZeroSize)], "EntryMissing")]
#[case::furniture_now(vec![refused("vol1", Reason::Ignored)], "EntryMissing")]
#[case::a_directory_now(vec![refused("vol1", Reason::LinkToDirectory)], "EntryReplaced")]
#[case::busy(vec![refused("vol1", Reason::InUse)], "Wipe { resume_at: 0 }")]
fn a_released_volume_is_wiped_only_if_it_is_there(#[case] found: Vec<Found>, #[case] want: &str) {
    let mut world = World::new();
    world.scan(found);
    assert_eq!(word(&world.step_for(released())), want);
}

#[test]
fn a_device_that_became_a_directory_is_replaced_but_a_mount_is_not_by_its_class() {
    let wrong_mode = vec![refused("vol1", Reason::WrongMode)];
    let offered = |identity: Identity| Pv {
        phase: Phase::Available,
        claim: None,
        identity: Some(identity),
        ..released()
    };
    let mut world = World::new();
    world.scan(wrong_mode.clone());
    assert_eq!(word(&world.step_for(offered(device()))), "EntryReplaced");
    let mut world = World::new();
    world.scan(wrong_mode);
    assert_eq!(word(&world.step_for(offered(identity("u1")))), "keep");
}

#[test]
fn nothing_is_wiped_while_the_directory_is_unknown() {
    let mut world = World::new();
    world.scans.clear();
    assert_eq!(word(&world.step_for(released())), "keep");
}

#[rstest]
#[case("pu", Some("cu"), CleaningState::Started, "Wipe { resume_at: 64 }")]
#[case("pu", Some("cu"), CleaningState::Wiped, "Delete")]
#[case("pu", Some("old"), CleaningState::Wiped, "Wipe { resume_at: 0 }")]
#[case("old", Some("cu"), CleaningState::Wiped, "Wipe { resume_at: 0 }")]
#[case("pu", None, CleaningState::Wiped, "Wipe { resume_at: 0 }")]
fn w_03_only_the_state_of_this_release_counts(
    #[case] pv_uid: &str,
    #[case] claim_uid: Option<&str>,
    #[case] state: CleaningState,
    #[case] want: &str,
) {
    let cleaning = Cleaning {
        pv_uid: pv_uid.into(),
        claim_uid: claim_uid.map(Into::into),
        state,
        method: String::new(),
        done_bytes: 64,
    };
    let pv = Pv {
        cleaning: Some(cleaning),
        ..released()
    };
    assert_eq!(word(&World::new().step_for(pv)), want);
}

#[test]
fn a_retained_volume_whose_disk_was_taken_away_is_let_go() {
    let mut world = World::new();
    world.scan(vec![]);
    let pv = Pv {
        deleting: true,
        policy: Policy::Retain,
        ..released()
    };
    assert_eq!(word(&world.step_for(pv)), "let go");
}

/// Nobody has ever had the free one, so a new offer for whatever is there now takes nothing from anybody.
#[rstest]
#[case::released(released(), "IdentityUnknown")]
#[case::bound(Pv { phase: Phase::Bound, ..pv() }, "IdentityUnknown")]
#[case::free(pv(), "withdraw")]
fn a_rebooted_node_without_lasting_identity_wipes_nothing(#[case] pv: Pv, #[case] want: &str) {
    let anonymous = |boot: &str| {
        let Identity::Filesystem(fs) = identity("") else {
            unreachable!()
        };
        Identity::Filesystem(FilesystemIdentity {
            uuid: None,
            boot: boot.into(),
            ..fs
        })
    };
    let Found::Volume(now) = volume("vol1", "") else {
        unreachable!()
    };
    let mut world = World::new();
    world.scan(vec![Found::Volume(Volume {
        identity: anonymous("b2"),
        ..now
    })]);
    let identity = Some(anonymous("b1"));
    assert_eq!(word(&world.step_for(Pv { identity, ..pv })), want);
}

#[test]
fn steps_read_as_one_line_each() {
    let mut world = World::new();
    world.scan(vec![
        volume("vol1", "u1"),
        refused("dir", Reason::NotMounted),
    ]);
    for step in world.plan() {
        let line = step.to_string();
        assert!(!line.contains('\n') && line.contains("fast/"), "{line}");
    }
}

#[test]
fn w_22_a_name_that_somebody_else_has_leads_to_a_longer_one() {
    let mut world = World::new();
    world.taken.insert(crate::pv::name("vol1", "n", "fast"));
    let steps = world.plan();
    let [Step::Offer(offer)] = steps.as_slice() else {
        panic!("{steps:?}")
    };
    assert_eq!(offer.pv, long_name("vol1", "n", "fast"));
}

#[test]
fn storage_that_is_just_being_offered_is_offered_under_no_other_name() {
    let mut world = World::new();
    world.scan(vec![volume("a", "u1"), volume("vol1", "u1")]);
    world.offering.insert(pv().name, identity("u1"));
    assert_eq!(words(&world.plan()), ["SameStorage", "offer"]);
    world.scan(vec![volume("a", "u1")]);
    assert_eq!(words(&world.plan()), ["SameStorage"]);
}
