//! `Connector` and `Connection`: connecting, and opening streams.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use tidegate_codec::mux::OpenError;
use tidegate_codec::{Direction, Pipeline, SessionNumber, StreamEndpoint};
use tidegate_engine::{
    Channel, EndpointSession, Handler, Remote, SessionEndpoint, SessionError, SessionLimits, SessionStreams,
};

use crate::config::ClientConfig;
use crate::endpoint::Endpoint;
use crate::error::ConnectionError;

/// A socket with which tasks of one loop connect to servers. A clone is another handle of the same socket, which closes
/// behind its last stream once all handles are gone.
///
/// `E` is a protocol around an [`Endpoint`], such as HTTP/3.
pub struct Connector<E: StreamEndpoint + 'static = Endpoint> {
    endpoint: SessionEndpoint<E>,
    config: Rc<ClientConfig>,
}

/// A connection to a server. When it is dropped, the connection closes in good order behind its last stream.
pub struct Connection<E: StreamEndpoint + AsMut<Endpoint> + 'static = Endpoint> {
    endpoint: SessionEndpoint<E>,
    session: EndpointSession<E>,
}

/// The future of [`Connection::open_when_allowed`].
#[must_use = "a future does nothing until it is awaited"]
pub struct OpenStream<'a, C, E: StreamEndpoint + AsMut<Endpoint> + 'static = Endpoint> {
    connection: &'a Connection<E>,
    direction: Direction,
    codec: Option<C>,
}

impl Connector {
    /// Opens a socket at `address`, most often port 0, on the loop that runs on this thread. Servers cannot open streams.
    ///
    /// # Errors
    /// Those of the system.
    ///
    /// # Panics
    /// If no event loop runs on this thread, and within a handler: a task calls it.
    pub fn bind(address: SocketAddr, config: &ClientConfig) -> io::Result<Self> {
        Self::bind_with(address, config, SessionLimits::default(), |_| SessionStreams::default())
    }

    /// The same with limits of streams, and with the services of the streams that servers open.
    ///
    /// # Errors
    /// Those of the system.
    ///
    /// # Panics
    /// As [`bind`](Self::bind).
    pub fn bind_with(
        address: SocketAddr,
        config: &ClientConfig,
        limits: SessionLimits,
        services: impl FnMut(EndpointSession<Endpoint>) -> SessionStreams + 'static,
    ) -> io::Result<Self> {
        let options = config.socket_options();
        let endpoint = SessionEndpoint::bind(address, &options, limits, config.endpoint(), services)?;
        Ok(Self::new(endpoint, config))
    }
}

impl<E: StreamEndpoint + AsMut<Endpoint> + 'static> Connector<E> {
    /// A client on an endpoint that a loop has opened: [`EventLoop::open_sessions`](tidegate_engine::EventLoop::open_sessions).
    #[must_use]
    pub fn new(endpoint: SessionEndpoint<E>, config: &ClientConfig) -> Self {
        Self { endpoint, config: Rc::new(config.clone()) }
    }

    /// Connects to a server whose certificate has to have this name: a DNS name, or an IP address. With
    /// [`early_data`](crate::TransportLimits::early_data), and a session of an earlier connection, it returns before the
    /// handshake is complete: the streams that are opened then are sent at once, and an attacker may send a copy of them to
    /// the server. [`Connection::confirmed`] waits for the handshake.
    ///
    /// # Errors
    /// [`ConnectionError`].
    pub async fn connect(&self, address: SocketAddr, name: &str) -> Result<Connection<E>, ConnectionError> {
        let begun = self.endpoint.with(|endpoint, now| endpoint.as_mut().connect(&self.config, address, name, now));
        let session = begun.map_err(|_| ConnectionError::Closed)??;
        let connection =
            Connection { endpoint: self.endpoint.clone(), session: self.endpoint.session(session, address) };
        std::future::poll_fn(|cx| connection.poll_established(false, cx)).await?;
        Ok(connection)
    }

    /// The endpoint, for its methods.
    #[must_use]
    pub fn endpoint(&self) -> &SessionEndpoint<E> {
        &self.endpoint
    }
}

