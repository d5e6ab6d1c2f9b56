//! `Decompressor`: one message, decompressed piece by piece, through one layer of compression or several, within limits
//! that all of them share.

use crate::algorithm::Algorithm;
use crate::coder::{Decode, Progress};
use crate::compressor::SPACE_BYTES;
use crate::context_pool::{self, Lease};
use crate::cost;
use crate::error::Error;
use crate::limits::DecompressionLimits;
use crate::sink::Sink;

/// Decompresses one message, in any pieces.
///
/// It takes contexts from the pool of its thread with the first bytes, and gives them back when it is dropped. An
/// `Option<Decompressor>` has the size of a pointer.
///
/// A caller that stops after a step stops the message: a step writes no more than the space that it is given, and takes
/// no more input than that needs, up to one buffer of [`LAYER_BYTES`] for each further layer.
///
/// ```
/// use tidegate::compress::{Algorithm, Compressor, DecompressionLimits, Decompressor};
///
/// let mut compressed = Vec::new();
/// Compressor::new(Algorithm::Zstd.into()).finish_with(&[7; 100_000], &mut compressed)?;
///
/// let mut decompressor = Decompressor::new(Algorithm::Zstd, DecompressionLimits::default());
/// let (mut rest, mut total) = (&compressed[..], 0);
/// loop {
///     let mut space = [0; 4096];
///     let progress = decompressor.step(rest, &mut space)?;
///     rest = &rest[progress.read..];
///     total += progress.written;
///     if progress.is_complete {
///         break;
///     }
/// }
/// decompressor.finish()?;
/// assert_eq!(total, 100_000);
/// # Ok::<(), tidegate::compress::Error>(())
/// ```
#[derive(Debug)]
pub struct Decompressor {
    message: Box<Message>,
}

struct Message {
    limits: DecompressionLimits,
    /// The outermost layer, which reads the peer's bytes, comes first.
    layers: Vec<Layer>,
    /// Bytes that the peer sent.
    read: u64,
    /// Whether the last step was complete.
    is_drained: bool,
}

/// The parts of a message that a decompressor has read before another one continues with the next part.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PastParts {
    read: u64,
    written: u64,
}

struct Layer {
    algorithm: Algorithm,
    context: Option<Lease<Algorithm>>,
    /// Another decompressor has read the first parts of the message.
    has_past: bool,
    written: u64,
    /// Output of the layer before that this one has not read, in `start..`; without memory for the outermost one.
    input: Vec<u8>,
    start: usize,
}

impl Decompressor {
    /// A decompressor for a message with one layer.
    #[must_use]
    pub fn new(algorithm: Algorithm, limits: DecompressionLimits) -> Self {
        Self::of(std::iter::once(algorithm), limits)
    }

    /// A decompressor for a message with several layers, in the order in which they were applied: that of
    /// `Content-Encoding`. Without a layer it passes bytes on, under the same limits.
    ///
    /// # Errors
    /// [`Error::TooManyLayers`].
    pub fn layers(algorithms: &[Algorithm], limits: DecompressionLimits) -> Result<Self, Error> {
        if algorithms.len() > limits.layers_max {
            return Err(Error::TooManyLayers { layers_max: limits.layers_max });
        }
        Ok(Self::of(algorithms.iter().rev().copied(), limits))
    }

    fn of(algorithms: impl Iterator<Item = Algorithm>, limits: DecompressionLimits) -> Self {
        let layer =
            |algorithm| Layer { algorithm, context: None, has_past: false, written: 0, input: Vec::new(), start: 0 };
        let layers = algorithms.map(layer).collect();
        Self { message: Box::new(Message { limits, layers, read: 0, is_drained: true }) }
    }

    /// A decompressor for the next part of a message with one layer; `past` are the parts before it, or none. The limits
    /// hold for all parts together.
    pub(crate) fn resume(algorithm: Algorithm, limits: DecompressionLimits, past: PastParts) -> Self {
        let mut decompressor = Self::new(algorithm, limits);
        let message = &mut *decompressor.message;
        message.read = past.read;
        for layer in &mut message.layers {
            (layer.has_past, layer.written) = (past.read > 0, past.written);
        }
        decompressor
    }

    /// The parts of the message so far, if another decompressor can continue with the next one; see
    /// [`resume`](Self::resume).
    pub(crate) fn past(&self) -> Option<PastParts> {
        let Message { layers, read, is_drained, .. } = &*self.message;
        let may_release = *is_drained && layers.iter().all(|layer| layer.get().is_some_and(Decode::may_release));
        let written = layers.first().map_or(0, |layer| layer.written);
        may_release.then_some(PastParts { read: *read, written })
    }

    /// Takes from `input`, and fills `space`. A step that [is complete](Progress::is_complete) has taken all input and
    /// needs more; otherwise the caller continues with the rest of the input, which may be empty, when it has more space.
    ///
    /// # Errors
    /// An error of the peer, or a limit. The space then has nothing of value.
    pub fn step(&mut self, input: &[u8], space: &mut [u8]) -> Result<Progress, Error> {
        let message = &mut *self.message;
        if space.is_empty() {
            return Ok(Progress { is_complete: input.is_empty() && message.is_drained, ..Progress::default() });
        }
        let progress = pull(&mut message.layers, input, space, &message.limits, message.read)?;
        message.read += progress.read as u64;
        message.is_drained = progress.is_complete;
        Ok(progress)
    }

