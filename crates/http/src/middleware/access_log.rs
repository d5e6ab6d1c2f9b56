//! `AccessLog`: one line for each response.

use std::fmt::Write as _;
use std::time::SystemTime;

use super::{Middleware, RefusedRequest, RequestId, RequestInfo, TraceContext};
use crate::line_log::LineLog;
use crate::request::Request;
use crate::response::Response;
use crate::upstream_note::{NotedUpstream, UpstreamNote};

/// Logs one line for each response, those of requests that the codec refuses included: to a [`LineLog`], which writes it as
/// it is, or else as an event of `tracing` with the target `tidegate::access`, to which the subscriber may add a prefix. The
/// line is written when the head of the response is ready; the length is that of the body, `-` if it is not known yet.
///
/// Add it first, so that it sees the responses of all other middleware.
///
/// ```
/// use tidegate::http::{AccessLog, LogFormat, Router};
///
/// let router = Router::new().get("/", || "hello").with(AccessLog::new(LogFormat::Json));
/// # drop(router);
/// ```
#[derive(Debug, Clone)]
pub struct AccessLog {
    format: LogFormat,
    lines: Option<LineLog>,
}

/// The format of an [`AccessLog`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum LogFormat {
    /// The common log format of web servers: `HOST - - [TIME] "REQUEST" STATUS LENGTH`.
    Common,
    /// The same, and behind it the fields `Referer` and `User-Agent`.
    #[default]
    Combined,
    /// A JSON object in one line, with the microseconds until the response, and ids of the request if
    /// [`RequestIds`](crate::RequestIds) and [`TraceContexts`](crate::TraceContexts) have found some. Of a request that
    /// a gateway has passed on it has `upstream`, the last one that was tried, and
    /// `upstream_error`, the reason why there is no response of it.
    Json,
}

impl AccessLog {
    /// A log in a format.
    #[must_use]
    pub fn new(format: LogFormat) -> Self {
        Self { format, lines: None }
    }

    /// Logs to these lines, and nothing to `tracing`: each line is of its format as a whole.
    #[must_use]
    pub fn to(mut self, lines: &LineLog) -> Self {
        self.lines = Some(lines.clone());
        self
    }
}

impl Middleware for AccessLog {
    fn before(&self, request: &mut Request) -> Result<(), Response> {
        let is_on = self.lines.is_some() || tracing::enabled!(target: TARGET, tracing::Level::INFO);
        if self.format == LogFormat::Json && is_on {
            request.extensions_mut().insert(UpstreamNote::default());
        }
        Ok(())
    }

    fn after(&self, info: &RequestInfo, response: &mut Response) {
        if let Some(lines) = &self.lines {
            lines.line(&line(self.format, info, response));
        } else if tracing::enabled!(target: TARGET, tracing::Level::INFO) {
            let line = line(self.format, info, response);
            tracing::info!(target: "tidegate::access", "{line}");
        }
    }

    fn refused(&self, request: &RefusedRequest) {
        if let Some(lines) = &self.lines {
            lines.line(&refused_line(self.format, request));
        } else if tracing::enabled!(target: TARGET, tracing::Level::INFO) {
            let line = refused_line(self.format, request);
            tracing::info!(target: "tidegate::access", "{line}");
        }
    }

    fn measures_time(&self) -> bool {
        self.format == LogFormat::Json
    }
}

fn line(format: LogFormat, info: &RequestInfo, response: &Response) -> String {
    let request = info.request();
    let mut line = String::with_capacity(160);
    let peer = request.peer().ip().map_or_else(|| "-".to_owned(), |peer| peer.ip().to_string());
    let length = response.content_length().map_or_else(|| "-".to_owned(), |length| length.to_string());
    let status = response.status_code().as_u16();
    if format == LogFormat::Json {
        let microseconds = info.elapsed().as_micros();
        let mut object = Object::begin(&mut line);
        object.text("time", &httpdate::fmt_http_date(SystemTime::now()));
        object.text("peer", &peer);
        object.text("method", request.method().as_str());
        object.text("target", request.target());
        object.text("host", request.host());
        object.text("version", &format!("{:?}", request.version()));
        object.number("status", u128::from(status));
        if let Some(length) = response.content_length() {
            object.number("bytes", u128::from(length));
        }
        object.number("microseconds", microseconds);
        for (name, field) in [("referer", "referer"), ("user_agent", "user-agent")] {
            if let Some(value) = request.header(field) {
                object.text(name, &String::from_utf8_lossy(value));
            }
        }
        if let Some(route) = request.route() {
            object.text("route", route);
        }
        if let Some(note) = request.extensions().get::<UpstreamNote>() {
            let NotedUpstream { upstream, error } = note.noted();
            if !upstream.is_empty() {
                object.text("upstream", &upstream);
            }
            if let Some(error) = error {
                object.text("upstream_error", &error);
            }
        }
        if let Some(id) = request.extensions().get::<RequestId>() {
            object.text("request_id", id.as_str());
        }
        if let Some(context) = request.extensions().get::<TraceContext>() {
            object.text("trace_id", &context.trace_id());
        }
        object.end();
        return line;
    }
    let _ = write!(line, "{peer} - - [{}] \"{} ", common_time(SystemTime::now()), request.method());
    quote(&mut line, request.target().as_bytes());
    let _ = write!(line, " {:?}\" {status} {length}", request.version());
    if format == LogFormat::Combined {
        for field in ["referer", "user-agent"] {
            line.push_str(" \"");
            quote(&mut line, request.header(field).unwrap_or(b"-"));
            line.push('"');
        }
    }
    line
}

