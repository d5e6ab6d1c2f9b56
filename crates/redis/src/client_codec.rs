//! `ClientCodec`: replies and pushes from bytes, and commands as bytes.
//!
//! A reply of usual size arrives whole, as a view. One that is longer than
//! [`whole_bytes_max`](ProtocolLimits::whole_bytes_max) arrives in pieces. Which of both depends on its bytes alone. The
//! codec does not know which command a reply answers: a client on top of it does.

use tidegate_buffer::{ReceiveHint, Slice};
use tidegate_codec::{Codec, Input, Output, Step};

use crate::error::RedisError;
use crate::limits::ProtocolLimits;
use crate::nesting::Nesting;
use crate::outgoing_command::{CommandEncoder, OutgoingCommand};
use crate::server_codec::checked_end;
use crate::token::{self, AggregateKind, BulkKind, Token};
use crate::value::Reply;

/// The codec of a client. It yields an [`IncomingReply`] at a time, and takes an [`OutgoingCommand`].
///
/// ```
/// use tidegate::redis::{ClientCodec, IncomingReply, Value};
/// use tidegate_testkit::CodecHarness;
///
/// let mut client = CodecHarness::new(ClientCodec::default());
/// let replies = client.decode(b"*2\r\n:412\r\n$5\r\nbrest\r\n")?;
/// let [IncomingReply::Reply(reply)] = &replies[..] else { panic!("{replies:?}") };
/// let values: Vec<_> = reply.value().elements().into_iter().flatten().collect();
/// assert_eq!(values, [Value::Integer(412), Value::Bulk(b"brest")]);
/// # Ok::<(), tidegate::redis::RedisError>(())
/// ```
#[derive(Debug, Default)]
pub struct ClientCodec {
    limits: ProtocolLimits,
    mode: ReplyMode,
    nesting: Nesting,
    encoder: CommandEncoder,
}

/// A reply of a server, or a push.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum IncomingReply {
    /// A whole reply.
    Reply(Reply),
    /// A whole push, which answers no command.
    Push(Reply),
    /// A part of a long reply or push. The parts of one value follow each other up to [`ReplyPiece::End`].
    Piece(ReplyPiece),
}

/// A part of a long reply.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ReplyPiece {
    /// A whole value of one line.
    Scalar(Reply),
    /// An aggregate begins; so many values follow, two for each entry of a map, or values up to an
    /// [`AggregateEnd`](Self::AggregateEnd). The first part shows whether this is a push.
    Aggregate(AggregateKind, Option<u64>),
    /// A streamed aggregate ends.
    AggregateEnd,
    /// A string begins, of so many bytes, or of unknown length. A verbatim string has its format and a colon in front.
    Bulk(BulkKind, Option<u64>),
    /// Bytes of that string.
    Data(Slice),
    /// That string ends.
    BulkEnd,
    /// The whole reply or push has ended.
    End,
}

#[derive(Debug, Clone, Copy)]
enum ReplyMode {
    /// A value is scanned until it is whole: up to `at`, and the line there up to `scanned`.
    Whole { at: usize, scanned: usize, is_push: bool },
    /// Parts are yielded; the line at hand is scanned up to here.
    Pieces { scanned: usize },
    /// Bytes of a string follow, then CR LF; `ends` if the reply ends with them, `is_chunk` if a chunk does.
    Data { left: u64, ends: bool, is_chunk: bool },
    /// A string has ended, and with it the reply if `ends`.
    StringEnd { ends: bool },
    /// The reply has ended.
    End,
}

impl Default for ReplyMode {
    fn default() -> Self {
        Self::Whole { at: 0, scanned: 0, is_push: false }
    }
}

impl ClientCodec {
    /// A codec with these limits.
    #[must_use]
    pub fn new(limits: ProtocolLimits) -> Self {
        Self { limits: limits.effective(), ..Self::default() }
    }

    /// Scans a value. Returns `None` if it is too long to be whole.
    fn whole(&mut self, input: &mut Input) -> Result<Option<Step<IncomingReply>>, RedisError> {
        let ReplyMode::Whole { mut at, mut scanned, mut is_push } = self.mode else { return Ok(None) };
        let bytes = input.bytes();
        let is_complete = loop {
            let Some((token, head)) = token::token(&bytes[at..], &self.limits, &mut scanned)? else { break false };
            let string = string_bytes(token);
            let end = (at as u64) + (head as u64) + string.map_or(0, |bytes| bytes + 2);
            // A line is whole in any case: one value of one line is never in pieces.
            if end > self.limits.whole_bytes_max as u64 && (at > 0 || string.is_some()) {
                return Ok(None);
            }
            let end = end as usize;
            if string.is_some() {
                let Some(tail) = bytes.get(..end) else { break false };
                checked_end(&tail[end - 2..])?;
            }
            is_push |= at == 0 && matches!(token, Token::Aggregate(AggregateKind::Push, _));
            let is_complete = self.nesting.advance(token, &self.limits)?;
            (at, scanned) = (end, 0);
            if is_complete {
                break true;
            }
        };
        if !is_complete {
            self.mode = ReplyMode::Whole { at, scanned, is_push };
            return Ok(Some(Step::NeedMore));
        }
        self.mode = ReplyMode::default();
        let reply = Reply::new(input.take(at));
        Ok(Some(Step::Message(if is_push { IncomingReply::Push(reply) } else { IncomingReply::Reply(reply) })))
    }

