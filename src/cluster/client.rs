//! The connection to the API server, with a limit for everything that may hang.
//!
//! kube's own stack neither bounds the wait for an answer nor notices a peer that went away without
//! a word; a watch on such a connection would be blind for minutes. Ours has deadlines for connecting
//! and for each call, and keepalive probes below the watches. It never retries: that is the caller's.

use std::future::Future;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use http::header::{HeaderValue, RETRY_AFTER, USER_AGENT};
use http::{Response, StatusCode};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::ConfigExt;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::Status;
use kube::core::response::StatusDetails;
use thiserror::Error;
use tower::{BoxError, ServiceBuilder, ServiceExt};

use super::ApiError;
use super::error::causes;
use crate::serve::{ApiMethod, Metrics};

/// How long a call may take, from the first byte sent to the last byte read.
pub const CALL_DEADLINE: Duration = Duration::from_secs(10);
/// How long a TCP connection may take to come about.
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);
/// A connection that is silent for so long is probed ...
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
/// ... this often ...
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// ... and given up after so many probes without an answer.
const KEEPALIVE_PROBES: u32 = 3;
/// Bytes that the peer has not acknowledged for so long mean that it is gone.
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);
/// Idle connections are kept for the next call for so long.
const POOL_IDLE: Duration = Duration::from_secs(60);

/// Why there is no client. The texts are complete and say what to do.
#[derive(Debug, Error)]
pub enum ClientError {
    /// `KUBECONFIG` names a file that can't be used.
    #[error("KUBECONFIG={path}: {why}; correct the file or unset the variable to run in a cluster", path = path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// There is no service account, so this is not a Pod or one without a token.
    #[error(
        "no access to an API server: {why}; run in a Pod with automountServiceAccountToken, or set KUBECONFIG to a file"
    )]
    InCluster {
        /// What is missing.
        why: String,
    },
    /// Certificates or credentials can't be used.
    #[error("the credentials for the API server can't be used: {why}")]
    Credentials {
        /// What is wrong with them.
        why: String,
    },
    /// Proxies are not supported.
    #[error("the kubeconfig asks for a proxy, which is not supported; remove proxy-url from it")]
    Proxy,
}

/// Where the API server is and who we are (contract CFG-43): the file that `KUBECONFIG` names, or the
/// service account of the Pod.
///
/// # Errors
/// A [`ClientError`] when neither can be used.
pub async fn config() -> Result<kube::Config, ClientError> {
    match std::env::var_os("KUBECONFIG").filter(|path| !path.is_empty()) {
        Some(path) => from_file(path.into()).await,
        None => kube::Config::incluster().map_err(|e| ClientError::InCluster { why: causes(&e) }),
    }
}

async fn from_file(path: PathBuf) -> Result<kube::Config, ClientError> {
    let wrong = |path: PathBuf, error: &kube::config::KubeconfigError| ClientError::Kubeconfig {
        path,
        why: causes(error),
    };
    let file = match Kubeconfig::read_from(&path) {
        Ok(file) => file,
        Err(error) => return Err(wrong(path, &error)),
    };
    kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
        .await
        .map_err(|error| wrong(path, &error))
}

/// A client for `config`, with our deadlines instead of the ones in it.
///
/// # Errors
/// A [`ClientError`] when the certificates or credentials in `config` can't be used.
pub fn client(mut config: kube::Config) -> Result<kube::Client, ClientError> {
    if config.proxy_url.is_some() {
        return Err(ClientError::Proxy);
    }
    let unusable = |error: kube::Error| ClientError::Credentials {
        why: causes(&error),
    };
    let agent = concat!("provisor/", env!("CARGO_PKG_VERSION"));
    config
        .headers
        .push((USER_AGENT, HeaderValue::from_static(agent)));

    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_DEADLINE));
    tcp.set_keepalive(Some(KEEPALIVE_IDLE));
    tcp.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    tcp.set_keepalive_retries(Some(KEEPALIVE_PROBES));
    tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
    let tls = config
        .rustls_https_connector_with_connector(tcp)
        .map_err(unusable)?;
    let http: HttpClient<_, kube::client::Body> = HttpClient::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(POOL_IDLE)
        .build(tls);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().map_err(unusable)?)
        .layer(config.extra_headers_layer().map_err(unusable)?)
        .map_err(BoxError::from)
        .service(http)
        .map_result(heed_retry_after);
    Ok(kube::Client::new(service, config.default_namespace))
}

