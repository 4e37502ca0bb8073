//! Scenarios of what the server refuses, and in which words.

use kube::Client;
use serde_json::{Value, json};

use super::scenario::{
    CLASSES, MERGE, PVCS, PVS, clear, delete, get, offer, patch, post, put, refused, send, unique,
    volume,
};

/// A change that makes a volume wrong, the field that is named for it, and the cause.
type Wrong = (fn(&mut Value), &'static str, &'static str);

pub(super) async fn bad_volumes_are_refused(client: Client) {
    const UNSUPPORTED: &str = "FieldValueNotSupported";
    const REQUIRED: &str = "FieldValueRequired";
    const INVALID: &str = "FieldValueInvalid";
    let cases: [Wrong; 16] = [
        (
            |pv| pv["spec"]["capacity"] = json!({}),
            "spec.capacity",
            REQUIRED,
        ),
        (
            |pv| pv["spec"]["capacity"] = json!({"cpu": "1"}),
            "spec.capacity",
            UNSUPPORTED,
        ),
        (
            |pv| pv["spec"]["capacity"]["storage"] = json!("0"),
            "spec.capacity[storage]",
            INVALID,
        ),
        (
            |pv| pv["spec"]["accessModes"] = json!([]),
            "spec.accessModes",
            REQUIRED,
        ),
        (
            |pv| pv["spec"]["accessModes"] = json!(["All"]),
            "spec.accessModes",
            UNSUPPORTED,
        ),
        (
            |pv| pv["spec"]["nodeAffinity"] = json!(null),
            "spec.nodeAffinity",
            REQUIRED,
        ),
        (
            |pv| pv["spec"]["local"]["path"] = json!("/a/../b"),
            "spec.local.path",
            INVALID,
        ),
        (
            |pv| pv["spec"]["local"]["path"] = json!(""),
            "spec.local.path",
            REQUIRED,
        ),
        (|pv| pv["spec"]["local"] = json!(null), "spec", REQUIRED),
        (
            |pv| pv["spec"]["hostPath"] = json!({"path": "/x"}),
            "spec.local",
            "FieldValueForbidden",
        ),
        (
            |pv| pv["spec"]["volumeMode"] = json!("Tape"),
            "spec.volumeMode",
            UNSUPPORTED,
        ),
        (
            |pv| pv["spec"]["persistentVolumeReclaimPolicy"] = json!("Keep"),
            "spec.persistentVolumeReclaimPolicy",
            UNSUPPORTED,
        ),
        (
            |pv| pv["spec"]["storageClassName"] = json!("A_"),
            "spec.storageClassName",
            INVALID,
        ),
        (
            |pv| pv["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"] = json!([]),
            "spec.nodeAffinity.required.nodeSelectorTerms",
            REQUIRED,
        ),
        (
            |pv| {
                pv["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"] =
                    json!([{"matchExpressions": [{"key": "k", "operator": "In"}]}]);
            },
            "spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0].values",
            REQUIRED,
        ),
        (
            |pv| pv["metadata"]["name"] = json!(null),
            "metadata.name",
            REQUIRED,
        ),
    ];
    for (i, (spoil, field, cause)) in cases.into_iter().enumerate() {
        let (_, mut pv) = volume("wrong");
        spoil(&mut pv);
        let status = refused(post(&client, PVS, &pv).await, 422, "Invalid", field);
        let causes = status
            .details
            .expect("an Invalid status has details")
            .causes;
        let is_named = causes
            .iter()
            .any(|one| one.field == field && one.reason == cause);
        assert!(
            is_named,
            "case {i}: {cause} of {field} is not in {causes:?}"
        );
    }
}

