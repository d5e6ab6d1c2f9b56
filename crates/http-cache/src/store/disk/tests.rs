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

    /// All but `owner`.
    fn files(&self) -> Vec<PathBuf> {
        let mut files: Vec<_> = fs::read_dir(&self.0).unwrap().map(|item| item.unwrap().path()).collect();
        files.retain(|path| !path.ends_with("owner"));
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

/// A response with other selecting fields, or another freshness.
fn changed(change: impl FnOnce(&mut (Selector, Freshness))) -> Entry {
    let entry = entry("a");
    let mut parts = (entry.selector, entry.freshness);
    change(&mut parts);
    Entry::new(entry.status, entry.fields, entry.body, parts.0, parts.1, true)
}

fn limits(disk_bytes_max: u64) -> CacheLimits {
    CacheLimits { disk_bytes_max, ..CacheLimits::default() }
}

/// Writes a response at once.
fn write(disk: &Disk, key: &str, entry: &Entry) {
    let (number, gone) = disk.begin(key.as_bytes(), &entry.selector, None);
    disk.delete_all(&gone);
    disk.write(number, key.as_bytes(), entry).unwrap();
}

fn only(disk: &Disk, key: &[u8]) -> Option<u64> {
    disk.index().keys.get(key).map(|files| files[0].number)
}

#[test]
fn a_response_is_read_back_after_a_restart() {
    let folder = Folder::new("restart");
    let disk = Disk::open(&folder.0, &limits(1 << 20)).unwrap();
    write(&disk, "http://sea/a", &entry("ebb"));
    let disk = Disk::open(&folder.0, &limits(1 << 20)).unwrap();
    let number = only(&disk, b"http://sea/a").unwrap();
    let path = disk.path(number, EXTENSION);
    let expected = entry("ebb");
    let read = file::read(&path, b"http://sea/a", &expected.selector).unwrap();
    assert_eq!(read.fields.iter().collect::<Vec<_>>(), expected.fields.iter().collect::<Vec<_>>());
    assert_eq!((read.status, &read.body[..], read.freshness), (Status::NOT_FOUND, &b"ebb"[..], expected.freshness));
    assert_eq!((&read.selector, read.is_forwarded), (&expected.selector, true));
    assert!(file::read(&path, b"http://sea/b", &expected.selector).is_none());
    let other = Selector::of(&[b"Host"], &Fields::new().iter()).unwrap();
    assert!(file::read(&path, b"http://sea/a", &other).is_none());
}

#[test]
fn a_damaged_file_is_never_a_response() {
    let whole = entry("a body of some length");
    let bytes = [&file::encode_head(b"http://sea/a", &whole)[..], &whole.body].concat();
    let folder = Folder::new("damaged");
    fs::create_dir_all(&folder.0).unwrap();
    let path = folder.0.join("0.response");
    let read = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        let head = file::read_head(&path);
        (head.is_some(), file::read(&path, b"http://sea/a", &whole.selector).is_some())
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
fn damaged_and_partial_files_are_removed_by_the_first_write() {
    let folder = Folder::new("cleaned");
    let disk = Disk::open(&folder.0, &limits(1 << 20)).unwrap();
    write(&disk, "http://sea/a", &entry("a"));
    write(&disk, "http://sea/b", &entry("b"));
    let files = folder.files();
    fs::write(&files[0], "TGC1").unwrap();
    fs::write(folder.0.join("00000000000000ff.partial"), "TG").unwrap();
    fs::write(folder.0.join("README"), "not ours").unwrap();
    let disk = Disk::open(&folder.0, &limits(1 << 20)).unwrap();
    assert!(only(&disk, b"http://sea/a").is_none() && only(&disk, b"http://sea/b").is_some());
    assert_eq!(folder.files().len(), 4);
    disk.claim().unwrap();
    assert_eq!(folder.files(), [files[1].clone(), folder.0.join("README")]);
}

#[test]
fn a_second_instance_damages_nothing_until_it_writes() {
    let folder = Folder::new("second");
    let first = Disk::open(&folder.0, &limits(1 << 20)).unwrap();
    for name in ["a", "b", "c"] {
        write(&first, &format!("http://sea/{name}"), &entry(name));
    }
    let partial = first.path(7, PARTIAL);
    fs::write(&partial, "TG").unwrap();
    // A name whose file is evicted between the listing and the reading.
    std::os::unix::fs::symlink("nowhere", first.path(8, EXTENSION)).unwrap();
    let before = folder.files();
    let second = Disk::open(&folder.0, &limits(2 * BLOCK_BYTES)).unwrap();
    assert_eq!(folder.files(), before, "opening changes nothing, whatever the limits");
    assert_eq!(second.index().files, 2);
    // The first one goes on until the second one writes.
    write(&first, "http://sea/d", &entry("d"));
    assert!(only(&first, b"http://sea/d").is_some());
    write(&second, "http://sea/e", &entry("e"));
    assert_eq!(folder.files().len(), 2, "the limits of the second one");
    write(&first, "http://sea/f", &entry("f"));
    assert!(first.owner.is_replaced() && only(&first, b"http://sea/f").is_none());
    assert!(first.index().writing.is_empty());
    assert_eq!(folder.files().len(), 2);
    // The files of the first one are gone for it, and it removes none of the second.
    let selector = &entry("").selector;
    let a = only(&first, b"http://sea/a").unwrap();
    assert!(first.read(a, (b"http://sea/a", selector), None, |_| true).is_none());
    let e = only(&second, b"http://sea/e").unwrap();
    assert!(second.read(e, (b"http://sea/e", selector), None, |_| true).is_some());
}

#[test]
fn an_earlier_instance_takes_the_folder_from_no_later_one() {
    let folder = Folder::new("earlier");
    let first = Disk::open(&folder.0, &limits(1 << 20)).unwrap();
    let second = Disk::open(&folder.0, &limits(1 << 20)).unwrap();
    write(&second, "http://sea/a", &entry("a"));
    // A fetch of the first one ends, which has written nothing before.
    write(&first, "http://sea/b", &entry("b"));
    assert!(first.owner.is_replaced() && only(&first, b"http://sea/b").is_none());
    let selector = &entry("").selector;
    let a = only(&second, b"http://sea/a").unwrap();
    assert!(second.read(a, (b"http://sea/a", selector), None, |_| true).is_some());
    write(&second, "http://sea/c", &entry("c"));
    assert!(!second.owner.is_replaced() && only(&second, b"http://sea/c").is_some());
    // A later one takes the folder from an earlier one, whether that was there when the later one was opened or not.
    let third = Disk::open(&folder.0, &limits(1 << 20)).unwrap();
    write(&second, "http://sea/d", &entry("d"));
    write(&third, "http://sea/e", &entry("e"));
    assert!(!third.owner.is_replaced() && only(&third, b"http://sea/e").is_some());
}

#[test]
fn numbers_of_two_instances_differ() {
    let folder = Folder::new("numbers");
    let one = Disk::open(&folder.0, &limits(1 << 20)).unwrap();
    let other = Disk::open(&folder.0, &limits(1 << 20)).unwrap();
    // 24 random bits.
    let begin = |disk: &Disk| disk.begin(b"http://sea/a", &entry("").selector, None).0;
    let numbers = [begin(&one), begin(&one), begin(&other), begin(&other)];
    assert_eq!(HashSet::from(numbers).len(), 4);
}

#[test]
fn a_removal_claims_the_folder() {
    let folder = Folder::new("claimed");
    let first = Disk::open(&folder.0, &limits(1 << 20)).unwrap();
    let second = Arc::new(Disk::open(&folder.0, &limits(1 << 20)).unwrap());
    // The second one does not know this file.
    write(&first, "http://sea/a", &entry("a"));
    second.remove(b"http://sea/a");
    second.flush();
    assert!(folder.files().is_empty());
}

#[test]
fn files_stay_within_the_budget() {
    let folder = Folder::new("budget");
    let disk = Disk::open(&folder.0, &limits(10 * BLOCK_BYTES)).unwrap();
    for number in 0..100 {
        write(&disk, &format!("http://sea/{number}"), &entry("a"));
        // One that is read stays.
        if let Some(file) = disk.index().keys.get_mut(&b"http://sea/0"[..]) {
            file[0].is_used = true;
        }
        assert!(folder.files().len() <= 10 && disk.bytes() <= 10 * BLOCK_BYTES);
    }
    assert!(only(&disk, b"http://sea/0").is_some() && only(&disk, b"http://sea/1").is_none());
    // The same key again takes the place of the old file.
    for _ in 0..10 {
        write(&disk, "http://sea/0", &entry("b"));
    }
    assert_eq!(folder.files().len(), 10);
}

#[test]
fn a_removal_removes_files_and_what_is_being_written() {
    let folder = Folder::new("removed");
    let disk = Disk::open(&folder.0, &limits(1 << 20)).unwrap();
    write(&disk, "http://sea/a", &entry("a"));
    write(&disk, "http://ocean/a", &entry("a"));
    let (doomed, _) = disk.begin(b"http://sea/b", &entry("b").selector, None);
    let (other, _) = disk.begin(b"http://ocean/b", &entry("b").selector, None);
    let gone = disk.index().take_where(|key| key.starts_with(b"http://sea/"));
    disk.delete_all(&gone);
    assert_eq!(folder.files().len(), 1);
    // They began before the removal.
    disk.write(doomed, b"http://sea/b", &entry("b")).unwrap();
    disk.write(other, b"http://ocean/b", &entry("b")).unwrap();
    assert!(only(&disk, b"http://sea/b").is_none() && only(&disk, b"http://ocean/b").is_some());
    assert_eq!(folder.files().len(), 2);
    assert!(disk.index().writing.is_empty());
}

#[test]
fn an_older_response_does_not_outlive_a_newer_one() {
    let folder = Folder::new("older");
    let disk = Arc::new(Disk::open(&folder.0, &limits(1 << 20)).unwrap());
    write(&disk, "http://sea/a", &entry("old"));
    // A newer one that is left out, since nothing has room: the old one is gone all the same.
    let store = Arc::new(Store::new(&CacheLimits { memory_bytes_max: 0, ..limits(1 << 20) }, 0));
    disk.put(b"http://sea/a", &Arc::new(entry("new")), None, &store);
    assert_eq!((only(&disk, b"http://sea/a"), folder.files().len()), (None, 0));
    assert_eq!(disk.left_out.load(Relaxed), 1);
    // Of two that are written at once the one that began later stays, whichever is complete first.
    let (first, _) = disk.begin(b"http://sea/a", &entry("").selector, None);
    let (second, _) = disk.begin(b"http://sea/a", &entry("").selector, None);
    disk.write(second, b"http://sea/a", &entry("second")).unwrap();
    disk.write(first, b"http://sea/a", &entry("first")).unwrap();
    assert_eq!((only(&disk, b"http://sea/a"), folder.files().len()), (Some(second), 1));
    // One whose selecting fields a validation has changed takes the place of the old one.
    let new = Selector::of(&[b"Host"], &Fields::new().iter()).unwrap();
    let (_, gone) = disk.begin(b"http://sea/a", &new, Some(&entry("").selector));
    assert_eq!(gone, [second]);
}

#[test]
fn responses_that_wait_to_be_written_are_bounded_in_bytes() {
    let limits = CacheLimits { memory_bytes_max: 80_000, ..limits(1 << 20) };
    let store = Arc::new(Store::new(&limits, 0));
    let mut reservations = vec![store.reserve_for_disk(), store.reserve_for_disk(), store.reserve()];
    assert!(reservations[0].grow(9000));
    // An eighth of the memory waits for the folder, and as much is left for responses that come.
    assert!(!reservations[1].grow(9000));
    reservations.remove(1);
    assert!(reservations[1].grow(11_000));
    drop(reservations);
    assert!(store.reserve_for_disk().grow(10_000));
}

#[test]
fn variants_and_the_index_are_bounded() {
    let folder = Folder::new("variants");
    let few = CacheLimits { variants_max: 4, memory_bytes_max: 80_000, ..limits(1 << 20) };
    let disk = Disk::open(&folder.0, &few).unwrap();
    for number in 0..20 {
        let mut request = Fields::new();
        request.push("X", number.to_string()).unwrap();
        let selector = Selector::of(&[b"x"], &request.iter()).unwrap();
        write(&disk, "http://sea/a", &changed(|parts| parts.0 = selector));
        assert!(folder.files().len() <= 4);
    }
    let last = disk.index().keys[&b"http://sea/a"[..]].last().unwrap().number;
    assert_eq!(last >> MARK_MASK.count_ones(), 19);
    // 10,000 bytes of memory for the index of invented queries.
    for number in 0..100 {
        write(&disk, &format!("http://sea/?{number}{}", "q".repeat(1000)), &entry("a"));
        assert!(disk.index().own_bytes <= 10_000 && folder.files().len() <= 12);
    }
    let gone = disk.index().take_where(|_| true);
    disk.delete_all(&gone);
    let index = disk.index();
    assert_eq!((index.bytes, index.own_bytes, index.files), (0, 0, 0));
}

#[test]
fn a_response_of_an_earlier_process_with_a_clock_ahead_needs_a_validation() {
    let folder = Folder::new("clock");
    let fresh = |received| {
        let freshness = Freshness { received, needs_validation: false, ..entry("").freshness };
        changed(|parts| parts.1 = freshness)
    };
    let disk = Disk::open(&folder.0, &limits(1 << 20)).unwrap();
    write(&disk, "http://sea/a", &fresh(5000));
    let read = |disk: &Disk, now| {
        let (number, selector) = (only(disk, b"http://sea/a").unwrap(), &entry("").selector);
        disk.read(number, (b"http://sea/a", selector), Some(now), |_| true).unwrap().freshness.needs_validation
    };
    assert!(read(&disk, 4999) && !read(&disk, 5000));
    let inherited = |disk: &Disk| disk.index().keys[&b"http://sea/a"[..]][0].is_inherited;
    assert!(!inherited(&disk) && inherited(&Disk::open(&folder.0, &limits(1 << 20)).unwrap()));
}
