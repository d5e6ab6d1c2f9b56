//! `WebSocket`: the state of a connection, and its inbound half. The outbound one is `encode.rs`.
//!
//! A message in one frame without compression stays in the connection's input until it is complete: each receive is
//! unmasked and checked there once, and the message is a view. Frames of other messages leave the input when they are
//! complete, compressed bytes at once, into a [`PartialMessage`].
//!
//! Invariants:
//! - The first `ready` bytes of the input belong to the current frame, are unmasked, and, in a text without
//!   compression, checked. `mask` is turned to the byte behind them.
//! - `left` counts the payload bytes of the current frame from the beginning of the input.
//! - There is a `partial` from the first frame of a message that needs one to its last; for another message, while a part
//!   of its frame has come and the rest has not.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_buffer::{Input, RECEIVE_BYTES_MAX, Slice};
use tidegate_codec::{Codec, CodecStatus, Lifecycle, Output, ReceiveHint, Step, scaled};

use crate::close::{Close, CloseCode};
use crate::config::{Config, Deflate};
use crate::error::{Error, Exceeded, Violation};
use crate::frame::{Accepts, HEADER_BYTES_MAX, Header, Opcode};
use crate::mask::{self, Mask};
use crate::message::{Kind, Message, Piece, Text};
use crate::partial::PartialMessage;
use crate::permessage_deflate::{Parameters, PerMessageDeflate, TAIL};
use crate::role::Role;
use crate::utf8::{Invalid, Utf8};

/// The codec of a connection after its handshake.
///
/// It answers pings, sends pings of its own, and carries out the closing handshake: it answers the close frame of the peer,
/// and yields nothing more. An application that closes sends [`Message::Close`] and receives until there are no more
/// messages. A connection that is closed without one, or drained, sends a close frame by itself. An application that needs
/// the peer's code sets [`Config::yields_control`].
///
/// ```
/// use std::sync::Arc;
/// use tidegate::websocket::{Config, Message, WebSocket};
/// use tidegate::{Context, Handler, Outcome};
/// use tidegate_testkit::Embedded;
///
/// /// Sends every message back.
/// struct Echo;
///
/// impl Handler<WebSocket> for Echo {
///     type Post = ();
///
///     fn message(&mut self, message: Message, cx: &mut Context<'_, WebSocket>) -> Outcome<WebSocket> {
///         cx.send(message).into()
///     }
/// }
///
/// let mut pipe = Embedded::new(WebSocket::server(Arc::new(Config::default()), None), Echo);
/// pipe.receive(b"\x81\x83\0\0\0\0ebb");
/// assert_eq!(pipe.take_written(), b"\x81\x03ebb");
/// ```
#[derive(Debug)]
pub struct WebSocket {
    pub(crate) config: Arc<Config>,
    pub(crate) deflate: Option<Box<PerMessageDeflate>>,
    partial: Option<Box<PartialMessage>>,
    /// When the next ping is due, or the end of waiting for the peer.
    pub(crate) until: Option<Instant>,
    /// When counting control frames began.
    second: Option<Instant>,
    left: u64,
    ready: u32,
    mask: Mask,
    text: Utf8,
    pub(crate) sent_text: Utf8,
    control_frames: u16,
    pub(crate) flags: u16,
    frame: Option<Opcode>,
    /// The length of the last data frame in KiB, header included, rounded up; at most [`u8::MAX`].
    frame_kib: u8,
}

/// This side is a client.
pub(crate) const CLIENT: u16 = 1;
/// This side has sent its close frame.
pub(crate) const CLOSE_SENT: u16 = 2;
/// The peer has sent its close frame.
pub(crate) const CLOSE_RECEIVED: u16 = 4;
/// The peer has ended the stream without one.
const PEER_ENDED: u16 = 8;
/// Bytes have come since the time was last checked.
const HEARD: u16 = 16;
/// A ping was sent, and no byte has come since.
const PINGED: u16 = 32;
/// The current frame is the last of its message.
const FINAL: u16 = 64;
/// This side sends a message in pieces, of the kind that the next flag names.
pub(crate) const SENDS_PIECES: u16 = 128;
pub(crate) const SENDS_TEXT: u16 = 256;
/// Every short message of the peer is masked, within the limits, and yielded whole.
const TAKES_SHORT: u16 = 512;
/// The server drains, and the close frame is sent when `until` comes.
const DRAINS: u16 = 1024;
/// Many bytes were before the last ping or close frame: the peer may have received it late.
pub(crate) const QUEUED: u16 = 2048;

