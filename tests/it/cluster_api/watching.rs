//! The watch over PersistentVolumes, mostly of a server that has no streaming lists; those are in
//! `streaming`.

use std::time::Duration;

use provisor::cluster::{ClusterEvent, VolumeEvent};
use provisor::serve::WatchKind;
use serde_json::json;

use super::{LIMIT, Watch, own_pv};
use crate::support::apiserver::{Action, ApiServer, Fault, Request, Verb, local_pv};

pub(super) const PVS: &str = "persistentvolumes";

/// A server without streaming lists.
fn old_server() -> ApiServer {
    let server = ApiServer::start();
    server.inject(Fault::new(Action::NoStreamingLists));
    server
}

pub(super) fn lists(server: &ApiServer) -> Vec<Request> {
    server.requests_matching(|r| r.verb == Verb::List)
}

fn watches(server: &ApiServer) -> Vec<Request> {
    server.requests_matching(|r| r.verb == Verb::Watch && !r.query.contains("sendInitialEvents"))
}

pub(super) async fn watch_is_open(server: &ApiServer) {
    let open = server.until(LIMIT, |s| (s.open_watches() > 0).then_some(()));
    open.await.expect("the watch opens");
}

#[tokio::test]
async fn only_the_nodes_own_volumes_are_asked_for_in_pages() {
    let server = old_server();
    server.put(local_pv("foreign", "n2", "fast"));
    for i in 0..120 {
        server.put(own_pv(&format!("pv-{i:03}")));
    }
    let mut watch = Watch::volumes(&server);
    assert_eq!(watch.synced().await.len(), 120);
    watch_is_open(&server).await;
    let lists = lists(&server);
    assert_eq!(lists.len(), 3, "{lists:?}");
    for request in lists.iter().chain(&watches(&server)) {
        assert_eq!(request.param("labelSelector"), "provisor.dev/node=n1");
        assert!(
            request.user_agent.starts_with("provisor/"),
            "{}",
            request.user_agent
        );
    }
}

#[tokio::test]
async fn changes_and_deletions_arrive() {
    let server = ApiServer::start();
    let mut watch = Watch::volumes(&server);
    assert!(watch.synced().await.is_empty());
    server.put(own_pv("a"));
    let pv = watch.applied("a").await;
    server.remove(PVS, "", "a");
    assert_eq!(watch.deleted().await, ("a".to_owned(), pv.uid));
}

#[tokio::test]
async fn a_volume_that_loses_the_label_is_out_of_sight() {
    let server = ApiServer::start();
    server.put(own_pv("a"));
    let mut watch = Watch::volumes(&server);
    assert_eq!(watch.synced().await, ["a"]);
    server.modify(PVS, "", "a", |pv| pv["metadata"]["labels"] = json!({}));
    assert_eq!(watch.deleted().await.0, "a");
}

#[tokio::test]
async fn a_dropped_stream_is_taken_up_where_it_ended() {
    let server = old_server();
    let mut watch = Watch::volumes(&server);
    watch.synced().await;
    for name in ["a", "b", "c"] {
        watch_is_open(&server).await;
        server.drop_watches();
        server.put(own_pv(name));
        watch.applied(name).await;
    }
    assert_eq!(lists(&server).len(), 1, "no second list");
}

#[tokio::test]
async fn after_410_everything_is_listed_again() {
    let server = old_server();
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
}

#[tokio::test]
async fn a_list_whose_pages_expire_is_taken_in_one() {
    let server = old_server();
    for i in 0..60 {
        server.put(own_pv(&format!("pv-{i:03}")));
    }
    server.inject(Fault::new(Action::Expire).verb(Verb::List).times(1));
    let mut watch = Watch::volumes(&server);
    let mut names = watch.synced().await;
    names.dedup();
    assert_eq!(names.len(), 60);
    assert_eq!(lists(&server).len(), 3);
}

#[tokio::test]
async fn the_time_to_wait_is_obeyed() {
    let server = old_server();
    server.inject(Fault::new(Action::Throttle(2)).verb(Verb::List).times(1));
    let mut watch = Watch::volumes(&server);
    watch.synced().await;
    let lists = lists(&server);
    let pause = lists[1].at - lists[0].at;
    assert!(pause >= Duration::from_secs(2), "{pause:?}");
}

#[tokio::test]
async fn every_kind_of_failure_passes() {
    let actions = [
        Action::Refuse(403),
        Action::Refuse(500),
        Action::Garbage,
        Action::Disconnect,
        Action::Truncate,
    ];
    // Side by side, because each waits for a backoff.
    futures::future::join_all(actions.map(recovers_from)).await;
}

