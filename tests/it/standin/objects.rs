//! Scenarios of single objects: create, update, delete.

use kube::Client;
use serde_json::json;

use super::scenario::{
    CLASSES, EVENTS, MERGE, NAMESPACES, NEWER_EVENTS, PVCS, PVS, claim_for, clear, delete,
    eventually, get, gone, offer, patch, post, put, refused, text, unique, volume,
};

pub(super) async fn a_created_volume_has_defaults(client: Client) {
    let (name, mut pv) = volume("defaults");
    pv["spec"].as_object_mut().unwrap().remove("volumeMode");
    pv["metadata"]["uid"] = json!("mine");
    pv["status"] = json!({"phase": "Bound"});
    let created = post(&client, PVS, &pv).await.unwrap();
    assert_eq!(created["kind"], "PersistentVolume");
    assert_eq!(created["apiVersion"], "v1");
    assert_eq!(created["status"]["phase"], "Pending");
    assert_eq!(created["spec"]["volumeMode"], "Filesystem");
    assert_eq!(
        created["metadata"]["finalizers"],
        json!(["kubernetes.io/pv-protection"])
    );
    assert_eq!(text(&created, "/metadata/uid").len(), 36);
    assert!(text(&created, "/metadata/creationTimestamp").ends_with('Z'));
    assert!(
        text(&created, "/metadata/resourceVersion")
            .parse::<u64>()
            .unwrap()
            > 0
    );
    clear(&client, &format!("{PVS}/{name}")).await;
}

pub(super) async fn a_name_is_taken_once(client: Client) {
    let (name, pv) = volume("taken");
    let uri = format!("{PVS}/{name}");
    post(&client, PVS, &pv).await.unwrap();
    let status = refused(
        post(&client, PVS, &pv).await,
        409,
        "AlreadyExists",
        "already exists",
    );
    let details = status.details.unwrap();
    assert_eq!(
        (details.name.as_str(), details.kind.as_str()),
        (&*name, "persistentvolumes")
    );
    let held = json!({"metadata": {"finalizers": ["example.com/held"]}});
    patch(&client, &uri, MERGE, &held).await.unwrap();
    delete(&client, &uri, &json!({})).await.unwrap();
    refused(
        post(&client, PVS, &pv).await,
        409,
        "AlreadyExists",
        "object is being deleted",
    );
    clear(&client, &uri).await;
}

pub(super) async fn generated_names_differ(client: Client) {
    let (name, mut pv) = volume("generated");
    let prefix = format!("{name}-");
    pv["metadata"].as_object_mut().unwrap().remove("name");
    pv["metadata"]["generateName"] = json!(prefix);
    let mut names = Vec::new();
    for _ in 0..2 {
        let created = post(&client, PVS, &pv).await.unwrap();
        names.push(text(&created, "/metadata/name").to_owned());
    }
    assert_ne!(names[0], names[1]);
    for name in names {
        assert!(
            name.starts_with(&prefix) && name.len() == prefix.len() + 5,
            "{name}"
        );
        clear(&client, &format!("{PVS}/{name}")).await;
    }
}

pub(super) async fn a_dry_run_stores_nothing(client: Client) {
    let (name, pv) = volume("dry");
    let uri = format!("{PVS}/{name}");
    let answer = post(&client, &format!("{PVS}?dryRun=All"), &pv)
        .await
        .unwrap();
    assert_eq!(answer["status"]["phase"], "Pending");
    assert_eq!(text(&answer, "/metadata/resourceVersion"), "");
    refused(get(&client, &uri).await, 404, "NotFound", &name);
    offer(&client, &pv).await;
    // With a body, the options of a deletion are the body's.
    delete(&client, &uri, &json!({"dryRun": ["All"]}))
        .await
        .unwrap();
    let kept = get(&client, &uri).await.unwrap();
    assert_eq!(text(&kept, "/metadata/deletionTimestamp"), "");
    clear(&client, &uri).await;
}

pub(super) async fn quantities_are_canonical(client: Client) {
    for (given, want) in [
        ("1024Mi", "1Gi"),
        ("2000", "2k"),
        ("1073741824", "1073741824"),
        ("1536Mi", "1536Mi"),
    ] {
        let (_, mut pv) = volume("quantity");
        pv["spec"]["capacity"]["storage"] = json!(given);
        let answer = post(&client, &format!("{PVS}?dryRun=All"), &pv)
            .await
            .unwrap();
        assert_eq!(answer["spec"]["capacity"]["storage"], want, "of {given}");
    }
}

