//! What the scenarios share: raw calls, names of their own, and waiting.

use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::future::BoxFuture;
use http::Request;
use kube::Client;
use kube::core::Status;
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::support::apiserver::local_pv;

/// A scenario takes a client, leaves nothing behind, and panics when something is wrong.
pub(super) type Scenario = fn(Client) -> BoxFuture<'static, ()>;

/// The real namespace controller takes ten seconds.
pub(super) const LIMIT: Duration = Duration::from_secs(30);

pub(super) const PVS: &str = "/api/v1/persistentvolumes";
pub(super) const PVCS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
pub(super) const NODES: &str = "/api/v1/nodes";
pub(super) const NAMESPACES: &str = "/api/v1/namespaces";
pub(super) const EVENTS: &str = "/api/v1/namespaces/default/events";
pub(super) const NEWER_EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";
pub(super) const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";

pub(super) const MERGE: &str = "application/merge-patch+json";
pub(super) const JSON_PATCH: &str = "application/json-patch+json";
pub(super) const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub(super) const APPLY: &str = "application/apply-patch+yaml";

/// A name that no other run uses.
pub(super) fn unique(prefix: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let time = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_millis();
    format!("{prefix}-{time:x}-{:x}-{number}", std::process::id())
}

/// A volume of a class of its own, with a label that selects it.
pub(super) fn volume(prefix: &str) -> (String, Value) {
    let name = unique(prefix);
    let mut pv = local_pv(&name, "node-a", &name);
    pv["metadata"]["labels"] = json!({"scenario": name});
    (name, pv)
}

/// A claim for a volume.
pub(super) fn claim_for(pv: &str) -> Value {
    json!({
        "metadata": {"name": pv},
        "spec": {
            "storageClassName": pv, "volumeName": pv, "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    })
}

/// One request; the answer's body, or the `Status` of the refusal.
pub(super) async fn send(
    client: &Client,
    method: &str,
    uri: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Result<Value, Status> {
    let mut request = Request::builder().method(method).uri(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    match client
        .request::<Value>(request.body(body.to_vec()).unwrap())
        .await
    {
        Ok(value) => Ok(value),
        Err(kube::Error::Api(status)) => Err(*status),
        Err(error) => panic!("{method} {uri}: {error:?}"),
    }
}

pub(super) async fn get(client: &Client, uri: &str) -> Result<Value, Status> {
    send(client, "GET", uri, &[], b"").await
}

pub(super) async fn post(client: &Client, uri: &str, body: &Value) -> Result<Value, Status> {
    let headers = [("content-type", "application/json")];
    send(client, "POST", uri, &headers, body.to_string().as_bytes()).await
}

pub(super) async fn put(client: &Client, uri: &str, body: &Value) -> Result<Value, Status> {
    let headers = [("content-type", "application/json")];
    send(client, "PUT", uri, &headers, body.to_string().as_bytes()).await
}

pub(super) async fn patch(
    client: &Client,
    uri: &str,
    kind: &str,
    body: &Value,
) -> Result<Value, Status> {
    send(
        client,
        "PATCH",
        uri,
        &[("content-type", kind)],
        body.to_string().as_bytes(),
    )
    .await
}

pub(super) async fn delete(client: &Client, uri: &str, body: &Value) -> Result<Value, Status> {
    let headers = [("content-type", "application/json")];
    send(client, "DELETE", uri, &headers, body.to_string().as_bytes()).await
}

/// Creates a volume and waits until the controllers have taken note of it.
pub(super) async fn offer(client: &Client, pv: &Value) -> Value {
    let created = post(client, PVS, pv).await.unwrap();
    phase(
        client,
        created["metadata"]["name"].as_str().unwrap(),
        "Available",
    )
    .await
}

/// Waits for a phase of a volume; gives the volume.
pub(super) async fn phase(client: &Client, name: &str, wanted: &str) -> Value {
    let uri = format!("{PVS}/{name}");
    eventually(&format!("{name} is {wanted}"), || async {
        get(client, &uri)
            .await
            .ok()
            .filter(|pv| pv["status"]["phase"] == wanted)
    })
    .await
}

/// Waits until nothing is at `uri`.
pub(super) async fn gone(client: &Client, uri: &str) {
    eventually(&format!("{uri} is gone"), || async {
        get(client, uri).await.err().filter(Status::is_not_found)
    })
    .await;
}

/// Deletes what is at `uri`, takes its finalizers away, and waits until it is gone.
pub(super) async fn clear(client: &Client, uri: &str) {
    match delete(client, uri, &json!({})).await {
        Err(status) if !status.is_not_found() => panic!("{uri} can't be deleted: {status:?}"),
        _ => {}
    }
    let body = json!({"metadata": {"finalizers": null}});
    // It may be gone by now.
    let _ = patch(client, uri, MERGE, &body).await;
    gone(client, uri).await;
}

/// Polls until `probe` gives something.
pub(super) async fn eventually<T, F: Future<Output = Option<T>>>(
    what: &str,
    mut probe: impl FnMut() -> F,
) -> T {
    let mut ticks = interval(Duration::from_millis(20));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let found = async {
        loop {
            ticks.tick().await;
            if let Some(found) = probe().await {
                return found;
            }
        }
    };
    timeout(LIMIT, found)
        .await
        .unwrap_or_else(|_| panic!("not within {LIMIT:?}: {what}"))
}

/// Asserts that something was refused with that code and reason, and that the text mentions a word.
#[track_caller]
pub(super) fn refused(
    answer: Result<Value, Status>,
    code: u16,
    reason: &str,
    word: &str,
) -> Status {
    let status = answer.expect_err("it should have been refused");
    assert_eq!(
        (status.code, status.reason.as_str()),
        (code, reason),
        "{status:?}"
    );
    assert!(
        status.message.contains(word),
        "{word:?} is not in {:?}",
        status.message
    );
    status
}

/// A field as text.
pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}
