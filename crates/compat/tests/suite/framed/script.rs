//! `Script`: a stream that a test writes in advance. It yields its pieces one by one, takes as many bytes as the test
//! permits, and keeps them.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The next result of a read.
#[derive(Debug)]
pub(crate) enum Piece {
    Bytes(Vec<u8>),
    /// Nothing yet; the task is woken at once.
    Pause,
    /// The end of the stream, from now on.
    End,
    Error(io::ErrorKind),
}

#[derive(Debug, Default)]
struct State {
    pieces: VecDeque<Piece>,
    reader: Option<Waker>,
    writer: Option<Waker>,
    written: Vec<u8>,
    room: usize,
    write_error: Option<io::ErrorKind>,
    flushes: usize,
    is_shut: bool,
}

/// A handle of it; the other is with the codec.
#[derive(Debug, Clone)]
pub(crate) struct Script(Rc<RefCell<State>>);

impl Script {
    /// A stream that yields these pieces, and takes everything.
    pub(crate) fn new(pieces: impl IntoIterator<Item = Piece>) -> Self {
        let state = State { pieces: pieces.into_iter().collect(), room: usize::MAX, ..State::default() };
        Self(Rc::new(RefCell::new(state)))
    }

    /// It yields one more piece.
    pub(crate) fn push(&self, piece: Piece) {
        let mut state = self.0.borrow_mut();
        state.pieces.push_back(piece);
        if let Some(waker) = state.reader.take() {
            waker.wake();
        }
    }

    /// It takes this many bytes more.
    pub(crate) fn set_room(&self, bytes: usize) {
        let mut state = self.0.borrow_mut();
        state.room = bytes;
        if let Some(waker) = state.writer.take() {
            waker.wake();
        }
    }

    pub(crate) fn fail_writes(&self, kind: io::ErrorKind) {
        let mut state = self.0.borrow_mut();
        state.write_error = Some(kind);
        if let Some(waker) = state.writer.take() {
            waker.wake();
        }
    }

    pub(crate) fn take_written(&self) -> Vec<u8> {
        std::mem::take(&mut self.0.borrow_mut().written)
    }

    pub(crate) fn is_shut(&self) -> bool {
        self.0.borrow().is_shut
    }

    pub(crate) fn flushes(&self) -> usize {
        self.0.borrow().flushes
    }

    /// Pieces that no read has found yet.
    pub(crate) fn unread(&self) -> usize {
        self.0.borrow().pieces.len()
    }
}

impl AsyncRead for Script {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut state = self.0.borrow_mut();
        match state.pieces.pop_front() {
            Some(Piece::Bytes(mut bytes)) => {
                let rest = bytes.split_off(bytes.len().min(buffer.remaining()));
                buffer.put_slice(&bytes);
                if !rest.is_empty() {
                    state.pieces.push_front(Piece::Bytes(rest));
                }
                Poll::Ready(Ok(()))
            }
            Some(Piece::Pause) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Some(Piece::End) => {
                state.pieces.push_front(Piece::End);
                Poll::Ready(Ok(()))
            }
            Some(Piece::Error(kind)) => Poll::Ready(Err(kind.into())),
            None => {
                state.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl AsyncWrite for Script {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = self.0.borrow_mut();
        if let Some(kind) = state.write_error {
            return Poll::Ready(Err(kind.into()));
        }
        if state.room == 0 {
            state.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let count = bytes.len().min(state.room);
        state.room -= count;
        state.written.extend_from_slice(&bytes[..count]);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.borrow_mut().flushes += 1;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.borrow_mut().is_shut = true;
        Poll::Ready(Ok(()))
    }
}
