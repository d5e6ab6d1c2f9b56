//! `Error`: why a TLS connection ends. `ConfigError`: why TLS cannot be configured, and the remedy.

use std::fmt;
use std::io;
use std::path::PathBuf;

use tidegate_codec::{Blame, Fault};

/// Why a TLS connection ends, other than in good order.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Error {
    /// The peer's messages are refused, or the peer has refused ours: the error says which certificate rule, which
    /// message or which alert.
    Tls(rustls::Error),
    /// The peer has ended the stream without a `close_notify`: bytes may be missing.
    Truncated,
    /// The handshake, or a message of it that the peer has begun afterwards, took longer than its limit.
    HandshakeTimeout,
    /// The peer sends a message of the handshake in so many records that they exceed 160 KiB.
    TooManyFragments,
    /// The keys must not encrypt more, and the peer's version has no way to renew them.
    Exhausted,
    /// The server has no certificate for this handshake: an authority has yet to issue the first one, or nothing validates the
    /// name of a challenge (RFC 8737 §3).
    NoCertificate,
    /// The peer sends data on a connection that validates a name (`acme-tls/1`, RFC 8737 §4).
    ChallengeData,
    /// rustls does something that this version of the filter does not know.
    Unsupported,
}

impl Fault for Error {
    fn blame(&self) -> Blame {
        match self {
            Self::Tls(rustls::Error::General(_) | rustls::Error::FailedToGetRandomBytes) | Self::Unsupported => {
                Blame::System
            }
            Self::NoCertificate => Blame::Caller,
            Self::Tls(_) | Self::Truncated | Self::ChallengeData => Blame::Peer,
            Self::HandshakeTimeout | Self::TooManyFragments | Self::Exhausted => Blame::Limit,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tls(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType)) => f.write_str(
                "TLS: the peer sends no TLS records: it may speak another protocol, such as HTTP without TLS",
            ),
            Self::Tls(error) => write!(f, "TLS: {error}"),
            Self::Truncated => f.write_str("TLS: the peer ended without a close_notify"),
            Self::HandshakeTimeout => f.write_str("TLS: the handshake took too long"),
            Self::TooManyFragments => f.write_str("TLS: a message of the handshake comes in too many records"),
            Self::Exhausted => f.write_str("TLS: the keys must not encrypt more"),
            Self::NoCertificate => f.write_str("TLS: there is no certificate yet"),
            Self::ChallengeData => f.write_str("TLS: the peer sends data over acme-tls/1, which carries none"),
            Self::Unsupported => f.write_str("TLS: rustls is in a state that this filter does not know"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Tls(error) => Some(error),
            _ => None,
        }
    }
}

impl From<rustls::Error> for Error {
    fn from(error: rustls::Error) -> Self {
        Self::Tls(error)
    }
}

/// Why certificates, or the configuration of a role, cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConfigError {
    /// A file cannot be read.
    Read(PathBuf, io::Error),
    /// A file is longer than any file of certificates or keys is: 1 MiB.
    TooLong(PathBuf),
    /// There is no certificate in the PEM text.
    NoCertificate(PathBuf),
    /// There is no private key in the PEM text.
    NoKey(PathBuf),
    /// The PEM text is malformed.
    Pem(PathBuf),
    /// The provider cannot use the private key.
    Key(PathBuf, rustls::Error),
    /// The private key is not that of the first certificate.
    KeyMismatch(PathBuf),
    /// The first certificate is malformed.
    Certificate(PathBuf),
    /// There are no root certificates to verify peers with.
    NoRoots,
    /// A file has no key of session tickets: its length is neither 80 nor 48 bytes.
    TicketKey(PathBuf),
    /// There are no keys of session tickets.
    NoTicketKeys,
    /// The provider has no cipher suite that can encrypt tickets of shared keys.
    TicketCipher,
    /// An ALPN protocol name is empty, or longer than 255 bytes.
    ProtocolName,
    /// The name of the server is neither a DNS name nor an IP address.
    ServerName,
    /// This build has no cryptography.
    NoProvider,
    /// rustls refuses the configuration.
    Tls(rustls::Error),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(path, error) => write!(f, "cannot read {}: {error}", path.display()),
            Self::TooLong(path) => {
                write!(f, "{} is longer than 1 MiB: it is no certificate and no key", path.display())
            }
            Self::NoCertificate(path) => {
                write!(f, "{} has no certificate: it needs a section BEGIN CERTIFICATE", path.display())
            }
            Self::NoKey(path) => write!(
                f,
                "{} has no private key: it needs a section BEGIN PRIVATE KEY that is not encrypted",
                path.display()
            ),
            Self::Pem(path) => write!(f, "{} is not valid PEM", path.display()),
            Self::Key(path, error) => write!(f, "cannot use the private key in {}: {error}", path.display()),
            Self::KeyMismatch(path) => {
                write!(f, "the private key does not belong to the first certificate in {}", path.display())
            }
            Self::Certificate(path) => write!(f, "the first certificate in {} is malformed", path.display()),
            Self::NoRoots => f.write_str("there are no root certificates to verify peers with"),
            Self::TicketKey(path) => write!(
                f,
                "{} is no key of session tickets: it needs 80 or 48 random bytes, as of `openssl rand 80`",
                path.display()
            ),
            Self::NoTicketKeys => f.write_str("there are no keys of session tickets"),
            Self::TicketCipher => {
                f.write_str("the provider has no TLS 1.3 cipher suite with a key of 32 bytes, which tickets need")
            }
            Self::ProtocolName => f.write_str("an ALPN protocol name has 1 to 255 bytes"),
            Self::ServerName => f.write_str("the name of the server is neither a DNS name nor an IP address"),
            Self::NoProvider => {
                f.write_str("there is no cryptography: turn on the feature `tls-ring` or `tls-aws-lc-rs`")
            }
            Self::Tls(error) => write!(f, "cannot configure TLS: {error}"),
        }
    }
}

impl std::error::Error for ConfigError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Read(_, error) => Some(error),
            Self::Key(_, error) | Self::Tls(error) => Some(error),
            _ => None,
        }
    }
}

impl From<rustls::Error> for ConfigError {
    fn from(error: rustls::Error) -> Self {
        Self::Tls(error)
    }
}