impl WebSocket {
    /// The codec of a server, after a handshake that agreed on these parameters of permessage-deflate, or on none.
    #[must_use]
    pub fn server(config: Arc<Config>, deflate: Option<Parameters>) -> Self {
        Self::new(Role::Server, config, deflate)
    }

    /// The codec of a client, after a handshake that agreed on these parameters of permessage-deflate, or on none.
    #[must_use]
    pub fn client(config: Arc<Config>, deflate: Option<Parameters>) -> Self {
        Self::new(Role::Client, config, deflate)
    }

    fn new(role: Role, config: Arc<Config>, agreed: Option<Parameters>) -> Self {
        let settings = || config.deflate.clone().unwrap_or_default();
        let deflate = agreed.map(|agreed| Box::new(PerMessageDeflate::new(role, agreed, &settings())));
        let yielded_whole_max = config.pieces_after.map_or(u64::MAX, u64::from).min(config.message_bytes_max);
        let takes_short = role == Role::Server && yielded_whole_max >= SHORT_BYTES_MAX as u64;
        let flags = if role == Role::Client { CLIENT } else { 0 } | if takes_short { TAKES_SHORT } else { 0 };
        Self {
            config,
            deflate,
            partial: None,
            until: None,
            second: None,
            left: 0,
            ready: 0,
            mask: Mask::default(),
            text: Utf8::default(),
            sent_text: Utf8::default(),
            control_frames: 0,
            flags,
            frame: None,
            frame_kib: 0,
        }
    }

    /// The side of this codec.
    #[must_use]
    pub fn role(&self) -> Role {
        if self.has(CLIENT) { Role::Client } else { Role::Server }
    }

    /// Whether permessage-deflate was negotiated.
    #[must_use]
    pub fn is_compressing(&self) -> bool {
        self.deflate.is_some()
    }

    #[inline]
    pub(crate) fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    #[inline]
    pub(crate) fn set(&mut self, flag: u16, on: bool) {
        self.flags = if on { self.flags | flag } else { self.flags & !flag };
    }

    /// A whole message in one short frame, if the input begins with one, as that of most peers does. The result is that
    /// of [`advance`](Self::advance), in fewer steps.
    #[inline]
    fn short(&mut self, input: &mut Input, out: &Output<'_>) -> Result<Option<Message>, Violation> {
        let Some(&[first, second, k0, k1, k2, k3]) = input.bytes().first_chunk::<MASKED_HEADER_BYTES>() else {
            return Ok(None);
        };
        let (kind, length) = match first {
            WHOLE_TEXT => (Kind::Text, usize::from(second ^ MASKED)),
            WHOLE_BINARY => (Kind::Binary, usize::from(second ^ MASKED)),
            _ => return Ok(None),
        };
        // Without the bit of a mask the length would be above 127.
        if length > SHORT_BYTES_MAX || input.len() < MASKED_HEADER_BYTES + length {
            return Ok(None);
        }
        input.consume(MASKED_HEADER_BYTES);
        let bytes = &mut input.make_mut(out.pool())[..length];
        mask::apply_short(bytes, [k0, k1, k2, k3]);
        if kind == Kind::Text && !bytes.is_ascii() && simdutf8::basic::from_utf8(bytes).is_err() {
            return Err(Violation::Utf8);
        }
        self.frame_kib = 1;
        let bytes = input.take(length);
        Ok(Some(match kind {
            Kind::Text => Message::Text(Text::checked(bytes)),
            Kind::Binary => Message::Binary(bytes.into()),
        }))
    }

