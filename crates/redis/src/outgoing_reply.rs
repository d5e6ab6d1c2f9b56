//! `OutgoingReply`: a server's messages, checked and then written.
//!
//! A reply is one message, or several: the head of an aggregate, then its values. The encoder knows how many values are
//! still to come, so a reply that is torn, too long or interrupted by a push is an error of the caller. In RESP2, types that
//! it lacks are written as Redis writes them.

use std::num::NonZeroU64;

use tidegate_buffer::LINK_BYTES_MIN;
use tidegate_codec::Output;
use tidegate_codec::framing::Payload;

use crate::error::RedisError;
use crate::limits::ProtocolLimits;
use crate::nesting::Nesting;
use crate::number::{double_text, is_big_number};
use crate::token::{AggregateKind, BulkKind, Token};
use crate::value::bulk_byte;

/// The version of the protocol that a server writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Version {
    /// RESP2: the version of a new connection.
    #[default]
    Resp2,
    /// RESP3, after `HELLO 3`.
    Resp3,
}

/// A part of a reply, or a whole one.
///
/// ```
/// use tidegate::redis::{OutgoingReply, ServerCodec, Version};
/// use tidegate_testkit::CodecHarness;
///
/// let mut server = CodecHarness::new(ServerCodec::default());
/// server.encode(OutgoingReply::array([OutgoingReply::Integer(412), OutgoingReply::Null]))?;
/// server.flush()?;
/// assert_eq!(server.take_sent(), b"*2\r\n:412\r\n$-1\r\n");
/// # Ok::<(), tidegate::redis::RedisError>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum OutgoingReply {
    /// A text of one line. A CR or LF in it is an error.
    Simple(Payload),
    /// An error of one line; its first word is its code. A CR or LF in it is an error.
    Error(Payload),
    /// An integer.
    Integer(i64),
    /// A double; in RESP2 a bulk string.
    Double(f64),
    /// A boolean; in RESP2 the integer 1 or 0.
    Boolean(bool),
    /// No value; in RESP2 the null of a bulk string.
    Null,
    /// No array; in RESP3 the same as [`Null`](Self::Null).
    NullArray,
    /// A whole number of any length, as its digits; in RESP2 a bulk string.
    BigNumber(Payload),
    /// Bytes.
    Bulk(Payload),
    /// An error that may have line breaks; in RESP2 an error of one line.
    BulkError(Payload),
    /// A format of three bytes and a text; in RESP2 a bulk string of the text.
    Verbatim([u8; 3], Payload),
    /// The head of an aggregate with so many entries, whose values follow: two for each entry of a map. In RESP2 an array;
    /// an attribute is an error there.
    Aggregate(AggregateKind, u64),
    /// The head of an array, a set or a map whose values follow up to a [`StreamEnd`](Self::StreamEnd); RESP3 only.
    StreamedAggregate(AggregateKind),
    /// The end of a streamed aggregate.
    StreamEnd,
    /// The head of a bulk string of so many bytes, which follow as [`Data`](Self::Data).
    BulkHead(u64),
    /// Bytes of the bulk string whose head was sent last.
    Data(Payload),
    /// The head of a string of unknown length, whose chunks follow up to a [`ChunksEnd`](Self::ChunksEnd); RESP3 only.
    StreamedBulk,
    /// A chunk of the streamed string; nothing is written for an empty one.
    Chunk(Payload),
    /// The end of the streamed string.
    ChunksEnd,
    /// Bytes as they are on the wire, unchecked, for a proxy: of a whole reply in the version of the connection, or the next
    /// part of one whose rest follows before anything else.
    Wire(Payload),
    /// Whole replies and pushes, without [`Data`](Self::Data), written together or, if one of them is wrong, not at all.
    All(Vec<OutgoingReply>),
    /// Nothing is written; later replies have this version.
    Version(Version),
    /// Nothing is written; whether later commands have the limits of a client that is not authenticated, as in Redis: 10
    /// arguments, each of at most 16 KiB.
    Restricted(bool),
}

impl OutgoingReply {
    /// `+OK`.
    #[must_use]
    pub fn ok() -> Self {
        Self::Simple(Payload::from("OK"))
    }

    /// An error of one line.
    pub fn error(text: impl Into<Payload>) -> Self {
        Self::Error(text.into())
    }

    /// A bulk string.
    pub fn bulk(bytes: impl Into<Payload>) -> Self {
        Self::Bulk(bytes.into())
    }

