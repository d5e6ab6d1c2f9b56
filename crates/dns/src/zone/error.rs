//! `ZoneError`: why a zone file is refused, and where.

use crate::error::DnsError;

/// Why a zone file is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZoneError {
    /// The line, counted from 1.
    pub line: usize,
    /// The column in bytes, counted from 1.
    pub column: usize,
    /// The reason.
    pub kind: ZoneErrorKind,
}

/// The reason why a zone file is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ZoneErrorKind {
    /// A quote is not closed.
    Quote,
    /// A parenthesis is not closed, or none is open.
    Parenthesis,
    /// A name is malformed.
    Name(DnsError),
    /// The data of a record are malformed.
    Data(DnsError),
    /// A relative name precedes `$ORIGIN`, and no origin was given.
    NoOrigin,
    /// The first record has no owner.
    NoOwner,
    /// A record has no TTL, and neither `$TTL` nor a record before it has one.
    NoTtl,
    /// A TTL is no number of seconds below 2^31.
    Ttl,
    /// The class is not IN.
    Class,
    /// The type is missing or unknown.
    Type,
    /// A type that no zone has, such as ANY.
    MetaType,
    /// A directive that is unknown or has too few or too many words. `$INCLUDE` is refused as well: a zone is one file.
    Directive,
    /// The first record is no SOA, or another one is.
    Soa,
    /// A record's owner is outside the zone.
    OutOfZone,
    /// A name has a CNAME beside other records, or two (RFC 1034 §3.6.2).
    CnameAndOther,
    /// The file has more records than the limit.
    TooManyRecords,
    /// The file has no record.
    Empty,
}

impl std::fmt::Display for ZoneError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}, column {}: ", self.line, self.column)?;
        match self.kind {
            ZoneErrorKind::Name(error) => write!(f, "malformed name: {error}"),
            ZoneErrorKind::Data(error) => write!(f, "malformed record data: {error}"),
            ZoneErrorKind::Quote => f.write_str("a quote is not closed"),
            ZoneErrorKind::Parenthesis => f.write_str("a parenthesis is not closed, or none is open"),
            ZoneErrorKind::NoOrigin => f.write_str("a relative name without an origin"),
            ZoneErrorKind::NoOwner => f.write_str("the first record has no owner"),
            ZoneErrorKind::NoTtl => f.write_str("no TTL here, in $TTL or before"),
            ZoneErrorKind::Ttl => f.write_str("the TTL is no number of seconds below 2147483648"),
            ZoneErrorKind::Class => f.write_str("the class is not IN"),
            ZoneErrorKind::Type => f.write_str("the type is missing or unknown"),
            ZoneErrorKind::MetaType => f.write_str("no zone has records of this type"),
            ZoneErrorKind::Directive => f.write_str("the directive is unknown or has the wrong number of words"),
            ZoneErrorKind::Soa => f.write_str("a zone has one SOA record, which comes first"),
            ZoneErrorKind::OutOfZone => f.write_str("the owner is outside the zone"),
            ZoneErrorKind::CnameAndOther => f.write_str("a name has a CNAME beside other records"),
            ZoneErrorKind::TooManyRecords => f.write_str("too many records"),
            ZoneErrorKind::Empty => f.write_str("the file has no record"),
        }
    }
}

impl std::error::Error for ZoneError {}
