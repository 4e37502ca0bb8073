//! The daemon as a process, and what the kernel says of it.

use std::fs::{self, File};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::daemon::Setup;
use crate::site::until;

/// The release binary with its usual log, which goes to a file.
pub(crate) struct Daemon {
    child: Child,
    address: String,
}

/// What a process has used since its start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) cpu: Duration,
    pub(crate) switches: u64,
}

/// What a process holds, in KiB.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Memory {
    pub(crate) resident: u64,
    pub(crate) anonymous: u64,
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

    fn proc(&self, file: &str) -> String {
        let path = format!("/proc/{}/{file}", self.child.id());
        fs::read_to_string(&path).unwrap_or_default()
    }

    /// Of all its threads; what those had used that have ended is not in it.
    pub(crate) fn counters(&self) -> Counters {
        let mut counters = Counters::default();
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("it runs");
        for task in tasks.flatten() {
            let task = task.file_name().to_string_lossy().into_owned();
            // On-CPU time in nanoseconds comes first (proc_pid_schedstat(5)).
            let times = self.proc(&format!("task/{task}/schedstat"));
            let nanos = times.split(' ').next().and_then(|nanos| nanos.parse().ok());
            counters.cpu += Duration::from_nanos(nanos.unwrap_or(0));
            let status = self.proc(&format!("task/{task}/status"));
            counters.switches += field(&status, "voluntary_ctxt_switches:");
            counters.switches += field(&status, "nonvoluntary_ctxt_switches:");
        }
        counters
    }

    pub(crate) fn memory(&self) -> Memory {
        let status = self.proc("status");
        Memory {
            resident: field(&status, "VmRSS:"),
            anonymous: field(&status, "RssAnon:"),
        }
    }

    pub(crate) fn threads(&self) -> u64 {
        field(&self.proc("status"), "Threads:")
    }
}

/// The number after a name at the start of a line.
fn field(status: &str, name: &str) -> u64 {
    let value = status.lines().find_map(|line| line.strip_prefix(name));
    let number = value.and_then(|value| value.split_whitespace().next()?.parse().ok());
    number.unwrap_or(0)
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Ok(pid) = i32::try_from(self.child.id()) {
            // It may have ended; then it was missed elsewhere.
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        let _ = self.child.wait();
    }
}
