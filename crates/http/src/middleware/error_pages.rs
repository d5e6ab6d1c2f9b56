//! `ErrorPages`: bodies of one's own for errors.

use std::collections::HashMap;

use bytes::Bytes;
use http::StatusCode;
use tidegate_http1::ContentType;

use super::{Middleware, RequestInfo};
use crate::request::Request;
use crate::response::{Response, ResponseOrigin};
use crate::template::{Template, TemplatePart, TemplateValues};

/// Replaces the bodies of responses with these statuses, those of functions too. The responses of upstreams stay as they
/// are, unless [`forwarded`](Self::forwarded) says otherwise; those that a proxy makes itself, such as 502 to 504, are replaced.
///
/// The page of a status comes before that of its class. Fields about the old body are removed, such as `ETag`; others stay, such
/// as `WWW-Authenticate`, and the `Content-Range` of a 416.
///
/// ```
/// use tidegate::http::{ErrorPage, ErrorPages, Router, StatusCode, Template};
///
/// let broken = Template::parse("<h1>{response.status}</h1><p>Tell us this number: {request.id}</p>")?;
/// let pages = ErrorPages::new()
///     .page(StatusCode::NOT_FOUND, "<h1>There is nothing here.</h1>")
///     .server_errors(ErrorPage::html(broken).and_json("{\"error\": true}"));
/// let router = Router::new().get("/", || "hello").with(pages);
/// # drop(router);
/// # Ok::<(), tidegate::http::InvalidTemplate>(())
/// ```
#[derive(Debug, Default)]
pub struct ErrorPages {
    pages: HashMap<StatusCode, ErrorPage>,
    client_errors: Option<ErrorPage>,
    server_errors: Option<ErrorPage>,
    replaces_forwarded: bool,
}

/// The body of an error: HTML, JSON, or both, of which each client gets the one that it prefers (RFC 9110 §12.5.1).
#[derive(Debug, Clone, Default)]
pub struct ErrorPage {
    html: Option<PageText>,
    json: Option<PageText>,
}

/// The text of an [`ErrorPage`]: bytes as they are, or a [`Template`] whose values are escaped for HTML or JSON.
#[derive(Debug, Clone)]
pub struct PageText(PageSource);

#[derive(Debug, Clone)]
enum PageSource {
    Bytes(Bytes),
    Template(Template),
}

impl From<Template> for PageText {
    fn from(template: Template) -> Self {
        Self(PageSource::Template(template))
    }
}

macro_rules! page_texts {
    ($($source:ty)*) => {
        $(
            impl From<$source> for PageText {
                fn from(text: $source) -> Self {
                    Self(PageSource::Bytes(text.into()))
                }
            }

            impl From<$source> for ErrorPage {
                fn from(page: $source) -> Self {
                    Self::html(page)
                }
            }
        )*
    };
}

