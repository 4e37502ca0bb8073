//! Running what may block for ever, without waiting for ever.
//!
//! A probe has its own thread: one that hangs in the kernel can't be stopped, and tokio would wait for
//! it when it shuts down. A thread that is late gives its place to others, so hanging entries can't
//! use up the pool; there is at most one thread for an entry, so they can't pile up either.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::time::timeout;

use crate::volume::{ClassName, Reason, Refusal};

/// Probes at a time. Local disks answer in microseconds, so this is not for speed: it lets the others
/// go on while some wait for their deadline.
const AT_ONCE: usize = 8;
/// Threads of a walk after an entry did not answer.
const AFTER_TROUBLE: usize = 16;
/// How long a probe may take. A sleeping disk needs no longer for what is asked: it is read only where
/// `requireEmpty` says so, and what a late probe has read is known to the next one. A start-up with eight
/// dead mounts is still done in time for a readiness probe.
const DEADLINE: Duration = Duration::from_secs(2);
/// So often a walk is told how far it is. It waits for the last entry and otherwise only has to see that
/// there is progress: to be woken for each entry takes longer than to look at most.
const PROGRESS: Duration = Duration::from_millis(100);
/// Stack of a probe's thread: paths and a few buffers.
const STACK_BYTES: usize = 256 * 1024;

/// What a probe is about: an entry of a class, or with an empty name the class's directory.
pub(super) type Key = (ClassName, OsString);

/// What is called with the class of a probe that comes back after its deadline.
pub(super) type LateLanding = Box<dyn Fn(&ClassName) + Send + Sync>;

/// The probes that run, and the places for them.
pub(super) struct Pool {
    places: Semaphore,
    /// For each probe whose thread is alive, whether it is past its deadline.
    in_flight: Mutex<HashMap<Key, bool>>,
    landed: Notify,
    landed_late: LateLanding,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("in_flight", &self.in_flight)
            .finish_non_exhaustive()
    }
}

impl Pool {
    pub(super) fn new(landed_late: LateLanding) -> Self {
        Self {
            places: Semaphore::new(AT_ONCE),
            in_flight: Mutex::default(),
            landed: Notify::new(),
            landed_late,
        }
    }

    /// Runs `work`, or refuses because it, or an earlier one with the same key, does not come back.
    pub(super) async fn probe<T: Send + 'static>(
        self: &Arc<Self>,
        key: Key,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let is_ours = timeout(DEADLINE, self.take_off(&key))
            .await
            .unwrap_or(false);
        if !is_ours {
            self.mark_late(&key);
            return Err(hung());
        }
        let flight = Flight {
            pool: Arc::clone(self),
            key: key.clone(),
        };
        let Ok(_place) = self.places.acquire().await else {
            return Err(hung());
        };
        let (send, receive) = oneshot::channel();
        let spawned = thread::Builder::new()
            .name("probe".into())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                let outcome = work();
                // Landed before the answer is out, so that who gets it can ask again at once.
                drop(flight);
                // Nobody waits for the answer of a late probe.
                let _ = send.send(outcome);
            });
        if let Err(error) = spawned {
            return Err(no_thread(&error));
        }
        match timeout(DEADLINE, receive).await {
            Ok(Ok(outcome)) => Ok(outcome),
            Ok(Err(_)) => Err(Refusal::new(Reason::Unreadable, "looking at it failed")),
            Err(_) => {
                self.mark_late(&key);
                Err(hung())
            }
        }
    }

    /// Runs `work` for each of `names`, entries of `class`, one after the other on a thread of its own; the
    /// outcomes come in the order of the names. What does not come back in time is refused, and another
    /// thread goes on with the rest. One walk of a class at a time: what somebody else has in hand counts
    /// as not answering.
    pub(super) async fn walk<T: Send + 'static>(
        self: &Arc<Self>,
        class: &ClassName,
        names: Vec<OsString>,
        work: impl Fn(&OsString) -> T + Send + Sync + 'static,
    ) -> Vec<(OsString, Result<T, Refusal>)> {
        let mut outcomes: Vec<Option<Result<T, Refusal>>> = names.iter().map(|_| None).collect();
        let course = Arc::new(Course {
            pool: Arc::clone(self),
            class: class.clone(),
            names,
            next: AtomicUsize::new(0),
            work,
            done: Mutex::default(),
            progress: Notify::new(),
        });
        let mut missing = outcomes.len();
        // One after the other is quickest while all answer; where some don't, several at a time.
        let mut walkers = 1;
        let mut retired: Vec<Arc<AtomicBool>> = Vec::new();
        let mut started = Course::walk(&course, walkers, &mut retired);
        while missing > 0 && started.is_ok() {
            let in_time = timeout(DEADLINE, course.progress.notified()).await.is_ok();
            // A late one that comes back while the others are looked at is as good as any.
            for (index, outcome) in course.take() {
                let known: &mut Option<Result<T, Refusal>> = &mut outcomes[index];
                missing -= usize::from(known.is_none());
                *known = Some(outcome);
            }
            if in_time {
                continue;
            }
            let overdue = course.next.load(Ordering::SeqCst).min(outcomes.len());
            for (name, known) in course.names.iter().zip(&mut outcomes).take(overdue) {
                if known.is_none() {
                    self.mark_late(&(class.clone(), name.clone()));
                    *known = Some(Err(hung()));
                    missing -= 1;
                }
            }
            // The late threads end when they come back; the rest is for others.
            retired
                .drain(..)
                .for_each(|thread| thread.store(true, Ordering::SeqCst));
            walkers = AFTER_TROUBLE.min(missing);
            started = Course::walk(&course, walkers, &mut retired);
        }
        let no_answer = started.err().unwrap_or_else(hung);
        let outcomes = outcomes
            .into_iter()
            .map(|outcome| outcome.unwrap_or_else(|| Err(no_answer.clone())));
        course.names.iter().cloned().zip(outcomes).collect()
    }

    /// Claims the key for the caller's thread, unless somebody has it.
    fn claim(self: &Arc<Self>, key: Key) -> Option<Flight> {
        let mut in_flight = self.in_flight();
        if in_flight.contains_key(&key) {
            return None;
        }
        in_flight.insert(key.clone(), false);
        Some(Flight {
            pool: Arc::clone(self),
            key,
        })
    }

    /// Claims the key, and says whether it could: waits for an earlier probe of it that is not late yet,
    /// but not for one that is.
    async fn take_off(&self, key: &Key) -> bool {
        loop {
            // Registered before the look, so that a landing in between is not missed.
            let landed = self.landed.notified();
            tokio::pin!(landed);
            landed.as_mut().enable();
            {
                let mut in_flight = self.in_flight();
                match in_flight.get(key) {
                    None => {
                        in_flight.insert(key.clone(), false);
                        return true;
                    }
                    Some(true) => return false,
                    Some(false) => {}
                }
            }
            landed.await;
        }
    }

    fn mark_late(&self, key: &Key) {
        if let Some(is_late) = self.in_flight().get_mut(key) {
            *is_late = true;
        }
    }

    fn in_flight(&self) -> MutexGuard<'_, HashMap<Key, bool>> {
        self.in_flight
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn hung() -> Refusal {
    let detail = format!(
        "the kernel did not answer within {} s; a dead network mount or a failing disk does that",
        DEADLINE.as_secs()
    );
    Refusal::new(Reason::Hung, detail)
}

