//! `TableEncoder`: the table of this side, which the peer's decoder permits (RFC 9204 §2.1).
//!
//! It gets a section without references, as `encoder.rs` makes it, and writes one with them. A line is known by its bytes,
//! which are the same for equal fields, so nothing is decoded for a reference.
//!
//! - A field is inserted when it comes a second time within a short while. Secrets stay literals (RFC 9204 §7.1.3).
//! - An entry is dropped once the peer has acknowledged it, and all sections that refer to it.
//! - No section refers to an entry that is not acknowledged, unless the peer permits its stream to wait.
//! - A peer that acknowledges nothing gets literals.

use std::collections::{BTreeMap, VecDeque};
use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use foldhash::{HashMap, HashMapExt};
use tidegate_http_stream::{huffman, integer};

use super::instructions::{DecoderInstruction, DecoderStream, write_number};
use super::static_table;
use super::table::{ENTRY_BYTES, Table};
use super::table_decoder::skip_string;
use crate::error::Violation;

/// The table that this side fills, free of I/O.
///
/// ```
/// use tidegate::http3::qpack::{self, TableEncoder};
///
/// // The peer permits 4,096 bytes and no stream that waits; this side uses 256 bytes.
/// let mut table = TableEncoder::new(4096, 0, 256);
/// let mut section = Vec::new();
/// qpack::encode_prefix(&mut section);
/// qpack::encode(b"tide", b"ebb and flow", false, &mut section);
/// for stream in [0, 4] {
///     let mut same = Vec::new();
///     table.encode(stream, &section, true, &mut same);
///     assert_eq!(same, section, "the peer has no entry yet");
/// }
/// assert!(table.poll_instructions().is_some(), "the second time the field is inserted");
/// // The peer has the entry: Insert Count Increment.
/// table.handle_instructions(&[1])?;
/// let mut short = Vec::new();
/// table.encode(8, &section, true, &mut short);
/// assert_eq!(short, [2, 0, 0x80]);
/// # Ok::<(), tidegate::http3::Error>(())
/// ```
#[derive(Debug)]
pub struct TableEncoder {
    table: Table<Line>,
    /// How many entries a table of the peer's capacity may have.
    entries_max: u64,
    /// The capacity that this side uses.
    capacity: u32,
    blocked_streams_max: u64,
    /// How many insertions the peer has acknowledged.
    known: u64,
    /// The absolute indices of lines, by the hash of the line.
    lines: HashMap<u64, u64>,
    /// The absolute indices of lines, by the hash of their literal names.
    names: HashMap<u64, u64>,
    /// Sections that are not acknowledged, in their order.
    sections: HashMap<u64, VecDeque<SentSection>>,
    sections_count: usize,
    /// The oldest entry of each section that is not acknowledged, with the number of such sections.
    referenced: BTreeMap<u64, u32>,
    /// The hashes of the last lines that were no references.
    recent: VecDeque<u32>,
    hasher: RandomState,
    output: Vec<u8>,
    reader: DecoderStream,
}

/// An entry: a line as the encoder of sections writes it.
#[derive(Debug)]
struct Line {
    bytes: Box<[u8]>,
    hash: u64,
    /// The hash of its name, if that is a literal.
    name_hash: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
struct SentSection {
    required: u64,
    oldest: u64,
}

/// The section that is being encoded.
struct Draft {
    base: u64,
    /// The Required Insert Count.
    required: u64,
    /// The oldest entry that it refers to.
    oldest: u64,
    may_insert: bool,
    /// References may be to entries below this index.
    end: u64,
}

impl TableEncoder {
    /// A table for a peer that permits `peer_bytes_max` bytes and `blocked_streams_max` streams that wait. This side uses at
    /// most `bytes_max` bytes.
    #[must_use]
    pub fn new(peer_bytes_max: u64, blocked_streams_max: u64, bytes_max: u32) -> Self {
        Self {
            table: Table::default(),
            entries_max: peer_bytes_max / u64::from(ENTRY_BYTES),
            capacity: u32::try_from(peer_bytes_max).unwrap_or(u32::MAX).min(bytes_max),
            blocked_streams_max,
            known: 0,
            lines: HashMap::new(),
            names: HashMap::new(),
            sections: HashMap::new(),
            sections_count: 0,
            referenced: BTreeMap::new(),
            recent: VecDeque::new(),
            hasher: RandomState::default(),
            output: Vec::new(),
            reader: DecoderStream::default(),
        }
    }

