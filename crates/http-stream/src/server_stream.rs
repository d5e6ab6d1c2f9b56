//! `ServerStream`: the codec of one stream of a server: a request and its response.
//!
//! Its bytes are records (`record.rs`), which the codec of the connection translates from and to frames. Its messages
//! are HTTP/1.1 messages, so an application is the same over both versions.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_codec::{Codec, CodecStatus, Input, Lifecycle, Output, Slice, Step};
use tidegate_http1::{
    Body, ContentType, Error, Exceeded, Fields, HeadLayout, Incoming, Method, Misuse, Outgoing, OwnFields, Parts,
    RequestHead, Response, Status, StreamedResponse, Trailers, Violation,
};

use crate::config::{StreamConfig, Version};
use crate::frame_head::{FrameHead, HEAD_BYTES, flag, kind};
use crate::record::{RECORD_BYTES, Record, RecordKind};
use crate::tunnel::Tunnel;

/// The codec of a stream that a client has opened: one request, and one response.
///
/// It yields and takes the messages of [`tidegate_http1`]. HTTP/1.1 features that HTTP/2 lacks are translated or
/// refused: `close` of a response has no effect, `Upgrade` and other fields of a connection are left out, and 101 is an
/// error ([`Misuse::InterimStatus`]).
///
/// A 2xx to a CONNECT makes the stream a [tunnel](Self::into_tunnel). An extended CONNECT (RFC 8441), if it is
/// [enabled](StreamConfig::extended_connect), asks for another [protocol](RequestHead::protocol), as `Upgrade` does in HTTP/1.1:
/// a 101 accepts, and is sent as 200. A 2xx would accept for the peer as well, so it is sent as 501 (Not Implemented):
/// the application has not noticed that the request asks for a protocol.
///
/// `T` is the application's data about the connection: streams have no other way to it.
#[derive(Debug)]
pub struct ServerStream<T = ()> {
    config: Arc<StreamConfig>,
    /// Since when the peer owes bytes of the body, or, over HTTP/3, the head.
    since: Option<Instant>,
    /// How many more bytes of the request's body the limits allow.
    budget: u64,
    /// How many more bytes of the response's body must follow.
    owed: u64,
    /// How late the body was when the last piece of it came, in milliseconds.
    late: u32,
    inbound: Inbound,
    outbound: Outbound,
    flags: u8,
    data: T,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inbound {
    Head,
    Body,
    /// The end of the body is to be yielded.
    End,
    /// Bytes of another protocol, if the application accepts the CONNECT.
    Tunnel,
    /// Nothing more comes.
    Done,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outbound {
    /// No request has come.
    Idle,
    /// A request waits for its response.
    Owed,
    /// Within a body of known length.
    Length,
    /// Within a body of any length.
    Any,
    /// Within a body that is not sent, as in a response to HEAD; its end was written.
    Suppressed,
    /// The response has made the stream a tunnel.
    Tunnel,
    /// The response is complete, or never will be.
    Done,
}

/// The peer waits for `100 Continue`, and none was sent.
const EXPECTS: u8 = 1;
/// The request is a HEAD.
const HEAD: u8 = 1 << 1;
/// The request is a CONNECT.
const CONNECT: u8 = 1 << 2;
/// Decoding waits for the body.
const WAITS: u8 = 1 << 3;
/// The request is an extended CONNECT.
const EXTENDED: u8 = 1 << 4;

impl ServerStream {
    /// The codec of a new stream.
    #[must_use]
    pub fn new(config: Arc<StreamConfig>) -> Self {
        Self::with_data(config, ())
    }
}

impl<T: 'static> ServerStream<T> {
    /// The codec of a new stream, with something that the application finds again by [`data`](Self::data).
    #[must_use]
    pub fn with_data(config: Arc<StreamConfig>, data: T) -> Self {
        Self {
            config,
            since: None,
            budget: 0,
            owed: 0,
            late: 0,
            inbound: Inbound::Head,
            outbound: Outbound::Idle,
            flags: 0,
            data,
        }
    }

    /// The data that the stream was made with.
    pub fn data(&self) -> &T {
        &self.data
    }

    /// Whether the stream is a tunnel: the bytes that are left in the input, and those that follow, belong to another
    /// protocol.
    #[must_use]
    pub fn is_switched(&self) -> bool {
        self.outbound == Outbound::Tunnel
    }

    /// The filter for the codec of another protocol, once the stream [is a tunnel](Self::is_switched). The peer may end
    /// its side before or after the application does.
    #[must_use]
    pub fn into_tunnel(self) -> Tunnel {
        Tunnel::new()
    }

    fn decode_record(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Incoming>, Error> {
        let Some(head) = FrameHead::read(input.bytes()) else { return Ok(self.wait(reply)) };
        if matches!(self.inbound, Inbound::Done | Inbound::Tunnel) || input.len() < HEAD_BYTES + head.length as usize {
            return Ok(Step::NeedMore);
        }
        input.consume(HEAD_BYTES);
        let ends = head.has(flag::END_STREAM);
        match (head.kind, self.inbound) {
            (kind::HEADERS, Inbound::Head) => self.accept(input, head, ends, reply),
            (kind::HEADERS, _) => {
                self.inbound = Inbound::End;
                let lines = input.take(head.length as usize);
                Ok(Step::Message(Incoming::Trailers(Trailers::of_http2(lines)?)))
            }
            _ => self.receive(input, head, ends, reply),
        }
    }

    fn accept(
        &mut self,
        input: &mut Input,
        head: FrameHead,
        ends: bool,
        reply: &mut Output<'_>,
    ) -> Result<Step<Incoming>, Error> {
        (self.outbound, self.since) = (Outbound::Owed, None);
        self.inbound = if ends { Inbound::Done } else { Inbound::Body };
        let head = parse_head(input.take(head.length as usize), ends, &self.config)?;
        self.flags = match head.method() {
            Method::Head => HEAD,
            Method::Connect if head.protocol().is_some() => EXTENDED,
            Method::Connect => CONNECT,
            _ => 0,
        };
        if self.flags & (CONNECT | EXTENDED) != 0 {
            self.inbound = Inbound::Tunnel;
        } else if !ends {
            self.budget = self.config.limits().body_bytes_max;
            if head.expects_continue() {
                self.flags |= EXPECTS;
                if !self.config.continues_by_hand() {
                    self.send_continue(reply);
                }
            }
        }
        Ok(Step::Message(Incoming::Head(head)))
    }

    fn receive(
        &mut self,
        input: &mut Input,
        head: FrameHead,
        ends: bool,
        reply: &mut Output<'_>,
    ) -> Result<Step<Incoming>, Error> {
        // A peer that sends its body no longer waits for `100 Continue`.
        self.flags &= !EXPECTS;
        let mut data = input.take(head.length as usize);
        if head.has(flag::PADDED) {
            // The codec of the connection has checked the length of the padding.
            let padding = usize::from(data.first().copied().unwrap_or_default());
            data = data.slice(1.min(data.len())..data.len().saturating_sub(padding).max(1));
        }
        if ends {
            self.inbound = Inbound::End;
        }
        self.feed(data.len(), reply.now());
        self.budget = self.budget.checked_sub(data.len() as u64).ok_or(Error::Limit(Exceeded::Body))?;
        if data.is_empty() {
            return self.decode(input, reply);
        }
        Ok(Step::Message(Incoming::Data(data)))
    }

    /// The peer has to send.
    fn wait(&mut self, reply: &Output<'_>) -> Step<Incoming> {
        if self.inbound == Inbound::Body && self.flags & (WAITS | EXPECTS) == 0 {
            self.flags |= WAITS;
            self.since = reply.now().checked_sub(Duration::from_millis(self.late.into()));
        }
        Step::NeedMore
    }

    /// Counts a piece of the body: each byte earns the time that it takes at the minimum rate.
    fn feed(&mut self, bytes: usize, now: Instant) {
        if self.flags & WAITS == 0 {
            return;
        }
        self.flags &= !WAITS;
        let late = self.since.map_or(0, |since| now.saturating_duration_since(since).as_millis() as u64);
        let rate = u64::from(self.config.limits().body_rate_min);
        let earned = (bytes as u64 * 1000).checked_div(rate).unwrap_or(u64::MAX);
        self.late = u32::try_from(late.saturating_sub(earned)).unwrap_or(u32::MAX);
    }

    /// While the response is sent, the peer may hold its body back until it sees it: the two sides of an HTTP/2 stream
    /// may be a conversation.
    fn deadline(&self) -> Option<(Instant, Exceeded)> {
        if self.inbound == Inbound::Head {
            return Some((self.since?.checked_add(self.config.limits().head_timeout)?, Exceeded::HeadTime));
        }
        let is_answered = matches!(self.outbound, Outbound::Length | Outbound::Any);
        if self.flags & WAITS == 0 || self.inbound != Inbound::Body || is_answered {
            return None;
        }
        Some((self.since?.checked_add(self.config.limits().body_timeout)?, Exceeded::BodyTime))
    }

    fn send(&mut self, message: Outgoing, out: &mut Output<'_>) -> Result<(), Misuse> {
        match message {
            Outgoing::Response(response) => self.send_response(response, out),
            Outgoing::Head(head) => self.send_head(head, out),
            Outgoing::Data(data) => self.send_data(data, out),
            Outgoing::Chunk(chunk) => self.send_data(Body::Bytes(chunk.into_data()), out),
            Outgoing::Trailers(fields) => self.send_trailers(&fields, out),
            Outgoing::End => self.send_end(None, out),
            Outgoing::Continue if self.outbound == Outbound::Owed && self.flags & EXPECTS != 0 => {
                self.send_continue(out);
                Ok(())
            }
            Outgoing::Continue => Err(Misuse::ContinueUnexpected),
            Outgoing::Interim(interim) => {
                if self.outbound != Outbound::Owed {
                    return Err(Misuse::NoRequest);
                }
                let (status, fields) = interim.into_parts();
                if !status.is_interim() || status == Status::CONTINUE {
                    return Err(Misuse::InterimStatus);
                }
                write_head(status, &[fields.bytes()], false, &[], out);
                Ok(())
            }
        }
    }

    fn send_continue(&mut self, out: &mut Output<'_>) {
        self.flags &= !EXPECTS;
        write_head(Status::CONTINUE, &[], false, &[], out);
    }

    /// The status that is sent, and whether the stream becomes a tunnel.
    fn check_head(&self, parts: &Parts) -> Result<(Status, bool), Misuse> {
        let status = parts.status();
        let is_success = (200..300).contains(&status.code());
        match self.outbound {
            Outbound::Owed if status == Status::SWITCHING_PROTOCOLS && self.flags & EXTENDED != 0 => {
                Ok((Status::OK, true))
            }
            Outbound::Owed if status.is_interim() || status == Status::SWITCHING_PROTOCOLS => {
                Err(Misuse::InterimStatus)
            }
            Outbound::Owed if is_success && self.flags & EXTENDED != 0 => Ok((Status::NOT_IMPLEMENTED, false)),
            Outbound::Owed => Ok((status, is_success && self.flags & CONNECT != 0)),
            Outbound::Idle | Outbound::Tunnel | Outbound::Done => Err(Misuse::NoRequest),
            _ => Err(Misuse::ResponseUnderWay),
        }
    }

    fn send_response(&mut self, response: Response, out: &mut Output<'_>) -> Result<(), Misuse> {
        let (parts, body) = response.into_parts();
        let (status, is_tunnel) = self.check_head(&parts)?;
        if !parts.status().allows_body() && !body.is_empty() {
            return Err(Misuse::BodyForbidden);
        }
        if is_tunnel {
            self.begin_tunnel(status, &parts, out);
            return Ok(());
        }
        let length = match status.code() {
            204 => None,
            304 if body.is_empty() => None,
            _ => Some(body.len()),
        };
        let ends = body.is_empty() || self.flags & HEAD != 0;
        let is_short = body.len() <= SHORT_BODY_BYTES && !matches!(body, Body::File(_));
        let inline = if ends || !is_short { &[] } else { body.memory() };
        write_parts(status, &parts, length, ends, inline, out);
        if !ends && inline.is_empty() {
            write_data(body, true, out);
        }
        self.complete();
        Ok(())
    }

    fn send_head(&mut self, head: StreamedResponse, out: &mut Output<'_>) -> Result<(), Misuse> {
        let (parts, length) = head.into_parts();
        let (status, is_tunnel) = self.check_head(&parts)?;
        if is_tunnel {
            self.begin_tunnel(status, &parts, out);
            return Ok(());
        }
        let length = match parts.status().code() {
            204 => None,
            205 => Some(0),
            _ => length,
        };
        let has_body = parts.status().allows_body() && self.flags & HEAD == 0;
        write_parts(status, &parts, length, !has_body, &[], out);
        self.owed = length.unwrap_or_default();
        self.outbound = match length {
            // As with HTTP/1.1, a response whose status has no body is complete with its head.
            None if !has_body && self.flags & HEAD == 0 => {
                self.complete();
                return Ok(());
            }
            _ if !has_body => Outbound::Suppressed,
            Some(_) => Outbound::Length,
            None => Outbound::Any,
        };
        Ok(())
    }

    /// A tunnel has no body, and its head no length (RFC 9110 §9.3.6).
    #[cold]
    fn begin_tunnel(&mut self, status: Status, parts: &Parts, out: &mut Output<'_>) {
        write_parts(status, parts, None, false, &[], out);
        self.outbound = Outbound::Tunnel;
    }

    fn send_data(&mut self, data: Body, out: &mut Output<'_>) -> Result<(), Misuse> {
        let length = data.len();
        match self.outbound {
            Outbound::Idle | Outbound::Owed | Outbound::Tunnel | Outbound::Done => return Err(Misuse::NoResponse),
            Outbound::Suppressed => return Ok(()),
            Outbound::Length if length > self.owed => return Err(Misuse::BodyTooLong),
            Outbound::Length => self.owed -= length,
            Outbound::Any => {}
        }
        if length > 0 {
            write_data(data, false, out);
        }
        Ok(())
    }

    fn send_trailers(&mut self, fields: &Fields, out: &mut Output<'_>) -> Result<(), Misuse> {
        if !fields.are_trailers() {
            return Err(Misuse::TrailerForbidden);
        }
        self.send_end(Some(fields).filter(|fields| !fields.is_empty()), out)
    }

    fn send_end(&mut self, trailers: Option<&Fields>, out: &mut Output<'_>) -> Result<(), Misuse> {
        match (self.outbound, trailers) {
            (Outbound::Idle | Outbound::Owed | Outbound::Tunnel | Outbound::Done, _) => return Err(Misuse::NoResponse),
            (Outbound::Length, _) if self.owed > 0 => {
                // The stream closes without its end, so the codec of the connection resets it.
                self.complete();
                return Err(Misuse::BodyTooShort);
            }
            (Outbound::Suppressed, _) => {}
            _ => write_end(trailers, out),
        }
        self.complete();
        Ok(())
    }

    /// The response is complete, and nothing more is read: the rest of the request has no use.
    fn complete(&mut self) {
        self.outbound = Outbound::Done;
        self.inbound = Inbound::Done;
    }

    /// Sends the peer a response with the status of the error, unless a response has begun.
    #[cold]
    fn refuse(&mut self, error: Error, reply: &mut Output<'_>) -> Error {
        if let (Some(status), Outbound::Idle | Outbound::Owed) = (error.status(), self.outbound) {
            self.config.refusals.add(status);
            tidegate_http1::Refusal::record(status, error.text(), &[]);
            self.write_last(status, error.text(), reply);
        }
        self.complete();
        error
    }

    #[cold]
    fn write_last(&mut self, status: Status, text: &'static str, out: &mut Output<'_>) {
        self.outbound = Outbound::Owed;
        let response = Response::new(status).content_type(ContentType::TEXT).body(text);
        // A response of this module is never refused.
        let sent = self.send_response(response, out);
        debug_assert!(sent.is_ok(), "{sent:?}");
    }
}

thread_local! {
    /// The last head of a request that was parsed.
    static PARSED: RefCell<Option<ParsedHead>> = const { RefCell::new(None) };
}

/// A head of a request that was parsed. Requests that come together often have the same head.
struct ParsedHead {
    config: Arc<tidegate_http1::Config>,
    has_ended: bool,
    text: Vec<u8>,
    layout: HeadLayout,
}

fn parse_head(text: Slice, has_ended: bool, of_stream: &StreamConfig) -> Result<RequestHead, Error> {
    // Each configuration is that of one version.
    let config = &of_stream.http1;
    PARSED.with_borrow_mut(|parsed| {
        if let Some(parsed) = parsed
            && parsed.has_ended == has_ended
            && Arc::ptr_eq(&parsed.config, config)
            && parsed.text == text[..]
        {
            return Ok(RequestHead::with_layout(text, parsed.layout));
        }
        let head = match of_stream.version() {
            Version::Http2 => RequestHead::of_http2(text, has_ended, config)?,
            Version::Http3 => RequestHead::of_http3(text, has_ended, config)?,
        };
        remember(parsed, &head, has_ended, config);
        Ok(head)
    })
}

fn remember(
    parsed: &mut Option<ParsedHead>,
    head: &RequestHead,
    has_ended: bool,
    config: &Arc<tidegate_http1::Config>,
) {
    let (text, layout) = (head.bytes(), head.layout());
    if text.len() > KEPT_BYTES_MAX {
        return;
    }
    match parsed {
        Some(parsed) => {
            parsed.text.clear();
            parsed.text.extend_from_slice(text);
            (parsed.has_ended, parsed.layout) = (has_ended, layout);
            if !Arc::ptr_eq(&parsed.config, config) {
                parsed.config = config.clone();
            }
        }
        None => *parsed = Some(ParsedHead { config: config.clone(), has_ended, text: text.to_vec(), layout }),
    }
}

/// Writes the head of a response, and a short body.
#[inline]
fn write_parts(status: Status, parts: &Parts, length: Option<u64>, ends: bool, body: &[u8], out: &mut Output<'_>) {
    let content_type = parts.content_type().map_or("", ContentType::as_str);
    let mut digits = itoa::Buffer::new();
    let digits = length.map_or("", |length| digits.format(length));
    let fields = parts.fields().bytes();
    if content_type.is_empty() || digits.is_empty() || body.is_empty() || OwnFields::among(fields).is_any() {
        return write_some_parts(status, [content_type, digits], fields, ends, body, out);
    }
    // The usual case.
    let lengths = [TYPE.len(), content_type.len(), 2, fields.len(), LENGTH.len(), digits.len(), 2];
    let length = lengths.iter().sum::<usize>() as u64;
    let head = Record { kind: RecordKind::Response, ends, status: status.code(), length }.bytes();
    let data = Record { kind: RecordKind::Data, ends: true, status: 0, length: body.len() as u64 }.bytes();
    out.write_pieces((&head, TYPE, content_type, "\r\n", fields, LENGTH, digits, "\r\n", &data, body));
}

/// The same if some of the parts are missing, which are empty, or the fields come first: the codec of the connection finds
/// a `Date` or a `Server` of the application there.
#[inline(never)]
fn write_some_parts(
    status: Status,
    [content_type, digits]: [&str; 2],
    fields: &[u8],
    ends: bool,
    body: &[u8],
    out: &mut Output<'_>,
) {
    let [a, b, c] = line(TYPE, content_type);
    let [d, e, f] = line(LENGTH, digits);
    let lines = if OwnFields::among(fields).is_any() { [fields, a, b, c, d, e, f] } else { [a, b, c, fields, d, e, f] };
    write_head(status, &lines, ends, body, out);
}

/// The pieces of a line, or nothing without a value.
fn line<'a>(name: &'a str, value: &'a str) -> [&'a [u8]; 3] {
    if value.is_empty() { [b"", b"", b""] } else { [name, value, "\r\n"].map(str::as_bytes) }
}

/// Writes the record of a head, and behind it that of a whole body, if there is one.
fn write_head(status: Status, lines: &[&[u8]], ends: bool, body: &[u8], out: &mut Output<'_>) {
    let length = lines.iter().map(|line| line.len()).sum::<usize>();
    let record = Record { kind: RecordKind::Response, ends, status: status.code(), length: length as u64 };
    let mut writer = out.writer(length + body.len() + 2 * RECORD_BYTES);
    writer.put(&record.bytes());
    for line in lines {
        writer.put(line);
    }
    if !body.is_empty() {
        writer.put(&Record { kind: RecordKind::Data, ends: true, status: 0, length: body.len() as u64 }.bytes());
        writer.put(body);
    }
}

/// Writes the end of a message, with trailers if it has some.
pub(crate) fn write_end(trailers: Option<&Fields>, out: &mut Output<'_>) {
    let Some(fields) = trailers else { return write_data(Body::Empty, true, out) };
    let lines = fields.bytes();
    let record = Record { kind: RecordKind::Trailers, ends: true, status: 0, length: lines.len() as u64 };
    out.write_pieces((&record.bytes()[..], lines, &[][..]));
}

/// Writes a piece of a body as a record.
pub(crate) fn write_data(data: Body, ends: bool, out: &mut Output<'_>) {
    let record = Record { kind: RecordKind::Data, ends, status: 0, length: data.len() }.bytes();
    match data {
        Body::Empty => out.write(&record),
        Body::File(region) => {
            out.write(&record);
            out.link_file(region);
        }
        data if data.len() <= SHORT_BODY_BYTES => out.write_pieces((&record[..], data.memory(), &[][..])),
        data => {
            out.write(&record);
            match data {
                Body::Static(bytes) => out.link_static(bytes),
                Body::Bytes(bytes) => out.link_bytes(bytes),
                Body::Slice(slice) => out.link(slice),
                Body::Empty | Body::File(_) => {}
            }
        }
    }
}

impl<T: 'static> Codec for ServerStream<T> {
    type In = Incoming;
    type Out = Outgoing;
    type Error = Error;

