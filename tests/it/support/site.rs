//! One node with discovery directories, against whichever API server the suite runs on.
//!
//! Names of the cluster-scoped objects are unique for each site, so that scenarios can run side by
//! side and on a cluster that others use too.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Event, Node, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use kube::{Api, Client};
use serde_json::json;

use super::apiserver::ApiServer;
use super::daemon::Setup;

/// How long a condition may take to come true. Long enough for a loaded machine; a test that waits
/// this long has failed.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// The API server of a suite.
pub(crate) enum World {
    /// The one in this process.
    StandIn(ApiServer),
    /// A real one.
    Real {
        /// A kubeconfig with all rights.
        kubeconfig: PathBuf,
    },
}

impl World {
    pub(crate) fn stand_in() -> Self {
        Self::StandIn(ApiServer::start())
    }

    pub(crate) fn server(&self) -> Option<&ApiServer> {
        match self {
            Self::StandIn(server) => Some(server),
            Self::Real { .. } => None,
        }
    }

    pub(crate) async fn access(&self) -> kube::Config {
        match self {
            Self::StandIn(server) => server.client_config(),
            Self::Real { kubeconfig } => {
                let read = kube::config::Kubeconfig::read_from(kubeconfig)
                    .expect("the cluster wrote a kubeconfig");
                kube::Config::from_custom_kubeconfig(read, &Default::default())
                    .await
                    .expect("the kubeconfig is whole")
            }
        }
    }

    pub(crate) async fn client(&self) -> Client {
        provisor::cluster::client(self.access().await).expect("the configuration is whole")
    }
}

static SITES: AtomicU32 = AtomicU32::new(0);

/// A class of a site.
pub(crate) struct ClassDir {
    /// The StorageClass's name.
    pub(crate) name: String,
    /// The discovery directory, for the host and the daemon alike.
    pub(crate) dir: PathBuf,
}

/// One node with its directories.
pub(crate) struct Site<'w> {
    pub(crate) world: &'w World,
    pub(crate) client: Client,
    pub(crate) node: String,
    pub(crate) root: tempfile::TempDir,
    setup: Setup,
    made_node: AtomicBool,
    classes: Mutex<BTreeMap<String, String>>,
}

impl<'w> Site<'w> {
    /// A node that exists, without classes.
    pub(crate) async fn new(world: &'w World) -> Self {
        let site = Self::without_node(world).await;
        site.create_node().await;
        site
    }

    pub(crate) async fn without_node(world: &'w World) -> Self {
        let number = SITES.fetch_add(1, Ordering::Relaxed);
        Self::on_node(world, &format!("site-{}-{number}", std::process::id())).await
    }

    /// On a node that is there already.
    pub(crate) async fn on_node(world: &'w World, node: &str) -> Self {
        let node = node.to_owned();
        let root = tempfile::Builder::new()
            .prefix("provisor-site-")
            .tempdir()
            .expect("the temporary directory takes one");
        let config_dir = root.path().join("config");
        std::fs::create_dir(&config_dir).expect("the directory is ours");
        let kubeconfig = match world {
            World::Real { kubeconfig } => kubeconfig.clone(),
            World::StandIn(server) => {
                let path = root.path().join("kubeconfig");
                server.kubeconfig(&path).expect("the directory is ours");
                path
            }
        };
        let access = world.access().await;
        Self {
            world,
            client: world.client().await,
            setup: Setup {
                access,
                kubeconfig,
                config_dir,
                node: node.clone(),
            },
            node,
            root,
            made_node: AtomicBool::new(false),
            classes: Mutex::default(),
        }
    }

    pub(crate) fn setup(&self) -> &Setup {
        &self.setup
    }

    pub(crate) async fn create_node(&self) {
        self.create_tainted_node(json!([])).await;
    }

