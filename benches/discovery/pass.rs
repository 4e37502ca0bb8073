//! One look at a whole directory: the cost of noticing anything at all, since every event of the kernel
//! ends in one.
//!
//! No daemon and no API server take part: `Inspector::scan` is the node's whole share of a pass. The peer
//! is what nobody can do it without: the names, one `fstatat` each, and the text of the mount table,
//! not even parsed.

use std::ffi::CString;
use std::fmt;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Instant;

use nix::dir::Dir;
use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::{Mode, fstatat};
use provisor::node::inspect::Inspector;
use provisor::node::kubelet::KubeletView;
use provisor::volume::{Found, Scan, VolumeMode};

use crate::disks::{self, Loop, Mounted};
use crate::figures::{Series, Settings, Table};
use crate::latency::summary;

/// Devices that the links lead to. One is asked as thoroughly as the other, so a few do for many links.
const DEVICES: usize = 4;

/// What is in a directory.
#[derive(Clone, Copy, Debug, Default)]
struct Mix {
    /// Directories with a tmpfs mounted on each.
    mounts: usize,
    /// Links to block devices.
    links: usize,
    /// Directories with nothing mounted on them.
    plain: usize,
    files: usize,
}

/// What real nodes may have; and what one kind alone costs. So many real mounts as in the first would
/// take longer to make than to look at in the second.
const MIXES: [Mix; 6] = [
    Mix {
        mounts: 400,
        links: 100,
        plain: 400,
        files: 100,
    },
    Mix {
        mounts: 0,
        links: 1000,
        plain: 8000,
        files: 1000,
    },
    Mix {
        mounts: 1000,
        ..Mix::NONE
    },
    Mix {
        links: 1000,
        ..Mix::NONE
    },
    Mix {
        plain: 1000,
        ..Mix::NONE
    },
    Mix {
        files: 1000,
        ..Mix::NONE
    },
];

impl Mix {
    const NONE: Self = Self {
        mounts: 0,
        links: 0,
        plain: 0,
        files: 0,
    };

    fn entries(&self) -> usize {
        self.mounts + self.links + self.plain + self.files
    }

    /// Makes it in `dir`; what is mounted stays so until the answer is dropped.
    fn make(&self, dir: &Path, devices: &[Loop]) -> Vec<Mounted> {
        let made = "the directory is ours";
        for (number, device) in (0..self.links).zip(devices.iter().cycle()) {
            symlink(&device.node, dir.join(format!("link{number}"))).expect(made);
        }
        for number in 0..self.plain {
            fs::create_dir(dir.join(format!("plain{number}"))).expect(made);
        }
        for number in 0..self.files {
            fs::write(dir.join(format!("file{number}")), "").expect(made);
        }
        let mount = |number| {
            let point = dir.join(format!("mount{number}"));
            fs::create_dir(&point).expect(made);
            Mounted::tmpfs_of(&point, "1m")
        };
        (0..self.mounts).map(mount).collect()
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = [
            (self.mounts, "mounts"),
            (self.links, "links"),
            (self.plain, "plain"),
            (self.files, "files"),
        ];
        let kinds = kinds.iter().filter(|(number, _)| *number > 0);
        let words: Vec<String> = kinds.map(|(n, kind)| format!("{n} {kind}")).collect();
        write!(f, "{} entries: {}", self.entries(), words.join(", "))
    }
}

pub(crate) async fn measure(settings: &Settings) {
    if !settings.wants("pass") {
        return;
    }
    let rounds = settings.choose(20, 100);
    let table = Table::new(&format!(
        "One pass over a directory, {rounds} x, p50 / p90 / max"
    ));
    let devices: Vec<Loop> = (0..DEVICES).map(|_| Loop::new(16 << 20)).collect();
    for mix in MIXES {
        pass(mix, &devices, rounds, &table).await;
    }
    table.note(&format!(
        "mounts of tmpfs, links to {DEVICES} loop devices, plain directories, empty files"
    ));
    table
        .note("peer: readdir, one fstatat for each entry, and the text of mountinfo, nothing more");
}

async fn pass(mix: Mix, devices: &[Loop], rounds: usize, table: &Table) {
    let root = tempfile::tempdir().expect("the temporary directory takes one");
    let dir = root.path().join("disks");
    fs::create_dir(&dir).expect("the directory is ours");
    let mounts = mix.make(&dir, devices);
    let class = disks::class("pass", &dir, VolumeMode::Filesystem);
    // As the daemon's own, which looks for a kubelet too.
    let inspector = Inspector::new(KubeletView::detect("pass"));
    let (mut ours, mut bare) = <(Series, Series)>::default();
    for round in 0..=rounds {
        let began = Instant::now();
        let scan = inspector.scan(&class).await;
        let took = began.elapsed();
        check(&scan, mix);
        let began = Instant::now();
        let looked_at = system_calls(&dir).expect("the directory can be read");
        let peer = began.elapsed();
        assert_eq!(looked_at, mix.entries(), "the peer sees all entries");
        // The first round fills the kernel's caches and grows our memory.
        if round > 0 {
            ours.push(took);
            bare.push(peer);
        }
    }
    table.row(
        &mix.to_string(),
        &summary(&ours),
        &summary(&bare),
        &ours.over(&bare),
    );
    drop(mounts);
}

/// A figure of something else than what it says would be worse than none.
fn check(scan: &Scan, mix: Mix) {
    let Scan::Entries(found) = scan else {
        panic!("the directory is refused: {scan:?}");
    };
    let is_volume = |found: &&Found| matches!(found, Found::Volume(_));
    let volumes = found.iter().filter(is_volume).count();
    assert_eq!(found.len(), mix.entries(), "all entries are told");
    assert_eq!(volumes, mix.mounts + mix.links, "the volumes are found");
}

/// What a pass can't do without; how many entries there are.
fn system_calls(path: &Path) -> nix::Result<usize> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let mut dir = Dir::open(path, flags, Mode::empty())?;
    let mut names: Vec<CString> = Vec::new();
    for entry in dir.iter() {
        names.push(entry?.file_name().to_owned());
    }
    names.retain(|name| !matches!(name.to_bytes(), b"." | b".."));
    for name in &names {
        fstatat(&dir, name.as_c_str(), AtFlags::AT_SYMLINK_NOFOLLOW)?;
    }
    fs::read("/proc/thread-self/mountinfo").map_err(|_| nix::errno::Errno::EIO)?;
    Ok(names.len())
}
