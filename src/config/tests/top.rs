//! Rows CFG-02 to CFG-20: the dialect, and the keys that are not a class's.

use super::*;

#[test]
fn cfg_02_stray_files_are_unknown_keys() {
    let config = config(&[
        ("notes.txt", "hello"),
        ("storageclassmaps", ""),
        (".swp", "\u{1}["),
    ]);
    assert_eq!(warnings(&config), [".swp", "notes.txt", "storageclassmaps"]);
    assert!(
        config.findings[2]
            .text
            .contains("storageClassMap is meant?")
    );
    assert!(!config.findings[1].text.contains("meant"));
}

#[test]
fn cfg_03_json_and_anchors_are_values() {
    let json = r#"{"fast": {"hostDir": "/a", "mountDir": "/a", "volumeMode": "Block"}}"#;
    assert_eq!(names(&config(&[("storageClassMap", json)])), ["fast"]);
    let text = "one: &one {hostDir: /a, mountDir: /a, fsType: xfs}\n\
                two:\n  <<: *one\n  hostDir: /b\n  mountDir: /b\n";
    let config = config(&[("storageClassMap", text)]);
    assert_eq!(config.findings, []);
    assert_eq!(
        config.classes[&ClassName::new("two")].fs_type.as_deref(),
        Some("xfs")
    );
}

#[test]
fn cfg_03_one_malformed_key_leaves_the_others() {
    let config = config(&[
        ("labelsForPV", "a: 1\nb: [c\n"),
        ("storageClassMap", "fast: {hostDir: /a, mountDir: /a}"),
    ]);
    assert_eq!(names(&config), ["fast"]);
    assert_eq!(errors(&config), ["labelsForPV"]);
    assert_eq!(config.findings[0].line, 2);
}

#[test]
fn cfg_04_keys_are_case_insensitive() {
    let config = config(&[
        (
            "STORAGECLASSMAP",
            "fast: {HOSTDIR: /a, mountdir: /b, Selector: []}",
        ),
        ("useNODEnameOnly", "yes"),
    ]);
    assert_eq!(config.findings, []);
    assert_eq!(names(&config), ["fast"]);
    assert!(config.use_node_name_only);
}

#[test]
fn cfg_04_the_last_of_repeated_keys_wins_and_is_said() {
    let twice = class("  fsType: ext4\n  fsType: xfs\n");
    assert_eq!(
        twice.classes[&ClassName::new("fast")].fs_type.as_deref(),
        Some("xfs")
    );
    assert_eq!(warnings(&twice), ["storageClassMap.fast.fsType"]);
    assert_eq!(twice.findings[0].line, 5);

    // Of two spellings upstream reads them in the order of their bytes.
    let spellings = class("  fsType: ext4\n  FSTYPE: xfs\n");
    assert_eq!(
        spellings.classes[&ClassName::new("fast")]
            .fs_type
            .as_deref(),
        Some("ext4")
    );
    assert_eq!(warnings(&spellings), ["storageClassMap.fast.FSTYPE"]);

    let keys = config(&[("USENODENAMEONLY", "true"), ("useNodeNameOnly", "false")]);
    assert!(!keys.use_node_name_only);
    assert_eq!(warnings(&keys), ["USENODENAMEONLY"]);
}

#[rstest]
#[case("true", Some(true))]
#[case("True", Some(true))]
#[case("TRUE", Some(true))]
#[case("yes", Some(true))]
#[case("on", Some(true))]
#[case("y", Some(true))]
#[case("false", Some(false))]
#[case("no", Some(false))]
#[case("off", Some(false))]
#[case("n", Some(false))]
#[case("", Some(false))]
#[case("null", Some(false))]
#[case("~", Some(false))]
#[case("\"true\"", None)]
#[case("'yes'", None)]
#[case("1", None)]
#[case("0", None)]
#[case("tRUE", None)]
#[case("enabled", None)]
#[case("[true]", None)]
fn cfg_05_booleans(#[case] text: &str, #[case] want: Option<bool>) {
    let config = config(&[("useNodeNameOnly", text)]);
    assert_eq!(
        errors(&config)
            .is_empty()
            .then_some(config.use_node_name_only),
        want
    );
}

#[test]
fn cfg_05_quotes_around_a_boolean_are_explained() {
    let config = config(&[("setPVOwnerRef", "\"true\"")]);
    assert!(
        config.findings[0].text.contains("take the quotes off"),
        "{:?}",
        config.findings
    );
}

#[rstest]
#[case("012", "10")]
#[case("0x10", "16")]
#[case("1.50", "1.5")]
#[case("1e3", "1000")]
#[case("y", "true")]
#[case("yes", "true")]
#[case("on", "true")]
#[case("no", "false")]
#[case("~", "")]
#[case("2024-01-02", "2024-01-02")]
#[case("'012'", "012")]
#[case("\"yes\"", "yes")]
fn cfg_06_label_values_are_coerced(#[case] written: &str, #[case] want: &str) {
    let config = config(&[("labelsForPV", &format!("a: {written}"))]);
    assert_eq!(config.findings, []);
    assert_eq!(config.labels["a"], want);
}

