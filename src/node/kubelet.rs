//! What the kubelet sees: a PersistentVolume names a path in the kubelet's mount namespace, not in
//! ours, and what we found may be there, may be missing, or may be something else.
//!
//! With `hostPID` the kubelet's own root directory can be looked into. Without it nothing is known,
//! and nothing is refused for it.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use nix::errno::Errno;

use crate::sys::files::{self, Kind, Stat};
use crate::volume::{Reason, Refusal};

/// Names of processes that are or contain a kubelet: the kubelet itself, k3s and MicroK8s.
const KUBELETS: &[&str] = &["kubelet", "k3s-server", "k3s-agent", "kubelite"];
/// Flags by which a kubelet is told its node's name.
const NAME_FLAGS: &[&str] = &["--hostname-override", "--node-name"];

/// A way to look at paths as the kubelet does.
#[derive(Debug)]
pub struct KubeletView {
    node: Option<String>,
    last: Mutex<Option<Look>>,
}

/// What the last search among all processes found.
#[derive(Clone, Copy, Debug)]
struct Look {
    process: u32,
    at: Instant,
}

/// A search reads two files of each process, of which a node has a thousand. For so long what it found is
/// only looked at again: another kubelet does not start beside the first. Where none is found, there are few
/// processes to be seen, and they are searched each time.
const TRUSTED: Duration = Duration::from_secs(10);

impl KubeletView {
    /// Looks through the eyes of the kubelet of this node, whenever it can be found.
    pub fn detect(node_name: impl Into<String>) -> Self {
        Self {
            node: Some(node_name.into()),
            last: Mutex::new(None),
        }
    }

    /// Never looks, and never refuses.
    pub fn off() -> Self {
        Self {
            node: None,
            last: Mutex::new(None),
        }
    }

    /// The kubelet's process, when exactly one fits.
    pub fn process(&self) -> Option<u32> {
        let node = self.node.as_deref()?;
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let still = last.filter(|look| match claim_of(look.process, node) {
            Some(Claim::Named) => true,
            Some(Claim::Silent) => look.at.elapsed() < TRUSTED,
            None => false,
        });
        let search = || {
            let process = choose(&candidates(node))?;
            let at = Instant::now();
            Some(Look { process, at })
        };
        *last = still.or_else(search);
        last.map(|look| look.process)
    }

    /// The kubelet's root directory at this moment.
    pub(crate) fn root(&self) -> Option<KubeletRoot> {
        let pid = self.process()?;
        files::root_of(pid).ok().map(|root| KubeletRoot { root })
    }
}

/// How well a process fits a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Claim {
    /// It does not say whose kubelet it is.
    Silent,
    /// It says that it is the kubelet of this node.
    Named,
}

fn candidates(node: &str) -> Vec<(u32, Claim)> {
    super::usage::pids()
        .filter_map(|pid| Some((pid, claim_of(pid, node)?)))
        .collect()
}

fn claim_of(pid: u32, node: &str) -> Option<Claim> {
    let comm = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    if !KUBELETS.contains(&comm.trim_end()) {
        return None;
    }
    claim(&fs::read(format!("/proc/{pid}/cmdline")).ok()?, node)
}

fn claim(cmdline: &[u8], node: &str) -> Option<Claim> {
    let words: Vec<&[u8]> = cmdline.split(|b| *b == 0).collect();
    let value = words.iter().enumerate().find_map(|(i, word)| {
        NAME_FLAGS
            .iter()
            .find_map(|flag| match word.strip_prefix(flag.as_bytes())? {
                [] => words.get(i + 1).copied(),
                [b'=', value @ ..] => Some(value),
                _ => None,
            })
    });
    match value {
        None => Some(Claim::Silent),
        Some(value) if value == node.as_bytes() => Some(Claim::Named),
        Some(_) => None,
    }
}

