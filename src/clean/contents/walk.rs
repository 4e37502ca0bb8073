//! The walk: a stack of directories shared by a few threads.
//!
//! A directory belongs to one thread at a time, since two in one directory only fight for its lock.
//! A thread reads it, removes what is not a directory, and puts its subdirectories on the stack;
//! whoever removes the last of them removes the directory, or reads it again if it is not empty. So
//! a directory that changes meanwhile, or is too large for one reading, needs no case of its own, and
//! names in memory are bounded by what is in work. Directories too deep down are first moved to the
//! root, which bounds the open descriptors whatever the depth.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::OFlag;

use super::tree::{Node, is_dot};
use super::{LOST_AND_FOUND, Manner, failed, mounted_inside};
use crate::clean::progress::{Control, Progress};
use crate::sys::block::random;
use crate::sys::inode;
use crate::volume::{Reason, Refusal};

/// Entries that are read, sorted and removed at once.
const BATCH: usize = 32_768;
/// Subdirectories of one directory on the stack. A tenant can have that many at each level, so this
/// times [`DEEPEST`] times the workers is what a wipe takes in memory at worst.
const MOST_SUBDIRECTORIES: usize = 4096;
/// Directories deeper than this are moved to the root: 4 threads keep fewer than 4 x 32 open.
const DEEPEST: usize = 32;
/// Readings of one directory before it counts as being filled by somebody. Each but the last can
/// remove [`MOST_SUBDIRECTORIES`].
const MOST_PASSES: u32 = 20_000;
/// Removals between two reports.
const REPORT_EVERY: u64 = 4096;

/// Removes everything below `root`; answers how many files and directories that were.
pub(super) fn remove_all(
    root: &OwnedFd,
    place: &str,
    manner: Manner,
    control: &Control<'_>,
) -> Result<u64, Refusal> {
    let own = root.try_clone().map_err(|error| {
        Refusal::new(
            Reason::WipeFailed,
            format!("can't open {place} again: {error}"),
        )
    })?;
    let walk = Walk {
        root: Node::new(own, None, CString::default(), true),
        prefix: random().map_err(|errno| failed("get a random name for", place, errno))?,
        hoisted: AtomicU64::new(0),
        removed: AtomicU64::new(0),
        kept_is_empty: AtomicBool::new(false),
        stack: Mutex::new(Stack::default()),
        changed: Condvar::new(),
        place,
        manner,
        control,
    };
    walk.root
        .unhinder()
        .map_err(|errno| failed("clear the flags of", place, errno))?;
    walk.push([Task::Read(Arc::clone(&walk.root))]);
    std::thread::scope(|scope| {
        for _ in 1..manner.workers {
            scope.spawn(|| walk.work());
        }
        walk.work();
    });
    let files = walk.removed.load(Ordering::Relaxed);
    (control.progress)(Progress {
        files,
        ..Progress::default()
    });
    match walk.lock().failure.take() {
        Some(refusal) => Err(refusal),
        None => Ok(files),
    }
}

enum Task {
    /// Read an open directory whose one token the reader owns.
    Read(Arc<Node>),
    /// Open and read a subdirectory, for which the parent holds a token.
    Enter { parent: Arc<Node>, name: CString },
}

#[derive(Default)]
struct Stack {
    tasks: Vec<Task>,
    is_done: bool,
    failure: Option<Refusal>,
}

struct Walk<'a> {
    root: Arc<Node>,
    /// Makes the names of moved directories unforeseeable.
    prefix: u64,
    hoisted: AtomicU64,
    removed: AtomicU64,
    /// `lost+found` was emptied, and is no more work when the root is read again.
    kept_is_empty: AtomicBool,
    stack: Mutex<Stack>,
    changed: Condvar,
    place: &'a str,
    manner: Manner,
    control: &'a Control<'a>,
}

/// Ends the walk when a worker unwinds, so that the others do not wait for it for ever.
struct EndOnPanic<'a, 'b>(&'a Walk<'b>);

impl Drop for EndOnPanic<'_, '_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0
                .end(Some(Refusal::new(Reason::WipeFailed, "a worker panicked")));
        }
    }
}

