//! `LogTemplate`: a format of one's own, parsed once: text, and fields in braces.

use std::fmt::{self, Write as _};
use std::str::FromStr;
use std::sync::Arc;

use tidegate_http_message::TraceContext;

use super::super::RefusedRequest;
use super::facts::{LateFacts, LoggedExchange};
use super::nearest::nearest;
use super::text;
use crate::client_address::ClientAddress;
use crate::exchange_note::EndCause;
use crate::request_id::RequestId;
use crate::tls_info::TlsInfo;

/// A format of access log lines: text with fields in braces, such as `{client.ip} {response.status}`.
///
/// | field | is |
/// |---|---|
/// | `time`, `time.common`, `time.unix` | the time of the line, as HTTP and the common log format write it, and in seconds |
/// | `client.ip`, `client.port` | the client: behind [`TrustedProxies`](crate::TrustedProxies) the one that they name; its port, if it is the peer |
/// | `peer.ip`, `peer.port` | the peer, as a trusted PROXY header reports it |
/// | `request.line` | method, target and version |
/// | `request.method`, `request.target`, `request.path`, `request.query`, `request.version` | its parts |
/// | `request.host`, `request.header.NAME` | a field of the request |
/// | `request.bytes` | bytes of its body |
/// | `request.id` | the id of [`RequestIds`](crate::RequestIds), or the field `X-Request-Id` |
/// | `trace.id`, `span.id`, `trace.parent` | of [`TraceContexts`](crate::TraceContexts): the trace, the request's span, the span of the caller |
/// | `request.route` | the pattern of the route |
/// | `response.status`, `response.header.NAME` | of the response |
/// | `response.bytes` | bytes of its body that were sent |
/// | `response.time`, `total.time` | seconds until the head of the response, and until its end |
/// | `upstream.address`, `upstream.status`, `upstream.error` | the last upstream that was tried |
/// | `upstream.head_time`, `upstream.total_time` | seconds from its choice to the head and to the end of its response |
/// | `upstream.retries` | attempts beyond the first |
/// | `tls.version`, `tls.cipher`, `tls.server_name` or `tls.sni` | of the connection |
/// | `tls.client.subject`, `tls.client.san` | of the client's certificate |
/// | `cache` | the part of a cache |
/// | `end` | `done`, or why the exchange ended: `client_left`, `refused`, `upstream_failed`, `timeout`, `shed`, `failed`, `drained` |
///
/// A field without a value is `-`. Bytes of peers are printable ASCII: quotes and backslashes have a backslash before
/// them, and other bytes are `\xNN`, so no peer can end a line, or a field between quotes. `{{` and `}}` are braces.
/// For JSON use [`LogFormat::Json`](super::LogFormat::Json).
///
/// ```
/// use tidegate::http::LogTemplate;
///
/// let mistake = "{client.pi}".parse::<LogTemplate>().unwrap_err();
/// assert_eq!(mistake.to_string(), "there is no field {client.pi}; did you mean {client.ip}?");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogTemplate(Arc<[Part]>);

/// Why a text is no [`LogTemplate`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogTemplateError {
    /// There is no field of this name; the nearest one, if it is near.
    UnknownField(Box<str>, Option<&'static str>),
    /// A `{` has no `}` behind it.
    Unclosed,
    /// A `}` has no `{` before it.
    Unopened,
    /// It has a control character, such as the end of a line.
    Control,
    /// It is empty.
    Empty,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(Box<str>),
    Early(LogField),
    Late(LateField),
    RequestHeader(Box<str>),
    ResponseHeader(Box<str>),
}

/// A field that is known with the head of the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LogField {
    Time,
    CommonTime,
    UnixTime,
    ClientIp,
    ClientPort,
    PeerIp,
    PeerPort,
    Line,
    Method,
    Target,
    Path,
    Query,
    Version,
    Host,
    RequestId,
    TraceId,
    SpanId,
    TraceParent,
    Route,
    Status,
    ResponseTime,
    UpstreamAddress,
    TlsVersion,
    TlsCipher,
    TlsServerName,
    TlsClientSubject,
    TlsClientNames,
}

