//! Namespaces of the demo's own: mounts, processes and, without root, users.
//!
//! The process namespace is there because a wipe asks every process whether it uses the volume, and
//! a user may not look into everybody's. It takes effect for children only, hence the second start.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getegid, geteuid};
use tokio::signal::unix::{SignalKind, signal};

/// The first argument of the second start.
pub(crate) const INSIDE: &str = "--inside";

/// How long the demo may take to undo what it has made after a signal.
const UNDO_LIMIT: Duration = Duration::from_secs(30);

/// What we may do in our namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rights {
    /// Everything, loop devices too.
    Root,
    /// Only what the root of a user namespace may: tmpfs and bind mounts.
    User,
}

impl Rights {
    fn as_str(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::User => "user",
        }
    }

    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        match text {
            "root" => Ok(Self::Root),
            "user" => Ok(Self::User),
            _ => bail!("the demo takes no arguments"),
        }
    }
}

/// Puts the children of this process, which has one thread, into new namespaces.
pub(crate) fn enter() -> anyhow::Result<Rights> {
    let (user, group) = (geteuid(), getegid());
    if user.is_root() && unshare(CloneFlags::CLONE_NEWPID).is_ok() {
        return Ok(Rights::Root);
    }
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWPID).map_err(not_allowed)?;
    // Without "deny" a user may not map a group (user_namespaces(7)).
    let map = |file: &str, text: String| {
        fs::write(format!("/proc/self/{file}"), text)
            .with_context(|| format!("can't write the namespace's {file}"))
    };
    map("setgroups", "deny".into())?;
    map("uid_map", format!("0 {user} 1"))?;
    map("gid_map", format!("0 {group} 1"))?;
    Ok(Rights::User)
}

fn not_allowed(errno: Errno) -> anyhow::Error {
    anyhow!(
        "it needs a mount namespace of its own, and neither root's rights nor user namespaces are \
         to be had ({errno}). Run it as root, or allow user namespaces: \
         sysctl user.max_user_namespaces must not be 0, and on Ubuntu \
         kernel.apparmor_restrict_unprivileged_userns must be; a container needs --privileged"
    )
}

/// Starts this program again in the namespaces; its exit code. Signals reach it in any case, and this
/// process outlives it.
pub(crate) async fn run_inside(rights: Rights, dir: &Path) -> anyhow::Result<u8> {
    let listen = |kind| signal(kind).context("can't listen for signals");
    let mut terminate = listen(SignalKind::terminate())?;
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut hangup = listen(SignalKind::hangup())?;
    let program = std::env::current_exe().context("can't find this program")?;
    let mut child = tokio::process::Command::new(program)
        .args([INSIDE, rights.as_str()])
        .arg(dir)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| match error.raw_os_error() {
            Some(libc::EPERM) => not_allowed(Errno::EPERM),
            _ => anyhow::Error::new(error).context("can't start the demo in its namespaces"),
        })?;
    let status = tokio::select! {
        status = child.wait() => status,
        _ = terminate.recv() => end(&mut child).await,
        _ = interrupt.recv() => end(&mut child).await,
        _ = hangup.recv() => end(&mut child).await,
    };
    let status = status.context("can't wait for the demo")?;
    match status.code() {
        Some(code) => Ok(u8::try_from(code).unwrap_or(1)),
        None => bail!("it was killed ({status})"),
    }
}

/// Asks the child to end and waits for it.
async fn end(child: &mut tokio::process::Child) -> io::Result<std::process::ExitStatus> {
    if let Some(pid) = child.id().and_then(|id| i32::try_from(id).ok()) {
        // It may have ended by itself.
        let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
    }
    match tokio::time::timeout(UNDO_LIMIT, child.wait()).await {
        Ok(status) => status,
        Err(_) => {
            child.start_kill()?;
            child.wait().await
        }
    }
}

/// Within the new namespaces: mounts of our own, and a /proc that shows our processes only.
pub(crate) fn settle(rights: Rights) -> anyhow::Result<()> {
    set_pdeathsig(Signal::SIGTERM).context("can't bind its life to its parent's")?;
    unshare(CloneFlags::CLONE_NEWNS).map_err(not_allowed)?;
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    let nothing = None::<&str>;
    mount(nothing, "/", nothing, private, nothing).map_err(not_allowed)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("proc"), "/proc", Some("proc"), flags, nothing).map_err(|errno| match rights {
        Rights::Root => anyhow!("can't mount a /proc of its own: {errno}"),
        // The kernel refuses it where /proc is partly hidden, as in containers.
        Rights::User => not_allowed(errno),
    })
}
