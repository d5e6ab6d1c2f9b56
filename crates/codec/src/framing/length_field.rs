//! `LengthField`: frames that declare their length.

use bytes::Bytes;
use tidegate_buffer::{Input, Slice};

use super::payload::{Envelope, enveloped};
use super::{FramingError, Payload, checked_limit, truncated_at_eof};
use crate::codec::{Codec, Step};
use crate::output::Output;
use crate::pipeline::Broadcast;

/// Frames with a field that contains their length.
///
/// ```text
/// |<- offset ->|<- width ->|                      |
/// | anything   | declared  | the rest             |
/// |<-------------------- frame ------------------>|   offset + width + declared + adjustment bytes
/// |<- strip ->|<------------ message ------------>|
/// ```
///
/// The declared length is compared with the limit as soon as the field has arrived: before that, nothing is allocated
/// for the frame, and a frame beyond the limit is not waited for.
///
/// Encoding is the reverse. Stripped bytes are written as zeros, except for the field. If the field is not stripped,
/// the message must have room for it, and encoding writes its value there.
///
/// ```
/// use tidegate::framing::LengthField;
///
/// // Two bytes of type, then a length in three that counts the whole frame; messages keep their type.
/// let framing = LengthField::builder(3).offset(2).adjustment(-5).strip(0).build();
/// assert_eq!(framing.encoded(b"TY???ebb")?, &b"TY\0\0\x08ebb"[..]);
///
/// // The most usual of all: four bytes, big endian, then as many bytes as they say.
/// assert_eq!(LengthField::new(4).encoded(b"ebb")?, &b"\0\0\0\x03ebb"[..]);
/// # Ok::<(), tidegate::framing::FramingError>(())
/// ```
#[derive(Debug, Clone)]
pub struct LengthField {
    adjustment: i64,
    frame_bytes_max: u32,
    offset: u8,
    width: u8,
    strip: u8,
    little_endian: bool,
}

/// Builds a [`LengthField`]: made by [`LengthField::builder`].
#[derive(Debug, Clone)]
#[must_use]
pub struct LengthFieldBuilder {
    offset: usize,
    width: usize,
    little_endian: bool,
    adjustment: i64,
    strip: Option<usize>,
    frame_bytes_max: usize,
}

impl LengthField {
    /// Frames that begin with their length in `width` bytes, big endian, which counts the bytes behind it. The message
    /// is those bytes.
    ///
    /// # Panics
    /// If `width` is not 1 to 8.
    #[must_use]
    pub const fn new(width: usize) -> Self {
        Self::builder(width).build()
    }

    /// Begins with a field of `width` bytes at the start of the frame, big endian, which counts the bytes behind it;
    /// messages come without the field.
    pub const fn builder(width: usize) -> LengthFieldBuilder {
        LengthFieldBuilder {
            offset: 0,
            width,
            little_endian: false,
            adjustment: 0,
            strip: None,
            frame_bytes_max: FRAME_BYTES_MAX,
        }
    }

    /// The wire form of a message, for [`Payload::Encoded`].
    ///
    /// # Errors
    /// As for [`encode`](Codec::encode).
    pub fn encoded(&self, message: &[u8]) -> Result<Bytes, FramingError> {
        Ok(enveloped(message, &self.envelope(message, &mut [0; HEADER_BYTES_MAX])?))
    }

    /// The end of the length field.
    fn header(&self) -> usize {
        usize::from(self.offset) + usize::from(self.width)
    }

    fn declared(&self, header: &[u8]) -> u64 {
        let (mut value, width) = ([0; 8], usize::from(self.width));
        let field = &header[usize::from(self.offset)..];
        if self.little_endian {
            value[..width].copy_from_slice(field);
            u64::from_le_bytes(value)
        } else {
            value[8 - width..].copy_from_slice(field);
            u64::from_be_bytes(value)
        }
    }

    /// The checked length of a frame that declares `declared`.
    fn frame_length(&self, declared: u64) -> Result<usize, FramingError> {
        let header = self.header();
        // In 128 bits, so that the sum of three 64-bit numbers cannot overflow.
        let frame = i128::from(declared) + i128::from(self.adjustment) + header as i128;
        if frame < header.max(usize::from(self.strip)) as i128 {
            return Err(FramingError::DeclaredTooShort { declared });
        }
        if frame > i128::from(self.frame_bytes_max) {
            return Err(FramingError::TooLong { bytes_max: self.frame_bytes_max as usize });
        }
        Ok(frame as usize)
    }

    /// The value to declare for `message`, with all checks that decoding would make.
    fn to_declare(&self, message: usize) -> Result<u64, FramingError> {
        let (header, strip) = (self.header(), usize::from(self.strip));
        // A message that lies in memory is far shorter than 2^63 bytes.
        let frame = message + strip;
        if frame < header {
            return Err(FramingError::WrongLength { bytes: message, expected: header - strip });
        }
        if frame > self.frame_bytes_max as usize {
            return Err(FramingError::TooLong { bytes_max: self.frame_bytes_max as usize });
        }
        let declared = (frame - header) as i128 - i128::from(self.adjustment);
        let largest = u64::MAX >> (64 - 8 * u32::from(self.width));
        u64::try_from(declared)
            .ok()
            .filter(|declared| *declared <= largest)
            .ok_or(FramingError::Undeclarable { bytes: message })
    }

