//! No step without a word: what the owner decides becomes log lines, Events, metrics and `/status`.
//!
//! A refusal is said when it is new or its reason changed, not at each pass.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::Options;
use super::retry::Retries;
use super::work::{Job, Outcome as Ended, Wiped};
use crate::cluster::{ApiError, EventKind, EventSink, Right};
use crate::config::{Cleaner, Config};
use crate::node::selfcheck::Lack;
use crate::node::watch::Sources;
use crate::plan::{Stage, Step, Subject};
use crate::pv::{Phase, Pv, parse_quantity, quantity};
use crate::serve::{
    ClassStatus, CleanType, EntryStatus, Gate, Health, JobStatus, Metrics, Outcome, SourceStatus,
    State, Status, WatchKind,
};
use crate::volume::{Reason, Refusal};

mod configuration;

/// `/status` is not made anew more often than this.
const PUBLISH_GAP: Duration = Duration::from_millis(100);

/// Everything that speaks.
pub(super) struct Report {
    config: Arc<Config>,
    metrics: Arc<Metrics>,
    events: EventSink,
    health: Arc<Health>,
    status: watch::Sender<Arc<Status>>,
    base: Status,
    /// What tells of the kernel's changes at this time.
    kernel: watch::Receiver<Sources>,
    node_name: String,
    /// What the Pod lacks, in words.
    lacks: Vec<String>,
    /// What its ServiceAccount lacks, in words.
    rights: Vec<String>,
    /// What is refused now, to tell what is new.
    refused: HashMap<Subject, Reason>,
    published: Option<Instant>,
}

/// What the owner knows beside the plan: workers that run, and steps that failed.
#[derive(Clone, Copy)]
pub(super) struct Trouble<'a> {
    pub(super) busy: &'a HashMap<String, Job>,
    pub(super) retries: &'a Retries,
}

impl Report {
    pub(super) fn new(
        options: &Options,
        config: &Arc<Config>,
        metrics: Arc<Metrics>,
        events: EventSink,
        kernel: watch::Receiver<Sources>,
    ) -> Self {
        let base = Status {
            version: env!("CARGO_PKG_VERSION"),
            node: options.node_name.clone(),
            ..Status::default()
        };
        let mut report = Self {
            config: Arc::clone(config),
            metrics,
            events,
            health: Arc::new(Health::default()),
            status: watch::Sender::new(Arc::new(base.clone())),
            base,
            kernel,
            node_name: options.node_name.clone(),
            lacks: Vec::new(),
            rights: Vec::new(),
            refused: HashMap::new(),
            published: None,
        };
        report.findings(&[]);
        report
    }

    /// Says what the Pod lacks. Before [`Report::serving`], so that `/status` shows it from the start.
    pub(super) fn lacking(&mut self, lacks: &[Lack]) {
        let said = lacks.iter().map(|lack| self.lack(&lack.to_string()));
        self.lacks = said.collect();
        self.show_findings();
        self.status.send_replace(Arc::new(self.base.clone()));
    }

    /// Says which rights are missing; those that were missing before are not any more.
    pub(super) fn rights(&mut self, missing: &[Right]) {
        if missing.is_empty() {
            info!("the rights that were missing are there");
        }
        let said = missing.iter().map(|right| {
            self.lack(&format!(
                "the ServiceAccount may not {} {}, so {}: add the verb to its ClusterRole",
                right.verb, right.resource, right.without
            ))
        });
        self.rights = said.collect();
        self.show_findings();
    }

    fn lack(&self, text: &str) -> String {
        let reason = Reason::NodeSetup;
        warn!(reason = %reason, "{text}");
        self.metrics.refused(reason);
        self.say_of_node(reason.as_str(), text);
        format!("{reason}: {text}")
    }

    /// What the HTTP server shows.
    pub(super) fn serving(&self, metrics_path: &str) -> State {
        State {
            metrics: Arc::clone(&self.metrics),
            metrics_path: metrics_path.to_owned(),
            health: Arc::clone(&self.health),
            status: self.status.subscribe(),
        }
    }

