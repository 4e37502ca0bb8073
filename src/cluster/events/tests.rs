use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use tower::service_fn;

use super::*;

fn note(text: &str) -> Note {
    Note {
        api_version: "v1",
        object_kind: "Node",
        name: "n".into(),
        uid: Some("u".into()),
        kind: EventKind::Warning,
        reason: "InUse".into(),
        text: text.into(),
    }
}

#[test]
fn the_object_is_complete() {
    let now = UNIX_EPOCH + Duration::from_secs(1);
    let value = serde_json::to_value(event(&note("busy"), "pod", now)).unwrap();
    assert_eq!(value["metadata"]["name"], "n.3b9aca00");
    assert_eq!(value["metadata"]["namespace"], "default");
    assert_eq!(value["eventTime"], "1970-01-01T00:00:01.000000Z");
    assert_eq!(value["reportingController"], "provisor");
    assert_eq!(value["reportingInstance"], "pod");
    assert_eq!(value["regarding"]["kind"], "Node");
    assert_eq!(value["regarding"]["uid"], "u");
    assert_eq!(value["type"], "Warning");
    assert_eq!(value["action"], "InUse");
    assert_eq!(value["note"], "busy");
}

#[test]
fn notes_are_cut_between_characters() {
    let long = format!("{}ü", "x".repeat(NOTE_MAX - 1));
    assert_eq!(cut(&long, NOTE_MAX).len(), NOTE_MAX - 1);
    assert_eq!(cut("short", NOTE_MAX), "short");
}

/// An API server that counts what it is asked and answers with `code`.
fn server(code: u16, asked: Arc<AtomicUsize>) -> Client {
    let service = service_fn(move |request: Request<Body>| {
        asked.fetch_add(1, Ordering::Relaxed);
        async move {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let answer = if code < 300 {
                body.to_vec()
            } else {
                br#"{"kind":"Status","code":403,"reason":"Forbidden","message":"no"}"#.to_vec()
            };
            let response = Response::builder().status(code);
            Ok::<_, Infallible>(response.body(Body::from(answer)).unwrap())
        }
    });
    Client::new(service, NAMESPACE)
}

/// Runs the task until everything that `say` said is published or dropped.
async fn publish(code: u16, say: impl Fn(&EventSink)) -> (usize, String) {
    let asked = Arc::new(AtomicUsize::new(0));
    let metrics = Arc::new(Metrics::new("test"));
    let client = server(code, Arc::clone(&asked));
    let (sink, task) = EventSink::new(client, "pod", Arc::clone(&metrics));
    say(&sink);
    let cancel = CancellationToken::new();
    cancel.cancel();
    task.run(cancel).await;
    (asked.load(Ordering::Relaxed), metrics.render())
}

#[tokio::test]
async fn the_same_words_are_published_once_and_others_each() {
    let (asked, _) = publish(201, |sink| {
        for _ in 0..3 {
            sink.node("n", "u", EventKind::Warning, "InUse", "sda is mounted");
            sink.node("n", "u", EventKind::Warning, "InUse", "sdb is mounted");
            sink.pv("pv", "v", EventKind::Normal, "Offered", "1 GiB");
            sink.class(&ClassName::new("c"), EventKind::Warning, "Missing", "no");
        }
    })
    .await;
    assert_eq!(asked, 4);
}

#[tokio::test]
async fn failures_are_counted() {
    let (_, metrics) = publish(403, |sink| {
        sink.node("n", "u", EventKind::Warning, "InUse", "sda");
    })
    .await;
    assert!(metrics.contains("provisor_events_dropped_total 1"));
}

#[tokio::test]
async fn a_full_queue_drops_and_never_blocks() {
    let (asked, metrics) = publish(201, |sink| {
        for i in 0..QUEUE + 5 {
            sink.node("n", "u", EventKind::Normal, "InUse", &i.to_string());
        }
    })
    .await;
    assert_eq!(asked, QUEUE);
    assert!(metrics.contains("provisor_events_dropped_total 5"));
}
