//! Rows CFG-30 to CFG-37: the keys of a class, and what is wrong between classes.

use super::*;

#[test]
fn the_smallest_class_has_upstreams_defaults() {
    let fast = fast("");
    assert_eq!(fast.volume_mode, VolumeMode::Filesystem);
    assert_eq!(fast.access_mode, "ReadWriteOnce");
    assert_eq!(fast.fs_type, None);
    assert_eq!(fast.cleaner, Cleaner::Zero);
    assert_eq!(fast.selector, []);
    assert!(fast.pattern.matches("anything"));
}

#[test]
fn keys_without_a_value_are_at_their_default() {
    let settings = "  volumeMode:\n  accessMode: ~\n  fsType: \"\"\n  namePattern: null\n  \
                    blockCleanerCommand:\n  selector:\n";
    assert_eq!(fast(settings), fast(""));
}

#[rstest]
#[case("fast: {mountDir: /m}", "storageClassMap.fast")]
#[case("fast: {hostDir: /m}", "storageClassMap.fast")]
#[case("fast: {hostDir: '', mountDir: /m}", "storageClassMap.fast.hostDir")]
#[case("fast: {hostDir: ~, mountDir: /m}", "storageClassMap.fast")]
#[case("fast: {hostDir: m, mountDir: /m}", "storageClassMap.fast.hostDir")]
#[case(
    "fast: {hostDir: /m/../etc, mountDir: /m}",
    "storageClassMap.fast.hostDir"
)]
#[case("fast: {hostDir: /m, mountDir: ./m}", "storageClassMap.fast.mountDir")]
#[case("fast: {hostDir: /m, mountDir: [/m]}", "storageClassMap.fast.mountDir")]
#[case("fast: /m", "storageClassMap.fast")]
#[case("fast:", "storageClassMap.fast")]
fn cfg_30_31_directories_are_required_and_absolute(#[case] text: &str, #[case] key: &str) {
    let config = config(&[("storageClassMap", text)]);
    assert_eq!(names(&config), [""; 0]);
    assert_eq!(errors(&config), [key]);
}

#[test]
fn w_21_directories_are_made_normal() {
    let config = config(&[(
        "storageClassMap",
        "x: {hostDir: /mnt//d/, mountDir: /mnt/./d}",
    )]);
    let class = &config.classes[&ClassName::new("x")];
    assert_eq!(class.host_dir.to_str(), Some("/mnt/d"));
    assert_eq!(class.mount_dir.to_str(), Some("/mnt/d"));
    assert_eq!(
        warnings(&config),
        ["storageClassMap.x.hostDir", "storageClassMap.x.mountDir"]
    );
}

#[rstest]
#[case("", Cleaner::Zero)]
#[case("  blockCleanerCommand: ~", Cleaner::Zero)]
#[case("  blockCleanerCommand: [/scripts/shred.sh, \"2\"]", Cleaner::Overwrite { passes: 2 })]
#[case("  blockCleanerCommand: [/scripts/shred.sh, 2]", Cleaner::Overwrite { passes: 2 })]
fn cfg_32_cleaners(#[case] settings: &str, #[case] want: Cleaner) {
    assert_eq!(fast(settings).cleaner, want);
}

#[rstest]
#[case("  volumeMode: block", "volumeMode")]
#[case("  volumeMode: [Block]", "volumeMode")]
#[case("  accessMode: RWO", "accessMode")]
#[case("  accessMode: readwriteonce", "accessMode")]
#[case("  namePattern: \"[\"", "namePattern")]
#[case("  namePattern: \"a*,[b\"", "namePattern")]
#[case("  blockCleanerCommand: []", "blockCleanerCommand")]
#[case("  blockCleanerCommand: /x", "blockCleanerCommand")]
#[case("  fsType: {a: b}", "fsType")]
#[case("  selector: {a: b}", "selector")]
fn cfg_32_to_37_a_wrong_setting_refuses_its_class(#[case] settings: &str, #[case] key: &str) {
    let config = class(settings);
    assert_eq!(names(&config), [""; 0]);
    assert_eq!(errors(&config), [format!("storageClassMap.fast.{key}")]);
    assert_eq!(
        (config.findings[0].line, config.findings[0].file.as_str()),
        (4, "storageClassMap")
    );
}

#[test]
fn cfg_33_volume_modes() {
    assert_eq!(fast("  volumeMode: Block").volume_mode, VolumeMode::Block);
    assert_eq!(
        fast("  volumeMode: Filesystem").volume_mode,
        VolumeMode::Filesystem
    );
}

#[test]
fn cfg_34_access_modes() {
    for mode in [
        "ReadWriteOnce",
        "ReadOnlyMany",
        "ReadWriteMany",
        "ReadWriteOncePod",
    ] {
        assert_eq!(fast(&format!("  accessMode: {mode}")).access_mode, mode);
    }
}

#[test]
fn cfg_35_filesystem_types() {
    assert_eq!(fast("  fsType: xfs").fs_type.as_deref(), Some("xfs"));
}

#[test]
fn cfg_36_patterns_are_not_trimmed_and_a_space_is_found() {
    let config = class("  namePattern: \"a*, b*\"");
    let pattern = &config.classes[&ClassName::new("fast")].pattern;
    assert!(pattern.matches("a1") && !pattern.matches("b1"));
    assert_eq!(warnings(&config), ["storageClassMap.fast.namePattern"]);
    assert!(
        config.findings[0].text.contains("write \"a*,b*\""),
        "{:?}",
        config.findings
    );
    assert!(fast("  namePattern: 'nvme*,,sd?'").pattern.matches("sda"));
    assert!(fast("  namePattern: 012").pattern.matches("10"));
}

