//! What happens to the node, the volumes, the daemon and the API server.
//!
//! Each action does one thing for real and the same to the model. It answers in words what it did, or
//! nothing when there was nothing to do it to.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, symlink};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use super::disks::{Zram, mount_bind, mount_ext4, mount_tmpfs, unmount};
use super::judge::{MARK, clean, places};
use super::model::{Directory, Entry, Found, Id, Kind, Place, Pv, Target, oddity};
use super::random::Random;
use super::world::{BAYS, Soak};
use crate::support::apiserver::{Action, Fault};
use crate::support::disks::fifo;

/// Names of entries in each class.
const NAMES: [&str; 6] = ["e0", "e1", "e2", "e3", "e4", "e5"];
/// Directories of the shared filesystem; the last is inside the first.
const SOURCES: [&str; 4] = ["s0", "s1", "s2", "s0/in"];
const ODD_NAMES: [&[u8]; 5] = [
    b".hidden",
    b"lost+found",
    b"README.txt",
    b"bad name",
    b"x\xff",
];
/// Mounts on one entry.
const DEPTH: usize = 3;
const ZRAMS: usize = 2;
const ZRAM_BYTES: u64 = 4 << 20;

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

    fn make_directory(&mut self, random: &mut Random) -> Done {
        let Some(place) = self.vacant(random) else {
            return no();
        };
        fs::create_dir(self.model.path(&place)).map_err(|error| error.to_string())?;
        self.set(&place, Some(Entry::Dir(Vec::new())));
        yes(format!("mkdir {place:?}"))
    }

    fn remove_entry(&mut self, random: &mut Random) -> Done {
        let Some(place) = self.entry_where(random, |_, _| true) else {
            return no();
        };
        let path = self.model.path(&place);
        let removed = match self.model.entry(&place) {
            Some(Entry::Dir(stack)) if !stack.is_empty() => return no(),
            Some(Entry::Dir(_)) => fs::remove_dir(path),
            _ => fs::remove_file(path),
        };
        removed.map_err(|error| error.to_string())?;
        self.set(&place, None);
        yes(format!("remove {place:?}"))
    }

    /// A directory that something more can be mounted on; seldom one that has something already.
    fn point(&self, random: &mut Random) -> Option<Place> {
        let depth = if random.chance(25) { DEPTH } else { 1 };
        self.entry_where(random, |place, entry| {
            let has_room = matches!(entry, Entry::Dir(stack) if stack.len() < depth);
            has_room && !self.model.classes[place.0].is_block
        })
    }

    fn mount_tmpfs(&mut self, random: &mut Random) -> Done {
        let Some(place) = self.point(random) else {
            return no();
        };
        // Each has a size of its own, so that they can't be taken for each other.
        self.tmpfs_made += 1;
        let size = (1 << 20) + self.tmpfs_made * 4096;
        let path = self.model.path(&place);
        if !mount_tmpfs(&path, size) {
            return Err(format!("no tmpfs can be mounted on {place:?}"));
        }
        let id = self.model.add_storage(Kind::Tmpfs, Value::Null, size);
        self.measure(id, &path)?;
        self.stack(&place).push(id);
        yes(format!("mount tmpfs as {id} on {place:?}"))
    }

    fn mount_filesystem(&mut self, random: &mut Random) -> Done {
        let bay = random.below(BAYS);
        let (Some(id), Some(_)) = (self.model.filesystems[bay], self.model.media[bay]) else {
            return no();
        };
        let Some(place) = self.point(random) else {
            return no();
        };
        self.put_filesystem(bay, id, &place)
    }

    fn put_filesystem(&mut self, bay: usize, id: Id, place: &Place) -> Done {
        // What a tenant of the raw device has written may have been the filesystem.
        let medium = self.model.media[bay].map(|medium| &self.model.storages[medium]);
        if medium.is_some_and(|medium| medium.tenant.is_some()) {
            return no();
        }
        // A released device is wiped just now.
        let pv = self.model.media[bay].and_then(|medium| self.model.holder(medium));
        if pv.is_some_and(|(_, pv)| pv.storage != id && pv.phase == "Released") {
            return no();
        }
        // The kernel refuses the same filesystem on top of itself.
        if self.stack(place).last() == Some(&id) {
            return no();
        }
        let path = self.model.path(place);
        if !mount_ext4(&self.model.bays[bay].node, &path) {
            return Err(format!("bay {bay} can't be mounted on {place:?}"));
        }
        self.stack(place).push(id);
        self.measure(id, &path)?;
        yes(format!("mount ext4 of bay {bay} as {id} on {place:?}"))
    }

    fn mount_directory(&mut self, random: &mut Random) -> Done {
        let Some(place) = self.point(random) else {
            return no();
        };
        let Some(source) = random.pick(&SOURCES) else {
            return no();
        };
        let source = self.shared.join(source);
        self.put_directory(source, &place)
    }

    fn put_directory(&mut self, source: PathBuf, place: &Place) -> Done {
        // A directory that is just being removed can't be mounted by its name.
        let wiping = |pv: &Pv| match &self.model.storages[pv.storage].kind {
            Kind::Dir(outer) => {
                pv.phase == "Released" && source.starts_with(outer) && source != *outer
            }
            _ => false,
        };
        if self.model.pvs.values().any(wiping) {
            return no();
        }
        fs::create_dir_all(&source).map_err(|error| error.to_string())?;
        let path = self.model.path(place);
        if !mount_bind(&source, &path) {
            return Err(format!("{} can't be bound to {place:?}", source.display()));
        }
        let kind = Kind::Dir(source);
        let known = self
            .model
            .storages
            .iter()
            .position(|storage| storage.kind == kind);
        let id = known.unwrap_or_else(|| self.model.add_storage(kind.clone(), Value::Null, 0));
        self.stack(place).push(id);
        self.measure(id, &path)?;
        yes(format!("bind {kind:?} as {id} to {place:?}"))
    }

    /// Shows what is mounted on one entry on another one too.
    fn mount_twice(&mut self, random: &mut Random) -> Done {
        let is_mount =
            |_: &Place, entry: &Entry| matches!(entry, Entry::Dir(stack) if !stack.is_empty());
        let (Some(from), Some(to)) = (self.entry_where(random, is_mount), self.point(random))
        else {
            return no();
        };
        let Found::Volume(id) = self.model.found(&from) else {
            return no();
        };
        if !mount_bind(&self.model.path(&from), &self.model.path(&to)) {
            return Err(format!("{from:?} can't be bound to {to:?}"));
        }
        self.stack(&to).push(id);
        yes(format!("bind {from:?}, which is {id}, to {to:?}"))
    }

    fn unmount(&mut self, random: &mut Random) -> Done {
        let is_mount =
            |_: &Place, entry: &Entry| matches!(entry, Entry::Dir(stack) if !stack.is_empty());
        let Some(place) = self.entry_where(random, is_mount) else {
            return no();
        };
        let lazily = random.chance(30);
        if !unmount(&self.model.path(&place), lazily) {
            // The wipe of what is mounted there takes long.
            return no();
        }
        let Some(id) = self.stack(&place).pop() else {
            return no();
        };
        if self.model.storages[id].kind == Kind::Tmpfs && self.model.uses(id) == 0 {
            self.model.storages[id].is_alive = false;
        }
        yes(format!("unmount {id} from {place:?}, lazily: {lazily}"))
    }

    fn rename(&mut self, random: &mut Random) -> Done {
        let is_movable =
            |_: &Place, entry: &Entry| !matches!(entry, Entry::Dir(stack) if !stack.is_empty());
        let (Some(from), Some(to)) = (self.entry_where(random, is_movable), self.vacant(random))
        else {
            return no();
        };
        fs::rename(self.model.path(&from), self.model.path(&to))
            .map_err(|error| error.to_string())?;
        let entry = self.model.classes[from.0].entries.remove(&from.1);
        self.set(&to, entry);
        yes(format!("rename {from:?} to {to:?}"))
    }

    /// Makes a link, or puts another in the place of one, at once as `ln -sfn` does.
    fn link(&mut self, random: &mut Random) -> Done {
        let is_link = |_: &Place, entry: &Entry| matches!(entry, Entry::Link(_));
        let place = if random.chance(60) {
            self.vacant(random)
        } else {
            self.entry_where(random, is_link)
        };
        let zrams: Vec<u32> = self.model.zrams.keys().copied().collect();
        let target = match random.below(10) {
            0..5 => Target::Bay(random.below(BAYS)),
            5..7 => match random.pick(&zrams) {
                Some(number) => Target::Zram(*number),
                None => return no(),
            },
            7 => Target::Nowhere,
            8 => Target::Directory,
            _ => Target::Character,
        };
        match place {
            Some(place) => self.put_link(&place, target),
            None => no(),
        }
    }

    fn put_link(&mut self, place: &Place, target: Target) -> Done {
        let leads_to = match &target {
            Target::Bay(bay) => self.model.bays[*bay].node.clone(),
            Target::Zram(number) => Zram::node(*number),
            Target::Nowhere => "/nowhere/at/all".into(),
            Target::Directory => "/tmp".into(),
            Target::Character => "/dev/null".into(),
        };
        let fresh = self.root.join("new-link");
        symlink(leads_to, &fresh).map_err(|error| error.to_string())?;
        fs::rename(fresh, self.model.path(place)).map_err(|error| error.to_string())?;
        let text = format!("link {place:?} to {target:?}");
        self.set(place, Some(Entry::Link(target)));
        yes(text)
    }

    /// Files, FIFOs, furniture and names that can't be offered.
    fn odd_entry(&mut self, random: &mut Random) -> Done {
        if random.chance(40) {
            let Some(place) = self.vacant(random) else {
                return no();
            };
            let path = self.model.path(&place);
            if random.chance(50) {
                fs::write(path, "a file").map_err(|error| error.to_string())?;
            } else {
                fifo(&path);
            }
            self.set(&place, Some(Entry::Other));
            return yes(format!("a file or FIFO at {place:?}"));
        }
        let class = random.below(self.model.classes.len());
        let Some(name) = random.pick(&ODD_NAMES) else {
            return no();
        };
        let class = &mut self.model.classes[class];
        if class.directory != Directory::Here {
            return no();
        }
        let shown = std::str::from_utf8(name)
            .map_or_else(|_| name.escape_ascii().to_string(), str::to_owned);
        if let Some((path, _)) = class.oddities.remove(&shown) {
            let removed = if path.is_dir() {
                fs::remove_dir(path)
            } else {
                fs::remove_file(path)
            };
            removed.map_err(|error| error.to_string())?;
            return yes(format!("remove {shown:?} from {}", class.name));
        }
        let path = class.dir.join(OsStr::from_bytes(name));
        let is_directory = random.chance(60);
        let made = if is_directory {
            fs::create_dir(&path)
        } else {
            fs::write(&path, "odd")
        };
        made.map_err(|error| error.to_string())?;
        let reason = oddity(name, is_directory, class.is_block);
        class.oddities.insert(shown.clone(), (path, reason));
        yes(format!(
            "make {shown:?} in {}, directory: {is_directory}",
            class.name
        ))
    }

    /// Takes the disk out of a bay, or puts one in: its own if it has a filesystem, else a new one.
    fn swap_medium(&mut self, random: &mut Random) -> Done {
        let bay = random.below(BAYS);
        if self.model.is_mounted(bay) {
            return no();
        }
        if let Some(medium) = self.model.media[bay] {
            self.model.bays[bay].detach();
            self.model.storages[medium].is_alive = false;
            self.model.media[bay] = None;
            return yes(format!("detach bay {bay}, which was {medium}"));
        }
        if self.model.filesystems[bay].is_none() {
            self.model.bays[bay].blank();
        }
        if !self.model.bays[bay].attach() {
            return Err(format!("bay {bay} can't be attached again"));
        }
        self.insert(bay);
        yes(format!("attach bay {bay} as {:?}", self.model.media[bay]))
    }

    fn make_filesystem(&mut self, random: &mut Random) -> Done {
        let bay = random.below(BAYS);
        let Some(medium) = self.model.media[bay] else {
            return no();
        };
        let is_taken = |pv: &Pv| match self.model.storages[pv.storage].kind {
            Kind::Ext4(other) | Kind::Disk(other) => other == bay,
            _ => false,
        };
        let is_taken = self.model.pvs.values().any(is_taken);
        let is_linked = self
            .model
            .places()
            .iter()
            .any(|place| self.model.entry(place) == Some(&Entry::Link(Target::Bay(bay))));
        // A link to it may be offered just now.
        if is_taken || is_linked || self.model.is_mounted(bay) || !self.format(bay, random) {
            return no();
        }
        yes(format!("mkfs on bay {bay}, which is {medium}"))
    }

    fn plug_zram(&mut self, random: &mut Random) -> Done {
        if self.zram_lock.is_none() {
            return no();
        }
        if self.zrams.len() < ZRAMS && random.chance(60) {
            let Some(device) = Zram::add(ZRAM_BYTES) else {
                return no();
            };
            let facts = provisor::node::identity::of_device(device.device())
                .map_err(|refusal| refusal.to_string())?;
            let identity = provisor::volume::Identity::Device(facts.identity);
            let id = self.add(Kind::Zram(device.number), &identity, ZRAM_BYTES);
            self.model.zrams.insert(device.number, id);
            let text = format!("add zram {} as {id}", device.number);
            self.zrams.push(device);
            return yes(text);
        }
        let Some(index) = (!self.zrams.is_empty()).then(|| random.below(self.zrams.len())) else {
            return no();
        };
        if !self.zrams[index].remove() {
            return no();
        }
        let device = self.zrams.remove(index);
        if let Some(id) = self.model.zrams.remove(&device.number) {
            self.model.storages[id].is_alive = false;
        }
        yes(format!("remove zram {}", device.number))
    }

    /// Renames, removes or covers a discovery directory, or brings it back.
    fn move_directory(&mut self, random: &mut Random) -> Done {
        let id = random.below(self.model.classes.len());
        let class = &mut self.model.classes[id];
        let away = class.dir.with_extension("away");
        let failed = |error: std::io::Error| error.to_string();
        match class.directory {
            Directory::Missing if away.exists() => {
                fs::rename(&away, &class.dir).map_err(failed)?;
                class.directory = Directory::Here;
                yes(format!("{} is back", class.name))
            }
            Directory::Missing => {
                fs::create_dir(&class.dir).map_err(failed)?;
                class.directory = Directory::Here;
                yes(format!("{} is made anew", class.name))
            }
            Directory::Covered => {
                if !unmount(&class.dir, false) {
                    return no();
                }
                class.directory = Directory::Here;
                yes(format!("{} is uncovered", class.name))
            }
            Directory::Here if random.chance(60) => no(),
            Directory::Here => match random.below(3) {
                0 => {
                    fs::rename(&class.dir, &away).map_err(failed)?;
                    class.directory = Directory::Missing;
                    yes(format!("{} is renamed", class.name))
                }
                1 => {
                    if !mount_tmpfs(&class.dir, 1 << 20) {
                        return Err(format!("{} can't be mounted upon", class.name));
                    }
                    class.directory = Directory::Covered;
                    yes(format!("{} is covered", class.name))
                }
                _ => self.remove_directory(id),
            },
        }
    }

    fn remove_directory(&mut self, id: usize) -> Done {
        let class = &mut self.model.classes[id];
        let has_mounts = class
            .entries
            .values()
            .any(|entry| matches!(entry, Entry::Dir(stack) if !stack.is_empty()));
        if has_mounts {
            return no();
        }
        for entry in fs::read_dir(&class.dir)
            .map_err(|error| error.to_string())?
            .flatten()
        {
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let removed = if is_directory {
                fs::remove_dir(entry.path())
            } else {
                fs::remove_file(entry.path())
            };
            removed.map_err(|error| error.to_string())?;
        }
        fs::remove_dir(&class.dir).map_err(|error| error.to_string())?;
        class.entries.clear();
        class.oddities.clear();
        class.directory = Directory::Missing;
        yes(format!("{} is removed", class.name))
    }

    fn pv_where(&self, random: &mut Random, wanted: impl Fn(&Pv) -> bool) -> Option<(Place, Pv)> {
        let fit: Vec<_> = self.model.pvs.iter().filter(|(_, pv)| wanted(pv)).collect();
        random
            .pick(&fit)
            .map(|(place, pv)| ((*place).clone(), (*pv).clone()))
    }

    /// A tenant comes, finds an empty volume and leaves something on it.
    fn bind(&mut self, random: &mut Random) -> Done {
        let Some((place, pv)) =
            self.pv_where(random, |pv| pv.phase == "Available" && !pv.is_deleted)
        else {
            return no();
        };
        self.claims += 1;
        let claim = format!("claim-{}", self.claims);
        if !self.server.try_bind(&pv.name, &pv.uid, "default", &claim) {
            // It was withdrawn just now.
            return no();
        }
        if self.model.found(&place) != Found::Volume(pv.storage) {
            // The Pod does not start.
            return yes(format!("bind {place:?}, which is not there"));
        }
        clean(&mut self.model, pv.storage, "a tenant has come")?;
        self.write(&place, pv.storage)?;
        self.model.storages[pv.storage].tenant = Some(pv.uid.clone());
        self.judge.counts.tenants += 1;
        yes(format!("bind {place:?} and write on {}", pv.storage))
    }

    fn write(&mut self, place: &Place, storage: Id) -> Result<(), String> {
        let path = self.model.path(place);
        match self.model.storages[storage].kind.clone() {
            Kind::Tmpfs | Kind::Ext4(_) | Kind::Dir(_) => {
                let dir = path.join("marker-dir");
                fs::create_dir(&dir)
                    .and_then(|()| fs::write(dir.join("marker"), "x"))
                    .and_then(|()| symlink("/etc/passwd", path.join("marker-link")))
                    .and_then(|()| fs::write(path.join("marker"), "x"))
            }
            Kind::Disk(_) | Kind::Zram(_) => {
                // What was a filesystem is none any more.
                if let Kind::Disk(bay) = self.model.storages[storage].kind
                    && let Some(filesystem) = self.model.filesystems[bay].take()
                {
                    self.model.storages[filesystem].is_alive = false;
                }
                OpenOptions::new().write(true).open(&path).and_then(|file| {
                    let size = std::io::Seek::seek(&mut &file, std::io::SeekFrom::End(0))?;
                    for at in places(size) {
                        file.write_all_at(MARK, at)?;
                    }
                    file.sync_all()
                })
            }
        }
        .map_err(|error| format!("a tenant can't write on {place:?}: {error}"))
    }

    fn release(&mut self, random: &mut Random) -> Done {
        self.tenants_are_served()?;
        match self.pv_where(random, |pv| pv.phase == "Bound") {
            None => no(),
            Some((place, pv)) => {
                self.server.release(&pv.name);
                yes(format!("release {place:?}"))
            }
        }
    }

    /// Somebody deletes a volume by hand.
    fn delete(&mut self, random: &mut Random) -> Done {
        match self.pv_where(random, |pv| !pv.is_deleted) {
            None => no(),
            Some((place, pv)) => {
                self.server.delete("persistentvolumes", "", &pv.name);
                yes(format!("delete {place:?}, which is {}", pv.phase))
            }
        }
    }

    /// Takes away a volume whose disk is gone for good, finalizers and all.
    fn give_up(&mut self, random: &mut Random) -> Done {
        let lost = |pv: &Pv| !self.model.storages[pv.storage].is_alive;
        match self.pv_where(random, lost) {
            None => no(),
            Some((place, pv)) => {
                self.judge.given_up.insert(pv.uid);
                self.server.remove("persistentvolumes", "", &pv.name);
                yes(format!("give up {place:?}"))
            }
        }
    }

    /// Brings a volume back to the entry that it was offered at.
    fn restore(&mut self, random: &mut Random) -> Done {
        let Some((place, pv)) =
            self.pv_where(random, |pv| self.model.storages[pv.storage].is_alive)
        else {
            return no();
        };
        if self.model.found(&place) == Found::Volume(pv.storage)
            || self.model.classes[place.0].directory != Directory::Here
        {
            return no();
        }
        let kind = self.model.storages[pv.storage].kind.clone();
        let target = match &kind {
            Kind::Disk(bay) => Some(Target::Bay(*bay)),
            Kind::Zram(number) => Some(Target::Zram(*number)),
            Kind::Tmpfs | Kind::Ext4(_) | Kind::Dir(_) => None,
        };
        let entry = self.model.entry(&place).cloned();
        match (kind, entry, target) {
            (_, None | Some(Entry::Link(_)), Some(target)) => self.put_link(&place, target),
            (Kind::Tmpfs, ..) => no(),
            (_, None, None) => {
                fs::create_dir(self.model.path(&place)).map_err(|error| error.to_string())?;
                self.set(&place, Some(Entry::Dir(Vec::new())));
                yes(format!("mkdir {place:?} again"))
            }
            (Kind::Ext4(bay), Some(Entry::Dir(stack)), _)
                if stack.len() < DEPTH && self.model.media[bay].is_some() =>
            {
                self.put_filesystem(bay, pv.storage, &place)
            }
            (Kind::Dir(source), Some(Entry::Dir(stack)), _) if stack.len() < DEPTH => {
                self.put_directory(source, &place)
            }
            _ => no(),
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
