//! The errors of this crate, sorted by blame.

use std::fmt;

use tidegate_codec::{Blame, Fault};

/// Why a connection is refused. The connection closes, and the peer gets no reply: the protocol has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Error {
    /// The peer broke the protocol or the policy.
    Peer(Violation),
    /// A limit was reached.
    Limit(Exceeded),
}

/// How a peer broke the protocol or the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Violation {
    /// The policy requires a header, and the peer began with something else.
    Missing,
    /// The peer is in no trusted network: it sent a header, or the policy requires one.
    Untrusted,
    /// The peer ended the stream within a header.
    Truncated,
    /// A line of version 1 is longer than 107 bytes.
    LineTooLong,
    /// A line of version 1 ends with LF or CR alone.
    LineEnd,
    /// A line of version 1 is not `PROXY`, a family, two addresses of it and two ports, with one space between.
    Line,
    /// The version is not 2.
    Version,
    /// The command is neither LOCAL nor PROXY.
    Command,
    /// The family of addresses is unknown.
    Family,
    /// The transport protocol is unknown.
    Transport,
    /// The header is too short for its addresses.
    AddressTruncated,
    /// A TLV is longer than its container.
    TlvTruncated,
    /// The value of a TLV is not of the length or the text that its type has.
    TlvValue,
    /// The checksum is wrong, or there are two.
    Checksum,
}

/// A limit that was reached: see [`Limits`](crate::Limits).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Exceeded {
    /// The header of version 2 is longer than `header_bytes_max`.
    HeaderBytes,
    /// The header has more than `tlvs_max` TLVs.
    Tlvs,
    /// The header was not complete within `header_timeout`.
    Time,
}

impl Fault for Error {
    fn blame(&self) -> Blame {
        match self {
            Self::Peer(_) => Blame::Peer,
            Self::Limit(_) => Blame::Limit,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Peer(Violation::Missing) => "the peer sent no PROXY header",
            Self::Peer(Violation::Untrusted) => "the peer is in no network whose PROXY header is trusted",
            Self::Peer(Violation::Truncated) => "the peer ended the stream within a PROXY header",
            Self::Peer(Violation::LineTooLong) => "a PROXY line is longer than 107 bytes",
            Self::Peer(Violation::LineEnd) => "a PROXY line does not end with CR LF",
            Self::Peer(Violation::Line) => "a PROXY line is malformed",
            Self::Peer(Violation::Version) => "the version of a PROXY header is not 2",
            Self::Peer(Violation::Command) => "the command of a PROXY header is unknown",
            Self::Peer(Violation::Family) => "the address family of a PROXY header is unknown",
            Self::Peer(Violation::Transport) => "the transport protocol of a PROXY header is unknown",
            Self::Peer(Violation::AddressTruncated) => "a PROXY header is too short for its addresses",
            Self::Peer(Violation::TlvTruncated) => "a TLV of a PROXY header is longer than its container",
            Self::Peer(Violation::TlvValue) => "a TLV of a PROXY header has a value that its type does not have",
            Self::Peer(Violation::Checksum) => "the checksum of a PROXY header is wrong",
            Self::Limit(Exceeded::HeaderBytes) => "a PROXY header is too long",
            Self::Limit(Exceeded::Tlvs) => "a PROXY header has too many TLVs",
            Self::Limit(Exceeded::Time) => "the PROXY header was not complete in time",
        })
    }
}

impl std::error::Error for Error {}

/// Why a header cannot be built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Misuse {
    /// The two addresses are of different families.
    MixedFamilies,
    /// Version 1 has no TLVs, no Unix addresses, no datagrams and no LOCAL.
    NotInVersion1,
    /// A header without addresses has no TLVs: a receiver ignores the rest.
    NoAddresses,
    /// A Unix address is longer than 108 bytes, or ends with a zero byte, which is padding.
    UnixAddress,
    /// A value is longer than its type, or a TLV, can be.
    ValueTooLong,
    /// A value has to be ASCII text.
    NotAscii,
    /// The type belongs to a TLV that has a method of its own.
    ReservedType,
    /// The header is longer than 65,535 bytes.
    HeaderTooLong,
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MixedFamilies => "the two addresses are of different families",
            Self::NotInVersion1 => "version 1 of the PROXY protocol cannot express this; use version 2",
            Self::NoAddresses => "a PROXY header without addresses has no TLVs",
            Self::UnixAddress => "a Unix address has at most 108 bytes, and does not end with a zero byte",
            Self::ValueTooLong => "the value of a TLV is too long",
            Self::NotAscii => "the value of this TLV is ASCII text",
            Self::ReservedType => "this type of TLV has a method of its own",
            Self::HeaderTooLong => "a PROXY header has at most 65,535 bytes",
        })
    }
}

impl std::error::Error for Misuse {}