/// A field that is known at the end of the exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LateField {
    Received,
    Sent,
    TotalTime,
    UpstreamStatus,
    UpstreamError,
    UpstreamHeadTime,
    UpstreamTotalTime,
    Retries,
    Cache,
    End,
}

const EARLY: [(&str, LogField); 28] = [
    ("time", LogField::Time),
    ("time.common", LogField::CommonTime),
    ("time.unix", LogField::UnixTime),
    ("client.ip", LogField::ClientIp),
    ("client.port", LogField::ClientPort),
    ("peer.ip", LogField::PeerIp),
    ("peer.port", LogField::PeerPort),
    ("request.line", LogField::Line),
    ("request.method", LogField::Method),
    ("request.target", LogField::Target),
    ("request.path", LogField::Path),
    ("request.query", LogField::Query),
    ("request.version", LogField::Version),
    ("request.host", LogField::Host),
    ("request.id", LogField::RequestId),
    ("trace.id", LogField::TraceId),
    ("span.id", LogField::SpanId),
    ("trace.parent", LogField::TraceParent),
    ("request.route", LogField::Route),
    ("response.status", LogField::Status),
    ("response.time", LogField::ResponseTime),
    ("upstream.address", LogField::UpstreamAddress),
    ("tls.version", LogField::TlsVersion),
    ("tls.cipher", LogField::TlsCipher),
    ("tls.server_name", LogField::TlsServerName),
    ("tls.sni", LogField::TlsServerName),
    ("tls.client.subject", LogField::TlsClientSubject),
    ("tls.client.san", LogField::TlsClientNames),
];

const LATE: [(&str, LateField); 10] = [
    ("request.bytes", LateField::Received),
    ("response.bytes", LateField::Sent),
    ("total.time", LateField::TotalTime),
    ("upstream.status", LateField::UpstreamStatus),
    ("upstream.error", LateField::UpstreamError),
    ("upstream.head_time", LateField::UpstreamHeadTime),
    ("upstream.total_time", LateField::UpstreamTotalTime),
    ("upstream.retries", LateField::Retries),
    ("cache", LateField::Cache),
    ("end", LateField::End),
];

/// Fields with the name of a field section's member behind them.
const REQUEST_HEADER: &str = "request.header.";
const RESPONSE_HEADER: &str = "response.header.";

impl FromStr for LogTemplate {
    type Err = LogTemplateError;

    fn from_str(text: &str) -> Result<Self, LogTemplateError> {
        if text.is_empty() {
            return Err(LogTemplateError::Empty);
        }
        if text.contains(char::is_control) {
            return Err(LogTemplateError::Control);
        }
        let (mut parts, mut literal, mut rest) = (Vec::new(), String::new(), text);
        // Each round takes at least one byte.
        while let Some(at) = rest.find(['{', '}']) {
            literal.push_str(&rest[..at]);
            let brace = &rest[at..=at];
            rest = &rest[at + 1..];
            if let Some(behind) = rest.strip_prefix(brace) {
                literal.push_str(brace);
                rest = behind;
                continue;
            }
            if brace == "}" {
                return Err(LogTemplateError::Unopened);
            }
            let (name, behind) = rest.split_once('}').ok_or(LogTemplateError::Unclosed)?;
            if !literal.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut literal).into()));
            }
            parts.push(Part::of_name(name)?);
            rest = behind;
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            parts.push(Part::Text(literal.into()));
        }
        Ok(Self(parts.into()))
    }
}

impl Part {
    fn of_name(name: &str) -> Result<Self, LogTemplateError> {
        for (prefix, make) in
            [(REQUEST_HEADER, Self::RequestHeader as fn(_) -> _), (RESPONSE_HEADER, Self::ResponseHeader)]
        {
            if let Some(field) = name.strip_prefix(prefix).filter(|field| is_token(field)) {
                return Ok(make(field.into()));
            }
        }
        let early = EARLY.iter().find(|(known, _)| *known == name).map(|(_, field)| Self::Early(*field));
        let late = LATE.iter().find(|(known, _)| *known == name).map(|(_, field)| Self::Late(*field));
        early.or(late).ok_or_else(|| {
            let known = EARLY.iter().map(|(known, _)| *known).chain(LATE.iter().map(|(known, _)| *known));
            let known = known.chain(["request.header.NAME", "response.header.NAME"]);
            LogTemplateError::UnknownField(name.into(), nearest(name, known))
        })
    }
}

