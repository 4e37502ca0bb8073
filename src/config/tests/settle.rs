//! What stays in force when an edit is bad.

use super::*;

const TWO: &str = "x: {hostDir: /x, mountDir: /x}\nb: {hostDir: /b, mountDir: /b}\n";

fn two() -> Config {
    let config = config(&[("storageClassMap", TWO), ("labelsForPV", "a: 1\nb: 2")]);
    assert_eq!((names(&config), config.findings.len()), (vec!["b", "x"], 0));
    config
}

fn edited(last: &Config, classes: &str) -> Config {
    parse_over(
        &values(&[("storageClassMap", classes), ("labelsForPV", "a: 1\nb: 2")]),
        last,
    )
}

#[test]
fn a_class_that_became_malformed_keeps_its_last_good_form() {
    let last = two();
    let now = edited(
        &last,
        "x: {hostDir: /x}\nb: {hostDir: /b, mountDir: /b, fsType: xfs}\n",
    );
    assert_eq!(
        now.classes[&ClassName::new("x")],
        last.classes[&ClassName::new("x")]
    );
    assert_eq!(
        now.classes[&ClassName::new("b")].fs_type.as_deref(),
        Some("xfs")
    );
    assert_eq!(errors(&now), ["storageClassMap.x", "storageClassMap.x"]);
    assert!(
        now.findings[1]
            .text
            .contains("last good form stays in force")
    );

    // It goes on like that, until the class is right again or gone.
    let later = edited(&now, "x: {hostDir: /x, accessMode: no}\n");
    assert_eq!(names(&later), ["x"]);
    assert_eq!(names(&edited(&later, "{}")), [""; 0]);
}

#[test]
fn classes_that_can_not_be_read_at_all_stay() {
    let last = two();
    for bad in ["x: [", "text", "a: b\n---\nc: d"] {
        let now = edited(&last, bad);
        assert_eq!(now.classes, last.classes, "{bad}");
        assert!(!errors(&now).is_empty());
    }
}

#[test]
fn removals_are_taken() {
    let last = two();
    assert_eq!(
        names(&edited(&last, "b: {hostDir: /b, mountDir: /b}")),
        ["b"]
    );
    assert_eq!(names(&edited(&last, "")), [""; 0]);
    let none = parse_over(&values(&[]), &last);
    assert_eq!(none, Config::default());
}

#[test]
fn a_new_class_does_not_push_out_one_that_was_there() {
    let last = two();
    let now = edited(&last, &format!("a: {{hostDir: /x, mountDir: /m}}\n{TWO}"));
    assert_eq!(now.classes, last.classes);
    assert_eq!(errors(&now), ["storageClassMap.a"]);
    // Nor does one that moved.
    let now = edited(
        &last,
        "x: {hostDir: /b, mountDir: /b}\nb: {hostDir: /b, mountDir: /b}\n",
    );
    assert_eq!(now.classes, last.classes);
    assert_eq!(errors(&now), ["storageClassMap.x", "storageClassMap.x"]);
}

#[test]
fn a_last_good_form_makes_way_for_what_is_right() {
    let now = edited(&two(), "x: {hostDir: /x}\nz: {hostDir: /x, mountDir: /x}\n");
    assert_eq!(names(&now), ["z"]);
    assert_eq!(errors(&now), ["storageClassMap.x", "storageClassMap.x"]);
}

#[test]
fn other_keys_keep_their_last_good_form_too() {
    let keys = [
        ("labelsForPV", "a: 1\nb: 2"),
        ("nodeLabelsForPV", "[zone]"),
        ("useAlphaAPI", "true"),
        ("useJobForCleaning", "true"),
        ("jobTolerations", "[{operator: Exists}]"),
        ("minResyncPeriod", "7m"),
        ("useNodeNameOnly", "true"),
        ("setPVOwnerRef", "true"),
        ("removeNodeNotReadyTaint", "true"),
        ("provisionerNotReadyNodeTaintKey", "a"),
    ];
    let last = config(&keys);
    let broken = keys.map(|(key, _)| (key, "[{"));
    let now = parse_over(&values(&broken), &last);
    assert_eq!(
        Config {
            findings: Vec::new(),
            ..now.clone()
        },
        Config {
            findings: Vec::new(),
            ..last
        }
    );
    assert_eq!(errors(&now).len(), 2 * keys.len());

    let now = parse_over(&values(&[("labelsForPV", "a: not good\nc: 3")]), &two());
    let labels: Vec<_> = now
        .labels
        .iter()
        .map(|(k, v)| (k.as_str(), v.as_str()))
        .collect();
    assert_eq!(labels, [("a", "1"), ("c", "3")]);
}

#[test]
fn with_nothing_to_keep_nothing_is_said() {
    let now = config(&[
        ("storageClassMap", "x: {hostDir: /x}"),
        ("setPVOwnerRef", "7"),
    ]);
    assert_eq!(errors(&now), ["setPVOwnerRef", "storageClassMap.x"]);
}
