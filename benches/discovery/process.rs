//! The daemon as a process, and what the kernel says of it.

use std::fmt;
use std::fs::{self, File};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::{Pid, SysconfVar, sysconf};

use crate::daemon::Setup;
use crate::site::until;

/// The release binary with its usual log, which goes to a file.
pub(crate) struct Daemon {
    child: Child,
    address: String,
}

/// What the daemon and its children have used since their start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    /// Of all threads, those that have ended too.
    pub(crate) cpu: Duration,
    /// Of the threads that are alive, on their own will or not: the kernel keeps no sum that can be read
    /// of those that have ended.
    pub(crate) switches: u64,
    /// CPU time of the threads that are alive.
    pub(crate) living_cpu: Duration,
}

impl Counters {
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(before.cpu),
            switches: self.switches.saturating_sub(before.switches),
            living_cpu: self.living_cpu.saturating_sub(before.living_cpu),
        }
    }
}

/// How many there are.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Population {
    pub(crate) threads: usize,
    pub(crate) children: usize,
}

/// What a process holds, in KiB.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Memory {
    pub(crate) resident: u64,
    pub(crate) anonymous: u64,
}

impl Memory {
    /// In MiB.
    pub(crate) fn resident(self) -> f64 {
        mib(self.resident)
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (resident, anonymous) = (mib(self.resident), mib(self.anonymous));
        write!(f, "{resident:.1} MiB ({anonymous:.1} anonymous)")
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "KiB of a process fit many times"
)]
fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}

impl Daemon {
    /// Starts it and waits until it is ready.
    pub(crate) async fn start(setup: &Setup) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has a port");
        let address = listener.local_addr().expect("it is bound").to_string();
        drop(listener);
        let log = File::create(setup.config_dir.with_extension("log")).expect("it takes a log");
        let child = Command::new(env!("CARGO_BIN_EXE_provisor"))
            .arg("run")
            .arg("--config-dir")
            .arg(&setup.config_dir)
            .args(["--listen-address", &address])
            .env("MY_NODE_NAME", &setup.node)
            .env("KUBECONFIG", &setup.kubeconfig)
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("the binary starts");
        let daemon = Self { child, address };
        until("the daemon is ready", async || {
            daemon.get("/readyz").map(drop)
        })
        .await;
        daemon
    }

    /// The body of an answer that is 200.
    fn get(&self, path: &str) -> Option<String> {
        let (status, body) = crate::daemon::get(&self.address, path)?;
        (status == 200).then_some(body)
    }

    /// Requests to the API server so far, by its own count.
    pub(crate) fn requests(&self) -> u64 {
        let metrics = self.get("/metrics").expect("it answers");
        let lines = metrics
            .lines()
            .filter(|line| line.starts_with("local_volume_provisioner_apiserver_requests_total{"));
        let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
        values.sum()
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).expect("a pid is an i32"))
    }

    /// The daemon and its descendants.
    fn family(&self) -> Vec<Pid> {
        let mut family = vec![self.pid()];
        let mut next = 0;
        while let Some(pid) = family.get(next).copied() {
            next += 1;
            for task in tasks(pid) {
                let children = proc(pid, &format!("task/{task}/children"));
                let children = children.split_whitespace().filter_map(|n| n.parse().ok());
                family.extend(children.map(Pid::from_raw));
            }
        }
        family
    }

    pub(crate) fn counters(&self) -> Counters {
        let mut counters = Counters::default();
        for pid in self.family() {
            counters.cpu += cpu_time(pid) + cpu_time_of_dead_children(pid);
            for task in tasks(pid) {
                // On-CPU time in nanoseconds comes first (proc_pid_schedstat(5)).
                let times = proc(pid, &format!("task/{task}/schedstat"));
                let nanos = times.split(' ').next().and_then(|nanos| nanos.parse().ok());
                counters.living_cpu += Duration::from_nanos(nanos.unwrap_or(0));
                let status = proc(pid, &format!("task/{task}/status"));
                counters.switches += field(&status, "voluntary_ctxt_switches:");
                counters.switches += field(&status, "nonvoluntary_ctxt_switches:");
            }
        }
        counters
    }

    pub(crate) fn population(&self) -> Population {
        let family = self.family();
        Population {
            threads: family.iter().map(|pid| tasks(*pid).len()).sum(),
            children: family.len() - 1,
        }
    }

    pub(crate) fn memory(&self) -> Memory {
        let status = proc(self.pid(), "status");
        Memory {
            resident: field(&status, "VmRSS:"),
            anonymous: field(&status, "RssAnon:"),
        }
    }
}

/// A file of a process; empty when it has ended.
fn proc(pid: Pid, file: &str) -> String {
    fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default()
}

/// Its threads.
fn tasks(pid: Pid) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten();
    tasks
        .flatten()
        .map(|task| task.file_name().to_string_lossy().into_owned())
        .collect()
}

/// To the nanosecond, and with the threads that have ended: neither is true of /proc/PID/stat and
/// /proc/PID/schedstat.
fn cpu_time(pid: Pid) -> Duration {
    let time = clock_getcpuclockid(pid).and_then(clock_gettime);
    time.map_or(Duration::ZERO, Duration::from)
}

/// Of the children that were waited for, in ticks.
fn cpu_time_of_dead_children(pid: Pid) -> Duration {
    let stat = proc(pid, "stat");
    // The name, which may hold anything, ends at the last parenthesis; cutime and cstime are fields 16 and
    // 17 (proc_pid_stat(5)), the first after it is field 3.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks = fields.split_whitespace().skip(13).take(2);
    let ticks: u32 = ticks.filter_map(|ticks| ticks.parse::<u32>().ok()).sum();
    let per_second = sysconf(SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100);
    Duration::from_secs(1) * ticks / u32::try_from(per_second).unwrap_or(100)
}

/// The number after a name at the start of a line.
fn field(status: &str, name: &str) -> u64 {
    let value = status.lines().find_map(|line| line.strip_prefix(name));
    let number = value.and_then(|value| value.split_whitespace().next()?.parse().ok());
    number.unwrap_or(0)
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended; then it was missed elsewhere.
        let _ = kill(self.pid(), Signal::SIGTERM);
        let _ = self.child.wait();
    }
}
