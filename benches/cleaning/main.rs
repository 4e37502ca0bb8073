//! How fast volumes are wiped, through the public interface of `clean`, with its permit and its proof.
//!
//! Each peer wipes an identical volume in the same run, turn and turn about, from a cold cache. Ours
//! always includes what the peers leave out: the checks before, the flush, and the look afterwards that
//! everything is gone. Needs root, losetup and mkfs.
//!
//! `cargo bench --bench cleaning -- [--long] [tree] [flat] [zero] [overwrite]`

#[expect(dead_code, reason = "tests use more of it")]
#[path = "../../tests/it/support/disks.rs"]
mod disks;
#[path = "../figures.rs"]
mod figures;
mod files;
#[expect(
    dead_code,
    clippy::unwrap_used,
    reason = "tests use more of it, and may unwrap"
)]
#[path = "../../tests/it/clean/rig.rs"]
mod rig;
mod zeros;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use figures::{Settings, Table};

fn main() {
    let settings = Settings::from_args();
    let table = Table::new("Cleaning");
    table.note("medians from a cold cache; ours with its checks, flush and look at what is left");
    for (part, shape) in [("tree", files::Shape::Tree), ("flat", files::Shape::Flat)] {
        if settings.wants(part) {
            files::measure(shape, "ext4", &settings, &table);
            if settings.is_long {
                files::measure(shape, "xfs", &settings, &table);
            }
        }
    }
    if settings.wants("zero") {
        zeros::zero(&settings, &table);
    }
    if settings.wants("overwrite") {
        zeros::overwrite(&settings, &table);
    }
}

/// Writes back and forgets all that is cached.
fn forget_caches() {
    nix::unistd::sync();
    fs::write("/proc/sys/vm/drop_caches", "3").expect("root may drop caches");
}

/// How long a program takes.
fn timed(program: &str, arguments: &[&str]) -> Duration {
    let began = Instant::now();
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    let took = began.elapsed();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
    took
}

fn text(path: &Path) -> &str {
    path.to_str().expect("paths of the bench are text")
}
