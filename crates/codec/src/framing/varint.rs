//! `VarintLength`: frames behind their length as a variable-length integer.

use bytes::Bytes;
use tidegate_buffer::{Input, Slice};

use super::payload::{Envelope, enveloped};
use super::{FRAME_BYTES_MAX, FramingError, Payload, checked_limit, truncated_at_eof};
use crate::codec::{Codec, Step};
use crate::output::Output;
use crate::pipeline::Broadcast;

/// Frames that begin with their length as a base-128 varint: seven bits a byte, the lowest first, and the top bit set in
/// each byte but the last. Streams of protocol buffers are framed so.
///
/// A length has at most five bytes, or ten with [`wide`](Self::wide). A peer may write a length in more bytes than it
/// needs, as protocol buffers allow. The declared length is compared with the limit as soon as it has arrived.
///
/// Source: [Protocol buffers, encoding](https://protobuf.dev/programming-guides/encoding/#varints), and
/// `writeDelimitedTo` of their libraries.
///
/// ```
/// use tidegate::framing::VarintLength;
///
/// let framing = VarintLength::new();
/// assert_eq!(framing.encoded(b"ebb")?, &b"\x03ebb"[..]);
/// assert_eq!(framing.encoded(&[0; 300])?[..2], [0b1010_1100, 0b10]);
/// # Ok::<(), tidegate::framing::FramingError>(())
/// ```
#[derive(Debug, Clone)]
pub struct VarintLength {
    frame_bytes_max: u32,
    length_bytes_max: u8,
}

impl VarintLength {
    /// Frames of at most [`FRAME_BYTES_MAX`] bytes, behind a length of at most five.
    #[must_use]
    pub const fn new() -> Self {
        Self { frame_bytes_max: FRAME_BYTES_MAX as u32, length_bytes_max: LENGTH_BYTES }
    }

    /// Accepts lengths of up to ten bytes, as 64-bit numbers have.
    #[must_use]
    pub const fn wide(mut self) -> Self {
        self.length_bytes_max = WIDE_LENGTH_BYTES;
        self
    }

    /// Frames of at most `bytes`, the length not counted.
    ///
    /// # Panics
    /// If `bytes` is zero or exceeds [`LIMIT_BYTES_MAX`](super::LIMIT_BYTES_MAX).
    #[must_use]
    pub const fn with_frame_bytes_max(mut self, bytes: usize) -> Self {
        self.frame_bytes_max = checked_limit(bytes);
        self
    }

    /// The wire form of a message, for [`Payload::Encoded`].
    ///
    /// # Errors
    /// As for [`encode`](Codec::encode).
    pub fn encoded(&self, message: &[u8]) -> Result<Bytes, FramingError> {
        Ok(enveloped(message, &self.envelope(message, &mut [0; LENGTH_BYTES as usize])?))
    }

    /// The declared length and the number of its bytes; `None` if it is not complete.
    fn declared(&self, bytes: &[u8]) -> Result<Option<(u64, usize)>, FramingError> {
        let mut declared = 0_u64;
        for at in 0..usize::from(self.length_bytes_max) {
            let Some(&byte) = bytes.get(at) else { return Ok(None) };
            let part = u64::from(byte & 0x7F);
            // The tenth byte has room for the highest bit of 64 alone.
            if part << (7 * at) >> (7 * at) != part {
                return Err(FramingError::Unexpected { at });
            }
            declared |= part << (7 * at);
            if byte & 0x80 == 0 {
                return Ok(Some((declared, at + 1)));
            }
        }
        Err(FramingError::Unexpected { at: usize::from(self.length_bytes_max) - 1 })
    }

    fn envelope<'a>(
        &self,
        message: &[u8],
        head: &'a mut [u8; LENGTH_BYTES as usize],
    ) -> Result<Envelope<'a>, FramingError> {
        let bytes_max = self.frame_bytes_max as usize;
        if message.len() > bytes_max {
            return Err(FramingError::TooLong { bytes_max });
        }
        let (mut left, mut count) = (message.len(), 0);
        while left >= 0x80 {
            head[count] = left as u8 | 0x80;
            (left, count) = (left >> 7, count + 1);
        }
        head[count] = left as u8;
        Ok(Envelope { head: &head[..=count], replaced: 0, tail: &[] })
    }
}

impl Default for VarintLength {
    fn default() -> Self {
        Self::new()
    }
}

impl Codec for VarintLength {
    type In = Slice;
    type Out = Payload;
    type Error = FramingError;

