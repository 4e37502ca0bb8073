//! Every metric there is. Upstream's names, types and labels stand (contract MET-01 to MET-08), so
//! that dashboards go on working; ours begin with `provisor_`.
//!
//! Callers record facts and never see a label: values come from closed enums and from the names of
//! configured classes, so that the number of series is bounded by the configuration.

use std::time::Duration;

use prometheus::core::Collector;
use prometheus::{
    DEFAULT_BUCKETS, Encoder, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec,
    IntGauge, IntGaugeVec, Opts, Registry, TextEncoder,
};

use super::status::{Outcome, Status};
use crate::config::{Finding, Severity};
use crate::volume::{Reason, VolumeMode};

mod labels;
mod process;

pub use labels::{ApiMethod, CleanType, WatchKind};

/// The prefix of upstream's names.
const UPSTREAM: &str = "local_volume_provisioner";
/// Seconds that a wipe may take: from an empty directory to a large disk overwritten twice.
const WIPE_BUCKETS: [f64; 14] = [
    0.01, 0.05, 0.25, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 7200.0, 14400.0, 28800.0, 86400.0,
];
/// How a change of the configuration went.
const APPLIED: &str = "applied";
const REFUSED: &str = "refused";
/// `Content-Type` of [`Metrics::render`].
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All metrics of the process, with a registry of their own.
pub struct Metrics {
    registry: Registry,
    capacity_bytes: IntGaugeVec,
    discovered: IntCounterVec,
    discovery_seconds: HistogramVec,
    deleted: IntCounterVec,
    delete_failed: IntCounterVec,
    delete_seconds: HistogramVec,
    api_requests: IntCounterVec,
    api_failed: IntCounterVec,
    api_seconds: HistogramVec,
    running: IntGauge,
    failed: IntGauge,
    succeeded: IntGauge,
    entries: IntGaugeVec,
    refusals: IntGaugeVec,
    refused: IntCounterVec,
    wipe_seconds: Histogram,
    wiped_bytes: IntCounter,
    findings: IntGaugeVec,
    reloads: IntCounterVec,
    events_dropped: IntCounter,
    watch_up: IntGaugeVec,
    watch_failures: IntCounterVec,
}

impl Metrics {
    /// Metrics at zero, for a process of version `version`.
    pub fn new(version: &str) -> Self {
        Self::try_new(version).expect("the names and labels below are valid and different")
    }

    fn try_new(version: &str) -> prometheus::Result<Self> {
        let r = Registry::new();
        let metrics = Self {
            capacity_bytes: gauges(
                &r,
                &upstream("persistentvolume_capacity_bytes"),
                "Capacity of this node's PersistentVolumes of known volumes.",
                &["mode"],
            )?,
            discovered: counters(
                &r,
                &upstream("persistentvolume_discovery_total"),
                "PersistentVolumes created.",
                &["mode"],
            )?,
            discovery_seconds: histograms(
                &r,
                &upstream("persistentvolume_discovery_duration_seconds"),
                "From noticing a volume to its PersistentVolume.",
                &["mode"],
                DEFAULT_BUCKETS,
            )?,
            deleted: counters(
                &r,
                &upstream("persistentvolume_delete_total"),
                "PersistentVolumes wiped and deleted.",
                &["mode", "type"],
            )?,
            delete_failed: counters(
                &r,
                &upstream("persistentvolume_delete_failed_total"),
                "Attempts to wipe and delete a PersistentVolume that failed.",
                &["mode", "type"],
            )?,
            delete_seconds: histograms(
                &r,
                &upstream("persistentvolume_delete_duration_seconds"),
                "From the start of a wipe to the deletion of the PersistentVolume.",
                &["mode", "type", "capacity", "cleanup_command"],
                &WIPE_BUCKETS,
            )?,
            api_requests: counters(
                &r,
                &upstream("apiserver_requests_total"),
                "Calls to the API server.",
                &["method"],
            )?,
            api_failed: counters(
                &r,
                &upstream("apiserver_requests_failed_total"),
                "Calls to the API server that failed.",
                &["method"],
            )?,
            api_seconds: histograms(
                &r,
                &upstream("apiserver_requests_duration_seconds"),
                "Duration of calls to the API server; of a watch, until it began.",
                &["method"],
                DEFAULT_BUCKETS,
            )?,
            running: gauge(&r, &upstream("proctable_running"), "Wipes in progress.")?,
            failed: gauge(
                &r,
                &upstream("proctable_failed"),
                "Wipes that failed, since the start.",
            )?,
            succeeded: gauge(
                &r,
                &upstream("proctable_succeeded"),
                "Wipes that succeeded, since the start.",
            )?,
            entries: gauges(
                &r,
                "provisor_entries",
                "Entries of the discovery directories, by what became of them.",
                &["class", "outcome"],
            )?,
            refusals: gauges(
                &r,
                "provisor_refusals",
                "Entries and classes that are refused now, by reason; for the node without a class.",
                &["class", "reason"],
            )?,
            refused: counters(
                &r,
                "provisor_refused_total",
                "Refusals that were new when they were found, by reason.",
                &["reason"],
            )?,
            wipe_seconds: registered(
                &r,
                Histogram::with_opts(
                    HistogramOpts::new("provisor_wipe_seconds", "Duration of successful wipes.")
                        .buckets(WIPE_BUCKETS.to_vec()),
                )?,
            )?,
            wiped_bytes: registered(
                &r,
                IntCounter::new(
                    "provisor_wiped_bytes_total",
                    "Bytes of block devices overwritten or discarded.",
                )?,
            )?,
            findings: gauges(
                &r,
                "provisor_config_findings",
                "Things wrong or odd in the configuration in force.",
                &["severity"],
            )?,
            reloads: counters(
                &r,
                "provisor_config_reload_total",
                "Changes of the configuration: applied as written, or refused in part.",
                &["result"],
            )?,
            events_dropped: registered(
                &r,
                IntCounter::new(
                    "provisor_events_dropped_total",
                    "Kubernetes Events that were not published.",
                )?,
            )?,
            watch_up: gauges(
                &r,
                "provisor_watch_connected",
                "1 while the watch on the API server works.",
                &["kind"],
            )?,
            watch_failures: counters(
                &r,
                "provisor_watch_failures_total",
                "Failures of a watch on the API server.",
                &["kind"],
            )?,
            registry: r,
        };
        metrics
            .registry
            .register(Box::new(process::Process::new()?))?;
        let build = gauges(
            &metrics.registry,
            "provisor_build_info",
            "1, with the version as label.",
            &["version"],
        )?;
        build.with_label_values(&[version]).set(1);
        metrics.show_zeros();
        Ok(metrics)
    }

