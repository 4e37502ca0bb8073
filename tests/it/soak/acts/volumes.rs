//! Tenants take volumes, write on them and leave; people delete volumes, give them up, and bring back
//! the disks of those that are missed.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, symlink};

use super::super::judge::{MARK, clean, places};
use super::super::model::{Directory, Entry, Found, Id, Kind, Place, Pv, Target};
use super::super::random::Random;
use super::super::world::Soak;
use super::{DEPTH, Done, no, yes};

impl Soak<'_> {
    fn pv_where(&self, random: &mut Random, wanted: impl Fn(&Pv) -> bool) -> Option<(Place, Pv)> {
        let fit: Vec<_> = self.model.pvs.iter().filter(|(_, pv)| wanted(pv)).collect();
        random
            .pick(&fit)
            .map(|(place, pv)| ((*place).clone(), (*pv).clone()))
    }

    /// A tenant comes, finds an empty volume and leaves something on it.
    pub(super) fn bind(&mut self, random: &mut Random) -> Done {
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

    pub(super) fn release(&mut self, random: &mut Random) -> Done {
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
    pub(super) fn delete(&mut self, random: &mut Random) -> Done {
        match self.pv_where(random, |pv| !pv.is_deleted) {
            None => no(),
            Some((place, pv)) => {
                self.server.delete("persistentvolumes", "", &pv.name);
                yes(format!("delete {place:?}, which is {}", pv.phase))
            }
        }
    }

    /// Takes away a volume whose disk is gone for good, finalizers and all.
    pub(super) fn give_up(&mut self, random: &mut Random) -> Done {
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
    pub(super) fn restore(&mut self, random: &mut Random) -> Done {
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
}
