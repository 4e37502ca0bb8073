//! Scenarios of watches.

use std::future::ready;

use futures::stream::BoxStream;
use futures::{AsyncBufReadExt, Stream, StreamExt, TryStreamExt};
use http::Request;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::api::PartialObjectMeta;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use super::scenario::{LIMIT, MERGE, PVS, clear, get, offer, patch, refused, text, unique, volume};

/// One event of a watch.
async fn next(stream: &mut (impl Stream<Item = Value> + Unpin)) -> (String, Value) {
    let event = timeout(LIMIT, stream.next())
        .await
        .expect("an event should have come");
    let event = event.expect("the watch ended");
    (text(&event, "/type").to_owned(), event["object"].clone())
}

/// The events of a watch, as they are on the wire, until it ends or breaks.
pub(super) async fn watch(client: &Client, query: &str) -> BoxStream<'static, Value> {
    let uri = format!("{PVS}?watch=true&{query}");
    let request = Request::get(uri).body(Vec::new()).unwrap();
    let lines = client.request_stream(request).await.unwrap().lines();
    let event = |line: String| serde_json::from_str(&line).unwrap();
    lines
        .scan((), move |(), line| ready(line.ok().map(event)))
        .boxed()
}

async fn version(client: &Client) -> String {
    let list = get(client, &format!("{PVS}?limit=1")).await.unwrap();
    text(&list, "/metadata/resourceVersion").to_owned()
}

pub(super) async fn a_watch_goes_on_from_a_version(client: Client) {
    let from = version(&client).await;
    let (name, pv) = volume("watched");
    let uri = format!("{PVS}/{name}");
    offer(&client, &pv).await;
    let query = format!("resourceVersion={from}&labelSelector=scenario%3D{name}");
    let mut events = watch(&client, &query).await;
    let (kind, object) = next(&mut events).await;
    assert_eq!(
        (kind.as_str(), &object["status"]["phase"]),
        ("ADDED", &json!("Pending"))
    );
    assert_eq!(object["kind"], "PersistentVolume");
    let (kind, object) = next(&mut events).await;
    assert_eq!(
        (kind.as_str(), &object["status"]["phase"]),
        ("MODIFIED", &json!("Available"))
    );
    clear(&client, &uri).await;
    loop {
        let (kind, object) = next(&mut events).await;
        assert_ne!(text(&object, "/metadata/deletionTimestamp"), "");
        if kind == "DELETED" {
            break;
        }
        assert_eq!(kind, "MODIFIED");
    }
}

pub(super) async fn a_selecting_watch_sees_objects_enter_and_leave(client: Client) {
    let (name, pv) = volume("selected");
    let uri = format!("{PVS}/{name}");
    offer(&client, &pv).await;
    let from = version(&client).await;
    let selector = format!("scenario%3D{name},visible%3Dyes");
    let query = format!("resourceVersion={from}&labelSelector={selector}");
    let mut events = watch(&client, &query).await;
    let mark = async |value: Option<&str>| {
        let body = json!({"metadata": {"labels": {"visible": value}}});
        patch(&client, &uri, MERGE, &body).await.unwrap()
    };
    mark(Some("yes")).await;
    let (kind, _) = next(&mut events).await;
    assert_eq!(kind, "ADDED");
    let left = mark(None).await;
    let (kind, object) = next(&mut events).await;
    assert_eq!(kind, "DELETED");
    assert_eq!(
        object["metadata"]["resourceVersion"],
        left["metadata"]["resourceVersion"]
    );
    assert_eq!(
        object["metadata"]["labels"]["visible"], "yes",
        "the object as it was"
    );
    clear(&client, &uri).await;
}

pub(super) async fn a_streaming_list_ends_with_a_bookmark(client: Client) {
    let (name, pv) = volume("streamed");
    offer(&client, &pv).await;
    let selector = format!("labelSelector=scenario%3D{name}&allowWatchBookmarks=true");
    let streaming = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    // Without a version and without a word about it, the server does the same.
    for query in [format!("{selector}&{streaming}"), selector.clone()] {
        let mut events = watch(&client, &query).await;
        let (kind, _) = next(&mut events).await;
        assert_eq!(kind, "ADDED", "of {query}");
        let (kind, mark) = next(&mut events).await;
        assert_eq!(
            (kind.as_str(), text(&mark, "/kind")),
            ("BOOKMARK", "PersistentVolume")
        );
        let annotations = json!({"k8s.io/initial-events-end": "true"});
        assert_eq!(mark["metadata"]["annotations"], annotations);
        assert!(
            text(&mark, "/metadata/resourceVersion")
                .parse::<u64>()
                .unwrap()
                > 1
        );
    }
    clear(&client, &format!("{PVS}/{name}")).await;
}

pub(super) async fn a_watch_ends_by_its_timeout(client: Client) {
    let from = version(&client).await;
    let begin = Instant::now();
    let query = format!("resourceVersion={from}&timeoutSeconds=1&fieldSelector=metadata.name%3Dno");
    let mut events = watch(&client, &query).await;
    assert!(timeout(LIMIT, events.next()).await.unwrap().is_none());
    assert!(
        begin.elapsed().as_millis() >= 900,
        "after {:?}",
        begin.elapsed()
    );
}

pub(super) async fn a_watcher_of_metadata_follows_an_object(client: Client) {
    let (name, pv) = volume("followed");
    let uri = format!("{PVS}/{name}");
    offer(&client, &pv).await;
    let base = watcher::Config::default().labels(&format!("scenario={name}"));
    for config in [
        base.clone(),
        base.clone().streaming_lists(),
        base.page_size(1),
    ] {
        let api: Api<PartialObjectMeta<PersistentVolume>> = Api::all(client.clone());
        let mut events = Box::pin(watcher(api, config));
        let mut seen = Vec::new();
        timeout(LIMIT, async {
            let mut is_changed = false;
            while let Some(event) = events.try_next().await.unwrap() {
                match event {
                    Event::Init => seen.push("init"),
                    Event::InitApply(_) => seen.push("object"),
                    Event::InitDone => {
                        seen.push("done");
                        if !is_changed {
                            let mark = unique("mark");
                            let body = json!({"metadata": {"annotations": {"mark": mark}}});
                            patch(&client, &uri, MERGE, &body).await.unwrap();
                            is_changed = true;
                        }
                    }
                    Event::Apply(object) => {
                        assert!(object.metadata.annotations.unwrap().contains_key("mark"));
                        seen.push("changed");
                        break;
                    }
                    Event::Delete(_) => seen.push("deleted"),
                }
            }
        })
        .await
        .expect("the watcher should have seen the change");
        assert_eq!(seen, ["init", "object", "done", "changed"]);
    }
    clear(&client, &uri).await;
}

pub(super) async fn streaming_options_must_fit(client: Client) {
    for (query, word) in [
        (
            "sendInitialEvents=true&allowWatchBookmarks=true",
            "NotOlderThan",
        ),
        (
            "resourceVersionMatch=NotOlderThan",
            "unless sendInitialEvents is provided",
        ),
    ] {
        let answer = get(&client, &format!("{PVS}?watch=true&{query}")).await;
        refused(answer, 422, "Invalid", word);
    }
    let answer = get(&client, &format!("{PVS}?watch=true&resourceVersion=abc")).await;
    refused(answer, 500, "", "invalid syntax");
}
