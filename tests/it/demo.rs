//! `cargo run --example demo`, as a newcomer runs it: it works, it says so, and nothing of it stays.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};

use crate::support::disks::Mounted;
use crate::support::nap;

/// Longer than it takes by far, on a machine that is busy.
const LIMIT: Duration = Duration::from_secs(100);

/// The binary that cargo has built beside this test.
fn binary() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its binary");
    let deps = test.parent().expect("it is in a directory");
    let profile = deps.parent().expect("it is in target/<profile>/deps");
    let demo = profile.join("examples/demo");
    assert!(
        demo.exists(),
        "{} is not built: cargo build --examples",
        demo.display()
    );
    demo
}

/// The demo, with its temporary directory in `dir`, without colours that the terminal asks for.
fn demo(dir: &Path) -> Command {
    let mut command = Command::new(binary());
    command
        .env("TMPDIR", dir)
        .env_remove("RUST_LOG")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs it to its end, and says what it printed: standard output, then standard error.
fn finish(mut command: Command) -> (Output, String, String) {
    let mut child = command.spawn().expect("the demo starts");
    let begun = Instant::now();
    while child.try_wait().expect("it is our child").is_none() {
        if begun.elapsed() > LIMIT {
            // So that what it printed is seen.
            child.kill().expect("it is our child");
        }
        nap();
    }
    let output = child.wait_with_output().expect("it is our child");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    (output, out, err)
}

/// Neither files, nor mounts, nor loop devices of what ran in `dir` are left.
fn assert_nothing_stays(dir: &Path) {
    let left: Vec<_> = fs::read_dir(dir)
        .expect("readable")
        .flatten()
        .map(|e| e.path())
        .collect();
    assert!(left.is_empty(), "{left:?}");
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("readable");
    assert!(!mounts.contains("provisor-demo-"), "{mounts}");
    for device in fs::read_dir("/sys/block").expect("readable").flatten() {
        let file = fs::read_to_string(device.path().join("loop/backing_file")).unwrap_or_default();
        assert!(
            !file.starts_with(&*dir.to_string_lossy()),
            "{:?}: {file}",
            device.path()
        );
    }
}

#[test]
fn the_demo_shows_a_whole_life_and_leaves_nothing() {
    assert!(geteuid().is_root(), "needs root, as all of these tests");
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (output, out, err) = finish(demo(dir.path()));
    assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
    assert_eq!(
        err, "",
        "nothing but its story, and that on standard output"
    );
    assert!(!out.contains('\x1b'), "no colours when nobody looks: {out}");

    // Each of these begins a line after the time, in this order.
    let steps = [
        "daemon ready",
        "mounted",
        "offered",
        "claimed",
        "written",
        "released",
        "refused",
        "looked",
        "let go",
        "wiped",
        "offered again",
        "verified",
        "claimed",
        "written",
        "released",
        "wiped",
        "offered again",
        "verified",
        "made",
        "refused",
        "/status",
        "linked",
        "offered",
        "claimed",
        "written",
        "released",
        "refused",
        "looked",
        "let go",
        "wiped",
        "offered again",
        "verified",
        "stopped",
        "done",
    ];
    let mut lines = out.lines();
    for step in steps {
        assert!(
            lines.any(|line| line.get(14..).is_some_and(|l| l.starts_with(step))),
            "{step}: {out}"
        );
    }
    for words in ["InUse", "NotMounted", "the directory is empty", "are zero"] {
        assert!(out.contains(words), "{words}: {out}");
    }
    assert_nothing_stays(dir.path());
}

#[test]
fn a_demo_that_can_not_write_fails_with_the_reason() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    // Its own directory fits, and little more.
    let full = Mounted::tmpfs_of(dir.path(), "16k,nr_inodes=4");
    let (output, out, err) = finish(demo(full.point()));
    assert!(!output.status.success(), "{out}");
    assert!(
        err.contains("The demo failed: ") && err.contains("No space left"),
        "{out}\n{err}"
    );
    assert_nothing_stays(dir.path());
}

#[test]
fn a_demo_that_is_interrupted_leaves_nothing() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let child = demo(dir.path()).spawn().expect("the demo starts");
    let begun = Instant::now();
    // Amid its story: the disk is mounted and the daemon runs.
    while !fs::read_dir(dir.path())
        .expect("readable")
        .flatten()
        .any(|e| e.path().join("pods").exists())
    {
        assert!(begun.elapsed() < LIMIT, "it does not get anywhere");
        nap();
    }
    let pid = i32::try_from(child.id()).expect("a pid is an i32");
    kill(Pid::from_raw(pid), Signal::SIGINT).expect("it is our child");
    let output = child.wait_with_output().expect("it is our child");
    assert!(!output.status.success());
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(err.contains("stopped by"), "{err}");
    assert_nothing_stays(dir.path());
}
