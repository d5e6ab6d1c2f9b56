//! Per-stream state of a connection, beside windows.

/// Per-stream state of a [`Connection`](crate::Connection).
#[derive(Debug, Default)]
pub struct StreamState {
    /// How many bytes of the peer's body must follow, if it has announced a length.
    pub(crate) body_left: u64,
    /// How many bytes of the record that is being written are left.
    pub(crate) record_left: u64,
    /// When the peer has opened the stream, by [`AbuseBucket::millis`](tidegate_http_stream::AbuseBucket::millis).
    pub(crate) opened: u32,
    pub(crate) flags: u8,
}

/// The peer has announced the length of its body.
pub(crate) const HAS_LENGTH: u8 = 1;
/// The stream ends behind the record that is being written.
pub(crate) const RECORD_ENDS: u8 = 1 << 1;
/// The head of our message was written.
pub(crate) const HEAD_WRITTEN: u8 = 1 << 2;
/// The final head of the peer's message has come.
pub(crate) const HEAD_RECEIVED: u8 = 1 << 3;
/// The request is a HEAD: a length announces no body.
pub(crate) const IS_HEAD: u8 = 1 << 4;
/// The request is a CONNECT, ordinary or extended: nothing but DATA follows.
pub(crate) const IS_CONNECT: u8 = 1 << 5;
/// The response has made the stream a tunnel: each side ends on its own.
pub(crate) const IS_TUNNEL: u8 = 1 << 6;

impl StreamState {
    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}
