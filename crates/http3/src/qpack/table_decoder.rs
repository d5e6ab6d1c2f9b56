//! `TableDecoder`: the table that the peer's encoder fills (RFC 9204 §2.2).
//!
//! A section that refers to the table is rewritten to one that does not, so that everything behind it knows one form of
//! sections. Lines without a reference pass as they are.
//!
//! The peer may fill at most the announced capacity, and may block at most the announced number of streams. An expansion
//! has a bound of the caller. An instruction is kept until it is whole, and its strings cannot be longer than the table.

use tidegate_http_stream::{CodingError, huffman, integer};

use super::decoder::QpackError;
use super::instructions::{SECTION_ACKNOWLEDGMENT, STREAM_CANCELLATION, unless_truncated, write_number};
use super::static_table;
use super::table::{ENTRY_BYTES, Table};
use crate::error::Violation;

/// The table of the peer's encoder, free of I/O.
///
/// ```
/// use tidegate::http3::qpack::{self, SectionState, TableDecoder};
///
/// // A table of 256 bytes, for which one stream may wait.
/// let mut table = TableDecoder::new(256, 1);
/// // The section of stream 4 has the first entry, which has not come.
/// let section = [0x02, 0x00, 0x80];
/// assert_eq!(table.check(4, &section)?, SectionState::Blocked);
/// // Set Dynamic Table Capacity to 256, and Insert With Literal Name.
/// table.handle_instructions(b"\x3f\xe1\x01\x44tide\x03ebb")?;
/// assert_eq!(table.take_unblocked(), [4]);
/// let mut rewritten = Vec::new();
/// assert!(table.rewrite(4, &section, 1024, &mut rewritten)?);
/// qpack::decode(&rewritten, &mut Vec::new(), |name, value| assert_eq!((name, value), (&b"tide"[..], &b"ebb"[..])))?;
/// // An acknowledgment for the peer.
/// assert_eq!(table.poll_instructions(), Some(vec![0x84]));
/// # Ok::<(), tidegate::http3::Error>(())
/// ```
#[derive(Debug)]
pub struct TableDecoder {
    table: Table<TableField>,
    capacity_max: u32,
    blocked_streams_max: u32,
    /// How many insertions the peer knows to have come.
    known: u64,
    /// The streams that wait, and the insertions that they need.
    blocked: Vec<(u64, u64)>,
    /// An instruction that has not come whole.
    partial: Vec<u8>,
    /// Instructions for the peer.
    output: Vec<u8>,
    /// Instructions since the last section that was rewritten.
    instructions: usize,
}

/// A field: its name, and its value behind that.
#[derive(Debug)]
struct TableField {
    text: Box<[u8]>,
    name_bytes: u32,
}

impl TableField {
    fn parts(&self) -> (&[u8], &[u8]) {
        self.text.split_at(self.name_bytes as usize)
    }
}

/// Whether a section can be rewritten now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SectionState {
    /// Its start has not come whole.
    Incomplete,
    /// It has no reference to the table, and needs none.
    Static,
    /// All entries that it needs have come.
    Ready,
    /// It waits for entries.
    Blocked,
}

impl TableDecoder {
    /// A table with at most `capacity_max` bytes, for whose entries at most `blocked_streams_max` streams may wait.
    #[must_use]
    pub fn new(capacity_max: u32, blocked_streams_max: u32) -> Self {
        let (table, known, instructions) = (Table::default(), 0, 0);
        let (blocked, partial, output) = (Vec::new(), Vec::new(), Vec::new());
        Self { table, capacity_max, blocked_streams_max, known, blocked, partial, output, instructions }
    }

