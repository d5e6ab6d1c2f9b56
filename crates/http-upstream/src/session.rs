//! `UpstreamSession`: a connection to a server whose streams carry exchanges, over HTTP/2 or HTTP/3, and the places of its
//! streams.
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
use super::codec::ExchangeCodec;
#[cfg(feature = "http3")]
use super::http3::{self, Http3Session};
use super::resets::{DiscardableStream, Resets};

/// An HTTP/2 or HTTP/3 connection to a server. It closes once nothing holds it and no stream is left.
pub struct UpstreamSession {
    version: SessionVersion,
    resets: Rc<Resets>,
    /// Streams that have a place.
    open: Cell<usize>,
    has_answered: Cell<bool>,
}

/// The session of a connection, by its version.
pub(super) enum SessionVersion {
    Http2(Http2Session),
    #[cfg(feature = "http3")]
    Http3(Http3Session),
}

/// An HTTP/2 session, with the settings of its streams.
pub(super) struct Http2Session {
    pub(super) session: Session<DynOver<Connection>>,
    pub(super) limits: Arc<Limits>,
    pub(super) scheme: &'static str,
}

/// A stream, by its version.
pub(super) enum StreamChannel {
    Http2(Channel<ClientStream>),
    #[cfg(feature = "http3")]
    Http3(Channel<tidegate_http3::ClientStream>),
}

/// A stream without the type of its codec, with its place, as the caller of [`UpstreamSession::open`] keeps it.
pub trait FromStream {
    /// Hides the type of a stream that was opened.
    fn from_stream<C: ExchangeCodec>(channel: Channel<C>, place: StreamPlace) -> Self;
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

impl From<SessionError> for OpenFailure {
    fn from(error: SessionError) -> Self {
        match error {
            SessionError::Busy => Self::Busy,
            SessionError::Open(OpenError::Full) => Self::Full,
            _ => Self::Ended,
        }
    }
}

impl UpstreamSession {
    pub(super) fn new(version: SessionVersion, [resets_max, resets_per_second]: [u32; 2]) -> Rc<Self> {
        let resets = Resets::new(resets_max, resets_per_second);
        let session = Rc::new(Self { version, resets, open: Cell::new(0), has_answered: Cell::new(false) });
        #[cfg(feature = "http3")]
        if let Some(pings) = session.http3().and_then(Http3Session::pings) {
            http3::watch_peer(pings, Rc::downgrade(&session));
        }
        session
    }

    /// Whether it is an HTTP/3 connection.
    #[must_use]
    pub fn is_http3(&self) -> bool {
        match &self.version {
            SessionVersion::Http2(_) => false,
            #[cfg(feature = "http3")]
            SessionVersion::Http3(_) => true,
        }
    }

    /// Whether requests are sent once. Before the handshake of an HTTP/3 connection with early data (0-RTT) is complete, an
    /// attacker may send copies of them.
    #[must_use]
    pub fn is_confirmed(&self) -> bool {
        match &self.version {
            SessionVersion::Http2(_) => true,
            #[cfg(feature = "http3")]
            SessionVersion::Http3(http3) => http3.is_confirmed(),
        }
    }

    /// Waits until requests are sent once. Returns whether the connection can be used.
    pub async fn confirmed(&self) -> bool {
        match &self.version {
            SessionVersion::Http2(_) => true,
            #[cfg(feature = "http3")]
            SessionVersion::Http3(http3) => std::future::poll_fn(|cx| http3.poll_confirmed(cx)).await,
        }
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
        self.permits_of(None)
    }

    /// The same, and `waker` is woken when that changes.
    ///
    /// # Errors
    /// As for [`permits`](Self::permits).
    pub fn watch_permits(&self, waker: &Waker) -> Result<Option<usize>, OpenFailure> {
        self.permits_of(Some(waker))
    }

    fn permits_of(&self, waker: Option<&Waker>) -> Result<Option<usize>, OpenFailure> {
        match &self.version {
            SessionVersion::Http2(http2) => http2.permits(waker),
            #[cfg(feature = "http3")]
            SessionVersion::Http3(http3) => http3.permits(waker),
        }
    }

    /// Whether it takes no further stream, or a promise to wake `waker` when that may be so.
    pub fn poll_ended(&self, waker: &Waker) -> Poll<()> {
        match self.watch_permits(waker) {
            Ok(None) => Poll::Ready(()),
            _ => Poll::Pending,
        }
    }

