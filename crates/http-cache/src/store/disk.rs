//! `Disk`: stored responses as files of a folder, one file each, within a budget.
//!
//! A file is written under another name, and renamed when it is complete. The index of keys lives in memory, and is made at
//! the start from the heads of the files. A file that is short, corrupt or of another key is a miss, and is removed: `file.rs`
//! has the format with its checksums. Loops neither read, write nor remove files: a thread for blocking work does, without the
//! lock of the index.
//!
//! A response leaves the index when a newer one begins to be written, so it does not come back if that is left out or evicted
//! from memory.
//!
//! A folder may be open twice for a while. Opening it changes no response, and one of the two adds files: `owner.rs`.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use tidegate_http1::Headers;

use super::owner::FolderOwner;
use super::{Store, file};
use crate::entry::Entry;
use crate::limits::CacheLimits;
use crate::rules::Millis;
use crate::rules::vary::Selector;

/// Stored responses in a folder.
pub(crate) struct Disk {
    folder: PathBuf,
    owner: FolderOwner,
    bytes_max: u64,
    index_bytes_max: usize,
    variants_max: usize,
    index: Mutex<Index>,
    /// Responses that were not written.
    pub(crate) left_out: AtomicU64,
    /// Calls on threads for blocking work that are queued or run.
    queued: Mutex<usize>,
    none_queued: Condvar,
}

/// One of the calls on threads for blocking work, until it has ended.
struct Queued(Arc<Disk>);

impl Queued {
    fn new(disk: &Arc<Disk>) -> Self {
        *disk.queued() += 1;
        Self(disk.clone())
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        let mut queued = self.0.queued();
        *queued -= 1;
        if *queued == 0 {
            self.0.none_queued.notify_all();
        }
    }
}

#[derive(Default)]
struct Index {
    keys: HashMap<Arc<[u8]>, Vec<StoredFile>, foldhash::fast::RandomState>,
    /// The order of eviction; numbers of files that are gone are skipped.
    order: VecDeque<(u64, Arc<[u8]>)>,
    /// The files that are being written. One that is not among them any more is removed when it is complete.
    writing: HashMap<Arc<[u8]>, Vec<(u64, Selector)>, foldhash::fast::RandomState>,
    /// The number of the next file: a count, and bits of the owner's mark.
    next: u64,
    bytes: u64,
    /// Bytes of this index.
    own_bytes: usize,
    files: usize,
}

struct StoredFile {
    number: u64,
    bytes: u64,
    selector: Selector,
    /// It was read since it entered the order.
    is_used: bool,
    /// An earlier process has written it.
    is_inherited: bool,
}

