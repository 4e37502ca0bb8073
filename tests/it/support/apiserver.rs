//! A stand-in for the Kubernetes API server, in this process, for tests, the demo and benches.
//!
//! It is a real HTTP/1.1 server on a port of the loopback interface, so that everything between a
//! `kube::Client` and the socket is the real thing, and other processes can use it too. Behind it
//! is one store of JSON objects with the semantics of a 1.37 server for the few resources that a
//! provisioner meets; `standin.rs` holds scenarios that pass against both.
//!
//! It runs on a thread with its own runtime, so it can be used from asynchronous and plain code,
//! whatever runtime the caller has. Every request and every change is kept for assertions; faults
//! can be injected. Dropping the handle closes the port and all connections and ends the thread.

// The paths are spelled out because the demo includes this file from elsewhere.
#[path = "apiserver/body.rs"]
mod body;
#[path = "apiserver/call.rs"]
mod call;
#[path = "apiserver/controllers.rs"]
mod controllers;
#[path = "apiserver/discovery.rs"]
mod discovery;
#[path = "apiserver/failure.rs"]
mod failure;
#[path = "apiserver/fault.rs"]
mod fault;
#[path = "apiserver/http.rs"]
mod http;
#[path = "apiserver/journal.rs"]
mod journal;
#[path = "apiserver/naming.rs"]
mod naming;
#[path = "apiserver/object.rs"]
mod object;
#[path = "apiserver/patch.rs"]
mod patch;
#[path = "apiserver/quantity.rs"]
mod quantity;
#[path = "apiserver/read.rs"]
mod read;
#[path = "apiserver/resource.rs"]
mod resource;
#[path = "apiserver/selector.rs"]
mod selector;
#[path = "apiserver/state.rs"]
mod state;
#[path = "apiserver/store.rs"]
mod store;
#[path = "apiserver/validation.rs"]
mod validation;
#[path = "apiserver/volumes.rs"]
mod volumes;
#[path = "apiserver/watch.rs"]
mod watch;
#[path = "apiserver/write.rs"]
mod write;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use serde_json::json;
use tokio::runtime;
use tokio_util::sync::CancellationToken;

use self::state::Shared;

pub(crate) use self::controllers::Controllers;
pub(crate) use self::fault::{Action, Fault};
pub(crate) use self::journal::{Request, Verb};
pub(crate) use self::store::{Change, ChangeKind};
pub(crate) use self::volumes::local_pv;

