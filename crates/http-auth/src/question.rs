//! The request to the service: the fields of the client's request, and which request it was.

use tidegate_http::gateway::{has_prefix, is_of_connection, is_same};
use tidegate_http::{Request, TrustedProxies};
use tidegate_http_client::RequestBuilder;

/// Adds the fields of a request to one for the service. `sent` are the names of those that the service gets; all, unless set.
pub(crate) fn with_fields_of(
    mut question: RequestBuilder,
    request: &Request,
    sent: Option<&[Box<str>]>,
    trusted: &TrustedProxies,
) -> RequestBuilder {
    for (name, value) in request.headers().filter(|(name, _)| is_passed_on(name.as_bytes(), sent)) {
        question = question.header(name, value);
    }
    let is_trusted = trusted.trusts_peer_of(request);
    // A trusted proxy in front has written these; anything else is a claim of the client.
    let named = |name: &str| if is_trusted { request.header_str(name) } else { None };
    let client = trusted.client_of(request).ip().map_or_else(|| "unknown".to_owned(), |ip| ip.to_string());
    let scheme = if request.is_secure() { "https" } else { "http" };
    let host = named("x-forwarded-host").unwrap_or_else(|| request.host());
    question = question
        .header("X-Forwarded-Method", request.method().as_str())
        .header("X-Forwarded-Proto", named("x-forwarded-proto").unwrap_or(scheme))
        .header("X-Forwarded-Uri", target(request))
        .header("X-Forwarded-For", client);
    if host.is_empty() { question } else { question.header("X-Forwarded-Host", host) }
}

/// Whether the service gets a field of the client. Fields of the connection and of the body are not for it; conditions and
/// ranges would have it answer with a 304, a 412 or a 206. Services read the target from fields such as `X-Original-URL`,
/// which other gateways set: here they are claims of the client.
fn is_passed_on(name: &[u8], sent: Option<&[Box<str>]>) -> bool {
    let is_never = is_of_connection(name)
        || NEVER.iter().any(|never| is_same(never.as_bytes(), name))
        || has_prefix(name, b"x-forwarded-")
        || has_prefix(name, b"x-original-")
        || has_prefix(name, b"if-");
    !is_never && sent.is_none_or(|sent| sent.iter().any(|sent| sent.as_bytes().eq_ignore_ascii_case(name)))
}

/// The path and the query, as they came.
fn target(request: &Request) -> Vec<u8> {
    let head = request.head();
    let mut target = head.path_bytes().to_vec();
    if let Some(query) = head.query_bytes() {
        target.push(b'?');
        target.extend_from_slice(query);
    }
    target
}

/// Fields of the client that the service does not get.
const NEVER: [&str; 11] = [
    "content-encoding",
    "content-range",
    "content-type",
    "forwarded",
    "proxy-authorization",
    "range",
    "trailer",
    "x-auth-request-redirect",
    "x-real-ip",
    "x-rewrite-url",
    "http2-settings",
];
