//! What the tests stand on.

pub(crate) mod apiserver;
pub(crate) mod bay;
pub(crate) mod daemon;
pub(crate) mod disks;
pub(crate) mod fuse;
pub(crate) mod site;
pub(crate) mod zram;

use std::process::Child;
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

/// Does `act` until it succeeds, with naps in between; false when it does not in that time.
pub(crate) fn succeeds_within(limit: Duration, mut act: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    loop {
        if act() {
            return true;
        }
        if begun.elapsed() >= limit {
            return false;
        }
        nap();
    }
}

/// Waits in plain code until `done`, for at most 10 s.
pub(crate) fn wait_until(what: &str, done: impl FnMut() -> bool) {
    let is_done = succeeds_within(Duration::from_secs(10), done);
    assert!(is_done, "waited in vain: {what}");
}

/// Tries something that may be busy for a moment; false when it stays so.
pub(crate) fn retried(act: impl FnMut() -> bool) -> bool {
    succeeds_within(Duration::from_secs(3), act)
}

/// A process that is killed when dropped.
#[derive(Debug)]
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Fails when it has ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
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
