//! `Reply`: a whole value as a view of the received bytes; [`Value`] and [`Elements`] read it in place.
//!
//! The codec has checked the bytes with `token.rs` and `nesting.rs`, so reading them again finds no error. Where the bytes
//! are not as checked, the readers end early instead of panicking.

use std::fmt;

use tidegate_buffer::Slice;

use crate::number;
use crate::token::{AggregateKind, BulkKind};

/// A whole reply or push.
///
/// It is a view: it keeps the memory alive in which it was received, and stays on its loop.
/// [`OwnedValue`](crate::OwnedValue) is a copy as a tree.
#[derive(Clone)]
pub struct Reply {
    wire: Slice,
}

impl Reply {
    /// `wire` is one value that was checked.
    pub(crate) fn new(wire: Slice) -> Self {
        Self { wire }
    }

    /// The value.
    #[must_use]
    pub fn value(&self) -> Value<'_> {
        value_of(&self.wire)
    }

    /// The attributes in front of the value: keys and values in turn.
    #[must_use]
    pub fn attributes(&self) -> Option<Elements<'_>> {
        attributed(&self.wire).and_then(|(attributes, ..)| attributes)
    }

    /// The bytes as they were received: a proxy passes them on.
    #[must_use]
    pub fn wire(&self) -> &Slice {
        &self.wire
    }

    /// The same reply in memory that may be kept: see [`Slice::detach`].
    #[must_use]
    pub fn detach(self) -> Self {
        Self { wire: self.wire.detach() }
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(attributes) = self.attributes() {
            write!(f, "|{attributes:?} ")?;
        }
        self.value().fmt(f)
    }
}

/// A value, read in place.
#[derive(Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Value<'a> {
    /// No value: `_`, and in RESP2 a string or an array of the length -1.
    Null,
    /// A text of one line.
    Simple(&'a [u8]),
    /// An error of one line; its first word is its code.
    Error(&'a [u8]),
    /// An integer.
    Integer(i64),
    /// A double.
    Double(f64),
    /// A boolean.
    Boolean(bool),
    /// A whole number of any length, as its digits.
    BigNumber(&'a [u8]),
    /// Bytes.
    Bulk(&'a [u8]),
    /// An error that may have line breaks.
    BulkError(&'a [u8]),
    /// A text and its format, such as `txt` or `mkd`.
    Verbatim {
        /// Three bytes.
        format: &'a [u8],
        /// The text.
        text: &'a [u8],
    },
    /// A string in chunks.
    Streamed(Chunks<'a>),
    /// Values within this one.
    Aggregate(AggregateKind, Elements<'a>),
}

impl<'a> Value<'a> {
    /// The bytes of a text or bulk string in one piece; `None` for other types.
    #[must_use]
    pub fn bytes(&self) -> Option<&'a [u8]> {
        match *self {
            Self::Simple(bytes) | Self::Bulk(bytes) | Self::Verbatim { text: bytes, .. } => Some(bytes),
            _ => None,
        }
    }

    /// The text of an error of either type.
    #[must_use]
    pub fn error(&self) -> Option<&'a [u8]> {
        match *self {
            Self::Error(text) | Self::BulkError(text) => Some(text),
            _ => None,
        }
    }

    /// The values of an aggregate; those of a map are keys and values in turn.
    #[must_use]
    pub fn elements(&self) -> Option<Elements<'a>> {
        match *self {
            Self::Aggregate(_, elements) => Some(elements),
            _ => None,
        }
    }
}

impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quoted = |f: &mut fmt::Formatter<'_>, sign, bytes: &[u8]| write!(f, "{sign}\"{}\"", bytes.escape_ascii());
        match self {
            Self::Null => f.write_str("null"),
            Self::Simple(bytes) => quoted(f, "+", bytes),
            Self::Error(bytes) => quoted(f, "-", bytes),
            Self::Integer(number) => number.fmt(f),
            Self::Double(number) => number.fmt(f),
            Self::Boolean(value) => value.fmt(f),
            Self::BigNumber(bytes) => quoted(f, "(", bytes),
            Self::Bulk(bytes) => quoted(f, "", bytes),
            Self::BulkError(bytes) => quoted(f, "!", bytes),
            Self::Verbatim { format, text } => {
                quoted(f, "=", format)?;
                quoted(f, ":", text)
            }
            Self::Streamed(chunks) => write!(f, "$?{chunks:?}"),
            Self::Aggregate(kind, elements) => write!(f, "{}{elements:?}", char::from(kind.first_byte())),
        }
    }
}

/// The values of an aggregate, one after the other. Attributes of values are skipped, unless
/// [`next_attributed`](Self::next_attributed) is called.
#[derive(Clone, Copy, PartialEq)]
pub struct Elements<'a> {
    rest: &'a [u8],
    /// How many values follow; `None` up to an end.
    left: Option<u64>,
}

impl<'a> Elements<'a> {
    /// How many values follow, two for each entry of a map; `None` if the aggregate is streamed.
    #[must_use]
    pub const fn count_left(&self) -> Option<u64> {
        self.left
    }

