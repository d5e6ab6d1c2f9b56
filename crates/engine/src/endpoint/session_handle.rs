//! `SessionEndpoint`: the handle of an endpoint whose sessions carry streams, with which a program opens sessions and
//! streams.

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use tidegate_codec::{Direction, Handshake, Pipeline, SessionNumber, StreamEndpoint, StreamNumber};
use tidegate_sys::{Address, DatagramOptions, Side, Socket, Token};

use super::session_tables::SessionStreams;
use super::sessions::{MakeServices, SessionLimits, SessionsEntry};
use crate::channel::{Channel, Handle as ChannelHandle};
use crate::connection::{Connection, Link};
use crate::event_loop::EventLoop;
use crate::handler::Handler;
use crate::local::{HandleLocal, Local};
use crate::loop_core::Core;
use crate::remote::Remote;
use crate::session::{SessionError, StreamId};
use crate::slot_entry::{Disposition, SlotEvent};
use crate::task::NO_LOOP;

/// A datagram socket with a protocol whose sessions carry streams, as a client has it. Streams are opened with a
/// [`Channel`] or a [`Handler`], like connections.
///
/// When the last clone of the handle is dropped, each session closes in good order behind its last stream, and then the
/// socket closes.
pub struct SessionEndpoint<E: StreamEndpoint + 'static>(Rc<Owned<E>>);

/// A session of an endpoint, for tasks of its loop. It keeps neither the session nor the endpoint open.
pub struct EndpointSession<E: StreamEndpoint + 'static> {
    reach: Reach<E>,
    number: SessionNumber,
    peer: SocketAddr,
    handshake: Option<Rc<Handshake>>,
}

/// The way to an endpoint.
struct Reach<E: StreamEndpoint + 'static> {
    local: HandleLocal,
    token: Token,
    endpoint: PhantomData<fn() -> E>,
}

/// The same, and the endpoint drains when it is dropped.
struct Owned<E: StreamEndpoint + 'static>(Reach<E>);

impl EventLoop {
    /// Runs a protocol whose sessions carry streams on a socket that was opened with `options`. `make` makes the protocol:
    /// first now, and again if it panics. `services` is called for each session that is established. Returns the address.
    ///
    /// # Errors
    /// The driver's, if it does not take the socket; `InvalidInput` if the streams have a limit that would have no effect.
    pub fn bind_sessions<E: StreamEndpoint + 'static>(
        &mut self,
        socket: Socket,
        options: &DatagramOptions,
        limits: SessionLimits,
        mut make: impl FnMut() -> E + 'static,
        services: impl FnMut(EndpointSession<E>) -> SessionStreams + 'static,
    ) -> io::Result<Address> {
        limits.check()?;
        self.refresh_time();
        let (admission, (steered, successor)) = (self.admission_of_listener(), self.take_endpoint());
        let _entered = self.local.enter();
        let mut core = self.local.core.borrow_mut();
        let protocol = (make(), Some(Box::new(make) as Box<dyn FnMut() -> E>));
        let entry = SessionsEntry::new(protocol, limits, services_of(services), false, &core.pool)
            .admission(admission)
            .steered(steered.clone(), successor);
        let receives = steered.as_ref().is_none_or(|steered| !steered.is_waiting());
        let token = core.open_endpoint((socket, receives), options, entry, None)?;
        if let Some(steered) = steered {
            steered.join(&core.mailbox, token);
        }
        core.driver.address(token, Side::Local)
    }

    /// The same for a client: returns the handle with which tasks of this loop open sessions.
    ///
    /// # Errors
    /// The driver's, if it does not take the socket.
    pub fn open_sessions<E: StreamEndpoint + 'static>(
        &mut self,
        socket: Socket,
        options: &DatagramOptions,
        limits: SessionLimits,
        endpoint: E,
        services: impl FnMut(EndpointSession<E>) -> SessionStreams + 'static,
    ) -> io::Result<SessionEndpoint<E>> {
        self.refresh_time();
        let _entered = self.local.enter();
        SessionEndpoint::open_at(self.local.clone(), socket, options, limits, endpoint, services)
    }
}

