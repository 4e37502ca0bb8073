//! The documents by which generic clients such as kubectl find their way.

use serde_json::{Map, Value, json};

use super::resource::RESOURCES;

/// The document at `path`, or nothing.
pub(super) fn discovery(path: &str) -> Option<Value> {
    let mut groups: Vec<&str> = RESOURCES
        .iter()
        .map(|r| r.group)
        .filter(|g| !g.is_empty())
        .collect();
    groups.dedup();
    let version = |group: &str| json!({"groupVersion": format!("{group}/v1"), "version": "v1"});
    match path
        .trim_end_matches('/')
        .split('/')
        .skip(1)
        .collect::<Vec<_>>()
        .as_slice()
    {
        ["version"] => Some(json!({
            "major": "1", "minor": "37", "gitVersion": "v1.37.2", "platform": "linux/amd64",
        })),
        ["api"] => Some(json!({"kind": "APIVersions", "versions": ["v1"]})),
        ["apis"] => {
            let groups: Vec<_> = groups
                .iter()
                .map(|group| {
                    let version = version(group);
                    json!({"name": group, "versions": [version], "preferredVersion": version})
                })
                .collect();
            Some(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}))
        }
        ["openapi", "v3"] => {
            let path = |group: &str| match group {
                "" => "api/v1".to_owned(),
                group => format!("apis/{group}/v1"),
            };
            let paths: Map<String, Value> = std::iter::once("")
                .chain(groups.iter().copied())
                .map(path)
                .map(|path| {
                    (
                        path.clone(),
                        json!({"serverRelativeURL": format!("/openapi/v3/{path}")}),
                    )
                })
                .collect();
            Some(json!({"paths": paths}))
        }
        ["openapi", "v3", "api", "v1"] => Some(openapi("")),
        ["openapi", "v3", "apis", group, "v1"] if groups.contains(group) => Some(openapi(group)),
        ["api", "v1"] => Some(resource_list("", "v1")),
        ["apis", group, "v1"] if groups.contains(group) => {
            Some(resource_list(group, &format!("{group}/v1")))
        }
        _ => None,
    }
}

fn resource_list(group: &str, group_version: &str) -> Value {
    let verbs = json!([
        "create", "delete", "get", "list", "patch", "update", "watch"
    ]);
    let mut resources = Vec::new();
    for resource in RESOURCES.iter().filter(|resource| resource.group == group) {
        let entry = |name: &str, verbs: &Value| {
            json!({
                "name": name, "singularName": resource.kind.to_lowercase(),
                "namespaced": resource.is_namespaced, "kind": resource.kind, "verbs": verbs,
            })
        };
        let mut whole = entry(resource.plural, &verbs);
        whole["shortNames"] = json!([resource.short]);
        resources.push(whole);
        if resource.has_status {
            let name = format!("{}/status", resource.plural);
            resources.push(entry(&name, &json!(["get", "patch", "update"])));
        }
    }
    json!({
        "kind": "APIResourceList", "apiVersion": "v1",
        "groupVersion": group_version, "resources": resources,
    })
}

/// The little of an OpenAPI document that tells kubectl to leave the validation to the server.
fn openapi(group: &str) -> Value {
    let mut paths = Map::new();
    for resource in RESOURCES.iter().filter(|resource| resource.group == group) {
        let root = if group.is_empty() {
            "/api/v1".to_owned()
        } else {
            format!("/apis/{group}/v1")
        };
        let namespace = if resource.is_namespaced {
            "/namespaces/{namespace}"
        } else {
            ""
        };
        let kind = json!({"group": group, "version": "v1", "kind": resource.kind});
        let parameter =
            json!({"name": "fieldValidation", "in": "query", "schema": {"type": "string"}});
        let patch = json!({
            "patch": {
                "parameters": [parameter], "responses": {}, "x-kubernetes-group-version-kind": kind,
            },
        });
        paths.insert(
            format!("{root}{namespace}/{}/{{name}}", resource.plural),
            patch,
        );
    }
    json!({"openapi": "3.0.0", "info": {"title": "stand-in", "version": "v1.37.2"}, "paths": paths})
}
