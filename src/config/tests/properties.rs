//! What holds for every input: no panic, no class that breaks the rules, and what is written is read.

use std::path::PathBuf;

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config as Runs, RngAlgorithm, TestRng, TestRunner};

use super::super::keys;
use super::render::render;
use super::*;

/// How many inputs the fuzzer makes in each run of the tests; always the same ones.
const FUZZ_INPUTS: u32 = 20_000;

/// What holds of every configuration, whatever it was read from.
fn check(config: &Config) {
    let classes: Vec<&Class> = config.classes.values().collect();
    for (n, class) in classes.iter().enumerate() {
        for dir in [&class.host_dir, &class.mount_dir] {
            assert!(
                dir.is_absolute() && !dir.to_string_lossy().contains("//"),
                "{dir:?}"
            );
        }
        for other in &classes[n + 1..] {
            let apart = |a: &PathBuf, b: &PathBuf| !a.starts_with(b) && !b.starts_with(a);
            assert!(
                apart(&class.host_dir, &other.host_dir),
                "{class:?} {other:?}"
            );
            assert!(
                apart(&class.mount_dir, &other.mount_dir),
                "{class:?} {other:?}"
            );
        }
    }
    for finding in &config.findings {
        assert!(
            finding.line > 0 && finding.key.starts_with(&finding.file),
            "{finding:?}"
        );
    }
}

fn label() -> impl Strategy<Value = String> {
    select(vec!["a", "zone", "example.com/b", "x_1.y"]).prop_map(str::to_owned)
}

fn value() -> impl Strategy<Value = String> {
    // Values that would be something else without their quotes.
    select(vec![
        "",
        "x",
        "012",
        "yes",
        "1.50",
        "2024-01-02",
        "1e3",
        "null",
    ])
    .prop_map(str::to_owned)
}

fn requirement() -> impl Strategy<Value = Requirement> {
    let some = (label(), vec(value(), 1..3));
    some.prop_flat_map(|(key, values)| {
        let with = |operator, values: &[String]| Requirement {
            key: key.clone(),
            operator,
            values: values.to_vec(),
        };
        select(vec![
            with(Operator::In, &values),
            with(Operator::NotIn, &values),
            with(Operator::Exists, &[]),
            with(Operator::DoesNotExist, &[]),
            with(Operator::Gt, &["5".to_owned()]),
        ])
    })
}

fn cleaner() -> impl Strategy<Value = Cleaner> {
    prop_oneof![
        Just(Cleaner::Zero),
        any::<u32>().prop_map(|passes| Cleaner::Overwrite { passes }),
        vec(".{0,8}", 0..3).prop_map(|mut words| {
            words.insert(0, "/hooks/wipe".to_owned());
            Cleaner::Command(words)
        }),
    ]
}

fn gone() -> impl Strategy<Value = GonePolicy> {
    (
        select(vec![WhenGone::Keep, WhenGone::Withdraw]),
        0..100_000_u64,
    )
        .prop_map(|(action, seconds)| GonePolicy {
            action,
            after: Duration::from_secs(seconds),
        })
}

fn class() -> impl Strategy<Value = Class> {
    let term = vec(requirement(), 1..3);
    let selector = vec(term, 0..3);
    let modes = vec![
        "ReadWriteOnce",
        "ReadOnlyMany",
        "ReadWriteMany",
        "ReadWriteOncePod",
    ];
    let pattern = "[a-z*?]{1,5}(,[a-z*?]{0,5}){0,3}";
    (
        any::<bool>(),
        select(modes),
        option::of("[a-z0-9]{1,5}"),
        pattern,
        cleaner(),
        selector,
        (any::<bool>(), gone()),
    )
        .prop_map(
            |(block, mode, fs_type, pattern, cleaner, selector, ours)| Class {
                volume_mode: if block {
                    VolumeMode::Block
                } else {
                    VolumeMode::Filesystem
                },
                access_mode: mode.to_owned(),
                fs_type,
                pattern: NamePattern::parse(&pattern).expect("it has no brackets"),
                cleaner,
                selector: selector
                    .into_iter()
                    .map(|expressions| SelectorTerm {
                        expressions,
                        fields: Vec::new(),
                    })
                    .collect(),
                require_empty: ours.0,
                gone: ours.1,
                ..Class::new(ClassName::new("unnamed"), PathBuf::new(), PathBuf::new())
            },
        )
}

