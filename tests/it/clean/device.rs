//! Zeroing loop devices.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nix::mount::MsFlags;
use provisor::clean::{CHECKPOINT_BYTES, Progress, hold};
use provisor::config::Cleaner;
use provisor::volume::Reason;

use super::rig::{Volume, run};
use crate::support::disks::{Loop, Mounted};
use crate::support::wait_until;

const MIB: u64 = 1 << 20;
const MARK: &[u8] = b"the tenant's secret";

/// Writes the mark at each offset of the device and has it reach the file behind.
fn mark(device: &Path, offsets: &[u64]) {
    let file = fs::OpenOptions::new().write(true).open(device).unwrap();
    for offset in offsets {
        file.write_all_at(MARK, *offset).unwrap();
    }
    file.sync_all().unwrap();
}

/// Where the first byte that is not zero is.
fn first_data(path: &Path) -> Option<u64> {
    let file = fs::File::open(path).unwrap();
    let size = fs::metadata(path).map(|data| data.len()).unwrap();
    let mut piece = vec![0; usize::try_from(MIB).unwrap()];
    let mut offset = 0;
    loop {
        let bytes = file.read_at(&mut piece, offset).unwrap();
        if bytes == 0 {
            assert!(size == 0 || offset == size);
            return None;
        }
        if let Some(at) = piece[..bytes].iter().position(|byte| *byte != 0) {
            return Some(offset + at as u64);
        }
        offset += bytes as u64;
    }
}

fn wiped_whole(disk: &Loop, size: u64, plan: &Cleaner, method: &str) {
    let places = [
        0,
        1024,
        size / 2,
        size / 3,
        64 * MIB,
        size.saturating_sub(65_536),
        size - 512,
    ];
    let inside: Vec<_> = places.into_iter().filter(|at| *at < size).collect();
    mark(&disk.node, &inside);
    assert_eq!(first_data(&disk.file), Some(0), "the marks are in the file");
    let proof = Volume::linked(disk).must_wipe(plan);
    assert_eq!(first_data(&disk.file), None, "the file behind the device");
    assert_eq!(first_data(&disk.node), None, "the device");
    assert_eq!((proof.bytes(), proof.files()), (size, 0));
    assert_eq!(proof.method(), method);
}

#[test]
fn devices_of_all_sizes_are_zeroed() {
    for size in [
        512,
        4096,
        4096 + 512,
        MIB,
        64 * MIB,
        64 * MIB + 512,
        200 * MIB + 1536,
    ] {
        let disk = Loop::new(size);
        wiped_whole(
            &disk,
            size,
            &Cleaner::Zero,
            "zeroed by releasing the blocks",
        );
    }
}

#[test]
fn a_device_node_in_the_directory_is_a_volume_too() {
    let disk = Loop::new(MIB);
    mark(&disk.node, &[4096]);
    let volume = Volume::node(&disk);
    let _ = volume.must_wipe(&Cleaner::Zero);
    assert_eq!(first_data(&disk.file), None);
}

/// Files of a ramfs can't have holes, so the loop device has no command for zeros, and the ladder's
/// second rung has the kernel write them.
#[test]
fn a_device_that_can_release_nothing_is_zeroed_by_writing() {
    let dir = tempfile::tempdir().unwrap();
    let _mount = Mounted::device(Path::new("none"), dir.path(), "ramfs", MsFlags::empty());
    let size = 70 * MIB + 512;
    let disk = Loop::on(&dir.path().join("disk"), size);
    wiped_whole(&disk, size, &Cleaner::Zero, "zeroed by the kernel");
}

#[test]
fn overwriting_writes_random_data_and_then_zeros() {
    let size = 70 * MIB + 512;
    let disk = Loop::new(size);
    let random = AtomicBool::new(false);
    let volume = Volume::linked(&disk);
    let marks = [0, size / 2, size - 512];
    mark(&disk.node, &marks);
    let watch = |progress: Progress| {
        assert_eq!(progress.total_bytes, 3 * size);
        if progress.done_bytes == 2 * size {
            let device = fs::File::open(&disk.file).unwrap();
            let mut all = vec![0; usize::try_from(size).unwrap()];
            device.read_exact_at(&mut all, 0).unwrap();
            let blank = all
                .chunks(512)
                .filter(|block| block.iter().all(|b| *b == 0));
            assert_eq!(blank.count(), 0, "random data everywhere");
            let mut first = all[..512].to_vec();
            first.dedup();
            assert!(first.len() > 400, "that is no pattern");
            random.store(true, Ordering::Relaxed);
        }
    };
    let never = AtomicBool::new(false);
    let proof = volume
        .wipe_with(
            &Cleaner::Overwrite { passes: 2 },
            0,
            &never,
            &watch,
            &|_| {},
        )
        .unwrap();
    assert!(random.load(Ordering::Relaxed));
    assert!(proof.method().starts_with("2 passes of random data"));
    assert_eq!(first_data(&disk.file), None);
}