impl LogTemplate {
    /// `HOST - - [TIME] "REQUEST" STATUS LENGTH`.
    pub(super) fn common() -> Self {
        COMMON.parse().expect("its fields are known")
    }

    /// The same, and behind it the fields `Referer` and `User-Agent`.
    pub(super) fn combined() -> Self {
        let text = format!("{COMMON} \"{{request.header.referer}}\" \"{{request.header.user-agent}}\"");
        text.parse().expect("its fields are known")
    }

    /// Whether it has fields of an upstream, of a cache or of the end.
    pub(super) fn reads_facts(&self) -> bool {
        self.0.iter().any(|part| match part {
            Part::Early(field) => *field == LogField::UpstreamAddress,
            Part::Late(field) => !matches!(field, LateField::Sent | LateField::TotalTime),
            _ => false,
        })
    }

    /// Whether it has fields of the client.
    pub(super) fn reads_client(&self) -> bool {
        let is_of_client = |part: &Part| matches!(part, Part::Early(LogField::ClientIp | LogField::ClientPort));
        self.0.iter().any(is_of_client)
    }

    pub(super) fn reads_time(&self) -> bool {
        let is_time =
            |part: &Part| matches!(part, Part::Early(LogField::ResponseTime) | Part::Late(LateField::TotalTime));
        self.0.iter().any(is_time)
    }

    pub(super) fn reads_tls(&self) -> bool {
        use LogField::{TlsCipher, TlsClientNames, TlsClientSubject, TlsServerName, TlsVersion};
        let is_of_tls = |field: &LogField| {
            matches!(field, TlsVersion | TlsCipher | TlsServerName | TlsClientSubject | TlsClientNames)
        };
        self.0.iter().any(|part| matches!(part, Part::Early(field) if is_of_tls(field)))
    }

    /// The line of an exchange that is over.
    pub(super) fn line(&self, exchange: &LoggedExchange<'_>, late: &LateFacts) -> String {
        let mut line = String::with_capacity(LINE_BYTES);
        for part in &*self.0 {
            match part {
                Part::Late(field) => field.push(&mut line, late),
                part => part.push(&mut line, exchange),
            }
        }
        line
    }

    /// The line without the fields of the end, and their places in it.
    pub(super) fn draft(&self, exchange: &LoggedExchange<'_>) -> (String, Vec<(usize, LateField)>) {
        let (mut line, mut missing) = (String::with_capacity(LINE_BYTES), Vec::new());
        for part in &*self.0 {
            match part {
                Part::Late(field) => missing.push((line.len(), *field)),
                part => part.push(&mut line, exchange),
            }
        }
        (line, missing)
    }

    /// The line of a request that the codec has refused: `request.line` is its first line, as it came.
    pub(super) fn refused(&self, request: &RefusedRequest) -> String {
        let mut line = String::with_capacity(LINE_BYTES);
        for part in &*self.0 {
            match part {
                Part::Text(text) => line.push_str(text),
                Part::Early(LogField::Time) => text::push_http_time(&mut line),
                Part::Early(LogField::CommonTime) => text::push_common_time(&mut line),
                Part::Early(LogField::UnixTime) => text::push_unix_time(&mut line),
                Part::Early(LogField::ClientIp) => push_or_dash(&mut line, request.client.ip()),
                Part::Early(LogField::ClientPort) if request.client == ClientAddress::Unknown => line.push('-'),
                Part::Early(LogField::PeerIp) => push_or_dash(&mut line, request.peer.ip().map(|peer| peer.ip())),
                Part::Early(LogField::ClientPort | LogField::PeerPort) => {
                    push_or_dash(&mut line, request.peer.ip().map(|peer| peer.port()));
                }
                Part::Early(LogField::Line) if !request.line.is_empty() => text::quote(&mut line, &request.line),
                Part::Early(LogField::Status) => _ = write!(line, "{}", request.status.as_u16()),
                Part::Late(LateField::End) => line.push_str(EndCause::Refused.name()),
                _ => line.push('-'),
            }
        }
        line
    }
}

