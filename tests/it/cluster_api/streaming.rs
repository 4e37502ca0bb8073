//! The watch over PersistentVolumes that begins with all there is.

use std::time::Duration;

use provisor::cluster::{ClusterEvent, VolumeEvent};
use serde_json::json;

use super::watching::{PVS, lists, watch_is_open};
use super::{LIMIT, Watch, own_pv};
use crate::support::apiserver::{Action, ApiServer, Fault, Request, Verb, local_pv};

fn streams(server: &ApiServer) -> Vec<Request> {
    server.requests_matching(|r| r.query.contains("sendInitialEvents=true"))
}

#[tokio::test]
async fn one_request_brings_all_and_goes_on() {
    let server = ApiServer::start();
    server.put(local_pv("foreign", "n2", "fast"));
    for i in 0..120 {
        server.put(own_pv(&format!("pv-{i:03}")));
    }
    let mut watch = Watch::volumes(&server);
    assert_eq!(watch.synced().await.len(), 120);
    server.put(own_pv("new"));
    watch.applied("new").await;
    let asked = server.requests_matching(|r| r.path.ends_with(PVS));
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert_eq!(asked[0].param("labelSelector"), "provisor.dev/node=n1");
    assert_eq!(asked[0].param("resourceVersionMatch"), "NotOlderThan");
    assert_eq!(asked[0].param("resourceVersion"), "", "not from a cache");
}

#[tokio::test]
async fn a_dropped_stream_is_taken_up_where_it_ended() {
    let server = ApiServer::start();
    let mut watch = Watch::volumes(&server);
    watch.synced().await;
    for name in ["a", "b", "c"] {
        watch_is_open(&server).await;
        server.drop_watches();
        server.put(own_pv(name));
        watch.applied(name).await;
    }
    assert_eq!(streams(&server).len(), 1, "nothing was sent twice");
    assert_eq!(lists(&server).len(), 0);
}

#[tokio::test]
async fn a_server_that_refuses_is_listed_and_not_asked_again() {
    let server = ApiServer::start();
    server.put(own_pv("a"));
    server.inject(Fault::new(Action::NoStreamingLists));
    let mut watch = Watch::volumes(&server);
    assert_eq!(watch.synced().await, ["a"]);
    watch_is_open(&server).await;
    server.lift_all();
    server.inject(Fault::new(Action::Expire).verb(Verb::Watch).times(1));
    server.drop_watches();
    assert_eq!(watch.synced().await, ["a"]);
    let asked = server.requests();
    assert_eq!((streams(&server).len(), lists(&server).len()), (1, 2));
    let pause = lists(&server)[0].at - streams(&server)[0].at;
    assert!(pause < Duration::from_secs(1), "{pause:?} in {asked:?}");
}

#[tokio::test]
async fn a_bad_request_is_a_refusal_too() {
    let server = ApiServer::start();
    server.put(own_pv("a"));
    server.inject(Fault::new(Action::Refuse(400)).verb(Verb::Watch).times(1));
    let mut watch = Watch::volumes(&server);
    assert_eq!(watch.synced().await, ["a"]);
    assert_eq!((streams(&server).len(), lists(&server).len()), (1, 1));
}

#[tokio::test]
async fn after_410_everything_is_streamed_again() {
    let server = ApiServer::start();
    server.put(own_pv("gone"));
    server.put(own_pv("stays"));
    let mut watch = Watch::volumes(&server);
    watch.synced().await;
    watch_is_open(&server).await;
    server.inject(Fault::new(Action::Expire).verb(Verb::Watch).times(1));
    server.remove(PVS, "", "gone");
    server.drop_watches();
    loop {
        if let VolumeEvent::Synced(all) = watch.next_volumes().await {
            let names: Vec<_> = all.iter().map(|pv| pv.name.as_str()).collect();
            assert_eq!(names, ["stays"]);
            break;
        }
    }
    server.put(own_pv("new"));
    watch.applied("new").await;
    assert_eq!(lists(&server).len(), 0);
}

#[tokio::test]
async fn what_goes_wrong_before_the_end_applies_nothing() {
    let actions = [
        Action::Expire,
        Action::Refuse(403),
        Action::Refuse(500),
        Action::Garbage,
        Action::Disconnect,
        Action::Truncate,
    ];
    // Side by side, because each waits for a backoff.
    futures::future::join_all(actions.map(applies_nothing)).await;
}

async fn applies_nothing(action: Action) {
    let server = ApiServer::start();
    server.put(own_pv("a"));
    server.put(own_pv("b"));
    server.inject(Fault::new(action.clone()).verb(Verb::Watch).times(1));
    let mut watch = Watch::volumes(&server);
    // Trouble is told first, and then all at once.
    let first = watch.any().await;
    assert!(
        matches!(first, ClusterEvent::Watch { error: Some(_), .. }),
        "{action:?}: {first:?}"
    );
    let second = watch.any().await;
    assert!(
        matches!(second, ClusterEvent::Watch { error: None, .. }),
        "{action:?}: {second:?}"
    );
    assert_eq!(watch.synced().await, ["a", "b"], "{action:?}");
    assert_eq!(streams(&server).len(), 2, "{action:?}");
    assert_eq!(lists(&server).len(), 0, "{action:?}");
    server.put(own_pv("c"));
    watch.applied("c").await;
}

#[tokio::test]
async fn streams_that_never_come_to_their_end_are_given_up() {
    let server = ApiServer::start();
    server.put(own_pv("a"));
    let cut = Fault::new(Action::Truncate).verb(Verb::Watch).times(3);
    server.inject(cut);
    let mut watch = Watch::volumes(&server);
    assert_eq!(watch.synced().await, ["a"]);
    assert_eq!((streams(&server).len(), lists(&server).len()), (3, 1));
    server.put(own_pv("b"));
    watch.applied("b").await;
}

#[tokio::test]
async fn an_object_that_cannot_be_decoded_hides_no_other() {
    let server = ApiServer::start();
    let mut broken = own_pv("broken");
    broken["spec"]["local"] = json!("not an object");
    server.put(broken);
    server.put(own_pv("good"));
    let mut watch = Watch::volumes(&server);
    assert_eq!(watch.synced().await, ["good"]);
    server.remove(PVS, "", "broken");
    assert_eq!(watch.deleted().await.0, "broken");
}

#[tokio::test]
async fn a_server_that_hangs_is_left_at_the_deadline() {
    let server = ApiServer::start();
    server.inject(Fault::new(Action::Hang).verb(Verb::Watch).times(1));
    let mut watch = Watch::volumes(&server);
    watch.synced().await;
    let streams = streams(&server);
    let pause = streams[1].at - streams[0].at;
    assert!(
        pause >= Duration::from_secs(10) && pause < LIMIT,
        "{pause:?}"
    );
}
