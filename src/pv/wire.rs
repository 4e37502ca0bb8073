//! The thin PersistentVolume that is read from the API server.

use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{
    ANNOTATION_AFFINITY, ANNOTATION_CLEANING, ANNOTATION_IDENTITY, ANNOTATION_PROVISIONED_BY,
    Claim, LABEL_HOSTNAME, LABEL_NODE, Phase, Policy, Pv,
};
use crate::volume::ClassName;

/// Makes a type with a field `metadata` stand for an object of the API: the same address, but only the fields
/// that are read of it.
macro_rules! thin_resource {
    ($thin:ty, $whole:ty) => {
        impl kube::core::Resource for $thin {
            type DynamicType = ();
            type Scope = k8s_openapi::ClusterResourceScope;

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                <$whole as kube::core::Resource>::kind(&())
            }
            fn group((): &()) -> std::borrow::Cow<'_, str> {
                <$whole as kube::core::Resource>::group(&())
            }
            fn version((): &()) -> std::borrow::Cow<'_, str> {
                <$whole as kube::core::Resource>::version(&())
            }
            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                <$whole as kube::core::Resource>::plural(&())
            }
            fn meta(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.metadata
            }
            fn meta_mut(
                &mut self,
            ) -> &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}
pub(crate) use thin_resource;

