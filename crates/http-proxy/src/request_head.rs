//! From the request of a client to that for an upstream: target, host, fields.

use std::borrow::Cow;

use tidegate_http::{Request, Response, TemplateValues, TraceContext, gateway};
use tidegate_http1::client::{InvalidRequest, Outgoing};
use tidegate_http1::{self as http1, BodyLength, Fields, Method, RequestHead, Status};

use super::dot_segments::has_dot_segment;
use super::fields::{self, Present};
use super::options::{HostRule, Options};
use super::upstreams::Upstream;
use super::websocket::Handshake;

/// A request as the proxy sees it, apart from its upstream.
#[derive(Debug)]
pub(super) struct ForwardPlan {
    /// The protocol that it asks to switch to, if it is one that is passed on.
    pub(super) upgrade: Option<String>,
    /// The request is an HTTP/2 extended CONNECT, for which an upstream gets a GET.
    pub(super) handshake: Option<Handshake>,
    /// A body follows the head, or trailers do.
    pub(super) has_body: bool,
    /// The client waits for `100 Continue`.
    pub(super) expects: bool,
    /// The connection has to speak HTTP/1.1: it may become a tunnel.
    pub(super) needs_http1: bool,
    /// The client takes trailers.
    pub(super) takes_trailers: bool,
    /// The rest of `Max-Forwards`.
    max_forwards: Option<u64>,
    present: Present,
}

impl ForwardPlan {
    /// The plan for a request; a response if it is not passed on.
    pub(super) fn of(request: &Request, options: &Options) -> Result<Self, Response> {
        let head = request.head();
        let present = Present::of(head.headers());
        if present.via && options.pseudonym.is_in(request) {
            let loop_detected = Status::new(508).unwrap_or(Status::BAD_GATEWAY);
            return Err(Response::of_error(loop_detected));
        }
        if has_dot_segment(head.path_bytes()) {
            return Err(Response::of_error(Status::BAD_REQUEST));
        }
        let mut handshake = None;
        if let Some(protocol) = head.protocol() {
            handshake = Handshake::of(protocol).filter(|_| options.passes_on(protocol));
            if handshake.is_none() {
                return Err(Response::of_error(Status::NOT_IMPLEMENTED));
            }
        }
        match head.method() {
            Method::Connect if handshake.is_some() => {}
            Method::Connect if !options.connect => {
                return Err(Response::of_error(Status::METHOD_NOT_ALLOWED));
            }
            // It would show the client the fields that the proxy adds.
            Method::Trace => return Err(Response::of_error(Status::METHOD_NOT_ALLOWED)),
            _ => {}
        }
        let mut max_forwards = None;
        if head.method() == Method::Options
            && let Some(value) = head.header("max-forwards").and_then(|value| std::str::from_utf8(value).ok())
            && let Ok(left) = value.parse::<u64>()
        {
            // RFC 9110 §7.6.2.
            max_forwards = Some(left.checked_sub(1).ok_or_else(|| Response::with(Status::NO_CONTENT))?);
        }
        let asked = match &handshake {
            Some(handshake) => Some(handshake.protocol()),
            None if present.upgrade => asked_protocol(head),
            None => None,
        };
        let upgrade = asked.filter(|name| options.passes_on(name));
        let expects = head.has_body() && head.expects_continue();
        let needs_http1 = upgrade.is_some() || head.method() == Method::Connect;
        let takes_trailers = present.te && fields::has_member(head.headers(), b"te", b"trailers");
        let upgrade = upgrade.map(str::to_owned);
        let has_body = head.has_body();
        Ok(Self { upgrade, handshake, has_body, expects, needs_http1, takes_trailers, max_forwards, present })
    }

    /// Whether a body is announced although the request probably has none: on a stream whose end comes behind its head,
    /// with a method that seldom has a body. An HTTP/1.1 upstream would get it with `Transfer-Encoding`, which some servers
    /// refuse in a GET.
    pub(super) fn may_be_without_body(&self, head: &RequestHead) -> bool {
        self.has_body
            && !self.expects
            && matches!(head.version(), http1::Version::Http2 | http1::Version::Http3)
            && matches!(head.method(), Method::Get | Method::Head | Method::Delete | Method::Options)
            && head.body() == BodyLength::Chunked
            && !has_length_of_zero(head)
    }

