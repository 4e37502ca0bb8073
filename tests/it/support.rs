//! What the integration tests stand on.

pub(crate) mod apiserver;
pub(crate) mod disks;