async fn recovers_from(action: Action) {
    let server = old_server();
    server.put(own_pv("a"));
    server.inject(Fault::new(action.clone()).verb(Verb::List).times(1));
    server.inject(Fault::new(action.clone()).verb(Verb::Watch).times(1));
    let mut watch = Watch::volumes(&server);
    assert_eq!(watch.synced().await, ["a"], "{action:?}");
    server.put(own_pv("b"));
    watch.applied("b").await;
    let metrics = watch.metrics.render();
    let up = r#"provisor_watch_connected{kind="persistentvolumes"} 1"#;
    assert!(metrics.contains(up), "{action:?}");
}

#[tokio::test]
async fn a_list_that_hangs_ends_at_its_deadline() {
    let server = old_server();
    server.inject(Fault::new(Action::Hang).verb(Verb::List).times(1));
    let mut watch = Watch::volumes(&server);
    watch.synced().await;
    let lists = lists(&server);
    let pause = lists[1].at - lists[0].at;
    assert!(pause >= Duration::from_secs(10), "{pause:?}");
}

#[tokio::test]
async fn a_server_that_closes_every_stream_is_not_hammered() {
    let server = old_server();
    server.inject(Fault::new(Action::Disconnect).verb(Verb::Watch));
    let mut watch = Watch::volumes(&server);
    watch.synced().await;
    // Two failures take at least the floors and on average more than a second of backoff.
    let tried = server.until(LIMIT, |s| (watches(s).len() >= 3).then_some(()));
    tried.await.expect("it goes on trying");
    let times: Vec<_> = watches(&server).iter().map(|r| r.at).collect();
    assert!(
        times[2] - times[0] >= Duration::from_millis(100),
        "{times:?}"
    );
    server.lift_all();
    server.put(own_pv("a"));
    // By the watch, or by the list that is due after three failures.
    match watch.next_volumes().await {
        VolumeEvent::Applied(pv) => assert_eq!(pv.name, "a"),
        VolumeEvent::Synced(all) => assert_eq!(all.len(), 1),
        other @ VolumeEvent::Deleted { .. } => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn versions_that_are_always_too_old_do_not_make_it_list_without_pause() {
    let server = old_server();
    server.inject(Fault::new(Action::Expire).verb(Verb::Watch));
    let mut watch = Watch::volumes(&server);
    for _ in 0..5 {
        watch.synced().await;
    }
    let times: Vec<_> = lists(&server).iter().map(|r| r.at).collect();
    assert!(
        times[2] - times[0] >= Duration::from_millis(100),
        "{times:?}"
    );
}

#[tokio::test]
async fn a_version_that_the_server_refuses_for_ever_is_given_up() {
    let server = old_server();
    server.inject(Fault::new(Action::Refuse(500)).verb(Verb::Watch).times(3));
    let mut watch = Watch::volumes(&server);
    watch.synced().await;
    server.put(own_pv("a"));
    assert_eq!(watch.synced().await, ["a"]);
    let refused = server.requests_matching(|r| r.status == Some(500));
    assert_eq!(refused.len(), 3, "the next watch is from the new list");
}

#[tokio::test]
async fn trouble_is_told_once_and_so_is_its_end() {
    let server = old_server();
    server.inject(Fault::new(Action::Refuse(403)).verb(Verb::List).times(3));
    let mut watch = Watch::volumes(&server);
    let trouble = |event: ClusterEvent| match event {
        ClusterEvent::Watch { kind, error } => {
            assert_eq!(kind, WatchKind::PersistentVolumes);
            error.map(|e| e.reason())
        }
        other => panic!("not about trouble: {other:?}"),
    };
    assert_eq!(trouble(watch.any().await), Some("Forbidden"));
    assert!(matches!(watch.any().await, ClusterEvent::Volumes(_)));
    watch_is_open(&server).await;
    server.send_bookmarks();
    assert_eq!(trouble(watch.any().await), None);
}

#[tokio::test]
async fn an_object_that_cannot_be_decoded_hides_no_other() {
    let server = old_server();
    let broken = |name: &str| {
        let mut pv = own_pv(name);
        pv["spec"]["local"] = json!("not an object");
        pv
    };
    server.put(broken("broken"));
    server.put(own_pv("good"));
    let mut watch = Watch::volumes(&server);
    assert_eq!(watch.synced().await, ["good"]);
    watch_is_open(&server).await;
    server.put(broken("later"));
    server.put(own_pv("last"));
    watch.applied("last").await;
    server.remove(PVS, "", "broken");
    assert_eq!(watch.deleted().await.0, "broken");
    assert_eq!(watches(&server).len(), 1, "the stream went on");
}

#[tokio::test]
async fn cancelling_ends_the_watch() {
    let server = ApiServer::start();
    let mut watch = Watch::volumes(&server);
    watch.synced().await;
    watch_is_open(&server).await;
    drop(watch);
    let closed = server.until(LIMIT, |s| (s.open_watches() == 0).then_some(()));
    closed.await.expect("the connection is closed");
}
