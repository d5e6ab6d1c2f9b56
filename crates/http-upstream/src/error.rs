//! `UpstreamError`: why there is no connection to a server.

use std::error::Error;
use std::fmt;
use std::io;
use std::rc::Rc;

use tidegate_engine::{ChannelError, CloseReason, ConnectError};
use tidegate_http1::{InvalidField, InvalidRequest, Status};
use tidegate_socks::Refusal;

/// Why there is no connection to a server.
#[derive(Debug)]
pub enum UpstreamError {
    /// The server is one of `https`, and there is no TLS configuration.
    NoTls,
    /// The server is to be reached by HTTP/3, and the connector does not have that, or a proxy is in between.
    NoHttp3,
    /// The name of the host cannot be that of a certificate.
    ServerName,
    /// A proxy cannot be asked for a tunnel to this host.
    Request(InvalidRequest),
    /// A field of the request for a tunnel cannot be sent.
    Field(InvalidField),
    /// Too many requests wait for a connection already.
    PoolFull,
    /// The time for this was up.
    Timeout(Phase),
    /// The name of the host could not be resolved.
    Resolve(Box<str>, io::Error),
    /// There is no connection.
    Connect(ConnectError),
    /// The proxy did not connect to the server.
    Proxy(ProxyError),
    /// The connection ended within its handshake, for this reason.
    Closed(Rc<CloseReason>),
}

/// The phase of a request when its time was up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Phase {
    /// It waited for a connection of the pool: `pool_timeout`.
    Pool,
    /// It resolved the name of the host: `resolve_timeout`.
    Resolve,
    /// It connected: `connect_timeout`.
    Connect,
    /// It waited for the head of the response: `head_timeout`.
    Head,
    /// Any of these, and the body: `request_timeout`.
    Request,
}

/// Why a proxy did not connect to the server.
#[derive(Debug)]
#[non_exhaustive]
pub enum ProxyError {
    /// The proxy refused to connect with this status; 407 asks for another name or password.
    Refused(Status),
    /// The SOCKS proxy refused to connect.
    Socks(Refusal),
    /// The connection to the proxy ended before the proxy had answered, for this reason.
    Closed(Rc<CloseReason>),
    /// The same, in good order.
    Ended,
    /// The protocol of the proxy cannot express the target or the credentials.
    Target,
}

impl fmt::Display for UpstreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoTls => f.write_str("the server is one of https, and there is no configuration of TLS"),
            Self::NoHttp3 => f.write_str("HTTP/3 needs the feature http3 and a configuration of TLS 1.3, and no proxy"),
            Self::ServerName => f.write_str("the host is no name that a certificate can have"),
            Self::Request(error) => write!(f, "the request cannot be sent: {error}"),
            Self::Field(error) => write!(f, "a field of the request cannot be sent: {error}"),
            Self::PoolFull => f.write_str("too many requests wait for a connection"),
            Self::Timeout(phase) => write!(f, "{phase}"),
            Self::Resolve(host, error) => {
                write!(f, "cannot resolve '{host}': {error}; check the name, or the name servers of this machine")
            }
            Self::Connect(error) => error.fmt(f),
            Self::Proxy(error) => error.fmt(f),
            Self::Closed(reason) => write!(f, "the connection is closed: {reason}"),
        }
    }
}

impl Error for UpstreamError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Connect(error) => error.source(),
            Self::Resolve(_, error) => Some(error),
            _ => None,
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pool => "no connection of the pool was free in time; ClientLimits::pool_timeout bounds the wait",
            Self::Resolve => "the name was not resolved in time; ClientLimits::resolve_timeout bounds it",
            Self::Connect => "no connection was made in time; ClientLimits::connect_timeout bounds it",
            Self::Head => "the server did not answer in time; ClientLimits::head_timeout bounds it",
            Self::Request => "the request took too long; ClientLimits::request_timeout bounds it",
        })
    }
}

impl fmt::Display for ProxyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(status) => write!(f, "the proxy did not connect to the server: {status}"),
            Self::Socks(refusal) => write!(f, "the proxy did not connect to the server: {refusal}"),
            Self::Closed(reason) => write!(f, "the proxy ended the connection: {reason}"),
            Self::Ended => f.write_str("the proxy ended the connection"),
            Self::Target => f.write_str("the protocol of the proxy cannot express the host, or the credentials"),
        }
    }
}

/// The error when the connection to a proxy has ended before the tunnel was there.
pub(super) fn proxy_closed(error: ChannelError) -> UpstreamError {
    UpstreamError::Proxy(match error {
        ChannelError::Closed(reason) => ProxyError::Closed(reason),
        _ => ProxyError::Ended,
    })
}

/// The error when a handshake has failed.
pub(super) fn handshake_failed(error: ChannelError) -> UpstreamError {
    match error {
        ChannelError::Closed(reason) => UpstreamError::Closed(reason),
        _ => UpstreamError::Timeout(Phase::Connect),
    }
}

impl From<InvalidRequest> for UpstreamError {
    fn from(error: InvalidRequest) -> Self {
        Self::Request(error)
    }
}

impl From<InvalidField> for UpstreamError {
    fn from(error: InvalidField) -> Self {
        Self::Field(error)
    }
}
