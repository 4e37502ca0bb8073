//! The owner: one task that holds all state, decides, and starts workers.
//!
//! Level-triggered: events only change what the owner knows or say "look again"; every step comes
//! from `plan` over all that is known. At most one worker runs for each PersistentVolume name.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::dirty::Dirty;
use super::gone::Gone;
use super::offering::Offering;
use super::report::{Report, Trouble};
use super::retry::Retries;
use super::work::{self, Done, Job, Outcome, Tools};
use crate::cluster::ClusterEvent;
use crate::config::{Class, Config};
use crate::node::watch::Dirt;
use crate::plan::{Step, View, plan};
use crate::pv::{ClassFacts, NodeFacts, Pv};
use crate::serve::Gate;
use crate::volume::{ClassName, Reason, Scan};

mod hear;
mod reconfigure;
mod taint;

/// Creates in flight at once: enough to keep an API server busy, few enough to leave it to others.
pub const OFFERS_AT_ONCE: usize = 32;

/// Wipes at once. Each saturates its own disk; together they must leave CPU for the workloads.
const WIPES_AT_ONCE: usize = 4;

/// In a burst, a plan is followed by a pause of this many times its length; the first plan is made at once.
const PLAN_SHARE: u32 = 2;

/// However long a plan takes, the next one is not further away.
const PLAN_GAP_MAX: Duration = Duration::from_millis(100);

/// Events of the kernel can be lost; so often everything is looked at anyway.
const RESCAN: Duration = Duration::from_secs(300);

/// The loop shows at least this often that it is alive.
const HEARTBEAT: Duration = Duration::from_secs(60);

/// Scans of one class follow each other at a distance of their own length, up to this.
const SCAN_GAP_MAX: Duration = Duration::from_secs(1);

/// All state of the daemon.
pub(super) struct Owner {
    config: Arc<Config>,
    tools: Arc<Tools>,
    dirty: Arc<Dirty>,
    cluster: mpsc::Receiver<ClusterEvent>,
    configs: watch::Receiver<Arc<Config>>,
    /// Which StorageClasses the cluster's side tells about.
    names: watch::Sender<BTreeSet<ClassName>>,
    report: Report,

    known: Known,
    node: Option<NodeFacts>,
    classes: BTreeMap<ClassName, ClassFacts>,
    volumes: BTreeMap<String, Pv>,
    scans: BTreeMap<ClassName, Scan>,
    gone: Gone,
    offering: Offering,
    taint: taint::StartupTaint,

    waiting: BTreeSet<ClassName>,
    scanning: BTreeMap<ClassName, Instant>,
    scan_after: HashMap<ClassName, Instant>,
    scanners: JoinSet<(Class, Scan)>,

    busy: HashMap<String, Job>,
    /// Names of volumes that were reclaimed and are not offered again yet.
    returning: BTreeSet<String>,
    /// Names of PersistentVolumes that turned out to be somebody else's.
    taken: BTreeSet<String>,
    workers: JoinSet<Done>,
    retries: Retries,
    steps: Vec<Step>,
    /// Something changed since the last plan.
    changed: bool,
    /// When the next plan may be made.
    plan_after: Instant,
    /// Something changed since the last report.
    stale: bool,
    publish_at: Option<Instant>,
    rescan: Instant,
}

/// Which parts of the API server's side have been heard of at all.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    volumes: bool,
    classes: bool,
    node: bool,
}

impl Known {
    fn all(self) -> bool {
        self.volumes && self.classes && self.node
    }
}

impl Owner {
    pub(super) fn new(
        tools: Tools,
        dirty: Arc<Dirty>,
        cluster: mpsc::Receiver<ClusterEvent>,
        configs: watch::Receiver<Arc<Config>>,
        names: watch::Sender<BTreeSet<ClassName>>,
        report: Report,
    ) -> Self {
        Self {
            config: Arc::clone(&tools.config),
            tools: Arc::new(tools),
            dirty,
            cluster,
            configs,
            names,
            report,
            known: Known::default(),
            node: None,
            classes: BTreeMap::new(),
            volumes: BTreeMap::new(),
            scans: BTreeMap::new(),
            gone: Gone::default(),
            offering: Offering::default(),
            taint: taint::StartupTaint::default(),
            waiting: BTreeSet::new(),
            scanning: BTreeMap::new(),
            scan_after: HashMap::new(),
            scanners: JoinSet::new(),
            busy: HashMap::new(),
            returning: BTreeSet::new(),
            taken: BTreeSet::new(),
            workers: JoinSet::new(),
            retries: Retries::default(),
            steps: Vec::new(),
            changed: true,
            plan_after: Instant::now(),
            stale: true,
            publish_at: None,
            rescan: Instant::now() + RESCAN,
        }
    }

