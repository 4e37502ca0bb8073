//! What was said lately, so that it is not said again.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// The same thing is said at most once in this time.
const QUIET: Duration = Duration::from_secs(10 * 60);
/// So many different things are remembered; beyond that the oldest may be said again too soon.
const CAPACITY: usize = 1024;

/// The set of things said within the last ten minutes.
pub(super) struct Recent<T> {
    said: HashMap<T, Instant>,
}

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self {
            said: HashMap::new(),
        }
    }
}

impl<T: Clone + Eq + Hash> Recent<T> {
    /// Whether `thing` was not said lately; from now on it was.
    pub(super) fn is_new(&mut self, thing: &T, now: Instant) -> bool {
        let fresh = |at: &Instant| now.saturating_duration_since(*at) < QUIET;
        if self.said.get(thing).is_some_and(fresh) {
            return false;
        }
        if self.said.len() >= CAPACITY {
            self.said.retain(|_, at| fresh(at));
        }
        if self.said.len() >= CAPACITY {
            let oldest = self.said.iter().min_by_key(|(_, at)| **at);
            if let Some(oldest) = oldest.map(|(thing, _)| thing.clone()) {
                self.said.remove(&oldest);
            }
        }
        self.said.insert(thing.clone(), now);
        true
    }

    /// Takes it back: `thing` was not said after all.
    pub(super) fn forget(&mut self, thing: &T) {
        self.said.remove(thing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thing_is_new_again_after_ten_minutes() {
        let (mut recent, start) = (Recent::default(), Instant::now());
        assert!(recent.is_new(&"a", start));
        assert!(!recent.is_new(&"a", start + QUIET / 2));
        assert!(recent.is_new(&"b", start + QUIET / 2));
        assert!(recent.is_new(&"a", start + QUIET));
    }

    #[test]
    fn what_was_taken_back_is_new() {
        let (mut recent, start) = (Recent::default(), Instant::now());
        assert!(recent.is_new(&"a", start));
        recent.forget(&"a");
        assert!(recent.is_new(&"a", start));
    }

    #[test]
    fn memory_is_bounded_and_the_oldest_goes_first() {
        let (mut recent, start) = (Recent::default(), Instant::now());
        for i in 0..2 * CAPACITY {
            let at = start + Duration::from_micros(u64::try_from(i).unwrap());
            assert!(recent.is_new(&i, at));
        }
        assert_eq!(recent.said.len(), CAPACITY);
        assert!(recent.is_new(&0, start + Duration::from_secs(1)));
        assert!(!recent.is_new(&(2 * CAPACITY - 1), start + Duration::from_secs(1)));
    }
}
