//! The truth: what storage there is, what each entry is, and which PersistentVolume stands for what.
//!
//! It is changed only together with the real thing, and knows nothing of how the daemon finds out. From
//! it follows what the daemon has to say about each entry once it is at rest.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::bay::Bay;

/// How old what is offered may be: a creation that the API server puts off is made again a second later
/// or two, whatever has become of the entry.
const OFFER_LIMIT: Duration = Duration::from_secs(10);

/// Index of a [`Storage`].
pub(super) type Id = usize;
/// Index of a [`Class`].
pub(super) type ClassId = usize;
/// An entry's place.
pub(super) type Place = (ClassId, String);

/// What a piece of storage is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Tmpfs,
    /// The filesystem in a bay.
    Ext4(usize),
    /// A directory of the shared filesystem.
    Dir(PathBuf),
    /// The medium in a bay.
    Disk(usize),
    Zram(u32),
}

/// A piece of storage. It keeps its index for ever, also when it is gone.
#[derive(Clone, Debug)]
pub(super) struct Storage {
    pub(super) kind: Kind,
    /// What a PersistentVolume of it must record.
    pub(super) record: Value,
    /// As a PersistentVolume must spell it.
    pub(super) capacity: String,
    /// Whether it can ever be seen again.
    pub(super) is_alive: bool,
    /// The PersistentVolume whose tenant's data is on it.
    pub(super) tenant: Option<String>,
    /// It was said to be clean while it could not be seen.
    pub(super) is_unproven: bool,
}

/// Where a link leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Bay(usize),
    Zram(u32),
    Nowhere,
    Directory,
    Character,
}

/// What a name in a discovery directory is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// A directory with what is mounted on it, the topmost last.
    Dir(Vec<Id>),
    Link(Target),
    /// A file or a FIFO.
    Other,
}

/// What the path of a discovery directory leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Directory {
    Here,
    /// Renamed or removed.
    Missing,
    /// An empty filesystem is mounted on it.
    Covered,
}

/// A class with its discovery directory.
#[derive(Clone, Debug)]
pub(super) struct Class {
    pub(super) name: String,
    pub(super) dir: PathBuf,
    pub(super) is_block: bool,
    pub(super) directory: Directory,
    pub(super) entries: BTreeMap<String, Entry>,
    /// Entries with odd names, as they are shown, and the reason that they must get.
    pub(super) oddities: BTreeMap<String, (PathBuf, &'static str)>,
}

/// A PersistentVolume that exists.
#[derive(Clone, Debug)]
pub(super) struct Pv {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) storage: Id,
    pub(super) phase: String,
    pub(super) is_deleted: bool,
}

/// What an entry is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Absent,
    Refused(&'static str),
    Volume(Id),
}

/// What `/status` must show of an entry.
pub(super) type Shown = (&'static str, Option<&'static str>);

/// All of it.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) classes: Vec<Class>,
    pub(super) storages: Vec<Storage>,
    pub(super) bays: Vec<Bay>,
    /// The filesystem and the medium in each bay.
    pub(super) filesystems: Vec<Option<Id>>,
    pub(super) media: Vec<Option<Id>>,
    /// The zram devices that are there.
    pub(super) zrams: BTreeMap<u32, Id>,
    pub(super) pvs: BTreeMap<Place, Pv>,
    /// What each entry has been, and when it last was.
    pub(super) seen: BTreeMap<Place, BTreeMap<Id, Instant>>,
    /// A file that is in each discovery directory at a quiet point; whoever shows it has looked since.
    pub(super) signal: String,
}

impl Model {
    pub(super) fn add_storage(&mut self, kind: Kind, record: Value, bytes: u64) -> Id {
        self.storages.push(Storage {
            kind,
            record,
            capacity: provisor::pv::quantity(provisor::pv::capacity(bytes)),
            is_alive: true,
            tenant: None,
            is_unproven: false,
        });
        self.storages.len() - 1
    }

    /// The path of an entry.
    pub(super) fn path(&self, place: &Place) -> PathBuf {
        self.classes[place.0].dir.join(&place.1)
    }

    /// An entry, if its directory is there.
    pub(super) fn entry(&self, place: &Place) -> Option<&Entry> {
        let class = &self.classes[place.0];
        match class.directory {
            Directory::Here => class.entries.get(&place.1),
            Directory::Missing | Directory::Covered => None,
        }
    }

    /// All entries whose directory is there.
    pub(super) fn places(&self) -> Vec<Place> {
        let here = self.classes.iter().enumerate();
        here.filter(|(_, class)| class.directory == Directory::Here)
            .flat_map(|(id, class)| class.entries.keys().map(move |name| (id, name.clone())))
            .collect()
    }

