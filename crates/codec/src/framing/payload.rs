//! `Payload`: the message type of the framings.

use bytes::{BufMut, Bytes};
use tidegate_buffer::{LINK_BYTES_MIN, Slice};

use super::error::FramingError;
use crate::output::Output;

/// A message on its way out. Large ones are linked into the queue, small ones are copied.
///
/// It is made from a [`Slice`], from [`Bytes`], from static bytes or text, and, without copying, from a `Vec` or a
/// `String`. The caller copies borrowed bytes: `pool.copy(bytes)`.
///
/// ```
/// use tidegate::framing::Payload;
///
/// assert_eq!(Payload::from("ebb").as_ref(), b"ebb");
/// assert_eq!(Payload::from(vec![1, 2, 3]).as_ref(), [1, 2, 3]);
/// ```
#[derive(Debug, Clone)]
pub enum Payload {
    /// A view; it must not leave the loop.
    Slice(Slice),
    /// Shared bytes.
    Bytes(Bytes),
    /// The result of a framing's `encoded`: written unchanged, so that a broadcast encodes once.
    Encoded(Bytes),
}

/// The bytes around a payload; a framing may also replace the first bytes of the payload.
pub(super) struct Envelope<'a> {
    pub(super) head: &'a [u8],
    pub(super) replaced: usize,
    pub(super) tail: &'a [u8],
}

impl Payload {
    /// Writes the payload with its envelope.
    #[inline]
    pub(super) fn write(mut self, around: &Envelope<'_>, out: &mut Output<'_>) {
        let rest = &self.as_ref()[around.replaced..];
        if rest.len() < LINK_BYTES_MIN {
            out.write_pieces((around.head, rest, around.tail));
            return;
        }
        self.advance(around.replaced);
        out.write(around.head);
        self.write_bare(out);
        out.write(around.tail);
    }

    /// Writes the payload with the envelope that a framing has for it, or an encoded one unchanged.
    ///
    /// # Errors
    /// Those of `envelope`: the payload is no frame.
    #[inline]
    pub(super) fn write_framed<'a>(
        self,
        out: &mut Output<'_>,
        envelope: impl FnOnce(&[u8]) -> Result<Envelope<'a>, FramingError>,
    ) -> Result<(), FramingError> {
        if let Self::Encoded(_) = self {
            self.write_bare(out);
        } else {
            let around = envelope(self.as_ref())?;
            self.write(&around, out);
        }
        Ok(())
    }

    /// Writes the payload without an envelope.
    pub(crate) fn write_bare(self, out: &mut Output<'_>) {
        match self {
            Self::Slice(slice) => out.link(slice),
            Self::Bytes(bytes) | Self::Encoded(bytes) => out.link_bytes(bytes),
        }
    }

    fn advance(&mut self, count: usize) {
        match self {
            Self::Slice(slice) => slice.advance(count),
            Self::Bytes(bytes) | Self::Encoded(bytes) => bytes::Buf::advance(bytes, count),
        }
    }
}

/// A payload with its envelope, for many connections to write.
pub(super) fn enveloped(payload: &[u8], around: &Envelope<'_>) -> Bytes {
    let rest = &payload[around.replaced..];
    let mut framed = Vec::with_capacity(around.head.len() + rest.len() + around.tail.len());
    framed.put_slice(around.head);
    framed.put_slice(rest);
    framed.put_slice(around.tail);
    framed.into()
}

/// The bytes are equal, and both payloads are encoded, or neither is.
impl PartialEq for Payload {
    fn eq(&self, other: &Self) -> bool {
        matches!(self, Self::Encoded(_)) == matches!(other, Self::Encoded(_)) && self.as_ref() == other.as_ref()
    }
}

impl Eq for Payload {}

impl AsRef<[u8]> for Payload {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Slice(slice) => slice,
            Self::Bytes(bytes) | Self::Encoded(bytes) => bytes,
        }
    }
}

impl From<Slice> for Payload {
    fn from(slice: Slice) -> Self {
        Self::Slice(slice)
    }
}

impl From<Bytes> for Payload {
    fn from(bytes: Bytes) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes.into())
    }
}

impl From<String> for Payload {
    fn from(text: String) -> Self {
        Self::Bytes(text.into())
    }
}

impl From<&'static [u8]> for Payload {
    fn from(bytes: &'static [u8]) -> Self {
        Self::Bytes(Bytes::from_static(bytes))
    }
}

impl<const N: usize> From<&'static [u8; N]> for Payload {
    fn from(bytes: &'static [u8; N]) -> Self {
        Self::Bytes(Bytes::from_static(bytes))
    }
}

impl From<&'static str> for Payload {
    fn from(text: &'static str) -> Self {
        Self::Bytes(Bytes::from_static(text.as_bytes()))
    }
}

const _: () = assert!(size_of::<Payload>() <= 40);
