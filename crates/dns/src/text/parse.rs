//! Record data from tokens.

use std::net::{Ipv4Addr, Ipv6Addr};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::encodings::{from_base32, from_hex, from_time, number, unescaped, with_length};
use super::lexer::Token;
use super::svc_params;
use crate::error::DnsError;
use crate::layout::{self, Field};
use crate::name::Name;
use crate::numbers::RecordType;

/// An error, and the index of the token that causes it; the count of tokens if one is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) error: DnsError,
    pub(crate) token: usize,
}

/// The wire form of record data, from the tokens behind the type. The caller checks it as a whole.
pub(crate) fn parse_data(record_type: RecordType, tokens: &[Token<'_>], origin: &Name) -> Result<Vec<u8>, Refused> {
    let refuse = |token: usize| move |error| Refused { error, token };
    if let [first, length, hex @ ..] = tokens
        && first.text == "\\#"
        && !first.is_quoted
    {
        let digits: String = hex.iter().map(|token| token.text).collect();
        let wire = from_hex(&digits).filter(|wire| length.text.parse() == Ok(wire.len()));
        return wire.ok_or(DnsError::DataText).map_err(refuse(1));
    }
    let fields = layout::fields(record_type).filter(|_| record_type != RecordType::OPT);
    let fields = fields.ok_or(DnsError::DataText).map_err(refuse(0))?;
    let (mut wire, mut at) = (Vec::new(), 0);
    for &field in fields {
        at += parse_field(field, &tokens[at..], origin, &mut wire).map_err(refuse(at))?;
    }
    if at < tokens.len() {
        return Err(Refused { error: DnsError::DataText, token: at });
    }
    Ok(wire)
}

/// Appends a field; returns how many tokens it has.
fn parse_field(field: Field, tokens: &[Token<'_>], origin: &Name, out: &mut Vec<u8>) -> Result<usize, DnsError> {
    match field {
        Field::Texts => {
            if tokens.is_empty() {
                return Err(DnsError::DataText);
            }
            tokens.iter().try_for_each(|token| text(token.text, out))?;
            return Ok(tokens.len());
        }
        Field::Hex => {
            out.extend_from_slice(&from_hex(&concat(tokens)).ok_or(DnsError::DataText)?);
            return Ok(tokens.len());
        }
        Field::Base64 => {
            out.extend_from_slice(&STANDARD.decode(concat(tokens)).map_err(|_| DnsError::DataText)?);
            return Ok(tokens.len());
        }
        Field::TypeBitmap => {
            let types = tokens.iter().map(|token| token.text.parse()).collect::<Result<Vec<RecordType>, _>>()?;
            type_bitmap(types, out);
            return Ok(tokens.len());
        }
        Field::SvcParams => {
            svc_params::parse(tokens, out)?;
            return Ok(tokens.len());
        }
        _ => {}
    }
    let word = tokens.first().ok_or(DnsError::DataText)?.text;
    match field {
        Field::U8 => out.push(number(word)?),
        Field::U16 => out.extend_from_slice(&number::<u16>(word)?.to_be_bytes()),
        Field::U32 => out.extend_from_slice(&duration(word).ok_or(DnsError::DataText)?.to_be_bytes()),
        Field::Time => out.extend_from_slice(&from_time(word).ok_or(DnsError::DataText)?.to_be_bytes()),
        Field::Type => out.extend_from_slice(&word.parse::<RecordType>()?.0.to_be_bytes()),
        Field::Ipv4 => out.extend_from_slice(&word.parse::<Ipv4Addr>().map_err(|_| DnsError::DataText)?.octets()),
        Field::Ipv6 => out.extend_from_slice(&word.parse::<Ipv6Addr>().map_err(|_| DnsError::DataText)?.octets()),
        Field::CompressedName | Field::LenientName | Field::PlainName => {
            out.extend_from_slice(Name::parse_relative(word, origin)?.wire());
        }
        Field::Text | Field::Tag => text(word, out)?,
        Field::TextRest => out.extend_from_slice(&unescaped(word)?),
        Field::Salt if word == "-" => out.push(0),
        Field::Salt => with_length(&from_hex(word).ok_or(DnsError::DataText)?, out)?,
        Field::Hash => with_length(&from_base32(word).ok_or(DnsError::DataText)?, out)?,
        Field::Texts | Field::Hex | Field::Base64 | Field::TypeBitmap | Field::SvcParams | Field::Options => {
            return Err(DnsError::DataText);
        }
    }
    Ok(1)
}

fn concat(tokens: &[Token<'_>]) -> String {
    tokens.iter().map(|token| token.text).collect()
}

/// Seconds, also as `1w2d3h4m5s`, which all servers read.
pub(crate) fn duration(word: &str) -> Option<u32> {
    if word.is_empty() {
        return None;
    }
    let (mut sum, mut number, mut has_digits) = (0_u32, 0_u32, false);
    for byte in word.bytes() {
        let unit = match byte.to_ascii_lowercase() {
            b'0'..=b'9' => {
                number = number.checked_mul(10)?.checked_add(u32::from(byte - b'0'))?;
                has_digits = true;
                continue;
            }
            b's' => 1,
            b'm' => 60,
            b'h' => 3_600,
            b'd' => 86_400,
            b'w' => 604_800,
            _ => return None,
        };
        if !has_digits {
            return None;
        }
        sum = sum.checked_add(number.checked_mul(unit)?)?;
        (number, has_digits) = (0, false);
    }
    sum.checked_add(number)
}

fn text(word: &str, out: &mut Vec<u8>) -> Result<(), DnsError> {
    with_length(&unescaped(word)?, out)
}

fn type_bitmap(mut types: Vec<RecordType>, out: &mut Vec<u8>) {
    types.sort_unstable();
    types.dedup();
    for window in types.chunk_by(|a, b| a.0 >> 8 == b.0 >> 8) {
        let last = window[window.len() - 1].0;
        let mut bits = vec![0; usize::from(last as u8) / 8 + 1];
        for record_type in window {
            let low = record_type.0 as u8;
            bits[usize::from(low / 8)] |= 0x80 >> (low % 8);
        }
        out.extend_from_slice(&[(last >> 8) as u8, bits.len() as u8]);
        out.extend_from_slice(&bits);
    }
}
