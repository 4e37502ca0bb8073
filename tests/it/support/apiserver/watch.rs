//! Watches: one stream per request, fed from the store's log.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, stream};
use hyper::body::{Bytes, Frame};
use serde_json::{Value, json};
use tokio::sync::watch::Receiver;
use tokio::time::{Instant, sleep_until};

use super::failure::{Cause, Failure};
use super::object::meta;
use super::read::{Form, parse_version};
use super::resource::Resource;
use super::selector::Scope;
use super::state::{Disturbance, Shared, State};
use super::store::{Change, ChangeKind};

const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";
/// How long a watch without `timeoutSeconds` lives; the real server takes 30 to 60 minutes.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1800);

/// What a watch asks for besides its scope.
#[derive(Clone, Debug, Default)]
pub(super) struct WatchOptions {
    pub(super) version: String,
    pub(super) version_match: String,
    pub(super) send_initial_events: Option<bool>,
    pub(super) has_bookmarks: bool,
    pub(super) timeout_secs: Option<u64>,
    /// A fault: say that the version is too old.
    pub(super) is_expired: bool,
    /// A fault: start as a server that is behind would.
    pub(super) stale_at: Option<u64>,
}

/// One open watch.
pub(super) struct Watch {
    shared: Arc<Shared>,
    resource: &'static Resource,
    scope: Scope,
    form: Form,
    has_bookmarks: bool,
    /// The last version that was looked at.
    position: u64,
    queue: VecDeque<Bytes>,
    is_over: bool,
    deadline: Instant,
    next_bookmark: Instant,
    pulse: Receiver<u64>,
    disturbance: Receiver<Disturbance>,
    /// The disturbances that this watch has obeyed.
    obeyed: Disturbance,
}

impl Watch {
    /// Checks the options and prepares what the client gets first.
    pub(super) fn open(
        shared: &Arc<Shared>,
        resource: &'static Resource,
        scope: Scope,
        form: Form,
        options: &WatchOptions,
    ) -> Result<Self, Failure> {
        check(options)?;
        let wanted = parse_version(&options.version).map_err(|why| Failure::new(500, "", why))?;
        let timeout = options
            .timeout_secs
            .map_or(DEFAULT_TIMEOUT, Duration::from_secs);
        let now = Instant::now();
        let mut watch = Self {
            shared: shared.clone(),
            resource,
            scope,
            form,
            has_bookmarks: options.has_bookmarks,
            position: 0,
            queue: VecDeque::new(),
            is_over: false,
            deadline: now + timeout,
            next_bookmark: now,
            pulse: shared.pulse.subscribe(),
            disturbance: shared.disturbance.subscribe(),
            obeyed: *shared.disturbance.borrow(),
        };
        shared.change(|state| {
            state.open_watches += 1;
            watch.next_bookmark = now + state.bookmark_interval;
            watch.begin(state, wanted, options);
        });
        Ok(watch)
    }

    /// The body of the answer.
    pub(super) fn into_stream(self) -> impl Stream<Item = io::Result<Frame<Bytes>>> + Send {
        stream::unfold(self, |mut watch| async move {
            let line = watch.next().await?;
            Some((Ok(Frame::data(line)), watch))
        })
    }

