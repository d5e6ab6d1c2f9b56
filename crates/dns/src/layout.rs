//! The fields of each record type's data: one table that reading, writing, presentation and zone files share.
//!
//! A type that the table does not have is opaque (RFC 3597). Names of the types of RFC 1035 may be compressed both ways;
//! a few later types are read compressed and never written so (RFC 3597 §4); all others may not be compressed.

use crate::error::DnsError;
use crate::name_view::{Compression, NameView};
use crate::numbers::{Class, RecordType};

/// A field of a record's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field {
    U8,
    U16,
    U32,
    /// Seconds since 1970, `YYYYMMDDHHMMSS` in presentation form.
    Time,
    /// A record type by its mnemonic.
    Type,
    Ipv4,
    Ipv6,
    /// A name that is written compressed.
    CompressedName,
    /// A name that is read compressed, and written without.
    LenientName,
    /// A name that may not be compressed.
    PlainName,
    /// A length in one byte, then as many bytes.
    Text,
    /// A text of letters and digits, without quotes in presentation form.
    Tag,
    /// One text or more, up to the end.
    Texts,
    /// A text without a length, up to the end.
    TextRest,
    /// Bytes up to the end, in hexadecimal.
    Hex,
    /// Bytes up to the end, in Base64.
    Base64,
    /// A length in one byte, then as many bytes in hexadecimal; `-` for none.
    Salt,
    /// A length in one byte, then as many bytes in Base32 with the extended alphabet.
    Hash,
    /// The windows of RFC 4034 §4.1.2, up to the end.
    TypeBitmap,
    /// The parameters of RFC 9460 §2.2, up to the end.
    SvcParams,
    /// The options of EDNS, up to the end.
    Options,
}

use Field as F;

/// The fields of a type's data; `None` if they are opaque.
pub(crate) const fn fields(record_type: RecordType) -> Option<&'static [Field]> {
    Some(match record_type {
        RecordType::A => &[F::Ipv4],
        RecordType::AAAA => &[F::Ipv6],
        RecordType::NS | RecordType::CNAME | RecordType::PTR => &[F::CompressedName],
        RecordType::SOA => &[F::CompressedName, F::CompressedName, F::U32, F::U32, F::U32, F::U32, F::U32],
        RecordType::MX => &[F::U16, F::CompressedName],
        RecordType::HINFO => &[F::Text, F::Text],
        RecordType::TXT | RecordType::SPF => &[F::Texts],
        RecordType::RP => &[F::LenientName, F::LenientName],
        RecordType::AFSDB => &[F::U16, F::LenientName],
        RecordType::SRV => &[F::U16, F::U16, F::U16, F::LenientName],
        RecordType::NAPTR => &[F::U16, F::U16, F::Text, F::Text, F::Text, F::LenientName],
        RecordType::DNAME => &[F::LenientName],
        RecordType::OPT => &[F::Options],
        RecordType::DS | RecordType::CDS => &[F::U16, F::U8, F::U8, F::Hex],
        RecordType::SSHFP => &[F::U8, F::U8, F::Hex],
        RecordType::RRSIG => &[F::Type, F::U8, F::U8, F::U32, F::Time, F::Time, F::U16, F::PlainName, F::Base64],
        RecordType::NSEC => &[F::PlainName, F::TypeBitmap],
        RecordType::DNSKEY | RecordType::CDNSKEY => &[F::U16, F::U8, F::U8, F::Base64],
        RecordType::NSEC3 => &[F::U8, F::U8, F::U16, F::Salt, F::Hash, F::TypeBitmap],
        RecordType::NSEC3PARAM => &[F::U8, F::U8, F::U16, F::Salt],
        RecordType::TLSA | RecordType::SMIMEA => &[F::U8, F::U8, F::U8, F::Hex],
        RecordType::OPENPGPKEY => &[F::Base64],
        RecordType::SVCB | RecordType::HTTPS => &[F::U16, F::PlainName, F::SvcParams],
        RecordType::CAA => &[F::U8, F::Tag, F::TextRest],
        _ => return None,
    })
}

/// The fields of a record of this class: those of the type, except that only the class IN defines addresses, and that
/// records of updates have no data.
pub(crate) const fn fields_of_class(record_type: RecordType, class: Class) -> Option<&'static [Field]> {
    match class {
        Class::IN => fields(record_type),
        Class::CH | Class::HS => match record_type {
            RecordType::A | RecordType::AAAA | RecordType::SRV | RecordType::SVCB | RecordType::HTTPS => None,
            _ => fields(record_type),
        },
        _ => None,
    }
}

