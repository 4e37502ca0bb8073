//! The image as the DaemonSet of deploy/, with its own ServiceAccount, and Pods that use its volumes.

use std::fs;
use std::path::Path;

use k8s_openapi::api::core::v1::{PersistentVolume, Pod, PodCondition};
use kube::api::ListParams;
use kube::{Api, Client};

use super::cluster::{self, NODE, disk, in_node, kubectl};
use crate::support::daemon::Process;
use crate::support::disks::Mounted;
use crate::support::site::{Site, name_of, phase_of, uid_of, until};

const MIB: u64 = 1 << 20;

fn run<T>(test: impl AsyncFnOnce() -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime can be made").block_on(test())
}

/// Undoes what a test applied, also when it fails.
struct Applied(String);

impl Applied {
    fn manifest(text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("provisor-{}.yaml", text.len()));
        fs::write(&path, text).expect("the temporary directory takes files");
        kubectl(&["apply", "-f", path.to_str().expect("UTF-8")]);
        Self(path.to_str().expect("UTF-8").to_owned())
    }
}

impl Drop for Applied {
    fn drop(&mut self) {
        kubectl(&[
            "delete",
            "--ignore-not-found",
            "--wait=false",
            "-f",
            &self.0,
        ]);
        let _ = fs::remove_file(&self.0);
    }
}

async fn volume(client: &Client, path: &str) -> Option<PersistentVolume> {
    let all = Api::<PersistentVolume>::all(client.clone())
        .list(&ListParams::default())
        .await;
    all.expect("volumes can be listed")
        .items
        .into_iter()
        .find(|pv| {
            let local = pv.spec.as_ref().and_then(|spec| spec.local.as_ref());
            local.is_some_and(|local| local.path == path)
        })
}

async fn until_available(client: &Client, path: &str, other_than: &str) -> PersistentVolume {
    until(&format!("{path} is Available"), async || {
        let pv = volume(client, path).await?;
        (phase_of(&pv) == "Available" && uid_of(&pv) != other_than).then_some(pv)
    })
    .await
}

async fn until_pod(client: &Client, name: &str, phase: &str) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    until(&format!("Pod {name} is {phase}"), async || {
        let pod = pods.get_opt(name).await.expect("pods can be read")?;
        let status = pod.status.unwrap_or_default();
        let now = status.phase.unwrap_or_default();
        assert!(
            phase == "Failed" || now != "Failed",
            "Pod {name}: {}",
            kubectl(&["logs", name])
        );
        let containers = status.container_statuses.unwrap_or_default();
        let ready = containers.iter().all(|container| container.ready);
        (now == phase && (ready || phase != "Running")).then_some(())
    })
    .await;
}

/// A Pod with one claim of each class; `script` sees /data and /dev/device.
fn pod(name: &str, script: &str) -> String {
    let claim = |class: &str, mode: &str| {
        format!(
            "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: {name}-{class}}}\nspec:\n  \
             accessModes: [ReadWriteOnce]\n  storageClassName: {class}\n  volumeMode: {mode}\n  \
             resources: {{requests: {{storage: 50Mi}}}}\n---\n"
        )
    };
    format!(
        "{}{}apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  restartPolicy: Never\n  \
         terminationGracePeriodSeconds: 1\n  containers:\n  - name: c\n    \
         image: docker.io/library/busybox:local\n    imagePullPolicy: Never\n    \
         command: [sh, -ec, '{script}']\n    \
         readinessProbe: {{exec: {{command: [test, -e, /tmp/done]}}, periodSeconds: 1}}\n    \
         volumeMounts: [{{name: fs, mountPath: /data}}]\n    \
         volumeDevices: [{{name: dev, devicePath: /dev/device}}]\n  volumes:\n  \
         - {{name: fs, persistentVolumeClaim: {{claimName: {name}-fast-disks}}}}\n  \
         - {{name: dev, persistentVolumeClaim: {{claimName: {name}-fast-blocks}}}}\n",
        claim("fast-disks", "Filesystem"),
        claim("fast-blocks", "Block"),
    )
}

