//! `RequestSpans`: a span of `tracing` for each request, by the conventions of OpenTelemetry for HTTP servers.
//!
//! The span is an extension of the request, so it lasts as long as the exchange: until the response is handed to the
//! connection, or until its body has been produced. Nothing of it is made while no subscriber is interested.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use http::{StatusCode, Version};
use tidegate_http_message::TraceContext;
use tidegate_http_message::body::{Body, BodyFuture, BodyKind, BodyWriter, ProducedBody};
use tracing::field::Empty;
use tracing::{Instrument, Span};

use super::{Middleware, Next, RequestInfo, trace_context};
use crate::request::Request;
use crate::response::Response;

/// Makes a span of `tracing` for each request, and finds its [`TraceContext`] as [`TraceContexts`](crate::TraceContexts)
/// does. The fields of the span are the attributes of OpenTelemetry's conventions for HTTP servers, and its target is
/// `tidegate::http`:
///
/// | field | is |
/// |---|---|
/// | `otel.name` | the method and the pattern of the route, such as `GET /tides/{harbour}`; the method alone without a route |
/// | `otel.kind` | `server` |
/// | `otel.status_code` | `ERROR` with a status of 500 and more, and if the client has left before the response |
/// | `http.request.method` | the method; `_OTHER` for one that HTTP does not define, which is then `http.request.method_original` |
/// | `http.route` | the pattern of the route |
/// | `http.response.status_code` | the status |
/// | `error.type` | the status from 500 on, `client_left`, or `body` if the function that writes the body has failed |
/// | `url.scheme`, `url.path` | of the request; a query is left out, since it may have credentials |
/// | `server.address`, `server.port` | of the field `Host` |
/// | `client.address` | the client, as [`TrustedProxies`](crate::TrustedProxies) have established it: add those before |
/// | `network.peer.address`, `network.peer.port` | the peer, as a trusted PROXY header reports it |
/// | `network.protocol.version` | `1.0`, `1.1` or `2` |
/// | `user_agent.original` | the field `User-Agent` |
///
/// The span lasts until the response has been handed over, or until its body is produced. [`enter`](Self::enter) makes it
/// the current one of the functions behind; without that, events of functions are not in it.
///
/// ```
/// use tidegate::http::{RequestSpans, Router};
///
/// let router = Router::new()
///     .get("/tides/{harbour}", async || "rising")
///     .with(RequestSpans::new())
///     .wrap(RequestSpans::enter);
/// # drop(router);
/// ```
///
/// A subscriber such as the layer of `tracing-opentelemetry` has ids of its own: [`link`](Self::link) joins the two. The
/// guide's chapter on telemetry has all of it.
///
/// A gateway behind this middleware makes a span of the kind `client` for each attempt at an upstream, below the span of
/// the request, and the upstream's parent is that span.
#[derive(Default)]
pub struct RequestSpans {
    ignores_peers: bool,
    sample: Option<Box<SampleRequest>>,
    link: Option<Arc<LinkSpan>>,
}

type SampleRequest = dyn Fn(&Request, &TraceContext) -> bool;
type LinkSpan = dyn Fn(&Span, TraceContext) -> TraceContext + Send + Sync;

/// The span of a request, among its [extensions](crate::Request::extensions).
#[derive(Clone)]
pub struct RequestSpan {
    span: Span,
    link: Option<Arc<LinkSpan>>,
}

impl RequestSpan {
    /// The span.
    #[must_use]
    pub fn span(&self) -> &Span {
        &self.span
    }

    /// The context of a request that is sent within `span`, such as that of a client: a [child](TraceContext::child) of
    /// `context`, which [`RequestSpans::link`] joins with `span`.
    #[must_use]
    pub fn child(&self, span: &Span, context: &TraceContext) -> TraceContext {
        linked(self.link.as_deref(), span, context.child())
    }
}

impl fmt::Debug for RequestSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RequestSpan").field(&self.span).finish()
    }
}

impl RequestSpans {
    /// Spans of requests, with the traces that peers name.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins a trace for each request, as [`TraceContexts::ignoring_peers`](crate::TraceContexts::ignoring_peers).
    #[must_use]
    pub fn ignoring_peers(mut self) -> Self {
        self.ignores_peers = true;
        self
    }

    /// Chooses the requests that get a span. All others keep a context, which is passed on as one that is not recorded:
    /// they cost a call of `sample` and no span. Without it each request gets one, as far as a subscriber is interested.
    ///
    /// ```
    /// use tidegate::http::{RequestSpans, Router};
    ///
    /// let router = Router::new()
    ///     .get("/", || "rising")
    ///     .with(RequestSpans::new().sample(|request, trace| trace.is_sampled() && request.path() != "/health"));
    /// # drop(router);
    /// ```
    #[must_use]
    pub fn sample(mut self, sample: impl Fn(&Request, &TraceContext) -> bool + 'static) -> Self {
        self.sample = Some(Box::new(sample));
        self
    }

    /// Joins a new span with the trace of its request. `link` gives the span its parent, and returns the context
    /// [with the ids](TraceContext::with_ids) that the span has got: those that are passed on, logged, and exemplars of
    /// metrics. It is called for spans that a subscriber is interested in: those of requests, and those of a gateway's
    /// attempts.
    #[must_use]
    pub fn link(mut self, link: impl Fn(&Span, TraceContext) -> TraceContext + Send + Sync + 'static) -> Self {
        self.link = Some(Arc::new(link));
        self
    }

    /// Async middleware that makes the span of a request the current one while the functions behind run:
    /// `router.with(RequestSpans::new()).wrap(RequestSpans::enter)`.
    pub async fn enter(request: Request, next: Next) -> Response {
        match request.extensions().get::<RequestSpan>().cloned() {
            Some(RequestSpan { span, .. }) => next.run(request).instrument(span).await,
            None => next.run(request).await,
        }
    }

