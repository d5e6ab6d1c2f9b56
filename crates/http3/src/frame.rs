//! Frames (RFC 9114 §7): heads, types, and the values that are reserved.

use crate::varint;

/// The type and the length in front of each frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameHead {
    pub(crate) kind: u64,
    /// Bytes of the payload.
    pub(crate) length: u64,
}

impl FrameHead {
    /// The head at the start of `bytes`, and its length, unless it is incomplete.
    #[inline]
    pub(crate) fn read(bytes: &[u8]) -> Option<(Self, usize)> {
        let (kind, kind_bytes) = varint::read(bytes)?;
        let (length, length_bytes) = varint::read(&bytes[kind_bytes..])?;
        Some((Self { kind, length }, kind_bytes + length_bytes))
    }

    pub(crate) fn write(self, out: &mut Vec<u8>) {
        varint::write(self.kind, out);
        varint::write(self.length, out);
    }

    /// The head of a DATA frame is at the end of the array, from the index on.
    pub(crate) fn of_data(length: u64) -> ([u8; DATA_HEAD_BYTES_MAX], usize) {
        let mut bytes = [0; DATA_HEAD_BYTES_MAX];
        let (length, start) = varint::encode(length);
        bytes[1..].copy_from_slice(&length);
        // The type is one byte, and goes in front of the length.
        bytes[start] = kind::DATA as u8;
        (bytes, start)
    }
}

/// The longest head of a DATA frame: the byte of its type, and its length.
const DATA_HEAD_BYTES_MAX: usize = 9;

/// Whether an HTTP/2 frame has this type, so that no HTTP/3 frame may (RFC 9114 §7.2.8).
pub(crate) fn is_of_http2(kind: u64) -> bool {
    matches!(kind, 0x2 | 0x6 | 0x8 | 0x9)
}

/// The reserved type, setting or stream type with this number, which every peer ignores (RFC 9114 §7.2.8).
pub(crate) fn reserved(number: u64) -> u64 {
    0x1f * (number % RESERVED_NUMBERS) + 0x21
}

/// As many keep a reserved value within four bytes.
const RESERVED_NUMBERS: u64 = 1 << 24;

/// Types of frames.
pub(crate) mod kind {
    pub(crate) const DATA: u64 = 0;
    pub(crate) const HEADERS: u64 = 1;
    pub(crate) const CANCEL_PUSH: u64 = 3;
    pub(crate) const SETTINGS: u64 = 4;
    pub(crate) const PUSH_PROMISE: u64 = 5;
    pub(crate) const GOAWAY: u64 = 7;
    pub(crate) const MAX_PUSH_ID: u64 = 0xd;
    /// RFC 9218 §7.2: for a request, and for a push.
    pub(crate) const PRIORITY_UPDATE: u64 = 0xf_0700;
    pub(crate) const PRIORITY_UPDATE_OF_PUSH: u64 = 0xf_0701;
}

/// Types of unidirectional streams (RFC 9114 §6.2, RFC 9204 §4.2).
pub(crate) mod stream_type {
    pub(crate) const CONTROL: u64 = 0;
    pub(crate) const PUSH: u64 = 1;
    pub(crate) const QPACK_ENCODER: u64 = 2;
    pub(crate) const QPACK_DECODER: u64 = 3;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_as_written_and_not_before_it_is_complete() {
        let head = FrameHead { kind: kind::PRIORITY_UPDATE, length: 70_000 };
        let mut wire = Vec::new();
        head.write(&mut wire);
        assert_eq!(FrameHead::read(&wire), Some((head, 8)));
        for end in 0..wire.len() {
            assert_eq!(FrameHead::read(&wire[..end]), None);
        }
    }

    #[test]
    fn the_head_of_a_data_frame_is_the_same_in_an_array() {
        for length in [0, 1, 63, 64, 16_383, 16_384, (1 << 30) - 1, 1 << 30, varint::MAX] {
            let mut wire = Vec::new();
            FrameHead { kind: kind::DATA, length }.write(&mut wire);
            let (bytes, start) = FrameHead::of_data(length);
            assert_eq!(bytes[start..], wire, "{length}");
        }
    }

    #[test]
    fn reserved_values_have_the_form_of_the_standard() {
        for number in [0, 1, u64::MAX] {
            assert_eq!((reserved(number) - 0x21) % 0x1f, 0);
            assert!(reserved(number) < 1 << 30);
        }
    }
}
