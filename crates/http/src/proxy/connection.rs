//! `Connection`: a connection to an upstream without its type, and how one is made.

use std::cell::Cell;
use std::future::Future;
#[cfg(feature = "tls")]
use std::future::poll_fn;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use tidegate_buffer::Slice;
#[cfg(feature = "tls")]
use tidegate_codec::OverError;
use tidegate_codec::framing::{Payload, Raw};
use tidegate_codec::{Codec as _, Filters, Over, Pipeline};
use tidegate_engine::{Channel, ChannelError, Client, ConnectError, ReadHalf, SendError, WriteHalf, task};
use tidegate_http1::client::{Incoming, Outgoing};
use tidegate_http1::{self as http1, Error, Misuse};
use tidegate_http2::{self as http2, ClientStream};
use tidegate_proxy_protocol::{Announced, Builder};
#[cfg(feature = "tls")]
use tidegate_tls::Tls;

use super::session::UpstreamSession;
use super::tunnel::Tunnel;
use super::upstreams::{Shared, Upstream};
use crate::resets::Resets;

/// A pipeline of the client's role, whatever the filters are.
pub(super) trait UpstreamCodec: Pipeline<In = Incoming, Out = Outgoing> {
    type Raw: Pipeline<In = Slice, Out = Payload>;

    fn into_raw(self) -> Self::Raw;
    /// Whether another request may follow on the connection, which has none in progress.
    fn is_ready(&self) -> bool;
    /// Whether another request may follow those in progress.
    fn takes_another(&self) -> bool {
        false
    }
    /// Whether request and response are complete, so that the connection need not be reset.
    fn is_complete(&self) -> bool {
        self.is_ready()
    }
    /// What the caller did wrong, if the error is about that.
    fn misuse(error: &Self::Error) -> Option<Misuse>;
}

fn misuse(error: &Error) -> Option<Misuse> {
    match error {
        Error::Caller(misuse) => Some(*misuse),
        _ => None,
    }
}

impl UpstreamCodec for http1::Client {
    type Raw = Raw;

    fn into_raw(self) -> Raw {
        Raw
    }

    fn is_ready(&self) -> bool {
        self.is_idle() && self.is_ready()
    }

    fn takes_another(&self) -> bool {
        self.is_ready()
    }

    fn misuse(error: &Error) -> Option<Misuse> {
        misuse(error)
    }
}

impl UpstreamCodec for Announced<http1::Client> {
    type Raw = Raw;

    fn into_raw(self) -> Raw {
        Raw
    }

    fn is_ready(&self) -> bool {
        self.inner().is_idle() && self.inner().is_ready()
    }

    fn misuse(error: &Error) -> Option<Misuse> {
        misuse(error)
    }
}

#[cfg(feature = "tls")]
impl UpstreamCodec for Over<Tls, http1::Client> {
    type Raw = Over<Tls, Raw>;

    fn into_raw(self) -> Self::Raw {
        self.map(|_| Raw)
    }

    fn is_ready(&self) -> bool {
        self.codec().is_idle() && self.codec().is_ready()
    }

    fn takes_another(&self) -> bool {
        self.codec().is_ready()
    }

    fn misuse(error: &Self::Error) -> Option<Misuse> {
        match error {
            OverError::Codec(error) => misuse(error),
            _ => None,
        }
    }
}

impl UpstreamCodec for ClientStream {
    type Raw = Over<http2::Tunnel, Raw>;

    fn into_raw(self) -> Self::Raw {
        Over::new(self.into_tunnel(), Raw)
    }

    fn is_ready(&self) -> bool {
        false
    }

    fn is_complete(&self) -> bool {
        self.status().is_finished
    }

    fn misuse(error: &Error) -> Option<Misuse> {
        misuse(error)
    }
}

