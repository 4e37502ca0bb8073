//! Volumes on real disks, as `clean` gets to see them, and a witness.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use nix::mount::MsFlags;
use nix::sys::statvfs::fstatvfs;
use provisor::clean::{Control, Live, Permit, Progress, Proof, Request, Witness, hold, wipe};
use provisor::config::{Class, Cleaner};
use provisor::pv::{Claim, FINALIZER, NodeFacts, Phase, Policy, Pv, node_label};
use provisor::volume::{
    ClassName, DevNum, DeviceIdentity, EntryName, FilesystemIdentity, Identity, Refusal, VolumeMode,
};
use tempfile::TempDir;

use super::disks::{Loop, Mounted, device_number, output};

/// Runs a program that must succeed; answers its output.
pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    output(Command::new(program).args(arguments))
}

/// Mounts a tmpfs with room for what the tests put there.
pub(crate) fn tmpfs(point: &Path) -> Mounted {
    Mounted::tmpfs_of(point, "50%")
}

fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap()
}

/// Tells what the kernel tells, and users as they are set.
#[derive(Default)]
pub(crate) struct Node {
    pub(crate) users: Mutex<Vec<String>>,
}

impl Witness for Node {
    fn identity_of_directory(&self, dir: BorrowedFd<'_>) -> Result<FilesystemIdentity, Refusal> {
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", dir.as_raw_fd())).unwrap();
        let id = info
            .lines()
            .find_map(|line| line.strip_prefix("mnt_id:"))
            .unwrap()
            .trim();
        let table = fs::read("/proc/self/mountinfo").unwrap();
        let table = String::from_utf8_lossy(&table);
        let line = table
            .lines()
            .find(|line| line.split(' ').next() == Some(id))
            .expect("the mount is in the table");
        let fields: Vec<_> = line.split(' ').collect();
        let dash = fields.iter().position(|field| *field == "-").unwrap();
        Ok(FilesystemIdentity {
            fs_type: fields[dash + 1].into(),
            // Made of the UUID, also on a tmpfs, which gets a new one at each mount.
            uuid: Some(format!("{:x}", fstatvfs(dir).unwrap().filesystem_id())),
            root: fields[3].into(),
            device: fields[2].parse().unwrap(),
            boot: boot(),
        })
    }

    fn identity_of_device(&self, number: DevNum) -> Result<DeviceIdentity, Refusal> {
        let read = |name: &str| -> u64 {
            let path = format!("/sys/dev/block/{number}/{name}");
            fs::read_to_string(path).unwrap().trim().parse().unwrap()
        };
        Ok(DeviceIdentity {
            wwn: None,
            serial: None,
            partition: None,
            partition_uuid: None,
            size_bytes: read("size") * 512,
            device: number,
            diskseq: Some(read("diskseq")),
            boot: boot(),
        })
    }

    fn users(
        &self,
        _: &Identity,
        _: &Class,
        _: &EntryName,
        _: &str,
    ) -> Result<Vec<String>, Refusal> {
        Ok(self.users.lock().unwrap().clone())
    }
}

/// A class with one entry, offered and released.
pub(crate) struct Volume {
    pub(crate) node: Node,
    pub(crate) request: Request,
    pub(crate) pv: Pv,
    /// Where the entry is.
    pub(crate) path: PathBuf,
    /// The class's directory.
    pub(crate) dir: TempDir,
}

