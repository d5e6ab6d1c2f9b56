//! `Entries`: one loop's cache of files: the fields of their responses, that a variant does not exist, and open files
//! by choice.
//!
//! The fields belong to an [`Identity`]: they are made again when a file has another one. That a variant is absent is
//! remembered for a second. The number of names is bounded: a table that is full is emptied.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fs::File;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tidegate_engine::task;
use tidegate_http_message::negotiate::Encoding;
use tidegate_http1::Fields;

use super::open::Identity;
use super::options::FileOptions;

/// One loop's cache of files.
pub(super) struct Entries {
    /// By coding, and by the name of the file without the suffix of the coding.
    names: [RefCell<HashMap<Box<str>, Slot>>; Encoding::ALL.len()],
    /// How many files are kept open.
    open_count: Rc<Cell<usize>>,
    /// A task closes them all after a while.
    is_closing_due: Cell<bool>,
}

/// A file that is kept open. It counts until it is dropped, with its entry or before.
struct OpenFile {
    file: Arc<File>,
    count: Rc<Cell<usize>>,
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.count.set(self.count.get() - 1);
    }
}

enum Slot {
    Entry(Rc<Entry>),
    /// There was no such file then.
    Absent(Instant),
}

/// Cached facts about a file before it is opened.
pub(super) enum Known {
    Nothing,
    Absent,
    /// The fields of the file, if it is the same.
    Entry(Rc<Entry>),
    /// The file itself.
    Open(Rc<Entry>, Arc<File>),
}

/// A file, as its responses describe it.
pub(super) struct Entry {
    pub(super) identity: Identity,
    pub(super) etag: Box<str>,
    /// `Last-Modified`, in seconds since 1970.
    pub(super) modified: u64,
    pub(super) content_type: Cow<'static, str>,
    encoding: Encoding,
    /// Those of a response with the whole file.
    pub(super) fields: Fields,
    /// The file, if it is kept open.
    open: RefCell<Option<OpenFile>>,
}

impl Entries {
    pub(super) fn new() -> Self {
        Self { names: Default::default(), open_count: Rc::default(), is_closing_due: Cell::new(false) }
    }

    pub(super) fn known(&self, name: &str, encoding: Encoding, now: Instant) -> Known {
        match self.names[encoding as usize].borrow().get(name) {
            None => Known::Nothing,
            Some(Slot::Absent(then)) if now.saturating_duration_since(*then) < ABSENT_FOR => Known::Absent,
            Some(Slot::Absent(_)) => Known::Nothing,
            Some(Slot::Entry(entry)) => {
                if let Some(open) = &*entry.open.borrow() {
                    return Known::Open(entry.clone(), open.file.clone());
                }
                Known::Entry(entry.clone())
            }
        }
    }

    pub(super) fn insert(&self, name: &str, encoding: Encoding, entry: Rc<Entry>) {
        self.insert_slot(name, encoding, Slot::Entry(entry));
    }

    /// Remembers that a variant does not exist, and forgets a file that is gone.
    pub(super) fn insert_absent(&self, name: &str, encoding: Encoding, now: Instant) {
        if encoding == Encoding::Identity {
            // Names that do not exist are the peer's choice: none of them takes a place.
            self.names[encoding as usize].borrow_mut().remove(name);
        } else {
            self.insert_slot(name, encoding, Slot::Absent(now));
        }
    }

    fn insert_slot(&self, name: &str, encoding: Encoding, slot: Slot) {
        let mut names = self.names[encoding as usize].borrow_mut();
        if let Some(place) = names.get_mut(name) {
            *place = slot;
            return;
        }
        if names.len() >= NAMES_MAX {
            names.clear();
        }
        names.insert(name.into(), slot);
    }

    /// Keeps a file open until so much time has passed, or less: all files that are kept close at the same time.
    pub(super) fn keep(self: &Rc<Self>, entry: &Entry, file: &Arc<File>, keep_open: Duration) {
        if self.open_count.get() >= OPEN_MAX {
            self.close_files();
        }
        if !self.is_closing_due.replace(true) {
            let entries = Rc::downgrade(self);
            drop(task::spawn(async move {
                task::sleep(keep_open).await;
                if let Some(entries) = entries.upgrade() {
                    entries.is_closing_due.set(false);
                    entries.close_files();
                }
            }));
        }
        self.open_count.set(self.open_count.get() + 1);
        let open = OpenFile { file: file.clone(), count: self.open_count.clone() };
        drop(entry.open.borrow_mut().replace(open));
    }

    /// Closes the files that are kept open. Returns whether there were any.
    pub(super) fn close_files(&self) -> bool {
        let mut closed = false;
        for names in &self.names {
            for slot in names.borrow().values() {
                if let Slot::Entry(entry) = slot {
                    closed |= entry.open.borrow_mut().take().is_some();
                }
            }
        }
        closed
    }
}

