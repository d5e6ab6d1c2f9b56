//! `Template`: a text with placeholders for parts of a request, such as `{client.ip}`.
//!
//! A template is parsed once, and a placeholder that is not known is an error then: none is ever sent literally. The values
//! come from a client, so none of them can end a line: a control character becomes `_`.

mod error;
mod placeholder;
mod values;

use std::fmt;
use std::str::FromStr;

pub use self::error::InvalidTemplate;
use self::error::TemplateFault;
pub(crate) use self::placeholder::{FixedPlaceholder, Placeholder};
pub use self::values::TemplateValues;

/// A text with placeholders, of which each request has its own values.
///
/// | placeholder | value |
/// |---|---|
/// | `{client.ip}`, `{client.port}` | address of the client, behind [trusted](TemplateValues::trusting) proxies the one that they name; its port, if it is the peer |
/// | `{peer.ip}`, `{peer.port}` | address and port of the peer, as a trusted PROXY header reports it |
/// | `{request.method}`, `{request.scheme}` | as `GET`; `http` or `https` |
/// | `{request.host}`, `{request.hostname}` | the host that the request names, with its port and without |
/// | `{request.path}`, `{request.query}`, `{request.target}` | as they were sent; the query without its `?`; path, `?` and query |
/// | `{request.header.NAME}` | the first field of this name |
/// | `{request.cookie.NAME}` | the first cookie of this name |
/// | `{request.param.NAME}` | a parameter of the route, as it was sent |
/// | `{request.id}` | the [`RequestId`](crate::RequestId) |
/// | `{upstream.address}` | in responses: the upstream that has answered |
/// | `{response.status}` | in responses: as `404` |
/// | `{tls.version}`, `{tls.cipher}`, `{tls.sni}` | of the TLS connection, as `TLSv1.3`; the name that the client has requested |
/// | `{tls.client.subject}`, `{tls.client.san}` | of the client's certificate: its [subject](crate::TlsInfo::client_subject), its [alternative names](crate::TlsInfo::client_alternative_names) |
///
/// A value that a request does not have is empty. `{{` and `}}` stand for braces. Those of TLS need
/// [`TlsInfos`](crate::TlsInfos) in the router.
///
/// ```
/// use tidegate::http::Template;
///
/// let template = Template::parse("{request.scheme}://{request.hostname}:8443{request.target}")?;
/// assert!(!template.is_constant());
/// let error = Template::parse("for={client.addr}").unwrap_err();
/// assert_eq!(error.to_string(), "`{client.addr}` at byte 4 is no placeholder; did you mean `{client.ip}`?");
/// # Ok::<(), tidegate::http::InvalidTemplate>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    parts: Box<[TemplatePart]>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TemplatePart {
    Text(Box<str>),
    Value(Placeholder),
}

