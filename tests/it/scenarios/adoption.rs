//! Volumes that the reference provisioner made, and the rights that it had.

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::json;

use super::{foreign, leave, mount, use_once};
use crate::support::daemon::{Daemon, Setup, provisor};
use crate::support::site::{ClassDir, Site, World, name_of, object, uid_of, until};

/// A volume exactly as upstream 2.9 makes it, in one of its two name modes.
fn upstreams(
    site: &Site<'_>,
    class: &ClassDir,
    entry: &str,
    provisioner: &str,
) -> PersistentVolume {
    object(json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {
            "name": provisor::pv::name(entry, &site.node, &class.name),
            "annotations": {"pv.kubernetes.io/provisioned-by": provisioner},
        },
        "spec": {
            "capacity": {"storage": "1Mi"}, "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Delete", "storageClassName": class.name,
            "volumeMode": "Filesystem",
            "local": {"path": class.dir.join(entry)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": [site.node]}]}]}},
        },
    }))
}

/// Fifty volumes of upstream, half of them labelled by `provisor adopt` first, half met by their name.
pub(crate) async fn upstreams_volumes_are_adopted_as_they_are(world: &World) {
    let site = Site::new(world).await;
    let fast = site.class("fast", "").await;
    let mut disks = Vec::new();
    let mut made = Vec::new();
    for number in 0..50 {
        let entry = format!("vol{number}");
        disks.push(mount(&fast, &entry));
        let uid = "0f3c7a9e-1b2d-4c5e-8f90-123456789abc";
        let provisioner = match number % 2 {
            0 => format!("local-volume-provisioner-{}", site.node),
            _ => format!("local-volume-provisioner-{}-{uid}", site.node),
        };
        let pv = upstreams(&site, &fast, &entry, &provisioner);
        made.push(
            site.pvs()
                .create(&PostParams::default(), &pv)
                .await
                .expect("it can be made"),
        );
        if number == 24 {
            let kubeconfig = site.setup().kubeconfig.clone();
            let run = move |args: &'static [&'static str]| {
                let kubeconfig = kubeconfig.clone();
                tokio::task::spawn_blocking(move || provisor(args, &[("KUBECONFIG", &kubeconfig)]))
            };
            // Others may have volumes on this cluster too: only this node's lines count.
            let count = |out: &str, what: &str| {
                let line = format!("{what} for {}", site.node);
                out.lines().filter(|text| text.ends_with(&line)).count()
            };
            let (success, out, err) = run(&["adopt", "--dry-run"]).await.expect("it runs");
            assert!(
                success && count(&out, "would be labelled") == 25,
                "{out}{err}"
            );
            let (success, out, err) = run(&["adopt"]).await.expect("it runs");
            assert!(success && count(&out, ": labelled") == 25, "{out}{err}");
            let (success, out, err) = run(&["adopt"]).await.expect("it runs");
            assert!(success && count(&out, "labelled") == 0, "{out}{err}");
        }
    }
    // A foreign volume has the name of one more entry.
    let taken = provisor::pv::name("vol50", &site.node, &fast.name);
    let foreign = foreign(&taken, &fast, "elsewhere", &site.node, None);
    let foreign = site
        .pvs()
        .create(&PostParams::default(), &foreign)
        .await
        .expect("it can be made");
    disks.push(mount(&fast, "vol50"));

    let _daemon = Daemon::start(site.setup());
    site.until_event(&site.node, "NameTaken").await;
    let longer = site.until_phase(&fast, "vol50", "Available").await;
    assert_eq!(name_of(&longer), provisor::pv::long_name("vol50", &site.node, &fast.name));
    for pv in &made {
        let now = until("it is adopted", async || {
            let now = site.pvs().get(name_of(pv)).await.expect("it is there");
            let marks = now.metadata.annotations.clone().unwrap_or_default();
            let finalizers = now.metadata.finalizers.clone().unwrap_or_default();
            (marks.contains_key("provisor.dev/identity")
                && finalizers.iter().any(|f| f == provisor::pv::FINALIZER))
            .then_some(now)
        })
        .await;
        assert_eq!(uid_of(&now), uid_of(pv));
        let capacity = now.spec.and_then(|spec| spec.capacity).expect("capacity");
        assert_eq!(capacity["storage"].0, "1Mi", "the capacity is left alone");
    }
    let all = site
        .pvs()
        .list(&ListParams::default())
        .await
        .expect("volumes can be listed");
    let of_class = all.items.iter().filter(|pv| {
        pv.spec
            .as_ref()
            .and_then(|s| s.storage_class_name.as_deref())
            == Some(&fast.name)
    });
    // The fifty, the foreign one, and the entry whose name it has under a longer one.
    assert_eq!(of_class.count(), 52, "none was made twice");
    // An adopted volume goes through its life like any other.
    use_once(&site, &made[7], || leave(&disks[7])).await;
    site.until_offered_again(&fast, "vol7", &made[7]).await;
    let now = site.pvs().get(&taken).await.expect("it is there");
    assert_eq!(uid_of(&now), uid_of(&foreign));
    site.pvs()
        .delete(&taken, &DeleteParams::default())
        .await
        .expect("it can be deleted");
    site.clean_up().await;
}

/// The image was swapped and nothing else: `access` has upstream's rights (contract RBAC-01 to RBAC-04),
/// until `grant` adds those of ours.
pub(crate) async fn with_upstreams_rights_it_offers_and_waits_for_more(
    site: &Site<'_>,
    access: kube::Config,
    grant: impl AsyncFnOnce(),
) {
    let fast = site.class("fast", "").await;
    let disks = [mount(&fast, "old"), mount(&fast, "new")];
    let provisioner = format!("local-volume-provisioner-{}", site.node);
    let old = upstreams(site, &fast, "old", &provisioner);
    let made = site.pvs().create(&PostParams::default(), &old).await;
    let old = made.expect("it can be made");

    let setup = Setup {
        access,
        ..site.setup().clone()
    };
    let daemon = Daemon::start(&setup);
    let new = site.until_phase(&fast, "new", "Available").await;
    let lack = "the ServiceAccount may not patch persistentvolumes";
    let is_said = || daemon.get("/status").map(|(_, status)| status.contains(lack));
    until("what is missing is said", async || {
        is_said().filter(|said| *said)
    })
    .await;
    // What is not ours yet is an entry of the node's.
    let note = site.until_event(&site.node, "ApiRefused").await;
    assert!(note.contains("forbidden") && note.contains(name_of(&old)), "{note}");
    use_once(site, &new, || leave(&disks[1])).await;
    let note = site.until_event(name_of(&new), "ApiRefused").await;
    assert!(note.contains("forbidden"), "{note}");
    assert!(disks[1].point().join("marker").exists());
    let now = site.pvs().get(name_of(&old)).await.expect("it is there");
    assert_eq!(now.metadata.labels, None);

    grant().await;
    site.until_offered_again(&fast, "new", &new).await;
    assert!(!disks[1].point().join("marker").exists());
    until("upstream's volume is adopted", async || {
        let now = site.pvs().get(name_of(&old)).await.ok()?;
        assert_eq!(uid_of(&now), uid_of(&old));
        now.metadata.labels?.get("provisor.dev/node").cloned()
    })
    .await;
    until("nothing is missing", async || is_said().filter(|said| !*said)).await;
    daemon.stop().expect("it stops cleanly");
}
