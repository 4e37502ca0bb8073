//! Provisor offers a node's local disks as PersistentVolumes and wipes them when they are released.

pub mod volume;
