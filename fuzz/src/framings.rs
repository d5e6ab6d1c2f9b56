//! The framings: any split of any bytes gives the same frames, and what is encoded is decoded to the same.
//!
//! The first byte is a seed of pieces, the next ones choose the options, the rest is the wire. The same rest is then a
//! message that is to be encoded: it is refused, or it comes back.

use tidegate_codec::framing::{Delimiter, Fixed, FramingError, LengthField, Lines, Payload};
use tidegate_codec::{Codec, Slice};
use tidegate_testkit::contract::Contract;

use crate::choices::Choices;

/// Lines, with each of their options.
pub fn lines(data: &[u8]) {
    let mut choices = Choices::new(data);
    let seed = choices.byte();
    let options = choices.byte();
    let mut lines = Lines::new();
    if options & 1 != 0 {
        lines = lines.with_crlf();
    }
    if options & 2 != 0 {
        lines = lines.with_open_end();
    }
    if options & 4 != 0 {
        lines = lines.with_line_bytes_max(1 + usize::from(options >> 3));
    }
    check(&lines, Lines::encoded, choices.rest(), seed);
}

/// Frames that end with a byte string.
pub fn delimiter(data: &[u8]) {
    let mut choices = Choices::new(data);
    let seed = choices.byte();
    let options = choices.byte();
    // Bytes of few kinds, so that delimiters that repeat themselves come up.
    let delimiter = match options & 7 {
        0 => choices.take(4),
        index => DELIMITERS[usize::from(index) - 1],
    };
    if delimiter.is_empty() {
        return;
    }
    let mut framing = Delimiter::new(delimiter);
    if options & 8 != 0 {
        framing = framing.with_frame_bytes_max(1 + usize::from(options >> 4));
    }
    check(&framing, Delimiter::encoded, choices.rest(), seed);
}

/// Frames of one length.
pub fn fixed(data: &[u8]) {
    let mut choices = Choices::new(data);
    let (seed, length) = (choices.byte(), 1 + choices.length(FIXED_BYTES_MAX));
    let encode = |_: &Fixed, frame: &[u8]| match frame.len() {
        bytes if bytes == length => Ok(frame.to_vec().into()),
        bytes => Err(FramingError::WrongLength { bytes, expected: length }),
    };
    check(&Fixed::new(length), encode, choices.rest(), seed);
}

/// Frames that declare their length, in each width, order and place.
pub fn length_field(data: &[u8]) {
    let mut choices = Choices::new(data);
    let seed = choices.byte();
    let options = choices.byte();
    let (width, offset) = (1 + usize::from(options & 7), usize::from(options >> 3 & 3));
    if options & !7 == 0 {
        return check(&LengthField::new(width), LengthField::encoded, choices.rest(), seed);
    }
    let mut builder = LengthField::builder(width).offset(offset);
    if options & 32 != 0 {
        builder = builder.little_endian();
    }
    if options & 64 != 0 {
        builder = builder.strip(choices.below(16)).adjustment(i64::from(choices.byte().cast_signed()));
    }
    if options & 128 != 0 {
        builder = builder.adjustment(*choices.pick(&[i64::MAX, i64::MIN, -1, 1 - (width + offset) as i64]));
        builder = builder.frame_bytes_max(16 + choices.below(64));
    }
    check(&builder.build(), LengthField::encoded, choices.rest(), seed);
}

/// Puts `wire` through the contract, with an application that echoes, and then a frame of the same bytes.
fn check<C>(framing: &C, encoded: impl Fn(&C, &[u8]) -> Result<bytes::Bytes, FramingError>, wire: &[u8], seed: u8)
where
    C: Codec<In = Slice, Out = Payload, Error = FramingError> + Clone,
{
    // The contract says twice what was sent, and a longer wire only costs time.
    let wire = &wire[..wire.len().min(WIRE_BYTES_MAX)];
    let contract = || {
        Contract::rendered(|| framing.clone(), |frame| text(frame))
            .answer(|frame, codec, out| {
                // What was decoded with zeros in place of what is not known may be nothing that can be said.
                let _ = codec.encode(frame.into(), out);
            })
            .seed(seed.into())
    };
    contract().check_once(wire);
    if let Ok(framed) = encoded(framing, wire) {
        let seen = contract().check_once(&framed);
        assert!(!seen.has_failed(), "what was encoded is refused: {seen}");
        assert_eq!(seen.messages.len(), 1, "one frame was encoded: {seen}");
        assert_eq!(*seen.replies, *framed, "what was decoded is encoded to the same");
    }
}

/// Bytes as text, each as one character: unlike an escaped text, made quickly.
pub(crate) fn text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

/// Delimiters that are easily found at the wrong place.
const DELIMITERS: [&[u8]; 7] = [b"\0", b"\r\n.\r\n", b"aab", b"abab", b"aa", b"aba", b"--"];

const FIXED_BYTES_MAX: usize = 300;

/// A longer wire finds nothing that a shorter one does not.
pub(crate) const WIRE_BYTES_MAX: usize = 512;
