use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::mount::MsFlags;
use provisor::config::Class;
use provisor::node::inspect::Inspector;
use provisor::node::kubelet::KubeletView;
use provisor::node::usage::{Subject, User, users};
use provisor::volume::{Found, Identity, Scan, VolumeMode};

use crate::support::disks::{Loop, Mounted, Swap, class, entry};
use crate::support::{Running, succeeds_within, wait_until};

/// The identity of the class's volume `name`, free or not.
async fn identity(class: &Class, name: &str) -> Identity {
    match Inspector::new(KubeletView::off()).scan(class).await {
        Scan::Entries(found) => found
            .into_iter()
            .find_map(|found| match found {
                Found::Volume(volume) if volume.entry.as_str() == name => Some(volume.identity),
                _ => None,
            })
            .unwrap_or_else(|| panic!("{name} is no volume")),
        Scan::Refused(refusal) => panic!("{refusal}"),
    }
}

fn ask(class: &Class, name: &str, identity: &Identity) -> Vec<User> {
    let entry = entry(name);
    users(Subject {
        identity,
        class,
        entry: &entry,
        pv: "local-pv-1",
    })
    .unwrap()
}

/// Asks until the answer is as wanted: processes need a moment to start and to go.
fn wait_for(
    class: &Class,
    name: &str,
    identity: &Identity,
    want: impl Fn(&[User]) -> bool,
) -> Vec<User> {
    let mut users = Vec::new();
    let are_wanted = succeeds_within(Duration::from_secs(5), || {
        users = ask(class, name, identity);
        want(&users)
    });
    assert!(are_wanted, "still {users:?}");
    users
}

/// A shell that holds what its script opens until it is dropped.
struct Holder {
    _process: Running,
}

impl Holder {
    fn run(script: &str, argument: &Path) -> Self {
        Self::spawn(
            Command::new("sh")
                .args(["-c", &format!("{script}; read line")])
                .arg(argument),
        )
    }

    /// The same in a mount namespace of its own, in which only the script's mounts are made.
    fn namespaced(script: &str, argument: &Path) -> Self {
        Self::spawn(
            Command::new("unshare")
                .args(["--mount", "--propagation", "private", "--", "sh", "-c"])
                .arg(format!("{script}; read line"))
                .arg(argument),
        )
    }

    fn spawn(command: &mut Command) -> Self {
        let child = command.stdin(Stdio::piped()).spawn().unwrap();
        Self {
            _process: Running(child),
        }
    }
}

#[tokio::test]
async fn a_free_filesystem_has_no_users_though_it_is_seen_in_other_namespaces() {
    let dir = tempfile::tempdir().unwrap();
    let point = dir.path().join("vol");
    fs::create_dir(&point).unwrap();
    let disk = Loop::new(16 << 20);
    disk.format();
    let _mount = Mounted::device(&disk.node, &point, "ext4", MsFlags::empty());
    let class = class("c", dir.path(), VolumeMode::Filesystem);
    let identity = identity(&class, "vol").await;
    let ready = dir.path().join("ready");
    // A view of the whole host at another path, as node-exporter has it, and a plain copy.
    let host = tempfile::tempdir().unwrap();
    let script = format!("mount --rbind / {} && touch \"$0\"", host.path().display());
    let _copy = Holder::namespaced(&script, &ready);
    wait_until("the namespace is there", || ready.exists());
    assert_eq!(ask(&class, "vol", &identity), []);
}

