//! `FolderOwner`: which instance of a cache writes to a folder.
//!
//! Two instances have the same folder open during a takeover, and during a reload that changes the settings of the cache.
//! Opening a folder only reads it. The first write or removal of an instance claims the folder: it writes the mark of the
//! instance to the file `owner`, and removes the files that the instance does not know. From then on an earlier instance adds
//! no file. It still reads the files of its index, and removes those that it has to invalidate.
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
    /// A copy of the stage, for loops: they do not wait for the lock.
    stage: AtomicU8,
    /// The file `owner`, once this instance has claimed the folder.
    file: Mutex<Option<File>>,
}

impl FolderOwner {
    pub(super) fn new(folder: &Path) -> Self {
        // The keys are from the kernel's random numbers.
        let mark = RandomState::new().build_hasher().finish();
        Self { path: folder.join(NAME), mark, stage: AtomicU8::new(UNCLAIMED), file: Mutex::new(None) }
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

    /// Claims the folder, unless this instance has done so before; then removes the files that it does not know by `sweep`.
    /// Returns whether no later instance had claimed it the last time that this one looked.
    pub(super) fn claim(&self, sweep: impl FnOnce() -> io::Result<()>) -> io::Result<bool> {
        let mut claimed = self.file();
        if claimed.is_none() {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).mode(0o600);
            let file = options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed()).open(&self.path)?;
            retry_on_intr(|| flock(&file, FlockOperation::LockExclusive))?;
            // Closing the file releases the lock, also after an error.
            file.write_all_at(&self.mark.to_le_bytes(), 0)?;
            sweep()?;
            retry_on_intr(|| flock(&file, FlockOperation::Unlock))?;
            *claimed = Some(file);
            self.stage.store(CLAIMED, Relaxed);
        }
        Ok(!self.is_replaced())
    }

    /// Calls `add`, which adds a file, unless a later instance has claimed the folder. Returns whether it was called.
    pub(super) fn while_owner(&self, add: impl FnOnce() -> io::Result<()>) -> io::Result<bool> {
        let claimed = self.file();
        let Some(file) = claimed.as_ref().filter(|_| !self.is_replaced()) else { return Ok(false) };
        retry_on_intr(|| flock(file, FlockOperation::LockExclusive))?;
        let mut mark = [0; 8];
        let is_owner = file.read_exact_at(&mut mark, 0).map(|()| mark == self.mark.to_le_bytes());
        let added = match is_owner {
            Ok(true) => add().map(|()| true),
            other => other,
        };
        retry_on_intr(|| flock(file, FlockOperation::Unlock))?;
        if let Ok(false) = added {
            self.stage.store(REPLACED, Relaxed);
            tracing::info!(subsystem = "cache", owner = %self.path.display(), "a later cache writes to the folder from now on");
        }
        added
    }

    fn file(&self) -> MutexGuard<'_, Option<File>> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The file with the mark of the instance that writes to the folder.
pub(super) const NAME: &str = "owner";

const UNCLAIMED: u8 = 0;
const CLAIMED: u8 = 1;
const REPLACED: u8 = 2;
