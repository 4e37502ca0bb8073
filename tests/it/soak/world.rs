//! One soak: the node with its disks, the daemon on it, the model beside it.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::mount::{MntFlags, umount2};
use provisor::node::identity;
use provisor::sys::files;
use provisor::sys::mountinfo::{self, MountTable};
use provisor::volume::Identity;
use serde_json::Value;

use super::disks;
use super::judge::{Counts, Judge, clean, residue};
use super::model::{Class, Directory, Id, Kind, Model};
use super::random::Random;
use crate::support::apiserver::ApiServer;
use crate::support::bay::Bay;
use crate::support::daemon::{Daemon, Process, Setup};
use crate::support::nap;
use crate::support::site::{ClassDir, Site};
use crate::support::zram::{Zram, Zrams};

/// How long the daemon may take to come to rest: longer than its longest wait between two tries.
const QUIET_LIMIT: Duration = Duration::from_secs(75);
/// What takes longer is told.
const SLOW: Duration = Duration::from_secs(4);
/// How many actions a report shows.
const SHOWN_ACTIONS: usize = 50;
/// Bays whose disks hold an ext4 at first; the others are blank.
pub(super) const FILESYSTEMS: usize = 2;
pub(super) const BAYS: usize = 5;
const MIB: u64 = 1 << 20;

/// The daemon, in this process or as the real binary.
pub(super) enum Agent {
    Thread(Daemon),
    Process(Process),
}

impl Agent {
    fn status(&self) -> Option<Value> {
        let (code, body) = match self {
            Self::Thread(daemon) => daemon.get("/status"),
            Self::Process(process) => process.get("/status"),
        }?;
        (code == 200).then(|| serde_json::from_str(&body).ok())?
    }

    /// Ends it: the thread as by SIGTERM, the process by SIGKILL.
    fn end(self) -> Result<(), String> {
        match self {
            Self::Thread(daemon) => daemon.stop().map_err(|error| error.to_string()),
            Self::Process(process) => {
                process.kill();
                Ok(())
            }
        }
    }
}

/// Everything of one soak.
pub(super) struct Soak<'s> {
    pub(super) agent: Option<Agent>,
    pub(super) server: &'s ApiServer,
    pub(super) setup: Setup,
    pub(super) model: Model,
    pub(super) judge: Judge,
    pub(super) zrams: Vec<Zram>,
    pub(super) zram_right: Zrams,
    /// The filesystem whose directories are bound into discovery directories.
    pub(super) shared: PathBuf,
    pub(super) root: PathBuf,
    pub(super) tmpfs_made: u64,
    pub(super) claims: u64,
    seed: u64,
    log: VecDeque<String>,
}

impl<'s> Soak<'s> {
    pub(super) fn new(site: &'s Site<'s>, classes: &[(ClassDir, bool)], seed: u64) -> Self {
        let root = site.root.path().to_owned();
        let shared = root.join("shared");
        fs::create_dir(&shared).expect("the directory is ours");
        assert!(
            disks::mount_tmpfs(&shared, 16 * MIB),
            "a tmpfs can be mounted"
        );
        let classes = classes.iter().map(|(class, is_block)| Class {
            name: class.name.clone(),
            dir: class.dir.clone(),
            is_block: *is_block,
            directory: Directory::Here,
            entries: BTreeMap::new(),
            oddities: BTreeMap::new(),
        });
        let bays: Vec<Bay> = (0..BAYS)
            .map(|bay| Bay::new(&root, &format!("bay{bay}.img"), (6 + bay as u64) * MIB))
            .collect();
        let model = Model {
            classes: classes.collect(),
            storages: Vec::new(),
            bays,
            filesystems: vec![None; BAYS],
            media: vec![None; BAYS],
            zrams: BTreeMap::new(),
            pvs: BTreeMap::new(),
            seen: BTreeMap::new(),
            signal: String::new(),
        };
        let mut soak = Self {
            agent: None,
            server: site.world.server().expect("a soak runs on the stand-in"),
            setup: site.setup().clone(),
            model,
            judge: Judge::default(),
            zrams: Vec::new(),
            zram_right: Zrams::take(),
            shared,
            root,
            tmpfs_made: 0,
            claims: 0,
            seed,
            log: VecDeque::new(),
        };
        let mut random = Random::of_step(seed, 0);
        for bay in 0..BAYS {
            soak.insert(bay);
            if bay < FILESYSTEMS {
                assert!(soak.format(bay, &mut random), "mkfs works");
            }
        }
        soak.start(&mut random);
        soak
    }

