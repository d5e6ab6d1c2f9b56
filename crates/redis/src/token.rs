//! `Token`: the smallest part of a RESP value that is read at once, and where it ends.
//!
//! A token is a line, or a line and the bytes that its length announces. The scan of a line that is not complete is
//! remembered by the caller, so that no byte is searched twice. Read next: `nesting.rs`.

use crate::error::RedisError;
use crate::limits::ProtocolLimits;
use crate::number;

/// A part of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Token {
    /// A value of one line.
    Scalar,
    /// The head of a bulk string, bulk error or verbatim string of so many bytes.
    Bulk(BulkKind, u64),
    /// The head of an aggregate of so many values: two for each entry of a map.
    Aggregate(AggregateKind, u64),
    /// The head of an aggregate whose end follows later.
    StreamedAggregate(AggregateKind),
    /// The head of a string in chunks.
    StreamedString,
    /// The head of a chunk of so many bytes; zero ends the string.
    Chunk(u64),
    /// The end of a streamed aggregate.
    StreamEnd,
}

/// The type of a string with a length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BulkKind {
    /// `$`: bytes.
    String,
    /// `!`: an error that may have line breaks.
    Error,
    /// `=`: a text with a format of three bytes in front, and a colon.
    Verbatim,
}

/// The type of an aggregate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AggregateKind {
    /// `*`: values in order.
    Array,
    /// `~`: values without an order.
    Set,
    /// `%`: keys and values.
    Map,
    /// `>`: a message that answers no command.
    Push,
    /// `|`: keys and values about the value that follows.
    Attribute,
}

impl AggregateKind {
    /// How many values an entry has.
    pub(crate) const fn values(self) -> u64 {
        match self {
            Self::Map | Self::Attribute => 2,
            Self::Array | Self::Set | Self::Push => 1,
        }
    }

    pub(crate) const fn first_byte(self) -> u8 {
        match self {
            Self::Array => b'*',
            Self::Set => b'~',
            Self::Map => b'%',
            Self::Push => b'>',
            Self::Attribute => b'|',
        }
    }
}

/// The first token of `bytes` and the length of its line with CR LF; `None` if the line is not complete. No byte before
/// `scanned` ends the line; it is updated.
#[inline]
pub(crate) fn token(
    bytes: &[u8],
    limits: &ProtocolLimits,
    scanned: &mut usize,
) -> Result<Option<(Token, usize)>, RedisError> {
    let Some(&first) = bytes.first() else { return Ok(None) };
    let has_text = matches!(first, b'+' | b'-' | b'(');
    let line_max = if has_text { limits.line_bytes_max } else { SHORT_LINE_BYTES_MAX };
    let Some(end) = line_end(bytes, (*scanned).max(1), line_max, has_text)? else {
        *scanned = bytes.len().saturating_sub(1);
        return Ok(None);
    };
    let rest = &bytes[1..end];
    let token = match first {
        b'+' | b'-' => Token::Scalar,
        b':' => number::integer(rest).map(|_| Token::Scalar)?,
        b'$' => match rest {
            b"-1" => Token::Scalar,
            b"?" => Token::StreamedString,
            digits => bulk(BulkKind::String, digits, limits)?,
        },
        b'!' => bulk(BulkKind::Error, rest, limits)?,
        b'=' => bulk(BulkKind::Verbatim, rest, limits)?,
        b'*' if rest == b"-1" => Token::Scalar,
        b'*' => aggregate(AggregateKind::Array, rest)?,
        b'~' => aggregate(AggregateKind::Set, rest)?,
        b'%' => aggregate(AggregateKind::Map, rest)?,
        b'>' => counted(AggregateKind::Push, rest)?,
        b'|' => counted(AggregateKind::Attribute, rest)?,
        b'_' if rest.is_empty() => Token::Scalar,
        b'#' if matches!(rest, b"t" | b"f") => Token::Scalar,
        b',' => number::double(rest).map(|_| Token::Scalar)?,
        b'(' if number::is_big_number(rest) => Token::Scalar,
        b'_' | b'#' | b'(' => return Err(RedisError::Scalar),
        b';' => Token::Chunk(checked_bulk(rest, limits.bulk_bytes_max)?),
        b'.' if rest.is_empty() => Token::StreamEnd,
        b'.' => return Err(RedisError::Stream),
        other => return Err(RedisError::Type(other)),
    };
    Ok(Some((token, end + 2)))
}

fn bulk(kind: BulkKind, digits: &[u8], limits: &ProtocolLimits) -> Result<Token, RedisError> {
    let length = checked_bulk(digits, limits.bulk_bytes_max)?;
    if kind == BulkKind::Verbatim && length < VERBATIM_BYTES_MIN {
        return Err(RedisError::Verbatim);
    }
    Ok(Token::Bulk(kind, length))
}

pub(crate) fn checked_bulk(digits: &[u8], bytes_max: u64) -> Result<u64, RedisError> {
    let length = number::length(digits)?;
    if length > bytes_max { Err(RedisError::BulkTooLong { bytes_max }) } else { Ok(length) }
}

fn aggregate(kind: AggregateKind, rest: &[u8]) -> Result<Token, RedisError> {
    if rest == b"?" { Ok(Token::StreamedAggregate(kind)) } else { counted(kind, rest) }
}

fn counted(kind: AggregateKind, digits: &[u8]) -> Result<Token, RedisError> {
    let values = number::length(digits)?.checked_mul(kind.values()).ok_or(RedisError::Length)?;
    Ok(Token::Aggregate(kind, values))
}

/// Where the line ends: the offset of its CR. `None` if it is not complete.
///
/// The line may have `line_max` bytes between its first byte and the CR, and is searched no further.
#[inline]
pub(crate) fn line_end(
    bytes: &[u8],
    from: usize,
    line_max: usize,
    has_text: bool,
) -> Result<Option<usize>, RedisError> {
    let end_max = line_max + 1;
    let window = &bytes[from.min(bytes.len())..bytes.len().min(end_max + 1)];
    let found = if has_text {
        memchr::memchr2(b'\r', b'\n', window)
    } else {
        window.iter().position(|&byte| byte == b'\r' || byte == b'\n')
    };
    match found {
        Some(at) if from + at > end_max => Err(too_long(line_max, has_text)),
        Some(at) => match (window[at], bytes.get(from + at + 1)) {
            (b'\r', Some(b'\n')) => Ok(Some(from + at)),
            (b'\r', None) => Ok(None),
            _ => Err(RedisError::LineEnd),
        },
        None if bytes.len() > end_max => Err(too_long(line_max, has_text)),
        None => Ok(None),
    }
}

const fn too_long(line_max: usize, has_text: bool) -> RedisError {
    if has_text { RedisError::LineTooLong { bytes_max: line_max } } else { RedisError::Length }
}

/// The longest line of a length, an integer, a double or a boolean. The longest double has 24 digits and signs; others
/// write more zeros.
pub(crate) const SHORT_LINE_BYTES_MAX: usize = 512;

/// The format of a verbatim string and its colon.
const VERBATIM_BYTES_MIN: u64 = 4;