    /// A whole array, of scalars and strings.
    #[must_use]
    pub fn array(values: impl IntoIterator<Item = Self>) -> Self {
        Self::aggregate(AggregateKind::Array, values)
    }

    /// The bytes that it keeps in memory, roughly.
    #[cfg(feature = "server")]
    pub(crate) fn memory(&self) -> usize {
        let payload = match self {
            Self::Simple(bytes)
            | Self::Error(bytes)
            | Self::BigNumber(bytes)
            | Self::Bulk(bytes)
            | Self::BulkError(bytes)
            | Self::Verbatim(_, bytes)
            | Self::Data(bytes)
            | Self::Chunk(bytes)
            | Self::Wire(bytes) => bytes.as_ref().len(),
            Self::All(parts) => parts.iter().map(Self::memory).sum(),
            _ => 0,
        };
        size_of::<Self>() + payload
    }

    /// A whole aggregate, of scalars and strings; the values of a map are keys and values in turn.
    #[must_use]
    pub fn aggregate(kind: AggregateKind, values: impl IntoIterator<Item = Self>) -> Self {
        let mut all = vec![Self::Null];
        all.extend(values);
        all[0] = Self::Aggregate(kind, (all.len() as u64 - 1) / kind.values());
        Self::All(all)
    }
}

/// The state of the outbound half of a server.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReplyEncoder {
    /// The reply that is under way, of those that are sent in several messages: boxed to keep idle connections small.
    open: Option<Box<PartialReply>>,
    pub(crate) version: Version,
    /// Commands have the limits of a client that is not authenticated.
    pub(crate) is_restricted: bool,
}

/// A reply that is not complete.
#[derive(Debug, Clone, Default)]
struct PartialReply {
    nesting: Nesting,
    /// Bytes that are missing from the string whose head was written.
    data_left: Option<NonZeroU64>,
}

impl PartialReply {
    fn is_partial(&self) -> bool {
        self.data_left.is_some() || self.nesting.is_open()
    }
}

impl ReplyEncoder {
    /// Whether a reply is under way: a push has to wait.
    pub(crate) fn is_within(&self) -> bool {
        self.open.is_some()
    }

    #[inline]
    pub(crate) fn encode(&mut self, message: OutgoingReply, out: &mut Output<'_>) -> Result<(), RedisError> {
        match message {
            OutgoingReply::All(messages) => return self.encode_all(messages, out),
            OutgoingReply::Data(bytes) => return self.encode_data(bytes, out),
            _ if self.open.as_deref().is_some_and(|open| open.data_left.is_some()) => return Err(RedisError::NotDue),
            OutgoingReply::Version(_) if self.open.is_some() => return Err(RedisError::NotDue),
            // Always whole and always right: the usual replies.
            OutgoingReply::Bulk(_)
            | OutgoingReply::Integer(_)
            | OutgoingReply::Double(_)
            | OutgoingReply::Boolean(_)
            | OutgoingReply::Null
            | OutgoingReply::NullArray
            | OutgoingReply::Verbatim(..)
            | OutgoingReply::Wire(_)
            | OutgoingReply::Restricted(_)
                if self.open.is_none() => {}
            OutgoingReply::Simple(ref text) | OutgoingReply::Error(ref text) if self.open.is_none() => {
                checked_line(text.as_ref())?;
            }
            _ => {
                let mut open = self.open.as_deref().cloned().unwrap_or_default();
                check(&message, self.version, &mut open.nesting)?;
                if let OutgoingReply::BulkHead(bytes) = message {
                    open.data_left = NonZeroU64::new(bytes);
                }
                self.open = open.is_partial().then(|| Box::new(open));
            }
        }
        self.write(message, out);
        Ok(())
    }

    /// Checks all messages first, so that either all are written or none.
    fn encode_all(&mut self, messages: Vec<OutgoingReply>, out: &mut Output<'_>) -> Result<(), RedisError> {
        if self.is_within() {
            return Err(RedisError::NotDue);
        }
        let (mut nesting, mut version) = (Nesting::default(), self.version);
        for message in &messages {
            match message {
                OutgoingReply::All(_) | OutgoingReply::BulkHead(_) => return Err(RedisError::NotDue),
                message => check(message, version, &mut nesting)?,
            }
            if let OutgoingReply::Version(next) = message {
                version = *next;
            }
        }
        if nesting.is_open() {
            return Err(RedisError::Incomplete);
        }
        for message in messages {
            self.write(message, out);
        }
        Ok(())
    }

