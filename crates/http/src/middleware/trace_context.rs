//! `TraceContexts`: the trace that a request belongs to (W3C Trace Context).

use tidegate_http_message::TraceContext;

use super::Middleware;
use crate::request::Request;
use crate::response::Response;

/// Finds the trace that a request belongs to, in its fields `traceparent` and `tracestate`, or begins one. Functions find
/// it among the request's [`extensions`](crate::Request::extensions), as a [`TraceContext`]. A proxy passes it on to its
/// upstream, and a client's request does with `RequestBuilder::trace`.
///
/// It records nothing: [`RequestSpans`](crate::RequestSpans) makes spans of `tracing`, and does the same beside.
///
/// ```
/// use tidegate::http::{Extension, Router, TraceContext, TraceContexts};
///
/// let router = Router::new()
///     .get("/", |Extension(trace): Extension<TraceContext>| format!("the trace is {}\n", trace.trace_id()))
///     .with(TraceContexts::new());
/// # drop(router);
/// ```
#[derive(Debug, Default)]
pub struct TraceContexts {
    ignores_peers: bool,
}

impl TraceContexts {
    /// Middleware that finds or begins traces.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins a trace for each request, whatever its fields are: where peers must not choose ids, nor decide that their
    /// requests are recorded.
    #[must_use]
    pub fn ignoring_peers(mut self) -> Self {
        self.ignores_peers = true;
        self
    }
}

impl Middleware for TraceContexts {
    fn before(&self, request: &mut Request) -> Result<(), Response> {
        let context = if self.ignores_peers { TraceContext::begin() } else { received(request) };
        request.extensions_mut().insert(context);
        Ok(())
    }
}

/// The context of a request, from its fields.
pub(super) fn received(request: &Request) -> TraceContext {
    let values = |wanted: &'static [u8]| {
        let lines = request.head().headers().filter(move |(name, _)| name.eq_ignore_ascii_case(wanted));
        lines.map(|(_, value)| value)
    };
    TraceContext::received(values(b"traceparent"), values(b"tracestate"))
}
