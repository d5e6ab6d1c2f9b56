//! The file of a stored response: a head with its checksum, and the body with another one.
//!
//! ```text
//! TGC1 | CRC of the head | CRC of the body | lengths of key, selector, fields: 3 × u32 | length of the body: u64
//!      | status: u16 | flags: u8 | received, age, lifetime, while-revalidate, if-error: 5 × u64 | key | selector | fields | body
//! ```
//!
//! Numbers are little-endian. The CRC of the head covers all between it and the body.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

use bytes::Bytes;
use tidegate_http1::{Fields, Status};

use crate::entry::Entry;
use crate::rules::freshness::Freshness;
use crate::rules::vary::Selector;

/// The head of a file, as far as the index needs it.
pub(super) struct FileHead {
    pub(super) key: Box<[u8]>,
    pub(super) selector: Selector,
    pub(super) file_bytes: u64,
}

/// The bytes of a file before the body.
pub(super) fn encode_head(key: &[u8], entry: &Entry) -> Vec<u8> {
    let selector = encode_selector(&entry.selector);
    let (fields, body, freshness) = (entry.fields.bytes(), &entry.body, &entry.freshness);
    let mut bytes = Vec::with_capacity(FIXED_BYTES + key.len() + selector.len() + fields.len());
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&crc32fast::hash(body).to_le_bytes());
    for length in [key.len(), selector.len(), fields.len()] {
        bytes.extend_from_slice(&(length as u32).to_le_bytes());
    }
    bytes.extend_from_slice(&(body.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&entry.status.code().to_le_bytes());
    let flags = [freshness.needs_validation, freshness.forbids_stale, entry.is_forwarded];
    bytes.push(flags.into_iter().rev().fold(0, |all, flag| all << 1 | u8::from(flag)));
    let Freshness { received, initial_age, lifetime, while_revalidate, if_error, .. } = *freshness;
    for number in [received, initial_age, lifetime, while_revalidate, if_error] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    for part in [key, &selector, fields] {
        bytes.extend_from_slice(part);
    }
    let checksum = crc32fast::hash(&bytes[8..]).to_le_bytes();
    bytes[4..8].copy_from_slice(&checksum);
    bytes
}

/// The head of a file whose length is right; `None` for any other.
pub(super) fn read_head(path: &Path) -> Option<FileHead> {
    let mut file = File::open(path).ok()?;
    let file_bytes = file.metadata().ok()?.len();
    let mut bytes = vec![0; FIXED_BYTES];
    file.read_exact(&mut bytes).ok()?;
    let layout = Layout::of(&bytes)?;
    if layout.file_bytes()? != file_bytes {
        return None;
    }
    bytes.resize(layout.head_bytes()?, 0);
    file.read_exact(&mut bytes[FIXED_BYTES..]).ok()?;
    let (key, selector, _) = layout.parts(&bytes)?;
    Some(FileHead { key: key.into(), selector: decode_selector(selector)?, file_bytes })
}

/// The response of a file, if it is complete, for this key and with these selecting fields.
pub(super) fn read(path: &Path, expected_key: &[u8], expected: &Selector) -> Option<Entry> {
    let bytes = Bytes::from(fs::read(path).ok()?);
    let layout = Layout::of(bytes.get(..FIXED_BYTES)?)?;
    if layout.file_bytes()? != bytes.len() as u64 {
        return None;
    }
    let (key, selector, lines) = layout.parts(&bytes)?;
    let body = bytes.slice(layout.head_bytes()?..);
    let selector = decode_selector(selector)?;
    if key != expected_key || selector != *expected || crc32fast::hash(&body) != u32_at(&bytes, 8)? {
        return None;
    }
    let number = |index: usize| u64_at(&bytes, FLAGS_AT + 1 + index * 8);
    let flags = bytes[FLAGS_AT];
    let freshness = Freshness {
        received: number(0)?,
        initial_age: number(1)?,
        lifetime: number(2)?,
        while_revalidate: number(3)?,
        if_error: number(4)?,
        needs_validation: flags & 1 != 0,
        forbids_stale: flags & 2 != 0,
    };
    let status = Status::new(u16::from_le_bytes(bytes[FLAGS_AT - 2..FLAGS_AT].try_into().ok()?))?;
    Some(Entry::new(status, fields(lines)?, body, selector, freshness, flags & 4 != 0))
}

