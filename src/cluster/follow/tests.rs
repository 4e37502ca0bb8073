use std::convert::Infallible;
use std::sync::Mutex;

use futures::stream;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use kube::Client;
use kube::client::Body;
use serde_json::json;
use tower::service_fn;

use super::*;
use crate::cluster::VolumeEvent;
use crate::pv::{Pv, WirePv};

/// What a server was asked: the query, and when.
type Asked = Arc<Mutex<Vec<(String, Instant)>>>;

/// A server that lists nothing and whose watches say nothing.
fn mute_server(asked: &Asked) -> Client {
    let asked = Arc::clone(asked);
    let service = service_fn(move |request: Request<Body>| {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let is_watch = query.contains("watch=true");
        asked.lock().unwrap().push((query, Instant::now()));
        async move {
            let body = if is_watch {
                let never = stream::pending::<Result<Frame<Bytes>, Infallible>>();
                StreamBody::new(never).boxed()
            } else {
                let list = json!({"kind": "PersistentVolumeList", "apiVersion": "v1",
                    "metadata": {"resourceVersion": "5"}, "items": []});
                Full::new(Bytes::from(list.to_string())).boxed()
            };
            Ok::<_, Infallible>(Response::new(body))
        }
    });
    Client::new(service, "default")
}

#[tokio::test(start_paused = true)]
async fn after_silence_everything_is_listed_again() {
    let asked = Asked::default();
    let target = Target {
        api: Api::<DeserializeGuard<WirePv>>::all(mute_server(&asked)),
        kind: WatchKind::PersistentVolumes,
        label_selector: Some("a=b".into()),
        field_selector: None,
        page_size: 50,
    };
    let metrics = Arc::new(Metrics::new("test"));
    let (owner, mut events) = mpsc::channel(8);
    let news = |change| match change {
        Change::Listed(all) => Some(ClusterEvent::Volumes(VolumeEvent::Synced(all))),
        other => panic!("nothing changes: {other:?}"),
    };
    let following = follow(target, Arc::clone(&metrics), Pv::try_from, news, owner);
    let limit = SILENCE * 5 / 2;
    assert!(tokio::time::timeout(limit, following).await.is_err());

    let synced = ClusterEvent::Volumes(VolumeEvent::Synced(Vec::new()));
    for _ in 0..3 {
        assert_eq!(events.recv().await.as_ref(), Some(&synced));
    }
    assert_eq!(events.recv().await, None, "silence is no trouble");
    let asked = asked.lock().unwrap();
    assert_eq!(asked[4].1 - asked[0].1, SILENCE * 2);
    let (lists, watches): (Vec<_>, Vec<_>) = asked
        .iter()
        .map(|(query, _)| query)
        .partition(|query| query.contains("limit=50"));
    assert_eq!((lists.len(), watches.len()), (3, 3), "{asked:?}");
    assert!(lists[0].contains("labelSelector=a%3Db"));
    for query in watches {
        assert!(query.contains("resourceVersion=5"), "{query}");
        assert!(query.contains("allowWatchBookmarks=true"), "{query}");
        let (_, seconds) = query.split_once("timeoutSeconds=").unwrap();
        let digits: String = seconds.chars().take_while(char::is_ascii_digit).collect();
        assert!((300..=600).contains(&digits.parse().unwrap()), "{query}");
    }
}
