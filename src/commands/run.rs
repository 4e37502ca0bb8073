//! `provisor run`: the daemon of one node, and the composition root of the house.
//!
//! Tasks and threads, and what flows between them:
//! - watches of the API server and of our rights there (four tasks) send [`ClusterEvent`]s;
//! - `node::watch` (two threads) marks classes dirty;
//! - the reloader (two threads) sends each new configuration to the owner and to the
//!   watch over the kernel;
//! - the owner, one task, holds all state: it starts scans of dirty classes, asks `plan` for the
//!   steps and starts a worker for each step that is due;
//! - workers (a task each, with a thread while they touch disks) report back to the owner;
//! - the HTTP server and the Event sink only read what the owner publishes.
//!
//! The first SIGTERM stops intake and lets workers come to a safe point; the second ends at once.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use kube::Client;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use crate::args::RunArgs;
use crate::cluster::{self, ClusterEvent, EventSink, Nodes, Volumes};
use crate::config::{self, Config, Reloader};
use crate::node::inspect::Inspector;
use crate::node::kubelet::KubeletView;
use crate::node::selfcheck::{self, Lack};
use crate::node::watch::Dirt;
use crate::serve::{Metrics, Server};
use crate::volume::ClassName;

mod dirty;
mod gone;
mod kernel;
mod offering;
mod owner;
mod report;
mod retry;
mod witness;
mod work;

use dirty::Dirty;
use kernel::Kernel;
pub use owner::OFFERS_AT_ONCE;
use owner::Owner;
use report::Report;
use work::Tools;

/// How many events of the API server may wait for the owner; watches pause beyond it.
pub(super) const CLUSTER_QUEUE: usize = 256;

/// How long workers have to come to a safe point after the first SIGTERM. Below the 30 s that a Pod
/// has by default.
const DRAIN_LIMIT: Duration = Duration::from_secs(20);

/// How long the look at our own surroundings may take. It opens a few directories.
const SELFCHECK_LIMIT: Duration = Duration::from_secs(2);

/// What the daemon is told.
#[derive(Clone, Debug)]
pub struct Options {
    /// Directory with the mounted ConfigMap.
    pub config_dir: PathBuf,
    /// Name of the Node object.
    pub node_name: String,
    /// How the API server is reached.
    pub client: kube::Config,
    /// Address of the HTTP server; `None` for none.
    pub listen_address: Option<String>,
    /// Path of the metrics.
    pub metrics_path: String,
    /// The API server is asked for the first time after some random part of this.
    pub start_spread: Duration,
}

/// Runs until a signal says stop.
///
/// # Errors
/// What keeps the daemon from starting: no node name, no way to the API server, no configuration, a
/// taken port. Nothing that happens later ends it.
pub async fn main(args: RunArgs) -> anyhow::Result<()> {
    for flag in &args.idle_flags {
        warn!("{flag}");
    }
    let options = Options {
        config_dir: args.node.config_dir,
        node_name: node_name(args.node.node_name)?,
        client: cluster::config()
            .await
            .context("can't find the API server")?,
        listen_address: Some(args.listen_address).filter(|address| !address.is_empty()),
        metrics_path: args.metrics_path,
        start_spread: args.start_spread,
    };
    let mut signals = Signals::new()?;
    let stop = CancellationToken::new();
    let daemon = run(options, stop.clone());
    tokio::pin!(daemon);
    tokio::select! {
        result = &mut daemon => return result,
        name = signals.next() => info!(signal = name, "stopping; a second signal ends at once"),
    }
    stop.cancel();
    tokio::select! {
        result = daemon => result,
        name = signals.next() => {
            warn!(signal = name, "ending at once");
            Ok(())
        }
    }
}

/// The node's name, which upstream requires too (contract CFG-40).
pub(super) fn node_name(given: Option<String>) -> anyhow::Result<String> {
    match given.filter(|name| !name.is_empty()) {
        Some(name) => Ok(name),
        None => bail!("the node's name is not known: set MY_NODE_NAME from spec.nodeName"),
    }
}

/// The two signals that ask a process to stop.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("can't listen for signals");
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) -> &'static str {
        // Both are cancel-safe: a signal that is not taken here is taken by the next call.
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

