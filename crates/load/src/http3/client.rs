//! `Http3Client`: makes the connections of a load over HTTP/3. Each has a UDP socket of its own, as a TCP connection has one.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tidegate::engine::{EndpointLimits, SessionEndpoint, SessionLimits, SessionStreams};
use tidegate::quic::{self, Codes, Connection, ConnectionError, Connector, TransportLimits};
use tidegate::sys::DatagramOptions;
use tidegate::tls::ClientConfig;
use tidegate::{Limits, http3, task};

use super::codec::Http3Codec;
use crate::pipeline::Exchange;
use crate::request::Http3Request;
use crate::role::Role;

/// HTTP/3 on the sessions of a QUIC endpoint.
pub(super) type OfQuic = http3::Endpoint<quic::Endpoint>;

/// Makes the connections of a loop.
pub(crate) struct Http3Client {
    addresses: Vec<SocketAddr>,
    /// The name that the server's certificate must have.
    name: String,
    /// Of connections that send requests, and of those that are held.
    active: quic::ClientConfig,
    held: quic::ClientConfig,
    http3: Arc<http3::Config>,
    streams: Limits,
    timeout: Duration,
}

impl Http3Client {
    /// A client of the server at one of these addresses; `streams` are the limits of each request, and `timeout` is its time;
    /// `limits_of_http3` are those of connections.
    ///
    /// # Errors
    /// [`quic::ConfigError`] if QUIC cannot use `tls`.
    pub(crate) fn new(
        addresses: &[SocketAddr],
        (tls, name): &(ClientConfig, String),
        (streams, timeout): (Limits, Duration),
        limits_of_http3: &http3::Limits,
    ) -> Result<Self, quic::ConfigError> {
        let limits = TransportLimits {
            // The load measures how fast the server sends, and reads at once.
            receive_window: RECEIVE_WINDOW,
            stream_window: STREAM_WINDOW,
            send_window: RECEIVE_WINDOW,
            bidirectional_max: 0,
            // Nothing else says that a server is gone: no packet of its kernel ends a connection.
            idle_timeout: Some(timeout * 2),
            keep_alive: Some(timeout),
            ..TransportLimits::default()
        };
        let of_held = TransportLimits { idle_timeout: None, keep_alive: None, ..limits.clone() };
        Ok(Self {
            addresses: addresses.to_owned(),
            name: name.clone(),
            active: quic::ClientConfig::new(tls, limits)?.codes(Codes::HTTP3),
            held: quic::ClientConfig::new(tls, of_held)?.codes(Codes::HTTP3),
            http3: Arc::new(http3::Config::new(limits_of_http3.clone())),
            streams,
            timeout,
        })
    }

    /// Connects to the first address that answers within the time of a request, from the address `source` if there is one.
    ///
    /// # Errors
    /// Why there is no connection to the last address.
    pub(super) async fn connect(&self, role: Role, source: Option<IpAddr>) -> Result<Connection<OfQuic>, String> {
        match task::timeout(self.timeout, self.connect_to_any(role, source)).await {
            Ok(connected) => connected,
            Err(_) => Err(self
                .addresses
                .first()
                .map_or_else(String::new, |address| describe(*address, &ConnectionError::HandshakeTimeout))),
        }
    }

    async fn connect_to_any(&self, role: Role, source: Option<IpAddr>) -> Result<Connection<OfQuic>, String> {
        let mut last = "the server has no address".to_owned();
        for &address in &self.addresses {
            let local = source.filter(|source| source.is_ipv4() == address.is_ipv4()).unwrap_or(match address {
                SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
                SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            });
            let connected = match self.connector(role, SocketAddr::new(local, 0), address) {
                Ok(connector) => connector.connect(address, &self.name).await,
                Err(error) => return Err(format!("cannot open a UDP socket: {error}")),
            };
            match connected {
                Ok(connection) => return Ok(connection),
                Err(error) => last = describe(address, &error),
            }
        }
        Err(last)
    }

    fn connector(&self, role: Role, local: SocketAddr, peer: SocketAddr) -> io::Result<Connector<OfQuic>> {
        let quic = if role == Role::Active { &self.active } else { &self.held };
        let options = DatagramOptions { peer: Some(peer), ..quic.socket_options() };
        let limits = SessionLimits { endpoint: EndpointLimits::default(), streams: self.streams.clone() };
        let endpoint = http3::Endpoint::client(self.http3.clone(), quic.endpoint());
        let socket = SessionEndpoint::bind(local, &options, limits, endpoint, |_| SessionStreams::default())?;
        Ok(Connector::new(socket, quic))
    }

    /// The codec of a stream for this request.
    pub(super) fn codec(&self, exchange: Rc<Exchange>, request: Rc<Http3Request>) -> Http3Codec {
        Http3Codec::new(exchange, request, &self.http3)
    }
}

/// Why there is no connection, with advice for the user.
fn describe(address: SocketAddr, error: &ConnectionError) -> String {
    match error {
        ConnectionError::HandshakeTimeout => {
            format!("cannot connect to {address}: no answer over UDP in time; --http3 needs a server with HTTP/3 there")
        }
        error => format!("cannot connect to {address} over QUIC: {error}"),
    }
}

impl fmt::Debug for Http3Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http3Client").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

/// Windows in which the load is not the bottleneck. That of a stream is the largest that there is.
const RECEIVE_WINDOW: u32 = 16 * 1024 * 1024;
const STREAM_WINDOW: u32 = 1024 * 1024;
