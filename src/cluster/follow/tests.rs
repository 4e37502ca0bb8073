use std::convert::Infallible;
use std::sync::Mutex;

use futures::{StreamExt, stream};
use http::{Request, Response};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tower::service_fn;

use super::*;
use crate::cluster::{CALL_DEADLINE, VolumeEvent};
use crate::pv::{Pv, WirePv};

/// What a server was asked: the query, and when.
type Asked = Arc<Mutex<Vec<(String, Instant)>>>;

/// What a server does with a request for a streaming list.
#[derive(Clone, Copy)]
enum Streams {
    /// Sends the mark at once, and nothing after it.
    Marked,
    /// Takes it for a plain watch: a bookmark without the mark.
    Unmarked,
    /// Takes it for a plain watch and says nothing.
    Silent,
    /// Ends after one of the objects.
    Cut,
}

/// A server that has no objects and whose watches say nothing.
fn mute_server(asked: &Asked, streams: Streams) -> Client {
    let asked = Arc::clone(asked);
    let service = service_fn(move |request: Request<Body>| {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let is_watch = query.contains("watch=true");
        let is_streaming = query.contains("sendInitialEvents=true");
        asked.lock().unwrap().push((query, Instant::now()));
        let annotations = match streams {
            Streams::Marked => json!({"k8s.io/initial-events-end": "true"}),
            Streams::Unmarked | Streams::Silent | Streams::Cut => json!({}),
        };
        let mark = json!({"type": "BOOKMARK", "object": {"kind": "PersistentVolume",
            "apiVersion": "v1", "metadata": {"resourceVersion": "5", "annotations": annotations}}});
        let one = json!({"type": "ADDED", "object": {"kind": "PersistentVolume",
            "apiVersion": "v1", "metadata": {"name": "a", "uid": "u", "resourceVersion": "4"}}});
        let line = |event: &Value| Some(Ok(Frame::data(Bytes::from(format!("{event}\n")))));
        let first = match (is_streaming, streams) {
            (false, _) | (true, Streams::Silent) => None,
            (true, Streams::Cut) => line(&one),
            (true, _) => line(&mark),
        };
        let is_cut = is_streaming && matches!(streams, Streams::Cut);
        async move {
            let body = if is_cut {
                BodyExt::boxed(StreamBody::new(stream::iter(first)))
            } else if is_watch {
                let never = stream::pending::<Result<Frame<Bytes>, Infallible>>();
                BodyExt::boxed(StreamBody::new(stream::iter(first).chain(never)))
            } else {
                let list = json!({"kind": "PersistentVolumeList", "apiVersion": "v1",
                    "metadata": {"resourceVersion": "5"}, "items": []});
                BodyExt::boxed(Full::new(Bytes::from(list.to_string())))
            };
            Ok::<_, Infallible>(Response::new(body))
        }
    });
    Client::new(service, "default")
}

/// Follows a mute server for so long; what it was asked, and what the owner was told.
async fn followed(
    limit: Duration,
    streams: Streams,
) -> (Vec<(String, Instant)>, mpsc::Receiver<ClusterEvent>) {
    let asked = Asked::default();
    let target = Target {
        api: Api::<DeserializeGuard<WirePv>>::all(mute_server(&asked, streams)),
        kind: WatchKind::PersistentVolumes,
        label_selector: Some("a=b".into()),
        field_selector: None,
        page_size: 50,
    };
    let metrics = Arc::new(Metrics::new("test"));
    let (owner, events) = mpsc::channel(8);
    let news = |change| match change {
        Change::Listed(all) => Some(ClusterEvent::Volumes(VolumeEvent::Synced(all))),
        other => panic!("nothing changes: {other:?}"),
    };
    let following = follow(target, Arc::clone(&metrics), Pv::try_from, news, owner);
    assert!(tokio::time::timeout(limit, following).await.is_err());
    let asked = asked.lock().unwrap().clone();
    for (query, _) in &asked {
        assert!(query.contains("labelSelector=a%3Db"), "{query}");
    }
    (asked, events)
}

/// The same, where the owner must have been told nothing but so many empty lists.
async fn asked_within(limit: Duration, streams: Streams, lists: usize) -> Vec<(String, Instant)> {
    let (asked, mut events) = followed(limit, streams).await;
    let synced = ClusterEvent::Volumes(VolumeEvent::Synced(Vec::new()));
    for _ in 0..lists {
        assert_eq!(events.recv().await.as_ref(), Some(&synced));
    }
    assert_eq!(events.recv().await, None, "silence is no trouble");
    asked
}

#[tokio::test(start_paused = true)]
async fn after_silence_everything_is_learned_again() {
    let asked = asked_within(SILENCE * 5 / 2, Streams::Marked, 3).await;
    assert_eq!(asked.len(), 3, "one request for each round: {asked:?}");
    assert_eq!(asked[2].1 - asked[0].1, SILENCE * 2);
    for (query, _) in asked {
        assert!(query.contains("resourceVersionMatch=NotOlderThan"));
        assert!(query.contains("allowWatchBookmarks=true"), "{query}");
        assert!(query.ends_with("resourceVersion="), "the newest: {query}");
        let (_, seconds) = query.split_once("timeoutSeconds=").unwrap();
        let digits: String = seconds.chars().take_while(char::is_ascii_digit).collect();
        assert!((300..=600).contains(&digits.parse().unwrap()), "{query}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_marks_no_end_is_listed_from_then_on() {
    for (streams, lost) in [
        (Streams::Unmarked, Duration::ZERO),
        (Streams::Silent, CALL_DEADLINE),
    ] {
        let asked = asked_within(lost + SILENCE * 5 / 2, streams, 3).await;
        assert!(asked[0].0.contains("sendInitialEvents"), "{asked:?}");
        assert_eq!(asked[1].1 - asked[0].1, lost);
        let (lists, watches): (Vec<_>, Vec<_>) = asked[1..]
            .iter()
            .map(|(query, _)| query)
            .partition(|query| query.contains("limit=50"));
        assert_eq!((lists.len(), watches.len()), (3, 3), "{asked:?}");
        for query in watches {
            assert!(query.contains("resourceVersion=5"), "{query}");
            assert!(query.contains("allowWatchBookmarks=true"), "{query}");
            assert!(!query.contains("sendInitialEvents"), "{query}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn of_a_stream_that_is_cut_nothing_is_told() {
    let (asked, mut events) = followed(SILENCE, Streams::Cut).await;
    let kinds: Vec<_> = asked
        .iter()
        .map(|(query, _)| query.contains("sendI"))
        .collect();
    assert_eq!(kinds, [true, true, true, false, false], "{asked:?}");
    let Some(ClusterEvent::Watch { error: Some(_), .. }) = events.recv().await else {
        panic!("the trouble is told first");
    };
    // The list that was asked for in the end has no objects.
    let synced = ClusterEvent::Volumes(VolumeEvent::Synced(Vec::new()));
    assert_eq!(events.recv().await, Some(synced));
    assert_eq!(events.recv().await, None);
}