    #[inline(never)]
    fn advance(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Message>, Error> {
        loop {
            if self.has(CLOSE_RECEIVED) {
                return Ok(Step::End);
            }
            let step = match self.frame {
                None => {
                    let accepts = Accepts { masked: !self.has(CLIENT), compressed: self.deflate.is_some() };
                    let Some((header, length)) = Header::parse(input.bytes(), accepts)? else {
                        return Ok(Step::NeedMore);
                    };
                    self.begin(&header, reply.now())?;
                    input.consume(length);
                    continue;
                }
                Some(opcode) if opcode.is_control() => self.control(opcode, input, reply)?,
                Some(opcode) => self.data(opcode, input, reply)?,
            };
            if let Some(step) = step {
                return Ok(step);
            }
        }
    }

    /// Checks a header against the state and the limits, before anything is awaited or allocated for its frame.
    fn begin(&mut self, header: &Header, now: Instant) -> Result<(), Error> {
        if header.opcode.is_control() {
            self.count_control(now)?;
        } else {
            self.begin_data(header)?;
            self.set(FINAL, header.is_final);
            let kib = header.length.saturating_add(HEADER_BYTES_MAX as u64) / 1024 + 1;
            self.frame_kib = u8::try_from(kib).unwrap_or(u8::MAX);
        }
        self.frame = Some(header.opcode);
        (self.left, self.ready, self.mask) = (header.length, 0, header.mask.unwrap_or_default());
        Ok(())
    }

    #[inline]
    fn begin_data(&mut self, header: &Header) -> Result<(), Error> {
        let kind = match header.opcode {
            Opcode::Continuation => None,
            Opcode::Text => Some(Kind::Text),
            _ => Some(Kind::Binary),
        };
        match (kind, &self.partial) {
            (Some(_), Some(_)) => return Err(Violation::MessageUnfinished.into()),
            (None, None) => return Err(Violation::NothingToContinue.into()),
            _ => {}
        }
        let is_compressed = header.is_compressed || self.partial.as_ref().is_some_and(|partial| partial.is_compressed);
        let before = self.partial.as_ref().map_or(0, |partial| partial.written);
        let total = if is_compressed { 0 } else { before.saturating_add(header.length) };
        if is_compressed {
            let received = self.partial.as_ref().map_or(0, |partial| partial.read);
            self.check_compressed(received.saturating_add(header.length))?;
        }
        let in_pieces = self.config.pieces_after.is_some_and(|after| total > u64::from(after));
        self.check_total(total, in_pieces)?;
        if let Some(kind) = kind {
            self.text = Utf8::default();
            if is_compressed || in_pieces || !header.is_final {
                self.partial = Some(Box::new(PartialMessage::new(kind, is_compressed)));
            }
        }
        if let Some(partial) = &mut self.partial {
            partial.in_pieces |= in_pieces;
            partial.written = if is_compressed { partial.written } else { total };
            if header.length == 0 && !header.is_final {
                partial.empty_frames += 1;
                if partial.empty_frames > self.config.empty_frames_max {
                    return Err(Exceeded::EmptyFrames.into());
                }
            }
        }
        Ok(())
    }

    fn check_total(&self, total: u64, in_pieces: bool) -> Result<(), Exceeded> {
        let held_max = if in_pieces { u64::MAX } else { WHOLE_BYTES_MAX };
        if total > self.config.message_bytes_max.min(held_max) { Err(Exceeded::MessageBytes) } else { Ok(()) }
    }

    /// Bounds the compressed input of a message: blocks without content take input, and bring no output.
    fn check_compressed(&self, bytes: u64) -> Result<(), Exceeded> {
        let most = self.config.message_bytes_max;
        let most = most.saturating_add(most / COMPRESSED_SHARE).saturating_add(COMPRESSED_BYTES);
        if bytes > most { Err(Exceeded::MessageBytes) } else { Ok(()) }
    }

    fn count_control(&mut self, now: Instant) -> Result<(), Exceeded> {
        let is_same = self.second.is_some_and(|second| now.saturating_duration_since(second) < Duration::from_secs(1));
        if !is_same {
            (self.second, self.control_frames) = (Some(now), 0);
        }
        self.control_frames = self.control_frames.saturating_add(1);
        if self.control_frames > self.config.control_frames_max { Err(Exceeded::ControlFrames) } else { Ok(()) }
    }

    /// Unmasks and checks the payload bytes of the current frame that have come, and returns how many there are.
    #[inline]
    fn receive(&mut self, checks_text: bool, input: &mut Input, out: &Output<'_>) -> Result<usize, Error> {
        let available = usize::try_from(self.left).unwrap_or(usize::MAX).min(input.len());
        let ready = self.ready as usize;
        if available > ready {
            if !self.has(CLIENT) {
                mask::apply(&mut input.make_mut(out.pool())[ready..available], &mut self.mask);
            }
            if checks_text {
                self.check_text(&input.bytes()[ready..available])?;
            }
            self.ready = available as u32;
        }
        Ok(available)
    }

    fn check_text(&mut self, bytes: &[u8]) -> Result<(), Violation> {
        self.text.check(bytes).map_err(|Invalid| Violation::Utf8)
    }

    /// Takes `count` bytes of the current frame off the input.
    fn take(&mut self, count: usize, input: &mut Input) -> Slice {
        self.consumed(count);
        input.take(count)
    }

    fn consumed(&mut self, count: usize) {
        self.left -= count as u64;
        self.ready -= count as u32;
    }

    /// A data frame. `None` means that the next frame follows.
    #[inline]
    fn data(&mut self, opcode: Opcode, input: &mut Input, out: &Output<'_>) -> Result<Option<Step<Message>>, Error> {
        if self.partial.as_ref().is_some_and(|partial| !partial.is_in_input) {
            return self.partial_data(input, out);
        }
        let kind = if opcode == Opcode::Text { Kind::Text } else { Kind::Binary };
        let available = self.receive(kind == Kind::Text, input, out)?;
        if (available as u64) < self.left {
            self.reserve(input, out);
            if self.partial.is_none() {
                self.await_rest(Box::new(PartialMessage::in_input(kind)), out);
            }
            return Ok(Some(Step::NeedMore));
        }
        self.frame = None;
        self.partial = None;
        let bytes = self.take(available, input);
        Ok(Some(Step::Message(self.whole(kind, bytes)?)))
    }

    /// Makes room for the rest of the current frame, and for the bytes that a receive may bring behind it.
    fn reserve(&self, input: &mut Input, out: &Output<'_>) {
        let frame = usize::try_from(self.left).unwrap_or(usize::MAX);
        input.reserve(frame.saturating_add(BEHIND_FRAME_BYTES), out.pool());
    }

    fn whole(&self, kind: Kind, bytes: Slice) -> Result<Message, Violation> {
        self.check_end(kind)?;
        Ok(match kind {
            Kind::Text => Message::Text(Text::checked(bytes)),
            Kind::Binary => Message::Binary(bytes.into()),
        })
    }

    fn check_end(&self, kind: Kind) -> Result<(), Violation> {
        if kind == Kind::Text && !self.text.is_complete() { Err(Violation::Utf8) } else { Ok(()) }
    }

    /// A frame of a message that is fragmented, compressed or yielded in pieces.
    fn partial_data(&mut self, input: &mut Input, out: &Output<'_>) -> Result<Option<Step<Message>>, Error> {
        let Some(mut partial) = self.partial.take() else { return Ok(None) };
        let step = self.continued(&mut partial, input, out)?;
        let is_over = self.frame.is_none() && self.has(FINAL);
        if !is_over {
            self.await_rest(partial, out);
        }
        Ok(step)
    }

    /// A part of a message has come: the rest has a deadline, unless the parts are yielded as they come.
    fn await_rest(&mut self, mut partial: Box<PartialMessage>, out: &Output<'_>) {
        if partial.due.is_none() && !partial.in_pieces {
            partial.due = self.config.message_timeout.and_then(|time| out.now().checked_add(time));
        }
        if partial.is_compressed
            && let Some(deflate) = &mut self.deflate
        {
            deflate.update_charge(out.pool());
        }
        self.partial = Some(partial);
    }

    /// Payload bytes of the current message that have come.
    fn message_bytes(&self, partial: &PartialMessage) -> u64 {
        let before =
            if partial.is_compressed { partial.read } else { partial.written - self.left.min(partial.written) };
        before + u64::from(self.ready)
    }

    /// The deadline of a message has come. A peer that has sent enough gets as long again.
    #[cold]
    fn on_message_late(&mut self, reply: &mut Output<'_>) -> Result<(), Exceeded> {
        let Some(mut partial) = self.partial.take() else { return Ok(()) };
        let time = self.config.message_timeout.unwrap_or_default();
        let bytes_min = time.as_millis().saturating_mul(self.config.message_rate_min.into()) / 1000;
        let bytes = self.message_bytes(&partial);
        if u128::from(bytes - partial.counted.min(bytes)) < bytes_min.max(1) {
            return Err(Exceeded::MessageTimeout);
        }
        (partial.counted, partial.due) = (bytes, reply.now().checked_add(time));
        self.partial = Some(partial);
        Ok(())
    }

    fn message_due(&self) -> Option<Instant> {
        self.partial.as_ref().and_then(|partial| if partial.in_pieces { None } else { partial.due })
    }

    fn continued(
        &mut self,
        partial: &mut PartialMessage,
        input: &mut Input,
        out: &Output<'_>,
    ) -> Result<Option<Step<Message>>, Error> {
        let checks_text = partial.kind == Kind::Text && !partial.is_compressed;
        let available = self.receive(checks_text, input, out)?;
        if partial.in_pieces && partial.has_bytes() {
            return Ok(Some(piece(partial.kind, partial.take(), false)));
        }
        if partial.is_compressed {
            return self.compressed(partial, input, out);
        }
        let is_whole = available as u64 == self.left;
        if !is_whole && (available == 0 || !partial.in_pieces) {
            self.reserve(input, out);
            return Ok(Some(Step::NeedMore));
        }
        let bytes = self.take(available, input);
        let is_last = is_whole && self.has(FINAL);
        if is_whole {
            self.frame = None;
        }
        if is_last {
            self.check_end(partial.kind)?;
        }
        if partial.in_pieces {
            let is_news = is_last || !bytes.is_empty();
            return Ok(is_news.then(|| piece(partial.kind, bytes, is_last)));
        }
        partial.push(bytes, out.pool());
        if !is_last {
            return Ok(None);
        }
        let bytes = partial.take();
        Ok(Some(Step::Message(self.whole(partial.kind, bytes)?)))
    }

    /// Decompresses the received part of a frame.
    fn compressed(
        &mut self,
        partial: &mut PartialMessage,
        input: &mut Input,
        out: &Output<'_>,
    ) -> Result<Option<Step<Message>>, Error> {
        loop {
            let Some(deflate) = &mut self.deflate else { return Err(Violation::ReservedBits.into()) };
            let is_tail = self.left == 0 && self.flags & FINAL != 0;
            if is_tail && partial.tail == 0 && partial.is_drained && deflate.has_ended() {
                partial.tail = TAIL.len() as u8;
            }
            let source =
                if is_tail { &TAIL[usize::from(partial.tail)..] } else { &input.bytes()[..self.ready as usize] };
            if source.is_empty() && partial.is_drained {
                if is_tail {
                    return self.decompressed(partial, out).map(Some);
                }
                if self.left > 0 {
                    return Ok(Some(Step::NeedMore));
                }
                self.frame = None;
                return Ok(None);
            }
            let space = (SPACE_PER_BYTE * source.len()).clamp(SPACE_BYTES_MIN, SPACE_BYTES_MAX);
            let (mut read, mut is_complete) = (0, false);
            let bytes = out.pool().fill(space, |space| {
                let progress = deflate.decompress(source, space)?;
                (read, is_complete) = (progress.read, progress.is_complete);
                Ok::<_, Error>(progress.written)
            })?;
            partial.is_drained = is_complete;
            if is_tail {
                partial.tail += read as u8;
            } else {
                input.consume(read);
                self.consumed(read);
                partial.read += read as u64;
            }
            if bytes.is_empty() {
                continue;
            }
            partial.written += bytes.len() as u64;
            partial.in_pieces |= self.config.pieces_after.is_some_and(|after| partial.written > u64::from(after));
            self.check_expanded(partial)?;
            if partial.kind == Kind::Text {
                self.check_text(&bytes)?;
            }
            partial.push(bytes, out.pool());
            if partial.in_pieces {
                return Ok(Some(piece(partial.kind, partial.take(), false)));
            }
        }
    }

    fn check_expanded(&self, partial: &PartialMessage) -> Result<(), Exceeded> {
        self.check_total(partial.written, partial.in_pieces)?;
        let defaults = Deflate::default();
        let settings = self.config.deflate.as_ref().unwrap_or(&defaults);
        let ratio = partial.written / partial.read.max(1);
        if partial.written > settings.ratio_after && ratio >= u64::from(settings.ratio_max.max(1)) {
            return Err(Exceeded::Ratio);
        }
        Ok(())
    }

    /// The end of a compressed message.
    fn decompressed(&mut self, partial: &mut PartialMessage, out: &Output<'_>) -> Result<Step<Message>, Error> {
        if let Some(deflate) = &mut self.deflate {
            deflate.end_message(out.pool());
        }
        self.check_end(partial.kind)?;
        self.frame = None;
        let bytes = partial.take();
        if partial.in_pieces {
            return Ok(piece(partial.kind, bytes, true));
        }
        Ok(Step::Message(self.whole(partial.kind, bytes)?))
    }

    fn control(
        &mut self,
        opcode: Opcode,
        input: &mut Input,
        reply: &mut Output<'_>,
    ) -> Result<Option<Step<Message>>, Error> {
        let available = self.receive(false, input, reply)?;
        if (available as u64) < self.left {
            return Ok(Some(Step::NeedMore));
        }
        self.frame = None;
        let payload = self.take(available, input);
        let message = match opcode {
            Opcode::Ping => {
                if !self.has(CLOSE_SENT) {
                    self.write_frame(Opcode::Pong, &payload, reply);
                }
                Message::Ping(payload.into())
            }
            Opcode::Close => self.closed(&payload, reply)?,
            _ => Message::Pong(payload.into()),
        };
        Ok(self.config.yields_control.then_some(Step::Message(message)))
    }

    /// The close frame of the peer.
    fn closed(&mut self, payload: &[u8], reply: &mut Output<'_>) -> Result<Message, Error> {
        let close = match payload.split_first_chunk::<2>() {
            None if payload.is_empty() => None,
            None => return Err(Violation::CloseLength.into()),
            Some((&code, reason)) => {
                let code = CloseCode(u16::from_be_bytes(code));
                if !code.is_sendable() {
                    return Err(Violation::CloseCode(code.0).into());
                }
                let reason = simdutf8::basic::from_utf8(reason).map_err(|_| Violation::Utf8)?;
                Some(Close::new(code, reason))
            }
        };
        self.set(CLOSE_RECEIVED, true);
        self.until = None;
        if !self.has(CLOSE_SENT) {
            self.set(CLOSE_SENT, true);
            let code = close.as_ref().map(|close| close.code().0.to_be_bytes());
            self.write_frame(Opcode::Close, code.as_ref().map_or(&[], |code| code), reply);
        }
        Ok(Message::Close(close))
    }

    /// Sends a close frame, if none was sent, and waits for that of the peer.
    pub(crate) fn close(&mut self, code: CloseCode, reason: &str, out: &mut Output<'_>) {
        if self.has(CLOSE_SENT) {
            return;
        }
        self.await_close(out);
        let payload = [&code.0.to_be_bytes(), reason.as_bytes()].concat();
        self.write_frame(Opcode::Close, &payload, out);
    }

    /// Sends the close frame, now or at a random time.
    #[cold]
    fn drain(&mut self, out: &mut Output<'_>) {
        let Some(spread) = self.config.drain_spread else { return self.close(CloseCode::GOING_AWAY, "", out) };
        if !self.has(CLOSE_SENT) && !self.has(DRAINS) {
            self.set(DRAINS, true);
            // Keys differ with each state, so connections of one loop differ.
            let part = RandomState::new().hash_one(0) as f64 / u64::MAX as f64;
            self.until = out.now().checked_add(scaled(spread, part));
        }
    }

    /// Sends an empty close frame, if none was sent, and waits for that of the peer.
    pub(crate) fn close_without_code(&mut self, out: &mut Output<'_>) {
        if !self.has(CLOSE_SENT) {
            self.await_close(out);
            self.write_frame(Opcode::Close, &[], out);
        }
    }

    /// Sends the code of an error.
    #[cold]
    fn fail(&mut self, error: Error, reply: &mut Output<'_>) -> Error {
        if let Some(code) = error.close_code() {
            self.close(code, "", reply);
        }
        error
    }
}

fn piece(kind: Kind, bytes: Slice, is_last: bool) -> Step<Message> {
    Step::Message(Message::Piece(Piece { kind, bytes: bytes.into(), is_last }))
}

impl Codec for WebSocket {
    type In = Message;
    type Out = Message;
    type Error = Error;