    /// Series that exist before the first event: without them `increase()` misses that event.
    fn show_zeros(&self) {
        for mode in [VolumeMode::Filesystem, VolumeMode::Block].map(VolumeMode::as_str) {
            self.capacity_bytes.with_label_values(&[mode]);
            self.discovered.with_label_values(&[mode]);
        }
        for kind in [
            WatchKind::PersistentVolumes,
            WatchKind::StorageClasses,
            WatchKind::Nodes,
        ] {
            self.watch_up.with_label_values(&[kind.as_str()]);
            self.watch_failures.with_label_values(&[kind.as_str()]);
        }
        for result in [APPLIED, REFUSED] {
            self.reloads.with_label_values(&[result]);
        }
        self.observe_findings(&[]);
    }

    /// A PersistentVolume of mode `mode` was created, `took` after its volume was noticed.
    pub fn discovered(&self, mode: VolumeMode, took: Duration) {
        let labels = [mode.as_str()];
        self.discovered.with_label_values(&labels).inc();
        let seconds = self.discovery_seconds.with_label_values(&labels);
        seconds.observe(took.as_secs_f64());
    }

    /// A PersistentVolume was wiped and deleted. `command` is the method's word or the first word of
    /// the configured command.
    pub fn deleted(
        &self,
        mode: VolumeMode,
        how: CleanType,
        capacity_bytes: u64,
        command: &str,
        took: Duration,
    ) {
        let (mode, how) = (mode.as_str(), how.as_str());
        self.deleted.with_label_values(&[mode, how]).inc();
        let capacity = labels::capacity_step(capacity_bytes);
        self.delete_seconds
            .with_label_values(&[mode, how, &capacity, command])
            .observe(took.as_secs_f64());
    }

    /// An attempt to wipe and delete a PersistentVolume failed; `mode` is `None` if not even that
    /// is known.
    pub fn delete_failed(&self, mode: Option<VolumeMode>, how: CleanType) {
        let labels = [labels::mode(mode), how.as_str()];
        self.delete_failed.with_label_values(&labels).inc();
    }

    /// So many wipes are in progress.
    pub fn wipes_running(&self, count: usize) {
        self.running.set(int(count));
    }

    /// A wipe succeeded after `took`, having written or discarded `bytes` of a block device.
    pub fn wipe_succeeded(&self, took: Duration, bytes: u64) {
        self.succeeded.inc();
        self.wipe_seconds.observe(took.as_secs_f64());
        self.wiped_bytes.inc_by(bytes);
    }

    /// A wipe failed, having written or discarded `bytes` of a block device.
    pub fn wipe_failed(&self, bytes: u64) {
        self.failed.inc();
        self.wiped_bytes.inc_by(bytes);
    }

    /// Something is refused for `reason` that was not refused for it before.
    pub fn refused(&self, reason: Reason) {
        self.refused.with_label_values(&[reason.as_str()]).inc();
    }

