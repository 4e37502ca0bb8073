//! A filesystem whose server does not answer until it is told to: what a dead network mount or a failing
//! disk looks like from above. It speaks just enough of the FUSE protocol (linux/fuse.h) for an empty
//! root directory.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::thread::JoinHandle;

use nix::mount::{MsFlags, mount};

use super::disks::Mounted;

/// More than the kernel's largest request.
const BUFFER_BYTES: usize = 1 << 21;
const ENOSYS: i32 = -38;

/// A mounted filesystem without a voice; unmounted when dropped.
#[derive(Debug)]
pub(crate) struct Mute {
    // The server goes before the mount: then whoever waits for it gets an error.
    server: File,
    _mounted: Mounted,
}

impl Mute {
    /// Mounts one. Whoever asks it anything waits.
    pub(crate) fn mount(point: &Path) -> Self {
        let server = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/fuse")
            .expect("the kernel has FUSE");
        let data = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0",
            server.as_raw_fd()
        );
        let (source, fs_type) = (Some("mute"), Some("fuse"));
        mount(
            source,
            point,
            fs_type,
            MsFlags::empty(),
            Some(data.as_str()),
        )
        .unwrap_or_else(|errno| panic!("mount on {}: {errno}", point.display()));
        Self {
            server,
            _mounted: Mounted::guard(point),
        }
    }

    /// The server dies: whoever waits gets an error, and so does whoever asks from now on.
    pub(crate) fn die(self) -> Mounted {
        self._mounted
    }

    /// The server comes back and answers, also what was asked before.
    pub(crate) fn answer(self) -> Answering {
        let Self { server, _mounted } = self;
        let thread = std::thread::Builder::new()
            .name("fuse".into())
            .spawn(move || serve(server))
            .expect("a thread can be started");
        Answering {
            mounted: Some(_mounted),
            thread: Some(thread),
        }
    }
}

/// A filesystem of 1 MiB that answers; unmounted when dropped.
#[derive(Debug)]
pub(crate) struct Answering {
    mounted: Option<Mounted>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Answering {
    fn drop(&mut self) {
        // The server's reading ends with the last mount. One that is still used elsewhere must not hold
        // up the test, so the thread is not waited for.
        self.mounted.take();
        self.thread.take();
    }
}

fn serve(mut server: File) {
    let mut request = vec![0; BUFFER_BYTES];
    // An error means that it was unmounted.
    while let Ok(length) = server.read(&mut request) {
        let Some(answer) = request.get(..length).and_then(answer) else {
            continue;
        };
        // Whoever asked may have been killed meanwhile.
        let _ = server.write(&answer);
    }
}

/// The answer to a request; `None` for those that want none.
fn answer(request: &[u8]) -> Option<Vec<u8>> {
    let word = |at: usize| {
        let bytes = request.get(at..at + 4)?;
        Some(u32::from_ne_bytes(bytes.try_into().ok()?))
    };
    let unique = request.get(8..16)?;
    let (error, body) = match word(4)? {
        // FORGET, INTERRUPT, BATCH_FORGET
        2 | 36 | 42 => return None,
        // GETATTR
        3 => (0, attributes()),
        // STATFS: 256 blocks of 4 KiB
        17 => (
            0,
            words(&[256, 0, 256, 0, 256, 0, 16, 0, 16, 0, 4096, 255, 4096], 80),
        ),
        // INIT: version 7.31, writes of up to 4 KiB
        26 => (0, words(&[7, 31, 4096, 0, 0, 4096, 1], 64)),
        // OPENDIR
        27 => (0, words(&[], 16)),
        // READDIR: at its end. RELEASEDIR and DESTROY: done.
        28 | 29 | 38 => (0, Vec::new()),
        _ => (ENOSYS, Vec::new()),
    };
    let length = u32::try_from(16 + body.len()).ok()?;
    let mut answer = length.to_ne_bytes().to_vec();
    answer.extend(i32::to_ne_bytes(error));
    answer.extend(unique);
    answer.extend(body);
    Some(answer)
}

/// `struct fuse_attr_out` of the root directory.
fn attributes() -> Vec<u8> {
    let mut words = [0; 26];
    // Low halves of the inode and of the number of links, and the mode.
    words[4] = 1;
    words[19] = 0o040_755;
    words[20] = 2;
    self::words(&words, 104)
}

/// 32-bit words, padded with zeros.
fn words(words: &[u32], length: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    bytes.resize(length, 0);
    bytes
}