impl Template {
    /// Parses a text with placeholders.
    ///
    /// # Errors
    /// [`InvalidTemplate`], with the place: a placeholder that is not known, a brace without its other one, or more than
    /// [`PLACEHOLDERS_MAX`](Self::PLACEHOLDERS_MAX) placeholders.
    pub fn parse(text: &str) -> Result<Self, InvalidTemplate> {
        let (mut parts, mut literal, mut placeholders) = (Vec::new(), String::new(), 0);
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            let place = text.len() - rest.len() + at;
            literal.push_str(&rest[..at]);
            let (brace, after) = rest[at..].split_at(1);
            if let Some(after) = after.strip_prefix(brace) {
                literal.push_str(brace);
                rest = after;
                continue;
            }
            if brace == "}" {
                return Err(InvalidTemplate::new(place, TemplateFault::Unopened));
            }
            let (name, after) =
                after.split_once('}').ok_or_else(|| InvalidTemplate::new(place, TemplateFault::Unclosed))?;
            let value = Placeholder::parse(name).map_err(|fault| InvalidTemplate::new(place, fault))?;
            placeholders += 1;
            if placeholders > Self::PLACEHOLDERS_MAX {
                return Err(InvalidTemplate::new(place, TemplateFault::TooMany));
            }
            if !literal.is_empty() {
                parts.push(TemplatePart::Text(std::mem::take(&mut literal).into()));
            }
            parts.push(TemplatePart::Value(value));
            rest = after;
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            parts.push(TemplatePart::Text(literal.into()));
        }
        Ok(Self { parts: parts.into() })
    }

    /// A text as it is, braces included.
    #[must_use]
    pub fn literal(text: &str) -> Self {
        let parts =
            if text.is_empty() { Box::default() } else { Box::new([TemplatePart::Text(text.into())]) as Box<_> };
        Self { parts }
    }

    /// How many placeholders a template may have.
    pub const PLACEHOLDERS_MAX: usize = 32;

    /// How many bytes of a value are written at most: the rest of a longer one is left out.
    pub const VALUE_BYTES_MAX: usize = 8 * 1024;

    /// Whether it has no placeholder.
    #[must_use]
    pub fn is_constant(&self) -> bool {
        self.parts.iter().all(|part| matches!(part, TemplatePart::Text(_)))
    }

    /// Whether a placeholder has a value in responses only.
    #[must_use]
    pub fn needs_response(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, TemplatePart::Value(value) if value.needs_response()))
    }

    /// Whether two requests for one URL may have different texts: a placeholder is a part of the request beside its URL.
    #[must_use]
    pub fn reads_client(&self) -> bool {
        let is_of_client = |value: &Placeholder| !value.is_of_url() && !value.needs_response();
        self.parts.iter().any(|part| matches!(part, TemplatePart::Value(value) if is_of_client(value)))
    }

    /// Whether a placeholder is a parameter of the TLS connection, which [`TlsInfos`](crate::TlsInfos) has to read.
    #[must_use]
    pub fn reads_tls(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, TemplatePart::Value(value) if value.reads_tls()))
    }

    /// The text for a request. No byte of a value is a control character.
    #[must_use]
    pub fn fill(&self, values: &TemplateValues<'_>) -> Vec<u8> {
        let mut text = Vec::with_capacity(64);
        self.write_to(&mut text, values);
        text
    }

    /// Adds the text for a request to others.
    pub fn write_to(&self, text: &mut Vec<u8>, values: &TemplateValues<'_>) {
        for part in &self.parts {
            match part {
                TemplatePart::Text(literal) => text.extend_from_slice(literal.as_bytes()),
                TemplatePart::Value(value) => values.write(value, text),
            }
        }
    }

    pub(crate) fn parts(&self) -> &[TemplatePart] {
        &self.parts
    }
}

impl FromStr for Template {
    type Err = InvalidTemplate;

