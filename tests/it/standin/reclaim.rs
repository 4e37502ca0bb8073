//! Scenarios of the controllers: binding, release, protection.

use kube::Client;
use serde_json::json;

use super::scenario::{
    MERGE, PVCS, PVS, claim_for, clear, delete, eventually, get, gone, offer, patch, phase, post,
    text, volume,
};

pub(super) async fn a_volume_is_bound_and_released(client: Client) {
    let (name, pv) = volume("bound");
    let (uri, claim) = (format!("{PVS}/{name}"), format!("{PVCS}/{name}"));
    offer(&client, &pv).await;
    let created = post(&client, PVCS, &claim_for(&name)).await.unwrap();
    assert_eq!(created["status"]["phase"], "Pending");
    assert_eq!(
        created["metadata"]["finalizers"],
        json!(["kubernetes.io/pvc-protection"])
    );
    let bound = phase(&client, &name, "Bound").await;
    assert_eq!(bound["spec"]["claimRef"]["uid"], created["metadata"]["uid"]);
    assert_eq!(bound["spec"]["claimRef"]["namespace"], "default");
    let by = "/metadata/annotations/pv.kubernetes.io~1bound-by-controller";
    assert_eq!(text(&bound, by), "yes");
    eventually("the claim is bound", || async {
        let claim = get(&client, &claim).await.unwrap();
        (claim["status"]["phase"] == "Bound").then_some(())
    })
    .await;
    delete(&client, &claim, &json!({})).await.unwrap();
    gone(&client, &claim).await;
    let released = phase(&client, &name, "Released").await;
    assert_eq!(
        released["spec"]["claimRef"]["uid"],
        created["metadata"]["uid"]
    );
    clear(&client, &uri).await;
}

pub(super) async fn a_volume_without_provisioner_fails(client: Client) {
    let (name, mut pv) = volume("orphan");
    pv["metadata"]["annotations"] = json!({});
    offer(&client, &pv).await;
    post(&client, PVCS, &claim_for(&name)).await.unwrap();
    phase(&client, &name, "Bound").await;
    delete(&client, &format!("{PVCS}/{name}"), &json!({}))
        .await
        .unwrap();
    let failed = phase(&client, &name, "Failed").await;
    assert!(text(&failed, "/status/message").contains("no volume plugin matched"));
    clear(&client, &format!("{PVS}/{name}")).await;
}

pub(super) async fn a_deleted_volume_stays_while_it_is_bound(client: Client) {
    let (name, pv) = volume("protected");
    let (uri, claim) = (format!("{PVS}/{name}"), format!("{PVCS}/{name}"));
    offer(&client, &pv).await;
    post(&client, PVCS, &claim_for(&name)).await.unwrap();
    phase(&client, &name, "Bound").await;
    eventually("the claim is bound", || async {
        let claim = get(&client, &claim).await.unwrap();
        (claim["status"]["phase"] == "Bound").then_some(())
    })
    .await;
    let deleted = delete(&client, &uri, &json!({})).await.unwrap();
    assert_ne!(text(&deleted, "/metadata/deletionTimestamp"), "");
    let kept = get(&client, &uri).await.unwrap();
    assert_eq!(
        kept["metadata"]["finalizers"],
        json!(["kubernetes.io/pv-protection"])
    );
    assert_eq!(kept["status"]["phase"], "Bound");
    delete(&client, &claim, &json!({})).await.unwrap();
    gone(&client, &uri).await;
}

pub(super) async fn a_volume_whose_claim_is_cleared_is_available(client: Client) {
    let (name, mut pv) = volume("cleared");
    pv["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain");
    pv["spec"]["claimRef"] = json!({"namespace": "default", "name": name});
    let uri = format!("{PVS}/{name}");
    // A volume that waits for a claim is Available.
    offer(&client, &pv).await;
    post(&client, PVCS, &claim_for(&name)).await.unwrap();
    phase(&client, &name, "Bound").await;
    delete(&client, &format!("{PVCS}/{name}"), &json!({}))
        .await
        .unwrap();
    phase(&client, &name, "Released").await;
    let body = json!({"spec": {"claimRef": null}});
    patch(&client, &uri, MERGE, &body).await.unwrap();
    phase(&client, &name, "Available").await;
    clear(&client, &uri).await;
}

pub(super) async fn a_claim_of_a_vanished_volume_is_lost(client: Client) {
    let (name, pv) = volume("vanished");
    let (uri, claim) = (format!("{PVS}/{name}"), format!("{PVCS}/{name}"));
    offer(&client, &pv).await;
    post(&client, PVCS, &claim_for(&name)).await.unwrap();
    eventually("the claim is bound", || async {
        let claim = get(&client, &claim).await.unwrap();
        (claim["status"]["phase"] == "Bound").then_some(())
    })
    .await;
    clear(&client, &uri).await;
    eventually("the claim is lost", || async {
        let claim = get(&client, &claim).await.unwrap();
        (claim["status"]["phase"] == "Lost").then_some(())
    })
    .await;
    clear(&client, &claim).await;
}