    /// The loop has turned.
    pub(super) fn beat(&self) {
        self.health.beat();
    }

    /// A step before readiness is done.
    pub(super) fn pass(&self, gate: Gate) {
        self.health.pass(gate);
    }

    /// A watch of the API server has trouble, or works again.
    pub(super) fn watch(&mut self, kind: WatchKind, error: Option<&ApiError>) {
        let name = kind.as_str();
        self.base.sources.retain(|source| source.name != name);
        self.base.sources.push(SourceStatus {
            name: name.to_owned(),
            working: error.is_none(),
            detail: error.map(ToString::to_string).unwrap_or_default(),
        });
    }

    /// A worker was started.
    pub(super) fn started(&self, step: &Step) {
        match step {
            Step::Offer(offer) => debug!(
                class = %offer.class, entry = %offer.entry, pv = offer.pv, "creating"
            ),
            Step::Reclaim(reclaim) if reclaim.stage != Stage::Delete => info!(
                class = %reclaim.class, entry = %reclaim.entry, pv = reclaim.pv, "released; wiping"
            ),
            _ => debug!("{step}"),
        }
    }

    /// A worker ended.
    pub(super) fn done(&self, key: &str, pv: Option<&Pv>, job: Option<&Job>, ended: &Ended) {
        let bytes = match job {
            Some(Job::Reclaim { progress, .. }) => progress.get().map_or(0, |p| p.done_bytes),
            _ => 0,
        };
        match ended {
            Ended::Published(new) => {
                info!(pv = key, class = %new.class, path = new.path, capacity = new.capacity, "offered");
                let note = format!(
                    "offered {} at {}",
                    new.capacity,
                    new.path.as_deref().unwrap_or("")
                );
                self.events
                    .pv(key, &new.uid, EventKind::Normal, "Offered", &note);
            }
            Ended::Adopted(new) => {
                info!(pv = key, class = %new.class, path = new.path, "adopted");
                let note = "label, record and finalizer are in place";
                self.events
                    .pv(key, &new.uid, EventKind::Normal, "Adopted", note);
            }
            Ended::Reclaimed(wiped) => self.reclaimed(key, pv, wiped.as_ref()),
            Ended::LetGo => info!(pv = key, "let go"),
            Ended::Withdrawn(step) => {
                info!(pv = key, "withdrawn: {}", step.why);
                self.events
                    .pv(key, &step.uid, EventKind::Normal, "Withdrawn", &step.why);
            }
            // Said when it is known to be gone, which the watch may tell first.
            Ended::Untainted => {}
            Ended::Taken(refusal) => {
                warn!(pv = key, reason = %refusal.reason, "{}", refusal.detail);
                self.metrics.refused(refusal.reason);
                let note = format!(
                    "{}; the volume is offered under a longer name",
                    refusal.detail
                );
                self.say_of_node(refusal.reason.as_str(), &note);
            }
            Ended::Failed(refusal) | Ended::Unanswered(refusal) => {
                let was_quicker = matches!(refusal.reason, Reason::PvGone | Reason::PvReplaced);
                if matches!(job, Some(Job::Reclaim { .. })) && !was_quicker {
                    self.metrics
                        .delete_failed(pv.map(|pv| pv.mode), CleanType::Process);
                    self.metrics.wipe_failed(bytes);
                }
                debug!(pv = key, reason = %refusal.reason, "{}", refusal.detail);
            }
        }
    }

    /// The startup taint is gone.
    pub(super) fn untainted(&self, key: &str) {
        info!(key, "the startup taint is off the node");
        let note = format!("the taint {key} is off: what can be offered is offered");
        let name = &self.node_name;
        self.events
            .node(name, name, EventKind::Normal, "TaintRemoved", &note);
    }

