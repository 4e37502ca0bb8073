//! How long to wait before the next attempt.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

/// Exponential backoff with full jitter: the n-th delay is anywhere between nothing and
/// `first * 2^n`, at most `max`. A fleet that lost its API server at one moment comes back spread out.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    max: Duration,
    failures: u32,
}

/// However lucky the draw, a failing call is not repeated sooner.
const FLOOR: Duration = Duration::from_millis(50);

impl Backoff {
    /// Delays from `first` on, up to `max`.
    pub fn new(first: Duration, max: Duration) -> Self {
        Self {
            first,
            max,
            failures: 0,
        }
    }

    /// The delay after one more failure; never shorter than what the server asked for.
    pub fn after(&mut self, retry_after: Option<Duration>) -> Duration {
        let ceiling = self.ceiling();
        self.failures = self.failures.saturating_add(1);
        let drawn = ceiling.mul_f64(random_fraction()).max(FLOOR);
        match retry_after {
            // The server's answer is the same for everybody: spread it too.
            Some(asked) => asked + drawn.min(asked),
            None => drawn,
        }
    }

    /// Forgets the failures after a success.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    fn ceiling(&self) -> Duration {
        let factor = 1_u32.checked_shl(self.failures).unwrap_or(u32::MAX);
        self.first.saturating_mul(factor).min(self.max)
    }
}

/// Any part of `whole`, so that many that begin at one moment do not go on in step.
pub fn some_of(whole: Duration) -> Duration {
    whole.mul_f64(random_fraction())
}

/// Anything in `[0, 1)`. The standard library seeds its hashers from the kernel's randomness, which
/// is all that jitter needs.
pub(super) fn random_fraction() -> f64 {
    let bits = RandomState::new().build_hasher().finish() >> 32;
    u32::try_from(bits).map_or(0.0, |bits| f64::from(bits) / (f64::from(u32::MAX) + 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_the_limit_and_start_again_after_a_success() {
        let mut backoff = Backoff::new(Duration::from_millis(800), Duration::from_secs(30));
        let ceilings: Vec<_> = (0..8)
            .map(|_| {
                let ceiling = backoff.ceiling();
                assert!(backoff.after(None) <= ceiling);
                ceiling.as_millis()
            })
            .collect();
        assert_eq!(
            ceilings,
            [800, 1600, 3200, 6400, 12800, 25600, 30000, 30000]
        );
        backoff.reset();
        assert_eq!(backoff.ceiling().as_millis(), 800);
    }

    #[test]
    fn a_long_outage_does_not_overflow() {
        let mut backoff = Backoff::new(Duration::from_millis(800), Duration::from_secs(30));
        backoff.failures = u32::MAX;
        assert!(backoff.after(None) <= Duration::from_secs(30));
    }

    #[test]
    fn the_servers_wish_is_obeyed() {
        let mut backoff = Backoff::new(Duration::from_millis(800), Duration::from_secs(30));
        let asked = Duration::from_secs(7);
        let delay = backoff.after(Some(asked));
        assert!(delay >= asked && delay <= 2 * asked);
    }

    /// Five thousand daemons that start at one moment: no moment is twice as crowded as it has to be.
    #[test]
    fn many_starts_are_spread() {
        let whole = Duration::from_secs(5);
        let mut slots = [0_u32; 50];
        for _ in 0..5_000 {
            let start = some_of(whole);
            assert!(start < whole);
            slots[usize::try_from(start.as_millis() / 100).unwrap()] += 1;
        }
        assert!(slots.iter().all(|starts| *starts < 200), "{slots:?}");
    }

    #[test]
    fn draws_differ() {
        let draws: Vec<_> = (0..16).map(|_| random_fraction()).collect();
        assert!(draws.iter().all(|d| (0.0..1.0).contains(d)));
        assert!(draws.iter().any(|d| (d - draws[0]).abs() > f64::EPSILON));
    }
}
