//! `ServerCodec`: commands from bytes, and replies as bytes.
//!
//! A command of usual size arrives whole, as a view. One that is longer than
//! [`whole_bytes_max`](ProtocolLimits::whole_bytes_max) arrives in pieces. Which of both depends on its bytes alone, not on
//! how the network splits them. Nothing is scanned twice: `WholeCommand` remembers the first argument that is not complete.

use std::sync::Arc;

use tidegate_buffer::{ReceiveHint, Slice};
use tidegate_codec::{Broadcast, Codec, CodecStatus, Input, Output, Step};

use crate::command::Command;
use crate::error::RedisError;
use crate::inline;
use crate::limits::ProtocolLimits;
use crate::number;
use crate::outgoing_reply::{OutgoingReply, ReplyEncoder, Version};
use crate::token::{self, SHORT_LINE_BYTES_MAX};

/// The codec of a server. It yields an [`IncomingCommand`] at a time, and takes an [`OutgoingReply`].
///
/// A command that breaks the protocol is answered with the error that Redis has for it, and the connection closes.
///
/// ```
/// use tidegate::redis::{IncomingCommand, ServerCodec};
/// use tidegate_testkit::CodecHarness;
///
/// let mut server = CodecHarness::new(ServerCodec::default());
/// let commands = server.decode(b"*2\r\n$3\r\nGET\r\n$5\r\nbrest\r\nPING\r\n")?;
/// let [IncomingCommand::Whole(get), IncomingCommand::Whole(ping)] = &commands[..] else { panic!("{commands:?}") };
/// assert_eq!((get.name(), get.argument(1), ping.count()), (&b"GET"[..], Some(&b"brest"[..]), 1));
/// # Ok::<(), tidegate::redis::RedisError>(())
/// ```
#[derive(Debug, Default)]
pub struct ServerCodec {
    limits: Arc<ProtocolLimits>,
    state: CommandState,
    encoder: ReplyEncoder,
    /// Pushes that came while a reply was under way: boxed to keep idle connections small.
    waiting: Option<Box<WaitingPushes>>,
}

/// Encoded pushes, in order.
#[derive(Debug, Default)]
struct WaitingPushes(Vec<Slice>);

/// A command of a client.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum IncomingCommand {
    /// A whole command.
    Whole(Command),
    /// A long command begins, with so many arguments, the name included.
    Begin(u32),
    /// An argument of the long command begins, of so many bytes.
    Argument(u64),
    /// Bytes of that argument.
    Data(Slice),
    /// The long command is complete.
    End,
}

#[derive(Debug, Clone, Copy, Default)]
enum CommandState {
    /// Between commands. No byte before `scanned` ends the line of an inline command.
    #[default]
    Start,
    Line {
        scanned: usize,
    },
    Whole(WholeCommand),
    /// So many arguments are not begun.
    Pieces {
        arguments_left: u32,
    },
    /// So many bytes of an argument are left, then CR LF, then so many arguments.
    Data {
        bytes_left: u64,
        arguments_left: u32,
    },
}

/// A command that is not complete.
#[derive(Debug, Clone, Copy)]
struct WholeCommand {
    count: u32,
    /// Arguments that are not complete.
    left: u32,
    /// Bytes of the head of the array.
    head: u32,
    /// Where the first argument that is not complete begins.
    at: u32,
    /// Where it ends, once its length is there.
    end: u32,
}

impl ServerCodec {
    /// A codec with these limits.
    #[must_use]
    pub fn new(limits: ProtocolLimits) -> Self {
        Self::shared(&Arc::new(limits))
    }

    /// A codec with limits that the connections of a server share.
    #[must_use]
    pub fn shared(limits: &Arc<ProtocolLimits>) -> Self {
        let effective = limits.effective();
        let limits = if effective == **limits { limits.clone() } else { Arc::new(effective) };
        Self { limits, state: CommandState::Start, encoder: ReplyEncoder::default(), waiting: None }
    }

    /// A codec that writes this version: for encoding a push once for many connections.
    #[must_use]
    pub fn with_version(mut self, version: Version) -> Self {
        self.encoder.version = version;
        self
    }

