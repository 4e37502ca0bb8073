//! Cleaner programs of the user's own.

use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use provisor::config::Cleaner;
use provisor::volume::{Reason, Refusal};

use super::rig::Volume;
use crate::support::disks::Loop;
use crate::support::wait_until;

const SIZE: u64 = 8 << 20;

/// A device full of data.
fn full() -> (Loop, Volume) {
    let disk = Loop::new(SIZE);
    let device = fs::OpenOptions::new().write(true).open(&disk.node).unwrap();
    device.write_all_at(&vec![0xa5; 8 << 20], 0).unwrap();
    device.sync_all().unwrap();
    let volume = Volume::linked(&disk);
    (disk, volume)
}

fn shell(script: &str) -> Cleaner {
    Cleaner::Command(["/bin/sh", "-c", script].map(String::from).to_vec())
}

fn refused(script: &str) -> Refusal {
    let (_disk, volume) = full();
    volume.wipe(&shell(script)).unwrap_err()
}

#[test]
fn a_program_that_wipes_is_believed() {
    let (disk, volume) = full();
    // It claims the device itself, and gets the path of the entry.
    let script = "test \"$LOCAL_PV_BLKDEVICE\" = \"$0\" || exit 7
        exec python3 -c 'import os,sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_EXCL)
os.write(fd, bytes(8 << 20)); os.fsync(fd)' \"$LOCAL_PV_BLKDEVICE\"";
    let mut words = vec!["/bin/sh".to_owned(), "-c".into(), script.into()];
    words.push(volume.path.to_str().unwrap().into());
    let proof = volume.must_wipe(&Cleaner::Command(words));
    assert_eq!(proof.bytes(), SIZE);
    assert!(proof.method().contains("/bin/sh"));
    assert!(fs::read(&disk.file).unwrap().iter().all(|byte| *byte == 0));
}

#[test]
fn a_program_that_does_nothing_is_not_believed() {
    let refusal = refused("exit 0");
    assert_eq!(refusal.reason, Reason::VerifyFailed, "{refusal}");
    assert!(refusal.detail.contains("left data in place"), "{refusal}");
    let half = refused("dd if=/dev/zero of=$LOCAL_PV_BLKDEVICE bs=1M count=4 conv=fsync,notrunc");
    assert_eq!(half.reason, Reason::VerifyFailed, "{half}");
}

#[test]
fn a_program_that_fails_or_is_missing_fails_the_wipe() {
    let refusal = refused("echo out; echo why >&2; exit 3");
    assert_eq!(refusal.reason, Reason::WipeFailed);
    assert!(refusal.detail.contains("exit code 3"), "{refusal}");
    assert!(refusal.detail.ends_with("out\nwhy"), "{refusal}");
    let killed = refused("kill -9 $$");
    assert!(killed.detail.contains("signal 9"), "{killed}");
    let (_disk, volume) = full();
    let missing = Cleaner::Command(vec!["/nowhere/wipe".into()]);
    let refusal = volume.wipe(&missing).unwrap_err();
    assert_eq!(refusal.reason, Reason::WipeFailed);
    assert!(refusal.detail.contains("/nowhere/wipe"), "{refusal}");
    volume.permit().unwrap();
}

#[test]
fn w16_a_line_of_10_mb_blocks_nobody() {
    let refusal = refused("head -c 10000000 /dev/zero | tr '\\0' x; echo end; exit 1");
    assert_eq!(refusal.reason, Reason::WipeFailed);
    assert!(refusal.detail.ends_with("xend"), "{}", refusal.detail.len());
    assert!(refusal.detail.len() < 5000);
}

#[test]
fn w17_a_program_that_hangs_is_ended_by_a_cancel() {
    let (_disk, volume) = full();
    let dir = tempfile::tempdir().unwrap();
    let (started, asked) = (dir.path().join("started"), dir.path().join("asked"));
    let script = format!(
        "trap 'touch {}; exit 0' TERM; touch {}; while :; do sleep 1000 & wait; done",
        asked.display(),
        started.display()
    );
    let cancel = AtomicBool::new(false);
    let start = Instant::now();
    let refusal = std::thread::scope(|scope| {
        scope.spawn(|| {
            wait_until("the program starts", || started.exists());
            cancel.store(true, Ordering::Relaxed);
        });
        volume
            .wipe_with(&shell(&script), 0, &cancel, &|_| {}, &|_| {})
            .unwrap_err()
    });
    assert_eq!(refusal.reason, Reason::Cancelled);
    assert!(asked.exists(), "it was asked to end before it was killed");
    assert!(start.elapsed() < Duration::from_secs(5));
    volume.permit().unwrap();
}

