//! `UpstreamSession`: a connection of HTTP/2 to an upstream, on which the requests of a loop have streams.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tidegate_codec::DynOver;
use tidegate_codec::mux::OpenError;
use tidegate_engine::{ChannelError, Session, SessionError};
use tidegate_http1::client::{Incoming, Limits, Outgoing};
use tidegate_http2 as http2;
use tidegate_http2::ClientStream;

use super::connection::{Connection, Held, Unsent};
use super::tunnel::Tunnel;
use crate::resets::{Discarded, Resets};

/// A connection of HTTP/2 to an upstream.
pub(super) struct UpstreamSession {
    pub(super) session: Session<DynOver<http2::Connection>>,
    /// The limits of streams.
    pub(super) streams: Arc<Limits>,
    pub(super) scheme: &'static str,
    pub(super) streams_max: usize,
    pub(super) open: Cell<usize>,
    /// It has answered a request.
    pub(super) has_answered: Cell<bool>,
    pub(super) resets: Rc<Resets>,
}

/// The result of opening a stream.
pub(super) enum Opened {
    Stream(Box<dyn Connection>),
    /// The upstream permits no further stream at present.
    Full,
    /// The connection takes no further stream.
    Ended,
    /// Within a dispatch no stream can be opened.
    Busy,
}

impl UpstreamSession {
    /// Opens a stream.
    pub(super) fn open(self: &Rc<Self>) -> Opened {
        let permits = self.session.with_mux(|connection| {
            let permits = connection.peer_streams_max().map_or(STREAMS_ASSUMED, |streams| streams as usize);
            (!connection.is_ending()).then_some(permits)
        });
        match permits {
            Ok(Some(permits)) if self.resets.is_spent(permits.min(self.streams_max)) => {
                self.resets.on_open(self.open.get());
                return Opened::Ended;
            }
            Ok(Some(permits)) if self.open.get() >= permits.min(self.streams_max) => return Opened::Full,
            Ok(Some(_)) => {}
            Err(SessionError::Busy) => return Opened::Busy,
            Ok(None) | Err(_) => return Opened::Ended,
        }
        match self.session.open(ClientStream::new(self.streams.clone(), self.scheme).extended_connect()) {
            Ok(channel) => Opened::Stream(Box::new(Stream { held: Held::new(channel), place: Place::new(self) })),
            Err(SessionError::Busy) => Opened::Busy,
            Err(SessionError::Open(OpenError::Full)) => Opened::Full,
            Err(_) => Opened::Ended,
        }
    }

    /// Whether the connection takes no further stream, or a promise to wake `waker` when that may be so.
    pub(super) fn poll_ended(&self, waker: &Waker) -> Poll<()> {
        let is_ending = self.session.with_mux(|connection| {
            connection.wake_on_change(waker);
            connection.is_ending()
        });
        match is_ending {
            Ok(false) | Err(SessionError::Busy) => Poll::Pending,
            _ => Poll::Ready(()),
        }
    }
}

/// A stream, as the connection of one exchange. Dropping it resets it, within what the upstream bears.
struct Stream {
    held: Held<ClientStream>,
    /// Dropped behind the stream: its connection closes when no stream is left.
    place: Place,
}

struct Place(Rc<UpstreamSession>);

impl Place {
    fn new(session: &Rc<UpstreamSession>) -> Self {
        session.open.set(session.open.get() + 1);
        Self(session.clone())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.open.set(self.0.open.get() - 1);
        self.0.resets.on_open(self.0.open.get());
    }
}

/// The same once nothing of it is needed any more.
struct DiscardedStream {
    held: Held<ClientStream>,
    _place: Place,
}

impl Discarded for DiscardedStream {
    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Incoming>, ChannelError>> {
        self.held.poll_recv(cx)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let mut held = self.held.take();
        if !held.is_over() {
            held.set_deadline_after(None);
            self.place.0.resets.reset(DiscardedStream { held, _place: Place::new(&self.place.0) });
        }
    }
}

impl Connection for Stream {
    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Incoming>, ChannelError>> {
        let received = self.held.poll_recv(cx);
        if let Poll::Ready(Ok(Some(Incoming::Head(_)))) = received {
            self.place.0.has_answered.set(true);
        }
        received
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ChannelError>> {
        self.held.poll_ready(cx)
    }

    fn send(&mut self, message: Outgoing) -> Result<(), Unsent> {
        self.held.send(message)
    }

    fn split(&mut self) {
        self.held.split();
    }

    fn is_reusable(&mut self) -> bool {
        false
    }

    fn finish(self: Box<Self>) -> Option<Box<dyn Connection>> {
        Some(self)
    }

    fn is_http2(&self) -> bool {
        true
    }

    fn has_answered(&self) -> bool {
        self.place.0.has_answered.get()
    }

    fn poll_extends_connect(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let allows = self.place.0.session.with_mux(|connection| {
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

    fn set_deadline_after(&mut self, after: Option<Duration>) {
        self.held.set_deadline_after(after);
    }

    fn into_tunnel(mut self: Box<Self>) -> Result<Tunnel, ChannelError> {
        let held = self.held.take();
        Ok(Box::new(held).into_tunnel()?.with(Place::new(&self.place.0)))
    }
}

/// How many streams an upstream permits whose settings have not come yet.
const STREAMS_ASSUMED: usize = 100;