impl Part {
    fn push(&self, line: &mut String, exchange: &LoggedExchange<'_>) {
        match self {
            Self::Text(text) => line.push_str(text),
            Self::Early(field) => field.push(line, exchange),
            Self::Late(_) => {}
            Self::RequestHeader(name) => push_bytes(line, exchange.request.header(&**name)),
            Self::ResponseHeader(name) => {
                push_bytes(line, exchange.response.and_then(|response| response.field(name)));
            }
        }
    }
}

impl LogField {
    fn push(self, line: &mut String, exchange: &LoggedExchange<'_>) {
        let LoggedExchange { request, status, elapsed, facts, .. } = exchange;
        let tls = || request.extensions().get::<TlsInfo>();
        match self {
            Self::Time => text::push_http_time(line),
            Self::CommonTime => text::push_common_time(line),
            Self::UnixTime => text::push_unix_time(line),
            Self::ClientIp => {
                let client = exchange.named_client().unwrap_or_else(|| ClientAddress::of_peer(request.peer()));
                push_or_dash(line, client.ip());
            }
            Self::ClientPort if exchange.named_client().is_some() => line.push('-'),
            Self::PeerIp => push_or_dash(line, request.peer().ip().map(|peer| peer.ip())),
            Self::ClientPort | Self::PeerPort => push_or_dash(line, request.peer().ip().map(|peer| peer.port())),
            Self::Line => {
                line.push_str(request.method().as_str());
                line.push(' ');
                text::quote(line, request.target_bytes());
                line.push(' ');
                line.push_str(text::version(request.version()));
            }
            Self::Method => line.push_str(request.method().as_str()),
            Self::Target => text::quote(line, request.target_bytes()),
            Self::Path => text::quote(line, request.head().path_bytes()),
            Self::Query => push_bytes(line, request.head().query_bytes()),
            Self::Version => line.push_str(text::version(request.version())),
            Self::Host => push_bytes(line, Some(request.host().as_bytes())),
            Self::RequestId => {
                let given = request.extensions().get::<RequestId>().map(|id| id.as_str().as_bytes());
                push_bytes(line, given.or_else(|| request.header(RequestId::FIELD)));
            }
            Self::TraceId | Self::SpanId | Self::TraceParent => self.push_trace(line, request.extensions().get()),
            Self::Route => push_bytes(line, request.route().map(str::as_bytes)),
            Self::Status => _ = write!(line, "{status}"),
            Self::ResponseTime => text::push_seconds(line, *elapsed),
            Self::UpstreamAddress => {
                let upstream = facts.as_ref().and_then(|facts| facts.upstream.as_deref());
                push_bytes(line, upstream.map(str::as_bytes));
            }
            Self::TlsVersion => line.push_str(tls().map_or("-", TlsInfo::version)),
            Self::TlsCipher => line.push_str(tls().map_or("-", TlsInfo::cipher)),
            Self::TlsServerName => push_bytes(line, tls().and_then(TlsInfo::server_name).map(str::as_bytes)),
            Self::TlsClientSubject => {
                push_bytes(line, tls().and_then(TlsInfo::client_subject).as_deref().map(str::as_bytes));
            }
            Self::TlsClientNames => {
                push_bytes(line, tls().and_then(TlsInfo::client_alternative_names).as_deref().map(str::as_bytes));
            }
        }
    }
}

impl LogField {
    fn push_trace(self, line: &mut String, context: Option<&TraceContext>) {
        let id = context.and_then(|context| match self {
            Self::TraceId => Some(context.trace_id()),
            Self::SpanId => Some(context.span_id()),
            _ => context.parent_id(),
        });
        line.push_str(id.as_deref().unwrap_or("-"));
    }
}

