//! Since when the entries or classes of PersistentVolumes are gone. A plan knows no time; this is what it is told.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::config::Config;
use crate::plan::Step;
use crate::pv::Pv;
use crate::volume::Reason;

/// The PersistentVolumes whose entries or classes were missed by the last plan. After a restart all of them are
/// new: time in which nobody looked does not count.
#[derive(Debug, Default)]
pub(super) struct Gone {
    since: BTreeMap<String, Instant>,
    /// When the next of them has been gone for as long as it is waited for.
    due: Option<Instant>,
}

impl Gone {
    /// How long each has been gone.
    pub(super) fn durations(&self, now: Instant) -> BTreeMap<String, Duration> {
        self.since
            .iter()
            .map(|(pv, since)| (pv.clone(), now.saturating_duration_since(*since)))
            .collect()
    }

    /// Takes in what a plan misses and what it has back.
    pub(super) fn observe(
        &mut self,
        steps: &[Step],
        volumes: &BTreeMap<String, Pv>,
        config: &Config,
        now: Instant,
    ) {
        let before = std::mem::take(self);
        for pv in steps.iter().filter_map(missed) {
            let since = before.since.get(pv).copied().unwrap_or(now);
            self.since.insert(pv.to_owned(), since);
            let withdraw_after = volumes
                .get(pv)
                .and_then(|volume| config.gone_policy(&volume.class).withdraw_after());
            if let Some(after) = withdraw_after {
                let due = since + after;
                if due > now {
                    self.due = Some(self.due.map_or(due, |other| other.min(due)));
                }
            }
        }
    }

    /// When to plan again although nothing has changed.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Whether that time has come; says so once.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        self.due.take_if(|due| *due <= now).is_some()
    }
}

/// The PersistentVolume of which the step misses the entry or the class.
fn missed(step: &Step) -> Option<&str> {
    match step {
        Step::Refuse(refuse) => match refuse.refusal.reason {
            Reason::EntryMissing
            | Reason::EntryReplaced
            | Reason::ClassUnknown
            | Reason::PathOutside => refuse.subject.pv.as_deref(),
            _ => None,
        },
        // Until it has happened; it may fail.
        Step::Withdraw(withdraw) => Some(&withdraw.pv),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;
    use crate::plan::{Refuse, Subject};
    use crate::pv::WirePv;
    use crate::volume::Refusal;
    use serde_json::json;

    fn missing(reason: Reason) -> Vec<Step> {
        vec![Step::Refuse(Refuse {
            subject: Subject {
                class: None,
                entry: None,
                pv: Some("pv".into()),
                uid: None,
            },
            refusal: Refusal::new(reason, "x"),
        })]
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_miss_counts_until_the_entry_is_back() {
        let text = "fast: {hostDir: /m, mountDir: /m, whenGone: withdraw, withdrawAfter: 1m}";
        let config = parse(&BTreeMap::from([("storageClassMap".into(), text.into())]));
        let wire: WirePv = serde_json::from_value(json!({
            "metadata": {"name": "pv", "uid": "u", "resourceVersion": "1"},
            "spec": {"storageClassName": "fast"}}))
        .unwrap();
        let volumes = BTreeMap::from([("pv".to_owned(), Pv::try_from(wire).unwrap())]);
        let (mut gone, begin) = (Gone::default(), Instant::now());
        let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));

        gone.observe(&missing(Reason::EntryMissing), &volumes, &config, begin);
        gone.observe(
            &missing(Reason::EntryMissing),
            &volumes,
            &config,
            begin + second,
        );
        assert_eq!(gone.due(), Some(begin + minute));
        assert_eq!(gone.durations(begin + minute)["pv"], minute);
        assert!(!gone.is_due(begin + second));
        assert!(gone.is_due(begin + minute) && !gone.is_due(begin + minute));

        // The class itself is gone, and another wait counts; the time so far does too.
        let values = [("whenClassGone", "withdraw"), ("withdrawClassAfter", "2m")];
        let values = values.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let without = parse(&BTreeMap::from(values));
        let steps = missing(Reason::ClassUnknown);
        gone.observe(&steps, &volumes, &without, begin + minute);
        assert_eq!(gone.due(), Some(begin + 2 * minute));

        gone.observe(&missing(Reason::Hung), &volumes, &config, begin + minute);
        assert_eq!((gone.due(), gone.durations(begin).len()), (None, 0));
    }
}
