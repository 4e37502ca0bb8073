//! Whole ConfigMaps in, classes and findings out.

use super::*;

fn config(keys: &[(&str, &str)]) -> Config {
    parse(
        &keys
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect(),
    )
}

fn class(settings: &str) -> Config {
    config(&[(
        "storageClassMap",
        &format!("fast:\n  hostDir: /mnt/f\n  mountDir: /mnt/f\n{settings}"),
    )])
}

fn errors(config: &Config) -> Vec<&str> {
    let errors = config
        .findings
        .iter()
        .filter(|f| f.severity == Severity::Error);
    errors.map(|f| f.key.as_str()).collect()
}

#[test]
fn the_smallest_class_has_upstreams_defaults() {
    let config = class("");
    let fast = &config.classes[&ClassName::new("fast")];
    assert_eq!(config.findings, []);
    assert_eq!(fast.volume_mode, VolumeMode::Filesystem);
    assert_eq!(fast.access_mode, "ReadWriteOnce");
    assert_eq!(fast.fs_type, None);
    assert_eq!(fast.cleaner, Cleaner::Zero);
    assert!(fast.pattern.matches("anything"));
}

#[test]
fn every_class_key_is_read() {
    let config = class(
        "  volumeMode: Block\n  accessMode: ReadWriteOncePod\n  fsType: xfs\n  \
         namePattern: \"nvme*\"\n  blockCleanerCommand: [/scripts/shred.sh, \"2\"]\n",
    );
    let fast = &config.classes[&ClassName::new("fast")];
    assert_eq!(config.findings, []);
    assert_eq!(fast.volume_mode, VolumeMode::Block);
    assert_eq!(fast.access_mode, "ReadWriteOncePod");
    assert_eq!(fast.fs_type.as_deref(), Some("xfs"));
    assert_eq!(fast.cleaner, Cleaner::Overwrite { passes: 2 });
    assert!(!fast.pattern.matches("sda"));
}

#[test]
fn cfg_04_keys_are_case_insensitive() {
    let config = config(&[
        ("storageClassMap", "fast: {HOSTDIR: /a, mountdir: /b}"),
        ("USENODENAMEONLY", "yes"),
    ]);
    assert_eq!(config.classes.len(), 1);
    assert!(config.use_node_name_only);
}

#[test]
fn a_wrong_class_does_not_take_the_others_down() {
    let config = config(&[(
        "storageClassMap",
        "good: {hostDir: /a, mountDir: /a}\nbad: {hostDir: /b}\nworse: text\n",
    )]);
    assert_eq!(
        config
            .classes
            .keys()
            .map(ClassName::as_str)
            .collect::<Vec<_>>(),
        ["good"]
    );
    assert_eq!(
        errors(&config),
        ["storageClassMap.bad", "storageClassMap.worse"]
    );
}

#[test]
fn what_cannot_work_is_an_error_at_load() {
    for (settings, key) in [
        ("  volumeMode: block\n", "volumeMode"),
        ("  accessMode: RWO\n", "accessMode"),
        ("  namePattern: \"[\"\n", "namePattern"),
        ("  blockCleanerCommand: []\n", "blockCleanerCommand"),
        ("  blockCleanerCommand: /x\n", "blockCleanerCommand"),
        ("  hostDir: relative\n", "hostDir"),
        ("  hostDir: /mnt/../etc\n", "hostDir"),
    ] {
        let text = format!("fast:\n  mountDir: /mnt/f\n{settings}");
        let text = if key == "hostDir" {
            text
        } else {
            format!("{text}  hostDir: /mnt/f\n")
        };
        let config = config(&[("storageClassMap", &text)]);
        assert!(config.classes.is_empty(), "{settings}");
        assert!(errors(&config).contains(&format!("storageClassMap.fast.{key}").as_str()));
    }
}

#[test]
fn class_names_must_fit_a_storage_class() {
    let config = config(&[("storageClassMap", "Fast_Disks: {hostDir: /a, mountDir: /a}")]);
    assert_eq!(errors(&config), ["storageClassMap.Fast_Disks"]);
}

#[test]
fn overlapping_directories_are_refused() {
    for (a, b) in [("/a", "/a"), ("/a", "/a/b"), ("/a/b", "/a")] {
        let text =
            format!("x: {{hostDir: {a}, mountDir: /m/x}}\ny: {{hostDir: {b}, mountDir: /m/y}}");
        assert_eq!(
            config(&[("storageClassMap", &text)]).classes.len(),
            1,
            "{a} {b}"
        );
    }
    let text = "x: {hostDir: /a, mountDir: /a}\ny: {hostDir: /ab, mountDir: /ab}";
    assert_eq!(config(&[("storageClassMap", text)]).classes.len(), 2);
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
}

#[test]
fn only_direct_children_of_the_directory_are_entries() {
    let config = class("");
    let fast = &config.classes[&ClassName::new("fast")];
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

#[test]
fn not_yaml_unknown_and_unsupported_keys_are_found() {
    let config = config(&[
        ("labelsForPV", "a: [b\n"),
        ("useJobForCleaning", "yes"),
        ("useAlphaAPI", "false"),
        ("typo", "1"),
    ]);
    let found: Vec<_> = config
        .findings
        .iter()
        .map(|f| (f.severity, f.key.as_str()))
        .collect();
    let (error, warning) = (Severity::Error, Severity::Warning);
    assert_eq!(
        found,
        [
            (error, "labelsForPV"),
            (warning, "typo"),
            (warning, "useJobForCleaning")
        ]
    );
}

#[test]
fn labels_take_scalars() {
    let config = config(&[
        ("labelsForPV", "a: 1\nb: true\nc: text"),
        ("nodeLabelsForPV", "[x, z]"),
    ]);
    assert_eq!(config.labels["a"], "1");
    assert_eq!(config.labels["b"], "true");
    assert_eq!(config.node_labels, ["x", "z"]);
}
