//! The calls on one PersistentVolume, and Events.

use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolume;
use provisor::cluster::{Created, EventKind, EventSink};
use provisor::pv::{Cleaning, CleaningState, FINALIZER, Pv};
use provisor::serve::Metrics;
use provisor::volume::{DevNum, FilesystemIdentity, Identity};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{CLASS, NODE, connect, own_pv, volumes};
use crate::support::apiserver::{Action, ApiServer, Fault, Verb, local_pv};

const PVS: &str = "persistentvolumes";

fn manifest(pv: Value) -> PersistentVolume {
    serde_json::from_value(pv).expect("the fixture is a PersistentVolume")
}

fn cleaning(pv: &Pv, done_bytes: u64) -> Cleaning {
    Cleaning {
        pv_uid: pv.uid.clone(),
        claim_uid: pv.claim_uid().map(str::to_owned),
        state: CleaningState::Started,
        method: "zero".into(),
        done_bytes,
    }
}

fn identity() -> Identity {
    Identity::Filesystem(FilesystemIdentity {
        fs_type: "ext4".into(),
        uuid: Some("u".into()),
        root: "/".into(),
        device: DevNum { major: 7, minor: 0 },
        boot: "b".into(),
    })
}

#[tokio::test]
async fn creation_never_overwrites() {
    let server = ApiServer::start();
    let (volumes, _) = volumes(&server);
    let created = volumes.create(&manifest(own_pv("a"))).await.unwrap();
    let Created::New(pv) = created else {
        panic!("{created:?}");
    };
    assert_eq!(pv.finalizers.first().map(String::as_str), Some(FINALIZER));
    let before = server.pv("a");
    let again = volumes.create(&manifest(local_pv("a", "n2", CLASS))).await;
    assert_eq!(again, Ok(Created::Exists));
    assert_eq!(server.pv("a"), before);
}

#[tokio::test]
async fn a_lost_answer_shows_as_existing_at_the_next_attempt() {
    let server = ApiServer::start();
    let (volumes, metrics) = volumes(&server);
    server.inject(Fault::new(Action::LoseAnswer).verb(Verb::Create).times(1));
    let error = volumes.create(&manifest(own_pv("a"))).await.unwrap_err();
    assert!(error.is_retryable(), "{error:?}");
    assert_eq!(
        server.requests_matching(|r| r.verb == Verb::Create).len(),
        1,
        "one attempt only"
    );
    let again = volumes.create(&manifest(own_pv("a"))).await;
    assert_eq!(again, Ok(Created::Exists));
    let failed = r#"apiserver_requests_failed_total{method="create"} 2"#;
    assert!(metrics.render().contains(failed));
}

#[tokio::test]
async fn marks_need_the_very_object_that_was_read() {
    let server = ApiServer::start();
    let (volumes, _) = volumes(&server);
    server.put(own_pv("a"));
    let pv = volumes.get("a").await.unwrap().unwrap();
    let marked = volumes.mark(&pv, &cleaning(&pv, 64), true).await.unwrap();
    assert_eq!(marked.current_cleaning(), Some(&cleaning(&pv, 64)));
    assert!(marked.is_protected());
    let stale = volumes.mark(&pv, &cleaning(&pv, 128), true).await;
    assert_eq!(stale.unwrap_err().reason(), "Conflict");
    server.recreate(PVS, "", "a");
    for outcome in [
        volumes
            .mark(&marked, &cleaning(&pv, 128), false)
            .await
            .err(),
        volumes.adopt(&marked, &identity(), NODE).await.err(),
        volumes.let_go(&marked).await.err(),
        volumes
            .delete("a", &marked.uid, &marked.resource_version)
            .await
            .err(),
    ] {
        assert_eq!(outcome.map(|e| e.reason()), Some("Conflict"));
    }
}