impl Volume {
    /// A released volume whose entry `make` makes.
    fn offered(mode: VolumeMode, make: impl FnOnce(&Path), node: Node) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vol1");
        make(&path);
        let recorded = match mode {
            VolumeMode::Filesystem => {
                use std::os::fd::AsFd;
                let root = fs::File::open(&path).unwrap();
                Identity::Filesystem(node.identity_of_directory(root.as_fd()).unwrap())
            }
            VolumeMode::Block => {
                Identity::Device(node.identity_of_device(device_number(&path)).unwrap())
            }
        };
        let class = Class {
            volume_mode: mode,
            ..Class::new(
                ClassName::new("fast"),
                "/mnt/disks".into(),
                dir.path().into(),
            )
        };
        let pv = Pv {
            name: "local-pv-1".into(),
            uid: "uid-1".into(),
            resource_version: "7".into(),
            deleting: false,
            finalizers: vec![FINALIZER.into()],
            node_label: Some(node_label("node-1")),
            provisioned_by: None,
            class: class.name.clone(),
            path: Some("/mnt/disks/vol1".into()),
            mode,
            policy: Policy::Delete,
            capacity: "1Gi".into(),
            hostnames: vec!["host-1".into()],
            phase: Phase::Released,
            claim: Some(Claim {
                namespace: "default".into(),
                name: "data".into(),
                uid: Some("claim-1".into()),
            }),
            identity: Some(recorded.clone()),
            cleaning: None,
        };
        let request = Request {
            pv: pv.name.clone(),
            uid: pv.uid.clone(),
            claim_uid: Some("claim-1".into()),
            node: NodeFacts {
                name: "node-1".into(),
                uid: "n".into(),
                hostname: Some("host-1".into()),
                labels: BTreeMap::new(),
                taints: None,
            },
            class,
            entry: EntryName::parse("vol1".as_ref()).unwrap(),
            recorded,
        };
        Self {
            node,
            request,
            pv,
            path,
            dir,
        }
    }

    /// A volume at which `make` mounts something.
    pub(crate) fn mounted(make: impl FnOnce(&Path) -> Mounted) -> (Self, Mounted) {
        let mut mount = None;
        let make = |path: &Path| {
            fs::create_dir(path).unwrap();
            mount = Some(make(path));
        };
        let volume = Self::offered(VolumeMode::Filesystem, make, Node::default());
        (volume, mount.unwrap())
    }

    /// A volume that is a link to a loop device.
    pub(crate) fn linked(disk: &Loop) -> Self {
        let make = |path: &Path| std::os::unix::fs::symlink(&disk.node, path).unwrap();
        Self::offered(VolumeMode::Block, make, Node::default())
    }

    /// A volume that is a device node of its own.
    pub(crate) fn node(disk: &Loop) -> Self {
        use nix::sys::stat::{Mode, SFlag, mknod};
        let number = disk.number().to_raw();
        let make = |path: &Path| mknod(path, SFlag::S_IFBLK, Mode::S_IRWXU, number).unwrap();
        Self::offered(VolumeMode::Block, make, Node::default())
    }

    /// The PersistentVolume as read right now.
    pub(crate) fn live(&self) -> Live {
        Live {
            pv: Some(self.pv.clone()),
            read_at: Instant::now(),
        }
    }

    pub(crate) fn permit(&self) -> Result<Permit, Refusal> {
        let held = hold(self.request.clone(), &self.node)?;
        held.permit(&self.live(), &self.node, Instant::now())
    }

    /// Wipes, which must succeed, with nobody watching.
    pub(crate) fn must_wipe(&self, plan: &Cleaner) -> Proof {
        self.wipe(plan)
            .unwrap_or_else(|refusal| panic!("{refusal}"))
    }

    /// Wipes with nobody watching.
    pub(crate) fn wipe(&self, plan: &Cleaner) -> Result<Proof, Refusal> {
        self.wipe_with(plan, 0, &AtomicBool::new(false), &|_| {}, &|_| {})
    }

    pub(crate) fn wipe_with(
        &self,
        plan: &Cleaner,
        resume_at: u64,
        cancel: &AtomicBool,
        progress: &(dyn Fn(Progress) + Sync),
        checkpoint: &(dyn Fn(u64) + Sync),
    ) -> Result<Proof, Refusal> {
        let control = Control {
            cancel,
            progress,
            checkpoint,
        };
        wipe(self.permit()?, plan, resume_at, &control)
    }

    /// Names in the volume.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(&self.path)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

/// A volume on a formatted loop device.
pub(crate) struct Formatted {
    pub(crate) mount: Mounted,
    /// Dropped after the mount, because its directory goes with it.
    pub(crate) volume: Volume,
    pub(crate) disk: Loop,
}

impl Formatted {
    pub(crate) fn new(fs_type: &str, size: u64) -> Self {
        let options: &[&str] = match fs_type {
            "ext4" => &["-q", "-F", "-N", "60000"],
            _ => &["-q", "-f"],
        };
        let disk = Loop::new(size);
        disk.format_as(fs_type, options);
        let (volume, mount) =
            Volume::mounted(|path| Mounted::device(&disk.node, path, fs_type, MsFlags::empty()));
        Self {
            volume,
            mount,
            disk,
        }
    }

    pub(crate) fn ext4() -> Self {
        Self::new("ext4", 256 << 20)
    }
}
