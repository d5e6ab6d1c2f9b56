//! Snappy in its framing format: chunks of at most 64 KiB of plain bytes, each with a checksum.
//!
//! <https://github.com/google/snappy/blob/main/framing_format.txt>

use crate::algorithm::Algorithm;
use crate::blocks::{BLOCK_BYTES, Need, ReadUnits, WriteBlocks};
use crate::error::Error;
use crate::limits::DecompressionLimits;

/// Writes chunks of 64 KiB.
pub(crate) struct SnappyWriter {
    encoder: snap::raw::Encoder,
}

impl SnappyWriter {
    pub(crate) fn new() -> Self {
        Self { encoder: snap::raw::Encoder::new() }
    }
}

impl WriteBlocks for SnappyWriter {
    fn begin(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&IDENTIFIER);
    }

    fn block(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        let start = out.len();
        let body = start + CHUNK_HEADER_BYTES + CHECKSUM_BYTES;
        out.resize(body + snap::raw::max_compress_len(plain.len()), 0);
        let length = self.encoder.compress(plain, &mut out[body..]).map_err(|_| Error::System(Algorithm::Snappy))?;
        out.truncate(body + length);
        let is_compressed = length < plain.len() - plain.len() / 8;
        if !is_compressed {
            out.truncate(body);
            out.extend_from_slice(plain);
        }
        let kind = if is_compressed { COMPRESSED } else { UNCOMPRESSED };
        let [low, middle, high, _] = ((out.len() - start - CHUNK_HEADER_BYTES) as u32).to_le_bytes();
        out[start..start + CHUNK_HEADER_BYTES].copy_from_slice(&[kind, low, middle, high]);
        out[start + CHUNK_HEADER_BYTES..body].copy_from_slice(&checksum(plain).to_le_bytes());
        Ok(())
    }

    fn end(&mut self, _: &mut Vec<u8>) {}

    fn memory_bytes(&self) -> usize {
        TABLE_BYTES
    }
}

/// Reads chunks of any kind.
#[derive(Default)]
pub(crate) struct SnappyReader {
    has_begun: bool,
    /// The type of the chunk whose body comes next.
    chunk: Option<u8>,
}

impl ReadUnits for SnappyReader {
    fn begin(&mut self, _: &DecompressionLimits) -> Need {
        (self.has_begun, self.chunk) = (false, None);
        Need::Bytes(CHUNK_HEADER_BYTES)
    }

    fn unit(&mut self, unit: &[u8], out: &mut Vec<u8>) -> Result<Need, Error> {
        match self.chunk.take() {
            None => self.header(unit),
            Some(kind) => {
                body(kind, unit, out)?;
                self.has_begun = true;
                Ok(Need::Bytes(CHUNK_HEADER_BYTES))
            }
        }
    }

    fn may_end(&self) -> bool {
        self.has_begun && self.chunk.is_none()
    }

    fn memory_bytes(&self) -> usize {
        0
    }
}

impl SnappyReader {
    fn header(&mut self, header: &[u8]) -> Result<Need, Error> {
        let [kind, low, middle, high] = *header else { return Err(CORRUPT) };
        let length = u32::from_le_bytes([low, middle, high, 0]) as usize;
        let identifier = IDENTIFIER.len() - CHUNK_HEADER_BYTES;
        let allowed = match kind {
            STREAM => identifier..=identifier,
            _ if !self.has_begun => return Err(CORRUPT),
            COMPRESSED => CHECKSUM_BYTES + 1..=CHECKSUM_BYTES + snap::raw::max_compress_len(BLOCK_BYTES),
            UNCOMPRESSED => CHECKSUM_BYTES + 1..=CHECKSUM_BYTES + BLOCK_BYTES,
            SKIPPABLE.. => return Ok(Need::Skip(length as u64, CHUNK_HEADER_BYTES)),
            _ => return Err(Error::Unsupported(Algorithm::Snappy)),
        };
        if !allowed.contains(&length) {
            return Err(CORRUPT);
        }
        self.chunk = Some(kind);
        Ok(Need::Bytes(length))
    }
}

fn body(kind: u8, body: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
    if kind == STREAM {
        return if body == &IDENTIFIER[CHUNK_HEADER_BYTES..] { Ok(()) } else { Err(CORRUPT) };
    }
    let (expected, body) = body.split_first_chunk().ok_or(CORRUPT)?;
    let start = out.len();
    if kind == UNCOMPRESSED {
        out.extend_from_slice(body);
    } else {
        let length = snap::raw::decompress_len(body).map_err(|_| CORRUPT)?;
        if length > BLOCK_BYTES {
            return Err(CORRUPT);
        }
        out.resize(start + length, 0);
        snap::raw::Decoder::new().decompress(body, &mut out[start..]).map_err(|_| CORRUPT)?;
    }
    if checksum(&out[start..]) == u32::from_le_bytes(*expected) { Ok(()) } else { Err(CORRUPT) }
}

fn checksum(plain: &[u8]) -> u32 {
    crc32c::crc32c(plain).rotate_right(15).wrapping_add(0xa282_ead8)
}

const CORRUPT: Error = Error::Corrupt(Algorithm::Snappy);

const IDENTIFIER: [u8; 10] = *b"\xff\x06\x00\x00sNaPpY";
const CHUNK_HEADER_BYTES: usize = 4;
const CHECKSUM_BYTES: usize = 4;

const COMPRESSED: u8 = 0;
const UNCOMPRESSED: u8 = 1;
/// Chunks of this type and above may be skipped.
const SKIPPABLE: u8 = 0x80;
const STREAM: u8 = 0xff;

/// The hash table of the library.
const TABLE_BYTES: usize = 34 * 1024;
