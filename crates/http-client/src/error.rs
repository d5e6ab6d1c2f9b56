//! `ClientError`: why a request has no response.

use std::error::Error;
use std::fmt;
use std::io;
use std::rc::Rc;

use http::StatusCode;
use tidegate_engine::{CloseReason, ConnectError};
use tidegate_http_message::BodyError;
use tidegate_http_upstream::UpstreamError;
pub use tidegate_http_upstream::{Phase, ProxyError};
use tidegate_http1::{InvalidField, InvalidRequest};
#[cfg(feature = "websocket")]
use tidegate_websocket::handshake::HandshakeError;

/// Why a request has no response.
///
/// It stays on its loop, since it keeps reasons that are not `Send`. A request through a
/// [`Handle`](crate::Handle) fails with [`HandleError`](crate::HandleError).
#[derive(Debug)]
#[non_exhaustive]
pub enum ClientError {
    /// The text is not a URI, or has no host.
    Uri,
    /// The scheme of the URI is neither `http` nor `https`; of a WebSocket, none of `ws`, `wss` and these.
    Scheme,
    /// The URI is one of `https` or `wss`, and the client has no TLS configuration.
    NoTls,
    /// HTTP/3 is wanted, and QUIC cannot use the TLS configuration, which has to allow version 1.3, or a limit.
    NoHttp3,
    /// The name of the host cannot be that of a certificate.
    ServerName,
    /// The request cannot be sent: its method, target or host.
    Request(InvalidRequest),
    /// A field cannot be sent.
    Field(InvalidField),
    /// The body of the request, a JSON or form value, could not be made.
    Encoding(Box<dyn Error>),
    /// The body of the request has failed while it was sent: the function that produces it, or the connection that it
    /// comes from.
    RequestBody(Box<dyn Error>),
    /// Too many requests wait for a connection already: `waiting_max`.
    PoolFull,
    /// The time for this was up.
    Timeout(Phase),
    /// More redirects than `redirects_max`.
    TooManyRedirects,
    /// A redirect has a target that is not followed: none, no URI, another scheme, or from `https` to `http`.
    Redirect(RefusedRedirect),
    /// The name of the host could not be resolved.
    Resolve(Box<str>, io::Error),
    /// There is no connection.
    Connect(ConnectError),
    /// The proxy did not connect to the server.
    Proxy(ProxyError),
    /// The connection ended before the head of the response was complete, for this reason.
    Closed(Rc<CloseReason>),
    /// The status of the response is an error: from [`Response::error_for_status`](crate::Response::error_for_status).
    Status(StatusCode),
    /// The server did not open a WebSocket: it refuses the handshake, or answers it wrongly.
    #[cfg(feature = "websocket")]
    WebSocket(HandshakeError),
    /// The body of the response could not be received.
    Body(BodyError),
    /// The response body is not of the kind that the caller expects: no UTF-8, or no JSON of this type.
    Decoding(Box<dyn Error>),
}

/// Why a redirect is not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RefusedRedirect {
    /// The target is not a URI.
    Location,
    /// The scheme is neither `http` nor `https`.
    Scheme,
    /// The target is not encrypted, and the request was.
    Downgrade,
}

impl ClientError {
    /// Whether the time for something was up.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::Timeout(_) | Self::Body(BodyError::Deadline) | Self::Connect(ConnectError::Timeout(_)))
    }

    /// Whether there was no connection: nothing of the request was sent.
    #[must_use]
    pub fn is_connect(&self) -> bool {
        match self {
            Self::Resolve(..) | Self::Connect(_) | Self::Proxy(_) | Self::PoolFull => true,
            Self::Timeout(phase) => matches!(phase, Phase::Pool | Phase::Resolve | Phase::Connect),
            _ => false,
        }
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uri => f.write_str("the URI is malformed, or has no host"),
            Self::Scheme => {
                f.write_str("the scheme of the URI is neither http nor https, nor ws or wss for a WebSocket")
            }
            Self::NoTls => {
                f.write_str("the URI is one of https or wss, and the client has no TLS: set ClientBuilder::tls")
            }
            Self::NoHttp3 => {
                f.write_str("QUIC cannot use the configuration of TLS, which has to allow version 1.3, or a limit")
            }
            Self::ServerName => f.write_str("the host is no name that a certificate can have"),
            Self::Request(error) => write!(f, "the request cannot be sent: {error}"),
            Self::Field(error) => write!(f, "a field of the request cannot be sent: {error}"),
            Self::Encoding(error) => write!(f, "the body of the request cannot be made: {error}"),
            Self::RequestBody(error) => write!(f, "the body of the request failed: {error}"),
            Self::PoolFull => {
                f.write_str("too many requests wait for a connection; ClientLimits::waiting_max bounds them")
            }
            Self::Timeout(phase) => write!(f, "{phase}"),
            Self::TooManyRedirects => f.write_str("the redirects have no end within ClientLimits::redirects_max"),
            Self::Redirect(refused) => write!(f, "a redirect is not followed: {refused}"),
            Self::Resolve(host, error) => {
                write!(f, "cannot resolve '{host}': {error}; check the name, or the name servers of this machine")
            }
            Self::Connect(error) => error.fmt(f),
            Self::Proxy(error) => error.fmt(f),
            Self::Closed(reason) => write!(f, "the connection ended before the response: {reason}"),
            Self::Status(status) => write!(f, "the server answered with {status}"),
            #[cfg(feature = "websocket")]
            Self::WebSocket(error) => write!(f, "the WebSocket cannot be opened: {error}"),
            Self::Body(error) => write!(f, "the body of the response cannot be received: {error}"),
            Self::Decoding(error) => write!(f, "the body of the response is not as expected: {error}"),
        }
    }
}

impl Error for ClientError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Connect(error) => error.source(),
            Self::Resolve(_, error) => Some(error),
            Self::Encoding(error) | Self::RequestBody(error) | Self::Decoding(error) => Some(&**error),
            _ => None,
        }
    }
}

impl fmt::Display for RefusedRedirect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Location => "its target is not a URI",
            Self::Scheme => "its scheme is neither http nor https",
            Self::Downgrade => "it leads from https to http",
        })
    }
}

impl From<BodyError> for ClientError {
    fn from(error: BodyError) -> Self {
        Self::Body(error)
    }
}

impl From<InvalidRequest> for ClientError {
    fn from(error: InvalidRequest) -> Self {
        Self::Request(error)
    }
}

impl From<InvalidField> for ClientError {
    fn from(error: InvalidField) -> Self {
        Self::Field(error)
    }
}

impl From<UpstreamError> for ClientError {
    fn from(error: UpstreamError) -> Self {
        match error {
            UpstreamError::NoTls => Self::NoTls,
            UpstreamError::NoHttp3 => Self::NoHttp3,
            UpstreamError::ServerName => Self::ServerName,
            UpstreamError::Request(error) => Self::Request(error),
            UpstreamError::Field(error) => Self::Field(error),
            UpstreamError::PoolFull => Self::PoolFull,
            UpstreamError::Timeout(phase) => Self::Timeout(phase),
            UpstreamError::Resolve(host, error) => Self::Resolve(host, error),
            UpstreamError::Connect(error) => Self::Connect(error),
            UpstreamError::Proxy(error) => Self::Proxy(error),
            UpstreamError::Closed(reason) => Self::Closed(reason),
        }
    }
}