    /// The next value with its attributes.
    pub fn next_attributed(&mut self) -> Option<(Option<Elements<'a>>, Value<'a>)> {
        match &mut self.left {
            Some(0) => return None,
            Some(left) => *left -= 1,
            None if self.rest.first() == Some(&b'.') => return None,
            None => {}
        }
        let found = attributed(self.rest);
        let (attributes, value, rest) = found.or_else(|| {
            self.left = Some(0);
            None
        })?;
        self.rest = rest;
        Some((attributes, value))
    }

    /// The bytes behind the last value and the end.
    fn end(mut self) -> Option<&'a [u8]> {
        while self.next_attributed().is_some() {}
        match self.left {
            Some(_) => Some(self.rest),
            None => self.rest.get(3..),
        }
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        self.next_attributed().map(|(_, value)| value)
    }
}

impl fmt::Debug for Elements<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(*self).finish()
    }
}

/// The chunks of a streamed string, one after the other.
#[derive(Clone, Copy, PartialEq)]
pub struct Chunks<'a> {
    rest: &'a [u8],
}

impl<'a> Chunks<'a> {
    fn end(mut self) -> Option<&'a [u8]> {
        while self.next().is_some() {}
        self.rest.get(4..)
    }
}

impl<'a> Iterator for Chunks<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (_, digits, after) = line(self.rest)?;
        let (chunk, rest) = counted(digits, after)?;
        if chunk.is_empty() {
            return None;
        }
        self.rest = rest;
        Some(chunk)
    }
}

impl fmt::Debug for Chunks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.map(|chunk| chunk.escape_ascii().to_string())).finish()
    }
}

/// The value of a whole reply, behind its attributes.
pub(crate) fn value_of(wire: &[u8]) -> Value<'_> {
    attributed(wire).map_or(Value::Null, |(_, value, _)| value)
}

/// The first value with its attributes, and the bytes behind it. Of several attributes the last one counts.
fn attributed(mut bytes: &[u8]) -> Option<(Option<Elements<'_>>, Value<'_>, &[u8])> {
    let mut attributes = None;
    loop {
        let (value, rest) = value(bytes)?;
        match value {
            Value::Aggregate(AggregateKind::Attribute, elements) => attributes = Some(elements),
            value => return Some((attributes, value, rest)),
        }
        bytes = rest;
    }
}

/// The first value, an attribute included, and the bytes behind it.
fn value(bytes: &[u8]) -> Option<(Value<'_>, &[u8])> {
    let (first, text, after) = line(bytes)?;
    let kind = match first {
        b'*' => AggregateKind::Array,
        b'~' => AggregateKind::Set,
        b'%' => AggregateKind::Map,
        b'>' => AggregateKind::Push,
        b'|' => AggregateKind::Attribute,
        b'$' | b'!' | b'=' => return string(first, text, after),
        _ => return scalar(first, text).map(|value| (value, after)),
    };
    if text == b"-1" {
        return Some((Value::Null, after));
    }
    let left = if text == b"?" { None } else { Some(number::length(text).ok()?.checked_mul(kind.values())?) };
    let elements = Elements { rest: after, left };
    Some((Value::Aggregate(kind, elements), elements.end()?))
}

fn string<'a>(first: u8, text: &'a [u8], after: &'a [u8]) -> Option<(Value<'a>, &'a [u8])> {
    match text {
        b"-1" => return Some((Value::Null, after)),
        b"?" => {
            let chunks = Chunks { rest: after };
            return Some((Value::Streamed(chunks), chunks.end()?));
        }
        _ => {}
    }
    let (bytes, rest) = counted(text, after)?;
    let value = match first {
        b'!' => Value::BulkError(bytes),
        b'=' => Value::Verbatim { format: bytes.get(..3)?, text: bytes.get(4..)? },
        _ => Value::Bulk(bytes),
    };
    Some((value, rest))
}

/// A value of one line.
pub(crate) fn scalar(first: u8, text: &[u8]) -> Option<Value<'_>> {
    Some(match first {
        b'+' => Value::Simple(text),
        b'-' => Value::Error(text),
        b':' => Value::Integer(number::integer(text).ok()?),
        b',' => Value::Double(number::double(text).ok()?),
        b'#' => Value::Boolean(text == b"t"),
        b'(' => Value::BigNumber(text),
        b'_' => Value::Null,
        _ => return None,
    })
}

/// The first byte of a line, the others up to its end, and the bytes behind it.
#[inline]
fn line(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let end = memchr::memchr(b'\r', bytes)?;
    Some((*bytes.first()?, bytes.get(1..end)?, bytes.get(end + 2..)?))
}

/// As many bytes as the digits announce, and those behind them and their CR LF.
#[inline]
fn counted<'a>(digits: &[u8], after: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let length = usize::try_from(number::length(digits).ok()?).ok()?;
    Some((after.get(..length)?, after.get(length.checked_add(2)?..)?))
}

/// The kind of a string that is no chunk.
pub(crate) const fn bulk_byte(kind: BulkKind) -> u8 {
    match kind {
        BulkKind::String => b'$',
        BulkKind::Error => b'!',
        BulkKind::Verbatim => b'=',
    }
}