    /// Runs until `stop`, then until the workers have stopped, but not longer than `drain`.
    pub(super) async fn run(mut self, stop: CancellationToken, drain: Duration) {
        loop {
            let now = Instant::now();
            self.report.beat();
            self.start_scans(now);
            self.decide(now);
            // What was started comes first: it takes longer to show all there is than to send a request.
            if self.stale {
                tokio::task::yield_now().await;
                self.publish(now);
            }
            let wake = self.next_wake(now);
            tokio::select! {
                () = stop.cancelled() => break,
                // Cancel-safe: an event that is not taken stays in the channel.
                Some(event) = self.cluster.recv() => {
                    self.hear(event);
                    while let Ok(event) = self.cluster.try_recv() {
                        self.hear(event);
                    }
                }
                // Cancel-safe: a configuration that is not taken here is seen by the next call.
                Ok(()) = self.configs.changed() => {
                    let config = Arc::clone(&self.configs.borrow_and_update());
                    self.reconfigure(&config);
                }
                // Cancel-safe: see `Dirty::changed`.
                () = self.dirty.changed() => {}
                // Cancel-safe: a task that is not joined stays in the set.
                Some(joined) = self.scanners.join_next(), if !self.scanners.is_empty() => {
                    if let Ok((class, scan)) = joined {
                        self.scanned(class, scan);
                    }
                }
                Some(joined) = self.workers.join_next(), if !self.workers.is_empty() => {
                    if let Ok(done) = joined {
                        self.done(done);
                    }
                }
                () = sleep_until(wake) => {}
            }
        }
        self.drain(drain).await;
    }

    fn start_scans(&mut self, now: Instant) {
        if self.rescan <= now {
            self.rescan = now + RESCAN;
            self.stale = true;
            self.dirty.mark(Dirt::All);
        }
        self.waiting.append(&mut self.dirty.take());
        let due: Vec<ClassName> = self
            .waiting
            .iter()
            .filter(|name| !self.scanning.contains_key(*name))
            .filter(|name| self.scan_after.get(*name).is_none_or(|after| *after <= now))
            .cloned()
            .collect();
        for name in due {
            self.waiting.remove(&name);
            let Some(class) = self.config.classes.get(&name).cloned() else {
                continue;
            };
            self.scanning.insert(name.clone(), now);
            let tools = Arc::clone(&self.tools);
            self.scanners.spawn(async move {
                let scan = tools.inspector.scan(&class).await;
                (class, scan)
            });
        }
    }

    fn scanned(&mut self, class: Class, scan: Scan) {
        let now = Instant::now();
        let is_in_force = self.config.classes.get(&class.name) == Some(&class);
        let class = class.name;
        if let Some(began) = self.scanning.remove(&class) {
            self.scan_after
                .insert(class.clone(), now + (now - began).min(SCAN_GAP_MAX));
        }
        // The class was given another definition meanwhile, and is dirty for that.
        if !is_in_force {
            return;
        }
        if self.scans.get(&class) != Some(&scan) {
            debug!(class = %class, "the directory changed");
            let of_class = |pv: &&Pv| pv.class == class;
            for pv in self.volumes.values().filter(of_class) {
                self.retries.hurry(&pv.name, now);
            }
            self.scans.insert(class, scan);
            self.changed = true;
        }
    }

    /// Plans if anything changed, and starts a worker for each step that is due.
    fn decide(&mut self, now: Instant) {
        if !self.known.all() {
            return;
        }
        self.changed |= self.gone.is_due(now) | self.offering.settle(now);
        if self.changed && self.plan_after <= now {
            self.changed = false;
            self.stale = true;
            self.steps = plan(&View {
                config: &self.config,
                node: self.node.as_ref(),
                classes: &self.classes,
                scans: &self.scans,
                volumes: &self.volumes,
                gone: &self.gone.durations(now),
                taken: &self.taken,
                offering: self.offering.storage(),
                untainted: self.taint.removed(),
            });
            self.gone
                .observe(&self.steps, &self.volumes, &self.config, now);
            let wanted: BTreeSet<&str> = self.steps.iter().filter_map(key).collect();
            self.retries.retain(|name| wanted.contains(name));
            self.returning.retain(|name| wanted.contains(name.as_str()));
            if self
                .config
                .classes
                .keys()
                .all(|class| self.scans.contains_key(class))
            {
                self.report.pass(Gate::FirstPass);
            }
            self.plan_after = now + (now.elapsed() * PLAN_SHARE).min(PLAN_GAP_MAX);
        }
        // Only by a plan that knows all that is known: an older one may want what is wrong by now.
        if !self.changed {
            self.start_workers(now);
        }
    }

    /// Shows what was decided.
    fn publish(&mut self, now: Instant) {
        if !self.known.all() {
            return;
        }
        let trouble = Trouble {
            busy: &self.busy,
            retries: &self.retries,
        };
        self.publish_at = self
            .report
            .publish(&self.steps, &self.volumes, trouble, now);
        self.stale = self.publish_at.is_some();
    }

