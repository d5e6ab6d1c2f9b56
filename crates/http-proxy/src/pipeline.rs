//! `Pipeline`: a connection to an upstream with several requests in progress, all of one client's connection.
//!
//! An intermediary may pipeline requests that it receives pipelined (RFC 9112 §9.3.2). A response belongs to the oldest
//! request without one. So the requests take turns: one receives when those before it have their responses, and a request
//! that is given up ends the connection, since nothing else tells whose the next response is. The requests behind it have
//! been passed over, and are sent again on another connection.
//!
//! Nothing of one client can reach another one by this: the connection carries requests of this client alone from then on,
//! also once all are complete; see `pool.rs`.
//!
//! A request never waits for one that its client has sent later: the connection takes a request only behind those before
//! it.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tidegate_engine::ChannelError;
#[cfg(feature = "connect-udp")]
use tidegate_http::gateway::CapsuleRelayTunnel;
use tidegate_http::gateway::PipelineSlot;
use tidegate_http1::client::{Incoming, Outgoing};

use super::connection::Connection;
use super::error::SendFailure;
use super::lease::{InProgress, Lease};
use super::pool::Pool;
use tidegate_l4::Tunnel;

/// The pipelines of the requests of one client's connection, as long as that is there.
#[derive(Default)]
pub(super) struct Pipelines {
    all: RefCell<Vec<Rc<Pipeline>>>,
    /// The pools with connections that the client owns, and its number.
    pools: RefCell<Vec<(Weak<Pool>, u64)>>,
}

/// A connection with several requests in progress.
struct Pipeline {
    upstream: u64,
    /// `None` once no further request is taken.
    connection: RefCell<Option<Box<dyn Connection>>>,
    /// Of all its requests the upstream works on one.
    counted: Cell<Option<InProgress>>,
    /// How many requests were sent.
    sent: Cell<u32>,
    /// How many of them are complete.
    complete: Cell<u32>,
    /// The place of the last one in the order of its client.
    last: Cell<u32>,
    /// How long a request behind others may wait for the first byte of its response, once it has its turn.
    patience: Duration,
    /// The requests that wait for their turn to receive.
    waiting: RefCell<Vec<(u32, Waker)>>,
}

impl Pipelines {
    /// The connection of a pipeline to an upstream, for one more request.
    pub(super) fn join(&self, lease: &Lease, place: &PipelineSlot) -> Option<Box<dyn Connection>> {
        let mut pipelines = self.all.borrow_mut();
        pipelines.retain(|pipeline| pipeline.connection.borrow().is_some());
        let mut of_upstream = pipelines.iter().filter(|pipeline| pipeline.upstream == lease.id());
        let joined = of_upstream.find_map(|pipeline| pipeline.join(place))?;
        drop(lease.take_count());
        Some(joined)
    }

    /// Begins a pipeline with an idle connection.
    pub(super) fn begin(
        &self,
        lease: &Lease,
        place: &PipelineSlot,
        (pool, connection): (&Rc<Pool>, Box<dyn Connection>),
        patience: Duration,
    ) -> Box<dyn Connection> {
        let mut pools = self.pools.borrow_mut();
        if !pools.iter().any(|(known, _)| known.as_ptr() == Rc::as_ptr(pool)) {
            pool.add_owner(place.client());
            pools.push((Rc::downgrade(pool), place.client()));
        }
        let pipeline = Rc::new(Pipeline {
            upstream: lease.id(),
            connection: RefCell::new(Some(connection)),
            counted: Cell::new(lease.take_count()),
            sent: Cell::new(1),
            complete: Cell::new(0),
            last: Cell::new(place.number),
            patience,
            waiting: RefCell::default(),
        });
        self.all.borrow_mut().push(pipeline.clone());
        Box::new(Turn::new(pipeline, 0))
    }
}

impl Pipeline {
    fn join(self: &Rc<Self>, place: &PipelineSlot) -> Option<Box<dyn Connection>> {
        let mut connection = self.connection.borrow_mut();
        let joined = connection.as_mut()?;
        if !place.is_behind(self.last.get()) || !joined.takes_another() {
            return None;
        }
        joined.set_owner(place.client());
        let number = self.sent.get();
        self.sent.set(number + 1);
        self.last.set(place.number);
        Some(Box::new(Turn::new(self.clone(), number)))
    }

    /// No further request is taken.
    fn end(&self) -> Option<Box<dyn Connection>> {
        drop(self.counted.take());
        self.connection.borrow_mut().take()
    }

    fn with<T>(&self, act: impl FnOnce(&mut dyn Connection) -> T) -> Option<T> {
        self.connection.borrow_mut().as_mut().map(|connection| act(&mut **connection))
    }

    fn wake(&self, is_meant: impl Fn(u32) -> bool) {
        let mut waiting = self.waiting.borrow_mut();
        // The loop polls them later.
        waiting.retain(|(number, waker)| {
            if is_meant(*number) {
                waker.wake_by_ref();
            }
            !is_meant(*number)
        });
    }
}

