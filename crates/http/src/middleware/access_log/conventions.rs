//! A line of JSON whose members are attributes of OpenTelemetry's conventions for HTTP, so that a collector needs no table of
//! names. Facts that the conventions do not know begin with `tidegate.`.

use std::io::Write as _;
use std::time::Duration;

use tidegate_http_message::TraceContext;

use super::super::RefusedRequest;
use super::super::request_spans::{host_and_port, version};
use super::facts::{CLIENT_LEFT_STATUS, LateFacts, LoggedExchange};
use super::json::{Object, target};
use super::text;
use crate::client_address::ClientAddress;
use crate::exchange_note::EndCause;
use crate::tls_info::TlsInfo;

/// Adds the line without its end.
pub(super) fn begin(line: &mut Vec<u8>, exchange: &LoggedExchange<'_>) {
    let LoggedExchange { request, status, elapsed, .. } = exchange;
    line.reserve(LINE_BYTES);
    begin_with_time(line);
    let mut object = Object { line };
    let whole = target(request.target_bytes());
    let (path, query) = whole.split_once('?').map_or((&*whole, None), |(path, query)| (path, Some(query)));
    object.bytes(",\"http.request.method\":\"", request.head().method_text().as_bytes());
    object.bytes(",\"url.path\":\"", path.as_bytes());
    object.plain(",\"url.scheme\":\"", if request.is_secure() { b"https" } else { b"http" });
    object.plain(",\"network.protocol.version\":\"", version(request.version()).as_bytes());
    object.number(",\"http.response.status_code\":", u64::from(*status));
    object.seconds(",\"http.server.request.duration\":", *elapsed);
    let (host, port) = host_and_port(request.host());
    object.optional(",\"server.port\":", port.map(u64::from));
    let peer = request.peer().ip();
    object.address(",\"network.peer.address\":\"", peer.map(|peer| peer.ip()));
    object.optional(",\"network.peer.port\":", peer.map(|peer| u64::from(peer.port())));
    let client = exchange.named_client().map_or_else(|| peer.map(|peer| peer.ip()), ClientAddress::ip);
    object.address(",\"client.address\":\"", client);
    let failed = match *status {
        CLIENT_LEFT_STATUS => Some(EndCause::ClientLeft.name().to_owned()),
        500.. => Some(status.to_string()),
        _ => None,
    };
    let texts = [
        (",\"url.query\":\"", query),
        (",\"server.address\":\"", host),
        (",\"http.route\":\"", request.route()),
        (",\"user_agent.original\":\"", request.header_str("user-agent")),
        (",\"error.type\":\"", failed.as_deref()),
        (",\"tidegate.request_id\":\"", request.id().map(|id| id.as_str())),
        (",\"tidegate.upstream\":\"", exchange.facts.as_ref().and_then(|facts| facts.upstream.as_deref())),
    ];
    object.texts(texts);
    let Some(extensions) = request.made_extensions() else { return };
    if let Some(context) = extensions.get::<TraceContext>() {
        object.trace(context);
        object.plain(",\"trace_flags\":\"", if context.is_sampled() { b"01" } else { b"00" });
    }
    if let Some(tls) = extensions.get::<TlsInfo>() {
        let (version, subject) = (tls.version(), tls.client_subject());
        object.texts([
            (",\"tls.protocol.version\":\"", Some(version.strip_prefix("TLSv").unwrap_or(version))),
            (",\"tls.cipher\":\"", Some(tls.cipher())),
            (",\"tls.client.server_name\":\"", tls.server_name()),
            (",\"tls.client.subject\":\"", subject.as_deref().filter(|subject| !subject.is_empty())),
        ]);
    }
}

/// The end of the line.
pub(super) fn end(line: &mut Vec<u8>, late: &LateFacts) {
    let mut object = Object { line };
    object.optional(",\"http.response.body.size\":", late.sent);
    object.optional(",\"http.request.body.size\":", late.received);
    if late.is_later {
        object.seconds(",\"tidegate.total_duration\":", late.total);
    }
    let resent = late.attempts.checked_sub(1).filter(|resent| *resent > 0);
    object.optional(",\"http.request.resend_count\":", resent.map(u64::from));
    object.optional(",\"tidegate.upstream_status\":", late.upstream_status.map(u64::from));
    object.texts([
        (",\"tidegate.upstream_error\":\"", late.upstream_error.as_deref()),
        (",\"tidegate.cache\":\"", late.cache.as_deref()),
        (",\"tidegate.end\":\"", (late.end != EndCause::Done).then(|| late.end.name())),
    ]);
    line.push(b'}');
}

/// The line of a request that the codec has refused.
pub(super) fn refused(request: &RefusedRequest) -> Vec<u8> {
    let mut line = Vec::with_capacity(256);
    begin_with_time(&mut line);
    let mut object = Object { line: &mut line };
    object.address(",\"network.peer.address\":\"", request.peer.ip().map(|peer| peer.ip()));
    object.number(",\"http.response.status_code\":", request.status.as_u16().into());
    object.bytes(",\"tidegate.line\":\"", &request.line);
    object.bytes(",\"tidegate.refused\":\"", request.reason.as_bytes());
    object.bytes(",\"tidegate.end\":\"", EndCause::Refused.name().as_bytes());
    line.push(b'}');
    line
}

fn begin_with_time(line: &mut Vec<u8>) {
    let mut time = String::new();
    text::push_unix_time(&mut time);
    line.extend_from_slice(b"{\"timestamp\":");
    line.extend_from_slice(time.as_bytes());
}

impl Object<'_> {
    fn texts<const N: usize>(&mut self, texts: [(&str, Option<&str>); N]) {
        for (start, text) in texts {
            if let Some(text) = text {
                self.bytes(start, text.as_bytes());
            }
        }
    }

    fn address(&mut self, start: &str, ip: Option<std::net::IpAddr>) {
        if let Some(ip) = ip {
            self.line.extend_from_slice(start.as_bytes());
            text::push_ip(self.line, ip);
            self.line.push(b'"');
        }
    }

    fn seconds(&mut self, start: &str, took: Duration) {
        let _ = write!(self.line, "{start}{}.{:06}", took.as_secs(), took.subsec_micros());
    }
}

/// Room for most lines.
const LINE_BYTES: usize = 1024;
