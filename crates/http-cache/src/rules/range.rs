//! A range of a stored response (RFC 9110 §14).

use std::ops::Range;

/// The verdict on a `Range` field.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Requested {
    /// The whole response: the field is malformed, of another unit, or lists several ranges.
    Whole,
    Part(Range<usize>),
    /// 416
    Unsatisfiable,
}

/// The range of a body of `length` bytes.
pub(crate) fn requested(value: &[u8], length: usize) -> Requested {
    let Some((unit, range)) = value.split_at_checked(6) else { return Requested::Whole };
    let range = range.trim_ascii();
    let Some(dash) = range.iter().position(|&byte| byte == b'-') else { return Requested::Whole };
    if !unit.eq_ignore_ascii_case(b"bytes=") {
        return Requested::Whole;
    }
    let (first, last) = (&range[..dash], &range[dash + 1..]);
    match (first.is_empty(), number(first), number(last)) {
        (true, _, Some(suffix)) => match suffix.min(length) {
            0 => Requested::Unsatisfiable,
            suffix => Requested::Part(length - suffix..length),
        },
        (false, Some(first), last_number) => {
            let end = match last_number {
                Some(last) if last < first => return Requested::Whole,
                Some(last) => last.saturating_add(1).min(length),
                None if last.is_empty() => length,
                None => return Requested::Whole,
            };
            if first >= length { Requested::Unsatisfiable } else { Requested::Part(first..end) }
        }
        _ => Requested::Whole,
    }
}

fn number(digits: &[u8]) -> Option<usize> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(
        digits
            .iter()
            .fold(0, |number: usize, digit| number.saturating_mul(10).saturating_add(usize::from(digit - b'0'))),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_lies_within_the_body() {
        for (value, expected) in [
            ("bytes=0-1", Requested::Part(0..2)),
            ("bytes=1-", Requested::Part(1..11)),
            ("bytes=-1", Requested::Part(10..11)),
            ("bytes=-99", Requested::Part(0..11)),
            ("Bytes=10-99999999999999999999999", Requested::Part(10..11)),
            ("bytes=11-", Requested::Unsatisfiable),
            ("bytes=-0", Requested::Unsatisfiable),
            ("bytes=2-1", Requested::Whole),
            ("bytes=0-1,3-4", Requested::Whole),
            ("bytes=a-", Requested::Whole),
            ("bytes=1-b", Requested::Whole),
            ("bytes=-", Requested::Whole),
            ("bytes=", Requested::Whole),
            ("lines=0-1", Requested::Whole),
            ("", Requested::Whole),
        ] {
            assert_eq!(requested(value.as_bytes(), 11), expected, "{value}");
        }
        assert_eq!(requested(b"bytes=-1", 0), Requested::Unsatisfiable);
    }
}
