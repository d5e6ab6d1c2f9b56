//! Requests of clients that become tunnels: the way from an address to a stream whose server has accepted, for all protocols of
//! extended CONNECT (RFC 8441, RFC 9220).

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tidegate_codec::{Direction, DynOver, Filters, Pipeline};
use tidegate_engine::{Channel, ChannelError, SessionEndpoint, SessionError, SessionLimits, SessionStreams, task};
use tidegate_http1::ResponseHead;
use tidegate_http1::client::{Incoming, Outgoing, Request};
use tidegate_http3::{self as http3, CapsuleCodec, Settings};
use tidegate_quic as quic;
use tidegate_tls as tls;

/// HTTP/3 on QUIC.
pub(crate) type Http3 = http3::Endpoint<quic::Endpoint>;

/// A client's QUIC socket, and its HTTP/3 configuration.
pub(crate) struct Http3Connector {
    connector: quic::Connector<Http3>,
    config: Arc<http3::Config>,
}

/// An HTTP/3 connection whose server permits extended CONNECT. It closes behind its last stream, once it is dropped.
pub(crate) struct Http3Connection {
    pub(crate) connection: quic::Connection<Http3>,
    config: Arc<http3::Config>,
}

/// A request without its response. Dropping it resets the stream, or the connection that it has alone.
pub(crate) struct PendingRequest<C: Pipeline>(Option<Channel<C>>);

/// Why a request has no tunnel.
#[derive(Debug)]
pub(crate) enum RequestFailure {
    Connection(quic::ConnectionError),
    Timeout,
    Unsupported,
    Refused(u16),
    Request,
    Closed(ChannelError),
    Session(SessionError),
}

impl Http3Connector {
    /// Opens a socket at `address`.
    pub(crate) fn bind(
        address: SocketAddr,
        tls: &tls::ClientConfig,
        transport: quic::TransportLimits,
        config: http3::Config,
    ) -> io::Result<Self> {
        let tls = tls.clone().with_alpn(["h3"]).map_err(invalid)?;
        let quic = quic::ClientConfig::new(&tls, transport).map_err(invalid)?.codes(quic::Codes::HTTP3);
        let config = Arc::new(config);
        let endpoint = http3::Endpoint::client(config.clone(), quic.endpoint());
        // A server opens the streams of WebTransport sessions alone, which the sessions accept.
        let services = |_| SessionStreams::default();
        let (options, limits) = (quic.socket_options(), SessionLimits::default());
        let endpoint = SessionEndpoint::bind(address, &options, limits, endpoint, services)?;
        Ok(Self { connector: quic::Connector::new(endpoint, &quic), config })
    }

    /// Connects to a server whose certificate has this name, and waits for its SETTINGS, which have to permit the request.
    /// The handshake has the deadline of the TLS configuration, and SETTINGS may take `settings_timeout` after it.
    pub(crate) async fn connect(
        &self,
        server: SocketAddr,
        name: &str,
        permits: fn(&Settings) -> bool,
        settings_timeout: Duration,
    ) -> Result<Http3Connection, RequestFailure> {
        let connection = self.connector.connect(server, name).await.map_err(RequestFailure::Connection)?;
        let is_permitted = std::future::poll_fn(|cx| {
            let settings = connection.with(|endpoint, _| {
                endpoint.wake_on_change(connection.number(), cx.waker());
                let is_open = endpoint.may_request(connection.number());
                (endpoint.peer_settings(connection.number()).copied(), is_open)
            });
            match settings {
                Ok((None, true)) => Poll::Pending,
                Ok((settings, _)) => Poll::Ready(settings.as_ref().is_some_and(permits)),
                Err(_) => Poll::Ready(false),
            }
        });
        if !task::timeout(settings_timeout, is_permitted).await.map_err(|_| RequestFailure::Timeout)? {
            return Err(RequestFailure::Unsupported);
        }
        Ok(Http3Connection { connection, config: self.config.clone() })
    }
}

impl Http3Connection {
    /// Sends a request, and makes its stream one of capsules after a response of success. The caller has a deadline.
    pub(crate) async fn open(
        &self,
        request: Request,
        capsules: CapsuleCodec,
    ) -> Result<Channel<DynOver<CapsuleCodec>>, RequestFailure> {
        let codec = http3::client_stream(&self.config, Arc::default(), true);
        let opening = self.connection.open_when_allowed(Direction::Bidirectional, codec);
        let request = PendingRequest::send(opening.await.map_err(RequestFailure::Session)?, request)?;
        let (_, channel) = request.accepted(200..300).await?;
        let to = move |codec: http3::ClientStream| {
            let filters = codec.into_filters(|stream| Filters::default().with(stream.into_tunnel()));
            filters.stack(capsules)
        };
        channel.switch(to).map_err(RequestFailure::Closed)
    }
}

impl<C: Pipeline<In = Incoming, Out = Outgoing>> PendingRequest<C> {
    pub(crate) fn send(mut channel: Channel<C>, request: Request) -> Result<Self, RequestFailure> {
        channel.send(request.into()).map_err(|_| RequestFailure::Request)?;
        Ok(Self(Some(channel)))
    }

    /// Waits for a response whose status accepts the request, and returns its head.
    pub(crate) async fn accepted(
        mut self,
        accepting: std::ops::Range<u16>,
    ) -> Result<(ResponseHead, Channel<C>), RequestFailure> {
        while let Some(channel) = &mut self.0 {
            match channel.recv().await.map_err(RequestFailure::Closed)? {
                Some(Incoming::Head(head)) if accepting.contains(&head.status().code()) => {
                    return self.0.take().map(|channel| (head, channel)).ok_or(RequestFailure::Unsupported);
                }
                Some(Incoming::Head(head)) => return Err(RequestFailure::Refused(head.status().code())),
                Some(_) => {}
                None => break,
            }
        }
        Err(RequestFailure::Unsupported)
    }
}

impl<C: Pipeline> Drop for PendingRequest<C> {
    fn drop(&mut self) {
        if let Some(channel) = self.0.take() {
            channel.abort();
        }
    }
}

/// Makes the error of a client from a [`RequestFailure`]. All errors of clients have the same variants for it.
macro_rules! from_request_failure {
    ($error:ident) => {
        impl From<$crate::extended_client::RequestFailure> for $error {
            fn from(failure: $crate::extended_client::RequestFailure) -> Self {
                use $crate::extended_client::RequestFailure;
                match failure {
                    RequestFailure::Connection(error) => Self::Connection(error),
                    RequestFailure::Timeout => Self::Timeout,
                    RequestFailure::Unsupported => Self::Unsupported,
                    RequestFailure::Refused(status) => Self::Refused(status),
                    RequestFailure::Request => Self::Request,
                    RequestFailure::Closed(error) => Self::Closed(error),
                    RequestFailure::Session(error) => Self::Session(error),
                }
            }
        }
    };
}
pub(crate) use from_request_failure;

/// The authority of a server.
pub(crate) fn authority(server: SocketAddr, name: &str) -> String {
    if server.port() == 443 { name.to_owned() } else { format!("{name}:{}", server.port()) }
}

/// How long a server may take for SETTINGS, and for the response to a request, unless the application sets another time. A UDP
/// proxy may look a name up first.
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

fn invalid(error: impl Into<Box<dyn Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}
