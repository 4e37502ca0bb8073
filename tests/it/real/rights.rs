//! The daemon as a ServiceAccount with the rights of upstream's chart (contract RBAC-01 to RBAC-04).

use kube::config::AuthInfo;
use serde_json::{Value, json};

use super::cluster;
use crate::scenarios::{self, adoption};
use crate::support::site::Site;

/// Upstream's rules, and those that docs/migration.md adds.
fn role(name: &str, with_ours: bool) -> Value {
    let rule = |groups: &[&str], resource: &str, verbs: &[&str]| json!({"apiGroups": groups, "resources": [resource], "verbs": verbs});
    let mut rules = vec![
        rule(
            &[""],
            "persistentvolumes",
            &["get", "list", "watch", "create", "delete"],
        ),
        rule(
            &["storage.k8s.io"],
            "storageclasses",
            &["get", "list", "watch"],
        ),
        rule(&[""], "events", &["watch"]),
        rule(
            &["", "events.k8s.io"],
            "events",
            &["create", "update", "patch"],
        ),
        rule(&[""], "nodes", &["get", "update"]),
    ];
    if with_ours {
        rules.push(rule(&[""], "persistentvolumes", &["patch"]));
        rules.push(rule(&[""], "nodes", &["list", "watch"]));
    }
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": name}, "rules": rules,
    })
}

fn apply(site: &Site<'_>, object: &Value) {
    let file = site.root.path().join("object.json");
    std::fs::write(&file, object.to_string()).expect("the directory is ours");
    cluster::kubectl(&["apply", "-f", &file.display().to_string()]);
}

#[test]
fn upstreams_rights_are_enough_to_start_with() {
    scenarios::run(async || {
        let world = cluster::world();
        let site = Site::new(&world).await;
        let name = format!("upstream-{}", site.node);
        cluster::kubectl(&["-n", "default", "create", "serviceaccount", &name]);
        apply(&site, &role(&name, false));
        let account = format!("--serviceaccount=default:{name}");
        let role_of = format!("--clusterrole={name}");
        cluster::kubectl(&["create", "clusterrolebinding", &name, &role_of, &account]);
        let token = cluster::kubectl(&["-n", "default", "create", "token", &name]);
        let mut access = world.access().await;
        access.auth_info = AuthInfo {
            token: Some(token.trim().to_owned().into()),
            ..AuthInfo::default()
        };
        let grant = async || apply(&site, &role(&name, true));
        let scenario =
            adoption::with_upstreams_rights_it_offers_and_waits_for_more(&site, access, grant);
        Box::pin(scenario).await;
        for kind in ["clusterrolebinding", "clusterrole", "serviceaccount"] {
            cluster::kubectl(&["-n", "default", "delete", kind, &name]);
        }
        site.clean_up().await;
    });
}
