//! `Connector`: makes connections to HTTP servers.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

#[cfg(feature = "tls")]
use tidegate_codec::Over;
use tidegate_engine::{self as engine, Channel, ConnectError, task};
use tidegate_http1::{self as http1, client};
use tidegate_http2 as http2;
#[cfg(feature = "proxy-header")]
use tidegate_proxy_protocol::SendsHeader;
use tidegate_socks as socks5;
use tidegate_sys::Address;
#[cfg(feature = "tls")]
use tidegate_tls::{ClientConfig, Tls};

use super::any_channel::AnyChannel;
use super::codec::ClientCodec;
use super::error::{Phase, ProxyError, UpstreamError, handshake_failed};
use super::forward_proxy::{ForwardProxy, ProxyKind};
#[cfg(feature = "http3")]
use super::http3::{Http3Config, Http3Connector};
use super::session::{Http2Session, SessionVersion, UpstreamSession};
use super::target::{Addresses, ServiceEndpoint, Target, Versions};
use super::{socks, tunnel};

/// Makes connections, with their common settings.
#[derive(Debug)]
pub struct Connector {
    http1: Arc<client::Config>,
    /// The limits of HTTP/2 streams.
    streams: Arc<client::Limits>,
    /// How many streams of an HTTP/2 connection are reset at once, and in a second.
    resets: [u32; 2],
    /// `None` if no connection speaks HTTP/2.
    http2: Option<Arc<http2::Config>>,
    limits: ConnectLimits,
    #[cfg(feature = "tls")]
    tls: Option<ClientConfig>,
    /// The same, offering HTTP/2.
    #[cfg(feature = "tls")]
    tls_http2: Option<ClientConfig>,
    /// `None` if no connection speaks HTTP/3.
    #[cfg(feature = "http3")]
    http3: Option<Arc<Http3Connector>>,
}

/// The settings of a [`Connector`].
#[derive(Debug)]
pub struct ConnectorConfig {
    /// The configuration of HTTP/1.1 connections.
    pub http1: client::Config,
    /// The limits of HTTP/2 streams.
    pub streams: client::Limits,
    /// The limits of HTTP/2 connections; `None` if there are none.
    pub http2: Option<http2::Limits>,
    /// Whether `https` offers HTTP/2. A TLS configuration with its own protocols decides itself.
    pub offers_http2: bool,
    /// How many streams of an HTTP/2 connection are reset at once, and in a second.
    pub resets: [u32; 2],
    /// The limits that protect the connector.
    pub limits: ConnectLimits,
    /// The TLS configuration.
    #[cfg(feature = "tls")]
    pub tls: Option<ClientConfig>,
}

/// Limits that protect a connector.
#[derive(Debug, Clone)]
pub struct ConnectLimits {
    /// How long connecting may take, over all addresses; and as long again the TLS handshake.
    pub connect_timeout: Duration,
    /// How long resolving a name may take.
    pub resolve_timeout: Duration,
    /// Addresses of a name that are tried. It stops a name with a thousand addresses.
    pub addresses_max: usize,
    /// How long QUIC connects alone where a server has HTTP/3 as an alternative; then TCP begins as well.
    pub http3_head_start: Duration,
    /// The limits of connections below HTTP.
    pub engine: engine::Limits,
}

/// A connection that was made, by its version.
pub enum Connected<H> {
    /// HTTP/1.1.
    Http1(H),
    /// HTTP/2 or HTTP/3.
    Session(std::rc::Rc<UpstreamSession>),
}

/// A connection without the type of its codec, as the caller of a [`Connector`] keeps it.
pub trait FromChannel {
    /// Hides the type of a connection that was made.
    fn from_channel<C: ClientCodec>(channel: Channel<C>) -> Self;
}

impl Connector {
    /// A connector with these settings.
    ///
    /// # Panics
    /// If the limits contradict each other.
    #[must_use]
    pub fn new(config: ConnectorConfig) -> Self {
        #[cfg(feature = "tls")]
        let tls_http2 = config.tls.as_ref().filter(|_| config.offers_http2).and_then(offering_http2);
        Self {
            http1: Arc::new(config.http1),
            streams: Arc::new(config.streams),
            resets: config.resets,
            http2: config.http2.map(|limits| Arc::new(http2::Config::new(limits))),
            limits: config.limits,
            #[cfg(feature = "tls")]
            tls: config.tls.map(without_http2),
            #[cfg(feature = "tls")]
            tls_http2,
            #[cfg(feature = "http3")]
            http3: None,
        }
    }

