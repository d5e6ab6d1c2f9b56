//! Hexadecimal, Base32 with the extended alphabet, times of RRSIG, numbers, texts with escapes.

use std::fmt;

use crate::error::DnsError;
use crate::name::unescape;

const BASE32: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";

pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Some(digit(pair[0])? << 4 | digit(*pair.get(1)?)?)).collect()
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

pub(crate) fn from_base32(text: &str) -> Option<Vec<u8>> {
    let (mut bits, mut count, mut out) = (0_u32, 0, Vec::new());
    for byte in text.bytes() {
        let value = BASE32.iter().position(|letter| *letter == byte.to_ascii_lowercase())?;
        bits = bits << 5 | value as u32;
        count += 5;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    (count < 5 && bits == 0).then_some(out)
}

pub(crate) fn to_base32(bytes: &[u8]) -> String {
    let (mut bits, mut count, mut out) = (0_u32, 0, String::new());
    for &byte in bytes {
        bits = bits << 8 | u32::from(byte);
        count += 8;
        while count >= 5 {
            count -= 5;
            out.push(BASE32[(bits >> count) as usize & 31] as char);
        }
        bits &= (1 << count) - 1;
    }
    if count > 0 {
        out.push(BASE32[(bits << (5 - count)) as usize & 31] as char);
    }
    out
}

/// Seconds since 1970 from `YYYYMMDDHHMMSS` or from a decimal number; RFC 4034 §3.2 counts modulo 2^32.
pub(crate) fn from_time(text: &str) -> Option<u32> {
    if text.len() != 14 {
        return text.parse().ok();
    }
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let part = |range: std::ops::Range<usize>| text[range].parse::<i64>().ok();
    let (year, month, day) = (part(0..4)?, part(4..6)?, part(6..8)?);
    let (hour, minute, second) = (part(8..10)?, part(10..12)?, part(12..14)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // Days of the civil calendar, with the year from March.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days =
        365 * y + y.div_euclid(4) - y.div_euclid(100) + y.div_euclid(400) + (153 * m + 2) / 5 + day - 1 - 719_468;
    Some(((days * 24 + hour) * 3_600 + minute * 60 + second) as u32)
}

pub(crate) fn to_time(seconds: u32) -> String {
    let (days, rest) = (i64::from(seconds / 86_400), seconds % 86_400);
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let m = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * m + 2) / 5 + 1;
    let month = if m < 10 { m + 3 } else { m - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}{month:02}{day:02}{:02}{:02}{:02}", rest / 3_600, rest / 60 % 60, rest % 60)
}

pub(crate) fn number<T: std::str::FromStr>(word: &str) -> Result<T, DnsError> {
    if !word.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(DnsError::DataText);
    }
    word.parse().map_err(|_| DnsError::DataText)
}

/// The bytes of a text without its escapes.
pub(crate) fn unescaped(text: &str) -> Result<Vec<u8>, DnsError> {
    let (text, mut at, mut out) = (text.as_bytes(), 0, Vec::with_capacity(text.len()));
    while at < text.len() {
        if text[at] == b'\\' {
            let (byte, length) = unescape(&text[at..]).ok_or(DnsError::DataText)?;
            out.push(byte);
            at += length;
        } else {
            out.push(text[at]);
            at += 1;
        }
    }
    Ok(out)
}

pub(crate) fn with_length(bytes: &[u8], out: &mut Vec<u8>) -> Result<(), DnsError> {
    out.push(u8::try_from(bytes.len()).map_err(|_| DnsError::DataText)?);
    out.extend_from_slice(bytes);
    Ok(())
}

/// Writes a text in quotes, with escapes.
pub(crate) fn write_quoted(text: &[u8], f: &mut impl fmt::Write) -> fmt::Result {
    f.write_char('"')?;
    for &byte in text {
        match byte {
            b'"' | b'\\' => write!(f, "\\{}", byte as char)?,
            0x20..=0x7e => f.write_char(byte as char)?,
            _ => write!(f, "\\{byte:03}")?,
        }
    }
    f.write_char('"')
}
