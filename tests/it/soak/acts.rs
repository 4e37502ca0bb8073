//! What happens to the node, the volumes, the daemon and the API server: the list, with how often each
//! comes about.
//!
//! Each action does one thing for real and the same to the model. It answers in words what it did, or
//! nothing when there was nothing to do it to. All chance is in the numbers that it is given, so what
//! a seed does depends on the order in which they are drawn.
//!
//! - [`entries`]: names in the discovery directories, and those directories themselves.
//! - [`storage`]: what is mounted there, and the disks behind it.
//! - [`volumes`]: tenants, and people who delete or bring back what was offered.
//! - Here: the daemon and the API server, and what all of them look things up with.

use std::time::Duration;

use super::model::{Directory, Entry, Id, Place};
use super::random::Random;
use super::world::Soak;
use crate::support::apiserver::{Action, Fault};

mod entries;
mod storage;
mod volumes;

/// Names of entries in each class.
const NAMES: [&str; 6] = ["e0", "e1", "e2", "e3", "e4", "e5"];
/// Mounts on one entry.
const DEPTH: usize = 3;

type Done = Result<Option<String>, String>;

fn no() -> Done {
    Ok(None)
}

fn yes(text: impl Into<String>) -> Done {
    Ok(Some(text.into()))
}

impl Soak<'_> {
    /// Draws until something can be done, and does it.
    pub(super) fn act(&mut self, random: &mut Random) -> Result<String, String> {
        for _ in 0..200 {
            let done = match random.below(100) {
                0..6 => self.make_directory(random),
                6..9 => self.remove_entry(random),
                9..18 => self.mount_tmpfs(random),
                18..25 => self.mount_filesystem(random),
                25..33 => self.mount_directory(random),
                33..36 => self.mount_twice(random),
                36..44 => self.unmount(random),
                44..47 => self.rename(random),
                47..55 => self.link(random),
                55..57 => self.odd_entry(random),
                57..60 => self.swap_medium(random),
                60..61 => self.make_filesystem(random),
                61..64 => self.plug_zram(random),
                64..68 => self.move_directory(random),
                68..80 => self.bind(random),
                80..87 => self.release(random),
                87..89 => self.delete(random),
                89..92 => self.give_up(random),
                92..96 => self.restore(random),
                96..97 => self.restart(random),
                _ => self.disturb(random),
            }?;
            if let Some(text) = done {
                return Ok(text);
            }
        }
        Err("nothing can be done any more".into())
    }

    fn entry_where(
        &self,
        random: &mut Random,
        wanted: impl Fn(&Place, &Entry) -> bool,
    ) -> Option<Place> {
        let places = self.model.places();
        let fit: Vec<Place> = places
            .into_iter()
            .filter(|place| {
                self.model
                    .entry(place)
                    .is_some_and(|entry| wanted(place, entry))
            })
            .collect();
        random.pick(&fit).cloned()
    }

    /// A name that is not taken, in a directory that is there.
    fn vacant(&self, random: &mut Random) -> Option<Place> {
        let class = random.below(self.model.classes.len());
        let name = *random.pick(&NAMES)?;
        let here = &self.model.classes[class];
        let is_free = here.directory == Directory::Here && !here.entries.contains_key(name);
        is_free.then(|| (class, name.to_owned()))
    }

    fn set(&mut self, place: &Place, entry: Option<Entry>) {
        let entries = &mut self.model.classes[place.0].entries;
        match entry {
            Some(entry) => entries.insert(place.1.clone(), entry),
            None => entries.remove(&place.1),
        };
    }

    fn stack(&mut self, place: &Place) -> &mut Vec<Id> {
        match self.model.classes[place.0].entries.get_mut(&place.1) {
            Some(Entry::Dir(stack)) => stack,
            other => panic!("{place:?} should be a directory, not {other:?}"),
        }
    }

    fn restart(&mut self, random: &mut Random) -> Done {
        self.stop()?;
        self.judge.counts.restarts += 1;
        let how = self.start(random);
        yes(format!("restart the daemon as a {how}"))
    }

    /// The API server has a bad moment.
    fn disturb(&mut self, random: &mut Random) -> Done {
        self.judge.counts.faults += 1;
        let times = 1 + u32::from(random.chance(50));
        let volumes = "/api/v1/persistentvolumes";
        let action = match random.below(10) {
            0 => {
                self.server.drop_watches();
                return yes("drop the watches");
            }
            1 => {
                self.server.compact();
                self.server.drop_watches();
                return yes("compact and drop the watches");
            }
            2 => Action::Throttle(1),
            3 => Action::Refuse(500),
            4 => Action::Refuse(503),
            5 => Action::Disconnect,
            6 | 7 => Action::LoseAnswer,
            8 => Action::Delay(Duration::from_millis(30 + random.next() % 300)),
            _ => Action::Stale(
                self.server
                    .version()
                    .saturating_sub(random.next() % 40)
                    .max(2),
            ),
        };
        let text = format!("the API server answers {times} times with {action:?}");
        if matches!(action, Action::Stale(_)) {
            self.server.drop_watches();
        }
        self.server
            .inject(Fault::new(action).path(volumes).times(times));
        yes(text)
    }
}
