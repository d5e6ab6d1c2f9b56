use bytes::Bytes;
use tidegate_http1::{Fields, Status};

use super::*;
use crate::rules::freshness::Freshness;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("tidegate-cache-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        Self(folder)
    }

    fn files(&self) -> Vec<PathBuf> {
        let mut files: Vec<_> = fs::read_dir(&self.0).unwrap().map(|item| item.unwrap().path()).collect();
        files.sort();
        files
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn entry(body: &str) -> Entry {
    let freshness = Freshness {
        received: 1,
        initial_age: 2,
        lifetime: 3,
        while_revalidate: 4,
        if_error: 5,
        needs_validation: true,
        forbids_stale: false,
    };
    let mut request = Fields::new();
    request.push("Accept", "a, b").unwrap();
    let selector = Selector::of(&[b"Accept, Cookie"], &request.iter()).unwrap();
    let fields = Fields::from_static("Date: Thu, 01 Jan 1970 00:00:00 GMT\r\nETag: \"7\"\r\nX:\r\n");
    Entry::new(Status::NOT_FOUND, fields, Bytes::from(body.to_owned()), selector, freshness, true)
}

fn only(disk: &Disk, key: &[u8]) -> Option<u64> {
    disk.index().keys.get(key).map(|files| files[0].number)
}

#[test]
fn a_response_is_read_back_after_a_restart() {
    let folder = Folder::new("restart");
    let disk = Disk::open(&folder.0, 1 << 20).unwrap();
    disk.write(b"http://sea/a", &entry("ebb"), 0).unwrap();
    let disk = Disk::open(&folder.0, 1 << 20).unwrap();
    let number = only(&disk, b"http://sea/a").unwrap();
    let path = disk.path(number, EXTENSION);
    let read = file::read(&path, b"http://sea/a").unwrap();
    let expected = entry("ebb");
    assert_eq!(read.fields.iter().collect::<Vec<_>>(), expected.fields.iter().collect::<Vec<_>>());
    assert_eq!((read.status, &read.body[..], read.freshness), (Status::NOT_FOUND, &b"ebb"[..], expected.freshness));
    assert_eq!((read.selector, read.is_forwarded), (expected.selector, true));
    assert!(file::read(&path, b"http://sea/b").is_none());
}

#[test]
fn a_damaged_file_is_never_a_response() {
    let bytes = file::encode(b"http://sea/a", &entry("a body of some length"));
    let folder = Folder::new("damaged");
    fs::create_dir_all(&folder.0).unwrap();
    let path = folder.0.join("0.response");
    let read = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        let head = file::read_head(&path);
        (head.is_some(), file::read(&path, b"http://sea/a").is_some())
    };
    assert_eq!(read(&bytes), (true, true));
    for length in 0..bytes.len() {
        assert_eq!(read(&bytes[..length]), (false, false), "{length} bytes");
    }
    assert_eq!(read(&[&bytes[..], b"."].concat()), (false, false));
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x20;
        assert!(!read(&damaged).1, "byte {at}");
    }
}

#[test]
fn damaged_and_partial_files_are_removed_at_the_start() {
    let folder = Folder::new("cleaned");
    let disk = Disk::open(&folder.0, 1 << 20).unwrap();
    disk.write(b"http://sea/a", &entry("a"), 0).unwrap();
    disk.write(b"http://sea/b", &entry("b"), 0).unwrap();
    let files = folder.files();
    fs::write(&files[0], "TGC1").unwrap();
    fs::write(folder.0.join("00000000000000ff.partial"), "TG").unwrap();
    fs::write(folder.0.join("README"), "not ours").unwrap();
    let disk = Disk::open(&folder.0, 1 << 20).unwrap();
    assert!(only(&disk, b"http://sea/a").is_none() && only(&disk, b"http://sea/b").is_some());
    assert_eq!(folder.files(), [files[1].clone(), folder.0.join("README")]);
}

#[test]
fn files_stay_within_the_budget() {
    let folder = Folder::new("budget");
    let disk = Disk::open(&folder.0, 10 * BLOCK_BYTES).unwrap();
    for number in 0..100 {
        disk.write(format!("http://sea/{number}").as_bytes(), &entry("a"), 0).unwrap();
        // One that is read stays.
        if let Some(file) = disk.index().keys.get_mut(&b"http://sea/0"[..]) {
            file[0].is_used = true;
        }
        assert!(folder.files().len() <= 10 && disk.bytes() <= 10 * BLOCK_BYTES);
    }
    assert!(only(&disk, b"http://sea/0").is_some() && only(&disk, b"http://sea/1").is_none());
    // The same key again takes the place of the old file.
    for _ in 0..10 {
        disk.write(b"http://sea/0", &entry("b"), 0).unwrap();
    }
    assert_eq!(folder.files().len(), 10);
}

#[test]
fn a_removal_removes_files_and_what_is_being_written() {
    let folder = Folder::new("removed");
    let disk = Disk::open(&folder.0, 1 << 20).unwrap();
    disk.write(b"http://sea/a", &entry("a"), 0).unwrap();
    disk.write(b"http://ocean/a", &entry("a"), 0).unwrap();
    disk.remove_where(|key| key.starts_with(b"http://sea/"));
    assert_eq!(folder.files().len(), 1);
    // It began before the removal.
    disk.write(b"http://sea/a", &entry("a"), 0).unwrap();
    assert!(only(&disk, b"http://sea/a").is_none());
    assert_eq!(folder.files().len(), 1);
}