    fn from_str(text: &str) -> Result<Self, InvalidTemplate> {
        Self::parse(text)
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts.iter().try_for_each(|part| match part {
            TemplatePart::Text(text) => f.write_str(&text.replace('{', "{{").replace('}', "}}")),
            TemplatePart::Value(value) => write!(f, "{{{value}}}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;
    use crate::middleware::RequestIds;
    use crate::request::tests::request;
    use crate::{Middleware, TrustedProxies};

    fn filled(template: &str, values: &TemplateValues<'_>) -> String {
        String::from_utf8(Template::parse(template).unwrap().fill(values)).unwrap()
    }

    #[test]
    fn each_placeholder_has_its_value() {
        let lines = "X-A: 1\r\nX-A: 2\r\nCookie: a=b; sid=\"7\"\r\nCookie: sid=8\r\n";
        let mut request = request("PUT", "/a%20b?c=%2F", lines);
        RequestIds::new().before(&mut request).unwrap();
        let id = request.extensions().get::<crate::RequestId>().unwrap().to_string();
        let values = TemplateValues::new(&request).with_upstream("10.0.0.1:80").with_status(StatusCode::NOT_FOUND);
        for (template, expected) in [
            ("", ""),
            ("a", "a"),
            ("{client.ip}", "192.0.2.1"),
            ("{client.port}", "50000"),
            ("{peer.ip}:{peer.port}", "192.0.2.1:50000"),
            ("{request.method}", "PUT"),
            ("{request.scheme}", "http"),
            ("{request.host}|{request.hostname}", "sea|sea"),
            ("{request.path}|{request.query}|{request.target}", "/a%20b|c=%2F|/a%20b?c=%2F"),
            ("{request.header.x-a}", "1"),
            ("{request.header.X-B}", ""),
            ("{request.cookie.sid}", "7"),
            ("{request.cookie.SID}", ""),
            ("{request.param.x}", ""),
            ("{request.id}", &id),
            ("<{upstream.address}>", "<10.0.0.1:80>"),
            ("{response.status}", "404"),
            ("{tls.version}{tls.cipher}{tls.sni}{tls.client.subject}{tls.client.san}", ""),
            ("{{{request.method}}}", "{PUT}"),
            ("{{client.ip}}", "{client.ip}"),
        ] {
            assert_eq!(filled(template, &values), expected, "{template}");
            assert_eq!(Template::parse(template).unwrap().to_string().to_lowercase(), template.to_lowercase());
        }
    }

    #[test]
    fn a_host_loses_its_port_and_keeps_the_brackets_of_an_address() {
        for (host, expected) in [("a.example:81", "a.example"), ("[::1]:81", "[::1]"), ("[::1]", "[::1]"), ("a", "a")] {
            let request = crate::request::tests::request_to(host, "GET", "/", "");
            assert_eq!(filled("{request.hostname}", &TemplateValues::new(&request)), expected, "{host}");
        }
    }

    #[test]
    fn the_client_is_the_one_that_a_trusted_proxy_names() {
        let request = request("GET", "/", "X-Forwarded-For: 198.51.100.7\r\n");
        let trusted = TrustedProxies::new("192.0.2.0/24".parse().unwrap());
        let values = TemplateValues::new(&request).trusting(&trusted);
        assert_eq!(filled("{client.ip}:{client.port}", &values), "198.51.100.7:");
        assert_eq!(filled("{peer.ip}:{peer.port}", &values), "192.0.2.1:50000");
        let none = TrustedProxies::default();
        assert_eq!(filled("{client.ip}", &TemplateValues::new(&request).trusting(&none)), "192.0.2.1");
    }

    #[test]
    fn no_value_ends_a_line_or_is_longer_than_its_limit() {
        let long = "x".repeat(Template::VALUE_BYTES_MAX + 1);
        let request = request("GET", "/", &format!("X-Long: {long}\r\nX-Tab: a\tb\r\n"));
        let values = TemplateValues::new(&request).with_upstream("a\r\nSet-Cookie: b\0\u{7f}");
        assert_eq!(filled("{upstream.address}", &values), "a__Set-Cookie: b__");
        assert_eq!(filled("{request.header.X-Tab}", &values), "a\tb");
        assert_eq!(filled("{request.header.X-Long}", &values).len(), Template::VALUE_BYTES_MAX);
    }

    #[test]
    fn a_mistake_has_its_place_and_the_name_that_was_meant() {
        for (template, expected) in [
            ("a{client.pi}", "`{client.pi}` at byte 1 is no placeholder; did you mean `{client.ip}`?"),
            (
                "{request.headers.X-A}",
                "`{request.headers.X-A}` at byte 0 is no placeholder; did you mean `{request.header.X-A}`?",
            ),
            ("{host}", "`{host}` at byte 0 is no placeholder; did you mean `{request.host}`?"),
            ("{}", "`{}` at byte 0 is no placeholder; write `{{` for a brace"),
            ("{ client.ip }", "`{ client.ip }` at byte 0 is no placeholder; did you mean `{client.ip}`?"),
            ("{request.header.}", "`{request.header.}` at byte 0 lacks a name behind the last dot"),
            ("{request.header.a b}", "`{request.header.a b}` at byte 0 has a name that no field has"),
            ("é{", "the `{` at byte 2 has no `}`; write `{{` for a brace"),
            ("a}", "the `}` at byte 1 has no `{`; write `}}` for a brace"),
        ] {
            assert_eq!(Template::parse(template).unwrap_err().to_string(), expected);
        }
        let many = "{client.ip}".repeat(Template::PLACEHOLDERS_MAX + 1);
        assert!(Template::parse(&many).is_err() && Template::parse(&many[11..]).is_ok());
    }
}