    fn context(&self, request: &Request) -> TraceContext {
        match request.extensions().get::<TraceContext>() {
            Some(context) => context.clone(),
            None if self.ignores_peers => TraceContext::begin(),
            None => trace_context::received(request),
        }
    }
}

impl Middleware for RequestSpans {
    fn before(&self, request: &mut Request) -> Result<(), Response> {
        let mut context = self.context(request);
        if let Some(sample) = &self.sample {
            let is_sampled = sample(request, &context);
            context = context.with_sampled(is_sampled);
            if !is_sampled {
                request.extensions_mut().insert(context);
                return Ok(());
            }
        }
        let span = span_of(request);
        if !span.is_disabled() {
            context = linked(self.link.as_deref(), &span, context);
            request.extensions_mut().insert(RequestSpan { span, link: self.link.clone() });
        }
        request.extensions_mut().insert(context);
        Ok(())
    }

    fn after(&self, info: &RequestInfo, response: &mut Response) {
        let Some(RequestSpan { span, .. }) = info.request().extensions().get::<RequestSpan>() else { return };
        let status = response.status_code();
        span.record("http.response.status_code", status.as_u16());
        if status.is_server_error() {
            record_error(span, status.as_str());
        }
        let has_body = info.request().method() != http::Method::HEAD && status != StatusCode::NO_CONTENT;
        if has_body && matches!(response.body.kind(), BodyKind::Produced(_)) {
            follow(span, response);
        }
    }

    fn abandoned(&self, info: &RequestInfo) {
        if let Some(RequestSpan { span, .. }) = info.request().extensions().get::<RequestSpan>() {
            record_error(span, "client_left");
        }
    }
}

fn linked(link: Option<&LinkSpan>, span: &Span, context: TraceContext) -> TraceContext {
    match link {
        Some(link) => link(span, context),
        None => context,
    }
}

/// A span with the attributes that are known before the response.
fn span_of(request: &Request) -> Span {
    tracing::info_span!(
        target: "tidegate::http",
        // Its parent is that of the trace, and never the span that this thread happens to be in.
        parent: None,
        "request",
        otel.name = %SpanName(request),
        otel.kind = "server",
        otel.status_code = Empty,
        http.request.method = method(request).unwrap_or(OTHER_METHOD),
        http.request.method_original = method(request).is_none().then(|| request.head().method_text()),
        http.route = request.route(),
        http.response.status_code = Empty,
        error.type = Empty,
        url.scheme = if request.is_secure() { "https" } else { "http" },
        url.path = request.path(),
        server.address = host_and_port(request.host()).0,
        server.port = host_and_port(request.host()).1,
        client.address = request.client().ip().map(tracing::field::display),
        network.peer.address = request.peer().ip().map(|peer| tracing::field::display(peer.ip())),
        network.peer.port = request.peer().ip().map(|peer| peer.port()),
        network.protocol.version = version(request.version()),
        user_agent.original = request.header_str("user-agent"),
    )
}

fn record_error(span: &Span, error: &str) {
    span.record("error.type", error);
    span.record("otel.status_code", "ERROR");
}

/// Has the span last until the body of a response is produced.
fn follow(span: &Span, response: &mut Response) {
    let body = std::mem::take(&mut response.body).into_kind();
    let BodyKind::Produced(produced) = body else {
        response.body = Body::from(body);
        return;
    };
    let ProducedBody { length, produce } = *produced;
    let span = span.clone();
    let produce = Box::new(move |writer: BodyWriter| -> BodyFuture {
        let producing = span.in_scope(|| produce(writer));
        Box::pin(async move {
            let result: Result<(), Box<dyn Error>> = producing.instrument(span.clone()).await;
            if result.is_err() {
                record_error(&span, "body");
            }
            result
        })
    });
    response.body = Body::from(BodyKind::Produced(Box::new(ProducedBody { length, produce })));
}

/// `METHOD ROUTE`, or the method alone. No text of a peer is a part of it: names of spans are few.
struct SpanName<'a>(&'a Request);

impl fmt::Display for SpanName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The convention has this word for a method that is not known.
        f.write_str(method(self.0).unwrap_or("HTTP"))?;
        self.0.route().map_or(Ok(()), |route| write!(f, " {route}"))
    }
}

/// The method, if HTTP defines it.
fn method(request: &Request) -> Option<&'static str> {
    request.head().method().name()
}

pub(super) fn version(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        Version::HTTP_3 => "3",
        _ => "1.1",
    }
}

/// The host of a field `Host`, without brackets, and its port.
pub(super) fn host_and_port(authority: &str) -> (Option<&str>, Option<u16>) {
    let (host, port) = match authority.rsplit_once(':') {
        // An IPv6 address without brackets has no port.
        Some((host, port)) if host.ends_with(']') || !host.contains(':') => (host, port.parse().ok()),
        _ => (authority, None),
    };
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    (Some(host).filter(|host| !host.is_empty()), port)
}

impl fmt::Debug for RequestSpans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestSpans").field("ignores_peers", &self.ignores_peers).finish_non_exhaustive()
    }
}

const OTHER_METHOD: &str = "_OTHER";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_a_port_or_none() {
        for (authority, expected) in [
            ("sea.example", (Some("sea.example"), None)),
            ("sea.example:8080", (Some("sea.example"), Some(8080))),
            ("[::1]:80", (Some("::1"), Some(80))),
            ("[::1]", (Some("::1"), None)),
            ("::1", (Some("::1"), None)),
            ("sea:x", (Some("sea"), None)),
            ("", (None, None)),
        ] {
            assert_eq!(host_and_port(authority), expected, "{authority}");
        }
    }
}
