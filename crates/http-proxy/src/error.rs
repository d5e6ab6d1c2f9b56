//! `Failure`: why an upstream did not answer, and the response that the client gets instead.

use tidegate_engine::{ChannelError, CloseReason, ConnectError};
use tidegate_http::Response;
use tidegate_http::gateway::EndCause;
use tidegate_http_upstream::{http_error, is_cut_off};
use tidegate_http1::{ContentType, Error, Exceeded, Misuse, Status, Violation};

/// Why there is no response of an upstream.
#[derive(Debug)]
pub(super) enum Failure {
    /// No upstream is there, or none has room for another request.
    NoUpstream,
    Connect(ConnectError),
    /// A request for a tunnel, at an upstream that is configured to speak HTTP/2 or HTTP/3. Nothing is wrong with the upstream.
    NoTunnel,
    /// A WebSocket, at an HTTP/2 or HTTP/3 upstream that does not allow extended CONNECT. Nothing is wrong with the upstream.
    NoExtendedConnect,
    /// The connection ended before the head of the response.
    Closed(Option<ChannelError>),
    /// The upstream has not processed the request: it refused its stream, or had announced its end before.
    Refused,
    /// The head of the response did not come in time.
    Late,
    /// The connection had ended before the request was sent.
    Unsent,
    /// The request cannot be expressed in the protocol that the upstream speaks.
    Inexpressible(Misuse),
    /// The upstream switched to a protocol that the client did not ask for.
    WrongProtocol,
}

/// Why a message was not sent.
#[derive(Debug)]
pub(super) enum SendFailure {
    Closed,
    /// The protocol cannot express it.
    Misuse(Misuse),
}

/// The reasons of failures that metrics tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailureKind {
    Connect,
    Timeout,
    Closed,
    Refused,
    Protocol,
    Body,
}

impl FailureKind {
    /// In their order.
    pub(super) const ALL: [Self; 6] =
        [Self::Connect, Self::Timeout, Self::Closed, Self::Refused, Self::Protocol, Self::Body];

    /// Why an exchange ends by it.
    pub(super) fn end(self) -> EndCause {
        match self {
            Self::Timeout => EndCause::Timeout,
            _ => EndCause::UpstreamFailed,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Timeout => "timeout",
            Self::Closed => "closed",
            Self::Refused => "refused",
            Self::Protocol => "protocol",
            Self::Body => "body",
        }
    }
}

impl Failure {
    pub(super) fn kind(&self) -> FailureKind {
        match self {
            Self::Connect(ConnectError::Timeout(_)) | Self::Late => FailureKind::Timeout,
            Self::NoUpstream | Self::Connect(_) => FailureKind::Connect,
            Self::Closed(_) | Self::Unsent => FailureKind::Closed,
            Self::Refused => FailureKind::Refused,
            Self::NoTunnel | Self::NoExtendedConnect | Self::Inexpressible(_) | Self::WrongProtocol => {
                FailureKind::Protocol
            }
        }
    }

    /// No response has come. The codes by which a server refuses a request depend on the version.
    pub(super) fn of_recv(error: ChannelError, has_refused: impl Fn(&CloseReason) -> bool) -> Self {
        if let ChannelError::Closed(reason) = &error
            && matches!(**reason, CloseReason::StreamReset { by_peer: true, .. })
            && has_refused(reason)
        {
            return Self::Refused;
        }
        let is_late = match &error {
            ChannelError::Deadline => true,
            ChannelError::Closed(reason) => match &**reason {
                CloseReason::Protocol(fault) => is_timeout(&**fault),
                _ => false,
            },
            _ => false,
        };
        if is_late { Self::Late } else { Self::Closed(Some(error)) }
    }

    pub(super) fn of_send(unsent: &SendFailure) -> Self {
        match unsent {
            SendFailure::Closed => Self::Unsent,
            SendFailure::Misuse(misuse) => Self::Inexpressible(*misuse),
        }
    }

    /// Whether the upstream is to blame.
    pub(super) fn blames_upstream(&self) -> bool {
        matches!(self, Self::Connect(_) | Self::Closed(_) | Self::Late | Self::WrongProtocol)
    }

    /// Whether the upstream has received nothing of the request.
    pub(super) fn is_unsent(&self) -> bool {
        matches!(
            self,
            Self::Connect(_)
                | Self::NoTunnel
                | Self::NoExtendedConnect
                | Self::Refused
                | Self::Unsent
                | Self::Inexpressible(Misuse::PeerTooOld)
        )
    }

