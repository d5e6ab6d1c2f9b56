//! `CommandCodec`: the codec of a load of Redis commands. It opens the connection, sends batches of commands that are
//! drawn by weight, and judges every reply.
//!
//! A connection that subscribes sends none: it counts the messages that are delivered to it.

use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use tidegate::codec::{Blame, Codec, CodecStatus, Fault, Input, Lifecycle, Output, Step};
use tidegate::redis::{
    AggregateKind, BulkKind, ClientCodec, CommandBuffer, IncomingReply, ProtocolLimits, RedisError, ReplyPiece, Value,
};

use super::mix::KeyRandom;
use super::plan::{CommandPlan, PublishPlan};
use super::startup::{self, StartupPhase};
use crate::counters::Verdict;
use crate::pipeline::{Batch, Exchange, Responses};
use crate::role::Role;
use crate::stamp;

/// The codec of a load of Redis commands, on one connection.
#[derive(Debug)]
pub(crate) struct CommandCodec {
    exchange: Rc<Exchange>,
    plan: Arc<CommandPlan>,
    codec: ClientCodec,
    /// The startup command whose reply is awaited; `None` once the connection is open.
    phase: Option<StartupPhase>,
    subscribes: bool,
    random: KeyRandom,
    /// The places of the commands whose replies are outstanding.
    in_flight: VecDeque<u8>,
    /// The kind of the long reply of which pieces arrive.
    long: Option<ReplyKind>,
    /// The batch that is written.
    bytes: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReplyKind {
    Value,
    Null,
    Error,
    Push,
}

impl CommandCodec {
    pub(crate) fn new(exchange: Rc<Exchange>, plan: Arc<CommandPlan>, role: Role) -> Self {
        let subscribes = role == Role::Listener;
        let message_bytes = plan.publish.as_ref().map_or(0, |publish| publish.message_bytes);
        let mut limits = ProtocolLimits::default();
        // A message has to arrive whole, since its time is within.
        limits.whole_bytes_max = limits.whole_bytes_max.max(message_bytes + WITH_MESSAGE_BYTES_MAX);
        let random = KeyRandom::new(exchange.next_connection());
        Self {
            exchange,
            plan,
            codec: ClientCodec::new(limits),
            phase: Some(StartupPhase::Hello),
            subscribes,
            random,
            in_flight: VecDeque::new(),
            long: None,
            bytes: Vec::new(),
        }
    }

    fn write_commands(&mut self, count: u32, out: &mut Output<'_>) -> Result<(), CommandError> {
        if let Some(publish) = &self.plan.publish {
            for _ in 0..count {
                let message = stamped(&self.exchange, publish);
                let command = CommandBuffer::new("PUBLISH").arg(&publish.channel).shared_arg(message.into());
                self.codec.encode(command.into(), out)?;
                self.in_flight.push_back(0);
            }
            return Ok(());
        }
        for _ in 0..count {
            let index = self.plan.mix.write(&mut self.random, &mut self.bytes);
            self.in_flight.push_back(u8::try_from(index).unwrap_or(u8::MAX));
        }
        if self.bytes.len() < COPIED_BYTES_MAX {
            out.write(&self.bytes);
            self.bytes.clear();
        } else {
            out.link_bytes(std::mem::take(&mut self.bytes).into());
        }
        Ok(())
    }

    /// A reply to a startup command. Returns whether the connection is open.
    fn continue_startup(
        &mut self,
        phase: StartupPhase,
        reply: Value<'_>,
        out: &mut Output<'_>,
    ) -> Result<bool, CommandError> {
        if phase == StartupPhase::Hello {
            let mut counts = self.exchange.redis.borrow_mut();
            match reply.error() {
                None => counts.resp3 += 1,
                Some(text) if startup::is_unknown(text) => counts.resp2 += 1,
                Some(_) => {}
            }
        }
        match self.plan.next_phase(phase, reply, self.subscribes) {
            Ok(Some((phase, command))) => {
                self.phase = Some(phase);
                self.codec.encode(command.into(), out)?;
                Ok(false)
            }
            Ok(None) => {
                self.phase = None;
                Ok(true)
            }
            Err(text) => {
                self.exchange.stats.bad(Verdict::Reply, 1);
                self.exchange.redis.borrow_mut().errors.count(text);
                Err(CommandError::Refused)
            }
        }
    }

