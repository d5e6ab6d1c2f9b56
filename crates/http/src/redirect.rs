//! `Redirect` and `FixedResponse`: functions that answer without looking further than the head of the request.
//!
//! The values in a `Location` come from a client. So they are encoded (RFC 3986 §2.1), and none can be, or change, the host:
//! a browser takes `//evil.example` for a host, and `\` for a slash.

use std::fmt;
use std::rc::Rc;

use bytes::Bytes;
use http::StatusCode;
use tidegate_http1::{Fields, InvalidField};

use crate::edit::Edit;
use crate::endpoint::{Call, Endpoint, RequestFunction};
use crate::extract::BodyUse;
use crate::request::Request;
use crate::response::Response;
use crate::template::{FixedPlaceholder, Placeholder, Template, TemplatePart, TemplateValues};

/// Redirects to another URL: a function for a [`Router`](crate::Router).
///
/// ```
/// use tidegate::http::{Redirect, Router, StatusCode, Template};
///
/// let to_https = Template::parse("https://{request.hostname}{request.target}")?;
/// let router = Router::new().fallback(Redirect::new(StatusCode::PERMANENT_REDIRECT, to_https)?);
/// # drop(router);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Redirect {
    status: StatusCode,
    location: Template,
}

/// Why a [`Redirect`] cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidRedirect {
    /// The status is none of 301, 302, 303, 307 and 308.
    Status,
    /// The location is empty, or has bytes that no URL has.
    Location,
    /// A client would choose the host: a location begins with `/`, with a scheme and a host, with `{request.path}` or with
    /// `{request.target}`, and the only placeholders in its host are `{request.host}` and `{request.hostname}`.
    OpenHost,
    /// A placeholder has a value in responses only.
    NeedsResponse,
}

impl fmt::Display for InvalidRedirect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Status => "the status of a redirect is 301, 302, 303, 307 or 308",
            Self::Location => "the location of a redirect is a URL",
            Self::OpenHost => {
                "a client would choose the host of this location: begin it with `/`, `https://HOST/`, `{request.path}` or \
                 `{request.target}`; in HOST only `{request.host}` and `{request.hostname}` are allowed"
            }
            Self::NeedsResponse => "a redirect has no upstream and no status of another response",
        })
    }
}

impl std::error::Error for InvalidRedirect {}

impl Redirect {
    /// A redirection to a location.
    ///
    /// # Errors
    /// [`InvalidRedirect`].
    pub fn new(status: StatusCode, location: Template) -> Result<Self, InvalidRedirect> {
        if !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
            return Err(InvalidRedirect::Status);
        }
        if location.needs_response() {
            return Err(InvalidRedirect::NeedsResponse);
        }
        check_location(&location)?;
        Ok(Self { status, location })
    }

    /// The response to a request.
    #[must_use]
    pub fn response(&self, request: &Request) -> Response {
        let values = TemplateValues::new(request);
        let mut location = Vec::with_capacity(64);
        for part in self.location.parts() {
            match part {
                TemplatePart::Text(text) => location.extend_from_slice(text.as_bytes()),
                TemplatePart::Value(value) => {
                    let mut raw = Vec::new();
                    values.write(value, &mut raw);
                    encode(&raw, &mut location);
                }
            }
        }
        let begins_with_host =
            matches!(self.location.parts(), [TemplatePart::Text(text), ..] if text.starts_with("//"));
        if !begins_with_host && location.starts_with(b"//") {
            // A value has added a slash: this is a path, and no host.
            let slashes = location.iter().take_while(|byte| **byte == b'/').count();
            location.drain(..slashes - 1);
        }
        let mut response = Response::status(self.status);
        // The parts are checked or encoded.
        let _ = response.add_header("Location", location);
        response
    }
}

