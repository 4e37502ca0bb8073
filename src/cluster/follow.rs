//! List, then watch, then list again when the server has forgotten where we were: the one loop behind
//! all three watches.
//!
//! kube's `watcher` is not used: its list calls have no deadline, it reconnects without a pause to a
//! server that closes each stream at once, and it hides the bookmarks, which are the only sign of
//! life of a quiet watch. Objects are folded into what is kept of them one page at a time.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, TryStreamExt};
use kube::Api;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::core::metadata::PartialObjectMeta;
use kube::core::{DeserializeGuard, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::backoff::random_fraction;
use super::{ApiError, Backoff, ClusterEvent, call};
use crate::serve::{ApiMethod, Metrics, WatchKind};

/// The server ends a watch after so long and up to twice that, and we begin it anew. Drawn for each
/// watch, so that a fleet that came back at one moment does not go on in step.
const WATCH_SECONDS: f64 = 300.0;
/// After so long a silence everything is listed again. Servers send bookmarks about once a minute but
/// promise nothing, so this is no failure; if the server hangs, the list finds out.
const SILENCE: Duration = Duration::from_secs(180);
/// After so many failures in a row everything is listed again: a server that was restored from a
/// backup refuses a version from its future for ever.
const FAILURES_MAX: u32 = 3;
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
struct OwnerGone;

/// The way to the owner. What is news is decided without waiting, so that this can be a closure:
/// a future from one can't be shown to be `Send`.
struct Outlet<N> {
    news: N,
    owner: mpsc::Sender<ClusterEvent>,
}

impl<N> Outlet<N> {
    async fn tell(&self, event: ClusterEvent) -> Result<(), OwnerGone> {
        self.owner.send(event).await.map_err(|_| OwnerGone)
    }

    async fn send<T>(&mut self, change: Change<T>) -> Result<(), OwnerGone>
    where
        N: FnMut(Change<T>) -> Option<ClusterEvent>,
    {
        match (self.news)(change) {
            Some(event) => self.tell(event).await,
            None => Ok(()),
        }
    }
}

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

/// Follows `target`, keeps of each object what `keep` says, and sends the owner the `news` of each
/// change, until the owner is gone.
pub(super) async fn follow<K, T, E>(
    target: Target<K>,
    metrics: Arc<Metrics>,
    keep: impl Fn(K::Object) -> Result<T, E>,
    news: impl FnMut(Change<T>) -> Option<ClusterEvent>,
    owner: mpsc::Sender<ClusterEvent>,
) where
    K: Decoded + Resource + Clone + DeserializeOwned + std::fmt::Debug,
    E: std::fmt::Display,
{
    let follower = Follower {
        target,
        metrics,
        keep,
    };
    let mut outlet = Outlet { news, owner };
    let mut trouble = Trouble::new(follower.target.kind);
    while let Ok(()) = follower.round(&mut trouble, &mut outlet).await {}
}

/// How one connection of a watch ended.
enum End {
    /// The server closed it.
    Orderly,
    /// Nothing came for too long.
    Silent,
    /// With an error.
    Failed(ApiError),
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
    /// Lists, then watches until that has to be done again.
    async fn round(
        &self,
        trouble: &mut Trouble,
        outlet: &mut Outlet<impl FnMut(Change<T>) -> Option<ClusterEvent>>,
    ) -> Result<(), OwnerGone> {
        match self.list().await {
            Ok((all, version)) => {
                outlet.send(Change::Listed(all)).await?;
                self.watch(version, trouble, outlet).await
            }
            Err(error) => self.rest(trouble, error, outlet).await,
        }
    }

    /// All objects, page by page, and the version that they were all there at.
    async fn list(&self) -> Result<(Vec<T>, String), ApiError> {
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
            return Ok((all, version));
        }
    }

    /// Watches from `version` on, through any number of connections, until a list is due.
    async fn watch(
        &self,
        mut version: String,
        trouble: &mut Trouble,
        outlet: &mut Outlet<impl FnMut(Change<T>) -> Option<ClusterEvent>>,
    ) -> Result<(), OwnerGone> {
        let begun = Instant::now();
        let mut failures = 0;
        while failures < FAILURES_MAX {
            let (start, from) = (Instant::now(), version.clone());
            let lasts = Duration::from_secs_f64(WATCH_SECONDS * (1.0 + random_fraction()));
            let params = WatchParams {
                label_selector: self.target.label_selector.clone(),
                field_selector: self.target.field_selector.clone(),
                timeout: u32::try_from(lasts.as_secs()).ok(),
                bookmarks: true,
                send_initial_events: false,
            };
            let request = self.target.api.watch(&params, &version);
            let end = match call(&self.metrics, ApiMethod::Watch, request).await {
                Ok(stream) => {
                    self.metrics.watch_connected(self.target.kind);
                    self.read(stream, &mut version, trouble, outlet).await?
                }
                Err(error) => End::Failed(error),
            };
            // A connection that got us further did work, however short.
            let worked = version != from;
            if worked {
                failures = 0;
            }
            let error = match end {
                End::Silent => return Ok(()),
                // A list that is too old at once would make us list without a pause.
                End::Failed(error @ ApiError::Expired(_)) if begun.elapsed() < TOO_SHORT => {
                    return self.rest(trouble, error, outlet).await;
                }
                End::Failed(ApiError::Expired(_)) => return Ok(()),
                End::Failed(error) => error,
                End::Orderly if !worked && start.elapsed() < TOO_SHORT => {
                    ApiError::Unreachable("the watch ended as it began".into())
                }
                End::Orderly => {
                    failures = 0;
                    continue;
                }
            };
            failures += 1;
            self.rest(trouble, error, outlet).await?;
        }
        Ok(())
    }

    /// Reads one connection to its end.
    async fn read(
        &self,
        stream: impl Stream<Item = kube::Result<WatchEvent<K>>>,
        version: &mut String,
        trouble: &mut Trouble,
        outlet: &mut Outlet<impl FnMut(Change<T>) -> Option<ClusterEvent>>,
    ) -> Result<End, OwnerGone> {
        let mut stream = pin!(stream);
        loop {
            let event = match tokio::time::timeout(SILENCE, stream.try_next()).await {
                Ok(Ok(Some(event))) => event,
                Ok(Ok(None)) => return Ok(End::Orderly),
                Ok(Err(error)) => return Ok(End::Failed(error.into())),
                Err(_) => return Ok(End::Silent),
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
                WatchEvent::Error(status) => return Ok(End::Failed((*status).into())),
            };
            if trouble.over() {
                let kind = self.target.kind;
                outlet
                    .tell(ClusterEvent::Watch { kind, error: None })
                    .await?;
            }
            if let Some(change) = change {
                outlet.send(change).await?;
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

    /// Tells what went wrong, if that is new, and waits before the next attempt.
    async fn rest<N>(
        &self,
        trouble: &mut Trouble,
        error: ApiError,
        outlet: &Outlet<N>,
    ) -> Result<(), OwnerGone> {
        let kind = self.target.kind;
        self.metrics.watch_failed(kind);
        let pause = trouble.backoff.after(error.retry_after());
        if trouble.happened(&error) {
            let error = Some(error);
            outlet.tell(ClusterEvent::Watch { kind, error }).await?;
        }
        tokio::time::sleep(pause).await;
        Ok(())
    }
}

fn advance<K: Resource>(version: &mut String, object: &K) {
    if let Some(new) = object.meta().resource_version.as_ref() {
        version.clone_from(new);
    }
}

/// What goes wrong with a watch: told once each time that it changes, not each time that it happens.
struct Trouble {
    kind: WatchKind,
    backoff: Backoff,
    /// The reason that was told, until the watch works again.
    told: Option<&'static str>,
}

impl Trouble {
    fn new(kind: WatchKind) -> Self {
        Self {
            kind,
            backoff: Backoff::new(BACKOFF.0, BACKOFF.1),
            told: None,
        }
    }

    /// Whether this was not the matter before.
    fn happened(&mut self, error: &ApiError) -> bool {
        let kind = self.kind.as_str();
        if self.told == Some(error.reason()) {
            tracing::debug!(kind, %error, "watch failed again");
            return false;
        }
        tracing::warn!(kind, %error, "watch failed, trying again");
        self.told = Some(error.reason());
        true
    }

    /// The server sent something that makes sense; merely taking the request does not count, since
    /// it may close the stream at once. Whether there was trouble before.
    fn over(&mut self) -> bool {
        self.backoff.reset();
        let was = self.told.take().is_some();
        if was {
            tracing::info!(kind = self.kind.as_str(), "watch works again");
        }
        was
    }
}

#[cfg(test)]
mod tests;