/// The lengths of the parts of a file.
struct Layout {
    key: usize,
    selector: usize,
    fields: usize,
    body: u64,
}

impl Layout {
    fn of(fixed: &[u8]) -> Option<Self> {
        if !fixed.starts_with(MAGIC) {
            return None;
        }
        let length = |index: usize| Some(u32_at(fixed, 12 + index * 4)? as usize);
        let layout = Self { key: length(0)?, selector: length(1)?, fields: length(2)?, body: u64_at(fixed, 24)? };
        // A damaged length claims no memory.
        (layout.key.max(layout.selector).max(layout.fields) <= PART_BYTES_MAX).then_some(layout)
    }

    fn head_bytes(&self) -> Option<usize> {
        FIXED_BYTES.checked_add(self.key)?.checked_add(self.selector)?.checked_add(self.fields)
    }

    fn file_bytes(&self) -> Option<u64> {
        (self.head_bytes()? as u64).checked_add(self.body)
    }

    /// Key, selector and fields, if the checksum is right.
    fn parts<'a>(&self, bytes: &'a [u8]) -> Option<(&'a [u8], &'a [u8], &'a [u8])> {
        let head = bytes.get(..self.head_bytes()?)?;
        if crc32fast::hash(&head[8..]) != u32_at(head, 4)? {
            return None;
        }
        let (key, rest) = head[FIXED_BYTES..].split_at_checked(self.key)?;
        let (selector, fields) = rest.split_at_checked(self.selector)?;
        Some((key, selector, fields))
    }
}

/// The fields of lines, each checked once more.
fn fields(mut lines: &[u8]) -> Option<Fields> {
    let mut fields = Fields::new();
    while !lines.is_empty() {
        let end = lines.windows(2).position(|two| two == b"\r\n")?;
        let line = std::str::from_utf8(&lines[..lines[..end].iter().position(|&byte| byte == b':')?]).ok()?;
        let value = lines[line.len() + 1..end].trim_ascii();
        fields.push(line, value).ok()?;
        lines = &lines[end + 2..];
    }
    Some(fields)
}

fn encode_selector(selector: &Selector) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut part = |part: &[u8]| {
        bytes.extend_from_slice(&(part.len() as u32).to_le_bytes());
        bytes.extend_from_slice(part);
    };
    for (name, value) in selector.fields() {
        part(name);
        match value {
            Some(value) => part(&[b"=", &**value].concat()),
            None => part(b""),
        }
    }
    bytes
}

fn decode_selector(mut bytes: &[u8]) -> Option<Selector> {
    let mut part = || -> Option<Option<Box<[u8]>>> {
        if bytes.is_empty() {
            return Some(None);
        }
        let length = u32_at(bytes, 0)? as usize;
        let (part, rest) = bytes[4..].split_at_checked(length)?;
        bytes = rest;
        Some(Some(part.into()))
    };
    let mut fields = Vec::new();
    while let Some(name) = part()? {
        let value = part()??;
        fields.push((name, value.strip_prefix(b"=").map(Box::from)));
    }
    Some(Selector::from_fields(fields))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

const MAGIC: &[u8] = b"TGC1";

/// Where the flags are, behind the status.
const FLAGS_AT: usize = 34;

/// All before the key.
const FIXED_BYTES: usize = FLAGS_AT + 1 + 5 * 8;

/// The key, the selecting fields and the fields of a response are shorter by their limits.
const PART_BYTES_MAX: usize = 1024 * 1024;
