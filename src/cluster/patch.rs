//! The bodies of the patches that we send, as pure functions.
//!
//! Those of PersistentVolumes are JSON merge patches that carry the UID and the resource version of the
//! object that the decision was made for: the API server answers a conflict when either has changed. A
//! Node changes all the time, so that of its taints names what must be as it was.

use serde_json::{Map, Value, json};

use crate::pv::{
    ANNOTATION_CLEANING, ANNOTATION_IDENTITY, Cleaning, FINALIZER, LABEL_NODE, NodeFacts, Pv,
};
use crate::volume::Identity;

/// The cleaning state, and without `keep_finalizer` the end of our protection.
pub(super) fn mark(pv: &Pv, cleaning: &Cleaning, keep_finalizer: bool) -> Value {
    let mut metadata = precondition(pv);
    metadata.insert(
        "annotations".into(),
        json!({ ANNOTATION_CLEANING: text(cleaning) }),
    );
    if !keep_finalizer {
        metadata.insert("finalizers".into(), without_ours(pv));
    }
    json!({ "metadata": metadata })
}

/// The label, the record and our protection. The API server forbids new finalizers on an object
/// that is being deleted, so that one gets none.
pub(super) fn adopt(pv: &Pv, identity: &Identity, node_label: &str) -> Value {
    let mut metadata = precondition(pv);
    metadata.insert("labels".into(), json!({ LABEL_NODE: node_label }));
    metadata.insert(
        "annotations".into(),
        json!({ ANNOTATION_IDENTITY: text(identity) }),
    );
    if !pv.deleting && !pv.is_protected() {
        let mut finalizers = pv.finalizers.clone();
        finalizers.push(FINALIZER.to_owned());
        metadata.insert("finalizers".into(), json!(finalizers));
    }
    json!({ "metadata": metadata })
}

/// The label alone, which brings the volume into sight of its node's daemon.
pub(super) fn label(pv: &Pv, node_label: &str) -> Value {
    let mut metadata = precondition(pv);
    metadata.insert("labels".into(), json!({ LABEL_NODE: node_label }));
    json!({ "metadata": metadata })
}

/// The end of our protection, nothing else.
pub(super) fn let_go(pv: &Pv) -> Value {
    let mut metadata = precondition(pv);
    metadata.insert("finalizers".into(), without_ours(pv));
    json!({ "metadata": metadata })
}

/// The end of every taint with `key`, as a JSON patch that tests what it removes. From the last to the first:
/// none moves another that is still to be removed.
pub(super) fn untaint(node: &NodeFacts, key: &str) -> Value {
    let mut patch = vec![json!({"op": "test", "path": "/metadata/uid", "value": node.uid})];
    let taints = node.taints.as_deref().unwrap_or_default();
    let of_key = taints.iter().enumerate().filter(|(_, t)| t["key"] == key);
    for (place, taint) in of_key.rev() {
        let path = format!("/spec/taints/{place}");
        patch.push(json!({"op": "test", "path": path, "value": taint}));
        patch.push(json!({"op": "remove", "path": path}));
    }
    Value::Array(patch)
}

fn precondition(pv: &Pv) -> Map<String, Value> {
    Map::from_iter([
        ("uid".to_owned(), json!(pv.uid)),
        ("resourceVersion".to_owned(), json!(pv.resource_version)),
    ])
}

/// A merge patch replaces a list as a whole; the resource version guards the others' entries.
fn without_ours(pv: &Pv) -> Value {
    let others = pv.finalizers.iter().filter(|f| *f != FINALIZER);
    json!(others.collect::<Vec<_>>())
}