#[tokio::test]
async fn a_wiped_volume_is_let_go_and_deleted() {
    let server = ApiServer::start();
    let (volumes, _) = volumes(&server);
    server.put(own_pv("a"));
    let pv = volumes.get("a").await.unwrap().unwrap();
    let marked = volumes.mark(&pv, &cleaning(&pv, 0), false).await.unwrap();
    assert!(!marked.is_protected());
    for _ in 0..2 {
        let gone = volumes.delete("a", &marked.uid, &marked.resource_version);
        assert_eq!(gone.await, Ok(()), "that it is gone is as good");
        assert_eq!(volumes.get("a").await, Ok(None));
    }
    assert_eq!(volumes.let_go(&marked).await, Ok(()));
    let delete = &server.requests_matching(|r| r.verb == Verb::Delete)[0];
    assert_eq!(
        delete.body["preconditions"],
        json!({"uid": marked.uid, "resourceVersion": marked.resource_version})
    );
}

#[tokio::test]
async fn upstreams_volume_is_adopted() {
    let server = ApiServer::start();
    let (volumes, _) = volumes(&server);
    server.put(local_pv("a", NODE, CLASS));
    let pv = volumes.get("a").await.unwrap().unwrap();
    assert_eq!(volumes.list(Some(NODE)).await.unwrap().len(), 0);
    let adopted = volumes.adopt(&pv, &identity(), NODE).await.unwrap();
    assert!(adopted.is_protected());
    assert_eq!(adopted.identity, Some(identity()));
    assert_eq!(volumes.list(Some(NODE)).await.unwrap().len(), 1);
    assert_eq!(volumes.list(None).await.unwrap().len(), 1);
}

#[tokio::test]
async fn errors_are_sorted() {
    let server = ApiServer::start();
    let (volumes, _) = volumes(&server);
    server.put(own_pv("a"));
    for (action, reason) in [
        (Action::Refuse(403), "Forbidden"),
        (Action::Refuse(500), "Other"),
        (Action::Throttle(3), "TooManyRequests"),
        (Action::Garbage, "Unreadable"),
        (Action::Disconnect, "Unreachable"),
        (Action::Truncate, "Unreachable"),
    ] {
        server.inject(Fault::new(action.clone()).verb(Verb::Get).times(1));
        let error = volumes.get("a").await.unwrap_err();
        assert_eq!(error.reason(), reason, "{action:?}: {error}");
        assert_eq!(error.retry_after().is_some(), reason == "TooManyRequests");
    }
    assert!(volumes.get("a").await.unwrap().is_some());
}

#[tokio::test]
async fn a_refused_manifest_is_invalid() {
    let server = ApiServer::start();
    let (volumes, _) = volumes(&server);
    let mut pv = own_pv("a");
    pv["spec"]["capacity"] = json!({});
    let error = volumes.create(&manifest(pv)).await.unwrap_err();
    assert_eq!(error.reason(), "Invalid", "{error}");
}

#[tokio::test]
async fn a_server_that_is_away_is_unreachable() {
    let server = ApiServer::start();
    let (volumes, _) = volumes(&server);
    drop(server);
    let error = volumes.get("a").await.unwrap_err();
    assert_eq!(error.reason(), "Unreachable");
    let text = error.to_string();
    assert_eq!(text.matches("refused").count(), 1, "{text}");
}

#[tokio::test]
async fn a_call_that_hangs_ends_at_its_deadline() {
    let server = ApiServer::start();
    let (volumes, _) = volumes(&server);
    volumes.get("a").await.unwrap();
    server.inject(Fault::new(Action::Hang));
    // The connection is there already; with the clock stopped, time runs to the deadline at once.
    tokio::time::pause();
    let error = volumes.get("a").await.unwrap_err();
    assert_eq!(error.reason(), "Timeout");
}

#[tokio::test]
async fn events_are_published_and_a_failed_one_can_be_said_again() {
    let server = ApiServer::start();
    let metrics = Arc::new(Metrics::new("test"));
    let (sink, task) = EventSink::new(connect(&server), "pod-1", Arc::clone(&metrics));
    let cancel = CancellationToken::new();
    let running = tokio::spawn(task.run(cancel.clone()));
    server.inject(Fault::new(Action::Throttle(1)).verb(Verb::Create).times(1));
    let say = || sink.node(NODE, "u", EventKind::Warning, "InUse", "sda is mounted");
    say();
    let failed = async {
        while !metrics.render().contains("provisor_events_dropped_total 1") {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(super::LIMIT, failed).await.unwrap();
    say();
    say();
    cancel.cancel();
    running.await.unwrap();
    let events = server.events();
    assert_eq!(events.len(), 1, "{events:?}");
}
