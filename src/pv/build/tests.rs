//! Manifests by the rows of the contract.

use super::super::{Pv, WirePv};
use super::*;
use crate::config::parse;
use crate::volume::{DevNum, FilesystemIdentity};

fn node() -> NodeFacts {
    NodeFacts {
        name: "n".into(),
        uid: "nu".into(),
        hostname: Some("h".into()),
        labels: BTreeMap::from([("zone".into(), "z1".into()), ("rack".into(), "r1".into())]),
        taints: None,
    }
}

/// The manifest of an entry `vol1` of a class `fast` with these further settings, under these keys.
fn made(settings: &str, keys: &[(&str, &str)]) -> PersistentVolume {
    let class = format!("fast:\n  hostDir: /mnt/f\n  mountDir: /mnt/f\n{settings}");
    let mut values: BTreeMap<String, String> = keys
        .iter()
        .map(|(key, text)| ((*key).to_owned(), (*text).to_owned()))
        .collect();
    values.insert("storageClassMap".into(), class);
    let config = parse(&values);
    let facts = ClassFacts {
        policy: Policy::Delete,
        mount_options: Vec::new(),
    };
    let volume = Volume {
        entry: EntryName::parse("vol1".as_ref()).unwrap(),
        medium: Medium::Mount,
        capacity_bytes: 1 << 30,
        identity: Identity::Filesystem(FilesystemIdentity {
            fs_type: "ext4".into(),
            uuid: Some("u".into()),
            root: "/".into(),
            device: DevNum { major: 7, minor: 1 },
            boot: "b".into(),
        }),
        contents: None,
        mount_flags: Vec::new(),
    };
    let class = &config.classes[&ClassName::new("fast")];
    let offer = Offer::new(&node(), class, &facts, &volume);
    manifest(&offer, &node(), &config).unwrap()
}

/// What the API server makes of it, as it is read back.
fn read_back(mut pv: PersistentVolume) -> Pv {
    pv.metadata.uid = Some("pu".into());
    pv.metadata.resource_version = Some("1".into());
    let wire: WirePv = serde_json::from_value(serde_json::to_value(pv).unwrap()).unwrap();
    wire.try_into().unwrap()
}

const REGION: &str =
    "  selector: [{matchExpressions: [{key: region, operator: In, values: [north, 012]}]}]";

fn terms(pv: &PersistentVolume) -> Value {
    let affinity = pv.spec.as_ref().unwrap().node_affinity.as_ref().unwrap();
    serde_json::to_value(&affinity.required.as_ref().unwrap().node_selector_terms).unwrap()
}

fn own_term() -> Value {
    json!({"matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": ["h"]}]})
}

#[test]
fn pv_03_04_the_provisioners_name_is_upstreams() {
    for (keys, name) in [
        (&[][..], "local-volume-provisioner-n-nu"),
        (
            &[("useNodeNameOnly", "yes")][..],
            "local-volume-provisioner-n",
        ),
    ] {
        let annotations = made("", keys).metadata.annotations.unwrap();
        assert_eq!(annotations[ANNOTATION_PROVISIONED_BY], name);
    }
}

#[test]
fn pv_05_labels_win_over_the_nodes_and_missing_ones_are_left_out() {
    let keys = [
        ("nodeLabelsForPV", "[zone, rack, nope]"),
        ("labelsForPV", "rack: mine\nb: 1"),
    ];
    let mut labels = made("", &keys).metadata.labels.unwrap();
    assert_eq!(labels.remove(LABEL_NODE), Some(node_label("n")));
    let want = [("b", "1"), ("rack", "mine"), ("zone", "z1")];
    assert_eq!(
        labels
            .iter()
            .map(|(k, v)| (k.as_str(), v.as_str()))
            .collect::<Vec<_>>(),
        want
    );
}

#[test]
fn pv_07_08_09_path_type_and_access_mode_are_the_classs() {
    let spec = made("  fsType: xfs\n  accessMode: ReadWriteOncePod", &[])
        .spec
        .unwrap();
    let local = spec.local.unwrap();
    assert_eq!(
        (local.path.as_str(), local.fs_type.as_deref()),
        ("/mnt/f/vol1", Some("xfs"))
    );
    assert_eq!(spec.access_modes.unwrap(), ["ReadWriteOncePod"]);
    assert_eq!(made("", &[]).spec.unwrap().local.unwrap().fs_type, None);
}

