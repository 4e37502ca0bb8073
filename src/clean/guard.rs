//! From a wish to a [`Permit`]: every check that must hold before anything is destroyed.
//!
//! The order is the point. First the descriptors are taken ([`hold`]), then the caller reads the
//! PersistentVolume from the API server, then both are judged together ([`Held::permit`]). Whoever
//! reads first and opens later checks one thing and wipes another. Names are never looked up again
//! after that: the wipe uses the descriptors inside the permit.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use crate::config::Class;
use crate::pv::{NodeFacts, Pv};
use crate::volume::{
    DevNum, DeviceIdentity, EntryName, FilesystemIdentity, Identity, Likeness, Reason, Refusal,
};

mod live;
mod target;

pub(super) use target::Target;

/// How long a reading of the API server, and a permit, may be destroyed by.
pub const FACTS_LIFETIME: Duration = Duration::from_secs(10);

/// How many users a refusal names.
const NAMED_USERS: usize = 5;

/// What is to be wiped, and for which release of which PersistentVolume.
#[derive(Clone, Debug)]
pub struct Request {
    /// `metadata.name` of the PersistentVolume.
    pub pv: String,
    /// Its `metadata.uid` when the wipe was decided.
    pub uid: String,
    /// `spec.claimRef.uid` when the wipe was decided: whose data it is.
    pub claim_uid: Option<String>,
    /// The node that we are.
    pub node: NodeFacts,
    /// The class of the PersistentVolume, as configured.
    pub class: Class,
    /// The entry in the class's directory.
    pub entry: EntryName,
    /// The identity that was recorded when the volume was offered.
    pub recorded: Identity,
}

