//! The watch over StorageClasses: of the one that is configured, or of all, with the configured reported.
//!
//! A field selector names one object, so several classes would take a connection each, on the server
//! too and from each node. A class is about a kilobyte, a cluster has a handful, and they hardly ever
//! change: watching all of them by one connection costs less than a second connection.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DeserializeGuard;
use kube::{Api, Client};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::ClusterEvent;
use super::follow::{Change, Target, follow};
use crate::pv::{ClassFacts, Policy, thin_resource};
use crate::serve::{Metrics, WatchKind};
use crate::volume::ClassName;

const PAGE: u32 = 100;

/// A StorageClass with only the fields that we read.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct WireClass {
    #[serde(default)]
    metadata: ObjectMeta,
    reclaim_policy: Option<String>,
    #[serde(default)]
    mount_options: Option<Vec<String>>,
}

thin_resource!(WireClass, StorageClass);

fn keep(wire: WireClass) -> Result<(ClassName, ClassFacts), &'static str> {
    let name = wire.metadata.name.ok_or("it has no metadata.name")?;
    let facts = ClassFacts {
        policy: Policy::parse(wire.reclaim_policy.as_deref()),
        mount_options: wire.mount_options.unwrap_or_default(),
    };
    Ok((ClassName::new(name), facts))
}

/// Sends the facts of the StorageClasses in `names` until `cancel`: after each list, and whenever a
/// fact or `names` changed.
pub async fn watch_classes(
    client: Client,
    mut names: watch::Receiver<BTreeSet<ClassName>>,
    tx: mpsc::Sender<ClusterEvent>,
    metrics: Arc<Metrics>,
    cancel: CancellationToken,
) {
    let index = Mutex::new(Index::default());
    let index = || index.lock().unwrap_or_else(PoisonError::into_inner);
    let watched = async {
        loop {
            let names_now = names.clone();
            let selector = selector(&names.borrow_and_update());
            let target = Target {
                api: Api::<DeserializeGuard<WireClass>>::all(client.clone()),
                kind: WatchKind::StorageClasses,
                label_selector: None,
                field_selector: selector.clone(),
                page_size: PAGE,
            };
            let news = |change| {
                let mut index = index();
                index.apply(change);
                index.report(&names_now.borrow())
            };
            let watch = Box::pin(follow(target, Arc::clone(&metrics), keep, news, tx.clone()));
            let other_selector = async {
                while names.changed().await.is_ok() {
                    let now = names.borrow_and_update().clone();
                    if self::selector(&now) != selector {
                        return;
                    }
                    let report = index().report(&now);
                    if let Some(event) = report
                        && tx.send(event).await.is_err()
                    {
                        break;
                    }
                }
                // Nobody can change the names any more; the watch goes on with the last ones.
                std::future::pending::<()>().await;
            };
            tokio::select! {
                // Cancel-safe: the owner is gone.
                () = watch => return,
                // Cancel-safe: the next watch begins with all there is.
                () = other_selector => *index() = Index::default(),
            }
        }
    };
    cancel.run_until_cancelled(watched).await;
}

/// What is asked for of the server.
fn selector(names: &BTreeSet<ClassName>) -> Option<String> {
    let mut names = names.iter();
    match (names.next(), names.next()) {
        (Some(only), None) => Some(format!("metadata.name={only}")),
        _ => None,
    }
}

/// The StorageClasses that are watched, and what was last reported of them.
#[derive(Default)]
struct Index {
    all: Option<BTreeMap<ClassName, ClassFacts>>,
    reported: Option<BTreeMap<ClassName, ClassFacts>>,
}

impl Index {
    fn apply(&mut self, change: Change<(ClassName, ClassFacts)>) {
        match change {
            Change::Listed(all) => {
                self.all = Some(all.into_iter().collect());
                // A list is reported even if nothing changed: it says that we are in sync.
                self.reported = None;
            }
            Change::Applied((name, facts)) => {
                self.all.get_or_insert_default().insert(name, facts);
            }
            Change::Deleted { name, .. } => {
                self.all
                    .get_or_insert_default()
                    .remove(&ClassName::new(name));
            }
        }
    }

    /// The facts of the classes in `names`, if they are known and not reported yet.
    fn report(&mut self, names: &BTreeSet<ClassName>) -> Option<ClusterEvent> {
        let all = self.all.as_ref()?;
        let facts: BTreeMap<_, _> = names
            .iter()
            .filter_map(|name| Some((name.clone(), all.get(name)?.clone())))
            .collect();
        if self.reported.as_ref() == Some(&facts) {
            return None;
        }
        self.reported = Some(facts.clone());
        Some(ClusterEvent::Classes(facts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn class(name: &str, policy: Policy) -> (ClassName, ClassFacts) {
        let facts = ClassFacts {
            policy,
            mount_options: Vec::new(),
        };
        (ClassName::new(name), facts)
    }

    fn names(names: &[&str]) -> BTreeSet<ClassName> {
        names.iter().copied().map(ClassName::new).collect()
    }

    #[test]
    fn facts_are_read() {
        let wire = serde_json::from_value(json!({
            "metadata": {"name": "fast"}, "provisioner": "kubernetes.io/no-provisioner",
            "reclaimPolicy": "Retain", "mountOptions": ["noatime"]}))
        .unwrap();
        let (name, facts) = keep(wire).unwrap();
        assert_eq!((name.as_str(), facts.policy), ("fast", Policy::Retain));
        assert_eq!(facts.mount_options, ["noatime"]);
    }

    #[test]
    fn a_class_without_policy_is_delete() {
        let wire = serde_json::from_value(json!({"metadata": {"name": "fast"}})).unwrap();
        assert_eq!(keep(wire).unwrap().1.policy, Policy::Delete);
    }

    #[test]
    fn one_class_is_asked_for_by_its_name() {
        assert_eq!(selector(&names(&["a"])).as_deref(), Some("metadata.name=a"));
        assert_eq!(selector(&names(&["a", "b"])), None);
        assert_eq!(selector(&names(&[])), None);
    }

    /// How many classes are reported, if any report is made.
    fn reported(index: &mut Index, names: &BTreeSet<ClassName>) -> Option<usize> {
        match index.report(names)? {
            ClusterEvent::Classes(facts) => Some(facts.len()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_the_configured_are_reported_and_only_on_change() {
        let mut index = Index::default();
        let fast = names(&["fast"]);
        let none = reported(&mut index, &fast);
        assert_eq!(none, None, "nothing is known before a list");
        index.apply(Change::Listed(vec![class("other", Policy::Delete)]));
        assert_eq!(reported(&mut index, &fast), Some(0));
        index.apply(Change::Applied(class("third", Policy::Delete)));
        assert_eq!(reported(&mut index, &fast), None);
        index.apply(Change::Applied(class("fast", Policy::Delete)));
        let late = reported(&mut index, &fast);
        assert_eq!(late, Some(1), "it appeared late");
        index.apply(Change::Deleted {
            name: "fast".into(),
            uid: String::new(),
        });
        assert_eq!(reported(&mut index, &fast), Some(0));
        let other = reported(&mut index, &names(&["fast", "other"]));
        assert_eq!(other, Some(1), "the configuration changed");
    }
}
