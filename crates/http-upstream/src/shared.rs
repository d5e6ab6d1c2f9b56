//! `SharedConnection`: an HTTP/2 or HTTP/3 connection of the pool, which many exchanges share, and their places on it.
//!
//! - A [`StreamLease`] is the place of a stream, from before it is opened until its exchange is over. Requests beyond
//!   the server's limit wait in the pool, in the order in which they came.
//! - A connection that takes no further request leaves the pool at once. Its exchanges go on, and it closes after the last
//!   one.
//!
//! A task of each connection waits for changes of its stream count: settings, GOAWAY, its end.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::task::{Poll, Waker};

use tidegate_engine::{Channel, task};

use super::channel::ExchangeChannel;
use super::codec::ExchangeCodec;
use super::exchange::{ChannelExchange, ClientExchange, Release};
use super::origin::Origin;
use super::session::{OpenFailure, STREAMS_ASSUMED, StreamChannel, StreamPlace, UpstreamSession};

/// The pool of a shared connection.
pub(super) trait StreamOwner {
    /// How many streams a connection takes has changed.
    fn on_permits(self: Rc<Self>, shared: &Rc<SharedConnection>);

    /// An exchange on a stream is over.
    fn on_stream_over(self: Rc<Self>, shared: &Rc<SharedConnection>);
}

/// An HTTP/2 or HTTP/3 connection in the pool, or one that has left it and still has exchanges.
pub(super) struct SharedConnection {
    session: Rc<UpstreamSession>,
    pub(super) origin: Rc<Origin>,
    /// How many streams it takes at a time; `None` once it takes no further one.
    permits: Cell<Option<usize>>,
    streams_max: usize,
    /// Requests that wait until the server permits their stream, by their numbers.
    opening: RefCell<HashMap<u64, Waker>>,
    next_opening: Cell<u64>,
    /// It is in the pool.
    pub(super) is_listed: Cell<bool>,
    /// Since when it has no exchange, as a number of the pool.
    pub(super) idle_since: Cell<u64>,
}

impl SharedConnection {
    /// A connection that carries `streams_max` exchanges at a time, if the server permits as many.
    pub(super) fn new(session: Rc<UpstreamSession>, origin: Rc<Origin>, streams_max: usize) -> Rc<Self> {
        let permits = if session.is_http3() { streams_max } else { STREAMS_ASSUMED.min(streams_max) };
        Rc::new(Self {
            session,
            origin,
            permits: Cell::new(Some(permits)),
            streams_max,
            opening: RefCell::default(),
            next_opening: Cell::new(0),
            is_listed: Cell::new(true),
            idle_since: Cell::new(0),
        })
    }

    fn set_permits(&self, permits: Option<usize>) {
        self.permits.set(permits.map(|permits| permits.min(self.streams_max)));
        if permits.is_none() {
            // No credit of the server wakes them any more.
            self.opening.take().into_values().for_each(Waker::wake);
        }
    }

    /// Whether it takes no further stream.
    pub(super) fn is_ending(&self) -> bool {
        self.permits.get().is_none()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.session.open_count() == 0
    }

    /// A place for one more stream.
    pub(super) fn lease(self: &Rc<Self>, owner: &Rc<dyn StreamOwner>) -> Option<StreamLease> {
        let permits = self.permits.get()?;
        (self.session.open_count() < permits).then(|| self.first_lease(owner))
    }

    /// A place for the request for which the connection was made.
    pub(super) fn first_lease(self: &Rc<Self>, owner: &Rc<dyn StreamOwner>) -> StreamLease {
        StreamLease { owner: owner.clone(), shared: self.clone(), place: Some(self.session.place()) }
    }

    /// Starts the task that waits for changes.
    pub(super) fn watch(self: &Rc<Self>, owner: Weak<dyn StreamOwner>) {
        drop(task::spawn(watch(owner, Rc::downgrade(self))));
    }
}

