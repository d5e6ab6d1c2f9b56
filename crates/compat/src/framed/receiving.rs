//! From the stream to messages.
//!
//! One message is decoded at a time, for a task that waits for it. Only when the codec needs more does the task send
//! the waiting bytes, and then read. Undecoded bytes leave the receive buffer before the task gets control back, so
//! that the next connection of the thread finds the buffer free.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tidegate_buffer::RECEIVE_BYTES_MAX;
use tidegate_codec::{Lifecycle, Pipeline, Step};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::limits::ROUNDS_PER_POLL_MAX;
use super::sending::WriteResult;
use super::wakers::Side;
use super::{Framed, FramedError};

/// How far the receiving side has come to its end. Whether the peer has ended its stream is another question: the
/// codec may end before, and decodes on after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadSide {
    /// Messages may come.
    Open,
    /// The codec yields no further message.
    Over,
    /// The codec has failed: it gets no more bytes, and no handshake goes on.
    Failed,
}

/// The result of a read.
pub(super) enum ReadResult {
    /// Bytes, or the end of the peer's stream.
    More,
    /// The stream has nothing yet, and will wake the task.
    Nothing,
}

/// The future of [`Framed::recv`].
#[must_use = "a future does nothing until it is awaited"]
pub struct Recv<'a, T: AsyncRead + AsyncWrite + Unpin, P: Pipeline> {
    framed: &'a mut Framed<T, P>,
    waits: bool,
}