#[test]
fn a_program_that_ignores_the_request_to_end_is_killed() {
    let (_disk, volume) = full();
    let dir = tempfile::tempdir().unwrap();
    let started = dir.path().join("started");
    let script = format!(
        "trap '' TERM; echo $$ > {0}.new; mv {0}.new {0}; while :; do sleep 1000; done",
        started.display()
    );
    let cancel = AtomicBool::new(false);
    let refusal = std::thread::scope(|scope| {
        scope.spawn(|| {
            wait_until("the program starts", || started.exists());
            cancel.store(true, Ordering::Relaxed);
        });
        volume
            .wipe_with(&shell(&script), 0, &cancel, &|_| {}, &|_| {})
            .unwrap_err()
    });
    assert_eq!(refusal.reason, Reason::Cancelled);
    let pid = fs::read_to_string(&started).unwrap();
    assert!(!fs::exists(format!("/proc/{}", pid.trim())).unwrap());
}

#[test]
fn children_left_in_the_group_are_ended() {
    let (_disk, volume) = full();
    let dir = tempfile::tempdir().unwrap();
    let pid = dir.path().join("pid");
    let script = format!(
        "dd if=/dev/zero of=$LOCAL_PV_BLKDEVICE bs=1M count=8 conv=fsync,notrunc
         sleep 1000 & echo $! > {}",
        pid.display()
    );
    let start = Instant::now();
    let _ = volume.must_wipe(&shell(&script));
    assert!(start.elapsed() < Duration::from_secs(5));
    let pid = fs::read_to_string(&pid).unwrap();
    let state = format!("/proc/{}/stat", pid.trim());
    // Dead; perhaps nobody reaped it yet.
    wait_until("the child is dead", || {
        fs::read_to_string(&state).map_or(true, |stat| stat.contains(") Z "))
    });
}

#[test]
fn a_process_that_leaves_the_group_with_the_device_open_is_found() {
    let (_disk, volume) = full();
    let dir = tempfile::tempdir().unwrap();
    let pid = dir.path().join("pid");
    let script = format!(
        "dd if=/dev/zero of=$LOCAL_PV_BLKDEVICE bs=1M count=8 conv=fsync,notrunc
         setsid sh -c 'echo $$ > {0}.new; mv {0}.new {0}; exec sleep 1000' 9<>$LOCAL_PV_BLKDEVICE &
         until test -e {0}; do :; done",
        pid.display()
    );
    let result = volume.wipe(&shell(&script));
    let pid: i32 = fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
    let process = nix::unistd::Pid::from_raw(pid);
    nix::sys::signal::kill(process, nix::sys::signal::Signal::SIGKILL).unwrap();
    let refusal = result.unwrap_err();
    assert_eq!(refusal.reason, Reason::InUse);
    assert!(
        refusal.detail.contains(&format!("process {pid} ")),
        "{refusal}"
    );
}

#[test]
fn a_program_that_keeps_the_claim_is_found() {
    let (_disk, volume) = full();
    let dir = tempfile::tempdir().unwrap();
    let pid = dir.path().join("pid");
    let code = "import os,sys,time; os.open(sys.argv[1], os.O_RDWR|os.O_EXCL); \
                open(sys.argv[2]+'.new','w').write(str(os.getpid())); \
                os.rename(sys.argv[2]+'.new', sys.argv[2]); time.sleep(1000)";
    let script = format!(
        "setsid python3 -c \"{code}\" $LOCAL_PV_BLKDEVICE {0} & until test -e {0}; do :; done",
        pid.display()
    );
    let result = volume.wipe(&shell(&script));
    let pid: i32 = fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
    let process = nix::unistd::Pid::from_raw(pid);
    nix::sys::signal::kill(process, nix::sys::signal::Signal::SIGKILL).unwrap();
    assert_eq!(result.unwrap_err().reason, Reason::InUse);
}
