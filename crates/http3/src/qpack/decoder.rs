//! From a field section to fields (RFC 9204 §4.5).

use std::fmt;

use tidegate_http_stream::{CodingError, huffman, integer};

use super::static_table;

/// Why a field section cannot be decoded. The connection ends with QPACK_DECOMPRESSION_FAILED (RFC 9204 §2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum QpackError {
    /// The section ends within a field.
    Truncated,
    /// An integer is too large, or too long.
    Integer,
    /// A string is no Huffman code.
    Huffman,
    /// An index has no field in the static table, or in the dynamic one.
    Index,
    /// The section needs a dynamic table, which there is not.
    Dynamic,
    /// The Required Insert Count is none that an encoder sends for the section (RFC 9204 §2.2.1, §4.5.1.1).
    InsertCount,
    /// More streams wait for entries of the table than this side permits (RFC 9204 §2.1.2).
    Blocked,
    /// The base is negative (RFC 9204 §4.5.1.2).
    Base,
}

impl fmt::Display for QpackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "a field section ends within a field",
            Self::Integer => "an integer in a field section is too large",
            Self::Huffman => "a string in a field section is no Huffman code",
            Self::Index => "an index in a field section has no field",
            Self::Dynamic => "a field section needs a dynamic table",
            Self::InsertCount => "the required insert count of a field section is wrong",
            Self::Blocked => "too many field sections wait for a dynamic table",
            Self::Base => "the base of a field section is negative",
        })
    }
}

impl std::error::Error for QpackError {}

impl From<CodingError> for QpackError {
    #[cold]
    fn from(error: CodingError) -> Self {
        match error {
            CodingError::Integer => Self::Integer,
            CodingError::Huffman => Self::Huffman,
            _ => Self::Truncated,
        }
    }
}

/// Decodes a whole field section, and calls `field` with each name and value. `scratch` is memory for strings, which
/// callers use again.
///
/// # Errors
/// [`QpackError`]; the connection has to end.
///
/// ```
/// use tidegate::http3::qpack;
///
/// let mut section = Vec::new();
/// qpack::encode_prefix(&mut section);
/// qpack::encode(b":method", b"GET", false, &mut section);
/// qpack::encode(b"tide", b"ebb", false, &mut section);
/// let mut fields = Vec::new();
/// qpack::decode(&section, &mut Vec::new(), |name, value| fields.push((name.to_vec(), value.to_vec())))?;
/// assert_eq!(fields, [(b":method".to_vec(), b"GET".to_vec()), (b"tide".to_vec(), b"ebb".to_vec())]);
/// # Ok::<(), tidegate::http3::qpack::QpackError>(())
/// ```
pub fn decode(
    mut section: &[u8],
    scratch: &mut Vec<u8>,
    mut field: impl FnMut(&[u8], &[u8]),
) -> Result<(), QpackError> {
    read_prefix(&mut section)?;
    while let Some(&first) = section.first() {
        match first {
            // An indexed field of the static table.
            0xc0.. => {
                let (name, value) = static_table::get(integer::read(&mut section, 6)?).ok_or(QpackError::Index)?;
                field(name, value);
            }
            // A literal with a name of the static table.
            0x50..0x60 | 0x70..0x80 => {
                let (name, _) = static_table::get(integer::read(&mut section, 4)?).ok_or(QpackError::Index)?;
                scratch.clear();
                read_string(&mut section, 7, scratch)?;
                field(name, scratch);
            }
            // A literal with a literal name.
            0x20..0x40 => {
                scratch.clear();
                read_string(&mut section, 3, scratch)?;
                let name_length = scratch.len();
                read_string(&mut section, 7, scratch)?;
                let (name, value) = scratch.split_at(name_length);
                field(name, value);
            }
            // A reference to the dynamic table, before or behind the base.
            _ => return Err(QpackError::Dynamic),
        }
    }
    Ok(())
}

/// The Required Insert Count, which is 0, and the base, which has no meaning then (RFC 9204 §4.5.1).
fn read_prefix(section: &mut &[u8]) -> Result<(), QpackError> {
    if integer::read(section, 8)? != 0 {
        return Err(QpackError::Dynamic);
    }
    let is_negative = section.first().is_some_and(|byte| byte & 0x80 != 0);
    integer::read(section, 7)?;
    if is_negative { Err(QpackError::Base) } else { Ok(()) }
}

/// Appends a string to `out`, and removes it from `section` (RFC 9204 §4.1.2). The bit in front of the length says
/// whether it is coded.
fn read_string(section: &mut &[u8], prefix_bits: u32, out: &mut Vec<u8>) -> Result<(), QpackError> {
    let is_huffman = section.first().is_some_and(|byte| byte >> prefix_bits & 1 != 0);
    let length = integer::read(section, prefix_bits)? as usize;
    let (string, rest) = section.split_at_checked(length).ok_or(QpackError::Truncated)?;
    *section = rest;
    if is_huffman {
        return Ok(huffman::decode(string, out)?);
    }
    out.extend_from_slice(string);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(section: &[u8]) -> Result<Vec<String>, QpackError> {
        let mut fields = Vec::new();
        decode(section, &mut Vec::new(), |name, value| {
            fields.push(format!("{}={}", name.escape_ascii(), value.escape_ascii()));
        })?;
        Ok(fields)
    }

    #[test]
    fn the_example_of_the_standard_holds() {
        // RFC 9204, Appendix B.1.
        assert_eq!(decoded(b"\x00\x00\x51\x0b/index.html").as_deref(), Ok(&[":path=/index.html".to_owned()][..]));
    }

    #[test]
    fn whatever_needs_a_dynamic_table_is_refused() {
        for section in [
            &b"\x01\x00"[..],
            b"\xff\x00\x00",
            b"\x00\x00\x80",
            b"\x00\x00\xbf\x00",
            b"\x00\x00\x10",
            b"\x00\x00\x00\x01x",
            b"\x00\x00\x40\x01x",
            b"\x00\x00\x60\x01x",
        ] {
            assert_eq!(decoded(section), Err(QpackError::Dynamic), "{section:?}");
        }
        assert_eq!(decoded(b"\x00\x05\xc1").as_deref(), Ok(&[":path=/".to_owned()][..]), "any base will do");
        assert_eq!(decoded(b"\x00\x80\xc1"), Err(QpackError::Base));
    }

    #[test]
    fn broken_sections_are_refused() {
        for (section, error) in [
            (&b""[..], QpackError::Truncated),
            (b"\x00", QpackError::Truncated),
            (b"\x00\x00\xff", QpackError::Truncated),
            (b"\x00\x00\xff\x24", QpackError::Index),
            (b"\x00\x00\x5f\x54\x00", QpackError::Index),
            (b"\x00\x00\x51", QpackError::Truncated),
            (b"\x00\x00\x51\x02x", QpackError::Truncated),
            (b"\x00\x00\x21x", QpackError::Truncated),
            (b"\x00\x00\x51\x81\xff", QpackError::Huffman),
            // A length of 2^62.
            (b"\x00\x00\x51\x7f\x81\xff\xff\xff\xff\xff\xff\xff\x3f", QpackError::Integer),
            (b"\x00\x00\x27\xf9\xff\xff\xff\xff\xff\xff\xff\x3f", QpackError::Integer),
        ] {
            assert_eq!(decoded(section), Err(error), "{section:?}");
        }
    }
}