impl<'a, T: AsyncRead + AsyncWrite + Unpin, P: Pipeline> Recv<'a, T, P> {
    pub(super) fn new(framed: &'a mut Framed<T, P>) -> Self {
        Self { framed, waits: false }
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin, P: Pipeline> Future for Recv<'_, T, P> {
    type Output = Result<Option<P::In>, FramedError<P::Error>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = self.framed.poll_recv(cx);
        self.waits = polled.is_pending();
        polled
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin, P: Pipeline> Drop for Recv<'_, T, P> {
    /// No task waits for a message any more: the deadlines of the codec rest.
    fn drop(&mut self) {
        if self.waits {
            self.framed.wakers.forget(Side::Reader);
            let now = self.framed.memory.advance();
            self.framed.deadlines.suspend(now);
        }
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin, P: Pipeline> std::fmt::Debug for Recv<'_, T, P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Recv")
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin, P: Pipeline> Framed<T, P> {
    /// As [`recv`](Self::recv), for an adapter that is polled itself.
    ///
    /// # Errors
    /// As for [`recv`](Self::recv).
    #[expect(clippy::type_complexity, reason = "the shape of every poll function of messages")]
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<P::In>, FramedError<P::Error>>> {
        let polled = self.poll_side(Side::Reader, cx, |framed, cx| {
            if framed.deadlines.resume(framed.memory.time().now()) && !framed.is_closing {
                // Before anything is decoded: bytes that lay here while no task waited were not late.
                framed.notify(Lifecycle::Resumed);
            }
            framed.poll_message(cx)
        });
        self.input.compact(self.memory.pool());
        self.codec.compact(self.memory.pool());
        if polled.is_ready() {
            let now = self.memory.time().now();
            self.deadlines.suspend(now);
        }
        polled
    }

    #[expect(clippy::type_complexity, reason = "as above")]
    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<P::In>, FramedError<P::Error>>> {
        for _ in 0..ROUNDS_PER_POLL_MAX {
            if !self.is_closing && self.read_side == ReadSide::Open {
                if !self.may_decode() {
                    self.drive_handshake();
                } else if let Step::Message(message) = self.decode() {
                    return Poll::Ready(Ok(Some(message)));
                }
            }
            if self.codec.status().is_finished || (self.read_side == ReadSide::Over && self.failure.is_some()) {
                self.is_closing = true;
            }
            if self.is_closing {
                return self.poll_closed(cx).map(|()| self.failure.take().map_or(Ok(None), Err));
            }
            if self.read_side == ReadSide::Over {
                return Poll::Ready(Ok(None));
            }
            let was_decoding = self.may_decode();
            let transmitted = self.transmit(cx);
            if !was_decoding && self.level.is_writable() {
                // Bytes that came while nothing was decoded are not late.
                self.notify(Lifecycle::Resumed);
                continue;
            }
            if self.wants_input()
                && let ReadResult::More = self.fill(cx)
            {
                continue;
            }
            if self.write_side.has_failed() {
                // Earlier input was decoded.
                self.is_closing = true;
            } else if !self.is_closing
                && (transmitted == WriteResult::Yielded || self.poll_deadlines(cx, true).is_pending())
            {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn decode(&mut self) -> Step<P::In> {
        let has_ended = self.has_peer_ended;
        let decoded = self.with_codec(|codec, input, reply| match has_ended {
            true => codec.decode_eof(input, reply),
            false => codec.decode(input, reply),
        });
        self.update_level();
        match decoded {
            Ok(step) => {
                if matches!(step, Step::End) {
                    self.read_side = ReadSide::Over;
                }
                step
            }
            Err(error) => {
                self.fail_reading(error);
                Step::End
            }
        }
    }

    /// Whether the pending bytes permit to decode. Where another task waits to send, it does not wait for that one: two
    /// such connections with each other would wait for ever. Then only the codec's own replies have a bound.
    pub(super) fn may_decode(&self) -> bool {
        let is_split = self.wakers.waits(Side::Writer) && self.pending_bytes() <= self.limits.water.replies_cap;
        self.level.is_writable() || is_split
    }

    /// Whether the task that waits for a message reads.
    fn wants_input(&self) -> bool {
        let has_input = !self.input.is_empty() || self.codec.input_memory() > 0;
        // A peer cannot fill our memory while it waits for a response.
        let is_full = has_input && self.codec.status().is_blocked;
        let wants_messages = !self.is_closing && !self.has_peer_ended && self.may_decode() && !is_full;
        wants_messages || self.wants_handshake_input()
    }

    /// Whether a handshake waits for bytes of the peer. While the peer does not read, the codec does not elicit more
    /// from it.
    pub(super) fn wants_handshake_input(&self) -> bool {
        self.is_in_handshake()
            && !self.has_peer_ended
            && self.write_side.is_live()
            && self.outbound.cost() <= self.limits.water.replies_cap
    }

    /// Whether a handshake goes on.
    fn is_in_handshake(&self) -> bool {
        !self.codec.is_established() && self.read_side != ReadSide::Failed && !self.has_write_failed
    }

    /// Makes progress with a handshake, without a message. If the peer has ended within it, the waiting bytes can never
    /// leave.
    pub(super) fn drive_handshake(&mut self) {
        if !self.is_in_handshake() {
            return;
        }
        let has_ended = self.has_peer_ended;
        let driven = self.with_codec(|codec, input, reply| {
            codec.drive_handshake(input, reply)?;
            match has_ended && !codec.is_established() {
                true => codec.decode_eof(input, reply).map(drop),
                false => Ok(()),
            }
        });
        if let Err(error) = driven {
            self.fail_reading(error);
        }
    }

    /// Reads once.
    pub(super) fn fill(&mut self, cx: &mut Context<'_>) -> ReadResult {
        let io = Pin::new(&mut self.io);
        let received = self.memory.receive(RECEIVE_BYTES_MAX, |space| {
            let mut buffer = ReadBuf::new(space);
            match io.poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) => Ok(buffer.filled().len()),
                Poll::Ready(Err(error)) => Err(Some(error)),
                Poll::Pending => Err(None),
            }
        });
        match received {
            Ok(bytes) if bytes.is_empty() => self.has_peer_ended = true,
            Ok(bytes) if self.is_closing && !self.wants_handshake_input() => drop(bytes),
            Ok(bytes) => self.input.append(bytes, self.memory.pool()),
            Err(Some(error)) => self.break_off(FramedError::Io(error)),
            Err(None) => return ReadResult::Nothing,
        }
        ReadResult::More
    }
}
