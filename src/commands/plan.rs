//! `provisor plan`: the daemon's own steps, printed; nothing is done.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::run::{CLUSTER_QUEUE, lacks, node_name, watch_cluster};
use crate::args::{Output, PlanArgs};
use crate::cluster::{self, ClusterEvent, VolumeEvent};
use crate::config::{self, Config};
use crate::node::inspect::Inspector;
use crate::node::kubelet::KubeletView;
use crate::plan::{Step, View, plan};
use crate::pv::{ClassFacts, LABEL_HOSTNAME, NodeFacts, Policy, Pv};
use crate::serve::Metrics;
use crate::volume::{ClassName, Reason, Scan};

/// What is taken for the node's name when nobody says one and no API server is asked.
const OFFLINE_NODE: &str = "this-node";

/// How long the API server has to show all that a plan needs.
const ASK_LIMIT: Duration = Duration::from_secs(30);

/// Looks once and prints the steps.
///
/// # Errors
/// No configuration, or no answer from the API server.
pub async fn main(args: PlanArgs) -> anyhow::Result<()> {
    let config = Arc::new(config::load(&args.node.config_dir)?);
    for finding in &config.findings {
        writeln!(io::stderr(), "{finding}")?;
    }
    for lack in lacks(&config).await {
        writeln!(io::stderr(), "warning: {}: {lack}", Reason::NodeSetup)?;
    }
    let world = if args.offline {
        World::offline(args.node.node_name, &config)
    } else {
        World::ask(&node_name(args.node.node_name)?, &config).await?
    };
    let inspector = Inspector::new(KubeletView::detect(world.name.as_str()));
    let mut scans: BTreeMap<ClassName, Scan> = BTreeMap::new();
    for class in config.classes.values() {
        scans.insert(class.name.clone(), inspector.scan(class).await);
    }
    let steps = plan(&View {
        config: &config,
        node: world.node.as_ref(),
        classes: &world.classes,
        scans: &scans,
        volumes: &world.volumes,
        // A single look can't tell.
        gone: &BTreeMap::new(),
        taken: &BTreeSet::new(),
        offering: &BTreeMap::new(),
        untainted: None,
    });
    print(&steps, args.output)
}

/// The API server's side of the view.
struct World {
    name: String,
    node: Option<NodeFacts>,
    classes: BTreeMap<ClassName, ClassFacts>,
    volumes: BTreeMap<String, Pv>,
}

impl World {
    /// A node that has everything it needs and no volume yet.
    fn offline(name: Option<String>, config: &Config) -> Self {
        let name = name
            .filter(|name| !name.is_empty())
            .unwrap_or_else(|| OFFLINE_NODE.to_owned());
        let labels = BTreeMap::from([(LABEL_HOSTNAME.to_owned(), name.clone())]);
        let node = NodeFacts {
            name: name.clone(),
            uid: String::new(),
            hostname: Some(name.clone()),
            labels,
            taints: None,
        };
        let facts = ClassFacts {
            policy: Policy::Delete,
            mount_options: Vec::new(),
        };
        Self {
            name,
            node: Some(node),
            classes: config
                .classes
                .keys()
                .map(|class| (class.clone(), facts.clone()))
                .collect(),
            volumes: BTreeMap::new(),
        }
    }

    /// Reads once what the daemon watches, by the same watches: each is over with its first word.
    async fn ask(name: &str, config: &Arc<Config>) -> anyhow::Result<Self> {
        let access = cluster::config()
            .await
            .context("can't find the API server")?;
        let client = cluster::client(access).context("can't set up the client")?;
        let cancel = CancellationToken::new();
        let metrics = Arc::new(Metrics::new(env!("CARGO_PKG_VERSION")));
        // Neither changes while this runs; their senders may go.
        let (_, names) = watch::channel(config.classes.keys().cloned().collect());
        let (_, configs) = watch::channel(Arc::clone(config));
        let (sender, mut events) = mpsc::channel(CLUSTER_QUEUE);
        let watches = watch_cluster(&client, name, names, configs, sender, &metrics, &cancel);
        let (mut node, mut classes, mut volumes) = (None, None, None);
        let read = async {
            while node.is_none() || classes.is_none() || volumes.is_none() {
                match events.recv().await {
                    Some(ClusterEvent::Node(facts)) => node = Some(facts),
                    Some(ClusterEvent::Classes(facts)) => classes = Some(facts),
                    Some(ClusterEvent::Volumes(VolumeEvent::Synced(list))) => volumes = Some(list),
                    Some(_) => {}
                    None => break,
                }
            }
            cancel.cancel();
        };
        let read = async { tokio::join!(read, watches) };
        if tokio::time::timeout(ASK_LIMIT, read).await.is_err() {
            bail!("no answer from the API server; --offline plans without it");
        }
        Ok(Self {
            name: name.to_owned(),
            node: node.flatten(),
            classes: classes.unwrap_or_default(),
            volumes: volumes
                .unwrap_or_default()
                .into_iter()
                .map(|pv| (pv.name.clone(), pv))
                .collect(),
        })
    }
}

fn print(steps: &[Step], output: Output) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match output {
        Output::Json => {
            serde_json::to_writer_pretty(&mut out, steps)?;
            writeln!(out)?;
        }
        Output::Text if steps.is_empty() => writeln!(out, "nothing to do: nothing was found")?,
        Output::Text => {
            for step in steps {
                writeln!(out, "{step}")?;
            }
        }
    }
    Ok(())
}