    fn reclaimed(&self, key: &str, pv: Option<&Pv>, wiped: Option<&Wiped>) {
        let (Some(pv), Some(wiped)) = (pv, wiped) else {
            info!(pv = key, "deleted; its wipe was proven before");
            return;
        };
        let seconds = wiped.took.as_secs_f64();
        // The method of a filesystem names its files.
        let what = match wiped.bytes {
            0 => wiped.method.clone(),
            bytes => format!("{} ({})", wiped.method, quantity(bytes)),
        };
        info!(pv = key, seconds, "wiped and verified: {what}");
        let note = format!("{what} in {seconds:.2} s, verified");
        self.events
            .pv(key, &pv.uid, EventKind::Normal, "Wiped", &note);
        let command = self
            .config
            .classes
            .get(&pv.class)
            .map_or("", |class| word(&class.cleaner));
        let capacity = parse_quantity(&pv.capacity).unwrap_or_default();
        self.metrics
            .deleted(pv.mode, CleanType::Process, capacity, command, wiped.took);
        self.metrics.wipe_succeeded(wiped.took, wiped.bytes);
    }

    /// Publishes the plan with what the owner knows beside it; says what is newly refused. `None` when
    /// it did, else when to come again.
    pub(super) fn publish(
        &mut self,
        steps: &[Step],
        volumes: &BTreeMap<String, Pv>,
        trouble: Trouble<'_>,
        now: Instant,
    ) -> Option<Instant> {
        if let Some(last) = self.published.filter(|last| now < *last + PUBLISH_GAP) {
            return Some(last + PUBLISH_GAP);
        }
        self.published = Some(now);
        self.say_new_refusals(steps, trouble);
        let status = self.status_of(steps, volumes, trouble);
        self.metrics.wipes_running(status.jobs.len());
        self.metrics.observe(&status);
        self.status.send_replace(Arc::new(status));
        None
    }

    fn say_new_refusals(&mut self, steps: &[Step], trouble: Trouble<'_>) {
        let mut refused = HashMap::new();
        for step in steps {
            let Some(refusal) = refusal_of(step, trouble) else {
                continue;
            };
            let subject = step.subject();
            let reason = refusal.reason;
            if self.refused.get(&subject) != Some(&reason) {
                self.say(&subject, refusal);
            }
            refused.insert(subject, reason);
        }
        self.refused = refused;
    }

    fn say(&self, subject: &Subject, refusal: &Refusal) {
        let (reason, detail) = (refusal.reason, &refusal.detail);
        if reason == Reason::Ignored {
            debug!(subject = %subject, "{detail}");
            return;
        }
        warn!(subject = %subject, pv = subject.pv, reason = %reason, "{detail}");
        self.metrics.refused(reason);
        match (&subject.pv, &subject.uid) {
            (Some(pv), Some(uid)) => {
                self.events
                    .pv(pv, uid, EventKind::Warning, reason.as_str(), detail);
            }
            _ => self.say_of_node(reason.as_str(), &format!("{subject}: {detail}")),
        }
    }

    fn say_of_node(&self, reason: &str, note: &str) {
        // The kubelet's Events about its Node carry the name as UID too: that is what `kubectl
        // describe node` asks for.
        let name = &self.node_name;
        self.events
            .node(name, name, EventKind::Warning, reason, note);
    }

    fn kernel_sources(&self) -> Vec<SourceStatus> {
        let sources = self.kernel.borrow();
        let source = |name: &str, working, detail| SourceStatus {
            name: name.to_owned(),
            working,
            detail,
        };
        let working = sources.working().iter();
        let working = working.map(|name| source(name, true, String::new()));
        let broken = sources.warnings().into_iter();
        working
            .chain(broken.map(|detail| source("kernel", false, detail)))
            .collect()
    }

