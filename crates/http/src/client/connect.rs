//! `Connector`: makes the connections of a client.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;

#[cfg(feature = "tls")]
use tidegate_codec::Over;
use tidegate_engine::{self as engine, Channel, ChannelError, ConnectError, task};
use tidegate_http1::{self as http1, client};
use tidegate_http2 as http2;
use tidegate_socks::Target;
use tidegate_sys::Address;
#[cfg(feature = "tls")]
use tidegate_tls::{ClientConfig, Tls};

use super::codec::ClientCodec;
use super::connection::{Http1, Made};
use super::error::{ClientError, Phase, ProxyError};
use super::limits::ClientLimits;
use super::origin::Origin;
use super::proxy::{Proxies, Proxy, ProxyKind};
use super::resolve::Resolve;
use super::shared::Http2;
use super::socks;
use super::tunnel;
use crate::resets::Resets;

/// What the connections of a client have in common.
pub(super) struct Connector {
    pub(super) http1: Arc<client::Config>,
    pub(super) resolver: Rc<dyn Resolve>,
    pub(super) proxies: Proxies,
    /// The limits of streams of HTTP/2.
    pub(super) streams: Arc<client::Limits>,
    /// How many streams of a connection of HTTP/2 are reset at once, and in a second.
    pub(super) resets: [u32; 2],
    /// The configuration of connections of HTTP/2; `None` if there are none.
    pub(super) http2: Option<Arc<http2::Config>>,
    /// Servers of `http` are known to speak HTTP/2.
    pub(super) has_prior_knowledge: bool,
    #[cfg(feature = "tls")]
    pub(super) tls: Option<ClientConfig>,
    /// The same, offering HTTP/2.
    #[cfg(feature = "tls")]
    pub(super) tls_http2: Option<ClientConfig>,
}

impl Connector {
    /// An origin with the proxy through which it is reached, and the versions that its connections may speak. A request that
    /// `needs_http1` has connections of its own.
    pub(super) fn route(&self, origin: Origin, needs_http1: bool) -> Rc<Origin> {
        let mut origin = origin.through(&self.proxies);
        let is_offered = if origin.is_secure { self.offers_http2() } else { self.has_prior_knowledge };
        origin.may_be_http2 = is_offered && self.http2.is_some() && !needs_http1 && origin.forwarder().is_none();
        Rc::new(origin)
    }

    /// Whether connections of `https` offer HTTP/2.
    #[cfg(feature = "tls")]
    fn offers_http2(&self) -> bool {
        self.tls_http2.is_some()
    }

    #[cfg(not(feature = "tls"))]
    fn offers_http2(&self) -> bool {
        false
    }

    /// Connects to an origin, through its proxy if it has one.
    pub(super) async fn connect(&self, origin: &Origin, limits: &ClientLimits) -> Result<Made, ClientError> {
        match &origin.via {
            None => {
                let addresses = self.addresses_of(origin, limits).await?;
                self.connect_directly(origin, &client_of(addresses, limits), limits).await
            }
            Some(proxy) => {
                let connecting = self.connect_through(origin, proxy, limits);
                task::timeout(limits.connect_timeout, connecting).await.unwrap_or(Err(TIMEOUT))
            }
        }
    }

    async fn connect_directly(
        &self,
        origin: &Origin,
        connect: &engine::Client,
        limits: &ClientLimits,
    ) -> Result<Made, ClientError> {
        if !origin.is_secure {
            return self.choose(open(connect, self.http()).await?, origin).await;
        }
        #[cfg(feature = "tls")]
        {
            let channel = open(connect, Over::new(self.tls_of(origin)?, self.http())).await?;
            task::timeout(limits.connect_timeout, self.choose(channel, origin)).await.unwrap_or(Err(TIMEOUT))
        }
        #[cfg(not(feature = "tls"))]
        {
            let _ = limits;
            Err(ClientError::NoTls)
        }
    }

    async fn connect_through(
        &self,
        origin: &Origin,
        proxy: &Proxy,
        limits: &ClientLimits,
    ) -> Result<Made, ClientError> {
        let connect = client_of(self.addresses(&proxy.host, proxy.port, limits).await?, limits);
        match proxy.kind {
            ProxyKind::Http if proxy.forwards(origin) => open(&connect, self.http()).await.map(http1),
            ProxyKind::Http => self.tunnel(&connect, self.http(), proxy, origin).await,
            #[cfg(feature = "tls")]
            ProxyKind::Https => {
                let codec = Over::new(self.tls(&proxy.host)?, self.http());
                if proxy.forwards(origin) {
                    open(&connect, codec).await.map(http1)
                } else {
                    self.tunnel(&connect, codec, proxy, origin).await
                }
            }
            #[cfg(not(feature = "tls"))]
            ProxyKind::Https => Err(ClientError::NoTls),
            ProxyKind::Socks5 | ProxyKind::Socks5h | ProxyKind::Socks4 | ProxyKind::Socks4a => {
                self.connect_by_socks(origin, proxy, &connect, limits).await
            }
        }
    }

    /// Makes a tunnel to an origin.
    async fn tunnel<C: ClientCodec>(
        &self,
        connect: &engine::Client,
        codec: C,
        proxy: &Proxy,
        origin: &Origin,
    ) -> Result<Made, ClientError> {
        let http = self.http();
        if !origin.is_secure {
            let channel = connect.connect(codec).await.map_err(ClientError::Connect)?;
            let channel = tunnel::connect(channel, proxy, origin, |filters| filters.stack(http)).await?;
            return self.choose(channel, origin).await;
        }
        #[cfg(feature = "tls")]
        {
            let above = Over::new(self.tls_of(origin)?, http);
            let channel = connect.connect(codec).await.map_err(ClientError::Connect)?;
            let channel = tunnel::connect(channel, proxy, origin, |filters| filters.stack(above)).await?;
            self.choose(channel, origin).await
        }
        #[cfg(not(feature = "tls"))]
        Err(ClientError::NoTls)
    }