    fn decode(&mut self, input: &mut Input, _: &mut Output<'_>) -> Result<Step<Slice>, FramingError> {
        let Some((declared, header)) = self.declared(input.bytes())? else { return Ok(Step::NeedMore) };
        if declared > u64::from(self.frame_bytes_max) {
            return Err(FramingError::TooLong { bytes_max: self.frame_bytes_max as usize });
        }
        let length = declared as usize;
        if input.len() < header + length {
            return Ok(Step::NeedMore);
        }
        input.consume(header);
        Ok(Step::Message(input.take(length)))
    }

    /// # Errors
    /// [`FramingError::TooLong`].
    fn encode(&mut self, message: Payload, out: &mut Output<'_>) -> Result<(), FramingError> {
        let mut head = [0; LENGTH_BYTES as usize];
        message.write_framed(out, |message| self.envelope(message, &mut head))
    }

    fn decode_eof(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Slice>, FramingError> {
        let step = self.decode(input, reply)?;
        truncated_at_eof(step, input)
    }
}

impl Broadcast for VarintLength {}

/// Bytes of a length of 32 bits; the lengths that [`LIMIT_BYTES_MAX`](super::LIMIT_BYTES_MAX) allows need no more.
const LENGTH_BYTES: u8 = 5;

/// Bytes of a length of 64 bits.
const WIDE_LENGTH_BYTES: u8 = 10;

const _: () = assert!(super::LIMIT_BYTES_MAX >> (7 * LENGTH_BYTES) == 0);
const _: () = assert!(size_of::<VarintLength>() <= 8);

#[cfg(test)]
mod tests {
    use super::super::tests::{encode, run};
    use super::*;

    #[test]
    fn a_frame_is_as_long_as_its_varint_says() {
        assert_eq!(
            run(VarintLength::new(), b"\x03ebb\x00\x04flow"),
            (["ebb", "", "flow"].map(str::to_owned).into(), Ok(()))
        );
        let long = [&b"\xAC\x02"[..], &[b'x'; 300]].concat();
        assert_eq!(run(VarintLength::new(), &long).0, ["x".repeat(300)]);
    }

    #[test]
    fn a_length_in_more_bytes_than_it_needs_is_accepted() {
        assert_eq!(run(VarintLength::new(), b"\x83\x80\x80\x80\x00ebb").0, ["ebb"]);
        assert_eq!(run(VarintLength::new().wide(), b"\x83\x80\x80\x80\x80\x80\x80\x80\x80\x00ebb").0, ["ebb"]);
    }

    #[test]
    fn a_length_has_five_bytes_at_most_or_ten() {
        let narrow = run(VarintLength::new(), b"\x83\x80\x80\x80\x80\x00ebb");
        assert_eq!(narrow, (Vec::new(), Err(FramingError::Unexpected { at: 4 })));
        let wide = run(VarintLength::new().wide(), &[0x80; 11]);
        assert_eq!(wide, (Vec::new(), Err(FramingError::Unexpected { at: 9 })));
    }

    #[test]
    fn a_length_beyond_64_bits_is_refused() {
        let all_ones = *b"\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01";
        let too_long = Err(FramingError::TooLong { bytes_max: FRAME_BYTES_MAX });
        assert_eq!(run(VarintLength::new().wide(), &all_ones).1, too_long);
        let mut beyond = all_ones;
        beyond[9] = 2;
        assert_eq!(run(VarintLength::new().wide(), &beyond).1, Err(FramingError::Unexpected { at: 9 }));
    }

    #[test]
    fn the_limit_is_compared_before_the_frame_arrives() {
        let four = VarintLength::new().with_frame_bytes_max(4);
        assert_eq!(run(four.clone(), b"\x04flow").0, ["flow"]);
        assert_eq!(run(four.clone(), b"\x05").1, Err(FramingError::TooLong { bytes_max: 4 }));
        assert_eq!(run(four.clone(), b"\xFF\xFF\xFF\xFF\x0F").1, Err(FramingError::TooLong { bytes_max: 4 }));
        assert_eq!(encode(four, "waves"), Err(FramingError::TooLong { bytes_max: 4 }));
    }

    #[test]
    fn the_end_within_a_frame_truncates_it() {
        assert_eq!(run(VarintLength::new(), b"\x03eb").1, Err(FramingError::Truncated { bytes: 3 }));
        assert_eq!(run(VarintLength::new(), b"\x80").1, Err(FramingError::Truncated { bytes: 1 }));
    }

    #[test]
    fn whatever_is_encoded_comes_back_the_same() {
        let framing = VarintLength::new().with_frame_bytes_max(3 << 20);
        for length in [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152] {
            let message = vec![b'x'; length];
            let wire = encode(framing.clone(), message.clone()).expect("within the limit");
            assert_eq!(wire, framing.encoded(&message).expect("within the limit"));
            let header = wire.len() - length;
            assert_eq!(framing.declared(&wire), Ok(Some((length as u64, header))), "{length}");
        }
    }
}