    fn begin(&mut self, state: &State, wanted: Option<u64>, options: &WatchOptions) {
        let store = &state.store;
        if options.is_expired || wanted.is_some_and(|version| !store.remembers(version)) {
            let (wanted, current) = (wanted.unwrap_or(0), store.version());
            let message = format!("too old resource version: {wanted} ({current})");
            let failure = Failure::expired(message);
            self.queue.push_back(line("ERROR", &failure.status()));
            self.is_over = true;
            return;
        }
        // A watch from nowhere that takes bookmarks is a streaming list, whether it says so or not.
        let is_legacy = wanted.is_none() && options.send_initial_events.is_none();
        let is_streaming =
            options.send_initial_events == Some(true) || (is_legacy && options.has_bookmarks);
        let current = options.stale_at.unwrap_or_else(|| store.version());
        if is_streaming || is_legacy {
            for object in store.at(self.resource.plural, current).values() {
                if self.scope.matches(object) {
                    self.push("ADDED", object);
                }
            }
            self.position = current;
            if is_streaming && options.has_bookmarks {
                self.bookmark(true);
            }
        } else {
            self.position = wanted.unwrap_or(current);
        }
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(line) = self.queue.pop_front() {
                return Some(line);
            }
            if self.is_over {
                return None;
            }
            self.pump();
            if !self.queue.is_empty() {
                continue;
            }
            let wake = self.deadline.min(self.next_bookmark);
            tokio::select! {
                // Cancel-safe: a lost wake-up is repeated by `pump`, which reads the log itself.
                _ = self.pulse.changed() => {}
                // Cancel-safe: both counters are compared with what was seen, not consumed.
                _ = self.disturbance.changed() => {
                    let wanted = *self.disturbance.borrow();
                    if wanted.drops != self.obeyed.drops {
                        return None;
                    }
                    self.obeyed = wanted;
                    self.pump();
                    self.bookmark(false);
                }
                // Cancel-safe: the deadlines are points in time.
                () = sleep_until(wake) => {
                    if Instant::now() >= self.deadline {
                        return None;
                    }
                    self.next_bookmark += self.shared.read(|state| state.bookmark_interval);
                    self.pump();
                    self.bookmark(false);
                }
            }
        }
    }

    /// Takes what has happened since the last look.
    fn pump(&mut self) {
        let shared = self.shared.clone();
        shared.read(|state| {
            for change in state.store.since(self.position) {
                if change.resource == self.resource.plural {
                    self.take(change);
                }
            }
            self.position = self.position.max(state.store.version());
        });
    }

    /// One change as this watch sees it: what enters or leaves the selection is added or deleted.
    fn take(&mut self, change: &Change) {
        let was = change
            .before
            .as_ref()
            .filter(|before| self.scope.matches(before));
        let is = change.kind != ChangeKind::Deleted && self.scope.matches(&change.object);
        match (was, is) {
            (Some(_), true) => self.push("MODIFIED", &change.object),
            (None, true) => self.push("ADDED", &change.object),
            (Some(before), false) => {
                let mut last = Value::clone(before);
                let version = json!(change.version.to_string());
                meta(&mut last).insert("resourceVersion".to_owned(), version);
                self.push("DELETED", &last);
            }
            (None, false) => {}
        }
    }

    fn push(&mut self, kind: &str, object: &Value) {
        // A watch has one object per event, whatever list form was asked for.
        let form = if self.form == Form::Whole {
            Form::Whole
        } else {
            Form::Metadata
        };
        if let Ok(object) = form.one(self.resource, object) {
            self.queue.push_back(line(kind, &object));
        }
    }

    fn bookmark(&mut self, ends_initial_events: bool) {
        if !self.has_bookmarks {
            return;
        }
        let mut metadata = json!({"resourceVersion": self.position.to_string()});
        if ends_initial_events {
            metadata["annotations"] = json!({INITIAL_EVENTS_END: "true"});
        }
        let object = json!({
            "kind": self.resource.kind, "apiVersion": self.resource.api_version(),
            "metadata": metadata,
        });
        self.push("BOOKMARK", &object);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.change(|state| state.open_watches -= 1);
    }
}

fn check(options: &WatchOptions) -> Result<(), Failure> {
    let forbidden = |why: &str| {
        let cause = Cause::forbidden("resourceVersionMatch", why);
        Err(Failure::invalid_options("ListOptions", &cause))
    };
    match (options.send_initial_events, options.version_match.as_str()) {
        (None, "") | (Some(_), "NotOlderThan") => Ok(()),
        (None, _) => forbidden(
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        ),
        (Some(_), _) => {
            forbidden("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
        }
    }
}

fn line(kind: &str, object: &Value) -> Bytes {
    let mut text = json!({"type": kind, "object": object}).to_string();
    text.push('\n');
    Bytes::from(text)
}
