//! Frames: their headers (RFC 6455 §5.2), parsed and written.

use crate::error::Violation;
use crate::mask::Mask;

/// The opcode of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opcode {
    Continuation = 0,
    Text = 1,
    Binary = 2,
    Close = 8,
    Ping = 9,
    Pong = 10,
}

impl Opcode {
    fn of(bits: u8) -> Result<Self, Violation> {
        Ok(match bits {
            0 => Self::Continuation,
            1 => Self::Text,
            2 => Self::Binary,
            8 => Self::Close,
            9 => Self::Ping,
            10 => Self::Pong,
            _ => return Err(Violation::Opcode(bits)),
        })
    }

    pub(crate) fn is_control(self) -> bool {
        self as u8 >= 8
    }
}

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) opcode: Opcode,
    /// Whether it is the last frame of its message.
    pub(crate) is_final: bool,
    /// Whether the message is compressed: RSV1.
    pub(crate) is_compressed: bool,
    pub(crate) length: u64,
    /// The key, if the frame is masked.
    pub(crate) mask: Option<Mask>,
}

/// The frames that a receiver accepts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Accepts {
    pub(crate) masked: bool,
    pub(crate) compressed: bool,
}

impl Header {
    /// The header at the beginning of `bytes` with its length, once it is complete. Each byte is checked as soon as it
    /// is there.
    #[inline]
    pub(crate) fn parse(bytes: &[u8], accepts: Accepts) -> Result<Option<(Self, usize)>, Violation> {
        let Some(&first) = bytes.first() else { return Ok(None) };
        let opcode = Opcode::of(first & 0x0F)?;
        let (is_final, is_compressed) = (first & FIN != 0, first & RSV1 != 0);
        let may_be_compressed = accepts.compressed && matches!(opcode, Opcode::Text | Opcode::Binary);
        if first & (RSV2 | RSV3) != 0 || (is_compressed && !may_be_compressed) {
            return Err(Violation::ReservedBits);
        }
        if opcode.is_control() && !is_final {
            return Err(Violation::ControlFragmented);
        }
        let Some(&second) = bytes.get(1) else { return Ok(None) };
        let is_masked = second & MASKED != 0;
        if is_masked != accepts.masked {
            return Err(if is_masked { Violation::Masked } else { Violation::Unmasked });
        }
        let (length, mut end) = match second & 0x7F {
            126 | 127 if opcode.is_control() => return Err(Violation::ControlTooLong),
            126 => {
                let Some(length) = array(bytes, 2) else { return Ok(None) };
                (u64::from(u16::from_be_bytes(length)), 4)
            }
            127 => {
                // The top bit is refused by itself: the other bytes may never come.
                if bytes.get(2).is_some_and(|byte| byte & 0x80 != 0) {
                    return Err(Violation::Length);
                }
                let Some(length) = array(bytes, 2) else { return Ok(None) };
                (u64::from_be_bytes(length), 10)
            }
            short => (u64::from(short), 2),
        };
        if end > 2 && length < if end == 4 { 126 } else { 65_536 } {
            return Err(Violation::Length);
        }
        let mut mask = None;
        if is_masked {
            let Some(key) = array(bytes, end) else { return Ok(None) };
            mask = Some(key);
            end += 4;
        }
        Ok(Some((Self { opcode, is_final, is_compressed, length, mask }, end)))
    }

    /// The flags and the opcode.
    #[inline]
    pub(crate) fn first_byte(&self) -> u8 {
        self.opcode as u8 | if self.is_final { FIN } else { 0 } | if self.is_compressed { RSV1 } else { 0 }
    }

    /// The bytes of the header, and how many of them.
    #[inline]
    pub(crate) fn write(&self) -> ([u8; HEADER_BYTES_MAX], usize) {
        let mut bytes = [0; HEADER_BYTES_MAX];
        bytes[0] = self.first_byte();
        let mut end = match self.length {
            0..126 => {
                bytes[1] = self.length as u8;
                2
            }
            126..65_536 => {
                bytes[1] = 126;
                bytes[2..4].copy_from_slice(&(self.length as u16).to_be_bytes());
                4
            }
            _ => {
                bytes[1] = 127;
                bytes[2..10].copy_from_slice(&self.length.to_be_bytes());
                10
            }
        };
        if let Some(mask) = self.mask {
            bytes[1] |= MASKED;
            bytes[end..end + 4].copy_from_slice(&mask);
            end += 4;
        }
        (bytes, end)
    }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

const FIN: u8 = 0x80;
const RSV1: u8 = 0x40;
const RSV2: u8 = 0x20;
const RSV3: u8 = 0x10;
const MASKED: u8 = 0x80;

/// The longest header.
pub(crate) const HEADER_BYTES_MAX: usize = 14;

/// The longest payload of a control frame.
pub(crate) const CONTROL_BYTES_MAX: usize = 125;

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: Accepts = Accepts { masked: true, compressed: true };

    #[test]
    fn a_written_frame_is_parsed_and_every_prefix_of_it_needs_more() {
        for length in [0, 1, 125, 126, 127, 65_535, 65_536, u64::MAX >> 1] {
            for opcode in [Opcode::Text, Opcode::Binary, Opcode::Continuation] {
                for (is_final, is_compressed) in [(true, false), (false, opcode != Opcode::Continuation)] {
                    for mask in [None, Some([1, 2, 3, 4])] {
                        let header = Header { opcode, is_final, is_compressed, length, mask };
                        let (bytes, end) = header.write();
                        let accepts = Accepts { masked: mask.is_some(), compressed: true };
                        assert_eq!(Header::parse(&bytes[..end], accepts), Ok(Some((header, end))));
                        for cut in 0..end {
                            assert_eq!(Header::parse(&bytes[..cut], accepts), Ok(None), "{header:?} up to {cut}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn headers_that_break_the_protocol_are_refused_at_their_byte() {
        let plain = Accepts { masked: true, compressed: false };
        for (bytes, accepts, violation) in [
            (&b"\xC1"[..], plain, Violation::ReservedBits),
            (b"\xA1", SERVER, Violation::ReservedBits),
            (b"\x91", SERVER, Violation::ReservedBits),
            (b"\xC0", SERVER, Violation::ReservedBits),
            (b"\xC9", SERVER, Violation::ReservedBits),
            (b"\x83", SERVER, Violation::Opcode(3)),
            (b"\x8F", SERVER, Violation::Opcode(15)),
            (b"\x09", SERVER, Violation::ControlFragmented),
            (b"\x81\x05", SERVER, Violation::Unmasked),
            (b"\x81\x85", Accepts { masked: false, compressed: false }, Violation::Masked),
            (b"\x89\xFE", SERVER, Violation::ControlTooLong),
            (b"\x88\xFF", SERVER, Violation::ControlTooLong),
            (b"\x82\xFE\0\x7D", SERVER, Violation::Length),
            (b"\x82\xFF\0\0\0\0\0\0\xFF\xFF", SERVER, Violation::Length),
            (b"\x82\xFF\x80", SERVER, Violation::Length),
        ] {
            assert_eq!(Header::parse(bytes, accepts), Err(violation), "{}", bytes.escape_ascii());
            assert_eq!(Header::parse(&bytes[..bytes.len() - 1], accepts), Ok(None), "{}", bytes.escape_ascii());
        }
    }
}
