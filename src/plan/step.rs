//! The steps of a plan, and how a person reads them.

use std::fmt;

use serde::Serialize;

use crate::pv::{Offer, Phase, Pv, quantity};
use crate::volume::{ClassName, EntryName, Identity, Reason, Refusal};

/// What a step is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Subject {
    /// The class; empty for the node itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<ClassName>,
    /// The entry's name, made printable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<String>,
    /// The PersistentVolume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pv: Option<String>,
    /// Its UID, for Events.
    #[serde(skip)]
    pub uid: Option<String>,
}

impl Subject {
    fn node() -> Self {
        Self {
            class: None,
            entry: None,
            pv: None,
            uid: None,
        }
    }

    pub(super) fn class(class: &ClassName) -> Self {
        Self {
            class: Some(class.clone()),
            ..Self::node()
        }
    }

    pub(super) fn entry(class: &ClassName, entry: &str) -> Self {
        Self {
            entry: Some(entry.to_owned()),
            ..Self::class(class)
        }
    }

    pub(super) fn volume(pv: &Pv, entry: Option<&EntryName>) -> Self {
        Self {
            class: Some(pv.class.clone()),
            entry: entry.map(ToString::to_string),
            pv: Some(pv.name.clone()),
            uid: Some(pv.uid.clone()),
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.class, &self.entry, &self.pv) {
            (None, ..) => f.write_str("node"),
            (Some(class), Some(entry), _) => write!(f, "{class}/{entry}"),
            (Some(_), None, Some(pv)) => f.write_str(pv),
            (Some(class), None, None) => write!(f, "class {class}"),
        }
    }
}

/// One thing to do, or to leave, with everything needed for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "step", rename_all = "camelCase")]
pub enum Step {
    /// Publish a volume.
    Offer(Offer),
    /// Put what is missing of label, record and finalizer on a PersistentVolume.
    Adopt(Adopt),
    /// Wipe a released volume and delete its PersistentVolume.
    Reclaim(Reclaim),
    /// Let a PersistentVolume go that somebody deleted and that needs no wipe.
    LetGo(LetGo),
    /// Delete a PersistentVolume that nobody has claimed and that stands for nothing any more.
    Withdraw(Withdraw),
    /// Take the startup taint off the Node, once each offer before it was tried.
    Untaint(Untaint),
    /// All is as it should be.
    Keep(Keep),
    /// Nothing can be done, and why.
    Refuse(Refuse),
}

/// See [`Step::Adopt`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Adopt {
    /// The volume.
    pub subject: Subject,
    /// The name of its PersistentVolume.
    pub pv: String,
    /// The record to write.
    pub identity: Identity,
}

/// See [`Step::Reclaim`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Reclaim {
    /// The volume.
    pub subject: Subject,
    /// The name of its PersistentVolume.
    pub pv: String,
    /// Its UID: the decision holds for this object alone.
    pub uid: String,
    /// The UID of the claim that it was bound to.
    pub claim_uid: Option<String>,
    /// The class.
    pub class: ClassName,
    /// The entry.
    pub entry: EntryName,
    /// What was offered.
    pub recorded: Identity,
    /// What is left to do.
    pub stage: Stage,
}

/// What is left of a reclaim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Stage {
    /// Wipe, from this byte of the device on.
    Wipe {
        /// Bytes that an earlier process wiped and recorded.
        resume_at: u64,
    },
    /// The wipe is proven; only the object is left.
    Delete,
}

/// See [`Step::LetGo`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LetGo {
    /// The volume.
    pub subject: Subject,
    /// The name of its PersistentVolume.
    pub pv: String,
    /// Why no wipe is needed.
    pub why: &'static str,
}

/// See [`Step::Withdraw`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Withdraw {
    /// The volume.
    pub subject: Subject,
    /// The name of its PersistentVolume.
    pub pv: String,
    /// Its UID: the decision holds for this object alone.
    pub uid: String,
    /// Why it stands for nothing any more.
    pub why: String,
}

/// See [`Step::Untaint`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Untaint {
    /// The Node's UID: a Node that is registered anew has its taint again.
    pub uid: String,
    /// The key of the taint.
    pub key: String,
}

/// See [`Step::Keep`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Keep {
    /// The volume.
    pub subject: Subject,
    /// Its phase.
    pub phase: Phase,
}

/// See [`Step::Refuse`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Refuse {
    /// What is refused.
    pub subject: Subject,
    /// Why.
    #[serde(flatten)]
    pub refusal: Refusal,
}

impl Step {
    pub(super) fn refuse_node(why: &str) -> Self {
        Self::Refuse(Refuse {
            subject: Subject::node(),
            refusal: Refusal::new(Reason::NodeUnknown, why),
        })
    }

    /// What the step is about.
    pub fn subject(&self) -> Subject {
        match self {
            Self::Offer(offer) => Subject::entry(&offer.class, offer.entry.as_str()),
            Self::Adopt(step) => step.subject.clone(),
            Self::Reclaim(step) => step.subject.clone(),
            Self::LetGo(step) => step.subject.clone(),
            Self::Withdraw(step) => step.subject.clone(),
            Self::Untaint(_) => Subject::node(),
            Self::Keep(step) => step.subject.clone(),
            Self::Refuse(step) => step.subject.clone(),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let subject = self.subject();
        match self {
            Self::Offer(o) => {
                let size = quantity(o.capacity_bytes);
                write!(
                    f,
                    "offer    {subject}  as {} ({} {size} at {})",
                    o.pv, o.mode, o.path
                )
            }
            Self::Adopt(a) => write!(f, "adopt    {subject}  as {}", a.pv),
            Self::Reclaim(r) => match r.stage {
                Stage::Wipe { resume_at: 0 } => write!(f, "wipe     {subject}  of {}", r.pv),
                Stage::Wipe { resume_at } => {
                    write!(f, "wipe     {subject}  of {}, from byte {resume_at}", r.pv)
                }
                Stage::Delete => write!(f, "delete   {subject}  {}, whose wipe is proven", r.pv),
            },
            Self::LetGo(l) => write!(f, "let go   {subject}  {}: {}", l.pv, l.why),
            Self::Withdraw(w) => write!(f, "withdraw {subject}  {}: {}", w.pv, w.why),
            Self::Untaint(u) => write!(
                f,
                "untaint  {subject}  of {}, once each offer was tried",
                u.key
            ),
            Self::Keep(k) => {
                write!(
                    f,
                    "keep     {subject}  {} {:?}",
                    k.subject.pv.as_deref().unwrap_or(""),
                    k.phase
                )
            }
            Self::Refuse(r) => write!(f, "refuse   {subject}  {}", r.refusal),
        }
    }
}