page_texts!(&'static str String Vec<u8> Bytes);

impl ErrorPage {
    /// A page of HTML in UTF-8.
    #[must_use]
    pub fn html(page: impl Into<PageText>) -> Self {
        Self { html: Some(page.into()), json: None }
    }

    /// A JSON value.
    #[must_use]
    pub fn json(value: impl Into<PageText>) -> Self {
        Self { html: None, json: Some(value.into()) }
    }

    /// The same page with a JSON value for clients that prefer JSON. A template's braces are doubled: `{{"a": 1}}`.
    #[must_use]
    pub fn and_json(mut self, value: impl Into<PageText>) -> Self {
        self.json = Some(value.into());
        self
    }

    /// The text for a request, and its media type.
    fn text_for(&self, request: &Request) -> Option<(&PageText, Format)> {
        match (&self.html, &self.json) {
            (Some(_), Some(json)) if prefers_json(request) => Some((json, Format::Json)),
            (Some(html), _) => Some((html, Format::Html)),
            (None, Some(json)) => Some((json, Format::Json)),
            (None, None) => None,
        }
    }
}

impl ErrorPages {
    /// No pages.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A page for a status; a text alone is HTML in UTF-8.
    #[must_use]
    pub fn page(mut self, status: StatusCode, page: impl Into<ErrorPage>) -> Self {
        self.pages.insert(status, page.into());
        self
    }

    /// A page for all statuses from 400 to 499 that have none of their own.
    #[must_use]
    pub fn client_errors(mut self, page: impl Into<ErrorPage>) -> Self {
        self.client_errors = Some(page.into());
        self
    }

    /// A page for all statuses from 500 to 599 that have none of their own.
    #[must_use]
    pub fn server_errors(mut self, page: impl Into<ErrorPage>) -> Self {
        self.server_errors = Some(page.into());
        self
    }

    /// Replaces the responses of upstreams as well.
    #[must_use]
    pub fn forwarded(mut self) -> Self {
        self.replaces_forwarded = true;
        self
    }

    fn page_of(&self, status: StatusCode) -> Option<&ErrorPage> {
        let of_class = || match status.as_u16() {
            400..=499 => self.client_errors.as_ref(),
            500..=599 => self.server_errors.as_ref(),
            _ => None,
        };
        self.pages.get(&status).or_else(of_class)
    }
}

impl Middleware for ErrorPages {
    fn after(&self, info: &RequestInfo, response: &mut Response) {
        if response.origin.is_upstream() && !self.replaces_forwarded {
            return;
        }
        let status = response.status_code();
        let Some(page) = self.page_of(status) else { return };
        let Some((text, format)) = page.text_for(info.request()) else { return };
        // That of a 416 has the length of the resource (RFC 9110 §15.5.17).
        let is_of_resource = |name: &str| name == "content-range" && status == StatusCode::RANGE_NOT_SATISFIABLE;
        for name in FIELDS_OF_BODY.into_iter().filter(|name| !is_of_resource(name)) {
            response.fields.remove(name);
        }
        let content_type = match format {
            Format::Html => ContentType::HTML,
            Format::Json => ContentType::JSON,
        };
        if page.html.is_some() && page.json.is_some() {
            let _ = response.add_header("Vary", "Accept");
        }
        let body = text.fill(format, &TemplateValues::new(info.request()).with_status(status));
        *response = std::mem::take(response).content_type(content_type).body(body);
        response.origin = ResponseOrigin::Here;
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Html,
    Json,
}

impl PageText {
    fn fill(&self, format: Format, values: &TemplateValues<'_>) -> Bytes {
        let template = match &self.0 {
            PageSource::Bytes(bytes) => return bytes.clone(),
            PageSource::Template(template) => template,
        };
        let mut text = Vec::with_capacity(256);
        for part in template.parts() {
            match part {
                TemplatePart::Text(literal) => text.extend_from_slice(literal.as_bytes()),
                TemplatePart::Value(value) => {
                    let mut raw = Vec::new();
                    values.write(value, &mut raw);
                    escape(&String::from_utf8_lossy(&raw), format, &mut text);
                }
            }
        }
        text.into()
    }
}

/// Adds a value so that it ends neither a string nor an attribute, and begins no element. A value has no control characters
/// but tabs.
fn escape(value: &str, format: Format, text: &mut Vec<u8>) {
    for character in value.chars() {
        let escaped = match (format, character) {
            (Format::Html, '&') => "&amp;",
            (Format::Html, '<') => "&lt;",
            (Format::Html, '>') => "&gt;",
            (Format::Html, '"') => "&quot;",
            (Format::Html, '\'') => "&#39;",
            (Format::Json, '"') => "\\\"",
            (Format::Json, '\\') => "\\\\",
            (Format::Json, '\t') => "\\t",
            _ => {
                text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                continue;
            }
        };
        text.extend_from_slice(escaped.as_bytes());
    }
}

/// Whether a client likes JSON more than HTML. One that says nothing does not.
fn prefers_json(request: &Request) -> bool {
    let lines = request.head().headers().filter(|(name, _)| name.eq_ignore_ascii_case(b"accept"));
    let ranges: Vec<_> = lines.flat_map(|(_, value)| value.split(|byte| *byte == b',')).filter_map(range).collect();
    let quality = |whole: &[u8], kind: &[u8]| {
        // The most specific range that matches decides.
        let of = |wanted: &[u8]| ranges.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, q)| *q);
        of(whole).or_else(|| of(kind)).or_else(|| of(b"*/*")).unwrap_or(0)
    };
    let json = quality(b"application/json", b"application/*").max(quality(b"application/problem+json", b""));
    json > quality(b"text/html", b"text/*")
}

