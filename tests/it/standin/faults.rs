//! Faults of the stand-in.

use std::time::{Duration, Instant};

use futures::StreamExt;
use serde_json::json;
use tokio::time::timeout;

use super::scenario::{LIMIT, PVS, get, post, refused, text, volume};
use super::watches::watch;
use crate::support::apiserver::{Action, ApiServer, ChangeKind, Fault, Verb};

#[tokio::test]
async fn a_refusal_is_used_up() {
    let server = ApiServer::start();
    let client = server.client();
    for (code, reason) in [
        (401, "Unauthorized"),
        (403, "Forbidden"),
        (500, "InternalError"),
        (503, "ServiceUnavailable"),
    ] {
        server.inject(
            Fault::new(Action::Refuse(code))
                .path(PVS)
                .verb(Verb::List)
                .times(1),
        );
        refused(get(&client, PVS).await, code, reason, "");
        get(&client, PVS).await.unwrap();
    }
    let codes: Vec<_> = server
        .requests()
        .into_iter()
        .filter_map(|request| request.status)
        .collect();
    assert_eq!(codes, [401, 200, 403, 200, 500, 200, 503, 200]);
}

#[tokio::test]
async fn a_fault_is_for_its_method_and_path() {
    let server = ApiServer::start();
    let client = server.client();
    let fault = server.inject(Fault::new(Action::Throttle(7)).method("post").path(PVS));
    get(&client, PVS).await.unwrap();
    let (_, pv) = volume("throttled");
    refused(
        post(&client, PVS, &pv).await,
        429,
        "TooManyRequests",
        "try again",
    );
    refused(
        post(&client, PVS, &pv).await,
        429,
        "TooManyRequests",
        "try again",
    );
    server.lift(fault);
    post(&client, PVS, &pv).await.unwrap();
    server.inject(Fault::new(Action::Refuse(500)));
    refused(get(&client, "/readyz").await, 500, "InternalError", "");
    server.lift_all();
    get(&client, PVS).await.unwrap();
}

#[tokio::test]
async fn a_connection_breaks_before_during_or_after() {
    let server = ApiServer::start();
    let client = server.client();
    for (action, is_done) in [
        (Action::Disconnect, false),
        (Action::LoseAnswer, true),
        (Action::Truncate, true),
        (Action::Garbage, false),
    ] {
        let (name, pv) = volume("broken");
        server.inject(Fault::new(action.clone()).verb(Verb::Create).times(1));
        let request = http::Request::post(PVS)
            .header("content-type", "application/json")
            .body(pv.to_string().into_bytes())
            .unwrap();
        let answer = timeout(LIMIT, client.request::<serde_json::Value>(request))
            .await
            .unwrap();
        assert!(
            !matches!(answer, Ok(_) | Err(kube::Error::Api(_))),
            "{action:?}: {answer:?}"
        );
        assert_eq!(server.pv(&name).is_some(), is_done, "after {action:?}");
    }
}

#[tokio::test]
async fn a_request_waits_or_hangs() {
    let server = ApiServer::start();
    let client = server.client();
    let delay = Duration::from_millis(50);
    server.inject(Fault::new(Action::Delay(delay)).times(1));
    let begin = Instant::now();
    get(&client, PVS).await.unwrap();
    assert!(begin.elapsed() >= delay);
    server.inject(Fault::new(Action::Hang).times(1));
    let hanging = timeout(delay, get(&client, PVS)).await;
    assert!(hanging.is_err(), "it should hang: {hanging:?}");
    assert_eq!(server.requests().last().unwrap().status, None);
}

#[tokio::test]
async fn an_expired_version_ends_watches_and_pages() {
    let server = ApiServer::start();
    let client = server.client();
    for _ in 0..3 {
        let (_, pv) = volume("expired");
        server.put(pv);
    }
    let old = server.version();
    let first = get(&client, &format!("{PVS}?limit=1")).await.unwrap();
    let token = text(&first, "/metadata/continue").to_owned();
    server.compact();
    let mut events = watch(&client, &format!("resourceVersion={old}")).await;
    let event = events.next().await.unwrap();
    assert_eq!(
        (text(&event, "/type"), text(&event, "/object/reason")),
        ("ERROR", "Expired")
    );
    assert_eq!(event["object"]["code"], 410);
    assert!(events.next().await.is_none());
    let page = get(&client, &format!("{PVS}?limit=1&continue={token}")).await;
    let status = refused(page, 410, "Expired", "too old");
    // The token of the refusal goes on with what is there now.
    let token = status.metadata.unwrap().continue_.unwrap();
    let rest = get(&client, &format!("{PVS}?continue={token}"))
        .await
        .unwrap();
    assert_eq!(rest["items"].as_array().unwrap().len(), 2);
    let exact = format!("{PVS}?resourceVersion={old}&resourceVersionMatch=Exact");
    refused(get(&client, &exact).await, 410, "Expired", "too old");

    let now = server.version();
    server.inject(Fault::new(Action::Expire).times(1));
    let mut events = watch(&client, &format!("resourceVersion={now}")).await;
    assert_eq!(events.next().await.unwrap()["object"]["code"], 410);
}

