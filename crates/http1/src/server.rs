//! `Server`: the state of one connection, and its inbound half.
//!
//! Two small state machines. *Inbound* reads a head, then its body, then waits until the response is complete.
//! *Outbound* is idle, owes a response, or is within one. Invariants:
//! - The inbound side is at a head only while the outbound side is idle: one request is in progress at a time, unless the
//!   application [reads ahead](Server::read_ahead). Then `pipelined_methods.rs` counts the requests behind the one in progress.
//! - Once inbound is closed nothing more is read; outbound then completes its response, and the connection ends.
//! - `since` is when the peer last owed nothing: since then it has been idle, or is sending a head, or is late with a
//!   body. Only the time in which the codec waits for the body counts as lateness; `late` stores it between waits.
//!
//! Read next: `progress.rs` for the states in the flags, `parse.rs` for heads, `body.rs` for bodies, `encode.rs` for the
//! outbound half.

use std::sync::Arc;
use std::time::Instant;

use tidegate_codec::{Codec, CodecStatus, Input, Lifecycle, Output, Slice, Step};

use crate::body::{self, BodyReader, Inbound, Lateness, Piece, Trailers};
use crate::encode::CONTINUE;
use crate::error::{Error, Exceeded, Violation};
use crate::head::{self, CHUNKED, IRREGULAR, Method, RequestHead, Spans};
use crate::limits::Config;
use crate::parse::{self, ParseStop};
use crate::pipelined_methods::PipelinedMethods;
use crate::progress::{ENDING, EndEvent, Ending, READING, ReadEvent, ReadPhase};
use crate::response::Outgoing;

/// The HTTP/1.1 server side of one connection: 56 bytes, and no heap of its own.
///
/// Each request needs one complete response before the codec yields the next request, however many the peer has sent,
/// unless the application [reads ahead](Self::read_ahead). A request without a body is its [`Head`](Incoming::Head) alone.
/// With a body, [`Data`](Incoming::Data), [`Trailers`](Incoming::Trailers) if the peer has sent some, and finally
/// [`End`](Incoming::End) follow, unless the response is complete earlier: then the codec skips the rest of the body.
///
/// After a complete response, call [`decode`](Codec::decode) again: the next request may be in the input.
/// [`Lifecycle::Opened`] starts the idle time-out.
///
/// ```
/// use std::time::{Instant, SystemTime};
/// use tidegate::codec::{Codec, Input, Outbound, Output, Pool, Step, Time};
/// use tidegate::http1::{Incoming, Response, Server};
///
/// let (pool, time) = (Pool::new(), Time::new(Instant::now(), SystemTime::UNIX_EPOCH));
/// let (mut input, mut queue, mut server) = (Input::new(), Outbound::new(&pool), Server::default());
/// let mut out = Output::new(&mut queue, &pool, &time);
///
/// input.append(pool.copy(b"GET /tide?now HTTP/1.1\r\nHost: sea\r\n\r\n"), &pool);
/// let Step::Message(Incoming::Head(head)) = server.decode(&mut input, &mut out)? else { panic!("it is complete") };
/// assert_eq!((head.path(), head.query(), head.header("host")), ("/tide", Some("now"), Some(&b"sea"[..])));
///
/// server.encode(Response::text("rising").into(), &mut out)?;
/// queue.flush();
/// assert!(queue.front().unwrap().ends_with(b"Content-Length: 6\r\n\r\nrising"));
/// # Ok::<(), tidegate::http1::Error>(())
/// ```
#[derive(Debug)]
pub struct Server {
    pub(crate) config: Arc<Config>,
    pub(crate) since: Option<Instant>,
    /// The bytes left of the body or of the chunk; with [`READS_AHEAD`], the requests behind the one in progress.
    pub(crate) remaining: u64,
    /// How many more bytes of the body the limits allow.
    pub(crate) budget: u64,
    /// How many more bytes of the response's body must follow.
    pub(crate) owed: u64,
    /// How many bytes of the input are known to have no end of a line or head.
    pub(crate) seen: u16,
    /// How late the body was when the last piece of it came.
    pub(crate) late: Lateness,
    /// Facts of the request in progress, with [`ReadPhase`] and [`Ending`] in bits of their own.
    pub(crate) flags: u16,
    pub(crate) inbound: Inbound,
    pub(crate) outbound: Outbound,
}