/// Whether a client can choose nothing but the path of a location, and perhaps the host by the host of its own request.
fn check_location(location: &Template) -> Result<(), InvalidRedirect> {
    let is_url = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte));
    let parts = location.parts();
    let texts = parts.iter().filter_map(|part| match part {
        TemplatePart::Text(text) => Some(&**text),
        TemplatePart::Value(_) => None,
    });
    if parts.is_empty() || !texts.clone().all(is_url) {
        return Err(InvalidRedirect::Location);
    }
    let is = |part: &TemplatePart, allowed: &[FixedPlaceholder]| match part {
        TemplatePart::Value(Placeholder::Fixed(fixed)) => allowed.contains(fixed),
        _ => false,
    };
    // Both begin with a slash.
    let is_path = |part: &TemplatePart| is(part, &[FixedPlaceholder::Path, FixedPlaceholder::Target]);
    // The text of the location, with a mark for each value, to find where its host ends.
    let mut rest = parts;
    match parts {
        [first, ..] if is_path(first) => return Ok(()),
        [TemplatePart::Text(text), ..] if text.starts_with('/') && !text.starts_with("//") => return Ok(()),
        [first, TemplatePart::Text(text), ..] if is(first, &[FixedPlaceholder::Scheme]) && text.starts_with("://") => {
            rest = &rest[1..];
        }
        [TemplatePart::Text(text), ..] if text.starts_with("//") || is_absolute(text) => {}
        _ => return Err(InvalidRedirect::OpenHost),
    }
    let mut host = false;
    for (place, part) in rest.iter().enumerate() {
        match part {
            TemplatePart::Text(text) => {
                let text = if place == 0 { text.split_once("//").map_or("", |(_, after)| after) } else { text };
                host |= !text.is_empty() && !text.starts_with('/');
                if text.contains(['/', '?', '#']) {
                    break;
                }
            }
            part if is_path(part) => break,
            part if is(part, &[FixedPlaceholder::Host, FixedPlaceholder::Hostname]) => host = true,
            TemplatePart::Value(_) => return Err(InvalidRedirect::OpenHost),
        }
    }
    if host { Ok(()) } else { Err(InvalidRedirect::Location) }
}

/// Whether a text begins with a scheme and a host.
fn is_absolute(text: &str) -> bool {
    let is_scheme = |scheme: &str| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    };
    text.split_once("://").is_some_and(|(scheme, _)| is_scheme(scheme))
}

