//! The PersistentVolume that is created for a volume (contract PV-01 to PV-19).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    LocalVolumeSource, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume,
    PersistentVolumeSpec, VolumeNodeAffinity,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    ANNOTATION_AFFINITY, ANNOTATION_IDENTITY, ANNOTATION_PROVISIONED_BY, FINALIZER, LABEL_HOSTNAME,
    LABEL_NODE, Policy, capacity, name, node_label, quantity,
};
use crate::config::{Class, Config, Requirement, SelectorTerm};
use crate::volume::{ClassName, EntryName, Identity, Medium, Volume, VolumeMode};

/// What the Node object says, as far as a PersistentVolume needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFacts {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// The label `kubernetes.io/hostname`; without it nothing can be offered.
    pub hostname: Option<String>,
    /// All labels, for `nodeLabelsForPV`.
    pub labels: BTreeMap<String, String>,
    /// `spec.taints` word for word and in its order, since a patch names each by its place; `None` when it
    /// was not asked for.
    pub taints: Option<Vec<Value>>,
}

impl NodeFacts {
    /// Whether a taint with `key` is on it, whatever its value and effect (contract TAINT-01); `None`
    /// when that is not known.
    pub fn has_taint(&self, key: &str) -> Option<bool> {
        let taints = self.taints.as_ref()?;
        Some(taints.iter().any(|taint| taint["key"] == key))
    }

    /// The value of `pv.kubernetes.io/provisioned-by` (contract PV-04).
    pub fn provisioner(&self, use_node_name_only: bool) -> String {
        if use_node_name_only {
            format!("local-volume-provisioner-{}", self.name)
        } else {
            format!("local-volume-provisioner-{}-{}", self.name, self.uid)
        }
    }

    /// Whether `provisioned_by` names upstream's provisioner on this node: with or without a UID, and
    /// with that of a Node object of the same name that is gone.
    pub fn is_provisioner(&self, provisioned_by: &str) -> bool {
        let plain = self.provisioner(true);
        match provisioned_by.strip_prefix(&plain) {
            Some("") => true,
            Some(rest) => rest.strip_prefix('-').is_some_and(is_uid),
            None => false,
        }
    }
}

/// Whether `text` has the form of an object's UID: five groups of hexadecimal digits.
fn is_uid(text: &str) -> bool {
    let lengths = text.split('-').map(str::len);
    lengths.eq([8, 4, 4, 4, 12]) && text.chars().all(|c| c.is_ascii_hexdigit() || c == '-')
}

/// What the StorageClass says, as far as a PersistentVolume needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassFacts {
    /// `reclaimPolicy`.
    pub policy: Policy,
    /// `mountOptions`.
    pub mount_options: Vec<String>,
}

/// A PersistentVolume to be created, before it is spelled out as an API object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Offer {
    /// `metadata.name`.
    pub pv: String,
    /// The class that offers it.
    pub class: ClassName,
    /// The entry that it stands for.
    pub entry: EntryName,
    /// What the entry is on disk.
    pub medium: Medium,
    /// `spec.volumeMode`.
    pub mode: VolumeMode,
    /// `spec.local.path`.
    pub path: String,
    /// Rounded size in bytes.
    pub capacity_bytes: u64,
    /// `spec.persistentVolumeReclaimPolicy`.
    pub policy: Policy,
    /// `spec.mountOptions`.
    pub mount_options: Vec<String>,
    /// The record.
    pub identity: Identity,
}

impl Offer {
    /// Decides every field that depends on the volume and its class.
    pub fn new(node: &NodeFacts, class: &Class, facts: &ClassFacts, volume: &Volume) -> Self {
        let mut mount_options = facts.mount_options.clone();
        for flag in &volume.mount_flags {
            if !mount_options.contains(flag) {
                mount_options.push(flag.clone());
            }
        }
        Self {
            pv: name(volume.entry.as_str(), &node.name, class.name.as_str()),
            class: class.name.clone(),
            entry: volume.entry.clone(),
            medium: volume.medium,
            mode: class.volume_mode,
            path: class.host_path(&volume.entry),
            capacity_bytes: capacity(volume.capacity_bytes),
            policy: facts.policy,
            mount_options,
            identity: volume.identity.clone(),
        }
    }
}

