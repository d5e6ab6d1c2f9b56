//! `Shared`: a connection of HTTP/2, which many exchanges share, and their places on it.
//!
//! - The server permits so many streams at a time. A [`StreamLease`] is the place of one, from before its stream is opened
//!   until its exchange is over. Requests beyond that wait in the pool, in the order in which they came.
//! - A connection that takes no further request leaves the pool at once. Its exchanges go on, and it closes after the last
//!   one.
//!
//! A task of each connection waits for what changes how many streams it takes: settings, GOAWAY, its end.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tidegate_codec::DynOver;
use tidegate_codec::mux::OpenError;
use tidegate_engine::{ChannelError, Session, SessionError, task};
use tidegate_http1::client::{Incoming, Limits};
use tidegate_http2::{ClientStream, Connection};

use super::ends::Ends;
use super::exchange::{ChannelExchange, ClientExchange};
use super::origin::Origin;
use super::pool::Pool;
use crate::resets::{Discarded, Resets};

/// A connection of HTTP/2.
pub(crate) struct Http2 {
    pub(super) session: Session<DynOver<Connection>>,
    pub(super) limits: Arc<Limits>,
    pub(super) scheme: &'static str,
    pub(super) resets: Rc<Resets>,
}

/// A connection of HTTP/2 in the pool, or one that has left it and still has exchanges.
pub(super) struct Shared {
    http2: Http2,
    pub(super) origin: Rc<Origin>,
    /// How many streams it takes at a time; `None` once it takes no further one.
    permits: Cell<Option<usize>>,
    leased: Cell<usize>,
    /// It is in the pool.
    pub(super) is_listed: Cell<bool>,
    /// Since when it has no exchange, as a number of the pool.
    pub(super) idle_since: Cell<u64>,
}

impl Shared {
    /// A connection with one lease, for the request for which it was made.
    pub(super) fn new(http2: Http2, origin: Rc<Origin>) -> Rc<Self> {
        Rc::new(Self {
            http2,
            origin,
            permits: Cell::new(Some(STREAMS_ASSUMED)),
            leased: Cell::new(1),
            is_listed: Cell::new(true),
            idle_since: Cell::new(0),
        })
    }

    /// Whether it takes no further stream.
    pub(super) fn is_ending(&self) -> bool {
        self.permits.get().is_none()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.leased.get() == 0
    }

    /// A place for one more stream, of `streams_max` at most.
    pub(super) fn lease(self: &Rc<Self>, pool: &Rc<Pool>, streams_max: usize) -> Option<StreamLease> {
        let permits = self.permits.get()?.min(streams_max);
        if self.leased.get() >= permits {
            return None;
        }
        self.leased.set(self.leased.get() + 1);
        Some(self.first_lease(pool))
    }

    /// The lease that the connection has from its beginning.
    pub(super) fn first_lease(self: &Rc<Self>, pool: &Rc<Pool>) -> StreamLease {
        StreamLease { pool: pool.clone(), shared: self.clone() }
    }

    /// Looks how many streams the connection takes, and has `waker` woken when that changes. Pending within a dispatch.
    fn poll_permits(&self, waker: &Waker) -> Poll<Option<usize>> {
        let permits = self.http2.session.with_mux(|connection| {
            connection.wake_on_change(waker);
            let permits = connection.peer_streams_max().map_or(STREAMS_ASSUMED, |streams| streams as usize);
            (!connection.is_ending()).then_some(permits)
        });
        match permits {
            Ok(permits) => Poll::Ready(permits),
            Err(SessionError::Busy) => Poll::Pending,
            Err(_) => Poll::Ready(None),
        }
    }

    /// Starts the task that waits for changes.
    pub(super) fn watch(self: &Rc<Self>, pool: &Rc<Pool>) {
        drop(task::spawn(watch(Rc::downgrade(pool), Rc::downgrade(self))));
    }
}

/// Waits for what changes how many streams a connection takes, until it takes none any more.
async fn watch(pool: Weak<Pool>, shared: Weak<Shared>) {
    poll_fn(|cx| {
        let (Some(pool), Some(shared)) = (pool.upgrade(), shared.upgrade()) else { return Poll::Ready(()) };
        if !shared.is_listed.get() {
            return Poll::Ready(());
        }
        match shared.poll_permits(cx.waker()) {
            Poll::Ready(permits) => {
                shared.permits.set(permits);
                pool.on_permits(&shared);
            }
            Poll::Pending => cx.waker().wake_by_ref(),
        }
        Poll::Pending
    })
    .await;
}

/// The place of a stream. Dropping it frees the place.
pub(crate) struct StreamLease {
    pool: Rc<Pool>,
    shared: Rc<Shared>,
}

impl StreamLease {
    /// Opens the stream. `None` if the connection takes none: the request needs another place.
    pub(super) async fn begin(self) -> Option<Rc<dyn ClientExchange>> {
        let mut polls_left = OPEN_POLLS_MAX;
        let channel = poll_fn(|cx| {
            let http2 = &self.shared.http2;
            let opened = http2.session.open(ClientStream::new(http2.limits.clone(), http2.scheme));
            match opened {
                Ok(channel) => Poll::Ready(Some(channel)),
                // Within a dispatch; or the server has lowered its limit.
                Err(SessionError::Busy | SessionError::Open(OpenError::Full)) if polls_left > 0 => {
                    polls_left -= 1;
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
                Err(SessionError::Busy | SessionError::Open(OpenError::Full)) => Poll::Ready(None),
                Err(_) => {
                    self.shared.permits.set(None);
                    self.pool.on_permits(&self.shared);
                    Poll::Ready(None)
                }
            }
        })
        .await?;
        Some(Rc::new(ChannelExchange::new(channel, self)))
    }
}

/// The stream of an exchange that was given up.
struct DiscardedStream {
    ends: Ends<ClientStream>,
    _lease: StreamLease,
}

impl Discarded for DiscardedStream {
    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Incoming>, ChannelError>> {
        self.ends.poll_recv(cx)
    }
}

impl Drop for DiscardedStream {
    fn drop(&mut self) {
        self.ends.abort();
    }
}

impl StreamLease {
    /// The exchange of the stream is given up: it is reset, within what the server bears.
    pub(super) fn reset(self, mut ends: Ends<ClientStream>) {
        if !ends.is_open() {
            return;
        }
        ends.set_deadline(None);
        let (pool, shared) = (self.pool.clone(), self.shared.clone());
        let resets = &shared.http2.resets;
        resets.reset(DiscardedStream { ends, _lease: self });
        if let Some(permits) = shared.permits.get()
            && resets.is_spent(permits)
        {
            shared.permits.set(None);
            pool.on_permits(&shared);
        }
        resets.on_open(shared.leased.get());
    }
}

impl Drop for StreamLease {
    fn drop(&mut self) {
        self.shared.leased.set(self.shared.leased.get() - 1);
        self.shared.http2.resets.on_open(self.shared.leased.get());
        self.pool.on_stream_over(&self.shared);
    }
}

/// How many streams a server permits whose settings have not come yet. One that permits fewer refuses the others, which are
/// sent again.
const STREAMS_ASSUMED: usize = 100;

/// How often opening a stream is tried, in as many turns of the loop.
const OPEN_POLLS_MAX: u32 = 100;
