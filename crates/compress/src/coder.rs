//! `Encode` and `Decode`: the traits that each algorithm implements. Each has a file of its own, and `algorithm.rs`
//! lists them.

use crate::error::Error;
use crate::limits::DecompressionLimits;

/// A compressor's action besides taking input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Nothing: it may keep all bytes until they compress well.
    Write,
    /// It writes all bytes so far such that the peer can decompress them.
    Flush,
    /// It ends the message.
    Finish,
}

/// The result of one step of a compressor or a decompressor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes taken from the beginning of the input.
    pub read: usize,
    /// Bytes written to the beginning of the space.
    pub written: usize,
    /// Whether the step is complete: a compressor has taken all input, and has written all that a flush or an end needs;
    /// a decompressor needs more input. Otherwise the caller calls again, with the rest of the input and more space.
    pub is_complete: bool,
}

/// The compressing side of an algorithm.
pub(crate) trait Encode {
    /// Takes from `input`, and fills `space`, which is not empty.
    fn encode(&mut self, operation: Operation, input: &[u8], space: &mut [u8]) -> Result<Progress, Error>;

    /// Prepares for another message; returns whether it can.
    fn reset(&mut self) -> bool;

    /// The size of its memory.
    fn memory_bytes(&self) -> usize;
}

/// The decompressing side of an algorithm.
pub(crate) trait Decode {
    /// Takes from `input`, and fills `space`, which is not empty.
    fn decode(&mut self, input: &[u8], space: &mut [u8]) -> Result<Progress, Error>;

    /// Whether the message may end here. Called when a step was complete.
    fn may_end(&self) -> bool;

    /// Whether the message has ended, and nothing may follow.
    fn has_ended(&self) -> bool;

    /// Whether another context can decompress all that may follow. Called when a step was complete.
    fn may_release(&self) -> bool {
        self.may_end()
    }

    /// The message continues: another context has decompressed its first parts. Called before the first step.
    fn resume(&mut self) {}

    /// Prepares for another message; returns whether it can.
    fn reset(&mut self, limits: &DecompressionLimits) -> bool;

    /// The size of its memory.
    fn memory_bytes(&self) -> usize;
}