/// Spells an [`Offer`] out as the API object. `None` when the node has no hostname label or the class
/// is not in `config`, which planning has excluded.
pub fn manifest(offer: &Offer, node: &NodeFacts, config: &Config) -> Option<PersistentVolume> {
    let class = config.classes.get(&offer.class)?;
    let hostname = node.hostname.clone()?;
    let record = serde_json::to_string(&offer.identity).ok()?;

    let mut labels: BTreeMap<String, String> = config
        .node_labels
        .iter()
        .filter_map(|key| Some((key.clone(), node.labels.get(key)?.clone())))
        .collect();
    labels.extend(config.labels.clone());
    labels.insert(LABEL_NODE.to_owned(), node_label(&node.name));

    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: node.name.clone(),
        uid: node.uid.clone(),
        ..OwnerReference::default()
    };
    let selector = selector(hostname, &class.selector);
    let mut annotations = BTreeMap::from([
        (
            ANNOTATION_PROVISIONED_BY.to_owned(),
            node.provisioner(config.use_node_name_only),
        ),
        (ANNOTATION_IDENTITY.to_owned(), record),
    ]);
    let node_affinity = if config.use_alpha_api {
        let affinity = json!({"requiredDuringSchedulingIgnoredDuringExecution": selector});
        annotations.insert(ANNOTATION_AFFINITY.to_owned(), affinity.to_string());
        None
    } else {
        Some(VolumeNodeAffinity {
            required: Some(selector),
        })
    };
    Some(PersistentVolume {
        metadata: ObjectMeta {
            name: Some(offer.pv.clone()),
            labels: Some(labels),
            annotations: Some(annotations),
            finalizers: Some(vec![FINALIZER.to_owned()]),
            owner_references: config.set_pv_owner_ref.then(|| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeSpec {
            capacity: Some(BTreeMap::from([(
                "storage".to_owned(),
                Quantity(quantity(offer.capacity_bytes)),
            )])),
            access_modes: Some(vec![class.access_mode.clone()]),
            persistent_volume_reclaim_policy: Some(offer.policy.as_str().to_owned()),
            storage_class_name: Some(offer.class.to_string()),
            volume_mode: Some(offer.mode.as_str().to_owned()),
            mount_options: (!offer.mount_options.is_empty()).then(|| offer.mount_options.clone()),
            local: Some(LocalVolumeSource {
                path: offer.path.clone(),
                fs_type: class.fs_type.clone(),
            }),
            node_affinity,
            ..PersistentVolumeSpec::default()
        }),
        status: None,
    })
}

/// The node itself, or what any of the class's terms selects (contract PV-11).
fn selector(hostname: String, terms: &[SelectorTerm]) -> NodeSelector {
    let own = NodeSelectorTerm {
        match_expressions: Some(vec![NodeSelectorRequirement {
            key: LABEL_HOSTNAME.to_owned(),
            operator: "In".to_owned(),
            values: Some(vec![hostname]),
        }]),
        match_fields: None,
    };
    let requirements = |all: &[Requirement]| {
        let spelled = all.iter().map(|requirement| NodeSelectorRequirement {
            key: requirement.key.clone(),
            operator: requirement.operator.as_str().to_owned(),
            values: (!requirement.values.is_empty()).then(|| requirement.values.clone()),
        });
        (!all.is_empty()).then(|| spelled.collect())
    };
    let others = terms.iter().map(|term| NodeSelectorTerm {
        match_expressions: requirements(&term.expressions),
        match_fields: requirements(&term.fields),
    });
    NodeSelector {
        node_selector_terms: std::iter::once(own).chain(others).collect(),
    }
}

#[cfg(test)]
mod tests;
