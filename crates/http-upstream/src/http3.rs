//! HTTP/3: QUIC connections to servers, and the streams of one.
//!
//! Each connection has a socket of its own, which is connected to the server: the kernel drops datagrams of others, and
//! reports that no socket has the server's port. Connections of one loop differ in their ports, by which a server
//! distributes them over its loops.
//!
//! **A server that is gone is noticed.** QUIC has no FIN of a system whose process has died, and its idle timeout is long.
//! While requests are in progress, a PING leaves at intervals, and the connection ends if no packet has come for a longer
//! time since the first of them. These PINGs keep the connection as well (RFC 9114 §5.1), so that a slow response outlives the idle timeout.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Weak;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tidegate_codec::{Direction, StreamEndpoint as _, later};
use tidegate_engine::{
    self as engine, Channel, ConnectError, SessionEndpoint, SessionError, SessionLimits, SessionStreams, task,
};
use tidegate_http1::client::Limits;
use tidegate_http3::{self as http3, ClientStream};
use tidegate_quic as quic;
use tidegate_sys::{Address, DatagramOptions, Socket};
use tidegate_tls::ClientConfig;

use super::error::{Phase, UpstreamError};
use super::session::{OpenFailure, UpstreamSession};

/// The settings of HTTP/3 connections.
#[derive(Debug, Clone)]
pub struct Http3Config {
    /// The limits of an HTTP/3 connection.
    pub limits: http3::Limits,
    /// The limits of the QUIC connection below it. A server of HTTP/3 opens three unidirectional streams (RFC 9114 §6.2).
    pub transport: quic::TransportLimits,
    /// Accepts HTTP datagrams (RFC 9297) within these limits, for tunnels of capsules such as UDP over HTTP (RFC 9298): both
    /// sides send them as DATAGRAM frames of QUIC. `None` unless set: they are capsules on the streams then.
    pub datagrams: Option<http3::HttpDatagramLimits>,
    /// How often a connection with requests in progress sends a PING; 5 seconds. At least 100 milliseconds, so that PINGs do
    /// not flood the server. `None` means never: a server that vanished is noticed by the idle timeout alone.
    pub ping_interval: Option<Duration>,
    /// How long the server may take to answer such a PING, or to send anything else; beyond it the connection ends, and its
    /// requests fail. 10 seconds. More than zero.
    pub ping_timeout: Duration,
    /// Where sockets come from.
    pub sockets: UdpSockets,
}

impl Default for Http3Config {
    fn default() -> Self {
        Self {
            limits: http3::Limits::default(),
            transport: quic::TransportLimits {
                // A connection has a socket of its own, and a server opens no requests.
                connections_max: 2,
                handshakes_max: 2,
                bidirectional_max: 0,
                ..quic::TransportLimits::default()
            },
            datagrams: None,
            ping_interval: Some(Duration::from_secs(5)),
            ping_timeout: Duration::from_secs(10),
            sockets: UdpSockets::default(),
        }
    }
}

/// Opens the UDP socket of a QUIC connection to a server: by the kernel, unless a function does.
#[derive(Clone, Default)]
pub struct UdpSockets(Option<Arc<OpenSocket>>);

type OpenSocket = dyn Fn(SocketAddr, &DatagramOptions) -> io::Result<Socket> + Send + Sync;

impl UdpSockets {
    /// Sockets that a function opens, such as those of a simulated network. It gets the server's address.
    pub fn by(open: impl Fn(SocketAddr, &DatagramOptions) -> io::Result<Socket> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(open)))
    }

    fn open(&self, server: SocketAddr, options: &DatagramOptions) -> io::Result<Socket> {
        if let Some(open) = &self.0 {
            return open(server, options);
        }
        let any = match server {
            SocketAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
        };
        Socket::bind_datagrams(SocketAddr::new(any, 0), options)
    }
}

impl fmt::Debug for UdpSockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "a function" } else { "the kernel" })
    }
}

/// Makes HTTP/3 connections.
#[derive(Debug)]
pub(super) struct Http3Connector {
    quic: quic::ClientConfig,
    http3: Arc<http3::Config>,
    streams: Arc<Limits>,
    engine: engine::Limits,
    /// The interval of PINGs, and the time for their answers.
    pings: Option<[Duration; 2]>,
    sockets: UdpSockets,
}

type Endpoint = http3::Endpoint<quic::Endpoint>;