    /// Bytes of memory that the table takes, as far as it is known without a look at each section that is not acknowledged.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let hashes = (self.lines.capacity() + self.names.capacity()) * size_of::<(u64, u64)>();
        let sections = self.sections.capacity() * size_of::<(u64, VecDeque<SentSection>)>()
            + self.sections_count * size_of::<SentSection>()
            + self.referenced.len() * size_of::<(u64, u32)>();
        let recent = self.recent.capacity() * size_of::<u32>();
        size_of::<Self>() + self.table.memory_bytes() + hashes + sections + recent + self.output.capacity()
    }

    /// Appends a section with references to `out`. `section` is one of [`encode_prefix`](super::encode_prefix) and
    /// [`encode`](super::encode). With `may_insert` the table may change: the caller sends the bytes of
    /// [`poll_instructions`](Self::poll_instructions) before the section. Returns whether the section has references, so that
    /// the peer acknowledges it.
    pub fn encode(&mut self, stream: u64, section: &[u8], may_insert: bool, out: &mut Vec<u8>) -> bool {
        let Some(mut rest) = section.get(2..).filter(|_| self.sections_count < SECTIONS_MAX) else {
            out.extend_from_slice(section);
            return false;
        };
        let may_wait = may_insert && self.may_wait(stream);
        let (base, end) = (self.table.inserted(), if may_wait { u64::MAX } else { self.known });
        let mut draft = Draft { base, required: 0, oldest: u64::MAX, may_insert, end };
        let mut lines = Vec::with_capacity(section.len());
        while !rest.is_empty() {
            let line = rest;
            let Some(named) = split_name(&mut rest) else {
                out.extend_from_slice(section);
                return false;
            };
            self.encode_line(&line[..line.len() - rest.len()], named, &mut draft, &mut lines);
        }
        if draft.required == 0 {
            out.extend_from_slice(&[0, 0]);
        } else {
            self.write_prefix(&draft, out);
            self.add_section(stream, &draft);
        }
        out.extend_from_slice(&lines);
        draft.required > 0
    }

    /// RFC 9204 §4.5.1.
    fn write_prefix(&self, draft: &Draft, out: &mut Vec<u8>) {
        write_number(draft.required % (2 * self.entries_max) + 1, 8, 0, out);
        match draft.base.checked_sub(draft.required) {
            Some(delta) => write_number(delta, 7, 0, out),
            None => write_number(draft.required - draft.base - 1, 7, 0x80, out),
        }
    }

    fn add_section(&mut self, stream: u64, draft: &Draft) {
        let sent = SentSection { required: draft.required, oldest: draft.oldest };
        self.sections.entry(stream).or_default().push_back(sent);
        self.sections_count += 1;
        *self.referenced.entry(draft.oldest).or_default() += 1;
    }

    /// Takes the last section of a stream back: it is not sent.
    pub fn retract(&mut self, stream: u64) {
        if let Some(section) = self.sections.get_mut(&stream).and_then(VecDeque::pop_back) {
            self.end_section(stream, section);
        }
    }

    /// Whether a stream may wait for entries: it does so already, or the peer permits one more (RFC 9204 §2.1.2).
    fn may_wait(&self, stream: u64) -> bool {
        if self.blocked_streams_max == 0 {
            return false;
        }
        let waits = |sections: &VecDeque<SentSection>| sections.iter().any(|section| section.required > self.known);
        self.sections.get(&stream).is_some_and(waits)
            || (self.sections.values().filter(|sections| waits(sections)).count() as u64) < self.blocked_streams_max
    }

