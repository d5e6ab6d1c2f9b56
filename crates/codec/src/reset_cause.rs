//! `ResetCause`: why a stream is reset.

/// Why a stream is reset before both sides have ended it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResetCause {
    /// The application does not want the rest of the peer's bytes, and no error has happened.
    Unneeded,
    /// The application has cancelled the stream.
    Cancelled,
    /// The application or a codec of ours has failed.
    Failed,
    /// The peer has broken the protocol on this stream.
    Violation,
    /// A limit of ours was reached, so that the stream was not served.
    Refused,
    /// The application has chosen this number.
    Code(u64),
    /// The peer has broken the protocol in a way that ends the whole session, with this number.
    Session(u64),
}