    fn piece(&mut self, input: &mut Input) -> Result<Step<ReplyPiece>, RedisError> {
        loop {
            match self.mode {
                ReplyMode::Whole { .. } => return Ok(Step::NeedMore),
                ReplyMode::Pieces { mut scanned } => {
                    let Some((token, head)) = token::token(input.bytes(), &self.limits, &mut scanned)? else {
                        self.mode = ReplyMode::Pieces { scanned };
                        return Ok(Step::NeedMore);
                    };
                    if let Some(piece) = self.begin_piece(token, head, input)? {
                        return Ok(Step::Message(piece));
                    }
                }
                ReplyMode::Data { left: 0, ends, is_chunk } => {
                    let Some(end) = input.bytes().get(..2) else { return Ok(Step::NeedMore) };
                    checked_end(end)?;
                    input.consume(2);
                    self.mode = if is_chunk { ReplyMode::Pieces { scanned: 0 } } else { ReplyMode::StringEnd { ends } };
                }
                ReplyMode::Data { left, ends, is_chunk } => {
                    let count = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
                    if count == 0 {
                        return Ok(Step::NeedMore);
                    }
                    self.mode = ReplyMode::Data { left: left - count as u64, ends, is_chunk };
                    return Ok(Step::Message(ReplyPiece::Data(input.take(count))));
                }
                ReplyMode::StringEnd { ends } => {
                    self.mode = if ends { ReplyMode::End } else { ReplyMode::Pieces { scanned: 0 } };
                    return Ok(Step::Message(ReplyPiece::BulkEnd));
                }
                ReplyMode::End => {
                    self.mode = ReplyMode::default();
                    return Ok(Step::Message(ReplyPiece::End));
                }
            }
        }
    }

    /// The part that begins with a token; `None` for a chunk, whose bytes are the parts.
    fn begin_piece(&mut self, token: Token, head: usize, input: &mut Input) -> Result<Option<ReplyPiece>, RedisError> {
        let ends = self.nesting.advance(token, &self.limits)?;
        self.mode = if ends { ReplyMode::End } else { ReplyMode::Pieces { scanned: 0 } };
        if token == Token::Scalar {
            return Ok(Some(ReplyPiece::Scalar(Reply::new(input.take(head)))));
        }
        input.consume(head);
        Ok(match token {
            Token::Bulk(kind, left) => {
                self.mode = ReplyMode::Data { left, ends, is_chunk: false };
                Some(ReplyPiece::Bulk(kind, Some(left)))
            }
            Token::StreamedString => Some(ReplyPiece::Bulk(BulkKind::String, None)),
            Token::Chunk(0) => Some(ReplyPiece::BulkEnd),
            Token::Chunk(left) => {
                self.mode = ReplyMode::Data { left, ends: false, is_chunk: true };
                None
            }
            Token::Aggregate(kind, values) => Some(ReplyPiece::Aggregate(kind, Some(values))),
            Token::StreamedAggregate(kind) => Some(ReplyPiece::Aggregate(kind, None)),
            Token::StreamEnd => Some(ReplyPiece::AggregateEnd),
            Token::Scalar => None,
        })
    }
}

impl Codec for ClientCodec {
    type In = IncomingReply;
    type Out = OutgoingCommand;
    type Error = RedisError;

    fn protocol(&self) -> &'static str {
        "Redis"
    }

    fn decode(&mut self, input: &mut Input, _: &mut Output<'_>) -> Result<Step<IncomingReply>, RedisError> {
        if let ReplyMode::Whole { .. } = self.mode {
            if let Some(step) = self.whole(input)? {
                return Ok(step);
            }
            self.nesting.clear();
            self.mode = ReplyMode::Pieces { scanned: 0 };
        }
        Ok(match self.piece(input)? {
            Step::Message(piece) => Step::Message(IncomingReply::Piece(piece)),
            Step::NeedMore | Step::End => Step::NeedMore,
        })
    }

    fn encode(&mut self, command: OutgoingCommand, out: &mut Output<'_>) -> Result<(), RedisError> {
        self.encoder.encode(command, out)
    }

    fn decode_eof(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<IncomingReply>, RedisError> {
        match self.decode(input, reply)? {
            Step::NeedMore if input.is_empty() && matches!(self.mode, ReplyMode::Whole { .. }) => Ok(Step::End),
            Step::NeedMore => Err(RedisError::Truncated),
            step => Ok(step),
        }
    }

    fn bulk_bytes(&self) -> u64 {
        match self.mode {
            ReplyMode::Data { left, .. } => left,
            _ => 0,
        }
    }

    fn receive_hint(&self) -> Option<ReceiveHint> {
        let missing_bytes = u32::try_from(self.bulk_bytes()).unwrap_or(u32::MAX);
        Some(ReceiveHint { missing_bytes, ..ReceiveHint::default() })
            .filter(|hint| hint.missing_bytes as usize >= tidegate_buffer::BULK_RECEIVE_BYTES)
    }
}

/// The bytes behind the line of a token.
const fn string_bytes(token: Token) -> Option<u64> {
    match token {
        Token::Bulk(_, bytes) => Some(bytes),
        Token::Chunk(0) => None,
        Token::Chunk(bytes) => Some(bytes),
        _ => None,
    }
}
