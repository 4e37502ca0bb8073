//! The files below `config/`: the reference, the smallest one, and what upstream's chart makes of its
//! documented scenarios.

use std::path::{Path, PathBuf};

use super::super::scalar::Scalar;
use super::super::{keys, yaml};
use super::*;

fn dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("config")
}

/// The keys and values of a ConfigMap object.
fn data(file: &str) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(dir().join(file)).unwrap();
    let yaml::Value::Map(object) = yaml::parse(&text).unwrap().unwrap().value else {
        panic!()
    };
    let data = object
        .entries
        .into_iter()
        .find(|entry| entry.key == "data")
        .unwrap();
    let yaml::Value::Map(data) = data.value.value else {
        panic!("data is a map")
    };
    let entries = data
        .entries
        .into_iter()
        .map(|entry| match entry.value.value {
            // The API server takes nothing but text.
            yaml::Value::Scalar(Scalar::Text(text)) => (entry.key, text),
            other => panic!("{}: {other:?}", entry.key),
        });
    entries.collect()
}

#[test]
fn the_reference_has_every_key_and_nothing_wrong() {
    let values = data("reference.yaml");
    assert_eq!(values.len(), keys::TOP.len());
    for key in keys::TOP {
        assert!(values.contains_key(key), "{key} is not in the reference");
    }
    for key in keys::CLASS {
        assert!(
            values["storageClassMap"].contains(&format!("  {key}:")),
            "{key}"
        );
    }
    let config = parse(&values);
    assert_eq!(config.findings, []);
    assert_eq!(
        names(&config),
        ["fast-blocks", "fast-disks", "shared-disks"]
    );
    assert_eq!(config.labels["shelf"], "012");
}

#[test]
fn the_smallest_example_is_at_its_defaults() {
    let config = parse(&data("fast-disks.yaml"));
    assert_eq!(config.findings, []);
    let dir = PathBuf::from("/mnt/fast-disks");
    let class = Class::new(ClassName::new("fast-disks"), dir.clone(), dir);
    assert_eq!(config.classes.into_values().collect::<Vec<_>>(), [class]);
}

/// A class as upstream's chart writes it: filesystems of type ext4, shredded twice.
fn charts(name: &str, dir: &str) -> Class {
    Class {
        fs_type: Some("ext4".to_owned()),
        cleaner: Cleaner::Overwrite { passes: 2 },
        ..Class::new(ClassName::new(name), dir.into(), dir.into())
    }
}

fn blocks(class: Class) -> Class {
    Class {
        volume_mode: VolumeMode::Block,
        ..class
    }
}

fn pattern(text: &str) -> NamePattern {
    NamePattern::parse(text).unwrap()
}

/// What each scenario has to give, and the keys that have a warning.
fn scenarios() -> Vec<(&'static str, Vec<Class>, &'static [&'static str])> {
    let fast = || charts("fast-disks", "/mnt/fast-disks");
    let slow = Class {
        cleaner: Cleaner::Zero,
        ..charts("slow-disks", "/mnt/slow-disks")
    };
    let nvme = Class {
        cleaner: Cleaner::Zero,
        ..charts("local-nvme", "/mnt/disks/nvme")
    };
    let raw = Class {
        mount_dir: "/mnt/raw".into(),
        pattern: pattern("google-local-ssds-*-block*,google-local-nvme-ssd-*"),
        ..charts("local-raw", "/dev/disk/by-id")
    };
    let eks = Class {
        cleaner: Cleaner::Zero,
        pattern: pattern("nvme-Amazon_EC2_NVMe_Instance_Storage_*"),
        ..charts("nvme-ssd", "/pv-disks")
    };
    vec![
        ("baremetal", vec![fast()], &[]),
        (
            "default-storage-class",
            vec![charts("local-default", "/mnt/fast-disks")],
            &[],
        ),
        ("eks-nvme", vec![eks], &[]),
        (
            "gce",
            vec![blocks(nvme), charts("local-scsi", "/mnt/disks/scsi")],
            &[],
        ),
        (
            "gke",
            vec![blocks(raw), charts("local-scsi", "/mnt/disks")],
            &[],
        ),
        ("jobs", vec![blocks(fast())], &["useJobForCleaning"]),
        ("node-selector", vec![fast()], &[]),
        ("priorities", vec![fast(), slow], &[]),
        ("resync", vec![fast()], &[]),
        (
            "tolerations",
            vec![fast()],
            &["jobTolerations", "useJobForCleaning"],
        ),
    ]
}

#[test]
fn what_upstreams_chart_makes_is_read_as_upstream_reads_it() {
    for (name, classes, warned) in scenarios() {
        let config = parse(&data(&format!("examples/{name}.yaml")));
        assert_eq!(errors(&config), [""; 0], "{name}");
        assert_eq!(warnings(&config), warned, "{name}");
        assert_eq!(
            config.classes.into_values().collect::<Vec<_>>(),
            classes,
            "{name}"
        );
    }
}

#[test]
fn the_charts_other_keys_are_in_force() {
    let of = |name: &str| parse(&data(&format!("examples/{name}.yaml")));
    let zones = [
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
    ];
    assert_eq!(of("node-selector").node_labels, zones);
    assert_eq!(of("priorities").labels["tier"], "1");
    assert!(of("priorities").set_pv_owner_ref);
    assert!(of("resync").use_node_name_only);
    assert_eq!(of("resync").min_resync_period, "10m".parse().ok());
    assert_eq!(of("tolerations").job_tolerations.len(), 2);
    let taint = "sig-storage-local-static-provisioner/agent-not-ready";
    assert_eq!(of("eks-nvme").startup_taint(), Some(taint));
}

#[test]
fn every_example_has_its_row() {
    let mut files: Vec<_> = std::fs::read_dir(dir().join("examples"))
        .unwrap()
        .map(|entry| {
            entry
                .unwrap()
                .path()
                .file_stem()
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    files.sort();
    assert_eq!(
        files,
        scenarios()
            .into_iter()
            .map(|(name, ..)| name)
            .collect::<Vec<_>>()
    );
}