    /// What inspection must make of an entry.
    pub(super) fn found(&self, place: &Place) -> Found {
        let is_block = self.classes[place.0].is_block;
        match self.entry(place) {
            None => Found::Absent,
            Some(Entry::Other) => Found::Refused("NotAVolume"),
            Some(Entry::Dir(_)) if is_block => Found::Refused("WrongMode"),
            Some(Entry::Dir(stack)) => stack
                .last()
                .map_or(Found::Refused("NotMounted"), |id| Found::Volume(*id)),
            Some(Entry::Link(Target::Nowhere)) => Found::Refused("DanglingLink"),
            Some(Entry::Link(Target::Directory)) => Found::Refused("LinkToDirectory"),
            Some(Entry::Link(Target::Character)) => Found::Refused("NotAVolume"),
            Some(Entry::Link(Target::Zram(number))) => self
                .zrams
                .get(number)
                .map_or(Found::Refused("DanglingLink"), |id| Found::Volume(*id)),
            Some(Entry::Link(Target::Bay(bay))) => match self.media[*bay] {
                None => Found::Refused("ZeroSize"),
                Some(_) if self.is_mounted(*bay) => Found::Refused("InUse"),
                Some(id) => Found::Volume(id),
            },
        }
    }

    /// Every mount below the discovery directories, also what is hidden.
    fn mounts(&self) -> impl Iterator<Item = Id> + '_ {
        let entries = self.classes.iter().flat_map(|class| class.entries.values());
        entries
            .filter_map(|entry| match entry {
                Entry::Dir(stack) => Some(stack),
                Entry::Link(_) | Entry::Other => None,
            })
            .flatten()
            .copied()
    }

    /// Whether the filesystem in a bay is mounted anywhere.
    pub(super) fn is_mounted(&self, bay: usize) -> bool {
        self.mounts()
            .any(|id| self.storages[id].kind == Kind::Ext4(bay))
    }

    /// How often a storage, or a directory inside it, is mounted.
    pub(super) fn uses(&self, id: Id) -> usize {
        let inside = |other: Id| match (&self.storages[id].kind, &self.storages[other].kind) {
            (Kind::Dir(outer), Kind::Dir(inner)) => inner.starts_with(outer),
            (Kind::Disk(bay), Kind::Ext4(other)) => bay == other,
            _ => id == other,
        };
        self.mounts().filter(|other| inside(*other)).count()
    }

    /// Whether what is done to one is done to the other.
    pub(super) fn shares(&self, a: Id, b: Id) -> bool {
        match (&self.storages[a].kind, &self.storages[b].kind) {
            (Kind::Dir(a), Kind::Dir(b)) => a.starts_with(b) || b.starts_with(a),
            (Kind::Ext4(a), Kind::Disk(b)) | (Kind::Disk(a), Kind::Ext4(b)) => a == b,
            _ => a == b,
        }
    }

    /// The PersistentVolume that stands for a storage, or for one that shares it.
    pub(super) fn holder(&self, id: Id) -> Option<(&Place, &Pv)> {
        self.pvs.iter().find(|(_, pv)| self.shares(pv.storage, id))
    }

    /// Notes what the entries are, for judging what the daemon may have seen.
    pub(super) fn note(&mut self) {
        let now = Instant::now();
        for place in self.places() {
            if let Found::Volume(id) = self.found(&place) {
                self.seen.entry(place).or_default().insert(id, now);
            }
        }
    }

    /// Forgets what the entries were too long ago to be offered still.
    pub(super) fn forget(&mut self) {
        self.note();
        for seen in self.seen.values_mut() {
            seen.retain(|_, last| last.elapsed() < OFFER_LIMIT);
        }
    }

    /// A mounted path of a filesystem at which its root can be seen.
    pub(super) fn view_of(&self, id: Id) -> Option<PathBuf> {
        self.places().into_iter().find_map(|place| {
            let is_top =
                matches!(self.entry(&place), Some(Entry::Dir(stack)) if stack.last() == Some(&id));
            is_top.then(|| self.path(&place))
        })
    }

    /// What `/status` must show of an entry; an error while the daemon still has to do something.
    fn expect(&self, place: &Place) -> Result<Option<Shown>, String> {
        let found = self.found(place);
        let Some(pv) = self.pvs.get(place) else {
            return match found {
                Found::Absent => Ok(None),
                Found::Refused(reason) => Ok(Some(("refused", Some(reason)))),
                Found::Volume(id) if self.holder(id).is_some() => {
                    Ok(Some(("refused", Some("SameStorage"))))
                }
                Found::Volume(_) => Err("it has to be offered".into()),
            };
        };
        let refusal = match found {
            Found::Absent | Found::Refused("NotMounted" | "DanglingLink" | "ZeroSize") => {
                Some("EntryMissing")
            }
            Found::Refused("InUse") => None,
            Found::Refused(_) => Some("EntryReplaced"),
            Found::Volume(id) if id != pv.storage => Some("EntryReplaced"),
            Found::Volume(_) => None,
        };
        match (pv.phase.as_str(), pv.is_deleted) {
            ("Available", true) => Err("it was deleted and has to go".into()),
            ("Available", false) if matches!(found, Found::Volume(id) if id != pv.storage) => {
                Err("it has to give way to what is there".into())
            }
            ("Bound", true) => Ok(Some(("kept", None))),
            (_, _) if refusal.is_some() => Ok(Some(("refused", refusal))),
            ("Available", false) => Ok(Some(("offered", None))),
            ("Bound", false) => Ok(Some(("kept", None))),
            // Another device that is mounted is told apart only by who wipes.
            ("Released", _) if self.medium_of(place).is_some_and(|id| id != pv.storage) => {
                Ok(Some(("refused", Some("EntryReplaced"))))
            }
            ("Released", _) if self.is_used_elsewhere(pv) => Ok(Some(("refused", Some("InUse")))),
            (phase, _) => Err(format!("it is still {phase}")),
        }
    }

    /// The medium that a link leads to, mounted or not.
    fn medium_of(&self, place: &Place) -> Option<Id> {
        match self.entry(place)? {
            Entry::Link(Target::Bay(bay)) => self.media[*bay],
            _ => None,
        }
    }

    /// Whether something keeps a released volume from being wiped.
    fn is_used_elsewhere(&self, pv: &Pv) -> bool {
        let own = match self.storages[pv.storage].kind {
            Kind::Disk(_) | Kind::Zram(_) => 0,
            Kind::Tmpfs | Kind::Ext4(_) | Kind::Dir(_) => 1,
        };
        self.uses(pv.storage) > own
    }

    /// What is not yet, or not, as it has to be. `status` is the daemon's `/status`.
    pub(super) fn differences(&self, status: &Value) -> Vec<String> {
        let mut wrong = Vec::new();
        for (id, class) in self.classes.iter().enumerate() {
            let shown = &status["classes"][&class.name];
            let refusal = shown["refusal"]["reason"].as_str();
            let wanted = (class.directory == Directory::Missing).then_some("DirectoryMissing");
            if refusal != wanted {
                wrong.push(format!(
                    "{}: the class is refused for {refusal:?}, not for {wanted:?}",
                    class.name
                ));
            }
            // Without a directory, nothing is known of its volumes.
            if class.directory != Directory::Missing {
                self.compare(id, shown, &mut wrong);
            }
        }
        wrong
    }

    fn compare(&self, id: ClassId, shown: &Value, wrong: &mut Vec<String>) {
        let class = &self.classes[id];
        let mut rows: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
        for row in shown["entries"].as_array().into_iter().flatten() {
            let name = row["entry"].as_str().unwrap_or_default();
            rows.entry(name).or_default().push(row);
        }
        let mut say =
            |name: &str, text: String| wrong.push(format!("{}/{name}: {text}", class.name));
        let of_class = self.pvs.keys().filter(|place| place.0 == id);
        let mut names: BTreeSet<&str> = of_class.map(|place| place.1.as_str()).collect();
        names.extend(class.entries.keys().map(String::as_str));
        names.extend(class.oddities.keys().map(String::as_str));
        names.extend(rows.keys());
        names.insert(&self.signal);
        for name in names {
            let wanted = match class.oddities.get(name) {
                _ if name == self.signal => Ok(Some(("refused", Some("Ignored")))),
                Some(_) if class.directory == Directory::Covered => Ok(None),
                Some((_, reason)) => Ok(Some(("refused", Some(*reason)))),
                None => self.expect(&(id, name.to_owned())),
            };
            let rows = rows.get(name).map_or(&[][..], Vec::as_slice);
            let phase = self.pvs.get(&(id, name.to_owned()));
            let phase = phase.map(|pv| pv.phase.as_str());
            let is = |row: &Value, (outcome, reason): Shown| {
                row["outcome"] == outcome
                    && row["reason"].as_str() == reason
                    && row["phase"].as_str() == phase
            };
            match (wanted, rows) {
                (Err(why), rows) => {
                    let rows: Vec<String> = rows.iter().map(ToString::to_string).collect();
                    say(name, format!("{why}, shown is {}", rows.join(" and ")));
                }
                (Ok(None), []) => {}
                (Ok(Some(wanted)), [row]) if is(row, wanted) => {}
                (Ok(wanted), rows) => {
                    let rows: Vec<String> = rows.iter().map(ToString::to_string).collect();
                    say(
                        name,
                        format!("wanted {wanted:?}, shown is {}", rows.join(" and ")),
                    );
                }
            }
        }
    }
}

/// Why an entry with an odd name is refused.
pub(super) fn oddity(name: &[u8], is_directory: bool, is_block: bool) -> &'static str {
    let is_furniture =
        name == b"lost+found" || name.starts_with(b".") || name.starts_with(b"README");
    match (std::str::from_utf8(name), is_directory) {
        _ if is_furniture => "Ignored",
        (Err(_), _) => "BadName",
        (Ok(_), true) if is_block => "WrongMode",
        (Ok(_), true) => "BadName",
        (Ok(_), false) => "NotAVolume",
    }
}

/// Whether something of an earlier tenant is left in a directory.
pub(super) fn markers_in(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![dir.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            let is_marker = entry.file_name().to_string_lossy().starts_with("marker");
            if is_marker {
                found.push(entry.path());
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                left.push(entry.path());
            }
        }
    }
    found
}