/// A message that a server receives.
// Its tag is a word, in place of unused values of a byte within the head: a copy that leaves such a byte out is made of
// pieces that overlap, and the processor cannot forward the bytes it has just stored.
#[derive(Debug)]
#[repr(u64)]
pub enum Incoming {
    /// The head of a request; its body follows if [`RequestHead::has_body`].
    Head(RequestHead),
    /// A piece of the body.
    Data(Slice),
    /// The fields after a chunked body, if there are some.
    Trailers(Trailers),
    /// The end of the body.
    End,
    /// The peer speaks HTTP/2: its preface is the first of the input, from which nothing was removed. The application goes
    /// on with another codec. Only with [`Config::detect_http2`](crate::Config::detect_http2), and as the only message.
    Preface,
}

/// The state of the outbound side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outbound {
    /// No request waits for a response.
    Idle,
    /// A request waits for its response.
    Owed,
    /// Within a body of known length.
    Length,
    /// Within a chunked body.
    Chunked,
    /// Within a body that ends with the connection.
    UntilClose,
    /// Within a body that is not sent, as in a response to HEAD.
    Suppressed,
}

impl Server {
    /// The codec of a new connection.
    #[must_use]
    pub fn new(config: Arc<Config>) -> Self {
        Self {
            config,
            since: None,
            remaining: 0,
            budget: 0,
            owed: 0,
            seen: 0,
            late: Lateness::default(),
            flags: 0,
            inbound: Inbound::Head,
            outbound: Outbound::Idle,
        }
    }

    /// The configuration that all connections share.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Whether bytes that are left in the input belong to another protocol, after 101 or a CONNECT that succeeded.
    #[must_use]
    pub fn is_switched(&self) -> bool {
        self.inbound == Inbound::Switched
    }

    /// Yields the next request before the response to the last one is begun, if it has arrived already or arrives before.
    /// Returns whether bytes of it are there.
    ///
    /// A server may process requests of safe methods in parallel, and sends the responses in the order of the requests
    /// (RFC 9112 §9.3.2). So the application calls this only after a request with a safe method that asks for no
    /// upgrade. The codec yields one more request, if that is an HTTP/1.1 GET, HEAD or OPTIONS without a body, without
    /// `Expect` and without `Connection: close`; any other one waits as usual. Then the application may call this
    /// again. Each message that it sends belongs to the oldest request without a complete response.
    ///
    /// Nothing happens after a request that itself would have to wait, within a response, and once as many requests
    /// as the codec can count are behind the one in progress.
    pub fn read_ahead(&mut self) -> bool {
        const SPECIAL: u16 = HTTP_10 | EXPECTS | CONNECT;
        let is_last = self.ending() == Ending::Closing || self.flags & (KEEPS_ALIVE | SPECIAL) != KEEPS_ALIVE;
        if self.inbound != Inbound::Await || self.outbound != Outbound::Owed || is_last {
            return false;
        }
        let mut ahead = self.ahead();
        if ahead.is_full() {
            return false;
        }
        ahead.allow(true);
        self.remaining = ahead.0;
        self.flags |= READS_AHEAD;
        self.flags & HAS_MORE_INPUT != 0
    }

    /// How many requests the codec has yielded behind the one in progress.
    #[must_use]
    pub fn requests_ahead(&self) -> usize {
        self.ahead().count()
    }

    /// Keeps the request in progress, and those behind it, when the peer ends its side: decoding then yields
    /// [`Step::NeedMore`] and not [`Step::End`] while the response is owed. A peer that has ended its side may still read
    /// (RFC 9112 §9.6), but most that do have left. The next request begins without it.
    #[inline]
    pub fn keep_half_closed(&mut self) {
        if self.inbound != Inbound::Head {
            self.flags |= HALF_CLOSE;
        }
    }

    /// Whether the request in progress goes on when the peer ends its side.
    #[must_use]
    pub fn keeps_half_closed(&self) -> bool {
        self.flags & HALF_CLOSE != 0
    }

    pub(crate) fn ahead(&self) -> PipelinedMethods {
        if self.flags & READS_AHEAD == 0 { PipelinedMethods::default() } else { PipelinedMethods(self.remaining) }
    }