    /// Whether an HTTP/1.1 client asks for a WebSocket, which is an extended CONNECT for an HTTP/2 upstream.
    pub(super) fn is_websocket_of_http1(&self) -> bool {
        self.handshake.is_none()
            && self.upgrade.as_ref().is_some_and(|protocol| protocol.eq_ignore_ascii_case(Handshake::WEBSOCKET))
    }

    /// Whether an HTTP/1.1 client asks for a tunnel of capsules, which is an extended CONNECT for an HTTP/2 upstream.
    pub(super) fn is_capsules_of_http1(&self, head: &RequestHead) -> bool {
        self.handshake.is_none()
            && head.method() == Method::Get
            && self.upgrade.as_deref().is_some_and(Handshake::has_capsules)
    }

    /// Whether a request asks for a tunnel to the host that is its target.
    pub(super) fn is_connect(&self, head: &RequestHead) -> bool {
        head.method() == Method::Connect && self.handshake.is_none()
    }

    /// Whether a request without an upgrade has another head on a stream: on an `https` connection whose upstream has chosen
    /// HTTP/2.
    pub(super) fn differs_on_streams(&self, request: &Request, options: &Options) -> bool {
        self.takes_trailers || (matches!(options.host, HostRule::Keep) && request.host().is_empty())
    }

    /// The request for an upstream. `trace` is the context of the attempt, if that has a span.
    pub(super) fn outgoing(
        &self,
        request: &Request,
        (upstream, trace): (&Upstream, Option<&TraceContext>),
        options: &Options,
        is_http2: bool,
    ) -> Result<Outgoing, Response> {
        let head = request.head();
        let is_connect = self.is_connect(head);
        let target = if is_connect { head.target_bytes().into() } else { target(head, options)? };
        // Finding it is a search.
        let kept = request.host();
        let trace = trace.or_else(|| gateway::trace_context(request));
        let fields = self.fields(request, (kept, trace), options, is_http2);
        let host = match &options.host {
            _ if is_connect => None,
            // `:authority` is never empty, and an HTTP/2 server needs a host (RFC 9113 §8.3.1).
            HostRule::Keep if kept.is_empty() && is_http2 => Some(&*upstream.authority),
            // An empty `Host` stays one, and an HTTP/1.0 request without it has an empty one for HTTP/1.1 (RFC 9112
            // §3.2).
            HostRule::Keep => Some(kept),
            HostRule::OfUpstream => Some(&*upstream.authority),
            HostRule::Fixed(host) => Some(&**host),
        };
        let outgoing = if self.has_body {
            self.streamed(head, &target, host).map(|outgoing| outgoing.fields(fields).into())
        } else {
            self.whole(head, &target, host, is_http2).map(|outgoing| outgoing.fields(fields).into())
        };
        outgoing.map_err(|_| Response::of_error(Status::BAD_REQUEST))
    }

    /// The fields of the request to the upstream, without its host. `host` is that of the request, `trace` the context that
    /// the upstream gets.
    fn fields(
        &self,
        request: &Request,
        (host, trace): (&str, Option<&TraceContext>),
        options: &Options,
        is_http2: bool,
    ) -> Fields {
        let head = request.head();
        let is_trusted = options.forwarding.trusts(request);
        // That of the middleware, which the upstream gets in place of the client's.
        let id = request.id();
        let id = id.filter(|id| !options.request_edits.iter().any(|edit| edit.replaces(id.field().as_bytes())));
        let trace = trace.filter(|_| !options.request_edits.iter().any(|edit| edit.replaces(TRACEPARENT)));
        let mut fields = fields::end_to_end_fields(self.present, head.headers(), &options.request_edits, |name| {
            options.forwarding.drops(name, is_trusted)
                || id.is_some_and(|id| fields::is_same(id.field().as_bytes(), name))
                || (trace.is_some() && TRACE_FIELDS.iter().any(|field| fields::is_same(field, name)))
                || (self.max_forwards.is_some() && fields::is_same(b"max-forwards", name))
                || ((self.handshake.is_some() || is_http2) && self.upgrade.is_some() && Handshake::has(name))
        });
        options.forwarding.add(&mut fields, request, host, is_trusted);
        options.pseudonym.add(&mut fields, request, self.present.via);
        if let Some(id) = id {
            fields::push(&mut fields, id.field().as_bytes(), id.as_str().as_bytes());
        }
        if let Some(trace) = trace {
            add_trace(&mut fields, trace);
        }
        if let Some(left) = self.max_forwards {
            fields::push(&mut fields, b"Max-Forwards", left.to_string().as_bytes());
        }
        // An HTTP/2 stream has no key.
        if let Some(handshake) = self.handshake.as_ref().filter(|_| !is_http2) {
            handshake.add(&mut fields);
        }
        fields::add_edits(&mut fields, &options.request_edits, || {
            TemplateValues::new(request).trusting_networks(&options.forwarding.trusted)
        });
        if is_http2 && self.takes_trailers {
            // The proxy passes trailers on in any case; some gRPC servers insist on the field.
            fields.push_te_trailers();
        }
        if self.present.date {
            fields::pass_date_on(&mut fields, head.headers(), &options.request_edits);
        }
        fields
    }

