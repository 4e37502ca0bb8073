//! Wipes of real filesystems and loop devices through the public interface.

mod command;
mod contents;
mod device;
mod guard;
mod hazards;
mod rig;

use crate::support::disks;
