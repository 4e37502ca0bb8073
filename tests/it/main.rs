//! Integration tests: the daemon and its parts on real mounts and devices, against the stand-in API
//! server, and in `real` the same against a real cluster.

mod life;
mod node;
mod real;
mod scenarios;
mod standin;
mod support;