/// A media range, and its quality in thousandths.
fn range(member: &[u8]) -> Option<(&[u8], u16)> {
    let mut parts = member.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    let name = parts.next().filter(|name| !name.is_empty())?;
    let quality = parts.find_map(|part| part.strip_prefix(b"q=").or_else(|| part.strip_prefix(b"Q=")));
    let thousandths = match quality {
        None => 1000,
        Some(text) => (std::str::from_utf8(text).ok()?.parse::<f32>().ok()?.clamp(0.0, 1.0) * 1000.0) as u16,
    };
    Some((name, thousandths))
}

/// The fields that are about a body (RFC 9110 §8), and not about the resource or the client.
const FIELDS_OF_BODY: [&str; 13] = [
    "accept-ranges",
    "content-digest",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-location",
    "content-md5",
    "content-range",
    "content-type",
    "digest",
    "etag",
    "last-modified",
    "repr-digest",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::tests::request;

    #[test]
    fn a_client_gets_json_if_it_prefers_that() {
        for (accept, expected) in [
            ("", false),
            ("Accept: */*\r\n", false),
            ("Accept: application/json\r\n", true),
            ("Accept: Application/JSON;q=0.5, text/html;q=0.4\r\n", true),
            ("Accept: application/json;q=0.5\r\nAccept: text/html\r\n", false),
            ("Accept: application/*, text/html;q=0.9\r\n", true),
            ("Accept: text/html, application/json\r\n", false),
            ("Accept: application/problem+json\r\n", true),
            ("Accept: text/html;q=0, */*\r\n", true),
            ("Accept: application/json;q=x, ;, text/*\r\n", false),
            ("Accept: application/json;q=NaN\r\n", false),
        ] {
            assert_eq!(prefers_json(&request("GET", "/", accept)), expected, "{accept}");
        }
    }

    #[test]
    fn fields_of_the_old_body_are_removed() {
        let pages = ErrorPages::new().server_errors(ErrorPage::html("sorry")).forwarded();
        let mut response = Response::status(StatusCode::BAD_GATEWAY);
        for name in ["Digest", "Content-Digest", "Repr-Digest", "Content-MD5", "ETag", "X"] {
            response.add_header(name, "a").unwrap();
        }
        let request = request("GET", "/", "");
        pages.after(&RequestInfo::of(&request, std::time::Instant::now(), None), &mut response);
        let names: Vec<_> = response.fields.iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
        assert_eq!(names, [b"x"]);
    }

    #[test]
    fn a_416_keeps_the_length_of_the_resource() {
        let pages = ErrorPages::new().client_errors("no");
        let request = request("GET", "/", "");
        for (status, stays) in [(StatusCode::RANGE_NOT_SATISFIABLE, true), (StatusCode::NOT_FOUND, false)] {
            let mut response = Response::status(status).header("Content-Range", "bytes */7").unwrap();
            pages.after(&RequestInfo::of(&request, std::time::Instant::now(), None), &mut response);
            assert_eq!(response.field("content-range").is_some(), stays, "{status}");
        }
    }

    #[test]
    fn a_value_adds_no_element_and_ends_no_string() {
        let request = request("GET", "/", "X: <b a='\"'>&\\\t\r\n");
        let values = TemplateValues::new(&request);
        let page = PageText::from(Template::parse("[{request.header.X}]").unwrap());
        assert_eq!(page.fill(Format::Html, &values), "[&lt;b a=&#39;&quot;&#39;&gt;&amp;\\]".as_bytes());
        assert_eq!(page.fill(Format::Json, &values), "[<b a='\\\"'>&\\\\]".as_bytes());
    }
}