    fn encode_line(&mut self, line: &[u8], named: Named<'_>, draft: &mut Draft, lines: &mut Vec<u8>) {
        if matches!(named, Named::Static | Named::Secret) {
            return lines.extend_from_slice(line);
        }
        let hash = self.hasher.hash_one(line);
        let found = self.lines.get(&hash).copied();
        let found = found.filter(|index| self.table.get(*index).is_some_and(|entry| *entry.bytes == *line));
        let index = match found {
            Some(index) if self.table.is_draining(index) => self.duplicate(index, draft),
            Some(index) => Some(index),
            None => self.insert_again(line, hash, named, draft),
        };
        match index.filter(|index| *index < draft.end) {
            Some(index) => {
                self.note(index, draft);
                match draft.base.checked_sub(index + 1) {
                    Some(relative) => write_number(relative, 6, 0x80, lines),
                    None => write_number(index - draft.base, 4, 0x10, lines),
                }
            }
            None => self.write_literal(line, named, draft, lines),
        }
    }

    fn note(&self, index: u64, draft: &mut Draft) {
        debug_assert!(self.table.get(index).is_some(), "a reference to an entry of the table");
        draft.required = draft.required.max(index + 1);
        draft.oldest = draft.oldest.min(index);
    }

    /// A field that is no entry: a literal, with the name of an entry if there is one.
    fn write_literal(&self, line: &[u8], named: Named<'_>, draft: &mut Draft, lines: &mut Vec<u8>) {
        let Named::Literal(name) = named else { return lines.extend_from_slice(line) };
        let entry = self.entry_of_name(name).filter(|index| *index < draft.end && !self.table.is_draining(*index));
        let Some(index) = entry else { return lines.extend_from_slice(line) };
        self.note(index, draft);
        match draft.base.checked_sub(index + 1) {
            Some(relative) => write_number(relative, 4, 0x40, lines),
            None => write_number(index - draft.base, 3, 0, lines),
        }
        lines.extend_from_slice(&line[name.len()..]);
    }

    /// An entry with a literal name.
    fn entry_of_name(&self, name: &[u8]) -> Option<u64> {
        let index = *self.names.get(&self.hasher.hash_one(name))?;
        self.table.get(index).filter(|entry| entry.bytes.starts_with(name)).map(|_| index)
    }

    /// Inserts a field that came a short while ago (RFC 9204 §4.3.2, §4.3.3).
    fn insert_again(&mut self, line: &[u8], hash: u64, named: Named<'_>, draft: &Draft) -> Option<u64> {
        if !draft.may_insert {
            return None;
        }
        if !self.recent.contains(&(hash as u32)) {
            if self.recent.len() >= RECENT_MAX {
                self.recent.pop_front();
            }
            self.recent.push_back(hash as u32);
            return None;
        }
        let bytes = decoded_bytes(line)?.checked_add(ENTRY_BYTES).filter(|bytes| *bytes <= self.capacity / 2)?;
        self.make_room(bytes, draft)?;
        let value = match named {
            Named::OfTable(name, index) => {
                integer::write(index, 6, 0xc0, &mut self.output);
                name.len()
            }
            Named::Literal(name) => {
                match self.entry_of_name(name) {
                    Some(index) => write_number(self.table.inserted() - 1 - index, 6, 0x80, &mut self.output),
                    None => write_name(name, &mut self.output)?,
                }
                name.len()
            }
            Named::Static | Named::Secret => return None,
        };
        self.output.extend_from_slice(line.get(value..)?);
        let name_hash = if let Named::Literal(name) = named { Some(self.hasher.hash_one(name)) } else { None };
        self.add(Line { bytes: line.into(), hash, name_hash }, bytes)
    }

