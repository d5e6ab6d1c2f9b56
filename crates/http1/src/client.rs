//! `Client`: the state of one connection, and its inbound half.
//!
//! Two small state machines. *Outbound* is idle or within the body of the last request. *Inbound* reads a head, then
//! its body. Between them is a queue with the kinds of the requests that wait for their responses: the kind of a
//! request decides whether its response has a body. Invariants:
//! - Inbound bytes belong to the oldest request that waits. If no request waits, no bytes may arrive.
//! - A request that may switch to another protocol is the last one.
//! - Once inbound is closed nothing more is read or written, and the connection ends.
//!
//! Read next: `client/head.rs` for heads, `body.rs` for bodies, `client/encode.rs` for the outbound half.

mod config;
mod encode;
mod head;
mod request;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_buffer::BULK_RECEIVE_BYTES;
use tidegate_codec::{Codec, CodecStatus, Input, Lifecycle, Output, ReceiveHint, Slice, Step};

pub use self::config::{Config, Limits};
pub use self::head::ResponseHead;
pub use self::request::{InvalidRequest, Outgoing, Parts, Request, StreamedRequest};
use crate::body::{self, BodyReader, Inbound, Lateness, Piece, Trailers};
use crate::error::{Error, Exceeded, Violation};
use crate::head::{CHUNKED, HTTP_10, KEEP_ALIVE, UNTIL_CLOSE, UPGRADE};
use crate::parse::{NOT_ANNOUNCED, ParseStop};
use crate::status::Status;

/// The HTTP/1.1 client side of one connection: 72 bytes, and no heap of its own.
///
/// Responses come in the order of the requests. Each response begins with a [`Head`](Incoming::Head), before which
/// [`Interim`](Incoming::Interim) responses may come. If it [has a body](ResponseHead::has_body),
/// [`Data`](Incoming::Data), [`Trailers`](Incoming::Trailers) if the peer has sent some, and finally
/// [`End`](Incoming::End) follow.
///
/// Keep a `recv` pending on a pooled connection, to notice that the peer closed it: a channel without a pending `recv`
/// does not read.
///
/// ```
/// use std::time::{Instant, SystemTime};
/// use tidegate::codec::{Codec, Input, Outbound, Output, Pool, Step, Time};
/// use tidegate::http1::client::{Client, Incoming, Request};
///
/// let (pool, time) = (Pool::new(), Time::new(Instant::now(), SystemTime::UNIX_EPOCH));
/// let (mut input, mut queue, mut client) = (Input::new(), Outbound::new(&pool), Client::default());
/// let mut out = Output::new(&mut queue, &pool, &time);
///
/// client.encode(Request::get("/tide")?.host("sea.example")?.into(), &mut out)?;
/// input.append(pool.copy(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nrising"), &pool);
/// let Step::Message(Incoming::Head(head)) = client.decode(&mut input, &mut out)? else { panic!("it is complete") };
/// assert_eq!(head.status().code(), 200);
/// let Step::Message(Incoming::Data(data)) = client.decode(&mut input, &mut out)? else { panic!("it has a body") };
/// assert_eq!(*data, *b"rising");
///
/// queue.flush();
/// assert_eq!(queue.front().unwrap(), b"GET /tide HTTP/1.1\r\nHost: sea.example\r\n\r\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Client {
    config: Arc<Config>,
    /// When the peer last made expected progress, or got a request to answer.
    since: Option<Instant>,
    /// The bytes left of the body or of the chunk.
    remaining: u64,
    /// How many more bytes of the body the limits allow; the length of a body that has announced one.
    budget: u64,
    /// How many more bytes of the request's body must follow.
    owed: u64,
    /// The kinds of the requests that wait for their responses, the oldest in the lowest bits.
    waiting: u64,
    /// How many bytes of the input are known to have no end of a line or head.
    seen: u16,
    /// How late the body was when the last piece of it came.
    late: Lateness,
    /// How many seconds the peer keeps the connection while it is idle, as its last response announces, or
    /// [`NOT_ANNOUNCED`].
    kept_seconds: u16,
    flags: u8,
    ending: Ending,
    /// How many requests wait for their responses.
    count: u8,
    /// How many interim responses the oldest request has received.
    interim: u8,
    inbound: Inbound,
    outbound: Outbound,
}

/// A message that a client receives.
#[derive(Debug)]
pub enum Incoming {
    /// An interim response: a final one to the same request follows.
    Interim(ResponseHead),
    /// The head of a response; its body follows if [`ResponseHead::has_body`].
    Head(ResponseHead),
    /// A piece of the body.
    Data(Slice),
    /// The fields after a chunked body, if there are some.
    Trailers(Trailers),
    /// The end of the body.
    End,
}