impl Http3Connector {
    pub(super) fn new(
        config: Http3Config,
        tls: &ClientConfig,
        streams: Arc<Limits>,
        engine: engine::Limits,
    ) -> Result<Self, quic::ConfigError> {
        if config.ping_interval.is_some_and(|interval| interval < PING_INTERVAL_MIN) {
            return Err(quic::ConfigError::Limit("ping_interval"));
        }
        if config.ping_timeout.is_zero() {
            return Err(quic::ConfigError::Limit("ping_timeout"));
        }
        let pings = config.ping_interval.map(|interval| [interval, config.ping_timeout]);
        if config.transport.unidirectional_max < http3::UNI_STREAMS_MIN {
            return Err(quic::ConfigError::Limit("unidirectional_max"));
        }
        let mut transport = config.transport;
        let mut http3 = http3::Config::new(config.limits);
        if let Some(limits) = config.datagrams {
            transport.datagram_receive_bytes = transport.datagram_receive_bytes.max(Some(limits.request_bytes_max));
            http3 = http3.datagram_limits(limits);
        }
        let quic = quic::ClientConfig::new(&tls.with_alpn(["h3"])?, transport)?.codes(quic::Codes::HTTP3);
        let http3 = Arc::new(http3);
        Ok(Self { quic, http3, streams, engine, pings, sockets: config.sockets })
    }

    /// Connects to the first address that answers, within `timeout`. Each address gets an equal share of the time that is
    /// left.
    pub(super) async fn connect(
        self: &Arc<Self>,
        addresses: Vec<Address>,
        name: &str,
        timeout: Duration,
    ) -> Result<Http3Session, UpstreamError> {
        let deadline = later(task::now(), timeout);
        let mut last = UpstreamError::Connect(ConnectError::NoAddress);
        let count = addresses.len();
        for (place, address) in addresses.into_iter().enumerate() {
            let Some(ip) = address.ip() else { continue };
            let left = deadline.saturating_duration_since(task::now());
            let share = left / u32::try_from(count - place).unwrap_or(1);
            let connecting = Connecting::new(self.clone(), ip, name.to_owned());
            last = match task::timeout(share, connecting).await {
                Ok(Ok(connection)) => return Ok(self.session(connection)),
                Ok(Err(error)) => error.at(address),
                Err(_) => UpstreamError::Timeout(Phase::Connect),
            };
        }
        Err(last)
    }

    fn session(self: &Arc<Self>, connection: quic::Connection<Endpoint>) -> Http3Session {
        Http3Session { connection, connector: self.clone() }
    }

    async fn connect_to(&self, server: SocketAddr, name: &str) -> Result<quic::Connection<Endpoint>, QuicFailure> {
        let options = DatagramOptions { peer: Some(server), ..self.quic.socket_options() };
        let socket = self.sockets.open(server, &options)?;
        let endpoint = http3::Endpoint::client(self.http3.clone(), self.quic.endpoint());
        let limits = SessionLimits { streams: self.engine.clone(), ..SessionLimits::default() };
        let socket = SessionEndpoint::open(socket, &options, limits, endpoint, |_| SessionStreams::default())?;
        Ok(quic::Connector::new(socket, &self.quic).connect(server, name).await?)
    }
}

/// A task that connects, since no socket can be opened within a dispatch. Dropping it cancels the task.
struct Connecting(Option<task::Task<ConnectResult>>);

type ConnectResult = Result<quic::Connection<Endpoint>, QuicFailure>;

impl Connecting {
    fn new(connector: Arc<Http3Connector>, server: SocketAddr, name: String) -> Self {
        Self(Some(task::spawn(async move { connector.connect_to(server, &name).await })))
    }
}

impl Future for Connecting {
    type Output = ConnectResult;

    fn poll(mut self: std::pin::Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<ConnectResult> {
        let Some(task) = &mut self.0 else { return Poll::Ready(Err(quic::ConnectionError::Closed.into())) };
        let polled = std::pin::Pin::new(task).poll(cx);
        if polled.is_ready() {
            self.0 = None;
        }
        polled.map(|result| result.unwrap_or(Err(quic::ConnectionError::Closed.into())))
    }
}

impl Drop for Connecting {
    fn drop(&mut self) {
        if let Some(task) = self.0.take() {
            task.cancel();
        }
    }
}

/// Why there is no QUIC connection.
enum QuicFailure {
    Socket(io::Error),
    Quic(quic::ConnectionError),
}

impl QuicFailure {
    fn at(self, address: Address) -> UpstreamError {
        let error = match self {
            Self::Socket(error) => error,
            Self::Quic(quic::ConnectionError::Address) => return UpstreamError::ServerName,
            Self::Quic(quic::ConnectionError::HandshakeTimeout) => return UpstreamError::Timeout(Phase::Connect),
            Self::Quic(quic::ConnectionError::Unreachable) => io::ErrorKind::ConnectionRefused.into(),
            Self::Quic(error) => io::Error::other(error),
        };
        UpstreamError::Connect(ConnectError::Failed(address, error))
    }
}

impl From<io::Error> for QuicFailure {
    fn from(error: io::Error) -> Self {
        Self::Socket(error)
    }
}

impl From<quic::ConnectionError> for QuicFailure {
    fn from(error: quic::ConnectionError) -> Self {
        Self::Quic(error)
    }
}

/// An HTTP/3 connection to a server. It closes in good order behind its last stream, once it is dropped.
pub(super) struct Http3Session {
    connection: quic::Connection<Endpoint>,
    connector: Arc<Http3Connector>,
}

impl Http3Session {
    pub(super) fn pings(&self) -> Option<[Duration; 2]> {
        self.connector.pings
    }