    fn envelope<'a>(&self, message: &[u8], head: &'a mut [u8; HEADER_BYTES_MAX]) -> Result<Envelope<'a>, FramingError> {
        let declared = self.to_declare(message.len())?;
        let (header, strip, offset) = (self.header(), usize::from(self.strip), usize::from(self.offset));
        let head = &mut head[..header.max(strip)];
        let replaced = head.len() - strip;
        head[strip..].copy_from_slice(&message[..replaced]);
        let field = &mut head[offset..header];
        if self.little_endian {
            field.copy_from_slice(&declared.to_le_bytes()[..usize::from(self.width)]);
        } else {
            field.copy_from_slice(&declared.to_be_bytes()[8 - usize::from(self.width)..]);
        }
        Ok(Envelope { head, replaced, tail: &[] })
    }
}

impl LengthFieldBuilder {
    /// The number of bytes before the field; by default none.
    pub const fn offset(mut self, bytes: usize) -> Self {
        self.offset = bytes;
        self
    }

    /// The field is little endian.
    pub const fn little_endian(mut self) -> Self {
        self.little_endian = true;
        self
    }

    /// The number to add to the declared length to get the count of bytes behind the field: `-4` where a field of four
    /// bytes counts itself, `8` where eight bytes behind it are not counted. By default zero.
    pub const fn adjustment(mut self, bytes: i64) -> Self {
        self.adjustment = bytes;
        self
    }

    /// The number of bytes to remove from the front of the frame; by default, all up to the end of the field.
    pub const fn strip(mut self, bytes: usize) -> Self {
        self.strip = Some(bytes);
        self
    }

    /// The longest frame, header included; by default [`FRAME_BYTES_MAX`].
    pub const fn frame_bytes_max(mut self, bytes: usize) -> Self {
        self.frame_bytes_max = bytes;
        self
    }

    /// The framing.
    ///
    /// # Panics
    /// If the width is not 1 to 8, if the field or the stripped bytes do not end within [`HEADER_BYTES_MAX`], or if the
    /// limit is less than either or exceeds [`LIMIT_BYTES_MAX`](super::LIMIT_BYTES_MAX).
    #[must_use]
    pub const fn build(self) -> LengthField {
        assert!(1 <= self.width && self.width <= 8, "a length field has 1 to 8 bytes");
        assert!(self.offset <= HEADER_BYTES_MAX - self.width, "the length field lies within the first 64 bytes");
        let header = self.offset + self.width;
        let strip = match self.strip {
            Some(strip) => strip,
            None => header,
        };
        assert!(strip <= HEADER_BYTES_MAX, "at most 64 bytes are stripped");
        assert!(
            header <= self.frame_bytes_max && strip <= self.frame_bytes_max,
            "a frame may be as long as its header"
        );
        LengthField {
            adjustment: self.adjustment,
            frame_bytes_max: checked_limit(self.frame_bytes_max),
            offset: self.offset as u8,
            width: self.width as u8,
            strip: strip as u8,
            little_endian: self.little_endian,
        }
    }
}

impl Codec for LengthField {
    type In = Slice;
    type Out = Payload;
    type Error = FramingError;

    fn decode(&mut self, input: &mut Input, _: &mut Output<'_>) -> Result<Step<Slice>, FramingError> {
        let Some(header) = input.bytes().get(..self.header()) else { return Ok(Step::NeedMore) };
        let length = self.frame_length(self.declared(header))?;
        if input.len() < length {
            return Ok(Step::NeedMore);
        }
        input.consume(usize::from(self.strip));
        Ok(Step::Message(input.take(length - usize::from(self.strip))))
    }

    /// # Errors
    /// [`FramingError::Undeclarable`] if the field cannot hold the length, [`FramingError::WrongLength`] if a field
    /// that is not stripped has no room in the message, [`FramingError::TooLong`].
    fn encode(&mut self, message: Payload, out: &mut Output<'_>) -> Result<(), FramingError> {
        let mut head = [0; HEADER_BYTES_MAX];
        message.write_framed(out, |message| self.envelope(message, &mut head))
    }

    fn decode_eof(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Slice>, FramingError> {
        let step = self.decode(input, reply)?;
        truncated_at_eof(step, input)
    }
}

impl Broadcast for LengthField {}

/// The default for the longest frame, in bytes, header included.
pub const FRAME_BYTES_MAX: usize = 1024 * 1024;

/// The length field and the stripped bytes must lie within this many bytes.
pub const HEADER_BYTES_MAX: usize = 64;

const _: () = assert!(size_of::<LengthField>() <= 16);
const _: () = assert!(HEADER_BYTES_MAX <= u8::MAX as usize);

#[cfg(test)]
mod tests;
