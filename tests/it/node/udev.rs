//! What udev recorded of a device, which is asked where the kernel tells less.

use std::fs;
use std::path::Path;

use nix::sched::{CloneFlags, unshare};
use provisor::node::identity::of_device;

use crate::support::disks::{Loop, Mounted};

#[test]
fn a_record_of_udev_is_joined_in() {
    let disks = [Loop::new(4 << 20), Loop::new(4 << 20)];
    let [told, untold] = disks.each_ref().map(Loop::number);
    // A thread with a /run of its own, which no other test sees.
    let look = move || {
        unshare(CloneFlags::CLONE_NEWNS).expect("root may");
        let _run = Mounted::tmpfs(Path::new("/run"));
        let records = Path::new("/run/udev/data");
        fs::create_dir_all(records).expect("the mount is ours");
        let record = "I:1\nE:ID_SERIAL=Disk_of_udev\nE:ID_WWN=0x5000c500a1b2c3d4\nV:1\n";
        fs::write(records.join(format!("b{told}")), record).expect("the mount is ours");
        [told, untold].map(|number| of_device(number).expect("it is a device").identity)
    };
    let [told, untold] = std::thread::spawn(look).join().expect("it looks");
    assert_eq!(told.serial.as_deref(), Some("Disk_of_udev"));
    assert_eq!(told.wwn.as_deref(), Some("5000c500a1b2c3d4"));
    assert_eq!((untold.serial, untold.wwn), (None, None));
}
