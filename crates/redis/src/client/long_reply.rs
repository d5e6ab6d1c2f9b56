//! `LongReply`: the reply or push that arrives in pieces at present, and the part of a connection that receives it.
//!
//! A reply that its caller reads in pieces passes through. All others are joined, up to the limit of the client.

use tidegate_engine::Outcome;

use crate::client::connection::{ConnectionHandler, Cx, InFlight, InFlightKind, RESUME_AFTER, ReplyPipeline};
use crate::client::reply_sink::{ResultSlot, StreamSink};
use crate::client_codec::ReplyPiece;
use crate::owned::OwnedValue;
use crate::reply_writer::{ReplyWriter, begins_push};
use crate::value::value_of;

/// The state of a connection between the pieces of one reply.
#[derive(Debug, Default)]
pub(crate) enum LongReply {
    /// No reply is under way.
    #[default]
    None,
    /// The reader of the first command in flight gets the pieces.
    Passed {
        /// The connection does not read until the reader has taken some.
        is_paused: bool,
    },
    /// The pieces are joined.
    Joined { wire: Vec<u8>, writer: ReplyWriter, is_push: bool },
}

impl LongReply {
    /// A reply or push begins with this piece. `is_read` if the first command in flight has a reader of pieces.
    pub(crate) fn begin(piece: &ReplyPiece, is_read: bool) -> Self {
        let is_push = begins_push(piece);
        if is_read && !is_push {
            return Self::Passed { is_paused: false };
        }
        Self::Joined { wire: Vec::new(), writer: ReplyWriter::default(), is_push }
    }

    pub(crate) const fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    pub(crate) const fn is_paused(&self) -> bool {
        matches!(self, Self::Passed { is_paused: true })
    }
}

impl ConnectionHandler {
    /// A piece of a long reply or push.
    pub(super) fn piece<P: ReplyPipeline>(&mut self, piece: &ReplyPiece, cx: &mut Cx<'_, P>) -> Outcome<P> {
        self.heard_at = Some(cx.now());
        let stream = self.in_flight.front_mut().and_then(InFlight::stream);
        if self.long.is_none() {
            self.long = LongReply::begin(piece, stream.is_some());
        }
        match (&mut self.long, stream) {
            (LongReply::Joined { wire, writer, .. }, _) => {
                writer.write(piece, wire);
                if wire.len() > self.config.protocol_limits.whole_bytes_max {
                    return self.drop_connection("a reply is longer than the limit");
                }
            }
            (LongReply::Passed { is_paused }, Some(stream)) => {
                stream.piece(piece);
                if stream.pauses(|| cx.remote()) {
                    *is_paused = true;
                    cx.pause();
                }
                self.extend_deadline(cx);
            }
            _ => return self.drop_connection("the server sent a reply to no command"),
        }
        if !matches!(piece, ReplyPiece::End) {
            return Outcome::Continue;
        }
        match std::mem::take(&mut self.long) {
            LongReply::Joined { wire, is_push: true, .. } => self.push(value_of(&wire)),
            LongReply::Joined { wire, .. } => self.reply(&wire, cx),
            _ => self.end_stream(cx),
        }
    }

    /// Each piece of a reply gives the next one time. While the reader is slow, the server needs none.
    fn extend_deadline<P: ReplyPipeline>(&mut self, cx: &mut Cx<'_, P>) {
        let is_paused = self.long.is_paused();
        let Some(InFlight { deadline, kind: InFlightKind::Command(command) }) = self.in_flight.front_mut() else {
            return;
        };
        // Pieces that the reader has cannot be taken back.
        (command.is_idempotent, command.wire) = (false, None);
        *deadline = if is_paused { None } else { cx.now().checked_add(command.timeout) };
        let next = if is_paused { cx.now().checked_add(RESUME_AFTER) } else { *deadline };
        self.arm(next, cx);
    }

    /// The reply that its reader has in pieces is complete.
    fn end_stream<P: ReplyPipeline>(&mut self, cx: &mut Cx<'_, P>) -> Outcome<P> {
        if let Some(InFlight { kind: InFlightKind::Command(command), .. }) = self.in_flight.pop_front() {
            self.queue.release(command.charge);
            command.finish(Ok(OwnedValue::Null));
        }
        cx.resume();
        self.outcome(cx)
    }

    /// Reads on if the reader of the reply under way has taken enough of it.
    pub(super) fn resume<P: ReplyPipeline>(&mut self, cx: &mut Cx<'_, P>) {
        let LongReply::Passed { is_paused: is_paused @ true } = &mut self.long else { return };
        let stream = self.in_flight.front_mut().and_then(InFlight::stream);
        if !stream.is_some_and(|stream| stream.pauses(|| cx.remote())) {
            *is_paused = false;
            cx.resume();
            self.extend_deadline(cx);
        }
    }
}

impl InFlight {
    /// The reader of the reply in pieces, if it has one.
    fn stream(&mut self) -> Option<&mut StreamSink> {
        match &mut self.kind {
            InFlightKind::Command(command) => command.slot.as_mut().and_then(ResultSlot::as_stream),
            _ => None,
        }
    }
}
