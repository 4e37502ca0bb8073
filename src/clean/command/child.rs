//! The child process: its own process group, its output always drained, never outliving its end.

use std::io::{PipeReader, Read};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use crate::clean::progress::Control;
use crate::volume::{Reason, Refusal};

/// The variable that upstream's scripts read (contract DEL-12).
const DEVICE_VARIABLE: &str = "LOCAL_PV_BLKDEVICE";
/// How long a program may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(5);
/// How long output is still read after the program ended: a process that left its group may keep the
/// pipe open for ever.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How much of the end of the output goes into a refusal.
const TAIL_BYTES: usize = 4096;
/// How long one wait lasts at most, and so the answer to a cancel.
const TICK_MILLIS: u8 = 100;

/// Runs `program` to its end, which must be success.
pub(super) fn run(
    program: &[String],
    device: &Path,
    deadline: Duration,
    control: &Control<'_>,
) -> Result<(), Refusal> {
    let Some((file, arguments)) = program.split_first() else {
        return Err(wipe_failed("the cleaner command is empty"));
    };
    let start = |error| wipe_failed(format!("can't start {file}: {error}"));
    let (output, writer) = std::io::pipe().map_err(start)?;
    let mut command = Command::new(file);
    command
        .args(arguments)
        .env(DEVICE_VARIABLE, device)
        .stdin(Stdio::null())
        .stdout(writer.try_clone().map_err(start)?)
        .stderr(writer)
        .process_group(0);
    let child = command.spawn().map_err(start)?;
    // It holds our copies of the pipe's writing end.
    drop(command);
    let mut group = Group::new(child, output)?;
    let ended = group.supervise(deadline, control);
    let status = group.end();
    ended?;
    let status = status.map_err(|error| wipe_failed(format!("can't wait for {file}: {error}")))?;
    if status.success() {
        return Ok(());
    }
    Err(wipe_failed(format!(
        "{file} ended with {}{}",
        describe(status),
        group.tail.as_sentence()
    )))
}

fn wipe_failed(detail: impl Into<String>) -> Refusal {
    Refusal::new(Reason::WipeFailed, detail)
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}

/// A running program with all that it started, as long as that stays in its process group.
struct Group {
    child: Child,
    pid: Pid,
    /// `None` at the end of the output.
    output: Option<PipeReader>,
    tail: Tail,
    is_reaped: bool,
}

impl Group {
    fn new(mut child: Child, output: PipeReader) -> Result<Self, Refusal> {
        match i32::try_from(child.id()) {
            Ok(pid) => Ok(Self {
                child,
                pid: Pid::from_raw(pid),
                output: Some(output),
                tail: Tail::default(),
                is_reaped: false,
            }),
            Err(_) => {
                drop(child.kill());
                Err(wipe_failed("the program's process id is out of range"))
            }
        }
    }

    /// Waits until the program ended by itself, or was ended because of the deadline or a cancel.
    fn supervise(&mut self, deadline: Duration, control: &Control<'_>) -> Result<(), Refusal> {
        let start = Instant::now();
        let stop = loop {
            self.drain_once()?;
            if self.has_ended()? {
                return Ok(());
            }
            control.go_on()?;
            if start.elapsed() >= deadline {
                break wipe_failed(format!(
                    "the cleaner was stopped after {} s{}",
                    deadline.as_secs(),
                    self.tail.as_sentence()
                ));
            }
        };
        Err(stop)
    }

    /// Ends whatever still runs and reaps the program.
    fn end(&mut self) -> std::io::Result<ExitStatus> {
        let asked = Instant::now();
        let mut ended = matches!(self.has_ended(), Ok(true));
        if !ended {
            self.signal(Signal::SIGTERM);
            while !ended && asked.elapsed() < GRACE {
                if self.drain_once().is_err() {
                    break;
                }
                ended = matches!(self.has_ended(), Ok(true));
            }
        }
        // Also after a good end: nothing that it left behind may write to the device from here on.
        // The leader is not reaped yet, so the group's number can't be somebody else's.
        self.signal(Signal::SIGKILL);
        let last = Instant::now();
        while self.output.is_some() && last.elapsed() < LAST_WORDS {
            if self.drain_once().is_err() {
                break;
            }
        }
        let status = self.child.wait();
        self.is_reaped = true;
        status
    }