    /// Counts a message that is delivered to a subscriber.
    fn deliver(&self, value: Value<'_>) {
        let mut elements = value.elements().into_iter().flatten();
        if elements.next().and_then(|kind| kind.bytes()) != Some(b"message") {
            return;
        }
        let Some((author, sent)) = elements.nth(1).and_then(|payload| stamp::find(payload.bytes()?)) else { return };
        // Another load may publish on the channel.
        if author == self.exchange.author() {
            let stats = &self.exchange.stats;
            stats.count_responses(1, 1, stats.since_epoch().saturating_sub(sent));
        }
    }

    /// Counts the reply to the oldest command in flight.
    fn count_reply(&mut self, kind: ReplyKind, responses: &mut Responses) -> Result<(), CommandError> {
        let index = self.in_flight.pop_front().ok_or(CommandError::Unsolicited)?;
        responses.all += 1;
        responses.good += u32::from(kind != ReplyKind::Error);
        let mut counts = self.exchange.redis.borrow_mut();
        if let Some(command) = counts.commands.get_mut(usize::from(index)) {
            command.replies += 1;
            command.nulls += u64::from(kind == ReplyKind::Null);
            command.errors += u64::from(kind == ReplyKind::Error);
        }
        if kind == ReplyKind::Error {
            self.exchange.stats.bad(Verdict::Reply, 1);
        }
        Ok(())
    }

    /// A whole value. Returns whether it opens the connection.
    fn on_value(
        &mut self,
        value: Value<'_>,
        responses: &mut Responses,
        out: &mut Output<'_>,
    ) -> Result<bool, CommandError> {
        if let Some(phase) = self.phase {
            return self.continue_startup(phase, value, out);
        }
        if self.subscribes && value.elements().is_some() {
            // RESP2 has no pushes.
            self.deliver(value);
            return Ok(false);
        }
        let kind = match value {
            Value::Null => ReplyKind::Null,
            _ if value.error().is_some() => ReplyKind::Error,
            _ => ReplyKind::Value,
        };
        if let Some(text) = value.error() {
            self.exchange.redis.borrow_mut().errors.count(text);
        }
        if let (Value::Integer(receivers), Some(_)) = (value, &self.plan.publish) {
            self.exchange.redis.borrow_mut().receivers += receivers.unsigned_abs();
        }
        self.count_reply(kind, responses)?;
        Ok(false)
    }

    fn on_push(&mut self, value: Value<'_>, out: &mut Output<'_>) -> Result<bool, CommandError> {
        match self.phase {
            // The confirmation of a subscription is a push in RESP3.
            Some(StartupPhase::Subscribe) => self.continue_startup(StartupPhase::Subscribe, value, out),
            None if self.subscribes => {
                self.deliver(value);
                Ok(false)
            }
            _ => Ok(false),
        }
    }

    fn on_piece(&mut self, piece: &ReplyPiece, responses: &mut Responses) -> Result<(), CommandError> {
        let begins = match piece {
            ReplyPiece::Aggregate(AggregateKind::Push, _) => ReplyKind::Push,
            ReplyPiece::Bulk(BulkKind::Error, _) => ReplyKind::Error,
            _ => ReplyKind::Value,
        };
        let kind = *self.long.get_or_insert(begins);
        if !matches!(piece, ReplyPiece::End) {
            return Ok(());
        }
        self.long = None;
        if kind == ReplyKind::Push { Ok(()) } else { self.count_reply(kind, responses) }
    }