    /// Inserts an entry once more that would be dropped soon (RFC 9204 §2.1.1.1). Returns the index of the new one.
    fn duplicate(&mut self, index: u64, draft: &Draft) -> Option<u64> {
        if !draft.may_insert {
            return None;
        }
        let bytes = self.table.entry_bytes(index)?;
        let Line { bytes: line, hash, name_hash } = self.table.get(index)?;
        let copy = Line { bytes: line.clone(), hash: *hash, name_hash: *name_hash };
        let oldest = self.oldest_referenced(draft);
        let last = self.table.oldest() + self.table.drops_for(bytes)?;
        if last > oldest {
            return None;
        }
        // The index counts from before the insertion, which may drop the entry itself.
        write_number(self.table.inserted() - 1 - index, 5, 0, &mut self.output);
        self.make_room(bytes, draft)?;
        self.add(copy, bytes)
    }

    /// The oldest entry that may not be dropped.
    fn oldest_referenced(&self, draft: &Draft) -> u64 {
        let sent = self.referenced.first_key_value().map_or(u64::MAX, |(oldest, _)| *oldest);
        sent.min(draft.oldest).min(self.known)
    }

    /// Drops entries for a new one of this size. `None` if some of them are in use.
    fn make_room(&mut self, bytes: u32, draft: &Draft) -> Option<()> {
        if self.table.capacity() == 0 {
            self.table.set_capacity(self.capacity);
            integer::write(self.capacity, 5, 0x20, &mut self.output);
        }
        let drops = self.table.drops_for(bytes)?;
        if self.table.oldest() + drops > self.oldest_referenced(draft) {
            return None;
        }
        for _ in 0..drops {
            let index = self.table.oldest();
            let Some(dropped) = self.table.drop_oldest() else { break };
            remove_if(&mut self.lines, dropped.hash, index);
            if let Some(hash) = dropped.name_hash {
                remove_if(&mut self.names, hash, index);
            }
        }
        Some(())
    }

    fn add(&mut self, line: Line, bytes: u32) -> Option<u64> {
        let (hash, name_hash) = (line.hash, line.name_hash);
        let index = self.table.insert(line, bytes)?;
        self.lines.insert(hash, index);
        if let Some(name_hash) = name_hash {
            self.names.insert(name_hash, index);
        }
        Some(index)
    }

    /// Reads bytes of the peer's decoder stream, which may come in pieces. Returns how many instructions have come without
    /// use: cancellations of streams without a section that waits for its acknowledgment.
    ///
    /// # Errors
    /// [`Violation::DecoderStream`] for an acknowledgment of a section that was not sent, and for an increment of 0 or beyond
    /// the insertions; the connection ends.
    pub fn handle_instructions(&mut self, mut bytes: &[u8]) -> Result<usize, Violation> {
        let mut reader = std::mem::take(&mut self.reader);
        let mut useless = 0;
        while let Some(instruction) = reader.read(&mut bytes)? {
            useless += usize::from(!self.handle_instruction(instruction)?);
        }
        self.reader = reader;
        Ok(useless)
    }

    /// Returns whether the instruction had a use.
    pub(crate) fn handle_instruction(&mut self, instruction: DecoderInstruction) -> Result<bool, Violation> {
        match instruction {
            DecoderInstruction::Acknowledge { stream } => {
                let sections = self.sections.get_mut(&stream).ok_or(Violation::DecoderStream)?;
                let section = sections.pop_front().ok_or(Violation::DecoderStream)?;
                self.known = self.known.max(section.required);
                self.end_section(stream, section);
            }
            DecoderInstruction::Cancel { stream } => {
                let Some(sections) = self.sections.remove(&stream) else { return Ok(false) };
                sections.into_iter().for_each(|section| self.end_section(stream, section));
            }
            DecoderInstruction::Increment(count) => {
                let known = self.known.checked_add(count).filter(|known| count > 0 && *known <= self.table.inserted());
                self.known = known.ok_or(Violation::DecoderStream)?;
            }
        }
        Ok(true)
    }

