//! Shared parts of the block formats: gathering whole blocks, since their libraries take no parts, and writing their
//! output in parts. `snappy.rs` and `lz4.rs` have the formats.

use crate::coder::{Decode, Encode, Operation, Progress};
use crate::error::Error;
use crate::limits::DecompressionLimits;

/// How a format writes a message.
pub(crate) trait WriteBlocks {
    /// The beginning of a message.
    fn begin(&mut self, out: &mut Vec<u8>);

    /// A block of at most [`BLOCK_BYTES`], which is not empty.
    fn block(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), Error>;

    /// The end of a message.
    fn end(&mut self, out: &mut Vec<u8>);

    /// The size of its memory.
    fn memory_bytes(&self) -> usize;
}

/// How a format reads a message: as units of a length that the units before determine.
pub(crate) trait ReadUnits {
    /// The first unit of a message.
    fn begin(&mut self, limits: &DecompressionLimits) -> Need;

    /// Another context has read the first frames of the message; called after [`begin`](Self::begin).
    fn resume(&mut self) {}

    /// Reads a unit, appends plain bytes to `out`, and returns the next need.
    fn unit(&mut self, unit: &[u8], out: &mut Vec<u8>) -> Result<Need, Error>;

    /// Whether a message may end before the unit that comes next.
    fn may_end(&self) -> bool;

    /// The size of its memory.
    fn memory_bytes(&self) -> usize;
}

/// The next unit of a message. The format compares lengths with its limits before it returns them.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Need {
    /// A unit of so many bytes, at least one.
    Bytes(usize),
    /// So many bytes that mean nothing, then a unit.
    Skip(u64, usize),
}

/// A compressing context.
pub(crate) struct BlockEncoder<F> {
    format: F,
    plain: Vec<u8>,
    staged: StagedOutput,
    has_begun: bool,
    has_ended: bool,
}

impl<F> BlockEncoder<F> {
    pub(crate) fn new(format: F) -> Self {
        Self { format, plain: Vec::new(), staged: StagedOutput::default(), has_begun: false, has_ended: false }
    }
}

impl<F: WriteBlocks> Encode for BlockEncoder<F> {
    fn encode(&mut self, operation: Operation, input: &[u8], space: &mut [u8]) -> Result<Progress, Error> {
        let (mut read, mut written) = (0, 0);
        loop {
            written += self.staged.drain(&mut space[written..]);
            if !self.staged.is_empty() {
                return Ok(Progress { read, written, is_complete: false });
            }
            let out = self.staged.refill();
            let rest = &input[read..];
            if !self.has_begun {
                self.has_begun = true;
                self.format.begin(out);
            } else if self.plain.is_empty() && rest.len() >= BLOCK_BYTES {
                // A whole block is compressed where it lies.
                self.format.block(&rest[..BLOCK_BYTES], out)?;
                read += BLOCK_BYTES;
            } else if !rest.is_empty() {
                let count = rest.len().min(BLOCK_BYTES - self.plain.len());
                self.plain.extend_from_slice(&rest[..count]);
                read += count;
                if self.plain.len() == BLOCK_BYTES {
                    self.format.block(&self.plain, out)?;
                    self.plain.clear();
                }
            } else if operation != Operation::Write && !self.plain.is_empty() {
                self.format.block(&self.plain, out)?;
                self.plain.clear();
            } else if operation == Operation::Finish && !self.has_ended {
                self.has_ended = true;
                self.format.end(out);
            } else {
                return Ok(Progress { read, written, is_complete: true });
            }
        }
    }

    fn reset(&mut self) -> bool {
        self.plain.clear();
        self.staged.clear();
        (self.has_begun, self.has_ended) = (false, false);
        true
    }

    fn memory_bytes(&self) -> usize {
        self.plain.capacity() + self.staged.memory_bytes() + self.format.memory_bytes()
    }
}

/// A decompressing context.
pub(crate) struct BlockDecoder<F> {
    format: F,
    /// The beginning of a unit that has not come in one piece.
    gathered: Vec<u8>,
    need: Option<Need>,
    staged: StagedOutput,
    limits: DecompressionLimits,
    /// The fault behind the bytes that the last step wrote.
    fault: Option<Error>,
}

impl<F> BlockDecoder<F> {
    pub(crate) fn new(format: F, limits: &DecompressionLimits) -> Self {
        Self { format, gathered: Vec::new(), need: None, staged: StagedOutput::default(), limits: *limits, fault: None }
    }
}

impl<F: ReadUnits> BlockDecoder<F> {
    /// A step that adds to `done`, up to an error.
    fn advance(&mut self, input: &[u8], space: &mut [u8], done: &mut Progress) -> Result<(), Error> {
        loop {
            done.written += self.staged.drain(&mut space[done.written..]);
            if !self.staged.is_empty() {
                return Ok(());
            }
            let rest = &input[done.read..];
            if rest.is_empty() {
                done.is_complete = true;
                return Ok(());
            }
            let limits = &self.limits;
            let need = *self.need.get_or_insert_with(|| self.format.begin(limits));
            let out = self.staged.refill();
            self.need = Some(match need {
                Need::Skip(0, next) => Need::Bytes(next),
                Need::Skip(left, next) => {
                    let count = (rest.len() as u64).min(left);
                    done.read += count as usize;
                    Need::Skip(left - count, next)
                }
                Need::Bytes(length) if self.gathered.is_empty() && rest.len() >= length => {
                    done.read += length;
                    self.format.unit(&rest[..length], out)?
                }
                Need::Bytes(length) => {
                    let count = rest.len().min(length - self.gathered.len());
                    self.gathered.extend_from_slice(&rest[..count]);
                    done.read += count;
                    if self.gathered.len() == length {
                        let need = self.format.unit(&self.gathered, out)?;
                        self.gathered.clear();
                        need
                    } else {
                        need
                    }
                }
            });
        }
    }
}

impl<F: ReadUnits> Decode for BlockDecoder<F> {
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
        let is_between = !matches!(self.need, None | Some(Need::Skip(1.., _)));
        is_between && self.gathered.is_empty() && self.staged.is_empty() && self.format.may_end()
    }

    fn has_ended(&self) -> bool {
        // Another frame may follow.
        false
    }

    fn resume(&mut self) {
        self.need = Some(self.format.begin(&self.limits));
        self.format.resume();
    }

    fn reset(&mut self, limits: &DecompressionLimits) -> bool {
        self.gathered.clear();
        self.staged.clear();
        self.need = None;
        self.limits = *limits;
        self.fault = None;
        true
    }

    fn memory_bytes(&self) -> usize {
        self.gathered.capacity() + self.staged.memory_bytes() + self.format.memory_bytes()
    }
}

/// Output that waits for space.
#[derive(Default)]
struct StagedOutput {
    bytes: Vec<u8>,
    sent: usize,
}

impl StagedOutput {
    fn drain(&mut self, space: &mut [u8]) -> usize {
        let waiting = &self.bytes[self.sent..];
        let count = waiting.len().min(space.len());
        space[..count].copy_from_slice(&waiting[..count]);
        self.sent += count;
        count
    }

    fn is_empty(&self) -> bool {
        self.sent == self.bytes.len()
    }

    /// Where the next output is appended. The last one must have been drained.
    fn refill(&mut self) -> &mut Vec<u8> {
        debug_assert!(self.is_empty());
        self.clear();
        &mut self.bytes
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.sent = 0;
    }

    fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }
}

/// Plain bytes of a full block that is written: the most that Snappy's framing format allows.
pub(crate) const BLOCK_BYTES: usize = 64 * 1024;