/// One request of a pipeline, as the connection of its exchange. Dropping one that is not complete ends the connection.
struct Turn {
    pipeline: Rc<Pipeline>,
    number: u32,
    has_sent: bool,
    /// Something of the response has come.
    has_received: bool,
    /// The connection has the deadline of the upstream's patience, and not that of the request.
    is_suspected: bool,
    /// How long it may wait once it has its turn.
    deadline: Option<Duration>,
}

impl Drop for Pipelines {
    fn drop(&mut self) {
        for (pool, client) in self.pools.get_mut() {
            if let Some(pool) = pool.upgrade() {
                pool.remove_owner(*client);
            }
        }
    }
}

impl Turn {
    fn new(pipeline: Rc<Pipeline>, number: u32) -> Self {
        Self { pipeline, number, has_sent: false, has_received: false, is_suspected: false, deadline: None }
    }

    fn poll_connection(&self, cx: &mut Context<'_>) -> Poll<Result<Option<Incoming>, ChannelError>> {
        self.pipeline.with(|connection| connection.poll_recv(cx)).unwrap_or(Poll::Ready(Ok(None)))
    }

    fn has_turn(&self) -> bool {
        self.pipeline.complete.get() == self.number
    }
}

impl Connection for Turn {
    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Incoming>, ChannelError>> {
        if !self.has_turn() && self.pipeline.connection.borrow().is_some() {
            let mut waiting = self.pipeline.waiting.borrow_mut();
            match waiting.iter_mut().find(|(number, _)| *number == self.number) {
                Some((_, waker)) => waker.clone_from(cx.waker()),
                None => waiting.push((self.number, cx.waker().clone())),
            }
            return Poll::Pending;
        }
        let begins_to_wait = self.number > 0 && !self.has_received;
        if !begins_to_wait && let Some(deadline) = self.deadline.take() {
            self.pipeline.with(|connection| connection.set_deadline_after(Some(deadline)));
        }
        let mut received = self.poll_connection(cx);
        if begins_to_wait && received.is_pending() && !self.is_suspected {
            // An upstream that knows no pipelines has dropped this request. To send it again is safe.
            self.is_suspected = true;
            let patience =
                self.deadline.map_or(self.pipeline.patience, |deadline| deadline.min(self.pipeline.patience));
            self.pipeline.with(|connection| connection.set_deadline_after(Some(patience)));
            received = self.poll_connection(cx);
        }
        if matches!(received, Poll::Ready(Ok(Some(_)))) {
            self.has_received = true;
            if std::mem::take(&mut self.is_suspected) {
                let deadline = self.deadline.take();
                self.pipeline.with(|connection| connection.set_deadline_after(deadline));
            }
        }
        received
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ChannelError>> {
        self.pipeline.with(|connection| connection.poll_ready(cx)).unwrap_or(Poll::Ready(Ok(())))
    }

    fn send(&mut self, message: Outgoing) -> Result<(), SendFailure> {
        let sent = self.pipeline.with(|connection| connection.send(message)).unwrap_or(Err(SendFailure::Closed));
        self.has_sent |= sent.is_ok();
        sent
    }

    /// Its requests have no bodies.
    fn split(&mut self) {}

    fn is_reusable(&mut self) -> bool {
        false
    }

    fn is_not_processed(&self) -> bool {
        self.number > 0 && !self.has_received
    }

    fn finish(self: Box<Self>) -> Option<Box<dyn Connection>> {
        let next = self.number + 1;
        self.pipeline.complete.set(next);
        if next == self.pipeline.sent.get() {
            return self.pipeline.end();
        }
        self.pipeline.wake(|number| number == next);
        None
    }

    fn is_stream(&self) -> bool {
        false
    }

    fn poll_extends_connect(&mut self, _: &mut Context<'_>) -> Poll<bool> {
        Poll::Ready(false)
    }

    fn set_deadline_after(&mut self, after: Option<Duration>) {
        if after.is_some() && (!self.has_turn() || self.is_suspected) {
            self.deadline = after;
            return;
        }
        (self.deadline, self.is_suspected) = (None, false);
        self.pipeline.with(|connection| connection.set_deadline_after(after));
    }

    /// None of its requests asks for one.
    fn into_tunnel(self: Box<Self>) -> Result<Tunnel, ChannelError> {
        Err(ChannelError::Busy)
    }

    #[cfg(feature = "connect-udp")]
    fn into_capsules(self: Box<Self>) -> Result<CapsuleRelayTunnel, ChannelError> {
        Err(ChannelError::Busy)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // A request that is complete has been counted before.
        if self.pipeline.complete.get() > self.number {
            return;
        }
        if !self.has_sent && self.number > 0 && self.pipeline.sent.get() == self.number + 1 {
            // It cannot be passed on. Nothing of it is on the connection.
            self.pipeline.sent.set(self.number);
            return;
        }
        drop(self.pipeline.end());
        self.pipeline.wake(|_| true);
    }
}
