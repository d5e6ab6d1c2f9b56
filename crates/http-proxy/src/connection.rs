//! `Connection`: a connection to an upstream without its type, and how one is made.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::task::{Context, Poll};
use std::time::Duration;

use tidegate_engine::{Channel, ChannelError, CloseReason, ConnectError, SendError, task};
#[cfg(feature = "connect-udp")]
use tidegate_http::gateway::CapsuleRelayTunnel;
use tidegate_http_upstream::{
    Addresses, ClientCodec, Connected, ExchangeChannel, ExchangeCodec, FromChannel, Retry, Target, UpstreamError,
    Versions,
};
use tidegate_http1::client::{Incoming, Outgoing};
#[cfg(feature = "connect-udp")]
use tidegate_http3::CapsuleRelay;
use tidegate_proxy_protocol::Builder;

use super::error::SendFailure;
use super::upstreams::{Shared, Upstream};
use tidegate_l4::Tunnel;

/// A connection to an upstream. One that is dropped in the middle of an exchange is reset.
pub(super) trait Connection {
    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Incoming>, ChannelError>>;
    /// Whether another piece of the request's body has room.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ChannelError>>;
    fn send(&mut self, message: Outgoing) -> Result<(), SendFailure>;
    /// From now on the response is read even if the upstream does not read the request's body.
    fn split(&mut self);
    /// Whether it takes another request, now that none is in progress.
    fn is_reusable(&mut self) -> bool;
    /// Whether it takes another request behind those in progress.
    fn takes_another(&mut self) -> bool {
        false
    }
    /// Whether the connection ended, or was left, before it came to this request, which was sent behind others.
    fn is_not_processed(&self) -> bool {
        false
    }
    /// The connection of the only client whose requests it may carry; see [`Pool`](super::pool::Pool).
    fn owner(&self) -> Option<u64> {
        None
    }
    /// From now on it carries requests of this client's connection alone.
    fn set_owner(&mut self, _client: u64) {}
    /// The exchange is complete. Returns the connection for other requests, unless it has more in progress.
    fn finish(self: Box<Self>) -> Option<Box<dyn Connection>>;
    /// Whether it is a stream of an HTTP/2 or HTTP/3 connection.
    fn is_stream(&self) -> bool;
    /// Whether a connection of the pool has answered other requests before.
    fn has_answered(&self) -> bool {
        true
    }
    /// Whether the upstream allows extended CONNECT, once that is known.
    fn poll_extends_connect(&mut self, cx: &mut Context<'_>) -> Poll<bool>;
    /// Whether the server has not processed the request of the stream that was closed for this reason.
    fn has_refused(&self, _reason: &CloseReason) -> bool {
        false
    }
    fn set_deadline_after(&mut self, after: Option<Duration>);
    fn into_tunnel(self: Box<Self>) -> Result<Tunnel, ChannelError>;
    /// The same for a tunnel of capsules, whose datagrams are seen.
    #[cfg(feature = "connect-udp")]
    fn into_capsules(self: Box<Self>) -> Result<CapsuleRelayTunnel, ChannelError>;
}

/// The channel of an exchange, or of an idle connection.
pub(super) struct ChannelConnection<C: ExchangeCodec> {
    channel: ExchangeChannel<C>,
    owner: Option<u64>,
}

impl<C: ExchangeCodec> ChannelConnection<C> {
    pub(super) fn new(channel: Channel<C>) -> Self {
        Self { channel: ExchangeChannel::Whole(channel), owner: None }
    }

    /// The connection, in the place of which nothing is left.
    pub(super) fn take(&mut self) -> Self {
        Self { channel: std::mem::take(&mut self.channel), owner: self.owner }
    }

