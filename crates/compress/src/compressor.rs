//! `Compressor`: one message, compressed piece by piece.

use crate::coder::{Operation, Progress};
use crate::compression::Compression;
use crate::context_pool::{self, Lease};
use crate::cost;
use crate::error::Error;
use crate::sink::Sink;

/// Compresses one message, in any pieces.
///
/// It takes a context from the pool of its thread with the first bytes, and gives it back when the message is finished
/// or the compressor is dropped. An `Option<Compressor>` has the size of a pointer.
///
/// ```
/// use tidegate::buffer::{Outbound};
/// use tidegate::codec::Pool;
/// use tidegate::compress::{Algorithm, Compressor, DecompressionLimits, Decompressor};
///
/// let mut queue = Outbound::new(&Pool::new());
/// let mut compressor = Compressor::new(Algorithm::Gzip.into());
/// compressor.write(b"ebb and ", &mut queue)?;
/// // Everything so far can be decompressed by the peer.
/// compressor.flush(&mut queue)?;
/// compressor.finish_with(b"flow", &mut queue)?;
/// queue.flush();
///
/// let mut plain = Vec::new();
/// let mut decompressor = Decompressor::new(Algorithm::Gzip, DecompressionLimits::default());
/// decompressor.write(queue.front().expect("it is flushed"), usize::MAX, &mut plain)?;
/// decompressor.finish()?;
/// assert_eq!(plain, b"ebb and flow");
/// # Ok::<(), tidegate::compress::Error>(())
/// ```
#[derive(Debug)]
pub struct Compressor {
    message: Box<Message>,
}

struct Message {
    compression: Compression,
    context: Option<Lease<Compression>>,
    /// Whether bytes were taken since the last flush.
    is_unflushed: bool,
    is_finished: bool,
}

impl Compressor {
    /// A compressor for one message.
    #[must_use]
    pub fn new(compression: Compression) -> Self {
        Self { message: Box::new(Message { compression, context: None, is_unflushed: false, is_finished: false }) }
    }

    /// Takes from `input`, and fills `space`. The caller repeats a step until it
    /// [is complete](Progress::is_complete); with an empty space it never is. After an incomplete flush or end it
    /// continues with the same operation.
    ///
    /// # Errors
    /// [`Error::Finished`] after the end of the message, [`Error::System`] if memory is short.
    pub fn step(&mut self, operation: Operation, input: &[u8], space: &mut [u8]) -> Result<Progress, Error> {
        let message = &mut *self.message;
        if message.is_finished {
            return Err(Error::Finished);
        }
        let has_work = match operation {
            Operation::Write => !input.is_empty(),
            Operation::Flush => !input.is_empty() || message.is_unflushed,
            Operation::Finish => true,
        };
        if !has_work || space.is_empty() {
            return Ok(Progress { is_complete: !has_work, ..Progress::default() });
        }
        if message.context.is_none() {
            message.context = Some(context_pool::encoder(message.compression)?);
        }
        let context = message.context.as_mut().expect("it is there").context();
        let progress = context.encode(operation, input, space)?;
        cost::add_compressing(
            message.compression.algorithm(),
            message.compression.level_and_window_bits().0,
            progress.read,
        );
        message.is_unflushed |= progress.read > 0;
        if progress.is_complete && operation != Operation::Write {
            message.is_unflushed = false;
        }
        if progress.is_complete && operation == Operation::Finish {
            message.is_finished = true;
            message.context = None;
        }
        Ok(progress)
    }

    /// Compresses `input`; returns how many bytes it wrote to `sink`. Others may wait for more input.
    ///
    /// # Errors
    /// As for [`step`](Self::step).
    pub fn write(&mut self, input: &[u8], sink: &mut (impl Sink + ?Sized)) -> Result<usize, Error> {
        self.run(Operation::Write, input, sink)
    }

    /// Writes everything so far to `sink`, such that the peer can decompress it; returns how many bytes that takes. A
    /// flush without new input writes nothing. Each flush costs a few bytes, and blocks that are too short compress badly.
    ///
    /// # Errors
    /// As for [`step`](Self::step).
    pub fn flush(&mut self, sink: &mut (impl Sink + ?Sized)) -> Result<usize, Error> {
        self.run(Operation::Flush, &[], sink)
    }

    /// Ends the message; returns how many bytes it wrote to `sink`.
    ///
    /// # Errors
    /// As for [`step`](Self::step).
    pub fn finish(&mut self, sink: &mut (impl Sink + ?Sized)) -> Result<usize, Error> {
        self.run(Operation::Finish, &[], sink)
    }

    /// Compresses the last `input`, and ends the message; returns how many bytes it wrote to `sink`.
    ///
    /// # Errors
    /// As for [`step`](Self::step).
    pub fn finish_with(&mut self, input: &[u8], sink: &mut (impl Sink + ?Sized)) -> Result<usize, Error> {
        self.run(Operation::Finish, input, sink)
    }

    /// Whether bytes were taken that the peer cannot decompress before the next flush.
    #[must_use]
    pub fn is_unflushed(&self) -> bool {
        self.message.is_unflushed
    }

    /// Whether the message has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.message.is_finished
    }

    /// The size of the context in bytes, zero while there is none.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.message.context.as_ref().map_or(0, |context| context.get().memory_bytes())
    }

    fn run(&mut self, operation: Operation, mut input: &[u8], sink: &mut (impl Sink + ?Sized)) -> Result<usize, Error> {
        let mut total = 0;
        loop {
            let length = if input.len() < SPACE_BYTES { SHORT_SPACE_BYTES } else { SPACE_BYTES };
            let mut progress = Progress::default();
            total += sink.write_with(length, &mut |space| {
                progress = self.step(operation, input, space)?;
                Ok(progress.written)
            })?;
            if progress.is_complete {
                return Ok(total);
            }
            input = &input[progress.read..];
        }
    }
}

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Message")
            .field("compression", &self.compression)
            .field("is_unflushed", &self.is_unflushed)
            .field("is_finished", &self.is_finished)
            .finish_non_exhaustive()
    }
}

/// The space for output: the size that fits into a queue's segment, and the one that fits into a large segment.
const SHORT_SPACE_BYTES: usize = 2 * 1024;
pub(crate) const SPACE_BYTES: usize = 16 * 1024;

const _: () = assert!(size_of::<Option<Compressor>>() == size_of::<usize>());