    /// Whether the connection has carried no request, since there was none.
    pub(super) fn has_carried_nothing(&self) -> bool {
        matches!(self, Self::Connect(_) | Self::NoTunnel | Self::NoExtendedConnect)
    }

    /// Whether the upstream has not processed the request, although there was a connection to it.
    pub(super) fn is_unprocessed(&self) -> bool {
        matches!(self, Self::Refused | Self::Unsent)
    }

    /// Whether the connection ended before the first byte of a response.
    pub(super) fn is_unanswered(&self) -> bool {
        match self {
            Self::Closed(None) => true,
            Self::Closed(Some(ChannelError::Closed(reason))) => match &**reason {
                CloseReason::Done | CloseReason::Broken(_) => true,
                CloseReason::Protocol(fault) => {
                    let unanswered = [Violation::Unanswered, Violation::UnsolicitedResponse].map(Error::Peer);
                    is_cut_off(&**fault) || http_error(&**fault).is_some_and(|error| unanswered.contains(error))
                }
                _ => false,
            },
            _ => false,
        }
    }

    /// Whether another upstream may do better.
    pub(super) fn may_be_retried(&self) -> bool {
        // A request that was late once would keep a second upstream busy for as long. A new connection can express
        // requests that one whose upstream has answered in HTTP/1.0 cannot.
        self.is_unsent() || matches!(self, Self::Closed(_))
    }

    pub(super) fn text(&self) -> String {
        match self {
            Self::NoUpstream => "no upstream is available, or none has room".into(),
            Self::Connect(error) => error.to_string(),
            Self::NoTunnel => "the upstream speaks HTTP/2 or HTTP/3, on which there are no tunnels".into(),
            Self::NoExtendedConnect => NO_EXTENDED_CONNECT.into(),
            Self::Closed(Some(error)) => error.to_string(),
            Self::Closed(None) => "the upstream closed the connection".into(),
            Self::Refused => "the upstream refused the request".into(),
            Self::Unsent => "the connection ended before the request was sent".into(),
            Self::Late => "the upstream did not answer in time".into(),
            Self::Inexpressible(misuse) => misuse.text().into(),
            Self::WrongProtocol => "the upstream switched to a protocol that was not asked for".into(),
        }
    }

    pub(super) fn response(&self) -> Response {
        let status = match self {
            Self::NoUpstream => Status::SERVICE_UNAVAILABLE,
            Self::Connect(ConnectError::Timeout(_)) | Self::Late => Status::GATEWAY_TIMEOUT,
            Self::NoExtendedConnect => {
                return Response::with(Status::BAD_GATEWAY)
                    .content_type(ContentType::TEXT)
                    .body(format!("{NO_EXTENDED_CONNECT}\n"));
            }
            Self::Connect(_)
            | Self::NoTunnel
            | Self::Closed(_)
            | Self::Refused
            | Self::Unsent
            | Self::WrongProtocol => Status::BAD_GATEWAY,
            Self::Inexpressible(_) => Status::BAD_REQUEST,
        };
        Response::of_error(status)
    }
}

const NO_EXTENDED_CONNECT: &str = "the upstream speaks HTTP/2 or HTTP/3, and does not announce \
    SETTINGS_ENABLE_CONNECT_PROTOCOL, so there are no WebSockets and no other tunnels";

fn is_timeout(fault: &(dyn std::error::Error + 'static)) -> bool {
    matches!(http_error(fault), Some(Error::Limit(Exceeded::HeadTime | Exceeded::BodyTime)))
}

#[cfg(all(test, feature = "tls"))]
mod tests {
    use std::rc::Rc;

    use tidegate_codec::OverError;

    use super::*;

    /// As one that ends without TLS: a request that may be sent twice is tried again beyond the budget.
    #[test]
    fn a_tls_connection_that_ends_without_close_notify_is_unanswered() {
        let closed = |error: OverError<tidegate_tls::Error, Error>| {
            Failure::Closed(Some(ChannelError::Closed(Rc::new(CloseReason::Protocol(Box::new(error))))))
        };
        assert!(closed(OverError::Filter(tidegate_tls::Error::Truncated)).is_unanswered());
        assert!(closed(OverError::Codec(Error::Peer(Violation::Unanswered))).is_unanswered());
        assert!(!closed(OverError::Filter(tidegate_tls::Error::HandshakeTimeout)).is_unanswered());
        assert!(!closed(OverError::Codec(Error::Peer(Violation::ResponseTruncated))).is_unanswered());
    }
}
