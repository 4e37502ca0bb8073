//! Each kind on a sparse file: made by its own tool where that is at hand, else by its documented mark.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::process::Command;

use rstest::rstest;

use super::*;

fn disk(size: u64) -> tempfile::NamedTempFile {
    let disk = tempfile::NamedTempFile::new().unwrap();
    disk.as_file().set_len(size).unwrap();
    disk
}

fn found(disk: &File) -> Option<&'static str> {
    let size = disk.metadata().unwrap().len();
    content(disk.as_fd(), size).unwrap()
}

#[rstest]
#[case::nothing(0)]
#[case::a_sector(512)]
#[case::less_than_an_edge(300 * KIB)]
#[case::edges_that_overlap(MIB + 512)]
#[case::many_islands(300 << 30)]
fn zeros_are_empty(#[case] size: u64) {
    assert_eq!(found(disk(size).as_file()), None);
}

#[rstest]
#[case(&["mkfs.ext4", "-q", "-F"], "ext2, ext3 or ext4")]
#[case(&["mkfs.ext2", "-q", "-F"], "ext2, ext3 or ext4")]
#[case(&["mkfs.xfs", "-q", "-f"], "xfs")]
#[case(&["mkfs.btrfs", "-q", "-f"], "btrfs")]
#[case(&["mkswap"], "swap")]
#[case(&["sgdisk", "--new=1:0:0"], "a GPT")]
fn what_the_tools_make_is_known(#[case] tool: &[&str], #[case] want: &str) {
    let disk = disk(512 * MIB);
    let made = Command::new(tool[0])
        .args(&tool[1..])
        .arg(disk.path())
        .output()
        .unwrap_or_else(|error| panic!("{tool:?}: {error}; tests/deps.sh installs it"));
    assert!(made.status.success(), "{made:?}");
    assert_eq!(found(disk.as_file()), Some(want));
}

#[rstest]
#[case::btrfs("mkfs.btrfs", "btrfs")]
#[case::ext4("mkfs.ext4", "ext2, ext3 or ext4")]
#[case::gpt("sgdisk", "the second copy of a GPT")]
fn the_second_copy_is_found_when_the_beginning_was_wiped(#[case] tool: &str, #[case] want: &str) {
    let disk = disk(512 * MIB);
    let args: &[&str] = match tool {
        "sgdisk" => &["--new=1:0:0"],
        "mkfs.btrfs" => &["-q", "-f"],
        _ => &["-q", "-F"],
    };
    let made = Command::new(tool).args(args).arg(disk.path()).output();
    assert!(made.unwrap().status.success());
    disk.as_file().write_all_at(&vec![0; 1 << 20], 0).unwrap();
    assert_eq!(found(disk.as_file()), Some(want));
}

#[rstest]
#[case::luks(0, b"LUKS\xba\xbe", "LUKS")]
#[case::luks_second(0x4000, b"SKUL\xba\xbe", "LUKS")]
#[case::luks_second_far(4 * MIB, b"SKUL\xba\xbe", "LUKS")]
#[case::lvm(0x218, b"LVM2 001", "LVM2")]
#[case::md_1_1(0, b"\xfc\x4e\x2b\xa9", "an md RAID")]
#[case::md_1_2(4096, b"\xfc\x4e\x2b\xa9", "an md RAID")]
#[case::md_1_0(SIZE - SIZE % 4096 - 8192, b"\xfc\x4e\x2b\xa9", "an md RAID")]
#[case::md_0_90(SIZE - SIZE % 65_536 - 65_536, b"\xfc\x4e\x2b\xa9", "an md RAID")]
#[case::ceph(0, b"bluestore block device", "a Ceph OSD")]
#[case::bcache(0x1018, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca", "bcache")]
#[case::ntfs(3, b"NTFS    ", "ntfs")]
#[case::fat(0x52, b"FAT32   ", "vfat")]
#[case::iso(0x8001, b"CD001", "iso9660")]
#[case::squashfs(0, b"hsqs", "squashfs")]
#[case::erofs(0x400, b"\xe2\xe1\xf5\xe0", "erofs")]
#[case::f2fs(0x400, b"\x10\x20\xf5\xf2", "f2fs")]
#[case::zfs_first(130 * KIB, b"\x0c\xb1\xba\0\0\0\0\0", "ZFS")]
#[case::zfs_last(SIZE - SIZE % (256 * KIB) - 4 * KIB, b"\0\0\0\0\0\xba\xb1\x0c", "ZFS")]
#[case::gpt_of_4k_sectors(4096, b"EFI PART", "a GPT")]
#[case::boot_sector(510, b"\x55\xaa", "a partition table or boot sector")]
#[case::anything(700 * KIB, b"?", "data that nothing identifies")]
#[case::the_last_byte(SIZE - 1, b"?", "data that nothing identifies")]
fn a_mark_is_known(#[case] offset: u64, #[case] mark: &[u8], #[case] want: &str) {
    let disk = disk(SIZE);
    disk.as_file().write_all_at(mark, offset).unwrap();
    assert_eq!(found(disk.as_file()), Some(want));
}

/// A size that is no multiple of what the last marks are aligned to.
const SIZE: u64 = 80 * MIB + 9 * KIB + 512;

#[test]
fn the_outer_is_named_and_not_what_is_in_it() {
    let disk = disk(SIZE);
    for (offset, mark) in [(510, &b"\x55\xaa"[..]), (3, b"NTFS    ")] {
        disk.as_file().write_all_at(mark, offset).unwrap();
    }
    assert_eq!(found(disk.as_file()), Some("ntfs"));
    let end = SIZE - SIZE % 4096 - 8192;
    disk.as_file()
        .write_all_at(b"\xfc\x4e\x2b\xa9", end)
        .unwrap();
    assert_eq!(found(disk.as_file()), Some("an md RAID"));
}

#[test]
fn what_can_not_be_read_is_an_error() {
    let disk = disk(MIB);
    assert!(
        content(disk.as_file().as_fd(), 2 * MIB).is_err(),
        "too short"
    );
    let directory = File::open("/").unwrap();
    assert!(content(directory.as_fd(), MIB).is_err());
}
