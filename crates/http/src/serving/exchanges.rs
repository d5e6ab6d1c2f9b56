//! `Exchanges`: the requests and responses of one connection of the server, as their bodies and writers see them.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tidegate_codec::later;
use tidegate_engine::{Account, Channel, ChannelError, CloseReason, ConnectionCharge, SendError, task};
use tidegate_http_message::BodyError;
use tidegate_http_message::exchange::{Exchange, Piece};
use tidegate_http1::{Incoming, Outgoing, Refusal, Status};
use tidegate_sys::Address;

use crate::codec::HttpCodec;
use crate::serving::retained::{Framing, RetainedBytes};

/// The exchanges of one connection, one after the other, while a task serves them.
pub(crate) struct Exchanges<C: HttpCodec> {
    channel: RefCell<Option<Channel<C>>>,
    /// The number of the exchange in progress.
    number: Cell<u32>,
    /// Inbound state of the request.
    inbound: Cell<Inbound>,
    /// When the exchange began.
    began: Cell<Instant>,
    /// When the last piece of the request came.
    received: Cell<Instant>,
    /// How the body of the request makes messages.
    framing: Cell<Framing>,
    /// The part of the body that the function may have in memory.
    retained: RefCell<Option<Box<RetainedBytes>>>,
    /// The writer has sent the end of the response.
    has_ended: Cell<bool>,
    /// The request's body has ended in an error.
    has_failed: Cell<bool>,
    /// The status with which the codec has refused the body.
    refused: Cell<Option<Status>>,
    /// Messages sent without waiting for room, in their order: the end of a body behind a large piece, or within the
    /// dispatch of another connection.
    late: RefCell<VecDeque<Outgoing>>,
    /// The tasks that wait for a piece of the body, and for room. They may be tasks of the application, which nothing
    /// else wakes when the exchange is over.
    waiting: RefCell<[Option<Waker>; 2]>,
    /// How many connections tasks of this crate serve on the loop.
    served: Rc<Cell<usize>>,
}

/// Why a request is late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeoutKind {
    /// Its body is not complete.
    Peer,
    /// The function has not responded.
    Function,
}

/// Inbound state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Inbound {
    /// Its body, and the peer waits for `100 Continue`.
    AwaitsContinue,
    /// Its body.
    Body,
    Nothing,
}

impl<C: HttpCodec> Exchanges<C> {
    pub(crate) fn new(channel: Channel<C>, served: Rc<Cell<usize>>) -> Self {
        served.set(served.get() + 1);
        Self {
            channel: RefCell::new(Some(channel)),
            number: Cell::new(0),
            inbound: Cell::new(Inbound::Nothing),
            began: Cell::new(task::now()),
            received: Cell::new(task::now()),
            framing: Cell::default(),
            retained: RefCell::default(),
            has_ended: Cell::new(false),
            has_failed: Cell::new(false),
            refused: Cell::new(None),
            late: RefCell::default(),
            waiting: RefCell::default(),
            served,
        }
    }

    /// Begins the next exchange, and returns its number. Bodies and writers of those before are of no use any more.
    pub(crate) fn begin(&self, inbound: Inbound, framing: Framing) -> u32 {
        self.number.set(self.number.get().wrapping_add(1));
        self.inbound.set(inbound);
        self.framing.set(framing);
        drop(self.retained.take());
        self.has_ended.set(false);
        self.late.borrow_mut().clear();
        self.began.set(task::now());
        self.received.set(task::now());
        self.wake_waiting();
        self.number.get()
    }

