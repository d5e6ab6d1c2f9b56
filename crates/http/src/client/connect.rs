//! `Connector`: makes the connections of a client.

use std::rc::Rc;
use std::sync::Arc;

#[cfg(feature = "tls")]
use tidegate_codec::Over;
use tidegate_engine::{self as engine, task};
use tidegate_http1::{self as http1, client};
use tidegate_sys::Address;
#[cfg(feature = "tls")]
use tidegate_tls::ClientConfig;

use super::codec::ClientCodec;
use super::connection::{Connection, Http1};
use super::error::{ClientError, Phase};
use super::limits::ClientLimits;
use super::origin::Origin;
use super::resolve::Resolve;

/// What the connections of a client have in common.
pub(super) struct Connector {
    pub(super) http1: Arc<client::Config>,
    pub(super) resolver: Rc<dyn Resolve>,
    #[cfg(feature = "tls")]
    pub(super) tls: Option<ClientConfig>,
}

impl Connector {
    /// Connects to an origin.
    pub(super) async fn connect(
        &self,
        origin: &Origin,
        limits: &ClientLimits,
    ) -> Result<Box<dyn Connection>, ClientError> {
        let addresses = self.addresses(origin, limits).await?;
        let connect =
            engine::Client::at_each(addresses).connect_timeout(limits.connect_timeout).limits(limits.engine());
        let http = http1::Client::new(self.http1.clone());
        if !origin.is_secure {
            return open(&connect, http).await;
        }
        #[cfg(feature = "tls")]
        {
            let tls = self.tls.as_ref().ok_or(ClientError::NoTls)?;
            let tls = tls.connect(&origin.host).map_err(|_| ClientError::ServerName)?;
            open(&connect, Over::new(tls, http)).await
        }
        #[cfg(not(feature = "tls"))]
        Err(ClientError::NoTls)
    }

    /// The addresses to try, in their order.
    async fn addresses(&self, origin: &Origin, limits: &ClientLimits) -> Result<Vec<Address>, ClientError> {
        if let Some(at) = &origin.at {
            return Ok(vec![at.clone()]);
        }
        if let Ok(ip) = origin.host.parse::<std::net::IpAddr>() {
            return Ok(vec![Address::Ip((ip, origin.port).into())]);
        }
        let resolving = self.resolver.resolve(&origin.host, origin.port);
        let resolved = task::timeout(limits.resolve_timeout, resolving).await;
        let resolved = resolved.map_err(|_| ClientError::Timeout(Phase::Resolve))?;
        let mut addresses = resolved.map_err(|error| ClientError::Resolve(origin.host.clone(), error))?;
        addresses.truncate(limits.addresses_max);
        Ok(addresses.into_iter().map(Address::Ip).collect())
    }
}

async fn open<C: ClientCodec>(connect: &engine::Client, codec: C) -> Result<Box<dyn Connection>, ClientError> {
    let channel = connect.connect(codec).await.map_err(ClientError::Connect)?;
    Ok(Box::new(Http1(channel)))
}
