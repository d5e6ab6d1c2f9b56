//! `AnyChannel`: an HTTP/1.1 connection to a server, over the filters that the way to it needs.

use tidegate_codec::DynOver;
#[cfg(feature = "tls")]
use tidegate_codec::Over;
use tidegate_engine::Channel;
use tidegate_http1::Client;
#[cfg(feature = "proxy-header")]
use tidegate_proxy_protocol::SendsHeader;
#[cfg(feature = "tls")]
use tidegate_tls::Tls;

use super::connect::FromChannel;

/// A connection that was made, by its pipeline.
pub(super) enum AnyChannel {
    /// TCP alone.
    Plain(Channel<Client>),
    #[cfg(feature = "tls")]
    Tls(Channel<Over<Tls, Client>>),
    #[cfg(feature = "proxy-header")]
    Header(Channel<SendsHeader<Client>>),
    /// In a tunnel, over the filters of the connection to its proxy.
    Tunnel(Channel<DynOver<Client>>),
    #[cfg(feature = "tls")]
    TlsTunnel(Channel<DynOver<Over<Tls, Client>>>),
}

impl AnyChannel {
    /// The connection as the caller keeps it.
    pub(super) fn erase<H: FromChannel>(self) -> H {
        match self {
            Self::Plain(channel) => H::from_channel(channel),
            #[cfg(feature = "tls")]
            Self::Tls(channel) => H::from_channel(channel),
            #[cfg(feature = "proxy-header")]
            Self::Header(channel) => H::from_channel(channel),
            Self::Tunnel(channel) => H::from_channel(channel),
            #[cfg(feature = "tls")]
            Self::TlsTunnel(channel) => H::from_channel(channel),
        }
    }
}

impl From<Channel<Client>> for AnyChannel {
    fn from(channel: Channel<Client>) -> Self {
        Self::Plain(channel)
    }
}

#[cfg(feature = "tls")]
impl From<Channel<Over<Tls, Client>>> for AnyChannel {
    fn from(channel: Channel<Over<Tls, Client>>) -> Self {
        Self::Tls(channel)
    }
}

#[cfg(feature = "proxy-header")]
impl From<Channel<SendsHeader<Client>>> for AnyChannel {
    fn from(channel: Channel<SendsHeader<Client>>) -> Self {
        Self::Header(channel)
    }
}

impl From<Channel<DynOver<Client>>> for AnyChannel {
    fn from(channel: Channel<DynOver<Client>>) -> Self {
        Self::Tunnel(channel)
    }
}

#[cfg(feature = "tls")]
impl From<Channel<DynOver<Over<Tls, Client>>>> for AnyChannel {
    fn from(channel: Channel<DynOver<Over<Tls, Client>>>) -> Self {
        Self::TlsTunnel(channel)
    }
}
