//! Filesystems are mounted, one upon another and twice, and unmounted; disks come and go below them.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use super::super::disks::{mount_bind, mount_ext4, mount_tmpfs, unmount};
use super::super::model::{Entry, Found, Id, Kind, Place, Pv, Target};
use super::super::random::Random;
use super::super::world::{BAYS, Soak};
use super::{DEPTH, Done, no, yes};

/// Directories of the shared filesystem; the last is inside the first.
const SOURCES: [&str; 4] = ["s0", "s1", "s2", "s0/in"];
const ZRAMS: usize = 2;
const ZRAM_BYTES: u64 = 4 << 20;

impl Soak<'_> {
    /// A directory that something more can be mounted on; seldom one that has something already.
    fn point(&self, random: &mut Random) -> Option<Place> {
        let depth = if random.chance(25) { DEPTH } else { 1 };
        self.entry_where(random, |place, entry| {
            let has_room = matches!(entry, Entry::Dir(stack) if stack.len() < depth);
            has_room && !self.model.classes[place.0].is_block
        })
    }

    pub(super) fn mount_tmpfs(&mut self, random: &mut Random) -> Done {
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

    pub(super) fn mount_filesystem(&mut self, random: &mut Random) -> Done {
        let bay = random.below(BAYS);
        let (Some(id), Some(_)) = (self.model.filesystems[bay], self.model.media[bay]) else {
            return no();
        };
        let Some(place) = self.point(random) else {
            return no();
        };
        self.put_filesystem(bay, id, &place)
    }

    pub(super) fn put_filesystem(&mut self, bay: usize, id: Id, place: &Place) -> Done {
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

    pub(super) fn mount_directory(&mut self, random: &mut Random) -> Done {
        let Some(place) = self.point(random) else {
            return no();
        };
        let Some(source) = random.pick(&SOURCES) else {
            return no();
        };
        let source = self.shared.join(source);
        self.put_directory(source, &place)
    }

    pub(super) fn put_directory(&mut self, source: PathBuf, place: &Place) -> Done {
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
    pub(super) fn mount_twice(&mut self, random: &mut Random) -> Done {
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

    pub(super) fn unmount(&mut self, random: &mut Random) -> Done {
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

    /// Takes the disk out of a bay, or puts one in: its own if it has a filesystem, else a new one.
    pub(super) fn swap_medium(&mut self, random: &mut Random) -> Done {
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

    pub(super) fn make_filesystem(&mut self, random: &mut Random) -> Done {
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

    pub(super) fn plug_zram(&mut self, random: &mut Random) -> Done {
        if self.zrams.len() < ZRAMS && random.chance(60) {
            let device = self.zram_right.add(ZRAM_BYTES);
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
}
