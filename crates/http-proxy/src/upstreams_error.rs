//! `UpstreamsError`: why a set of upstreams cannot be used.

use std::fmt;

/// Why a set of upstreams cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum UpstreamsError {
    /// There is no upstream.
    None,
    /// A URL has the scheme `https`, and there is no TLS configuration.
    NoTls,
    /// A URL has the scheme `https+h3`, and the program is built without HTTP/3 (the feature `http3-server` or `http3-client`
    /// of the facade).
    NoHttp3,
    /// QUIC cannot use the TLS configuration, which has to allow version 1.3, or a limit of
    /// [`http3`](crate::UpstreamsBuilder::http3).
    Quic,
    /// [`http3`](crate::UpstreamsBuilder::http3) has `TransportLimits::early_data`. Leave it off: a
    /// gateway cannot say which requests of its clients may be sent twice.
    EarlyData,
    /// A PROXY header cannot be sent to an upstream that is encrypted, that is a Unix socket, or that speaks HTTP/2, whose
    /// connections are for many clients.
    ProxyHeader,
    /// The limits of heads do not fit the codec: a head has less than 64 KiB.
    Limits,
    /// A URL is a service, and the system's resolver has no SRV records.
    Service,
    /// A weight is not 1 to 1,000.
    Weight,
    /// There are more than 4,096 servers.
    TooMany,
}

impl fmt::Display for UpstreamsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "there is no upstream",
            Self::NoTls => "an upstream has the scheme https, and there is no configuration of TLS",
            Self::EarlyData => "upstreams get no early data: leave `TransportLimits::early_data` off",
            Self::NoHttp3 => "an upstream has the scheme https+h3, and this program is built without HTTP/3",
            Self::Quic => {
                "QUIC cannot use the configuration of TLS, which has to allow version 1.3, or a limit of HTTP/3"
            }
            Self::ProxyHeader => "a PROXY header cannot be sent to an upstream with TLS or HTTP/2, or at a Unix socket",
            Self::Limits => "head_bytes_max is at least 1 KiB and less than 64 KiB",
            Self::Service => {
                "an upstream is a service (srv://), and the system's resolver has no SRV records: use that of `tidegate::dns`"
            }
            Self::Weight => "a weight is 1 to 1000",
            Self::TooMany => "a set has at most 4096 servers",
        })
    }
}

impl std::error::Error for UpstreamsError {}
