//! The parameters of service bindings as text (RFC 9460 §2.1 and appendix A).

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::encodings::{number, unescaped, with_length, write_quoted};
use super::lexer::Token;
use crate::error::DnsError;

const KEYS: [&str; 7] = ["mandatory", "alpn", "no-default-alpn", "port", "ipv4hint", "ech", "ipv6hint"];

fn key_of(name: &str) -> Result<u16, DnsError> {
    if let Some(key) = KEYS.iter().position(|key| *key == name) {
        return Ok(key as u16);
    }
    name.strip_prefix("key").map_or(Err(DnsError::DataText), number)
}

fn write_key(key: u16, f: &mut impl fmt::Write) -> fmt::Result {
    match KEYS.get(usize::from(key)) {
        Some(name) => f.write_str(name),
        None => write!(f, "key{key}"),
    }
}

/// Appends the parameters in the order of their keys.
pub(crate) fn parse(tokens: &[Token<'_>], out: &mut Vec<u8>) -> Result<(), DnsError> {
    let mut params = Vec::with_capacity(tokens.len());
    for token in tokens {
        let (name, value) = token.text.split_once('=').unwrap_or((token.text, ""));
        let value = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
        let key = key_of(name)?;
        params.push((key, parse_value(key, value)?));
    }
    params.sort_by_key(|(key, _)| *key);
    for (key, value) in params {
        out.extend_from_slice(&key.to_be_bytes());
        out.extend_from_slice(&u16::try_from(value.len()).map_err(|_| DnsError::DataText)?.to_be_bytes());
        out.extend_from_slice(&value);
    }
    Ok(())
}

fn parse_value(key: u16, value: &str) -> Result<Vec<u8>, DnsError> {
    let mut out = Vec::new();
    match key {
        0 => {
            let mut keys = value.split(',').map(key_of).collect::<Result<Vec<_>, _>>()?;
            keys.sort_unstable();
            keys.iter().for_each(|key| out.extend_from_slice(&key.to_be_bytes()));
        }
        1 => comma_list(&unescaped(value)?)?.iter().try_for_each(|item| with_length(item, &mut out))?,
        3 => out.extend_from_slice(&number::<u16>(value)?.to_be_bytes()),
        4 => {
            for hint in value.split(',') {
                out.extend_from_slice(&hint.parse::<Ipv4Addr>().map_err(|_| DnsError::DataText)?.octets());
            }
        }
        5 => out = STANDARD.decode(value).map_err(|_| DnsError::DataText)?,
        6 => {
            for hint in value.split(',') {
                out.extend_from_slice(&hint.parse::<Ipv6Addr>().map_err(|_| DnsError::DataText)?.octets());
            }
        }
        _ => out = unescaped(value)?,
    }
    Ok(out)
}

/// The items of a list, in which `\,` and `\\` stand for a comma and a backslash.
fn comma_list(value: &[u8]) -> Result<Vec<Vec<u8>>, DnsError> {
    let (mut items, mut item, mut bytes) = (Vec::new(), Vec::new(), value.iter());
    while let Some(&byte) = bytes.next() {
        match byte {
            b'\\' => item.push(*bytes.next().ok_or(DnsError::DataText)?),
            b',' => items.push(std::mem::take(&mut item)),
            _ => item.push(byte),
        }
    }
    items.push(item);
    Ok(items)
}

/// Writes the parameters, with a space between them.
pub(crate) fn write(params: &[u8], f: &mut impl fmt::Write) -> fmt::Result {
    let mut rest = params;
    while let [a, b, c, d, behind @ ..] = rest {
        let (key, length) = (u16::from_be_bytes([*a, *b]), usize::from(u16::from_be_bytes([*c, *d])));
        let (value, next) = behind.split_at_checked(length).unwrap_or((behind, &[]));
        f.write_char(' ')?;
        write_key(key, f)?;
        write_value(key, value, f)?;
        rest = next;
    }
    Ok(())
}

fn write_value(key: u16, value: &[u8], f: &mut impl fmt::Write) -> fmt::Result {
    match key {
        0 => {
            f.write_char('=')?;
            for (index, key) in value.chunks_exact(2).enumerate() {
                f.write_str(if index > 0 { "," } else { "" })?;
                write_key(u16::from_be_bytes([key[0], key[1]]), f)?;
            }
            Ok(())
        }
        1 => {
            let mut list = Vec::new();
            for item in crate::name::labels_of_any_length(value) {
                if !list.is_empty() {
                    list.push(b',');
                }
                for &byte in item {
                    if matches!(byte, b',' | b'\\') {
                        list.push(b'\\');
                    }
                    list.push(byte);
                }
            }
            f.write_char('=')?;
            write_quoted(&list, f)
        }
        2 => Ok(()),
        3 => write!(f, "={}", value.try_into().map_or(0, u16::from_be_bytes)),
        4 => {
            let hints = value.chunks_exact(4).filter_map(|hint| <[u8; 4]>::try_from(hint).ok());
            write!(f, "={}", hints.map(|hint| Ipv4Addr::from(hint).to_string()).collect::<Vec<_>>().join(","))
        }
        5 => write!(f, "={}", STANDARD.encode(value)),
        6 => {
            let hints = value.chunks_exact(16).filter_map(|hint| <[u8; 16]>::try_from(hint).ok());
            write!(f, "={}", hints.map(|hint| Ipv6Addr::from(hint).to_string()).collect::<Vec<_>>().join(","))
        }
        _ if value.is_empty() => Ok(()),
        _ => {
            f.write_char('=')?;
            write_quoted(value, f)
        }
    }
}