    /// Bytes of memory that the table takes, with instructions that wait.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let blocked = self.blocked.capacity() * size_of::<(u64, u64)>();
        size_of::<Self>() + self.table.memory_bytes() + self.partial.capacity() + self.output.capacity() + blocked
    }

    /// Reads bytes of the peer's encoder stream, which may come in pieces. Returns how many instructions have come without
    /// use: those beyond 64 since the last section. One that copies from the table counts once more for each 1,024 bytes.
    ///
    /// # Errors
    /// [`Violation::EncoderStream`] for a capacity above the announced one, an entry that is larger than the table, and a
    /// reference to an entry that there is not; the connection ends.
    pub fn handle_instructions(&mut self, bytes: &[u8]) -> Result<usize, Violation> {
        let before = self.instructions;
        if self.partial.is_empty() {
            let rest = self.read_instructions(bytes)?;
            self.partial.extend_from_slice(rest);
        } else {
            let mut held = std::mem::take(&mut self.partial);
            held.extend_from_slice(bytes);
            let left = self.read_instructions(&held)?.len();
            held.drain(..held.len() - left);
            self.partial = if left == 0 { Vec::new() } else { held };
        }
        Ok(self.instructions.saturating_sub(before.max(INSTRUCTIONS_FREE)))
    }

    /// Reads instructions, and returns the bytes of one that has not come whole.
    fn read_instructions<'a>(&mut self, mut bytes: &'a [u8]) -> Result<&'a [u8], Violation> {
        loop {
            let mut rest = bytes;
            if self.read_instruction(&mut rest)?.is_none() {
                return Ok(bytes);
            }
            self.instructions = self.instructions.saturating_add(1);
            bytes = rest;
        }
    }

    /// Reads an instruction (RFC 9204 §4.3). `None` if it has not come whole.
    fn read_instruction(&mut self, bytes: &mut &[u8]) -> Result<Option<()>, Violation> {
        let Some(&first) = bytes.first() else { return Ok(None) };
        match first {
            0x80.. => {
                let Some(index) = unless_truncated(integer::read(bytes, 6))? else { return Ok(None) };
                let name = match first & 0x40 {
                    0 => self.recent(index)?.parts().0,
                    _ => static_table::get(index).ok_or(Violation::EncoderStream)?.0,
                };
                let mut room = self.room()?.checked_sub(name.len()).ok_or(Violation::EncoderStream)?;
                let Some(value) = CodedString::read(bytes, 7, &mut room)? else { return Ok(None) };
                let mut text = name.to_vec();
                let name_bytes = text.len();
                value.decode(&mut text)?;
                self.count_copied(name_bytes);
                self.insert(text, name_bytes)?;
            }
            0x40.. => {
                let mut room = self.room()?;
                let Some(name) = CodedString::read(bytes, 5, &mut room)? else { return Ok(None) };
                let Some(value) = CodedString::read(bytes, 7, &mut room)? else { return Ok(None) };
                let mut text = Vec::new();
                name.decode(&mut text)?;
                let name_bytes = text.len();
                value.decode(&mut text)?;
                self.insert(text, name_bytes)?;
            }
            0x20.. => {
                let Some(capacity) = unless_truncated(integer::read(bytes, 5))? else { return Ok(None) };
                if capacity > self.capacity_max {
                    return Err(Violation::EncoderStream);
                }
                self.table.set_capacity(capacity);
            }
            _ => {
                let Some(index) = unless_truncated(integer::read(bytes, 5))? else { return Ok(None) };
                let entry = self.recent(index)?;
                let (text, name_bytes) = (entry.text.to_vec(), entry.name_bytes as usize);
                self.count_copied(text.len());
                self.insert(text, name_bytes)?;
            }
        }
        Ok(Some(()))
    }

    /// The entry that was inserted `index` insertions before the last one.
    fn recent(&self, index: u32) -> Result<&TableField, Violation> {
        let absolute = self.table.inserted().checked_sub(u64::from(index) + 1);
        absolute.and_then(|absolute| self.table.get(absolute)).ok_or(Violation::EncoderStream)
    }

    fn insert(&mut self, text: Vec<u8>, name_bytes: usize) -> Result<(), Violation> {
        let bytes = u32::try_from(text.len()).ok().and_then(|bytes| bytes.checked_add(ENTRY_BYTES));
        let entry = TableField { text: text.into_boxed_slice(), name_bytes: name_bytes as u32 };
        let inserted = bytes.and_then(|bytes| self.table.insert(entry, bytes));
        inserted.map(|_| ()).ok_or(Violation::EncoderStream)
    }

    /// The bytes that the name and the value of an entry may have.
    fn room(&self) -> Result<usize, Violation> {
        let room = self.table.capacity().checked_sub(ENTRY_BYTES).ok_or(Violation::EncoderStream)?;
        Ok(room as usize)
    }

    /// An instruction of a few bytes that copies a long entry counts as many.
    fn count_copied(&mut self, bytes: usize) {
        self.instructions = self.instructions.saturating_add(bytes / COPIED_BYTES_PER_INSTRUCTION);
    }

    /// Whether the section of a stream that begins with these bytes can be rewritten. One that waits is remembered, for
    /// [`take_unblocked`](Self::take_unblocked).
    ///
    /// # Errors
    /// [`QpackError`]: a count of insertions that no encoder sends, or more streams wait than were announced. The connection
    /// ends.
    pub fn check(&mut self, stream: u64, mut start: &[u8]) -> Result<SectionState, QpackError> {
        let required = match self.read_prefix(&mut start) {
            Ok((0, _)) => return Ok(SectionState::Static),
            Ok((required, _)) => required,
            Err(QpackError::Truncated) => return Ok(SectionState::Incomplete),
            Err(error) => return Err(error),
        };
        if required <= self.table.inserted() {
            return Ok(SectionState::Ready);
        }
        if !self.blocked.iter().any(|(blocked, _)| *blocked == stream) {
            if self.blocked.len() >= self.blocked_streams_max as usize {
                return Err(QpackError::Blocked);
            }
            self.blocked.push((stream, required));
        }
        Ok(SectionState::Blocked)
    }

    /// The streams that have waited, and whose entries have come.
    pub fn take_unblocked(&mut self) -> Vec<u64> {
        let inserted = self.table.inserted();
        let (ready, blocked) = std::mem::take(&mut self.blocked).into_iter().partition(|(_, needs)| *needs <= inserted);
        self.blocked = blocked;
        Vec::from_iter(ready).into_iter().map(|(stream, _)| stream).collect()
    }

    /// The Required Insert Count and the base (RFC 9204 §4.5.1).
    fn read_prefix(&self, section: &mut &[u8]) -> Result<(u64, u64), QpackError> {
        let required = self.required(integer::read(section, 8)?.into())?;
        let is_negative = section.first().is_some_and(|byte| byte & 0x80 != 0);
        let delta = u64::from(integer::read(section, 7)?);
        let base = if is_negative { required.checked_sub(delta + 1) } else { Some(required + delta) };
        Ok((required, base.ok_or(QpackError::Base)?))
    }

    /// RFC 9204 §4.5.1.1.
    fn required(&self, encoded: u64) -> Result<u64, QpackError> {
        if encoded == 0 {
            return Ok(0);
        }
        let entries_max = u64::from(self.capacity_max / ENTRY_BYTES);
        let range = 2 * entries_max;
        if encoded > range {
            return Err(QpackError::InsertCount);
        }
        let most = self.table.inserted() + entries_max;
        let wrapped = most / range * range + encoded - 1;
        let required =
            if wrapped > most { wrapped.checked_sub(range).ok_or(QpackError::InsertCount)? } else { wrapped };
        if required == 0 { Err(QpackError::InsertCount) } else { Ok(required) }
    }

    /// Appends a whole section to `out`, without references to the table, and acknowledges it. Returns `false` if references
    /// expand to more than `expansion_max` bytes, as RFC 9114 §4.2.2 counts them: then `out` has no whole section.
    ///
    /// # Errors
    /// [`QpackError`]; the connection has to end.
    pub fn rewrite(
        &mut self,
        stream: u64,
        mut section: &[u8],
        expansion_max: u32,
        out: &mut Vec<u8>,
    ) -> Result<bool, QpackError> {
        let (required, base) = self.read_prefix(&mut section)?;
        out.extend_from_slice(&[0, 0]);
        let mut lines =
            Lines { table: &self.table, base, required, needed: 0, expansion_left: Some(expansion_max), out };
        while !section.is_empty() {
            lines.rewrite(&mut section)?;
        }
        let is_whole = lines.expansion_left.is_some();
        if lines.needed != required {
            return Err(QpackError::InsertCount);
        }
        if required > 0 {
            write_number(stream, 7, SECTION_ACKNOWLEDGMENT, &mut self.output);
            self.known = self.known.max(required);
        }
        self.instructions = 0;
        Ok(is_whole)
    }

    /// A stream is over, of which not all sections were rewritten: the peer is notified (RFC 9204 §2.2.2.2).
    pub fn cancel(&mut self, stream: u64) {
        self.blocked.retain(|(blocked, _)| *blocked != stream);
        write_number(stream, 6, STREAM_CANCELLATION, &mut self.output);
    }

    /// Bytes for our decoder stream. `None` if there are none.
    pub fn poll_instructions(&mut self) -> Option<Vec<u8>> {
        let new = self.table.inserted() - self.known;
        if new > 0 {
            // Insert Count Increment.
            write_number(new, 6, 0, &mut self.output);
            self.known += new;
        }
        (!self.output.is_empty()).then(|| std::mem::take(&mut self.output))
    }
}

