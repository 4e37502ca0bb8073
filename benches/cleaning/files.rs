//! Filesystems: ours against `rm -rf`.

use std::fs::{self, File};
use std::path::Path;
use std::time::Instant;

use nix::mount::MsFlags;
use provisor::config::Cleaner;

use crate::disks::{Loop, Mounted};
use crate::figures::{Series, Settings, Table, time};
use crate::rig::Volume;
use crate::{forget_caches, text, timed};

/// How the files lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Directories in directories, 100 files in each of the innermost.
    Tree,
    /// All in one directory.
    Flat,
}

const IMAGE_BYTES: u64 = 4 << 30;

/// One file in so many has data, so that the image is copied soon.
const WITH_DATA: usize = 8;

pub(crate) fn measure(shape: Shape, fs_type: &str, settings: &Settings, table: &Table) {
    let files: usize = settings.choose(100_000, 300_000);
    let rounds = settings.choose(2, 4);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let model = dir.path().join("model");
    make_model(&model, shape, fs_type, files);

    let (mut ours, mut bare, mut flushed) = <(Series, Series, Series)>::default();
    let mut removed = 0;
    for round in 0..rounds {
        // Whoever comes second may find something warm after all.
        for turn in [round % 2, (round + 1) % 2] {
            let image = dir.path().join("image");
            timed("cp", &["--sparse=always", text(&model), text(&image)]);
            let disk = Loop::over(&image, &[]);
            let (volume, mount) = Volume::mounted(|path| {
                Mounted::device(&disk.node, path, fs_type, MsFlags::empty())
            });
            forget_caches();
            if turn == 0 {
                let began = Instant::now();
                let proof = volume.must_wipe(&Cleaner::Zero);
                ours.push(began.elapsed());
                removed = proof.files();
            } else {
                let names: Vec<String> = volume.names();
                let places = names.iter().filter(|name| *name != "lost+found");
                let places: Vec<_> = places.map(|name| mount.point().join(name)).collect();
                let mut arguments = vec!["-rf"];
                arguments.extend(places.iter().map(|place| text(place)));
                let removing = timed("rm", &arguments);
                bare.push(removing);
                flushed.push(removing + timed("sync", &["-f", text(mount.point())]));
            }
        }
    }
    let what = format!("{removed} files and directories, {fs_type}, {shape:?}");
    let median = |series: &Series| time(series.percentile(50));
    let peer = format!("rm -rf {}", median(&bare));
    table.row(
        &what.to_lowercase(),
        &median(&ours),
        &peer,
        &ours.over(&bare),
    );
    table.row(
        "",
        "",
        &format!("rm -rf, sync -f {}", median(&flushed)),
        &ours.over(&flushed),
    );
}

/// An image with a filesystem and so many small files, to be copied for each turn.
fn make_model(image: &Path, shape: Shape, fs_type: &str, files: usize) {
    let sized = File::create(image).and_then(|file| file.set_len(IMAGE_BYTES));
    sized.expect("the temporary directory takes a sparse file");
    let disk = Loop::over(image, &[]);
    let inodes = (files * 2).to_string();
    let options = match fs_type {
        // All of its tables are there at once, as on a filesystem that has been in use.
        "ext4" => vec![
            "-q",
            "-F",
            "-N",
            &inodes,
            "-E",
            "lazy_itable_init=0,lazy_journal_init=1",
        ],
        _ => vec!["-q", "-f"],
    };
    let node = text(&disk.node);
    timed(
        &format!("mkfs.{fs_type}"),
        &[&options[..], &[node]].concat(),
    );
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mount = Mounted::device(&disk.node, dir.path(), fs_type, MsFlags::empty());
    let root = mount.point();
    let block = [0xa5_u8; 512];
    for number in 0..files {
        let path = match shape {
            Shape::Flat => root.join("all").join(format!("file-{number:07}")),
            Shape::Tree => {
                let (outer, inner) = (number / 10_000, number / 100 % 100);
                root.join(format!("outer-{outer}/inner-{inner}/file-{number:07}"))
            }
        };
        if number == 0 || (shape == Shape::Tree && number % 100 == 0) {
            let parent = path.parent().expect("it has one");
            fs::create_dir_all(parent).expect("the filesystem takes directories");
        }
        let data = &block[..if number.is_multiple_of(WITH_DATA) {
            block.len()
        } else {
            0
        }];
        fs::write(path, data).expect("the filesystem takes files");
    }
    // The mount goes before the device, and all of it is written before it is copied.
    drop(mount);
    drop(disk);
    forget_caches();
}
