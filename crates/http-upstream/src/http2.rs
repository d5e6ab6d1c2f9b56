//! `Http2Connection`: an HTTP/2 connection to a server, and the places of its streams.
//!
//! The server permits so many streams at a time. A [`StreamPlace`] counts one of them, until its exchange is over.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tidegate_codec::DynOver;
use tidegate_codec::mux::OpenError;
use tidegate_engine::{Channel, ChannelError, Session, SessionError};
use tidegate_http1::client::{Incoming, Limits};
use tidegate_http2::{ClientStream, Connection};

use super::channel::ExchangeChannel;
use super::resets::{DiscardableStream, Resets};

/// An HTTP/2 connection to a server. It closes once nothing holds it and no stream is left.
pub struct Http2Connection {
    session: Session<DynOver<Connection>>,
    limits: Arc<Limits>,
    scheme: &'static str,
    resets: Rc<Resets>,
    /// Streams that have a place.
    open: Cell<usize>,
    has_answered: Cell<bool>,
}

/// Why no stream was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenFailure {
    /// Within a dispatch no stream can be opened.
    Busy,
    /// The server permits no further stream at present.
    Full,
    /// The connection takes no further stream.
    Ended,
}

impl Http2Connection {
    pub(super) fn new(
        session: Session<DynOver<Connection>>,
        limits: Arc<Limits>,
        scheme: &'static str,
        [resets_max, resets_per_second]: [u32; 2],
    ) -> Rc<Self> {
        let resets = Resets::new(resets_max, resets_per_second);
        Rc::new(Self { session, limits, scheme, resets, open: Cell::new(0), has_answered: Cell::new(false) })
    }

    /// How many streams have a place.
    #[must_use]
    pub fn open_count(&self) -> usize {
        self.open.get()
    }

    /// Whether it has answered a request.
    #[must_use]
    pub fn has_answered(&self) -> bool {
        self.has_answered.get()
    }

    /// It has answered a request.
    pub fn set_answered(&self) {
        self.has_answered.set(true);
    }

    /// How many streams it takes at a time; `None` once it takes no further one.
    ///
    /// # Errors
    /// [`OpenFailure::Busy`] within a dispatch.
    pub fn permits(&self) -> Result<Option<usize>, OpenFailure> {
        self.permits_of(|_| ())
    }

    /// The same, and `waker` is woken when that changes.
    ///
    /// # Errors
    /// As for [`permits`](Self::permits).
    pub fn watch_permits(&self, waker: &Waker) -> Result<Option<usize>, OpenFailure> {
        self.permits_of(|connection| connection.wake_on_change(waker))
    }

    fn permits_of(&self, act: impl FnOnce(&mut Connection)) -> Result<Option<usize>, OpenFailure> {
        let permits = self.session.with_mux(|connection| {
            act(connection);
            let permits = connection.peer_streams_max().map_or(STREAMS_ASSUMED, |streams| streams as usize);
            (!connection.is_ending()).then_some(permits)
        });
        match permits {
            Err(SessionError::Busy) => Err(OpenFailure::Busy),
            permits => Ok(permits.unwrap_or(None)),
        }
    }

    /// Whether it takes no further stream, or a promise to wake `waker` when that may be so.
    pub fn poll_ended(&self, waker: &Waker) -> Poll<()> {
        match self.watch_permits(waker) {
            Ok(None) => Poll::Ready(()),
            _ => Poll::Pending,
        }
    }

    /// Whether the server allows extended CONNECT (RFC 8441), once that is known.
    pub fn poll_extends_connect(&self, cx: &mut Context<'_>) -> Poll<bool> {
        let allows = self.session.with_mux(|connection| {
            if connection.peer_streams_max().is_none() {
                // Its first SETTINGS have not come.
                connection.wake_on_change(cx.waker());
                return None;
            }
            Some(connection.peer_extends_connect())
        });
        match allows {
            Ok(Some(allows)) => Poll::Ready(allows),
            Ok(None) => Poll::Pending,
            Err(SessionError::Busy) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Err(_) => Poll::Ready(false),
        }
    }

    /// A place for one more stream.
    pub fn place(self: &Rc<Self>) -> StreamPlace {
        self.open.set(self.open.get() + 1);
        StreamPlace(self.clone())
    }

    /// A stream. One that `extends` may carry an extended CONNECT.
    ///
    /// # Errors
    /// [`OpenFailure`].
    pub fn open_stream(&self, extends: bool) -> Result<Channel<ClientStream>, OpenFailure> {
        let stream = ClientStream::new(self.limits.clone(), self.scheme);
        let stream = if extends { stream.extended_connect() } else { stream };
        self.session.open(stream).map_err(|error| match error {
            SessionError::Busy => OpenFailure::Busy,
            SessionError::Open(OpenError::Full) => OpenFailure::Full,
            _ => OpenFailure::Ended,
        })
    }

    /// A stream with its place, of `streams_max` at most. It may carry an extended CONNECT.
    ///
    /// # Errors
    /// [`OpenFailure`].
    pub fn open(self: &Rc<Self>, streams_max: usize) -> Result<(Channel<ClientStream>, StreamPlace), OpenFailure> {
        let permits = self.permits()?.ok_or(OpenFailure::Ended)?.min(streams_max);
        if self.is_spent(permits) {
            self.resets.on_open(self.open.get());
            return Err(OpenFailure::Ended);
        }
        if self.open.get() >= permits {
            return Err(OpenFailure::Full);
        }
        Ok((self.open_stream(true)?, self.place()))
    }

    /// Whether the connection, which permits so many streams, takes no further one, since half of them are discarded.
    #[must_use]
    pub fn is_spent(&self, permitted: usize) -> bool {
        self.resets.is_spent(permitted)
    }

    /// A stream that is no longer needed is reset, within the server's tolerance. `place` is dropped behind it.
    pub fn discard(&self, mut channel: ExchangeChannel<ClientStream>, place: impl Sized + 'static) {
        channel.set_deadline(None);
        self.resets.reset(DiscardedStream { channel, _place: place });
    }

    /// The discarded streams end if no other one is left on a connection that takes no further one.
    pub fn end_if_discarded(&self) {
        self.resets.on_open(self.open.get());
    }
}

/// The place of a stream. Dropping it frees the place.
pub struct StreamPlace(Rc<Http2Connection>);

impl StreamPlace {
    /// The connection.
    #[must_use]
    pub fn connection(&self) -> &Rc<Http2Connection> {
        &self.0
    }
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        self.0.open.set(self.0.open.get() - 1);
        self.0.end_if_discarded();
    }
}

/// The stream of an exchange that was given up.
struct DiscardedStream<P> {
    channel: ExchangeChannel<ClientStream>,
    _place: P,
}

impl<P: 'static> DiscardableStream for DiscardedStream<P> {
    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Incoming>, ChannelError>> {
        self.channel.poll_recv(cx)
    }
}

impl<P> Drop for DiscardedStream<P> {
    fn drop(&mut self) {
        self.channel.abort();
    }
}

/// How many streams a server permits whose settings have not come yet. One that permits fewer refuses the others, which are
/// sent again.
pub(super) const STREAMS_ASSUMED: usize = 100;
