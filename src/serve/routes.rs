//! What each path answers.

use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Bytes;

use super::{State, metrics};

type Answer = Response<Full<Bytes>>;

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
/// The name of upstream's one readiness check (contract HTTP-02).
const CHECK: &str = "DiscovererReadyzCheck";

/// Answers `request`.
pub(super) fn answer<B>(state: &State, request: &Request<B>) -> Answer {
    let path = request.uri().path();
    let page = match path {
        _ if path == state.metrics_path => Page::Metrics,
        "/healthz" | "/livez" => Page::Alive,
        "/readyz" | "/ready" => Page::Ready,
        "/ready/DiscovererReadyzCheck" => Page::Check,
        "/status" => Page::Status,
        _ => return text(StatusCode::NOT_FOUND, "there is nothing here\n"),
    };
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, "GET and HEAD only\n");
        let allowed = HeaderValue::from_static("GET, HEAD");
        answer.headers_mut().insert(ALLOW, allowed);
        return answer;
    }
    match page {
        Page::Metrics => body(
            StatusCode::OK,
            metrics::CONTENT_TYPE,
            state.metrics.render(),
        ),
        Page::Alive => alive(state),
        Page::Ready => ready(state, request.uri().query().unwrap_or_default()),
        Page::Check => check(state),
        Page::Status => status(state),
    }
}

enum Page {
    Metrics,
    Alive,
    Ready,
    Check,
    Status,
}

fn alive(state: &State) -> Answer {
    match state.health.stuck() {
        None => text(StatusCode::OK, "ok"),
        Some(age) => text(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("the main loop has not turned for {} s\n", age.as_secs()),
        ),
    }
}

/// Ready means synced and one pass done; what lies in a directory does not matter (W-39).
fn ready(state: &State, query: &str) -> Answer {
    let missing = state.health.missing();
    if !missing.is_empty() {
        let mut lines = format!("[-]{CHECK} failed\n");
        for what in missing {
            lines.push_str(what);
            lines.push('\n');
        }
        return text(StatusCode::INTERNAL_SERVER_ERROR, lines);
    }
    let verbose = query
        .split('&')
        .any(|p| p.split('=').next() == Some("verbose"));
    if verbose {
        return text(
            StatusCode::OK,
            format!("[+]{CHECK} ok\nready check passed\n"),
        );
    }
    text(StatusCode::OK, "ok")
}

fn check(state: &State) -> Answer {
    match state.health.missing().first() {
        None => text(StatusCode::OK, "ok"),
        Some(what) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{what}\n")),
    }
}

fn status(state: &State) -> Answer {
    let snapshot = state.status.borrow().clone();
    match serde_json::to_string(&*snapshot) {
        Ok(json) => body(StatusCode::OK, JSON, json),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}

fn text(code: StatusCode, text: impl Into<Bytes>) -> Answer {
    body(code, TEXT, text)
}

fn body(code: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = code;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}
