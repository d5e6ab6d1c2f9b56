//! `CapsuleClient`: opens tunnels of capsules over HTTP/3, HTTP/2 and HTTP/1.1.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tidegate_codec::{DynOver, Filters, Over};
use tidegate_engine::{Channel, ChannelError, Client, ConnectError, Session, SessionError, task};
use tidegate_http1::client::Request;
use tidegate_http1::{self as http1, Version};
use tidegate_http2 as http2;
use tidegate_http3::{self as http3, CapsuleCodec, HttpDatagramLimits};
use tidegate_quic as quic;
use tidegate_tls as tls;

use super::CAPSULE_BYTES_MAX;
use super::tunnel::CapsuleTunnel;
use crate::extended_client::{
    Http3Connection, Http3Connector, PendingRequest, RESPONSE_TIMEOUT, authority, from_request_failure,
};

/// A client that opens tunnels of capsules, for tasks of one loop. Its sockets close behind the last tunnel.
///
/// [`connect`](Self::connect) speaks HTTP/3. Where UDP is blocked, [`connect_over`](Self::connect_over) speaks HTTP/2 or
/// HTTP/1.1, and the tunnels are the same: their datagrams are capsules then.
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
    http3: Http3Connector,
    tls: tls::ClientConfig,
    response_timeout: Duration,
}

/// A connection of a [`CapsuleClient`]. It closes behind its last tunnel, once it is dropped.
pub struct CapsuleConnection {
    version: TunnelVersion,
    authority: String,
    response_timeout: Duration,
}

/// The way to the server.
enum TunnelVersion {
    /// Each tunnel has a connection of its own.
    Http1(TcpServer),
    Http2(Session<DynOver<http2::Connection>>),
    Http3(Http3Connection),
}

/// A server that is reached by TCP and TLS.
struct TcpServer {
    address: SocketAddr,
    name: String,
    tls: tls::ClientConfig,
}

/// A connection over TLS before its version is in use.
type TlsChannel = Channel<Over<tls::Tls, http1::Client>>;

