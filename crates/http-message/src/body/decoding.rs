//! `BodyDecoder`: undoes the content coding of a body, piece by piece.

use std::task::{Context, Poll, ready};

use tidegate_buffer::Slice;

use super::collected::BodyCollector;
use super::data::Data;
use crate::error::BodyError;
use crate::slices::Slices;

/// Undoes a content coding.
pub trait Decode {
    /// Decodes until there are `bytes_max` bytes or a few more.
    fn decode(&mut self, input: &[u8], bytes_max: usize) -> Result<DecodedBytes, BodyError>;

    /// The input has ended.
    fn finish(&mut self) -> Result<(), BodyError>;
}

/// The output of one decoding step.
pub struct DecodedBytes {
    /// The decoded bytes.
    pub bytes: Vec<u8>,
    /// Bytes taken from the beginning of the input.
    pub read: usize,
    /// All input is taken, and nothing more comes of it.
    pub is_complete: bool,
}

/// A body that is decoded piece by piece.
pub struct BodyDecoder {
    decode: Box<dyn Decode>,
    /// A piece of which not everything is decoded.
    piece: Option<Slice>,
    slices: Slices,
}

impl BodyDecoder {
    /// Decodes by `decode`.
    #[must_use]
    pub fn new(decode: Box<dyn Decode>) -> Self {
        Self { decode, piece: None, slices: Slices::new(DECODED_SLICE_BYTES) }
    }

    /// Takes the next piece, once [`poll_next`](Self::poll_next) has returned `None`.
    pub(super) fn add(&mut self, piece: Slice) {
        self.piece = Some(piece);
    }

    /// The body has ended.
    pub(super) fn finish(&mut self) -> Result<(), BodyError> {
        self.decode.finish()
    }

    /// The rest of the piece; `None` if another one is needed. It waits for a turn of the loop after each slice: a few
    /// bytes may become many.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Data>, BodyError>> {
        while let Some(piece) = &mut self.piece {
            ready!(self.slices.poll_left(cx));
            let decoded = self.decode.decode(piece, DECODED_BYTES)?;
            self.slices.take(decoded.read + decoded.bytes.len());
            piece.advance(decoded.read);
            if decoded.is_complete {
                self.piece = None;
            }
            if !decoded.bytes.is_empty() {
                return Poll::Ready(Ok(Some(decoded.bytes.into())));
            }
        }
        Poll::Ready(Ok(None))
    }

    /// All of a whole body.
    ///
    /// # Errors
    /// [`BodyError`]: the body is not valid, or has more than `bytes_max` decoded bytes.
    pub fn decode_all(mut self, body: &[u8], bytes_max: usize) -> Result<Vec<u8>, BodyError> {
        let mut collected = BodyCollector::new(bytes_max);
        let mut rest = body;
        loop {
            let decoded = self.decode.decode(rest, DECODED_BYTES)?;
            collected.add(&decoded.bytes)?;
            rest = &rest[decoded.read..];
            if decoded.is_complete {
                self.decode.finish()?;
                return Ok(collected.into_bytes());
            }
        }
    }
}

/// How much is decoded at a time: a bomb yields no more than this before the function asks for more.
const DECODED_BYTES: usize = 16 * 1024;

/// How many bytes are read and decoded in one turn of the loop. That takes about half a millisecond.
const DECODED_SLICE_BYTES: usize = 128 * 1024;
