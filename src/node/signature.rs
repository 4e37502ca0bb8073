//! Whether a block device is empty, and what is on it if not.
//!
//! Looked at are the places where filesystems, volume managers and partition tables leave their marks,
//! their second copies included: a device whose beginning was wiped may still be brought back by those.
//! Empty means zeros in all of these places. A mark that is known gives what was found a name; what
//! has none is data all the same.

use std::io;
use std::os::fd::BorrowedFd;

use crate::sys::block::read_at;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Looked at from the start and from the end. Every first mark, and the last ones of md, ZFS, GPT and
/// the firmware RAIDs, are in there.
const EDGE: u64 = MIB;
/// Second copies elsewhere: headers of LUKS2, superblocks of btrfs and ext4.
const ISLANDS: [u64; 7] = [
    2 * MIB,
    4 * MIB,
    8 * MIB,
    64 * MIB,
    128 * MIB,
    384 * MIB,
    256 << 30,
];
/// How much of an island is looked at.
const ISLAND_BYTES: u64 = 4 * KIB;
/// Read at a time.
const PIECE_BYTES: usize = 64 << 10;

/// Where a mark is.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// So far from the start.
    At(u64),
    /// So far back from the end, which is first rounded down to a multiple of the second number.
    Back(u64, u64),
}

impl Place {
    fn offset(self, size: u64) -> Option<u64> {
        match self {
            Self::At(offset) => Some(offset),
            Self::Back(back, unit) => (size - size % unit).checked_sub(back),
        }
    }
}

use Place::{At, Back};

