//! When a failed step may be tried again.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use tokio::time::Instant;

use crate::volume::Refusal;

/// The first retry comes soon: what failed because a Pod was still letting go works a moment later.
const FIRST: Duration = Duration::from_millis(200);

/// Retries are never further apart.
const LONGEST: Duration = Duration::from_secs(60);

/// The effect of a write is seen through the watch within milliseconds; after this long it is taken
/// for lost.
const HOLD: Duration = Duration::from_secs(10);

/// Steps that failed, by the name of their PersistentVolume or the UID of the Node.
#[derive(Debug, Default)]
pub(super) struct Retries {
    entries: HashMap<String, Retry>,
    jitter: RandomState,
}

/// One failed step.
#[derive(Debug)]
struct Retry {
    failures: u32,
    due: Instant,
    /// `None` for a step that succeeded and whose effect is not seen yet.
    refusal: Option<Refusal>,
}

impl Retries {
    /// Notes a failure; the step is due again after a delay that doubles each time, less up to a
    /// quarter at random so that a thousand daemons don't come back together.
    pub(super) fn failed(&mut self, key: &str, refusal: Refusal, now: Instant) {
        let failures = self.entries.get(key).map_or(0, |retry| retry.failures) + 1;
        let delay = FIRST
            .saturating_mul(1 << (failures - 1).min(16))
            .min(LONGEST);
        let random = self.jitter.hash_one((key, failures)) % 256;
        let less = delay.saturating_mul(u32::try_from(random).unwrap_or(0)) / 1024;
        let retry = Retry {
            failures,
            due: now + (delay - less),
            refusal: Some(refusal),
        };
        self.entries.insert(key.to_owned(), retry);
    }

    /// Keeps a step that succeeded from being tried again until its effect is seen.
    pub(super) fn hold(&mut self, key: &str, now: Instant) {
        let retry = Retry {
            failures: 0,
            due: now + HOLD,
            refusal: None,
        };
        self.entries.insert(key.to_owned(), retry);
    }

    /// Forgets what is known of a step.
    pub(super) fn forget(&mut self, key: &str) {
        self.entries.remove(key);
    }

    /// Makes everything due now: something changed that may have been the reason.
    pub(super) fn hurry(&mut self, key: &str, now: Instant) {
        if let Some(retry) = self.entries.get_mut(key) {
            retry.due = now;
            retry.failures = 0;
        }
    }

    /// Makes every step that failed due now.
    pub(super) fn hurry_all(&mut self, now: Instant) {
        for retry in self
            .entries
            .values_mut()
            .filter(|retry| retry.refusal.is_some())
        {
            retry.due = now;
            retry.failures = 0;
        }
    }

    /// Why the step failed last, if it did.
    pub(super) fn refusal(&self, key: &str) -> Option<&Refusal> {
        self.entries
            .get(key)
            .and_then(|retry| retry.refusal.as_ref())
    }

    /// Whether the step may be tried.
    pub(super) fn is_due(&self, key: &str, now: Instant) -> bool {
        self.entries.get(key).is_none_or(|retry| retry.due <= now)
    }

    /// When the next one that is not due yet will be.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        self.entries
            .values()
            .map(|retry| retry.due)
            .filter(|due| *due > now)
            .min()
    }

    /// Drops what no step asks for any more.
    pub(super) fn retain(&mut self, wanted: impl Fn(&str) -> bool) {
        self.entries.retain(|key, _| wanted(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::Reason;

    fn refusal() -> Refusal {
        Refusal::new(Reason::InUse, "x")
    }

    #[tokio::test(start_paused = true)]
    async fn delays_double_up_to_a_limit() {
        let mut retries = Retries::default();
        let now = Instant::now();
        let mut last = Duration::ZERO;
        for _ in 0..20 {
            retries.failed("pv", refusal(), now);
            let delay = retries.next(now).unwrap() - now;
            assert!(delay >= FIRST * 3 / 4 && delay <= LONGEST);
            assert!(delay >= last * 3 / 4);
            last = delay;
        }
        assert!(last >= LONGEST * 3 / 4);
    }

    #[tokio::test(start_paused = true)]
    async fn a_step_is_due_after_its_delay_or_when_hurried() {
        let mut retries = Retries::default();
        let now = Instant::now();
        assert!(retries.is_due("pv", now));
        retries.failed("pv", refusal(), now);
        assert!(!retries.is_due("pv", now));
        assert!(retries.is_due("pv", now + FIRST));
        retries.hurry("pv", now);
        assert!(retries.is_due("pv", now));
        retries.forget("pv");
        assert_eq!(retries.refusal("pv"), None);
    }
}
