//! Brotli, both ways. Its library cannot reset a context, so contexts are not kept for reuse.

use brotli::enc::StandardAlloc;
use brotli::enc::encode::{BrotliEncoderOperation, BrotliEncoderParameter, BrotliEncoderStateStruct};
use brotli::{BrotliDecompressStream, BrotliResult, BrotliState};

use crate::algorithm::Algorithm;
use crate::coder::{Decode, Encode, Operation, Progress};
use crate::error::Error;
use crate::limits::DecompressionLimits;

/// A compressing context.
pub(crate) struct BrotliEncoder {
    state: BrotliEncoderStateStruct<StandardAlloc>,
    window_bits: u8,
}

impl BrotliEncoder {
    pub(crate) fn new(level: u8, window_bits: u8) -> Self {
        let mut state = BrotliEncoderStateStruct::new(StandardAlloc::default());
        state.set_parameter(BrotliEncoderParameter::BROTLI_PARAM_QUALITY, level.into());
        // From level 5 on, smaller windows take another search, which runs at a tenth of the speed.
        let window_bits = if level < 5 { window_bits } else { window_bits.max(17) };
        state.set_parameter(BrotliEncoderParameter::BROTLI_PARAM_LGWIN, window_bits.into());
        // Without it, a first piece of a MiB or more takes a table of 4 MiB.
        state.set_parameter(BrotliEncoderParameter::BROTLI_PARAM_SIZE_HINT, SIZE_HINT_BYTES);
        Self { state, window_bits }
    }
}

impl Encode for BrotliEncoder {
    fn encode(&mut self, operation: Operation, input: &[u8], space: &mut [u8]) -> Result<Progress, Error> {
        let brotli_operation = match operation {
            Operation::Write => BrotliEncoderOperation::BROTLI_OPERATION_PROCESS,
            Operation::Flush => BrotliEncoderOperation::BROTLI_OPERATION_FLUSH,
            Operation::Finish => BrotliEncoderOperation::BROTLI_OPERATION_FINISH,
        };
        let (mut left, mut read) = (input.len(), 0);
        let (mut room, mut written) = (space.len(), 0);
        let is_done = self.state.compress_stream(
            brotli_operation,
            &mut left,
            input,
            &mut read,
            &mut room,
            space,
            &mut written,
            &mut None,
            &mut |_, _, _, _| (),
        );
        if !is_done {
            return Err(Error::System(Algorithm::Brotli));
        }
        let is_complete = left == 0
            && match operation {
                Operation::Write => true,
                Operation::Flush => !self.state.has_more_output(),
                Operation::Finish => self.state.is_finished(),
            };
        Ok(Progress { read, written, is_complete })
    }

    fn reset(&mut self) -> bool {
        false
    }

    fn memory_bytes(&self) -> usize {
        // The window, and a block of twice its length as commands and as output, at usual levels.
        (12 << self.window_bits) + ENCODER_TABLES_BYTES
    }
}

/// A decompressing context.
pub(crate) struct BrotliDecoder {
    state: Box<BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>>,
    window_max: u32,
    window: u32,
    has_ended: bool,
}

impl BrotliDecoder {
    pub(crate) fn new(limits: &DecompressionLimits) -> Self {
        let alloc = StandardAlloc::default;
        let state = Box::new(BrotliState::new_strict(alloc(), alloc(), alloc()));
        Self { state, window_max: limits.window_max, window: 0, has_ended: false }
    }
}

impl Decode for BrotliDecoder {
    fn decode(&mut self, input: &[u8], space: &mut [u8]) -> Result<Progress, Error> {
        if self.has_ended {
            return if input.is_empty() { Ok(COMPLETE) } else { Err(Error::TrailingBytes) };
        }
        if self.window == 0 {
            let Some(&first) = input.first() else { return Ok(COMPLETE) };
            let window = window(first);
            if window > self.window_max {
                return Err(Error::WindowTooLarge { window_max: self.window_max });
            }
            self.window = window;
        }
        let (mut left, mut read) = (input.len(), 0);
        let space_bytes = space.len();
        let (mut room, mut written, mut total) = (space_bytes, 0, 0);
        let state = &mut self.state;
        let result =
            BrotliDecompressStream(&mut left, &mut read, input, &mut room, &mut written, space, &mut total, state);
        let is_complete = match result {
            BrotliResult::ResultSuccess => {
                self.has_ended = true;
                left == 0
            }
            // The library has more output if it filled the space.
            BrotliResult::NeedsMoreInput => left == 0 && written < space_bytes,
            BrotliResult::NeedsMoreOutput => false,
            BrotliResult::ResultFailure => return Err(Error::Corrupt(Algorithm::Brotli)),
        };
        if !is_complete && !self.has_ended && read + written == 0 {
            // Without progress there is no end.
            return Err(Error::Corrupt(Algorithm::Brotli));
        }
        Ok(Progress { read, written, is_complete })
    }

    fn may_end(&self) -> bool {
        self.has_ended
    }

    fn has_ended(&self) -> bool {
        self.has_ended
    }

    fn reset(&mut self, _: &DecompressionLimits) -> bool {
        false
    }

    fn memory_bytes(&self) -> usize {
        self.window as usize + DECODER_TABLES_BYTES
    }
}

/// The window that a message declares with its first byte (RFC 7932 §9.1).
fn window(first: u8) -> u32 {
    let bits = match (first & 1, first >> 1 & 7, first >> 4 & 7) {
        (0, _, _) => 16,
        (_, 0, 0) => 17,
        (_, 0, short) => 8 + u32::from(short),
        (_, long, _) => 17 + u32::from(long),
    };
    1 << bits
}

const COMPLETE: Progress = Progress { read: 0, written: 0, is_complete: true };

/// The length of a usual message.
const SIZE_HINT_BYTES: u32 = 64 * 1024;

const ENCODER_TABLES_BYTES: usize = 900 * 1024;
const DECODER_TABLES_BYTES: usize = 48 * 1024;