    async fn connect_by_socks(
        &self,
        origin: &Origin,
        proxy: &Proxy,
        connect: &engine::Client,
        limits: &ClientLimits,
    ) -> Result<Made, ClientError> {
        let target = if matches!(proxy.kind, ProxyKind::Socks5 | ProxyKind::Socks4) {
            let addresses = self.addresses(&origin.host, origin.port, limits).await?;
            let is_version_4 = proxy.kind == ProxyKind::Socks4;
            let mut addresses = addresses.iter().filter_map(Address::ip);
            let address = addresses.find(|address| address.is_ipv4() || !is_version_4);
            Target::from(address.ok_or(ClientError::Connect(ConnectError::NoAddress))?)
        } else {
            Target::new(&origin.host, origin.port).map_err(|_| ClientError::Proxy(ProxyError::Target))?
        };
        let http = self.http();
        if !origin.is_secure {
            return self.choose(socks::connect(connect, proxy, target, http).await?, origin).await;
        }
        #[cfg(feature = "tls")]
        {
            let codec = Over::new(self.tls_of(origin)?, http);
            self.choose(socks::connect(connect, proxy, target, codec).await?, origin).await
        }
        #[cfg(not(feature = "tls"))]
        Err(ClientError::NoTls)
    }

    /// A connection to an origin, in the version that its server has chosen.
    async fn choose<C: ClientCodec>(&self, mut channel: Channel<C>, origin: &Origin) -> Result<Made, ClientError> {
        let Some(config) = self.http2.as_ref().filter(|_| origin.may_be_http2) else { return Ok(http1(channel)) };
        if origin.is_secure {
            poll_fn(|cx| channel.poll_established(cx)).await.map_err(failed)?;
            if !channel.with_codec(|codec| codec.alpn() == Some(b"h2")).map_err(failed)? {
                return Ok(http1(channel));
            }
        }
        let connection = http2::Connection::client(config.clone());
        let session = channel.into_session(|codec| codec.into_filters().stack(connection)).map_err(failed)?;
        let scheme = if origin.is_secure { "https" } else { "http" };
        let [resets_max, resets_per_second] = self.resets;
        let resets = Resets::new(resets_max, resets_per_second);
        Ok(Made::Http2(Http2 { session, limits: self.streams.clone(), scheme, resets }))
    }

    fn http(&self) -> http1::Client {
        http1::Client::new(self.http1.clone())
    }

    /// TLS to an origin.
    #[cfg(feature = "tls")]
    fn tls_of(&self, origin: &Origin) -> Result<Tls, ClientError> {
        match self.tls_http2.as_ref().filter(|_| origin.may_be_http2) {
            Some(tls) => tls.connect(origin.name()).map_err(|_| ClientError::ServerName),
            None => self.tls(origin.name()),
        }
    }

    #[cfg(feature = "tls")]
    fn tls(&self, host: &str) -> Result<Tls, ClientError> {
        let tls = self.tls.as_ref().ok_or(ClientError::NoTls)?;
        tls.connect(host).map_err(|_| ClientError::ServerName)
    }

    /// The addresses of an origin to try, in their order.
    async fn addresses_of(&self, origin: &Origin, limits: &ClientLimits) -> Result<Vec<Address>, ClientError> {
        match &origin.at {
            Some(at) => Ok(vec![at.clone()]),
            None => self.addresses(&origin.host, origin.port, limits).await,
        }
    }

    async fn addresses(&self, host: &str, port: u16, limits: &ClientLimits) -> Result<Vec<Address>, ClientError> {
        if let Ok(ip) = host.parse::<std::net::IpAddr>() {
            return Ok(vec![Address::Ip((ip, port).into())]);
        }
        if let Some((ip, zone)) = tidegate_sys::parse_zoned(host) {
            return Ok(vec![Address::Ip(std::net::SocketAddrV6::new(ip, port, 0, zone).into())]);
        }
        let resolved = task::timeout(limits.resolve_timeout, self.resolver.resolve(host, port)).await;
        let resolved = resolved.map_err(|_| ClientError::Timeout(Phase::Resolve))?;
        let mut addresses = resolved.map_err(|error| ClientError::Resolve(host.into(), error))?;
        addresses.truncate(limits.addresses_max);
        Ok(addresses.into_iter().map(Address::Ip).collect())
    }
}

fn client_of(addresses: Vec<Address>, limits: &ClientLimits) -> engine::Client {
    engine::Client::at_each(addresses).connect_timeout(limits.connect_timeout).limits(limits.engine())
}

async fn open<C: ClientCodec>(connect: &engine::Client, codec: C) -> Result<Channel<C>, ClientError> {
    connect.connect(codec).await.map_err(ClientError::Connect)
}

fn http1<C: ClientCodec>(channel: Channel<C>) -> Made {
    Made::Http1(Box::new(Http1(channel)))
}

/// The handshake has failed.
fn failed(error: ChannelError) -> ClientError {
    match error {
        ChannelError::Closed(reason) => ClientError::Closed(reason),
        _ => TIMEOUT,
    }
}

const TIMEOUT: ClientError = ClientError::Timeout(Phase::Connect);