/// The position behind a field that begins at `at` and ends at `end` at the latest.
pub(crate) fn field_end(field: Field, message: &[u8], at: usize, end: usize) -> Result<usize, DnsError> {
    let next = match field {
        F::U8 => at + 1,
        F::U16 | F::Type => at + 2,
        F::U32 | F::Time | F::Ipv4 => at + 4,
        F::Ipv6 => at + 16,
        F::CompressedName | F::LenientName => NameView::read(message, at, Compression::Allowed)?.1,
        F::PlainName => NameView::read(message, at, Compression::Forbidden)?.1,
        F::Text | F::Tag | F::Salt => text_end(message, at, end)?,
        F::Hash => {
            // RFC 5155 §3.2: a hash has at least one byte.
            let next = text_end(message, at, end)?;
            if next == at + 1 {
                return Err(DnsError::RecordData);
            }
            next
        }
        F::Texts => {
            let mut next = text_end(message, at, end)?;
            while next < end {
                next = text_end(message, next, end)?;
            }
            next
        }
        F::TextRest | F::Hex | F::Base64 => end,
        F::TypeBitmap => checked(message, at, end, is_type_bitmap)?,
        F::SvcParams => checked(message, at, end, are_svc_params)?,
        F::Options => checked(message, at, end, are_options)?,
    };
    if next > end { Err(DnsError::RecordData) } else { Ok(next) }
}

/// Checks that the fields fill `at..end` exactly.
pub(crate) fn check(fields: &[Field], message: &[u8], at: usize, end: usize) -> Result<(), DnsError> {
    let mut position = at;
    for &field in fields {
        position = field_end(field, message, position, end)?;
    }
    if position == end { Ok(()) } else { Err(DnsError::RecordData) }
}

fn text_end(message: &[u8], at: usize, end: usize) -> Result<usize, DnsError> {
    if at >= end {
        return Err(DnsError::RecordData);
    }
    let length = message.get(at).ok_or(DnsError::RecordData)?;
    Ok(at + 1 + usize::from(*length))
}

fn checked(message: &[u8], at: usize, end: usize, is_valid: fn(&[u8]) -> bool) -> Result<usize, DnsError> {
    let bytes = message.get(at..end).ok_or(DnsError::RecordData)?;
    if is_valid(bytes) { Ok(end) } else { Err(DnsError::RecordData) }
}

/// RFC 4034 §4.1.2: windows ascend, and have 1 to 32 bytes, of which the last is not zero.
fn is_type_bitmap(mut rest: &[u8]) -> bool {
    let mut last = None;
    while let [window, length, behind @ ..] = rest {
        let length = usize::from(*length);
        if last.is_some_and(|last| last >= *window) || length == 0 || length > 32 || length > behind.len() {
            return false;
        }
        if behind[length - 1] == 0 {
            return false;
        }
        last = Some(*window);
        rest = &behind[length..];
    }
    rest.is_empty()
}

/// RFC 9460 §2.2: keys ascend, and the values of the keys that it defines have their form.
fn are_svc_params(mut rest: &[u8]) -> bool {
    let mut last = None;
    while let [a, b, c, d, behind @ ..] = rest {
        let (key, length) = (u16::from_be_bytes([*a, *b]), usize::from(u16::from_be_bytes([*c, *d])));
        let Some(value) = behind.get(..length) else { return false };
        if last.is_some_and(|last| last >= key) || !is_svc_value(key, value) {
            return false;
        }
        last = Some(key);
        rest = &behind[length..];
    }
    rest.is_empty()
}

fn is_svc_value(key: u16, value: &[u8]) -> bool {
    match key {
        // Mandatory keys: ascending, without themselves.
        0 => {
            let keys = || value.chunks_exact(2).map(|key| u16::from_be_bytes([key[0], key[1]]));
            !value.is_empty()
                && value.len().is_multiple_of(2)
                && keys().all(|key| key != 0)
                && keys().zip(keys().skip(1)).all(|(a, b)| a < b)
        }
        // ALPN: texts that are not empty.
        1 => {
            let mut rest = value;
            while let Some((&length, behind)) = rest.split_first() {
                let length = usize::from(length);
                if length == 0 || length > behind.len() {
                    return false;
                }
                rest = &behind[length..];
            }
            !value.is_empty()
        }
        2 => value.is_empty(),
        3 => value.len() == 2,
        4 => !value.is_empty() && value.len().is_multiple_of(4),
        6 => !value.is_empty() && value.len().is_multiple_of(16),
        _ => true,
    }
}

fn are_options(mut rest: &[u8]) -> bool {
    while let [_, _, a, b, behind @ ..] = rest {
        let Some(next) = behind.get(usize::from(u16::from_be_bytes([*a, *b]))..) else { return false };
        rest = next;
    }
    rest.is_empty()
}
