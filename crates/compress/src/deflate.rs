//! Deflate, raw or with zlib's wrapping, both ways; and the compressing side of gzip. The other one is `gzip.rs`.

use flate2::{Compress, Decompress, FlushCompress, FlushDecompress, Status};

use crate::algorithm::Algorithm;
use crate::coder::{Decode, Encode, Operation, Progress};
use crate::error::Error;
use crate::limits::DecompressionLimits;

/// A compressing context.
pub(crate) struct DeflateEncoder {
    algorithm: Algorithm,
    stream: Compress,
    window_bits: u8,
    /// Output of a flush that waits for space.
    staged: Vec<u8>,
}

impl DeflateEncoder {
    pub(crate) fn new(algorithm: Algorithm, level: u8, window_bits: u8) -> Self {
        let level = flate2::Compression::new(level.into());
        let stream = match algorithm {
            Algorithm::Gzip => Compress::new_gzip(level, window_bits),
            _ => Compress::new_with_window_bits(level, algorithm == Algorithm::Deflate, window_bits),
        };
        Self { algorithm, stream, window_bits, staged: Vec::new() }
    }

    fn compress(&mut self, input: &[u8], space: &mut [u8], flush: FlushCompress) -> Result<DeflateStep, Error> {
        let (read, written) = (self.stream.total_in(), self.stream.total_out());
        let status = self.stream.compress(input, space, flush).map_err(|_| Error::System(self.algorithm))?;
        Ok(((self.stream.total_in() - read) as usize, (self.stream.total_out() - written) as usize, status))
    }

    /// A flush into less space than its marker needs. The library would begin the marker again with each call.
    fn flush(&mut self, input: &[u8], space: &mut [u8]) -> Result<Progress, Error> {
        let mut staged = [0; FLUSH_SPACE_BYTES_MIN];
        let (read, filled, _) = self.compress(input, &mut staged, FlushCompress::Sync)?;
        self.staged.extend_from_slice(&staged[..filled]);
        let written = self.drain(space);
        let is_complete = read == input.len() && filled < staged.len() && self.staged.is_empty();
        Ok(Progress { read, written, is_complete })
    }

    fn drain(&mut self, space: &mut [u8]) -> usize {
        let count = self.staged.len().min(space.len());
        space[..count].copy_from_slice(&self.staged[..count]);
        self.staged.drain(..count);
        count
    }
}

/// Bytes that were read, bytes that were written, and the status of the stream.
type DeflateStep = (usize, usize, Status);

impl Encode for DeflateEncoder {
    fn encode(&mut self, operation: Operation, input: &[u8], space: &mut [u8]) -> Result<Progress, Error> {
        if !self.staged.is_empty() {
            let written = self.drain(space);
            return Ok(Progress { read: 0, written, is_complete: false });
        }
        let flush = match operation {
            Operation::Write => FlushCompress::None,
            Operation::Flush if space.len() < FLUSH_SPACE_BYTES_MIN => return self.flush(input, space),
            Operation::Flush => FlushCompress::Sync,
            Operation::Finish => FlushCompress::Finish,
        };
        let (read, written, status) = self.compress(input, space, flush)?;
        let is_complete = read == input.len()
            && match operation {
                Operation::Write => true,
                // A flush that has ended exactly at the end of the space writes another marker the next time.
                Operation::Flush => written < space.len(),
                Operation::Finish => status == Status::StreamEnd,
            };
        Ok(Progress { read, written, is_complete })
    }

    fn reset(&mut self) -> bool {
        self.stream.reset();
        self.staged.clear();
        true
    }

    fn memory_bytes(&self) -> usize {
        // Two windows and two tables of links by position, and tables and pending symbols that do not depend on it.
        (4 << self.window_bits) + ENCODER_TABLES_BYTES
    }
}

/// A decompressing context.
pub(crate) struct DeflateDecoder {
    algorithm: Algorithm,
    stream: Inflate,
    state: DeflateState,
}

#[derive(PartialEq)]
enum DeflateState {
    Beginning,
    Body,
    Ended,
}

