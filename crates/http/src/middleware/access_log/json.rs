//! A line of JSON (RFC 8259): the members that are known with the head of the response, and then those of its end.

use std::fmt::Write as _;
use std::time::Duration;

use tidegate_http_message::TraceContext;

use super::super::{RefusedRequest, RequestId};
use super::facts::{LateFacts, LoggedExchange};
use super::text;
use crate::exchange_note::EndCause;
use crate::tls_info::TlsInfo;

/// The line without its end.
pub(super) fn begin(exchange: &LoggedExchange<'_>) -> String {
    let mut line = String::with_capacity(512);
    let LoggedExchange { request, status, elapsed, facts, .. } = exchange;
    line.push_str("{\"time\":\"");
    text::push_http_time(&mut line);
    line.push_str("\",\"peer\":\"");
    match request.peer().ip() {
        Some(peer) => _ = write!(line, "{}", peer.ip()),
        None => line.push('-'),
    }
    line.push('"');
    let mut object = Object { line: &mut line };
    object.text("method", request.method().as_str());
    object.text("target", request.target());
    object.text("host", request.host());
    object.text("version", text::version(request.version()));
    object.number("status", u64::from(*status));
    object.number("microseconds", micros(*elapsed));
    for (name, field) in [("referer", "referer"), ("user_agent", "user-agent")] {
        if let Some(value) = request.header(field) {
            object.text(name, &String::from_utf8_lossy(value));
        }
    }
    if let Some(route) = request.route() {
        object.text("route", route);
    }
    if let Some(facts) = facts
        && let Some(upstream) = &facts.upstream
    {
        object.text("upstream", upstream);
    }
    let extensions = request.extensions();
    match extensions.get::<RequestId>() {
        Some(id) => object.text("request_id", id.as_str()),
        None => {
            if let Some(id) = request.header(RequestId::FIELD) {
                object.text("request_id", &String::from_utf8_lossy(id));
            }
        }
    }
    if let Some(context) = extensions.get::<TraceContext>() {
        object.text("trace_id", &context.trace_id());
        object.text("span_id", &context.span_id());
        if let Some(parent) = context.parent_id() {
            object.text("parent_id", &parent);
        }
    }
    if let Some(tls) = extensions.get::<TlsInfo>() {
        object.text("tls_version", tls.version());
        object.text("tls_cipher", tls.cipher());
        if let Some(name) = tls.server_name() {
            object.text("server_name", name);
        }
    }
    line
}

/// The end of the line.
pub(super) fn end(line: &mut String, late: &LateFacts) {
    let mut object = Object { line };
    object.optional("bytes", late.sent);
    object.optional("received", late.received);
    if late.is_later {
        object.number("total_microseconds", micros(late.total));
    }
    if late.attempts > 0 {
        object.optional("upstream_status", late.upstream_status.map(u64::from));
        object.optional("upstream_head_us", late.head_time.map(micros));
        object.optional("upstream_whole_us", late.whole_time.map(micros));
        object.optional("retries", late.attempts.checked_sub(1).filter(|retries| *retries > 0).map(u64::from));
    }
    if let Some(error) = &late.upstream_error {
        object.text("upstream_error", error);
    }
    if let Some(cache) = &late.cache {
        object.text("cache", cache);
    }
    if late.end != EndCause::Done {
        object.text("end", late.end.name());
    }
    line.push('}');
}

/// The line of a request that the codec has refused: its first line is that of the request, as it came.
pub(super) fn refused(request: &RefusedRequest) -> String {
    let mut line = String::with_capacity(256);
    line.push_str("{\"time\":\"");
    text::push_http_time(&mut line);
    line.push('"');
    let mut object = Object { line: &mut line };
    let peer = request.peer.ip().map_or_else(|| "-".to_owned(), |peer| peer.ip().to_string());
    object.text("peer", &peer);
    object.text("line", &String::from_utf8_lossy(&request.line));
    object.number("status", request.status.as_u16().into());
    object.text("refused", request.reason);
    object.text("end", EndCause::Refused.name());
    line.push('}');
    line
}

fn micros(took: Duration) -> u64 {
    u64::try_from(took.as_micros()).unwrap_or(u64::MAX)
}

/// An object, member by member, behind its first one.
struct Object<'a> {
    line: &'a mut String,
}

impl Object<'_> {
    fn name(&mut self, name: &str) {
        self.line.push_str(",\"");
        self.line.push_str(name);
        self.line.push_str("\":");
    }

    fn number(&mut self, name: &str, number: u64) {
        self.name(name);
        let _ = write!(self.line, "{number}");
    }

    fn optional(&mut self, name: &str, number: Option<u64>) {
        if let Some(number) = number {
            self.number(name, number);
        }
    }

    fn text(&mut self, name: &str, text: &str) {
        self.name(name);
        self.line.push('"');
        let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
        if text.bytes().all(is_plain) {
            self.line.push_str(text);
        } else {
            self.escape(text);
        }
        self.line.push('"');
    }

    fn escape(&mut self, text: &str) {
        for letter in text.chars() {
            match letter {
                '"' | '\\' => {
                    self.line.push('\\');
                    self.line.push(letter);
                }
                // Terminals obey the second range too (C1), and some readers end a line at the third.
                '\0'..='\x1f' | '\x7f'..='\u{9f}' | '\u{2028}' | '\u{2029}' => {
                    let _ = write!(self.line, "\\u{:04x}", u32::from(letter));
                }
                _ => self.line.push(letter),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_peer_cannot_end_its_string_or_the_line() {
        let mut line = String::from("{\"z\":0");
        let mut object = Object { line: &mut line };
        object.text("a", "q\"\\\n\u{7f}\u{9b}\u{2028}ü");
        object.number("b", 7);
        assert_eq!(line, r#"{"z":0,"a":"q\"\\\u000a\u007f\u009b\u2028ü","b":7"#);
    }
}
