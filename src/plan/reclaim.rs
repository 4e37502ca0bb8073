//! What becomes of a PersistentVolume of our own, by its phase, its policy and what its entry is now.

use super::{Adopt, LetGo, Reclaim, Stage, Step, Subject, Withdraw};
use crate::pv::{CleaningState, Phase, Policy, Pv};
use crate::volume::{EntryName, Found, Identity, Likeness, Reason, Refusal};

/// Why a volume without a tenant needs no wipe.
const NEVER_CLAIMED: &str = "it was deleted and nobody had claimed it";

/// Decides about a volume that the configuration has no place for, for the reason `why`: its class is gone,
/// or has another directory.
pub(super) fn homeless(pv: &Pv, why: Refusal, is_given_up: bool) -> Result<Step, Refusal> {
    match (pv.phase, pv.deleting) {
        (Phase::Available | Phase::Pending, true) if pv.is_protected() => {
            Ok(let_go(pv, None, NEVER_CLAIMED))
        }
        // Without our record it may be somebody else's with our label.
        _ if is_free(pv) && pv.identity.is_some() && is_given_up => {
            Ok(withdraw(pv, None, why.detail))
        }
        _ => Err(why),
    }
}

/// Decides about a volume whose class's directory was read; `found` is what its entry is now, and when
/// it is nothing, `is_given_up` says that it was so for as long as the class waits. `None` means that
/// all is well.
pub(super) fn decide(
    pv: &Pv,
    entry: &EntryName,
    found: Option<&Found>,
    is_given_up: bool,
) -> Result<Option<Step>, Refusal> {
    match (pv.phase, pv.deleting) {
        (Phase::Released, _) => released(pv, entry, found),
        (Phase::Available | Phase::Pending, true) if pv.is_protected() => {
            Ok(Some(let_go(pv, Some(entry), NEVER_CLAIMED)))
        }
        (Phase::Available | Phase::Pending | Phase::Bound, false) => {
            offered(pv, entry, found, is_given_up)
        }
        (Phase::Failed, _) => Err(Refusal::new(
            Reason::NotReleased,
            "the PV controller set its phase to Failed; it is wiped only once it is Released",
        )),
        // Bound and deleted: the claim holds it, and our finalizer keeps it until the wipe.
        (Phase::Available | Phase::Pending | Phase::Bound | Phase::Unknown, _) => Ok(None),
    }
}

fn released(pv: &Pv, entry: &EntryName, found: Option<&Found>) -> Result<Option<Step>, Refusal> {
    match pv.policy {
        Policy::Delete => wipe(pv, entry, found).map(Some),
        Policy::Retain if pv.deleting && pv.is_protected() => match found {
            None => Ok(Some(let_go(
                pv,
                Some(entry),
                "it was deleted and its volume is gone",
            ))),
            Some(_) => Err(Refusal::new(
                Reason::DataRetained,
                "it was deleted but its retained data is still there: take the disk away, or remove \
                 the finalizer provisor.dev/reclaim to offer the volume again with its data",
            )),
        },
        Policy::Retain => Ok(None),
        Policy::Other => Err(Refusal::new(
            Reason::PolicyUnsupported,
            "its reclaim policy is neither Delete nor Retain; it is left alone",
        )),
    }
}

fn wipe(pv: &Pv, entry: &EntryName, found: Option<&Found>) -> Result<Step, Refusal> {
    let cleaning = pv.current_cleaning();
    let stage = match cleaning.map(|c| c.state) {
        Some(CleaningState::Wiped) => Stage::Delete,
        Some(CleaningState::Started) => Stage::Wipe {
            resume_at: cleaning.map(|c| c.done_bytes).unwrap_or_default(),
        },
        None => Stage::Wipe { resume_at: 0 },
    };
    let Some(recorded) = &pv.identity else {
        return Err(Refusal::new(
            Reason::NotRecorded,
            "nothing says what was offered, so nothing can say that this is it; wipe the volume by \
             hand and delete the PersistentVolume",
        ));
    };
    if stage != Stage::Delete {
        present(recorded, found)?;
    }
    Ok(Step::Reclaim(Reclaim {
        subject: Subject::volume(pv, Some(entry)),
        pv: pv.name.clone(),
        uid: pv.uid.clone(),
        claim_uid: pv.claim_uid().map(str::to_owned),
        class: pv.class.clone(),
        entry: entry.clone(),
        recorded: recorded.clone(),
        stage,
    }))
}