    /// Connections to targets of [`Versions::Http3`] are made, with the TLS configuration of this connector.
    ///
    /// # Errors
    /// [`ConfigError`](tidegate_quic::ConfigError) if there is no TLS configuration, or QUIC cannot use it, or a limit.
    #[cfg(feature = "http3")]
    pub fn set_http3(&mut self, config: Http3Config) -> Result<(), tidegate_quic::ConfigError> {
        let tls = self.tls.as_ref().ok_or(tidegate_quic::ConfigError::Tls)?;
        let http3 = Http3Connector::new(config, tls, self.streams.clone(), self.limits.engine.clone())?;
        self.http3 = Some(Arc::new(http3));
        Ok(())
    }

    /// Whether connections to targets of [`Versions::Http3`] are made.
    #[cfg(feature = "http3")]
    #[must_use]
    pub fn has_http3(&self) -> bool {
        self.http3.is_some()
    }

    /// Whether connections to targets of [`Versions::Http3`] are made: there are none.
    #[cfg(not(feature = "http3"))]
    #[must_use]
    pub fn has_http3(&self) -> bool {
        false
    }

    /// Whether connections of `https` offer HTTP/2.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn offers_http2(&self) -> bool {
        self.tls_http2.is_some() && self.http2.is_some()
    }

    /// Whether connections of `https` offer HTTP/2: there are none.
    #[cfg(not(feature = "tls"))]
    #[must_use]
    pub fn offers_http2(&self) -> bool {
        false
    }

    /// Connects to a server, through its proxy if it has one. Over TLS the handshake is complete.
    ///
    /// # Errors
    /// [`UpstreamError`].
    pub async fn connect<H: FromChannel>(&self, target: &Target<'_>) -> Result<Connected<H>, UpstreamError> {
        Ok(match self.connect_to_any(target).await? {
            Connected::Http1(channel) => Connected::Http1(channel.erase()),
            Connected::Session(session) => Connected::Session(session),
        })
    }

    /// The same for any caller. The future is boxed here, where it has no type parameter: so the connections of all
    /// pipelines are compiled once, in this crate, and not in each crate that connects.
    #[inline(never)]
    fn connect_to_any<'a>(&'a self, target: &'a Target<'a>) -> Pin<Box<dyn Future<Output = AnyResult> + 'a>> {
        Box::pin(async move {
            if target.via.is_none()
                && let Some(alternative) = target.alternative.filter(|_| self.has_http3())
            {
                return self.race(target, alternative).await;
            }
            match target.via {
                None if target.versions == Versions::Http3 => self.connect_by_quic(target).await,
                None => {
                    let addresses = self.addresses_of(target).await?;
                    self.connect_directly(target, &self.client_of(addresses)).await
                }
                Some(proxy) => {
                    let connecting = self.connect_through(target, proxy);
                    task::timeout(self.limits.connect_timeout, connecting).await.unwrap_or(Err(TIMEOUT))
                }
            }
        })
    }

    /// Connects by QUIC and by TCP. QUIC has a head start, which ends at once when it fails.
    async fn race(&self, target: &Target<'_>, alternative: &ServiceEndpoint) -> AnyResult {
        let by_quic = Target { endpoint: Some(alternative), versions: Versions::Http3, alternative: None, ..*target };
        let by_tcp = Target { alternative: None, ..*target };
        let (mut quic, mut tcp) = (Some(Box::pin(self.connect_confirmed(&by_quic))), None);
        let mut head_start = pin!(task::sleep(self.limits.http3_head_start));
        // The TCP error, while QUIC may still connect.
        let mut lost = None;
        poll_fn(|cx| {
            if let Some(connecting) = &mut quic
                && let Poll::Ready(result) = connecting.as_mut().poll(cx)
            {
                quic = None;
                if result.is_ok() {
                    return Poll::Ready(result);
                }
                if let Some(error) = lost.take() {
                    return Poll::Ready(Err(error));
                }
            }
            let waits = tcp.is_none() && quic.is_some() && head_start.as_mut().poll(cx).is_pending();
            if waits || lost.is_some() {
                return Poll::Pending;
            }
            match tcp.get_or_insert_with(|| self.connect_to_any(&by_tcp)).as_mut().poll(cx) {
                Poll::Ready(Err(error)) if quic.is_some() => {
                    lost = Some(error);
                    Poll::Pending
                }
                polled => polled,
            }
        })
        .await
    }

    /// The same, and no early data shows that there is a connection: the handshake is complete.
    async fn connect_confirmed(&self, target: &Target<'_>) -> AnyResult {
        // A server that has refused early data gets none on the second connection.
        for _ in 0..2 {
            match self.connect_to_any(target).await? {
                Connected::Session(session) if !session.confirmed().await => {}
                connected => return Ok(connected),
            }
        }
        Err(UpstreamError::Connect(ConnectError::NoAddress))
    }

    #[cfg(feature = "http3")]
    async fn connect_by_quic(&self, target: &Target<'_>) -> AnyResult {
        let http3 = self.http3.as_ref().ok_or(UpstreamError::NoHttp3)?;
        let addresses = self.addresses_of(target).await?;
        let session = http3.connect(addresses, target.name(), self.limits.connect_timeout).await?;
        Ok(Connected::Session(UpstreamSession::new(SessionVersion::Http3(session), self.resets)))
    }

    #[cfg(not(feature = "http3"))]
    async fn connect_by_quic(&self, _: &Target<'_>) -> AnyResult {
        Err(UpstreamError::NoHttp3)
    }

    async fn connect_directly(&self, target: &Target<'_>, connect: &engine::Client) -> AnyResult {
        if target.is_secure {
            #[cfg(feature = "tls")]
            return self.choose(open(connect, Over::new(self.tls_of(target)?, self.http())).await?, target).await;
            #[cfg(not(feature = "tls"))]
            return Err(UpstreamError::NoTls);
        }
        #[cfg(feature = "proxy-header")]
        if let Some(header) = target.header {
            return Ok(http1(open(connect, SendsHeader::new(header.into(), self.http())).await?));
        }
        self.choose(open(connect, self.http()).await?, target).await
    }

    async fn connect_through(&self, target: &Target<'_>, proxy: &ForwardProxy) -> AnyResult {
        let connect = self.client_of(self.addresses(target, &proxy.host, proxy.port).await?);
        match proxy.kind {
            ProxyKind::Http if target.is_forwarded => open(&connect, self.http()).await.map(http1),
            ProxyKind::Http => self.tunnel(&connect, self.http(), proxy, target).await,
            #[cfg(feature = "tls")]
            ProxyKind::Https => {
                let codec = Over::new(self.tls(&proxy.host)?, self.http());
                if target.is_forwarded {
                    open(&connect, codec).await.map(http1)
                } else {
                    self.tunnel(&connect, codec, proxy, target).await
                }
            }
            #[cfg(not(feature = "tls"))]
            ProxyKind::Https => Err(UpstreamError::NoTls),
            ProxyKind::Socks5 | ProxyKind::Socks5h | ProxyKind::Socks4 | ProxyKind::Socks4a => {
                self.connect_by_socks(target, proxy, &connect).await
            }
        }
    }

    /// Makes a tunnel to a server.
    async fn tunnel<C: ClientCodec>(
        &self,
        connect: &engine::Client,
        codec: C,
        proxy: &ForwardProxy,
        target: &Target<'_>,
    ) -> AnyResult {
        let (authority, http) = (target.authority(), self.http());
        if target.is_secure {
            #[cfg(feature = "tls")]
            {
                let above = Over::new(self.tls_of(target)?, http);
                let channel = open(connect, codec).await?;
                let channel = tunnel::connect(channel, proxy, authority, |filters| filters.stack(above)).await?;
                return self.choose(channel, target).await;
            }
            #[cfg(not(feature = "tls"))]
            return Err(UpstreamError::NoTls);
        }
        let channel = open(connect, codec).await?;
        let channel = tunnel::connect(channel, proxy, authority, |filters| filters.stack(http)).await?;
        self.choose(channel, target).await
    }

    async fn connect_by_socks(&self, target: &Target<'_>, proxy: &ForwardProxy, connect: &engine::Client) -> AnyResult {
        let to = if matches!(proxy.kind, ProxyKind::Socks5 | ProxyKind::Socks4) {
            let addresses = self.addresses(target, target.host, target.port).await?;
            let is_version_4 = proxy.kind == ProxyKind::Socks4;
            let mut addresses = addresses.iter().filter_map(Address::ip);
            let address = addresses.find(|address| address.is_ipv4() || !is_version_4);
            socks5::Target::from(address.ok_or(UpstreamError::Connect(ConnectError::NoAddress))?)
        } else {
            socks5::Target::new(target.host, target.port).map_err(|_| UpstreamError::Proxy(ProxyError::Target))?
        };
        if target.is_secure {
            #[cfg(feature = "tls")]
            {
                let codec = Over::new(self.tls_of(target)?, self.http());
                return self.choose(socks::connect(connect, proxy, to, codec).await?, target).await;
            }
            #[cfg(not(feature = "tls"))]
            return Err(UpstreamError::NoTls);
        }
        self.choose(socks::connect(connect, proxy, to, self.http()).await?, target).await
    }

    /// A connection to a server, in the version that the server has chosen.
    async fn choose<C: ClientCodec>(&self, mut channel: Channel<C>, target: &Target<'_>) -> AnyResult
    where
        AnyChannel: From<Channel<C>>,
    {
        let mut is_http2 = target.versions == Versions::Http2;
        if target.is_secure {
            let established = poll_fn(|cx| channel.poll_established(cx));
            match task::timeout(self.limits.connect_timeout, established).await {
                Ok(established) => established.map_err(handshake_failed)?,
                Err(_) => {
                    channel.abort();
                    return Err(TIMEOUT);
                }
            }
            is_http2 = channel.with_codec(|codec| codec.alpn() == Some(b"h2")).map_err(handshake_failed)?;
        }
        let Some(config) = self.http2.as_ref().filter(|_| is_http2) else { return Ok(http1(channel)) };
        let connection = http2::Connection::client(config.clone());
        let session = channel.into_session(|codec| codec.into_filters().stack(connection)).map_err(handshake_failed)?;
        let scheme = if target.is_secure { "https" } else { "http" };
        let session = Http2Session { session, limits: self.streams.clone(), scheme };
        Ok(Connected::Session(UpstreamSession::new(SessionVersion::Http2(session), self.resets)))
    }

    fn http(&self) -> http1::Client {
        http1::Client::new(self.http1.clone())
    }

    /// TLS to a server.
    #[cfg(feature = "tls")]
    fn tls_of(&self, target: &Target<'_>) -> Result<Tls, UpstreamError> {
        match self.tls_http2.as_ref().filter(|_| target.versions == Versions::Http2) {
            Some(tls) => tls.connect(target.name()).map_err(|_| UpstreamError::ServerName),
            None => self.tls(target.name()),
        }
    }

    #[cfg(feature = "tls")]
    fn tls(&self, host: &str) -> Result<Tls, UpstreamError> {
        let tls = self.tls.as_ref().ok_or(UpstreamError::NoTls)?;
        tls.connect(host).map_err(|_| UpstreamError::ServerName)
    }

    /// The addresses of a server to try, in their order.
    async fn addresses_of(&self, target: &Target<'_>) -> Result<Vec<Address>, UpstreamError> {
        match target.addresses {
            Addresses::At(address) => Ok(vec![address.clone()]),
            Addresses::By(_) => {
                let (host, port) = match target.endpoint {
                    Some(endpoint) => (endpoint.host.as_deref().unwrap_or(target.host), endpoint.port),
                    None => (target.host, target.port),
                };
                self.addresses(target, host, port).await
            }
        }
    }

    /// The addresses of a host to try, in their order.
    async fn addresses(&self, target: &Target<'_>, host: &str, port: u16) -> Result<Vec<Address>, UpstreamError> {
        if let Ok(ip) = host.parse::<std::net::IpAddr>() {
            return Ok(vec![Address::Ip((ip, port).into())]);
        }
        if let Some((ip, zone)) = tidegate_sys::parse_zoned(host) {
            return Ok(vec![Address::Ip(std::net::SocketAddrV6::new(ip, port, 0, zone).into())]);
        }
        let resolver = match target.addresses {
            Addresses::By(resolver) => resolver,
            Addresses::At(address) => return Ok(vec![address.clone()]),
        };
        let resolved = task::timeout(self.limits.resolve_timeout, resolver.resolve(host, port)).await;
        let resolved = resolved.map_err(|_| UpstreamError::Timeout(Phase::Resolve))?;
        let mut addresses = resolved.map_err(|error| UpstreamError::Resolve(host.into(), error))?;
        addresses.truncate(self.limits.addresses_max);
        Ok(addresses.into_iter().map(Address::Ip).collect())
    }

    fn client_of(&self, addresses: Vec<Address>) -> engine::Client {
        engine::Client::at_each(addresses)
            .connect_timeout(self.limits.connect_timeout)
            .limits(self.limits.engine.clone())
    }
}