/// Runs the daemon until `stop`, and then until its workers are at a safe point.
///
/// # Errors
/// As [`main`].
pub async fn run(options: Options, stop: CancellationToken) -> anyhow::Result<()> {
    let config = Arc::new(config::load(&options.config_dir)?);
    say(&config, &options);
    let metrics = Arc::new(Metrics::new(env!("CARGO_PKG_VERSION")));
    let client = cluster::client(options.client.clone()).context("can't set up the client")?;

    let tasks = TaskTracker::new();
    let background = stop.child_token();
    let (events, publisher) =
        EventSink::new(client.clone(), &options.node_name, Arc::clone(&metrics));
    tasks.spawn(publisher.run(background.clone()));
    let volumes = Volumes::new(client.clone(), Arc::clone(&metrics));
    let nodes = Nodes::new(client.clone(), Arc::clone(&metrics));
    let (names, wanted) = watch::channel(config.classes.keys().cloned().collect());
    let (sender, cluster_events) = mpsc::channel(CLUSTER_QUEUE);
    let counts = Arc::clone(&metrics);
    let rights = cluster::watch_rights(client.clone(), sender.clone(), counts, background.clone());
    let node_name = options.node_name.as_str();
    let (new_configs, configs) = watch::channel(Arc::clone(&config));
    let watches = watch_cluster(
        &client,
        node_name,
        wanted,
        configs.clone(),
        sender,
        &metrics,
        &background,
    );
    let (cancel, start) = (background.clone(), cluster::some_of(options.start_spread));
    let cluster = async move {
        // Cancel-safe: a wait.
        if cancel
            .run_until_cancelled(tokio::time::sleep(start))
            .await
            .is_some()
        {
            tokio::join!(watches, rights);
        }
    };

    let dirty = Arc::new(Dirty::new(config.classes.keys().cloned()));
    let kernel = Kernel::start(&config, Arc::clone(&dirty)).context("can't watch the kernel")?;
    let sources = kernel.sources();
    tasks.spawn(kernel.run(configs.clone(), background.clone()));
    let reloader = Reloader::start(
        options.config_dir.clone(),
        Arc::clone(&config),
        move |config| {
            new_configs.send_replace(config);
        },
    )
    .context("can't follow the configuration")?;

    let mut report = Report::new(&options, &config, Arc::clone(&metrics), events, sources);
    report.lacking(&lacks(&config).await);
    if let Some(address) = &options.listen_address {
        let server = Server::bind(address)
            .await
            .with_context(|| format!("can't listen on {address}"))?;
        info!(address, "serving metrics, health and status");
        let state = report.serving(&options.metrics_path);
        tasks.spawn(server.serve(state, background.clone()));
    }
    let inspector = Inspector::telling(KubeletView::detect(options.node_name.as_str()), {
        let dirty = Arc::clone(&dirty);
        move |class| dirty.mark(Dirt::Class(class.clone()))
    });
    let tools = Tools {
        config: Arc::clone(&config),
        volumes,
        nodes,
        inspector: Arc::new(inspector),
        metrics,
    };
    tasks.close();
    let owner = Owner::new(tools, dirty, cluster_events, configs, names, report);
    let work = async {
        owner.run(stop, DRAIN_LIMIT).await;
        background.cancel();
    };
    tokio::join!(Box::pin(work), Box::pin(cluster));
    drop(reloader);
    // What is still open are idle watches and scrapes; they end on the cancelled token.
    let _ = tokio::time::timeout(Duration::from_secs(2), tasks.wait()).await;
    info!("stopped");
    Ok(())
}

/// The watches of the API server, as one future to drive until `cancel`.
pub(super) fn watch_cluster(
    client: &Client,
    node: &str,
    names: watch::Receiver<BTreeSet<ClassName>>,
    configs: watch::Receiver<Arc<Config>>,
    sender: mpsc::Sender<ClusterEvent>,
    metrics: &Arc<Metrics>,
    cancel: &CancellationToken,
) -> impl Future<Output = ()> + use<> {
    let (client, metrics, cancel) = (client.clone(), Arc::clone(metrics), cancel.clone());
    let node = node.to_owned();
    async move {
        let with = || (sender.clone(), Arc::clone(&metrics), cancel.clone());
        let (tx, counts, end) = with();
        let classes = cluster::watch_classes(client.clone(), names, tx, counts, end);
        let (tx, counts, end) = with();
        let volumes = cluster::watch_volumes(client.clone(), &node, tx, counts, end);
        let (tx, counts, end) = with();
        let this_node = cluster::watch_node(client.clone(), &node, configs, tx, counts, end);
        tokio::join!(classes, volumes, this_node);
    }
}

/// What this process lacks, as far as that can be found out in time: a directory on a dead network mount
/// hangs whoever opens it, so the look has a thread that can be left behind.
pub(super) async fn lacks(config: &Arc<Config>) -> Vec<Lack> {
    let (send, found) = oneshot::channel();
    let config = Arc::clone(config);
    let look = move || {
        // Nobody waits any more when it comes late.
        let _ = send.send(selfcheck::findings(config.classes.values()));
    };
    let spawned = std::thread::Builder::new()
        .name("selfcheck".into())
        .spawn(look);
    match (spawned, tokio::time::timeout(SELFCHECK_LIMIT, found).await) {
        (Ok(_), Ok(Ok(lacks))) => lacks,
        _ => {
            warn!("the look at our own surroundings does not come to its end; going on without");
            Vec::new()
        }
    }
}

fn say(config: &Config, options: &Options) {
    info!(
        version = env!("CARGO_PKG_VERSION"),
        node = options.node_name,
        classes = config.classes.len(),
        "starting"
    );
    for class in config.classes.values() {
        info!(
            class = %class.name,
            directory = %class.mount_dir.display(),
            mode = %class.volume_mode,
            "offering"
        );
    }
}