    fn next(&mut self, input: &mut Input, out: &mut Output<'_>, ended: bool) -> Result<Step<Responses>, CommandError> {
        let mut responses = Responses { all: 0, good: 0 };
        loop {
            let before = input.len();
            let step = if ended { self.codec.decode_eof(input, out) } else { self.codec.decode(input, out) };
            self.exchange.stats.received(before - input.len());
            let is_opened = match step? {
                Step::Message(IncomingReply::Reply(reply)) => self.on_value(reply.value(), &mut responses, out)?,
                Step::Message(IncomingReply::Push(push)) => self.on_push(push.value(), out)?,
                Step::Message(IncomingReply::Piece(piece)) => {
                    self.on_piece(&piece, &mut responses)?;
                    false
                }
                Step::Message(_) => false,
                Step::NeedMore | Step::End if responses.all > 0 => return Ok(Step::Message(responses)),
                Step::NeedMore => return Ok(Step::NeedMore),
                Step::End if self.phase.is_some() || self.subscribes || !self.in_flight.is_empty() => {
                    return Err(CommandError::Closed);
                }
                Step::End => return Ok(Step::End),
            };
            if is_opened {
                return Ok(Step::Message(responses));
            }
        }
    }

    fn count(&self, error: &CommandError) {
        match error {
            CommandError::Refused => {}
            CommandError::Closed | CommandError::Redis(RedisError::Truncated) => self.exchange.stats.closed(),
            CommandError::Redis(_) | CommandError::Unsolicited => self.exchange.stats.invalid(),
        }
    }
}

/// A message with the time at which it is sent, as long as the plan has it.
fn stamped(exchange: &Exchange, publish: &PublishPlan) -> String {
    let mut text = stamp::write(exchange.author(), exchange.stats.since_epoch());
    text.extend(std::iter::repeat_n('x', publish.message_bytes.saturating_sub(text.len())));
    text
}

impl Codec for CommandCodec {
    type In = Responses;
    type Out = Batch;
    type Error = CommandError;

    fn decode(&mut self, input: &mut Input, out: &mut Output<'_>) -> Result<Step<Responses>, CommandError> {
        self.next(input, out, false).inspect_err(|error| self.count(error))
    }

    fn encode(&mut self, batch: Batch, out: &mut Output<'_>) -> Result<(), CommandError> {
        match batch {
            Batch::Opening => Ok(self.codec.encode(self.plan.hello().into(), out)?),
            Batch::One => self.write_commands(1, out),
            Batch::Run(count) => self.write_commands(count, out),
        }
    }

    fn decode_eof(&mut self, input: &mut Input, out: &mut Output<'_>) -> Result<Step<Responses>, CommandError> {
        self.next(input, out, true).inspect_err(|error| self.count(error))
    }

    fn on(&mut self, event: Lifecycle, out: &mut Output<'_>) -> Result<(), CommandError> {
        Ok(self.codec.on(event, out)?)
    }

    fn status(&self) -> CodecStatus {
        self.codec.status()
    }
}

/// Why a connection ends.
#[derive(Debug)]
pub(crate) enum CommandError {
    Redis(RedisError),
    /// The server refuses a command of the startup; its reply is counted.
    Refused,
    /// The server closed the connection, and replies had not come.
    Closed,
    /// The server sent a reply that answers no command.
    Unsolicited,
}

impl Fault for CommandError {
    fn blame(&self) -> Blame {
        match self {
            Self::Redis(error) => error.blame(),
            Self::Refused | Self::Closed | Self::Unsolicited => Blame::Peer,
        }
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Redis(error) => error.fmt(f),
            Self::Refused => f.write_str("the server refuses a command that opens the connection"),
            Self::Closed => f.write_str("the server closed the connection before all replies came"),
            Self::Unsolicited => f.write_str("the server sent a reply that answers no command"),
        }
    }
}

impl std::error::Error for CommandError {}

impl From<RedisError> for CommandError {
    fn from(error: RedisError) -> Self {
        Self::Redis(error)
    }
}

/// Batches up to this length are copied into the queue.
const COPIED_BYTES_MAX: usize = 16 * 1024;

/// The bytes around the text of a message: its kind and its channel.
const WITH_MESSAGE_BYTES_MAX: usize = 1024;
