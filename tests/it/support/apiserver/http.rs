//! HTTP: accepts connections, records requests, applies faults, writes answers.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use futures::{StreamExt, stream};
use http::{HeaderMap, Request as HttpRequest, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::call::Call;
use super::failure::Failure;
use super::fault::Action;
use super::journal::{Request, Verb, decode, is_true};
use super::resource::Target;
use super::state::Shared;

/// The body of an answer.
pub(super) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// Serves until `stop`; all connections are closed when it returns.
pub(super) async fn serve(shared: Arc<Shared>, listener: TcpListener, stop: CancellationToken) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            // Cancel-safe: a token stays cancelled.
            () = stop.cancelled() => break,
            // Cancel-safe: documented so; the connection stays in the backlog.
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                let shared = shared.clone();
                connections.spawn(async move {
                    let service = service_fn(|request| answer(shared.clone(), request));
                    let connection = http1::Builder::new();
                    // An error is the client's: it went away, or a fault closed the connection.
                    let _ = connection.serve_connection(TokioIo::new(stream), service).await;
                });
            }
            // Cancel-safe: documented so. Keeps the set from growing.
            Some(_) = connections.join_next() => {}
        }
    }
    connections.shutdown().await;
}

/// Answers one request. An error closes the connection without an answer.
async fn answer(
    shared: Arc<Shared>,
    request: HttpRequest<Incoming>,
) -> Result<Response<Body>, io::Error> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let path = parts.uri.path().to_owned();
    let target = Target::parse(&decode(&path));
    let record = record(
        &shared,
        &parts.method,
        &parts.uri,
        &parts.headers,
        &body,
        target.as_ref(),
    );
    let (number, action) = shared.change(|state| {
        let action = state.faults.take(&record);
        let version = state.store.version();
        state.journal.push(Request {
            version,
            ..record.clone()
        });
        (state.journal.len() - 1, action)
    });
    match &action {
        Some(Action::Hang) => std::future::pending::<()>().await,
        Some(Action::Disconnect) => return Err(closed()),
        Some(Action::Delay(time)) => tokio::time::sleep(*time).await,
        _ => {}
    }
    let call = Call {
        shared: &shared,
        record: &record,
        body: &body,
        action: action.as_ref(),
    };
    let mut response = call
        .refusal()
        .map_or_else(|| call.answer(target), Err)
        .unwrap_or_else(|failure| failed(&failure));
    if action == Some(Action::Garbage) {
        response = reply(200, "text/html", b"<html>not an API server</html>".to_vec());
    }
    if action == Some(Action::LoseAnswer) {
        return Err(closed());
    }
    let code = response.status().as_u16();
    shared.change(|state| state.journal[number].status = Some(code));
    if action == Some(Action::Truncate) {
        response = truncated(response);
    }
    Ok(response)
}

fn record(
    shared: &Shared,
    method: &http::Method,
    uri: &http::Uri,
    headers: &HeaderMap,
    body: &Bytes,
    target: Option<&Target>,
) -> Request {
    let header = |name| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
            .to_owned()
    };
    let mut request = Request {
        at: shared.started.elapsed(),
        version: 0,
        verb: Verb::Get,
        method: method.as_str().to_owned(),
        path: uri.path().to_owned(),
        query: uri.query().unwrap_or_default().to_owned(),
        user_agent: header(header::USER_AGENT),
        accept: header(header::ACCEPT),
        content_type: header(header::CONTENT_TYPE),
        body: serde_json::from_slice(body).unwrap_or_default(),
        status: None,
    };
    let is_watch = target.is_some_and(|target| target.is_watch) || is_true(&request.param("watch"));
    let is_collection = target.is_some_and(|target| target.name.is_empty());
    request.verb = match method.as_str() {
        "POST" => Verb::Create,
        "PUT" => Verb::Update,
        "PATCH" => Verb::Patch,
        "DELETE" => Verb::Delete,
        _ if target.is_some() && is_watch => Verb::Watch,
        _ if is_collection => Verb::List,
        _ => Verb::Get,
    };
    request
}

fn closed() -> io::Error {
    io::Error::new(
        io::ErrorKind::ConnectionAborted,
        "closed by an injected fault",
    )
}

/// Cuts an answer in the middle of its first piece and then breaks the connection.
fn truncated(whole: Response<Body>) -> Response<Body> {
    let (parts, body) = whole.into_parts();
    let start = body
        .into_data_stream()
        .take(1)
        .map(|piece| piece.map(|bytes| Frame::data(bytes.slice(..bytes.len() / 2))));
    // Pending once in between, so that the first half leaves before the connection breaks.
    let end = stream::once(async {
        tokio::task::yield_now().await;
        Err(closed())
    });
    Response::from_parts(parts, StreamBody::new(start.chain(end)).boxed_unsync())
}

fn failed(failure: &Failure) -> Response<Body> {
    let mut response = json_reply(failure.code, &failure.status());
    if let Some(secs) = failure.retry_after_secs() {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, secs.into());
    }
    response
}

/// An answer with a JSON body.
pub(super) fn json_reply(code: u16, value: &Value) -> Response<Body> {
    let mut text = value.to_string().into_bytes();
    text.push(b'\n');
    reply(code, "application/json", text)
}

/// An answer with a whole body.
pub(super) fn reply(code: u16, content_type: &'static str, text: Vec<u8>) -> Response<Body> {
    let body = Full::new(Bytes::from(text)).map_err(|never: Infallible| match never {});
    response(code, content_type, body.boxed_unsync())
}

/// An answer with any body.
pub(super) fn response(code: u16, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() =
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let content_type = header::HeaderValue::from_static(content_type);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, content_type);
    response
}
