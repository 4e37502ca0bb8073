//! The handle of the stand-in: other processes, plain code, shut-down.

use std::net::TcpStream;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, PersistentVolume};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, ResourceExt};
use serde_json::json;
use tokio::time::timeout;

use super::scenario::{LIMIT, PVS, get, offer, post, text, volume};
use super::watches::watch;
use crate::support::apiserver::{ApiServer, Controllers, Verb, local_pv};

#[tokio::test]
async fn a_kubeconfig_leads_to_the_server() {
    let server = ApiServer::start();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kubeconfig");
    server.kubeconfig(&path).unwrap();
    let kubeconfig = Kubeconfig::read_from(&path).unwrap();
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .unwrap();
    let client = kube::Client::try_from(config).unwrap();
    let node: Node = serde_json::from_value(json!({"metadata": {"name": "node-a"}})).unwrap();
    let api: Api<Node> = Api::all(client.clone());
    let created = api
        .create(&kube::api::PostParams::default(), &node)
        .await
        .unwrap();
    assert_eq!(created.name_any(), "node-a");
    assert_eq!(client.apiserver_version().await.unwrap().minor, "37");
    let groups = client.list_api_groups().await.unwrap();
    assert!(
        groups
            .groups
            .iter()
            .any(|group| group.name == "storage.k8s.io")
    );
    let resources = client.list_core_api_resources("v1").await.unwrap();
    let pvs = resources
        .resources
        .iter()
        .find(|resource| resource.name == "persistentvolumes");
    assert_eq!(
        pvs.and_then(|pvs| pvs.short_names.clone()),
        Some(vec!["pv".to_owned()])
    );
    // kubectl reads these before it creates anything.
    let index = get(&client, "/openapi/v3").await.unwrap();
    let uri = text(&index, "/paths/api~1v1/serverRelativeURL");
    let document = get(&client, uri).await.unwrap();
    assert!(
        document["paths"]["/api/v1/persistentvolumes/{name}"].is_object(),
        "{document}"
    );
}

#[tokio::test]
async fn requests_are_recorded() {
    let server = ApiServer::start();
    let client = server.client();
    let (name, pv) = volume("journal");
    post(&client, &format!("{PVS}?fieldManager=me"), &pv)
        .await
        .unwrap();
    get(&client, &format!("{PVS}?labelSelector=a%3Db,c+in+(d)"))
        .await
        .unwrap();
    let [create] = &server.requests_matching(|request| request.verb == Verb::Create)[..] else {
        panic!("one creation, not {:?}", server.requests());
    };
    assert_eq!(
        (create.method.as_str(), create.path.as_str()),
        ("POST", PVS)
    );
    assert_eq!(
        (create.status, create.param("fieldManager").as_str()),
        (Some(201), "me")
    );
    assert_eq!(text(&create.body, "/metadata/name"), name);
    assert_eq!(create.content_type, "application/json");
    let list = server.requests().pop().unwrap();
    assert_eq!(
        (list.verb, list.param("labelSelector").as_str()),
        (Verb::List, "a=b,c in (d)")
    );
    assert!(list.at >= create.at && list.version > create.version);
    assert_eq!(list.accept, create.accept);
    assert_eq!(list.user_agent, create.user_agent);
}

#[test]
fn plain_code_moves_and_waits() {
    let server = ApiServer::start_with(Controllers::off());
    server.put(local_pv("pv-a", "node-a", "fast"));
    assert_eq!(server.phase("pv-a"), "Pending");
    server.set_phase("pv-a", "Failed");
    server.set_controllers(Controllers::on());
    assert_eq!(server.phase("pv-a"), "Available");
    let changed = server.modify("persistentvolumes", "", "pv-a", |pv| {
        pv["metadata"]["annotations"]["a"] = json!("b");
    });
    assert_eq!(text(&changed.unwrap(), "/metadata/annotations/a"), "b");
    let before = server.pv("pv-a").unwrap();
    let after = server.recreate("persistentvolumes", "", "pv-a").unwrap();
    assert_ne!(before["metadata"]["uid"], after["metadata"]["uid"]);
    assert_eq!(server.pvs().len(), 1);
    std::thread::scope(|scope| {
        scope.spawn(|| server.remove("persistentvolumes", "", "pv-a"));
        let gone = server.wait_until(LIMIT, |server| server.pv("pv-a").is_none().then_some(()));
        assert!(gone.is_some());
    });
    let never = server.wait_until(Duration::from_millis(10), |server| server.pv("pv-a"));
    assert_eq!(never, None);
    assert_eq!(server.events(), Vec::<serde_json::Value>::new());
    let changes = server.changes();
    assert!(changes.windows(2).all(|pair| pair[0].at <= pair[1].at));
    assert!(changes.len() > 4, "{changes:?}");
}

#[tokio::test]
async fn a_dropped_server_leaves_nothing() {
    let server = ApiServer::start();
    let client = server.client();
    let (_, pv) = volume("dropped");
    offer(&client, &pv).await;
    let mut events = watch(&client, "resourceVersion=1").await;
    let address = server.url().trim_start_matches("http://").to_owned();
    assert!(TcpStream::connect(&address).is_ok());
    drop(server);
    assert!(
        TcpStream::connect(&address).is_err(),
        "the port is still open"
    );
    // What was sent before, then an end.
    let drained = timeout(LIMIT, events.by_ref().count()).await;
    assert!(drained.is_ok(), "the watch hangs");
    let api: Api<PersistentVolume> = Api::all(client);
    assert!(api.get("any").await.is_err());
}
