//! `Encoder`: from fields to a field block (RFC 7541 §6).

use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_http_stream::{huffman, integer};

use super::{TABLE_BYTES_DEFAULT, static_table, table::Table};

/// The encoding end of one direction of a connection.
#[derive(Debug)]
pub struct Encoder {
    table: Table,
    /// The most bytes of the table, whatever the peer allows.
    size_wanted: u32,
    /// The least size since the last block, and whether one has to be announced.
    update: Option<u32>,
    /// The state of the table: no other encoder, and no other state of this one, has the same number.
    version: u64,
}

/// Whether a field may enter the dynamic table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Indexing {
    /// It may, and comes again cheaply.
    Allowed,
    /// It does not, as it hardly comes again.
    Omitted,
    /// It must not, here and on every further hop: its value is secret (RFC 7541 §7.1.3).
    Never,
}

impl Encoder {
    /// An encoder with a table of at most `table_bytes_max`, and of as many as the peer allows, which are 4,096 until its
    /// SETTINGS have come.
    #[must_use]
    pub fn new(table_bytes_max: u32) -> Self {
        let size = table_bytes_max.min(TABLE_BYTES_DEFAULT);
        let update = (size < TABLE_BYTES_DEFAULT).then_some(size);
        Self { table: Table::new(size), size_wanted: table_bytes_max, update, version: next_version() }
    }

    /// The state of the encoder. As long as it is the same, the same fields become the same block. `None` if the next block
    /// has more than its fields.
    #[inline]
    pub(crate) fn version(&self) -> Option<u64> {
        if self.update.is_some() { None } else { Some(self.version) }
    }

    /// The peer allows a table of this many bytes: SETTINGS_HEADER_TABLE_SIZE.
    pub fn set_table_bytes_max(&mut self, bytes: u32) {
        let size = bytes.min(self.size_wanted);
        if size != self.table.size_max() {
            self.update = Some(self.update.map_or(size, |least| least.min(size)));
            self.table.set_size_max(size);
            self.version = next_version();
        }
    }

    /// Begins a block: announces a size of the table that has changed.
    #[inline]
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        if let Some(least) = self.update.take() {
            integer::write(least, 5, 0x20, out);
            if least != self.table.size_max() {
                integer::write(self.table.size_max(), 5, 0x20, out);
            }
        }
    }

    /// Appends a field. The name is in lower case.
    pub fn encode(&mut self, name: &[u8], value: &[u8], indexing: Indexing, out: &mut Vec<u8>) {
        self.encode_known(static_table::find_name(name), name, value, indexing, out);
    }

    /// Appends the status of a response.
    #[inline]
    pub(crate) fn encode_status(&mut self, status: u16, out: &mut Vec<u8>) {
        let index = match status {
            200 => 8,
            204 => 9,
            206 => 10,
            304 => 11,
            400 => 12,
            404 => 13,
            500 => 14,
            _ => {
                let mut digits = itoa::Buffer::new();
                return self.encode(b":status", digits.format(status).as_bytes(), Indexing::Omitted, out);
            }
        };
        integer::write(index, 7, 0x80, out);
    }

    /// The same as [`encode`](Self::encode) for a name whose first index in the static table is known; 0 if it is not there.
    pub(crate) fn encode_known(
        &mut self,
        first: u32,
        name: &[u8],
        value: &[u8],
        indexing: Indexing,
        out: &mut Vec<u8>,
    ) {
        let index = static_table::find_value(first, value);
        if index > 0 {
            return integer::write(index, 7, 0x80, out);
        }
        let mut name_index = first;
        // An omitted field is not in the dynamic table; at most its name is.
        let may_be_in_table = indexing == Indexing::Allowed || (indexing == Indexing::Omitted && first == 0);
        if may_be_in_table && let Some((place, is_same)) = self.table.find(name, value) {
            let index = place + static_table::LENGTH + 1;
            if is_same {
                return integer::write(index, 7, 0x80, out);
            }
            if first == 0 {
                name_index = index;
            }
        }
        match indexing {
            Indexing::Allowed => integer::write(name_index, 6, 0x40, out),
            Indexing::Omitted => integer::write(name_index, 4, 0, out),
            Indexing::Never => integer::write(name_index, 4, 0x10, out),
        }
        if name_index == 0 {
            write_string(name, out);
        }
        write_string(value, out);
        if indexing == Indexing::Allowed {
            self.table.insert(name, value);
            self.version = next_version();
        }
    }
}

fn next_version() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A string, in the shorter of its two forms.
fn write_string(string: &[u8], out: &mut Vec<u8>) {
    let coded = huffman::encoded_bytes(string);
    if coded < string.len() {
        integer::write(coded as u32, 7, 0x80, out);
        huffman::encode(string, out);
    } else {
        integer::write(string.len() as u32, 7, 0, out);
        out.extend_from_slice(string);
    }
}
