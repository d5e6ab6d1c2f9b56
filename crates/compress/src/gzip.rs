//! Decompressing gzip: members one after the other, each a header, raw deflate, and a checksum (RFC 1952).
//!
//! Headers are read here and not by the library, so that members share its context and long headers have a bound.

use crate::algorithm::Algorithm;
use crate::coder::{Decode, Progress};
use crate::deflate::{DECODER_BYTES, Inflate};
use crate::error::Error;
use crate::limits::DecompressionLimits;

/// A decompressing context.
pub(crate) struct GzipDecoder {
    stream: Inflate,
    state: GzipState,
    checksum: crc32fast::Hasher,
    /// Plain bytes of the member.
    length: u32,
    members: u64,
    /// The fault behind the bytes that the last step wrote.
    fault: Option<Error>,
}

enum GzipState {
    Header(Header),
    Body,
    Trailer {
        bytes: [u8; TRAILER_BYTES],
        filled: usize,
    },
    /// Zeros after the last member, which `gzip` ignores: archives are padded with them to whole blocks.
    Padding,
}

/// How inflating a part of a body ended.
enum InflateResult {
    /// More follows once there is space.
    NoSpace,
    /// The input is used up, as far as the stream needs it.
    All,
    /// The body is over.
    Ended,
}

impl GzipDecoder {
    pub(crate) fn new() -> Self {
        Self {
            stream: Inflate::new(),
            state: GzipState::Header(Header::default()),
            checksum: crc32fast::Hasher::new(),
            length: 0,
            members: 0,
            fault: None,
        }
    }

    /// A step that adds to `done`, up to an error.
    fn advance(&mut self, input: &[u8], space: &mut [u8], done: &mut Progress) -> Result<(), Error> {
        loop {
            let rest = &input[done.read..];
            match &mut self.state {
                GzipState::Header(header) => {
                    let Some(&byte) = rest.first() else { break };
                    if byte == 0 && self.members > 0 && header.position == 0 {
                        self.state = GzipState::Padding;
                        continue;
                    }
                    let is_done = header.push(byte).map_err(|error| match error {
                        Error::Corrupt(_) if self.members > 0 && header.position < MAGIC.len() => Error::TrailingBytes,
                        error => error,
                    })?;
                    done.read += 1;
                    if is_done {
                        self.stream.restart(false);
                        self.checksum = crc32fast::Hasher::new();
                        self.length = 0;
                        self.state = GzipState::Body;
                    }
                }
                GzipState::Body => match self.inflate(rest, &mut space[done.written..], done)? {
                    InflateResult::NoSpace => return Ok(()),
                    InflateResult::All if done.read == input.len() => break,
                    InflateResult::All | InflateResult::Ended => {}
                },
                GzipState::Padding if rest.iter().all(|&byte| byte == 0) => {
                    done.read = input.len();
                    break;
                }
                GzipState::Padding => return Err(Error::TrailingBytes),
                GzipState::Trailer { bytes, filled } => {
                    let count = rest.len().min(TRAILER_BYTES - *filled);
                    bytes[*filled..*filled + count].copy_from_slice(&rest[..count]);
                    *filled += count;
                    done.read += count;
                    if *filled < TRAILER_BYTES {
                        break;
                    }
                    let trailer = *bytes;
                    self.check(trailer)?;
                    self.members += 1;
                    self.state = GzipState::Header(Header::default());
                }
            }
        }
        done.is_complete = true;
        Ok(())
    }

    /// Inflates a part of the body, which `done` then includes.
    fn inflate(&mut self, rest: &[u8], space: &mut [u8], done: &mut Progress) -> Result<InflateResult, Error> {
        if space.is_empty() {
            return Ok(InflateResult::NoSpace);
        }
        let (progress, has_ended) = self.stream.inflate(rest, space).map_err(|fault| fault.of(Algorithm::Gzip))?;
        self.checksum.update(&space[..progress.written]);
        self.length = self.length.wrapping_add(progress.written as u32);
        done.read += progress.read;
        done.written += progress.written;
        if has_ended {
            self.state = GzipState::Trailer { bytes: [0; TRAILER_BYTES], filled: 0 };
            return Ok(InflateResult::Ended);
        }
        Ok(if progress.is_complete { InflateResult::All } else { InflateResult::NoSpace })
    }

    fn check(&self, trailer: [u8; TRAILER_BYTES]) -> Result<(), Error> {
        let [checksum, length] = [&trailer[..4], &trailer[4..]]
            .map(|bytes| bytes.iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte)));
        let is_right = checksum == self.checksum.clone().finalize() && length == self.length;
        if is_right { Ok(()) } else { Err(Error::Corrupt(Algorithm::Gzip)) }
    }
}