pub(super) async fn bad_metadata_is_refused(client: Client) {
    let long = "a".repeat(64);
    let cases = [
        (
            "name",
            json!("Upper_case"),
            "metadata.name",
            "RFC 1123 subdomain",
        ),
        ("name", json!("a..b"), "metadata.name", "RFC 1123 subdomain"),
        ("name", json!("a".repeat(254)), "metadata.name", "253"),
        (
            "labels",
            json!({"a b": "c"}),
            "metadata.labels",
            "name part",
        ),
        (
            "labels",
            json!({"a": "c d"}),
            "metadata.labels",
            "a valid label",
        ),
        ("labels", json!({"a": long}), "metadata.labels", "63"),
        (
            "annotations",
            json!({"a b": "c"}),
            "metadata.annotations",
            "name part",
        ),
        (
            "annotations",
            json!({"a": "x".repeat(262_144)}),
            "metadata.annotations",
            "262144",
        ),
        (
            "finalizers",
            json!(["plain"]),
            "metadata.finalizers",
            "fully qualified",
        ),
    ];
    for (field, value, named, why) in cases {
        let (_, mut pv) = volume("wrong");
        pv["metadata"][field] = value;
        let status = refused(post(&client, PVS, &pv).await, 422, "Invalid", named);
        assert!(
            status.message.contains(why),
            "{why:?} is not in {:?}",
            status.message
        );
    }
    let claim = json!({"metadata": {"name": unique("claim")}, "spec": {}});
    refused(
        post(&client, PVCS, &claim).await,
        422,
        "Invalid",
        "spec.resources[storage]",
    );
    let class = json!({"metadata": {"name": unique("class")}});
    refused(
        post(&client, CLASSES, &class).await,
        422,
        "Invalid",
        "provisioner",
    );
}

pub(super) async fn what_is_immutable_stays(client: Client) {
    let (name, pv) = volume("immutable");
    let uri = format!("{PVS}/{name}");
    offer(&client, &pv).await;
    let mut affinity = pv["spec"]["nodeAffinity"].clone();
    affinity["required"]["nodeSelectorTerms"][0]["matchExpressions"][0]["values"] = json!(["x"]);
    let cases = [
        (
            json!({"spec": {"local": {"path": "/z"}}}),
            "spec.persistentvolumesource",
        ),
        (json!({"spec": {"volumeMode": "Block"}}), "volumeMode"),
        (json!({"spec": {"nodeAffinity": affinity}}), "nodeAffinity"),
        (
            json!({"metadata": {"deletionTimestamp": "2026-01-02T03:04:05Z"}}),
            "deletionTimestamp",
        ),
    ];
    for (body, field) in cases {
        refused(
            patch(&client, &uri, MERGE, &body).await,
            422,
            "Invalid",
            field,
        );
    }
    // These may change.
    let body = json!({"spec": {
        "capacity": {"storage": "2Gi"}, "persistentVolumeReclaimPolicy": "Retain",
    }});
    let patched = patch(&client, &uri, MERGE, &body).await.unwrap();
    assert_eq!(patched["spec"]["persistentVolumeReclaimPolicy"], "Retain");
    clear(&client, &uri).await;

    let class = unique("class");
    let uri = format!("{CLASSES}/{class}");
    let body = json!({"metadata": {"name": class}, "provisioner": "example.com/none"});
    post(&client, CLASSES, &body).await.unwrap();
    let body = json!({"reclaimPolicy": "Retain"});
    refused(
        patch(&client, &uri, MERGE, &body).await,
        422,
        "Invalid",
        "reclaimPolicy",
    );
    clear(&client, &uri).await;
}