/// The entries of one walk and how far it is.
struct Course<F, T> {
    pool: Arc<Pool>,
    class: ClassName,
    names: Vec<OsString>,
    next: AtomicUsize,
    work: F,
    /// Outcomes that were not taken yet, with the index of the name.
    done: Mutex<Vec<(usize, Result<T, Refusal>)>>,
    progress: Notify,
}

impl<F, T> Course<F, T>
where
    F: Fn(&OsString) -> T + Send + Sync + 'static,
    T: Send + 'static,
{
    /// Starts `count` threads on what is left. Each ends early once its flag, which goes to `retired`, is
    /// set.
    fn walk(
        course: &Arc<Self>,
        count: usize,
        retired: &mut Vec<Arc<AtomicBool>>,
    ) -> Result<(), Refusal> {
        for _ in 0..count {
            let flag = Arc::new(AtomicBool::new(false));
            let (course, is_retired) = (Arc::clone(course), Arc::clone(&flag));
            thread::Builder::new()
                .name("probe".into())
                .stack_size(STACK_BYTES)
                .spawn(move || course.go_on(&is_retired))
                .map_err(|error| no_thread(&error))?;
            retired.push(flag);
        }
        Ok(())
    }

    /// Looks at one name after the other until none is left or the thread is retired.
    fn go_on(&self, is_retired: &AtomicBool) {
        let mut told = Instant::now();
        while !is_retired.load(Ordering::SeqCst) {
            let index = self.next.fetch_add(1, Ordering::SeqCst);
            let Some(name) = self.names.get(index) else {
                break;
            };
            let outcome = match self.pool.claim((self.class.clone(), name.clone())) {
                None => Err(hung()),
                Some(flight) => {
                    let outcome = (self.work)(name);
                    drop(flight);
                    Ok(outcome)
                }
            };
            self.done().push((index, outcome));
            if told.elapsed() >= PROGRESS {
                told = Instant::now();
                self.progress.notify_one();
            }
        }
        self.progress.notify_one();
    }

    fn take(&self) -> Vec<(usize, Result<T, Refusal>)> {
        std::mem::take(&mut *self.done())
    }

    fn done(&self) -> MutexGuard<'_, Vec<(usize, Result<T, Refusal>)>> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn no_thread(error: &std::io::Error) -> Refusal {
    let detail = format!("no thread could be started to look at it: {error}");
    Refusal::new(Reason::Unreadable, detail)
}

