//! The facts of a line: of a request with the head of its response, and of the end of the exchange.

use std::borrow::Cow;
use std::time::Duration;

use crate::client_address::ClientAddress;
use crate::exchange_note::{EndCause, NotedFacts};
use crate::request::Request;
use crate::response::Response;

/// The status of a request whose client has left before the response, as other servers log it. It is never sent.
pub(super) const CLIENT_LEFT_STATUS: u16 = 499;

/// A request and its response, as a line shows them.
pub(super) struct LoggedExchange<'a> {
    pub(super) request: &'a Request,
    /// `None` if the client has left before it.
    pub(super) response: Option<&'a Response>,
    pub(super) status: u16,
    /// From the head of the request to that of the response.
    pub(super) elapsed: Duration,
    pub(super) facts: Option<NotedFacts>,
}

impl LoggedExchange<'_> {
    /// The client, if proxies in front name one that is not the peer.
    pub(super) fn named_client(&self) -> Option<ClientAddress> {
        let of_function = self.facts.as_ref().and_then(|facts| facts.client);
        match of_function {
            // The proxies of a function replace those of its router: it may be the peer again.
            Some(client) => Some(client).filter(|client| *client != ClientAddress::of_peer(self.request.peer())),
            None => self.request.named_client(),
        }
    }
}

/// The facts of an exchange that are known at its end.
#[derive(Debug, Default)]
pub(super) struct LateFacts {
    /// Bytes of the response's body, and of the request's; `None` if they are not known.
    pub(super) sent: Option<u64>,
    pub(super) received: Option<u64>,
    pub(super) total: Duration,
    /// The end came after the head of the response.
    pub(super) is_later: bool,
    pub(super) attempts: u32,
    pub(super) upstream_status: Option<u16>,
    pub(super) head_time: Option<Duration>,
    pub(super) whole_time: Option<Duration>,
    pub(super) upstream_error: Option<String>,
    pub(super) cache: Option<Cow<'static, str>>,
    pub(super) end: EndCause,
}

impl LateFacts {
    /// Those of a response that is complete with its head.
    pub(super) fn of(facts: Option<&NotedFacts>, request: &Request, sent: Option<u64>, total: Duration) -> Self {
        Self { sent, ..Self::noted(facts.cloned().unwrap_or_default(), request.content_length(), total) }
    }

    pub(super) fn noted(facts: NotedFacts, request_length: Option<u64>, total: Duration) -> Self {
        Self {
            sent: None,
            received: facts.received.or(request_length),
            total,
            is_later: false,
            attempts: facts.attempts,
            upstream_status: facts.upstream_status,
            head_time: facts.head_time,
            whole_time: facts.whole_time,
            upstream_error: facts.upstream_error,
            cache: facts.cache,
            end: facts.end.unwrap_or_default(),
        }
    }
}