/// The state of the outbound side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outbound {
    /// The next request may be sent.
    Idle,
    /// Within a body of known length.
    Length,
    /// Within a chunked body.
    Chunked,
}

/// How the connection comes to its end. A later state never returns to an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Ending {
    /// It takes requests.
    Open,
    /// No further request is taken; the connection closes once all is complete.
    Last,
    /// The connection closes after the response in progress.
    Closing,
}

/// The kind of a request, as far as it decides how to read the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum RequestKind {
    Usual,
    /// HEAD: the response has no body.
    Head,
    /// CONNECT: a tunnel may follow.
    Connect,
    /// The request asks to switch to another protocol.
    Upgrade,
}

impl Client {
    /// The codec of a new connection.
    #[must_use]
    pub fn new(config: Arc<Config>) -> Self {
        Self {
            config,
            since: None,
            remaining: 0,
            budget: 0,
            owed: 0,
            waiting: 0,
            seen: 0,
            late: Lateness::default(),
            kept_seconds: NOT_ANNOUNCED,
            flags: 0,
            ending: Ending::Open,
            count: 0,
            interim: 0,
            inbound: Inbound::Head,
            outbound: Outbound::Idle,
        }
    }

    /// The configuration that all connections share.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// How many requests wait for their responses. Once the connection has ended, these have no response: the
    /// application decides whether they may be sent again (RFC 9110 §9.2.2).
    #[must_use]
    pub fn unanswered(&self) -> usize {
        usize::from(self.count)
    }