/// kube drops the headers of an answer that is an error; this keeps what `Retry-After` says.
fn heed_retry_after<B>(answer: Result<Response<B>, BoxError>) -> Result<Response<B>, BoxError> {
    let answer = answer?;
    let code = answer.status();
    if code != StatusCode::TOO_MANY_REQUESTS && code != StatusCode::SERVICE_UNAVAILABLE {
        return Ok(answer);
    }
    let asked = answer.headers().get(RETRY_AFTER);
    let seconds = asked.and_then(|value| value.to_str().ok()?.parse().ok());
    let Some(retry_after_seconds) = seconds else {
        return Ok(answer);
    };
    let details = StatusDetails {
        name: String::new(),
        group: String::new(),
        kind: String::new(),
        uid: String::new(),
        causes: Vec::new(),
        retry_after_seconds,
    };
    let status = Status::failure(&format!("asks to wait {retry_after_seconds} s"), "")
        .with_code(code.as_u16())
        .with_details(details);
    Err(Box::new(kube::Error::Api(status.boxed())))
}

/// One attempt at a call, with its deadline, counted in `metrics`.
///
/// # Errors
/// The call's own error, or [`ApiError::Timeout`] at the deadline.
pub async fn call<T>(
    metrics: &Metrics,
    method: ApiMethod,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, ApiError> {
    let start = Instant::now();
    let answer = match tokio::time::timeout(CALL_DEADLINE, request).await {
        Ok(answer) => answer.map_err(ApiError::from),
        Err(_) => Err(ApiError::Timeout(format!(
            "nothing within {} s",
            CALL_DEADLINE.as_secs()
        ))),
    };
    // That an object is not there is an answer as good as any.
    let failed = !matches!(answer, Ok(_) | Err(ApiError::NotFound(_)));
    metrics.api_call(method, start.elapsed(), failed);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(code: u16, retry_after: Option<&str>) -> Result<Response<()>, BoxError> {
        let mut builder = Response::builder().status(code);
        if let Some(value) = retry_after {
            builder = builder.header(RETRY_AFTER, value);
        }
        Ok(builder.body(()).unwrap())
    }

    #[test]
    fn the_header_reaches_the_caller() {
        for code in [429, 503] {
            let error = heed_retry_after(answer(code, Some("5"))).unwrap_err();
            let error: ApiError = (*error.downcast::<kube::Error>().unwrap()).into();
            assert_eq!(error.retry_after(), Some(Duration::from_secs(5)), "{code}");
        }
    }

    #[test]
    fn other_answers_pass() {
        for (code, header) in [
            (200, Some("5")),
            (500, Some("5")),
            (429, None),
            (503, Some("Tue, 01 Dec 2026")),
        ] {
            assert!(
                heed_retry_after(answer(code, header)).is_ok(),
                "{code} {header:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_hangs_ends_at_its_deadline() {
        let metrics = Metrics::new("test");
        let hangs = std::future::pending::<kube::Result<()>>();
        let error = call(&metrics, ApiMethod::Get, hangs).await.unwrap_err();
        assert_eq!(error.reason(), "Timeout");
        assert!(metrics.render().contains(
            r#"local_volume_provisioner_apiserver_requests_failed_total{method="get"} 1"#
        ));
    }

    #[tokio::test]
    async fn a_missing_kubeconfig_says_what_to_do() {
        let error = from_file("/nonexistent/config".into()).await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains("/nonexistent/config") && text.contains("KUBECONFIG"));
        assert_eq!(text.matches("No such file").count(), 1, "{text}");
    }
}
