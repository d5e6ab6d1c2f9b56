//! `Header`: a proxy's report of the connection that it relays.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::tlv::{Tlv, Tlvs};

/// A header that was received and is valid: 64 bytes, and memory of their own for Unix addresses and TLVs.
///
/// ```
/// use tidegate::proxy_protocol::{Builder, Header};
///
/// let (source, destination) = ("192.0.2.1:50000".parse()?, "198.51.100.1:443".parse()?);
/// let bytes = Builder::new(source, destination).authority("sea.example").build_v2()?;
/// let header = Header::parse(&bytes)?;
/// assert_eq!((header.source(), header.destination()), (Some(source), Some(destination)));
/// assert_eq!(header.authority(), Some("sea.example"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    pub(crate) addresses: Addresses,
    pub(crate) version: Version,
    pub(crate) transport: Transport,
    pub(crate) is_local: bool,
    pub(crate) tlvs: Box<[u8]>,
}

/// The version of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Version {
    /// The line of text.
    One,
    /// The binary header.
    Two,
}

/// The transport on which the proxy received the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    /// The proxy did not report it.
    Unspecified,
    /// TCP, or a Unix stream.
    Stream,
    /// UDP, or Unix datagrams.
    Datagram,
}

/// The two addresses of a Unix socket, without the zero bytes behind them. An abstract one begins with a zero byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnixAddresses {
    /// The client's.
    pub source: Vec<u8>,
    /// The address at which the proxy received the connection.
    pub destination: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Addresses {
    Unspecified,
    V4 { ips: [Ipv4Addr; 2], ports: [u16; 2] },
    V6 { ips: [Ipv6Addr; 2], ports: [u16; 2] },
    Unix(Box<UnixAddresses>),
}

impl Addresses {
    pub(crate) fn v4(source: Ipv4Addr, destination: Ipv4Addr, ports: [u16; 2]) -> Self {
        Self::V4 { ips: [source, destination], ports }
    }

    pub(crate) fn v6(source: Ipv6Addr, destination: Ipv6Addr, ports: [u16; 2]) -> Self {
        Self::V6 { ips: [source, destination], ports }
    }

    fn socket_address(&self, index: usize) -> Option<SocketAddr> {
        match self {
            Self::V4 { ips, ports } => Some(SocketAddr::new(IpAddr::V4(ips[index]), ports[index])),
            Self::V6 { ips, ports } => Some(SocketAddr::new(IpAddr::V6(ips[index]), ports[index])),
            Self::Unspecified | Self::Unix(_) => None,
        }
    }
}

impl Header {
    /// The address of the client. `None` if the proxy did not report it, or the client is on a Unix socket: then the
    /// connection's own address counts.
    #[must_use]
    pub fn source(&self) -> Option<SocketAddr> {
        self.addresses.socket_address(0)
    }

    /// The address at which the proxy received the connection.
    #[must_use]
    pub fn destination(&self) -> Option<SocketAddr> {
        self.addresses.socket_address(1)
    }

    /// The addresses of a client on a Unix socket.
    #[must_use]
    pub fn unix(&self) -> Option<&UnixAddresses> {
        if let Addresses::Unix(addresses) = &self.addresses { Some(addresses) } else { None }
    }

    /// The version of the header.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// The transport on which the proxy received the connection.
    #[must_use]
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// Whether the proxy itself opened the connection, to check that the server is alive. There are no addresses then.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.is_local
    }

    /// All TLVs, in their order. They are valid.
    #[must_use]
    pub fn tlvs(&self) -> Tlvs<'_> {
        Tlvs::new(&self.tlvs)
    }

    /// The name of the host that the client asked for: in TLS, its SNI.
    #[must_use]
    pub fn authority(&self) -> Option<&str> {
        self.tlvs().find_map(|tlv| if let Tlv::Authority(name) = tlv { Some(name) } else { None })
    }

    /// The protocol that was negotiated.
    #[must_use]
    pub fn alpn(&self) -> Option<&[u8]> {
        self.tlvs().find_map(|tlv| if let Tlv::Alpn(protocol) = tlv { Some(protocol) } else { None })
    }

    /// The identifier that the proxy gave the connection.
    #[must_use]
    pub fn unique_id(&self) -> Option<&[u8]> {
        self.tlvs().find_map(|tlv| if let Tlv::UniqueId(id) = tlv { Some(id) } else { None })
    }

    /// The proxy's report of the client's TLS.
    #[must_use]
    pub fn ssl(&self) -> Option<crate::Ssl<'_>> {
        self.tlvs().find_map(|tlv| if let Tlv::Ssl(ssl) = tlv { Some(ssl) } else { None })
    }
}

const _: () = assert!(size_of::<Header>() == 64);
