//! Shared parts of this crate's tests: files, and the far end of a queue. `fuzz/src/outbound.rs` shares it as well.

pub(crate) mod model;

use std::fs::File;
use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tidegate_buffer::{ENTRY_BYTES, FileRegion, Gathered, Outbound};

/// As many parts as an event loop gathers at once.
pub(crate) const PARTS: usize = 1024;

/// A file without a name that holds `bytes`.
pub(crate) fn file(bytes: &[u8]) -> Arc<File> {
    static FILES: AtomicU32 = AtomicU32::new(0);
    let name = format!("tidegate-buffer-{}-{}", std::process::id(), FILES.fetch_add(1, Ordering::Relaxed));
    let path: PathBuf = std::env::temp_dir().join(name);
    let mut file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    file.write_all(bytes).unwrap();
    Arc::new(file)
}

/// All of `file`, or a piece of it.
pub(crate) fn region(file: &Arc<File>, offset: u64, length: u64) -> FileRegion {
    FileRegion { file: Arc::clone(file), offset, length }
}

/// Reads a region as a filter would have it read.
pub(crate) fn read(region: &FileRegion, bytes: &mut [u8]) -> std::io::Result<usize> {
    region.file.read_at(bytes, region.offset)
}

/// The next system call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Nothing,
    Parts(Vec<Vec<u8>>),
    File { offset: u64, length: u64 },
}

/// Gathers without sending anything.
pub(crate) fn gather(queue: &Outbound, parts_max: usize, bytes_max: usize) -> Call {
    let mut parts = [const { MaybeUninit::<IoSlice<'_>>::uninit() }; PARTS];
    match queue.gather(&mut parts[..parts_max], bytes_max) {
        Gathered::Nothing => Call::Nothing,
        Gathered::Parts(parts) | Gathered::PartsBeforeFile(parts) => {
            Call::Parts(parts.iter().map(|part| part.to_vec()).collect())
        }
        Gathered::File(region) => Call::File { offset: region.offset, length: region.length },
    }
}

/// Sends up to `bytes_max` bytes in one call, and says which.
pub(crate) fn send(queue: &mut Outbound, bytes_max: usize) -> Vec<u8> {
    let mut parts = [const { MaybeUninit::<IoSlice<'_>>::uninit() }; PARTS];
    let sent = match queue.gather(&mut parts, bytes_max) {
        Gathered::Nothing => Vec::new(),
        Gathered::Parts(parts) | Gathered::PartsBeforeFile(parts) => {
            parts.iter().flat_map(|part| part.iter().copied()).collect()
        }
        Gathered::File(region) => {
            let length = usize::try_from(region.length).unwrap().min(bytes_max);
            let mut bytes = vec![0; length];
            region.file.read_exact_at(&mut bytes, region.offset).unwrap();
            bytes
        }
    };
    queue.advance(sent.len() as u64);
    sent
}

/// Sends everything that was flushed, at most `bytes_max` bytes a call.
pub(crate) fn send_all(queue: &mut Outbound, bytes_max: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while queue.has_flushed() {
        let sent = send(queue, bytes_max);
        assert!(!sent.is_empty(), "a call that sends nothing would be made for ever");
        all.extend(sent);
    }
    all
}

/// How many entries the queue has.
pub(crate) fn entries(queue: &Outbound) -> usize {
    (queue.cost() - queue.pending()) as usize / ENTRY_BYTES
}

/// Bytes that identify their source.
pub(crate) fn bytes(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (((seed + 1) * 2_654_435_761 + at * 40_503) >> 7) as u8).collect()
}
