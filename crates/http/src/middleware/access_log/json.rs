//! A line of JSON (RFC 8259): the members that are known with the head of the response, and then those of its end.

use std::borrow::Cow;
use std::io::Write as _;
use std::time::Duration;

use http::Extensions;
use tidegate_http_message::TraceContext;

use super::super::RefusedRequest;
use super::facts::{LateFacts, LoggedExchange};
use super::text;
use crate::client_address::ClientAddress;
use crate::exchange_note::EndCause;
use crate::request::Request;
use crate::request_id::RequestId;
use crate::tls_info::TlsInfo;

/// Adds the line without its end.
pub(super) fn begin(line: &mut Vec<u8>, exchange: &LoggedExchange<'_>) {
    let LoggedExchange { request, status, elapsed, facts, .. } = exchange;
    let named = Named::of(request);
    line.reserve(LINE_BYTES);
    line.extend_from_slice(b"{\"time\":\"");
    text::with_http_time(|time| line.extend_from_slice(time.as_bytes()));
    line.extend_from_slice(b"\",\"peer\":\"");
    match request.peer().ip() {
        Some(peer) => text::push_ip(line, peer.ip()),
        None => line.push(b'-'),
    }
    line.push(b'"');
    let mut object = Object { line };
    if let Some(client) = exchange.named_client() {
        object.client(client);
    }
    object.plain(",\"method\":\"", request.head().method_text().as_bytes());
    object.bytes(",\"target\":\"", target(request.target_bytes()).as_bytes());
    object.bytes(",\"host\":\"", named.host);
    object.plain(",\"version\":\"", text::version(request.version()).as_bytes());
    object.number(",\"status\":", u64::from(*status));
    object.number(",\"microseconds\":", micros(*elapsed));
    for (name, value) in [(",\"referer\":\"", named.referer), (",\"user_agent\":\"", named.user_agent)] {
        if let Some(value) = value {
            object.bytes(name, value);
        }
    }
    if let Some(route) = request.route() {
        object.bytes(",\"route\":\"", route.as_bytes());
    }
    if let Some(facts) = facts
        && let Some(upstream) = &facts.upstream
    {
        object.bytes(",\"upstream\":\"", upstream.as_bytes());
    }
    match (request.id(), named.request_id) {
        (Some(id), _) => object.plain(",\"request_id\":\"", id.as_str().as_bytes()),
        (None, Some(id)) => object.bytes(",\"request_id\":\"", id),
        (None, None) => {}
    }
    if let Some(extensions) = request.made_extensions() {
        object.extensions(extensions);
    }
}

/// The fields that a line has, found in one pass.
struct Named<'a> {
    host: &'a [u8],
    referer: Option<&'a [u8]>,
    user_agent: Option<&'a [u8]>,
    request_id: Option<&'a [u8]>,
}

impl<'a> Named<'a> {
    fn of(request: &'a Request) -> Self {
        let (mut host, mut referer, mut user_agent, mut request_id) = (None, None, None, None);
        for (name, value) in request.head().headers() {
            let place = match name.len() {
                4 if name.eq_ignore_ascii_case(b"host") => &mut host,
                7 if name.eq_ignore_ascii_case(b"referer") => &mut referer,
                10 if name.eq_ignore_ascii_case(b"user-agent") => &mut user_agent,
                12 if name.eq_ignore_ascii_case(RequestId::FIELD.as_bytes()) => &mut request_id,
                _ => continue,
            };
            place.get_or_insert(value);
        }
        let host = match request.target_bytes().first() {
            Some(b'/') => host.unwrap_or_default(),
            _ => request.host().as_bytes(),
        };
        Self { host, referer, user_agent, request_id }
    }
}

/// The end of the line.
pub(super) fn end(line: &mut Vec<u8>, late: &LateFacts) {
    let mut object = Object { line };
    object.optional(",\"bytes\":", late.sent);
    object.optional(",\"received\":", late.received);
    if late.is_later {
        object.number(",\"total_microseconds\":", micros(late.total));
    }
    if late.attempts > 0 {
        object.optional(",\"upstream_status\":", late.upstream_status.map(u64::from));
        object.optional(",\"upstream_head_us\":", late.head_time.map(micros));
        object.optional(",\"upstream_whole_us\":", late.whole_time.map(micros));
        object.optional(",\"retries\":", late.attempts.checked_sub(1).filter(|retries| *retries > 0).map(u64::from));
    }
    if let Some(error) = &late.upstream_error {
        object.bytes(",\"upstream_error\":\"", error.as_bytes());
    }
    if let Some(cache) = &late.cache {
        object.bytes(",\"cache\":\"", cache.as_bytes());
    }
    if late.end != EndCause::Done {
        object.bytes(",\"end\":\"", late.end.name().as_bytes());
    }
    line.push(b'}');
}