/// The one that names the node; else the only one that is silent. Two silent ones can't be told apart.
fn choose(candidates: &[(u32, Claim)]) -> Option<u32> {
    let best = candidates.iter().map(|(_, claim)| *claim).max()?;
    let mut fits = candidates.iter().filter(|(_, claim)| *claim == best);
    match (fits.next(), fits.next()) {
        (Some((pid, _)), None) => Some(*pid),
        (Some((pid, _)), Some(_)) if best == Claim::Named => Some(*pid),
        _ => None,
    }
}

/// The kubelet's root directory, open for one scan.
#[derive(Debug)]
pub(crate) struct KubeletRoot {
    root: OwnedFd,
}

impl KubeletRoot {
    /// Whether the kubelet finds at `host_path` the very object that we found.
    pub(crate) fn check(&self, host_path: &str, ours: &Stat) -> Result<(), Refusal> {
        let refuse = |detail: String| Err(Refusal::new(Reason::NotOnHost, detail));
        let theirs = files::peek_in_root(self.root.as_fd(), Path::new(host_path))
            .and_then(|fd| files::stat(fd.as_fd()));
        match theirs {
            Ok(theirs) if is_same(&theirs, ours) => Ok(()),
            Ok(theirs) if theirs.kind == ours.kind => refuse(format!(
                "the kubelet sees another {} at {host_path}; make hostDir and mountDir the same \
                 directory of the host and mount it with mountPropagation: HostToContainer",
                noun(ours.kind)
            )),
            Ok(theirs) => refuse(format!(
                "the kubelet sees a {} at {host_path} where we see a {}; make hostDir and mountDir \
                 the same directory of the host",
                noun(theirs.kind),
                noun(ours.kind)
            )),
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => refuse(format!(
                "the kubelet finds nothing at {host_path}; make hostDir the path that the host has \
                 for mountDir, or repair the link on the host"
            )),
            Err(errno) => refuse(format!("the kubelet can't reach {host_path}: {errno}")),
        }
    }
}

fn is_same(theirs: &Stat, ours: &Stat) -> bool {
    theirs.kind == ours.kind
        && match ours.kind {
            Kind::BlockDevice => theirs.rdev == ours.rdev,
            _ => theirs.device == ours.device && theirs.inode == ours.inode,
        }
}

/// A kind of object in words.
pub(crate) fn noun(kind: Kind) -> &'static str {
    match kind {
        Kind::Directory => "directory",
        Kind::BlockDevice => "block device",
        Kind::CharDevice => "character device",
        Kind::Symlink => "symbolic link",
        Kind::File => "regular file",
        Kind::Fifo => "FIFO",
        Kind::Socket => "socket",
        Kind::Unknown => "thing of an unknown kind",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(b"/usr/bin/kubelet\0--v=2\0", Some(Claim::Silent))]
    #[case(b"kubelet\0--hostname-override=n1\0", Some(Claim::Named))]
    #[case(b"kubelet\0--hostname-override\0n1\0", Some(Claim::Named))]
    #[case(b"kubelet\0--hostname-override=n10\0", None)]
    #[case(b"kubelet\0--hostname-override\0n2\0", None)]
    #[case(b"k3s\0agent\0--node-name\0n1\0", Some(Claim::Named))]
    #[case(b"kubelet\0--hostname-override-x=n2\0", Some(Claim::Silent))]
    fn a_kubelet_tells_whose_it_is(#[case] cmdline: &[u8], #[case] want: Option<Claim>) {
        assert_eq!(claim(cmdline, "n1"), want);
    }

    #[test]
    fn an_ambiguous_kubelet_is_none() {
        use Claim::{Named, Silent};
        assert_eq!(choose(&[]), None);
        assert_eq!(choose(&[(5, Silent)]), Some(5));
        assert_eq!(choose(&[(5, Silent), (6, Silent)]), None);
        assert_eq!(choose(&[(5, Silent), (6, Named), (7, Silent)]), Some(6));
    }

    #[test]
    fn a_view_that_is_off_sees_nothing() {
        assert!(KubeletView::off().root().is_none());
    }
}
