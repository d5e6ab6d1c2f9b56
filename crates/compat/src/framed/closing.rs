//! How a connection ends.
//!
//! ```text
//!   Open ──finish──▶ Finishing ──closing bytes written──▶ Flushing ──all with the stream──▶ Shut
//!     └─────────────────┴── the stream failed ──────────────┴──▶ Failed
//! ```
//!
//! A connection that closes lingers in `Shut`: the peer has a moment to end its side, since dropping a socket with
//! unread bytes would reset the connection and might destroy the last message before the peer reads it.

use std::io;
use std::task::{Context, Poll};

use tidegate_codec::Pipeline;
use tokio::io::{AsyncRead, AsyncWrite};

use super::limits::ROUNDS_PER_POLL_MAX;
use super::receiving::{ReadResult, ReadSide};
use super::wakers::Side;
use super::{Framed, FramedError};

/// How far the sending side has come to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WriteSide {
    /// The application may send.
    Open,
    /// The application sends no more; the codec has its closing bytes still to write.
    Finishing,
    /// The closing bytes are in the queue.
    Flushing,
    /// The side is shut down.
    Shut,
    /// The stream has failed: nothing can be sent.
    Failed,
}

impl WriteSide {
    pub(super) fn is_ending(self) -> bool {
        matches!(self, Self::Finishing | Self::Flushing)
    }

    pub(super) fn has_failed(self) -> bool {
        self == Self::Failed
    }

    /// Whether bytes can still be sent.
    pub(super) fn is_live(self) -> bool {
        !matches!(self, Self::Shut | Self::Failed)
    }
}

impl<T, P: Pipeline> Framed<T, P> {
    /// The application sends no more.
    pub(super) fn end_writing(&mut self) {
        if self.write_side == WriteSide::Open {
            self.write_side = WriteSide::Finishing;
        }
    }

    /// The codec failed to read: the connection closes, and an operation returns the error then.
    pub(super) fn fail_reading(&mut self, error: P::Error) {
        self.read_side = ReadSide::Failed;
        self.is_closing = true;
        self.failure.get_or_insert(FramedError::Protocol(error));
    }

    /// The codec failed to write. The bytes that it could not write are lost; those that it wrote before are still sent.
    pub(super) fn fail_writing(&mut self, error: P::Error) {
        self.has_write_failed = true;
        self.is_closing = true;
        self.failure.get_or_insert(FramedError::Protocol(error));
    }

    /// Nothing more can be sent.
    pub(super) fn break_write(&mut self, error: io::Error) {
        self.failure.get_or_insert(FramedError::Io(error));
        self.write_side = WriteSide::Failed;
        self.outbound.clear();
        self.update_level();
    }

    /// The connection is over at once.
    pub(super) fn break_off(&mut self, failure: FramedError<P::Error>) {
        self.failure.get_or_insert(failure);
        self.is_closing = true;
        self.write_side = WriteSide::Failed;
        self.outbound.clear();
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin, P: Pipeline> Framed<T, P> {
    /// As [`close`](Self::close), for an adapter that is polled itself.
    ///
    /// # Errors
    /// As for [`close`](Self::close).
    pub fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), FramedError<P::Error>>> {
        self.is_closing = true;
        self.wakers.wake(Side::Reader);
        self.poll_side(Side::Writer, cx, |framed, cx| framed.poll_closed(cx))
            .map(|()| self.failure.take().map_or(Ok(()), Err))
    }

    /// Closes; ready when the connection is over.
    pub(super) fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.end_writing();
        if self.write_side.is_ending() {
            std::task::ready!(self.poll_output(cx, |framed| framed.write_side == WriteSide::Shut));
        }
        for _ in 0..ROUNDS_PER_POLL_MAX {
            if self.write_side.has_failed() || self.has_peer_ended || self.deadlines.has_lingered() {
                self.release();
                return Poll::Ready(());
            }
            let now = self.memory.time().now();
            self.deadlines.linger(now, self.limits.linger_timeout);
            match self.fill(cx) {
                // The peer is still busy sending, and has probably not read our last bytes yet.
                ReadResult::More => self.deadlines.note_lingering(now, self.limits.linger_timeout),
                ReadResult::Nothing => std::task::ready!(self.poll_deadlines(cx, false)),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// The connection is over: it needs no memory any more.
    fn release(&mut self) {
        let unread = self.input.len();
        self.input.consume(unread);
        self.input.compact(self.memory.pool());
        self.outbound.clear();
        self.deadlines.release();
    }
}
