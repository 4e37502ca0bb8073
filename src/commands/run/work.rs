//! The workers: one task for each step, from its first API call to its last.
//!
//! Each makes one attempt and reports; trying again is the owner's. Whatever can't be undone is
//! preceded by a live read and carries its UID and resource version as preconditions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::task::JoinSet;

use crate::clean::Progress;
use crate::cluster::{ApiError, Created, Nodes, Volumes};
use crate::config::Config;
use crate::node::inspect::Inspector;
use crate::plan::{Adopt, Step, Withdraw};
use crate::pv::{NodeFacts, Offer, Phase, Pv, manifest, name, node_label};
use crate::serve::Metrics;
use crate::volume::{Reason, Refusal};

mod reclaim;
mod untaint;

use reclaim::Reclaimer;

/// How often a write that conflicts with somebody else's is made again on a fresh read.
const CONFLICTS: usize = 5;

/// What all workers share. Each keeps the configuration that it began with.
#[derive(Clone)]
pub(super) struct Tools {
    pub(super) config: Arc<Config>,
    pub(super) volumes: Volumes,
    pub(super) nodes: Nodes,
    pub(super) inspector: Arc<Inspector>,
    pub(super) metrics: Arc<Metrics>,
}

/// A worker that runs.
#[derive(Debug)]
pub(super) enum Job {
    /// A single API call or two.
    Call,
    /// A reclaim, which can be stopped.
    Reclaim {
        uid: String,
        claim_uid: Option<String>,
        cancel: Arc<AtomicBool>,
        progress: Arc<Gauge>,
        since: Instant,
    },
}

/// How far a wipe is, for people.
#[derive(Debug, Default)]
pub(super) struct Gauge(std::sync::Mutex<Option<Progress>>);

impl Gauge {
    pub(super) fn get(&self) -> Option<Progress> {
        *self
            .0
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn set(&self, progress: Progress) {
        *self
            .0
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(progress);
    }
}

/// A worker's report.
#[derive(Debug)]
pub(super) struct Done {
    /// The PersistentVolume's name, or the Node's UID.
    pub(super) key: String,
    pub(super) outcome: Outcome,
}

/// How a step went.
#[derive(Debug)]
pub(super) enum Outcome {
    Published(Pv),
    Adopted(Pv),
    Reclaimed(Option<Wiped>),
    LetGo,
    Withdrawn(Withdraw),
    /// The taint is not on the Node any more, whoever took it off.
    Untainted,
    /// The name is somebody else's; the volume is offered under a longer one.
    Taken(Refusal),
    /// There was no answer to a creation, which may have been carried out.
    Unanswered(Refusal),
    Failed(Refusal),
}

/// What a proven wipe took.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Wiped {
    pub(super) method: String,
    pub(super) bytes: u64,
    pub(super) files: u64,
    pub(super) took: Duration,
}

/// Starts the worker for `step`; `None` when there is nothing to start.
pub(super) fn start(
    step: &Step,
    tools: &Arc<Tools>,
    node: &NodeFacts,
    volumes: &BTreeMap<String, Pv>,
    workers: &mut JoinSet<Done>,
) -> Option<Job> {
    let tools = Arc::clone(tools);
    let mut run = |key: &str, work: Work| {
        let key = key.to_owned();
        workers.spawn(async move {
            let outcome = work.await.unwrap_or_else(Outcome::Failed);
            Done { key, outcome }
        });
    };
    match step {
        Step::Offer(offer) => {
            run(
                &offer.pv,
                Box::pin(publish(tools, node.clone(), offer.clone())),
            );
            Some(Job::Call)
        }
        Step::Adopt(step) => {
            let pv = volumes.get(&step.pv)?.clone();
            run(
                &step.pv,
                Box::pin(adopt(tools, node.clone(), pv, step.clone())),
            );
            Some(Job::Call)
        }
        Step::LetGo(step) => {
            let pv = volumes.get(&step.pv)?.clone();
            run(&step.pv, Box::pin(let_go(tools, pv)));
            Some(Job::Call)
        }
        Step::Withdraw(step) => {
            let pv = volumes.get(&step.pv)?.clone();
            run(&step.pv, Box::pin(withdraw(tools, pv, step.clone())));
            Some(Job::Call)
        }
        Step::Untaint(step) => {
            run(
                &step.uid,
                Box::pin(untaint::untaint(tools, node.clone(), step.clone())),
            );
            Some(Job::Call)
        }
        Step::Reclaim(step) => {
            let class = tools.config.classes.get(&step.class)?.clone();
            let (cancel, progress) = (Arc::new(AtomicBool::new(false)), Arc::new(Gauge::default()));
            let job = Job::Reclaim {
                uid: step.uid.clone(),
                claim_uid: step.claim_uid.clone(),
                cancel: Arc::clone(&cancel),
                progress: Arc::clone(&progress),
                since: Instant::now(),
            };
            let node = node.clone();
            let worker = Reclaimer {
                tools,
                node,
                class,
                step: step.clone(),
                cancel,
                progress,
            };
            run(&step.pv, Box::pin(worker.run()));
            Some(job)
        }
        Step::Keep(_) | Step::Refuse(_) => None,
    }
}

type Work = std::pin::Pin<Box<dyn Future<Output = Result<Outcome, Refusal>> + Send>>;