/// Waits for changes of a connection's stream count, until it takes no streams any more.
async fn watch(owner: Weak<dyn StreamOwner>, shared: Weak<SharedConnection>) {
    poll_fn(|cx| {
        let (Some(owner), Some(shared)) = (owner.upgrade(), shared.upgrade()) else { return Poll::Ready(()) };
        if !shared.is_listed.get() {
            return Poll::Ready(());
        }
        match shared.session.watch_permits(cx.waker()) {
            Ok(permits) => {
                shared.set_permits(permits);
                owner.on_permits(&shared);
                // Nothing wakes the task of a connection that has ended.
                if permits.is_none() { Poll::Ready(()) } else { Poll::Pending }
            }
            Err(_) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    })
    .await;
}

/// The place of a stream. Dropping it frees the place.
pub struct StreamLease {
    owner: Rc<dyn StreamOwner>,
    shared: Rc<SharedConnection>,
    /// `None` once it is dropped.
    place: Option<StreamPlace>,
}

impl StreamLease {
    /// The connection of the stream.
    #[must_use]
    pub fn connection(&self) -> SharedHandle {
        SharedHandle { owner: self.owner.clone(), shared: self.shared.clone() }
    }

    /// Opens the stream. `None` if the connection takes none: the request needs another place.
    pub async fn begin(self) -> Option<Rc<dyn ClientExchange>> {
        let mut polls_left = OPEN_POLLS_MAX;
        let opening = OpeningGuard::new(&self.shared);
        let channel = poll_fn(|cx| {
            if self.shared.is_ending() {
                return Poll::Ready(None);
            }
            match self.shared.session.poll_open(cx) {
                Poll::Ready(Ok(channel)) => Poll::Ready(Some(channel)),
                // Each stream that the server permits wakes all requests that wait.
                Poll::Pending if self.shared.session.is_http3() => {
                    opening.register(cx.waker());
                    Poll::Pending
                }
                Poll::Pending if polls_left > 0 => {
                    polls_left -= 1;
                    Poll::Pending
                }
                Poll::Ready(Err(OpenFailure::Ended)) => {
                    self.shared.set_permits(None);
                    self.owner.clone().on_permits(&self.shared);
                    Poll::Ready(None)
                }
                _ => Poll::Ready(None),
            }
        })
        .await;
        drop(opening);
        Some(self.exchange(channel?))
    }

    /// Hides the type of the stream here and not in [`begin`](Self::begin): a crate compiles the async functions that it
    /// waits for, and would compile the exchanges of both versions with them.
    #[inline(never)]
    fn exchange(self, channel: StreamChannel) -> Rc<dyn ClientExchange> {
        match channel {
            StreamChannel::Http2(channel) => Rc::new(ChannelExchange::new(channel, self)),
            #[cfg(feature = "http3")]
            StreamChannel::Http3(channel) => Rc::new(ChannelExchange::new(channel, self)),
        }
    }
}

/// A request that waits until the server permits its stream.
struct OpeningGuard {
    shared: Rc<SharedConnection>,
    number: u64,
}

impl OpeningGuard {
    fn new(shared: &Rc<SharedConnection>) -> Self {
        let number = shared.next_opening.get();
        shared.next_opening.set(number + 1);
        Self { shared: shared.clone(), number }
    }

    fn register(&self, waker: &Waker) {
        self.shared.opening.borrow_mut().insert(self.number, waker.clone());
    }
}

impl Drop for OpeningGuard {
    fn drop(&mut self) {
        self.shared.opening.borrow_mut().remove(&self.number);
    }
}

/// The HTTP/2 or HTTP/3 connection of an exchange, as the sender of the request judges it.
pub struct SharedHandle {
    owner: Rc<dyn StreamOwner>,
    shared: Rc<SharedConnection>,
}

impl SharedHandle {
    /// Its session.
    #[must_use]
    pub fn session(&self) -> &UpstreamSession {
        &self.shared.session
    }

    /// The connection takes no further request. Those in progress go on.
    pub fn retire(&self) {
        self.shared.set_permits(None);
        self.owner.clone().on_permits(&self.shared);
    }
}

impl<C: ExchangeCodec> Release<C> for StreamLease {
    /// The connection stays; a stream whose request was not sent to its end is reset.
    fn complete(self, channel: Channel<C>, is_cut_off: bool) {
        if is_cut_off {
            channel.abort();
        } else {
            drop(channel);
        }
    }

    /// The stream is reset, within the server's tolerance.
    fn give_up(self, mut channel: ExchangeChannel<C>) {
        if !channel.is_open() {
            return;
        }
        let (owner, shared) = (self.owner.clone(), self.shared.clone());
        shared.session.discard(channel, self);
        if let Some(permits) = shared.permits.get()
            && shared.session.is_spent(permits)
        {
            shared.set_permits(None);
            owner.on_permits(&shared);
        }
        shared.session.end_if_discarded();
    }
}

impl Drop for StreamLease {
    fn drop(&mut self) {
        drop(self.place.take());
        self.owner.clone().on_stream_over(&self.shared);
    }
}

/// How often opening a stream is tried, in as many turns of the loop.
const OPEN_POLLS_MAX: u32 = 100;
