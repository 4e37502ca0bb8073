use std::path::Path;

use nix::mount::{MsFlags, mount};
use provisor::node::selfcheck::{Lack, findings};
use provisor::volume::VolumeMode;

use crate::support::disks::{Mounted, class};

fn propagate(point: &Path, flag: MsFlags) {
    mount(None::<&str>, point, None::<&str>, flag, None::<&str>).unwrap();
}

fn is_deaf(dir: &Path) -> bool {
    let fast = class("fast", dir, VolumeMode::Filesystem);
    findings([&fast]).contains(&Lack::Propagation {
        class: fast.name,
        dir: dir.to_owned(),
    })
}

#[test]
fn a_mount_that_is_deaf_to_the_hosts_is_found() {
    let (host, pod) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let _fs = Mounted::tmpfs(host.path());
    propagate(host.path(), MsFlags::MS_PRIVATE);
    assert!(is_deaf(host.path()));
    propagate(host.path(), MsFlags::MS_SHARED);
    assert!(!is_deaf(host.path()), "it has peers");
    let _bind = Mounted::bind(host.path(), pod.path());
    // What the container runtime makes of HostToContainer, and what of no word about it.
    propagate(pod.path(), MsFlags::MS_SLAVE);
    assert!(!is_deaf(pod.path()));
    propagate(pod.path(), MsFlags::MS_PRIVATE);
    assert!(is_deaf(pod.path()));
}