    /// Starts the daemon.
    pub(super) fn start(&mut self, random: &mut Random) -> &'static str {
        let (agent, how) = if random.chance(70) {
            (Agent::Thread(Daemon::start(&self.setup)), "thread")
        } else {
            (Agent::Process(Process::start(&self.setup)), "process")
        };
        self.agent = Some(agent);
        how
    }

    pub(super) fn stop(&mut self) -> Result<(), String> {
        self.agent.take().map_or(Ok(()), Agent::end)
    }

    /// Takes `actions` steps, and looks at everything after each `pace` of them.
    pub(super) fn run(&mut self, actions: u64, pace: u64) -> Counts {
        for step in 1..=actions {
            let mut random = Random::of_step(self.seed, step);
            let end = self.step(&mut random).and_then(|()| match step % pace {
                0 => self.rest(),
                _ => Ok(()),
            });
            if let Err(why) = end {
                panic!("{}", self.story(step, &why));
            }
        }
        let end = self.rest().and_then(|()| self.stop());
        if let Err(why) = end {
            panic!("{}", self.story(actions, &why));
        }
        self.judge.counts
    }

    fn step(&mut self, random: &mut Random) -> Result<(), String> {
        self.judge.read(self.server, &mut self.model)?;
        let text = self.act(random)?;
        self.log.push_back(text);
        if self.log.len() > SHOWN_ACTIONS {
            self.log.pop_front();
        }
        self.judge.counts.actions += 1;
        self.model.note();
        self.prove()?;
        // Now all at once, now so slowly that each state is seen.
        let naps = [0, 0, 0, 1, 2, 8];
        for _ in 0..*random.pick(&naps).unwrap_or(&0) {
            nap();
        }
        self.judge.read(self.server, &mut self.model)
    }

    /// Looks at what could not be seen when it was called clean.
    fn prove(&mut self) -> Result<(), String> {
        for id in 0..self.model.storages.len() {
            if self.model.storages[id].is_unproven {
                clean(&mut self.model, id, "it was called clean")?;
            }
        }
        Ok(())
    }

    /// Waits until the daemon is at rest and all is as the model says.
    pub(super) fn rest(&mut self) -> Result<(), String> {
        self.server.lift_all();
        let begun = Instant::now();
        self.model.signal = format!(".rest-{}", self.judge.counts.quiet_points);
        let dirs = self.model.classes.iter();
        let signals: Vec<PathBuf> = dirs
            .filter(|class| class.directory != Directory::Missing)
            .map(|class| class.dir.join(&self.model.signal))
            .collect();
        for signal in &signals {
            fs::write(signal, "").map_err(|error| error.to_string())?;
        }
        let (mut calm, mut is_slow) = (false, false);
        loop {
            self.judge.read(self.server, &mut self.model)?;
            let differences = match self.agent.as_ref().and_then(Agent::status) {
                Some(status) => self.model.differences(&status),
                None => vec!["there is no /status".to_owned()],
            };
            match (differences.is_empty(), calm) {
                // Twice in a row, so that it is not only passing through.
                (true, true) => break,
                (is_empty, _) => calm = is_empty,
            }
            if begun.elapsed() > SLOW && !is_slow {
                is_slow = true;
                let last = self.log.back().map_or("", String::as_str);
                eprintln!("slow to rest after {last:?}: {}", differences.join("; "));
            }
            if begun.elapsed() > QUIET_LIMIT {
                return Err(format!("not at rest:\n  {}", differences.join("\n  ")));
            }
            nap();
        }
        self.tenants_are_served()?;
        self.objects_are_known()?;
        self.model.forget();
        for signal in &signals {
            fs::remove_file(signal).map_err(|error| error.to_string())?;
        }
        let counts = &mut self.judge.counts;
        counts.quiet_points += 1;
        counts.longest = counts.longest.max(begun.elapsed());
        Ok(())
    }

    /// A bound volume keeps its data.
    pub(super) fn tenants_are_served(&self) -> Result<(), String> {
        for (place, pv) in self.model.pvs.iter().filter(|(_, pv)| pv.phase == "Bound") {
            let storage = &self.model.storages[pv.storage];
            let is_tenant = storage.tenant.as_ref() == Some(&pv.uid);
            if is_tenant && residue(&self.model, pv.storage).is_some_and(|left| left.is_empty()) {
                return Err(format!("the data of {} at {place:?} is gone", pv.name));
            }
        }
        Ok(())
    }

    fn objects_are_known(&self) -> Result<(), String> {
        let known = self.model.pvs.len();
        let all = self.server.pvs();
        if all.len() != known {
            let names: Vec<&str> = all
                .iter()
                .filter_map(|pv| pv["metadata"]["name"].as_str())
                .collect();
            return Err(format!("{known} volumes should be there, not {names:?}"));
        }
        Ok(())
    }

    /// A new medium for a bay that is attached.
    pub(super) fn insert(&mut self, bay: usize) {
        let number = self.model.bays[bay].number();
        let facts = identity::of_device(number).expect("the device is attached");
        let size = self.model.bays[bay].size;
        let id = self.add(Kind::Disk(bay), &Identity::Device(facts.identity), size);
        self.model.media[bay] = Some(id);
    }

    pub(super) fn add(&mut self, kind: Kind, identity: &Identity, bytes: u64) -> Id {
        let record = serde_json::to_value(identity).expect("an identity is JSON");
        self.model.add_storage(kind, record, bytes)
    }

    /// Makes a filesystem in a bay.
    pub(super) fn format(&mut self, bay: usize, random: &mut Random) -> bool {
        let uuid = disks::uuid(random.next(), random.next());
        if !self.model.bays[bay].format(&uuid) {
            return false;
        }
        if let Some(old) = self.model.filesystems[bay] {
            self.model.storages[old].is_alive = false;
        }
        // What it is called and how large it is, shows when it is mounted.
        let id = self.model.add_storage(Kind::Ext4(bay), Value::Null, 0);
        self.model.filesystems[bay] = Some(id);
        true
    }

    /// Writes down what was just mounted on `point`; an error when it is another than before.
    pub(super) fn measure(&mut self, id: Id, point: &Path) -> Result<(), String> {
        let (record, bytes) = look(point)?;
        let storage = &mut self.model.storages[id];
        if storage.record.is_null() {
            storage.capacity = provisor::pv::quantity(provisor::pv::capacity(bytes));
            storage.record = record;
        } else if storage.record != record {
            return Err(format!(
                "mounted again it is called {record}, not {}",
                storage.record
            ));
        }
        Ok(())
    }

    fn story(&self, step: u64, why: &str) -> String {
        let mut text = format!(
            "seed {:#x}, action {step}: {why}\n\nThe last actions:\n",
            self.seed
        );
        for line in &self.log {
            let _ = writeln!(text, "  {line}");
        }
        let _ = writeln!(text, "\nThe model:\n{:#?}", self.model.pvs);
        for (place, storage) in self.model.pvs.iter().map(|(p, pv)| (p, pv.storage)) {
            let _ = writeln!(
                text,
                "{place:?}: {storage} {:?}",
                self.model.storages[storage]
            );
        }
        for class in &self.model.classes {
            let _ = writeln!(
                text,
                "{} {:?} {:?}",
                class.name, class.directory, class.entries
            );
        }
        let status = self.agent.as_ref().and_then(Agent::status);
        let status = status.unwrap_or_default();
        let _ = writeln!(text, "\n/status:\n{status:#}");
        text
    }
}

/// What is mounted on `point`, and its size.
pub(super) fn look(point: &Path) -> Result<(Value, u64), String> {
    let dir =
        files::open_directory(point).map_err(|errno| format!("{}: {errno}", point.display()))?;
    let identity = identity::of_mount(dir.as_fd()).map_err(|refusal| refusal.to_string())?;
    let bytes = files::filesystem_size(&dir).map_err(|errno| errno.to_string())?;
    let record = serde_json::to_value(Identity::Filesystem(identity));
    Ok((record.expect("an identity is JSON"), bytes))
}

impl Drop for Soak<'_> {
    fn drop(&mut self) {
        self.agent.take();
        let table = MountTable::read(mountinfo::OWN).unwrap_or_default();
        let own = table.mounts().iter().rev();
        for mount in own.filter(|mount| mount.point.starts_with(&self.root)) {
            // Gone with another one already.
            let _ = umount2(&mount.point, MntFlags::MNT_DETACH);
        }
    }
}