impl Decode for GzipDecoder {
    fn decode(&mut self, input: &[u8], space: &mut [u8]) -> Result<Progress, Error> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let mut done = Progress::default();
        match self.advance(input, space, &mut done) {
            Ok(()) => {}
            Err(fault) if done.written == 0 => return Err(fault),
            Err(fault) => self.fault = Some(fault),
        }
        Ok(done)
    }

    fn may_end(&self) -> bool {
        match &self.state {
            GzipState::Header(header) => self.members > 0 && header.position == 0,
            GzipState::Padding => true,
            GzipState::Body | GzipState::Trailer { .. } => false,
        }
    }

    fn has_ended(&self) -> bool {
        // Another member may follow.
        false
    }

    fn may_release(&self) -> bool {
        // Behind zeros there may be zeros only.
        self.may_end() && !matches!(self.state, GzipState::Padding)
    }

    fn resume(&mut self) {
        self.members = 1;
    }

    fn reset(&mut self, _: &DecompressionLimits) -> bool {
        self.state = GzipState::Header(Header::default());
        self.members = 0;
        self.fault = None;
        true
    }

    fn memory_bytes(&self) -> usize {
        DECODER_BYTES
    }
}

/// The header of a member, byte by byte.
#[derive(Default)]
struct Header {
    /// How many bytes there were.
    position: usize,
    flags: u8,
    part: Part,
    checksum: crc32fast::Hasher,
}

#[derive(Default, Clone, Copy)]
enum Part {
    #[default]
    Fixed,
    ExtraLength {
        low: Option<u8>,
    },
    Extra {
        left: u16,
    },
    Name,
    Comment,
    Checksum {
        low: Option<u8>,
    },
}

impl Header {
    /// Takes a byte; returns whether it was the last one.
    fn push(&mut self, byte: u8) -> Result<bool, Error> {
        const CORRUPT: Error = Error::Corrupt(Algorithm::Gzip);
        match self.position {
            position @ 0..3 if byte != MAGIC[position] => return Err(CORRUPT),
            3 if byte & RESERVED != 0 => return Err(CORRUPT),
            3 => self.flags = byte,
            HEADER_BYTES_MAX => return Err(Error::HeaderTooLong { header_bytes_max: HEADER_BYTES_MAX }),
            _ => {}
        }
        self.position += 1;
        let after = match self.part {
            Part::Fixed if self.position < FIXED_BYTES => None,
            Part::Fixed => Some(EXTRA),
            Part::ExtraLength { low: None } => {
                self.part = Part::ExtraLength { low: Some(byte) };
                None
            }
            Part::ExtraLength { low: Some(low) } => match u16::from_le_bytes([low, byte]) {
                0 => Some(NAME),
                left => {
                    self.part = Part::Extra { left };
                    None
                }
            },
            Part::Extra { left: 1 } => Some(NAME),
            Part::Extra { left } => {
                self.part = Part::Extra { left: left - 1 };
                None
            }
            Part::Name => (byte == 0).then_some(COMMENT),
            Part::Comment => (byte == 0).then_some(CHECKSUM),
            Part::Checksum { low: None } => {
                self.part = Part::Checksum { low: Some(byte) };
                return Ok(false);
            }
            Part::Checksum { low: Some(low) } => {
                let expected = self.checksum.clone().finalize() as u16;
                return if u16::from_le_bytes([low, byte]) == expected { Ok(true) } else { Err(CORRUPT) };
            }
        };
        if self.flags & CHECKSUM != 0 || self.position <= FIXED_BYTES {
            self.checksum.update(&[byte]);
        }
        Ok(after.is_some_and(|from| self.enter(from)))
    }

    /// Enters the next part that the flags name, the part `from` or a later one; returns whether there is none.
    fn enter(&mut self, from: u8) -> bool {
        let parts = [
            (EXTRA, Part::ExtraLength { low: None }),
            (NAME, Part::Name),
            (COMMENT, Part::Comment),
            (CHECKSUM, Part::Checksum { low: None }),
        ];
        let next = parts.iter().skip_while(|(flag, _)| *flag != from).find(|(flag, _)| self.flags & flag != 0);
        match next {
            Some((_, part)) => self.part = *part,
            None => return true,
        }
        false
    }
}

/// Two bytes that name the format, and the method: deflate.
const MAGIC: [u8; 3] = [0x1f, 0x8b, 8];

/// The bytes of the fixed header part.
const FIXED_BYTES: usize = 10;

/// A checksum and a length.
const TRAILER_BYTES: usize = 8;

/// An extra field is at most 64 KiB long; names and comments are short.
const HEADER_BYTES_MAX: usize = 68 * 1024;

const CHECKSUM: u8 = 1 << 1;
const EXTRA: u8 = 1 << 2;
const NAME: u8 = 1 << 3;
const COMMENT: u8 = 1 << 4;
const RESERVED: u8 = 0b1110_0000;
