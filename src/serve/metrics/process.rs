//! The usual `process_*` metrics, read from /proc at each scrape (proc(5)).

use std::fs;
use std::time::Duration;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Counter, Gauge, IntGauge};

/// Clock ticks per second in /proc; part of the kernel's interface on every architecture that
/// Kubernetes runs on.
const TICKS: u32 = 100;

/// Collects what the kernel says about this process.
pub(super) struct Process {
    cpu: Counter,
    rss: IntGauge,
    fds: IntGauge,
    start: Gauge,
}

impl Process {
    pub(super) fn new() -> prometheus::Result<Self> {
        Ok(Self {
            cpu: Counter::new(
                "process_cpu_seconds_total",
                "Total user and system CPU time spent in seconds.",
            )?,
            rss: IntGauge::new(
                "process_resident_memory_bytes",
                "Resident memory size in bytes.",
            )?,
            fds: IntGauge::new("process_open_fds", "Number of open file descriptors.")?,
            start: Gauge::new(
                "process_start_time_seconds",
                "Start time of the process since unix epoch in seconds.",
            )?,
        })
    }

    fn read(&self) {
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        if let Some((cpu, start)) = times(&stat) {
            // The counter of the crate can only be added to.
            let more = cpu.as_secs_f64() - self.cpu.get();
            self.cpu.inc_by(more.max(0.0));
            let boot = fs::read_to_string("/proc/stat").unwrap_or_default();
            if let Some(boot) = boot_time(&boot) {
                self.start.set((boot + start).as_secs_f64());
            }
        }
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        if let Some(bytes) = rss(&status) {
            self.rss.set(bytes);
        }
        if let Ok(entries) = fs::read_dir("/proc/self/fd") {
            // One of them is the directory that is being read.
            let open = entries.count().saturating_sub(1);
            self.fds.set(i64::try_from(open).unwrap_or(i64::MAX));
        }
    }
}

impl Collector for Process {
    fn desc(&self) -> Vec<&Desc> {
        let mut all = self.cpu.desc();
        all.extend(self.rss.desc());
        all.extend(self.fds.desc());
        all.extend(self.start.desc());
        all
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.read();
        let mut all = self.cpu.collect();
        all.extend(self.rss.collect());
        all.extend(self.fds.collect());
        all.extend(self.start.collect());
        all
    }
}

/// CPU time, and the start in time since boot, of /proc/self/stat.
fn times(stat: &str) -> Option<(Duration, Duration)> {
    // The name may contain anything, so count from the last parenthesis: field 3 follows it.
    let (_, rest) = stat.rsplit_once(')')?;
    let field = |n: usize| rest.split_ascii_whitespace().nth(n - 3)?.parse().ok();
    let (user, system, start): (u64, u64, u64) = (field(14)?, field(15)?, field(22)?);
    Some((ticks(user + system), ticks(start)))
}

fn ticks(count: u64) -> Duration {
    Duration::from_millis(count.saturating_mul(1000)) / TICKS
}

fn boot_time(stat: &str) -> Option<Duration> {
    let line = stat.lines().find_map(|line| line.strip_prefix("btime "))?;
    line.trim().parse().ok().map(Duration::from_secs)
}

fn rss(status: &str) -> Option<i64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: i64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_is_read() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 100 0 0 0 150 50 0 0 20 0 2 0 12345 1 2 3";
        assert_eq!(
            times(stat),
            Some((Duration::from_secs(2), Duration::from_millis(123_450)))
        );
        assert_eq!(times("nonsense"), None);
        assert_eq!(rss("VmPeak: 1 kB\nVmRSS:\t    8 kB\n"), Some(8192));
        assert_eq!(
            boot_time("cpu 1 2\nbtime 1700000000\n"),
            Some(Duration::from_secs(1_700_000_000))
        );
    }

    #[test]
    fn this_process_has_memory_and_descriptors() {
        let process = Process::new().unwrap();
        process.read();
        assert!(process.rss.get() > 0 && process.fds.get() >= 3 && process.start.get() > 0.0);
    }
}
