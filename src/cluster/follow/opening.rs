//! Learning all there is: as the beginning of a watch where the server can do that, else by a list.
//!
//! A streaming list (KEP-3157) costs the server no memory that grows with the answer and us one request
//! instead of two. Servers without it refuse the request or take it for a plain watch, whose objects
//! are never known to be all; then, and for good, lists are used. Either way nothing is told before
//! everything was learned.

use std::collections::BTreeMap;

use futures::TryStreamExt;
use kube::api::{ListParams, WatchEvent};
use kube::core::{Resource, ResourceExt};
use serde::de::DeserializeOwned;

use super::{Decoded, Events, Follower};
use crate::cluster::{ApiError, CALL_DEADLINE, call};
use crate::serve::{ApiMethod, WatchKind};

/// On the bookmark that ends what was there before the watch.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";
/// After so many streams in a row that were cut before their end, lists are used.
const CUTS_MAX: u32 = 3;

/// Everything there is.
pub(super) struct Opening<K, T> {
    pub(super) all: Vec<T>,
    /// The version at which it was all there.
    pub(super) version: String,
    /// The connection that goes on from there.
    pub(super) events: Option<Events<K>>,
}

/// Whether the server is asked for streaming lists.
#[derive(Debug, Default)]
pub(super) struct Streaming {
    is_given_up: bool,
    cuts: u32,
}

impl Streaming {
    fn give_up(&mut self, kind: WatchKind, why: &str) {
        let kind = kind.as_str();
        tracing::info!(kind, why, "no streaming lists, listing page by page");
        self.is_given_up = true;
    }
}

/// Why a streaming list came to nothing.
enum Broken {
    /// The server can't do it.
    Refused(String),
    /// It began and did not come to its end.
    Cut(ApiError),
    /// Whatever can happen to any request.
    Failed(ApiError),
}

impl<K, F, T, E> Follower<K, F>
where
    K: Decoded + Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
    F: Fn(K::Object) -> Result<T, E>,
    E: std::fmt::Display,
{
    /// Everything there is, and where to go on from.
    pub(super) async fn open(&self, streaming: &mut Streaming) -> Result<Opening<K, T>, ApiError> {
        if streaming.is_given_up {
            return self.list().await;
        }
        let kind = self.target.kind;
        match self.stream().await {
            Ok(opening) => {
                streaming.cuts = 0;
                Ok(opening)
            }
            Err(Broken::Refused(why)) => {
                streaming.give_up(kind, &why);
                self.list().await
            }
            Err(Broken::Cut(error)) => {
                streaming.cuts += 1;
                if streaming.cuts >= CUTS_MAX {
                    streaming.give_up(kind, "they never come to their end");
                }
                Err(error)
            }
            Err(Broken::Failed(error)) => Err(error),
        }
    }

    /// The beginning of a watch, up to the mark that ends what was there before. The empty version
    /// asks for the newest: `0` would be answered from a cache that may lie behind after a failover.
    async fn stream(&self) -> Result<Opening<K, T>, Broken> {
        let mut events = match self.connect("", true).await {
            Ok(events) => events,
            Err(ApiError::Invalid(why)) => return Err(Broken::Refused(why)),
            Err(error) => return Err(Broken::Failed(error)),
        };
        let mut all = BTreeMap::new();
        loop {
            let event = match tokio::time::timeout(CALL_DEADLINE, events.try_next()).await {
                Ok(Ok(Some(event))) => event,
                Ok(Ok(None)) => {
                    let why = "the watch ended before everything was sent";
                    return Err(Broken::Cut(ApiError::Unreachable(why.into())));
                }
                Ok(Err(error)) => return Err(Broken::Cut(error.into())),
                // A plain watch is silent once it has sent all there is. If it is the server that
                // hangs, the list finds out.
                Err(_) => return Err(Broken::Refused("nothing marks the end".into())),
            };
            match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    let name = object.name_any();
                    match self.kept(object) {
                        Some(kept) => all.insert(name, kept),
                        None => all.remove(&name),
                    };
                }
                WatchEvent::Deleted(object) => {
                    all.remove(&object.name_any());
                }
                WatchEvent::Bookmark(bookmark) => {
                    let metadata = bookmark.metadata;
                    if !metadata.annotations.contains_key(INITIAL_EVENTS_END) {
                        return Err(Broken::Refused("a bookmark without the mark".into()));
                    }
                    return Ok(Opening {
                        all: all.into_values().collect(),
                        version: metadata.resource_version,
                        events: Some(events),
                    });
                }
                WatchEvent::Error(status) => {
                    return Err(match (*status).into() {
                        ApiError::Invalid(why) => Broken::Refused(why),
                        error => Broken::Failed(error),
                    });
                }
            }
        }
    }

    /// All objects, page by page, and the version that they were all there at.
    async fn list(&self) -> Result<Opening<K, T>, ApiError> {
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
            return Ok(Opening {
                all,
                version,
                events: None,
            });
        }
    }
}
