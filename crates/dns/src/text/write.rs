//! Record data as text.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::encodings::{to_base32, to_hex, to_time, write_quoted};
use super::svc_params;
use crate::layout::{self, Field};
use crate::name_view::{Compression, NameView};
use crate::numbers::RecordType;

/// Writes uncompressed data: by their fields, or in the generic form if they have none or do not match them.
pub(crate) fn write_data(record_type: RecordType, wire: &[u8], f: &mut impl fmt::Write) -> fmt::Result {
    let fields = layout::fields(record_type).filter(|_| record_type != RecordType::OPT);
    let fields = fields.filter(|fields| layout::check(fields, wire, 0, wire.len()).is_ok());
    let Some(fields) = fields else {
        write!(f, "\\# {}", wire.len())?;
        return if wire.is_empty() { Ok(()) } else { write!(f, " {}", to_hex(wire)) };
    };
    let mut at = 0;
    for (index, &field) in fields.iter().enumerate() {
        let end = layout::field_end(field, wire, at, wire.len()).unwrap_or(wire.len());
        // These write a space before each of their parts, of which there may be none.
        if index > 0 && !matches!(field, Field::TypeBitmap | Field::SvcParams) {
            f.write_char(' ')?;
        }
        write_field(field, wire, at..end, f)?;
        at = end;
    }
    Ok(())
}

fn write_field(field: Field, wire: &[u8], range: std::ops::Range<usize>, f: &mut impl fmt::Write) -> fmt::Result {
    let bytes = &wire[range.clone()];
    let number = bytes.iter().fold(0_u32, |number, byte| number << 8 | u32::from(*byte));
    match field {
        Field::U8 | Field::U16 | Field::U32 => write!(f, "{number}"),
        Field::Time => f.write_str(&to_time(number)),
        Field::Type => write!(f, "{}", RecordType(number as u16)),
        Field::Ipv4 => write!(f, "{}", bytes.try_into().map_or(Ipv4Addr::UNSPECIFIED, <[u8; 4]>::into)),
        Field::Ipv6 => write!(f, "{}", bytes.try_into().map_or(Ipv6Addr::UNSPECIFIED, <[u8; 16]>::into)),
        Field::CompressedName | Field::LenientName | Field::PlainName => {
            match NameView::read(wire, range.start, Compression::Allowed) {
                Ok((name, _)) => write!(f, "{name}"),
                Err(_) => f.write_char('.'),
            }
        }
        Field::Text => write_quoted(bytes.get(1..).unwrap_or_default(), f),
        Field::Tag => {
            let tag = bytes.get(1..).unwrap_or_default();
            match std::str::from_utf8(tag) {
                Ok(tag) if !tag.is_empty() && tag.bytes().all(|byte| byte.is_ascii_alphanumeric()) => f.write_str(tag),
                _ => write_quoted(tag, f),
            }
        }
        Field::Texts => {
            for (index, text) in crate::name::labels_of_any_length(bytes).enumerate() {
                f.write_str(if index > 0 { " " } else { "" })?;
                write_quoted(text, f)?;
            }
            Ok(())
        }
        Field::TextRest => write_quoted(bytes, f),
        Field::Hex => f.write_str(&to_hex(bytes)),
        Field::Base64 => f.write_str(&STANDARD.encode(bytes)),
        Field::Salt if bytes.len() <= 1 => f.write_char('-'),
        Field::Salt => f.write_str(&to_hex(&bytes[1..])),
        Field::Hash => f.write_str(&to_base32(bytes.get(1..).unwrap_or_default())),
        Field::TypeBitmap => write_bitmap(bytes, f),
        Field::SvcParams => svc_params::write(bytes, f),
        Field::Options => f.write_str(&to_hex(bytes)),
    }
}

fn write_bitmap(mut rest: &[u8], f: &mut impl fmt::Write) -> fmt::Result {
    while let [window, length, behind @ ..] = rest {
        let (bits, next) = behind.split_at_checked(usize::from(*length)).unwrap_or((behind, &[]));
        for (index, byte) in bits.iter().enumerate() {
            for bit in (0..8).filter(|bit| byte & 0x80 >> bit != 0) {
                write!(f, " {}", RecordType(u16::from(*window) << 8 | (index * 8 + bit) as u16))?;
            }
        }
        rest = next;
    }
    Ok(())
}