pub(super) async fn a_stale_update_conflicts(client: Client) {
    let (name, pv) = volume("stale");
    let uri = format!("{PVS}/{name}");
    let mut old = offer(&client, &pv).await;
    let body = json!({"metadata": {"annotations": {"a": "1"}}});
    patch(&client, &uri, MERGE, &body).await.unwrap();
    old["metadata"]["annotations"] = json!({"b": "1"});
    refused(
        put(&client, &uri, &old).await,
        409,
        "Conflict",
        "has been modified",
    );
    old["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("resourceVersion");
    let updated = put(&client, &uri, &old).await.unwrap();
    assert_eq!(updated["metadata"]["annotations"], json!({"b": "1"}));
    old["metadata"]["uid"] = json!("00000000-0000-4000-8000-000000000000");
    refused(
        put(&client, &uri, &old).await,
        409,
        "Conflict",
        "UID in precondition",
    );
    let (other, elsewhere) = (format!("{PVS}/{name}-x"), json!("other"));
    refused(
        put(&client, &other, &old).await,
        400,
        "BadRequest",
        "does not match the name",
    );
    old["metadata"]["name"] = elsewhere;
    refused(
        put(&client, &format!("{PVS}/other"), &old).await,
        404,
        "NotFound",
        "other",
    );
    clear(&client, &uri).await;
}

pub(super) async fn an_unchanged_update_keeps_the_version(client: Client) {
    let (name, pv) = volume("unchanged");
    let uri = format!("{PVS}/{name}");
    let old = offer(&client, &pv).await;
    let version = old["metadata"]["resourceVersion"].clone();
    let updated = put(&client, &uri, &old).await.unwrap();
    assert_eq!(updated["metadata"]["resourceVersion"], version);
    let empty = patch(&client, &uri, MERGE, &json!({})).await.unwrap();
    assert_eq!(empty["metadata"]["resourceVersion"], version);
    clear(&client, &uri).await;
}

pub(super) async fn a_deletion_checks_its_preconditions(client: Client) {
    let (name, pv) = volume("preconditions");
    let uri = format!("{PVS}/{name}");
    let old = offer(&client, &pv).await;
    let wrong = json!({"preconditions": {"uid": "00000000-0000-4000-8000-000000000000"}});
    refused(
        delete(&client, &uri, &wrong).await,
        409,
        "Conflict",
        "UID in the precondition",
    );
    let wrong = json!({"preconditions": {"resourceVersion": "1"}});
    refused(
        delete(&client, &uri, &wrong).await,
        409,
        "Conflict",
        "ResourceVersion in the",
    );
    let metadata = &old["metadata"];
    let right = json!({
        "kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {
            "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"],
        },
    });
    let deleted = delete(&client, &uri, &right).await.unwrap();
    assert_ne!(text(&deleted, "/metadata/deletionTimestamp"), "");
    gone(&client, &uri).await;
    refused(delete(&client, &uri, &right).await, 404, "NotFound", &name);
}

pub(super) async fn finalizers_hold_a_deleted_object(client: Client) {
    let (name, mut pv) = volume("held");
    let uri = format!("{PVS}/{name}");
    pv["metadata"]["finalizers"] = json!(["example.com/held"]);
    offer(&client, &pv).await;
    let first = delete(&client, &uri, &json!({"gracePeriodSeconds": 30}))
        .await
        .unwrap();
    let stamp = text(&first, "/metadata/deletionTimestamp").to_owned();
    assert_ne!(stamp, "");
    let only = eventually("only ours holds it", || async {
        let read = get(&client, &uri).await.unwrap();
        (read["metadata"]["finalizers"] == json!(["example.com/held"])).then_some(read)
    })
    .await;
    let second = delete(&client, &uri, &json!({})).await.unwrap();
    assert_eq!(
        second["metadata"]["resourceVersion"],
        only["metadata"]["resourceVersion"]
    );
    assert_eq!(text(&second, "/metadata/deletionTimestamp"), stamp);
    let more = json!({"metadata": {"finalizers": ["example.com/held", "example.com/new"]}});
    refused(
        patch(&client, &uri, MERGE, &more).await,
        422,
        "Invalid",
        "no new finalizers",
    );
    let back = json!({"metadata": {"deletionTimestamp": null}});
    let patched = patch(&client, &uri, MERGE, &back).await.unwrap();
    assert_eq!(text(&patched, "/metadata/deletionTimestamp"), stamp);
    let none = json!({"metadata": {"finalizers": [], "annotations": {"last": "1"}}});
    let last = patch(&client, &uri, MERGE, &none).await.unwrap();
    assert_eq!(last["metadata"]["annotations"]["last"], "1");
    refused(get(&client, &uri).await, 404, "NotFound", &name);
}

pub(super) async fn an_object_without_finalizers_goes_at_once(client: Client) {
    let class = json!({
        "metadata": {"name": unique("class")}, "provisioner": "kubernetes.io/no-provisioner",
    });
    let created = post(&client, CLASSES, &class).await.unwrap();
    assert_eq!(created["reclaimPolicy"], "Delete");
    assert_eq!(created["volumeBindingMode"], "Immediate");
    let uri = format!("{CLASSES}/{}", text(&created, "/metadata/name"));
    let status = refused(
        post(&client, CLASSES, &class).await,
        409,
        "AlreadyExists",
        "",
    );
    assert_eq!(status.details.unwrap().group, "storage.k8s.io");
    let deleted = delete(&client, &uri, &json!({})).await.unwrap();
    assert_eq!(deleted["kind"], "StorageClass");
    refused(
        get(&client, &uri).await,
        404,
        "NotFound",
        "storageclasses.storage.k8s.io",
    );
}