    pub(crate) async fn create_tainted_node(&self, taints: serde_json::Value) {
        self.made_node.store(true, Ordering::Relaxed);
        let labels = json!({"kubernetes.io/hostname": self.node, "zone": "z1"});
        let node: Node = object(json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": self.node, "labels": labels},
            "spec": {"taints": taints},
        }));
        self.nodes()
            .create(&PostParams::default(), &node)
            .await
            .expect("the node can be created");
    }

    /// Keys of the Node's taints; others may add some of their own.
    pub(crate) async fn taints(&self) -> Vec<String> {
        let node = self.nodes().get(&self.node).await.expect("it is there");
        let taints = node.spec.and_then(|spec| spec.taints);
        let keys = taints.into_iter().flatten().map(|taint| taint.key);
        keys.collect()
    }

    pub(crate) fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    /// Adds a class with its StorageClass; `settings` are further keys of the class.
    pub(crate) async fn class(&self, short: &str, settings: &str) -> ClassDir {
        let class = self.class_without_object(short, settings);
        self.create_storage_class(&class, "Delete").await;
        class
    }

    pub(crate) fn class_without_object(&self, short: &str, settings: &str) -> ClassDir {
        let name = format!("{short}-{}", self.node);
        let dir = self.root.path().join(short);
        std::fs::create_dir_all(&dir).expect("the directory is ours");
        self.configure(&name, &dir, &dir, settings);
        ClassDir { name, dir }
    }

    /// Writes the ConfigMap with one more class.
    pub(crate) fn configure(&self, name: &str, host_dir: &Path, mount_dir: &Path, settings: &str) {
        let text = format!(
            "{name}:\n  hostDir: {}\n  mountDir: {}\n{settings}\n",
            host_dir.display(),
            mount_dir.display()
        );
        let mut classes = self
            .classes
            .lock()
            .expect("no test panics while it holds this");
        classes.insert(name.to_owned(), text);
        let all: String = classes.values().map(String::as_str).collect();
        self.write_key("storageClassMap", &all);
    }

    pub(crate) fn write_key(&self, key: &str, value: &str) {
        std::fs::write(self.setup.config_dir.join(key), value).expect("the directory is ours");
    }

    pub(crate) async fn create_storage_class(&self, class: &ClassDir, policy: &str) {
        let class: StorageClass = object(json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
            "metadata": {"name": class.name},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "Immediate",
            "reclaimPolicy": policy,
        }));
        Api::all(self.client.clone())
            .create(&PostParams::default(), &class)
            .await
            .expect("the StorageClass can be created");
    }

    pub(crate) fn pvs(&self) -> Api<PersistentVolume> {
        Api::all(self.client.clone())
    }

    /// The PersistentVolume whose path is `dir/entry`, whoever made it.
    pub(crate) async fn pv_at(&self, class: &ClassDir, entry: &str) -> Option<PersistentVolume> {
        let path = class.dir.join(entry);
        let all = self
            .pvs()
            .list(&ListParams::default())
            .await
            .expect("volumes can be listed");
        all.items.into_iter().find(|pv| {
            let local = pv.spec.as_ref().and_then(|spec| spec.local.as_ref());
            local.is_some_and(|local| Path::new(&local.path) == path)
        })
    }

    /// Waits until the volume at `dir/entry` is in `phase` and not on its way out.
    pub(crate) async fn until_phase(
        &self,
        class: &ClassDir,
        entry: &str,
        phase: &str,
    ) -> PersistentVolume {
        let what = format!("{}/{entry} is {phase}", class.name);
        until(&what, async || {
            let pv = self.pv_at(class, entry).await?;
            (phase_of(&pv) == phase && pv.metadata.deletion_timestamp.is_none()).then_some(pv)
        })
        .await
    }

    /// Waits until the volume at `dir/entry` is Available and another one than `old`.
    pub(crate) async fn until_offered_again(
        &self,
        class: &ClassDir,
        entry: &str,
        old: &PersistentVolume,
    ) -> PersistentVolume {
        let what = format!("{}/{entry} is offered again", class.name);
        until(&what, async || {
            let pv = self.pv_at(class, entry).await?;
            (phase_of(&pv) == "Available" && pv.metadata.uid != old.metadata.uid).then_some(pv)
        })
        .await
    }

    /// Binds a claim of its own to the volume and waits until it is Bound.
    pub(crate) async fn bind(&self, pv: &PersistentVolume) {
        let (name, claim) = (name_of(pv), claim_name(pv));
        if let Some(server) = self.world.server() {
            server.bind(name, "default", &claim);
        } else {
            let spec = pv.spec.as_ref().expect("a volume has a spec");
            let object: PersistentVolumeClaim = object(json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": {"name": claim, "namespace": "default"},
                "spec": {
                    "accessModes": spec.access_modes, "volumeMode": spec.volume_mode,
                    "storageClassName": spec.storage_class_name, "volumeName": name,
                    "resources": {"requests": {"storage": "1Ki"}},
                },
            }));
            self.claims()
                .create(&PostParams::default(), &object)
                .await
                .expect("claims can be made");
        }
        until("the volume is Bound", async || {
            let pv = self.pvs().get(name).await.expect("the volume is there");
            (phase_of(&pv) == "Bound").then_some(())
        })
        .await;
    }

    /// Deletes the claim that [`Site::bind`] made; the volume gets Released by the controllers.
    pub(crate) async fn unclaim(&self, pv: &PersistentVolume) {
        let (name, claim) = (name_of(pv), claim_name(pv));
        if let Some(server) = self.world.server() {
            server.release(name);
        } else {
            self.claims()
                .delete(&claim, &DeleteParams::default())
                .await
                .expect("claims can be deleted");
        }
    }

    fn claims(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// Merges `patch` into the volume, as somebody with kubectl does.
    pub(crate) async fn patch_pv(&self, name: &str, patch: serde_json::Value) {
        self.pvs()
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .expect("volumes can be patched");
    }

    /// Waits for an Event with `reason` about the object `name`; its note.
    pub(crate) async fn until_event(&self, name: &str, reason: &str) -> String {
        let events: Api<Event> = Api::namespaced(self.client.clone(), "default");
        until(&format!("an Event {reason} on {name}"), async || {
            let all = events
                .list(&ListParams::default())
                .await
                .expect("events can be listed");
            all.items.into_iter().find_map(|event| {
                let about = event.involved_object.name.as_deref() == Some(name);
                (about && event.reason.as_deref() == Some(reason))
                    .then(|| event.message.unwrap_or_default())
            })
        })
        .await
    }

    /// Begins to write down every change of this node's volumes.
    pub(crate) async fn watch_log(&self) -> WatchLog {
        let log = Arc::new(Mutex::new(Vec::new()));
        let selector = format!("provisor.dev/node={}", provisor::pv::node_label(&self.node));
        let config = watcher::Config::default().labels(&selector);
        let (begun_tx, begun) = tokio::sync::oneshot::channel();
        let mut begun_tx = Some(begun_tx);
        let writer = Arc::clone(&log);
        let mut stream = watcher(self.pvs(), config).boxed();
        let task = tokio::spawn(async move {
            while let Ok(Some(event)) = stream.try_next().await {
                let (pv, gone) = match event {
                    watcher::Event::InitDone => {
                        begun_tx.take().map(|tx| tx.send(()));
                        continue;
                    }
                    watcher::Event::Init => continue,
                    watcher::Event::Apply(pv) | watcher::Event::InitApply(pv) => (pv, false),
                    watcher::Event::Delete(pv) => (pv, true),
                };
                let entry = LogEntry {
                    uid: pv.metadata.uid.clone().unwrap_or_default(),
                    phase: if gone {
                        "gone".into()
                    } else {
                        phase_of(&pv).to_owned()
                    },
                };
                writer
                    .lock()
                    .expect("no reader panics while it holds this")
                    .push(entry);
            }
        });
        begun.await.expect("the watch begins");
        WatchLog { log, task }
    }

    /// Removes the objects that outlive a scenario on a real cluster.
    pub(crate) async fn clean_up(&self) {
        if self.world.server().is_some() {
            return;
        }
        let names: Vec<String> = self
            .classes
            .lock()
            .map(|c| c.keys().cloned().collect())
            .unwrap_or_default();
        let of_site = |pv: &PersistentVolume| {
            let class = pv
                .spec
                .as_ref()
                .and_then(|spec| spec.storage_class_name.as_ref());
            class.is_some_and(|class| names.contains(class))
        };
        let volumes = self.pvs().list(&ListParams::default()).await;
        for pv in volumes
            .map(|list| list.items)
            .unwrap_or_default()
            .into_iter()
            .filter(of_site)
        {
            let free = json!({"metadata": {"finalizers": null}});
            let name = name_of(&pv);
            let _ = self.pvs().delete(name, &DeleteParams::default()).await;
            let merge = Patch::Merge(free);
            let _ = self
                .pvs()
                .patch(name, &PatchParams::default(), &merge)
                .await;
        }
        let classes: Api<StorageClass> = Api::all(self.client.clone());
        for name in &names {
            let _ = classes.delete(name, &DeleteParams::default()).await;
        }
        if !self.made_node.load(Ordering::Relaxed) {
            return;
        }
        let _ = self
            .nodes()
            .delete(&self.node, &DeleteParams::default())
            .await;
    }
}