/// A string of an instruction. It is decoded once the instruction has come whole.
struct CodedString<'a> {
    bytes: &'a [u8],
    is_huffman: bool,
}

impl<'a> CodedString<'a> {
    /// Removes a string from `bytes`, and its least length from `room`. A string without room is not waited for.
    fn read(bytes: &mut &'a [u8], prefix_bits: u32, room: &mut usize) -> Result<Option<Self>, Violation> {
        let is_huffman = bytes.first().is_some_and(|byte| byte >> prefix_bits & 1 != 0);
        let Some(length) = unless_truncated(integer::read(bytes, prefix_bits))? else { return Ok(None) };
        let length = length as usize;
        // A Huffman code has at most 30 bits, so a coded string may be longer than its text.
        let least = if is_huffman { length.div_ceil(4) } else { length };
        *room = room.checked_sub(least).ok_or(Violation::EncoderStream)?;
        let Some((string, rest)) = bytes.split_at_checked(length) else { return Ok(None) };
        *bytes = rest;
        Ok(Some(Self { bytes: string, is_huffman }))
    }

    fn decode(&self, out: &mut Vec<u8>) -> Result<(), Violation> {
        if self.is_huffman {
            return huffman::decode(self.bytes, out).map_err(|_| Violation::EncoderStream);
        }
        out.extend_from_slice(self.bytes);
        Ok(())
    }
}