    /// Decompresses `input` until `sink` got `bytes_max` bytes or a few more, up to 16 KiB; see [`step`](Self::step).
    ///
    /// # Errors
    /// As for [`step`](Self::step).
    pub fn write(
        &mut self,
        input: &[u8],
        bytes_max: usize,
        sink: &mut (impl Sink + ?Sized),
    ) -> Result<Progress, Error> {
        let mut total = Progress::default();
        while !total.is_complete && total.written < bytes_max {
            total.written += sink.write_with(SPACE_BYTES, &mut |space| {
                let progress = self.step(&input[total.read..], space)?;
                total.read += progress.read;
                total.is_complete = progress.is_complete;
                Ok(progress.written)
            })?;
        }
        Ok(total)
    }

    /// The input has ended.
    ///
    /// # Errors
    /// [`Error::Truncated`] if the message has not, [`Error::OutputPending`] if the last step was not complete.
    pub fn finish(&mut self) -> Result<(), Error> {
        if !self.message.is_drained {
            return Err(Error::OutputPending);
        }
        if self.may_end() { Ok(()) } else { Err(Error::Truncated) }
    }

    /// Whether the message may end here. Messages of several parts may go on.
    #[must_use]
    pub fn may_end(&self) -> bool {
        let layers = &self.message.layers;
        self.message.is_drained && layers.iter().all(|layer| layer.get().is_some_and(Decode::may_end))
    }

    /// Whether the message has ended, and nothing may follow.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let outermost = self.message.layers.first();
        self.message.is_drained && outermost.and_then(Layer::get).is_some_and(Decode::has_ended)
    }

    /// The size of the contexts in bytes, zero while there are none.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let bytes = |layer: &Layer| layer.input.capacity() + layer.get().map_or(0, Decode::memory_bytes);
        self.message.layers.iter().map(bytes).sum()
    }
}

impl Layer {
    fn get(&self) -> Option<&dyn Decode> {
        self.context.as_ref().map(Lease::get)
    }

    fn decode(&mut self, input: &[u8], space: &mut [u8], limits: &DecompressionLimits) -> Result<Progress, Error> {
        if self.context.is_none() {
            let mut lease = context_pool::decoder(self.algorithm, limits)?;
            if self.has_past {
                lease.context().resume();
            }
            self.context = Some(lease);
        }
        let progress = self.context.as_mut().expect("it is there").context().decode(input, space)?;
        cost::add_decompressing(self.algorithm, progress.read, progress.written);
        self.written += progress.written as u64;
        Ok(progress)
    }

    /// Compares with the limits; the peer has sent `read` bytes.
    fn check(&self, limits: &DecompressionLimits, read: u64) -> Result<(), Error> {
        if self.written > limits.output_max {
            return Err(Error::OutputTooLong { output_max: limits.output_max });
        }
        if self.written > limits.ratio_after && self.written / u64::from(limits.ratio_max.max(1)) >= read.max(1) {
            return Err(Error::RatioTooHigh { ratio_max: limits.ratio_max });
        }
        Ok(())
    }
}

/// A step of these layers, the last of which fills `space`. Each layer does the work of one buffer at most, so that a
/// step has a bound even if layers expand without output.
fn pull(
    layers: &mut [Layer],
    input: &[u8],
    space: &mut [u8],
    limits: &DecompressionLimits,
    read_before: u64,
) -> Result<Progress, Error> {
    let Some((last, before)) = layers.split_last_mut() else {
        return pass(input, space, limits, read_before);
    };
    if before.is_empty() {
        let progress = last.decode(input, space, limits)?;
        last.check(limits, read_before + progress.read as u64)?;
        return Ok(progress);
    }
    let mut read = 0;
    let mut is_exhausted = false;
    if last.start == last.input.len() {
        last.input.resize(LAYER_BYTES, 0);
        let filled = pull(before, input, &mut last.input, limits, read_before);
        last.input.truncate(filled.as_ref().map_or(0, |progress| progress.written));
        last.start = 0;
        let progress = filled?;
        (read, is_exhausted) = (progress.read, progress.is_complete);
    }
    let mut buffered = std::mem::take(&mut last.input);
    let progress = last.decode(&buffered[last.start..], space, limits)?;
    last.start += progress.read;
    if last.start == buffered.len() {
        buffered.clear();
        last.start = 0;
    }
    last.input = buffered;
    last.check(limits, read_before + read as u64)?;
    // With input in the buffer, the layers before were not called: they may have more.
    Ok(Progress { read, written: progress.written, is_complete: progress.is_complete && is_exhausted })
}

/// A step without a layer.
fn pass(input: &[u8], space: &mut [u8], limits: &DecompressionLimits, before: u64) -> Result<Progress, Error> {
    let count = input.len().min(space.len());
    space[..count].copy_from_slice(&input[..count]);
    if before + count as u64 > limits.output_max {
        return Err(Error::OutputTooLong { output_max: limits.output_max });
    }
    Ok(Progress { read: count, written: count, is_complete: count == input.len() })
}

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let layers: Vec<_> = self.layers.iter().map(|layer| (layer.algorithm, layer.written)).collect();
        f.debug_struct("Message").field("read", &self.read).field("layers", &layers).finish_non_exhaustive()
    }
}

/// The buffer between two layers.
pub const LAYER_BYTES: usize = 8 * 1024;

const _: () = assert!(size_of::<Option<Decompressor>>() == size_of::<usize>());