    /// When the request in progress is late, and whether the peer is to blame.
    pub(crate) fn deadline(&self, receive_timeout: Duration, request_timeout: Duration) -> (Instant, TimeoutKind) {
        let by_function = later(self.received.get(), request_timeout);
        let by_peer = later(self.began.get(), receive_timeout);
        match self.inbound.get() {
            Inbound::Body | Inbound::AwaitsContinue if by_peer < by_function => (by_peer, TimeoutKind::Peer),
            Inbound::Body if self.waiting.borrow()[BODY].is_some() => (by_function, TimeoutKind::Peer),
            _ => (by_function, TimeoutKind::Function),
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.get()
    }

    /// Has a peer that waits for `100 Continue` send its body.
    pub(crate) fn ask_for_body(&self, number: u32) -> Result<(), BodyError> {
        if self.inbound.get() == Inbound::AwaitsContinue {
            self.inbound.set(Inbound::Body);
            self.send(number, Outgoing::Continue)?;
        }
        Ok(())
    }

    /// Whether something waits for room that was sent.
    pub(crate) fn has_late(&self) -> bool {
        !self.late.borrow().is_empty()
    }

    /// Takes the channel: all exchanges are over.
    pub(crate) fn take(&self) -> Option<Channel<C>> {
        self.number.set(self.number.get().wrapping_add(1));
        drop(self.retained.take());
        self.wake_waiting();
        let channel = self.channel.borrow_mut().take();
        if channel.is_some() {
            self.served.set(self.served.get() - 1);
        }
        channel
    }

    fn wake_waiting(&self) {
        self.waiting.take().into_iter().flatten().for_each(Waker::wake);
    }

    /// Takes note of a task that waits.
    fn note_waiting<T>(&self, place: usize, poll: Poll<T>, cx: &Context<'_>) -> Poll<T> {
        if poll.is_pending() {
            match &mut self.waiting.borrow_mut()[place] {
                Some(waker) => waker.clone_from(cx.waker()),
                empty => *empty = Some(cx.waker().clone()),
            }
        }
        poll
    }

    pub(crate) fn poll_recv(&self, cx: &mut Context<'_>) -> Poll<Result<Option<Incoming>, ChannelError>> {
        match &mut *self.channel.borrow_mut() {
            Some(channel) => channel.poll_recv(cx),
            None => Poll::Ready(Ok(None)),
        }
    }

    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Channel<C>) -> T) -> Option<T> {
        self.channel.borrow_mut().as_mut().map(act)
    }

    /// Whether the body has ended in an error of the connection, which is gone.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.get()
    }

    /// The status with which the codec has refused the body, and which the client gets whatever the function responds.
    pub(crate) fn refused(&self) -> Option<Status> {
        self.refused.get()
    }

    /// Has the codec go on with the exchange when the client ends its side.
    pub(crate) fn keep_half_closed(&self) {
        self.with(|channel| channel.with_codec(C::keep_half_closed));
    }

    /// Ends the connection: the client has left. The sent part of the response leaves, unless the end of the connection
    /// would then look like that of the response.
    fn leave(&self) -> ChannelError {
        if let Some(mut channel) = self.take()
            && channel.with_codec(|codec| codec.status().is_close_delimited).unwrap_or(false)
        {
            channel.abort();
        }
        ChannelError::Closed(Rc::new(CloseReason::Done))
    }

    /// Waits until the connection is gone, or the client has ended its side while the response is not complete. Once the
    /// response is complete the codec yields the next request, which must not be lost here.
    pub(crate) fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<ChannelError> {
        if self.inbound.get() != Inbound::Nothing || self.has_ended() {
            // Another may wait for a piece of the body, or for the next request.
            if let Some(Poll::Ready(error)) = self.with(|channel| channel.poll_closed(cx)) {
                return Poll::Ready(error);
            }
            return if self.poll_left(cx).is_ready() { Poll::Ready(self.leave()) } else { Poll::Pending };
        }
        match self.poll_recv(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(error),
            Poll::Ready(Ok(None)) => Poll::Ready(self.leave()),
            // Nothing comes before the response is complete.
            Poll::Ready(Ok(Some(_))) | Poll::Pending => Poll::Pending,
        }
    }

    /// Waits until the client has ended its side within the exchange, unless the exchange goes on then. An unread rest
    /// of the request does not matter: its function may never read it.
    fn poll_left(&self, cx: &mut Context<'_>) -> Poll<()> {
        let left = self.with(|channel| {
            let keeps = self.has_ended() || channel.with_codec(|codec| codec.keeps_half_closed()).unwrap_or(true);
            if keeps { Poll::Pending } else { channel.poll_hung_up(cx) }
        });
        left.unwrap_or(Poll::Pending)
    }

    /// Waits until the queue has room, and everything sent before is in it.
    pub(crate) fn poll_room(&self, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        loop {
            match self.with(|channel| std::pin::Pin::new(&mut channel.ready()).poll(cx)) {
                Some(Poll::Ready(Err(ChannelError::Busy))) => return poll_later(cx),
                Some(ready) => std::task::ready!(ready)?,
                None => return Poll::Ready(Err(BodyError::Over)),
            }
            let Some(message) = self.late.borrow_mut().pop_front() else { return Poll::Ready(Ok(())) };
            if let Some(message) = self.send_now(message)? {
                self.late.borrow_mut().push_front(message);
            }
        }
    }

    /// Sends a message, or returns it if there is no room.
    fn send_now(&self, message: Outgoing) -> Result<Option<Outgoing>, BodyError> {
        match self.with(|channel| channel.send(message)).ok_or(BodyError::Over)? {
            Ok(_) => Ok(None),
            // Within a dispatch nothing but the end of a body is sent: it waits for the task of its exchange.
            Err(SendError::Full(message) | SendError::Busy(message)) => Ok(Some(message)),
            Err(SendError::Codec(error)) => Err(BodyError::Misuse(C::misuse(&error))),
            // The next wait for the connection has the reason.
            Err(_) => Err(BodyError::Over),
        }
    }

    /// Calls `act` with the body bytes that the function may have in memory.
    fn with_retained(&self, act: impl FnOnce(&mut RetainedBytes)) {
        let mut retained = self.retained.borrow_mut();
        act(retained.get_or_insert_with(|| Box::new(RetainedBytes::new(self.framing.get()))));
    }

    fn check(&self, number: u32) -> Result<(), BodyError> {
        if number == self.number.get() && !self.has_ended() { Ok(()) } else { Err(BodyError::Over) }
    }
}

