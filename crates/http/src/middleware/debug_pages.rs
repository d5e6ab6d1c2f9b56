//! `DebugPages`: errors with their causes, in debug builds.

use std::fmt::Write as _;

use http::Method;
use tidegate_http1::ContentType;

use super::{Middleware, RequestInfo};
use crate::request::Request;
use crate::response::Response;
use crate::table::RouteInfo;

/// Shows why a request was refused, in a debug build: the cause, the request, its route and its parameters, and for a path
/// that no route matches all routes. A browser gets a page, another client the same as text.
///
/// It replaces texts of errors, those of this crate and of functions. Bodies of other types stay, such as JSON, and so do
/// responses of upstreams. The values of `Authorization`, `Cookie` and `Proxy-Authorization` are left out. **In a release
/// build it changes nothing**: causes name types and functions of the program.
///
/// ```
/// use tidegate::http::{DebugPages, Path, Router};
///
/// let router = Router::new().get("/tides/{number}", |Path(number): Path<u32>| number.to_string());
/// let pages = DebugPages::new().routes(router.routes());
/// let router = router.with(pages);
/// # drop(router);
/// ```
#[derive(Debug, Default)]
pub struct DebugPages {
    routes: Vec<String>,
}

impl DebugPages {
    /// Pages without a list of routes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Lists these routes where none matches: those of [`Router::routes`](crate::Router::routes).
    #[must_use]
    pub fn routes(mut self, routes: impl IntoIterator<Item = RouteInfo>) -> Self {
        self.routes = routes.into_iter().map(|route| route.to_string()).collect();
        self
    }

    fn page(&self, request: &Request, response: &Response) -> Vec<(&'static str, String)> {
        let mut parts = vec![("cause", cause_of(request, response))];
        parts.push(("request", format!("{} {}", request.method(), request.target())));
        parts.push(("route", request.route().unwrap_or("none").to_owned()));
        let mut parameters = String::new();
        for (name, value) in request.parameters() {
            let _ = writeln!(parameters, "{name} = {value}");
        }
        parts.push(("parameters", parameters));
        let mut fields = String::new();
        for (name, value) in request.headers() {
            let is_secret = SECRETS.iter().any(|secret| name.eq_ignore_ascii_case(secret));
            let value = if is_secret { "…".into() } else { String::from_utf8_lossy(value) };
            let _ = writeln!(fields, "{name}: {value}");
        }
        parts.push(("fields", fields));
        if request.route().is_none() && !self.routes.is_empty() {
            parts.push(("routes", self.routes.join("\n")));
        }
        parts.retain(|(_, text)| !text.is_empty());
        parts
    }
}

impl Middleware for DebugPages {
    fn after(&self, info: &RequestInfo, response: &mut Response) {
        let status = response.status_code();
        let is_error = status.is_client_error() || status.is_server_error();
        if !cfg!(debug_assertions) || !is_error || response.origin.is_upstream() || !is_text(response) {
            return;
        }
        let request = info.request();
        let parts = self.page(request, response);
        let is_page = request.method() != Method::HEAD && accepts_html(request);
        let (content_type, body) = if is_page {
            (ContentType::HTML, html(status, &parts))
        } else {
            (ContentType::from_static("text/plain; charset=utf-8"), text(status, &parts))
        };
        response.fields.remove("content-type");
        response.content_type = Some(content_type);
        response.body = body.into();
    }
}

/// Why the response is an error: as the layer has noted it, or the text that the client would have got.
fn cause_of(request: &Request, response: &Response) -> String {
    if let Some(cause) = response.cause.text() {
        return cause;
    }
    let text = String::from_utf8_lossy(response.body.collected()).trim().to_owned();
    let is_status_alone = text.is_empty() || text.starts_with(response.status_code().as_str());
    match (response.status_code().as_u16(), request.route()) {
        (404, None) if is_status_alone => format!("no route matches the path {}", request.normal_path()),
        (405, _) => {
            let allowed = response.field("allow").map(String::from_utf8_lossy).unwrap_or_default();
            format!("the path has no function for {}; it has some for {allowed}", request.method())
        }
        _ => text,
    }
}

/// Whether the body is a text in memory, or empty.
fn is_text(response: &Response) -> bool {
    let is_text = response.field("content-type").is_none_or(|media| media.starts_with(b"text/plain"));
    is_text && response.body.is_whole() && response.field("content-encoding").is_none()
}

fn accepts_html(request: &Request) -> bool {
    let mut accepted = request.head().headers().filter(|(name, _)| name.eq_ignore_ascii_case(b"accept"));
    accepted.any(|(_, value)| value.windows(HTML.len()).any(|part| part.eq_ignore_ascii_case(HTML)))
}

fn text(status: http::StatusCode, parts: &[(&'static str, String)]) -> String {
    let mut text = format!("{status}\n");
    for (name, part) in parts {
        let _ = write!(text, "\n{name}:\n");
        for line in part.lines() {
            let _ = writeln!(text, "  {line}");
        }
    }
    text
}

fn html(status: http::StatusCode, parts: &[(&'static str, String)]) -> String {
    let mut page = format!(
        "<!doctype html><meta charset=\"utf-8\"><title>{status}</title><style>body{{font:16px/1.5 system-ui,sans-serif;\
         margin:2rem;color-scheme:light dark}}pre{{background:#8882;padding:.5rem;overflow-x:auto}}</style>\
         <h1>{status}</h1>\n"
    );
    for (name, part) in parts {
        let escaped = part.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let _ = writeln!(page, "<h2>{name}</h2><pre>{escaped}</pre>");
    }
    page.push_str("<p>This page is that of a debug build.</p>\n");
    page
}

const HTML: &[u8] = b"text/html";

/// Fields whose values are credentials.
const SECRETS: [&str; 3] = ["authorization", "cookie", "proxy-authorization"];
