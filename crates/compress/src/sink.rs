//! `Sink`: where output is written once, such as the queue from which a connection sends.

use tidegate_buffer::Outbound;
use tidegate_codec::Output;

use crate::error::Error;

/// The destination of compressed or decompressed bytes.
pub trait Sink {
    /// Has `fill` write into `length` bytes at the end, and appends as many of them as it returns.
    ///
    /// # Errors
    /// The error of `fill`; nothing is appended then.
    fn write_with(
        &mut self,
        length: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<usize, Error>,
    ) -> Result<usize, Error>;
}

impl Sink for Outbound {
    fn write_with(
        &mut self,
        length: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<usize, Error>,
    ) -> Result<usize, Error> {
        Self::write_with(self, length, fill)
    }
}

impl Sink for Output<'_> {
    fn write_with(
        &mut self,
        length: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<usize, Error>,
    ) -> Result<usize, Error> {
        Self::write_with(self, length, fill)
    }
}

impl Sink for Vec<u8> {
    fn write_with(
        &mut self,
        length: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<usize, Error>,
    ) -> Result<usize, Error> {
        let before = self.len();
        self.resize(before + length, 0);
        let filled = fill(&mut self[before..]);
        self.truncate(before + filled.as_ref().map_or(0, |count| (*count).min(length)));
        filled
    }
}