    /// The peer is done with a section.
    fn end_section(&mut self, stream: u64, section: SentSection) {
        self.sections_count -= 1;
        if self.sections.get(&stream).is_some_and(VecDeque::is_empty) {
            self.sections.remove(&stream);
        }
        if self.sections.is_empty() {
            // An idle connection keeps no memory for them.
            self.sections = HashMap::new();
        }
        if let Some(count) = self.referenced.get_mut(&section.oldest) {
            *count -= 1;
            if *count == 0 {
                self.referenced.remove(&section.oldest);
            }
        }
    }

    /// Bytes for our encoder stream. `None` if there are none.
    pub fn poll_instructions(&mut self) -> Option<Vec<u8>> {
        (!self.output.is_empty()).then(|| std::mem::take(&mut self.output))
    }
}

fn remove_if(indices: &mut HashMap<u64, u64>, hash: u64, index: u64) {
    if indices.get(&hash) == Some(&index) {
        indices.remove(&hash);
    }
}

/// The name of a line.
#[derive(Debug, Clone, Copy)]
enum Named<'a> {
    /// The line is a field of the static table.
    Static,
    /// The value is a secret.
    Secret,
    /// The bytes of a name of the static table, and its index.
    OfTable(&'a [u8], u32),
    /// The bytes of a literal name.
    Literal(&'a [u8]),
}

/// Removes the first line of a section without references to a table. `None` if it is none.
fn split_name<'a>(section: &mut &'a [u8]) -> Option<Named<'a>> {
    let line = *section;
    let &first = line.first()?;
    if first >= 0xc0 {
        integer::read(section, 6).ok()?;
        return Some(Named::Static);
    }
    let (index, is_secret) = match first {
        0x50..0x60 | 0x70..0x80 => (Some(integer::read(section, 4).ok()?), first & 0x20 != 0),
        0x20..0x40 => {
            skip_string(section, 3).ok()?;
            (None, first & 0x10 != 0)
        }
        _ => return None,
    };
    let name = &line[..line.len() - section.len()];
    skip_string(section, 7).ok()?;
    Some(match index {
        _ if is_secret => Named::Secret,
        Some(index) => Named::OfTable(name, index),
        None => Named::Literal(name),
    })
}

/// The length of the name and the value of a line.
fn decoded_bytes(line: &[u8]) -> Option<u32> {
    let mut rest = line;
    let name = match line.first()? {
        0x20..0x40 => string_bytes(&mut rest, 3)?,
        _ => static_table::get(integer::read(&mut rest, 4).ok()?)?.0.len(),
    };
    u32::try_from(name + string_bytes(&mut rest, 7)?).ok()
}

fn string_bytes(line: &mut &[u8], prefix_bits: u32) -> Option<usize> {
    let is_huffman = line.first()? >> prefix_bits & 1 != 0;
    let length = integer::read(line, prefix_bits).ok()? as usize;
    let (string, rest) = line.split_at_checked(length)?;
    *line = rest;
    if !is_huffman {
        return Some(length);
    }
    let mut text = Vec::with_capacity(2 * length);
    huffman::decode(string, &mut text).ok()?;
    Some(text.len())
}

/// Writes the name of an Insert With Literal Name (RFC 9204 §4.3.3). `name` has the prefix of a line.
fn write_name(mut name: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let is_huffman = *name.first()? >> 3 & 1;
    let length = integer::read(&mut name, 3).ok()?;
    integer::write(length, 5, 0x40 | is_huffman << 5, out);
    out.extend_from_slice(name);
    Some(())
}

/// Lines that are remembered until they come again.
const RECENT_MAX: usize = 64;

/// Sections that a peer has not acknowledged. Beyond them it gets sections without references.
const SECTIONS_MAX: usize = 1024;

#[cfg(test)]
mod tests;