pub(super) async fn events_show_in_both_groups(client: Client) {
    let name = unique("event");
    let event = json!({
        "metadata": {"name": name}, "eventTime": "2026-01-02T03:04:05.000006Z",
        "reportingController": "example.com/scenario", "reportingInstance": "i",
        "action": "Wipe", "reason": "Wiped", "type": "Normal", "note": "hello",
        "regarding": {"kind": "Node", "apiVersion": "v1", "name": name},
    });
    let created = post(&client, NEWER_EVENTS, &event).await.unwrap();
    assert_eq!(created["apiVersion"], "events.k8s.io/v1");
    assert_eq!(created["note"], "hello");
    let core = get(&client, &format!("{EVENTS}/{name}")).await.unwrap();
    assert_eq!(core["apiVersion"], "v1");
    assert_eq!(core["message"], "hello");
    assert_eq!(core["involvedObject"]["name"], name);
    assert_eq!(core["reportingComponent"], "example.com/scenario");
    let selector = format!("fieldSelector=involvedObject.name%3D{name},reason%3DWiped");
    let listed = get(&client, &format!("{EVENTS}?{selector}")).await.unwrap();
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    let series = json!({"series": {"count": 2, "lastObservedTime": "2026-01-02T03:05:05.000006Z"}});
    let uri = format!("{NEWER_EVENTS}/{name}");
    let patched = patch(&client, &uri, MERGE, &series).await.unwrap();
    assert_eq!(patched["series"]["count"], 2);
    assert_eq!(patched["note"], "hello");
    // Only core/v1 wants an event to be where its object is.
    let mut foreign = json!({
        "metadata": {"name": unique("event")}, "reason": "Wiped", "type": "Odd",
        "involvedObject": {"kind": "Node", "name": name, "namespace": "kube-system"},
    });
    let answer = post(&client, EVENTS, &foreign).await;
    refused(answer, 422, "Invalid", "involvedObject.namespace");
    foreign["involvedObject"]["namespace"] = json!(null);
    let created = post(&client, EVENTS, &foreign).await.unwrap();
    delete(
        &client,
        &format!("{EVENTS}/{}", text(&created, "/metadata/name")),
        &json!({}),
    )
    .await
    .unwrap();
    let mut odd = event.clone();
    odd["metadata"]["name"] = json!(unique("event"));
    odd["regarding"]["namespace"] = json!("kube-system");
    let created = post(&client, NEWER_EVENTS, &odd).await.unwrap();
    delete(
        &client,
        &format!("{EVENTS}/{}", text(&created, "/metadata/name")),
        &json!({}),
    )
    .await
    .unwrap();
    for field in [
        "eventTime",
        "reportingController",
        "reportingInstance",
        "action",
        "reason",
    ] {
        let mut short = event.clone();
        short["metadata"]["name"] = json!(unique("event"));
        short.as_object_mut().unwrap().remove(field);
        refused(
            post(&client, NEWER_EVENTS, &short).await,
            422,
            "Invalid",
            field,
        );
    }
    for (field, value, word) in [
        ("type", "Odd".to_owned(), "has invalid value"),
        ("note", "x".repeat(1025), "1024"),
        ("reason", "x".repeat(129), "128"),
        ("action", "x".repeat(129), "128"),
        (
            "reportingController",
            "a b".to_owned(),
            "reportingController",
        ),
        ("reportingInstance", "x".repeat(129), "128"),
    ] {
        odd = event.clone();
        odd["metadata"]["name"] = json!(unique("event"));
        odd[field] = json!(value);
        refused(
            post(&client, NEWER_EVENTS, &odd).await,
            422,
            "Invalid",
            word,
        );
    }
    let deleted = delete(&client, &uri, &json!({})).await.unwrap();
    assert_eq!(
        (&deleted["kind"], &deleted["status"]),
        (&json!("Status"), &json!("Success"))
    );
}

pub(super) async fn a_deleted_namespace_takes_its_claims_along(client: Client) {
    let name = unique("namespace");
    let claims = format!("{NAMESPACES}/{name}/persistentvolumeclaims");
    let claim = claim_for("none");
    refused(post(&client, &claims, &claim).await, 404, "NotFound", &name);
    let created = post(&client, NAMESPACES, &json!({"metadata": {"name": name}}))
        .await
        .unwrap();
    assert_eq!(created["status"]["phase"], "Active");
    let created = post(&client, &claims, &claim).await.unwrap();
    assert_eq!(created["metadata"]["namespace"], name);
    let mut elsewhere = claim.clone();
    elsewhere["metadata"]["namespace"] = json!("default");
    refused(
        post(&client, &claims, &elsewhere).await,
        400,
        "BadRequest",
        "namespace",
    );
    let uri = format!("{NAMESPACES}/{name}");
    let deleted = delete(&client, &uri, &json!({})).await.unwrap();
    assert_eq!(deleted["status"]["phase"], "Terminating");
    gone(&client, &uri).await;
    refused(
        get(&client, &format!("{claims}/none")).await,
        404,
        "NotFound",
        "none",
    );
    refused(
        get(&client, &format!("{PVCS}/{name}")).await,
        404,
        "NotFound",
        &name,
    );
}