/// Facts about the node that the guard asks for at the moments when they matter.
pub trait Witness: Send + Sync {
    /// What the mounted filesystem is that the open directory `dir` is the root of.
    ///
    /// # Errors
    /// A refusal when it can't be told.
    fn identity_of_directory(&self, dir: BorrowedFd<'_>) -> Result<FilesystemIdentity, Refusal>;

    /// What the block device of this number is.
    ///
    /// # Errors
    /// A refusal when it can't be told.
    fn identity_of_device(&self, number: DevNum) -> Result<DeviceIdentity, Refusal>;

    /// Who uses the storage, in words: other mounts of it in the host's view, mounts inside it (the
    /// host may have some that this mount namespace does not show), holders, swap, loop devices, open
    /// descriptors. Not counted are the mount at the entry itself and the descriptors of this very
    /// process, which holds the storage while it asks. Empty means free.
    ///
    /// # Errors
    /// A refusal when it can't be told, which counts as used.
    fn users(
        &self,
        identity: &Identity,
        class: &Class,
        entry: &EntryName,
        pv: &str,
    ) -> Result<Vec<String>, Refusal>;
}

/// The PersistentVolume as the API server has it now.
#[derive(Clone, Debug)]
pub struct Live {
    /// The answer; `None` when there is no such object.
    pub pv: Option<Pv>,
    /// Taken before the request was *sent*, so that the answer is at least as new.
    pub read_at: Instant,
}

/// An entry that is open and is what was recorded; not yet a permission.
#[derive(Debug)]
pub struct Held {
    request: Request,
    target: Target,
    identity: Identity,
    taken_at: Instant,
}

/// The permission to wipe one volume, with the descriptors to do it by.
///
/// Only [`Held::permit`] makes one, it can't be copied, and it goes stale after
/// [`FACTS_LIFETIME`]:
///
/// ```compile_fail,E0451
/// fn forge(mut permit: provisor::clean::Permit) -> provisor::clean::Permit {
///     provisor::clean::Permit { ..permit }
/// }
/// ```
///
/// ```compile_fail,E0599
/// fn twice(permit: provisor::clean::Permit) -> [provisor::clean::Permit; 2] {
///     [permit.clone(), permit]
/// }
/// ```
#[derive(Debug)]
pub struct Permit {
    request: Request,
    target: Target,
    granted_at: Instant,
}

/// Opens the entry of `request` and checks that it is what was recorded and that nobody uses it.
///
/// A block device is claimed exclusively from here on, so that nobody can mount or format it; for a
/// filesystem the kernel has no such claim. Drop the result to let go.
///
/// # Errors
/// The reason why this storage may not be wiped now.
pub fn hold(request: Request, witness: &dyn Witness) -> Result<Held, Refusal> {
    if let Identity::Device(_) = &request.recorded {
        // Asked before the claim: while the kubelet still takes a volume down, it claims the device
        // itself, and would fail on ours. And who uses it is a better answer than "busy".
        let number = target::find_device_number(&request)?;
        let identity = Identity::Device(witness.identity_of_device(number)?);
        judge(&request, &identity, witness)?;
    }
    let target = Target::open(&request)?;
    let identity = target.identity(witness)?;
    judge(&request, &identity, witness)?;
    Ok(Held {
        request,
        target,
        identity,
        taken_at: Instant::now(),
    })
}

/// Compares what is there with the record, and asks who uses it.
fn judge(request: &Request, identity: &Identity, witness: &dyn Witness) -> Result<(), Refusal> {
    compare(request, identity, &request.recorded)?;
    let users = witness.users(identity, &request.class, &request.entry, &request.pv)?;
    if users.is_empty() {
        return Ok(());
    }
    let rest = users.len().saturating_sub(NAMED_USERS);
    let mut named = users[..users.len() - rest].join("; ");
    if rest > 0 {
        named.push_str(&format!("; and {rest} more"));
    }
    Err(Refusal::new(
        Reason::InUse,
        format!(
            "{} is still used: {named}; the wipe waits until that ends",
            request.place()
        ),
    ))
}

/// Refuses unless `now` is the same storage as `then` for sure.
fn compare(request: &Request, now: &Identity, then: &Identity) -> Result<(), Refusal> {
    match now.compare(then) {
        Likeness::Same => Ok(()),
        Likeness::Different(what) => Err(Refusal::new(
            Reason::EntryReplaced,
            format!(
                "{} is not the storage that {} was offered for: another {what}; put the old one \
                 back, or delete the PersistentVolume by hand if its data is gone",
                request.place(),
                request.pv
            ),
        )),
        Likeness::Unknown => Err(Refusal::new(
            Reason::IdentityUnknown,
            format!(
                "the node was rebooted and nothing that survives that tells whether {} is still \
                 the storage of {}; wipe it by hand, then delete the PersistentVolume",
                request.place(),
                request.pv
            ),
        )),
    }
}

impl Request {
    /// The entry's path as this process sees it, for sentences.
    pub(super) fn place(&self) -> String {
        self.class.mount_path(&self.entry).display().to_string()
    }
}

impl Held {
    /// What the held storage is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Judges the PersistentVolume as `live` shows it, and the storage once more, since time passed.
    ///
    /// `now` is the present; it is a parameter for the tests' sake.
    ///
    /// # Errors
    /// The reason why the volume may not be wiped; the descriptors are let go.
    pub fn permit(
        self,
        live: &Live,
        witness: &dyn Witness,
        now: Instant,
    ) -> Result<Permit, Refusal> {
        let recorded = live::check(&self.request, live, self.taken_at, now)?;
        // The name must still lead to what is held: otherwise the path in the PersistentVolume means
        // something else by now, and a Pod could be given that while this is wiped.
        self.target.still_at(&self.request)?;
        let identity = self.target.identity(witness)?;
        compare(&self.request, &identity, recorded)?;
        judge(&self.request, &identity, witness)?;
        Ok(Permit {
            request: self.request,
            target: self.target,
            granted_at: now,
        })
    }
}

impl Permit {
    /// `metadata.name` of the PersistentVolume that it is for.
    pub fn pv(&self) -> &str {
        &self.request.pv
    }

    /// `metadata.uid` of the PersistentVolume that it is for.
    pub fn uid(&self) -> &str {
        &self.request.uid
    }

    /// Takes it apart for use, unless it is too old.
    pub(super) fn redeem(self, now: Instant) -> Result<(Request, Target), Refusal> {
        if now.saturating_duration_since(self.granted_at) > FACTS_LIFETIME {
            return Err(Refusal::new(
                Reason::StaleFacts,
                format!(
                    "the permit to wipe {} was not used in time; it is checked anew",
                    self.request.pv
                ),
            ));
        }
        Ok((self.request, self.target))
    }
}

#[cfg(test)]
mod tests;