/// What is known by its mark. The outer comes before the inner: an md with its mark at the end has the
/// one of its filesystem at the start.
const MARKS: &[(&str, Place, &[u8])] = &[
    ("an md RAID", Back(64 * KIB, 64 * KIB), b"\xfc\x4e\x2b\xa9"),
    ("an md RAID", Back(64 * KIB, 64 * KIB), b"\xa9\x2b\x4e\xfc"),
    ("an md RAID", Back(8 * KIB, 4 * KIB), b"\xfc\x4e\x2b\xa9"),
    ("an md RAID", At(0), b"\xfc\x4e\x2b\xa9"),
    ("an md RAID", At(4 * KIB), b"\xfc\x4e\x2b\xa9"),
    (
        "an Intel firmware RAID",
        Back(KIB, 512),
        b"Intel Raid ISM Cfg Sig. ",
    ),
    ("a DDF firmware RAID", Back(512, 512), b"\xde\x11\xde\x11"),
    ("LVM2", At(0x18), b"LVM2 001"),
    ("LVM2", At(0x218), b"LVM2 001"),
    ("LVM2", At(0x418), b"LVM2 001"),
    ("LVM2", At(0x618), b"LVM2 001"),
    ("LUKS", At(0), b"LUKS\xba\xbe"),
    ("LUKS", At(0x4000), b"SKUL\xba\xbe"),
    ("LUKS", At(0x8000), b"SKUL\xba\xbe"),
    ("LUKS", At(0x1_0000), b"SKUL\xba\xbe"),
    ("LUKS", At(0x2_0000), b"SKUL\xba\xbe"),
    ("LUKS", At(0x4_0000), b"SKUL\xba\xbe"),
    ("LUKS", At(0x8_0000), b"SKUL\xba\xbe"),
    ("LUKS", At(2 * MIB), b"SKUL\xba\xbe"),
    ("LUKS", At(4 * MIB), b"SKUL\xba\xbe"),
    ("BitLocker", At(3), b"-FVE-FS-"),
    ("a Ceph OSD", At(0), b"bluestore block device"),
    ("bcache", At(0x1018), b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca"),
    ("bcachefs", At(0x1018), b"\xc6\x85\x73\xf6\x66\xce\x90\xa9"),
    ("btrfs", At(64 * KIB + 0x40), b"_BHRfS_M"),
    ("btrfs", At(64 * MIB + 0x40), b"_BHRfS_M"),
    ("btrfs", At((256 << 30) + 0x40), b"_BHRfS_M"),
    ("xfs", At(0), b"XFSB"),
    ("f2fs", At(0x400), b"\x10\x20\xf5\xf2"),
    ("erofs", At(0x400), b"\xe2\xe1\xf5\xe0"),
    ("squashfs", At(0), b"hsqs"),
    ("jfs", At(0x8000), b"JFS1"),
    ("reiserfs", At(0x1_0034), b"ReIsEr"),
    ("gfs2", At(0x1_0000), b"\x01\x16\x19\x70"),
    ("ext2, ext3 or ext4", At(0x438), b"\x53\xef"),
    ("ext2, ext3 or ext4", At(8 * MIB + KIB + 0x38), b"\x53\xef"),
    ("ext2, ext3 or ext4", At(128 * MIB + 0x38), b"\x53\xef"),
    ("ext2, ext3 or ext4", At(384 * MIB + 0x38), b"\x53\xef"),
    ("iso9660", At(0x8001), b"CD001"),
    ("udf", At(0x8001), b"BEA01"),
    // Ten bytes before the end of the first page, which has another size on other processors.
    ("swap", At(4 * KIB - 10), b"SWAPSPACE2"),
    ("swap", At(16 * KIB - 10), b"SWAPSPACE2"),
    ("swap", At(64 * KIB - 10), b"SWAPSPACE2"),
    ("a suspended system", At(4 * KIB - 10), b"S1SUSPEND"),
    ("ntfs", At(3), b"NTFS    "),
    ("exfat", At(3), b"EXFAT   "),
    ("vfat", At(0x52), b"FAT32   "),
    ("vfat", At(0x36), b"FAT16   "),
    ("vfat", At(0x36), b"FAT12   "),
    ("a GPT", At(512), b"EFI PART"),
    ("a GPT", At(4 * KIB), b"EFI PART"),
    ("the second copy of a GPT", Back(512, 512), b"EFI PART"),
    (
        "the second copy of a GPT",
        Back(4 * KIB, 4 * KIB),
        b"EFI PART",
    ),
];
const BOOT_SECTOR: (Place, &[u8]) = (At(510), b"\x55\xaa");

/// Starts of the four labels of ZFS, and the ring of uberblocks in each.
const ZFS_LABELS: [Place; 4] = [
    At(0),
    At(256 * KIB),
    Back(512 * KIB, 256 * KIB),
    Back(256 * KIB, 256 * KIB),
];
const ZFS_RING_START: u64 = 128 * KIB;
const ZFS_RING_BYTES: usize = 128 << 10;
/// The smallest uberblock; larger ones lie at multiples of it.
const ZFS_SLOT: usize = 1 << 10;
const ZFS_MAGIC: [[u8; 8]; 2] = [0x00ba_b10c_u64.to_le_bytes(), 0x00ba_b10c_u64.to_be_bytes()];

/// What is on the open device of `size` bytes, in words; `None` when it is empty.
///
/// # Errors
/// When a part of it can't be read.
pub(crate) fn content(device: BorrowedFd<'_>, size: u64) -> io::Result<Option<&'static str>> {
    let edge = EDGE.min(size);
    let islands = ISLANDS.map(|start| (start, ISLAND_BYTES));
    let places = [(0, edge), (size - edge, edge)].into_iter().chain(islands);
    for (start, length) in places {
        let end = size.min(start.saturating_add(length));
        if start < end && !is_zero(device, start, end)? {
            return name(device, size).map(Some);
        }
    }
    Ok(None)
}

fn is_zero(device: BorrowedFd<'_>, start: u64, end: u64) -> io::Result<bool> {
    let mut buffer = vec![0; PIECE_BYTES];
    let mut at = start;
    while at < end {
        let left = usize::try_from(end - at).unwrap_or(PIECE_BYTES);
        let piece = &mut buffer[..left.min(PIECE_BYTES)];
        read_at(device, piece, at)?;
        if piece.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        at += piece.len() as u64;
    }
    Ok(true)
}

/// The name of whatever is on a device that is not empty.
fn name(device: BorrowedFd<'_>, size: u64) -> io::Result<&'static str> {
    let read = |place: Place, length: usize| {
        let mut bytes = vec![0; length];
        match place.offset(size) {
            Some(at) if at.saturating_add(length as u64) <= size => {
                read_at(device, &mut bytes, at).map(|()| bytes)
            }
            // A device that is too small for it.
            _ => Ok(bytes),
        }
    };
    for (what, place, mark) in MARKS {
        if read(*place, mark.len())? == *mark {
            return Ok(what);
        }
    }
    for label in ZFS_LABELS {
        let Some(start) = label.offset(size) else {
            continue;
        };
        let ring = read(At(start + ZFS_RING_START), ZFS_RING_BYTES)?;
        let is_uberblock = |slot: &[u8]| ZFS_MAGIC.iter().any(|magic| slot.starts_with(magic));
        if ring.chunks(ZFS_SLOT).any(is_uberblock) {
            return Ok("ZFS");
        }
    }
    let (place, mark) = BOOT_SECTOR;
    Ok(match read(place, mark.len())? == mark {
        true => "a partition table or boot sector",
        false => "data that nothing identifies",
    })
}

#[cfg(test)]
mod tests;