impl<E: StreamEndpoint + 'static> SessionEndpoint<E> {
    /// Opens a socket at `address` on the loop that runs on this thread.
    ///
    /// # Errors
    /// Those of the system.
    ///
    /// # Panics
    /// If no event loop runs on this thread, and within a handler: a task calls it.
    pub fn bind(
        address: SocketAddr,
        options: &DatagramOptions,
        limits: SessionLimits,
        endpoint: E,
        services: impl FnMut(EndpointSession<E>) -> SessionStreams + 'static,
    ) -> io::Result<Self> {
        Self::open(Socket::bind_datagrams(address, options)?, options, limits, endpoint, services)
    }

    /// The same with a socket that was opened with `options`.
    ///
    /// # Errors
    /// The driver's, if it does not take the socket.
    ///
    /// # Panics
    /// As [`bind`](Self::bind).
    pub fn open(
        socket: Socket,
        options: &DatagramOptions,
        limits: SessionLimits,
        endpoint: E,
        services: impl FnMut(EndpointSession<E>) -> SessionStreams + 'static,
    ) -> io::Result<Self> {
        let local = Local::current().expect(NO_LOOP);
        Self::open_at(local, socket, options, limits, endpoint, services)
    }

    fn open_at(
        local: Rc<Local>,
        socket: Socket,
        options: &DatagramOptions,
        limits: SessionLimits,
        endpoint: E,
        services: impl FnMut(EndpointSession<E>) -> SessionStreams + 'static,
    ) -> io::Result<Self> {
        let token = {
            let mut core = local.core.borrow_mut();
            let entry = SessionsEntry::new((endpoint, None), limits, services_of(services), true, &core.pool);
            core.open_endpoint((socket, true), options, entry, None)?
        };
        Ok(Self(Rc::new(Owned(Reach::new(local, token)))))
    }

    /// Calls the protocol, and sends its datagrams at the end of this pass of the loop.
    ///
    /// # Errors
    /// [`SessionError::Closed`] if the socket is closed, [`SessionError::Busy`] from within a handler.
    pub fn with<T>(&self, act: impl FnOnce(&mut E, Instant) -> T) -> Result<T, SessionError> {
        self.reach().with(act)
    }

    /// Calls the protocol now, or as soon as the dispatch is over within which this is called, and sends its datagrams at
    /// the end of the pass. A socket that is closed has no protocol, and nothing happens. This may be called from anywhere
    /// on the loop's thread.
    pub fn with_later(&self, act: impl FnOnce(&mut E, Instant) + 'static) {
        let token = self.reach().token;
        self.reach().local.with_core(move |core| {
            core.with(token, |entry: &mut SessionsEntry<E>, core| {
                act(entry.endpoint(), core.time.now());
                ((), Disposition::Keep)
            });
            core.queues.schedule_session(token);
        });
    }

    /// A session of the endpoint, whose peer has this address.
    #[must_use]
    pub fn session(&self, number: SessionNumber, peer: SocketAddr) -> EndpointSession<E> {
        EndpointSession { reach: self.reach().clone(), number, peer, handshake: None }
    }

    fn reach(&self) -> &Reach<E> {
        &self.0.0
    }

    /// No program uses a session any more: it ends in good order behind its last stream. This may be called from anywhere
    /// on the loop's thread.
    pub fn end_when_empty(&self, session: SessionNumber) {
        let token = self.reach().token;
        self.reach().local.with_core(move |core| {
            core.with(token, |entry: &mut SessionsEntry<E>, _| {
                entry.end_when_empty(session);
                ((), Disposition::Keep)
            });
            core.queues.schedule_session(token);
        });
    }

    /// The address of the socket.
    ///
    /// # Errors
    /// Those of the system; `NotConnected` if the socket is closed.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        let address = self.reach().local.core.borrow().driver.address(self.reach().token, Side::Local)?;
        address.ip().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl<E: StreamEndpoint + 'static> EndpointSession<E> {
    /// The number of the session.
    #[must_use]
    pub fn number(&self) -> SessionNumber {
        self.number
    }

    /// The outcome of the handshake, for the function that makes the services of a session.
    #[must_use]
    pub fn handshake(&self) -> Option<&Handshake> {
        self.handshake.as_deref()
    }

    /// The address of the peer, as it was when the session was established.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Calls the protocol, and sends its datagrams at the end of this pass of the loop.
    ///
    /// # Errors
    /// As [`SessionEndpoint::with`].
    pub fn with<T>(&self, act: impl FnOnce(&mut E, Instant) -> T) -> Result<T, SessionError> {
        self.reach.with(act)
    }

    /// Opens a stream as a channel. The peer learns of it with its first bytes, or its end.
    ///
    /// # Errors
    /// [`SessionError`]; [`SessionError::Open`] if the peer allows no further stream now.
    pub fn open<C: Pipeline>(&self, direction: Direction, codec: C) -> Result<Channel<C>, SessionError> {
        self.open_from(direction, &mut Some(codec))
    }

    /// The same with the codec that `codec` has, which stays there if no stream is opened.
    ///
    /// # Errors
    /// As [`open`](Self::open); [`SessionError::Closed`] if there is no codec.
    pub fn open_from<C: Pipeline>(
        &self,
        direction: Direction,
        codec: &mut Option<C>,
    ) -> Result<Channel<C>, SessionError> {
        if codec.is_none() {
            return Err(SessionError::Closed);
        }
        let token = self.reach.open_with(self.number, direction, |core, token, link| {
            if let Some(codec) = codec.take() {
                core.open_stream(token, Box::new(Connection::with_outbound_channel(link, codec)));
            }
        })?;
        Ok(Channel::new(ChannelHandle::new(Rc::clone(&self.reach.local), token)))
    }

    /// Opens a stream with a handler.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_handler<C, H>(
        &self,
        direction: Direction,
        codec: C,
        handler: H,
    ) -> Result<Remote<H::Post>, SessionError>
    where
        C: Pipeline,
        H: Handler<C>,
    {
        let token = self.reach.open_with(self.number, direction, |core, token, link| {
            core.open_stream(token, Box::new(Connection::new(link, codec, handler)));
        })?;
        let mut core = self.reach.local.core.try_borrow_mut().map_err(|_| SessionError::Busy)?;
        Ok(core.remote(token))
    }

    /// Gives a stream a channel that the protocol holds back from the services of the session: one that the peer has opened,
    /// or one that `is_own` to this side. A protocol that leaves its streams to others does so, such as WebTransport.
    ///
    /// # Errors
    /// [`SessionError::Closed`] if the session is over, [`SessionError::Busy`] from within a handler.
    pub fn adopt<C: Pipeline>(
        &self,
        stream: StreamNumber,
        direction: Direction,
        is_own: bool,
        codec: C,
    ) -> Result<Channel<C>, SessionError> {
        let (token, link) = self.reach.with_entry(|entry, core| entry.adopt(core, stream, (direction, is_own)))??;
        let mut core = self.reach.local.core.try_borrow_mut().map_err(|_| SessionError::Busy)?;
        core.open_stream(token, Box::new(Connection::with_outbound_channel(link, codec)));
        if is_own && direction == Direction::Unidirectional {
            core.dispatch(token, SlotEvent::Ended);
        }
        drop(core);
        Ok(Channel::new(ChannelHandle::new(Rc::clone(&self.reach.local), token)))
    }

    /// Sends a datagram (RFC 9221): it may be lost, and may come before earlier ones. If too many wait to be sent, the oldest is
    /// dropped, and counted in [`SessionCounts::datagrams_dropped`](tidegate_codec::SessionCounts::datagrams_dropped).
    ///
    /// # Errors
    /// [`SessionError::Datagram`] if it is too long, or one of the two sides does not accept datagrams;
    /// [`SessionError::Busy`] from within a handler, and [`SessionError::Closed`].
    pub fn send_datagram(&self, datagram: impl Into<Bytes>) -> Result<(), SessionError> {
        let datagram = datagram.into();
        let sent = self.with(|endpoint, _| endpoint.send_datagram(self.number, datagram))?;
        sent.map_err(SessionError::Datagram)
    }

    /// How many bytes a datagram may have now. It changes with the path. `None` if one of the two sides does not accept
    /// datagrams, or the session is over.
    #[must_use]
    pub fn datagram_bytes_max(&self) -> Option<usize> {
        self.with(|endpoint, _| endpoint.datagram_bytes_max(self.number)).ok().flatten()
    }

    /// Waits for a datagram of the peer. One task of a session waits at a time.
    ///
    /// # Errors
    /// [`SessionError::Closed`] once the session is over, [`SessionError::Busy`] from within a handler.
    pub async fn recv_datagram(&self) -> Result<Bytes, SessionError> {
        std::future::poll_fn(|cx| self.poll_recv_datagram(cx)).await
    }

    /// A datagram of the peer, or a promise to wake the task.
    ///
    /// # Errors
    /// As [`recv_datagram`](Self::recv_datagram).
    pub fn poll_recv_datagram(&self, cx: &Context<'_>) -> Poll<Result<Bytes, SessionError>> {
        match self.reach.with_entry(|entry, _| entry.poll_datagram(self.number, cx)) {
            Ok(polled) => polled,
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// The session with this number, of the endpoint that is dispatched on this thread.
    fn of_dispatch(
        token: Token,
        number: SessionNumber,
        peer: SocketAddr,
        handshake: Option<Handshake>,
    ) -> Option<Self> {
        let handshake = handshake.map(Rc::new);
        Some(Self { reach: Reach::new(Local::current()?, token), number, peer, handshake })
    }
}

impl<C: Pipeline> Channel<C> {
    /// The session of a stream, and the number of the stream in its protocol, if its endpoint is an `E`.
    #[must_use]
    pub fn session<E: StreamEndpoint + 'static>(&self) -> Option<(EndpointSession<E>, StreamNumber)> {
        let token = self.token();
        let local = Local::current()?;
        let (endpoint, peer) = {
            let core = local.core.try_borrow().ok()?;
            let StreamId { session, .. } = core.slots.get(token)?.stream()?;
            (core.sessions.endpoint(session)?, core.sessions.peer(session)?.ip()?)
        };
        let reach = Reach::<E>::new(local, endpoint);
        let stream = reach.with_entry(|entry, core| entry.stream_number(core, token)).ok().flatten()?;
        Some((EndpointSession { reach, number: stream.session, peer, handshake: None }, stream))
    }
}

