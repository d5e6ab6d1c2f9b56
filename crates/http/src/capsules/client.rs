//! `CapsuleClient`: opens tunnels of capsules over HTTP/3.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;

use tidegate_codec::{Direction, DynOver, Filters};
use tidegate_engine::{Channel, ChannelError, SessionEndpoint, SessionError, SessionLimits, SessionStreams};
use tidegate_http1::client::{Incoming, Request};
use tidegate_http3::{self as http3, CapsuleCodec, HttpDatagramLimits};
use tidegate_quic as quic;
use tidegate_sys::DatagramOptions;
use tidegate_tls as tls;

use super::CAPSULE_BYTES_MAX;
use super::tunnel::{CapsuleTunnel, Http3};

/// A client that opens tunnels of capsules over HTTP/3, for tasks of one loop. Its sockets close behind the last tunnel.
///
/// Over HTTP/1.1, `Client` of the feature `http-client` sends the request: `upgrade(protocol)`, then
/// [`CapsuleTunnel::new`] with the channel of the response.
///
/// ```
/// use std::net::SocketAddr;
///
/// use tidegate::http::CapsuleClient;
///
/// /// Sends a datagram, and waits for a capsule.
/// async fn ask(client: &CapsuleClient, server: SocketAddr) -> Result<(), Box<dyn std::error::Error>> {
///     let connection = client.connect(server, "sea.example").await?;
///     let mut tunnel = connection.open("tide-gauge", "/gauge").await?;
///     tunnel.send_datagram(b"high water")?;
///     println!("{:?}", tunnel.recv().await?);
///     Ok(())
/// }
/// # drop(ask);
/// ```
pub struct CapsuleClient {
    connector: quic::Connector<Http3>,
    config: Arc<http3::Config>,
}

/// A connection of a [`CapsuleClient`]. It closes behind its last tunnel, once it is dropped.
pub struct CapsuleConnection {
    connection: quic::Connection<Http3>,
    config: Arc<http3::Config>,
    authority: String,
}

/// Why a client has no tunnel.
#[derive(Debug)]
#[non_exhaustive]
pub enum ExtendedConnectError {
    /// There is no connection.
    Connection(quic::ConnectionError),
    /// The server does not permit extended CONNECT.
    Unsupported,
    /// The server has responded with another status than one of success.
    Refused(u16),
    /// The path, the protocol, or the name of the server, cannot be part of a request.
    Request,
    /// The request was reset, or the connection is over.
    Closed(ChannelError),
    /// No stream was opened for the request.
    Session(SessionError),
}

impl CapsuleClient {
    /// Opens a socket at `address`, most often port 0, on the loop that runs on this thread. `tls` has the trust in servers;
    /// `limits` bound the datagrams of servers.
    ///
    /// # Errors
    /// Those of the system; `InvalidInput` if QUIC cannot use `tls`, which has to allow version 1.3.
    ///
    /// # Panics
    /// If no event loop runs on this thread, and within a handler: a task calls it.
    pub fn bind(address: SocketAddr, tls: &tls::ClientConfig, limits: HttpDatagramLimits) -> io::Result<Self> {
        let transport = quic::TransportLimits {
            datagram_receive_bytes: Some(limits.request_bytes_max),
            bidirectional_max: 0,
            ..quic::TransportLimits::default()
        };
        let tls = tls.clone().with_alpn(["h3"]).map_err(invalid)?;
        let quic = quic::ClientConfig::new(&tls, transport).map_err(invalid)?.codes(quic::Codes::HTTP3);
        let config = Arc::new(http3::Config::default().datagram_limits(limits));
        let endpoint = http3::Endpoint::client(config.clone(), quic.endpoint());
        let (options, limits) = (DatagramOptions::default(), SessionLimits::default());
        let endpoint = SessionEndpoint::bind(address, &options, limits, endpoint, |_| SessionStreams::default())?;
        Ok(Self { connector: quic::Connector::new(endpoint, &quic), config })
    }

