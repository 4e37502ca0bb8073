//! What is offered, what is not, and what is said about it.

use crate::support::daemon::Daemon;
use crate::support::site::{Site, World, until};

pub(crate) async fn what_the_pod_lacks_is_said_at_the_start(world: &World) {
    let site = Site::new(world).await;
    // The mount namespace of the tests is private, so what the host mounts later is never seen.
    let fast = site.class("fast", "").await;
    let daemon = Daemon::start(site.setup());
    let note = site.until_event(&site.node, "NodeSetup").await;
    assert!(note.contains("DaemonSet"), "{note}");
    until("/status and /metrics show it", async || {
        let (_, status) = daemon.get("/status")?;
        let (_, metrics) = daemon.get("/metrics")?;
        let deaf = format!("NodeSetup: class {}: ", fast.name);
        let shown = status.contains(&deaf) && metrics.contains("NodeSetup");
        shown.then_some(())
    })
    .await;
    site.clean_up().await;
}
