//! The head of an inbound record, which is the head of an HTTP/2 frame (RFC 9113 §4.1).

/// The nine bytes in front of each inbound record: a length of 24 bits, a type, flags, and a stream's number, which
/// records leave at 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHead {
    /// Bytes of the content, at most [`RECORD_CONTENT_MAX`].
    pub length: u32,
    /// The type: [`kind`] has those of records.
    pub kind: u8,
    /// The flags: [`flag`] has those of records.
    pub flags: u8,
    /// The number of the stream, without the reserved bit.
    pub stream: u32,
}

impl FrameHead {
    /// The head at the start of `bytes`, unless it is incomplete.
    #[must_use]
    #[inline]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let &[a, b, c, kind, flags, e, f, g, h] = bytes.first_chunk()?;
        let length = u32::from_be_bytes([0, a, b, c]);
        Some(Self { length, kind, flags, stream: u32::from_be_bytes([e, f, g, h]) & STREAM_ID_MAX })
    }

    /// The bytes of the head.
    #[must_use]
    #[inline]
    pub fn bytes(self) -> [u8; HEAD_BYTES] {
        let ([_, a, b, c], [e, f, g, h]) = (self.length.to_be_bytes(), self.stream.to_be_bytes());
        [a, b, c, self.kind, self.flags, e, f, g, h]
    }

    /// Whether a flag is set.
    #[must_use]
    #[inline]
    pub fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Bytes of a [`FrameHead`].
pub const HEAD_BYTES: usize = 9;

/// The largest content of one inbound record, in bytes.
pub const RECORD_CONTENT_MAX: u32 = (1 << 24) - 1;

/// The largest number of an HTTP/2 stream.
pub const STREAM_ID_MAX: u32 = 0x7fff_ffff;

/// Types of inbound records.
pub mod kind {
    /// A piece of a body.
    pub const DATA: u8 = 0;
    /// The text of a head or of trailers.
    pub const HEADERS: u8 = 1;
}

/// Flags of inbound records.
pub mod flag {
    /// The peer's side of the stream ends with the record.
    pub const END_STREAM: u8 = 1;
    /// The content begins with the length of the padding at its end.
    pub const PADDED: u8 = 8;
}
