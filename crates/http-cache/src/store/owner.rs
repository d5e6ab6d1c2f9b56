//! `FolderOwner`: which instance of a cache writes to a folder.
//!
//! Two instances have the same folder open during a takeover, and during a reload that changes the settings of the cache.
//! Opening a folder changes no response: it takes the instance's number, which is higher than those of all earlier instances.
//! The first write or removal of an instance claims the folder: it writes the mark and the number of the instance to the file
//! `owner`, and removes the files that the instance does not know. From then on an earlier instance adds no file, and cannot
//! claim the folder any more. It still reads the files of its index, and removes those that it has to invalidate.
//!
//! A lock on the file `owner` makes the two steps of each side one: comparing the mark and adding a file, and writing the mark
//! and listing the folder.

use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{FlockOperation, flock};
use rustix::io::retry_on_intr;

/// The right of one instance to write to a folder.
pub(super) struct FolderOwner {
    path: PathBuf,
    mark: u64,
    /// The count of the instances that have opened the folder, with this one.
    number: u64,
    /// A copy of the stage, for loops: they do not wait for the lock.
    stage: AtomicU8,
    /// The file `owner`, once this instance has claimed the folder.
    file: Mutex<Option<File>>,
}

impl FolderOwner {
    /// The latest instance of a folder.
    pub(super) fn new(folder: &Path) -> io::Result<Self> {
        // The keys are from the kernel's random numbers.
        let mark = RandomState::new().build_hasher().finish();
        let path = folder.join(NAME);
        let number = while_locked(&open(&path)?, |file| {
            let number = read(file, OPENED_AT)?.wrapping_add(1);
            write(file, OPENED_AT, number).map(|()| number)
        })?;
        Ok(Self { path, mark, number, stage: AtomicU8::new(UNCLAIMED), file: Mutex::new(None) })
    }

    /// A random number of this instance.
    pub(super) fn mark(&self) -> u64 {
        self.mark
    }

    pub(super) fn is_unclaimed(&self) -> bool {
        self.stage.load(Relaxed) == UNCLAIMED
    }

    /// Whether a later instance has claimed the folder.
    pub(super) fn is_replaced(&self) -> bool {
        self.stage.load(Relaxed) == REPLACED
    }

    /// Claims the folder, unless this instance has done so before or a later one has; then removes the files that it does not
    /// know by `sweep`. Returns whether no later instance had claimed it the last time that this one looked.
    pub(super) fn claim(&self, sweep: impl FnOnce() -> io::Result<()>) -> io::Result<bool> {
        let mut claimed = self.file();
        if claimed.is_none() && !self.is_replaced() {
            let file = open(&self.path)?;
            let is_latest = while_locked(&file, |file| {
                if read(file, CLAIMED_BY_AT)? > self.number {
                    return Ok(false);
                }
                write(file, CLAIMED_BY_AT, self.number)?;
                write(file, MARK_AT, self.mark)?;
                sweep().map(|()| true)
            })?;
            if is_latest {
                *claimed = Some(file);
                self.stage.store(CLAIMED, Relaxed);
            } else {
                self.replaced();
            }
        }
        Ok(!self.is_replaced())
    }

    /// Calls `add`, which adds a file, unless a later instance has claimed the folder. Returns whether it was called.
    pub(super) fn while_owner(&self, add: impl FnOnce() -> io::Result<()>) -> io::Result<bool> {
        let claimed = self.file();
        let Some(file) = claimed.as_ref().filter(|_| !self.is_replaced()) else { return Ok(false) };
        let added = while_locked(file, |file| {
            let is_owner = read(file, MARK_AT)? == self.mark;
            if is_owner { add().map(|()| true) } else { Ok(false) }
        });
        if let Ok(false) = added {
            self.replaced();
        }
        added
    }

    fn replaced(&self) {
        self.stage.store(REPLACED, Relaxed);
        tracing::info!(subsystem = "cache", owner = %self.path.display(), "a later cache writes to the folder from now on");
    }

    fn file(&self) -> MutexGuard<'_, Option<File>> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The file, which is made if it is not there.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed()).open(path)
}

fn while_locked<T>(file: &File, work: impl FnOnce(&File) -> io::Result<T>) -> io::Result<T> {
    retry_on_intr(|| flock(file, FlockOperation::LockExclusive))?;
    let done = work(file);
    retry_on_intr(|| flock(file, FlockOperation::Unlock))?;
    done
}

/// A number in the file; 0 if the file is shorter.
fn read(file: &File, at: u64) -> io::Result<u64> {
    let mut bytes = [0; 8];
    match file.read_exact_at(&mut bytes, at) {
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(error),
        Err(_) => Ok(0),
        Ok(()) => Ok(u64::from_le_bytes(bytes)),
    }
}

fn write(file: &File, at: u64, number: u64) -> io::Result<()> {
    file.write_all_at(&number.to_le_bytes(), at)
}

/// The file with the mark of the instance that writes to the folder.
pub(super) const NAME: &str = "owner";

/// The numbers in the file: the mark and the number of the instance that has claimed the folder, and the number of the
/// instance that has opened it last.
const MARK_AT: u64 = 0;
const CLAIMED_BY_AT: u64 = 8;
const OPENED_AT: u64 = 16;

const UNCLAIMED: u8 = 0;
const CLAIMED: u8 = 1;
const REPLACED: u8 = 2;
