//! Names come and go in the discovery directories, and so do the directories: empty ones, links, files
//! and what can't be offered at all.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use super::super::disks::{mount_tmpfs, unmount};
use super::super::model::{Directory, Entry, Place, Target, oddity};
use super::super::random::Random;
use super::super::world::{BAYS, Soak};
use super::{Done, no, yes};
use crate::support::disks::fifo;
use crate::support::zram::Zram;

const ODD_NAMES: [&[u8]; 5] = [
    b".hidden",
    b"lost+found",
    b"README.txt",
    b"bad name",
    b"x\xff",
];

impl Soak<'_> {
    pub(super) fn make_directory(&mut self, random: &mut Random) -> Done {
        let Some(place) = self.vacant(random) else {
            return no();
        };
        fs::create_dir(self.model.path(&place)).map_err(|error| error.to_string())?;
        self.set(&place, Some(Entry::Dir(Vec::new())));
        yes(format!("mkdir {place:?}"))
    }

    pub(super) fn remove_entry(&mut self, random: &mut Random) -> Done {
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

    pub(super) fn rename(&mut self, random: &mut Random) -> Done {
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
    pub(super) fn link(&mut self, random: &mut Random) -> Done {
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

    pub(super) fn put_link(&mut self, place: &Place, target: Target) -> Done {
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
    pub(super) fn odd_entry(&mut self, random: &mut Random) -> Done {
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

    /// Renames, removes or covers a discovery directory, or brings it back.
    pub(super) fn move_directory(&mut self, random: &mut Random) -> Done {
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
}
