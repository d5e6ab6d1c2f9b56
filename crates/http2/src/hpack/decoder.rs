//! `Decoder`: from a field block to fields (RFC 7541 §3, §6).

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_http_stream::{CodingError, huffman, integer};

use super::{TABLE_BYTES_DEFAULT, static_table, table::Table};

/// The decoding end of one direction of a connection.
///
/// ```
/// use tidegate::http2::hpack::{Decoder, Encoder, Indexing};
///
/// let mut block = Vec::new();
/// Encoder::new(4096).encode(b"tide", b"rising", Indexing::Allowed, &mut block);
/// let mut fields = Vec::new();
/// Decoder::new(4096).decode(&block, &mut Vec::new(), |name, value| fields.push((name.to_vec(), value.to_vec())))?;
/// assert_eq!(fields, [(b"tide".to_vec(), b"rising".to_vec())]);
/// # Ok::<(), tidegate::http2::hpack::HpackError>(())
/// ```
#[derive(Debug)]
pub struct Decoder {
    table: Table,
    /// The largest size that the peer may choose: the one that was announced, once the peer has acknowledged it.
    size_limit: u32,
    size_announced: u32,
    /// The state of the table and of the limit: no other decoder, and no other state of this one, has the same number.
    version: u64,
}

/// Why a field block cannot be decoded. The connection cannot continue, since its tables may differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HpackError {
    /// The block ends within a field.
    Truncated,
    /// An integer is too large, or too long.
    Integer,
    /// An index has no field.
    Index,
    /// A string is no Huffman code.
    Huffman,
    /// A table size is larger than allowed, comes behind a field, or is missing after a change of the limit.
    TableSize,
    /// The fields are much longer than the block, by references to long ones.
    Expansion,
}

impl fmt::Display for HpackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "a field block ends within a field",
            Self::Integer => "an integer in a field block is too large",
            Self::Index => "an index in a field block has no field",
            Self::Huffman => "a string in a field block is no Huffman code",
            Self::TableSize => "the size of the dynamic table is larger than allowed, or in the wrong place",
            Self::Expansion => "a field block expands too far",
        })
    }
}

impl std::error::Error for HpackError {}

impl From<CodingError> for HpackError {
    #[cold]
    fn from(error: CodingError) -> Self {
        match error {
            CodingError::Integer => Self::Integer,
            CodingError::Huffman => Self::Huffman,
            _ => Self::Truncated,
        }
    }
}

impl Decoder {
    /// A decoder whose side announces a table of at most `table_bytes_max`, in SETTINGS_HEADER_TABLE_SIZE.
    #[must_use]
    pub fn new(table_bytes_max: u32) -> Self {
        let size_limit = table_bytes_max.max(TABLE_BYTES_DEFAULT);
        let table = Table::new(TABLE_BYTES_DEFAULT);
        Self { table, size_limit, size_announced: table_bytes_max, version: first_version() }
    }

    /// The state of the decoder. As long as it is the same, the same block becomes the same fields.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    #[inline]
    fn change_version(&mut self) {
        self.version += 1;
        if self.version as u16 == 0 {
            self.version = first_version();
        }
    }

    /// The peer has acknowledged the settings: from now on its table has at most the announced size.
    pub fn on_acknowledged(&mut self) {
        self.size_limit = self.size_announced;
        self.change_version();
    }

    /// Decodes a whole block, and calls `field` with each name and value. `scratch` is memory for strings, which callers
    /// use again.
    ///
    /// # Errors
    /// [`HpackError`]; the connection has to end, with COMPRESSION_ERROR.
    pub fn decode(
        &mut self,
        mut block: &[u8],
        scratch: &mut Vec<u8>,
        mut field: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), HpackError> {
        let (mut updates_left, mut bytes_left) = (SIZE_UPDATES_MAX, EXPANDED_BYTES_MAX);
        let mut spend = |bytes: usize| {
            bytes_left = bytes_left.checked_sub(bytes).ok_or(HpackError::Expansion)?;
            Ok::<(), HpackError>(())
        };
        while let Some(&first) = block.first() {
            match first {
                0x80.. => {
                    let index = integer::read(&mut block, 7)?;
                    let (name, value) = self.entry(index)?;
                    self.check_size()?;
                    spend(name.len() + value.len())?;
                    field(name, value);
                }
                0x20..0x40 => {
                    let size = integer::read(&mut block, 5)?;
                    if size > self.size_limit || updates_left == 0 {
                        return Err(HpackError::TableSize);
                    }
                    updates_left -= 1;
                    self.table.set_size_max(size);
                    self.change_version();
                    continue;
                }
                _ => {
                    self.check_size()?;
                    let is_indexed = first & 0x40 != 0;
                    let index = integer::read(&mut block, if is_indexed { 6 } else { 4 })?;
                    scratch.clear();
                    if index == 0 {
                        read_string(&mut block, scratch)?;
                    } else {
                        scratch.extend_from_slice(self.entry(index)?.0);
                    }
                    let name_length = scratch.len();
                    read_string(&mut block, scratch)?;
                    spend(scratch.len())?;
                    if is_indexed {
                        self.change_version();
                    }
                    let (name, value) = scratch.split_at(name_length);
                    if is_indexed {
                        self.table.insert(name, value);
                    }
                    field(name, value);
                }
            }
            updates_left = 0;
        }
        Ok(())
    }

    /// A limit that has become lower needs an update of the size in front of the next field.
    fn check_size(&self) -> Result<(), HpackError> {
        if self.table.size_max() > self.size_limit { Err(HpackError::TableSize) } else { Ok(()) }
    }

    #[inline]
    fn entry(&self, index: u32) -> Result<(&[u8], &[u8]), HpackError> {
        match static_table::get(index) {
            Some(entry) => Ok(entry),
            None => {
                let place = index.checked_sub(static_table::LENGTH + 1).ok_or(HpackError::Index)?;
                self.table.get(place).ok_or(HpackError::Index)
            }
        }
    }
}

/// The first of 2^16 versions that no other decoder has: a process would have to make 2^48 connections before one comes
/// again, and with it the head of another connection.
#[cold]
fn first_version() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed) << 16
}

/// Appends a string to `out`, and removes it from `block` (RFC 7541 §5.2).
fn read_string(block: &mut &[u8], out: &mut Vec<u8>) -> Result<(), HpackError> {
    let is_huffman = block.first().is_some_and(|byte| byte & 0x80 != 0);
    let length = integer::read(block, 7)? as usize;
    let (string, rest) = block.split_at_checked(length).ok_or(HpackError::Truncated)?;
    *block = rest;
    if is_huffman {
        return Ok(huffman::decode(string, out)?);
    }
    out.extend_from_slice(string);
    Ok(())
}

/// An encoder needs at most two updates of the size in one block: the least size since the last block, and the last one
/// (RFC 7541 §4.2).
const SIZE_UPDATES_MAX: u32 = 2;

/// The most bytes of the fields of one block. No caller accepts a list as long; without a bound, three bytes that refer to a
/// name of 4 KiB would cost the copy of the name.
const EXPANDED_BYTES_MAX: usize = 1024 * 1024;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Also of decoders that change more often than they have versions of their own.
    #[test]
    fn no_two_states_have_the_same_version() {
        let mut decoders = [Decoder::new(4096), Decoder::new(4096)];
        let mut versions = HashSet::new();
        for _ in 0..70_000 {
            for decoder in &mut decoders {
                assert!(versions.insert(decoder.version()));
                decoder.decode(b"\x40\x01a\x01b", &mut Vec::new(), |_, _| {}).expect("a field that enters the table");
            }
        }
    }
}
