//! What goes over the wire to the API server, counted by a forwarder in between. TLS passes through it
//! untouched: the certificate is still checked against the name that the server goes by.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kube::config::Kubeconfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// Bytes taken at a time.
const BUFFER_BYTES: usize = 64 * 1024;

/// A forwarder to one API server.
pub(super) struct Wire {
    address: SocketAddr,
    read: Arc<AtomicU64>,
    task: tokio::task::JoinHandle<()>,
}

impl Wire {
    /// Forwards whatever comes to a port of its own on loopback, for as long as it lives.
    pub(super) async fn to(server: &http::Uri) -> Self {
        let host = server.host().expect("a server has a host").to_owned();
        let is_tls = server.scheme() == Some(&http::uri::Scheme::HTTPS);
        let port = server.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.expect("loopback has a free port");
        let address = listener.local_addr().expect("it is bound");
        let read = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&read);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (host, counter) = (host.clone(), Arc::clone(&counter));
                tokio::spawn(async move {
                    // Brackets belong to the URL, not to the address.
                    let host = host.trim_matches(['[', ']']);
                    if let Ok(server) = TcpStream::connect((host, port)).await {
                        forward(client, server, &counter).await;
                    }
                });
            }
        });
        Self {
            address,
            read,
            task,
        }
    }

    /// Bytes that the server has sent so far.
    pub(super) fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Writes a kubeconfig like the one at `original`, but by way of the forwarder.
    pub(super) fn kubeconfig(&self, original: &Path, path: &Path) {
        let mut config = Kubeconfig::read_from(original).expect("the kubeconfig is whole");
        for cluster in config
            .clusters
            .iter_mut()
            .filter_map(|c| c.cluster.as_mut())
        {
            let server = cluster.server.as_deref().unwrap_or_default();
            let server: http::Uri = server.parse().expect("a server is a URL");
            let scheme = server.scheme_str().unwrap_or("https");
            let prefix = server.path().trim_end_matches('/');
            cluster.server = Some(format!("{scheme}://{}{prefix}", self.address));
            if scheme == "https" && cluster.tls_server_name.is_none() {
                let host = server.host().expect("a server has a host");
                cluster.tls_server_name = Some(host.trim_matches(['[', ']']).to_owned());
            }
        }
        // JSON is YAML.
        let text = serde_json::to_string(&config).expect("what was read can be written");
        std::fs::write(path, text).expect("the directory is ours");
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Carries both ways until both sides have closed.
async fn forward(client: TcpStream, server: TcpStream, read: &AtomicU64) {
    // A delay would be our own doing.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let asked = carry(from_client, to_server, None);
    let answered = carry(from_server, to_client, Some(read));
    tokio::join!(asked, answered);
}

async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, count: Option<&AtomicU64>) {
    let mut buffer = vec![0; BUFFER_BYTES];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        if let Some(count) = count {
            count.fetch_add(u64::try_from(length).unwrap_or(0), Ordering::Relaxed);
        }
        if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
    // The other side has ended its half; so does ours.
    let _ = to.shutdown().await;
}