impl Disk {
    /// The responses in a folder, which is made if it is not there. It changes none of them: another instance may use them.
    pub(crate) fn open(folder: &Path, limits: &CacheLimits) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let mut found = Vec::new();
        for item in fs::read_dir(folder)? {
            if let Some((number, EXTENSION)) = number_and_extension(&item?.path()) {
                found.push(number);
            }
        }
        found.sort_unstable();
        let owner = FolderOwner::new(folder)?;
        // Another instance may count on from the same number.
        let next = found.last().map_or(0, |number| (number | MARK_MASK).wrapping_add(1)) | owner.mark() & MARK_MASK;
        let disk = Self {
            folder: folder.to_owned(),
            owner,
            bytes_max: limits.disk_bytes_max,
            index_bytes_max: limits.memory_bytes_max / INDEX_PART,
            variants_max: limits.variants_max.max(1),
            index: Mutex::new(Index { next, ..Index::default() }),
            left_out: AtomicU64::new(0),
            queued: Mutex::new(0),
            none_queued: Condvar::new(),
        };
        for number in found {
            // A file that is gone by now, or damaged, is none of this index, and neither is one beyond the limits: the first
            // write removes these.
            if let Some(head) = file::read_head(&disk.path(number, EXTENSION)) {
                let (bytes, selector) = (head.file_bytes, head.selector);
                let file = StoredFile { number, bytes, selector, is_used: false, is_inherited: true };
                let _beyond_limits = disk.insert(&mut disk.index(), head.key.into(), file);
            }
        }
        Ok(disk)
    }

    /// Makes this the instance that writes to the folder, if it was none before. Returns whether it still is.
    fn claim(&self) -> io::Result<bool> {
        self.owner.claim(|| {
            let known: HashSet<u64> = self.index().keys.values().flatten().map(|file| file.number).collect();
            for item in fs::read_dir(&self.folder)? {
                let path = item?.path();
                match number_and_extension(&path) {
                    Some((number, EXTENSION)) if known.contains(&number) => {}
                    Some(_) => remove_if_there(&path)?,
                    None => {}
                }
            }
            Ok(())
        })
    }

    /// The bytes of all files.
    pub(crate) fn bytes(&self) -> u64 {
        self.index().bytes
    }

    /// The bound of the index, in memory.
    pub(crate) fn index_bytes_max(&self) -> usize {
        self.index_bytes_max
    }

    /// Writes a response, in the place of those with the same or with the `old` selecting fields. It is left out if too much
    /// waits to be written.
    pub(crate) fn put(self: &Arc<Self>, key: &[u8], entry: &Arc<Entry>, old: Option<&Selector>, store: &Arc<Store>) {
        let (number, gone) = self.begin(key, &entry.selector, old);
        if self.owner.is_replaced() {
            self.finish_writing(key, number);
            return self.delete_later(&gone);
        }
        let mut room = store.reserve_for_disk();
        let has_room = room.grow(key.len() + entry.bytes());
        let (call, owned_key, entry, to_delete) =
            (Queued::new(self), Box::<[u8]>::from(key), entry.clone(), gone.clone());
        let work = move || {
            let Queued(disk) = &call;
            disk.delete_all(&to_delete);
            if let Err(error) = disk.write(number, &owned_key, &entry) {
                disk.left_out.fetch_add(1, Relaxed);
                tracing::warn!(subsystem = "cache", %error, folder = %disk.folder.display(), "a response was not written");
            }
            drop(room);
        };
        if !has_room || tidegate_engine::blocking(work).detach().is_err() {
            self.finish_writing(key, number);
            self.left_out.fetch_add(1, Relaxed);
            self.delete_all(&gone);
            tracing::debug!(subsystem = "cache", "the folder is too slow: a response was not written");
        }
    }

    /// The number of a file that is going to be written, and those of the files in whose place it comes.
    fn begin(&self, key: &[u8], selector: &Selector, old: Option<&Selector>) -> (u64, Vec<u64>) {
        let mut index = self.index();
        let number = index.next;
        index.next = index.next.wrapping_add(MARK_MASK + 1);
        let is_replaced = |other: &Selector| other == selector || Some(other) == old;
        let gone = index.take_files(key, is_replaced);
        let writing = index.writing.entry(key.into()).or_default();
        writing.retain(|(_, other)| !is_replaced(other));
        writing.push((number, selector.clone()));
        (number, gone)
    }

    /// Returns whether the file is still wanted.
    fn finish_writing(&self, key: &[u8], number: u64) -> bool {
        self.index().take_writing(key, number).is_some()
    }

    fn write(&self, number: u64, key: &[u8], entry: &Entry) -> io::Result<()> {
        let (partial, path) = (self.path(number, PARTIAL), self.path(number, EXTENSION));
        let head = file::encode_head(key, entry);
        let written = (|| {
            if !self.claim()? {
                return Ok(false);
            }
            let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial)?;
            file.write_all(&head)?;
            file.write_all(&entry.body)?;
            self.owner.while_owner(|| fs::rename(&partial, &path))
        })();
        if !matches!(written, Ok(true)) {
            self.finish_writing(key, number);
            let _ = fs::remove_file(&partial);
            return written.map(drop);
        }
        let gone = {
            let mut index = self.index();
            // Under the lock, so that a removal comes before or after this as a whole.
            match index.take_writing(key, number) {
                Some(selector) => {
                    let bytes = (head.len() + entry.body.len()) as u64;
                    let file = StoredFile { number, bytes, selector, is_used: false, is_inherited: false };
                    self.insert(&mut index, key.into(), file)
                }
                None => vec![number],
            }
        };
        self.delete_all(&gone);
        Ok(())
    }

    /// The response for a request, which is put into `store` as well, before or after a removal as a whole.
    pub(crate) async fn get(
        self: &Arc<Self>,
        key: &[u8],
        request: Headers<'_>,
        store: &Arc<Store>,
        now: Millis,
    ) -> Option<Arc<Entry>> {
        let (number, selector, is_inherited) = {
            let mut index = self.index();
            let files = index.keys.get_mut(key)?;
            let file = files.iter_mut().rev().find(|file| file.selector.matches(&request))?;
            file.is_used = true;
            (file.number, file.selector.clone(), file.is_inherited)
        };
        let (call, store, key) = (Queued::new(self), store.clone(), Box::<[u8]>::from(key));
        let read = move || {
            // Another request has read it in the meantime.
            if let Some(entry) = store.with_selector(&key, &selector) {
                return Some(entry);
            }
            let inherited_at = is_inherited.then_some(now);
            call.0.read(number, (&key, &selector), inherited_at, |entry| store.put(&key, entry, None))
        };
        tidegate_engine::blocking(read).await.ok()?
    }

    /// The response of a file. `keep` stores it in memory. An earlier process may have written it: then `inherited_at` is the
    /// present time.
    fn read(
        &self,
        number: u64,
        (key, selector): (&[u8], &Selector),
        inherited_at: Option<Millis>,
        keep: impl FnOnce(Arc<Entry>) -> bool,
    ) -> Option<Arc<Entry>> {
        let Some(mut entry) = file::read(&self.path(number, EXTENSION), key, selector) else {
            let gone = self.index().take_files_numbered(key, number);
            self.delete_all(&gone);
            return None;
        };
        if let Some(now) = inherited_at {
            entry.freshness = entry.freshness.of_earlier_process(now);
        }
        let entry = Arc::new(entry);
        let index = self.index();
        if !index.keys.get(key)?.iter().any(|file| file.number == number) {
            return None;
        }
        let _has_room = keep(entry.clone());
        Some(entry)
    }

    /// Waits for the calls on threads for blocking work that are queued.
    pub(crate) fn flush(&self) {
        let mut queued = self.queued();
        while *queued > 0 {
            queued = self.none_queued.wait(queued).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Removes all responses for a key.
    pub(crate) fn remove(self: &Arc<Self>, key: &[u8]) {
        let gone = self.index().take_key(key);
        self.delete_later(&gone);
    }

    /// Removes all responses for keys that are chosen.
    pub(crate) fn remove_where(self: &Arc<Self>, is_chosen: impl Fn(&[u8]) -> bool) {
        let gone = self.index().take_where(is_chosen);
        self.delete_later(&gone);
    }

    /// Adds a file in the place of one with the same selecting fields. Returns the numbers of those that are to be deleted.
    fn insert(&self, index: &mut Index, key: Arc<[u8]>, mut file: StoredFile) -> Vec<u64> {
        // A file takes whole blocks.
        file.bytes = file.bytes.next_multiple_of(BLOCK_BYTES);
        let mut gone = index.take_files(&key, |selector| *selector == file.selector);
        while index.keys.get(&key).is_some_and(|files| files.len() >= self.variants_max) {
            let oldest = index.keys[&key][0].number;
            gone.extend(index.take_files_numbered(&key, oldest));
        }
        index.bytes += file.bytes;
        index.own_bytes += file.own_bytes(&key);
        index.files += 1;
        index.order.push_back((file.number, key.clone()));
        index.keys.entry(key).or_default().push(file);
        while index.bytes > self.bytes_max || index.own_bytes > self.index_bytes_max || index.files > FILES_MAX {
            let Some((number, key)) = index.order.pop_front() else { break };
            let files = index.keys.get_mut(&key);
            let Some(file) = files.and_then(|files| files.iter_mut().find(|file| file.number == number)) else {
                continue;
            };
            if std::mem::take(&mut file.is_used) {
                index.order.push_back((number, key));
            } else {
                gone.extend(index.take_files_numbered(&key, number));
            }
        }
        index.compact();
        gone
    }

    /// Deletes files on a thread for blocking work; at once if none is free.
    fn delete_later(self: &Arc<Self>, gone: &[u64]) {
        // The removal concerns files as well that an earlier instance has added since this one opened the folder.
        if gone.is_empty() && !self.owner.is_unclaimed() {
            return;
        }
        let (call, numbers) = (Queued::new(self), gone.to_owned());
        let work = move || {
            if let Err(error) = call.0.claim() {
                tracing::warn!(subsystem = "cache", %error, folder = %call.0.folder.display(), "the folder cannot be claimed");
            }
            call.0.delete_all(&numbers);
        };
        if tidegate_engine::blocking(work).detach().is_err() {
            self.delete_all(gone);
        }
    }

    fn delete_all(&self, numbers: &[u64]) {
        for &number in numbers {
            if let Err(error) = remove_if_there(&self.path(number, EXTENSION)) {
                tracing::warn!(subsystem = "cache", %error, "a stored response was not removed from the folder");
            }
        }
    }

    fn path(&self, number: u64, extension: &str) -> PathBuf {
        self.folder.join(format!("{number:016x}.{extension}"))
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn queued(&self) -> MutexGuard<'_, usize> {
        self.queued.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StoredFile {
    /// Its bytes in the index.
    fn own_bytes(&self, key: &[u8]) -> usize {
        FILE_BYTES + key.len() + self.selector.bytes()
    }
}

impl Index {
    /// Removes the files of a key with selecting fields that are chosen. Returns their numbers, as all of these do.
    fn take_files(&mut self, key: &[u8], is_chosen: impl Fn(&Selector) -> bool) -> Vec<u64> {
        self.take_some(key, |file| is_chosen(&file.selector))
    }

    fn take_files_numbered(&mut self, key: &[u8], number: u64) -> Vec<u64> {
        self.take_some(key, |file| file.number == number)
    }

    fn take_some(&mut self, key: &[u8], is_chosen: impl Fn(&StoredFile) -> bool) -> Vec<u64> {
        let Some(files) = self.keys.get_mut(key) else { return Vec::new() };
        let mut taken = Vec::new();
        files.retain(|file| {
            let is_taken = is_chosen(file);
            if is_taken {
                taken.push(file.number);
                self.bytes -= file.bytes;
                self.own_bytes -= file.own_bytes(key);
                self.files -= 1;
            }
            !is_taken
        });
        if files.is_empty() {
            self.keys.remove(key);
        }
        taken
    }

    /// Removes the files of a key, those included that are being written.
    fn take_key(&mut self, key: &[u8]) -> Vec<u64> {
        self.writing.remove(key);
        let taken = self.take_some(key, |_| true);
        self.compact();
        taken
    }

    fn take_where(&mut self, is_chosen: impl Fn(&[u8]) -> bool) -> Vec<u64> {
        self.writing.retain(|key, _| !is_chosen(key));
        let chosen: Vec<_> = self.keys.keys().filter(|key| is_chosen(key)).cloned().collect();
        let taken = chosen.iter().flat_map(|key| self.take_some(key, |_| true)).collect();
        self.compact();
        taken
    }

    /// The selecting fields of a file that is written no longer; `None` if it is not wanted any more.
    fn take_writing(&mut self, key: &[u8], number: u64) -> Option<Selector> {
        let writing = self.writing.get_mut(key)?;
        let at = writing.iter().position(|(other, _)| *other == number)?;
        let (_, selector) = writing.remove(at);
        if writing.is_empty() {
            self.writing.remove(key);
        }
        Some(selector)
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

/// The number of a stored response's file, and whether it is complete.
fn number_and_extension(path: &Path) -> Option<(u64, &'static str)> {
    let extension = path.extension()?.to_str()?;
    let extension = [EXTENSION, PARTIAL].into_iter().find(|own| *own == extension)?;
    Some((u64::from_str_radix(path.file_stem()?.to_str()?, 16).ok()?, extension))
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The bits of a file's number that are random, and equal for all files of an instance.
const MARK_MASK: u64 = 0xff_ffff;

const EXTENSION: &str = "response";
const PARTIAL: &str = "partial";

/// A file takes whole blocks of the file system.
const BLOCK_BYTES: u64 = 4096;

/// Files in the folder.
const FILES_MAX: usize = 100_000;

/// A file in the index: its places in the table and in the order.
const FILE_BYTES: usize = 160;

/// The index has an eighth of the memory.
const INDEX_PART: usize = 8;

#[cfg(test)]
mod tests;