#[test]
fn a_wipe_goes_on_one_checkpoint_before_the_last() {
    let size = 5 * CHECKPOINT_BYTES / 2;
    let disk = Loop::new(size);
    let volume = Volume::linked(&disk);
    let checkpoints = Mutex::new(Vec::new());
    let first = AtomicU64::new(u64::MAX);
    let watch = |progress: Progress| {
        first.fetch_min(progress.done_bytes, Ordering::Relaxed);
    };
    let note = |offset| checkpoints.lock().unwrap().push(offset);
    let never = AtomicBool::new(false);
    let _ = volume
        .wipe_with(&Cleaner::Zero, 0, &never, &watch, &note)
        .unwrap();
    let expected = [CHECKPOINT_BYTES, 2 * CHECKPOINT_BYTES, size];
    assert_eq!(*checkpoints.lock().unwrap(), expected);
    assert_eq!(first.swap(u64::MAX, Ordering::Relaxed), 64 * MIB);

    let _ = volume
        .wipe_with(&Cleaner::Zero, 2 * CHECKPOINT_BYTES, &never, &watch, &note)
        .unwrap();
    assert_eq!(first.load(Ordering::Relaxed), CHECKPOINT_BYTES + 64 * MIB);
}

#[test]
fn a_resume_after_data_that_was_never_wiped_does_not_verify() {
    let size = 5 * CHECKPOINT_BYTES / 2;
    let disk = Loop::new(size);
    let volume = Volume::linked(&disk);
    // At the start of a step, which is always looked at, and outside the signature areas.
    mark(&disk.node, &[192 * MIB]);
    let checkpoints = Mutex::new(Vec::new());
    let note = |offset| checkpoints.lock().unwrap().push(offset);
    let never = AtomicBool::new(false);
    let refusal = volume
        .wipe_with(&Cleaner::Zero, 2 * CHECKPOINT_BYTES, &never, &|_| {}, &note)
        .unwrap_err();
    assert_eq!(refusal.reason, Reason::VerifyFailed);
    assert!(refusal.detail.contains("offset 201326592"), "{refusal}");
    assert_eq!(
        checkpoints.lock().unwrap().last(),
        Some(&0),
        "from the start next time"
    );
    let _ = volume.must_wipe(&Cleaner::Zero);
}

#[test]
fn data_written_after_the_wipe_does_not_verify() {
    for size in [MIB, 64 * MIB, 300 * MIB] {
        let disk = Loop::new(size);
        let volume = Volume::linked(&disk);
        // Not exclusive: the kernel lets anybody write next to our claim.
        let writer = fs::OpenOptions::new().write(true).open(&disk.node).unwrap();
        let spoil = |progress: Progress| {
            if progress.done_bytes == progress.total_bytes {
                writer.write_all_at(MARK, size - 512).unwrap();
                writer.sync_all().unwrap();
            }
        };
        let never = AtomicBool::new(false);
        let refusal = volume
            .wipe_with(&Cleaner::Zero, 0, &never, &spoil, &|_| {})
            .unwrap_err();
        assert_eq!(refusal.reason, Reason::VerifyFailed, "{size}");
    }
}

#[test]
fn signature_areas_go_first_and_a_cancel_stops() {
    let size = 300 * MIB;
    let disk = Loop::new(size);
    let volume = Volume::linked(&disk);
    mark(
        &disk.node,
        &[1024, 65_536 + 64, 64 * MIB, 200 * MIB, size - 8192],
    );
    let cancel = AtomicBool::new(false);
    let stop = |_| cancel.store(true, Ordering::Relaxed);
    let refusal = volume
        .wipe_with(&Cleaner::Zero, 0, &cancel, &stop, &|_| {})
        .unwrap_err();
    assert_eq!(refusal.reason, Reason::Cancelled);
    assert_eq!(
        first_data(&disk.file),
        Some(200 * MIB),
        "only the body is left"
    );
}

#[test]
fn the_claim_holds_for_the_whole_wipe() {
    let disk = Loop::new(MIB);
    let volume = Volume::linked(&disk);
    let seen = Mutex::new(None);
    let look = |_| {
        let again = hold(volume.request.clone(), &volume.node).map(drop);
        *seen.lock().unwrap() = Some(again.map_err(|refusal| refusal.reason));
    };
    let never = AtomicBool::new(false);
    let _ = volume
        .wipe_with(&Cleaner::Zero, 0, &never, &look, &|_| {})
        .unwrap();
    assert_eq!(*seen.lock().unwrap(), Some(Err(Reason::InUse)));
}

/// The disk shrinks behind the device, as a broken one does.
#[test]
fn a_device_that_fails_fails_the_wipe() {
    let disk = Loop::new(8 * MIB);
    let volume = Volume::linked(&disk);
    let file = fs::OpenOptions::new().write(true).open(&disk.file).unwrap();
    let fail = |progress: Progress| {
        if progress.done_bytes == progress.total_bytes {
            file.set_len(MIB).unwrap();
        }
    };
    let never = AtomicBool::new(false);
    let result = volume.wipe_with(&Cleaner::Zero, 0, &never, &fail, &|_| {});
    file.set_len(8 * MIB).unwrap();
    let refusal = result.unwrap_err();
    assert_eq!(refusal.reason, Reason::WipeFailed, "{refusal}");
    wait_until("the device works", || volume.permit().is_ok());
}

#[test]
fn a_device_that_grew_meanwhile_does_not_verify() {
    let disk = Loop::new(8 * MIB);
    let volume = Volume::linked(&disk);
    let file = fs::OpenOptions::new().write(true).open(&disk.file).unwrap();
    let grow = |_| {
        file.set_len(9 * MIB).unwrap();
        run("losetup", &["-c", disk.node.to_str().unwrap()]);
    };
    let never = AtomicBool::new(false);
    let refusal = volume
        .wipe_with(&Cleaner::Zero, 0, &never, &grow, &|_| {})
        .unwrap_err();
    assert_eq!(refusal.reason, Reason::VerifyFailed, "{refusal}");
    // And from now on it is another device than the one that was recorded.
    assert_eq!(volume.permit().unwrap_err().reason, Reason::EntryReplaced);
}