    /// The version that it writes.
    #[must_use]
    pub fn version(&self) -> Version {
        self.encoder.version
    }

    fn advance(&mut self, input: &mut Input) -> Result<Step<IncomingCommand>, RedisError> {
        loop {
            match self.state {
                CommandState::Start => match input.bytes().first() {
                    None => return Ok(Step::NeedMore),
                    Some(b'*') => {
                        let Some(command) = self.array_head(input)? else { return Ok(Step::NeedMore) };
                        if let Some(command) = command {
                            return self.whole(command, input);
                        }
                    }
                    Some(_) => self.state = CommandState::Line { scanned: 0 },
                },
                CommandState::Whole(command) => return self.whole(command, input),
                CommandState::Line { scanned } => match self.inline(scanned, input)? {
                    Some(Some(command)) => return Ok(Step::Message(IncomingCommand::Whole(command))),
                    Some(None) => {}
                    None => return Ok(Step::NeedMore),
                },
                CommandState::Pieces { arguments_left: 0 } => {
                    self.state = CommandState::Start;
                    return Ok(Step::Message(IncomingCommand::End));
                }
                CommandState::Pieces { arguments_left } => {
                    let Some((bytes, head)) = argument_head(input.bytes(), self.bulk_bytes_max())? else {
                        return Ok(Step::NeedMore);
                    };
                    input.consume(head);
                    self.state = CommandState::Data { bytes_left: bytes, arguments_left: arguments_left - 1 };
                    return Ok(Step::Message(IncomingCommand::Argument(bytes)));
                }
                CommandState::Data { bytes_left: 0, arguments_left } => {
                    let Some(end) = input.bytes().get(..2) else { return Ok(Step::NeedMore) };
                    checked_end(end)?;
                    input.consume(2);
                    self.state = CommandState::Pieces { arguments_left };
                }
                CommandState::Data { bytes_left, arguments_left } => {
                    let count = usize::try_from(bytes_left).unwrap_or(usize::MAX).min(input.len());
                    if count == 0 {
                        return Ok(Step::NeedMore);
                    }
                    self.state = CommandState::Data { bytes_left: bytes_left - count as u64, arguments_left };
                    return Ok(Step::Message(IncomingCommand::Data(input.take(count))));
                }
            }
        }
    }

    /// The longest argument at present.
    #[inline]
    fn bulk_bytes_max(&self) -> u64 {
        let bytes_max = self.limits.bulk_bytes_max;
        if self.encoder.is_restricted { bytes_max.min(RESTRICTED_BULK_BYTES_MAX) } else { bytes_max }
    }

    /// The head of a command; `Some(None)` for a command without arguments, which is none.
    fn array_head(&self, input: &mut Input) -> Result<Option<Option<WholeCommand>>, RedisError> {
        let bytes = input.bytes();
        let end = match bytes {
            [_, digit, b'\r', b'\n', ..] if digit.is_ascii_digit() => 2,
            bytes => match token::line_end(bytes, 1, SHORT_LINE_BYTES_MAX, false).map_err(arguments)? {
                Some(end) => end,
                None => return Ok(None),
            },
        };
        let count = match number::length(&bytes[1..end]) {
            Ok(count) => count,
            // Redis ignores a negative number as it ignores zero.
            Err(_) if number::plain_integer(&bytes[1..end]).is_some_and(i64::is_negative) => 0,
            Err(error) => return Err(arguments(error)),
        };
        let max = if self.encoder.is_restricted { RESTRICTED_ELEMENTS_MAX } else { u32::MAX.into() };
        let max = self.limits.elements_max.min(max);
        if count > max {
            return Err(RedisError::TooManyElements { max });
        }
        let (count, head) = (count as u32, end as u32 + 2);
        if count == 0 {
            input.consume(end + 2);
            return Ok(Some(None));
        }
        Ok(Some(Some(WholeCommand { count, left: count, head, at: head, end: 0 })))
    }

