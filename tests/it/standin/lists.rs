//! Scenarios of lists: pages, selectors, versions.

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::api::{ListParams, PartialObjectMeta, VersionMatch};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::scenario::{
    MERGE, PVS, clear, delete, get, offer, patch, refused, send, text, unique, volume,
};

/// Makes volumes `<name>-0`, `<name>-1`, ... with one label; gives the label's value.
async fn several(client: &Client, count: usize) -> String {
    let group = unique("listed");
    for i in 0..count {
        let (_, mut pv) = volume("listed");
        pv["metadata"]["name"] = json!(format!("{group}-{i}"));
        pv["metadata"]["labels"] = json!({"scenario": group, "number": i.to_string()});
        offer(client, &pv).await;
    }
    group
}

async fn clear_all(client: &Client, group: &str, count: usize) {
    for i in 0..count {
        clear(client, &format!("{PVS}/{group}-{i}")).await;
    }
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().expect("a list has items");
    items
        .iter()
        .map(|item| text(item, "/metadata/name"))
        .collect()
}

pub(super) async fn pages_show_one_version(client: Client) {
    let group = several(&client, 3).await;
    let page = format!("{PVS}?labelSelector=scenario%3D{group}&limit=2");
    let first = get(&client, &page).await.unwrap();
    assert_eq!(first["kind"], "PersistentVolumeList");
    assert_eq!(names(&first), [format!("{group}-0"), format!("{group}-1")]);
    assert_eq!(first["items"][0].get("kind"), None, "items carry no kind");
    assert_eq!(
        first["metadata"].get("remainingItemCount"),
        None,
        "not told with a selector"
    );
    let token = text(&first, "/metadata/continue").to_owned();
    // What happens between the pages does not show.
    clear(&client, &format!("{PVS}/{group}-2")).await;
    let second = get(&client, &format!("{page}&continue={token}"))
        .await
        .unwrap();
    assert_eq!(names(&second), [format!("{group}-2")]);
    assert_eq!(
        second["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"],
        "a continued list has the version of its start",
    );
    assert_eq!(text(&second, "/metadata/continue"), "");
    let with_version = format!("{page}&continue={token}&resourceVersion=5");
    refused(
        get(&client, &with_version).await,
        400,
        "BadRequest",
        "not allowed when using",
    );
    let whole = get(&client, &format!("{PVS}?limit=1")).await.unwrap();
    assert!(whole["metadata"]["remainingItemCount"].as_u64().unwrap() >= 1);
    // A cached list takes no limit.
    let cached = format!("{page}&resourceVersion=0").replace("limit=2", "limit=1");
    assert_eq!(names(&get(&client, &cached).await.unwrap()).len(), 2);
    clear_all(&client, &group, 2).await;
}

pub(super) async fn selectors_choose(client: Client) {
    let group = several(&client, 3).await;
    for (selector, want) in [
        ("number=1", "1"),
        ("number==1", "1"),
        ("number!=1", "02"),
        ("number in (0,2)", "02"),
        ("number notin (0,2)", "1"),
        ("number", "012"),
        ("!number", ""),
        ("nothing notin (a)", "012"),
        ("!nothing,number in (0, 1),number!=0", "1"),
    ] {
        let params = ListParams::default().labels(&format!("scenario={group},{selector}"));
        let api: Api<PersistentVolume> = Api::all(client.clone());
        let found: String = api
            .list(&params)
            .await
            .unwrap()
            .into_iter()
            .filter_map(|pv| pv.metadata.name?.chars().last())
            .collect();
        assert_eq!(found, want, "of {selector}");
    }
    clear_all(&client, &group, 3).await;
}