    #[inline]
    fn decode(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Message>, Error> {
        if !input.is_empty() {
            self.flags = (self.flags | HEARD) & !PINGED;
        }
        if self.frame.is_none() && self.partial.is_none() && self.flags & (TAKES_SHORT | CLOSE_RECEIVED) == TAKES_SHORT
        {
            match self.short(input, reply) {
                Ok(Some(message)) => return Ok(Step::Message(message)),
                Ok(None) if input.is_empty() => return Ok(Step::NeedMore),
                Ok(None) => {}
                Err(violation) => return Err(self.fail(violation.into(), reply)),
            }
        }
        self.advance(input, reply).map_err(|error| self.fail(error, reply))
    }

    #[inline]
    fn encode(&mut self, message: Message, out: &mut Output<'_>) -> Result<(), Error> {
        self.send(message, out)
    }

    /// A stream that ends between two messages ends without an error, although the peer has sent no close frame.
    fn decode_eof(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Message>, Error> {
        match self.decode(input, reply)? {
            Step::Message(message) => return Ok(Step::Message(message)),
            Step::End => {}
            Step::NeedMore if self.frame.is_some() || self.partial.is_some() || !input.is_empty() => {
                self.set(PEER_ENDED, true);
                return Err(Violation::Truncated.into());
            }
            Step::NeedMore => self.set(PEER_ENDED, true),
        }
        Ok(Step::End)
    }

    fn on(&mut self, event: Lifecycle, out: &mut Output<'_>) -> Result<(), Error> {
        match event {
            Lifecycle::Opened => self.until = self.config.ping_interval.and_then(|time| out.now().checked_add(time)),
            // The close frame of a drain is due as before.
            Lifecycle::Resumed if self.has(DRAINS) && !self.has(CLOSE_SENT) => {}
            Lifecycle::Resumed => {
                // The codec has not seen the peer's messages of the meantime.
                self.flags = (self.flags | HEARD) & !PINGED;
                let time = match (self.has(CLOSE_RECEIVED), self.has(CLOSE_SENT)) {
                    (true, _) => None,
                    (false, true) => Some(self.config.close_timeout),
                    (false, false) => self.config.ping_interval,
                };
                self.until = time.and_then(|time| out.now().checked_add(time));
                if let Some(partial) = &mut self.partial {
                    partial.due = self.config.message_timeout.and_then(|time| out.now().checked_add(time));
                }
            }
            Lifecycle::Drain => self.drain(out),
            Lifecycle::Fail => self.close(CloseCode::INTERNAL_ERROR, "", out),
            Lifecycle::Close => self.close(CloseCode::NORMAL, "", out),
            _ => {}
        }
        Ok(())
    }

    fn status(&self) -> CodecStatus {
        let is_closed = self.flags & (CLOSE_SENT | CLOSE_RECEIVED) == CLOSE_SENT | CLOSE_RECEIVED;
        CodecStatus { is_finished: is_closed || self.has(PEER_ENDED), reports_finish: true, ..CodecStatus::default() }
    }

    /// A frame is received up to its end, and a little further, so that the receive is not full and the socket need not
    /// be read once more. Bytes behind a long frame would have to be moved, so its receive ends there. Of a peer whose
    /// last frame was longer than a usual receive, the next one is received whole.
    #[inline]
    fn receive_hint(&self) -> Option<ReceiveHint> {
        let last = u64::from(self.frame_kib) * 1024;
        let (bytes, is_long) = match self.frame {
            Some(_) if self.left <= HINT_BYTES_MIN => return None,
            Some(_) => {
                let missing = self.left - u64::from(self.ready);
                (missing + BEHIND_FRAME_BYTES as u64, self.left >= LONG_FRAME_BYTES_MIN)
            }
            None if last <= RECEIVE_BYTES_MAX as u64 => return None,
            None => (last, true),
        };
        let whole_bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let bytes_max = if is_long { whole_bytes } else { u32::MAX };
        Some(ReceiveHint { whole_bytes, bytes_max, ..ReceiveHint::default() })
    }

    fn kept_bytes(&self) -> usize {
        self.partial.as_ref().map_or(0, |partial| partial.memory_bytes())
            + self.deflate.as_ref().map_or(0, |deflate| deflate.memory_bytes())
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Instant> {
        match self.message_due() {
            Some(due) => Some(self.until.map_or(due, |until| until.min(due))),
            None => self.until,
        }
    }

    fn handle_timeout(&mut self, _: &Input, reply: &mut Output<'_>) -> Result<(), Error> {
        if self.message_due().is_some_and(|due| due <= reply.now()) {
            self.on_message_late(reply).map_err(|error| self.fail(error.into(), reply))?;
        }
        if self.until.is_none_or(|until| until > reply.now()) {
            return Ok(());
        }
        if self.has(CLOSE_SENT) {
            return self.expire(self.config.close_timeout, Exceeded::CloseTimeout, reply);
        }
        if self.has(DRAINS) {
            self.close(CloseCode::RESTART, "", reply);
            return Ok(());
        }
        if self.has(PINGED) {
            return self.expire(self.config.pong_timeout, Exceeded::PongTimeout, reply);
        }
        let wait = if self.has(HEARD) {
            self.config.ping_interval.unwrap_or(self.config.pong_timeout)
        } else {
            self.set(PINGED, true);
            self.note_queue(reply);
            self.write_frame(Opcode::Ping, &[], reply);
            self.config.pong_timeout
        };
        self.set(HEARD, false);
        self.until = reply.now().checked_add(wait);
        Ok(())
    }
}

/// Bytes of a message that is yielded whole, whatever the configuration allows: it has to fit into an [`Input`].
const WHOLE_BYTES_MAX: u64 = 512 * 1024 * 1024;

/// The first bytes of a short frame that is a whole message, without compression.
const WHOLE_TEXT: u8 = 0x81;
const WHOLE_BINARY: u8 = 0x82;

/// The bit of a mask in the second byte.
const MASKED: u8 = 0x80;

/// The longest payload whose length is in the second byte, and the header of such a frame with its mask.
const SHORT_BYTES_MAX: usize = 125;
const MASKED_HEADER_BYTES: usize = 6;

/// How far a receive may go beyond the end of a frame.
const BEHIND_FRAME_BYTES: usize = 256;

/// The first receive of a socket is as long: the receives of shorter frames need no hint.
const HINT_BYTES_MIN: u64 = 2 * 1024;

/// A receive of the rest of such a frame ends with it.
const LONG_FRAME_BYTES_MIN: u64 = 32 * 1024;

/// A message that does not compress may have this share of its bytes more on the wire, and so many bytes.
const COMPRESSED_SHARE: u64 = 8;
const COMPRESSED_BYTES: u64 = 1024;

/// The space to decompress into: for each byte of input, at least, and at most.
const SPACE_PER_BYTE: usize = 4;
const SPACE_BYTES_MIN: usize = 256;
const SPACE_BYTES_MAX: usize = 16 * 1024;

const _: () = assert!(size_of::<WebSocket>() <= 104);