    fn whole(&mut self, mut command: WholeCommand, input: &mut Input) -> Result<Step<IncomingCommand>, RedisError> {
        let bytes = input.bytes();
        while command.left > 0 {
            if command.end == 0 {
                let Some((length, head)) = argument_head(&bytes[command.at as usize..], self.bulk_bytes_max())? else {
                    // The length of the next argument is short, so only arguments before it can have been too long.
                    self.state = CommandState::Whole(command);
                    return Ok(Step::NeedMore);
                };
                let end = u64::from(command.at) + head as u64 + length + 2;
                if end > self.limits.whole_bytes_max as u64 {
                    input.consume(command.head as usize);
                    self.state = CommandState::Pieces { arguments_left: command.count };
                    return Ok(Step::Message(IncomingCommand::Begin(command.count)));
                }
                command.end = end as u32;
            }
            let Some(end) = bytes.get(..command.end as usize) else {
                self.state = CommandState::Whole(command);
                return Ok(Step::NeedMore);
            };
            checked_end(&end[end.len() - 2..])?;
            (command.at, command.end, command.left) = (command.end, 0, command.left - 1);
        }
        self.state = CommandState::Start;
        input.consume(command.head as usize);
        let wire = input.take((command.at - command.head) as usize);
        Ok(Step::Message(IncomingCommand::Whole(Command::new(wire, command.count))))
    }

    /// An inline command; `Some(None)` for an empty line.
    fn inline(&mut self, scanned: usize, input: &mut Input) -> Result<Option<Option<Command>>, RedisError> {
        let (bytes, bytes_max) = (input.bytes(), self.limits.line_bytes_max);
        let found = memchr::memchr(b'\n', &bytes[scanned..]).map(|at| scanned + at);
        if found.unwrap_or(bytes.len()) > bytes_max {
            return Err(RedisError::LineTooLong { bytes_max });
        }
        let Some(end) = found else {
            self.state = CommandState::Line { scanned: bytes.len() };
            return Ok(None);
        };
        let line = &bytes[..end];
        let (mut wire, count) = inline::words(line.strip_suffix(b"\r").unwrap_or(line))?;
        self.state = CommandState::Start;
        input.consume(end + 1);
        if count == 0 {
            return Ok(Some(None));
        }
        wire.shrink_to_fit();
        Ok(Some(Some(Command::owned(wire.into(), count))))
    }

    /// Writes the pushes that waited for the end of a reply.
    #[cold]
    fn write_waiting(&mut self, out: &mut Output<'_>) {
        if !self.encoder.is_within() {
            let waiting = self.waiting.take().map_or_else(Vec::new, |waiting| waiting.0);
            waiting.into_iter().for_each(|bytes| out.link_shared(bytes));
        }
    }
}

impl Codec for ServerCodec {
    type In = IncomingCommand;
    type Out = OutgoingReply;
    type Error = RedisError;