    /// Whether a request could be sent now.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.check_request().is_ok()
    }

    /// Whether bytes that are left in the input belong to another protocol, after 101 or a CONNECT that succeeded.
    #[must_use]
    pub fn is_switched(&self) -> bool {
        self.inbound == Inbound::Switched
    }

    /// Adds a request to those that wait for their responses.
    fn push_kind(&mut self, kind: RequestKind) {
        self.waiting |= (kind as u64) << (2 * self.count);
        self.count += 1;
    }

    /// The kind of the oldest request that waits.
    fn front_kind(&self) -> RequestKind {
        [RequestKind::Usual, RequestKind::Head, RequestKind::Connect, RequestKind::Upgrade][(self.waiting & 3) as usize]
    }

    /// The kind of the last request that waits, which may be in progress.
    fn last_kind(&self) -> Option<RequestKind> {
        let last = self.count.checked_sub(1)?;
        Some(
            [RequestKind::Usual, RequestKind::Head, RequestKind::Connect, RequestKind::Upgrade]
                [(self.waiting >> (2 * last) & 3) as usize],
        )
    }

    fn decode_head(&mut self, input: &mut Input, reply: &Output<'_>) -> Result<Step<Incoming>, Error> {
        if input.is_empty() {
            self.since.get_or_insert(reply.now());
            return Ok(Step::NeedMore);
        }
        if self.count == 0 || self.flags & UNSOLICITED != 0 {
            return Err(self.fail_with(Error::Peer(Violation::UnsolicitedResponse)));
        }
        if self.seen == 0
            && let Ok((spans, length)) =
                head::parse(input.bytes(), self.front_kind() == RequestKind::Connect, self.config.limits())
        {
            return self.accept(input.take(length), spans, input, reply);
        }
        self.decode_head_slow_path(input, reply)
    }

    /// Decodes a head that is incomplete or malformed.
    #[cold]
    fn decode_head_slow_path(&mut self, input: &mut Input, reply: &Output<'_>) -> Result<Step<Incoming>, Error> {
        let found = head::head_end(input.bytes(), self.seen as usize, self.config.limits());
        let Some(end) = found.map_err(|error| self.fail_with(error))? else {
            // Shorter than the largest head, and so than 64 KiB.
            self.seen = input.len() as u16;
            return Ok(Step::NeedMore);
        };
        self.seen = 0;
        let connects = self.front_kind() == RequestKind::Connect;
        match head::parse(&input.bytes()[..end], connects, self.config.limits()) {
            Ok((spans, length)) => self.accept(input.take(length), spans, input, reply),
            Err(ParseStop::Broken(Error::Peer(Violation::FieldName))) if self.config.trims_field_names() => {
                let clean = head::without_space_before_colons(&input.bytes()[..end]);
                let (spans, length) = match head::parse(&clean, connects, self.config.limits()) {
                    Ok(parsed) => parsed,
                    Err(ParseStop::Broken(error)) => return Err(self.fail_with(error)),
                    Err(ParseStop::Partial) => return Err(self.fail_with(Error::Peer(Violation::FieldName))),
                };
                debug_assert_eq!(length, clean.len(), "one head");
                input.consume(end);
                self.accept(reply.pool().copy(&clean), spans, input, reply)
            }
            Err(ParseStop::Broken(error)) => Err(self.fail_with(error)),
            Err(ParseStop::Partial) => Err(self.fail_with(Error::Peer(Violation::StatusLine))),
        }
    }

    fn accept(
        &mut self,
        bytes: Slice,
        mut spans: head::Spans,
        input: &Input,
        reply: &Output<'_>,
    ) -> Result<Step<Incoming>, Error> {
        self.since = Some(reply.now());
        let (status, kind) = (spans.status, self.front_kind());
        if status.is_interim() {
            if self.interim >= self.config.limits().interim_max {
                return Err(self.fail_with(Error::Limit(Exceeded::Interim)));
            }
            self.interim += 1;
            if status == Status::CONTINUE && self.count == 1 {
                self.flags &= !EXPECTS;
            }
            if spans.flags & KEEP_ALIVE == 0 {
                // `close` counts in an interim response, too (RFC 9112 §9.6); the final response is still to come.
                self.ending = Ending::Closing;
            }
            return Ok(Step::Message(Incoming::Interim(ResponseHead { bytes, spans })));
        }
        let is_tunnel = kind == RequestKind::Connect && (200..300).contains(&status.code());
        if status == Status::SWITCHING_PROTOCOLS && (kind != RequestKind::Upgrade || spans.flags & UPGRADE == 0) {
            return Err(self.fail_with(Error::Peer(Violation::SwitchUnasked)));
        }
        if is_tunnel || kind == RequestKind::Head {
            // Whatever the fields say (RFC 9112 §6.3).
            spans.body = 0;
        }
        self.waiting >>= 2;
        self.count -= 1;
        self.interim = 0;
        self.flags = if spans.flags & HTTP_10 == 0 { self.flags & !PEER_HTTP_10 } else { self.flags | PEER_HTTP_10 };
        self.kept_seconds = spans.kept_seconds;
        if spans.flags & KEEP_ALIVE == 0 || spans.body == UNTIL_CLOSE || spans.kept_seconds == 0 {
            self.ending = Ending::Closing;
        }
        if self.count == 0 && self.flags & EXPECTS != 0 {
            // The peer has answered without `100 Continue`, so the body is not sent. Without it the connection cannot
            // carry another request.
            self.ending = Ending::Closing;
            self.flags |= WRITE_FAILED;
            self.outbound = Outbound::Idle;
        }
        if is_tunnel || status == Status::SWITCHING_PROTOCOLS {
            self.inbound = Inbound::Switched;
        } else {
            self.expect_body(spans.body).map_err(|error| self.fail_with(error))?;
        }
        let head = ResponseHead { bytes, spans };
        if spans.body == 0 && self.inbound != Inbound::Switched {
            self.complete(input, reply);
        }
        Ok(Step::Message(Incoming::Head(head)))
    }

    fn expect_body(&mut self, length: u64) -> Result<(), Error> {
        self.budget = self.config.limits().body_bytes_max;
        self.flags &= !AWAITING_BODY;
        self.late = Lateness::default();
        self.inbound = match length {
            CHUNKED => Inbound::ChunkSize,
            UNTIL_CLOSE => Inbound::UntilClose,
            length if length > self.budget => return Err(Error::Limit(Exceeded::Body)),
            length => {
                (self.remaining, self.budget) = (length, length);
                Inbound::Length
            }
        };
        Ok(())
    }

    fn decode_body(&mut self, input: &mut Input, reply: &Output<'_>) -> Result<Step<Incoming>, Error> {
        let limits = self.config.limits();
        let mut receiving = BodyReader {
            inbound: &mut self.inbound,
            remaining: &mut self.remaining,
            budget: &mut self.budget,
            seen: &mut self.seen,
            chunk_extension_bytes_max: limits.chunk_extension_bytes_max,
            trailer_bytes_max: limits.trailer_bytes_max,
        };
        let piece = receiving.next_piece(input).map_err(|error| self.fail_with(error))?;
        let message = match piece {
            Piece::Data(data) => {
                self.feed(data.len(), reply.now());
                Incoming::Data(data)
            }
            Piece::Trailers(trailers) => Incoming::Trailers(trailers),
            Piece::End => {
                self.complete(input, reply);
                Incoming::End
            }
            Piece::More => {
                if self.flags & AWAITING_BODY == 0 {
                    self.resume_body(reply.now());
                    self.flags |= AWAITING_BODY;
                }
                return Ok(Step::NeedMore);
            }
        };
        self.flags &= !AWAITING_BODY;
        Ok(Step::Message(message))
    }

    /// Counts a received piece of the body.
    fn feed(&mut self, bytes: usize, now: Instant) {
        if self.flags & AWAITING_BODY == 0 {
            self.resume_body(now);
        }
        let limits = self.config.limits();
        self.since = body::late_since(self.since, now, bytes, limits.body_rate_min);
        self.late = Lateness::new(self.since, now, limits.body_timeout);
    }

    /// The codec begins to wait for the body again: its lateness continues where it was.
    fn resume_body(&mut self, now: Instant) {
        self.since = self.late.resumed(self.since, now, self.config.limits().body_timeout);
    }

    /// A response is complete. Continues with the next one, or ends the connection.
    fn complete(&mut self, input: &Input, reply: &Output<'_>) {
        self.since = Some(reply.now());
        self.inbound = Inbound::Head;
        if self.count == 0 && !input.is_empty() {
            // These bytes cannot answer a request that is yet to be sent (RFC 9112 §9.2).
            self.flags |= UNSOLICITED;
        }
        if self.ending == Ending::Closing {
            self.close_down();
        }
        self.close_if_last();
    }

    /// Ends a connection that takes no further request, once all requests and responses are complete.
    fn close_if_last(&mut self) {
        if self.ending != Ending::Open && self.is_idle() {
            self.close_down();
        }
    }

    /// No further request is taken.
    fn take_no_more(&mut self) {
        self.ending = self.ending.max(Ending::Last);
    }

    /// Whether no request or response is in progress.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.inbound == Inbound::Head && self.count == 0 && self.outbound == Outbound::Idle
    }

    /// Whether a response is awaited, or little of its body has come.
    fn is_beginning(&self) -> bool {
        match self.inbound {
            Inbound::Head => self.count > 0,
            Inbound::Closed | Inbound::Switched | Inbound::Await => false,
            Inbound::Length => self.budget - self.remaining < BEGINNING_BYTES,
            _ => self.config.limits().body_bytes_max - self.budget < BEGINNING_BYTES,
        }
    }

    /// Stops reading and writing.
    fn close_down(&mut self) {
        if self.outbound != Outbound::Idle {
            self.flags |= WRITE_FAILED;
        }
        self.inbound = Inbound::Closed;
        self.outbound = Outbound::Idle;
    }

    #[cold]
    fn fail_with(&mut self, error: Error) -> Error {
        self.close_down();
        error
    }

    /// How long the connection may be idle. A peer that announces how long it keeps the connection closes it then, and a
    /// request that it does not receive before is lost: so the connection closes a second earlier, but not before half of
    /// that time.
    fn idle_timeout(&self) -> Duration {
        let own = self.config.limits().idle_timeout;
        if self.kept_seconds == NOT_ANNOUNCED {
            return own;
        }
        let announced = Duration::from_secs(self.kept_seconds.into());
        own.min(announced.saturating_sub(Duration::from_secs(1)).max(announced / 2))
    }

    /// When the connection times out, and with which error, if any.
    fn deadline(&self) -> Option<(Instant, Option<Exceeded>)> {
        let limits = self.config.limits();
        let (after, error) = match self.inbound {
            Inbound::Head if self.is_idle() => (self.idle_timeout(), None),
            // While the body of the request is in progress the peer may wait for its end, but not while we wait for
            // `100 Continue`.
            Inbound::Head if self.count <= 1 && self.outbound != Outbound::Idle && self.flags & EXPECTS == 0 => {
                return None;
            }
            Inbound::Head => (limits.head_timeout, Some(Exceeded::HeadTime)),
            Inbound::Switched => (limits.idle_timeout, None),
            Inbound::Await | Inbound::Closed => return None,
            _ if self.flags & AWAITING_BODY == 0 => return None,
            _ => (limits.body_timeout, Some(Exceeded::BodyTime)),
        };
        Some((self.since?.checked_add(after)?, error))
    }
}

