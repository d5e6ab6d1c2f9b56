//! Zstandard, both ways, by the reference library.

use zstd_safe::zstd_sys::ZSTD_EndDirective;
use zstd_safe::{CCtx, CParameter, DCtx, DParameter, InBuffer, OutBuffer, ResetDirective};

use crate::algorithm::Algorithm;
use crate::coder::{Decode, Encode, Operation, Progress};
use crate::error::Error;
use crate::limits::DecompressionLimits;

/// A compressing context.
pub(crate) struct ZstdEncoder {
    context: CCtx<'static>,
}

impl ZstdEncoder {
    pub(crate) fn new(level: u8, window_bits: u8) -> Result<Self, Error> {
        let mut context = CCtx::try_create().ok_or(SYSTEM)?;
        context.set_parameter(CParameter::CompressionLevel(level.into())).map_err(|_| SYSTEM)?;
        context.set_parameter(CParameter::WindowLog(window_bits.into())).map_err(|_| SYSTEM)?;
        Ok(Self { context })
    }
}

impl Encode for ZstdEncoder {
    fn encode(&mut self, operation: Operation, input: &[u8], space: &mut [u8]) -> Result<Progress, Error> {
        let end = match operation {
            Operation::Write => ZSTD_EndDirective::ZSTD_e_continue,
            Operation::Flush => ZSTD_EndDirective::ZSTD_e_flush,
            Operation::Finish => ZSTD_EndDirective::ZSTD_e_end,
        };
        let (mut from, mut to) = (InBuffer::around(input), OutBuffer::around(space));
        let left = self.context.compress_stream2(&mut to, &mut from, end).map_err(|_| SYSTEM)?;
        let is_complete = from.pos() == input.len() && (operation == Operation::Write || left == 0);
        Ok(Progress { read: from.pos(), written: to.pos(), is_complete })
    }

    fn reset(&mut self) -> bool {
        self.context.reset(ResetDirective::SessionOnly).is_ok()
    }

    fn memory_bytes(&self) -> usize {
        self.context.sizeof()
    }
}

/// A decompressing context.
pub(crate) struct ZstdDecoder {
    context: DCtx<'static>,
    window_max: u32,
    frames: u64,
    /// Whether no byte of a next frame has come.
    is_between: bool,
    /// Whether the last step filled its space, so that the context may hold more output.
    may_hold_output: bool,
}

impl ZstdDecoder {
    pub(crate) fn new(limits: &DecompressionLimits) -> Result<Self, Error> {
        let context = DCtx::try_create().ok_or(SYSTEM)?;
        let mut decoder = Self { context, window_max: 0, frames: 0, is_between: true, may_hold_output: false };
        if decoder.limit(limits) { Ok(decoder) } else { Err(SYSTEM) }
    }

    fn limit(&mut self, limits: &DecompressionLimits) -> bool {
        self.window_max = limits.window_max;
        let bits = limits.window_max.max(1 << WINDOW_BITS_LEAST).ilog2().min(WINDOW_BITS_MOST);
        self.context.set_parameter(DParameter::WindowLogMax(bits)).is_ok()
    }

    fn error(&self, code: usize) -> Error {
        match code.wrapping_neg() {
            WINDOW_TOO_LARGE => Error::WindowTooLarge { window_max: self.window_max },
            DICTIONARY_WRONG | PREFIX_UNKNOWN if self.frames > 0 && self.is_between => Error::TrailingBytes,
            DICTIONARY_WRONG => Error::Unsupported(Algorithm::Zstd),
            OUT_OF_MEMORY => SYSTEM,
            _ => Error::Corrupt(Algorithm::Zstd),
        }
    }
}

impl Decode for ZstdDecoder {
    fn decode(&mut self, input: &[u8], space: &mut [u8]) -> Result<Progress, Error> {
        // The library refuses a message after sixteen calls in a row that change nothing.
        if input.is_empty() && (self.is_between || !self.may_hold_output) {
            return Ok(Progress { is_complete: true, ..Progress::default() });
        }
        let (mut from, mut to) = (InBuffer::around(input), OutBuffer::around(space));
        // A call ends with a frame at the latest.
        let hint = self.context.decompress_stream(&mut to, &mut from).map_err(|code| self.error(code))?;
        let (read, written) = (from.pos(), to.pos());
        let is_full = written == to.capacity();
        self.is_between = hint == 0;
        self.may_hold_output = hint > 0 && is_full;
        self.frames += u64::from(hint == 0);
        if hint > 0 && !input.is_empty() && !is_full && read + written == 0 {
            // Without progress there is no end.
            return Err(Error::Corrupt(Algorithm::Zstd));
        }
        Ok(Progress { read, written, is_complete: read == input.len() && (hint == 0 || !is_full) })
    }

    fn may_end(&self) -> bool {
        self.frames > 0 && self.is_between
    }

    fn has_ended(&self) -> bool {
        // Another frame may follow.
        false
    }

    fn resume(&mut self) {
        self.frames = 1;
    }

    fn reset(&mut self, limits: &DecompressionLimits) -> bool {
        (self.frames, self.is_between, self.may_hold_output) = (0, true, false);
        self.context.reset(ResetDirective::SessionOnly).is_ok() && self.limit(limits)
    }

    fn memory_bytes(&self) -> usize {
        self.context.sizeof()
    }
}

const SYSTEM: Error = Error::System(Algorithm::Zstd);

/// The least and the largest limit that the library accepts.
const WINDOW_BITS_LEAST: u32 = 10;
const WINDOW_BITS_MOST: u32 = 30;

// Numbers of `ZSTD_ErrorCode`, which are stable.
const PREFIX_UNKNOWN: usize = 10;
const WINDOW_TOO_LARGE: usize = 16;
const DICTIONARY_WRONG: usize = 32;
const OUT_OF_MEMORY: usize = 64;