/// One change of a volume.
#[derive(Clone, Debug)]
pub(crate) struct LogEntry {
    pub(crate) uid: String,
    /// `gone` once it is deleted.
    pub(crate) phase: String,
}

/// Every change of a node's volumes since it began.
pub(crate) struct WatchLog {
    log: Arc<Mutex<Vec<LogEntry>>>,
    task: tokio::task::JoinHandle<()>,
}

impl WatchLog {
    pub(crate) fn entries(&self) -> Vec<LogEntry> {
        assert!(!self.task.is_finished(), "the watch must not have ended");
        self.log.lock().expect("the writer does not panic").clone()
    }
}

impl Drop for WatchLog {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A typed object from its JSON.
pub(crate) fn object<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> T {
    serde_json::from_value(value).expect("the test writes valid objects")
}

pub(crate) fn phase_of(pv: &PersistentVolume) -> &str {
    pv.status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        .unwrap_or("")
}

pub(crate) fn name_of(pv: &PersistentVolume) -> &str {
    pv.metadata
        .name
        .as_deref()
        .expect("a stored object has a name")
}

pub(crate) fn uid_of(pv: &PersistentVolume) -> &str {
    pv.metadata
        .uid
        .as_deref()
        .expect("a stored object has a UID")
}

fn claim_name(pv: &PersistentVolume) -> String {
    format!("claim-{}", uid_of(pv))
}

/// Polls until `probe` gives something, at most [`LIMIT`].
pub(crate) async fn until<T>(what: &str, mut probe: impl AsyncFnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = probe().await {
            return found;
        }
        assert!(begun.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
