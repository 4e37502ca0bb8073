//! Renames above a mount: they change its path in every mount table, and the kernel tells nobody.

use std::fs;

use provisor::node::inspect::Inspector;
use provisor::node::kubelet::KubeletView;
use provisor::volume::{Found, Scan, VolumeMode};

use crate::support::disks::{Mounted, class};

fn volumes(scan: &Scan) -> usize {
    match scan {
        Scan::Entries(found) => {
            let is_volume = |found: &&Found| matches!(found, Found::Volume(_));
            found.iter().filter(is_volume).count()
        }
        Scan::Refused(_) => 0,
    }
}

#[tokio::test]
async fn a_directory_that_was_away_and_came_back_has_its_volumes() {
    let root = tempfile::tempdir().unwrap();
    let (parent, away) = (root.path().join("parent"), root.path().join("away"));
    let (dir, other) = (parent.join("disks"), root.path().join("other"));
    for point in [dir.join("vol1"), other.join("vol1")] {
        fs::create_dir_all(point).unwrap();
    }
    let _mounts = [
        Mounted::tmpfs(&dir.join("vol1")),
        Mounted::tmpfs(&other.join("vol1")),
    ];
    let inspector = Inspector::new(KubeletView::off());
    let here = class("here", &dir, VolumeMode::Filesystem);
    let there = class("there", &other, VolumeMode::Filesystem);
    assert_eq!(volumes(&inspector.scan(&here).await), 1);

    fs::rename(&parent, &away).unwrap();
    fs::create_dir(other.join("vol2")).unwrap();
    let _more = Mounted::tmpfs(&other.join("vol2"));
    assert_eq!(volumes(&inspector.scan(&here).await), 0);
    assert_eq!(volumes(&inspector.scan(&there).await), 2);

    fs::rename(&away, &parent).unwrap();
    assert_eq!(volumes(&inspector.scan(&here).await), 1);
    // The mounts come off by their paths.
    assert_eq!(volumes(&inspector.scan(&there).await), 2);
}
