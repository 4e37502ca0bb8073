//! HTTP: metrics, health and status. It only shows; nothing can be changed through it.
//!
//! One request per connection, each with a limit on its time, so that no client can hold a
//! descriptor for long. Everything that is shown is either shared counters or the last snapshot that
//! the owner published, so that a request never waits for the owner.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use thiserror::Error;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_util::sync::CancellationToken;

mod health;
mod listen;
mod metrics;
mod routes;
mod status;

pub use health::{Gate, HEARTBEAT_LIMIT, Health};
pub use listen::AddressError;
pub use metrics::{ApiMethod, CleanType, Metrics, WatchKind};
pub use status::{ClassStatus, EntryStatus, JobStatus, Outcome, SourceStatus, Status};

/// Connections at a time; more wait in the kernel's queue.
const CONNECTIONS: usize = 64;
/// A client must have sent its request within this time.
const HEADER_DEADLINE: Duration = Duration::from_secs(5);
/// And have read the answer within this time.
const CONNECTION_DEADLINE: Duration = Duration::from_secs(15);
/// No request that we answer is longer.
const REQUEST_MAX: usize = 16 * 1024;
/// Pause after a failed accept, which is usually a lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// What the routes show.
#[derive(Clone)]
pub struct State {
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// The path of the metrics, `/metrics` unless configured otherwise (contract CFG-51).
    pub metrics_path: String,
    /// Liveness and readiness.
    pub health: Arc<Health>,
    /// The last snapshot of the owner.
    pub status: watch::Receiver<Arc<Status>>,
}

/// Why the server does not listen.
#[derive(Debug, Error)]
pub enum BindError {
    /// The address can't be read.
    #[error("the listen address can't be used")]
    Address(#[source] AddressError),
    /// The address can't be listened on.
    #[error("can't listen on {address}; is the port taken, on a host network by another Pod?")]
    Listen {
        /// The address as configured.
        address: String,
        /// What the kernel says.
        #[source]
        source: std::io::Error,
    },
}

/// A listening server.
pub struct Server {
    listener: TcpListener,
}

impl Server {
    /// Listens on `address` in Go's spelling: `:8080` is port 8080 on every address of the machine.
    ///
    /// # Errors
    /// A [`BindError`] when the address is malformed or taken.
    pub async fn bind(address: &str) -> Result<Self, BindError> {
        let parsed = listen::parse(address).map_err(BindError::Address)?;
        match listen::bind(parsed).await {
            Ok(listener) => Ok(Self { listener }),
            Err(source) => Err(BindError::Listen {
                address: address.to_owned(),
                source,
            }),
        }
    }

    /// The address that it listens on, with the port that the kernel chose for port 0.
    ///
    /// # Errors
    /// Whatever the kernel says.
    pub fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `cancel`.
    pub async fn serve(self, state: State, cancel: CancellationToken) {
        cancel
            .run_until_cancelled(self.accept(Arc::new(state)))
            .await;
    }

    async fn accept(self, state: Arc<State>) {
        let slots = Arc::new(Semaphore::new(CONNECTIONS));
        let mut failing = false;
        loop {
            let slot = Arc::clone(&slots).acquire_owned().await;
            let slot = slot.expect("the semaphore is never closed");
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    failing = false;
                    tokio::spawn(answer(stream, Arc::clone(&state), slot));
                }
                Err(error) => {
                    if !failing {
                        tracing::warn!(%error, "connection not accepted");
                    }
                    failing = true;
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

/// Answers the one request of a connection.
async fn answer(stream: TcpStream, state: Arc<State>, _slot: OwnedSemaphorePermit) {
    let service = service_fn(|request: Request<Incoming>| {
        let response: Response<_> = routes::answer(&state, &request);
        async move { Ok::<_, Infallible>(response) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_DEADLINE)
        .max_buf_size(REQUEST_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    match tokio::time::timeout(CONNECTION_DEADLINE, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "request failed"),
        Err(_) => tracing::debug!("request took too long"),
    }
}

#[cfg(test)]
mod tests;