/// A connection to an upstream. One that is dropped in the middle of an exchange is reset.
pub(super) trait Connection {
    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Incoming>, ChannelError>>;
    /// Whether another piece of the request's body has room.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ChannelError>>;
    fn send(&mut self, message: Outgoing) -> Result<(), Unsent>;
    /// From now on the response is read even if the upstream does not read the request's body.
    fn split(&mut self);
    /// Whether it takes another request, now that none is in progress.
    fn is_reusable(&mut self) -> bool;
    /// Whether it takes another request behind those in progress.
    fn takes_another(&mut self) -> bool {
        false
    }
    /// Whether the connection ended, or was left, before it came to this request, which was sent behind others.
    fn is_passed_over(&self) -> bool {
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
    fn is_http2(&self) -> bool;
    /// Whether a connection of the pool has answered other requests before.
    fn has_answered(&self) -> bool {
        true
    }
    /// Whether the upstream allows extended CONNECT, once that is known.
    fn poll_extends_connect(&mut self, cx: &mut Context<'_>) -> Poll<bool>;
    fn set_deadline_after(&mut self, after: Option<Duration>);
    fn into_tunnel(self: Box<Self>) -> Result<Tunnel, ChannelError>;
}

/// Why a message was not sent.
#[derive(Debug)]
pub(super) enum Unsent {
    Closed,
    /// The protocol cannot express it.
    Misuse(Misuse),
}

/// The connection of an exchange, or one that is idle.
pub(super) struct Held<C: UpstreamCodec> {
    state: State<C>,
    owner: Option<u64>,
}

/// The channel of a connection.
enum State<C: UpstreamCodec> {
    Whole(Channel<C>),
    /// While the body of a request is sent: the response is read even if the upstream does not read that body.
    Split(ReadHalf<C>, WriteHalf<C>),
    /// It is a tunnel now.
    Taken,
}

impl<C: UpstreamCodec> Held<C> {
    pub(super) fn new(channel: Channel<C>) -> Self {
        Self { state: State::Whole(channel), owner: None }
    }

    /// The connection, in the place of which nothing is left.
    pub(super) fn take(&mut self) -> Self {
        Self { state: std::mem::replace(&mut self.state, State::Taken), owner: self.owner }
    }

    /// Whether the exchange is complete, or the connection closed.
    pub(super) fn is_over(&mut self) -> bool {
        let is_complete = self.whole().map(|channel| channel.with_codec(|codec| codec.is_complete()));
        matches!(is_complete, None | Some(Ok(true) | Err(ChannelError::Closed(_))))
    }

    /// The whole channel, for the next request.
    fn whole(&mut self) -> Option<&mut Channel<C>> {
        if let State::Split(..) = self.state
            && let State::Split(reader, writer) = std::mem::replace(&mut self.state, State::Taken)
            && let Ok(channel) = reader.reunite(writer)
        {
            self.state = State::Whole(channel);
        }
        match &mut self.state {
            State::Whole(channel) => Some(channel),
            State::Split(..) | State::Taken => None,
        }
    }
}

impl<C: UpstreamCodec> Connection for Held<C> {
    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Incoming>, ChannelError>> {
        match &mut self.state {
            State::Whole(channel) => channel.poll_recv(cx),
            State::Split(reader, _) => reader.poll_recv(cx),
            State::Taken => Poll::Ready(Ok(None)),
        }
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ChannelError>> {
        match &mut self.state {
            State::Whole(channel) => Pin::new(&mut channel.ready()).poll(cx),
            State::Split(_, writer) => Pin::new(&mut writer.ready()).poll(cx),
            State::Taken => Poll::Ready(Ok(())),
        }
    }

    fn send(&mut self, message: Outgoing) -> Result<(), Unsent> {
        let sent = match &mut self.state {
            State::Whole(channel) => channel.send(message),
            State::Split(_, writer) => writer.send(message),
            State::Taken => return Err(Unsent::Closed),
        };
        match sent {
            Ok(_) => Ok(()),
            Err(SendError::Codec(error)) => Err(C::misuse(&error).map_or(Unsent::Closed, Unsent::Misuse)),
            Err(_) => Err(Unsent::Closed),
        }
    }

    fn split(&mut self) {
        if let State::Whole(_) = self.state
            && let State::Whole(channel) = std::mem::replace(&mut self.state, State::Taken)
        {
            let (reader, writer) = channel.split();
            self.state = State::Split(reader, writer);
        }
    }

    fn is_reusable(&mut self) -> bool {
        self.whole().is_some_and(|channel| channel.with_codec(|codec| codec.is_ready()).unwrap_or(false))
    }

    fn takes_another(&mut self) -> bool {
        match &mut self.state {
            State::Whole(channel) => channel.with_codec(|codec| codec.takes_another()).unwrap_or(false),
            State::Split(..) | State::Taken => false,
        }
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

    fn is_http2(&self) -> bool {
        false
    }

    fn poll_extends_connect(&mut self, _: &mut Context<'_>) -> Poll<bool> {
        Poll::Ready(false)
    }

    fn set_deadline_after(&mut self, after: Option<Duration>) {
        let at = after.and_then(|after| task::now().checked_add(after));
        match &mut self.state {
            State::Whole(channel) => channel.set_deadline(at),
            State::Split(reader, _) => reader.set_deadline(at),
            State::Taken => {}
        }
    }

    fn into_tunnel(mut self: Box<Self>) -> Result<Tunnel, ChannelError> {
        self.whole();
        let State::Whole(mut channel) = std::mem::replace(&mut self.state, State::Taken) else {
            return Err(ChannelError::Busy);
        };
        channel.set_deadline(None);
        channel.switch(C::into_raw).map(Tunnel::new)
    }
}

impl<C: UpstreamCodec> Drop for Held<C> {
    fn drop(&mut self) {
        let is_complete =
            self.whole().is_some_and(|channel| channel.with_codec(|codec| codec.is_complete()).unwrap_or(false));
        if let State::Whole(channel) = std::mem::replace(&mut self.state, State::Taken)
            && !is_complete
        {
            channel.abort();
        }
    }
}

/// A connection that was made, by its version.
pub(super) enum Made {
    Http1(Box<dyn Connection>),
    Http2(Rc<UpstreamSession>),
}

/// Whether an upstream may speak HTTP/2.
pub(super) fn may_be_http2(shared: &Shared, upstream: &Upstream) -> bool {
    #[cfg(feature = "tls")]
    let is_offered = upstream.is_secure && shared.tls_http2.is_some();
    #[cfg(not(feature = "tls"))]
    let is_offered = {
        let _ = shared;
        false
    };
    upstream.is_http2 || is_offered
}

/// Connects to an upstream, for a request of a client or one of the proxy's own. One that `needs_http1` does not get a
/// connection of HTTP/2, unless the upstream is configured to speak nothing else.
pub(super) async fn connect(
    shared: &Shared,
    upstream: &Upstream,
    client: Option<Ends>,
    #[cfg_attr(not(feature = "tls"), expect(unused_variables, reason = "without TLS no version is agreed on"))]
    needs_http1: bool,
) -> Result<Made, ConnectError> {
    let connector = Client::at(upstream.address.clone()).connect_timeout(shared.limits.connect_timeout);
    let http = http1::Client::new(shared.client.clone());
    let failed = |error: Box<dyn std::error::Error>| {
        ConnectError::Failed(upstream.address.clone(), std::io::Error::other(error.to_string()))
    };
    #[cfg(feature = "tls")]
    if upstream.is_secure
        && let Some(http1_only) = &shared.tls
    {
        let tls = shared.tls_http2.as_ref().filter(|_| !needs_http1).unwrap_or(http1_only);
        let tls = tls.connect(&upstream.host).map_err(|error| failed(error.into()))?;
        let mut channel = connector.connect(Over::new(tls, http)).await?;
        let established = poll_fn(|cx| channel.poll_established(cx));
        match task::timeout(shared.limits.connect_timeout, established).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(failed(error.into())),
            Err(_) => {
                channel.abort();
                return Err(ConnectError::Timeout(upstream.address.ip()));
            }
        }
        let is_http2 = channel.with_codec(|codec| codec.filter().alpn() == Some(b"h2"));
        if is_http2.map_err(|error| failed(error.into()))? {
            let filters = |codec: Over<Tls, http1::Client>| codec.into_filters(|_| Filters::default());
            return session(shared, channel, filters, "https").map_err(|error| failed(error.into()));
        }
        return Ok(Made::Http1(Box::new(Held::new(channel))));
    }
    if upstream.is_http2 {
        let channel = connector.connect(http).await?;
        return session(shared, channel, |_| Filters::default(), "http").map_err(|error| failed(error.into()));
    }
    if shared.sends_proxy_header {
        let channel = connector.connect(Announced::new(proxy_header(client), http)).await?;
        return Ok(Made::Http1(Box::new(Held::new(channel))));
    }
    Ok(Made::Http1(Box::new(Held::new(connector.connect(http).await?))))
}

/// Goes on with HTTP/2.
fn session<C: Pipeline>(
    shared: &Shared,
    channel: Channel<C>,
    filters: impl FnOnce(C) -> Filters + 'static,
    scheme: &'static str,
) -> Result<Made, ChannelError> {
    let connection = http2::Connection::client(shared.http2.clone());
    let session = channel.into_session(|codec| filters(codec).stack(connection))?;
    Ok(Made::Http2(Rc::new(UpstreamSession {
        session,
        streams: shared.streams.clone(),
        scheme,
        streams_max: shared.limits.streams_per_connection_max.max(1),
        open: Cell::new(0),
        has_answered: Cell::new(false),
        resets: Resets::new(shared.limits.resets_max, shared.limits.resets_per_second),
    })))
}

/// The ends of a client's connection, for a PROXY header.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Ends {
    pub(super) source: Option<SocketAddr>,
    /// The address that the client has connected to.
    pub(super) destination: Option<SocketAddr>,
}

/// A PROXY header that names the client; one that names nothing for a request of the proxy's own.
fn proxy_header(client: Option<Ends>) -> Vec<u8> {
    let builder = match client {
        None => Builder::local(),
        Some(Ends { source: Some(source), destination }) => {
            let [source, destination] = of_one_family(source, destination);
            Builder::new(source, destination)
        }
        Some(Ends { source: None, .. }) => Builder::unspecified(),
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
        let ends = Ends { source: Some(address(source)), destination: destination.map(address) };
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
        let unknown = Header::parse(&proxy_header(Some(Ends::default()))).unwrap();
        assert!(!unknown.is_local() && unknown.source().is_none());
    }
}