#[test]
fn a_second_pod_finds_both_volumes_empty() {
    run(async || {
        let client = cluster::world().client().await;
        let overlay = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cluster/play");
        cluster::grant_rights();
        kubectl(&["apply", "-k", overlay]);
        // Not by the DaemonSet's status: it waits for the nodes without kubelet of other tests, too.
        until("the daemon's Pod is ready", async || {
            let pods: Api<Pod> = Api::namespaced(client.clone(), "provisor");
            let here = ListParams::default().fields(&format!("spec.nodeName={NODE}"));
            let pods = pods.list(&here).await.expect("pods can be listed");
            let conditions = pods.items.first()?.status.clone()?.conditions?;
            let ready = |c: &PodCondition| c.type_ == "Ready" && c.status == "True";
            conditions.iter().any(ready).then_some(())
        })
        .await;

        let (fs, block) = (disk("fs", 128 * MIB), disk("block", 64 * MIB));
        let (fs, block) = (fs.to_str().expect("UTF-8"), block.to_str().expect("UTF-8"));
        let (fs_path, block_path) = ("/mnt/fast-disks/disk-1", "/mnt/fast-blocks/disk-2");
        in_node(&["mkfs.ext4", "-q", "-F", fs]);
        in_node(&["mkdir", "-p", fs_path]);
        in_node(&["mount", fs, fs_path]);
        in_node(&["ln", "-sfn", block, block_path]);
        let fs_pv = until_available(&client, fs_path, "").await;
        let block_pv = until_available(&client, block_path, "").await;

        let write = "echo secret > /data/marker; mkdir -p /data/a/b; echo x > /data/a/b/c; \
            echo secret | dd of=/dev/device bs=1M seek=32 conv=notrunc,fsync; \
            echo secret | dd of=/dev/device conv=notrunc,fsync; touch /tmp/done; sleep 1000";
        let first = Applied::manifest(&pod("first", write));
        until_pod(&client, "first", "Running").await;
        let bound = |pv: &PersistentVolume| {
            let claim = pv.spec.as_ref().and_then(|spec| spec.claim_ref.clone());
            claim.and_then(|claim| claim.name)
        };
        let now = volume(&client, fs_path).await.expect("it is there");
        assert_eq!(bound(&now).as_deref(), Some("first-fast-disks"));
        assert_eq!(in_node(&["cat", "/mnt/fast-disks/disk-1/marker"]), "secret");

        kubectl(&["delete", "pod", "first"]);
        drop(first);
        until_available(&client, fs_path, uid_of(&fs_pv)).await;
        until_available(&client, block_path, uid_of(&block_pv)).await;
        assert_eq!(in_node(&["ls", "-A", fs_path]), "lost+found");

        let look = "test \"$(ls -A /data)\" = lost+found; cmp -n 67108864 /dev/device /dev/zero; \
            touch /tmp/done; sleep 1000";
        let second = Applied::manifest(&pod("second", look));
        until_pod(&client, "second", "Running").await;
        kubectl(&["delete", "pod", "second"]);
        drop(second);

        // It speaks as its ServiceAccount and is refused nothing.
        let here = format!("--field-selector=spec.nodeName={NODE}");
        let pods = kubectl(&["-n", "provisor", "get", "pods", &here, "-o", "name"]);
        let log = kubectl(&["-n", "provisor", "logs", &pods]);
        assert!(!log.contains("orbidden"), "{log}");
        assert!(log.contains("wiped"), "{log}");
    });
}

