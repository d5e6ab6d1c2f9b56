//! `ExchangeNote`: facts of one request that a gateway or a cache knows, for the access log of the request.
//!
//! The log adds it to a request that it is going to log.

use std::borrow::Cow;
use std::cell::{RefCell, RefMut};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::client_address::ClientAddress;

/// Facts of a request. A clone is the same.
#[derive(Debug, Clone, Default)]
pub struct ExchangeNote(Rc<RefCell<NotedFacts>>);

/// The facts so far; those of an upstream are of the last attempt.
#[derive(Debug, Clone, Default)]
pub(crate) struct NotedFacts {
    pub(crate) upstream: Option<Arc<str>>,
    /// Why it has not answered, or not to the end.
    pub(crate) upstream_error: Option<String>,
    pub(crate) upstream_status: Option<u16>,
    /// From the choice of the upstream to the head and to the end of its response.
    pub(crate) head_time: Option<Duration>,
    pub(crate) whole_time: Option<Duration>,
    pub(crate) attempts: u32,
    /// Bytes of the request's body.
    pub(crate) received: Option<u64>,
    pub(crate) cache: Option<Cow<'static, str>>,
    pub(crate) end: Option<EndCause>,
    /// The client that the proxies of a function name.
    pub(crate) client: Option<ClientAddress>,
}

/// Why an exchange ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum EndCause {
    /// The response is complete.
    #[default]
    Done,
    /// The connection ended before the response was complete: the client has left, or did not read.
    ClientLeft,
    /// The codec has refused the request.
    Refused,
    /// The upstream could not be reached, or its response is not complete.
    UpstreamFailed,
    /// An upstream was late.
    Timeout,
    /// A limit of the gateway has refused the request: no upstream had room, or the client sends too many.
    Shed,
    /// The function that writes the response has failed.
    Failed,
    /// The server drains, and the response ended before its own end.
    Drained,
}

impl EndCause {
    /// The word for it in a log.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::ClientLeft => "client_left",
            Self::Refused => "refused",
            Self::UpstreamFailed => "upstream_failed",
            Self::Timeout => "timeout",
            Self::Shed => "shed",
            Self::Failed => "failed",
            Self::Drained => "drained",
        }
    }
}

impl ExchangeNote {
    /// An attempt begins, at this upstream.
    pub fn begin_attempt(&self, upstream: &Arc<str>) {
        let mut facts = self.facts_mut();
        facts.attempts += 1;
        facts.upstream = Some(upstream.clone());
        (facts.upstream_error, facts.upstream_status, facts.head_time, facts.whole_time) = (None, None, None, None);
    }

    /// The head of the upstream's response has come, so long after the choice of the upstream.
    pub fn set_head(&self, status: u16, took: Duration) {
        let mut facts = self.facts_mut();
        (facts.upstream_status, facts.head_time) = (Some(status), Some(took));
    }

    /// The upstream's response is complete, so long after the choice of the upstream.
    pub fn set_whole(&self, took: Duration) {
        self.facts_mut().whole_time = Some(took);
    }

    /// There is no response of an upstream, or not all of it.
    pub fn fail(&self, error: String, end: EndCause) {
        let mut facts = self.facts_mut();
        (facts.upstream_error, facts.end) = (Some(error), Some(end));
    }

    /// Why the exchange ends.
    pub fn set_end(&self, end: EndCause) {
        self.facts_mut().end = Some(end);
    }

    /// So many bytes of the request's body were received.
    pub fn set_received(&self, bytes: u64) {
        self.facts_mut().received = Some(bytes);
    }

    /// The word of a cache for its part, such as `hit` or `miss`.
    pub fn set_cache(&self, outcome: impl Into<Cow<'static, str>>) {
        self.facts_mut().cache = Some(outcome.into());
    }

    /// The client that the proxies of a function name.
    pub(crate) fn set_client(&self, client: ClientAddress) {
        self.facts_mut().client = Some(client);
    }

    pub(crate) fn facts(&self) -> NotedFacts {
        self.0.borrow().clone()
    }

    fn facts_mut(&self) -> RefMut<'_, NotedFacts> {
        self.0.borrow_mut()
    }
}