#[test]
fn cfg_06_class_names_arguments_and_taint_keys_are_coerced() {
    let text = "123: {hostDir: /a, mountDir: /a, blockCleanerCommand: [/x, 2, true]}\n\
                yes: {hostDir: /b, mountDir: /b}\n";
    let config = config(&[
        ("storageClassMap", text),
        ("provisionerNotReadyNodeTaintKey", "0x10"),
    ]);
    assert_eq!(names(&config), ["123", "true"]);
    let words = ["/x", "2", "true"].map(str::to_owned).to_vec();
    assert_eq!(
        config.classes[&ClassName::new("123")].cleaner,
        Cleaner::Command(words)
    );
    assert_eq!(config.not_ready_taint_key.as_deref(), Some("16"));
}

#[test]
fn cfg_08_no_classes_are_valid() {
    for keys in [
        &[][..],
        &[("storageClassMap", "")][..],
        &[("storageClassMap", "{}")][..],
    ] {
        assert_eq!(config(keys), Config::default());
    }
}

/// Whatever is wrong with one key, what the others say is in force.
#[rstest]
#[case("storageClassMap", "fast: {hostDir: /h}")]
#[case("storageClassMap", "[]")]
#[case("nodeLabelsForPV", "zone")]
#[case("labelsForPV", "a: [b]")]
#[case("useAlphaAPI", "maybe")]
#[case("useJobForCleaning", "maybe")]
#[case("jobTolerations", "{}")]
#[case("minResyncPeriod", "5 minutes")]
#[case("setPVOwnerRef", "{")]
#[case("removeNodeNotReadyTaint", "1")]
#[case("provisionerNotReadyNodeTaintKey", "a b")]
#[case("whenClassGone", "burn")]
#[case("withdrawClassAfter", "-5m")]
#[case("nonsense", "\t\t---\n: :")]
fn cfg_07_a_wrong_key_takes_no_other_down(#[case] key: &str, #[case] value: &str) {
    let values = [
        ("storageClassMap", "good: {hostDir: /g, mountDir: /g}"),
        ("useNodeNameOnly", "yes"),
        (key, value),
    ];
    let read = config(&values);
    assert!(read.use_node_name_only);
    assert!(!read.findings.is_empty(), "it is said");
    if key != "storageClassMap" {
        assert_eq!(names(&read), ["good"]);
    }
}

/// Upstream goes through a map in random order and tells of the first.
#[test]
fn cfg_09_all_that_is_wrong_is_said_in_the_order_of_the_text() {
    let classes = "c: {hostDir: c, mountDir: /c}\nb: {hostDir: /b}\na: {mountDir: /a}\n";
    let read = config(&[("storageClassMap", classes), ("labelsForPV", "x: {}")]);
    let keys: Vec<_> = read.findings.iter().map(|f| f.key.as_str()).collect();
    assert_eq!(
        keys,
        [
            "labelsForPV.x",
            "storageClassMap.c.hostDir",
            "storageClassMap.b",
            "storageClassMap.a"
        ]
    );
}

#[test]
fn cfg_10_classes_are_a_map() {
    for text in ["[]", "text", "1"] {
        assert_eq!(
            errors(&config(&[("storageClassMap", text)])),
            ["storageClassMap"]
        );
    }
}

#[test]
fn cfg_11_node_labels_are_a_list() {
    let good = config(&[(
        "nodeLabelsForPV",
        "- zone\n- topology.kubernetes.io/region\n- 012\n",
    )]);
    assert_eq!(
        good.node_labels,
        ["zone", "topology.kubernetes.io/region", "10"]
    );
    assert_eq!(good.findings, []);
    for text in ["zone", "{a: b}", "[a b]", "[[a]]"] {
        let bad = config(&[("nodeLabelsForPV", text)]);
        assert_eq!(errors(&bad).len(), 1, "{text}");
        assert_eq!(bad.node_labels, [""; 0]);
    }
}

#[test]
fn cfg_12_labels_have_the_syntax_of_kubernetes() {
    let text = "a: 1\n-b: x\nexample.com/c: good\nd: not good\ne: [x]\n";
    let config = config(&[("labelsForPV", text)]);
    assert_eq!(
        config.labels.keys().collect::<Vec<_>>(),
        ["a", "example.com/c"]
    );
    assert_eq!(
        errors(&config),
        ["labelsForPV.-b", "labelsForPV.d", "labelsForPV.e"]
    );
    let lines: Vec<_> = config.findings.iter().map(|finding| finding.line).collect();
    assert_eq!(lines, [2, 4, 5]);
}

