//! One request and its response, on an HTTP/1.1 connection or an HTTP/2 stream.
//!
//! [`ClientExchange`] hides the types of codecs: the request is sent through it, its response is received through it, and
//! it ends by a [`Release`], such as that of a place in a pool. `ChannelExchange` owns its connection or its stream meanwhile.
//! The two directions end each on their own.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Instant;

use tidegate_codec::DynOver;
use tidegate_codec::framing::Raw;
use tidegate_engine::{Channel, ChannelError, CloseReason, SendError};
use tidegate_http_message::BodyError;
use tidegate_http_message::exchange::{Exchange, Piece};
use tidegate_http1::client::{Incoming, Outgoing};
use tidegate_http1::{self as http1, ResponseHead, Status};

use super::channel::ExchangeChannel;
use super::codec::ExchangeCodec;
use super::retry::Retry;

/// One request and its response, whatever the version is.
pub trait ClientExchange: Exchange {
    /// Sends a whole request, or its head. `message` is taken when it is sent.
    fn poll_send(&self, message: &mut Option<Outgoing>, cx: &mut Context<'_>) -> Poll<Result<(), ExchangeFailure>>;

    /// The next head: of an interim response, or of the final one.
    fn poll_head(&self, cx: &mut Context<'_>) -> Poll<Result<ResponseHead, ExchangeFailure>>;

    /// From that time on whatever waits fails.
    fn set_deadline(&self, at: Option<Instant>);

    /// Nothing reads the response any more. Unless it is complete, or the rest of it is here already, the connection is
    /// closed.
    fn abandon(&self);

    /// ExchangeChannel the request, unless its writer has, and waits until its end is queued.
    fn poll_finish(&self, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>>;

    /// Whether the connection takes nothing more of the request.
    fn has_write_failed(&self) -> bool;

    /// The rest of the request is not sent: the connection carries no other one.
    fn give_up_sending(&self);

    /// Whether the connection has left HTTP with the response.
    fn has_left_http(&self) -> bool;

    /// The connection, after a response with which it has left HTTP. The exchange is over then.
    fn take_switched(&self) -> Option<Channel<DynOver<Raw>>>;

    /// Resets the connection.
    fn reset(&self);
}

/// Why an exchange has failed before the head of its response.
#[derive(Debug)]
pub enum ExchangeFailure {
    /// The connection or the stream is closed.
    Closed {
        /// Why it is closed.
        reason: Rc<CloseReason>,
        /// Whether the request may be sent again.
        retry: Retry,
    },
    /// The deadline has come.
    Deadline,
    /// The protocol cannot express the request.
    Misuse(&'static str),
}

/// Where the channel of an exchange goes when the exchange is over.
pub trait Release<C: ExchangeCodec>: 'static {
    /// Request and response are complete, unless the request `is_cut_off`.
    fn complete(self, channel: Channel<C>, is_cut_off: bool);

    /// The exchange is given up.
    fn give_up(self, channel: ExchangeChannel<C>);
}

/// An exchange on a channel of its own, which it passes to `R` at its end.
pub struct ChannelExchange<C: ExchangeCodec, R: Release<C>> {
    channel: RefCell<ExchangeChannel<C>>,
    release: Cell<Option<R>>,
    /// The request is not complete.
    is_sending: Cell<bool>,
    /// The response is not complete.
    is_receiving: Cell<bool>,
    /// The head of the response has been received.
    has_head: Cell<bool>,
    has_deadline: Cell<bool>,
    has_write_failed: Cell<bool>,
    /// The request was not sent to its end.
    is_cut_off: Cell<bool>,
    /// The end of the request, which waits for room.
    end: Cell<Option<Outgoing>>,
    /// The task that waits for room: nothing else wakes it when the exchange is over.
    writer: Cell<Option<Waker>>,
}

impl<C: ExchangeCodec, R: Release<C>> ChannelExchange<C, R> {
    /// An exchange whose request is not sent yet.
    pub fn new(channel: Channel<C>, release: R) -> Self {
        Self {
            channel: RefCell::new(ExchangeChannel::Whole(channel)),
            release: Cell::new(Some(release)),
            is_sending: Cell::new(true),
            is_receiving: Cell::new(true),
            has_head: Cell::new(false),
            has_deadline: Cell::new(false),
            has_write_failed: Cell::new(false),
            is_cut_off: Cell::new(false),
            end: Cell::new(None),
            writer: Cell::new(None),
        }
    }

    /// One of the directions has ended: if the other has as well, the exchange is over.
    fn end_if_complete(&self) {
        if self.is_sending.get() || self.is_receiving.get() {
            return;
        }
        let (Some(mut channel), Some(release)) = (self.channel.take().take(), self.release.take()) else { return };
        if self.has_deadline.take() {
            channel.set_deadline(None);
        }
        release.complete(channel, self.is_cut_off.get());
    }

    /// Closes the connection, or resets the stream. The server sees that the request was not complete, or that its response is
    /// not wanted.
    fn close(&self) {
        self.is_sending.set(false);
        self.is_receiving.set(false);
        let mut channel = self.channel.take();
        match self.release.take() {
            Some(release) => release.give_up(channel),
            None => channel.abort(),
        }
        if let Some(waker) = self.writer.take() {
            waker.wake();
        }
    }

    #[cold]
    fn misuse(error: &C::Error) -> &'static str {
        C::misuse(error).map_or("the connection failed", |misuse| misuse.text())
    }

    #[cold]
    fn write_failed(&self, error: BodyError) -> BodyError {
        self.has_write_failed.set(true);
        error
    }

    /// Sends a part of the request, or returns it if there is no room.
    fn send_now(&self, message: Outgoing) -> Result<Option<Outgoing>, BodyError> {
        if !self.is_sending.get() {
            return Err(BodyError::Over);
        }
        match self.channel.borrow_mut().send(message) {
            Some(Ok(())) => Ok(None),
            Some(Err(SendError::Full(message) | SendError::Busy(message))) => Ok(Some(message)),
            // The connection is still there: the error is the caller's.
            Some(Err(SendError::Codec(error))) => Err(BodyError::Misuse(Self::misuse(&error))),
            Some(Err(_)) | None => Err(self.write_failed(BodyError::Over)),
        }
    }

    /// Sends the end of the request, now or as soon as there is room.
    fn send_end(&self, end: Outgoing) -> Result<(), BodyError> {
        match self.send_now(end)? {
            None => {
                self.is_sending.set(false);
                self.end_if_complete();
            }
            Some(end) => self.end.set(Some(end)),
        }
        Ok(())
    }

    fn poll_recv(&self, cx: &mut Context<'_>) -> Poll<Result<Option<Incoming>, ChannelError>> {
        let received = self.channel.borrow_mut().poll_recv(cx);
        if let Poll::Ready(Err(ChannelError::Busy)) = received {
            return poll_later(cx);
        }
        received
    }

    fn failure(&self, error: ChannelError) -> ExchangeFailure {
        match error {
            ChannelError::Closed(reason) => {
                let retry = if self.has_head.get() { Retry::Never } else { C::retry(&reason) };
                ExchangeFailure::Closed { reason, retry }
            }
            ChannelError::Deadline => ExchangeFailure::Deadline,
            _ => ExchangeFailure::Misuse("the connection failed"),
        }
    }

    /// Whether the connection has left HTTP with this response: it carries another protocol, or is a tunnel.
    fn has_switched(&self, head: &ResponseHead) -> bool {
        let status = head.status();
        (status == Status::SWITCHING_PROTOCOLS || (200..300).contains(&status.code())) && self.has_left_http()
    }

    /// Takes the pieces of the body that have arrived already. Returns whether the response is complete.
    fn drain(&self) -> bool {
        let cx = &mut Context::from_waker(Waker::noop());
        for _ in 0..DRAINED_PIECES_MAX {
            match self.channel.borrow_mut().poll_recv(cx) {
                Poll::Ready(Ok(Some(Incoming::Data(_) | Incoming::Trailers(_)))) => {}
                Poll::Ready(Ok(Some(Incoming::End))) => return true,
                _ => return false,
            }
        }
        false
    }
}

impl<C: ExchangeCodec, R: Release<C>> ClientExchange for ChannelExchange<C, R> {
    fn poll_send(&self, message: &mut Option<Outgoing>, cx: &mut Context<'_>) -> Poll<Result<(), ExchangeFailure>> {
        let Some(outgoing) = message.take() else { return Poll::Ready(Ok(())) };
        let is_whole = matches!(outgoing, Outgoing::Request(_));
        let sent = self.channel.borrow_mut().send(outgoing);
        match sent {
            Some(Ok(())) => {
                let mut channel = self.channel.borrow_mut();
                if is_whole {
                    self.is_sending.set(false);
                }
                if !is_whole || !channel.is_writable() {
                    channel.split();
                }
                Poll::Ready(Ok(()))
            }
            Some(Err(SendError::Busy(outgoing) | SendError::Full(outgoing))) => {
                *message = Some(outgoing);
                poll_later(cx)
            }
            Some(Err(SendError::Codec(error))) => {
                self.close();
                Poll::Ready(Err(ExchangeFailure::Misuse(Self::misuse(&error))))
            }
            // The codec has closed since the connection was taken from the pool: nothing is sent.
            Some(Err(_)) | None => {
                self.close();
                Poll::Ready(Err(ExchangeFailure::Closed {
                    reason: Rc::new(CloseReason::Done),
                    retry: Retry::IfIdempotent,
                }))
            }
        }
    }

    fn poll_head(&self, cx: &mut Context<'_>) -> Poll<Result<ResponseHead, ExchangeFailure>> {
        let failure = match ready!(self.poll_recv(cx)) {
            Ok(Some(Incoming::Interim(head))) => {
                // An interim response is an answer: the request has arrived.
                self.has_head.set(true);
                return Poll::Ready(Ok(head));
            }
            Ok(Some(Incoming::Head(head))) => {
                self.has_head.set(true);
                if !head.has_body() && !self.has_switched(&head) {
                    self.is_receiving.set(false);
                    self.end_if_complete();
                }
                return Poll::Ready(Ok(head));
            }
            Ok(_) => self.failure(ChannelError::Closed(Rc::new(CloseReason::Done))),
            Err(error) => self.failure(error),
        };
        self.close();
        Poll::Ready(Err(failure))
    }

    fn set_deadline(&self, at: Option<Instant>) {
        if at.is_some() || self.has_deadline.get() {
            self.has_deadline.set(at.is_some());
            self.channel.borrow_mut().set_deadline(at);
        }
    }

    fn abandon(&self) {
        if !self.is_receiving.get() {
            return;
        }
        if self.has_head.get() && !self.is_sending.get() && self.drain() {
            self.is_receiving.set(false);
            self.end_if_complete();
        } else {
            self.close();
        }
    }

    fn poll_finish(&self, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        while self.is_sending.get() {
            ready!(self.poll_ready(0, cx))?;
            if self.is_sending.get() {
                self.send_end(Outgoing::End)?;
            }
        }
        Poll::Ready(Ok(()))
    }

    fn has_write_failed(&self) -> bool {
        self.has_write_failed.get()
    }

    fn give_up_sending(&self) {
        if self.is_sending.replace(false) {
            self.is_cut_off.set(true);
            self.end_if_complete();
        }
    }

    fn has_left_http(&self) -> bool {
        self.channel.borrow_mut().with_codec(C::has_left_http).unwrap_or(false)
    }

    fn take_switched(&self) -> Option<Channel<DynOver<Raw>>> {
        let channel = self.channel.take();
        drop(self.release.take());
        channel.into_raw()?.ok()
    }

    fn reset(&self) {
        self.close();
    }
}

impl<C: ExchangeCodec, R: Release<C>> Exchange for ChannelExchange<C, R> {
    fn poll_body(&self, _: u32, cx: &mut Context<'_>) -> Poll<Result<Option<Piece>, BodyError>> {
        if !self.is_receiving.get() {
            return Poll::Ready(Ok(None));
        }
        Poll::Ready(match ready!(self.poll_recv(cx)) {
            Ok(Some(Incoming::Data(data))) => Ok(Some(Piece::Data(data))),
            Ok(Some(Incoming::Trailers(trailers))) => Ok(Some(Piece::Trailers(trailers))),
            Ok(Some(Incoming::End)) => {
                self.is_receiving.set(false);
                self.end_if_complete();
                Ok(None)
            }
            // The codec reports a body that is cut off as an error.
            Ok(_) => {
                self.close();
                Err(BodyError::Closed(Rc::new(CloseReason::Done)))
            }
            Err(error) => {
                self.close();
                Err(error.into())
            }
        })
    }

    fn poll_ready(&self, _: u32, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        let ready = self.channel.borrow_mut().poll_ready(cx);
        let Some(ready) = ready else {
            return Poll::Ready(Err(self.write_failed(BodyError::Over)));
        };
        match ready {
            Poll::Ready(Err(ChannelError::Busy)) => poll_later(cx),
            Poll::Ready(Err(error)) => Poll::Ready(Err(self.write_failed(error.into()))),
            Poll::Ready(Ok(())) => match self.end.take() {
                Some(end) => Poll::Ready(self.send_end(end)),
                None => Poll::Ready(Ok(())),
            },
            Poll::Pending => {
                self.writer.set(Some(cx.waker().clone()));
                Poll::Pending
            }
        }
    }

    fn send(&self, _: u32, message: http1::Outgoing) -> Result<(), BodyError> {
        let message = match message {
            http1::Outgoing::Data(data) => Outgoing::Data(data),
            http1::Outgoing::Chunk(chunk) => Outgoing::Chunk(chunk),
            http1::Outgoing::Trailers(fields) => return self.send_end(Outgoing::Trailers(fields)),
            http1::Outgoing::End => return self.send_end(Outgoing::End),
            _ => return Err(BodyError::Misuse("a response was sent as the body of a request")),
        };
        match self.send_now(message)? {
            None => Ok(()),
            Some(_) => {
                Err(BodyError::Misuse("the body was written from within a handler, or without waiting for room"))
            }
        }
    }
}

impl<C: ExchangeCodec, R: Release<C>> Drop for ChannelExchange<C, R> {
    fn drop(&mut self) {
        if !self.channel.get_mut().is_over() {
            self.close();
        }
    }
}

/// Within a dispatch connections cannot be reached: the task waits again later.
#[cold]
fn poll_later<T>(cx: &Context<'_>) -> Poll<T> {
    cx.waker().wake_by_ref();
    Poll::Pending
}

/// Pieces of a body that are skipped, so that its connection can carry another request.
const DRAINED_PIECES_MAX: usize = 4;
