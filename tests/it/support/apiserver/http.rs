//! HTTP: reads a request, applies faults, asks the store, writes the answer.

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
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::failure::{Cause, Failure};
use super::fault::Action;
use super::journal::{Request, Verb, decode};
use super::read::{self, Form, ListOptions};
use super::resource::{Target, discovery};
use super::selector::Scope;
use super::state::Shared;
use super::watch::{Watch, WatchOptions};
use super::write::{self, WriteOptions};

type Body = UnsyncBoxBody<Bytes, io::Error>;
type Reply = Result<Response<Body>, Failure>;

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

/// One request on its way to an answer.
struct Call<'a> {
    shared: &'a Arc<Shared>,
    record: &'a Request,
    body: &'a Bytes,
    action: Option<&'a Action>,
}

impl Call<'_> {
    /// What a fault says instead of an answer.
    fn refusal(&self) -> Option<Failure> {
        let refuse = |code| match code {
            401 => Failure::new(401, "Unauthorized", "Unauthorized"),
            403 => Failure::new(
                403,
                "Forbidden",
                format!("{} is forbidden", self.record.path),
            ),
            409 => Failure::new(409, "Conflict", "the object has been modified"),
            429 => Failure::new(
                429,
                "TooManyRequests",
                "Too many requests, please try again later",
            ),
            503 => Failure::new(503, "ServiceUnavailable", "apiserver is shutting down"),
            504 => Failure::new(
                504,
                "Timeout",
                "request did not complete within the allotted timeout",
            ),
            code => Failure::new(
                code,
                "InternalError",
                "Internal error occurred: injected fault",
            ),
        };
        match self.action? {
            Action::Refuse(code) => Some(refuse(*code)),
            Action::Throttle(secs) => Some(refuse(429).retry_after(*secs)),
            Action::Garbage => Some(Failure::new(200, "", "")),
            Action::Expire if self.record.verb == Verb::List => Some(Failure::expired(
                "The provided continue parameter is too old to display a consistent list result.",
            )),
            Action::NoStreamingLists => {
                let why = "sendInitialEvents is forbidden for watch unless the WatchList feature \
                           gate is enabled";
                let cause = Cause::forbidden("sendInitialEvents", why);
                Some(Failure::invalid_options("ListOptions", &cause))
            }
            _ => None,
        }
    }

    fn answer(&self, target: Option<Target>) -> Reply {
        if let Some(target) = target {
            return self.resource(&target);
        }
        let path = self.record.path.as_str();
        if ["/healthz", "/readyz", "/livez"].contains(&path) {
            return Ok(reply(200, "text/plain", b"ok".to_vec()));
        }
        if let Some(document) = discovery(path) {
            return Ok(json_reply(200, &document));
        }
        let group = path.split('/').take(4).collect::<Vec<_>>().join("/");
        if path.starts_with("/api/v1/") || discovery(&group).is_some() {
            return Err(Failure::no_such_path());
        }
        Ok(reply(
            404,
            "text/plain; charset=utf-8",
            b"404 page not found\n".to_vec(),
        ))
    }

    fn resource(&self, target: &Target) -> Reply {
        let is_collection = target.name.is_empty();
        match (self.record.method.as_str(), self.record.verb) {
            ("GET", Verb::Watch) => self.watch(target),
            ("GET", Verb::List) => self.list(target),
            ("GET", _) => {
                let form = Form::parse(&self.record.accept);
                let object = self
                    .shared
                    .read(|state| read::get(&state.store, target, form))?;
                Ok(json_reply(200, &object))
            }
            ("POST", _) if is_collection => self.write(target),
            ("PUT" | "PATCH", _) if !is_collection => self.write(target),
            ("DELETE", _) if !is_collection && !target.is_status => self.write(target),
            _ => Err(Failure::wrong_method()),
        }
    }

    fn scope(&self, target: &Target) -> Result<Scope, Failure> {
        let param = |name| self.record.param(name);
        let (labels, fields) = (param("labelSelector"), param("fieldSelector"));
        let scope = Scope::parse(target.resource, &target.namespace, &labels, &fields)?;
        Ok(scope.named(&target.name))
    }

    fn list(&self, target: &Target) -> Reply {
        let param = |name| self.record.param(name);
        let limit = match param("limit").as_str() {
            "" => 0,
            text => text.parse::<i64>().map_err(|_| {
                let message = format!("strconv.ParseInt: parsing {text:?}: invalid syntax");
                Failure::bad_request(message)
            })?,
        };
        if !param("sendInitialEvents").is_empty() {
            let why = "sendInitialEvents is forbidden for list";
            let cause = Cause::forbidden("sendInitialEvents", why);
            return Err(Failure::invalid_options("ListOptions", &cause));
        }
        let options = ListOptions {
            limit: usize::try_from(limit).unwrap_or(0),
            resume: param("continue"),
            version: param("resourceVersion"),
            version_match: param("resourceVersionMatch"),
            stale_at: self.stale_at(),
        };
        let (scope, form) = (self.scope(target)?, Form::parse(&self.record.accept));
        let list = self
            .shared
            .read(|state| read::list(&state.store, target.resource, &scope, form, &options))?;
        Ok(json_reply(200, &list))
    }

    fn watch(&self, target: &Target) -> Reply {
        let param = |name| self.record.param(name);
        let options = WatchOptions {
            version: param("resourceVersion"),
            version_match: param("resourceVersionMatch"),
            send_initial_events: match param("sendInitialEvents").as_str() {
                "" => None,
                text => Some(is_true(text)),
            },
            has_bookmarks: is_true(&param("allowWatchBookmarks")),
            timeout_secs: param("timeoutSeconds")
                .parse()
                .ok()
                .filter(|secs| *secs > 0),
            is_expired: self.action == Some(&Action::Expire),
            stale_at: self.stale_at(),
        };
        let form = Form::parse(&self.record.accept);
        let scope = self.scope(target)?;
        let watch = Watch::open(self.shared, target.resource, scope, form, &options)?;
        let body = StreamBody::new(watch.into_stream()).boxed_unsync();
        Ok(response(200, "application/json", body))
    }

    fn write(&self, target: &Target) -> Reply {
        let body = match (self.body.is_empty(), serde_json::from_slice(self.body)) {
            (true, _) if self.record.verb == Verb::Delete => json!({}),
            (_, Ok(body)) => body,
            (_, Err(error)) => {
                let message = format!("couldn't get version/kind; json parse error: {error}");
                return Err(Failure::bad_request(message));
            }
        };
        // A deletion with a body takes all of its options from there.
        let has_query = self.record.verb != Verb::Delete || self.body.is_empty();
        let dry_run = if has_query {
            self.record.param("dryRun")
        } else {
            String::new()
        };
        let kind = match self.record.verb {
            Verb::Create => "CreateOptions",
            Verb::Update => "UpdateOptions",
            Verb::Patch => "PatchOptions",
            _ => "DeleteOptions",
        };
        if !["", "All"].contains(&dry_run.as_str()) {
            let cause = Cause::unsupported("dryRun", &json!([dry_run]), &["All"]);
            return Err(Failure::invalid_options(kind, &cause));
        }
        let manager = self.record.param("fieldManager");
        let options = WriteOptions {
            is_dry_run: !dry_run.is_empty() || body["dryRun"] == json!(["All"]),
            is_strict: self.record.param("fieldValidation") == "Strict",
            manager: &manager,
        };
        let content_type = self
            .record
            .content_type
            .split(';')
            .next()
            .unwrap_or_default()
            .trim();
        let (code, object) = self.shared.change(|state| {
            let store = &mut state.store;
            match self.record.verb {
                Verb::Create => write::create(store, target, options, &body),
                Verb::Update => write::update(store, target, options, &body),
                Verb::Delete => write::delete(store, target, options, &body),
                _ if content_type == "application/apply-patch+yaml" => {
                    write::apply(store, &mut state.applied, target, options, &body)
                }
                _ => write::patch(store, target, options, content_type, &body),
            }
        })?;
        let is_object = object["kind"] == target.resource.kind;
        let form = Form::parse(&self.record.accept);
        if form == Form::Metadata && is_object {
            return Ok(json_reply(code, &form.one(target.resource, &object)?));
        }
        Ok(json_reply(code, &object))
    }

    fn stale_at(&self) -> Option<u64> {
        match self.action {
            Some(Action::Stale(version)) => Some(*version),
            _ => None,
        }
    }
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

fn is_true(text: &str) -> bool {
    ["true", "1", "True", "t", "T", "TRUE"].contains(&text)
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

fn json_reply(code: u16, value: &Value) -> Response<Body> {
    let mut text = value.to_string().into_bytes();
    text.push(b'\n');
    reply(code, "application/json", text)
}

fn reply(code: u16, content_type: &'static str, text: Vec<u8>) -> Response<Body> {
    let body = Full::new(Bytes::from(text)).map_err(|never: Infallible| match never {});
    response(code, content_type, body.boxed_unsync())
}

fn response(code: u16, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() =
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let content_type = header::HeaderValue::from_static(content_type);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, content_type);
    response
}