/// The services of a session, by its number.
fn services_of<E: StreamEndpoint + 'static>(
    mut services: impl FnMut(EndpointSession<E>) -> SessionStreams + 'static,
) -> MakeServices {
    Box::new(move |token, number, peer, handshake| {
        EndpointSession::of_dispatch(token, number, peer, handshake).map(&mut services).unwrap_or_default()
    })
}

impl<E: StreamEndpoint + 'static> Reach<E> {
    fn new(local: Rc<Local>, token: Token) -> Self {
        Self { local: HandleLocal::new(local), token, endpoint: PhantomData }
    }

    fn with<T>(&self, act: impl FnOnce(&mut E, Instant) -> T) -> Result<T, SessionError> {
        self.with_entry(|entry, core| {
            let now = core.time.now();
            act(entry.endpoint(), now)
        })
    }

    fn with_entry<T>(&self, act: impl FnOnce(&mut SessionsEntry<E>, &mut Core) -> T) -> Result<T, SessionError> {
        let mut core = self.local.core.try_borrow_mut().map_err(|_| SessionError::Busy)?;
        let value = core.with(self.token, |entry: &mut SessionsEntry<E>, core| (act(entry, core), Disposition::Keep));
        core.queues.schedule_session(self.token);
        value.ok_or(SessionError::Closed)
    }

    fn open_with(
        &self,
        session: SessionNumber,
        direction: Direction,
        make: impl FnOnce(&mut Core, Token, Link),
    ) -> Result<Token, SessionError> {
        let (token, link) = self.with_entry(|entry, core| entry.open(core, session, direction))??;
        let mut core = self.local.core.try_borrow_mut().map_err(|_| SessionError::Busy)?;
        make(&mut core, token, link);
        if direction == Direction::Unidirectional {
            core.dispatch(token, SlotEvent::Ended);
        }
        Ok(token)
    }
}

impl<E: StreamEndpoint + 'static> Clone for Reach<E> {
    fn clone(&self) -> Self {
        Self::new(Rc::clone(&self.local), self.token)
    }
}

impl<E: StreamEndpoint + 'static> Clone for EndpointSession<E> {
    fn clone(&self) -> Self {
        Self { reach: self.reach.clone(), number: self.number, peer: self.peer, handshake: self.handshake.clone() }
    }
}

impl<E: StreamEndpoint + 'static> fmt::Debug for EndpointSession<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointSession").field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl<E: StreamEndpoint + 'static> Clone for SessionEndpoint<E> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<E: StreamEndpoint + 'static> Drop for Owned<E> {
    fn drop(&mut self) {
        let token = self.0.token;
        self.0.local.with_core(move |core| {
            core.with(token, |entry: &mut SessionsEntry<E>, core| {
                entry.on_handle_dropped(core);
                ((), Disposition::Keep)
            });
            core.queues.schedule_session(token);
        });
    }
}

impl<E: StreamEndpoint + 'static> fmt::Debug for SessionEndpoint<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionEndpoint").field("address", &self.local_address().ok()).finish_non_exhaustive()
    }
}