    /// Connects to a server whose certificate has this name, and waits for its SETTINGS.
    ///
    /// # Errors
    /// [`ExtendedConnectError`].
    pub async fn connect(&self, server: SocketAddr, name: &str) -> Result<CapsuleConnection, ExtendedConnectError> {
        let connection = self.connector.connect(server, name).await.map_err(ExtendedConnectError::Connection)?;
        let permits = std::future::poll_fn(|cx| {
            let settings = connection.with(|endpoint, _| {
                endpoint.wake_on_change(connection.number(), cx.waker());
                let is_open = endpoint.may_request(connection.number());
                (endpoint.peer_settings(connection.number()).copied(), is_open)
            });
            match settings {
                Ok((None, true)) => Poll::Pending,
                Ok((settings, _)) => Poll::Ready(settings.is_some_and(|settings| settings.extended_connect)),
                Err(_) => Poll::Ready(false),
            }
        });
        if !permits.await {
            return Err(ExtendedConnectError::Unsupported);
        }
        let authority = if server.port() == 443 { name.to_owned() } else { format!("{name}:{}", server.port()) };
        Ok(CapsuleConnection { connection, config: self.config.clone(), authority })
    }
}

impl CapsuleConnection {
    /// Opens a tunnel of a protocol at a path.
    ///
    /// # Errors
    /// [`ExtendedConnectError`].
    pub async fn open(&self, protocol: &str, path: &str) -> Result<CapsuleTunnel, ExtendedConnectError> {
        self.open_within(protocol, path, CAPSULE_BYTES_MAX).await
    }

    /// The same with a bound of the bytes of a capsule's value, in the place of 16 KiB.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn open_within(
        &self,
        protocol: &str,
        path: &str,
        capsule_bytes_max: u32,
    ) -> Result<CapsuleTunnel, ExtendedConnectError> {
        let request = Request::get(path).and_then(|request| request.host(&self.authority)?.upgrade_to(protocol));
        let request = request.map_err(|_| ExtendedConnectError::Request)?;
        let request = request.field("Capsule-Protocol", "?1").map_err(|_| ExtendedConnectError::Request)?;
        let codec = http3::client_stream(&self.config, Arc::default(), true);
        let opening = self.connection.open_when_allowed(Direction::Bidirectional, codec);
        let mut channel = opening.await.map_err(ExtendedConnectError::Session)?;
        channel.send(request.into()).map_err(|_| ExtendedConnectError::Request)?;
        await_success(&mut channel).await?;
        let to = move |codec: http3::ClientStream| {
            let filters = codec.into_filters(|stream| Filters::default().with(stream.into_tunnel()));
            filters.stack(CapsuleCodec::new(capsule_bytes_max).read_others(true))
        };
        let channel: Channel<DynOver<CapsuleCodec>> = channel.switch(to).map_err(ExtendedConnectError::Closed)?;
        Ok(CapsuleTunnel::new(channel))
    }
}

async fn await_success(channel: &mut Channel<http3::ClientStream>) -> Result<(), ExtendedConnectError> {
    loop {
        match channel.recv().await.map_err(ExtendedConnectError::Closed)? {
            Some(Incoming::Head(head)) if (200..300).contains(&head.status().code()) => return Ok(()),
            Some(Incoming::Head(head)) => return Err(ExtendedConnectError::Refused(head.status().code())),
            Some(_) => {}
            None => return Err(ExtendedConnectError::Unsupported),
        }
    }
}

fn invalid(error: impl Into<Box<dyn Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}

impl fmt::Debug for CapsuleClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CapsuleClient").finish_non_exhaustive()
    }
}

impl fmt::Debug for CapsuleConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CapsuleConnection").field("authority", &self.authority).finish_non_exhaustive()
    }
}

impl fmt::Display for ExtendedConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connection(error) => error.fmt(f),
            Self::Unsupported => f.write_str("the server does not permit extended CONNECT"),
            Self::Refused(status) => write!(f, "the server has refused the tunnel with {status}"),
            Self::Request => {
                f.write_str("the path, the protocol or the name of the server cannot be part of a request")
            }
            Self::Closed(error) => error.fmt(f),
            Self::Session(error) => error.fmt(f),
        }
    }
}

impl Error for ExtendedConnectError {}
