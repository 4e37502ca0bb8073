//! Provisor offers a node's local disks as PersistentVolumes and wipes them when they are released.

pub mod clean;
pub mod config;
pub mod plan;
pub mod pv;
pub mod sys;
pub mod volume;
