//! `ClientStream`: the codec of one stream of a client: a request and its response.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_codec::{Codec, CodecStatus, Input, Lifecycle, Output, Step};
use tidegate_http1::client::{Incoming, Limits, Outgoing, Parts, Request, StreamedRequest};
use tidegate_http1::{Body, ContentType, Error, Exceeded, Fields, Method, Misuse, ResponseHead, Trailers, Violation};

use crate::config::Version;
use crate::frame_head::{FrameHead, HEAD_BYTES, flag, kind};
use crate::record::{RECORD_BYTES, Record, RecordKind};
use crate::server_stream::{write_data, write_end};
use crate::tunnel::Tunnel;

/// The codec of a stream that a client opens: one request, and one response.
///
/// With [`extended_connect`](Self::extended_connect) the stream may become a [tunnel](Self::into_tunnel).
///
/// It takes and yields the messages of [`tidegate_http1::client`]. Of the limits, those of heads and bodies, of interim
/// responses, and their time-outs count here.
#[derive(Debug)]
pub struct ClientStream {
    limits: Arc<Limits>,
    scheme: &'static str,
    /// How many more bytes of the response's body the limits allow.
    budget: u64,
    /// How many more bytes of the request's body must follow.
    owed: u64,
    /// Since when the server is to send: its head, or more of its body.
    since: Option<Instant>,
    /// How late the body is, in milliseconds, while the codec does not wait for it.
    late: u32,
    interim: u8,
    inbound: Inbound,
    outbound: Outbound,
    /// The codec waits for more of the body.
    waits: bool,
    /// The request expects `100 Continue`.
    expects: bool,
    /// Upgrades are sent as extended CONNECT.
    extends_connect: bool,
    version: Version,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inbound {
    Head,
    Body,
    /// The end of the body is to be yielded.
    End,
    /// The response has made the stream a tunnel.
    Tunnel,
    Done,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outbound {
    /// The request was not sent.
    Idle,
    /// Within a body of known length.
    Length,
    /// Within a body of any length.
    Any,
    /// The request asks for a tunnel, or has one.
    Tunnel,
    Done,
}

impl ClientStream {
    /// The codec of a new stream of a connection with this scheme, `https` or `http`.
    #[must_use]
    pub fn new(limits: Arc<Limits>, scheme: &'static str) -> Self {
        let budget = limits.body_bytes_max;
        let (inbound, outbound) = (Inbound::Head, Outbound::Idle);
        Self {
            limits,
            scheme,
            budget,
            owed: 0,
            since: None,
            late: 0,
            interim: 0,
            inbound,
            outbound,
            waits: false,
            expects: false,
            extends_connect: false,
            version: Version::default(),
        }
    }

    /// The codec of a stream of another version than HTTP/2.
    #[must_use]
    pub fn version(self, version: Version) -> Self {
        Self { version, ..self }
    }

    /// Sends a GET that asks for another protocol as extended CONNECT (RFC 8441), as a server's stream takes one for an
    /// upgrade. The server has to allow it in its SETTINGS. A 2xx accepts, and the stream is a
    /// [tunnel](Self::into_tunnel) then. Without this such a request is an error.
    #[must_use]
    pub fn extended_connect(self) -> Self {
        Self { extends_connect: true, ..self }
    }

    /// Whether the stream is a tunnel: the bytes that are left in the input, and those that follow, belong to another
    /// protocol.
    #[must_use]
    pub fn is_switched(&self) -> bool {
        self.inbound == Inbound::Tunnel
    }

    /// The filter for the codec of another protocol, once the stream [is a tunnel](Self::is_switched). Each side ends on its
    /// own.
    #[must_use]
    pub fn into_tunnel(self) -> Tunnel {
        Tunnel::new()
    }

    fn decode_record(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Incoming>, Error> {
        let Some(head) = FrameHead::read(input.bytes()) else { return Ok(Step::NeedMore) };
        if matches!(self.inbound, Inbound::Done | Inbound::Tunnel) || input.len() < HEAD_BYTES + head.length as usize {
            return Ok(Step::NeedMore);
        }
        input.consume(HEAD_BYTES);
        let ends = head.has(flag::END_STREAM);
        let mut content = input.take(head.length as usize);
        match (head.kind, self.inbound) {
            (kind::HEADERS, Inbound::Head) => {
                let head = match self.version {
                    Version::Http2 => ResponseHead::of_http2(content, ends, &self.limits)?,
                    Version::Http3 => ResponseHead::of_http3(content, ends, &self.limits)?,
                };
                self.since = Some(reply.now());
                if head.status().is_interim() {
                    if self.interim >= self.limits.interim_max {
                        return Err(Error::Limit(Exceeded::Interim));
                    }
                    self.interim += 1;
                    return Ok(Step::Message(Incoming::Interim(head)));
                }
                if self.outbound == Outbound::Tunnel {
                    if (200..300).contains(&head.status().code()) {
                        self.inbound = Inbound::Tunnel;
                        return Ok(Step::Message(Incoming::Head(head)));
                    }
                    // Nothing follows the request.
                    write_end(None, reply);
                    self.outbound = Outbound::Done;
                }
                // The codec of the connection has checked that a response without a body has none.
                self.inbound = match () {
                    () if ends => Inbound::Done,
                    () if head.has_body() => Inbound::Body,
                    () => Inbound::End,
                };
                Ok(Step::Message(Incoming::Head(head)))
            }
            (kind::HEADERS, _) => {
                self.inbound = Inbound::End;
                Ok(Step::Message(Incoming::Trailers(Trailers::of_http2(content)?)))
            }
            _ => {
                if head.has(flag::PADDED) {
                    let padding = usize::from(content.first().copied().unwrap_or_default());
                    content = content.slice(1.min(content.len())..content.len().saturating_sub(padding).max(1));
                }
                if ends {
                    self.inbound = Inbound::End;
                }
                self.feed(content.len(), reply.now());
                self.budget = self.budget.checked_sub(content.len() as u64).ok_or(Error::Limit(Exceeded::Body))?;
                if content.is_empty() {
                    return self.decode(input, reply);
                }
                Ok(Step::Message(Incoming::Data(content)))
            }
        }
    }

    /// The server has to send more of the body.
    fn wait(&mut self, now: Instant) {
        if self.inbound == Inbound::Body && !self.waits {
            self.waits = true;
            self.since = now.checked_sub(Duration::from_millis(self.late.into()));
        }
    }

    /// Counts a piece of the body: each byte earns the time that it takes at the least rate. Without one any byte earns all.
    fn feed(&mut self, bytes: usize, now: Instant) {
        if !std::mem::take(&mut self.waits) {
            return;
        }
        let late = self.since.map_or(0, |since| now.saturating_duration_since(since).as_millis() as u64);
        let earned = (bytes as u64 * 1000).checked_div(self.limits.body_rate_min.into()).unwrap_or(u64::MAX);
        self.late = u32::try_from(late.saturating_sub(earned)).unwrap_or(u32::MAX);
    }

    /// When the stream fails, and why.
    fn deadline(&self) -> Option<(Instant, Exceeded)> {
        let (after, error) = match (self.inbound, self.outbound) {
            (Inbound::Head, Outbound::Idle) => return None,
            // The server may wait for the end of the request, but not while this side waits for `100 Continue`.
            (Inbound::Head, Outbound::Length | Outbound::Any) if !self.expects => return None,
            (Inbound::Head, _) => (self.limits.head_timeout, Exceeded::HeadTime),
            (Inbound::Body, _) if self.waits => (self.limits.body_timeout, Exceeded::BodyTime),
            _ => return None,
        };
        Some((self.since?.checked_add(after)?, error))
    }

    fn fail(&mut self) {
        (self.inbound, self.outbound) = (Inbound::Done, Outbound::Done);
    }

    fn send_request(&mut self, request: Request, out: &mut Output<'_>) -> Result<(), Misuse> {
        let (parts, body) = request.into_parts();
        if self.extends_connect && parts.has_upgrade() && parts.method() == Method::Get && body.is_empty() {
            self.write_head(&parts, None, false, false, out)?;
            self.outbound = Outbound::Tunnel;
            self.since = Some(out.now());
            return Ok(());
        }
        let has_length = !body.is_empty() || matches!(parts.method(), Method::Post | Method::Put | Method::Patch);
        self.write_head(&parts, has_length.then(|| body.len()), false, body.is_empty(), out)?;
        if !body.is_empty() {
            write_data(body, true, out);
        }
        self.outbound = Outbound::Done;
        self.since = Some(out.now());
        Ok(())
    }

    fn send_head(&mut self, request: StreamedRequest, out: &mut Output<'_>) -> Result<(), Misuse> {
        let (parts, length, expects) = request.into_parts();
        self.write_head(&parts, length, expects, false, out)?;
        self.owed = length.unwrap_or_default();
        self.expects = expects;
        self.since = Some(out.now());
        self.outbound = if length.is_some() { Outbound::Length } else { Outbound::Any };
        Ok(())
    }

    fn send_data(&mut self, data: Body, out: &mut Output<'_>) -> Result<(), Misuse> {
        let length = data.len();
        match self.outbound {
            Outbound::Idle | Outbound::Tunnel | Outbound::Done => return Err(Misuse::NoRequestUnderWay),
            Outbound::Length if length > self.owed => return Err(Misuse::BodyTooLong),
            Outbound::Length => self.owed -= length,
            Outbound::Any => {}
        }
        self.expects = false;
        if length > 0 {
            write_data(data, false, out);
        }
        Ok(())
    }

    fn send_end(&mut self, trailers: Option<&Fields>, out: &mut Output<'_>) -> Result<(), Misuse> {
        match self.outbound {
            Outbound::Idle | Outbound::Tunnel | Outbound::Done => return Err(Misuse::NoRequestUnderWay),
            Outbound::Length if self.owed > 0 => {
                // The stream closes without its end, so the codec of the connection resets it.
                self.fail();
                return Err(Misuse::BodyTooShort);
            }
            Outbound::Length | Outbound::Any => write_end(trailers, out),
        }
        self.outbound = Outbound::Done;
        self.since = Some(out.now());
        Ok(())
    }

    /// Writes the record of a head: the pseudo-fields (RFC 9113 §8.3.1), and the fields.
    fn write_head(
        &mut self,
        parts: &Parts,
        length: Option<u64>,
        expects: bool,
        ends: bool,
        out: &mut Output<'_>,
    ) -> Result<(), Misuse> {
        if self.outbound != Outbound::Idle {
            return Err(Misuse::NoMoreRequests);
        }
        let protocol = parts.upgrade().filter(|_| self.extends_connect && parts.method() == Method::Get && !ends);
        let is_forbidden = parts.has_upgrade() && protocol.is_none();
        if is_forbidden || parts.fields().iter().any(|(name, _)| name.eq_ignore_ascii_case(b"upgrade")) {
            return Err(Misuse::UpgradeForbidden);
        }
        // Of a tunnel the target is the authority (RFC 9113 §8.5).
        let host =
            if parts.method() == Method::Connect { std::str::from_utf8(parts.target()).ok() } else { parts.host() };
        let host = host.filter(|host| !host.is_empty()).ok_or(Misuse::HostMissing)?;
        let mut lines = Vec::with_capacity(256);
        let mut line = |name: &str, value: &[u8]| {
            for piece in [name.as_bytes(), b": ", value, b"\r\n"] {
                lines.extend_from_slice(piece);
            }
        };
        let method = if protocol.is_some() { "CONNECT" } else { parts.method_text() };
        line(":method", method.as_bytes());
        if let Some(protocol) = protocol {
            line(":protocol", protocol.as_bytes());
        }
        if parts.method() != Method::Connect {
            line(":scheme", self.scheme.as_bytes());
            line(":path", &path(parts.target(), parts.method()));
        }
        line(":authority", host.as_bytes());
        if let Some(content_type) = parts.content_type().map(ContentType::as_str) {
            line("content-type", content_type.as_bytes());
        }
        if let Some(length) = length {
            line("content-length", itoa::Buffer::new().format(length).as_bytes());
        }
        if expects {
            line("expect", b"100-continue");
        }
        let fields = parts.fields().bytes();
        let length = (lines.len() + fields.len()) as u64;
        let record = Record { kind: RecordKind::Request, ends, status: 0, length };
        let mut writer = out.writer(RECORD_BYTES + length as usize);
        writer.put(&record.bytes());
        writer.put(&lines);
        writer.put(fields);
        Ok(())
    }
}

/// The path of a target, which is empty in none (RFC 9113 §8.3.1): `/` where a URI has none, `*` in OPTIONS.
fn path(target: &[u8], method: Method) -> Cow<'_, [u8]> {
    if target.starts_with(b"/") {
        return target.into();
    }
    let Some(scheme_end) = target.windows(3).position(|three| three == b"://") else { return target.into() };
    let rest = &target[scheme_end + 3..];
    match rest.iter().position(|byte| matches!(byte, b'/' | b'?')).map(|start| &rest[start..]) {
        None if method == Method::Options => (&b"*"[..]).into(),
        None => (&b"/"[..]).into(),
        Some(path) if path.starts_with(b"?") => [b"/", path].concat().into(),
        Some(path) => path.into(),
    }
}

impl Codec for ClientStream {
    type In = Incoming;
    type Out = Outgoing;
    type Error = Error;

    fn protocol(&self) -> &'static str {
        self.version.name()
    }

    fn decode(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Incoming>, Error> {
        if self.inbound == Inbound::End {
            self.inbound = Inbound::Done;
            return Ok(Step::Message(Incoming::End));
        }
        let step = self.decode_record(input, reply).inspect_err(|_| self.fail())?;
        if matches!(step, Step::NeedMore) {
            self.wait(reply.now());
        }
        Ok(step)
    }

    fn encode(&mut self, message: Outgoing, out: &mut Output<'_>) -> Result<(), Error> {
        let sent = match message {
            Outgoing::Request(request) => self.send_request(request, out),
            Outgoing::Head(head) => self.send_head(head, out),
            Outgoing::Data(data) => self.send_data(data, out),
            Outgoing::Chunk(chunk) => self.send_data(Body::Bytes(chunk.into_data()), out),
            Outgoing::Trailers(fields) if !fields.are_trailers() => Err(Misuse::TrailerForbidden),
            Outgoing::Trailers(fields) => self.send_end(Some(&fields).filter(|fields| !fields.is_empty()), out),
            Outgoing::End => self.send_end(None, out),
        };
        sent.map_err(Error::Caller)
    }

    fn decode_eof(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Incoming>, Error> {
        match self.decode(input, reply)? {
            Step::NeedMore if matches!(self.inbound, Inbound::Done | Inbound::Tunnel) => Ok(Step::End),
            Step::NeedMore if self.inbound == Inbound::Body && input.is_empty() && self.version == Version::Http3 => {
                self.inbound = Inbound::Done;
                Ok(Step::Message(Incoming::End))
            }
            Step::NeedMore if self.inbound == Inbound::Head => Err(Error::Peer(Violation::Unanswered)),
            Step::NeedMore => Err(Error::Peer(Violation::ResponseTruncated)),
            step => Ok(step),
        }
    }

    fn on(&mut self, event: Lifecycle, out: &mut Output<'_>) -> Result<(), Error> {
        match event {
            Lifecycle::Resumed if self.waits => {
                self.since = out.now().checked_sub(Duration::from_millis(self.late.into()));
            }
            Lifecycle::Resumed => self.since = self.since.map(|_| out.now()),
            Lifecycle::Fail => self.fail(),
            _ => {}
        }
        Ok(())
    }

    fn status(&self) -> CodecStatus {
        let (inbound, outbound) = (self.inbound, self.outbound);
        CodecStatus {
            is_finished: inbound == Inbound::Done && outbound == Outbound::Done,
            reports_finish: true,
            is_close_delimited: matches!(outbound, Outbound::Length | Outbound::Any),
            ..CodecStatus::default()
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.deadline().map(|(at, _)| at)
    }

    fn handle_timeout(&mut self, _: &Input, reply: &mut Output<'_>) -> Result<(), Error> {
        match self.deadline() {
            // The request is still being sent, slowly, so the peer cannot have answered it.
            Some((_, Exceeded::HeadTime)) if reply.pending() > 0 => self.since = Some(reply.now()),
            Some((at, exceeded)) if at <= reply.now() => {
                self.fail();
                return Err(Error::Limit(exceeded));
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_never_empty() {
        for (target, method, expected) in [
            ("/a?b", Method::Get, "/a?b"),
            ("//a", Method::Get, "//a"),
            ("/redirect?to=http://b/", Method::Get, "/redirect?to=http://b/"),
            ("*", Method::Options, "*"),
            ("http://a", Method::Get, "/"),
            ("http://a", Method::Options, "*"),
            ("http://a/b", Method::Get, "/b"),
            ("http://a?b=/c", Method::Get, "/?b=/c"),
        ] {
            assert_eq!(*path(target.as_bytes(), method), *expected.as_bytes(), "{target}");
        }
    }
}
