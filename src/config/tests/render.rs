//! A configuration written out again as the keys and values that give it.

use serde_json::{Value, json};

use super::*;

/// Each value is JSON, which YAML contains: everything is quoted and nothing is coerced.
pub(super) fn render(config: &Config) -> BTreeMap<String, String> {
    let classes: BTreeMap<_, _> = config
        .classes
        .iter()
        .map(|(name, class)| (name.as_str(), class_of(class)))
        .collect();
    let tolerations: Vec<_> = config.job_tolerations.iter().map(toleration).collect();
    let mut values = BTreeMap::from([
        ("storageClassMap".to_owned(), json!(classes)),
        ("nodeLabelsForPV".to_owned(), json!(config.node_labels)),
        ("labelsForPV".to_owned(), json!(config.labels)),
        ("useAlphaAPI".to_owned(), json!(config.use_alpha_api)),
        (
            "useJobForCleaning".to_owned(),
            json!(config.use_job_for_cleaning),
        ),
        ("jobTolerations".to_owned(), json!(tolerations)),
        (
            "useNodeNameOnly".to_owned(),
            json!(config.use_node_name_only),
        ),
        ("setPVOwnerRef".to_owned(), json!(config.set_pv_owner_ref)),
        (
            "removeNodeNotReadyTaint".to_owned(),
            json!(config.remove_not_ready_taint),
        ),
        (
            "provisionerNotReadyNodeTaintKey".to_owned(),
            json!(config.not_ready_taint_key),
        ),
        ("whenClassGone".to_owned(), json!(action(config.class_gone))),
        (
            "withdrawClassAfter".to_owned(),
            json!(after(config.class_gone)),
        ),
    ]);
    if let Some(period) = config.min_resync_period {
        values.insert("minResyncPeriod".to_owned(), json!(period.to_string()));
    }
    values
        .into_iter()
        .map(|(key, value)| (key, ascii(&value.to_string())))
        .collect()
}

/// JSON without the characters that YAML wants escaped.
fn ascii(json: &str) -> String {
    let mut text = String::new();
    for c in json.chars() {
        if matches!(c, ' '..='~') {
            text.push(c);
        } else {
            c.encode_utf16(&mut [0; 2])
                .iter()
                .for_each(|unit| text.push_str(&format!("\\u{unit:04x}")));
        }
    }
    text
}

fn class_of(class: &Class) -> Value {
    let command = match &class.cleaner {
        Cleaner::Zero => vec!["/scripts/quick_reset.sh".to_owned()],
        Cleaner::Overwrite { passes } => vec!["/scripts/shred.sh".to_owned(), passes.to_string()],
        Cleaner::Command(words) => words.clone(),
    };
    let terms: Vec<_> = class.selector.iter().map(term).collect();
    json!({
        "hostDir": class.host_dir,
        "mountDir": class.mount_dir,
        "volumeMode": class.volume_mode.as_str(),
        "accessMode": class.access_mode,
        "fsType": class.fs_type,
        "namePattern": class.pattern.to_string(),
        "blockCleanerCommand": command,
        "selector": terms,
        "requireEmpty": class.require_empty,
        "whenGone": action(class.gone),
        "withdrawAfter": after(class.gone),
    })
}

fn action(policy: GonePolicy) -> &'static str {
    match policy.action {
        WhenGone::Keep => "keep",
        WhenGone::Withdraw => "withdraw",
    }
}

fn after(policy: GonePolicy) -> String {
    format!("{}s", policy.after.as_secs())
}

fn term(term: &SelectorTerm) -> Value {
    let spelled = |all: &[Requirement]| {
        let each = all.iter().map(|requirement| {
            json!({
                "key": requirement.key,
                "operator": requirement.operator.as_str(),
                "values": requirement.values,
            })
        });
        each.collect::<Vec<_>>()
    };
    json!({"matchExpressions": spelled(&term.expressions), "matchFields": spelled(&term.fields)})
}

fn toleration(toleration: &Toleration) -> Value {
    json!({
        "key": toleration.key,
        "operator": toleration.operator,
        "value": toleration.value,
        "effect": toleration.effect,
        "tolerationSeconds": toleration.toleration_seconds,
    })
}