async fn open<C: ClientCodec>(connect: &engine::Client, codec: C) -> Result<Channel<C>, UpstreamError> {
    connect.connect(codec).await.map_err(UpstreamError::Connect)
}

fn http1<C: ClientCodec>(channel: Channel<C>) -> Connected<AnyChannel>
where
    AnyChannel: From<Channel<C>>,
{
    Connected::Http1(channel.into())
}

type AnyResult = Result<Connected<AnyChannel>, UpstreamError>;

/// The configuration of connections that offer HTTP/2. One with protocols of its own decides itself.
#[cfg(feature = "tls")]
fn offering_http2(tls: &ClientConfig) -> Option<ClientConfig> {
    match tls.alpn().next() {
        None => tls.with_alpn(["h2", "http/1.1"]).ok(),
        Some(_) => Some(tls.clone()).filter(|tls| tls.alpn().any(|protocol| protocol == b"h2")),
    }
}

/// The configuration of connections that speak HTTP/1.1 in any case.
#[cfg(feature = "tls")]
fn without_http2(tls: ClientConfig) -> ClientConfig {
    let others: Vec<_> = tls.alpn().filter(|protocol| *protocol != b"h2").map(<[u8]>::to_vec).collect();
    if others.len() == tls.alpn().count() { tls } else { tls.with_alpn(others).unwrap_or(tls) }
}

const TIMEOUT: UpstreamError = UpstreamError::Timeout(Phase::Connect);