/// Adds a value to a URL. Escapes that it has stay.
fn encode(value: &[u8], url: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in value {
        if byte.is_ascii_graphic() && !b"\"#<>\\^`{|}".contains(&byte) {
            url.push(byte);
        } else {
            url.extend_from_slice(&[b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
    }
}

/// Answers each request with the same response: a function for a [`Router`](crate::Router).
///
/// ```
/// use tidegate::http::{Edit, FixedResponse, Router, StatusCode};
///
/// let robots = FixedResponse::new(StatusCode::OK)
///     .content_type("text/plain; charset=utf-8")?
///     .edit(&Edit::set("Cache-Control", "max-age=3600")?)
///     .body("User-agent: *\nDisallow: /\n");
/// let router = Router::new().any("/robots.txt", robots);
/// # drop(router);
/// # Ok::<(), tidegate::http::InvalidField>(())
/// ```
#[derive(Debug, Clone)]
pub struct FixedResponse {
    status: StatusCode,
    fields: Fields,
    edits: Vec<Edit>,
    body: Bytes,
}

impl FixedResponse {
    /// A response without fields and body.
    #[must_use]
    pub fn new(status: StatusCode) -> Self {
        Self { status, fields: Fields::new(), edits: Vec::new(), body: Bytes::new() }
    }

    /// The media type of the body.
    ///
    /// # Errors
    /// [`InvalidField::Value`] if it has control characters.
    pub fn content_type(mut self, media_type: &str) -> Result<Self, InvalidField> {
        self.fields.remove("content-type");
        self.fields.push("Content-Type", media_type)?;
        Ok(self)
    }

    /// A field, whose value may be a template.
    #[must_use]
    pub fn edit(mut self, edit: &Edit) -> Self {
        self.edits.push(edit.clone());
        self
    }

    /// The body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    fn response(&self, request: &Request) -> Response {
        let mut fields = self.fields.clone();
        for edit in &self.edits {
            edit.add_to(&mut fields, || TemplateValues::new(request).with_status(self.status));
        }
        Response::status(self.status).fields(fields).body(self.body.clone())
    }
}

/// Marks a [`Redirect`] or a [`FixedResponse`] as a function.
#[derive(Debug)]
pub struct ResponseFunction;

impl<S> RequestFunction<S, ResponseFunction> for Redirect {
    fn into_endpoint(self, _: Rc<S>) -> Endpoint {
        Endpoint::new(Call::Sync(Box::new(move |request| self.response(&request))), BodyUse::Unused)
    }
}

impl<S> RequestFunction<S, ResponseFunction> for FixedResponse {
    fn into_endpoint(self, _: Rc<S>) -> Endpoint {
        Endpoint::new(Call::Sync(Box::new(move |request| self.response(&request))), BodyUse::Unused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::tests::request;

    fn redirect(location: &str) -> Result<Redirect, InvalidRedirect> {
        Redirect::new(StatusCode::FOUND, Template::parse(location).unwrap())
    }

    fn location(template: &str, target: &str) -> String {
        let response = redirect(template).unwrap().response(&request("GET", target, "X-A: a b\"\r\n"));
        String::from_utf8(response.field("location").unwrap().to_vec()).unwrap()
    }

    #[test]
    fn a_location_has_the_values_of_the_request_encoded() {
        for (template, target, expected) in [
            ("https://{request.hostname}{request.target}", "/a?b=c", "https://sea/a?b=c"),
            ("https://{request.hostname}:8443{request.path}", "/", "https://sea:8443/"),
            ("{request.scheme}://www.{request.host}/x", "/a", "http://www.sea/x"),
            ("/new{request.path}", "/a%20b", "/new/a%20b"),
            ("/find?q={request.header.X-A}", "/", "/find?q=a%20b%22"),
            ("//cdn.example{request.path}", "//a", "//cdn.example//a"),
            ("/", "/a", "/"),
        ] {
            assert_eq!(location(template, target), expected, "{template} {target}");
        }
    }

    #[test]
    fn a_value_cannot_become_the_host() {
        for (template, target, expected) in [
            ("{request.path}", "//evil.example/", "/evil.example/"),
            ("{request.target}", "///evil.example", "/evil.example"),
            ("{request.path}", "/\\evil.example", "/%5Cevil.example"),
            ("/{request.query}", "/?/evil.example", "/evil.example"),
            ("/{request.query}", "/?\\evil.example", "/%5Cevil.example"),
        ] {
            assert_eq!(location(template, target), expected, "{template} {target}");
        }
        for template in [
            "{request.query}",
            "{request.header.X}",
            "{request.scheme}{request.header.X}",
            "https://{request.query}/",
            "https://example.org{request.query}",
            "https://example.org{request.header.X}/",
            "//{request.param.x}/",
            "{request.host}/a",
            "example.org/a",
        ] {
            assert_eq!(redirect(template).unwrap_err(), InvalidRedirect::OpenHost, "{template}");
        }
    }

    #[test]
    fn a_redirect_has_a_status_and_a_location_that_browsers_follow() {
        for template in ["", "/a b", "/a\r\nX: 1", "https:///a", "https://{request.scheme}", "/{{"] {
            assert!(redirect(template).is_err(), "{template}");
        }
        assert_eq!(redirect("/{response.status}").unwrap_err(), InvalidRedirect::NeedsResponse);
        let ok = Redirect::new(StatusCode::OK, Template::literal("/"));
        assert_eq!(ok.unwrap_err(), InvalidRedirect::Status);
    }
}
