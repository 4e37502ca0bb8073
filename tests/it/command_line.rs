//! The binary as a person meets it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::support::daemon::{Process, provisor};
use crate::support::disks::{Loop, Mounted};
use crate::support::site::{Site, World, name_of, until};

/// A configuration of two classes with a volume and a plain directory in each.
struct Machine {
    _mount: Mounted,
    _device: Loop,
    /// Dropped last, when nothing is mounted in it any more.
    root: tempfile::TempDir,
}

impl Machine {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let (fast, blocks) = (root.path().join("fast"), root.path().join("blocks"));
        for dir in [fast.join("vol1"), fast.join("plain"), blocks.join("plain")] {
            fs::create_dir_all(dir).unwrap();
        }
        let device = Loop::new(16 << 20);
        symlink(&device.node, blocks.join("disk1")).unwrap();
        let mount = Mounted::tmpfs(&fast.join("vol1"));
        let config = root.path().join("config");
        fs::create_dir(&config).unwrap();
        let text = format!(
            "fast: {{hostDir: {0}, mountDir: {0}}}\nblocks: {{hostDir: {1}, mountDir: {1}, volumeMode: Block}}\n",
            fast.display(),
            blocks.display()
        );
        fs::write(config.join("storageClassMap"), text).unwrap();
        Self {
            root,
            _mount: mount,
            _device: device,
        }
    }

    fn config(&self) -> String {
        self.root.path().join("config").display().to_string()
    }
}

#[test]
fn an_offline_plan_says_what_is_offered_and_what_is_refused() {
    let machine = Machine::new();
    let args = [
        "plan",
        "--offline",
        "--node-name",
        "n1",
        "--config-dir",
        &machine.config(),
    ];
    let (success, out, err) = provisor(&args, &[]);
    assert!(success, "{err}");
    let lines: Vec<&str> = out.lines().collect();
    let name = |entry: &str, class: &str| provisor::pv::name(entry, "n1", class);
    assert_eq!(lines.len(), 4, "{out}");
    assert!(lines[0].starts_with("offer    blocks/disk1  as ") && lines[0].contains("Block 16Mi"));
    assert!(lines[0].contains(&name("disk1", "blocks")), "{out}");
    assert!(
        lines[1].starts_with("refuse   blocks/plain  WrongMode: "),
        "{out}"
    );
    assert!(
        lines[2].starts_with("refuse   fast/plain  NotMounted: "),
        "{out}"
    );
    assert!(lines[3].contains("Filesystem 1Mi at "), "{out}");
}

#[test]
fn a_plan_as_json_has_the_same_steps() {
    let machine = Machine::new();
    let (success, out, err) = provisor(
        &[
            "plan",
            "--offline",
            "-o",
            "json",
            "--config-dir",
            &machine.config(),
        ],
        &[],
    );
    assert!(success, "{err}");
    let steps: Vec<serde_json::Value> = serde_json::from_str(&out).unwrap();
    let words: Vec<_> = steps
        .iter()
        .map(|step| step["step"].as_str().unwrap())
        .collect();
    assert_eq!(words, ["offer", "refuse", "refuse", "offer"]);
    assert_eq!(steps[1]["reason"], "WrongMode");
}

#[tokio::test]
async fn a_plan_asks_the_api_server_and_changes_nothing() {
    let world = World::stand_in();
    let site = Site::without_node(&world).await;
    let taint = serde_json::json!([{"key": "agent-not-ready", "effect": "NoSchedule"}]);
    site.create_tainted_node(taint).await;
    site.write_key("removeNodeNotReadyTaint", "true");
    site.write_key("provisionerNotReadyNodeTaintKey", "agent-not-ready");
    let fast = site.class("fast", "").await;
    let point = fast.dir.join("vol1");
    fs::create_dir(&point).unwrap();
    let _mount = Mounted::tmpfs(&point);
    let (setup, name) = (site.setup().clone(), site.node.clone());
    let plan = tokio::task::spawn_blocking(move || {
        let config = setup.config_dir.display().to_string();
        let args = ["plan", "--node-name", &name, "--config-dir", &config];
        provisor(&args, &[("KUBECONFIG", &setup.kubeconfig)])
    });
    let (success, out, err) = plan.await.unwrap();
    assert!(success, "{err}");
    assert!(
        out.starts_with(&format!("offer    {}/vol1", fast.name)),
        "{out}"
    );
    assert!(
        out.contains("\nuntaint  node  of agent-not-ready, "),
        "{out}"
    );
    let pvs = world.server().unwrap().pvs();
    assert!(pvs.is_empty(), "{pvs:?}");
    let writes = world.server().unwrap().requests_matching(|request| {
        request.method != "GET"
            && request.user_agent.starts_with("provisor/")
            && (request.path.contains("persistentvolumes") || request.method == "PATCH")
    });
    assert!(writes.is_empty(), "{writes:?}");
    // And what it says is what the daemon then does.
    let _daemon = crate::support::daemon::Daemon::start(site.setup());
    let pv = site.until_phase(&fast, "vol1", "Available").await;
    assert!(out.contains(name_of(&pv)), "{out}");
    until("the taint is gone", async || {
        site.taints().await.is_empty().then_some(())
    })
    .await;
}

#[test]
fn errors_say_what_to_do() {
    let (success, _, err) = provisor(&["plan", "--offline", "--config-dir", "/nonexistent"], &[]);
    assert!(!success);
    assert!(
        err.starts_with("error: ") && err.contains("/nonexistent"),
        "{err}"
    );

    let machine = Machine::new();
    let config = machine.config();
    let (success, _, err) = provisor(&["run", "--config-dir", &config], &[]);
    assert!(!success && err.contains("MY_NODE_NAME"), "{err}");

    let missing = Path::new("/nonexistent/kubeconfig");
    let args = ["run", "--config-dir", &config, "--node-name", "n1"];
    let (success, _, err) = provisor(&args, &[("KUBECONFIG", missing)]);
    assert!(!success && err.contains("/nonexistent/kubeconfig"), "{err}");
}

/// What a DaemonSet of upstream's image may pass, after the image was swapped.
#[tokio::test]
async fn cfg_40_to_43_50_54_upstreams_flags_and_environment_start_the_daemon() {
    let world = World::stand_in();
    let site = Site::new(&world).await;
    let fast = site.class("fast", "").await;
    let point = fast.dir.join("vol1");
    fs::create_dir(&point).unwrap();
    let _mount = Mounted::tmpfs(&point);
    let daemon = Process::start_with(site.setup(), |command, address| {
        command
            .args(["-v=4", "-discovery-period", "10s", "-logtostderr"])
            .args([&format!("-listen-address={address}"), "-metrics-path=/m"])
            .envs([
                ("MY_NAMESPACE", "kube-system"),
                ("JOB_CONTAINER_IMAGE", "x"),
            ])
            .env_remove("RUST_LOG");
    });
    site.until_phase(&fast, "vol1", "Available").await;
    let (status, metrics) = daemon.get("/m").expect("it answers");
    assert_eq!(status, 200);
    let offered =
        "local_volume_provisioner_persistentvolume_discovery_total{mode=\"Filesystem\"} 1";
    until("it is counted", async || {
        daemon.get("/m")?.1.contains(offered).then_some(())
    })
    .await;
    assert!(metrics.contains("provisor_"), "{metrics}");
    let log = daemon.log();
    assert!(
        log.contains("--discovery-period changes nothing: nothing is polled"),
        "{log}"
    );
    assert!(log.contains("DEBUG"), "{log}");
    daemon.signal(nix::sys::signal::Signal::SIGTERM);
    assert!(daemon.wait().0.success());
}