/// Why a client has no tunnel.
#[derive(Debug)]
#[non_exhaustive]
pub enum ExtendedConnectError {
    /// There is no QUIC connection.
    Connection(quic::ConnectionError),
    /// There is no TCP connection.
    Tcp(ConnectError),
    /// Over TCP, the connection with its TLS handshake and SETTINGS took longer than 10 seconds; or SETTINGS over QUIC, or a
    /// response, longer than [`CapsuleClient::response_timeout`].
    Timeout,
    /// The server does not permit extended CONNECT, does not speak the version, or has switched to another protocol.
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
    /// Opens a UDP socket at `address`, most often port 0, on the loop that runs on this thread. `tls` has the trust in servers;
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
        let http3 = Http3Connector::bind(address, tls, transport, http3::Config::default().datagram_limits(limits))?;
        Ok(Self { http3, tls: tls.clone(), response_timeout: RESPONSE_TIMEOUT })
    }

    /// How long [`open`](CapsuleConnection::open) may take, from the call to the head of the response, on connections that are
    /// made after it; and how long SETTINGS of an HTTP/3 server may take. 30 seconds. It stops a server that accepts a request and
    /// never answers, or that permits no stream.
    ///
    /// ```
    /// use std::net::SocketAddr;
    /// use std::time::Duration;
    ///
    /// use tidegate::http::CapsuleClient;
    /// use tidegate::http3::HttpDatagramLimits;
    /// use tidegate::tls::ClientConfig;
    ///
    /// fn bind(address: SocketAddr, tls: &ClientConfig) -> std::io::Result<CapsuleClient> {
    ///     let client = CapsuleClient::bind(address, tls, HttpDatagramLimits::default())?;
    ///     Ok(client.response_timeout(Duration::from_secs(5)))
    /// }
    /// # drop(bind);
    /// ```
    #[must_use]
    pub fn response_timeout(self, response_timeout: Duration) -> Self {
        Self { response_timeout, ..self }
    }

    /// Connects over HTTP/3 to a server whose certificate has this name, and waits for its SETTINGS.
    ///
    /// # Errors
    /// [`ExtendedConnectError`].
    pub async fn connect(&self, server: SocketAddr, name: &str) -> Result<CapsuleConnection, ExtendedConnectError> {
        let permits = |settings: &http3::Settings| settings.extended_connect;
        let connection = self.http3.connect(server, name, permits, self.response_timeout).await?;
        Ok(self.connection(TunnelVersion::Http3(connection), authority(server, name)))
    }

    /// The same over this version: HTTP/2 and HTTP/1.1 by TCP and TLS. Over HTTP/1.1 each tunnel has a connection of its own,
    /// which [`open`](CapsuleConnection::open) makes.
    ///
    /// ```
    /// use std::net::SocketAddr;
    ///
    /// use tidegate::http::{CapsuleClient, CapsuleConnection, ExtendedConnectError};
    /// use tidegate::http1::Version;
    ///
    /// /// Connects by QUIC, or by TCP where UDP is blocked.
    /// async fn connect(
    ///     client: &CapsuleClient,
    ///     server: SocketAddr,
    /// ) -> Result<CapsuleConnection, ExtendedConnectError> {
    ///     match client.connect(server, "proxy.example").await {
    ///         Err(ExtendedConnectError::Connection(_)) => {
    ///             client.connect_over(Version::Http2, server, "proxy.example").await
    ///         }
    ///         connected => connected,
    ///     }
    /// }
    /// # drop(connect);
    /// ```
    ///
    /// # Errors
    /// [`ExtendedConnectError`]; [`Unsupported`](ExtendedConnectError::Unsupported) for HTTP/1.0, which has no tunnels.
    pub async fn connect_over(
        &self,
        version: Version,
        server: SocketAddr,
        name: &str,
    ) -> Result<CapsuleConnection, ExtendedConnectError> {
        let alpn = match version {
            Version::Http3 => return self.connect(server, name).await,
            Version::Http2 => "h2",
            Version::Http11 => "http/1.1",
            _ => return Err(ExtendedConnectError::Unsupported),
        };
        let tls = self.tls.clone().with_alpn([alpn]).map_err(|_| ExtendedConnectError::Request)?;
        let server_by_tcp = TcpServer { address: server, name: name.to_owned(), tls };
        let version = if version == Version::Http2 {
            let connecting = connect_http2(&server_by_tcp);
            TunnelVersion::Http2(task::timeout(CONNECT_TIMEOUT, connecting).await.unwrap_or(Err(TIMED_OUT))?)
        } else {
            TunnelVersion::Http1(server_by_tcp)
        };
        Ok(self.connection(version, authority(server, name)))
    }

    fn connection(&self, version: TunnelVersion, authority: String) -> CapsuleConnection {
        CapsuleConnection { version, authority, response_timeout: self.response_timeout }
    }
}

impl CapsuleConnection {
    /// Opens a tunnel of a protocol at a path. Dropping the future resets the request.
    ///
    /// # Errors
    /// [`ExtendedConnectError`]; [`Timeout`](ExtendedConnectError::Timeout) after
    /// [`response_timeout`](CapsuleClient::response_timeout). Over HTTP/2, [`SessionError::Open`] while the server permits no further stream.
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
        self.open_with(protocol, path, CapsuleCodec::new(capsule_bytes_max).read_others(true)).await
    }

    pub(crate) async fn open_with(
        &self,
        protocol: &str,
        path: &str,
        capsules: CapsuleCodec,
    ) -> Result<CapsuleTunnel, ExtendedConnectError> {
        let request = Request::get(path).and_then(|request| request.host(&self.authority)?.upgrade_to(protocol));
        let request = request.map_err(|_| ExtendedConnectError::Request)?;
        let request = request.field("Capsule-Protocol", "?1").map_err(|_| ExtendedConnectError::Request)?;
        let opening = async {
            Ok(match &self.version {
                TunnelVersion::Http1(server) => open_http1(server, (request, protocol), capsules).await?,
                TunnelVersion::Http2(session) => open_http2(session, request, capsules).await?,
                TunnelVersion::Http3(connection) => connection.open(request, capsules).await?,
            })
        };
        task::timeout(self.response_timeout, opening).await.unwrap_or(Err(TIMED_OUT)).map(CapsuleTunnel::new)
    }
}