    fn status_of(
        &self,
        steps: &[Step],
        volumes: &BTreeMap<String, Pv>,
        trouble: Trouble<'_>,
    ) -> Status {
        let mut status = self.base.clone();
        status.sources.splice(0..0, self.kernel_sources());
        for class in self.config.classes.values() {
            let shown = ClassStatus {
                directory: class.host_dir.display().to_string(),
                mode: class.volume_mode,
                ..ClassStatus::default()
            };
            status.classes.insert(class.name.clone(), shown);
        }
        for step in steps {
            let subject = step.subject();
            let refusal = refusal_of(step, trouble);
            let Some(class) = subject.class.as_ref() else {
                status.refusal = refusal.cloned();
                continue;
            };
            let shown = status.classes.entry(class.clone()).or_default();
            match subject.entry.as_ref().or(subject.pv.as_ref()) {
                None => shown.refusal = refusal.cloned(),
                Some(name) => {
                    shown
                        .entries
                        .push(entry_of(step, name, &subject, refusal, volumes));
                }
            }
        }
        status.jobs = trouble
            .busy
            .iter()
            .filter_map(|(name, job)| job_of(name, job, volumes.get(name)?, &self.config))
            .collect();
        status.jobs.sort_by(|a, b| a.pv.cmp(&b.pv));
        status
    }
}

/// Why a step does not happen: the plan refuses it, or it failed and waits for its next try.
fn refusal_of<'a>(step: &'a Step, trouble: Trouble<'a>) -> Option<&'a Refusal> {
    match step {
        Step::Refuse(refuse) => Some(&refuse.refusal),
        Step::Keep(_) => None,
        Step::Offer(offer) => trouble.retries.refusal(&offer.pv),
        Step::Adopt(adopt) => trouble.retries.refusal(&adopt.pv),
        Step::Reclaim(reclaim) => trouble.retries.refusal(&reclaim.pv),
        Step::LetGo(let_go) => trouble.retries.refusal(&let_go.pv),
        Step::Withdraw(withdraw) => trouble.retries.refusal(&withdraw.pv),
        Step::Untaint(untaint) => trouble.retries.refusal(&untaint.uid),
    }
}

fn entry_of(
    step: &Step,
    name: &str,
    subject: &Subject,
    refusal: Option<&Refusal>,
    volumes: &BTreeMap<String, Pv>,
) -> EntryStatus {
    let pv = subject.pv.as_ref().and_then(|name| volumes.get(name));
    let outcome = match (step, pv.map(|pv| pv.phase)) {
        _ if refusal.is_some() => Outcome::Refused,
        (Step::Reclaim(_) | Step::LetGo(_) | Step::Withdraw(_), _) => Outcome::Reclaiming,
        (Step::Offer(_), _) | (_, Some(Phase::Available | Phase::Pending)) => Outcome::Offered,
        _ => Outcome::Kept,
    };
    EntryStatus {
        entry: name.to_owned(),
        outcome,
        reason: refusal.map(|refusal| refusal.reason),
        detail: refusal
            .map(|refusal| refusal.detail.clone())
            .unwrap_or_default(),
        pv: match step {
            Step::Offer(offer) => Some(offer.pv.clone()),
            _ => subject.pv.clone(),
        },
        phase: pv.map(|pv| pv.phase),
        capacity_bytes: match step {
            Step::Offer(offer) => Some(offer.capacity_bytes),
            _ => pv.and_then(|pv| parse_quantity(&pv.capacity)),
        },
    }
}

fn job_of(name: &str, job: &Job, pv: &Pv, config: &Config) -> Option<JobStatus> {
    let Job::Reclaim {
        progress, since, ..
    } = job
    else {
        return None;
    };
    let progress = progress.get().unwrap_or_default();
    let device = progress.total_bytes > 0;
    let cleaner = config
        .classes
        .get(&pv.class)
        .map_or("", |class| word(&class.cleaner));
    Some(JobStatus {
        pv: name.to_owned(),
        class: pv.class.clone(),
        method: if device { cleaner } else { "contents" }.to_owned(),
        done: if device {
            progress.done_bytes
        } else {
            progress.files
        },
        total: device.then_some(progress.total_bytes),
        seconds: since.elapsed().as_secs(),
    })
}

/// The cleaner in one word.
fn word(cleaner: &Cleaner) -> &str {
    match cleaner {
        Cleaner::Zero => "zero",
        Cleaner::Overwrite { .. } => "overwrite",
        Cleaner::Command(words) => words.first().map_or("", String::as_str),
    }
}
