//! The daemon under test: in this process for most tests, the real binary for those that kill it.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use provisor::commands::run::{self, Options};
use tokio_util::sync::CancellationToken;

/// How long a daemon may take to stop; its own limit is 20 s.
const STOP_LIMIT: Duration = Duration::from_secs(25);

/// What a daemon is told.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) access: kube::Config,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) config_dir: PathBuf,
    pub(crate) node: String,
}

/// The daemon on a thread of its own, as `provisor run` runs it.
pub(crate) struct Daemon {
    stop: CancellationToken,
    thread: Option<JoinHandle<anyhow::Result<()>>>,
    address: String,
}

impl Daemon {
    pub(crate) fn start(setup: &Setup) -> Self {
        let address = free_address();
        let options = Options {
            config_dir: setup.config_dir.clone(),
            node_name: setup.node.clone(),
            client: setup.access.clone(),
            listen_address: Some(address.clone()),
            metrics_path: "/metrics".into(),
            start_spread: Duration::ZERO,
        };
        let stop = CancellationToken::new();
        let token = stop.clone();
        let thread = std::thread::Builder::new()
            .name("daemon".into())
            .spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()?;
                let result = runtime.block_on(run::run(options, token));
                runtime.shutdown_timeout(Duration::from_millis(200));
                result
            })
            .expect("a thread can be started");
        Self {
            stop,
            thread: Some(thread),
            address,
        }
    }

    /// Stops it as the first SIGTERM does and waits for the end.
    pub(crate) fn stop(mut self) -> anyhow::Result<()> {
        self.stop.cancel();
        self.thread
            .take()
            .map_or(Ok(()), |thread| thread.join().expect("the daemon panicked"))
    }

    /// Body of a GET on its HTTP server; `None` when it doesn't answer.
    pub(crate) fn get(&self, path: &str) -> Option<(u16, String)> {
        get(&self.address, path)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // A daemon that failed was reported by the test already.
            let _ = thread.join();
        }
    }
}

/// The binary as a process of its own.
pub(crate) struct Process {
    child: Child,
    address: String,
    log: PathBuf,
}

impl Process {
    pub(crate) fn start(setup: &Setup) -> Self {
        Self::start_with(setup, |command, address| {
            let args = ["run", "--start-spread=0", "--listen-address", address];
            command.args(args).env(
                "RUST_LOG",
                "debug,hyper=info,hyper_util=info,rustls=info,kube_client=info,tower=info",
            );
        })
    }

    /// As `arguments` makes it, but for where things are.
    pub(crate) fn start_with(setup: &Setup, arguments: impl FnOnce(&mut Command, &str)) -> Self {
        let address = free_address();
        let log = setup
            .config_dir
            .with_extension(format!("log-{}", address.replace(':', "-")));
        let file = std::fs::File::create(&log).expect("the test's directory takes a log");
        let mut command = Command::new(env!("CARGO_BIN_EXE_provisor"));
        arguments(&mut command, &address);
        let child = command
            .arg("--config-dir")
            .arg(&setup.config_dir)
            .env("MY_NODE_NAME", &setup.node)
            .env("KUBECONFIG", &setup.kubeconfig)
            .stdin(Stdio::null())
            .stderr(file)
            .spawn()
            .expect("the binary starts");
        Self {
            child,
            address,
            log,
        }
    }

    pub(crate) fn get(&self, path: &str) -> Option<(u16, String)> {
        get(&self.address, path)
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a pid is an i32")
    }

    /// SIGKILL, and waits until it is gone.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("the process is ours");
        self.child.wait().expect("the process is ours");
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(self.pid());
        nix::sys::signal::kill(pid, signal).expect("the process is ours");
    }

    /// Waits for it to end by itself; how it ended and how long that took.
    pub(crate) fn wait(mut self) -> (std::process::ExitStatus, Duration) {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("the process is ours") {
                return (status, began.elapsed());
            }
            assert!(
                began.elapsed() < STOP_LIMIT,
                "it does not stop: {}",
                self.log()
            );
            super::nap();
        }
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails when it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- log of the daemon ---\n{}", self.log());
        }
    }
}

/// An address of loopback that nobody listens on now.
fn free_address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    listener
        .local_addr()
        .expect("a bound listener has an address")
        .to_string()
}

/// A plain HTTP GET.
pub(crate) fn get(address: &str, path: &str) -> Option<(u16, String)> {
    use std::io::Write;
    let mut stream = std::net::TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    )
    .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, body.to_owned()))
}

/// The real binary with other arguments, to its end: exit success, standard output, standard error.
pub(crate) fn provisor(args: &[&str], env: &[(&str, &Path)]) -> (bool, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_provisor"))
        .args(args)
        .env_remove("KUBECONFIG")
        .envs(env.iter().copied())
        .stdin(Stdio::null())
        .output()
        .expect("the binary starts");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (
        output.status.success(),
        text(output.stdout),
        text(output.stderr),
    )
}
