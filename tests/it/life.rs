//! The scenarios against the stand-in, and what only its journal shows.

use std::fs;

use crate::scenarios::{adoption, tests_of_scenarios};
use crate::support::apiserver::{Action, Fault, Verb};
use crate::support::daemon::Daemon;
use crate::support::disks::Mounted;
use crate::support::site::{Site, World, name_of};

tests_of_scenarios!(World::stand_in());

#[tokio::test]
async fn a_reclaimed_volume_is_deleted_once_and_offered_without_a_retry() {
    const ROUNDS: usize = 30;
    let world = World::stand_in();
    let site = Site::new(&world).await;
    let fast = site.class("fast", "").await;
    let _daemon = Daemon::start(site.setup());
    let point = fast.dir.join("vol1");
    fs::create_dir(&point).expect("the directory is ours");
    let _disk = Mounted::tmpfs_of(&point, "1m");
    let mut pv = site.until_phase(&fast, "vol1", "Available").await;
    for _ in 0..ROUNDS {
        site.bind(&pv).await;
        site.unclaim(&pv).await;
        pv = site.until_offered_again(&fast, "vol1", &pv).await;
    }
    let server = world.server().expect("it is the stand-in");
    let deletes = server.requests_matching(|request| {
        request.method == "DELETE" && request.path.ends_with(name_of(&pv))
    });
    assert_eq!(deletes.len(), ROUNDS);
    let refusals: Vec<_> = server
        .events()
        .into_iter()
        .filter(|event| event["reason"] == "PvGone")
        .collect();
    assert!(refusals.is_empty(), "{refusals:?}");
}

#[test]
fn upstreams_rights_are_enough_to_start_with() {
    crate::scenarios::run(async || {
        let world = World::stand_in();
        let site = Site::new(&world).await;
        let server = world.server().expect("it is the stand-in");
        let access = world.access().await;
        let refuse = || Fault::new(Action::Refuse(403));
        let volumes = server.inject(refuse().method("PATCH").path("/api/v1/persistentvolumes"));
        let nodes = [Verb::List, Verb::Watch]
            .map(|verb| server.inject(refuse().verb(verb).path("/api/v1/nodes")));
        let grant = async || {
            server.lift(volumes);
            nodes.into_iter().for_each(|fault| server.lift(fault));
        };
        let scenario =
            adoption::with_upstreams_rights_it_offers_and_waits_for_more(&site, access, grant);
        Box::pin(scenario).await;
    });
}
