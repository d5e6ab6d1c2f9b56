//! `Disk`: stored responses as files of a folder, one file each, within a budget.
//!
//! A file is written under another name, and renamed when it is complete. The index of keys lives in memory, and is made at
//! the start from the heads of the files. A file that is short, corrupt or of another key is a miss, and is removed: `file.rs`
//! has the format with its checksums. Loops neither read nor write: a thread for blocking work does.

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_http1::Headers;

use super::file;
use crate::entry::Entry;
use crate::rules::vary::Selector;

/// Stored responses in a folder.
pub(crate) struct Disk {
    folder: PathBuf,
    bytes_max: u64,
    index: Mutex<Index>,
    next: AtomicU64,
    /// Counts removals: a response that was written across one is not indexed.
    removals: AtomicU64,
}

#[derive(Default)]
struct Index {
    keys: HashMap<Box<[u8]>, Vec<StoredFile>, foldhash::fast::RandomState>,
    /// The order of eviction; numbers of files that are gone are skipped.
    order: VecDeque<(u64, Box<[u8]>)>,
    bytes: u64,
    files: usize,
}

struct StoredFile {
    number: u64,
    bytes: u64,
    selector: Selector,
    /// It was read since it entered the order.
    is_used: bool,
}

impl Disk {
    /// The responses in a folder, which is made if it is not there.
    pub(crate) fn open(folder: &Path, bytes_max: u64) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let mut found = Vec::new();
        for item in fs::read_dir(folder)? {
            let path = item?.path();
            let extension = path.extension().and_then(|extension| extension.to_str());
            let number =
                path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| u64::from_str_radix(stem, 16).ok());
            match (extension, number) {
                (Some(EXTENSION), Some(number)) => found.push((number, path)),
                // It was not complete when the program ended.
                (Some(PARTIAL), Some(_)) => fs::remove_file(&path)?,
                _ => {}
            }
        }
        found.sort_unstable();
        let next = found.last().map_or(0, |(number, _)| number + 1);
        let disk = Self {
            folder: folder.to_owned(),
            bytes_max,
            index: Mutex::default(),
            next: AtomicU64::new(next),
            removals: AtomicU64::new(0),
        };
        for (number, path) in found {
            match file::read_head(&path) {
                Some(head) => disk.insert(&head.key, number, head.file_bytes, head.selector),
                None => fs::remove_file(&path)?,
            }
        }
        Ok(disk)
    }

    /// The bytes of all files.
    pub(crate) fn bytes(&self) -> u64 {
        self.index().bytes
    }

    /// Writes a response, in the place of one with the same selecting fields. It is left out if too much blocking work waits.
    pub(crate) fn put(self: &Arc<Self>, key: &[u8], entry: &Arc<Entry>) {
        let (disk, key, entry) = (self.clone(), Box::<[u8]>::from(key), entry.clone());
        let removals = self.removals.load(Relaxed);
        let work = move || {
            if let Err(error) = disk.write(&key, &entry, removals) {
                tracing::warn!(subsystem = "cache", %error, folder = %disk.folder.display(), "a response was not written");
            }
        };
        if tidegate_engine::blocking(work).detach().is_err() {
            tracing::debug!(subsystem = "cache", "too much blocking work waits: a response was not written");
        }
    }

    fn write(&self, key: &[u8], entry: &Entry, removals: u64) -> io::Result<()> {
        let number = self.next.fetch_add(1, Relaxed);
        let (partial, path) = (self.path(number, PARTIAL), self.path(number, EXTENSION));
        let bytes = file::encode(key, entry);
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial)?;
        let written = file.write_all(&bytes).and_then(|()| fs::rename(&partial, &path));
        if written.is_err() {
            let _ = fs::remove_file(&partial);
            return written;
        }
        let mut index = self.index();
        // Under the lock, so that a removal comes before or after this as a whole.
        if self.removals.load(Relaxed) == removals {
            self.insert_in(&mut index, key, number, bytes.len() as u64, entry.selector.clone());
        } else {
            self.delete(number);
        }
        Ok(())
    }

    /// The response for a request. `keep` stores it in memory, before or after a removal as a whole.
    pub(crate) async fn get(
        self: &Arc<Self>,
        key: &[u8],
        request: Headers<'_>,
        keep: impl FnOnce(Arc<Entry>) -> bool,
    ) -> Option<Arc<Entry>> {
        let number = {
            let mut index = self.index();
            let files = index.keys.get_mut(key)?;
            let file = files.iter_mut().rev().find(|file| file.selector.matches(&request))?;
            file.is_used = true;
            file.number
        };
        let (path, expected) = (self.path(number, EXTENSION), Box::<[u8]>::from(key));
        let entry = tidegate_engine::blocking(move || file::read(&path, &expected)).await.ok()?;
        let Some(entry) = entry.map(Arc::new) else {
            self.forget(key, number);
            return None;
        };
        let index = self.index();
        if !index.keys.get(key)?.iter().any(|file| file.number == number) {
            return None;
        }
        let _has_room = keep(entry.clone());
        Some(entry)
    }

    /// Removes all responses for a key.
    pub(crate) fn remove(&self, key: &[u8]) {
        let mut index = self.index();
        self.removals.fetch_add(1, Relaxed);
        self.remove_key(&mut index, key);
    }

    /// Removes all responses for keys that are chosen.
    pub(crate) fn remove_where(&self, is_chosen: impl Fn(&[u8]) -> bool) {
        let mut index = self.index();
        self.removals.fetch_add(1, Relaxed);
        let chosen: Vec<_> = index.keys.keys().filter(|key| is_chosen(key)).cloned().collect();
        for key in chosen {
            self.remove_key(&mut index, &key);
        }
    }

    fn remove_key(&self, index: &mut Index, key: &[u8]) {
        for file in index.keys.remove(key).unwrap_or_default() {
            index.bytes -= file.bytes;
            index.files -= 1;
            self.delete(file.number);
        }
        index.compact();
    }

    fn insert(&self, key: &[u8], number: u64, bytes: u64, selector: Selector) {
        self.insert_in(&mut self.index(), key, number, bytes, selector);
    }

    fn insert_in(&self, index: &mut Index, key: &[u8], number: u64, bytes: u64, selector: Selector) {
        // A file takes whole blocks, and the index has a part of it in memory.
        let bytes = bytes.next_multiple_of(BLOCK_BYTES);
        let files = index.keys.entry(key.into()).or_default();
        if let Some(at) = files.iter().position(|file| file.selector == selector) {
            let old = files.remove(at);
            self.delete(old.number);
            index.bytes -= old.bytes;
            index.files -= 1;
        }
        let files = index.keys.entry(key.into()).or_default();
        files.push(StoredFile { number, bytes, selector, is_used: false });
        index.order.push_back((number, key.into()));
        index.bytes += bytes;
        index.files += 1;
        while index.bytes > self.bytes_max || index.files > FILES_MAX {
            let Some((number, key)) = index.order.pop_front() else { break };
            let files = index.keys.get_mut(&key);
            let Some(file) = files.and_then(|files| files.iter_mut().find(|file| file.number == number)) else {
                continue;
            };
            if std::mem::take(&mut file.is_used) {
                index.order.push_back((number, key));
            } else {
                index.take(&key, number);
                self.delete(number);
            }
        }
        index.compact();
    }

    /// A file cannot be used.
    fn forget(&self, key: &[u8], number: u64) {
        self.index().take(key, number);
        self.delete(number);
    }

    fn delete(&self, number: u64) {
        match fs::remove_file(self.path(number, EXTENSION)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(subsystem = "cache", %error, "a stored response was not removed from the folder");
            }
            _ => {}
        }
    }

    fn path(&self, number: u64, extension: &str) -> PathBuf {
        self.folder.join(format!("{number:016x}.{extension}"))
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Index {
    /// Removes a file of a key.
    fn take(&mut self, key: &[u8], number: u64) {
        let Some(files) = self.keys.get_mut(key) else { return };
        if let Some(at) = files.iter().position(|file| file.number == number) {
            self.bytes -= files.remove(at).bytes;
            self.files -= 1;
        }
        if files.is_empty() {
            self.keys.remove(key);
        }
    }

    /// Drops the numbers of files that are gone, once they are most of all.
    fn compact(&mut self) {
        if self.order.len() > 2 * self.files + 64 {
            let keys = &self.keys;
            self.order.retain(|(number, key)| {
                keys.get(key).is_some_and(|files| files.iter().any(|file| file.number == *number))
            });
        }
    }
}

const EXTENSION: &str = "response";
const PARTIAL: &str = "partial";

/// A file takes whole blocks of the file system.
const BLOCK_BYTES: u64 = 4096;

/// Files in the folder: the index of each is in memory.
const FILES_MAX: usize = 100_000;

#[cfg(test)]
mod tests;