    fn protocol(&self) -> &'static str {
        self.config.version().name()
    }

    fn decode(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Incoming>, Error> {
        if self.inbound == Inbound::End {
            self.inbound = Inbound::Done;
            return Ok(Step::Message(Incoming::End));
        }
        self.decode_record(input, reply).map_err(|error| self.refuse(error, reply))
    }

    fn encode(&mut self, message: Outgoing, out: &mut Output<'_>) -> Result<(), Error> {
        self.send(message, out).map_err(Error::Caller)
    }

    fn decode_eof(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Incoming>, Error> {
        match self.decode(input, reply)? {
            Step::NeedMore => {}
            step => return Ok(step),
        }
        if self.inbound == Inbound::Body && input.is_empty() && self.config.version() == Version::Http3 {
            self.inbound = Inbound::Done;
            return Ok(Step::Message(Incoming::End));
        }
        match (self.inbound, self.outbound) {
            (Inbound::Done, Outbound::Idle | Outbound::Done) => Ok(Step::End),
            // The application has not responded yet.
            (Inbound::Done | Inbound::Tunnel, _) => Ok(Step::NeedMore),
            _ => Err(self.refuse(Error::Peer(Violation::Truncated), reply)),
        }
    }

    fn on(&mut self, event: Lifecycle, out: &mut Output<'_>) -> Result<(), Error> {
        match event {
            // An HTTP/2 stream begins with its head.
            Lifecycle::Opened if self.config.version() == Version::Http3 => self.since = Some(out.now()),
            Lifecycle::Resumed if self.flags & WAITS != 0 => {
                self.since = out.now().checked_sub(Duration::from_millis(self.late.into()));
            }
            Lifecycle::Fail => {
                if self.outbound == Outbound::Owed {
                    self.write_last(Status::INTERNAL_SERVER_ERROR, "the server failed to answer", out);
                }
                self.complete();
            }
            _ => {}
        }
        Ok(())
    }

    fn status(&self) -> CodecStatus {
        CodecStatus {
            is_finished: self.outbound == Outbound::Done,
            reports_finish: true,
            // Bytes behind a CONNECT belong to another protocol, if the application accepts it.
            is_blocked: self.inbound == Inbound::Tunnel,
            // A stream whose response is not complete must not look as if it were.
            is_close_delimited: !matches!(self.outbound, Outbound::Idle | Outbound::Done),
            ..CodecStatus::default()
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.deadline().map(|(at, _)| at)
    }

    fn handle_timeout(&mut self, _: &Input, reply: &mut Output<'_>) -> Result<(), Error> {
        match self.deadline() {
            Some((at, exceeded)) if at <= reply.now() => Err(self.refuse(Error::Limit(exceeded), reply)),
            _ => Ok(()),
        }
    }
}

const TYPE: &str = "content-type: ";
const LENGTH: &str = "content-length: ";

/// A longer text of a head is not remembered.
const KEPT_BYTES_MAX: usize = 1024;

/// Bodies up to this length are copied behind their head.
const SHORT_BODY_BYTES: u64 = 1024;

const _: () = assert!(size_of::<ServerStream>() <= 56);
