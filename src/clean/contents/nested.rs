//! Mounts inside a volume, by the kernel's own parent links and so without comparing any path.

use super::mounted_inside;
use crate::volume::{Reason, Refusal};

/// The mounts of this thread's mount namespace.
const TABLE: &str = "/proc/thread-self/mountinfo";

/// Refuses if any mount hangs below the mount with this id.
pub(super) fn refuse(mount: u64, place: &str) -> Result<(), Refusal> {
    let table = std::fs::read(TABLE).map_err(|error| {
        Refusal::new(
            Reason::WipeFailed,
            format!("can't tell whether something is mounted inside {place}: {TABLE}: {error}"),
        )
    })?;
    match below(&table, mount) {
        Some(point) => Err(mounted_inside(&String::from_utf8_lossy(point))),
        None => Ok(()),
    }
}

/// The mount point, as escaped in the table, of the first mount whose parent is `mount`.
fn below(table: &[u8], mount: u64) -> Option<&[u8]> {
    table.split(|byte| *byte == b'\n').find_map(|line| {
        // id, parent id, major:minor, root, mount point, ...
        let mut fields = line.split(|byte| *byte == b' ');
        let parent = std::str::from_utf8(fields.nth(1)?).ok()?;
        (parent.parse() == Ok(mount)).then(|| fields.nth(2))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &[u8] = b"\
22 1 254:0 / / rw - ext4 /dev/root rw\n\
30 22 7:0 / /mnt/v rw - ext4 /dev/loop0 rw\n\
31 30 0:40 / /mnt/v/a\\040b rw - tmpfs none rw\n\
32 22 7:1 / /mnt/v/looks-inside rw - ext4 /dev/loop1 rw\n";

    #[test]
    fn only_children_of_the_mount_count() {
        assert_eq!(below(SAMPLE, 30), Some(&b"/mnt/v/a\\040b"[..]));
        assert_eq!(below(SAMPLE, 31), None);
        assert_eq!(below(SAMPLE, 3), None);
        assert_eq!(below(b"", 30), None);
        assert_eq!(below(b"garbage\n1 30\n", 30), None);
    }

    #[test]
    fn the_root_mount_has_others_below() {
        let id = crate::sys::inode::mount_of(std::fs::File::open("/proc").unwrap())
            .unwrap()
            .id;
        assert_ne!(id, 0);
        assert!(refuse(u64::MAX, "/x").is_ok());
    }
}