    fn start_workers(&mut self, now: Instant) {
        let Some(node) = &self.node else { return };
        let count = |offers: bool| {
            self.busy
                .values()
                .filter(|job| matches!(job, Job::Reclaim { .. }) != offers)
                .count()
        };
        let (mut offers, mut wipes) = (count(true), count(false));
        // What was in use until a moment ago is likelier to be waited for than what is new: a burst of new
        // volumes must not keep it.
        let is_returning = |step: &&Step| key(step).is_some_and(|n| self.returning.contains(n));
        let first = self.steps.iter().filter(is_returning);
        let then = self.steps.iter().filter(|step| !is_returning(step));
        for step in first.chain(then) {
            let Some(name) = key(step) else { continue };
            if self.busy.contains_key(name)
                || !self.retries.is_due(name, now)
                || taint::has_to_wait(step, &self.steps, &self.retries)
            {
                continue;
            }
            let (running, limit) = match step {
                Step::Reclaim(_) => (&mut wipes, WIPES_AT_ONCE),
                _ => (&mut offers, OFFERS_AT_ONCE),
            };
            if *running >= limit {
                continue;
            }
            let Some(job) = work::start(step, &self.tools, node, &self.volumes, &mut self.workers)
            else {
                continue;
            };
            *running += 1;
            match step {
                Step::Offer(offer) => self.offering.begin(name, &offer.identity),
                Step::Untaint(untaint) => self.taint.begin(untaint),
                _ => {}
            }
            self.report.started(step);
            self.stale = true;
            self.busy.insert(name.to_owned(), job);
        }
    }

    /// Takes in what a worker did.
    fn done(&mut self, done: Done) {
        let now = Instant::now();
        let Done { key, outcome } = done;
        let job = self.busy.remove(&key);
        self.changed = true;
        self.report
            .done(&key, self.volumes.get(&key), job.as_ref(), &outcome);
        match &outcome {
            Outcome::Unanswered(_) => self.offering.doubt(&key, now),
            // Unless the watch was quicker than the answer.
            Outcome::Published(pv)
                if self
                    .volumes
                    .get(&key)
                    .is_none_or(|known| known.uid != pv.uid) =>
            {
                self.offering.made(&key, &pv.uid, now);
            }
            _ => self.offering.end(&key),
        }
        match outcome {
            Outcome::Published(pv) | Outcome::Adopted(pv) => {
                self.retries.forget(&key);
                self.returning.remove(&key);
                self.apply(pv);
            }
            Outcome::Reclaimed(_) | Outcome::LetGo | Outcome::Withdrawn(_) => {
                self.returning.insert(key.clone());
                // The object goes when its last finalizer does, and the watch says so. Until then the
                // step would only be asked for again.
                if let Some(pv) = self.volumes.get(&key) {
                    self.dirty.mark(Dirt::Class(pv.class.clone()));
                    self.retries.hold(&key, now);
                }
            }
            // Somebody was quicker; the watch has said so, or is about to.
            Outcome::Failed(refusal)
                if matches!(refusal.reason, Reason::PvGone | Reason::PvReplaced) =>
            {
                if self.volumes.contains_key(&key) {
                    self.retries.hold(&key, now);
                }
            }
            Outcome::Taken(_) => {
                self.taken.insert(key);
            }
            Outcome::Untainted => self.untainted(&key),
            Outcome::Failed(refusal) | Outcome::Unanswered(refusal) => {
                self.retries.failed(&key, refusal, now);
            }
        }
    }

    fn next_wake(&self, now: Instant) -> Instant {
        let scans = self
            .waiting
            .iter()
            .filter(|name| !self.scanning.contains_key(*name));
        let scan = scans
            .filter_map(|name| self.scan_after.get(name))
            .min()
            .copied();
        let plan = (self.changed && self.known.all()).then_some(self.plan_after);
        [
            scan,
            plan,
            self.publish_at,
            self.gone.due(),
            self.offering.due(),
            self.retries.next(now),
            Some(self.rescan),
        ]
        .into_iter()
        .flatten()
        .fold(now + HEARTBEAT, Instant::min)
    }

    /// Lets workers come to a safe point. What was wiped so far is recorded; the next process goes on.
    async fn drain(mut self, limit: Duration) {
        for job in self.busy.values() {
            if let Job::Reclaim { cancel, .. } = job {
                cancel.store(true, Ordering::Relaxed);
            }
        }
        let idle = async { while self.workers.join_next().await.is_some() {} };
        if tokio::time::timeout(limit, idle).await.is_err() {
            warn!("a worker did not stop in time; the next process goes on where it was");
        }
    }
}

/// The name of the PersistentVolume that a step works on, or the UID of the Node; `None` for steps without
/// work.
fn key(step: &Step) -> Option<&str> {
    match step {
        Step::Offer(offer) => Some(&offer.pv),
        Step::Adopt(adopt) => Some(&adopt.pv),
        Step::Reclaim(reclaim) => Some(&reclaim.pv),
        Step::LetGo(let_go) => Some(&let_go.pv),
        Step::Withdraw(withdraw) => Some(&withdraw.pv),
        Step::Untaint(untaint) => Some(&untaint.uid),
        Step::Keep(_) | Step::Refuse(_) => None,
    }
}