/// A PersistentVolume with only the fields that we read, for `kube::Api` and watches.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct WirePv {
    /// Standard metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    capacity: Option<Capacity>,
    storage_class_name: Option<String>,
    volume_mode: Option<String>,
    persistent_volume_reclaim_policy: Option<String>,
    local: Option<Local>,
    claim_ref: Option<ClaimRef>,
    node_affinity: Option<Affinity>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Capacity {
    storage: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Local {
    path: String,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct ClaimRef {
    namespace: String,
    name: String,
    uid: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Affinity {
    /// The annotation of alpha mode has another name for it (contract PV-12).
    #[serde(alias = "requiredDuringSchedulingIgnoredDuringExecution")]
    required: Option<Selector>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct Selector {
    node_selector_terms: Vec<Term>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct Term {
    match_expressions: Vec<Requirement>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Requirement {
    key: String,
    operator: String,
    values: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Status {
    phase: Option<String>,
}

thin_resource!(WirePv, PersistentVolume);

/// An object that the API server should never have sent.
#[derive(Debug, Error)]
#[error("a PersistentVolume from the API server lacks {0}")]
pub struct MalformedPv(&'static str);

impl TryFrom<WirePv> for Pv {
    type Error = MalformedPv;

    fn try_from(wire: WirePv) -> Result<Self, MalformedPv> {
        let WirePv {
            metadata,
            spec,
            status,
        } = wire;
        let labels = metadata.labels.unwrap_or_default();
        let annotations = metadata.annotations.unwrap_or_default();
        let record = |key: &str| annotations.get(key);
        Ok(Self {
            name: metadata.name.ok_or(MalformedPv("metadata.name"))?,
            uid: metadata.uid.ok_or(MalformedPv("metadata.uid"))?,
            resource_version: metadata
                .resource_version
                .ok_or(MalformedPv("metadata.resourceVersion"))?,
            deleting: metadata.deletion_timestamp.is_some(),
            finalizers: metadata.finalizers.unwrap_or_default(),
            node_label: labels.get(LABEL_NODE).cloned(),
            provisioned_by: record(ANNOTATION_PROVISIONED_BY).cloned(),
            class: ClassName::new(spec.storage_class_name.unwrap_or_default()),
            path: spec.local.map(|local| local.path),
            mode: spec
                .volume_mode
                .and_then(|mode| mode.parse().ok())
                .unwrap_or_default(),
            policy: match spec.persistent_volume_reclaim_policy.as_deref() {
                // Unlike a StorageClass, a PersistentVolume without a policy is Retain.
                None => Policy::Retain,
                text => Policy::parse(text),
            },
            capacity: spec.capacity.and_then(|c| c.storage).unwrap_or_default(),
            hostnames: spec
                .node_affinity
                .or_else(|| {
                    record(ANNOTATION_AFFINITY).and_then(|text| serde_json::from_str(text).ok())
                })
                .map(hostnames)
                .unwrap_or_default(),
            phase: Phase::parse(status.phase.as_deref()),
            claim: spec.claim_ref.map(|claim| Claim {
                namespace: claim.namespace,
                name: claim.name,
                uid: claim.uid,
            }),
            identity: record(ANNOTATION_IDENTITY).and_then(|text| serde_json::from_str(text).ok()),
            cleaning: record(ANNOTATION_CLEANING).and_then(|text| serde_json::from_str(text).ok()),
        })
    }
}

/// The values that the first term of an affinity allows for the hostname label. That term is the node's
/// own; further ones come from a class's `selector` and say who else can reach the storage.
fn hostnames(affinity: Affinity) -> Vec<String> {
    let terms = affinity
        .required
        .map(|s| s.node_selector_terms)
        .unwrap_or_default();
    let mut names: Vec<String> = terms
        .into_iter()
        .take(1)
        .flat_map(|term| term.match_expressions)
        .filter(|r| r.key == LABEL_HOSTNAME && r.operator == "In")
        .flat_map(|r| r.values)
        .collect();
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object() -> serde_json::Value {
        json!({
            "metadata": {"name": "pv", "uid": "u", "resourceVersion": "7",
                "labels": {"provisor.dev/node": "n"},
                "annotations": {"provisor.dev/identity": "{not json"},
                "finalizers": ["kubernetes.io/pv-protection", "provisor.dev/reclaim"]},
            "spec": {"capacity": {"storage": "1Gi"}, "storageClassName": "c", "volumeMode": "Block",
                "persistentVolumeReclaimPolicy": "Delete", "local": {"path": "/mnt/c/d"},
                "claimRef": {"namespace": "ns", "name": "claim", "uid": "cu"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                    {"key": "kubernetes.io/hostname", "operator": "In", "values": ["h"]}]}]}}},
            "status": {"phase": "Released"}
        })
    }

    fn read(value: serde_json::Value) -> Result<Pv, MalformedPv> {
        serde_json::from_value::<WirePv>(value).unwrap().try_into()
    }

    #[test]
    fn reads_what_matters() {
        let pv = read(object()).unwrap();
        assert_eq!(
            (pv.name.as_str(), pv.phase, pv.policy),
            ("pv", Phase::Released, Policy::Delete)
        );
        assert_eq!(pv.hostnames, ["h"]);
        assert_eq!(pv.claim_uid(), Some("cu"));
        assert_eq!(pv.path.as_deref(), Some("/mnt/c/d"));
        assert!(pv.is_protected() && !pv.deleting);
        assert_eq!(pv.identity, None, "an unreadable record is no record");
    }

    #[test]
    fn an_object_without_uid_is_malformed() {
        let mut value = object();
        value["metadata"].as_object_mut().unwrap().remove("uid");
        assert!(read(value).is_err());
    }

    #[test]
    fn a_volume_without_policy_is_retained() {
        let mut value = object();
        value["spec"]
            .as_object_mut()
            .unwrap()
            .remove("persistentVolumeReclaimPolicy");
        assert_eq!(read(value).unwrap().policy, Policy::Retain);
    }

    #[test]
    fn a_cleaning_state_counts_only_for_its_own_release() {
        let mut pv = read(object()).unwrap();
        let state = |pv_uid: &str, claim_uid: &str| super::super::Cleaning {
            pv_uid: pv_uid.into(),
            claim_uid: Some(claim_uid.into()),
            state: super::super::CleaningState::Wiped,
            method: String::new(),
            done_bytes: 0,
        };
        for (cleaning, counts) in [
            (state("u", "cu"), true),
            (state("u", "other"), false),
            (state("other", "cu"), false),
        ] {
            pv.cleaning = Some(cleaning);
            assert_eq!(pv.current_cleaning().is_some(), counts);
        }
    }
}