    /// A request whose body follows in pieces.
    fn streamed(
        &self,
        head: &RequestHead,
        target: &[u8],
        host: Option<&str>,
    ) -> Result<http1::StreamedRequest, InvalidRequest> {
        let mut outgoing = match head.method() {
            Method::Extension => http1::StreamedRequest::extension(head.method_text(), target),
            method => http1::StreamedRequest::new(method, target),
        }?;
        if let Some(host) = host {
            outgoing = outgoing.host(host)?;
        }
        match head.body() {
            BodyLength::Known(length) => outgoing = outgoing.length(length),
            BodyLength::Chunked if has_length_of_zero(head) => outgoing = outgoing.length(0),
            _ => {}
        }
        Ok(if self.expects { outgoing.expect_continue() } else { outgoing })
    }

    /// A request without a body.
    fn whole(
        &self,
        head: &RequestHead,
        target: &[u8],
        host: Option<&str>,
        is_http2: bool,
    ) -> Result<http1::Request, InvalidRequest> {
        let mut outgoing = match head.method() {
            Method::Extension => http1::Request::extension(head.method_text(), target),
            Method::Connect if !self.is_connect(head) => http1::Request::new(Method::Get, target),
            method => http1::Request::new(method, target),
        }?;
        if let Some(host) = host {
            outgoing = outgoing.host(host)?;
        }
        match &self.upgrade {
            Some(protocol) if is_http2 => outgoing.upgrade_to(Handshake::name_on_streams(protocol)),
            Some(protocol) => outgoing.upgrade_to(protocol),
            None => Ok(outgoing),
        }
    }
}

/// Whether a request of HTTP/2 or HTTP/3 says that its body is empty, while the end of its stream has not come yet. Some
/// servers insist on a length.
fn has_length_of_zero(head: &RequestHead) -> bool {
    head.headers().any(|(name, value)| name.eq_ignore_ascii_case(b"content-length") && value == b"0")
}

/// The target in the form that an origin server gets (RFC 9112 §3.2.1), without the prefix of the route. Its bytes are
/// those that came.
fn target<'a>(head: &'a RequestHead, options: &Options) -> Result<Cow<'a, [u8]>, Response> {
    let target = head.target_bytes();
    if target == b"*" {
        return Ok(target.into());
    }
    let is_absolute = !target.starts_with(b"/");
    let has_path = || {
        let authority = target.windows(3).position(|three| three == b"://");
        authority.is_some_and(|at| target[at + 3..].iter().any(|byte| matches!(byte, b'/' | b'?')))
    };
    if is_absolute && head.method() == Method::Options && !has_path() {
        // RFC 9112 §3.2.4.
        return Ok((&b"*"[..]).into());
    }
    let query = || match head.query_bytes() {
        Some(query) => [b"?", query].concat(),
        None => Vec::new(),
    };
    let path = head.path_bytes();
    if !options.rewrites.is_empty() {
        return rewritten(head, options);
    }
    let Some(prefix) = &options.strip_prefix else {
        return Ok(if is_absolute { [path, &query()].concat().into() } else { target.into() });
    };
    let rest = stripped(path, prefix)?;
    Ok([b"/", rest, &query()].concat().into())
}

/// The path that an upstream gets, for a span: a query may have credentials.
pub(super) fn path_without_query(head: &RequestHead, options: &Options) -> String {
    let target = target(head, options).unwrap_or_default();
    let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
    String::from_utf8_lossy(path).into_owned()
}

/// The path behind the prefix of the route, without the slash between them.
fn stripped<'a>(path: &'a [u8], prefix: &str) -> Result<&'a [u8], Response> {
    let rest = match path.strip_prefix(prefix.as_bytes()) {
        Some(rest) if rest.is_empty() => Some(rest),
        Some([b'/', rest @ ..]) => Some(rest),
        // The path matches in another form than it was sent.
        _ => gateway::strip_prefix(path, prefix),
    };
    rest.ok_or_else(|| Response::of_error(Status::NOT_FOUND))
}