/// The lines of a section that is being rewritten.
struct Lines<'a> {
    table: &'a Table<TableField>,
    base: u64,
    required: u64,
    /// The Required Insert Count by the references so far.
    needed: u64,
    /// `None` once references have expanded too far.
    expansion_left: Option<u32>,
    out: &'a mut Vec<u8>,
}

impl Lines<'_> {
    /// Rewrites the first line of `section` (RFC 9204 §4.5.2 to §4.5.6), and removes it.
    fn rewrite(&mut self, section: &mut &[u8]) -> Result<(), QpackError> {
        let line = *section;
        let Some(&first) = line.first() else { return Ok(()) };
        match first {
            0xc0.. => _ = integer::read(section, 6)?,
            0x80.. => {
                let entry = self.before_base(integer::read(section, 6)?)?;
                self.write_entry(entry);
                return Ok(());
            }
            0x40.. => {
                let index = integer::read(section, 4)?;
                if first & 0x10 == 0 {
                    let entry = self.before_base(index)?;
                    return self.write_named(entry, first & 0x20 != 0, section);
                }
                skip_string(section, 7)?;
            }
            0x20.. => {
                skip_string(section, 3)?;
                skip_string(section, 7)?;
            }
            0x10.. => {
                let entry = self.behind_base(integer::read(section, 4)?)?;
                self.write_entry(entry);
                return Ok(());
            }
            _ => {
                let entry = self.behind_base(integer::read(section, 3)?)?;
                return self.write_named(entry, first & 0x08 != 0, section);
            }
        }
        self.write(&line[..line.len() - section.len()]);
        Ok(())
    }

    fn before_base(&mut self, index: u32) -> Result<u64, QpackError> {
        self.note(self.base.checked_sub(u64::from(index) + 1))
    }

    fn behind_base(&mut self, index: u32) -> Result<u64, QpackError> {
        self.note(self.base.checked_add(index.into()))
    }

    /// Notes a reference to an entry, which the section has to need and the table to have.
    fn note(&mut self, index: Option<u64>) -> Result<u64, QpackError> {
        let known = index.filter(|index| *index < self.required && self.table.get(*index).is_some());
        let index = known.ok_or(QpackError::Index)?;
        self.needed = self.needed.max(index + 1);
        Ok(index)
    }

    fn write(&mut self, bytes: &[u8]) {
        if self.expansion_left.is_some() {
            self.out.extend_from_slice(bytes);
        }
    }

    /// Counts a field that a reference becomes. Returns whether it is written.
    fn expand(&mut self, bytes: usize) -> bool {
        let cost = u32::try_from(bytes).unwrap_or(u32::MAX).saturating_add(ENTRY_BYTES);
        self.expansion_left = self.expansion_left.and_then(|left| left.checked_sub(cost));
        self.expansion_left.is_some()
    }

    fn write_entry(&mut self, index: u64) {
        let Some((name, value)) = self.table.get(index).map(TableField::parts) else { return };
        if self.expand(name.len() + value.len()) {
            integer::write(name.len() as u32, 3, 0x20, self.out);
            self.out.extend_from_slice(name);
            integer::write(value.len() as u32, 7, 0, self.out);
            self.out.extend_from_slice(value);
        }
    }

    /// Writes a field with the name of an entry, and a value of the section.
    fn write_named(&mut self, index: u64, is_secret: bool, section: &mut &[u8]) -> Result<(), QpackError> {
        let value = *section;
        skip_string(section, 7)?;
        let Some((name, _)) = self.table.get(index).map(TableField::parts) else { return Ok(()) };
        if self.expand(name.len()) {
            integer::write(name.len() as u32, 3, 0x20 | u8::from(is_secret) << 4, self.out);
            self.out.extend_from_slice(name);
            self.out.extend_from_slice(&value[..value.len() - section.len()]);
        }
        Ok(())
    }
}

/// Removes a string from `section`. The decoder of sections checks its content.
pub(super) fn skip_string(section: &mut &[u8], prefix_bits: u32) -> Result<(), CodingError> {
    let length = integer::read(section, prefix_bits)? as usize;
    let (_, rest) = section.split_at_checked(length).ok_or(CodingError::Truncated)?;
    *section = rest;
    Ok(())
}

/// Instructions between two sections that are no abuse.
const INSTRUCTIONS_FREE: usize = 64;

/// Bytes that an instruction may copy from the table for each instruction that it counts.
const COPIED_BYTES_PER_INSTRUCTION: usize = 1024;

#[cfg(test)]
mod tests;
