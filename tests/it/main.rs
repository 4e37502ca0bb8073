//! Integration tests: the daemon and its parts on real mounts and devices, against the stand-in API
//! server, and in `real` the same against a real cluster.

#[cfg(test)]
mod clean;
#[cfg(test)]
mod cluster_api;
#[cfg(test)]
mod command_line;
#[cfg(test)]
mod config_command;
#[cfg(test)]
mod demo;
#[cfg(test)]
mod life;
#[cfg(test)]
mod node;
#[cfg(test)]
mod observation;
#[cfg(test)]
mod real;
#[cfg(test)]
mod reload;
#[cfg(test)]
mod scenarios;
#[cfg(test)]
mod soak;
#[cfg(test)]
mod standin;
mod support;
#[cfg(test)]
mod taint;