impl DeflateDecoder {
    pub(crate) fn new(algorithm: Algorithm) -> Self {
        Self { algorithm, stream: Inflate::new(), state: DeflateState::Beginning }
    }
}

impl Decode for DeflateDecoder {
    fn decode(&mut self, input: &[u8], space: &mut [u8]) -> Result<Progress, Error> {
        let Some(&first) = input.first().or((self.state == DeflateState::Body).then_some(&0)) else {
            return Ok(Progress { is_complete: true, ..Progress::default() });
        };
        if self.state == DeflateState::Ended {
            return Err(Error::TrailingBytes);
        }
        if self.state == DeflateState::Beginning {
            self.stream.restart(self.algorithm == Algorithm::Deflate && is_zlib(first));
            self.state = DeflateState::Body;
        }
        let (progress, has_ended) = self.stream.inflate(input, space).map_err(|fault| fault.of(self.algorithm))?;
        if has_ended {
            self.state = DeflateState::Ended;
        }
        let is_complete = progress.read == input.len() && (has_ended || progress.is_complete);
        Ok(Progress { is_complete, ..progress })
    }

    fn may_end(&self) -> bool {
        self.has_ended()
    }

    fn has_ended(&self) -> bool {
        self.state == DeflateState::Ended
    }

    fn reset(&mut self, _: &DecompressionLimits) -> bool {
        self.state = DeflateState::Beginning;
        true
    }

    fn memory_bytes(&self) -> usize {
        DECODER_BYTES
    }
}

/// Whether a message that begins with this byte has zlib's header. In raw deflate the same bits are a stored block whose
/// padding is not zero, which no compressor writes.
fn is_zlib(first: u8) -> bool {
    first & 0x0f == 8 && first >> 4 <= 7
}

/// The decompressing side of the library.
pub(crate) struct Inflate {
    stream: Decompress,
    /// The fault behind the bytes that the last step wrote.
    fault: Option<InflateFault>,
}

/// The fault of a message.
#[derive(Clone, Copy)]
pub(crate) enum InflateFault {
    Corrupt,
    NeedsDictionary,
}

impl InflateFault {
    pub(crate) fn of(self, algorithm: Algorithm) -> Error {
        match self {
            Self::Corrupt => Error::Corrupt(algorithm),
            Self::NeedsDictionary => Error::Unsupported(algorithm),
        }
    }
}

impl Inflate {
    pub(crate) fn new() -> Self {
        Self { stream: Decompress::new(false), fault: None }
    }

    /// Another message begins.
    pub(crate) fn restart(&mut self, has_zlib_header: bool) {
        self.stream.reset(has_zlib_header);
        self.fault = None;
    }

    /// Returns also whether the message has ended. If it has not, a step that fills the space is not complete. Bytes
    /// before a fault are returned first, so that the caller sees the same bytes however the message is split.
    pub(crate) fn inflate(&mut self, input: &[u8], space: &mut [u8]) -> Result<(Progress, bool), InflateFault> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let (read, written) = (self.stream.total_in(), self.stream.total_out());
        let result = self
            .stream
            .decompress(input, space, FlushDecompress::None)
            .map_err(|error| error.needs_dictionary().map_or(InflateFault::Corrupt, |_| InflateFault::NeedsDictionary));
        let read = (self.stream.total_in() - read) as usize;
        let written = (self.stream.total_out() - written) as usize;
        let status = match result {
            Ok(status) => status,
            Err(fault) if written == 0 => return Err(fault),
            Err(fault) => {
                self.fault = Some(fault);
                return Ok((Progress { read, written, is_complete: false }, false));
            }
        };
        let has_ended = status == Status::StreamEnd;
        if !has_ended && read + written == 0 && !input.is_empty() && !space.is_empty() {
            // Without progress there is no end.
            return Err(InflateFault::Corrupt);
        }
        Ok((Progress { read, written, is_complete: written < space.len() }, has_ended))
    }
}

/// A marker is shorter. In less space, the library would begin it again with each call.
const FLUSH_SPACE_BYTES_MIN: usize = 16;

const ENCODER_TABLES_BYTES: usize = 256 * 1024;

/// The window, and the tables of codes.
pub(crate) const DECODER_BYTES: usize = 48 * 1024;
