//! `HandleBody`: the body of a response on another thread than its loop's, and the pipe that it comes through.

use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use futures_core::Stream;
use tidegate_http_message::Body;

use super::{Handle, HandleError, lock};
use crate::ClientError;

/// The body of a response to a request through a [`Handle`]. Dropping it before its end closes the connection.
pub struct HandleBody {
    pipe: Arc<Mutex<Pipe>>,
    /// Keeps the loop of the client running.
    handle: Option<Handle>,
}

/// The loop's end of the pipe. If it is dropped before the end of the body, the reader gets an error.
pub(super) struct PipeWriter {
    pipe: Arc<Mutex<Pipe>>,
    /// The end of the body, or an error, has been passed on.
    has_ended: bool,
}

#[derive(Default)]
struct Pipe {
    pieces: VecDeque<Result<Bytes, HandleError>>,
    bytes: usize,
    has_no_writer: bool,
    has_no_reader: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

pub(super) fn pipe() -> (HandleBody, PipeWriter) {
    let pipe = Arc::new(Mutex::new(Pipe::default()));
    (HandleBody { pipe: pipe.clone(), handle: None }, PipeWriter { pipe, has_ended: false })
}

/// Copies a body into a pipe, as fast as its reader takes the pieces.
pub(super) async fn copy(mut body: Body, mut writer: PipeWriter) {
    loop {
        let next = poll_fn(|cx| {
            {
                let mut pipe = lock(&writer.pipe);
                if pipe.has_no_reader {
                    return Poll::Ready(None);
                }
                pipe.writer = Some(cx.waker().clone());
                if pipe.bytes >= PIPE_BYTES_MAX {
                    return Poll::Pending;
                }
            }
            Pin::new(&mut body).poll_next(cx)
        });
        let Some(piece) = next.await else {
            writer.has_ended = true;
            return;
        };
        let piece = piece.map(tidegate_http_message::Data::into_bytes);
        let piece = piece.map_err(|error| HandleError::from(&ClientError::from(error)));
        writer.has_ended = piece.is_err();
        writer.put(piece);
        if writer.has_ended {
            return;
        }
    }
}

impl PipeWriter {
    fn put(&self, piece: Result<Bytes, HandleError>) {
        let mut pipe = lock(&self.pipe);
        pipe.bytes += piece.as_ref().map_or(0, Bytes::len);
        pipe.pieces.push_back(piece);
        if let Some(waker) = pipe.reader.take() {
            waker.wake();
        }
    }
}

impl Drop for PipeWriter {
    fn drop(&mut self) {
        let mut pipe = lock(&self.pipe);
        if !self.has_ended {
            // The loop has ended, or the task has panicked.
            pipe.pieces.push_back(Err(HandleError::LoopEnded));
        }
        pipe.has_no_writer = true;
        if let Some(waker) = pipe.reader.take() {
            waker.wake();
        }
    }
}

impl HandleBody {
    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// [`HandleError`]: the connection broke, or a limit was exceeded.
    pub async fn next(&mut self) -> Option<Result<Bytes, HandleError>> {
        poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    /// All of the body, at most `bytes_max` bytes.
    ///
    /// # Errors
    /// [`HandleError::TooLong`]; otherwise as [`next`](Self::next).
    pub async fn bytes(mut self, bytes_max: usize) -> Result<Bytes, HandleError> {
        let mut all = Vec::new();
        while let Some(piece) = self.next().await.transpose()? {
            if piece.len() > bytes_max - all.len() {
                return Err(HandleError::TooLong);
            }
            all.extend_from_slice(&piece);
        }
        Ok(all.into())
    }

    pub(super) fn keep(&mut self, handle: Handle) {
        self.handle = Some(handle);
    }
}

impl Stream for HandleBody {
    type Item = Result<Bytes, HandleError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut pipe = lock(&self.pipe);
        if let Some(piece) = pipe.pieces.pop_front() {
            pipe.bytes -= piece.as_ref().map_or(0, Bytes::len);
            if let Some(waker) = pipe.writer.take() {
                waker.wake();
            }
            return Poll::Ready(Some(piece));
        }
        if pipe.has_no_writer {
            return Poll::Ready(None);
        }
        pipe.reader = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for HandleBody {
    fn drop(&mut self) {
        let mut pipe = lock(&self.pipe);
        pipe.has_no_reader = true;
        if let Some(waker) = pipe.writer.take() {
            waker.wake();
        }
    }
}

impl fmt::Debug for HandleBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandleBody").field("handle", &self.handle).finish_non_exhaustive()
    }
}

/// A stream whose errors are boxed.
pub(super) struct BoxedErrors<S>(pub(super) Pin<Box<S>>);

impl<S: Stream<Item = Result<Bytes, E>>, E: Into<Box<dyn Error + Send + Sync>>> Stream for BoxedErrors<S> {
    type Item = Result<Bytes, Box<dyn Error + Send + Sync>>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.as_mut().poll_next(cx).map(|next| next.map(|piece| piece.map_err(Into::into)))
    }
}

/// A stream of boxed errors as the body of a request takes it.
pub(super) struct LocalErrors(pub(super) SendStream);

/// A stream that may go to the loop.
pub(super) type SendStream = Pin<Box<dyn Stream<Item = Result<Bytes, Box<dyn Error + Send + Sync>>> + Send>>;

impl Stream for LocalErrors {
    type Item = Result<Bytes, Box<dyn Error>>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.as_mut().poll_next(cx).map(|next| next.map(|piece| piece.map_err(|error| -> Box<dyn Error> { error })))
    }
}

/// Bytes of a body that wait for their reader. Another piece is received below this.
const PIPE_BYTES_MAX: usize = 64 * 1024;
