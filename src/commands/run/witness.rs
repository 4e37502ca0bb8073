//! What the guard is told about the node, by the node's own means.

use std::os::fd::BorrowedFd;

use crate::clean::Witness;
use crate::config::Class;
use crate::node::{identity, usage};
use crate::volume::{DevNum, DeviceIdentity, EntryName, FilesystemIdentity, Identity, Refusal};

/// The live kernel.
#[derive(Debug)]
pub(super) struct NodeWitness;

impl Witness for NodeWitness {
    fn identity_of_directory(&self, dir: BorrowedFd<'_>) -> Result<FilesystemIdentity, Refusal> {
        identity::of_mount(dir)
    }

    fn identity_of_device(&self, number: DevNum) -> Result<DeviceIdentity, Refusal> {
        identity::of_device(number).map(|facts| facts.identity)
    }

    fn users(
        &self,
        identity: &Identity,
        class: &Class,
        entry: &EntryName,
        pv: &str,
    ) -> Result<Vec<String>, Refusal> {
        let users = usage::users(usage::Subject {
            identity,
            class,
            entry,
            pv,
        })?;
        Ok(users.iter().map(ToString::to_string).collect())
    }
}