#[tokio::test]
async fn every_use_of_a_filesystem_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let point = dir.path().join("vol");
    fs::create_dir(&point).unwrap();
    let disk = Loop::new(64 << 20);
    disk.format();
    let _mount = Mounted::device(&disk.node, &point, "ext4", MsFlags::empty());
    let class = class("c", dir.path(), VolumeMode::Filesystem);
    let identity = identity(&class, "vol").await;
    let wait = |want: &dyn Fn(&User) -> bool| {
        wait_for(&class, "vol", &identity, |users| users.iter().any(want))
    };
    let wait_free = || wait_for(&class, "vol", &identity, <[User]>::is_empty);
    wait_free();
    {
        let _bind = Mounted::bind(&point.join("lost+found"), elsewhere.path());
        let at = elsewhere.path().display().to_string();
        wait(&|user| matches!(user, User::Mount { point, .. } if *point == at));
    }
    wait_free();
    {
        // A container may have the volume at the very path of the discovery directory.
        let script =
            "mount -t tmpfs none \"$(dirname \"$0\")\" && mkdir \"$0\" && mount $DISK \"$0\"";
        let script = format!("DISK={}; {script}", disk.node.display());
        let _container = Holder::namespaced(&script, &point);
        let at = point.display().to_string();
        wait(&|user| matches!(user, User::Mount { point, .. } if *point == at));
    }
    wait_free();
    {
        let _reader = Holder::run("exec 3<\"$0\"", &point.join("lost+found"));
        wait(&|user| matches!(user, User::Open { by, .. } if by == "fd/3"));
    }
    wait_free();
    {
        let _shell = Holder::run("cd \"$0\"", &point);
        wait(&|user| matches!(user, User::Open { by, .. } if by == "cwd"));
    }
    wait_free();
    {
        let file = point.join("inner.img");
        File::create(&file).unwrap().set_len(8 << 20).unwrap();
        let inner = Loop::over(&file, &[]);
        let name = inner.name();
        wait(&|user| matches!(user, User::Loop { name: n, .. } if *n == name));
    }
    wait_free();
}

#[tokio::test]
async fn a_bound_directory_is_not_used_by_its_neighbours() {
    let dir = tempfile::tempdir().unwrap();
    let source = tempfile::tempdir().unwrap();
    let disk = Loop::new(16 << 20);
    disk.format();
    let _source = Mounted::device(&disk.node, source.path(), "ext4", MsFlags::empty());
    let mut binds = Vec::new();
    for name in ["a", "b"] {
        fs::create_dir_all(source.path().join(name)).unwrap();
        fs::create_dir(dir.path().join(name)).unwrap();
        binds.push(Mounted::bind(
            &source.path().join(name),
            &dir.path().join(name),
        ));
        fs::write(dir.path().join(name).join("data"), name).unwrap();
    }
    let class = class("c", dir.path(), VolumeMode::Filesystem);
    let (a, b) = (identity(&class, "a").await, identity(&class, "b").await);
    // By way of the source, and of the bind mount.
    for path in [source.path().join("b/data"), dir.path().join("b/data")] {
        let _reader = Holder::run("exec 3<\"$0\"", &path);
        wait_for(&class, "b", &b, |users| {
            matches!(users, [User::Open { .. }])
        });
        assert_eq!(ask(&class, "a", &a), []);
    }
    wait_for(&class, "b", &b, <[User]>::is_empty);
}

#[tokio::test]
async fn every_use_of_a_device_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let disk = Loop::new(16 << 20);
    disk.format();
    symlink(&disk.node, dir.path().join("disk")).unwrap();
    let class = class("c", dir.path(), VolumeMode::Block);
    let identity = identity(&class, "disk").await;
    let wait = |want: &dyn Fn(&User) -> bool| {
        wait_for(&class, "disk", &identity, |users| users.iter().any(want))
    };
    let wait_free = || wait_for(&class, "disk", &identity, <[User]>::is_empty);
    wait_free();
    {
        let script = format!("mount \"$0\" {}", elsewhere.path().display());
        let _container = Holder::namespaced(&script, &disk.node);
        wait(&|user| matches!(user, User::Mount { .. }));
    }
    wait_free();
    {
        // What the kubelet does for a Block volume: a bind of the node, and a loop device over that.
        let map = elsewhere.path().join("volumeDevices/local-pv-1");
        fs::create_dir_all(&map).unwrap();
        let node = map.join("0b8f-pod");
        File::create(&node).unwrap();
        let _bind = Mounted::bind(&disk.node, &node);
        wait(&|user| matches!(user, User::DeviceNode { .. }));
        let lock = Loop::over(&node, &[]);
        let name = lock.name();
        wait(&|user| matches!(user, User::Loop { name: n, .. } if *n == name));
    }
    wait_free();
    {
        let _reader = Holder::run("exec 3<\"$0\"", &disk.node);
        wait(&|user| matches!(user, User::Open { by, .. } if by == "fd/3"));
    }
    wait_free();
    {
        let swap = Swap::on(&disk);
        wait(&|user| matches!(user, User::Swap(_)));
        drop(swap);
    }
    wait_free();
}