    /// Decodes a request behind the one in progress, if it may be processed already.
    #[inline(never)]
    fn decode_ahead(&mut self, input: &mut Input) -> Step<Incoming> {
        let mut ahead = self.ahead();
        ahead.set_more_input(!input.is_empty());
        let may_go_ahead = ahead.is_allowed() && self.outbound == Outbound::Owed && self.ending() != Ending::Closing;
        if input.is_empty() || !may_go_ahead {
            self.remaining = ahead.0;
            return Step::NeedMore;
        }
        ahead.allow(false);
        let parsed = parse::parse(input.bytes(), &self.config).ok();
        // An error is that of its own request, once that is the one in progress.
        let parsed = parsed.filter(|(spans, _)| is_independent(spans));
        let Some((spans, length)) = parsed else {
            self.remaining = ahead.0;
            return Step::NeedMore;
        };
        ahead.push(spans.method == Method::Head);
        ahead.set_more_input(input.len() > length);
        self.remaining = ahead.0;
        self.flags |= HAS_MORE_INPUT;
        Step::Message(Incoming::Head(RequestHead { bytes: input.take(length), spans }))
    }

    /// The response to the request in progress is complete, and others are behind it: the next one is in progress.
    #[inline(never)]
    pub(crate) fn next_ahead(&mut self) {
        let mut ahead = self.ahead();
        let has_more_input = ahead.has_more_input();
        let Some(is_head) = ahead.pop() else {
            self.remaining = 0;
            return self.next_request();
        };
        ahead.allow(false);
        self.remaining = ahead.0;
        let more_input = if ahead.count() > 0 || has_more_input { HAS_MORE_INPUT } else { 0 };
        let head = if is_head { HEAD } else { 0 };
        self.flags = (self.flags & (KEPT_FLAGS | HALF_CLOSE)) | READS_AHEAD | KEEPS_ALIVE | head | more_input;
        self.outbound = Outbound::Owed;
    }

    #[inline]
    fn reading(&self) -> ReadPhase {
        ReadPhase::of(self.flags)
    }

    /// An event that is not allowed in the state is a bug of ours, and changes nothing.
    fn on_read(&mut self, event: ReadEvent) {
        let after = self.reading().after(event);
        debug_assert!(after.is_some(), "{:?} in {:?}", event, self.reading());
        self.flags = after.unwrap_or(self.reading()).put(self.flags);
    }

    #[inline]
    pub(crate) fn ending(&self) -> Ending {
        Ending::of(self.flags)
    }

    fn on_end(&mut self, event: EndEvent) {
        self.flags = self.ending().after(event).put(self.flags);
    }

    #[inline(always)]
    fn accept(&mut self, input: &mut Input, spans: &Spans, length: usize, reply: &mut Output<'_>) -> RequestHead {
        let method = match spans.method {
            Method::Head => HEAD,
            Method::Connect => CONNECT,
            _ => 0,
        };
        let more_input = if input.len() > length { HAS_MORE_INPUT } else { 0 };
        self.flags = (self.flags & KEPT_FLAGS) | u16::from(spans.flags & !IRREGULAR) | method | more_input | SERVED;
        self.outbound = Outbound::Owed;
        self.inbound = Inbound::Await;
        if spans.body != 0 {
            self.expect_body(spans.body, input.len() - length, reply);
        }
        RequestHead { bytes: input.take(length), spans: *spans }
    }

    #[inline(never)]
    fn expect_body(&mut self, length: u64, arrived: usize, reply: &mut Output<'_>) {
        if length >= arrived as u64 {
            // The bytes after the head belong to the body, as far as the codec knows.
            self.flags &= !HAS_MORE_INPUT;
        }
        if length == CHUNKED {
            self.inbound = Inbound::ChunkSize;
            self.budget = self.config.limits().body_bytes_max;
        } else {
            self.inbound = Inbound::Length;
            self.remaining = length;
        }
        self.since = Some(reply.now());
        self.late = Lateness::default();
        if self.flags & EXPECTS != 0 && !self.config.continues_by_hand() {
            self.flags &= !EXPECTS;
            reply.write(CONTINUE);
        }
    }

