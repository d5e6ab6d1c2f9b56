//! `Connector`: makes the connections of a client.

use std::rc::Rc;
use std::sync::Arc;

#[cfg(feature = "tls")]
use tidegate_codec::Over;
use tidegate_engine::{self as engine, ConnectError, task};
use tidegate_http1::{self as http1, client};
use tidegate_socks::Target;
use tidegate_sys::Address;
#[cfg(feature = "tls")]
use tidegate_tls::{ClientConfig, Tls};

use super::codec::ClientCodec;
use super::connection::{Connection, Http1};
use super::error::{ClientError, Phase, ProxyError};
use super::limits::ClientLimits;
use super::origin::Origin;
use super::proxy::{Proxies, Proxy, ProxyKind};
use super::resolve::Resolve;
use super::socks;
use super::tunnel;

/// What the connections of a client have in common.
pub(super) struct Connector {
    pub(super) http1: Arc<client::Config>,
    pub(super) resolver: Rc<dyn Resolve>,
    pub(super) proxies: Proxies,
    #[cfg(feature = "tls")]
    pub(super) tls: Option<ClientConfig>,
}

impl Connector {
    /// Connects to an origin, through its proxy if it has one.
    pub(super) async fn connect(
        &self,
        origin: &Origin,
        limits: &ClientLimits,
    ) -> Result<Box<dyn Connection>, ClientError> {
        match &origin.via {
            None => {
                let addresses = self.addresses_of(origin, limits).await?;
                self.connect_directly(origin, &client_of(addresses, limits)).await
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
    ) -> Result<Box<dyn Connection>, ClientError> {
        if !origin.is_secure {
            return open(connect, self.http()).await;
        }
        #[cfg(feature = "tls")]
        return open(connect, Over::new(self.tls(&origin.host)?, self.http())).await;
        #[cfg(not(feature = "tls"))]
        Err(ClientError::NoTls)
    }

    async fn connect_through(
        &self,
        origin: &Origin,
        proxy: &Proxy,
        limits: &ClientLimits,
    ) -> Result<Box<dyn Connection>, ClientError> {
        let connect = client_of(self.addresses(&proxy.host, proxy.port, limits).await?, limits);
        match proxy.kind {
            ProxyKind::Http if proxy.forwards(origin) => open(&connect, self.http()).await,
            ProxyKind::Http => self.tunnel(&connect, self.http(), proxy, origin).await,
            #[cfg(feature = "tls")]
            ProxyKind::Https => {
                let codec = Over::new(self.tls(&proxy.host)?, self.http());
                if proxy.forwards(origin) {
                    open(&connect, codec).await
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
    ) -> Result<Box<dyn Connection>, ClientError> {
        let http = self.http();
        if !origin.is_secure {
            let channel = connect.connect(codec).await.map_err(ClientError::Connect)?;
            let channel = tunnel::connect(channel, proxy, origin, |filters| filters.stack(http)).await?;
            return Ok(Box::new(Http1(channel)));
        }
        #[cfg(feature = "tls")]
        {
            let above = Over::new(self.tls(&origin.host)?, http);
            let channel = connect.connect(codec).await.map_err(ClientError::Connect)?;
            let channel = tunnel::connect(channel, proxy, origin, |filters| filters.stack(above)).await?;
            Ok(Box::new(Http1(channel)))
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
    ) -> Result<Box<dyn Connection>, ClientError> {
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
            let channel = socks::connect(connect, proxy, target, http).await?;
            return Ok(Box::new(Http1(channel)));
        }
        #[cfg(feature = "tls")]
        {
            let codec = Over::new(self.tls(&origin.host)?, http);
            let channel = socks::connect(connect, proxy, target, codec).await?;
            Ok(Box::new(Http1(channel)))
        }
        #[cfg(not(feature = "tls"))]
        Err(ClientError::NoTls)
    }

    fn http(&self) -> http1::Client {
        http1::Client::new(self.http1.clone())
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

async fn open<C: ClientCodec>(connect: &engine::Client, codec: C) -> Result<Box<dyn Connection>, ClientError> {
    let channel = connect.connect(codec).await.map_err(ClientError::Connect)?;
    Ok(Box::new(Http1(channel)))
}

const TIMEOUT: ClientError = ClientError::Timeout(Phase::Connect);
