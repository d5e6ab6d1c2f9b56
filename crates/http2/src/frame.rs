//! Frames (RFC 9113 §4.1, §6): heads, types, flags, and the numbers of errors and settings.

use std::fmt;

pub(crate) use tidegate_http_stream::{FrameHead, HEAD_BYTES, STREAM_ID_MAX};

/// A frame with four bytes of content.
pub(crate) fn short_frame(kind: u8, stream: u32, content: u32) -> [u8; HEAD_BYTES + 4] {
    let mut frame = [0; HEAD_BYTES + 4];
    frame[..HEAD_BYTES].copy_from_slice(&FrameHead { length: 4, kind, flags: 0, stream }.bytes());
    frame[HEAD_BYTES..].copy_from_slice(&content.to_be_bytes());
    frame
}

/// The least value of SETTINGS_MAX_FRAME_SIZE, which is the initial one, and ours.
pub(crate) const FRAME_BYTES_MAX: u32 = 16 * 1024;
/// The largest value of it.
pub(crate) const FRAME_BYTES_CEILING: u32 = (1 << 24) - 1;

/// The initial window of a connection, and of streams unless SETTINGS say otherwise.
pub(crate) const WINDOW_BYTES_DEFAULT: u32 = 65_535;

/// The client's connection preface (RFC 9113 §3.4).
pub(crate) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Types of frames.
pub(crate) mod kind {
    pub(crate) use tidegate_http_stream::kind::{DATA, HEADERS};

    pub(crate) const PRIORITY: u8 = 2;
    pub(crate) const RST_STREAM: u8 = 3;
    pub(crate) const SETTINGS: u8 = 4;
    pub(crate) const PUSH_PROMISE: u8 = 5;
    pub(crate) const PING: u8 = 6;
    pub(crate) const GOAWAY: u8 = 7;
    pub(crate) const WINDOW_UPDATE: u8 = 8;
    pub(crate) const CONTINUATION: u8 = 9;
    /// RFC 9218 §7.1.
    pub(crate) const PRIORITY_UPDATE: u8 = 16;
}

/// Flags of frames.
pub(crate) mod flag {
    pub(crate) use tidegate_http_stream::flag::{END_STREAM, PADDED};

    pub(crate) const ACK: u8 = 1;
    pub(crate) const END_HEADERS: u8 = 4;
    pub(crate) const PRIORITY: u8 = 32;
}

/// Numbers of settings (RFC 9113 §6.5.2, RFC 8441 §3, RFC 9218 §2.1).
pub(crate) mod setting {
    pub(crate) const HEADER_TABLE_SIZE: u16 = 1;
    pub(crate) const ENABLE_PUSH: u16 = 2;
    pub(crate) const MAX_CONCURRENT_STREAMS: u16 = 3;
    pub(crate) const INITIAL_WINDOW_SIZE: u16 = 4;
    pub(crate) const MAX_FRAME_SIZE: u16 = 5;
    pub(crate) const MAX_HEADER_LIST_SIZE: u16 = 6;
    pub(crate) const ENABLE_CONNECT_PROTOCOL: u16 = 8;
    pub(crate) const NO_RFC7540_PRIORITIES: u16 = 9;
}

/// The reason in RST_STREAM and GOAWAY (RFC 9113 §7).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ErrorCode(pub u32);

#[expect(missing_docs, reason = "they are named as in the standard")]
impl ErrorCode {
    pub const NO_ERROR: Self = Self(0);
    pub const PROTOCOL_ERROR: Self = Self(1);
    pub const INTERNAL_ERROR: Self = Self(2);
    pub const FLOW_CONTROL_ERROR: Self = Self(3);
    pub const SETTINGS_TIMEOUT: Self = Self(4);
    pub const STREAM_CLOSED: Self = Self(5);
    pub const FRAME_SIZE_ERROR: Self = Self(6);
    pub const REFUSED_STREAM: Self = Self(7);
    pub const CANCEL: Self = Self(8);
    pub const COMPRESSION_ERROR: Self = Self(9);
    pub const CONNECT_ERROR: Self = Self(10);
    pub const ENHANCE_YOUR_CALM: Self = Self(11);
    pub const INADEQUATE_SECURITY: Self = Self(12);
    pub const HTTP_1_1_REQUIRED: Self = Self(13);
}

impl ErrorCode {
    /// The name, if the standard has one.
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::NO_ERROR => "NO_ERROR",
            Self::PROTOCOL_ERROR => "PROTOCOL_ERROR",
            Self::INTERNAL_ERROR => "INTERNAL_ERROR",
            Self::FLOW_CONTROL_ERROR => "FLOW_CONTROL_ERROR",
            Self::SETTINGS_TIMEOUT => "SETTINGS_TIMEOUT",
            Self::STREAM_CLOSED => "STREAM_CLOSED",
            Self::FRAME_SIZE_ERROR => "FRAME_SIZE_ERROR",
            Self::REFUSED_STREAM => "REFUSED_STREAM",
            Self::CANCEL => "CANCEL",
            Self::COMPRESSION_ERROR => "COMPRESSION_ERROR",
            Self::CONNECT_ERROR => "CONNECT_ERROR",
            Self::ENHANCE_YOUR_CALM => "ENHANCE_YOUR_CALM",
            Self::INADEQUATE_SECURITY => "INADEQUATE_SECURITY",
            Self::HTTP_1_1_REQUIRED => "HTTP_1_1_REQUIRED",
            _ => return None,
        })
    }
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "error {:#x}", self.0),
        }
    }
}
