//! `provisor adopt`: brings upstream's volumes into sight, once for a whole cluster.
//!
//! A node's daemon watches only the PersistentVolumes that carry its label; upstream's carry none. This
//! labels them and touches nothing else: record and finalizer are put on by the daemon, which sees
//! what the volume is. A volume that is not beyond doubt upstream's for one existing node is left
//! alone and said.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;

use anyhow::{Context, bail};

use crate::args::AdoptArgs;
use crate::cluster::{self, ApiError, Volumes};
use crate::pv::{NodeFacts, Pv, node_label};
use crate::serve::Metrics;

/// How upstream's provisioner names begin (contract PV-04).
const UPSTREAM: &str = "local-volume-provisioner-";

/// How often a volume that somebody else changes meanwhile is read again.
const CONFLICTS: usize = 5;

/// Labels and says what it did.
///
/// # Errors
/// No answer from the API server, or a volume that could not be labelled; the others are all the same.
pub async fn main(args: AdoptArgs) -> anyhow::Result<()> {
    let access = cluster::config()
        .await
        .context("can't find the API server")?;
    let client = cluster::client(access).context("can't set up the client")?;
    let metrics = Arc::new(Metrics::new(env!("CARGO_PKG_VERSION")));
    let nodes = cluster::list_nodes(&client, &metrics)
        .await
        .context("can't list the Nodes")?;
    let volumes = Volumes::new(client, metrics);
    let all = volumes
        .list(None)
        .await
        .context("can't list the PersistentVolumes")?;
    adopt(
        &volumes,
        &nodes,
        &all,
        args.dry_run,
        &mut io::stdout().lock(),
    )
    .await
}

/// What becomes of one volume.
#[derive(Debug, PartialEq, Eq)]
enum Verdict<'a> {
    /// Not upstream's.
    Foreign,
    /// It carries a label already.
    Done,
    /// It gets the label of this node.
    Label(&'a NodeFacts),
    /// It is upstream's, but whose is not certain.
    Doubtful(&'static str),
}

fn judge<'a>(pv: &Pv, by_host: &HashMap<&str, &'a NodeFacts>) -> Verdict<'a> {
    if !pv
        .provisioned_by
        .as_deref()
        .is_some_and(|by| by.starts_with(UPSTREAM))
    {
        return Verdict::Foreign;
    }
    if pv.node_label.is_some() {
        return Verdict::Done;
    }
    let [host] = pv.hostnames.as_slice() else {
        return Verdict::Doubtful("its affinity does not name exactly one host");
    };
    match by_host.get(host.as_str()) {
        None => Verdict::Doubtful("no Node has the hostname that its affinity names"),
        Some(node) if pv.is_upstreams(node) => Verdict::Label(node),
        Some(_) => Verdict::Doubtful("its provisioner's name is not that of its host's Node"),
    }
}

async fn adopt(
    volumes: &Volumes,
    nodes: &[NodeFacts],
    all: &[Pv],
    dry_run: bool,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let mut by_host: HashMap<&str, &NodeFacts> = HashMap::new();
    for node in nodes {
        if let Some(host) = &node.hostname {
            by_host.insert(host, node);
        }
    }
    let (mut labelled, mut done, mut doubtful, mut failed) = (0, 0, 0, 0);
    for (index, pv) in all.iter().enumerate() {
        let at = format!("[{}/{}] {}", index + 1, all.len(), pv.name);
        match judge(pv, &by_host) {
            Verdict::Foreign => {}
            Verdict::Done => done += 1,
            Verdict::Doubtful(why) => {
                doubtful += 1;
                writeln!(out, "{at}: left alone: {why}")?;
            }
            Verdict::Label(node) if dry_run => {
                labelled += 1;
                writeln!(out, "{at}: would be labelled for {}", node.name)?;
            }
            Verdict::Label(node) => match label(volumes, pv, node).await {
                Ok(()) => {
                    labelled += 1;
                    writeln!(out, "{at}: labelled for {}", node.name)?;
                }
                Err(error) => {
                    failed += 1;
                    writeln!(out, "{at}: failed: {error}")?;
                }
            },
        }
    }
    let would = if dry_run { "would be " } else { "" };
    writeln!(
        out,
        "{labelled} {would}labelled, {done} labelled before, {doubtful} left alone, {failed} failed"
    )?;
    if failed > 0 {
        bail!("{failed} volumes could not be labelled; run it again");
    }
    Ok(())
}

