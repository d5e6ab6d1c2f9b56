//! The encoder and decoder streams of the peer (RFC 9204 §4.3, §4.4).
//!
//! A side that permits no table reads its peer's encoder stream by [`read_encoder_stream`]; `table_decoder.rs` reads that of
//! a table.

use tidegate_http_stream::CodingError;

use crate::error::Violation;

/// Reads instructions of the peer's encoder stream, and returns their number. Of them a table of 0 bytes permits one, Set
/// Dynamic Table Capacity to 0: an insertion is larger than the table, and there is nothing to duplicate.
///
/// # Errors
/// [`Violation::EncoderStream`] for anything else. The first byte of an instruction decides, so no state is kept.
pub(crate) fn read_encoder_stream(bytes: &[u8]) -> Result<usize, Violation> {
    let is_permitted = bytes.iter().all(|byte| *byte == SET_CAPACITY_0);
    if is_permitted { Ok(bytes.len()) } else { Err(Violation::EncoderStream) }
}

/// Set Dynamic Table Capacity, with 0.
const SET_CAPACITY_0: u8 = 0x20;

/// An instruction of a decoder stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DecoderInstruction {
    /// The oldest section of a stream was decoded.
    Acknowledge { stream: u64 },
    /// The sections of a stream are not decoded.
    Cancel { stream: u64 },
    /// So many more entries have come.
    Increment(u64),
}

/// The reader of the peer's decoder stream.
#[derive(Debug, Default)]
pub(crate) struct DecoderStream {
    value: u64,
    /// The first byte of an instruction whose number has not come whole.
    first: Option<u8>,
    /// Bytes of the number that have come, behind the first one.
    number_bytes: u8,
}

impl DecoderStream {
    /// Reads from `bytes`, which may be a piece, up to the end of an instruction. `None` once they are used up.
    ///
    /// # Errors
    /// [`Violation::DecoderStream`] for a number that no stream has.
    pub(crate) fn read(&mut self, bytes: &mut &[u8]) -> Result<Option<DecoderInstruction>, Violation> {
        while let Some((&byte, rest)) = bytes.split_first() {
            *bytes = rest;
            let Some(first) = self.first else {
                let most = if byte & SECTION_ACKNOWLEDGMENT != 0 { 0x7f } else { 0x3f };
                self.value = u64::from(byte & most);
                if byte & most < most {
                    return Ok(Some(instruction(byte, self.value)));
                }
                (self.first, self.number_bytes) = (Some(byte), 0);
                continue;
            };
            let shifted = u64::from(byte & 0x7f) << (7 * self.number_bytes);
            self.number_bytes += 1;
            self.value =
                self.value.checked_add(shifted).filter(|value| *value <= NUMBER_MAX).ok_or(Violation::DecoderStream)?;
            if byte & 0x80 == 0 {
                self.first = None;
                return Ok(Some(instruction(first, self.value)));
            }
            if self.number_bytes >= NUMBER_BYTES_MAX {
                return Err(Violation::DecoderStream);
            }
        }
        Ok(None)
    }
}

fn instruction(first: u8, value: u64) -> DecoderInstruction {
    match first {
        SECTION_ACKNOWLEDGMENT.. => DecoderInstruction::Acknowledge { stream: value },
        STREAM_CANCELLATION.. => DecoderInstruction::Cancel { stream: value },
        _ => DecoderInstruction::Increment(value),
    }
}

/// Writes a number that the first byte of an instruction begins, which has `prefix_bits` for it.
pub(super) fn write_number(value: u64, prefix_bits: u32, first: u8, out: &mut Vec<u8>) {
    let most = (1_u64 << prefix_bits) - 1;
    if value < most {
        return out.push(first | value as u8);
    }
    out.push(first | most as u8);
    let mut rest = value - most;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// `None` for an instruction that has not come whole.
pub(super) fn unless_truncated<T>(read: Result<T, CodingError>) -> Result<Option<T>, Violation> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(CodingError::Truncated) => Ok(None),
        Err(_) => Err(Violation::EncoderStream),
    }
}

/// First bits of the instructions of a decoder stream. An Insert Count Increment has none.
pub(super) const SECTION_ACKNOWLEDGMENT: u8 = 0x80;
pub(super) const STREAM_CANCELLATION: u8 = 0x40;

/// Nine bytes of seven bits have every number of a stream.
const NUMBER_BYTES_MAX: u8 = 9;
const NUMBER_MAX: u64 = crate::varint::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoder_stream_sets_the_capacity_to_0_and_nothing_else() {
        assert_eq!(read_encoder_stream(&[0x20, 0x20]), Ok(2));
        for first in (0..=u8::MAX).filter(|first| *first != 0x20) {
            assert_eq!(read_encoder_stream(&[0x20, first]), Err(Violation::EncoderStream), "{first:#x}");
        }
    }

    fn instructions(pieces: &[&[u8]]) -> Result<Vec<DecoderInstruction>, Violation> {
        let (mut stream, mut read) = (DecoderStream::default(), Vec::new());
        for mut piece in pieces.iter().copied() {
            while let Some(instruction) = stream.read(&mut piece)? {
                read.push(instruction);
            }
        }
        Ok(read)
    }

    #[test]
    fn numbers_may_come_in_pieces() {
        let mut wire = vec![0x44, 0x7f, 0x80, 0x01, 0x84, 0x05];
        write_number(NUMBER_MAX, 7, SECTION_ACKNOWLEDGMENT, &mut wire);
        let expected = [
            DecoderInstruction::Cancel { stream: 4 },
            DecoderInstruction::Cancel { stream: 63 + 128 },
            DecoderInstruction::Acknowledge { stream: 4 },
            DecoderInstruction::Increment(5),
            DecoderInstruction::Acknowledge { stream: NUMBER_MAX },
        ];
        for split in 0..=wire.len() {
            let (one, other) = wire.split_at(split);
            assert_eq!(instructions(&[one, other]).as_deref(), Ok(&expected[..]), "{split}");
        }
    }

    #[test]
    fn numbers_have_an_end_and_are_those_of_streams() {
        assert_eq!(instructions(&[&[0x7f, 0xff, 0xff]]), Ok(Vec::new()));
        for first in [0x7f, 0xff, 0x3f] {
            assert_eq!(instructions(&[&[first], &[0xff; 9]]), Err(Violation::DecoderStream), "{first:#x} without end");
            assert_eq!(instructions(&[&[first], &[0x80; 9]]), Err(Violation::DecoderStream), "{first:#x} padded");
        }
        let mut wire = Vec::new();
        write_number(NUMBER_MAX + 1, 6, STREAM_CANCELLATION, &mut wire);
        assert_eq!(instructions(&[&wire]), Err(Violation::DecoderStream));
    }
}
