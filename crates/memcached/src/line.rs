//! The end of a line, its words, numbers.

use std::ops::Range;

use tidegate_codec::framing::Payload;
use tidegate_codec::{Input, Pool, Slice};

use crate::error::MemcachedError;

/// A search for the end of a line, which continues where it stopped.
#[derive(Debug, Default)]
pub(crate) struct LineScan {
    scanned: u32,
}

impl LineScan {
    /// Takes a line out of the input, without its end: LF, or CR LF.
    pub(crate) fn line(&mut self, input: &mut Input, bytes_max: usize) -> Result<Option<Slice>, MemcachedError> {
        let bytes = input.bytes();
        let seen = bytes.len().min(bytes_max);
        let from = (self.scanned as usize).min(seen);
        match memchr::memchr(b'\n', &bytes[from..seen]) {
            Some(at) => {
                self.scanned = 0;
                let line = input.take(from + at);
                input.consume(1);
                let length = line.len() - usize::from(line.ends_with(b"\r"));
                Ok(Some(line.slice(..length)))
            }
            None if seen == bytes_max => Err(MemcachedError::LineTooLong { bytes_max }),
            None => {
                self.scanned = seen as u32;
                Ok(None)
            }
        }
    }
}

/// The same bytes in memory of their own: a view of a line must not outlive the dispatch in which the line arrives.
pub(crate) fn kept(text: Payload, pool: &Pool) -> Payload {
    match text {
        Payload::Slice(view) => pool.copy(&view).into(),
        shared => shared,
    }
}

/// The places of the words of a line, which spaces separate.
pub(crate) fn words(line: &[u8]) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at + line[at..].iter().position(|byte| *byte != b' ')?;
        let length = line[start..].iter().position(|byte| *byte == b' ');
        let end = length.map_or(line.len(), |length| start + length);
        at = end;
        Some(start..end)
    })
}

/// A number in decimal digits.
pub(crate) fn unsigned(text: &[u8]) -> Option<u64> {
    let digit = |byte: &u8| byte.is_ascii_digit().then(|| u64::from(byte - b'0'));
    let add = |number: u64, byte| number.checked_mul(10)?.checked_add(digit(byte)?);
    if text.is_empty() { None } else { text.iter().try_fold(0, add) }
}

/// A number in decimal digits, with a minus or without.
pub(crate) fn signed(text: &[u8]) -> Option<i64> {
    match text.strip_prefix(b"-") {
        Some(digits) => unsigned(digits).and_then(|number| 0_i64.checked_sub_unsigned(number)),
        None => unsigned(text).and_then(|number| i64::try_from(number).ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_any_number_of_spaces_between_them() {
        let line = b"  get  a b ";
        let found: Vec<_> = words(line).map(|place| &line[place]).collect();
        assert_eq!(found, [&b"get"[..], b"a", b"b"]);
        assert_eq!(words(b"   ").count() + words(b"").count(), 0);
    }

    #[test]
    fn numbers_have_no_other_spelling_than_digits() {
        assert_eq!(unsigned(b"18446744073709551615"), Some(u64::MAX));
        for text in ["", "18446744073709551616", "+1", "-1", "1 ", "0x1", "1.0"] {
            assert_eq!(unsigned(text.as_bytes()), None, "{text}");
        }
        assert_eq!(signed(b"-9223372036854775808"), Some(i64::MIN));
        for text in ["", "-", "--1", "+1", "9223372036854775808", "-9223372036854775809"] {
            assert_eq!(signed(text.as_bytes()), None, "{text}");
        }
    }
}
