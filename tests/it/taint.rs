//! The Node's startup taint in bad weather, which only the stand-in can make.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::apiserver::{Action, ApiServer, Change, ChangeKind, Fault, Request, Verb};
use crate::support::daemon::Daemon;
use crate::support::disks::Mounted;
use crate::support::fuse::Mute;
use crate::support::site::{ClassDir, Site, World, until};

const KEY: &str = "example.com/agent-not-ready";
const NODES: &str = "/api/v1/nodes";
const PVS: &str = "/api/v1/persistentvolumes";

/// Runs a test with a class and a tainted node of its own on a stand-in.
fn run(test: impl AsyncFnOnce(&Site<'_>, &ClassDir, &ApiServer)) {
    let world = World::stand_in();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime can be made");
    runtime.block_on(async {
        let site = Site::without_node(&world).await;
        let fast = site.class("fast", "").await;
        site.write_key("removeNodeNotReadyTaint", "true");
        site.write_key("provisionerNotReadyNodeTaintKey", KEY);
        site.create_tainted_node(json!([taint("other"), taint(KEY)]))
            .await;
        test(&site, &fast, world.server().expect("it is the stand-in")).await;
    });
}

fn taint(key: &str) -> Value {
    json!({"key": key, "effect": "NoSchedule"})
}

fn mount(class: &ClassDir, entry: &str) -> Mounted {
    let point = class.dir.join(entry);
    fs::create_dir_all(&point).expect("the directory is ours");
    Mounted::tmpfs_of(&point, "1m")
}

/// Changes the taints as somebody else does.
fn edit(site: &Site<'_>, server: &ApiServer, change: impl FnOnce(&mut Vec<Value>)) {
    let edited = server.modify("nodes", "", &site.node, |node| {
        change(node["spec"]["taints"].as_array_mut().expect("it is a list"));
    });
    assert!(edited.is_some(), "the node is there");
}

async fn until_taints(site: &Site<'_>, wanted: &[&str]) {
    until(&format!("the taints are {wanted:?}"), async || {
        (site.taints().await == wanted).then_some(())
    })
    .await;
}

/// The right is missing.
fn refused(verb: Verb, path: &str) -> Fault {
    Fault::new(Action::Refuse(403)).verb(verb).path(path)
}

fn is_patch(request: &Request) -> bool {
    request.verb == Verb::Patch && request.path.starts_with(NODES)
}

fn is_create(request: &Request) -> bool {
    request.verb == Verb::Create && request.path == PVS
}

async fn until_patched(server: &ApiServer, times: usize) {
    until("the node is patched", async || {
        (server.requests_matching(is_patch).len() >= times).then_some(())
    })
    .await;
}

/// Events on the node with this reason.
fn said(server: &ApiServer, reason: &str) -> usize {
    let events = server.events();
    events
        .iter()
        .filter(|event| event["reason"] == reason)
        .count()
}

#[test]
fn the_taint_waits_for_offers_that_take_their_time() {
    run(async |site, fast, server| {
        let slow = Fault::new(Action::Delay(Duration::from_millis(500)));
        server.inject(slow.verb(Verb::Create).path(PVS));
        let _disks = ["vol1", "vol2"].map(|entry| mount(fast, entry));
        let _daemon = Daemon::start(site.setup());
        until_taints(site, &["other"]).await;
        let changes = server.changes();
        let of = |resource: &str, kind: ChangeKind| {
            let is_it = |change: &&Change| change.resource == resource && change.kind == kind;
            changes
                .iter()
                .filter(is_it)
                .map(|change| change.version)
                .max()
        };
        let (offered, untainted) = (
            of("persistentvolumes", ChangeKind::Added),
            of("nodes", ChangeKind::Modified),
        );
        assert!(offered < untainted, "{offered:?} {untainted:?}");
        assert_eq!(server.pvs().len(), 2);
        assert_eq!(server.requests_matching(is_patch).len(), 1);
    });
}

#[test]
fn the_taint_waits_neither_for_what_fails_nor_for_what_hangs() {
    run(async |site, fast, server| {
        server.inject(refused(Verb::Create, PVS));
        let _fails = mount(fast, "fails");
        let hung = fast.dir.join("hung");
        fs::create_dir(&hung).expect("the directory is ours");
        let _hung = Mute::mount(&hung);
        let _daemon = Daemon::start(site.setup());
        until_taints(site, &["other"]).await;
        let tried = server.requests_matching(is_create);
        let patched = server.requests_matching(is_patch);
        assert!(tried[0].at < patched[0].at && tried[0].status == Some(403));
        assert_eq!(server.pvs().len(), 0);
    });
}

#[test]
fn a_right_that_is_missing_is_named_until_it_is_there() {
    run(async |site, fast, server| {
        let fault = server.inject(refused(Verb::Patch, NODES));
        let _disk = mount(fast, "vol1");
        let daemon = Daemon::start(site.setup());
        let note = site.until_event(&site.node, "ApiRefused").await;
        for word in ["patch on nodes", KEY, "forbidden"] {
            assert!(note.contains(word), "{word} is not in {note}");
        }
        until("/status and /metrics show it", async || {
            let (_, status) = daemon.get("/status")?;
            let status: Value = serde_json::from_str(&status).ok()?;
            let (_, metrics) = daemon.get("/metrics")?;
            let line = "provisor_refusals{class=\"\",reason=\"ApiRefused\"} 1";
            (status["refusal"]["reason"] == "ApiRefused" && metrics.contains(line)).then_some(())
        })
        .await;
        // It is tried again, and not said again.
        until_patched(server, 3).await;
        assert_eq!(said(server, "ApiRefused"), 1);
        server.lift(fault);
        until_taints(site, &["other"]).await;
        until("/status has forgotten it", async || {
            let (_, status) = daemon.get("/status")?;
            (!status.contains("ApiRefused")).then_some(())
        })
        .await;
        site.until_event(&site.node, "TaintRemoved").await;
        daemon.stop().expect("it stops cleanly");
    });
}

/// While the patch is on its way, the taints are changed.
fn overtaken(change: impl FnOnce(&mut Vec<Value>), left: &[&str], patches: usize) {
    run(async |site, fast, server| {
        let slow = Fault::new(Action::Delay(Duration::from_secs(1))).verb(Verb::Patch);
        server.inject(slow.path(NODES).times(1));
        let _disk = mount(fast, "vol1");
        let daemon = Daemon::start(site.setup());
        until_patched(server, 1).await;
        edit(site, server, change);
        until_taints(site, left).await;
        site.until_event(&site.node, "TaintRemoved").await;
        assert_eq!(server.requests_matching(is_patch).len(), patches);
        assert_eq!(said(server, "ApiRefused"), 0);
        daemon.stop().expect("it stops cleanly");
    });
}

#[test]
fn a_conflict_leads_to_a_fresh_read_and_overwrites_nothing() {
    let change = |taints: &mut Vec<Value>| taints.insert(0, taint("new"));
    overtaken(change, &["new", "other"], 2);
}

#[test]
fn a_change_of_other_taints_is_no_conflict() {
    let change = |taints: &mut Vec<Value>| taints.push(taint("new"));
    overtaken(change, &["other", "new"], 1);
}

#[test]
fn a_taint_that_somebody_else_removed_is_asked_for_no_more() {
    let change = |taints: &mut Vec<Value>| drop(taints.pop());
    overtaken(change, &["other"], 1);
}

#[test]
fn a_removal_whose_answer_is_lost_is_done_once() {
    run(async |site, fast, server| {
        let lost = Fault::new(Action::LoseAnswer).verb(Verb::Patch);
        server.inject(lost.path(NODES).times(1));
        let _disk = mount(fast, "vol1");
        let daemon = Daemon::start(site.setup());
        site.until_event(&site.node, "TaintRemoved").await;
        assert_eq!(site.taints().await, ["other"]);
        edit(site, server, |taints| taints.push(taint(KEY)));
        // Another volume has its plan made after that.
        let _late = mount(fast, "vol2");
        site.until_phase(fast, "vol2", "Available").await;
        assert_eq!(site.taints().await, ["other", KEY]);
        assert_eq!(server.requests_matching(is_patch).len(), 1);
        daemon.stop().expect("it stops cleanly");
    });
}

#[test]
fn a_reload_turns_it_on_and_off() {
    run(async |site, fast, server| {
        site.write_key("removeNodeNotReadyTaint", "false");
        let fault = server.inject(refused(Verb::Patch, NODES));
        let _disk = mount(fast, "vol1");
        let daemon = Daemon::start(site.setup());
        site.until_phase(fast, "vol1", "Available").await;
        let is_whole = |request: &Request| {
            request.verb == Verb::Watch
                && request.path == NODES
                && !request.accept.contains("PartialObjectMetadata")
        };
        let switch = |on: &str| {
            let new = site.root.path().join("edited");
            fs::write(&new, on).expect("the directory is ours");
            let key = site.setup().config_dir.join("removeNodeNotReadyTaint");
            fs::rename(&new, key).expect("the directory is ours");
        };
        assert!(server.requests_matching(is_patch).is_empty());
        assert!(server.requests_matching(is_whole).is_empty());
        switch("true");
        site.until_event(&site.node, "ApiRefused").await;
        switch("false");
        until("it is refused no more", async || {
            let (_, status) = daemon.get("/status")?;
            (!status.contains("ApiRefused")).then_some(())
        })
        .await;
        server.lift(fault);
        assert_eq!(site.taints().await, ["other", KEY]);
        switch("true");
        until_taints(site, &["other"]).await;
        daemon.stop().expect("it stops cleanly");
    });
}
