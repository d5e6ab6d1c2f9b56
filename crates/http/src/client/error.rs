//! `ClientError`: why a request has no response.

use std::error::Error;
use std::fmt;
use std::io;
use std::rc::Rc;

use http::StatusCode;
use tidegate_engine::{ChannelError, CloseReason, ConnectError};
use tidegate_http_message::BodyError;
use tidegate_http1::{InvalidField, InvalidRequest, Status};
use tidegate_socks::Refusal;
#[cfg(feature = "websocket")]
use tidegate_websocket::handshake::HandshakeError;

/// Why a request has no response.
///
/// It stays on its loop, since it keeps reasons that are not `Send`. A request through a
/// [`Handle`](crate::client::Handle) fails with [`HandleError`](crate::client::HandleError).
#[derive(Debug)]
#[non_exhaustive]
pub enum ClientError {
    /// The text is not a URI, or has no host.
    Uri,
    /// The scheme of the URI is neither `http` nor `https`; of a WebSocket, none of `ws`, `wss` and these.
    Scheme,
    /// The URI is one of `https` or `wss`, and the client has no configuration of TLS.
    NoTls,
    /// The name of the host cannot be that of a certificate.
    ServerName,
    /// The request cannot be sent: its method, target or host.
    Request(InvalidRequest),
    /// A field cannot be sent.
    Field(InvalidField),
    /// The body of the request, a value of JSON or of a form, could not be made.
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
    /// The status of the response is an error: from [`Response::error_for_status`](crate::client::Response::error_for_status).
    Status(StatusCode),
    /// The server did not open a WebSocket: it refuses the handshake, or answers it wrongly.
    #[cfg(feature = "websocket")]
    WebSocket(HandshakeError),
    /// The body of the response could not be received.
    Body(BodyError),
    /// The body of the response is not what the caller expects: no UTF-8, or no JSON of this type.
    Decoding(Box<dyn Error>),
}

/// What a request did when its time was up.
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

/// Why a proxy did not connect to the server.
#[derive(Debug)]
#[non_exhaustive]
pub enum ProxyError {
    /// The proxy refused to connect with this status; 407 asks for another name or password.
    Refused(Status),
    /// The proxy of SOCKS refused to connect.
    Socks(Refusal),
    /// The connection to the proxy ended before the proxy had answered, for this reason.
    Closed(Rc<CloseReason>),
    /// The same, in good order.
    Ended,
    /// The protocol of the proxy cannot express the target or the credentials.
    Target,
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

impl fmt::Display for RefusedRedirect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Location => "its target is not a URI",
            Self::Scheme => "its scheme is neither http nor https",
            Self::Downgrade => "it leads from https to http",
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

/// The error when the connection to a proxy has ended before the tunnel was there.
pub(super) fn proxy_closed(error: ChannelError) -> ClientError {
    ClientError::Proxy(match error {
        ChannelError::Closed(reason) => ProxyError::Closed(reason),
        _ => ProxyError::Ended,
    })
}
