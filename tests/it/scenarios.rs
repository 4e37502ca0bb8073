//! The life of volumes, as scenarios that need only an API server: the same functions run against the
//! stand-in and against a real control plane, on real mounts and loop devices.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolume;
use serde_json::json;

use crate::support::disks::Mounted;
use crate::support::site::{ClassDir, Site, object};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Declares the scenarios once, module by module.
macro_rules! scenarios {
    ($($module:ident: $($name:ident)+;)+) => {
        $(pub(crate) mod $module;)+

        /// Makes a test of each scenario; `$world` gives the API server.
        macro_rules! tests_of_scenarios {
            ($world:expr) => {
                $($(
                    #[test]
                    fn $name() {
                        crate::scenarios::run(async || {
                            crate::scenarios::$module::$name(&$world).await;
                        });
                    }
                )+)+
            };
        }
        pub(crate) use tests_of_scenarios;
    };
}

scenarios! {
    life:
        a_mount_lives_from_offer_to_offer
        a_device_lives_from_offer_to_offer
        a_device_in_filesystem_mode_is_offered_and_wiped_as_a_device
        a_retained_volume_is_left_alone
        a_volume_deleted_by_hand_is_wiped_before_it_goes
        the_storage_class_may_come_late
        the_node_may_come_late;
    refusals:
        a_plain_directory_is_refused_with_a_reason
        volumes_of_others_are_never_touched
        pv_18_a_taken_name_is_left_alone_and_a_longer_one_used
        a_busy_volume_is_wiped_only_once_it_is_free
        a_replaced_mount_is_never_wiped
        a_volume_given_back_by_hand_is_not_wiped_any_further;
    crashes:
        a_kill_amid_a_hundred_thousand_files_leaks_nothing
        a_kill_amid_a_gibibyte_device_leaks_nothing
        a_signal_stops_it_and_the_next_process_goes_on;
    offers:
        what_the_pod_lacks_is_said_at_the_start
        a_disk_with_something_on_it_waits_until_it_is_empty
        a_free_volume_that_was_replaced_is_offered_anew
        a_free_volume_that_is_gone_is_kept_or_withdrawn;
    adoption:
        upstreams_volumes_are_adopted_as_they_are;
    taint:
        the_startup_taint_goes_once_when_everything_is_offered
        a_node_that_is_registered_anew_loses_its_taint_again;
}

/// Runs one scenario, which must end in time: one that hangs must fail, not stop the suite.
pub(crate) fn run(scenario: impl AsyncFnOnce()) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime can be made").block_on(async {
        let limit = Duration::from_secs(300);
        tokio::time::timeout(limit, scenario())
            .await
            .expect("the scenario ends in time");
    });
}

/// Mounts a fresh tmpfs as an entry.
fn mount(class: &ClassDir, entry: &str) -> Mounted {
    let point = class.dir.join(entry);
    fs::create_dir_all(&point).expect("the directory is ours");
    Mounted::tmpfs_of(&point, "64m")
}

/// Leaves a tenant's file.
fn leave(disk: &Mounted) {
    fs::write(disk.point().join("marker"), "x").expect("the volume takes files");
}

/// Binds the volume, runs `write` as the Pod would, and releases it.
async fn use_once(site: &Site<'_>, pv: &PersistentVolume, write: impl FnOnce()) {
    site.bind(pv).await;
    write();
    site.unclaim(pv).await;
}

const MARKER: &[u8] = b"tenant one was here";

/// Where the markers of a device are: its start, middle and end.
fn places(size: u64) -> [u64; 3] {
    [0, size / 2, size - MARKER.len() as u64]
}

fn write_markers(device: &Path, size: u64) {
    let file = fs::OpenOptions::new()
        .write(true)
        .open(device)
        .expect("the device opens");
    for place in places(size) {
        file.write_all_at(MARKER, place)
            .expect("the device takes data");
    }
    file.sync_all().expect("the device syncs");
}

/// Every byte of the image behind the device.
fn is_zero(image: &Path) -> bool {
    fs::read(image)
        .expect("the image is ours")
        .iter()
        .all(|byte| *byte == 0)
}

/// A Released volume with policy Delete at `dir/entry`, made by somebody else.
fn foreign(
    name: &str,
    class: &ClassDir,
    entry: &str,
    host: &str,
    label: Option<&str>,
) -> PersistentVolume {
    let labels = label.map(|label| json!({"provisor.dev/node": label}));
    object(json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {
            "name": name, "labels": labels,
            "annotations": {"pv.kubernetes.io/provisioned-by": "somebody-else"},
        },
        "spec": {
            "capacity": {"storage": "64Mi"}, "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Delete", "storageClassName": class.name,
            "local": {"path": class.dir.join(entry)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": [host]}]}]}},
        },
    }))
}
