//! The kernel's side on real mounts and devices. Needs root; see `tests/runner.sh`.

mod empty;
mod inspect;
mod kubelet;
mod renames;
mod selfcheck;
mod udev;
mod usage;
mod watch;
