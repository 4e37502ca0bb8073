//! Random mounts, links, devices, tenants, faults and restarts, against a model that knows the truth.
//!
//! One daemon offers the disks of one node: a class of filesystems, a class of devices, and a class whose
//! entries are directories of one filesystem. After each action the change log of the API server is held
//! against rules that are never broken (`judge`); when all is quiet, what `/status` shows is what the
//! model (`model`) says.
//!
//! The short form runs a few fixed seeds. `PROVISOR_SOAK_MINUTES=30 cargo test --test it -- soak` draws
//! new ones; `PROVISOR_SOAK_SEED=0x...` repeats the actions of one. What the daemon sees of them depends
//! on the time, so a failure may take a few repetitions.

mod acts;
mod disks;
mod judge;
mod model;
mod random;
mod world;

use std::time::{Duration, Instant, SystemTime};

use crate::support::site::{Site, World};
use judge::Counts;
use world::Soak;

/// Seeds of the short form.
const SEEDS: [u64; 3] = [0x50ac, 0xd15c, 0x1eaf];
/// Actions for each seed, in the short form and in the long one.
const FEW: u64 = 150;
const MANY: u64 = 1500;
/// Actions between two quiet points.
const PACE: u64 = 10;

#[test]
fn the_volumes_are_what_the_model_says_at_each_quiet_point() {
    let number = |name: &str| {
        let text = std::env::var(name).ok()?;
        let text = text.trim();
        match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => text.parse().ok(),
        }
    };
    let minutes = number("PROVISOR_SOAK_MINUTES");
    let actions = number("PROVISOR_SOAK_ACTIONS");
    if let Some(seed) = number("PROVISOR_SOAK_SEED") {
        report(seed, soak(seed, actions.unwrap_or(MANY)));
    } else if let Some(minutes) = minutes {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(minutes * 60) {
            let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
            let seed = u64::try_from(now.as_micros() & 0xffff_ffff_ffff).unwrap_or_default();
            report(seed, soak(seed, actions.unwrap_or(MANY)));
        }
    } else {
        for seed in SEEDS {
            report(seed, soak(seed, actions.unwrap_or(FEW)));
        }
    }
}

fn report(seed: u64, counts: Counts) {
    eprintln!("soak of seed {seed:#x}: {counts:?}");
}

fn soak(seed: u64, actions: u64) -> Counts {
    eprintln!("soak of seed {seed:#x} begins");
    let world = World::stand_in();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime can be made");
    let (site, classes) = runtime.block_on(async {
        let site = Site::new(&world).await;
        let classes = [
            (site.class("binds", "").await, false),
            (site.class("blocks", "  volumeMode: Block").await, true),
            (site.class("fast", "").await, false),
        ];
        (site, classes)
    });
    Soak::new(&site, &classes, seed).run(actions, PACE)
}