    /// Another configuration is in force; `as_written` unless something in it was refused.
    pub fn reloaded(&self, as_written: bool) {
        let result = if as_written { APPLIED } else { REFUSED };
        self.reloads.with_label_values(&[result]).inc();
    }

    /// The findings of the configuration in force.
    pub fn observe_findings(&self, findings: &[Finding]) {
        for (severity, word) in [(Severity::Warning, "warning"), (Severity::Error, "error")] {
            let count = findings.iter().filter(|f| f.severity == severity).count();
            self.findings.with_label_values(&[word]).set(int(count));
        }
    }

    /// Counts entries, refusals and capacity anew from what `/status` shows.
    pub fn observe(&self, status: &Status) {
        self.entries.reset();
        self.refusals.reset();
        if let Some(refusal) = &status.refusal {
            // What concerns the node belongs to no class.
            let labels = ["", refusal.reason.as_str()];
            self.refusals.with_label_values(&labels).inc();
        }
        let mut capacity = [(VolumeMode::Filesystem, 0), (VolumeMode::Block, 0)];
        for (class, shown) in &status.classes {
            let class = class.as_str();
            for outcome in Outcome::ALL {
                let count = shown
                    .entries
                    .iter()
                    .filter(|e| e.outcome == outcome)
                    .count();
                let labels = [class, outcome.as_str()];
                self.entries.with_label_values(&labels).set(int(count));
            }
            let of_entries = shown.entries.iter().filter_map(|e| e.reason);
            let of_class = shown.refusal.iter().map(|refusal| refusal.reason);
            for reason in of_entries.chain(of_class) {
                let labels = [class, reason.as_str()];
                self.refusals.with_label_values(&labels).inc();
            }
            for (mode, sum) in &mut capacity {
                if *mode == shown.mode {
                    *sum += shown
                        .entries
                        .iter()
                        .filter_map(|e| e.capacity_bytes)
                        .sum::<u64>();
                }
            }
        }
        for (mode, sum) in capacity {
            let gauge = self.capacity_bytes.with_label_values(&[mode.as_str()]);
            gauge.set(i64::try_from(sum).unwrap_or(i64::MAX));
        }
    }

    /// A call to the API server ended.
    pub fn api_call(&self, method: ApiMethod, took: Duration, failed: bool) {
        let labels = [method.as_str()];
        self.api_requests.with_label_values(&labels).inc();
        let failures = self.api_failed.with_label_values(&labels);
        failures.inc_by(u64::from(failed));
        let seconds = self.api_seconds.with_label_values(&labels);
        seconds.observe(took.as_secs_f64());
    }

    /// An Event was not published.
    pub fn event_dropped(&self) {
        self.events_dropped.inc();
    }

    /// The watch works.
    pub fn watch_connected(&self, kind: WatchKind) {
        self.watch_up.with_label_values(&[kind.as_str()]).set(1);
    }

    /// The watch failed.
    pub fn watch_failed(&self, kind: WatchKind) {
        self.watch_up.with_label_values(&[kind.as_str()]).set(0);
        self.watch_failures
            .with_label_values(&[kind.as_str()])
            .inc();
    }

    /// Everything in Prometheus' text format.
    pub fn render(&self) -> String {
        let mut text = Vec::new();
        if let Err(error) = TextEncoder::new().encode(&self.registry.gather(), &mut text) {
            tracing::error!(%error, "metrics not encoded");
        }
        String::from_utf8_lossy(&text).into_owned()
    }
}

fn upstream(name: &str) -> String {
    format!("{UPSTREAM}_{name}")
}

fn int(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn registered<C: Collector + Clone + 'static>(r: &Registry, metric: C) -> prometheus::Result<C> {
    r.register(Box::new(metric.clone()))?;
    Ok(metric)
}

fn gauge(r: &Registry, name: &str, help: &str) -> prometheus::Result<IntGauge> {
    registered(r, IntGauge::new(name, help)?)
}

fn gauges(r: &Registry, name: &str, help: &str, by: &[&str]) -> prometheus::Result<IntGaugeVec> {
    registered(r, IntGaugeVec::new(Opts::new(name, help), by)?)
}

fn counters(
    r: &Registry,
    name: &str,
    help: &str,
    by: &[&str],
) -> prometheus::Result<IntCounterVec> {
    registered(r, IntCounterVec::new(Opts::new(name, help), by)?)
}

fn histograms(
    r: &Registry,
    name: &str,
    help: &str,
    by: &[&str],
    buckets: &[f64],
) -> prometheus::Result<HistogramVec> {
    let opts = HistogramOpts::new(name, help).buckets(buckets.to_vec());
    registered(r, HistogramVec::new(opts, by)?)
}

#[cfg(test)]
mod tests;
