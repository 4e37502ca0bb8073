//! The checks on the PersistentVolume as just read: pure, no descriptor in sight.

use std::time::Instant;

use super::{FACTS_LIFETIME, Live, Request};
use crate::pv::{Phase, Policy, Pv};
use crate::volume::{Identity, Reason, Refusal, VolumeMode};

/// Checks everything that the object itself can tell, and gives the identity recorded on it.
pub(super) fn check<'a>(
    request: &Request,
    live: &'a Live,
    taken_at: Instant,
    now: Instant,
) -> Result<&'a Identity, Refusal> {
    fresh(request, live, taken_at, now)?;
    let Some(pv) = &live.pv else {
        return refuse(
            Reason::PvGone,
            format!(
                "PersistentVolume {} is gone; an absent object never means a wipe",
                request.pv
            ),
        );
    };
    same_object(request, pv)?;
    released(request, pv)?;
    in_place(request, pv)?;
    pv.identity.as_ref().ok_or_else(|| {
        Refusal::new(
            Reason::NotRecorded,
            format!(
                "PersistentVolume {} does not say what storage was offered; adopt it, or wipe the \
                 volume by hand and delete the object",
                pv.name
            ),
        )
    })
}

fn refuse<T>(reason: Reason, detail: String) -> Result<T, Refusal> {
    Err(Refusal::new(reason, detail))
}

/// The reading must be newer than the descriptors, and not old itself.
fn fresh(request: &Request, live: &Live, taken_at: Instant, now: Instant) -> Result<(), Refusal> {
    if live.read_at < taken_at {
        return refuse(
            Reason::StaleFacts,
            format!(
                "PersistentVolume {} was read before its volume was opened; it is read again",
                request.pv
            ),
        );
    }
    let age = now.saturating_duration_since(live.read_at);
    if age > FACTS_LIFETIME {
        return refuse(
            Reason::StaleFacts,
            format!(
                "PersistentVolume {} was read {} s ago, longer than {} s; it is read again",
                request.pv,
                age.as_secs(),
                FACTS_LIFETIME.as_secs()
            ),
        );
    }
    Ok(())
}

fn same_object(request: &Request, pv: &Pv) -> Result<(), Refusal> {
    if pv.name != request.pv || pv.uid != request.uid {
        return refuse(
            Reason::PvReplaced,
            format!(
                "PersistentVolume {} has UID {}, the wipe was decided for {} with UID {}",
                pv.name, pv.uid, request.pv, request.uid
            ),
        );
    }
    if !pv.is_own(&request.node) {
        return refuse(
            Reason::NotOurs,
            format!(
                "PersistentVolume {} has not both our label and an affinity to this host alone; \
                 if it is ours, adopt it",
                pv.name
            ),
        );
    }
    if pv.deleting && !pv.is_protected() {
        return refuse(
            Reason::PvGone,
            format!(
                "PersistentVolume {} is being deleted and our finalizer is not on it, so it may be \
                 gone at any moment",
                pv.name
            ),
        );
    }
    Ok(())
}

fn released(request: &Request, pv: &Pv) -> Result<(), Refusal> {
    if pv.phase != Phase::Released {
        return refuse(
            Reason::NotReleased,
            format!(
                "PersistentVolume {} is {:?}, only Released ones are wiped",
                pv.name, pv.phase
            ),
        );
    }
    // A volume without a claim can be bound at any moment, even while its phase still says Released.
    let Some(claim) = pv.claim_uid() else {
        return refuse(
            Reason::ClaimChanged,
            format!(
                "PersistentVolume {} names no claim with a UID; somebody freed it by hand",
                pv.name
            ),
        );
    };
    if Some(claim) != request.claim_uid.as_deref() {
        return refuse(
            Reason::ClaimChanged,
            format!(
                "PersistentVolume {} was released by claim UID {claim}, the wipe was decided for {}",
                pv.name,
                request.claim_uid.as_deref().unwrap_or("none")
            ),
        );
    }
    if pv.policy != Policy::Delete {
        return refuse(
            Reason::NotDelete,
            format!(
                "the reclaim policy of PersistentVolume {} is {}; set it to Delete to have the \
                 volume wiped",
                pv.name,
                pv.policy.as_str()
            ),
        );
    }
    Ok(())
}

/// The path must mean exactly the entry that is held, in the class that is configured.
fn in_place(request: &Request, pv: &Pv) -> Result<(), Refusal> {
    let class = &request.class;
    if pv.class != class.name {
        return refuse(
            Reason::ClassUnknown,
            format!(
                "PersistentVolume {} has class {}, the wipe was decided by class {}",
                pv.name, pv.class, class.name
            ),
        );
    }
    let path = pv.path.as_deref().unwrap_or_default();
    if class.entry_of(path).as_ref() != Some(&request.entry) {
        return refuse(
            Reason::PathOutside,
            format!(
                "path {path:?} of PersistentVolume {} is not {:?}, a direct child of {}; nothing \
                 else is ever wiped",
                pv.name,
                request.entry.as_str(),
                class.host_dir.display()
            ),
        );
    }
    if pv.mode != class.volume_mode {
        return refuse(
            Reason::WrongMode,
            format!(
                "PersistentVolume {} has volumeMode {}, its class now has {}; set the class back \
                 until the volume is wiped",
                pv.name, pv.mode, class.volume_mode
            ),
        );
    }
    // A device may be offered in both modes (the kubelet formats it); a directory never as Block.
    if pv.mode == VolumeMode::Block && matches!(request.recorded, Identity::Filesystem(_)) {
        return refuse(
            Reason::WrongMode,
            format!(
                "PersistentVolume {} has volumeMode Block but was offered for a filesystem",
                pv.name
            ),
        );
    }
    Ok(())
}
