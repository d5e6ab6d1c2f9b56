//! LZ4 in its frame format: blocks of at most 4 MiB of plain bytes.
//!
//! <https://github.com/lz4/lz4/blob/dev/doc/lz4_Frame_format.md>

use std::hash::Hasher;

use lz4_flex::block;
use twox_hash::XxHash32;

use crate::algorithm::Algorithm;
use crate::blocks::{BLOCK_BYTES, Need, ReadUnits, WriteBlocks};
use crate::error::Error;
use crate::limits::DecompressionLimits;

/// Writes frames of independent blocks of 64 KiB, with a checksum of the content.
#[derive(Default)]
pub(crate) struct Lz4Writer {
    checksum: XxHash32,
}

impl WriteBlocks for Lz4Writer {
    fn begin(&mut self, out: &mut Vec<u8>) {
        self.checksum = XxHash32::default();
        let descriptor = [VERSION | INDEPENDENT | CONTENT_CHECKSUM, BLOCK_64_KIB << 4];
        out.extend_from_slice(&MAGIC.to_le_bytes());
        out.extend_from_slice(&descriptor);
        out.push(header_checksum(&descriptor));
    }

    fn block(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        self.checksum.write(plain);
        let (start, body) = (out.len(), out.len() + LENGTH_BYTES);
        out.resize(body + block::get_maximum_output_size(plain.len()), 0);
        let length = block::compress_into(plain, &mut out[body..]).map_err(|_| Error::System(Algorithm::Lz4))?;
        out.truncate(body + length);
        let is_compressed = length < plain.len();
        if !is_compressed {
            out.truncate(body);
            out.extend_from_slice(plain);
        }
        let length = (out.len() - body) as u32 | if is_compressed { 0 } else { UNCOMPRESSED };
        out[start..body].copy_from_slice(&length.to_le_bytes());
        Ok(())
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&0_u32.to_le_bytes());
        out.extend_from_slice(&self.checksum.finish_32().to_le_bytes());
    }

    fn memory_bytes(&self) -> usize {
        0
    }
}

/// Reads frames of any kind except those that need a dictionary and those of the format's predecessor.
#[derive(Default)]
pub(crate) struct Lz4Reader {
    state: Lz4State,
    frames: u64,
    flags: u8,
    block_bytes_max: usize,
    /// Plain bytes that the descriptor declares and that have not come.
    length_left: Option<u64>,
    checksum: XxHash32,
    /// The last plain bytes of the frame, if blocks refer to those before.
    history: Vec<u8>,
    window_max: u32,
}

#[derive(Default, Clone, Copy)]
enum Lz4State {
    #[default]
    Magic,
    Skippable,
    Flags,
    Descriptor,
    Length,
    Block {
        is_compressed: bool,
    },
    Checksum,
}

impl Lz4Reader {
    fn enter(&mut self, state: Lz4State, bytes: usize) -> Need {
        self.state = state;
        Need::Bytes(bytes)
    }

    fn end_frame(&mut self) -> Result<Need, Error> {
        if self.length_left.is_some_and(|left| left > 0) {
            return Err(CORRUPT);
        }
        self.frames += 1;
        self.history.clear();
        Ok(self.enter(Lz4State::Magic, MAGIC_BYTES))
    }

    fn magic(&mut self, unit: &[u8]) -> Result<Need, Error> {
        match number(unit) {
            MAGIC => Ok(self.enter(Lz4State::Flags, 2)),
            SKIPPABLE_FIRST..=SKIPPABLE_LAST => Ok(self.enter(Lz4State::Skippable, LENGTH_BYTES)),
            MAGIC_LEGACY if self.frames == 0 => Err(Error::Unsupported(Algorithm::Lz4)),
            _ if self.frames > 0 => Err(Error::TrailingBytes),
            _ => Err(CORRUPT),
        }
    }

    fn flags(&mut self, unit: &[u8]) -> Result<Need, Error> {
        let [flags, sizes] = *unit else { return Err(CORRUPT) };
        if flags & VERSION_MASK != VERSION || flags & RESERVED != 0 || sizes & !BLOCK_SIZE_MASK != 0 {
            return Err(CORRUPT);
        }
        if flags & DICTIONARY != 0 {
            return Err(Error::Unsupported(Algorithm::Lz4));
        }
        self.block_bytes_max = match sizes >> 4 {
            size @ BLOCK_64_KIB..=BLOCK_4_MIB => 1 << (8 + 2 * size),
            _ => return Err(CORRUPT),
        };
        if self.block_bytes_max > self.window_max as usize {
            return Err(Error::WindowTooLarge { window_max: self.window_max });
        }
        self.flags = flags;
        // The descriptor's checksum covers these two bytes as well.
        self.history.clear();
        self.history.extend_from_slice(unit);
        Ok(self.enter(Lz4State::Descriptor, if flags & CONTENT_SIZE == 0 { 1 } else { 9 }))
    }

    fn descriptor(&mut self, unit: &[u8]) -> Result<Need, Error> {
        let (expected, rest) = unit.split_last().ok_or(CORRUPT)?;
        self.history.extend_from_slice(rest);
        if header_checksum(&self.history) != *expected {
            return Err(CORRUPT);
        }
        self.history.clear();
        self.checksum = XxHash32::default();
        self.length_left = rest.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        Ok(self.enter(Lz4State::Length, LENGTH_BYTES))
    }