/// Creates a PersistentVolume. A name that is taken already is looked at before it is refused: it may
/// be ours from a moment ago, or upstream's for this very entry.
async fn publish(tools: Arc<Tools>, node: NodeFacts, offer: Offer) -> Result<Outcome, Refusal> {
    let began = Instant::now();
    let Some(object) = manifest(&offer, &node, &tools.config) else {
        return Err(Refusal::new(
            Reason::NodeUnknown,
            "the node has no hostname label any more",
        ));
    };
    match tools.volumes.create(&object).await {
        Ok(Created::New(pv)) => {
            tools.metrics.discovered(offer.mode, began.elapsed());
            return Ok(Outcome::Published(*pv));
        }
        Ok(Created::Exists) => {}
        Err(error) if may_have_happened(&error) => {
            return Ok(Outcome::Unanswered(api("create", &offer.pv, &error)));
        }
        Err(error) => return Err(api("create", &offer.pv, &error)),
    }
    let existing = match tools.volumes.get(&offer.pv).await {
        // It may well be our own from an attempt without an answer.
        Err(error) => return Ok(Outcome::Unanswered(api("read", &offer.pv, &error))),
        Ok(existing) => existing,
    };
    let Some(pv) = existing else {
        return Err(Refusal::new(
            Reason::NameTaken,
            "its name was taken a moment ago; trying again",
        ));
    };
    let same_entry = pv.path.as_deref() == Some(offer.path.as_str()) && pv.class == offer.class;
    if same_entry && pv.is_own(&node) {
        return Ok(Outcome::Published(pv));
    }
    // A released one is not taken over: nothing says that this is the storage it was offered for.
    let free_or_used = matches!(pv.phase, Phase::Available | Phase::Bound | Phase::Pending);
    if same_entry && pv.is_upstreams(&node) && free_or_used && !pv.deleting {
        let label = node_label(&node.name);
        return match tools.volumes.adopt(&pv, &offer.identity, &label).await {
            Ok(pv) => Ok(Outcome::Adopted(pv)),
            Err(error) => Err(api("adopt", &pv.name, &error)),
        };
    }
    let refusal = Refusal::new(
        Reason::NameTaken,
        format!(
            "PersistentVolume {} exists and is not ours (provisioned by {:?}, path {:?})",
            pv.name,
            pv.provisioned_by.as_deref().unwrap_or("nobody"),
            pv.path.as_deref().unwrap_or(""),
        ),
    );
    let is_short = offer.pv == name(offer.entry.as_str(), &node.name, offer.class.as_str());
    match is_short {
        true => Ok(Outcome::Taken(refusal)),
        false => Err(refusal),
    }
}

/// Whether a call that failed may have had its effect.
fn may_have_happened(error: &ApiError) -> bool {
    match error {
        ApiError::Timeout(_) | ApiError::Unreachable(_) | ApiError::Unreadable(_) => true,
        ApiError::Other { code, .. } => *code >= 500,
        _ => false,
    }
}

async fn adopt(
    tools: Arc<Tools>,
    node: NodeFacts,
    pv: Pv,
    step: Adopt,
) -> Result<Outcome, Refusal> {
    let label = node_label(&node.name);
    match tools.volumes.adopt(&pv, &step.identity, &label).await {
        Ok(pv) => Ok(Outcome::Adopted(pv)),
        Err(error) => Err(api("adopt", &pv.name, &error)),
    }
}

async fn let_go(tools: Arc<Tools>, pv: Pv) -> Result<Outcome, Refusal> {
    match tools.volumes.let_go(&pv).await {
        Ok(()) => Ok(Outcome::LetGo),
        Err(error) => Err(api("let go of", &pv.name, &error)),
    }
}

/// Deletes the very object that was decided about, and only then ends our protection of it: a claim that
/// was quicker makes the deletion fail, and none can bind an object that is being deleted. A process that
/// is killed in between is followed by one that lets go of it.
async fn withdraw(tools: Arc<Tools>, pv: Pv, step: Withdraw) -> Result<Outcome, Refusal> {
    let volumes = &tools.volumes;
    if pv.uid != step.uid {
        return Err(Refusal::new(
            Reason::PvReplaced,
            "another PersistentVolume has its name now",
        ));
    }
    volumes
        .delete(&pv.name, &pv.uid, &pv.resource_version)
        .await
        .map_err(|error| api("withdraw", &pv.name, &error))?;
    // It is on its way out; others take their finalizers off it at the same time.
    for _ in 0..CONFLICTS {
        let left = volumes
            .get(&pv.name)
            .await
            .map_err(|error| api("read", &pv.name, &error))?;
        let Some(left) = left.filter(|left| left.uid == pv.uid && left.is_protected()) else {
            break;
        };
        if !left.deleting || left.phase != Phase::Available || left.claim.is_some() {
            return Err(Refusal::new(
                Reason::ClaimChanged,
                format!("the PersistentVolume is {:?} now", left.phase),
            ));
        }
        match volumes.let_go(&left).await {
            Err(ApiError::Conflict(_)) => {}
            Err(error) => return Err(api("let go of", &pv.name, &error)),
            Ok(()) => break,
        }
    }
    Ok(Outcome::Withdrawn(step))
}

/// A failed call as a refusal.
fn api(verb: &str, name: &str, error: &ApiError) -> Refusal {
    Refusal::new(
        Reason::ApiRefused,
        format!("can't {verb} PersistentVolume {name}: {error}"),
    )
}