#[test]
fn pv_10_the_node_owns_it_only_when_asked() {
    assert_eq!(made("", &[]).metadata.owner_references, None);
    let owners = made("", &[("setPVOwnerRef", "true")])
        .metadata
        .owner_references
        .unwrap();
    let owner = &owners[0];
    assert_eq!(
        (owner.kind.as_str(), owner.name.as_str(), owner.uid.as_str()),
        ("Node", "n", "nu")
    );
    assert_eq!((owner.controller, owner.block_owner_deletion), (None, None));
}

#[test]
fn pv_11_the_terms_of_the_selector_are_alternatives_to_the_host() {
    assert_eq!(terms(&made("", &[])), json!([own_term()]));
    let pv = made(REGION, &[]);
    let region = json!({"matchExpressions": [
        {"key": "region", "operator": "In", "values": ["north", "10"]}]});
    assert_eq!(terms(&pv), json!([own_term(), region]));
    assert!(read_back(pv).is_own(&node()));

    // Another host that reaches the same storage does not make it another node's volume.
    let other = "  selector: [{matchExpressions: [\
        {key: kubernetes.io/hostname, operator: In, values: [i]}]}, \
        {matchFields: [{key: metadata.name, operator: In, values: [m]}]}]";
    let pv = made(other, &[]);
    assert_eq!(terms(&pv).as_array().unwrap().len(), 3);
    assert_eq!(terms(&pv)[2]["matchFields"][0]["values"], json!(["m"]));
    assert!(read_back(pv).is_own(&node()));
}

#[test]
fn pv_12_alpha_mode_has_an_annotation_instead() {
    let pv = made(REGION, &[("useAlphaAPI", "true")]);
    assert_eq!(pv.spec.as_ref().unwrap().node_affinity, None);
    let annotation = &pv.metadata.annotations.as_ref().unwrap()[ANNOTATION_AFFINITY];
    let value: Value = serde_json::from_str(annotation).unwrap();
    let terms = &value["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
    assert_eq!(terms[0], own_term());
    assert_eq!(terms.as_array().unwrap().len(), 2);
    assert!(read_back(pv).is_own(&node()));
}

#[test]
fn pv_13_to_17_mode_policy_options_class_and_finalizer() {
    let config = parse(&BTreeMap::from([(
        "storageClassMap".to_owned(),
        "fast: {hostDir: /mnt/f, mountDir: /mnt/f, volumeMode: Block}".to_owned(),
    )]));
    let class = &config.classes[&ClassName::new("fast")];
    let volume = Volume {
        entry: EntryName::parse("vol1".as_ref()).unwrap(),
        medium: Medium::Device,
        capacity_bytes: 1 << 30,
        identity: Identity::Filesystem(FilesystemIdentity {
            fs_type: "ext4".into(),
            uuid: Some("u".into()),
            root: "/".into(),
            device: DevNum { major: 7, minor: 1 },
            boot: "b".into(),
        }),
        contents: None,
        mount_flags: vec!["noexec".into(), "nosuid".into()],
    };
    // PV-14: a StorageClass without a policy means Delete.
    for (text, want) in [(None, "Delete"), (Some("Retain"), "Retain")] {
        let facts = ClassFacts {
            policy: Policy::parse(text),
            mount_options: vec!["noatime".into(), "nosuid".into()],
        };
        let offer = Offer::new(&node(), class, &facts, &volume);
        let pv = manifest(&offer, &node(), &config).unwrap();
        let spec = pv.spec.unwrap();
        assert_eq!(spec.volume_mode.as_deref(), Some("Block"));
        assert_eq!(spec.persistent_volume_reclaim_policy.as_deref(), Some(want));
        // PV-15, and the mount's own flags that the kubelet's bind would drop, each once.
        assert_eq!(spec.mount_options.unwrap(), ["noatime", "nosuid", "noexec"]);
        assert_eq!(spec.storage_class_name.as_deref(), Some("fast"));
        // PV-17: unlike upstream's, ours is protected.
        assert_eq!(pv.metadata.finalizers.unwrap(), [FINALIZER]);
    }
}
