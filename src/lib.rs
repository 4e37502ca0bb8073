//! Provisor offers a node's local disks as PersistentVolumes and wipes them when they are released.
//!
//! ```text
//!         kernel                                             API server
//!    inotify  mountinfo  uevents                        PVs  StorageClasses  Node
//!         \      |      /                                  \      |      /
//!        node::watch: "class C is dirty"                  cluster: watches
//!                |                                                |
//!        node::inspect -> Scan                            Pv, ClassFacts, NodeFacts
//!                 \                                              /
//!                  '---------------->  plan (pure)  <-----------'
//!                                         |
//!                Step: Offer, Adopt, Reclaim, LetGo, Withdraw, Untaint, Keep, Refuse
//!                                /                 \
//!              cluster: create, patch, delete     clean: guard, wipe, verify
//!                                \                 /
//!                       serve, Events: what happened and why
//! ```
//!
//! - [`volume`]: the words as types; knows nobody.
//! - [`config`]: the ConfigMap, read and checked. [`pv`]: the PersistentVolume, written and read.
//! - [`node`]: the kernel's side, read only. [`cluster`]: the API server's side.
//! - [`plan`]: every decision, without any I/O.
//! - [`clean`]: the only code that destroys, and only with a [`clean::Permit`].
//! - [`serve`]: metrics, health, status.
//! - [`sys`]: the only module with `unsafe`.
//! - [`commands`]: the command line; `commands::run` is where all of them meet.
//!
//! `node`, `cluster` and `clean` do not know each other; `cluster` counts its calls in the metrics of
//! `serve`. Nothing imports `commands`.

pub mod args;
pub mod clean;
pub mod cluster;
pub mod commands;
pub mod config;
pub mod error;
pub mod node;
pub mod plan;
pub mod pv;
pub mod serve;
pub mod sys;
pub mod volume;
