//! `TlsError`: what can go wrong, sorted by blame.

use std::fmt;

use tidegate::codec::{Blame, Fault};

/// What can go wrong.
#[derive(Debug)]
pub(crate) enum TlsError {
    /// rustls refuses what the peer has sent.
    Tls(rustls::Error),
    /// The peer ended the stream without a `close_notify`: bytes may be missing.
    Truncated,
    /// The keys must not encrypt more.
    Exhausted,
    /// rustls has not decrypted a record where it was received.
    NotInPlace,
    /// A state of rustls that this filter does not know.
    Unsupported,
}

impl From<rustls::Error> for TlsError {
    fn from(error: rustls::Error) -> Self {
        Self::Tls(error)
    }
}

impl Fault for TlsError {
    fn blame(&self) -> Blame {
        match self {
            Self::Tls(_) | Self::Truncated => Blame::Peer,
            Self::Exhausted => Blame::Limit,
            Self::NotInPlace | Self::Unsupported => Blame::System,
        }
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tls(error) => error.fmt(f),
            Self::Truncated => f.write_str("the peer ended without a close_notify"),
            Self::Exhausted => f.write_str("the keys must not encrypt more"),
            Self::NotInPlace => f.write_str("rustls has not decrypted a record in place"),
            Self::Unsupported => f.write_str("rustls is in a state that this filter does not know"),
        }
    }
}

impl std::error::Error for TlsError {}
