use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use provisor::node::inspect::Inspector;
use provisor::node::kubelet::KubeletView;
use provisor::volume::{Reason, VolumeMode};

use super::inspect::{look, reasons};
use super::subdir;
use crate::support::disks::{Loop, Mounted, class};
use crate::support::{Running, wait_until};

/// A process that is called kubelet, in a mount namespace of its own.
fn start_kubelet(dir: &Path, node: &str) -> Running {
    let program = dir.join("kubelet");
    symlink("/bin/sh", &program).unwrap();
    let child = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "--"])
        .arg(&program)
        .args(["-c", "read line", &format!("--hostname-override={node}")])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    Running(child)
}

#[tokio::test]
async fn what_the_kubelet_does_not_see_is_refused() {
    let (dir, tools) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (before, after) = (subdir(dir.path(), "before"), subdir(dir.path(), "after"));
    let disk = Loop::new(8 << 20);
    symlink(&disk.node, dir.path().join("device")).unwrap();
    let _before = Mounted::tmpfs(&before);
    let _kubelet = start_kubelet(tools.path(), "node-of-this-test");
    let view = KubeletView::detect("node-of-this-test");
    wait_until("the kubelet comes up", || view.process().is_some());
    let _after = Mounted::tmpfs(&after);
    symlink(&disk.node, dir.path().join("late")).unwrap();
    let inspector = Inspector::new(view);
    let mut class = class("c", dir.path(), VolumeMode::Filesystem);
    let outcomes = look(&inspector, &class).await;
    let want = BTreeMap::from([
        ("after", Some(Reason::NotOnHost)),
        ("before", None),
        ("device", None),
        ("late", None),
    ]);
    assert_eq!(reasons(&outcomes), want, "{outcomes:#?}");

    class.host_dir = "/nowhere/at/all".into();
    let outcomes = look(&inspector, &class).await;
    let refusal = outcomes["before"].as_ref().unwrap_err();
    assert_eq!(refusal.reason, Reason::NotOnHost);
    assert!(
        refusal
            .detail
            .contains("finds nothing at /nowhere/at/all/before"),
        "{refusal}"
    );
}
