//! List, then watch, then list again when the server has forgotten where we were: the one loop behind
//! all three watches.
//!
//! kube's `watcher` is not used: its list calls have no deadline, it reconnects without a pause to a
//! server that closes each stream at once, and it hides the bookmarks, which are the only sign of
//! life of a quiet watch. Objects are folded into what is kept of them one page at a time.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{Stream, TryStreamExt};
use kube::Api;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::core::metadata::PartialObjectMeta;
use kube::core::{DeserializeGuard, Resource, ResourceExt};
use serde::de::DeserializeOwned;

use super::{ApiError, Backoff, call};
use crate::serve::{ApiMethod, Metrics, WatchKind};

/// The server ends a watch after so long, and we begin it anew.
const WATCH_SECONDS: u32 = 290;
/// A watch that is silent for longer is dead: the server sends bookmarks about once a minute and ends
/// the stream after [`WATCH_SECONDS`].
const SILENCE: Duration = Duration::from_secs(300);
/// A watch that ended sooner than this did not work.
const TOO_SHORT: Duration = Duration::from_secs(1);
/// The first and the longest pause after a failure.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(800), Duration::from_secs(30));

/// What is followed.
pub(super) struct Target<K> {
    pub(super) api: Api<K>,
    pub(super) kind: WatchKind,
    pub(super) label_selector: Option<String>,
    pub(super) field_selector: Option<String>,
    pub(super) page_size: u32,
}

/// A change in what is followed, with `T` being what is kept of an object.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change<T> {
    /// All there are.
    Listed(Vec<T>),
    /// One is new or has changed.
    Applied(T),
    /// One is gone or does not match the selector any more.
    Deleted { name: String, uid: String },
}

/// The owner is gone, so nobody wants to know.
pub(super) struct OwnerGone;

/// An object that may not have been decodable.
pub(super) trait Decoded: Sized {
    /// What it holds when all went well.
    type Object;

    /// The object, or why there is none.
    fn object(self) -> Result<Self::Object, String>;
}

impl<K> Decoded for DeserializeGuard<K> {
    type Object = K;

    fn object(self) -> Result<K, String> {
        self.0.map_err(|invalid| invalid.error)
    }
}

impl<K> Decoded for PartialObjectMeta<K> {
    type Object = Self;

    fn object(self) -> Result<Self, String> {
        Ok(self)
    }
}

/// Follows `target` until the owner is gone. Cancel-safe in the sense that dropping it loses nothing
/// but events: the next start lists again.
pub(super) async fn follow<K, T, E>(
    target: Target<K>,
    metrics: Arc<Metrics>,
    keep: impl Fn(K::Object) -> Result<T, E>,
    mut deliver: impl AsyncFnMut(Change<T>) -> Result<(), OwnerGone>,
) where
    K: Decoded + Resource + Clone + DeserializeOwned + std::fmt::Debug,
    E: std::fmt::Display,
{
    let follower = Follower {
        target,
        metrics,
        keep,
    };
    let mut trouble = Trouble::new(follower.target.kind);
    loop {
        let ended = match follower.list(&mut trouble).await {
            Ok((all, version)) => match deliver(Change::Listed(all)).await {
                Ok(()) => follower.watch(version, &mut trouble, &mut deliver).await,
                Err(gone) => Err(gone),
            },
            Err(error) => {
                follower.rest(&mut trouble, &error).await;
                Ok(())
            }
        };
        if ended.is_err() {
            return;
        }
    }
}

struct Follower<K, F> {
    target: Target<K>,
    metrics: Arc<Metrics>,
    keep: F,
}