/// The target with another path.
#[inline(never)]
fn rewritten<'a>(head: &'a RequestHead, options: &Options) -> Result<Cow<'a, [u8]>, Response> {
    let mut path = Cow::Borrowed(head.path_bytes());
    if let Some(prefix) = &options.strip_prefix {
        path = [b"/", stripped(&path, prefix)?].concat().into();
    }
    let mut query = head.query_bytes().map_or_else(Vec::new, |query| [b"?", query].concat());
    for rewrite in &options.rewrites {
        path = rewrite.apply(path, &mut query).ok_or_else(|| Response::of_error(Status::BAD_REQUEST))?;
    }
    Ok([&*path, &query].concat().into())
}

/// The first protocol that a request asks to switch to, if it may (RFC 9110 §7.8).
fn asked_protocol(head: &RequestHead) -> Option<&str> {
    let may_switch = !head.has_body()
        && head.version() == http1::Version::Http11
        && !matches!(head.method(), Method::Head | Method::Connect);
    if !may_switch || !fields::has_member(head.headers(), b"connection", b"upgrade") {
        return None;
    }
    let asked = fields::list(head.header("upgrade")?).next()?;
    std::str::from_utf8(asked).ok()
}

/// Adds the trace that middleware has found: the parent of the upstream's span is the span of the attempt or, without one,
/// that of the request here.
#[cold]
fn add_trace(fields: &mut Fields, trace: &TraceContext) {
    fields::push(fields, TRACEPARENT, trace.traceparent().as_bytes());
    if let Some(state) = trace.tracestate() {
        fields::push(fields, TRACESTATE, state.as_bytes());
    }
}

/// The field with the id of a request, in lower case.
pub(super) const REQUEST_ID: &[u8] = b"x-request-id";

/// The fields of a trace, in lower case as the standard has them.
const TRACE_FIELDS: [&[u8]; 2] = [TRACEPARENT, TRACESTATE];
const TRACEPARENT: &[u8] = b"traceparent";
const TRACESTATE: &[u8] = b"tracestate";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_request;

    #[test]
    fn the_target_is_in_origin_form() {
        let plain = Options::default();
        let stripped = Options { strip_prefix: Some("/api".into()), ..Options::default() };
        for (method, target_sent, expected, without_prefix) in [
            ("GET", "/api/a?b", "/api/a?b", "/a?b"),
            ("GET", "/api?x", "/api?x", "/?x"),
            ("GET", "http://sea/api/a?b", "/api/a?b", "/a?b"),
            ("GET", "/%61pi/%61?%", "/%61pi/%61?%", "/%61?%"),
            ("GET", "//api%2Fa|é", "//api%2Fa|é", "/a|é"),
            ("GET", "http://sea/api?{}", "/api?{}", "/?{}"),
            ("OPTIONS", "*", "*", "*"),
            ("OPTIONS", "http://sea", "*", "*"),
        ] {
            let request = test_request(method, target_sent, "");
            assert_eq!(*target(request.head(), &plain).unwrap(), *expected.as_bytes());
            assert_eq!(*target(request.head(), &stripped).unwrap(), *without_prefix.as_bytes());
        }
        assert!(target(test_request("GET", "/other", "").head(), &stripped).is_err());
    }

    #[test]
    fn a_protocol_is_passed_on_if_it_is_allowed() {
        let upgrade =
            |lines: &str| ForwardPlan::of(&test_request("GET", "/", lines), &Options::default()).unwrap().upgrade;
        assert_eq!(upgrade("Connection: Upgrade\r\nUpgrade: WebSocket\r\n").as_deref(), Some("WebSocket"));
        assert_eq!(upgrade("Connection: keep-alive, upgrade\r\nUpgrade: h2c\r\n"), None);
        assert_eq!(upgrade("Upgrade: websocket\r\n"), None);
    }

    #[test]
    fn options_counts_its_forwards() {
        let asked = |lines: &str| ForwardPlan::of(&test_request("OPTIONS", "/", lines), &Options::default());
        assert_eq!(asked("Max-Forwards: 1\r\n").unwrap().max_forwards, Some(0));
        assert_eq!(asked("Max-Forwards: 0\r\n").unwrap_err().status_code().as_u16(), 204);
        assert_eq!(asked("").unwrap().max_forwards, None);
    }
}