/// A running stand-in.
#[derive(Debug)]
pub(crate) struct ApiServer {
    shared: Arc<Shared>,
    address: SocketAddr,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl ApiServer {
    /// Starts a server with running controllers and the namespaces `default` and `kube-system`.
    pub(crate) fn start() -> Self {
        Self::start_with(Controllers::on())
    }

    /// Starts a server.
    pub(crate) fn start_with(controllers: Controllers) -> Self {
        Self::try_start(controllers).expect("the loopback interface has a free port")
    }

    fn try_start(controllers: Controllers) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let shared = Arc::new(Shared::new(controllers));
        let stop = CancellationToken::new();
        let thread = Builder::new().name("apiserver".to_owned()).spawn({
            let (shared, stop) = (shared.clone(), stop.clone());
            move || {
                runtime.block_on(async {
                    // Can't fail for a listener that is bound and not blocking.
                    if let Ok(listener) = tokio::net::TcpListener::from_std(listener) {
                        http::serve(shared, listener, stop).await;
                    }
                });
            }
        })?;
        let server = Self {
            shared,
            address,
            stop,
            thread: Some(thread),
        };
        for name in ["default", "kube-system"] {
            let metadata = json!({"name": name});
            server.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}));
        }
        Ok(server)
    }

    /// The address as a URL.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A configuration for `kube::Client`; default namespace `default`, no retries by itself.
    pub(crate) fn client_config(&self) -> kube::Config {
        let url = self.url().parse().expect("a socket address makes a URL");
        let mut config = kube::Config::new(url);
        config.default_retry = false;
        config
    }

    /// A client on the caller's runtime.
    pub(crate) fn client(&self) -> kube::Client {
        kube::Client::try_from(self.client_config()).expect("a plain HTTP client needs no files")
    }

    /// Writes a kubeconfig for other processes.
    pub(crate) fn kubeconfig(&self, path: &Path) -> io::Result<()> {
        let url = self.url();
        let text = format!(
            "apiVersion: v1\n\
             kind: Config\n\
             clusters: [{{name: stand-in, cluster: {{server: \"{url}\"}}}}]\n\
             users: [{{name: stand-in, user: {{}}}}]\n\
             contexts: [{{name: stand-in, context: {{cluster: stand-in, user: stand-in}}}}]\n\
             current-context: stand-in\n",
        );
        std::fs::write(path, text)
    }

    /// Stops or resumes the emulated controllers; resumed ones catch up at once.
    pub(crate) fn set_controllers(&self, controllers: Controllers) {
        self.shared.change(|state| state.controllers = controllers);
    }

    /// The current resource version.
    pub(crate) fn version(&self) -> u64 {
        self.shared.read(|state| state.store.version())
    }

    /// Makes everything that happened until now unavailable to watches and exact lists, as a
    /// compaction does: they get 410.
    pub(crate) fn compact(&self) {
        self.shared.change(|state| state.store.compact());
    }

    /// How many watches are open.
    pub(crate) fn open_watches(&self) -> usize {
        self.shared.read(|state| state.open_watches)
    }

    /// Ends all open watches now.
    pub(crate) fn drop_watches(&self) {
        self.shared
            .disturbance
            .send_modify(|disturbance| disturbance.drops += 1);
    }

    /// Sends a bookmark on all open watches that take them.
    pub(crate) fn send_bookmarks(&self) {
        self.shared
            .disturbance
            .send_modify(|disturbance| disturbance.bookmarks += 1);
    }

    /// Sets how often watches that open from now on get a bookmark; 60 seconds at first.
    pub(crate) fn set_bookmark_interval(&self, interval: Duration) {
        self.shared
            .change(|state| state.bookmark_interval = interval);
    }

    /// Adds a fault; gives a number for [`ApiServer::lift`].
    pub(crate) fn inject(&self, fault: Fault) -> u64 {
        self.shared.change(|state| state.faults.add(fault))
    }

    /// Ends one fault. Requests that hang already stay so.
    pub(crate) fn lift(&self, fault: u64) {
        self.shared.change(|state| state.faults.remove(fault));
    }

    /// Ends all faults.
    pub(crate) fn lift_all(&self) {
        self.shared.change(|state| state.faults.clear());
    }

    /// All requests so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.shared.read(|state| state.journal.clone())
    }

    /// The requests for which `wanted` is true.
    pub(crate) fn requests_matching(&self, wanted: impl Fn(&Request) -> bool) -> Vec<Request> {
        self.shared.read(|state| {
            state
                .journal
                .iter()
                .filter(|request| wanted(request))
                .cloned()
                .collect()
        })
    }

    /// All changes of all objects so far.
    pub(crate) fn changes(&self) -> Vec<Change> {
        self.shared.read(|state| state.store.log().to_vec())
    }

    /// The changes that made versions above `version`.
    pub(crate) fn changes_since(&self, version: u64) -> Vec<Change> {
        self.shared
            .read(|state| state.store.since(version).to_vec())
    }

    /// The changes of one object.
    pub(crate) fn changes_of(&self, plural: &str, name: &str) -> Vec<Change> {
        let is_it = |change: &&Change| change.resource == plural && change.name == name;
        self.shared
            .read(|state| state.store.log().iter().filter(is_it).cloned().collect())
    }

    /// Waits until `probe` gives something, at most `limit`; looks after each request and change.
    pub(crate) async fn until<T>(
        &self,
        limit: Duration,
        mut probe: impl FnMut(&Self) -> Option<T>,
    ) -> Option<T> {
        let mut pulse = self.shared.pulse.subscribe();
        let found = async {
            loop {
                if let Some(found) = probe(self) {
                    return Some(found);
                }
                pulse.changed().await.ok()?;
            }
        };
        tokio::time::timeout(limit, found).await.ok().flatten()
    }

    /// [`ApiServer::until`] for plain code: blocks.
    pub(crate) fn wait_until<T>(
        &self,
        limit: Duration,
        mut probe: impl FnMut(&Self) -> Option<T>,
    ) -> Option<T> {
        self.shared.wait(limit, || probe(self))
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // It ends within one turn of its loop; a panic there was already printed.
            let _ = thread.join();
        }
    }
}