    fn protocol(&self) -> &'static str {
        "Redis"
    }

    fn decode(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<IncomingCommand>, RedisError> {
        self.advance(input).inspect_err(|error| {
            if !self.encoder.is_within() {
                write_protocol_error(*error, self.encoder.is_restricted, reply);
            }
        })
    }

    #[inline]
    fn encode(&mut self, reply: OutgoingReply, out: &mut Output<'_>) -> Result<(), RedisError> {
        self.encoder.encode(reply, out)?;
        if self.waiting.is_some() {
            self.write_waiting(out);
        }
        Ok(())
    }

    fn decode_eof(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<IncomingCommand>, RedisError> {
        match self.decode(input, reply)? {
            Step::NeedMore if input.is_empty() && matches!(self.state, CommandState::Start) => Ok(Step::End),
            Step::NeedMore => Err(RedisError::Truncated),
            step => Ok(step),
        }
    }

    #[inline]
    fn status(&self) -> CodecStatus {
        let waiting = self.waiting.as_deref().map_or(0, |waiting| waiting.0.iter().map(|bytes| bytes.len()).sum());
        CodecStatus { buffered_bytes: waiting, ..CodecStatus::default() }
    }

    #[inline]
    fn bulk_bytes(&self) -> u64 {
        match self.state {
            CommandState::Data { bytes_left, .. } => bytes_left,
            _ => 0,
        }
    }

    fn receive_hint(&self) -> Option<ReceiveHint> {
        let missing = match self.state {
            CommandState::Data { bytes_left, .. } => bytes_left,
            CommandState::Whole(command) => command.end.saturating_sub(command.at).into(),
            _ => return None,
        };
        let missing_bytes = u32::try_from(missing).unwrap_or(u32::MAX);
        Some(ReceiveHint { missing_bytes, ..ReceiveHint::default() })
            .filter(|_| missing >= tidegate_buffer::BULK_RECEIVE_BYTES as u64)
    }
}

impl Broadcast for ServerCodec {
    /// A push waits while a reply is under way, so that it is never within one.
    fn write_encoded(&mut self, bytes: Slice, out: &mut Output<'_>) -> Result<(), RedisError> {
        if self.encoder.is_within() {
            self.waiting.get_or_insert_default().0.push(bytes);
        } else {
            out.link_shared(bytes);
        }
        Ok(())
    }
}

/// The length of an argument, and the bytes of its head.
#[inline]
fn argument_head(bytes: &[u8], bytes_max: u64) -> Result<Option<(u64, usize)>, RedisError> {
    let end = match bytes {
        // The usual lengths have one or two digits.
        [b'$', digit @ b'0'..=b'9', b'\r', b'\n', ..] => {
            return checked_length(u64::from(digit - b'0'), 4, bytes_max);
        }
        [b'$', ten @ b'1'..=b'9', one @ b'0'..=b'9', b'\r', b'\n', ..] => {
            return checked_length(u64::from(ten - b'0') * 10 + u64::from(one - b'0'), 5, bytes_max);
        }
        [b'$', ..] => match token::line_end(bytes, 1, SHORT_LINE_BYTES_MAX, false)? {
            Some(end) => end,
            None => return Ok(None),
        },
        [other, ..] => return Err(RedisError::ExpectedBulk(*other)),
        [] => return Ok(None),
    };
    Ok(Some((token::checked_bulk(&bytes[1..end], bytes_max)?, end + 2)))
}

#[inline]
fn checked_length(length: u64, head: usize, bytes_max: u64) -> Result<Option<(u64, usize)>, RedisError> {
    if length > bytes_max { Err(RedisError::BulkTooLong { bytes_max }) } else { Ok(Some((length, head))) }
}

#[inline]
pub(crate) fn checked_end(end: &[u8]) -> Result<(), RedisError> {
    if end == b"\r\n" { Ok(()) } else { Err(RedisError::BulkEnd) }
}

fn arguments(error: RedisError) -> RedisError {
    if error == RedisError::Length { RedisError::Arguments } else { error }
}

/// Arguments of a client that is not authenticated, as in Redis.
const RESTRICTED_ELEMENTS_MAX: u64 = 10;

/// Bytes of one of them.
const RESTRICTED_BULK_BYTES_MAX: u64 = 16 << 10;

/// Writes the error in the words of Redis.
fn write_protocol_error(error: RedisError, is_restricted: bool, reply: &mut Output<'_>) {
    reply.write(b"-ERR Protocol error: ");
    reply.write(match error {
        RedisError::TooManyElements { max: RESTRICTED_ELEMENTS_MAX } if is_restricted => {
            b"unauthenticated multibulk length"
        }
        RedisError::BulkTooLong { bytes_max: RESTRICTED_BULK_BYTES_MAX } if is_restricted => {
            b"unauthenticated bulk length"
        }
        RedisError::Arguments | RedisError::TooManyElements { .. } => b"invalid multibulk length",
        RedisError::Length | RedisError::BulkTooLong { .. } => b"invalid bulk length",
        RedisError::LineTooLong { .. } => b"too big inline request",
        RedisError::Quotes => b"unbalanced quotes in request",
        RedisError::ExpectedBulk(_) => b"expected '$', got '",
        _ => b"malformed request",
    });
    if let RedisError::ExpectedBulk(byte) = error {
        reply.write(&[if byte.is_ascii_control() { b' ' } else { byte }, b'\'']);
    }
    reply.write(b"\r\n");
}

const _: () = assert!(size_of::<ServerCodec>() <= 64);