/// Connects by TCP and TLS, and waits for the handshake.
async fn connect_tls(server: &TcpServer) -> Result<TlsChannel, ExtendedConnectError> {
    let filter = server.tls.connect(&server.name).map_err(|_| ExtendedConnectError::Request)?;
    let client = Client::at(server.address).connect_timeout(CONNECT_TIMEOUT);
    let connecting = client.connect(Over::new(filter, http1::Client::new(Arc::default())));
    let mut channel = connecting.await.map_err(ExtendedConnectError::Tcp)?;
    let established = std::future::poll_fn(|cx| channel.poll_established(cx)).await;
    established.map_err(ExtendedConnectError::Closed)?;
    Ok(channel)
}

/// An HTTP/2 connection whose server permits extended CONNECT (RFC 8441).
async fn connect_http2(server: &TcpServer) -> Result<Session<DynOver<http2::Connection>>, ExtendedConnectError> {
    let mut channel = connect_tls(server).await?;
    let is_http2 = channel.with_codec(|codec| codec.filter().alpn() == Some(b"h2"));
    if !is_http2.map_err(ExtendedConnectError::Closed)? {
        return Err(ExtendedConnectError::Unsupported);
    }
    let connection = http2::Connection::client(Arc::default());
    let to = |codec: Over<tls::Tls, http1::Client>| codec.into_filters(|_| Filters::default()).stack(connection);
    let session = channel.into_session(to).map_err(ExtendedConnectError::Closed)?;
    let permits = std::future::poll_fn(|cx| {
        let permits = session.with_mux(|connection| {
            connection.wake_on_change(cx.waker());
            let has_settings = connection.peer_streams_max().is_some() || connection.is_ending();
            has_settings.then(|| connection.peer_extends_connect())
        });
        match permits {
            Ok(None) => Poll::Pending,
            Ok(Some(permits)) => Poll::Ready(permits),
            Err(SessionError::Busy) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Err(_) => Poll::Ready(false),
        }
    });
    if permits.await { Ok(session) } else { Err(ExtendedConnectError::Unsupported) }
}

async fn open_http2(
    session: &Session<DynOver<http2::Connection>>,
    request: Request,
    capsules: CapsuleCodec,
) -> Result<Channel<DynOver<CapsuleCodec>>, ExtendedConnectError> {
    let opened = std::future::poll_fn(|cx| {
        match session.open(http2::ClientStream::new(Arc::default(), "https").extended_connect()) {
            Err(SessionError::Busy) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            opened => Poll::Ready(opened),
        }
    });
    let channel = opened.await.map_err(ExtendedConnectError::Session)?;
    let (_, channel) = PendingRequest::send(channel, request)?.accepted(200..300).await?;
    let to = |codec: http2::ClientStream| Filters::default().with(codec.into_tunnel()).stack(capsules);
    channel.switch(to).map_err(ExtendedConnectError::Closed)
}

/// A tunnel on a connection of its own.
async fn open_http1(
    server: &TcpServer,
    (request, protocol): (Request, &str),
    capsules: CapsuleCodec,
) -> Result<Channel<DynOver<CapsuleCodec>>, ExtendedConnectError> {
    let connecting = connect_tls(server);
    let channel = task::timeout(CONNECT_TIMEOUT, connecting).await.unwrap_or(Err(TIMED_OUT))?;
    let (head, channel) = PendingRequest::send(channel, request)?.accepted(101..102).await?;
    // A server could switch to a protocol that was not asked for, and its bytes are no capsules (RFC 9298 §3.3).
    let mut protocols =
        head.headers().filter(|(name, _)| name.eq_ignore_ascii_case(b"upgrade")).map(|(_, value)| value);
    let is_asked = protocols.next().is_some_and(|value| value.trim_ascii().eq_ignore_ascii_case(protocol.as_bytes()));
    if !is_asked || protocols.next().is_some() {
        return Err(ExtendedConnectError::Unsupported);
    }
    let to = |codec: Over<tls::Tls, http1::Client>| codec.into_filters(|_| Filters::default()).stack(capsules);
    channel.switch(to).map_err(ExtendedConnectError::Closed)
}

from_request_failure!(ExtendedConnectError);

/// Of TCP, the TLS handshake and SETTINGS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const TIMED_OUT: ExtendedConnectError = ExtendedConnectError::Timeout;

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
            Self::Tcp(error) => error.fmt(f),
            Self::Timeout => f.write_str("the server took too long"),
            Self::Unsupported => {
                f.write_str("the server does not permit the tunnel's protocol, or does not speak the version")
            }
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
