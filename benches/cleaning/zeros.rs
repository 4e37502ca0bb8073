//! Devices: ours against `dd`, `blkdiscard` and `shred`.
//!
//! A loop device over a file on a filesystem with holes has the fast way (its blocks are released), so
//! that the first rung of the ladder is taken; writes are measured by a random pass, which has no other
//! way than direct ones.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use provisor::config::Cleaner;

use crate::disks::Loop;
use crate::figures::{Series, Settings, Table, time};
use crate::rig::Volume;
use crate::{forget_caches, text, timed};

const MIB: u64 = 1 << 20;

/// A way to wipe a device.
type Way<'a> = (&'a str, Box<dyn Fn(&Loop) -> Duration>);

pub(crate) fn zero(settings: &Settings, table: &Table) {
    let ways: Vec<Way<'_>> = vec![
        ("ours", Box::new(|disk| wiped(disk, &Cleaner::Zero))),
        ("dd bs=1M oflag=direct", Box::new(|disk| dd(disk, "1M"))),
        (
            "blkdiscard --zeroout",
            Box::new(|disk| timed("blkdiscard", &["--zeroout", text(&disk.node)])),
        ),
    ];
    compare(
        "zero",
        &ways,
        settings.choose(1024, 4096) * MIB,
        settings.choose(2, 5),
        table,
    );
}

pub(crate) fn overwrite(settings: &Settings, table: &Table) {
    let plan = Cleaner::Overwrite { passes: 1 };
    let ways: Vec<Way<'_>> = vec![
        ("ours", Box::new(move |disk| wiped(disk, &plan))),
        (
            "shred -n 1 -z",
            Box::new(|disk| timed("shred", &["-n", "1", "-z", text(&disk.node)])),
        ),
    ];
    let size = settings.choose(512, 4096) * MIB;
    compare(
        "a random pass, then zero",
        &ways,
        size,
        settings.choose(2, 5),
        table,
    );
}

fn compare(what: &str, ways: &[Way<'_>], size: u64, rounds: usize, table: &Table) {
    let disk = Loop::new(size);
    let mut series = vec![Series::default(); ways.len()];
    for round in 0..rounds {
        for turn in 0..ways.len() {
            let way = (turn + round) % ways.len();
            fill(&disk.node, size);
            forget_caches();
            series[way].push(ways[way].1(&disk));
        }
    }
    let ours = &series[0];
    let speed = |series: &Series| {
        let took = series.percentile(50);
        let mib = f64::from(u32::try_from(size / MIB).unwrap_or(u32::MAX));
        format!("{} ({:.0} MiB/s)", time(took), mib / took.as_secs_f64())
    };
    for (peer, (name, _)) in series.iter().zip(ways).skip(1) {
        let what = format!("{what}: {} MiB, loop device", size / MIB);
        let peers = format!("{name} {}", speed(peer));
        table.row(&what, &speed(ours), &peers, &ours.over(peer));
    }
}

/// With its checks, and the reading back.
fn wiped(disk: &Loop, plan: &Cleaner) -> Duration {
    let volume = Volume::linked(disk);
    let began = Instant::now();
    let _proof = volume.must_wipe(plan);
    began.elapsed()
}

fn dd(disk: &Loop, block: &str) -> Duration {
    let (to, size) = (format!("of={}", text(&disk.node)), format!("bs={block}"));
    let blocks = std::fs::metadata(&disk.file)
        .expect("the image is ours")
        .len()
        / MIB;
    let count = format!("count={blocks}");
    timed(
        "dd",
        &[
            "if=/dev/zero",
            &to,
            &size,
            &count,
            "oflag=direct",
            "conv=fsync",
        ],
    )
}

/// Writes something everywhere.
fn fill(device: &Path, size: u64) {
    let device = OpenOptions::new()
        .write(true)
        .open(device)
        .expect("the device opens");
    let block = vec![0xa5_u8; usize::try_from(MIB).expect("small")];
    for at in (0..size).step_by(block.len()) {
        device
            .write_all_at(&block, at)
            .expect("the device takes data");
    }
    device.sync_all().expect("the device syncs");
}
