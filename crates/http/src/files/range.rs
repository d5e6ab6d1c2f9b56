//! Ranges of a file (RFC 9110 §14): parsed, bounded, and joined where they overlap.

use std::ops::Range;

/// The request of a `Range` field.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ranges {
    /// The whole file: the field is malformed, of another unit, or asks for too many ranges.
    Whole,
    /// One range.
    One(Range<u64>),
    /// From two up to [`PARTS_MAX`] ranges, none of which overlap.
    Several(Vec<Range<u64>>),
    /// None of the ranges begins within the file.
    Unsatisfiable,
}

impl Ranges {
    /// The ranges of a file of `length` bytes. They keep the order of the request; one that overlaps or touches an
    /// earlier one is joined to it.
    pub(super) fn parse(value: &[u8], length: u64) -> Self {
        let Some(list) = value.split_at_checked(6).filter(|(unit, _)| unit.eq_ignore_ascii_case(b"bytes=")) else {
            return Self::Whole;
        };
        let mut ranges: Vec<Range<u64>> = Vec::new();
        let mut count = 0;
        for element in list.1.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
            if element.is_empty() {
                continue;
            }
            count += 1;
            if count > ELEMENTS_MAX {
                return Self::Whole;
            }
            match parse_one(element, length) {
                RangeElement::Range(range) => join(&mut ranges, range),
                RangeElement::Outside => {}
                RangeElement::EmptyFile | RangeElement::Malformed => return Self::Whole,
            }
        }
        match (&mut ranges[..], count) {
            (_, 0) => Self::Whole,
            ([], _) => Self::Unsatisfiable,
            ([one], _) => Self::One(std::mem::take(one)),
            (several, _) if several.len() > PARTS_MAX => Self::Whole,
            _ => Self::Several(ranges),
        }
    }
}

enum RangeElement {
    Range(Range<u64>),
    /// It begins after the end of the file.
    Outside,
    /// It is a suffix of a file without bytes, which no `Content-Range` can express.
    EmptyFile,
    Malformed,
}

fn parse_one(element: &[u8], length: u64) -> RangeElement {
    let Some(dash) = element.iter().position(|&byte| byte == b'-') else { return RangeElement::Malformed };
    match (&element[..dash], &element[dash + 1..]) {
        ([], suffix) => match number(suffix) {
            None => RangeElement::Malformed,
            Some(0) => RangeElement::Outside,
            Some(_) if length == 0 => RangeElement::EmptyFile,
            Some(suffix) => RangeElement::Range(length.saturating_sub(suffix)..length),
        },
        (first, last) => {
            let last_number = if last.is_empty() { Some(u64::MAX) } else { number(last) };
            match (number(first), last_number) {
                (Some(first), Some(last)) if last < first => RangeElement::Malformed,
                (Some(first), Some(_)) if first >= length => RangeElement::Outside,
                (Some(first), Some(last)) => RangeElement::Range(first..last.saturating_add(1).min(length)),
                _ => RangeElement::Malformed,
            }
        }
    }
}

/// Adds a range, joined to all that it overlaps or touches, in the place of the first of them.
fn join(ranges: &mut Vec<Range<u64>>, mut range: Range<u64>) {
    let mut place = ranges.len();
    let mut index = 0;
    while index < ranges.len() {
        let other = &ranges[index];
        if range.start <= other.end && other.start <= range.end {
            range = range.start.min(other.start)..range.end.max(other.end);
            ranges.remove(index);
            place = place.min(index);
            // A wider range may touch those that were passed.
            index = 0;
        } else {
            index += 1;
        }
    }
    ranges.insert(place.min(ranges.len()), range);
}

/// A decimal number, at most the largest one: no file is as long.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, digit| {
        let digit = char::from(*digit).to_digit(10)?;
        Some(number.saturating_mul(10).saturating_add(u64::from(digit)))
    })
}

/// Elements of a `Range` field; one with more gets the whole file.
const ELEMENTS_MAX: usize = 64;