/// The line of a request that the codec has refused: its first line is that of the request, as it came.
pub(super) fn refused(request: &RefusedRequest) -> Vec<u8> {
    let mut line = Vec::with_capacity(256);
    line.extend_from_slice(b"{\"time\":\"");
    text::with_http_time(|time| line.extend_from_slice(time.as_bytes()));
    line.push(b'"');
    let mut object = Object { line: &mut line };
    let peer = request.peer.ip().map_or_else(|| "-".to_owned(), |peer| peer.ip().to_string());
    object.bytes(",\"peer\":\"", peer.as_bytes());
    if request.client == ClientAddress::Unknown {
        object.client(request.client);
    }
    object.bytes(",\"line\":\"", &request.line);
    object.number(",\"status\":", request.status.as_u16().into());
    object.bytes(",\"refused\":\"", request.reason.as_bytes());
    object.bytes(",\"end\":\"", EndCause::Refused.name().as_bytes());
    line.push(b'}');
    line
}

/// A target as text: bytes that are not UTF-8 are percent-encoded, as a client should have sent them (RFC 3986 §2.1).
pub(super) fn target(bytes: &[u8]) -> Cow<'_, str> {
    use std::fmt::Write as _;

    if let Ok(text) = std::str::from_utf8(bytes) {
        return text.into();
    }
    let mut text = String::with_capacity(bytes.len() + 16);
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text.into()
}

fn micros(took: Duration) -> u64 {
    u64::try_from(took.as_micros()).unwrap_or(u64::MAX)
}

/// An object, member by member, behind its first one.
pub(super) struct Object<'a> {
    pub(super) line: &'a mut Vec<u8>,
}

impl Object<'_> {
    /// `start` stands before the number.
    pub(super) fn number(&mut self, start: &str, number: u64) {
        self.line.extend_from_slice(start.as_bytes());
        text::push_number(self.line, number);
    }

    /// The ids of the trace, and the parameters of the TLS connection.
    fn extensions(&mut self, extensions: &Extensions) {
        if let Some(context) = extensions.get::<TraceContext>() {
            self.trace(context);
            if let Some(parent) = context.parent_id() {
                self.plain(",\"parent_id\":\"", parent.as_bytes());
            }
        }
        if let Some(tls) = extensions.get::<TlsInfo>() {
            self.bytes(",\"tls_version\":\"", tls.version().as_bytes());
            self.bytes(",\"tls_cipher\":\"", tls.cipher().as_bytes());
            if let Some(name) = tls.server_name() {
                self.bytes(",\"server_name\":\"", name.as_bytes());
            }
            let subject = (",\"tls_client_subject\":\"", tls.client_subject());
            for (name, value) in [subject, (",\"tls_client_san\":\"", tls.client_alternative_names())] {
                if let Some(value) = value.filter(|value| !value.is_empty()) {
                    self.bytes(name, value.as_bytes());
                }
            }
        }
    }

    pub(super) fn trace(&mut self, context: &TraceContext) {
        self.plain(",\"trace_id\":\"", context.trace_id().as_bytes());
        self.plain(",\"span_id\":\"", context.span_id().as_bytes());
    }

    fn client(&mut self, client: ClientAddress) {
        self.line.extend_from_slice(b",\"client\":\"");
        match client.ip() {
            Some(ip) => text::push_ip(self.line, ip),
            None => self.line.push(b'-'),
        }
        self.line.push(b'"');
    }

    pub(super) fn optional(&mut self, start: &str, number: Option<u64>) {
        if let Some(number) = number {
            self.number(start, number);
        }
    }

    /// `start` is all before the text, its opening quote included.
    pub(super) fn bytes(&mut self, start: &str, bytes: &[u8]) {
        if text::is_plain(bytes) {
            return self.plain(start, bytes);
        }
        self.line.extend_from_slice(start.as_bytes());
        self.escape(&String::from_utf8_lossy(bytes));
        self.line.push(b'"');
    }

    /// A text that has no byte to be escaped.
    pub(super) fn plain(&mut self, start: &str, bytes: &[u8]) {
        for piece in [start.as_bytes(), bytes, b"\""] {
            self.line.extend_from_slice(piece);
        }
    }

    fn escape(&mut self, text: &str) {
        for letter in text.chars() {
            match letter {
                '"' | '\\' => self.line.extend_from_slice(&[b'\\', letter as u8]),
                // Terminals obey the second range too (C1), and some readers end a line at the third.
                '\0'..='\x1f' | '\x7f'..='\u{9f}' | '\u{2028}' | '\u{2029}' => {
                    let _ = write!(self.line, "\\u{:04x}", u32::from(letter));
                }
                _ => self.line.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
    }
}

/// Room for most lines.
const LINE_BYTES: usize = 768;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_that_is_not_utf_8_does_not_end_the_target() {
        assert_eq!(target(b"/a?b=\xff\xfec"), "/a?b=%FF%FEc");
        assert_eq!(target("/ü".as_bytes()), "/ü");
    }

    #[test]
    fn text_of_a_peer_cannot_end_its_string_or_the_line() {
        let mut line = b"{\"z\":0".to_vec();
        let mut object = Object { line: &mut line };
        object.bytes(",\"a\":\"", "q\"\\\n\u{7f}\u{9b}\u{2028}ü".as_bytes());
        object.number(",\"b\":", 7);
        assert_eq!(String::from_utf8(line).unwrap(), r#"{"z":0,"a":"q\"\\\u000a\u007f\u009b\u2028ü","b":7"#);
    }
}