/// A volume that is free or in use: is it still there, and does it carry what protects it?
fn offered(
    pv: &Pv,
    entry: &EntryName,
    found: Option<&Found>,
    is_given_up: bool,
) -> Result<Option<Step>, Refusal> {
    if let Some(recorded) = &pv.identity
        && let Err(refusal) = present(recorded, found)
    {
        let is_another = matches!(found, Some(Found::Volume(_)));
        return match is_free(pv) && (is_another || is_given_up) {
            true => Ok(Some(withdraw(pv, Some(entry), refusal.detail))),
            false => Err(refusal),
        };
    }
    let Some(Found::Volume(volume)) = found else {
        return Ok(None);
    };
    if pv.is_protected() && pv.identity.is_some() {
        return Ok(None);
    }
    Ok(Some(Step::Adopt(Adopt {
        subject: Subject::volume(pv, Some(entry)),
        pv: pv.name.clone(),
        identity: pv
            .identity
            .clone()
            .unwrap_or_else(|| volume.identity.clone()),
    })))
}

/// Whether nobody has claimed it or is about to. A claim that comes after this look changes the object,
/// and with it fails what was decided.
fn is_free(pv: &Pv) -> bool {
    pv.phase == Phase::Available && pv.claim.is_none() && !pv.deleting
}

/// Whether the entry is still what was recorded, as far as a look from outside tells. A volume in use
/// is refused by inspection for that alone, which is no sign that it changed.
fn present(recorded: &Identity, found: Option<&Found>) -> Result<(), Refusal> {
    let gone = |what: &str| Err(Refusal::new(Reason::EntryMissing, what));
    match found {
        None => gone("its entry is gone from the discovery directory; put it back to go on"),
        Some(Found::Refused { refusal, .. }) => match refusal.reason {
            Reason::NotMounted => {
                gone("nothing is mounted on its entry any more; mount it to go on")
            }
            Reason::DanglingLink => gone("its device is gone; attach it to go on"),
            Reason::ZeroSize => gone("its device has no medium any more; put it back to go on"),
            // A dotfile or the like is offered only while something is mounted on it.
            Reason::Ignored => gone("its entry is no volume any more; put it back to go on"),
            Reason::LinkToDirectory | Reason::NotAVolume => {
                Err(Refusal::new(Reason::EntryReplaced, refusal.detail.clone()))
            }
            // A mounted directory is refused for the mode when its class changed, not the entry.
            Reason::WrongMode if matches!(recorded, Identity::Device(_)) => Err(Refusal::new(
                Reason::EntryReplaced,
                "its entry was a device and is a directory now",
            )),
            _ => Ok(()),
        },
        Some(Found::Volume(volume)) => match volume.identity.compare(recorded) {
            Likeness::Same => Ok(()),
            Likeness::Different(what) => Err(Refusal::new(
                Reason::EntryReplaced,
                format!("its entry is another volume than the one offered: the {what} differs"),
            )),
            Likeness::Unknown => Err(Refusal::new(
                Reason::IdentityUnknown,
                "the node was rebooted and nothing lasting identifies the storage (no UUID, serial \
                 or WWN); check it by hand and delete the PersistentVolume",
            )),
        },
    }
}

fn let_go(pv: &Pv, entry: Option<&EntryName>, why: &'static str) -> Step {
    Step::LetGo(LetGo {
        subject: Subject::volume(pv, entry),
        pv: pv.name.clone(),
        why,
    })
}

/// A volume that never had a tenant, and whose offer is for something that is not there. What is there
/// instead is offered once the name is free.
fn withdraw(pv: &Pv, entry: Option<&EntryName>, why: String) -> Step {
    Step::Withdraw(Withdraw {
        subject: Subject::volume(pv, entry),
        pv: pv.name.clone(),
        uid: pv.uid.clone(),
        why,
    })
}
