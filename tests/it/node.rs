//! The kernel's side on real mounts and devices. Needs root; see `tests/runner.sh`.

#![expect(
    clippy::unwrap_used,
    reason = "what a test can't do without fails it by a panic"
)]

mod inspect;
mod usage;
mod watch;