/// Labels one volume; if somebody changed it meanwhile, it is judged again as it is now.
async fn label(volumes: &Volumes, pv: &Pv, node: &NodeFacts) -> Result<(), ApiError> {
    let label = node_label(&node.name);
    let mut result = volumes.label(pv, &label).await;
    for _ in 0..CONFLICTS {
        let Err(ApiError::Conflict(_)) = result else {
            break;
        };
        match volumes.get(&pv.name).await? {
            Some(now) if now.uid == pv.uid && now.is_upstreams(node) => {
                result = volumes.label(&now, &label).await;
            }
            // Labelled, replaced or deleted by somebody: nothing is left to do.
            _ => return Ok(()),
        }
    }
    result.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pv::{Phase, Policy};
    use crate::volume::{ClassName, VolumeMode};
    use rstest::rstest;
    use std::collections::BTreeMap;

    const UID: &str = "0f3c7a9e-1b2d-4c5e-8f90-123456789abc";

    fn pv(provisioned_by: &str) -> Pv {
        Pv {
            name: "pv".into(),
            uid: "u".into(),
            resource_version: "1".into(),
            deleting: false,
            finalizers: vec![],
            node_label: None,
            provisioned_by: Some(provisioned_by.into()),
            class: ClassName::new("c"),
            path: Some("/mnt/c/d".into()),
            mode: VolumeMode::Filesystem,
            policy: Policy::Delete,
            capacity: "1Gi".into(),
            hostnames: vec!["h1".into()],
            phase: Phase::Bound,
            claim: None,
            identity: None,
            cleaning: None,
        }
    }

    fn word(pv: &Pv) -> &'static str {
        let node = |name: &str, host: &str| NodeFacts {
            name: name.into(),
            uid: UID.into(),
            hostname: Some(host.into()),
            labels: BTreeMap::new(),
            taints: None,
        };
        let nodes = [node("n", "h1"), node("n-2", "h2")];
        let by_host = nodes
            .iter()
            .map(|n| (n.hostname.as_deref().unwrap(), n))
            .collect();
        match judge(pv, &by_host) {
            Verdict::Foreign => "foreign",
            Verdict::Done => "done",
            Verdict::Label(node) => {
                assert_eq!(node.name, "n");
                "label"
            }
            Verdict::Doubtful(_) => "doubtful",
        }
    }

    #[rstest]
    #[case("local-volume-provisioner-n", "label")]
    #[case(
        "local-volume-provisioner-n-0f3c7a9e-1b2d-4c5e-8f90-123456789abc",
        "label"
    )]
    #[case::old_node_object(
        "local-volume-provisioner-n-aaaaaaaa-1b2d-4c5e-8f90-123456789abc",
        "label"
    )]
    #[case::other_node("local-volume-provisioner-n-2", "doubtful")]
    #[case::other_node("local-volume-provisioner-m", "doubtful")]
    #[case("rancher.io/local-path", "foreign")]
    fn pv_04_both_forms_of_the_name_are_known(#[case] by: &str, #[case] want: &str) {
        assert_eq!(word(&pv(by)), want);
    }

    #[test]
    fn what_is_not_beyond_doubt_is_left_alone() {
        let made = || pv("local-volume-provisioner-n");
        assert_eq!(
            word(&Pv {
                hostnames: vec![],
                ..made()
            }),
            "doubtful"
        );
        assert_eq!(
            word(&Pv {
                hostnames: vec!["h1".into(), "h2".into()],
                ..made()
            }),
            "doubtful"
        );
        assert_eq!(
            word(&Pv {
                hostnames: vec!["h9".into()],
                ..made()
            }),
            "doubtful"
        );
        assert_eq!(
            word(&Pv {
                path: None,
                ..made()
            }),
            "doubtful"
        );
        assert_eq!(
            word(&Pv {
                node_label: Some("n".into()),
                ..made()
            }),
            "done"
        );
    }
}