/// The line of a request that the codec has refused: its first line is that of the request, as it came.
fn refused_line(format: LogFormat, request: &RefusedRequest) -> String {
    let mut line = String::with_capacity(160);
    let peer = request.peer.ip().map_or_else(|| "-".to_owned(), |peer| peer.ip().to_string());
    let status = request.status.as_u16();
    if format == LogFormat::Json {
        let mut object = Object::begin(&mut line);
        object.text("time", &httpdate::fmt_http_date(SystemTime::now()));
        object.text("peer", &peer);
        object.text("line", &String::from_utf8_lossy(&request.line));
        object.number("status", u128::from(status));
        object.text("refused", request.reason);
        object.end();
        return line;
    }
    let _ = write!(line, "{peer} - - [{}] \"", common_time(SystemTime::now()));
    quote(&mut line, if request.line.is_empty() { b"-" } else { &request.line });
    let _ = write!(line, "\" {status} -");
    if format == LogFormat::Combined {
        line.push_str(" \"-\" \"-\"");
    }
    line
}

/// A time as the common log format has it: `10/Oct/2000:13:55:36 +0000`.
fn common_time(time: SystemTime) -> String {
    // `Tue, 10 Oct 2000 13:55:36 GMT`
    let date = httpdate::fmt_http_date(time);
    match date.split(' ').collect::<Vec<_>>()[..] {
        [_, day, month, year, clock, _] => format!("{day}/{month}/{year}:{clock} +0000"),
        _ => date,
    }
}

/// Bytes of a peer between quotes: printable ASCII but quotes and backslashes, and `\xNN` for everything else.
fn quote(line: &mut String, bytes: &[u8]) {
    for &byte in bytes {
        match byte {
            b'"' | b'\\' => {
                line.push('\\');
                line.push(char::from(byte));
            }
            b' '..=b'~' => line.push(char::from(byte)),
            _ => {
                let _ = write!(line, "\\x{byte:02x}");
            }
        }
    }
}

/// A JSON object (RFC 8259), member by member.
struct Object<'a> {
    line: &'a mut String,
}

impl<'a> Object<'a> {
    fn begin(line: &'a mut String) -> Self {
        line.push('{');
        Self { line }
    }

    fn name(&mut self, name: &str) {
        if !self.line.ends_with('{') {
            self.line.push(',');
        }
        let _ = write!(self.line, "\"{name}\":");
    }

    fn number(&mut self, name: &str, number: u128) {
        self.name(name);
        let _ = write!(self.line, "{number}");
    }

    fn text(&mut self, name: &str, text: &str) {
        self.name(name);
        self.line.push('"');
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
        self.line.push('"');
    }

    fn end(self) {
        self.line.push('}');
    }
}

const TARGET: &str = "tidegate::access";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_a_peer_cannot_end_their_quotes_or_the_line() {
        let mut line = String::new();
        quote(&mut line, b"a\"b\\c\nd\xff");
        assert_eq!(line, r#"a\"b\\c\x0ad\xff"#);
        let mut line = String::new();
        let mut object = Object::begin(&mut line);
        object.text("a", "q\"\\\n\u{7f}\u{9b}\u{2028}ü");
        object.number("b", 7);
        object.end();
        assert_eq!(line, r#"{"a":"q\"\\\u000a\u007f\u009b\u2028ü","b":7}"#);
    }

    #[test]
    fn the_time_is_that_of_the_common_log_format() {
        let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(971_186_136);
        assert_eq!(common_time(time), "10/Oct/2000:13:55:36 +0000");
    }
}