    fn encode_data(&mut self, bytes: Payload, out: &mut Output<'_>) -> Result<(), RedisError> {
        let open = self.open.as_deref_mut().ok_or(RedisError::NotDue)?;
        let left = open.data_left.ok_or(RedisError::NotDue)?.get();
        let left = left.checked_sub(bytes.as_ref().len() as u64).ok_or(RedisError::NotDue)?;
        open.data_left = NonZeroU64::new(left);
        if !open.is_partial() {
            self.open = None;
        }
        write_payload(bytes, out);
        if left == 0 {
            out.write(b"\r\n");
        }
        Ok(())
    }

    /// Writes a message that was checked.
    #[inline]
    fn write(&mut self, message: OutgoingReply, out: &mut Output<'_>) {
        let is_resp3 = self.version == Version::Resp3;
        match message {
            OutgoingReply::Simple(text) => line(b'+', text, out),
            OutgoingReply::Error(text) => line(b'-', text, out),
            OutgoingReply::BulkError(text) if !is_resp3 => line(b'-', text, out),
            OutgoingReply::Integer(number) => out.write_pieces((":", itoa::Buffer::new().format(number), "\r\n")),
            OutgoingReply::Double(number) if is_resp3 => out.write_pieces((",", &*double_text(number), "\r\n")),
            OutgoingReply::Double(number) => bulk(b'$', &[], double_text(number).into(), out),
            OutgoingReply::Boolean(value) => out.write(match (is_resp3, value) {
                (true, true) => b"#t\r\n",
                (true, false) => b"#f\r\n",
                (false, true) => b":1\r\n",
                (false, false) => b":0\r\n",
            }),
            OutgoingReply::Null | OutgoingReply::NullArray if is_resp3 => out.write(b"_\r\n"),
            OutgoingReply::Null => out.write(b"$-1\r\n"),
            OutgoingReply::NullArray => out.write(b"*-1\r\n"),
            OutgoingReply::BigNumber(digits) if is_resp3 => line(b'(', digits, out),
            OutgoingReply::Bulk(bytes) | OutgoingReply::BigNumber(bytes) => bulk(b'$', &[], bytes, out),
            OutgoingReply::BulkError(text) => bulk(bulk_byte(BulkKind::Error), &[], text, out),
            OutgoingReply::Verbatim([a, b, c], text) if is_resp3 => {
                bulk(bulk_byte(BulkKind::Verbatim), &[a, b, c, b':'], text, out);
            }
            OutgoingReply::Verbatim(_, text) => bulk(b'$', &[], text, out),
            OutgoingReply::Aggregate(kind, entries) if is_resp3 => head(kind.first_byte(), entries, out),
            OutgoingReply::Aggregate(kind, entries) => head(b'*', entries * kind.values(), out),
            OutgoingReply::StreamedAggregate(kind) => out.write(&[kind.first_byte(), b'?', b'\r', b'\n']),
            OutgoingReply::StreamEnd => out.write(b".\r\n"),
            OutgoingReply::BulkHead(0) => out.write(b"$0\r\n\r\n"),
            OutgoingReply::BulkHead(bytes) => head(b'$', bytes, out),
            OutgoingReply::StreamedBulk => out.write(b"$?\r\n"),
            OutgoingReply::Chunk(bytes) if bytes.as_ref().is_empty() => {}
            OutgoingReply::Chunk(bytes) => bulk(b';', &[], bytes, out),
            OutgoingReply::ChunksEnd => out.write(b";0\r\n"),
            OutgoingReply::Wire(bytes) if bytes.as_ref().len() < LINK_BYTES_MIN => out.write(bytes.as_ref()),
            OutgoingReply::Wire(bytes) => write_payload(bytes, out),
            OutgoingReply::Version(version) => self.version = version,
            OutgoingReply::Restricted(is_restricted) => self.is_restricted = is_restricted,
            // `encode` has them written.
            OutgoingReply::All(_) | OutgoingReply::Data(_) => {}
        }
    }
}