    fn length(&mut self, unit: &[u8]) -> Result<Need, Error> {
        match number(unit) {
            0 if self.flags & CONTENT_CHECKSUM != 0 => Ok(self.enter(Lz4State::Checksum, CHECKSUM_BYTES)),
            0 => self.end_frame(),
            length => {
                let bytes = (length & !UNCOMPRESSED) as usize;
                if bytes == 0 || bytes > self.block_bytes_max {
                    return Err(CORRUPT);
                }
                let checksum = if self.flags & BLOCK_CHECKSUM == 0 { 0 } else { CHECKSUM_BYTES };
                Ok(self.enter(Lz4State::Block { is_compressed: length & UNCOMPRESSED == 0 }, bytes + checksum))
            }
        }
    }

    fn block(&mut self, is_compressed: bool, unit: &[u8], out: &mut Vec<u8>) -> Result<Need, Error> {
        let mut body = unit;
        if self.flags & BLOCK_CHECKSUM != 0 {
            let (block, expected) = unit.split_last_chunk::<CHECKSUM_BYTES>().ok_or(CORRUPT)?;
            if XxHash32::oneshot(0, block) != u32::from_le_bytes(*expected) {
                return Err(CORRUPT);
            }
            body = block;
        }
        let start = out.len();
        if is_compressed {
            // A byte yields at most 255.
            let bound = self.block_bytes_max.min(body.len().saturating_mul(EXPANSION_MAX));
            out.resize(start + bound, 0);
            let length = block::decompress_into_with_dict(body, &mut out[start..], &self.history);
            out.truncate(start + length.map_err(|_| CORRUPT)?);
        } else {
            out.extend_from_slice(body);
        }
        let plain = &out[start..];
        if self.flags & CONTENT_CHECKSUM != 0 {
            self.checksum.write(plain);
        }
        if let Some(left) = &mut self.length_left {
            *left = left.checked_sub(plain.len() as u64).ok_or(CORRUPT)?;
        }
        if self.flags & INDEPENDENT == 0 {
            self.remember(start, out);
        }
        Ok(self.enter(Lz4State::Length, LENGTH_BYTES))
    }

    /// Keeps the bytes that the next block may refer to.
    fn remember(&mut self, start: usize, out: &[u8]) {
        let plain = &out[start..];
        let plain = &plain[plain.len().saturating_sub(HISTORY_BYTES)..];
        let surplus = (self.history.len() + plain.len()).saturating_sub(HISTORY_BYTES);
        self.history.drain(..surplus.min(self.history.len()));
        self.history.extend_from_slice(plain);
    }
}

impl ReadUnits for Lz4Reader {
    fn begin(&mut self, limits: &DecompressionLimits) -> Need {
        self.frames = 0;
        self.history.clear();
        self.window_max = limits.window_max;
        self.enter(Lz4State::Magic, MAGIC_BYTES)
    }

    fn resume(&mut self) {
        self.frames = 1;
    }

    fn unit(&mut self, unit: &[u8], out: &mut Vec<u8>) -> Result<Need, Error> {
        match self.state {
            Lz4State::Magic => self.magic(unit),
            Lz4State::Skippable => {
                self.frames += 1;
                self.state = Lz4State::Magic;
                Ok(Need::Skip(number(unit).into(), MAGIC_BYTES))
            }
            Lz4State::Flags => self.flags(unit),
            Lz4State::Descriptor => self.descriptor(unit),
            Lz4State::Length => self.length(unit),
            Lz4State::Block { is_compressed } => self.block(is_compressed, unit, out),
            Lz4State::Checksum if number(unit) == self.checksum.finish_32() => self.end_frame(),
            Lz4State::Checksum => Err(CORRUPT),
        }
    }

    fn may_end(&self) -> bool {
        self.frames > 0 && matches!(self.state, Lz4State::Magic)
    }

    fn memory_bytes(&self) -> usize {
        self.history.capacity()
    }
}

fn number(unit: &[u8]) -> u32 {
    unit.iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte))
}

fn header_checksum(descriptor: &[u8]) -> u8 {
    (XxHash32::oneshot(0, descriptor) >> 8) as u8
}

const CORRUPT: Error = Error::Corrupt(Algorithm::Lz4);

const MAGIC: u32 = 0x184d_2204;
const MAGIC_LEGACY: u32 = 0x184c_2102;
const MAGIC_BYTES: usize = 4;
const SKIPPABLE_FIRST: u32 = 0x184d_2a50;
const SKIPPABLE_LAST: u32 = 0x184d_2a5f;
const LENGTH_BYTES: usize = 4;
const CHECKSUM_BYTES: usize = 4;

const VERSION: u8 = 0b0100_0000;
const VERSION_MASK: u8 = 0b1100_0000;
const INDEPENDENT: u8 = 1 << 5;
const BLOCK_CHECKSUM: u8 = 1 << 4;
const CONTENT_SIZE: u8 = 1 << 3;
const CONTENT_CHECKSUM: u8 = 1 << 2;
const RESERVED: u8 = 1 << 1;
const DICTIONARY: u8 = 1;

const BLOCK_SIZE_MASK: u8 = 0b0111_0000;
const BLOCK_64_KIB: u8 = 4;
const BLOCK_4_MIB: u8 = 7;

/// The bit of a block's length that marks plain bytes.
const UNCOMPRESSED: u32 = 1 << 31;

/// How far back a block refers.
const HISTORY_BYTES: usize = 64 * 1024;

/// A byte of a compressed block yields at most so many.
const EXPANSION_MAX: usize = 256;

const _: () = assert!(BLOCK_BYTES == 1 << (8 + 2 * BLOCK_64_KIB));
