//! When the startup taint is to go (contract TAINT-01).

use super::*;
use serde_json::json;

const KEY: &str = "example.com/agent-not-ready";

/// A world whose Node has these taints and whose configuration removes the one with [`KEY`].
fn tainted(taints: &[(&str, &str)]) -> World {
    let mut world = World::new();
    world.config.remove_not_ready_taint = true;
    world.config.not_ready_taint_key = Some(KEY.into());
    let taint = |(key, effect): &(&str, &str)| json!({"key": key, "effect": effect});
    world.node.taints = Some(taints.iter().map(taint).collect());
    world
}

fn untaint(uid: &str, key: &str) -> Untaint {
    Untaint {
        uid: uid.into(),
        key: key.into(),
    }
}

#[test]
fn it_is_the_last_step() {
    let world = tainted(&[("other", "NoSchedule"), (KEY, "NoExecute")]);
    let steps = world.plan();
    assert_eq!(words(&steps), ["offer", "untaint"]);
    assert_eq!(steps[1], Step::Untaint(untaint("nu", KEY)));
    let line = steps[1].to_string();
    assert!(
        line.starts_with("untaint  node") && line.contains(KEY),
        "{line}"
    );
}

#[rstest]
#[case::another_key(&[("other", "NoSchedule")])]
#[case::none(&[])]
fn a_node_without_it_is_left_alone(#[case] taints: &[(&str, &str)]) {
    assert_eq!(words(&tainted(taints).plan()), ["offer"]);
}

#[rstest]
#[case::switched_off(|world: &mut World| world.config.remove_not_ready_taint = false)]
#[case::without_a_key(|world: &mut World| world.config.not_ready_taint_key = None)]
#[case::not_asked_for(|world: &mut World| world.node.taints = None)]
#[case::done(|world: &mut World| world.untainted = Some(untaint("nu", KEY)))]
fn it_stays(#[case] change: fn(&mut World)) {
    let mut world = tainted(&[(KEY, "NoSchedule")]);
    change(&mut world);
    assert_eq!(words(&world.plan()), ["offer"]);
}

#[rstest]
#[case::a_node_that_was_registered_anew("old", KEY)]
#[case::another_key_in_the_configuration("nu", "other")]
fn what_was_done_before_does_not_count(#[case] uid: &str, #[case] key: &str) {
    let mut world = tainted(&[(KEY, "NoSchedule")]);
    world.untainted = Some(untaint(uid, key));
    assert_eq!(words(&world.plan()), ["offer", "untaint"]);
}

#[test]
fn it_waits_for_every_class_and_for_no_refusal() {
    let mut world = tainted(&[(KEY, "NoSchedule")]);
    let scan = world.scans.remove(&ClassName::new("fast"));
    assert_eq!(words(&world.plan()), [""; 0], "nothing was looked at");
    world
        .scans
        .extend(scan.map(|scan| (ClassName::new("fast"), scan)));
    world.scan(vec![refused("vol1", Reason::Hung)]);
    assert_eq!(words(&world.plan()), ["Hung", "untaint"]);
    world.classes.clear();
    assert_eq!(words(&world.plan()), ["StorageClassMissing", "untaint"]);
    world.config.classes.clear();
    assert_eq!(words(&world.plan()), [""; 0], "there is nothing to look at");
}