/// The claim on a key, given back when the thread ends, also by a panic.
struct Flight {
    pool: Arc<Pool>,
    key: Key,
}

impl Drop for Flight {
    fn drop(&mut self) {
        let was_late = self.pool.in_flight().remove(&self.key);
        self.pool.landed.notify_waiters();
        if was_late == Some(true) {
            (self.pool.landed_late)(&self.key.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use tokio::time::Instant;

    fn key() -> Key {
        (ClassName::new("c"), "entry".into())
    }

    fn pool() -> Arc<Pool> {
        Arc::new(Pool::new(Box::new(|_| {})))
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_probe_is_refused_at_once_until_it_lands() {
        let pool = pool();
        let (release, blocked) = mpsc::channel::<()>();
        let first = pool.probe(key(), move || blocked.recv().is_err()).await;
        assert_eq!(first.unwrap_err().reason, Reason::Hung);
        let begin = Instant::now();
        let second = pool.probe(key(), || true).await;
        assert_eq!(second.unwrap_err().reason, Reason::Hung);
        assert_eq!(begin.elapsed(), Duration::ZERO);
        tokio::time::resume();
        drop(release);
        timeout(DEADLINE, async {
            while pool.probe(key(), || true).await.is_err() {}
        })
        .await
        .expect("the probe has landed");
    }

    #[tokio::test]
    async fn only_the_landing_of_a_late_probe_is_told() {
        let (tell, told) = mpsc::channel();
        let tell = Mutex::new(tell);
        let pool = Arc::new(Pool::new(Box::new(move |class| {
            let tell = tell.lock().unwrap();
            tell.send(class.clone()).unwrap();
        })));
        assert_eq!(pool.probe(key(), || true).await, Ok(true));
        assert!(told.try_recv().is_err());
        let (release, blocked) = mpsc::channel::<()>();
        let late = pool.probe(key(), move || blocked.recv().is_err()).await;
        assert_eq!(late.unwrap_err().reason, Reason::Hung);
        assert!(told.try_recv().is_err());
        drop(release);
        assert_eq!(told.recv_timeout(DEADLINE).unwrap(), key().0);
    }

    #[tokio::test]
    async fn an_earlier_probe_is_waited_for() {
        let pool = pool();
        let (release, blocked) = mpsc::channel::<()>();
        let first = pool.probe(key(), move || blocked.recv().is_err());
        let second = pool.probe(key(), || true);
        let release = async {
            tokio::task::yield_now().await;
            drop(release);
        };
        let (first, second, ()) = tokio::join!(first, second, release);
        assert_eq!((first, second), (Ok(true), Ok(true)));
    }

    #[tokio::test]
    async fn a_probe_that_panics_gives_its_key_back() {
        let pool = pool();
        let failed = pool.probe(key(), || assert_eq!(1, 2, "on purpose")).await;
        assert_eq!(failed.unwrap_err().reason, Reason::Unreadable);
        assert_eq!(pool.probe(key(), || true).await, Ok(true));
    }

    /// A walk over three names, of which the second does not come back.
    #[tokio::test]
    async fn a_hung_entry_keeps_no_other_from_being_looked_at() {
        let pool = pool();
        let names: Vec<OsString> = ["a", "b", "c"].map(OsString::from).into();
        let (release, blocked) = mpsc::channel::<()>();
        let blocked = Arc::new(Mutex::new(blocked));
        let walk = |names: Vec<OsString>| {
            let blocked = Arc::clone(&blocked);
            let work =
                move |name: &OsString| name != "b" || blocked.lock().unwrap().recv().is_err();
            let pool = Arc::clone(&pool);
            async move {
                let outcomes = pool.walk(&key().0, names, work).await;
                outcomes
                    .into_iter()
                    .map(|(_, outcome)| outcome.is_ok())
                    .collect::<Vec<_>>()
            }
        };
        assert_eq!(walk(names.clone()).await, [true, false, true]);
        // The next walk does not wait for it again.
        let begin = Instant::now();
        assert_eq!(walk(names.clone()).await, [true, false, true]);
        assert!(begin.elapsed() < DEADLINE);
        drop(release);
        let landed = async { while walk(names.clone()).await != [true, true, true] {} };
        timeout(DEADLINE, landed)
            .await
            .expect("the probe has landed");
    }

    #[tokio::test]
    async fn every_hung_entry_costs_one_deadline() {
        let names: Vec<OsString> = ["a", "b"].map(OsString::from).into();
        let (release, blocked) = mpsc::channel::<()>();
        let blocked = Mutex::new(blocked);
        let begin = Instant::now();
        let work = move |_: &OsString| blocked.lock().unwrap().recv().is_err();
        let outcomes = pool().walk(&key().0, names, work).await;
        assert!(outcomes.iter().all(|(_, outcome)| outcome.is_err()));
        assert!(begin.elapsed() < DEADLINE * 3);
        drop(release);
    }
}