impl<K, F, T, E> Follower<K, F>
where
    K: Decoded + Resource + Clone + DeserializeOwned + std::fmt::Debug,
    F: Fn(K::Object) -> Result<T, E>,
    E: std::fmt::Display,
{
    /// All objects, page by page, and the version that they were all there at.
    async fn list(&self, trouble: &mut Trouble) -> Result<(Vec<T>, String), ApiError> {
        let mut params = ListParams {
            label_selector: self.target.label_selector.clone(),
            field_selector: self.target.field_selector.clone(),
            limit: Some(self.target.page_size),
            ..ListParams::default()
        };
        let mut all = Vec::new();
        loop {
            let request = self.target.api.list(&params);
            let page = match call(&self.metrics, ApiMethod::List, request).await {
                // The rest of the pages is gone: take all in one.
                Err(ApiError::Expired(_)) if params.continue_token.is_some() => {
                    all.clear();
                    params.continue_token = None;
                    params.limit = None;
                    continue;
                }
                page => page?,
            };
            all.extend(page.items.into_iter().filter_map(|item| self.kept(item)));
            params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
            if params.continue_token.is_some() {
                continue;
            }
            let version = page.metadata.resource_version.filter(|v| !v.is_empty());
            let version =
                version.ok_or_else(|| ApiError::Unreadable("a list without a version".into()))?;
            trouble.over(&self.metrics);
            return Ok((all, version));
        }
    }

    /// Watches from `version` on, through any number of connections, until the version is too old.
    async fn watch(
        &self,
        mut version: String,
        trouble: &mut Trouble,
        deliver: &mut impl AsyncFnMut(Change<T>) -> Result<(), OwnerGone>,
    ) -> Result<(), OwnerGone> {
        let params = WatchParams {
            label_selector: self.target.label_selector.clone(),
            field_selector: self.target.field_selector.clone(),
            timeout: Some(WATCH_SECONDS),
            bookmarks: true,
            send_initial_events: false,
        };
        loop {
            let start = Instant::now();
            let request = self.target.api.watch(&params, &version);
            let end = match call(&self.metrics, ApiMethod::Watch, request).await {
                Ok(stream) => {
                    trouble.connected(&self.metrics);
                    self.read(stream, &mut version, trouble, deliver).await?
                }
                Err(error) => Some(error),
            };
            match end {
                Some(ApiError::Expired(_)) => return Ok(()),
                Some(error) => self.rest(trouble, &error).await,
                None if start.elapsed() < TOO_SHORT => {
                    let error = ApiError::Unreachable("the watch ended as it began".into());
                    self.rest(trouble, &error).await;
                }
                None => {}
            }
        }
    }

    /// Reads one connection to its end. `None` is an orderly end.
    async fn read(
        &self,
        stream: impl Stream<Item = kube::Result<WatchEvent<K>>>,
        version: &mut String,
        trouble: &mut Trouble,
        deliver: &mut impl AsyncFnMut(Change<T>) -> Result<(), OwnerGone>,
    ) -> Result<Option<ApiError>, OwnerGone> {
        let mut stream = pin!(stream);
        loop {
            let event = match tokio::time::timeout(SILENCE, stream.try_next()).await {
                Ok(Ok(Some(event))) => event,
                Ok(Ok(None)) => return Ok(None),
                Ok(Err(error)) => return Ok(Some(error.into())),
                Err(_) => return Ok(Some(ApiError::Timeout("the watch is silent".into()))),
            };
            let change = match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    advance(version, &object);
                    self.kept(object).map(Change::Applied)
                }
                WatchEvent::Deleted(object) => {
                    advance(version, &object);
                    Some(Change::Deleted {
                        name: object.name_any(),
                        uid: object.uid().unwrap_or_default(),
                    })
                }
                WatchEvent::Bookmark(bookmark) => {
                    *version = bookmark.metadata.resource_version;
                    None
                }
                WatchEvent::Error(status) => return Ok(Some((*status).into())),
            };
            trouble.over(&self.metrics);
            if let Some(change) = change {
                deliver(change).await?;
            }
        }
    }

    /// What is kept of an object; one that can't be read is logged and left out.
    fn kept(&self, item: K) -> Option<T> {
        let name = item.name_any();
        let read = match item.object() {
            Ok(object) => (self.keep)(object).map_err(|e| e.to_string()),
            Err(error) => Err(error),
        };
        read.inspect_err(|error| {
            let kind = self.target.kind.as_str();
            tracing::warn!(kind, name, error, "skipped an object that can't be read");
        })
        .ok()
    }

    async fn rest(&self, trouble: &mut Trouble, error: &ApiError) {
        let pause = trouble.happened(&self.metrics, error);
        tokio::time::sleep(pause).await;
    }
}

fn advance<K: Resource>(version: &mut String, object: &K) {
    if let Some(new) = object.meta().resource_version.as_ref() {
        version.clone_from(new);
    }
}

/// What goes wrong with a watch: logged once each time that it changes, not each time that it happens.
struct Trouble {
    kind: WatchKind,
    backoff: Backoff,
    /// The reason that was logged, until the watch works again.
    logged: Option<&'static str>,
}

impl Trouble {
    fn new(kind: WatchKind) -> Self {
        Self {
            kind,
            backoff: Backoff::new(BACKOFF.0, BACKOFF.1),
            logged: None,
        }
    }

    fn happened(&mut self, metrics: &Metrics, error: &ApiError) -> Duration {
        metrics.watch_failed(self.kind);
        let kind = self.kind.as_str();
        if self.logged == Some(error.reason()) {
            tracing::debug!(kind, %error, "watch failed again");
        } else {
            tracing::warn!(kind, %error, "watch failed, trying again");
            self.logged = Some(error.reason());
        }
        self.backoff.after(error.retry_after())
    }

    /// The server took the request. It may still close the stream at once, so that the failures count
    /// on until it sent something.
    fn connected(&mut self, metrics: &Metrics) {
        metrics.watch_connected(self.kind);
    }

    /// The server sent something that makes sense.
    fn over(&mut self, metrics: &Metrics) {
        metrics.watch_connected(self.kind);
        self.backoff.reset();
        if self.logged.take().is_some() {
            tracing::info!(kind = self.kind.as_str(), "watch works again");
        }
    }
}
