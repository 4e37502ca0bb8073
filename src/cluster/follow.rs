//! Learn all there is, then watch, then learn it again when the server has forgotten where we were: the
//! one loop behind all three watches.
//!
//! kube's `watcher` is not used: its list calls have no deadline, it reconnects without a pause to a
//! server that closes each stream at once, and it hides the bookmarks, which are the only sign of
//! life of a quiet watch. Objects are folded into what is kept of them one page at a time.

use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use futures::stream::BoxStream;
use kube::Api;
use kube::api::{WatchEvent, WatchParams};
use kube::core::metadata::PartialObjectMeta;
use kube::core::{DeserializeGuard, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::backoff::random_fraction;
use super::{ApiError, ClusterEvent, call};
use crate::serve::{ApiMethod, Metrics, WatchKind};

mod opening;
mod trouble;

use opening::Streaming;
use trouble::Trouble;

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

/// One connection of a watch.
type Events<K> = BoxStream<'static, kube::Result<WatchEvent<K>>>;

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
    K: Decoded + Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
    E: std::fmt::Display,
{
    let follower = Follower {
        target,
        metrics,
        keep,
    };
    let mut outlet = Outlet { news, owner };
    let mut trouble = Trouble::new(follower.target.kind);
    let mut streaming = Streaming::default();
    while let Ok(()) = follower
        .round(&mut streaming, &mut trouble, &mut outlet)
        .await
    {}
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
    K: Decoded + Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
    F: Fn(K::Object) -> Result<T, E>,
    E: std::fmt::Display,
{
    /// Learns all there is, then watches until that has to be done again.
    async fn round(
        &self,
        streaming: &mut Streaming,
        trouble: &mut Trouble,
        outlet: &mut Outlet<impl FnMut(Change<T>) -> Option<ClusterEvent>>,
    ) -> Result<(), OwnerGone> {
        let opening = match self.open(streaming).await {
            Ok(opening) => opening,
            Err(error) => return self.rest(trouble, error, outlet).await,
        };
        if opening.events.is_some() {
            self.works_again(trouble, outlet).await?;
        }
        outlet.send(Change::Listed(opening.all)).await?;
        self.watch(opening.version, opening.events, trouble, outlet)
            .await
    }

    /// Watches from `version` on, through any number of connections, until a list is due. The first
    /// of them may be open already.
    async fn watch(
        &self,
        mut version: String,
        mut open: Option<Events<K>>,
        trouble: &mut Trouble,
        outlet: &mut Outlet<impl FnMut(Change<T>) -> Option<ClusterEvent>>,
    ) -> Result<(), OwnerGone> {
        let begun = Instant::now();
        let mut failures = 0;
        while failures < FAILURES_MAX {
            let (start, from) = (Instant::now(), version.clone());
            let events = match open.take() {
                Some(events) => Ok(events),
                None => self.connect(&version, false).await,
            };
            let end = match events {
                Ok(events) => self.read(events, &mut version, trouble, outlet).await?,
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

    /// Opens one connection of a watch; with `initial` all there is comes first.
    async fn connect(&self, version: &str, initial: bool) -> Result<Events<K>, ApiError> {
        let lasts = Duration::from_secs_f64(WATCH_SECONDS * (1.0 + random_fraction()));
        let params = WatchParams {
            label_selector: self.target.label_selector.clone(),
            field_selector: self.target.field_selector.clone(),
            timeout: u32::try_from(lasts.as_secs()).ok(),
            bookmarks: true,
            send_initial_events: initial,
        };
        let request = self.target.api.watch(&params, version);
        let events = call(&self.metrics, ApiMethod::Watch, request).await?;
        self.metrics.watch_connected(self.target.kind);
        Ok(Box::pin(events))
    }

    /// Reads one connection to its end.
    async fn read(
        &self,
        mut events: Events<K>,
        version: &mut String,
        trouble: &mut Trouble,
        outlet: &mut Outlet<impl FnMut(Change<T>) -> Option<ClusterEvent>>,
    ) -> Result<End, OwnerGone> {
        loop {
            let event = match tokio::time::timeout(SILENCE, events.try_next()).await {
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
            self.works_again(trouble, outlet).await?;
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

    /// The server sent something that makes sense; tells the end of what was wrong before.
    async fn works_again<N>(
        &self,
        trouble: &mut Trouble,
        outlet: &Outlet<N>,
    ) -> Result<(), OwnerGone> {
        if !trouble.over() {
            return Ok(());
        }
        let kind = self.target.kind;
        outlet.tell(ClusterEvent::Watch { kind, error: None }).await
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

#[cfg(test)]
mod tests;
