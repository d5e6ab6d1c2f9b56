//! The errors of this crate, sorted by blame.

use std::fmt;

use tidegate_codec::{Blame, Fault};

/// Why a connection ends in its handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Error {
    /// The peer broke the protocol.
    Peer(Violation),
    /// The application sent an answer that was not due. Nothing was written.
    Caller(Misuse),
    /// A limit was reached.
    Limit(Exceeded),
}

/// The peer broke the protocol, or requires a part of it that this crate does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Violation {
    /// The first byte of a message is no version, or not that of the messages before.
    Version(u8),
    /// The configuration of the server does not allow version 4.
    Version4,
    /// The client offers no method of authentication that the server accepts; the reply is `X'FF'`.
    NoMethod,
    /// The server selects a method that the client does not offer.
    Method(u8),
    /// The command is BIND, UDP ASSOCIATE or none: the reply is "command not supported".
    Command(u8),
    /// The type of an address is unknown.
    AddressType(u8),
    /// A byte that is reserved is not zero.
    Reserved,
    /// A name is empty, or has a byte that is not visible ASCII.
    Name,
    /// A server of version 4 replies with an unknown code.
    Code(u8),
    /// The peer ended the stream within the handshake.
    Truncated,
}

/// A limit that was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Exceeded {
    /// The user id of version 4 is longer than [`Config::user_id_bytes_max`](crate::Config::user_id_bytes_max).
    UserId,
    /// The name of version 4a is longer than 255 bytes.
    Name,
    /// The handshake was not complete in time.
    Time,
}

/// A message that the protocol cannot express, or not now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Misuse {
    /// A name has 1 to 255 bytes of visible ASCII.
    Name,
    /// A target ends with a colon and a port.
    Port,
    /// A user name and a password have 1 to 255 bytes each.
    Credentials,
    /// A user id of version 4 has at most 255 bytes, and no zero byte.
    UserId,
    /// Version 4 has no IPv6 addresses.
    Ipv6InVersion4,
    /// No credentials wait for this answer.
    NoCredentials,
    /// No request waits for this answer.
    NoRequest,
}

impl Fault for Error {
    fn blame(&self) -> Blame {
        match self {
            Self::Peer(_) => Blame::Peer,
            Self::Caller(_) => Blame::Caller,
            Self::Limit(_) => Blame::Limit,
        }
    }
}

impl From<Violation> for Error {
    fn from(violation: Violation) -> Self {
        Self::Peer(violation)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Peer(violation) => return violation.fmt(f),
            Self::Caller(misuse) => return misuse.fmt(f),
            Self::Limit(Exceeded::UserId) => "the user id of a SOCKS 4 request is too long",
            Self::Limit(Exceeded::Name) => "the name in a SOCKS 4a request is longer than 255 bytes",
            Self::Limit(Exceeded::Time) => "the SOCKS handshake was not complete in time",
        })
    }
}

impl std::error::Error for Error {}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Version(byte) => {
                return write!(f, "a SOCKS message begins with the byte {byte:#04x}, which is wrong here");
            }
            Self::Version4 => "the peer speaks SOCKS 4, which this server does not allow",
            Self::NoMethod => "the peer offers no method of SOCKS authentication that this server accepts",
            Self::Method(method) => {
                return write!(f, "the SOCKS proxy selects the method {method:#04x}, which was not offered");
            }
            Self::Command(command) => return write!(f, "the SOCKS command {command} is not supported"),
            Self::AddressType(kind) => return write!(f, "the type {kind} of a SOCKS address is unknown"),
            Self::Reserved => "a reserved byte of a SOCKS message is not zero",
            Self::Name => "a name in a SOCKS message is empty or not visible ASCII",
            Self::Code(code) => return write!(f, "the code {code} of a SOCKS 4 reply is unknown"),
            Self::Truncated => "the peer ended the stream within the SOCKS handshake",
        })
    }
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Name => "a name in SOCKS has 1 to 255 bytes of visible ASCII",
            Self::Port => "a target is HOST:PORT",
            Self::Credentials => "a SOCKS user name and a password have 1 to 255 bytes each",
            Self::UserId => "a SOCKS 4 user id has at most 255 bytes, and no zero byte",
            Self::Ipv6InVersion4 => "SOCKS 4 has no IPv6 addresses; use version 5",
            Self::NoCredentials => "no SOCKS credentials wait for an answer",
            Self::NoRequest => "no SOCKS request waits for an answer",
        })
    }
}

impl std::error::Error for Misuse {}