impl LateField {
    pub(super) fn push(self, line: &mut String, late: &LateFacts) {
        let number = match self {
            Self::Received => late.received,
            Self::Sent => late.sent,
            Self::UpstreamStatus => late.upstream_status.map(u64::from),
            Self::Retries => late.attempts.checked_sub(1).map(u64::from),
            Self::TotalTime => return text::push_seconds(line, late.total),
            Self::UpstreamHeadTime | Self::UpstreamTotalTime => {
                let took = if self == Self::UpstreamHeadTime { late.head_time } else { late.whole_time };
                return match took {
                    Some(took) => text::push_seconds(line, took),
                    None => line.push('-'),
                };
            }
            Self::UpstreamError => return push_bytes(line, late.upstream_error.as_deref().map(str::as_bytes)),
            Self::Cache => return push_bytes(line, late.cache.as_deref().map(str::as_bytes)),
            Self::End => return line.push_str(late.end.name()),
        };
        match number {
            Some(number) => _ = write!(line, "{number}"),
            None => line.push('-'),
        }
    }
}

/// A value; `-` if there is none.
fn push_or_dash(line: &mut String, value: Option<impl fmt::Display>) {
    let _ = match value {
        Some(value) => write!(line, "{value}"),
        None => write!(line, "-"),
    };
}

/// Bytes of a peer; `-` if there are none.
fn push_bytes(line: &mut String, bytes: Option<&[u8]>) {
    text::quote(line, bytes.filter(|bytes| !bytes.is_empty()).unwrap_or(b"-"));
}

/// Whether a text is the name of a field (RFC 9110 §5.6.2).
fn is_token(text: &str) -> bool {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_token)
}

impl fmt::Display for LogTemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownField(name, Some(nearest)) => {
                write!(f, "there is no field {{{name}}}; did you mean {{{nearest}}}?")
            }
            Self::UnknownField(name, None) => write!(f, "there is no field {{{name}}}"),
            Self::Unclosed => f.write_str("a { has no } behind it; {{ is a brace"),
            Self::Unopened => f.write_str("a } has no { before it; }} is a brace"),
            Self::Control => f.write_str("a format is one line, without control characters"),
            Self::Empty => f.write_str("the format is empty"),
        }
    }
}

impl std::error::Error for LogTemplateError {}

const COMMON: &str = "{client.ip} - - [{time.common}] \"{request.line}\" {response.status} {response.bytes}";

/// Room for most lines.
const LINE_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_no_template_says_what_is_wrong() {
        for (text, expected) in [
            ("", "the format is empty"),
            ("{", "a { has no } behind it; {{ is a brace"),
            ("a {client.ip", "a { has no } behind it; {{ is a brace"),
            ("a } b", "a } has no { before it; }} is a brace"),
            ("a\nb", "a format is one line, without control characters"),
            ("{upstream.adress}", "there is no field {upstream.adress}; did you mean {upstream.address}?"),
            ("{request.headers.host}", "there is no field {request.headers.host}; did you mean {request.header.NAME}?"),
            ("{request.header.a b}", "there is no field {request.header.a b}; did you mean {request.header.NAME}?"),
            ("{moonlight}", "there is no field {moonlight}"),
        ] {
            let error = text.parse::<LogTemplate>().expect_err(text);
            assert_eq!(error.to_string(), expected, "{text}");
        }
    }

    #[test]
    fn two_braces_are_one_and_every_field_of_the_table_is_known() {
        let template: LogTemplate = "{{{end}}} x".parse().unwrap();
        let parts = [Part::Text("{".into()), Part::Late(LateField::End), Part::Text("} x".into())];
        assert_eq!(*template.0, parts);
        for (name, _) in EARLY {
            format!("{{{name}}}").parse::<LogTemplate>().unwrap();
        }
        for (name, _) in LATE {
            format!("{{{name}}}").parse::<LogTemplate>().unwrap();
        }
    }
}