#[rstest]
#[case("useAlphaAPI")]
#[case("useJobForCleaning")]
#[case("removeNodeNotReadyTaint")]
fn cfg_13_14_19_switches_are_read_and_said(#[case] key: &str) {
    let on = config(&[(key, "yes")]);
    let flags = [
        on.use_alpha_api,
        on.use_job_for_cleaning,
        on.remove_not_ready_taint,
    ];
    assert_eq!(flags.into_iter().filter(|flag| *flag).count(), 1);
    assert_eq!(warnings(&on), [key]);
    assert_eq!(config(&[(key, "no")]), Config::default());
    assert_eq!(errors(&config(&[(key, "maybe")])), [key]);
}

#[test]
fn cfg_15_tolerations_are_checked() {
    let text = "- {key: dedicated, operator: Equal, value: 012, effect: NoExecute, \
                tolerationSeconds: 30}\n- operator: Exists\n";
    let good = config(&[("jobTolerations", text)]);
    assert_eq!(warnings(&good), ["jobTolerations"]);
    assert_eq!(errors(&good), [""; 0]);
    let first = Toleration {
        key: Some("dedicated".into()),
        operator: Some("Equal".into()),
        value: Some("10".into()),
        effect: Some("NoExecute".into()),
        toleration_seconds: Some(30),
    };
    let second = Toleration {
        operator: Some("Exists".into()),
        ..Toleration::default()
    };
    assert_eq!(good.job_tolerations, [first, second]);
    assert_eq!(config(&[("jobTolerations", "[]")]), Config::default());
    for (text, key) in [
        ("[{key: a b}]", "jobTolerations[0].key"),
        ("[{key: a, operator: In}]", "jobTolerations[0].operator"),
        ("[{key: a, effect: Never}]", "jobTolerations[0].effect"),
        (
            "[{key: a, tolerationSeconds: '5'}]",
            "jobTolerations[0].tolerationSeconds",
        ),
        (
            "[{key: a, operator: Exists, value: b}]",
            "jobTolerations[0]",
        ),
        ("[{}]", "jobTolerations[0]"),
        ("{}", "jobTolerations"),
    ] {
        let bad = config(&[("jobTolerations", text)]);
        assert_eq!(errors(&bad), [key], "{text}");
        assert_eq!(bad.job_tolerations, []);
    }
}

#[rstest]
#[case("5m0s", true)]
#[case("1h30m", true)]
#[case("500ms", true)]
#[case("-5m", true)]
#[case("'5m'", true)]
#[case("5", false)]
#[case("'5'", false)]
#[case("0", false)]
#[case("5 minutes", false)]
#[case("yes", false)]
#[case("[5m]", false)]
fn cfg_16_resync_periods(#[case] text: &str, #[case] good: bool) {
    let config = config(&[("minResyncPeriod", text)]);
    assert_eq!(config.min_resync_period.is_some(), good);
    assert_eq!(config.findings.is_empty(), good);
}

#[test]
fn cfg_17_18_names_and_owners() {
    let config = config(&[("useNodeNameOnly", "on"), ("setPVOwnerRef", "Yes")]);
    assert!(config.use_node_name_only && config.set_pv_owner_ref);
    assert_eq!(config.findings, []);
}

#[test]
fn cfg_20_taint_keys_have_the_syntax_of_kubernetes() {
    let key = "sig-storage-local-static-provisioner/agent-not-ready";
    let good = config(&[("provisionerNotReadyNodeTaintKey", key)]);
    assert_eq!(good.not_ready_taint_key.as_deref(), Some(key));
    assert_eq!((warnings(&good), good.startup_taint()), (vec![], None));
    assert_eq!(
        config(&[("provisionerNotReadyNodeTaintKey", "\"\"")]),
        Config::default()
    );
    let bad = config(&[("provisionerNotReadyNodeTaintKey", "a/b/c")]);
    assert_eq!(errors(&bad), ["provisionerNotReadyNodeTaintKey"]);
}

#[rstest]
#[case("true", "a/b", Some("a/b"), false)]
#[case("false", "a/b", None, false)]
#[case("false", "", None, false)]
#[case("true", "", None, true)]
fn cfg_19_20_a_taint_is_removed_only_by_its_key(
    #[case] switch: &str,
    #[case] key: &str,
    #[case] startup_taint: Option<&str>,
    #[case] is_said: bool,
) {
    let config = config(&[
        ("removeNodeNotReadyTaint", switch),
        ("provisionerNotReadyNodeTaintKey", key),
    ]);
    assert_eq!(config.startup_taint(), startup_taint);
    assert_eq!(errors(&config), [""; 0]);
    let said: &[&str] = if is_said {
        &["removeNodeNotReadyTaint"]
    } else {
        &[]
    };
    assert_eq!(warnings(&config), said);
}
