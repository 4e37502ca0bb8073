//! What the threads share: the store, the journal and the faults under one lock, and the signals
//! that wake whoever waits for a change of them.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::controllers::{self, Controllers};
use super::fault::Faults;
use super::journal::Request;
use super::store::Store;
use super::write::Applied;

/// A real server's bookmark interval.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);

/// Everything that changes.
#[derive(Debug)]
pub(super) struct State {
    pub(super) store: Store,
    pub(super) applied: Applied,
    pub(super) journal: Vec<Request>,
    pub(super) faults: Faults,
    pub(super) controllers: Controllers,
    /// The version up to which the controllers have reacted.
    settled: u64,
    pub(super) bookmark_interval: Duration,
    pub(super) open_watches: usize,
}

/// How open watches are disturbed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Disturbance {
    /// How often they were all dropped.
    pub(super) drops: u64,
    /// How often they were all sent a bookmark.
    pub(super) bookmarks: u64,
}

/// The state and its signals.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) started: Instant,
    state: Mutex<State>,
    /// Counts the locked sections, each of which may have changed something.
    pub(super) pulse: watch::Sender<u64>,
    pub(super) disturbance: watch::Sender<Disturbance>,
    beats: Mutex<u64>,
    beat: Condvar,
}

impl Shared {
    pub(super) fn new(controllers: Controllers) -> Self {
        let started = Instant::now();
        let state = State {
            store: Store::new(started),
            applied: Applied::new(),
            journal: Vec::new(),
            faults: Faults::default(),
            controllers,
            settled: 0,
            bookmark_interval: BOOKMARK_INTERVAL,
            open_watches: 0,
        };
        Self {
            started,
            state: Mutex::new(state),
            pulse: watch::Sender::new(0),
            disturbance: watch::Sender::new(Disturbance::default()),
            beats: Mutex::new(0),
            beat: Condvar::new(),
        }
    }

    /// Reads the state.
    pub(super) fn read<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.lock())
    }

    /// Changes the state, lets the controllers react and wakes everybody.
    pub(super) fn change<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let result = {
            let mut state = self.lock();
            let result = act(&mut state);
            if state.controllers.is_on() {
                let seen = state.settled;
                state.settled = controllers::settle(&mut state.store, seen);
            }
            result
        };
        self.pulse.send_modify(|beats| *beats += 1);
        *self.beats.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.beat.notify_all();
        result
    }

    /// Blocks until `probe` gives something, or `limit` has passed.
    pub(super) fn wait<T>(
        &self,
        limit: Duration,
        mut probe: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        let deadline = Instant::now() + limit;
        loop {
            let seen = *self.beats.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(found) = probe() {
                return Some(found);
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            let beats = self.beats.lock().unwrap_or_else(PoisonError::into_inner);
            drop(
                self.beat
                    .wait_timeout_while(beats, left, |beats| *beats == seen),
            );
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic in a test's closure must not hide behind a poisoned lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