#[test]
fn cfg_37_selectors_are_read() {
    let fast = fast(
        "  selector:\n  - matchExpressions:\n    - {key: zone, operator: In, values: [a, 1.50]}\n    \
         - {KEY: gpu, operator: Exists}\n  - matchFields:\n    \
         - {key: metadata.name, operator: NotIn, values: [m]}\n",
    );
    let requirement = |key: &str, operator, values: &[&str]| Requirement {
        key: key.to_owned(),
        operator,
        values: values.iter().map(ToString::to_string).collect(),
    };
    let first = SelectorTerm {
        expressions: vec![
            requirement("zone", Operator::In, &["a", "1.5"]),
            requirement("gpu", Operator::Exists, &[]),
        ],
        fields: Vec::new(),
    };
    let second = SelectorTerm {
        expressions: Vec::new(),
        fields: vec![requirement("metadata.name", Operator::NotIn, &["m"])],
    };
    assert_eq!(fast.selector, [first, second]);
}

#[rstest]
#[case("{key: a b, operator: Exists}")]
#[case("{key: a, operator: Is}")]
#[case("{key: a}")]
#[case("{operator: Exists}")]
#[case("{key: a, operator: In}")]
#[case("{key: a, operator: In, values: [a b]}")]
#[case("{key: a, operator: Exists, values: [b]}")]
#[case("{key: a, operator: Gt, values: [b]}")]
#[case("{key: a, operator: Lt, values: [1, 2]}")]
#[case("text")]
fn cfg_37_requirements_that_the_api_server_refuses_are_found(#[case] requirement: &str) {
    let config = class(&format!(
        "  selector: [{{matchExpressions: [{requirement}]}}]"
    ));
    assert_eq!(names(&config), [""; 0]);
    let [key] = errors(&config)[..] else {
        panic!("{:?}", config.findings)
    };
    assert!(
        key.starts_with("storageClassMap.fast.selector[0].matchExpressions[0]"),
        "{key}"
    );
}

#[test]
fn a_term_that_selects_nothing_is_found() {
    let config = class("  selector: [{}]");
    assert_eq!(warnings(&config), ["storageClassMap.fast.selector[0]"]);
}

#[test]
fn class_names_must_fit_a_storage_class() {
    for name in ["Fast_Disks", "fast disks", "-fast", "\"\""] {
        let config = config(&[(
            "storageClassMap",
            &format!("{name}: {{hostDir: /a, mountDir: /a}}"),
        )]);
        assert_eq!(
            (names(&config).len(), errors(&config).len()),
            (0, 1),
            "{name}"
        );
    }
}

#[test]
fn a_wrong_class_does_not_take_the_others_down() {
    let text = "good: {hostDir: /a, mountDir: /a}\nbad: {hostDir: /b}\nworse: text\n";
    let config = config(&[("storageClassMap", text)]);
    assert_eq!(names(&config), ["good"]);
    assert_eq!(
        errors(&config),
        ["storageClassMap.bad", "storageClassMap.worse"]
    );
    assert_eq!(config.findings[0].line, 2);
}

#[test]
fn overlapping_directories_are_refused() {
    for (a, b) in [("/a", "/a"), ("/a", "/a/b"), ("/a/b", "/a"), ("/", "/a")] {
        for text in [
            format!("x: {{hostDir: {a}, mountDir: /m/x}}\nz: {{hostDir: {b}, mountDir: /m/z}}"),
            format!("x: {{hostDir: /m/x, mountDir: {a}}}\nz: {{hostDir: /m/z, mountDir: {b}}}"),
        ] {
            let config = config(&[("storageClassMap", &text)]);
            assert_eq!(names(&config), ["x"], "{text}");
            assert_eq!(errors(&config), ["storageClassMap.z"]);
        }
    }
    let text = "x: {hostDir: /a, mountDir: /a}\nz: {hostDir: /ab, mountDir: /ab}";
    assert_eq!(config(&[("storageClassMap", text)]).classes.len(), 2);
}

#[test]
fn unknown_keys_are_found_with_what_may_be_meant() {
    let config = class("  hotsDir: /x\n  whatever: 1\n");
    assert_eq!(names(&config), ["fast"]);
    let texts: Vec<_> = config
        .findings
        .iter()
        .map(|f| (f.line, f.text.as_str()))
        .collect();
    let want = [
        (4, "unknown key, ignored; hostDir is meant?"),
        (5, "unknown key, ignored"),
    ];
    assert_eq!(texts, want);
}

#[test]
fn a_finding_names_its_key_and_line() {
    let config = class("  accessMode: RWO");
    let text = config.findings[0].to_string();
    assert!(
        text.starts_with("error: storageClassMap.fast.accessMode (line 4): \"RWO\""),
        "{text}"
    );
}

#[test]
fn only_direct_children_of_the_directory_are_entries() {
    let fast = fast("");
    assert_eq!(fast.entry_of("/mnt/f/vol1").unwrap().as_str(), "vol1");
    for path in [
        "/mnt/f",
        "/mnt/f/",
        "/mnt/f/a/b",
        "/mnt/f/..",
        "/mnt/f//a",
        "/mnt/fa",
        "/x",
        "",
    ] {
        assert_eq!(fast.entry_of(path), None, "{path}");
    }
}
