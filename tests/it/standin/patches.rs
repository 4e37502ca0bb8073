//! Scenarios of the patch formats and of the status subresource.

use kube::Client;
use serde_json::{Value, json};

use super::scenario::{
    APPLY, JSON_PATCH, MERGE, NODES, PVS, STRATEGIC, clear, delete, eventually, get, offer, patch,
    post, refused, text, unique, volume,
};

pub(super) async fn a_spec_write_leaves_the_status(client: Client) {
    let (name, pv) = volume("spec");
    let uri = format!("{PVS}/{name}");
    offer(&client, &pv).await;
    let body = json!({"metadata": {"annotations": {"a": "1"}}, "status": {"phase": "Failed"}});
    let patched = patch(&client, &uri, MERGE, &body).await.unwrap();
    assert_eq!(patched["status"]["phase"], "Available");
    assert_eq!(patched["metadata"]["annotations"]["a"], "1");
    clear(&client, &uri).await;
}

pub(super) async fn a_status_write_leaves_the_spec(client: Client) {
    let (name, pv) = volume("status");
    let uri = format!("{PVS}/{name}");
    offer(&client, &pv).await;
    let body = json!({
        "metadata": {"annotations": {"a": "1"}},
        "spec": {"storageClassName": "other"},
        "status": {"message": "hello"},
    });
    let patched = patch(&client, &format!("{uri}/status"), MERGE, &body)
        .await
        .unwrap();
    assert_eq!(patched["spec"]["storageClassName"], name);
    assert_eq!(patched["status"]["message"], "hello");
    // The real server lets metadata through here.
    assert_eq!(patched["metadata"]["annotations"]["a"], "1");
    let read = get(&client, &format!("{uri}/status")).await.unwrap();
    assert_eq!(read["kind"], "PersistentVolume");
    assert_eq!(read["spec"]["storageClassName"], name);
    clear(&client, &uri).await;
}

pub(super) async fn a_merge_patch_checks_the_version(client: Client) {
    let (name, pv) = volume("merge");
    let uri = format!("{PVS}/{name}");
    let old = offer(&client, &pv).await;
    let version = text(&old, "/metadata/resourceVersion");
    let with = |version: &str, value: &str| json!({"metadata": {"resourceVersion": version, "annotations": {"a": value}}});
    let patched = patch(&client, &uri, MERGE, &with(version, "1"))
        .await
        .unwrap();
    assert_eq!(patched["metadata"]["annotations"]["a"], "1");
    let answer = patch(&client, &uri, MERGE, &with(version, "2")).await;
    refused(answer, 409, "Conflict", "has been modified");
    let foreign = json!({"metadata": {"uid": "00000000-0000-4000-8000-000000000000"}});
    refused(
        patch(&client, &uri, MERGE, &foreign).await,
        422,
        "Invalid",
        "metadata.uid",
    );
    let body = json!({"metadata": {"annotations": {"a": null}}});
    let patched = patch(&client, &uri, MERGE, &body).await.unwrap();
    assert_eq!(patched.pointer("/metadata/annotations/a"), None);
    let missing = format!("{PVS}/{name}-x");
    refused(
        patch(&client, &missing, MERGE, &body).await,
        404,
        "NotFound",
        &name,
    );
    clear(&client, &uri).await;
}

pub(super) async fn a_json_patch_is_all_or_nothing(client: Client) {
    let (name, pv) = volume("json");
    let uri = format!("{PVS}/{name}");
    let old = offer(&client, &pv).await;
    let body = json!([
        {"op": "test", "path": "/metadata/uid", "value": old["metadata"]["uid"]},
        {"op": "add", "path": "/metadata/finalizers/-", "value": "example.com/held"},
        {"op": "add", "path": "/metadata/labels/example.com~1mark", "value": "1"},
        {"op": "replace", "path": "/metadata/labels/scenario", "value": "other"},
    ]);
    let patched = patch(&client, &uri, JSON_PATCH, &body).await.unwrap();
    let finalizers = json!(["kubernetes.io/pv-protection", "example.com/held"]);
    assert_eq!(patched["metadata"]["finalizers"], finalizers);
    let labels = json!({"example.com/mark": "1", "scenario": "other"});
    assert_eq!(patched["metadata"]["labels"], labels);
    for unfit in [
        json!({"op": "test", "path": "/metadata/labels/scenario", "value": "no"}),
        json!({"op": "remove", "path": "/metadata/labels/no"}),
        json!({"op": "add", "path": "/metadata/nowhere/no", "value": "1"}),
    ] {
        let body = json!([
            {"op": "add", "path": "/metadata/labels/half", "value": "1"}, unfit,
        ]);
        refused(
            patch(&client, &uri, JSON_PATCH, &body).await,
            422,
            "Invalid",
            "rejected",
        );
    }
    let stale = json!([{"op": "replace", "path": "/metadata/resourceVersion", "value": "1"}]);
    refused(
        patch(&client, &uri, JSON_PATCH, &stale).await,
        409,
        "Conflict",
        "modified",
    );
    let read = get(&client, &uri).await.unwrap();
    assert_eq!(
        read["metadata"]["labels"], labels,
        "half of a patch was applied"
    );
    clear(&client, &uri).await;
}

