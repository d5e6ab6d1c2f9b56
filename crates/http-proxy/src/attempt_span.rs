//! `AttemptSpan`: a span of `tracing` for one attempt at an upstream, by the conventions of OpenTelemetry for HTTP clients.
//!
//! It is made below the span of the request, and only if the request has one. The upstream's parent is this span. It lasts
//! until the response is complete, or until the attempt has failed.

use tidegate_http::{Request, TraceContext, gateway};
use tidegate_http1::Status;
use tracing::Span;
use tracing::field::Empty;

use super::error::FailureKind;
use super::upstreams::Upstream;

/// The span of an attempt.
pub(super) struct AttemptSpan {
    span: Span,
    /// The context that the upstream gets.
    context: TraceContext,
}

impl AttemptSpan {
    /// The span of a new attempt, if the request has a span. `path` is the path that the upstream gets, without the query;
    /// `resends` are the attempts before it.
    #[inline]
    pub(super) fn begin(
        request: &Request,
        upstream: &Upstream,
        path: impl FnOnce() -> String,
        resends: u32,
    ) -> Option<Box<Self>> {
        gateway::request_span(request)?;
        Self::begin_below(request, upstream, &path(), resends)
    }

    #[cold]
    fn begin_below(request: &Request, upstream: &Upstream, path: &str, resends: u32) -> Option<Box<Self>> {
        let (of_request, context) = (gateway::request_span(request)?, gateway::trace_context(request)?);
        let (head, peer) = (request.head(), upstream.address.ip());
        let method = head.method().name();
        let scheme = if upstream.is_secure { "https" } else { "http" };
        let span = tracing::info_span!(
            target: "tidegate::http",
            parent: of_request.span(),
            "attempt",
            otel.name = method.unwrap_or("HTTP"),
            otel.kind = "client",
            otel.status_code = Empty,
            http.request.method = method.unwrap_or("_OTHER"),
            http.request.method_original = method.is_none().then(|| head.method_text()),
            http.request.resend_count = (resends > 0).then_some(resends),
            http.response.status_code = Empty,
            error.type = Empty,
            url.full = %format_args!("{scheme}://{}{path}", upstream.authority),
            server.address = host_of(&upstream.authority),
            server.port = port_of(&upstream.authority, upstream.is_secure),
            network.peer.address = peer.map(|peer| tracing::field::display(peer.ip())),
            network.peer.port = peer.map(|peer| peer.port()),
        );
        if span.is_disabled() {
            return None;
        }
        let context = of_request.child(&span, context);
        Some(Box::new(Self { span, context }))
    }

    /// The context that the upstream gets.
    pub(super) fn context(&self) -> &TraceContext {
        &self.context
    }

    /// The head of the response has come. For a client each status from 400 on is an error.
    pub(super) fn on_head(&self, status: Status) {
        self.span.record("http.response.status_code", status.code());
        if status.code() >= 400 {
            self.record_error(status.code().to_string().as_str());
        }
    }

    /// The upstream has failed.
    pub(super) fn fail(&self, kind: FailureKind) {
        self.record_error(kind.name());
    }

    fn record_error(&self, error: &str) {
        self.span.record("error.type", error);
        self.span.record("otel.status_code", "ERROR");
    }
}

/// The host of an authority, without its port and without brackets.
fn host_of(authority: &str) -> &str {
    let host = split_port(authority).0;
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

fn port_of(authority: &str, is_secure: bool) -> u16 {
    let default = if is_secure { 443 } else { 80 };
    split_port(authority).1.and_then(|port| port.parse().ok()).unwrap_or(default)
}

fn split_port(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        // An IPv6 address without a port ends with its bracket.
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_has_a_host_and_a_port() {
        for (authority, is_secure, host, port) in [
            ("sea.example", false, "sea.example", 80),
            ("sea.example", true, "sea.example", 443),
            ("sea.example:8443", true, "sea.example", 8443),
            ("[::1]:81", false, "::1", 81),
            ("[::1]", false, "::1", 80),
        ] {
            assert_eq!((host_of(authority), port_of(authority, is_secure)), (host, port), "{authority}");
        }
    }
}
