//! A node without a cluster: the stand-in API server and the daemon, each on a thread of its own.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use provisor::commands::run::{Options, run};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::apiserver::ApiServer;

pub(crate) const NODE: &str = "demo-node";
pub(crate) const FAST: &str = "fast-disks";
pub(crate) const RAW: &str = "raw-disks";

/// Each thing that the demo waits for takes milliseconds; this is for a machine that is very busy.
const WAIT: Duration = Duration::from_secs(20);

/// The API server, the daemon, and what they work on.
pub(crate) struct DemoNode {
    // Dropped in this order: the daemon ends before its API server does.
    daemon: Daemon,
    pub(crate) server: ApiServer,
    dir: PathBuf,
}

impl DemoNode {
    /// Starts both and waits until the daemon says that it is ready.
    pub(crate) async fn start(dir: &Path) -> anyhow::Result<Self> {
        let server = ApiServer::start();
        server.put(json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": NODE, "labels": {"kubernetes.io/hostname": NODE}},
        }));
        let mut map = String::new();
        for (class, settings) in [(FAST, ""), (RAW, "  volumeMode: Block\n")] {
            server.put(json!({
                "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
                "metadata": {"name": class}, "provisioner": "kubernetes.io/no-provisioner",
                "volumeBindingMode": "WaitForFirstConsumer", "reclaimPolicy": "Delete",
            }));
            let path = dir.join(class);
            fs::create_dir(&path).with_context(|| format!("can't make {}", path.display()))?;
            let path = path.display();
            map += &format!("{class}:\n  hostDir: {path}\n  mountDir: {path}\n{settings}");
        }
        let config_dir = dir.join("config");
        fs::create_dir(&config_dir)
            .and_then(|()| fs::write(config_dir.join("storageClassMap"), map))
            .with_context(|| format!("can't write {}", config_dir.display()))?;
        let daemon = Daemon::start(&server, config_dir)?;
        let mut node = Self {
            daemon,
            server,
            dir: dir.to_owned(),
        };
        node.until_ready().await?;
        Ok(node)
    }

    async fn until_ready(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + WAIT;
        loop {
            match self.daemon.get("/readyz") {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() > deadline => {
                    return Err(error.context("the daemon does not get ready"));
                }
                Err(_) if self.daemon.is_finished() => bail!(self.daemon.stop()),
                Err(_) => tokio::time::sleep(Duration::from_millis(2)).await,
            }
        }
    }

    /// A path in a class's directory.
    pub(crate) fn entry(&self, class: &str, entry: &str) -> PathBuf {
        self.dir.join(class).join(entry)
    }

    /// Waits until `probe` gives something; it is asked after each change on the API server.
    pub(crate) async fn until<T>(
        &self,
        what: &str,
        probe: impl FnMut(&ApiServer) -> Option<T>,
    ) -> anyhow::Result<T> {
        let found = self.server.until(WAIT, probe).await;
        found.with_context(|| format!("waited {} s in vain: {what}", WAIT.as_secs()))
    }

    /// Waits until the volume is Available and its UID is not `old`.
    pub(crate) async fn until_available(&self, pv: &str, old: &str) -> anyhow::Result<Value> {
        self.until(&format!("{pv} is Available"), |server| {
            let object = server.pv(pv)?;
            let is_it = text(&object, "/status/phase") == "Available"
                && text(&object, "/metadata/uid") != old
                && object.pointer("/metadata/deletionTimestamp").is_none();
            is_it.then_some(object)
        })
        .await
    }

    /// Waits for an Event about an object; its words.
    pub(crate) async fn until_event(&self, object: &str, reason: &str) -> anyhow::Result<String> {
        self.until(&format!("an Event {reason} about {object}"), |server| {
            server.events().into_iter().find_map(|event| {
                let is_it = text(&event, "/involvedObject/name") == object
                    && text(&event, "/reason") == reason;
                is_it.then(|| text(&event, "/message").to_owned())
            })
        })
        .await
    }

    /// What the daemon's `/status` says.
    pub(crate) fn status(&self) -> anyhow::Result<Value> {
        let body = self.daemon.get("/status")?;
        serde_json::from_str(&body).context("/status is not JSON")
    }

    /// Ends the daemon as SIGTERM does.
    pub(crate) fn stop(mut self) -> anyhow::Result<()> {
        match self.daemon.end() {
            Some(result) => result.context("the daemon did not stop cleanly"),
            None => Ok(()),
        }
    }
}

/// A string within an object; empty when it is not there.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// The daemon, as `provisor run` runs it.
struct Daemon {
    stop: CancellationToken,
    thread: Option<JoinHandle<anyhow::Result<()>>>,
    address: String,
}

impl Daemon {
    fn start(server: &ApiServer, config_dir: PathBuf) -> anyhow::Result<Self> {
        let address = TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .context("the loopback interface has no free port")?
            .to_string();
        let options = Options {
            config_dir,
            node_name: NODE.into(),
            client: server.client_config(),
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
                let result = runtime.block_on(run(options, token));
                runtime.shutdown_timeout(Duration::from_millis(200));
                result
            })
            .context("can't start a thread")?;
        Ok(Self {
            stop,
            thread: Some(thread),
            address,
        })
    }

    fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Stops it and waits for its end; how that was, the first time.
    fn end(&mut self) -> Option<anyhow::Result<()>> {
        self.stop.cancel();
        let ended = self.thread.take()?.join();
        Some(ended.unwrap_or_else(|_| Err(anyhow!("the daemon panicked"))))
    }

    /// Why it ended too early.
    fn stop(&mut self) -> anyhow::Error {
        match self.end() {
            Some(Err(error)) => error.context("the daemon ended"),
            _ => anyhow!("the daemon ended"),
        }
    }

    fn get(&self, path: &str) -> anyhow::Result<String> {
        let mut stream = TcpStream::connect(&self.address).context("the daemon does not listen")?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: demo\r\nConnection: close\r\n\r\n"
        )?;
        let mut answer = String::new();
        stream
            .read_to_string(&mut answer)
            .context("the daemon does not answer")?;
        let (head, body) = answer
            .split_once("\r\n\r\n")
            .context("the daemon answers no HTTP")?;
        match head.split(' ').nth(1) {
            Some("200") => Ok(body.to_owned()),
            _ => bail!("{path}: {body}"),
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Whatever it has to say, the demo has failed for another reason already.
        let _ = self.end();
    }
}
