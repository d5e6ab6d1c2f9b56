//! From messages to the stream.
//!
//! Everything that waits is in the queue, or in the filters of the codec. A transmission passes it on as far as the
//! stream takes it, and ends our side once everything is gone and the connection ends.

use std::io;
use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::task::{Context, Poll};

use tidegate_buffer::{Gathered, LoadError};
use tidegate_codec::{Lifecycle, Pipeline};
use tokio::io::{AsyncRead, AsyncWrite};

use super::closing::WriteSide;
use super::limits::{FILE_PIECE_BYTES, PARTS_MAX, ROUNDS_PER_POLL_MAX, SEND_BYTES_MAX};
use super::receiving::{ReadResult, ReadSide};
use super::wakers::Side;
use super::{Framed, FramedError};

/// How a transmission ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WriteResult {
    /// Everything is with the stream, and flushed; or lost, since the stream failed.
    All,
    /// The stream takes no more, and will wake the task; or a handshake comes first.
    Blocked,
    /// Other tasks have their turn; the task is woken for the rest.
    Yielded,
}

impl<T: AsyncRead + AsyncWrite + Unpin, P: Pipeline> Framed<T, P> {
    /// As [`ready`](Self::ready), for an adapter that is polled itself.
    ///
    /// # Errors
    /// As for [`ready`](Self::ready).
    pub fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), FramedError<P::Error>>> {
        self.poll_side(Side::Writer, cx, |framed, cx| {
            framed.poll_output(cx, |framed| {
                let is_over = framed.is_closing || framed.write_side != WriteSide::Open;
                is_over || framed.level.is_writable()
            })
        })
        .map(|()| match self.is_closing || self.write_side != WriteSide::Open {
            true => Err(self.failure.take().unwrap_or(FramedError::Closed)),
            false => Ok(()),
        })
    }

    /// As [`flush`](Self::flush), for an adapter that is polled itself.
    ///
    /// # Errors
    /// As for [`flush`](Self::flush).
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), FramedError<P::Error>>> {
        self.poll_side(Side::Writer, cx, |framed, cx| framed.poll_output(cx, |_| false))
            .map(|()| self.failure.take().map_or(Ok(()), Err))
    }

    /// Sends until everything is with the stream, or until `is_enough`. A handshake is driven as well, since the
    /// waiting bytes may wait for it.
    pub(super) fn poll_output(&mut self, cx: &mut Context<'_>, is_enough: impl Fn(&Self) -> bool) -> Poll<()> {
        for _ in 0..ROUNDS_PER_POLL_MAX {
            if self.has_peer_ended {
                // Within a handshake that is an error: the bytes that wait for it can never leave.
                self.drive_handshake();
            }
            if is_enough(self) || self.write_side.has_failed() {
                return Poll::Ready(());
            }
            let transmitted = self.transmit(cx);
            match transmitted {
                WriteResult::All => return Poll::Ready(()),
                WriteResult::Yielded => return Poll::Pending,
                WriteResult::Blocked if is_enough(self) || self.write_side.has_failed() => return Poll::Ready(()),
                WriteResult::Blocked => {}
            }
            let before = self.outbound.written();
            self.drive_handshake();
            if self.outbound.written() != before {
                continue;
            }
            if self.wants_handshake_input()
                && let ReadResult::More = self.fill(cx)
            {
                continue;
            }
            if self.poll_deadlines(cx, false).is_pending() {
                self.input.compact(self.memory.pool());
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Passes on the waiting bytes, as far as the stream takes them. Afterwards the level is that of the rest.
    pub(super) fn transmit(&mut self, cx: &mut Context<'_>) -> WriteResult {
        let sent_before = self.outbound.sent();
        let mut transmitted = WriteResult::Yielded;
        for _ in 0..ROUNDS_PER_POLL_MAX {
            if let ControlFlow::Break(end) = self.transmit_once(cx) {
                transmitted = end;
                break;
            }
        }
        self.update_level();
        if self.outbound.sent() != sent_before {
            self.deadlines.note_progress();
            self.wakers.wake(Side::Writer);
        }
        match transmitted {
            WriteResult::All => self.deadlines.note_progress(),
            WriteResult::Blocked => {
                // The peer does not read, for an unknown time.
                self.outbound.shrink();
                self.deadlines.note_blocked(self.memory.time().now(), self.limits.write_timeout);
            }
            WriteResult::Yielded => cx.waker().wake_by_ref(),
        }
        transmitted
    }

    /// One write, or one step after the last write.
    fn transmit_once(&mut self, cx: &mut Context<'_>) -> ControlFlow<WriteResult> {
        if !self.write_side.is_live() {
            // Replies of the codec after our side's shutdown cannot be sent any more.
            self.outbound.clear();
            return ControlFlow::Break(WriteResult::All);
        }
        self.flush_codec();
        let mut parts = [const { MaybeUninit::uninit() }; PARTS_MAX];
        match self.outbound.gather(&mut parts, SEND_BYTES_MAX) {
            Gathered::Nothing => return self.after_last_byte(cx),
            Gathered::File(_) => self.load_file(),
            Gathered::Parts(parts) | Gathered::PartsBeforeFile(parts) => {
                match Pin::new(&mut self.io).poll_write_vectored(cx, parts) {
                    Poll::Ready(Ok(0)) => self.break_write(io::ErrorKind::WriteZero.into()),
                    Poll::Ready(Ok(count)) => {
                        self.outbound.advance(count as u64);
                        self.is_unflushed = true;
                    }
                    Poll::Ready(Err(error)) => self.break_write(error),
                    Poll::Pending => return ControlFlow::Break(WriteResult::Blocked),
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// The stream has all bytes that could be written: it is flushed, and our side may end.
    fn after_last_byte(&mut self, cx: &mut Context<'_>) -> ControlFlow<WriteResult> {
        if self.load_filtered_file() {
            return ControlFlow::Continue(());
        }
        let mut polled = Poll::Ready(Ok(()));
        if self.is_unflushed {
            polled = Pin::new(&mut self.io).poll_flush(cx);
            self.is_unflushed = polled.is_pending();
        }
        let is_all_written = self.buffered_bytes() == 0;
        if matches!(polled, Poll::Ready(Ok(()))) && is_all_written && self.write_side.is_ending() {
            polled = Pin::new(&mut self.io).poll_shutdown(cx);
            if matches!(polled, Poll::Ready(Ok(()))) {
                self.write_side = WriteSide::Shut;
            }
        }
        match polled {
            Poll::Ready(Ok(())) if is_all_written => ControlFlow::Break(WriteResult::All),
            Poll::Ready(Ok(())) | Poll::Pending => ControlFlow::Break(WriteResult::Blocked),
            Poll::Ready(Err(error)) => {
                self.break_write(error);
                ControlFlow::Break(WriteResult::All)
            }
        }
    }

    /// Has the codec write the bytes that it buffers, and its closing bytes if our side ends.
    pub(super) fn flush_codec(&mut self) {
        if !self.has_write_failed {
            let ends = self.write_side == WriteSide::Finishing;
            let flushed = self.with_codec(|codec, _, out| {
                codec.flush(out)?;
                // Not while the codec buffers something: files that a filter has to see are read piece by piece.
                let is_last = ends && codec.is_established() && codec.buffered_bytes() == 0;
                if is_last {
                    codec.on(Lifecycle::Close, out)?;
                }
                Ok(is_last)
            });
            match flushed {
                Ok(true) => self.write_side = WriteSide::Flushing,
                Ok(false) => {}
                Err(error) => self.fail_writing(error),
            }
        }
        self.outbound.flush();
    }

    /// Bytes that the codec buffers and may still write. Bytes that wait for a handshake that will never end do not
    /// count.
    fn buffered_bytes(&self) -> usize {
        let has_ended = self.has_peer_ended || self.read_side == ReadSide::Failed;
        let is_stuck = has_ended && !self.codec.is_established();
        if self.has_write_failed || is_stuck { 0 } else { self.codec.buffered_bytes() }
    }

    /// Reads a piece of the file that comes next in the queue.
    fn load_file(&mut self) {
        let loaded =
            self.outbound.load_file(FILE_PIECE_BYTES, |region, bytes| region.file.read_at(bytes, region.offset));
        if let Err(error) = loaded {
            self.break_off(FramedError::Io(file_error(error)));
        }
    }

    /// The same for a file whose bytes a filter must see. Returns whether there was one.
    fn load_filtered_file(&mut self) -> bool {
        let Some(queue) = self.codec.file_to_load() else { return false };
        match queue.load_file(FILE_PIECE_BYTES, |region, bytes| region.file.read_at(bytes, region.offset)) {
            Ok(is_loaded) => is_loaded,
            Err(error) => {
                self.break_off(FramedError::Io(file_error(error)));
                true
            }
        }
    }
}

/// A file that is shorter than its region ends the connection: the peer must not take the part for the whole.
fn file_error(error: LoadError) -> io::Error {
    match error {
        LoadError::Read(error) => error,
        _ => io::ErrorKind::UnexpectedEof.into(),
    }
}