pub(super) async fn a_field_selector_knows_only_some_fields(client: Client) {
    let group = several(&client, 2).await;
    let labelled = format!("{PVS}?labelSelector=scenario%3D{group}&fieldSelector=metadata.name");
    let one = get(&client, &format!("{labelled}%3D{group}-1"))
        .await
        .unwrap();
    assert_eq!(names(&one), [format!("{group}-1")]);
    let other = get(&client, &format!("{labelled}!%3D{group}-1"))
        .await
        .unwrap();
    assert_eq!(names(&other), [format!("{group}-0")]);
    let phase = get(
        &client,
        &format!("{PVS}?fieldSelector=status.phase%3DAvailable"),
    )
    .await;
    refused(
        phase,
        400,
        "BadRequest",
        "\"status.phase\" is not a known field selector",
    );
    clear_all(&client, &group, 2).await;
}

pub(super) async fn metadata_comes_alone_when_asked_for(client: Client) {
    let group = several(&client, 2).await;
    let api: Api<PersistentVolume> = Api::all(client.clone());
    let params = ListParams::default().labels(&format!("scenario={group}"));
    let list = api.list_metadata(&params).await.unwrap();
    assert_eq!(list.items.len(), 2);
    let one: PartialObjectMeta<PersistentVolume> =
        api.get_metadata(&format!("{group}-0")).await.unwrap();
    assert_eq!(one.metadata.labels.unwrap()["scenario"], group);
    let accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let uri = format!("{PVS}?labelSelector=scenario%3D{group}");
    let raw = send(&client, "GET", &uri, &[("accept", accept)], b"")
        .await
        .unwrap();
    assert_eq!(raw["kind"], "PartialObjectMetadataList");
    assert_eq!(raw["items"][0]["kind"], "PartialObjectMetadata");
    assert_eq!(raw["items"][0].get("spec"), None);
    let single = format!("{PVS}/{group}-0");
    let wrong = send(&client, "GET", &single, &[("accept", accept)], b"").await;
    refused(wrong, 406, "NotAcceptable", "not a list");
    clear_all(&client, &group, 2).await;
}

pub(super) async fn an_exact_list_shows_the_past(client: Client) {
    let group = several(&client, 2).await;
    let api: Api<PersistentVolume> = Api::all(client.clone());
    let params = ListParams::default().labels(&format!("scenario={group}"));
    let before = api
        .list(&params)
        .await
        .unwrap()
        .metadata
        .resource_version
        .unwrap();
    let body = json!({"metadata": {"labels": {"number": "changed"}}});
    patch(&client, &format!("{PVS}/{group}-0"), MERGE, &body)
        .await
        .unwrap();
    delete(&client, &format!("{PVS}/{group}-1"), &json!({}))
        .await
        .unwrap();
    clear(&client, &format!("{PVS}/{group}-1")).await;
    let past = params.clone().at(&before).matching(VersionMatch::Exact);
    let past = api.list(&past).await.unwrap();
    assert_eq!(
        past.items.len(),
        2,
        "the deleted one is still there in the past"
    );
    let number = past.items[0]
        .metadata
        .labels
        .as_ref()
        .map(|labels| labels["number"].as_str());
    assert_eq!(number, Some("0"));
    assert_eq!(past.metadata.resource_version.as_deref(), Some(&*before));
    let newer = params.at(&before).matching(VersionMatch::NotOlderThan);
    assert_eq!(api.list(&newer).await.unwrap().items.len(), 1);
    clear_all(&client, &group, 1).await;
}

pub(super) async fn a_version_of_the_future_times_out(client: Client) {
    let now = get(&client, &format!("{PVS}?limit=1")).await.unwrap();
    let version: u64 = text(&now, "/metadata/resourceVersion").parse().unwrap();
    let uri = format!("{PVS}?resourceVersion={}", version + 1_000_000);
    let status = refused(
        get(&client, &uri).await,
        504,
        "Timeout",
        "Too large resource version",
    );
    let details = status.details.unwrap();
    assert_eq!(details.retry_after_seconds, 1);
    assert_eq!(details.causes[0].reason, "ResourceVersionTooLarge");
}
