//! How fast volumes come and come back, and what waiting for them costs: the release binary as a
//! process, against the stand-in API server and, when `PROVISOR_BENCH_KUBECONFIG` names a kubeconfig
//! with all rights, against that cluster too.
//!
//! The peer is always the bare API call, or chain of calls, that the same thing can't do without, made
//! by the same kind of client in the same run, turn and turn about. Both end when one watch of this
//! process sees the object, so the way back counts for both.
//!
//! The exception is `pass`, the node's side alone: one look at a whole directory.
//!
//! `cargo bench --bench discovery -- [--long] [pass] [mounts] [links] [reclaim] [burst] [idle] [memory]`

#[expect(dead_code, unused_imports, reason = "tests use more of it")]
#[path = "../../tests/it/support/apiserver.rs"]
mod apiserver;
#[expect(dead_code, reason = "tests use more of it")]
#[path = "../../tests/it/support/daemon.rs"]
mod daemon;
#[expect(dead_code, reason = "tests use more of it")]
#[path = "../../tests/it/support/disks.rs"]
mod disks;
#[path = "../figures.rs"]
mod figures;
mod latency;
mod pass;
mod process;
mod resources;
mod sightings;
#[expect(dead_code, reason = "tests use more of it")]
#[path = "../../tests/it/support/site.rs"]
mod site;

use std::path::PathBuf;
use std::time::Duration;

use figures::{Settings, Table};
use site::World;

/// The parts that need an API server.
const WITH_API_SERVER: [&str; 6] = ["mounts", "links", "reclaim", "burst", "idle", "memory"];

/// The pause between two looks at a condition, for the shared modules.
#[expect(
    clippy::disallowed_methods,
    reason = "the one pause of bounded polls in plain code"
)]
fn nap() {
    std::thread::sleep(Duration::from_millis(10));
}

fn main() {
    let settings = Settings::from_args();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime can be made");
    runtime.block_on(pass::measure(&settings));
    if !WITH_API_SERVER.iter().any(|part| settings.wants(part)) {
        return;
    }
    let mut worlds = vec![("the stand-in API server", World::stand_in())];
    if let Some(path) = std::env::var_os("PROVISOR_BENCH_KUBECONFIG") {
        let kubeconfig = PathBuf::from(path);
        worlds.push(("a real API server", World::Real { kubeconfig }));
    }
    for (name, world) in &worlds {
        let table = Table::new(&format!("Discovery, against {name}"));
        runtime.block_on(async {
            Box::pin(latency::measure(world, &settings, &table)).await;
            resources::measure(world, &settings, &table).await;
        });
    }
}