impl Walk<'_> {
    fn lock(&self) -> MutexGuard<'_, Stack> {
        self.stack.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, tasks: impl IntoIterator<Item = Task>) {
        self.lock().tasks.extend(tasks);
        self.changed.notify_all();
    }

    fn end(&self, failure: Option<Refusal>) {
        let mut stack = self.lock();
        stack.is_done = true;
        if stack.failure.is_none() {
            stack.failure = failure;
        }
        drop(stack);
        self.changed.notify_all();
    }

    /// One worker: does tasks until the root is empty or somebody failed.
    fn work(&self) {
        let _end = EndOnPanic(self);
        loop {
            let task = {
                let mut stack = self.lock();
                loop {
                    if stack.is_done {
                        return;
                    }
                    if let Some(task) = stack.tasks.pop() {
                        break task;
                    }
                    // Whoever holds the last tasks pushes more or ends the walk, and wakes us.
                    stack = self
                        .changed
                        .wait(stack)
                        .unwrap_or_else(PoisonError::into_inner);
                }
            };
            let result = self.control.go_on().and_then(|()| match task {
                Task::Read(node) => self.read(node),
                Task::Enter { parent, name } => self.enter(parent, name),
            });
            if let Err(refusal) = result {
                self.end(Some(refusal));
            }
        }
    }

    fn enter(&self, parent: Arc<Node>, name: CString) -> Result<(), Refusal> {
        if parent.depth >= DEEPEST && self.hoist(&parent, &name)? {
            return self.settle(parent);
        }
        match parent.open(&name) {
            Ok(dir) => {
                let is_kept = self.is_kept(&parent, &name);
                let node = Node::new(dir, Some(Arc::clone(&parent)), name, is_kept);
                node.unhinder().map_err(|errno| {
                    self.failed("clear the flags of", &parent, &node.name, errno)
                })?;
                self.read(node)
            }
            // It was replaced since it was read, by a link or a file.
            Err(Errno::ENOTDIR | Errno::ELOOP) => {
                self.unlink(&parent, &name)?;
                self.settle(parent)
            }
            Err(Errno::ENOENT) => self.settle(parent),
            Err(errno) => Err(self.failed("open", &parent, &name, errno)),
        }
    }

    /// Moves a directory to the root. False where that can't be done, which is no failure: then the
    /// walk goes down to it after all.
    fn hoist(&self, parent: &Node, name: &CStr) -> Result<bool, Refusal> {
        let number = self.hoisted.fetch_add(1, Ordering::Relaxed);
        let text = format!(".provisor-{:016x}-{number}", self.prefix);
        let Ok(new) = CString::new(text) else {
            return Ok(false);
        };
        match parent.move_to(name, &self.root, &new) {
            Ok(()) => {}
            Err(Errno::ENOENT) => return Ok(true),
            Err(Errno::EBUSY) => return Err(self.failed("move", parent, name, Errno::EBUSY)),
            // EXDEV is also the answer where a project quota or a subvolume ends.
            Err(_) => return Ok(false),
        }
        self.root.pending.fetch_add(1, Ordering::AcqRel);
        self.push([Task::Enter {
            parent: Arc::clone(&self.root),
            name: new,
        }]);
        Ok(true)
    }

    /// Reads a directory to its end or until enough subdirectories are found, and removes the rest.
    fn read(&self, node: Arc<Node>) -> Result<(), Refusal> {
        let errno = |errno| self.failed("read", &node, c"", errno);
        if node.passes.fetch_add(1, Ordering::Relaxed) >= MOST_PASSES {
            return Err(Refusal::new(
                Reason::WipeFailed,
                format!(
                    "{} is filled while it is emptied; somebody still writes to the volume",
                    node.path_of(self.place, c"")
                ),
            ));
        }
        // A description of its own, so that the position is nobody else's.
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
        let anew = inode::open_within(node.dir.as_fd(), c".", flags).map_err(errno)?;
        let mut dir = Dir::from_fd(anew).map_err(errno)?;
        let mut entries = dir.iter();
        let mut subdirectories = Vec::new();
        let mut was_empty = true;
        while subdirectories.len() < MOST_SUBDIRECTORIES {
            let mut batch = Vec::new();
            let mut room = MOST_SUBDIRECTORIES - subdirectories.len();
            for entry in entries.by_ref() {
                let entry = entry.map_err(errno)?;
                if is_dot(entry.file_name()) {
                    continue;
                }
                room -= usize::from(entry.file_type() == Some(Type::Directory));
                batch.push(entry);
                if room == 0 || batch.len() == BATCH {
                    break;
                }
            }
            if batch.is_empty() {
                break;
            }
            if self.manner.by_inode {
                batch.sort_unstable_by_key(nix::dir::Entry::ino);
            }
            for entry in batch {
                self.control.go_on()?;
                let name = entry.file_name();
                let is_directory = match entry.file_type() {
                    Some(Type::Directory) => true,
                    _ => self.unlink(&node, name)?,
                };
                let was_done =
                    self.is_kept(&node, name) && self.kept_is_empty.load(Ordering::Relaxed);
                if !was_done {
                    was_empty = false;
                    if is_directory {
                        subdirectories.push(name.to_owned());
                    }
                }
            }
        }
        drop(entries);
        drop(dir);
        node.was_empty.store(was_empty, Ordering::Relaxed);
        node.pending
            .fetch_add(subdirectories.len(), Ordering::AcqRel);
        // The first is on top of the stack: inode order holds for directories too.
        self.push(subdirectories.into_iter().rev().map(|name| Task::Enter {
            parent: Arc::clone(&node),
            name,
        }));
        self.settle(node)
    }

    /// Gives back a token of `node`. Whoever gives back the last removes the directory and goes on
    /// with its parent, or has it read again.
    fn settle(&self, mut node: Arc<Node>) -> Result<(), Refusal> {
        while node.release() {
            let is_gone = match &node.parent {
                Some(parent) if !node.is_kept => match parent.rmdir(&node.name) {
                    Ok(()) => {
                        self.count();
                        true
                    }
                    // Moved away or replaced: it is found again wherever it is now.
                    Err(Errno::ENOENT | Errno::ENOTDIR) => true,
                    Err(Errno::ENOTEMPTY | Errno::EEXIST) => false,
                    Err(errno) => return Err(self.failed("remove", parent, &node.name, errno)),
                },
                _ => node.was_empty.load(Ordering::Relaxed),
            };
            if !is_gone {
                node.pending.store(1, Ordering::Release);
                self.push([Task::Read(node)]);
                return Ok(());
            }
            match &node.parent {
                Some(parent) => {
                    if node.is_kept {
                        self.kept_is_empty.store(true, Ordering::Relaxed);
                    }
                    node = Arc::clone(parent);
                }
                None => {
                    self.end(None);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Removes a name; true if it turned out to be a directory, which is then still there.
    fn unlink(&self, node: &Node, name: &CStr) -> Result<bool, Refusal> {
        match node.unlink(name) {
            Ok(()) => {
                self.count();
                Ok(false)
            }
            Err(Errno::ENOENT) => Ok(false),
            Err(Errno::EISDIR) => Ok(true),
            Err(errno) => Err(self.failed("remove", node, name, errno)),
        }
    }

    fn is_kept(&self, parent: &Node, name: &CStr) -> bool {
        self.manner.keeps_lost_and_found && parent.parent.is_none() && name == LOST_AND_FOUND
    }

    fn count(&self) {
        let files = self.removed.fetch_add(1, Ordering::Relaxed) + 1;
        if files.is_multiple_of(REPORT_EVERY) {
            (self.control.progress)(Progress {
                files,
                ..Progress::default()
            });
        }
    }

    fn failed(&self, verb: &str, node: &Node, name: &CStr, errno: Errno) -> Refusal {
        let path = node.path_of(self.place, name);
        match errno {
            // The only two answers for a mount point, to whatever is asked of it.
            Errno::EXDEV | Errno::EBUSY => mounted_inside(&path),
            errno => failed(verb, &path, errno),
        }
    }
}
