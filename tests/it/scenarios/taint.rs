//! The Node's startup taint.

use std::fs;

use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::mount;
use crate::support::daemon::Daemon;
use crate::support::site::{Site, World, until};

const KEY: &str = "example.com/agent-not-ready";
const OTHER: &str = "example.com/other";

/// Two of the key, as a Node may have them, around one of somebody else's.
fn taints() -> Value {
    json!([
        {"key": KEY, "value": "yes", "effect": "NoSchedule"},
        {"key": OTHER, "effect": "NoSchedule"},
        {"key": KEY, "effect": "PreferNoSchedule"},
    ])
}

async fn until_untainted(site: &Site<'_>) {
    until("the startup taint is gone", async || {
        let taints = site.taints().await;
        (!taints.iter().any(|key| key == KEY)).then_some(())
    })
    .await;
}

/// How often the daemon has said that it is gone.
async fn times_said(site: &Site<'_>) -> usize {
    site.until_event(&site.node, "TaintRemoved").await;
    let events: Api<Event> = Api::namespaced(site.client.clone(), "default");
    let all = events.list(&ListParams::default()).await;
    let is_it = |event: &&Event| {
        event.involved_object.name.as_deref() == Some(&site.node)
            && event.reason.as_deref() == Some("TaintRemoved")
    };
    all.expect("events can be listed")
        .items
        .iter()
        .filter(is_it)
        .count()
}

pub(crate) async fn the_startup_taint_goes_once_when_everything_is_offered(world: &World) {
    let site = Site::without_node(world).await;
    let fast = site.class("fast", "").await;
    site.write_key("removeNodeNotReadyTaint", "true");
    site.write_key("provisionerNotReadyNodeTaintKey", KEY);
    site.write_key("nodeLabelsForPV", "[mark]");
    site.create_tainted_node(taints()).await;
    let entries = ["vol1", "vol2", "vol3"];
    let _disks = entries.map(|entry| mount(&fast, entry));
    // What is refused has no Pod to wait for.
    fs::create_dir(fast.dir.join("plain")).expect("the directory is ours");
    let _daemon = Daemon::start(site.setup());
    until_untainted(&site).await;
    for entry in entries {
        assert!(
            site.pv_at(&fast, entry).await.is_some(),
            "{entry} came later"
        );
    }
    assert!(site.taints().await.iter().any(|key| key == OTHER));

    // Whoever puts it back means it. The label tells when the daemon has heard of both.
    let node: Value =
        serde_json::to_value(site.nodes().get(&site.node).await.expect("it is there"))
            .expect("it is JSON");
    let mut back = node["spec"]["taints"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    back.push(json!({"key": KEY, "effect": "NoSchedule"}));
    let patch = json!({"metadata": {"labels": {"mark": "heard"}}, "spec": {"taints": back}});
    site.nodes()
        .patch(&site.node, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .expect("the node can be patched");
    let mut late = Vec::new();
    until("the daemon has heard of it", async || {
        let entry = format!("late{}", late.len());
        late.push(mount(&fast, &entry));
        let pv = site.until_phase(&fast, &entry, "Available").await;
        pv.metadata.labels?.contains_key("mark").then_some(())
    })
    .await;
    assert!(site.taints().await.iter().any(|key| key == KEY));
    assert_eq!(times_said(&site).await, 1);
    site.clean_up().await;
}

pub(crate) async fn a_node_that_is_registered_anew_loses_its_taint_again(world: &World) {
    let site = Site::without_node(world).await;
    let fast = site.class("fast", "").await;
    site.write_key("removeNodeNotReadyTaint", "true");
    site.write_key("provisionerNotReadyNodeTaintKey", KEY);
    site.create_tainted_node(taints()).await;
    let _disk = mount(&fast, "vol1");
    let _daemon = Daemon::start(site.setup());
    until_untainted(&site).await;
    site.nodes()
        .delete(&site.node, &DeleteParams::default())
        .await
        .expect("the node can be deleted");
    site.create_tainted_node(taints()).await;
    until_untainted(&site).await;
    assert!(site.taints().await.iter().any(|key| key == OTHER));
    site.clean_up().await;
}
