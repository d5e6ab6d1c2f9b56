//! The framings: any split of any bytes gives the same frames, and every encoded frame decodes to itself.
//!
//! The first byte is the seed of the split, the next ones choose the options, the rest is the wire. The same rest is
//! then a message to encode: it is refused, or decodes to itself.

use tidegate_codec::framing::{Delimiter, Fixed, FramingError, Json, LengthField, Lines, Payload, VarintLength};
use tidegate_codec::{Pipeline, Slice};
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
    // Few different bytes, so that self-overlapping delimiters occur.
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

/// Frames that declare their length, in each width, byte order and offset.
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

/// Frames behind a varint, of each width.
pub fn varint(data: &[u8]) {
    let mut choices = Choices::new(data);
    let seed = choices.byte();
    let options = choices.byte();
    let mut framing = VarintLength::new();
    if options & 1 != 0 {
        framing = framing.wide();
    }
    if options & 2 != 0 {
        framing = framing.with_frame_bytes_max(1 + usize::from(options >> 2));
    }
    check(&framing, VarintLength::encoded, choices.rest(), seed);
}

/// JSON values.
pub fn json(data: &[u8]) {
    let mut choices = Choices::new(data);
    let seed = choices.byte();
    let options = choices.byte();
    let mut framing = Json::new();
    if options & 1 != 0 {
        framing = framing.with_depth_max(1 + usize::from(options >> 5));
    }
    if options & 2 != 0 {
        framing = framing.with_frame_bytes_max(1 + usize::from(options >> 2));
    }
    check(&framing, Json::encoded, choices.rest(), seed);
}

/// Checks the contract on `wire`, with an application that echoes, and then on a frame of the same bytes.
fn check<C>(framing: &C, encoded: impl Fn(&C, &[u8]) -> Result<bytes::Bytes, FramingError>, wire: &[u8], seed: u8)
where
    C: Pipeline<In = Slice, Out = Payload, Error = FramingError> + Clone,
{
    // A longer wire only costs time.
    let wire = &wire[..wire.len().min(WIRE_BYTES_MAX)];
    let contract = || {
        Contract::rendered(|| framing.clone(), |frame| text(frame))
            .answer(|frame, codec, out| {
                // A frame decoded from input in which zeros replace unknown bytes may not be encodable.
                let _ = codec.encode(frame.into(), out);
            })
            .seed(seed.into())
    };
    contract().check_once(wire);
    if let Ok(framed) = encoded(framing, wire) {
        let seen = contract().check_once(&framed);
        assert!(!seen.has_failed(), "the encoded frame is refused: {seen}");
        assert_eq!(seen.messages.len(), 1, "one frame was encoded: {seen}");
        assert_eq!(*seen.replies, *framed, "the decoded frame encodes to the same bytes");
    }
}

/// Bytes as text, one character each: cheaper than escaping.
pub(crate) fn text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

/// Delimiters that a search easily finds at the wrong offset.
const DELIMITERS: [&[u8]; 7] = [b"\0", b"\r\n.\r\n", b"aab", b"abab", b"aa", b"aba", b"--"];

const FIXED_BYTES_MAX: usize = 300;

/// Longer input finds nothing more.
pub(crate) const WIRE_BYTES_MAX: usize = 512;