impl Codec for Client {
    type In = Incoming;
    type Out = Outgoing;
    type Error = Error;

    fn protocol(&self) -> &'static str {
        "HTTP/1.1"
    }

    fn decode(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Incoming>, Error> {
        match self.inbound {
            Inbound::Head => self.decode_head(input, reply),
            Inbound::Await | Inbound::Switched => Ok(Step::NeedMore),
            Inbound::Closed => Ok(Step::End),
            _ => self.decode_body(input, reply),
        }
    }

    fn encode(&mut self, message: Outgoing, out: &mut Output<'_>) -> Result<(), Error> {
        self.send(message, out).map_err(Error::Caller)
    }

    /// Decodes the complete messages. The end of the connection may be the end of a body.
    #[cold]
    fn decode_eof(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Incoming>, Error> {
        let step = self.decode(input, reply)?;
        if !matches!(step, Step::NeedMore) {
            return Ok(step);
        }
        let violation = match self.inbound {
            Inbound::UntilClose => {
                self.close_down();
                return Ok(Step::Message(Incoming::End));
            }
            Inbound::Head if self.count == 0 => {
                self.close_down();
                return Ok(Step::End);
            }
            Inbound::Switched | Inbound::Closed => return Ok(Step::End),
            Inbound::Head if input.is_empty() => Violation::Unanswered,
            _ => Violation::ResponseTruncated,
        };
        Err(self.fail_with(Error::Peer(violation)))
    }

    /// After a drain it takes no further request: the connection ends after the last response.
    fn on(&mut self, event: Lifecycle, out: &mut Output<'_>) -> Result<(), Error> {
        match event {
            Lifecycle::Opened => self.since = Some(out.now()),
            Lifecycle::Resumed if self.inbound.is_body() => self.resume_body(out.now()),
            Lifecycle::Resumed => self.since = self.since.map(|_| out.now()),
            Lifecycle::Drain => {
                self.take_no_more();
                self.close_if_last();
            }
            _ => {}
        }
        Ok(())
    }

    fn status(&self) -> CodecStatus {
        CodecStatus {
            is_finished: self.inbound == Inbound::Closed,
            reports_finish: true,
            is_blocked: self.inbound == Inbound::Switched,
            is_close_delimited: false,
            buffered_bytes: 0,
        }
    }

    fn is_between_messages(&self) -> bool {
        self.is_idle()
    }

    #[inline]
    fn bulk_bytes(&self) -> u64 {
        if matches!(self.inbound, Inbound::Length | Inbound::ChunkData) { self.remaining } else { 0 }
    }

    #[inline]
    fn receive_hint(&self) -> Option<ReceiveHint> {
        let missing_bytes = u32::try_from(self.bulk_bytes()).unwrap_or(u32::MAX);
        match self.config.first_receive_bytes() {
            Some(bytes_max) if self.is_beginning() => {
                Some(ReceiveHint { missing_bytes, bytes_max, ..ReceiveHint::default() })
            }
            _ => (missing_bytes as usize >= BULK_RECEIVE_BYTES)
                .then(|| ReceiveHint { missing_bytes, ..ReceiveHint::default() }),
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.deadline().map(|(at, _)| at)
    }

    #[cold]
    fn handle_timeout(&mut self, _: &Input, reply: &mut Output<'_>) -> Result<(), Error> {
        match self.deadline() {
            // The request is still being sent, slowly, so the peer cannot have answered it.
            Some((_, Some(Exceeded::HeadTime))) if reply.pending() > 0 => self.since = Some(reply.now()),
            Some((at, error)) if at <= reply.now() => {
                self.close_down();
                return error.map_or(Ok(()), |exceeded| Err(Error::Limit(exceeded)));
            }
            _ => {}
        }
        Ok(())
    }
}

impl Default for Client {
    fn default() -> Self {
        Self::new(Arc::default())
    }
}

/// The codec waits for more bytes of the body.
const AWAITING_BODY: u8 = 1;
/// The last request waits for `100 Continue` before it sends its body.
const EXPECTS: u8 = 2;
/// The last response was HTTP/1.0.
const PEER_HTTP_10: u8 = 4;
/// After the last response there were bytes that no request waits for.
const UNSOLICITED: u8 = 8;
/// The peer has closed while the body of the request was in progress: the rest of the body is not sent.
const WRITE_FAILED: u8 = 16;

/// The bytes with which a body begins.
const BEGINNING_BYTES: u64 = 64 * 1024;

/// Three bits are free.
const _: () = assert!((AWAITING_BODY | EXPECTS | PEER_HTTP_10 | UNSOLICITED | WRITE_FAILED).count_zeros() == 3);
const _: () = assert!(size_of::<Client>() == 72);
const _: () = assert!(size_of::<Incoming>() == 40);
