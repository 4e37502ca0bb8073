//! What the tests stand on.

pub(crate) mod apiserver;
pub(crate) mod bay;
pub(crate) mod daemon;
pub(crate) mod disks;
pub(crate) mod fuse;
pub(crate) mod site;
pub(crate) mod zram;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The pause between two looks at a condition that plain code waits for.
#[expect(
    clippy::disallowed_methods,
    reason = "the one pause of bounded polls in plain code"
)]
pub(crate) fn nap() {
    thread::sleep(Duration::from_millis(10));
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

/// Tries something that may be busy for a moment, for at most 2 s; false when it stays so.
pub(crate) fn retried(mut act: impl FnMut() -> bool) -> bool {
    (0..200).any(|_| {
        let is_done = act();
        if !is_done {
            nap();
        }
        is_done
    })
}

/// Runs `act` while another thread does `again` over and over. That ends also when `act` panics.
pub(crate) fn meanwhile<T>(mut again: impl FnMut() + Send, act: impl FnOnce() -> T) -> T {
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                again();
            }
        });
        let _stop = Stop(&stop);
        act()
    })
}