/// The kubelet fails a Pod with `path "..." does not exist` when it does not see what a
/// PersistentVolume names. So nothing is offered that it does not see.
#[test]
fn what_the_kubelet_does_not_see_is_not_offered() {
    run(async || {
        let world = cluster::world();
        let site = Site::on_node(&world, NODE).await;
        let hidden = site.class("hidden", "").await;
        let elsewhere = site.class_without_object("elsewhere", "");
        site.create_storage_class(&elsewhere, "Delete").await;
        // The node's mount namespace is another one than ours: the first directory exists there, but
        // the mount does not; of the second the kubelet sees nothing at all.
        let point = hidden.dir.join("vol1");
        fs::create_dir(&point).expect("the directory is ours");
        let _mount = Mounted::tmpfs(&point);
        let absent = Path::new("/nonexistent").join("elsewhere");
        site.configure(&elsewhere.name, &absent, &elsewhere.dir, "");
        let other = elsewhere.dir.join("vol2");
        fs::create_dir(&other).expect("the directory is ours");
        let _other = Mounted::tmpfs(&other);

        let daemon = Process::start(site.setup());
        until("it is ready", async || {
            daemon.get("/readyz").filter(|(code, _)| *code == 200)
        })
        .await;
        until("both are refused", async || {
            let (_, status) = daemon.get("/status")?;
            (status.matches("\"NotOnHost\"").count() == 2).then_some(())
        })
        .await;
        let all = site
            .pvs()
            .list(&ListParams::default())
            .await
            .expect("volumes can be listed");
        let ours = all.items.iter().filter(|pv| {
            let class = pv
                .spec
                .as_ref()
                .and_then(|spec| spec.storage_class_name.as_deref());
            class == Some(hidden.name.as_str()) || class == Some(elsewhere.name.as_str())
        });
        let names: Vec<_> = ours.map(name_of).collect();
        assert!(names.is_empty(), "{names:?}");
        drop(daemon);
        site.clean_up().await;
    });
}

/// A DaemonSet of upstream's chart whose image was swapped, and nothing else; and then the rights that
/// docs/migration.md adds.
#[test]
fn upstreams_daemonset_runs_our_image() {
    run(async || {
        let client = cluster::world().client().await;
        let (old_path, new_path) = ("/mnt/swapped/old", "/mnt/swapped/new");
        for path in [old_path, new_path] {
            let disk = disk(path.rsplit('/').next().expect("a name"), 128 * MIB);
            let disk = disk.to_str().expect("UTF-8");
            in_node(&["mkfs.ext4", "-q", "-F", disk]);
            in_node(&["mkdir", "-p", path]);
            in_node(&["mount", disk, path]);
        }
        let name = provisor::pv::name("old", NODE, "swapped");
        let text = include_str!("swap.yaml")
            .replace("the-old-volume", &name)
            .replace("the-node", NODE);
        let _all = Applied::manifest(&text);
        let made = volume(&client, old_path).await.expect("it was made");

        let new = until_available(&client, new_path, "").await;
        let annotations = new.metadata.annotations.unwrap_or_default();
        assert_eq!(
            annotations["pv.kubernetes.io/provisioned-by"],
            format!("local-volume-provisioner-{NODE}")
        );
        let log = || {
            kubectl(&[
                "-n",
                "swapped",
                "logs",
                "daemonset/local-static-provisioner",
            ])
        };
        until("it says what it may not do", async || {
            log()
                .contains("may not patch persistentvolumes")
                .then_some(())
        })
        .await;
        let old = volume(&client, old_path).await.expect("it is there");
        assert_eq!(old.metadata.labels, None);

        let more = r#"[{"op": "add", "path": "/rules/-", "value":
            {"apiGroups": [""], "resources": ["persistentvolumes"], "verbs": ["patch"]}},
            {"op": "add", "path": "/rules/-", "value":
            {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch"]}}]"#;
        let role = "clusterrole/swapped-node-clusterrole";
        kubectl(&["patch", role, "--type=json", "-p", more]);
        until("upstream's volume is adopted", async || {
            let old = volume(&client, old_path).await?;
            assert_eq!(uid_of(&old), uid_of(&made));
            old.metadata.labels?.get("provisor.dev/node").cloned()
        })
        .await;
        let count = "-o=jsonpath={.items[*].status.containerStatuses[*].restartCount}";
        assert_eq!(kubectl(&["-n", "swapped", "get", "pods", count]), "0");
    });
}
