//! Whether the owner's loop is alive, and whether it has begun its work.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A loop that has not turned for so long is stuck. It turns at least once a minute.
pub const HEARTBEAT_LIMIT: Duration = Duration::from_secs(150);

/// A step before we are ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Gate {
    /// This node's PersistentVolumes were listed.
    Volumes = 1,
    /// The StorageClasses were listed.
    Classes = 1 << 1,
    /// The Node was read.
    Node = 1 << 2,
    /// One pass over all directories has ended. What it found does not matter.
    FirstPass = 1 << 3,
}

impl Gate {
    const ALL: [Self; 4] = [Self::Volumes, Self::Classes, Self::Node, Self::FirstPass];

    fn missing(self) -> &'static str {
        match self {
            Self::Volumes => "the PersistentVolumes of this node are not listed yet",
            Self::Classes => "the StorageClasses are not listed yet",
            Self::Node => "the Node object is not read yet",
            Self::FirstPass => "the first pass over the directories has not ended yet",
        }
    }
}

/// Shared between the owner's loop and the server.
#[derive(Debug)]
pub struct Health {
    start: Instant,
    /// Milliseconds from `start` to the last turn of the loop.
    beat: AtomicU64,
    passed: AtomicU8,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            beat: AtomicU64::new(0),
            passed: AtomicU8::new(0),
        }
    }
}

impl Health {
    /// The loop has turned.
    pub fn beat(&self) {
        let millis = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.beat.store(millis, Ordering::Relaxed);
    }

    /// A step is done. We stay ready from then on: an outage of the API server is an alert, not a
    /// reason to take us out of anything.
    pub fn pass(&self, gate: Gate) {
        self.passed.fetch_or(gate as u8, Ordering::Relaxed);
    }

    /// How long ago the loop turned, if that is too long.
    pub fn stuck(&self) -> Option<Duration> {
        self.stuck_at(self.start.elapsed())
    }

    /// As [`Self::stuck`], at a time after the start.
    fn stuck_at(&self, now: Duration) -> Option<Duration> {
        let beat = Duration::from_millis(self.beat.load(Ordering::Relaxed));
        let age = now.saturating_sub(beat);
        (age > HEARTBEAT_LIMIT).then_some(age)
    }

    /// What is missing until we are ready, in words; nothing when we are.
    pub fn missing(&self) -> Vec<&'static str> {
        let passed = self.passed.load(Ordering::Relaxed);
        let open = Gate::ALL.into_iter().filter(|g| passed & *g as u8 == 0);
        open.map(Gate::missing).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_when_every_gate_is_passed() {
        let health = Health::default();
        for (i, gate) in Gate::ALL.into_iter().enumerate() {
            assert_eq!(health.missing().len(), Gate::ALL.len() - i);
            health.pass(gate);
            health.pass(gate);
        }
        assert!(health.missing().is_empty());
    }

    #[test]
    fn a_loop_that_does_not_turn_is_stuck() {
        let health = Health::default();
        let second = Duration::from_secs(1);
        assert_eq!(health.stuck(), None);
        assert_eq!(health.stuck_at(HEARTBEAT_LIMIT), None);
        assert!(health.stuck_at(HEARTBEAT_LIMIT + second).is_some());
        let late = u64::try_from((HEARTBEAT_LIMIT + second).as_millis()).unwrap();
        health.beat.store(late, Ordering::Relaxed);
        assert_eq!(health.stuck_at(HEARTBEAT_LIMIT + second), None);
        health.beat();
        assert!(
            health.stuck_at(HEARTBEAT_LIMIT + second).is_some(),
            "a turn counts from when it was"
        );
    }
}