impl<C: HttpCodec> Exchange for Exchanges<C> {
    fn is_draining(&self) -> bool {
        self.with(|channel| channel.is_draining()).unwrap_or(false)
    }

    fn poll_body(&self, number: u32, cx: &mut Context<'_>) -> Poll<Result<Option<Piece>, BodyError>> {
        self.check(number)?;
        self.ask_for_body(number)?;
        if self.inbound.get() == Inbound::Nothing {
            return Poll::Ready(Ok(None));
        }
        if let Some(retained) = &mut *self.retained.borrow_mut() {
            retained.on_asked(task::now());
        }
        let received = std::task::ready!(self.note_waiting(BODY, self.poll_recv(cx), cx));
        self.received.set(task::now());
        Poll::Ready(match received {
            Ok(Some(Incoming::Data(data))) => Ok(Some(Piece::Data(data))),
            Ok(Some(Incoming::Trailers(trailers))) => Ok(Some(Piece::Trailers(trailers))),
            Ok(Some(Incoming::End | Incoming::Head(_) | Incoming::Preface) | None) => {
                self.inbound.set(Inbound::Nothing);
                Ok(None)
            }
            Err(ChannelError::Busy) => return poll_later(cx),
            Err(error) => {
                self.has_failed.set(true);
                if let Some(CloseReason::Protocol(fault)) = error.closed() {
                    self.refused.set(Refusal::take(fault).map(|refusal| refusal.status));
                }
                Err(error.into())
            }
        })
    }

    fn poll_ready(&self, number: u32, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        self.check(number)?;
        self.note_waiting(ROOM, self.poll_room(cx), cx)
    }

    fn poll_flush(&self, number: u32, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        self.check(number)?;
        let flushed = match self.poll_room(cx)? {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => match self.with(|channel| channel.poll_flush(cx)) {
                Some(Poll::Ready(Err(ChannelError::Busy))) => return poll_later(cx),
                Some(flushed) => flushed.map_err(BodyError::from),
                None => Poll::Ready(Err(BodyError::Over)),
            },
        };
        self.note_waiting(ROOM, flushed, cx)
    }

    fn send(&self, number: u32, message: Outgoing) -> Result<(), BodyError> {
        self.check(number)?;
        let ends = matches!(message, Outgoing::End | Outgoing::Trailers(_) | Outgoing::Response(_));
        let is_interim = matches!(message, Outgoing::Continue | Outgoing::Interim(_));
        let late = if self.late.borrow().is_empty() { self.send_now(message)? } else { Some(message) };
        self.late.borrow_mut().extend(late);
        if ends {
            self.has_ended.set(true);
            drop(self.retained.take());
            self.wake_waiting();
        } else if let Some(retained) = &mut *self.retained.borrow_mut()
            && !is_interim
        {
            retained.on_response();
        }
        Ok(())
    }

    fn account(&self, number: u32) -> Option<Account> {
        self.check(number).ok()?;
        self.with(|channel| channel.account())
    }

    fn hand_over(&self, number: u32, piece: &[u8]) {
        if self.check(number).is_ok() {
            self.with_retained(|retained| retained.add(piece, task::now(), || self.account(number)));
        }
    }

    fn keep(&self, number: u32, charge: ConnectionCharge) {
        if self.check(number).is_ok() {
            self.with_retained(|retained| retained.keep(charge));
        }
    }

    fn destination(&self, number: u32) -> Option<Address> {
        self.check(number).ok()?;
        self.with(|channel| {
            let reported = channel.with_codec(|codec| (codec.reported_peer().is_some(), codec.reported_destination()));
            match reported.ok()? {
                // The address here is that of the proxy in front, which has reported none.
                (true, reported) => reported,
                (false, _) => channel.local().ok(),
            }
        })?
    }
}

/// The function of another request waits, within the dispatch of its connection: it waits again in a task.
#[cold]
fn poll_later<T>(cx: &Context<'_>) -> Poll<T> {
    cx.waker().wake_by_ref();
    Poll::Pending
}

impl<C: HttpCodec> Drop for Exchanges<C> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// Places of the tasks that wait.
const BODY: usize = 0;
const ROOM: usize = 1;
