//! The control line, which both roles share: its end, its operation, its arguments.
//!
//! Invariant: no byte is scanned twice for the end of the line, and a line that can become no operation is refused at its
//! first wrong byte.

use std::ops::Range;

use crate::error::NatsError;
use crate::limits::ProtocolLimits;

/// A part of a line, from its start.
pub(crate) type Part = Range<usize>;

/// The end of the line: where its content ends, and where the next one begins. As nats-server does, it takes LF alone as well.
pub(crate) fn line_end(
    bytes: &[u8],
    scanned: &mut usize,
    bytes_max: usize,
) -> Result<Option<(usize, usize)>, NatsError> {
    let Some(at) = memchr::memchr(b'\n', &bytes[*scanned..]).map(|at| *scanned + at) else {
        *scanned = bytes.len();
        // The CR may be there already.
        let is_too_long = bytes.len() > bytes_max + 1;
        return if is_too_long { Err(NatsError::LineTooLong { bytes_max }) } else { Ok(None) };
    };
    let end = if at > 0 && bytes[at - 1] == b'\r' { at - 1 } else { at };
    if end > bytes_max {
        return Err(NatsError::LineTooLong { bytes_max });
    }
    Ok(Some((end, at + 1)))
}

/// The operation with which the bytes begin, and the length of its name; `None` if more bytes decide.
pub(crate) fn operation<T: Copy>(bytes: &[u8], table: &[(&[u8], T)]) -> Result<Option<(T, usize)>, NatsError> {
    let mut may_follow = false;
    for (name, operation) in table {
        let common = name.len().min(bytes.len());
        if !bytes[..common].eq_ignore_ascii_case(&name[..common]) {
            continue;
        }
        match bytes.get(name.len()) {
            Some(b' ' | b'\t' | b'\r' | b'\n') => return Ok(Some((*operation, name.len()))),
            Some(_) => {}
            None => may_follow = true,
        }
    }
    if may_follow { Ok(None) } else { Err(NatsError::Operation) }
}

/// The bound of a line with this JSON or without.
pub(crate) const fn bytes_max(has_json: bool, limits: &ProtocolLimits) -> usize {
    if has_json { limits.json_bytes_max } else { limits.control_line_bytes_max }
}

/// The arguments of a line: between `min` and `N` of them.
pub(crate) fn arguments<const N: usize>(line: &[u8], from: usize, min: usize) -> Result<([Part; N], usize), NatsError> {
    let mut parts = [const { 0..0 }; N];
    let (mut count, mut at) = (0, from);
    loop {
        while line.get(at).is_some_and(|byte| is_space(*byte)) {
            at += 1;
        }
        if at >= line.len() {
            break;
        }
        let end = line[at..].iter().position(|byte| is_space(*byte)).map_or(line.len(), |length| at + length);
        *parts.get_mut(count).ok_or(NatsError::Arguments)? = at..end;
        (count, at) = (count + 1, end);
    }
    if count < min { Err(NatsError::Arguments) } else { Ok((parts, count)) }
}

/// A decimal number without a sign, of at most nine digits.
pub(crate) fn number(digits: &[u8]) -> Result<usize, NatsError> {
    if digits.is_empty() || digits.len() > 9 || !digits.iter().all(u8::is_ascii_digit) {
        return Err(NatsError::Number);
    }
    Ok(digits.iter().fold(0, |number, digit| number * 10 + usize::from(digit - b'0')))
}

/// A line whose rest is one text.
pub(crate) fn rest(line: &[u8], from: usize) -> Part {
    let skipped = line[from..].iter().take_while(|byte| is_space(**byte)).count();
    let end = line.len() - line[from..].iter().rev().take_while(|byte| is_space(**byte)).count();
    let start = from + skipped;
    start..end.max(start)
}

const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}