#[tokio::test]
async fn watches_are_dropped_and_sent_bookmarks() {
    let server = ApiServer::start();
    let client = server.client();
    let from = server.version();
    let query = format!("resourceVersion={from}&allowWatchBookmarks=true");
    let mut events = watch(&client, &query).await;
    server
        .until(LIMIT, |server| (server.open_watches() == 1).then_some(()))
        .await
        .unwrap();
    server.send_bookmarks();
    let mark = timeout(LIMIT, events.next()).await.unwrap().unwrap();
    assert_eq!(text(&mark, "/type"), "BOOKMARK");
    assert_eq!(
        text(&mark, "/object/metadata/resourceVersion"),
        from.to_string()
    );
    server.drop_watches();
    assert!(timeout(LIMIT, events.next()).await.unwrap().is_none());
    server
        .until(LIMIT, |server| (server.open_watches() == 0).then_some(()))
        .await
        .unwrap();

    server.set_bookmark_interval(Duration::from_millis(5));
    let mut events = watch(&client, &query).await;
    for _ in 0..2 {
        let mark = timeout(LIMIT, events.next()).await.unwrap().unwrap();
        assert_eq!(text(&mark, "/type"), "BOOKMARK");
    }
    server.inject(Fault::new(Action::Truncate).verb(Verb::Watch).times(1));
    let request = http::Request::get(format!("{PVS}?watch=true&{query}"))
        .body(Vec::new())
        .unwrap();
    let mut lines = {
        use futures::AsyncBufReadExt;
        client.request_stream(request).await.unwrap().lines()
    };
    let line = timeout(LIMIT, lines.next()).await.unwrap();
    assert!(
        !matches!(line, Some(Ok(_))),
        "half an event is no event: {line:?}"
    );
}

#[tokio::test]
async fn a_stale_server_shows_the_past_to_cached_reads_only() {
    let server = ApiServer::start();
    let client = server.client();
    let (name, pv) = volume("past");
    server.put(pv);
    server.bind(&name, "default", "claim");
    let past = server.version();
    server.release(&name);
    assert_eq!(server.phase(&name), "Released");
    server.inject(Fault::new(Action::Stale(past)));
    let listed = get(&client, &format!("{PVS}?resourceVersion=0"))
        .await
        .unwrap();
    assert_eq!(listed["items"][0]["status"]["phase"], "Bound");
    assert_eq!(text(&listed, "/metadata/resourceVersion"), past.to_string());
    let live = get(&client, &format!("{PVS}/{name}")).await.unwrap();
    assert_eq!(live["status"]["phase"], "Released");
    // A watch from there catches up.
    let mut events = watch(&client, &format!("resourceVersion={past}")).await;
    let event = timeout(LIMIT, events.next()).await.unwrap().unwrap();
    assert_eq!(event["object"]["status"]["phase"], "Released");
}

#[tokio::test]
async fn an_old_server_refuses_streaming_lists() {
    let server = ApiServer::start();
    let client = server.client();
    server.inject(Fault::new(Action::NoStreamingLists));
    let streaming = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let answer = get(&client, &format!("{PVS}?watch=true&{streaming}")).await;
    refused(answer, 422, "Invalid", "sendInitialEvents");
    get(&client, PVS).await.unwrap();
}

#[tokio::test]
async fn every_change_is_recorded_in_order() {
    let server = ApiServer::start();
    let (name, pv) = volume("recorded");
    server.put(pv);
    server.bind(&name, "tenant", "claim");
    server.release(&name);
    server.delete("persistentvolumes", "", &name);
    assert_eq!(server.pv(&name), None);
    let changes = server.changes_of("persistentvolumes", &name);
    let phases: Vec<_> = changes
        .iter()
        .map(|c| text(&c.object, "/status/phase"))
        .collect();
    assert_eq!(phases[..2], ["Pending", "Available"]);
    assert!(
        phases.windows(2).any(|pair| pair == ["Bound", "Released"]),
        "{phases:?}"
    );
    assert_eq!(changes.last().unwrap().kind, ChangeKind::Deleted);
    assert!(
        changes
            .windows(2)
            .all(|pair| pair[0].version < pair[1].version)
    );
    assert_eq!(changes[0].before, None);
    assert_eq!(changes[1].before.as_deref(), Some(&*changes[0].object));
    let json_of = |kind: ChangeKind| changes.iter().filter(|c| c.kind == kind).count();
    assert_eq!(
        (json_of(ChangeKind::Added), json_of(ChangeKind::Deleted)),
        (1, 1)
    );
    assert_eq!(
        server.all("persistentvolumeclaims"),
        Vec::<serde_json::Value>::new()
    );
    assert!(
        server
            .get("namespaces", "", "tenant")
            .is_some_and(|ns| ns != json!({}))
    );
}