fn text(record: &impl serde::Serialize) -> String {
    serde_json::to_string(record).expect("records are plain structs with string keys")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pv::{CleaningState, WirePv};
    use crate::volume::{DevNum, FilesystemIdentity};

    fn pv(finalizers: &[&str], deleting: bool) -> Pv {
        let mut metadata = json!({
            "name": "pv", "uid": "u", "resourceVersion": "7", "finalizers": finalizers,
        });
        if deleting {
            metadata["deletionTimestamp"] = json!("2026-12-01T00:00:00Z");
        }
        let wire: WirePv = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
        wire.try_into().unwrap()
    }

    fn cleaning() -> Cleaning {
        Cleaning {
            pv_uid: "u".into(),
            claim_uid: Some("c".into()),
            state: CleaningState::Wiped,
            method: String::new(),
            done_bytes: 0,
        }
    }

    fn identity() -> Identity {
        Identity::Filesystem(FilesystemIdentity {
            fs_type: "ext4".into(),
            uuid: None,
            root: "/".into(),
            device: DevNum { major: 7, minor: 0 },
            boot: "b".into(),
        })
    }

    #[test]
    fn a_mark_touches_the_annotation_and_nothing_else() {
        let pv = pv(&["kubernetes.io/pv-protection", FINALIZER], false);
        assert_eq!(
            mark(&pv, &cleaning(), true),
            json!({"metadata": {"uid": "u", "resourceVersion": "7", "annotations": {
                "provisor.dev/cleaning": r#"{"pvUid":"u","claimUid":"c","state":"wiped"}"#}}})
        );
    }

    #[test]
    fn the_last_mark_drops_our_finalizer_and_keeps_the_others() {
        let pv = pv(&["kubernetes.io/pv-protection", FINALIZER, "x/y"], true);
        let body = mark(&pv, &cleaning(), false);
        assert_eq!(
            body["metadata"]["finalizers"],
            json!(["kubernetes.io/pv-protection", "x/y"])
        );
        assert_eq!(
            let_go(&pv),
            json!({"metadata": {"uid": "u", "resourceVersion": "7",
                "finalizers": ["kubernetes.io/pv-protection", "x/y"]}})
        );
    }

    #[test]
    fn adoption_adds_label_record_and_finalizer() {
        let body = adopt(
            &pv(&["kubernetes.io/pv-protection"], false),
            &identity(),
            "n",
        );
        let metadata = &body["metadata"];
        assert_eq!(metadata["labels"], json!({"provisor.dev/node": "n"}));
        assert_eq!(
            metadata["finalizers"],
            json!(["kubernetes.io/pv-protection", FINALIZER])
        );
        assert_eq!(metadata["resourceVersion"], "7");
        let record = metadata["annotations"][ANNOTATION_IDENTITY]
            .as_str()
            .unwrap();
        assert_eq!(
            serde_json::from_str::<Identity>(record).unwrap(),
            identity()
        );
    }

    #[test]
    fn no_finalizer_is_added_twice_or_to_an_object_that_goes() {
        for pv in [pv(&[FINALIZER], false), pv(&["x/y"], true)] {
            let body = adopt(&pv, &identity(), "n");
            assert_eq!(body["metadata"].get("finalizers"), None, "{pv:?}");
        }
    }

    #[test]
    fn of_the_taints_only_those_with_the_key_go() {
        let taint = |key: &str, effect: &str| json!({"key": key, "effect": effect});
        let taints = [
            taint("a", "NoSchedule"),
            taint("b", "NoSchedule"),
            taint("a", "NoExecute"),
        ];
        let node = NodeFacts {
            name: "n".into(),
            uid: "u".into(),
            hostname: None,
            labels: std::collections::BTreeMap::new(),
            taints: Some(taints.to_vec()),
        };
        let this_node = json!({"op": "test", "path": "/metadata/uid", "value": "u"});
        assert_eq!(
            untaint(&node, "a"),
            json!([
                this_node,
                {"op": "test", "path": "/spec/taints/2", "value": taints[2]},
                {"op": "remove", "path": "/spec/taints/2"},
                {"op": "test", "path": "/spec/taints/0", "value": taints[0]},
                {"op": "remove", "path": "/spec/taints/0"},
            ])
        );
        assert_eq!(untaint(&node, "c"), json!([this_node]));
    }
}