pub(super) async fn a_strategic_patch_adds_finalizers(client: Client) {
    let (name, pv) = volume("strategic");
    let uri = format!("{PVS}/{name}");
    offer(&client, &pv).await;
    let body = json!({"metadata": {"finalizers": ["example.com/held"]}});
    let patched = patch(&client, &uri, STRATEGIC, &body).await.unwrap();
    let both = json!(["example.com/held", "kubernetes.io/pv-protection"]);
    assert_eq!(patched["metadata"]["finalizers"], both);
    let body = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/held"]}});
    let patched = patch(&client, &uri, STRATEGIC, &body).await.unwrap();
    assert_eq!(
        patched["metadata"]["finalizers"],
        json!(["kubernetes.io/pv-protection"])
    );
    clear(&client, &uri).await;
}

pub(super) async fn an_applied_field_goes_when_it_is_not_applied(client: Client) {
    let (name, mut pv) = volume("applied");
    let uri = format!("{PVS}/{name}");
    let managed = format!("{uri}?fieldManager=scenario");
    refused(
        patch(&client, &uri, APPLY, &pv).await,
        422,
        "Invalid",
        "fieldManager",
    );
    pv["metadata"]["annotations"]["first"] = json!("1");
    let created = patch(&client, &managed, APPLY, &pv).await.unwrap();
    assert_eq!(created["metadata"]["annotations"]["first"], "1");
    let body = json!({"metadata": {"annotations": {"foreign": "1"}}});
    patch(&client, &uri, MERGE, &body).await.unwrap();
    pv["metadata"]["annotations"] = json!({"second": "1"});
    let applied = patch(&client, &managed, APPLY, &pv).await.unwrap();
    assert_eq!(
        applied["metadata"]["annotations"],
        json!({"foreign": "1", "second": "1"})
    );
    clear(&client, &uri).await;
}

/// Nodes, because a list of theirs is what we patch by its places.
pub(super) async fn a_json_patch_removes_what_it_has_tested(client: Client) {
    let name = unique("patched-node");
    let uri = format!("{NODES}/{name}");
    let taint = |key: &str, effect: &str| json!({"key": key, "effect": effect});
    let taints = [
        taint("example.com/a", "NoSchedule"),
        taint("example.com/b", "NoSchedule"),
        taint("example.com/a", "PreferNoSchedule"),
    ];
    let node = json!({"metadata": {"name": name}, "spec": {"taints": taints}});
    let created = post(&client, NODES, &node).await.unwrap();
    // The real server and its controllers put taints of their own among them.
    let place_of = |node: &Value, taint: &Value| {
        let taints = node["spec"]["taints"].as_array().unwrap();
        taints.iter().position(|other| other == taint).unwrap()
    };
    let removal = |first: usize, last: usize| {
        let at = |place: usize| format!("/spec/taints/{place}");
        json!([
            {"op": "test", "path": "/metadata/uid", "value": created["metadata"]["uid"]},
            {"op": "test", "path": at(last), "value": taints[2]},
            {"op": "remove", "path": at(last)},
            {"op": "test", "path": at(first), "value": taints[0]},
            {"op": "remove", "path": at(first)},
        ])
    };
    let last = place_of(&created, &taints[2]);
    for unfit in [place_of(&created, &taints[1]), last + 9] {
        let answer = patch(&client, &uri, JSON_PATCH, &removal(unfit, last)).await;
        refused(answer, 422, "Invalid", "rejected");
    }
    let patched = eventually("the places are as they were read", async || {
        let now = get(&client, &uri).await.unwrap();
        let [first, last] = [0, 2].map(|number| place_of(&now, &taints[number]));
        patch(&client, &uri, JSON_PATCH, &removal(first, last))
            .await
            .ok()
    })
    .await;
    let left = patched["spec"]["taints"].as_array().unwrap();
    assert!(left.contains(&taints[1]), "{left:?}");
    assert!(
        !left.contains(&taints[0]) && !left.contains(&taints[2]),
        "{left:?}"
    );
    delete(&client, &uri, &json!({})).await.unwrap();
}
