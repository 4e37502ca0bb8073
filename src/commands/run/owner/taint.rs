//! The startup taint: when it may go, and that it went once.
//!
//! Somebody registers the Node with a taint so that no Pod comes before its volumes are there. `plan` asks
//! for its removal; here is what else is waited for, and the memory of what was done.

use tracing::debug;

use super::{Owner, Retries};
use crate::plan::{Step, Untaint};
use crate::pv::NodeFacts;
use crate::serve::Gate;

/// Whether `step` is the removal of the taint and a volume among `steps` is still to be offered for the first
/// time. What is offered is no step any more, and what failed keeps no Pod from the others. Each try ends by
/// its deadline.
pub(super) fn has_to_wait(step: &Step, steps: &[Step], retries: &Retries) -> bool {
    let is_untried = |step: &Step| match step {
        Step::Offer(offer) => retries.refusal(&offer.pv).is_none(),
        _ => false,
    };
    matches!(step, Step::Untaint(_)) && steps.iter().any(is_untried)
}

/// The last removal, and whether it is over.
#[derive(Debug, Default)]
pub(super) struct StartupTaint {
    begun: Option<Untaint>,
    is_gone: bool,
}

impl StartupTaint {
    /// The removal that is over.
    pub(super) fn removed(&self) -> Option<&Untaint> {
        self.begun.as_ref().filter(|_| self.is_gone)
    }

    /// A removal begins, or is tried again.
    pub(super) fn begin(&mut self, step: &Untaint) {
        self.begun = Some(step.clone());
        self.is_gone = false;
    }

    /// The taint is not on the Node object with `uid`; gives its key if that is news. A removal that was
    /// begun is over then however it went: its answer may have got lost.
    fn is_off(&mut self, uid: &str) -> Option<&str> {
        let begun = self.begun.as_ref().filter(|begun| begun.uid == uid)?;
        (!std::mem::replace(&mut self.is_gone, true)).then_some(&begun.key)
    }

    /// Takes in what the Node looked like and looks like; as [`Self::is_off`].
    fn observe(&mut self, old: Option<&NodeFacts>, new: &NodeFacts) -> Option<&str> {
        let begun = self.begun.as_ref()?;
        let was_on = old.and_then(|old| old.has_taint(&begun.key));
        match new.has_taint(&begun.key)? {
            false => self.is_off(&new.uid),
            true => {
                // The watch may lag behind the removal: only what was seen to be off was put back.
                if self.is_gone && begun.uid == new.uid && was_on == Some(false) {
                    debug!(key = begun.key, "the startup taint was put back; it stays");
                }
                None
            }
        }
    }
}

impl Owner {
    /// Takes in what the watch says of the Node.
    pub(super) fn hear_node(&mut self, facts: Option<NodeFacts>) {
        self.known.node = true;
        let old = std::mem::replace(&mut self.node, facts);
        let Some(node) = &self.node else { return };
        self.report.pass(Gate::Node);
        if let Some(key) = self.taint.observe(old.as_ref(), node) {
            self.report.untainted(key);
        }
    }

    /// A removal succeeded, or was not needed any more.
    pub(super) fn untainted(&mut self, uid: &str) {
        self.retries.forget(uid);
        if let Some(key) = self.taint.is_off(uid) {
            self.report.untainted(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pv::{Offer, Policy};
    use crate::volume::{
        ClassName, DevNum, DeviceIdentity, EntryName, Identity, Medium, Reason, Refusal, VolumeMode,
    };
    use serde_json::json;
    use std::collections::BTreeMap;
    use tokio::time::Instant;

    fn offer(pv: &str) -> Step {
        Step::Offer(Offer {
            pv: pv.into(),
            class: ClassName::new("fast"),
            entry: EntryName::parse(pv.as_ref()).unwrap(),
            medium: Medium::Mount,
            mode: VolumeMode::Filesystem,
            path: format!("/mnt/fast/{pv}"),
            capacity_bytes: 1,
            policy: Policy::Delete,
            mount_options: Vec::new(),
            identity: Identity::Device(DeviceIdentity {
                wwn: None,
                serial: None,
                partition: None,
                partition_uuid: None,
                size_bytes: 1,
                device: DevNum { major: 7, minor: 0 },
                diskseq: None,
                boot: "b".into(),
            }),
        })
    }

    fn untaint(uid: &str) -> Untaint {
        Untaint {
            uid: uid.into(),
            key: "a".into(),
        }
    }

    fn node(uid: &str, taints: Option<&[&str]>) -> NodeFacts {
        NodeFacts {
            name: "n".into(),
            uid: uid.into(),
            hostname: None,
            labels: BTreeMap::new(),
            taints: taints.map(|keys| keys.iter().map(|key| json!({"key": key})).collect()),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_offer_is_waited_for_until_it_was_tried_once() {
        let (mut retries, now) = (Retries::default(), Instant::now());
        let steps = [offer("one"), offer("two"), Step::Untaint(untaint("u"))];
        let waits = |steps: &[Step], retries: &Retries| {
            steps
                .last()
                .is_some_and(|last| has_to_wait(last, steps, retries))
        };
        assert!(!waits(&steps[2..], &retries), "what is offered is no step");
        assert!(waits(&steps, &retries));
        assert!(!waits(&steps[..2], &retries), "an offer waits for none");
        retries.failed("one", Refusal::new(Reason::ApiRefused, "x"), now);
        assert!(waits(&steps, &retries), "the other was not tried yet");
        retries.failed("two", Refusal::new(Reason::ApiRefused, "x"), now);
        assert!(!waits(&steps, &retries));
        retries.hurry_all(now);
        assert!(!waits(&steps, &retries), "it was tried all the same");
        // Written a moment ago under that name, its effect not seen yet.
        retries.hold("two", now);
        assert!(waits(&steps, &retries));
    }

    #[test]
    fn a_taint_goes_once_for_each_node_object() {
        let mut taint = StartupTaint::default();
        let (on, off) = (node("u", Some(&["b", "a"])), node("u", Some(&["b"])));
        assert_eq!(taint.observe(Some(&on), &off), None, "somebody else did it");
        taint.begin(&untaint("u"));
        assert_eq!(taint.observe(Some(&off), &on), None);
        assert_eq!(taint.removed(), None);
        assert_eq!(taint.is_off("u"), Some("a"));
        assert_eq!(taint.removed(), Some(&untaint("u")));
        for (old, new) in [(&on, &on), (&on, &off), (&off, &on), (&on, &off)] {
            assert_eq!(taint.observe(Some(old), new), None, "it is said once");
        }
        assert_eq!(taint.removed(), Some(&untaint("u")));
        taint.begin(&untaint("v"));
        assert_eq!(taint.removed(), None);
    }

    #[test]
    fn a_removal_whose_answer_was_lost_is_over_when_its_taint_is_gone() {
        let mut taint = StartupTaint::default();
        taint.begin(&untaint("u"));
        let on = node("u", Some(&["a"]));
        for not_known in [node("u", None), node("v", Some(&[]))] {
            assert_eq!(taint.observe(Some(&on), &not_known), None);
            assert_eq!(taint.removed(), None);
        }
        assert_eq!(taint.is_off("v"), None);
        assert_eq!(taint.observe(Some(&on), &node("u", Some(&[]))), Some("a"));
        assert_eq!(taint.removed(), Some(&untaint("u")));
    }
}