    fn signal(&self, signal: Signal) {
        // ESRCH: all of it ended already.
        let _ = killpg(self.pid, signal);
    }

    /// Whether the program ended; it stays unreaped.
    fn has_ended(&self) -> Result<bool, Refusal> {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        match waitid(Id::Pid(self.pid), flags) {
            Ok(WaitStatus::StillAlive) | Err(Errno::EINTR) => Ok(false),
            Ok(_) => Ok(true),
            Err(errno) => Err(wipe_failed(format!("can't wait for the cleaner: {errno}"))),
        }
    }

    /// Waits at most a tick for output and takes what is there.
    fn drain_once(&mut self) -> Result<(), Refusal> {
        let failed = |errno| wipe_failed(format!("can't read the cleaner's output: {errno}"));
        let timeout = PollTimeout::from(TICK_MILLIS);
        let Some(output) = &mut self.output else {
            return match poll(&mut [], timeout) {
                Ok(_) | Err(Errno::EINTR) => Ok(()),
                Err(errno) => Err(failed(errno)),
            };
        };
        let mut waiting = [PollFd::new(output.as_fd(), PollFlags::POLLIN)];
        match poll(&mut waiting, timeout) {
            Ok(0) | Err(Errno::EINTR) => return Ok(()),
            Ok(_) => {}
            Err(errno) => return Err(failed(errno)),
        }
        let mut piece = [0; 65_536];
        match output.read(&mut piece) {
            Ok(0) => self.output = None,
            Ok(bytes) => self.tail.push(&piece[..bytes]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => self.output = None,
        }
        Ok(())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.is_reaped {
            self.signal(Signal::SIGKILL);
            drop(self.child.wait());
        }
    }
}

/// The end of an output of any length.
#[derive(Default)]
struct Tail(Vec<u8>);

impl Tail {
    fn push(&mut self, piece: &[u8]) {
        self.0.extend_from_slice(piece);
        let extra = self.0.len().saturating_sub(TAIL_BYTES);
        self.0.drain(..extra);
    }

    fn as_sentence(&self) -> String {
        let text = String::from_utf8_lossy(&self.0);
        match text.trim() {
            "" => String::new(),
            text => format!("; its last words: {text}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_for(script: &str, deadline: Duration) -> Result<(), Refusal> {
        let words = ["/bin/sh", "-c", script].map(String::from);
        let control = Control {
            cancel: &std::sync::atomic::AtomicBool::new(false),
            progress: &|_| {},
            checkpoint: &|_| {},
        };
        run(&words, Path::new("/dev/x"), deadline, &control)
    }

    #[test]
    fn a_program_past_its_deadline_is_stopped() {
        let refusal =
            run_for("echo busy; exec sleep 1000", Duration::from_millis(300)).unwrap_err();
        assert_eq!(refusal.reason, Reason::WipeFailed);
        assert!(refusal.detail.ends_with("last words: busy"), "{refusal}");
    }

    #[test]
    fn a_program_that_closes_its_output_is_waited_for() {
        let limit = Duration::from_secs(60);
        assert_eq!(run_for("exec >&- 2>&-; sleep 0.3", limit), Ok(()));
        let refusal = run_for("exec >&- 2>&-; sleep 0.3; exit 2", limit).unwrap_err();
        assert!(refusal.detail.contains("exit code 2"), "{refusal}");
    }

    #[test]
    fn cfg_44_a_program_learns_its_device_and_has_our_environment() {
        let limit = Duration::from_secs(60);
        let path = std::env::var("PATH").expect("there is a PATH");
        let script = format!("test $LOCAL_PV_BLKDEVICE = /dev/x && test \"$PATH\" = '{path}'");
        assert_eq!(run_for(&script, limit), Ok(()));
    }

    #[test]
    fn a_tail_keeps_the_end() {
        let mut tail = Tail::default();
        tail.push(&[b'a'; 3 * TAIL_BYTES]);
        tail.push(b"end");
        assert_eq!(tail.0.len(), TAIL_BYTES);
        assert!(tail.as_sentence().ends_with("aend"));
        assert_eq!(Tail::default().as_sentence(), "");
    }
}
