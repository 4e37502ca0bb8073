//! What PersistentVolumes are being made for until the watch tells of them.
//!
//! A plan is made from what is known to exist. What is on its way counts too: the same storage may turn
//! up under another name before the answer is there, and would be offered twice. So does what was just
//! made: a list that was read before may come after the answer, and does not have it.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::volume::Identity;

/// A call without an answer may still be carried out; after this long the watch would have told of it.
const DOUBT: Duration = Duration::from_secs(10);

/// Storage by the name of the PersistentVolume.
#[derive(Debug, Default)]
pub(super) struct Offering {
    storage: BTreeMap<String, Identity>,
    /// Those of which only the watch can tell whether they are there.
    doubts: BTreeMap<String, Doubt>,
}

#[derive(Debug)]
struct Doubt {
    /// When it is taken for not made.
    until: Instant,
    /// The UID that the API server has answered with, if it has.
    uid: Option<String>,
}

impl Offering {
    /// What must not be offered under another name.
    pub(super) fn storage(&self) -> &BTreeMap<String, Identity> {
        &self.storage
    }

    /// A call is made.
    pub(super) fn begin(&mut self, pv: &str, identity: &Identity) {
        self.doubts.remove(pv);
        self.storage.insert(pv.to_owned(), identity.clone());
    }

    /// The API server has answered.
    pub(super) fn end(&mut self, pv: &str) {
        self.doubts.remove(pv);
        self.storage.remove(pv);
    }

    /// The call failed, and nobody knows whether it was carried out.
    pub(super) fn doubt(&mut self, pv: &str, now: Instant) {
        self.await_word(pv, None, now);
    }

    /// The API server has made it; the watch has not told of it yet.
    pub(super) fn made(&mut self, pv: &str, uid: &str, now: Instant) {
        self.await_word(pv, Some(uid.to_owned()), now);
    }

    fn await_word(&mut self, pv: &str, uid: Option<String>, now: Instant) {
        if self.storage.contains_key(pv) {
            let until = now + DOUBT;
            self.doubts.insert(pv.to_owned(), Doubt { until, uid });
        }
    }

    /// The watch tells of an object, that it is there or that it is gone.
    pub(super) fn told(&mut self, pv: &str, uid: &str) {
        let made = self.doubts.get(pv).and_then(|doubt| doubt.uid.as_deref());
        if made == Some(uid) {
            self.end(pv);
        }
    }

    /// Ends doubts that are old enough, and says whether there were any.
    pub(super) fn settle(&mut self, now: Instant) -> bool {
        let before = self.doubts.len();
        let storage = &mut self.storage;
        self.doubts.retain(|pv, doubt| {
            let stays = doubt.until > now;
            if !stays {
                storage.remove(pv);
            }
            stays
        });
        self.doubts.len() != before
    }

    /// When [`Self::settle`] has something to do.
    pub(super) fn due(&self) -> Option<Instant> {
        self.doubts.values().map(|doubt| doubt.until).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::{DevNum, DeviceIdentity};

    fn identity() -> Identity {
        Identity::Device(DeviceIdentity {
            wwn: None,
            serial: None,
            partition: None,
            partition_uuid: None,
            size_bytes: 1,
            device: DevNum { major: 7, minor: 0 },
            diskseq: None,
            boot: "b".into(),
        })
    }

    #[tokio::test(start_paused = true)]
    async fn storage_is_taken_until_an_answer_or_the_end_of_doubt() {
        let (mut offering, now) = (Offering::default(), Instant::now());
        offering.begin("a", &identity());
        offering.end("a");
        assert!(offering.storage().is_empty());

        offering.begin("a", &identity());
        offering.doubt("a", now);
        offering.doubt("never begun", now);
        assert!(!offering.settle(now));
        assert_eq!(offering.due(), Some(now + DOUBT));
        assert!(offering.storage().contains_key("a"));
        assert!(offering.settle(now + DOUBT));
        assert!(offering.storage().is_empty() && offering.due().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_made_is_taken_until_the_watch_tells_of_it() {
        let (mut offering, now) = (Offering::default(), Instant::now());
        offering.begin("a", &identity());
        offering.told("a", "new");
        offering.made("a", "new", now);
        offering.told("a", "its predecessor");
        assert!(offering.storage().contains_key("a"));
        offering.told("a", "new");
        assert!(offering.storage().is_empty() && offering.due().is_none());

        offering.begin("a", &identity());
        offering.made("a", "new", now);
        offering.begin("a", &identity());
        offering.told("a", "new");
        assert!(offering.storage().contains_key("a"), "it is made anew");
    }

    #[tokio::test(start_paused = true)]
    async fn another_try_lifts_the_doubt() {
        let (mut offering, now) = (Offering::default(), Instant::now());
        offering.begin("a", &identity());
        offering.doubt("a", now);
        offering.begin("a", &identity());
        assert!(!offering.settle(now + DOUBT));
        assert!(offering.storage().contains_key("a"));
    }
}
