//! One request and what is asked by it: which verb on which resource, with which options.

use std::sync::Arc;

use http::Response;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Bytes;
use serde_json::json;

use super::discovery::discovery;
use super::failure::{Cause, Failure};
use super::fault::Action;
use super::http::{Body, json_reply, reply, response};
use super::journal::{Request, Verb, is_true};
use super::read::{self, Form, ListOptions};
use super::resource::Target;
use super::selector::Scope;
use super::state::Shared;
use super::watch::{Watch, WatchOptions};
use super::write::{self, WriteOptions};

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

type Reply = Result<Response<Body>, Failure>;

/// One request on its way to an answer.
pub(super) struct Call<'a> {
    pub(super) shared: &'a Arc<Shared>,
    pub(super) record: &'a Request,
    pub(super) body: &'a Bytes,
    pub(super) action: Option<&'a Action>,
}

impl Call<'_> {
    /// What a fault says instead of an answer.
    pub(super) fn refusal(&self) -> Option<Failure> {
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

    /// What the store says.
    pub(super) fn answer(&self, target: Option<Target>) -> Reply {
        if let Some(target) = target {
            return self.resource(&target);
        }
        let path = self.record.path.as_str();
        if ["/healthz", "/readyz", "/livez"].contains(&path) {
            return Ok(reply(200, "text/plain", b"ok".to_vec()));
        }
        if path == REVIEWS && self.record.method == "POST" {
            return Ok(json_reply(201, &self.review()));
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

    /// Everybody may do everything that no fault forbids.
    fn review(&self) -> serde_json::Value {
        let mut review = self.record.body.clone();
        let asked = &review["spec"]["resourceAttributes"];
        let method = match asked["verb"].as_str() {
            Some("create") => "POST",
            Some("patch") => "PATCH",
            Some("delete") => "DELETE",
            _ => "GET",
        };
        let plural = asked["resource"].as_str().unwrap_or_default();
        let request = Request {
            method: method.to_owned(),
            path: format!("/api/v1/{plural}/x"),
            ..self.record.clone()
        };
        let allowed = self
            .shared
            .read(|state| !state.faults.is_forbidden(&request));
        review["status"] = json!({"allowed": allowed});
        review
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
