//! Integration tests: the daemon and its parts on real mounts and devices, against the stand-in API
//! server. The real cluster's tests are in `tests/real`.

mod life;
mod node;
mod scenarios;
mod standin;
mod support;