    /// A server permits one stream after the other, and does not announce how many: only the caller bounds them.
    pub(super) fn permits(&self, waker: Option<&Waker>) -> Result<Option<usize>, OpenFailure> {
        let number = self.connection.number();
        let may_request = self.connection.with(|endpoint, _| {
            if let Some(waker) = waker {
                endpoint.wake_on_change(number, waker);
            }
            endpoint.may_request(number)
        });
        match may_request {
            Err(SessionError::Busy) => Err(OpenFailure::Busy),
            may_request => Ok(may_request.unwrap_or(false).then_some(usize::MAX)),
        }
    }

    pub(super) fn extends_connect(&self, waker: &Waker) -> Result<Option<bool>, SessionError> {
        let number = self.connection.number();
        self.connection.with(|endpoint, _| match endpoint.peer_settings(number) {
            Some(settings) => Some(settings.extended_connect),
            None if !endpoint.may_request(number) => Some(false),
            None => {
                endpoint.wake_on_change(number, waker);
                None
            }
        })
    }

    /// Whether requests are sent once: the handshake is complete. Before that an attacker may send copies of them.
    pub(super) fn is_confirmed(&self) -> bool {
        let number = self.connection.number();
        self.connection.with(|endpoint, _| endpoint.is_confirmed(number)).unwrap_or(false)
    }

    /// Whether the handshake has succeeded, once it is complete.
    pub(super) fn poll_confirmed(&self, cx: &Context<'_>) -> Poll<bool> {
        self.connection.poll_confirmed(cx).map(|confirmed| confirmed.is_ok())
    }

    pub(super) fn open(&self, extends: bool) -> Result<Channel<ClientStream>, OpenFailure> {
        let opened = self.connection.open(Direction::Bidirectional, self.codec(extends));
        opened.map_err(OpenFailure::from)
    }

    /// A stream, as soon as the server permits one more.
    pub(super) fn poll_open(&self, cx: &mut Context<'_>) -> Poll<Result<Channel<ClientStream>, OpenFailure>> {
        let mut opening = self.connection.open_when_allowed(Direction::Bidirectional, self.codec(false));
        std::pin::Pin::new(&mut opening).poll(cx).map_err(OpenFailure::from)
    }

    fn codec(&self, extends: bool) -> ClientStream {
        http3::client_stream(&self.connector.http3, self.connector.streams.clone(), extends)
    }

    /// Sends a PING. Ends the connection if no datagram has come since so many of them had.
    fn ping(&self, received: Option<u64>) -> Option<u64> {
        let number = self.connection.number();
        let pinged = self.connection.with(|endpoint, now| endpoint.as_mut().ping(number, received, now));
        pinged.unwrap_or_default()
    }
}

/// Looks at intervals whether the server of a connection with requests in progress is there.
pub(super) fn watch_peer([interval, timeout]: [Duration; 2], session: Weak<UpstreamSession>) {
    drop(task::spawn(async move {
        // How many datagrams had come before a PING that has no answer yet, and when it left.
        let mut unanswered: Option<(u64, Instant)> = None;
        loop {
            let left =
                unanswered.map(|(_, since)| timeout.saturating_sub(task::now().saturating_duration_since(since)));
            task::sleep(left.map_or(interval, |left| left.min(interval))).await;
            let Some(session) = session.upgrade() else { return };
            let Some(http3) = session.http3().filter(|_| session.open_count() > 0) else {
                unanswered = None;
                continue;
            };
            let now = task::now();
            let late = unanswered.filter(|(_, since)| now.saturating_duration_since(*since) >= timeout);
            let received = http3.ping(late.map(|(before, _)| before));
            unanswered = match (received, unanswered) {
                (None, _) => None,
                (Some(received), Some((before, since))) if received == before => Some((before, since)),
                // The next PING leaves after the whole interval.
                (Some(_), Some(_)) if timeout < interval => None,
                (Some(received), _) => Some((received, now)),
            };
        }
    }));
}

/// The shortest interval of PINGs.
const PING_INTERVAL_MIN: Duration = Duration::from_millis(100);
