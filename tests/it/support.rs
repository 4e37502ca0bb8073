//! What the tests stand on.

pub(crate) mod apiserver;
pub(crate) mod daemon;
pub(crate) mod disks;
pub(crate) mod fuse;
pub(crate) mod site;
pub(crate) mod zram;

use std::time::{Duration, Instant};

/// The pause between two looks at a condition that plain code waits for.
#[expect(
    clippy::disallowed_methods,
    reason = "the one pause of bounded polls in plain code"
)]
pub(crate) fn nap() {
    std::thread::sleep(Duration::from_millis(10));
}

/// Waits in plain code until `done`, for at most 10 s.
pub(crate) fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "waited in vain: {what}"
        );
        nap();
    }
}
