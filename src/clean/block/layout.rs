//! Where things are on a device: pure arithmetic.

use crate::clean::progress::CHECKPOINT_BYTES;

/// One step between two looks at the cancel flag. Large enough to cost nothing.
pub(super) const STEP_BYTES: u64 = 64 * MIB;
/// What is read back at each sampled place.
pub(super) const SAMPLE_BYTES: u64 = 4096;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Superblocks, partition tables and labels at both ends: ext, xfs, LVM, LUKS, md, GPT, ZFS.
const ENDS_BYTES: u64 = 16 * MIB;
/// Around the mirrors of the btrfs superblock, from which a btrfs can still be mounted.
const MIRROR_MARGIN: u64 = 64 << 10;
const MIRRORS: [u64; 2] = [64 * MIB, 256 * GIB];

/// The ranges, as offset and length, in which anything is that others recognise a device by.
pub(super) fn signature_areas(size: u64) -> Vec<(u64, u64)> {
    let mut areas = Vec::new();
    let mut add = |from: u64, to: u64| {
        let to = to.min(size);
        if from < to {
            areas.push((from, to - from));
        }
    };
    add(0, ENDS_BYTES);
    for mirror in MIRRORS {
        add(mirror - MIRROR_MARGIN, mirror + MIRROR_MARGIN);
    }
    add(size.saturating_sub(ENDS_BYTES), size);
    areas
}

/// Where to go on: one checkpoint before what was recorded, as the record may be torn, at a step's
/// start; from the start if the record is impossible.
pub(super) fn resume_point(resume_at: u64, total: u64) -> u64 {
    if resume_at > total {
        return 0;
    }
    let back = resume_at.saturating_sub(CHECKPOINT_BYTES);
    back - back % STEP_BYTES
}

/// The places that prove a wipe: first, last and one random block of each step, so that no skipped
/// step goes unnoticed; everything on a device of one step.
///
/// Each item is offset and length. `random` is asked once for each step.
pub(super) fn samples(
    size: u64,
    mut random: impl FnMut() -> u64,
) -> impl Iterator<Item = (u64, u64)> {
    let whole = size <= STEP_BYTES;
    (0..size.div_ceil(STEP_BYTES)).flat_map(move |step| {
        let start = step * STEP_BYTES;
        let length = STEP_BYTES.min(size - start);
        if whole || length <= 3 * SAMPLE_BYTES {
            return vec![(start, length)];
        }
        let middle = SAMPLE_BYTES * (random() % (length / SAMPLE_BYTES));
        vec![
            (start, SAMPLE_BYTES),
            (start + middle, SAMPLE_BYTES),
            (start + length - SAMPLE_BYTES, SAMPLE_BYTES),
        ]
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn signatures_of_devices_of_all_sizes() {
        assert_eq!(signature_areas(512), [(0, 512), (0, 512)]);
        let small = 64 * MIB + 512;
        assert_eq!(
            signature_areas(small),
            [
                (0, 16 * MIB),
                (64 * MIB - 65_536, 65_536 + 512),
                (48 * MIB + 512, 16 * MIB)
            ]
        );
        assert_eq!(signature_areas(257 * GIB).len(), 4);
        assert_eq!(signature_areas(0), []);
    }

    #[test]
    fn a_resume_steps_back() {
        let total = 10 * GIB;
        assert_eq!(resume_point(0, total), 0);
        assert_eq!(resume_point(GIB, total), 0);
        assert_eq!(resume_point(3 * GIB + 5, total), 2 * GIB);
        assert_eq!(resume_point(total, total), 9 * GIB);
        assert_eq!(resume_point(total + 1, total), 0);
    }

    proptest! {
        #[test]
        fn samples_are_inside_and_hit_each_step(sectors in 1_u64..4_000_000, seed: u64) {
            let size = sectors * 512;
            let mut next = seed;
            let all: Vec<_> = samples(size, || { next = next.wrapping_mul(6_364_136_223_846_793_005); next }).collect();
            for (offset, length) in &all {
                prop_assert!(*length > 0 && offset + length <= size);
                prop_assert!(offset % 512 == 0);
            }
            for step in 0..size.div_ceil(STEP_BYTES) {
                let start = step * STEP_BYTES;
                let end = (start + STEP_BYTES).min(size);
                prop_assert!(all.iter().any(|(offset, _)| *offset == start));
                prop_assert!(all.iter().any(|(offset, length)| offset + length == end));
            }
            if size <= STEP_BYTES {
                prop_assert_eq!(all, vec![(0, size)]);
            }
        }
    }
}