    /// Whether the server allows extended CONNECT (RFC 8441, RFC 9220), once that is known.
    pub fn poll_extends_connect(&self, cx: &mut Context<'_>) -> Poll<bool> {
        let allows = match &self.version {
            SessionVersion::Http2(http2) => http2.extends_connect(cx.waker()),
            #[cfg(feature = "http3")]
            SessionVersion::Http3(http3) => http3.extends_connect(cx.waker()),
        };
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
    fn open_stream(&self, extends: bool) -> Result<StreamChannel, OpenFailure> {
        match &self.version {
            SessionVersion::Http2(http2) => http2.open(extends).map(StreamChannel::Http2),
            #[cfg(feature = "http3")]
            SessionVersion::Http3(http3) => http3.open(extends).map(StreamChannel::Http3),
        }
    }

    /// A stream, as soon as the server permits one more. HTTP/2 connections are asked again in each turn of the loop.
    pub(super) fn poll_open(&self, cx: &mut Context<'_>) -> Poll<Result<StreamChannel, OpenFailure>> {
        let opened = match &self.version {
            SessionVersion::Http2(http2) => Poll::Ready(http2.open(false).map(StreamChannel::Http2)),
            #[cfg(feature = "http3")]
            SessionVersion::Http3(http3) => http3.poll_open(cx).map_ok(StreamChannel::Http3),
        };
        if matches!(opened, Poll::Ready(Err(OpenFailure::Busy | OpenFailure::Full))) {
            // Within a dispatch; or the server has lowered its limit.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        opened
    }

    /// A stream with its place, of `streams_max` at most. It may carry an extended CONNECT.
    ///
    /// # Errors
    /// [`OpenFailure`].
    pub fn open<S: FromStream>(self: &Rc<Self>, streams_max: usize) -> Result<S, OpenFailure> {
        let permits = self.permits()?.ok_or(OpenFailure::Ended)?.min(streams_max);
        if self.is_spent(permits) {
            self.resets.on_open(self.open.get());
            return Err(OpenFailure::Ended);
        }
        if self.open.get() >= permits {
            return Err(OpenFailure::Full);
        }
        Ok(match self.open_stream(true)? {
            StreamChannel::Http2(channel) => S::from_stream(channel, self.place()),
            #[cfg(feature = "http3")]
            StreamChannel::Http3(channel) => S::from_stream(channel, self.place()),
        })
    }

    /// Whether the connection, which permits so many streams, takes no further one, since half of them are discarded.
    #[must_use]
    pub fn is_spent(&self, permitted: usize) -> bool {
        self.resets.is_spent(permitted)
    }

    /// A stream that is no longer needed is reset, within the server's tolerance. `place` is dropped behind it.
    pub fn discard<C: ExchangeCodec>(&self, mut channel: ExchangeChannel<C>, place: impl Sized + 'static) {
        channel.set_deadline(None);
        self.resets.reset(DiscardedStream { channel, _place: place });
    }

    /// The discarded streams end if no other one is left on a connection that takes no further one.
    pub fn end_if_discarded(&self) {
        self.resets.on_open(self.open.get());
    }

    /// The HTTP/3 session, if it is one.
    #[cfg(feature = "http3")]
    pub(super) fn http3(&self) -> Option<&Http3Session> {
        match &self.version {
            SessionVersion::Http3(http3) => Some(http3),
            SessionVersion::Http2(_) => None,
        }
    }
}

impl Http2Session {
    fn permits(&self, waker: Option<&Waker>) -> Result<Option<usize>, OpenFailure> {
        let permits = self.session.with_mux(|connection| {
            if let Some(waker) = waker {
                connection.wake_on_change(waker);
            }
            let permits = connection.peer_streams_max().map_or(STREAMS_ASSUMED, |streams| streams as usize);
            (!connection.is_ending()).then_some(permits)
        });
        match permits {
            Err(SessionError::Busy) => Err(OpenFailure::Busy),
            permits => Ok(permits.unwrap_or(None)),
        }
    }

    fn extends_connect(&self, waker: &Waker) -> Result<Option<bool>, SessionError> {
        self.session.with_mux(|connection| {
            if connection.peer_streams_max().is_none() {
                // Its first SETTINGS have not come.
                connection.wake_on_change(waker);
                return None;
            }
            Some(connection.peer_extends_connect())
        })
    }

    fn open(&self, extends: bool) -> Result<Channel<ClientStream>, OpenFailure> {
        let stream = ClientStream::new(self.limits.clone(), self.scheme);
        let stream = if extends { stream.extended_connect() } else { stream };
        self.session.open(stream).map_err(OpenFailure::from)
    }
}

/// The place of a stream. Dropping it frees the place.
pub struct StreamPlace(Rc<UpstreamSession>);

impl StreamPlace {
    /// The connection.
    #[must_use]
    pub fn connection(&self) -> &Rc<UpstreamSession> {
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
struct DiscardedStream<C: ExchangeCodec, P> {
    channel: ExchangeChannel<C>,
    _place: P,
}

impl<C: ExchangeCodec, P: 'static> DiscardableStream for DiscardedStream<C, P> {
    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Incoming>, ChannelError>> {
        self.channel.poll_recv(cx)
    }
}

impl<C: ExchangeCodec, P> Drop for DiscardedStream<C, P> {
    fn drop(&mut self) {
        self.channel.abort();
    }
}

/// How many streams a server permits whose settings have not come yet. One that permits fewer refuses the others, which are
/// sent again.
pub(super) const STREAMS_ASSUMED: usize = 100;