impl Entry {
    pub(super) fn new(name: &str, encoding: Encoding, identity: Identity, options: &FileOptions) -> Self {
        let (seconds, nanoseconds) = identity.modified;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        // RFC 9110 §8.8.2.1: not later than the response.
        let modified = u64::try_from(seconds).unwrap_or(0).min(now);
        let mut entry = Self {
            identity,
            etag: format!("\"{:x}-{:x}-{seconds:x}.{nanoseconds:x}\"", identity.inode, identity.length).into(),
            modified,
            content_type: content_type(name),
            encoding,
            fields: Fields::new(),
            open: RefCell::new(None),
        };
        entry.fields = entry.representing(&entry.content_type, options);
        entry
    }

    /// The fields of a response that has the file or parts of it.
    pub(super) fn representing(&self, content_type: &str, options: &FileOptions) -> Fields {
        let mut fields = Fields::new();
        push(&mut fields, "Content-Type", content_type);
        if self.encoding != Encoding::Identity {
            push(&mut fields, "Content-Encoding", self.encoding.as_str());
        }
        self.add_validators(&mut fields);
        push(&mut fields, "Accept-Ranges", "bytes");
        push(&mut fields, "X-Content-Type-Options", "nosniff");
        options.add_cache_fields(&mut fields);
        fields
    }

    /// The fields of a response that only says which file there is (RFC 9110 §15.4.5).
    pub(super) fn validating(&self, options: &FileOptions) -> Fields {
        let mut fields = Fields::new();
        self.add_validators(&mut fields);
        options.add_cache_fields(&mut fields);
        fields
    }

    fn add_validators(&self, fields: &mut Fields) {
        push(fields, "ETag", &self.etag);
        let modified = UNIX_EPOCH + Duration::from_secs(self.modified.min(SECONDS_MAX));
        push(fields, "Last-Modified", &httpdate::fmt_http_date(modified));
    }
}

fn push(fields: &mut Fields, name: &str, value: &str) {
    fields.push(name, value).expect("types, dates and hexadecimal digits are values");
}

/// The media type by the extension of a name. Texts are in UTF-8.
fn content_type(name: &str) -> Cow<'static, str> {
    match mime_guess::from_path(name).first_raw() {
        Some(text) if text.starts_with("text/") => format!("{text}; charset=utf-8").into(),
        Some(known) => known.into(),
        None => "application/octet-stream".into(),
    }
}

/// How long it is remembered that a variant does not exist.
const ABSENT_FOR: Duration = Duration::from_secs(1);

/// Names that are remembered for each coding: about 600 bytes each.
const NAMES_MAX: usize = 4096;

/// Files that each loop keeps open.
const OPEN_MAX: usize = 256;

/// The last second that an HTTP date can express, at the end of the year 9999.
const SECONDS_MAX: u64 = 253_402_300_799;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tidegate_engine::{Backend, EventLoop};

    use super::*;
    use crate::files::open::{FolderEntry, Root};

    #[test]
    fn types_are_those_of_extensions() {
        for (name, expected) in [
            ("a.html", "text/html; charset=utf-8"),
            ("a/b.CSS", "text/css; charset=utf-8"),
            ("a.js", "text/javascript; charset=utf-8"),
            ("a.json", "application/json"),
            ("a.svg", "image/svg+xml"),
            ("a.woff2", "font/woff2"),
            ("a.wasm", "application/wasm"),
            ("a", "application/octet-stream"),
            ("html", "application/octet-stream"),
            ("a.tar.gz", "application/gzip"),
        ] {
            assert_eq!(content_type(name), expected, "{name}");
        }
    }

    #[test]
    fn the_names_that_are_remembered_are_bounded() {
        let (entries, now) = (Entries::new(), Instant::now());
        for name in 0..3 * NAMES_MAX {
            entries.insert_absent(&name.to_string(), Encoding::Gzip, now);
            assert!(entries.names[Encoding::Gzip as usize].borrow().len() <= NAMES_MAX);
            entries.insert_absent(&name.to_string(), Encoding::Identity, now);
        }
        assert!(entries.names[Encoding::Identity as usize].borrow().is_empty());
        let last = (3 * NAMES_MAX - 1).to_string();
        assert!(matches!(entries.known(&last, Encoding::Gzip, now), Known::Absent));
        assert!(matches!(entries.known(&last, Encoding::Gzip, now + ABSENT_FOR), Known::Nothing));
    }
    #[test]
    fn a_file_counts_as_open_until_its_entry_is_gone() {
        let folder = Root::new(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap();
        let FolderEntry::File(file, identity) = folder.open("Cargo.toml").unwrap() else { panic!("a file") };
        let (file, options, minute) = (Arc::new(file), FileOptions::default(), Duration::from_secs(60));
        let test = async move {
            let entries = Rc::new(Entries::new());
            let entry = || Rc::new(Entry::new("a", Encoding::Identity, identity, &options));
            // Each change of a file replaces its entry.
            for _ in 0..3 {
                let changed = entry();
                entries.insert("a", Encoding::Identity, changed.clone());
                entries.keep(&changed, &file, minute);
                entries.keep(&changed, &file, minute);
                drop(changed);
                assert_eq!(entries.open_count.get(), 1);
            }
            entries.insert_absent("a", Encoding::Identity, Instant::now());
            assert_eq!((entries.open_count.get(), Arc::strong_count(&file)), (0, 1));
        };
        EventLoop::on(Backend::Auto).unwrap().block_on(test).unwrap();
    }
}
