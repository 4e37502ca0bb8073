//! Provisor offers a node's local disks as PersistentVolumes and wipes them when they are released.

pub mod clean;
pub mod cluster;
pub mod config;
pub mod node;
pub mod plan;
pub mod pv;
pub mod serve;
pub mod sys;
pub mod volume;
