//! The encoder and decoder streams of the peer (RFC 9204 §4.3, §4.4), of which a table of 0 bytes leaves little.

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

/// The reader of the peer's decoder stream. This side sends sections that need no acknowledgement and inserts nothing,
/// so a Stream Cancellation is permitted, and nothing else.
#[derive(Debug, Default)]
pub(crate) struct DecoderStream {
    /// Bytes of the number of a stream that have come, behind a first byte that announces more.
    number_bytes: u8,
    is_in_number: bool,
}

impl DecoderStream {
    /// Reads instructions, which may come in pieces. Returns how many are complete.
    ///
    /// # Errors
    /// [`Violation::DecoderStream`] for an acknowledgement or an increment, and for a number that no stream has.
    pub(crate) fn read(&mut self, bytes: &[u8]) -> Result<usize, Violation> {
        let mut complete = 0;
        for &byte in bytes {
            if self.is_in_number {
                self.number_bytes += 1;
                if self.number_bytes > NUMBER_BYTES_MAX {
                    return Err(Violation::DecoderStream);
                }
                self.is_in_number = byte & 0x80 != 0;
            } else {
                if byte & 0xc0 != STREAM_CANCELLATION {
                    return Err(Violation::DecoderStream);
                }
                (self.is_in_number, self.number_bytes) = (byte & 0x3f == 0x3f, 0);
            }
            complete += usize::from(!self.is_in_number);
        }
        Ok(complete)
    }
}

const STREAM_CANCELLATION: u8 = 0x40;

/// Nine bytes of seven bits have every number of a stream.
const NUMBER_BYTES_MAX: u8 = 9;

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

    #[test]
    fn a_decoder_stream_cancels_streams_and_nothing_else() {
        for first in 0..=u8::MAX {
            let expected =
                if first & 0xc0 == 0x40 { Ok(usize::from(first != 0x7f)) } else { Err(Violation::DecoderStream) };
            assert_eq!(DecoderStream::default().read(&[first]), expected, "{first:#x}");
        }
    }

    #[test]
    fn numbers_of_streams_may_come_in_pieces() {
        let wire = [0x44, 0x7f, 0x80, 0x01, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f];
        for split in 0..=wire.len() {
            let mut stream = DecoderStream::default();
            let (one, other) = wire.split_at(split);
            let complete = stream.read(one).and_then(|one| Ok(one + stream.read(other)?));
            assert_eq!(complete, Ok(3), "{split}");
        }
        let mut stream = DecoderStream::default();
        assert_eq!(stream.read(&[0x7f]), Ok(0));
        assert_eq!(stream.read(&[0xff; 10]), Err(Violation::DecoderStream), "a number without end");
    }
}
