//! The running cluster, as `tests/real.sh` left it.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Once;

use crate::support::disks::output;
use crate::support::site::World;

/// The node that runs a kubelet and the DaemonSet.
pub(super) const NODE: &str = "node-a";

/// The cluster's state directory.
fn state() -> PathBuf {
    match std::env::var_os("PROVISOR_TEST_RUN") {
        Some(path) => path.into(),
        None => panic!("there is no cluster: run these by tests/real.sh, as `make test` does"),
    }
}

fn kubeconfig() -> PathBuf {
    state().join("kubeconfig/admin")
}

/// The API server, with all rights.
pub(super) fn world() -> World {
    World::Real {
        kubeconfig: kubeconfig(),
    }
}

/// Runs kubectl; its output.
pub(super) fn kubectl(args: &[&str]) -> String {
    output(
        Command::new("kubectl")
            .args(args)
            .env("KUBECONFIG", kubeconfig()),
    )
}

/// Makes the namespace, the ServiceAccount and its rights as `deploy/` has them. Once: kubectl creates what it
/// has not found, and fails when another test was quicker.
pub(super) fn grant_rights() {
    static APPLIED: Once = Once::new();
    APPLIED.call_once(|| {
        for manifest in ["1-namespace.yaml", "2-rbac.yaml"] {
            let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/manifests");
            kubectl(&["apply", "-f", &format!("{dir}/{manifest}")]);
        }
    });
}

/// Runs a program among the node's mounts; its output.
pub(super) fn in_node(args: &[&str]) -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cluster/in-node.sh");
    output(
        Command::new(script)
            .arg(NODE)
            .args(args)
            .env("RUN", state()),
    )
}

/// A loop device over a file that goes when the cluster does.
pub(super) fn disk(name: &str, bytes: u64) -> PathBuf {
    let image = state().join(format!("node-{NODE}/{name}.img"));
    let file = std::fs::File::create(&image).expect("the cluster's directory takes files");
    file.set_len(bytes)
        .expect("a sparse file can have any size");
    output(
        Command::new("losetup")
            .args(["--find", "--show"])
            .arg(&image),
    )
    .into()
}