fn whole() -> impl Strategy<Value = Config> {
    let classes = btree_map("[a-z][a-z0-9]{0,8}", class(), 0..5);
    let labels = btree_map(label(), value(), 0..3);
    let flags = any::<[bool; 5]>();
    let seconds = option::of(0..1_000_000_u32);
    let tolerations = vec(option::of(0..1000_i64), 0..3);
    (
        classes,
        labels,
        vec(label(), 0..3),
        flags,
        seconds,
        tolerations,
        option::of(label()),
        gone(),
    )
        .prop_map(
            |(classes, labels, node_labels, flags, seconds, tolerations, taint, class_gone)| {
                Config {
                    classes: classes
                        .into_iter()
                        .map(|(name, class)| {
                            let (host_dir, mount_dir) =
                                (format!("/mnt/{name}"), format!("/in/{name}"));
                            let name = ClassName::new(name);
                            let (host_dir, mount_dir) = (host_dir.into(), mount_dir.into());
                            (
                                name.clone(),
                                Class {
                                    name,
                                    host_dir,
                                    mount_dir,
                                    ..class
                                },
                            )
                        })
                        .collect(),
                    node_labels,
                    labels,
                    use_alpha_api: flags[0],
                    use_job_for_cleaning: flags[1],
                    use_node_name_only: flags[2],
                    set_pv_owner_ref: flags[3],
                    remove_not_ready_taint: flags[4],
                    min_resync_period: seconds
                        .and_then(|seconds| format!("{seconds}s").parse().ok()),
                    job_tolerations: tolerations
                        .into_iter()
                        .map(|toleration_seconds| Toleration {
                            operator: Some("Exists".to_owned()),
                            toleration_seconds,
                            ..Toleration::default()
                        })
                        .collect(),
                    not_ready_taint_key: taint,
                    class_gone,
                    findings: Vec::new(),
                }
            },
        )
}

proptest! {
    #[test]
    fn any_text_is_read(key in select(keys::TOP.to_vec()), text in any::<String>()) {
        check(&config(&[(key, &text)]));
    }

    #[test]
    fn any_bytes_are_read(key in select(keys::TOP.to_vec()), bytes in vec(any::<u8>(), 0..400)) {
        check(&config(&[(key, &String::from_utf8_lossy(&bytes))]));
    }

    #[test]
    fn what_is_written_is_read(want in whole()) {
        let mut read = parse(&render(&want));
        prop_assert_eq!(errors(&read), [""; 0]);
        read.findings.clear();
        prop_assert_eq!(read, want);
    }

    #[test]
    fn settling_keeps_nothing_of_a_good_edit(last in whole(), want in whole()) {
        let mut read = parse_over(&render(&want), &last);
        read.findings.clear();
        prop_assert_eq!(read, want);
    }
}

/// A piece of something like a configuration.
fn piece() -> impl Strategy<Value = String> {
    let words: Vec<&str> = keys::TOP
        .into_iter()
        .chain(keys::CLASS)
        .chain([
            "matchExpressions",
            "key",
            "operator",
            "values",
            "In",
            "Exists",
            "Filesystem",
            "Block",
            "fast",
            "/mnt/a",
            "/mnt/a/b",
            "/mnt//c",
            "nvme*",
            "[a-",
            "5m",
            "yes",
            "012",
            "~",
            "'",
            "\"",
            "|\n",
            ">-\n",
            "&a ",
            "*a",
            "<<: ",
            "!!str ",
            "!!int ",
            "? ",
            "---\n",
            "...\n",
            "%YAML 1.1\n",
            "#",
            "\t",
            "\u{feff}",
            "\u{0}",
            "é",
        ])
        .collect();
    let marks = vec![
        ": ", ":\n  ", ":\n    ", "\n", "\n  ", "\n    ", "- ", ", ", "{", "}", "[", "]",
    ];
    prop_oneof![3 => select(words), 4 => select(marks)].prop_map(str::to_owned)
}

/// Valid text with one place cut out, doubled or replaced, or pieces in any order.
fn almost() -> impl Strategy<Value = String> {
    let good = "fast:\n  hostDir: /mnt/f\n  mountDir: /mnt/f\n  volumeMode: Block\n  namePattern: \
                \"a*,b*\"\n  selector:\n  - matchExpressions:\n    - {key: a, operator: In, values: \
                [b]}\n  blockCleanerCommand: [/scripts/shred.sh, \"2\"]\n";
    let bent = (any::<Index>(), any::<Index>(), vec(piece(), 0..4)).prop_map(|(from, to, put)| {
        let (a, b) = (from.index(good.len()), to.index(good.len()));
        format!(
            "{}{}{}",
            &good[..a],
            put.concat(),
            &good[b.max(a.saturating_sub(20))..]
        )
    });
    prop_oneof![vec(piece(), 0..40).prop_map(|pieces| pieces.concat()), bent]
}

#[test]
fn a_fixed_number_of_almost_valid_inputs_is_read() {
    let runs = Runs {
        cases: FUZZ_INPUTS,
        failure_persistence: None,
        ..Runs::default()
    };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let last = fast_config();
    let inputs = (select(keys::TOP.to_vec()), almost());
    TestRunner::new_with_rng(runs, rng)
        .run(&inputs, |(key, text)| {
            let now = parse_over(&values(&[(key, &text)]), &last);
            check(&now);
            // Reading it again over itself changes nothing but what is said about it.
            let again = parse_over(&values(&[(key, &text)]), &now);
            prop_assert_eq!(&again.classes, &now.classes);
            Ok(())
        })
        .unwrap();
}

fn fast_config() -> Config {
    super::class("  fsType: xfs")
}
