//! Volumes whose entry or class is gone.

use super::*;

/// A class that waits for a minute, and an entry that has been gone for so long.
#[rstest]
#[case::kept("keep", vec![], 600, pv(), "EntryMissing")]
#[case::early("withdraw", vec![], 59, pv(), "EntryMissing")]
#[case::gone("withdraw", vec![], 60, pv(), "withdraw")]
#[case::unmounted("withdraw", vec![refused("vol1", Reason::NotMounted)], 60, pv(), "withdraw")]
#[case::a_file("withdraw", vec![refused("vol1", Reason::NotAVolume)], 60, pv(), "withdraw")]
#[case::hung("withdraw", vec![refused("vol1", Reason::Hung)], 60, pv(), "keep")]
#[case::back("withdraw", vec![volume("vol1", "u1")], 60, pv(), "keep")]
#[case::claimed(
    "withdraw", vec![], 60, Pv { claim: released().claim, ..pv() }, "EntryMissing"
)]
#[case::bound("withdraw", vec![], 60, Pv { phase: Phase::Bound, ..pv() }, "EntryMissing")]
#[case::released("withdraw", vec![], 60, released(), "EntryMissing")]
fn only_a_free_volume_is_withdrawn_and_only_after_its_time(
    #[case] when_gone: &str,
    #[case] found: Vec<Found>,
    #[case] gone_secs: u64,
    #[case] pv: Pv,
    #[case] want: &str,
) {
    let mut world = World::new();
    let text = format!(
        "fast: {{hostDir: /mnt/fast, mountDir: /mnt/fast, whenGone: {when_gone}, withdrawAfter: 1m}}"
    );
    world.config = parse(&BTreeMap::from([("storageClassMap".into(), text)]));
    world.scan(found);
    world
        .gone
        .insert(pv.name.clone(), Duration::from_secs(gone_secs));
    assert_eq!(word(&world.step_for(pv)), want);
}

#[test]
fn an_unknown_directory_withdraws_nothing() {
    let mut world = World::new();
    world.scans.clear();
    world.gone.insert(pv().name, Duration::from_secs(1 << 30));
    assert_eq!(word(&world.step_for(pv())), "keep");
}

/// A configuration without the class, for so long, and what else it says.
#[rstest]
#[case::by_default("{}", "", 600, pv(), "ClassUnknown")]
#[case::kept("{}", "keep", 600, pv(), "ClassUnknown")]
#[case::early("{}", "withdraw", 59, pv(), "ClassUnknown")]
#[case::gone("{}", "withdraw", 60, pv(), "withdraw")]
#[case::claimed("{}", "withdraw", 60, Pv { claim: released().claim, ..pv() }, "ClassUnknown")]
#[case::bound("{}", "withdraw", 60, Pv { phase: Phase::Bound, ..pv() }, "ClassUnknown")]
#[case::released("{}", "withdraw", 60, released(), "ClassUnknown")]
#[case::unrecorded("{}", "withdraw", 60, Pv { identity: None, ..pv() }, "ClassUnknown")]
#[case::another_nodes("{}", "withdraw", 60, Pv { hostnames: vec!["x".into()], ..pv() }, "NotOurs")]
#[case::deleted("{}", "keep", 0, Pv { deleting: true, ..pv() }, "let go")]
#[case::deleted_bound(
    "{}", "withdraw", 60, Pv { deleting: true, phase: Phase::Bound, ..pv() }, "ClassUnknown"
)]
#[case::refused("{fast: {hostDir: relative}}", "withdraw", 60, pv(), "ClassUnknown")]
#[case::something_refused("{other: {hostDir: relative}}", "withdraw", 60, pv(), "ClassUnknown")]
#[case::not_yaml("{", "withdraw", 60, pv(), "ClassUnknown")]
#[case::moved(
    "{fast: {hostDir: /mnt/b, mountDir: /b}}",
    "withdraw",
    60,
    pv(),
    "PathOutside"
)]
#[case::moved_and_given_up(
    "{fast: {hostDir: /mnt/b, mountDir: /b, whenGone: withdraw, withdrawAfter: 1m}}",
    "",
    60,
    pv(),
    "withdraw"
)]
#[case::moved_and_released(
    "{fast: {hostDir: /mnt/b, mountDir: /b, whenGone: withdraw, withdrawAfter: 1m}}",
    "",
    60,
    released(),
    "PathOutside"
)]
fn a_free_volume_without_a_class_is_withdrawn_only_if_the_configuration_is_clear(
    #[case] classes: &str,
    #[case] when_gone: &str,
    #[case] gone_secs: u64,
    #[case] pv: Pv,
    #[case] want: &str,
) {
    let mut world = World::new();
    let values = [
        ("storageClassMap", classes),
        ("whenClassGone", when_gone),
        ("withdrawClassAfter", "1m"),
    ];
    let values = values.map(|(key, value)| (key.to_owned(), value.to_owned()));
    world.config = parse(&BTreeMap::from(values));
    world.scans.clear();
    let gone_for = Duration::from_secs(gone_secs);
    world.gone.insert(pv.name.clone(), gone_for);
    assert_eq!(word(&world.step_for(pv)), want);
}
