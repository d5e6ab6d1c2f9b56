//! `WebTransportClient`: opens sessions to servers, each on a QUIC connection of its own.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;

use tidegate_codec::{Direction, DynOver, Filters};
use tidegate_engine::{Channel, ChannelError, SessionEndpoint, SessionError, SessionLimits, SessionStreams, task};
use tidegate_http1::client::{Incoming, Request};
use tidegate_http3 as http3;
use tidegate_http3::CapsuleCodec;
use tidegate_http3::webtransport::WebTransportLimits;
use tidegate_quic as quic;
use tidegate_sys::DatagramOptions;
use tidegate_tls as tls;

use super::CAPSULE_BYTES_MAX;
use super::serve::{begin, drive};
use super::session::{Http3, WebTransportSession};

/// A client of WebTransport, for tasks of one loop. Its sockets close behind the last session.
///
/// ```
/// use std::net::SocketAddr;
///
/// use tidegate::http::WebTransportClient;
///
/// /// Sends a datagram, and waits for one.
/// async fn ask(client: &WebTransportClient, server: SocketAddr) -> Result<(), Box<dyn std::error::Error>> {
///     let session = client.open(server, "sea.example", "/echo").await?;
///     session.send_datagram(b"high water")?;
///     println!("{:?}", session.recv_datagram().await);
///     session.close(0, "done");
///     Ok(())
/// }
/// # drop(ask);
/// ```
pub struct WebTransportClient {
    connector: quic::Connector<Http3>,
    config: Arc<http3::Config>,
}

/// Why no session was opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum WebTransportError {
    /// There is no connection.
    Connection(quic::ConnectionError),
    /// The server permits no session.
    Unsupported,
    /// The server has responded with another status than one of success.
    Refused(u16),
    /// The path, or the name of the server, cannot be part of a request.
    Request,
    /// The request was reset, or the connection is over.
    Closed(ChannelError),
    /// No stream was opened for the request.
    Session(SessionError),
}

impl WebTransportClient {
    /// Opens a socket at `address`, most often port 0, on the loop that runs on this thread. `tls` has the trust in servers;
    /// `limits` bound the servers.
    ///
    /// # Errors
    /// Those of the system; `InvalidInput` if QUIC cannot use `tls`, which has to allow version 1.3, or a limit.
    ///
    /// # Panics
    /// If no event loop runs on this thread, and within a handler: a task calls it.
    pub fn bind(address: SocketAddr, tls: &tls::ClientConfig, limits: WebTransportLimits) -> io::Result<Self> {
        let transport = quic::TransportLimits {
            unidirectional_max: quic::TransportLimits::default().unidirectional_max + limits.unidirectional_max,
            datagram_receive_bytes: Some(limits.datagram_bytes_max),
            ..quic::TransportLimits::default()
        };
        let tls = tls.clone().with_alpn(["h3"]).map_err(invalid)?;
        let quic = quic::ClientConfig::new(&tls, transport).map_err(invalid)?;
        let quic = quic.codes(quic::Codes::HTTP3);
        let config = Arc::new(http3::Config::default().webtransport(limits));
        let endpoint = http3::Endpoint::client(config.clone(), quic.endpoint());
        // All streams that a server opens belong to sessions.
        let services = |_| SessionStreams::default();
        let (options, limits) = (DatagramOptions::default(), SessionLimits::default());
        let endpoint = SessionEndpoint::bind(address, &options, limits, endpoint, services)?;
        Ok(Self { connector: quic::Connector::new(endpoint, &quic), config })
    }

    /// Opens a session for a path of a server whose certificate has this name. It lasts until one of the two sides closes it, so
    /// a task that needs it no more [closes](WebTransportSession::close) it.
    ///
    /// # Errors
    /// [`WebTransportError`].
    pub async fn open(
        &self,
        server: SocketAddr,
        name: &str,
        path: &str,
    ) -> Result<WebTransportSession, WebTransportError> {
        let authority = if server.port() == 443 { name.to_owned() } else { format!("{name}:{}", server.port()) };
        let request = Request::get(path).and_then(|request| request.host(&authority));
        let request = request.map_err(|_| WebTransportError::Request)?.upgrade("webtransport");
        let connection = self.connector.connect(server, name).await.map_err(WebTransportError::Connection)?;
        let permits = std::future::poll_fn(|cx| {
            let settings = connection.with(|endpoint, _| {
                endpoint.wake_on_change(connection.number(), cx.waker());
                let is_open = endpoint.may_request(connection.number());
                (endpoint.peer_settings(connection.number()).copied(), is_open)
            });
            match settings {
                Ok((None, true)) => Poll::Pending,
                Ok((settings, _)) => {
                    Poll::Ready(settings.is_some_and(|settings| settings.webtransport_sessions_max > 0))
                }
                Err(_) => Poll::Ready(false),
            }
        });
        if !permits.await {
            return Err(WebTransportError::Unsupported);
        }
        let codec = http3::client_stream(&self.config, Arc::default(), true);
        let opened = connection.open(Direction::Bidirectional, codec).map_err(WebTransportError::Session)?;
        let channel = Self::ask(opened, request).await?;
        let (session, reader) = begin(channel).map_err(WebTransportError::Session)?;
        let driven = session.clone();
        drop(task::spawn(async move {
            // The connection ends behind the session.
            let _connection = connection;
            drive(&driven, reader).await;
        }));
        Ok(session)
    }

    /// Sends the request, and makes its stream one of capsules after a response of success.
    async fn ask(
        mut channel: Channel<http3::ClientStream>,
        request: Request,
    ) -> Result<Channel<DynOver<CapsuleCodec>>, WebTransportError> {
        channel.send(request.into()).map_err(|_| WebTransportError::Request)?;
        loop {
            match channel.recv().await.map_err(WebTransportError::Closed)? {
                Some(Incoming::Head(head)) if (200..300).contains(&head.status().code()) => break,
                Some(Incoming::Head(head)) => return Err(WebTransportError::Refused(head.status().code())),
                Some(_) => {}
                None => return Err(WebTransportError::Unsupported),
            }
        }
        let to = |codec: http3::ClientStream| {
            let filters = codec.into_filters(|stream| Filters::default().with(stream.into_tunnel()));
            filters.stack(CapsuleCodec::new(CAPSULE_BYTES_MAX))
        };
        channel.switch(to).map_err(WebTransportError::Closed)
    }
}

fn invalid(error: impl Into<Box<dyn Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}

impl fmt::Debug for WebTransportClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebTransportClient").finish_non_exhaustive()
    }
}

impl fmt::Display for WebTransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connection(error) => error.fmt(f),
            Self::Unsupported => f.write_str("the server permits no session of WebTransport"),
            Self::Refused(status) => write!(f, "the server has refused the session with {status}"),
            Self::Request => f.write_str("the path or the name of the server cannot be part of a request"),
            Self::Closed(error) => error.fmt(f),
            Self::Session(error) => error.fmt(f),
        }
    }
}

impl Error for WebTransportError {}