    /// The channel, in the place of which nothing is left, unless the exchange is complete or the connection closed.
    pub(super) fn take_incomplete(&mut self) -> Option<ExchangeChannel<C>> {
        let is_complete = self.channel.whole()?.with_codec(|codec| codec.is_complete());
        let is_over = matches!(is_complete, Ok(true) | Err(ChannelError::Closed(_)));
        (!is_over).then(|| std::mem::take(&mut self.channel))
    }
}

impl<C: ClientCodec> ChannelConnection<C> {
    fn boxed(channel: Channel<C>) -> Box<dyn Connection> {
        Box::new(Self::new(channel))
    }
}

impl FromChannel for Box<dyn Connection> {
    fn from_channel<C: ClientCodec>(channel: Channel<C>) -> Self {
        ChannelConnection::boxed(channel)
    }
}

impl<C: ExchangeCodec> Connection for ChannelConnection<C> {
    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Incoming>, ChannelError>> {
        self.channel.poll_recv(cx)
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ChannelError>> {
        self.channel.poll_ready(cx).unwrap_or(Poll::Ready(Ok(())))
    }

    fn send(&mut self, message: Outgoing) -> Result<(), SendFailure> {
        match self.channel.send(message) {
            Some(Ok(())) => Ok(()),
            Some(Err(SendError::Codec(error))) => {
                Err(C::misuse(&error).map_or(SendFailure::Closed, SendFailure::Misuse))
            }
            Some(Err(_)) | None => Err(SendFailure::Closed),
        }
    }

    fn split(&mut self) {
        self.channel.split();
    }

    fn is_reusable(&mut self) -> bool {
        let channel = self.channel.whole();
        channel.is_some_and(|channel| channel.with_codec(|codec| codec.is_reusable()).unwrap_or(false))
    }

    fn takes_another(&mut self) -> bool {
        self.channel.with_codec(C::takes_another).unwrap_or(false)
    }

    fn owner(&self) -> Option<u64> {
        self.owner
    }

    fn set_owner(&mut self, client: u64) {
        self.owner = Some(client);
    }

    fn finish(self: Box<Self>) -> Option<Box<dyn Connection>> {
        Some(self)
    }

    fn is_stream(&self) -> bool {
        false
    }

    fn poll_extends_connect(&mut self, _: &mut Context<'_>) -> Poll<bool> {
        Poll::Ready(false)
    }

    fn has_refused(&self, reason: &CloseReason) -> bool {
        C::retry(reason) == Retry::Always
    }

    fn set_deadline_after(&mut self, after: Option<Duration>) {
        self.channel.set_deadline(after.and_then(|after| task::now().checked_add(after)));
    }

    fn into_tunnel(mut self: Box<Self>) -> Result<Tunnel, ChannelError> {
        std::mem::take(&mut self.channel).into_raw().unwrap_or(Err(ChannelError::Busy)).map(Tunnel::new)
    }

    #[cfg(feature = "connect-udp")]
    fn into_capsules(mut self: Box<Self>) -> Result<CapsuleRelayTunnel, ChannelError> {
        let channel = std::mem::take(&mut self.channel).into_codec(CapsuleRelay::default());
        channel.unwrap_or(Err(ChannelError::Busy)).map(CapsuleRelayTunnel::new)
    }
}

impl<C: ExchangeCodec> Drop for ChannelConnection<C> {
    fn drop(&mut self) {
        let channel = self.channel.whole();
        if !channel.is_some_and(|channel| channel.with_codec(|codec| codec.is_complete()).unwrap_or(false)) {
            self.channel.abort();
        }
    }
}

/// Whether an upstream may speak HTTP/2 or HTTP/3.
pub(super) fn may_be_http2(shared: &Shared, upstream: &Upstream) -> bool {
    upstream.has_streams() || (upstream.is_secure && shared.connector.offers_http2())
}

/// The failure of a connection, for another request that has waited for the same connection.
pub(super) fn same_error(error: &ConnectError) -> ConnectError {
    let same = |error: &io::Error| io::Error::new(error.kind(), error.to_string());
    match error {
        ConnectError::Failed(address, error) => ConnectError::Failed(address.clone(), same(error)),
        ConnectError::Timeout(address) => ConnectError::Timeout(*address),
        ConnectError::Name(name, error) => ConnectError::Name(name.clone(), same(error)),
        ConnectError::Target(text) => ConnectError::Target(text.clone()),
        _ => ConnectError::NoAddress,
    }
}

/// Connects to an upstream, for a request of a client or one of the proxy's own. One that `needs_http1` does not get an
/// HTTP/2 or HTTP/3 connection, unless the upstream is configured to speak nothing else.
pub(super) async fn connect(
    shared: &Shared,
    upstream: &Upstream,
    client: Option<ClientAddresses>,
    needs_http1: bool,
) -> Result<Connected<Box<dyn Connection>>, ConnectError> {
    let header = shared.sends_proxy_header.then(|| proxy_header(client));
    let is_http2 = upstream.is_http2 || (upstream.is_secure && !needs_http1);
    let target = Target {
        host: &upstream.host,
        port: upstream.address.ip().map_or(0, |address| address.port()),
        addresses: Addresses::At(&upstream.address),
        is_secure: upstream.is_secure,
        versions: match () {
            () if upstream.is_http3 => Versions::Http3,
            () if is_http2 => Versions::Http2,
            () => Versions::Http1,
        },
        endpoint: None,
        alternative: None,
        via: None,
        is_forwarded: false,
        header: header.as_deref(),
    };
    let connected = shared.connector.connect(&target).await;
    let failed = |text: String| ConnectError::Failed(upstream.address.clone(), io::Error::other(text));
    connected.map_err(|error| match error {
        UpstreamError::Connect(error) => error,
        UpstreamError::Timeout(_) => ConnectError::Timeout(upstream.address.ip()),
        // The reason alone: the text says already that there is no connection.
        UpstreamError::Closed(reason) => failed(reason.to_string()),
        error => failed(error.to_string()),
    })
}

/// The addresses of a client's connection, for a PROXY header.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct ClientAddresses {
    pub(super) source: Option<SocketAddr>,
    /// The address that the client has connected to.
    pub(super) destination: Option<SocketAddr>,
}

/// A PROXY header that names the client; one that names nothing for a request of the proxy's own.
fn proxy_header(client: Option<ClientAddresses>) -> Vec<u8> {
    let builder = match client {
        None => Builder::local(),
        Some(ClientAddresses { source: Some(source), destination }) => {
            let [source, destination] = of_one_family(source, destination);
            Builder::new(source, destination)
        }
        Some(ClientAddresses { source: None, .. }) => Builder::unspecified(),
    };
    builder.build_v2().unwrap_or_default()
}

/// Both addresses in one family: a header has no mixed ones. A destination that is not known is the unspecified address.
fn of_one_family(source: SocketAddr, destination: Option<SocketAddr>) -> [SocketAddr; 2] {
    let canonical = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    let source = canonical(source);
    let unspecified = match source {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let destination = destination.map_or(unspecified, canonical);
    if source.is_ipv4() == destination.is_ipv4() {
        return [source, destination];
    }
    let mapped = |address: SocketAddr| match address.ip() {
        IpAddr::V4(ip) => SocketAddr::new(ip.to_ipv6_mapped().into(), address.port()),
        IpAddr::V6(_) => address,
    };
    [mapped(source), mapped(destination)]
}

#[cfg(test)]
mod tests {
    use tidegate_proxy_protocol::Header;

    use super::*;

    fn sent(source: &str, destination: Option<&str>) -> [String; 2] {
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        let ends = ClientAddresses { source: Some(address(source)), destination: destination.map(address) };
        let header = Header::parse(&proxy_header(Some(ends))).unwrap();
        [header.source(), header.destination()].map(|address| address.unwrap().to_string())
    }

    #[test]
    fn a_proxy_header_has_the_ends_of_the_connection_in_one_family() {
        for (source, destination, expected) in [
            ("192.0.2.1:5", Some("198.51.100.1:443"), ["192.0.2.1:5", "198.51.100.1:443"]),
            ("[2001:db8::1]:5", Some("[2001:db8::2]:443"), ["[2001:db8::1]:5", "[2001:db8::2]:443"]),
            // A listener of both families has mapped addresses.
            ("[::ffff:192.0.2.1]:5", Some("[::ffff:198.51.100.1]:443"), ["192.0.2.1:5", "198.51.100.1:443"]),
            ("192.0.2.1:5", Some("[2001:db8::2]:443"), ["[::ffff:192.0.2.1]:5", "[2001:db8::2]:443"]),
            ("192.0.2.1:5", None, ["192.0.2.1:5", "0.0.0.0:0"]),
            ("[2001:db8::1]:5", None, ["[2001:db8::1]:5", "[::]:0"]),
        ] {
            assert_eq!(sent(source, destination), expected);
        }
        assert!(Header::parse(&proxy_header(None)).unwrap().is_local());
        let unknown = Header::parse(&proxy_header(Some(ClientAddresses::default()))).unwrap();
        assert!(!unknown.is_local() && unknown.source().is_none());
    }
}