/// Ranges of a response, after those that overlap are joined; a request of more gets the whole file.
pub(super) const PARTS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(value: &str, length: u64) -> Ranges {
        Ranges::parse(value.as_bytes(), length)
    }

    #[test]
    fn a_single_range_is_within_the_file() {
        for (value, expected) in [
            ("bytes=0-0", 0..1),
            ("bytes=0-99", 0..100),
            ("bytes=0-", 0..100),
            ("bytes=10-19", 10..20),
            ("BYTES=10-19", 10..20),
            ("bytes= 10-19 ", 10..20),
            ("bytes=,10-19,,", 10..20),
            ("bytes=99-", 99..100),
            ("bytes=90-100000", 90..100),
            ("bytes=-1", 99..100),
            ("bytes=-100", 0..100),
            ("bytes=-101", 0..100),
            ("bytes=0-18446744073709551615", 0..100),
            ("bytes=5-99999999999999999999999999", 5..100),
            ("bytes=-99999999999999999999999999", 0..100),
            ("bytes=100-, 5-5", 5..6),
            ("bytes=-0, 5-5", 5..6),
        ] {
            assert_eq!(parse(value, 100), Ranges::One(expected), "{value}");
        }
    }

    #[test]
    fn ranges_that_overlap_or_touch_are_joined() {
        assert_eq!(parse("bytes=0-9,5-14", 100), Ranges::One(0..15));
        assert_eq!(parse("bytes=0-9,10-19", 100), Ranges::One(0..20));
        assert_eq!(parse("bytes=10-19,0-9", 100), Ranges::One(0..20));
        assert_eq!(parse("bytes=0-0,2-2,1-1", 100), Ranges::One(0..3));
        assert_eq!(parse("bytes=0-,-1,5-", 100), Ranges::One(0..100));
        assert_eq!(parse("bytes=90-,0-1", 100), Ranges::Several(vec![90..100, 0..2]));
        assert_eq!(parse("bytes=50-59,0-1,58-62", 100), Ranges::Several(vec![50..63, 0..2]));
    }

    #[test]
    fn malformed_and_excessive_ranges_ask_for_the_whole_file() {
        for value in [
            "",
            "bytes",
            "bytes=",
            "bytes=,",
            "bytes=a-b",
            "bytes=5-4",
            "bytes=0-1,5-4",
            "bytes=--1",
            "bytes=1",
            "bytes=-",
            "bytes=0x1-2",
            "bytes=1-2-3",
            "bytes =0-1",
            "items=0-1",
            "bytes=0-1;q",
            "bytes=+1-2",
            "bytes=1 - 2",
            "bytes=\u{661}-",
        ] {
            assert_eq!(parse(value, 100), Ranges::Whole, "{value}");
        }
        let many = |count: u64| {
            format!("bytes={}", (0..count).map(|at| format!("{}-{}", at * 2, at * 2)).collect::<Vec<_>>().join(","))
        };
        assert!(matches!(parse(&many(16), 1000), Ranges::Several(ranges) if ranges.len() == 16));
        assert_eq!(parse(&many(17), 1000), Ranges::Whole);
        assert_eq!(parse(&many(2000), 10_000), Ranges::Whole);
        assert_eq!(parse(&format!("bytes={}", "0-,".repeat(64)), 100), Ranges::One(0..100));
        assert_eq!(parse(&format!("bytes={}", "0-,".repeat(65)), 100), Ranges::Whole);
    }

    #[test]
    fn ranges_outside_the_file_are_unsatisfiable() {
        for value in ["bytes=100-", "bytes=100-200", "bytes=-0", "bytes=99999999999999999999-", "bytes=100-,200-"] {
            assert_eq!(parse(value, 100), Ranges::Unsatisfiable, "{value}");
        }
        assert_eq!(parse("bytes=0-", 0), Ranges::Unsatisfiable);
        assert_eq!(parse("bytes=-5", 0), Ranges::Whole);
    }
}