    /// Decodes everything but a complete and valid head.
    #[inline(never)]
    fn decode_slow_path(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Incoming>, Error> {
        match self.inbound {
            Inbound::Head if input.is_empty() && self.ending() != Ending::Closing => {
                // Between two requests, the most common state of a connection.
                self.since.get_or_insert(reply.now());
                Ok(Step::NeedMore)
            }
            Inbound::Head => self.decode_head_slow_path(input, reply),
            Inbound::Await => {
                self.flags |= more_input(input);
                if self.flags & READS_AHEAD != 0 { Ok(self.decode_ahead(input)) } else { Ok(Step::NeedMore) }
            }
            Inbound::Switched => Ok(Step::NeedMore),
            Inbound::Closed => Ok(Step::End),
            _ if self.reading().is_skipping() => self.decode_skipped(input, reply),
            _ => self.decode_body(input, reply),
        }
    }

    /// Decodes a head that is incomplete or malformed, or that begins after an empty line.
    #[cold]
    fn decode_head_slow_path(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Incoming>, Error> {
        if self.config.detects_http2() && self.flags & SERVED == 0 && !input.is_empty() {
            let length = input.len().min(PREFACE.len());
            if input.bytes()[..length] == PREFACE[..length] {
                if length == PREFACE.len() {
                    self.inbound = Inbound::Switched;
                    return Ok(Step::Message(Incoming::Preface));
                }
                self.wait_for_head(true, reply);
                return Ok(Step::NeedMore);
            }
        }
        // The first byte of an empty line may have arrived alone.
        while self.seen < 2
            && input.bytes().starts_with(b"\r\n")
            && let Some(reading) = self.reading().after(ReadEvent::EmptyLine)
        {
            input.consume(2);
            self.seen = 0;
            // The HTTP/2 preface is the first message of a connection.
            self.flags |= SERVED;
            self.flags = reading.put(self.flags);
        }
        if input.bytes().starts_with(b"HEAD ") {
            // A refusal has no body either (RFC 9112 §6.3).
            self.flags |= HEAD;
        }
        let found = parse::head_end(input.bytes(), self.seen as usize, self.config.limits());
        match found.map_err(|error| self.refuse_request(error, input.bytes(), reply))? {
            // The decision to close came during the last response, so that response could not announce it.
            None if input.is_empty() && self.ending() == Ending::Closing => {
                self.inbound = Inbound::Closed;
                Ok(Step::End)
            }
            None => {
                // Shorter than the largest head, and so than 64 KiB.
                self.seen = input.len() as u16;
                self.wait_for_head(!input.is_empty(), reply);
                Ok(Step::NeedMore)
            }
            Some(end) => {
                self.seen = 0;
                match parse::parse(&input.bytes()[..end], &self.config) {
                    Ok((spans, length)) => Ok(Step::Message(Incoming::Head(self.accept(input, &spans, length, reply)))),
                    Err(ParseStop::Broken(error)) => Err(self.refuse_head(error, input, reply)),
                    // An empty line in place of a request line, after the last one that is tolerated.
                    Err(ParseStop::Partial) => {
                        Err(self.refuse_request(Error::Peer(Violation::RequestLine), input.bytes(), reply))
                    }
                }
            }
        }
    }

    /// Refuses a head. On a port of both versions, a first line of three words whose last one is no HTTP version may be
    /// a wrong HTTP/2 preface: its sender gets no response, which it would read as frames.
    #[cold]
    fn refuse_head(&mut self, error: Error, input: &Input, reply: &mut Output<'_>) -> Error {
        let line = input.bytes().split(|byte| *byte == b'\n').next().unwrap_or_default();
        let mut words = line.split(|byte| *byte == b' ');
        let (version, has_more) = (words.nth(2).unwrap_or(b"HTTP/"), words.next().is_some());
        let is_of_either = self.config.detects_http2()
            && self.flags & SERVED == 0
            && matches!(error, Error::Peer(Violation::RequestLine | Violation::Target | Violation::Version))
            && !has_more
            && !version.get(..5).is_some_and(|start| start.eq_ignore_ascii_case(b"HTTP/"));
        if is_of_either {
            self.inbound = Inbound::Closed;
            return error;
        }
        self.refuse_request(error, input.bytes(), reply)
    }

    fn wait_for_head(&mut self, begun: bool, reply: &Output<'_>) {
        if begun && !self.reading().is_in_head() {
            self.on_read(ReadEvent::Begin);
            self.on_end(EndEvent::Batch);
            self.since = Some(reply.now());
        }
        self.since.get_or_insert(reply.now());
    }

    #[inline(never)]
    fn decode_body(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Incoming>, Error> {
        match self.next_piece(input).map_err(|error| self.refuse(error, reply))? {
            Piece::Data(data) => {
                // A peer that sends its body no longer waits for `100 Continue`.
                self.flags &= !EXPECTS;
                self.feed(data.len(), reply);
                Ok(Step::Message(Incoming::Data(data)))
            }
            Piece::Trailers(trailers) => Ok(Step::Message(Incoming::Trailers(trailers))),
            Piece::End => {
                self.flags |= more_input(input);
                Ok(Step::Message(Incoming::End))
            }
            Piece::More => {
                self.wait_for_body(reply);
                Ok(Step::NeedMore)
            }
        }
    }

    fn next_piece(&mut self, input: &mut Input) -> Result<Piece, Error> {
        let limits = self.config.limits();
        let mut body = BodyReader {
            inbound: &mut self.inbound,
            remaining: &mut self.remaining,
            budget: &mut self.budget,
            seen: &mut self.seen,
            chunk_extension_bytes_max: limits.chunk_extension_bytes_max,
            trailer_bytes_max: limits.trailer_bytes_max,
        };
        body.next_piece(input)
    }

    fn wait_for_body(&mut self, reply: &Output<'_>) {
        if !self.reading().awaits_body() {
            self.resume_body(reply.now());
            self.on_read(ReadEvent::Await);
        }
    }

    /// The codec begins to wait for the body again: its lateness continues where it was.
    fn resume_body(&mut self, now: Instant) {
        self.since = self.late.resumed(self.since, now, self.config.limits().body_timeout);
    }

    /// Counts a received piece of the body.
    fn feed(&mut self, bytes: usize, reply: &Output<'_>) {
        let now = reply.now();
        if !self.reading().awaits_body() {
            self.resume_body(now);
        }
        self.on_read(ReadEvent::Arrived);
        let limits = self.config.limits();
        self.since = body::late_since(self.since, now, bytes, limits.body_rate_min);
        self.late = Lateness::new(self.since, now, limits.body_timeout);
    }

    /// Skips a body that the application did not read, up to the next request.
    #[inline(never)]
    fn decode_skipped(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Incoming>, Error> {
        loop {
            match self.next_piece(input) {
                Ok(Piece::Data(data)) => self.feed(data.len(), reply),
                Ok(Piece::Trailers(_)) => {}
                Ok(Piece::End) => {
                    self.next_request();
                    self.since = Some(reply.now());
                    return self.decode(input, reply);
                }
                Ok(Piece::More) => {
                    self.wait_for_body(reply);
                    return Ok(Step::NeedMore);
                }
                // The response was sent, so a body that is too long to skip is no error.
                Err(Error::Limit(Exceeded::Body)) => {
                    self.inbound = Inbound::Closed;
                    return Ok(Step::End);
                }
                Err(error) => {
                    self.inbound = Inbound::Closed;
                    return Err(error);
                }
            }
        }
    }

    /// Whether the rest of the body is short enough to be skipped, and the peer will send it at all.
    pub(crate) fn can_skip(&self) -> bool {
        let is_coming = self.flags & EXPECTS == 0;
        let is_counted = matches!(self.inbound, Inbound::Length | Inbound::ChunkData);
        is_coming && !(is_counted && self.remaining > self.config.limits().skip_bytes_max)
    }

    /// The response is complete, and the request is not.
    #[inline(never)]
    pub(crate) fn skip_body(&mut self) {
        if !self.can_skip() {
            self.inbound = Inbound::Closed;
        } else if self.inbound == Inbound::Length && self.remaining == 0 {
            self.next_request();
        } else {
            self.on_read(ReadEvent::Skip);
            self.late = Lateness::default();
            self.budget = self.budget.min(self.config.limits().skip_bytes_max);
        }
    }

    #[inline]
    pub(crate) fn next_request(&mut self) {
        self.inbound = Inbound::Head;
        self.flags &= KEPT_FLAGS;
    }

    fn deadline(&self) -> Option<(Instant, Deadline)> {
        let limits = self.config.limits();
        let (after, deadline) = match self.inbound {
            Inbound::Head if self.reading().is_in_head() => (limits.head_timeout, Deadline::Head),
            Inbound::Head if self.ending().is_draining() => {
                (limits.idle_timeout.min(limits.drain_grace), Deadline::Idle)
            }
            Inbound::Head => (limits.idle_timeout, Deadline::Idle),
            // An application that answers every request with 200 does so to CONNECT as well, and then never switches.
            Inbound::Switched => (limits.idle_timeout, Deadline::Idle),
            Inbound::Await | Inbound::Closed => return None,
            _ if !self.reading().awaits_body() => return None,
            _ => (limits.body_timeout, Deadline::Body),
        };
        Some((self.since?.checked_add(after)?, deadline))
    }
}

impl Codec for Server {
    type In = Incoming;
    type Out = Outgoing;
    type Error = Error;

    fn protocol(&self) -> &'static str {
        "HTTP/1.1"
    }

    // The fast path of a loop: a complete and valid head. Everything else is on the slow path.
    #[inline(always)]
    fn decode(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Incoming>, Error> {
        if self.inbound == Inbound::Head
            && self.seen == 0
            && !input.is_empty()
            // By reference: a copy would be made of pieces.
            && let Ok((spans, length)) = &parse::parse(input.bytes(), &self.config)
        {
            return Ok(Step::Message(Incoming::Head(self.accept(input, spans, *length, reply))));
        }
        self.decode_slow_path(input, reply)
    }

    #[inline(always)]
    fn encode(&mut self, message: Outgoing, out: &mut Output<'_>) -> Result<(), Error> {
        self.send(message, out).map_err(Error::Caller)
    }

    /// Decodes the complete messages. While a response is owed and input is left, it returns [`Step::NeedMore`]: that
    /// input is decoded once the response is complete. Without input it returns [`Step::End`] although the response is
    /// owed, so that the application learns that the peer has ended its side;
    /// [`keep_half_closed`](Server::keep_half_closed) has it return [`Step::NeedMore`] there as well.
    #[cold]
    fn decode_eof(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Incoming>, Error> {
        let step = self.decode(input, reply)?;
        if !matches!(step, Step::NeedMore) {
            return Ok(step);
        }
        match self.inbound {
            Inbound::Await => {
                if !input.is_empty() {
                    return Ok(Step::NeedMore);
                }
                self.on_end(EndEvent::Close);
                if self.flags & HALF_CLOSE != 0 {
                    return Ok(Step::NeedMore);
                }
                if self.outbound != Outbound::Owed && self.ahead().count() == 0 {
                    // Nothing is decoded any more, and the head of the response could not announce that.
                    self.flags &= !KEEPS_ALIVE;
                }
                Ok(Step::End)
            }
            Inbound::Switched | Inbound::Closed => Ok(Step::End),
            _ if self.reading().is_skipping() || (self.inbound == Inbound::Head && input.is_empty()) => {
                self.inbound = Inbound::Closed;
                Ok(Step::End)
            }
            _ => Err(self.refuse(Error::Peer(Violation::Truncated), reply)),
        }
    }

    /// At a failure it sends a 500, if a response is owed and none of it was written.
    ///
    /// At a drain, the response to the last request that has arrived announces the close. Closing an idle connection at
    /// once would fail a request that is in flight, so there is a grace period first: see `drain_grace` of
    /// [`Limits`](crate::Limits).
    fn on(&mut self, event: Lifecycle, out: &mut Output<'_>) -> Result<(), Error> {
        match event {
            Lifecycle::Opened => self.since = Some(out.now()),
            Lifecycle::Resumed if self.inbound.is_body() => self.resume_body(out.now()),
            Lifecycle::Resumed => self.since = self.since.map(|_| out.now()),
            Lifecycle::Drain => {
                self.on_end(EndEvent::Drain);
                if self.inbound == Inbound::Head && !self.reading().is_in_head() {
                    self.since = Some(out.now());
                }
            }
            Lifecycle::Fail => self.give_up(out),
            _ => {}
        }
        Ok(())
    }

    #[inline]
    fn status(&self) -> CodecStatus {
        CodecStatus {
            is_finished: self.inbound == Inbound::Closed && self.outbound == Outbound::Idle,
            reports_finish: true,
            is_blocked: matches!(self.inbound, Inbound::Await | Inbound::Switched),
            is_close_delimited: self.outbound == Outbound::UntilClose,
            buffered_bytes: 0,
        }
    }

    fn is_between_messages(&self) -> bool {
        self.inbound == Inbound::Head && !self.reading().is_in_head() && self.outbound == Outbound::Idle
    }

    #[inline]
    fn bulk_bytes(&self) -> u64 {
        if matches!(self.inbound, Inbound::Length | Inbound::ChunkData) { self.remaining } else { 0 }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.deadline().map(|(at, _)| at)
    }

    #[cold]
    fn handle_timeout(&mut self, input: &Input, reply: &mut Output<'_>) -> Result<(), Error> {
        match self.deadline() {
            Some((at, deadline)) if at <= reply.now() => match deadline {
                Deadline::Head => Err(self.refuse_request(Error::Limit(Exceeded::HeadTime), input.bytes(), reply)),
                Deadline::Body if !self.reading().is_skipping() => {
                    Err(self.refuse(Error::Limit(Exceeded::BodyTime), reply))
                }
                Deadline::Idle | Deadline::Body => {
                    self.inbound = Inbound::Closed;
                    Ok(())
                }
            },
            _ => Ok(()),
        }
    }
}

impl Default for Server {
    fn default() -> Self {
        Self::new(Arc::default())
    }
}

/// Whether a request may be processed before the response to the one before it is complete.
fn is_independent(spans: &Spans) -> bool {
    let is_safe = matches!(spans.method, Method::Get | Method::Head | Method::Options);
    is_safe && spans.body == 0 && spans.flags == head::KEEP_ALIVE
}

#[inline]
fn more_input(input: &Input) -> u16 {
    if input.is_empty() { 0 } else { HAS_MORE_INPUT }
}

enum Deadline {
    Idle,
    Head,
    Body,
}

// The lower flags are those of the head.
pub(crate) const HTTP_10: u16 = head::HTTP_10 as u16;
/// The connection stays open after the response in progress: as far as the peer wants it, and once the head of the
/// response is written, as that announces.
pub(crate) const KEEPS_ALIVE: u16 = head::KEEP_ALIVE as u16;
/// The peer waits for `100 Continue`, and none was sent.
pub(crate) const EXPECTS: u16 = head::EXPECTS_CONTINUE as u16;

/// The request is a HEAD.
pub(crate) const HEAD: u16 = 8;
/// The request is a CONNECT.
pub(crate) const CONNECT: u16 = 16;
/// More than this request has arrived.
pub(crate) const HAS_MORE_INPUT: u16 = 32;
/// The application has read ahead behind the request in progress.
pub(crate) const READS_AHEAD: u16 = 1 << 14;
/// A request, or an empty line before one, has arrived, so the connection speaks HTTP/1.
const SERVED: u16 = 1 << 13;
/// The request in progress goes on when the peer has ended its side.
const HALF_CLOSE: u16 = 1 << 15;

/// The HTTP/2 connection preface (RFC 9113 §3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The flags that outlive a request.
const KEPT_FLAGS: u16 = ENDING | SERVED;

/// All flags. No two of them share a bit.
const FLAGS: [u16; 11] =
    [HTTP_10, KEEPS_ALIVE, EXPECTS, HEAD, CONNECT, HAS_MORE_INPUT, READS_AHEAD, SERVED, HALF_CLOSE, ENDING, READING];
const FREE_BITS: u32 = {
    let (mut used, mut next) = (0, 0);
    while next < FLAGS.len() {
        assert!(used & FLAGS[next] == 0, "two flags share a bit");
        used |= FLAGS[next];
        next += 1;
    }
    used.count_zeros()
};

const _: () = assert!(FREE_BITS == 0);
const _: () = assert!(size_of::<Server>() == 56);
const _: () = assert!(size_of::<Incoming>() == 40);