/// Whether the message is due and can be expressed; if so, moves the nesting behind it.
fn check(message: &OutgoingReply, version: Version, nesting: &mut Nesting) -> Result<(), RedisError> {
    let is_resp3 = version == Version::Resp3;
    let token = match message {
        OutgoingReply::Simple(text) | OutgoingReply::Error(text) => {
            checked_line(text.as_ref())?;
            Token::Scalar
        }
        OutgoingReply::BulkError(text) if !is_resp3 => {
            checked_line(text.as_ref())?;
            Token::Scalar
        }
        OutgoingReply::BigNumber(digits) if !is_big_number(digits.as_ref()) => return Err(RedisError::BigNumber),
        OutgoingReply::Aggregate(AggregateKind::Attribute, _)
        | OutgoingReply::StreamedAggregate(_)
        | OutgoingReply::StreamedBulk
            if !is_resp3 =>
        {
            return Err(RedisError::Resp3Only);
        }
        OutgoingReply::Aggregate(kind, entries) => {
            Token::Aggregate(*kind, entries.checked_mul(kind.values()).ok_or(RedisError::NotDue)?)
        }
        OutgoingReply::StreamedAggregate(AggregateKind::Push | AggregateKind::Attribute) => {
            return Err(RedisError::NotDue);
        }
        OutgoingReply::StreamedAggregate(kind) => Token::StreamedAggregate(*kind),
        OutgoingReply::StreamedBulk => Token::StreamedString,
        OutgoingReply::Chunk(bytes) if bytes.as_ref().is_empty() && nesting.is_text() => return Ok(()),
        OutgoingReply::Chunk(bytes) if bytes.as_ref().is_empty() => return Err(RedisError::NotDue),
        OutgoingReply::Chunk(bytes) => Token::Chunk(bytes.as_ref().len() as u64),
        OutgoingReply::ChunksEnd => Token::Chunk(0),
        OutgoingReply::StreamEnd => Token::StreamEnd,
        OutgoingReply::Version(_) | OutgoingReply::Restricted(_) => return Ok(()),
        OutgoingReply::Data(_) | OutgoingReply::All(_) | OutgoingReply::Wire(_) => return Err(RedisError::NotDue),
        _ => Token::Scalar,
    };
    nesting.advance(token, &UNLIMITED).map(drop).map_err(caller)
}

fn checked_line(text: &[u8]) -> Result<(), RedisError> {
    if memchr::memchr2(b'\r', b'\n', text).is_none() { Ok(()) } else { Err(RedisError::LineBreak) }
}

/// The error of a caller for that of a peer.
fn caller(error: RedisError) -> RedisError {
    match error {
        RedisError::TooDeep { .. } | RedisError::TooManyElements { .. } | RedisError::BulkTooLong { .. } => error,
        _ => RedisError::NotDue,
    }
}

fn line(first: u8, text: Payload, out: &mut Output<'_>) {
    if text.as_ref().len() < LINK_BYTES_MIN {
        out.write_pieces((&[first], text.as_ref(), "\r\n"));
    } else {
        out.write(&[first]);
        write_payload(text, out);
        out.write(b"\r\n");
    }
}

pub(crate) fn head(first: u8, count: u64, out: &mut Output<'_>) {
    out.write_pieces((&[first], itoa::Buffer::new().format(count), "\r\n"));
}

/// A string with its length; `format` is a part of its bytes.
#[inline]
pub(crate) fn bulk(first: u8, format: &[u8], bytes: Payload, out: &mut Output<'_>) {
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(format.len() + bytes.as_ref().len());
    if bytes.as_ref().len() < LINK_BYTES_MIN {
        out.write_pieces((&[first], digits, "\r\n", format, bytes.as_ref(), "\r\n"));
    } else {
        out.write_pieces((&[first], digits, "\r\n", format));
        write_payload(bytes, out);
        out.write(b"\r\n");
    }
}

pub(crate) fn write_payload(bytes: Payload, out: &mut Output<'_>) {
    match bytes {
        Payload::Slice(slice) => out.link(slice),
        Payload::Bytes(bytes) | Payload::Encoded(bytes) => out.link_bytes(bytes),
    }
}

/// The application has its own bounds for its replies. Only the depth is bounded, since peers have a bound for it.
const UNLIMITED: ProtocolLimits = ProtocolLimits {
    bulk_bytes_max: u64::MAX,
    elements_max: u64::MAX,
    depth_max: ProtocolLimits::DEPTH_MAX,
    line_bytes_max: usize::MAX,
    whole_bytes_max: usize::MAX,
};
