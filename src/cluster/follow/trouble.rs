//! What goes wrong with a watch, and how long to wait after it.

use std::time::Duration;

use crate::cluster::{ApiError, Backoff};
use crate::serve::WatchKind;

/// The first and the longest pause after a failure.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(800), Duration::from_secs(30));

/// What goes wrong with a watch: told once each time that it changes, not each time that it happens.
pub(super) struct Trouble {
    kind: WatchKind,
    pub(super) backoff: Backoff,
    /// The reason that was told, until the watch works again.
    told: Option<&'static str>,
}

impl Trouble {
    pub(super) fn new(kind: WatchKind) -> Self {
        Self {
            kind,
            backoff: Backoff::new(BACKOFF.0, BACKOFF.1),
            told: None,
        }
    }

    /// Whether this was not the matter before.
    pub(super) fn happened(&mut self, error: &ApiError) -> bool {
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
    pub(super) fn over(&mut self) -> bool {
        self.backoff.reset();
        let was = self.told.take().is_some();
        if was {
            tracing::info!(kind = self.kind.as_str(), "watch works again");
        }
        was
    }
}