impl<E: StreamEndpoint + AsMut<Endpoint> + 'static> Connection<E> {
    /// Opens a stream as a channel. The peer learns of it with its first bytes, or its end.
    ///
    /// # Errors
    /// [`SessionError`]; [`SessionError::Open`] if the server allows no further stream now.
    pub fn open<C: Pipeline>(&self, direction: Direction, codec: C) -> Result<Channel<C>, SessionError> {
        self.session.open(direction, codec)
    }

    /// The same with a handler.
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
        self.session.open_handler(direction, codec, handler)
    }

    /// Opens a stream as a channel, as soon as the server allows one more.
    ///
    /// # Errors
    /// [`SessionError`].
    pub fn open_when_allowed<C: Pipeline + Unpin>(&self, direction: Direction, codec: C) -> OpenStream<'_, C, E> {
        OpenStream { connection: self, direction, codec: Some(codec) }
    }

    /// Sends a datagram (RFC 9221), as [`EndpointSession::send_datagram`] does. Both sides need
    /// [`datagram_receive_bytes`](crate::TransportLimits::datagram_receive_bytes).
    ///
    /// ```
    /// use tidegate::quic;
    ///
    /// /// Sends the height of the tide; the next one replaces a height that is lost.
    /// async fn report(connection: &quic::Connection, height: i32) -> Result<(), tidegate::engine::SessionError> {
    ///     connection.send_datagram(height.to_be_bytes().to_vec())?;
    ///     let acknowledged = connection.recv_datagram().await?;
    ///     println!("{acknowledged:?}");
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`EndpointSession::send_datagram`].
    pub fn send_datagram(&self, datagram: impl Into<Bytes>) -> Result<(), SessionError> {
        self.session.send_datagram(datagram)
    }

    /// Waits for a datagram of the server. One task waits at a time.
    ///
    /// # Errors
    /// [`SessionError::Closed`] once the connection is over, [`SessionError::Busy`] from within a handler.
    pub async fn recv_datagram(&self) -> Result<Bytes, SessionError> {
        self.session.recv_datagram().await
    }

    /// How many bytes a datagram may have now. `None` if one of the two sides does not accept datagrams.
    #[must_use]
    pub fn datagram_bytes_max(&self) -> Option<usize> {
        self.session.datagram_bytes_max()
    }

    /// Waits until the handshake is complete: bytes that are sent afterwards are sent once. If the server has refused early
    /// data, it has processed none of it, and the connection is over.
    ///
    /// # Errors
    /// [`ConnectionError`].
    pub async fn confirmed(&self) -> Result<(), ConnectionError> {
        std::future::poll_fn(|cx| self.poll_confirmed(cx)).await
    }

    /// The same for the future of a caller.
    ///
    /// # Errors
    /// As [`confirmed`](Self::confirmed).
    pub fn poll_confirmed(&self, cx: &Context<'_>) -> Poll<Result<(), ConnectionError>> {
        self.poll_established(true, cx)
    }

    fn poll_established(&self, is_confirmed: bool, cx: &Context<'_>) -> Poll<Result<(), ConnectionError>> {
        let number = self.number();
        let polled = self.endpoint.with(|endpoint, _| endpoint.as_mut().poll_established(number, is_confirmed, cx));
        match polled {
            Ok(polled) => polled,
            // Within a handler's dispatch: a later poll finds out.
            Err(SessionError::Busy) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Err(_) => Poll::Ready(Err(ConnectionError::Closed)),
        }
    }

    /// Waits for the end of the connection, and returns the reason.
    pub async fn closed(&self) -> ConnectionError {
        std::future::poll_fn(|cx| {
            let polled = self.endpoint.with(|endpoint, _| endpoint.as_mut().poll_ended(self.number(), cx));
            polled.unwrap_or(Poll::Ready(ConnectionError::Closed))
        })
        .await
    }

    /// Closes the connection now, with a code of the application and a reason that the server gets. Its streams are lost.
    pub fn close(self, code: u64, reason: &'static str) {
        let number = self.number();
        self.endpoint.with_later(move |endpoint, now| endpoint.as_mut().close_connection(number, code, reason, now));
    }

    /// Wakes a task once the server may allow a further stream, for a caller of [`open_handler`](Self::open_handler), or
    /// the connection is over.
    pub fn register(&self, cx: &Context<'_>) {
        // A socket that is closed wakes none, and neither does it open a stream.
        let _closed = self.endpoint.with(|endpoint, _| endpoint.as_mut().register(self.number(), cx));
    }

    /// The protocol that the handshake has agreed upon (ALPN).
    #[must_use]
    pub fn protocol(&self) -> Option<Vec<u8>> {
        self.endpoint.with(|endpoint, _| endpoint.as_mut().protocol(self.number())).ok().flatten()
    }

    /// Calls the protocol, and sends its datagrams at the end of this pass of the loop.
    ///
    /// # Errors
    /// [`SessionError::Closed`] if the socket is closed, [`SessionError::Busy`] from within a handler.
    pub fn with<T>(&self, act: impl FnOnce(&mut E, Instant) -> T) -> Result<T, SessionError> {
        self.endpoint.with(act)
    }

    /// The number of the connection, for the methods of [`Endpoint`].
    #[must_use]
    pub fn number(&self) -> SessionNumber {
        self.session.number()
    }
}

impl<E: StreamEndpoint + AsMut<Endpoint> + 'static> Drop for Connection<E> {
    fn drop(&mut self) {
        let number = self.number();
        self.endpoint.with_later(move |endpoint, now| endpoint.as_mut().on_handle_dropped(number, now));
        self.endpoint.end_when_empty(number);
    }
}

impl<E: StreamEndpoint + 'static> Clone for Connector<E> {
    fn clone(&self) -> Self {
        Self { endpoint: self.endpoint.clone(), config: self.config.clone() }
    }
}

impl<E: StreamEndpoint + 'static> fmt::Debug for Connector<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl<E: StreamEndpoint + AsMut<Endpoint> + 'static> fmt::Debug for Connection<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("session", &self.session).finish_non_exhaustive()
    }
}

impl<C, E: StreamEndpoint + AsMut<Endpoint> + 'static> fmt::Debug for OpenStream<'_, C, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenStream").field("direction", &self.direction).finish_non_exhaustive()
    }
}

impl<C: Pipeline + Unpin, E: StreamEndpoint + AsMut<Endpoint> + 'static> Future for OpenStream<'_, C, E> {
    type Output = Result<Channel<C>, SessionError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let (connection, direction) = (self.connection, self.direction);
        let session = connection.number();
        match connection.session.open_from(direction, &mut self.codec) {
            Err(SessionError::Open(OpenError::Full)) => {
                match connection.endpoint.with(|endpoint, _| endpoint.as_mut().register(session, cx)) {
                    Ok(()) => Poll::Pending,
                    Err(error) => Poll::Ready(Err(error)),
                }
            }
            opened => Poll::Ready(opened),
        }
    }
}
