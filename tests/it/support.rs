//! What the tests stand on.

pub(crate) mod apiserver;
pub(crate) mod daemon;
pub(crate) mod disks;
pub(crate) mod fuse;
pub(crate) mod site;

use std::time::Duration;

/// The pause between two looks at a condition that plain code waits for.
#[expect(
    clippy::disallowed_methods,
    reason = "the one pause of bounded polls in plain code"
)]
pub(crate) fn nap() {
    std::thread::sleep(Duration::from_millis(10));
}
