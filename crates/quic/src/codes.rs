//! `Codes`: the numbers that the peer gets as the reason of a reset.

use tidegate_codec::mux::ResetCause;

/// The numbers of an application's protocol for the causes of a reset (RFC 9000 §20.2). QUIC itself has none; by default
/// each is zero. HTTP/3 has numbers of its own (RFC 9114 §8.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Codes {
    /// The application does not want the rest of the peer's bytes, and no error has happened. A peer that stops a stream
    /// with this number wants no more bytes, and its own are still of use.
    pub unneeded: u64,
    /// The application has cancelled the stream, or a deadline has passed.
    pub cancelled: u64,
    /// The application has failed.
    pub failed: u64,
    /// The peer has broken the protocol on this stream.
    pub violation: u64,
    /// A limit was reached, so that the stream was not served.
    pub refused: u64,
}

impl Codes {
    /// The numbers of HTTP/3 (RFC 9114 §8.1).
    pub const HTTP3: Self = Self { unneeded: 0x100, cancelled: 0x10c, failed: 0x102, violation: 0x10e, refused: 0x10b };

    pub(crate) fn of(&self, cause: ResetCause) -> u64 {
        match cause {
            ResetCause::Unneeded => self.unneeded,
            ResetCause::Failed => self.failed,
            ResetCause::Violation => self.violation,
            ResetCause::Refused => self.refused,
            ResetCause::Code(code) | ResetCause::Session(code) => code,
            _ => self.cancelled,
        }
    }
}