pub(super) async fn bad_bodies_are_refused(client: Client) {
    let (_, pv) = volume("body");
    let with = |field: &str, value: Value| {
        let mut pv = pv.clone();
        pv[field] = value;
        pv
    };
    let wrong = with("kind", json!("Node"));
    refused(
        post(&client, PVS, &wrong).await,
        400,
        "BadRequest",
        "Node in version \"v1\"",
    );
    let wrong = with("apiVersion", json!("v2"));
    refused(
        post(&client, PVS, &wrong).await,
        400,
        "BadRequest",
        "version \"v2\"",
    );
    let mut wrong = pv.clone();
    wrong["spec"]["capacity"]["storage"] = json!("x");
    refused(
        post(&client, PVS, &wrong).await,
        400,
        "BadRequest",
        "quantities must match",
    );
    let mut wrong = pv.clone();
    wrong["spec"]["accessModes"] = json!("ReadWriteOnce");
    refused(
        post(&client, PVS, &wrong).await,
        400,
        "BadRequest",
        "cannot be handled as a",
    );
    let mut wrong = pv.clone();
    wrong["spec"]["unknown"] = json!(1);
    let strict = format!("{PVS}?fieldValidation=Strict");
    let word = "unknown field \"spec.unknown\"";
    refused(
        post(&client, &strict, &wrong).await,
        400,
        "BadRequest",
        word,
    );
    let answer = post(&client, &format!("{PVS}?dryRun=All"), &wrong)
        .await
        .unwrap();
    assert_eq!(answer.pointer("/spec/unknown"), None);
    let json = [("content-type", "application/json")];
    refused(
        send(&client, "POST", PVS, &json, b"{x").await,
        400,
        "BadRequest",
        "json parse",
    );
    let mut wrong = pv.clone();
    wrong["metadata"]["resourceVersion"] = json!("12");
    refused(
        post(&client, PVS, &wrong).await,
        500,
        "",
        "should not be set",
    );
}

pub(super) async fn bad_paths_are_refused(client: Client) {
    let (name, pv) = volume("path");
    let missing = format!("{PVS}/{name}");
    let status = refused(get(&client, &missing).await, 404, "NotFound", &name);
    assert_eq!(status.details.unwrap().kind, "persistentvolumes");
    refused(put(&client, &missing, &pv).await, 404, "NotFound", &name);
    refused(
        delete(&client, &missing, &json!({})).await,
        404,
        "NotFound",
        &name,
    );
    refused(
        get(&client, "/api/v1/nothings").await,
        404,
        "NotFound",
        "requested resource",
    );
    // Not a Status but plain text, which kube reports so.
    let unknown_group = get(&client, "/apis/example.com/v1/nothings").await;
    refused(
        unknown_group,
        404,
        "Failed to parse error data",
        "404 page not found",
    );
    refused(
        post(&client, &missing, &pv).await,
        405,
        "MethodNotAllowed",
        "",
    );
    refused(put(&client, PVS, &pv).await, 405, "MethodNotAllowed", "");
    let plain = [("content-type", "text/plain")];
    let answer = send(&client, "PATCH", &missing, &plain, b"{}").await;
    refused(answer, 415, "UnsupportedMediaType", "");
}

pub(super) async fn bad_options_are_refused(client: Client) {
    let (_, pv) = volume("options");
    refused(
        post(&client, &format!("{PVS}?dryRun=x"), &pv).await,
        422,
        "Invalid",
        "dryRun",
    );
    for (query, code, reason, word) in [
        (
            "labelSelector=a%20b",
            400,
            "BadRequest",
            "unable to parse requirement",
        ),
        ("limit=a", 400, "BadRequest", "invalid syntax"),
        (
            "resourceVersion=a",
            400,
            "BadRequest",
            "invalid resource version",
        ),
        (
            "resourceVersionMatch=Exact",
            422,
            "Invalid",
            "unless resourceVersion is provided",
        ),
        (
            "resourceVersion=0&resourceVersionMatch=Exact",
            422,
            "Invalid",
            "is forbidden for",
        ),
        (
            "limit=1&continue=xxx",
            400,
            "BadRequest",
            "continue key is not valid",
        ),
        (
            "sendInitialEvents=true",
            422,
            "Invalid",
            "forbidden for list",
        ),
    ] {
        refused(
            get(&client, &format!("{PVS}?{query}")).await,
            code,
            reason,
            word,
        );
    }
}
