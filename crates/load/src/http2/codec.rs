//! `Http2Codec`: the codec of a load over HTTP/2. It opens a stream for each request, and checks every response.
//!
//! The request is the same each time, so its head and its body are made once; the connection compresses the head.

use std::rc::Rc;

use tidegate::codec::mux::{Mux, ResetCause, StreamEvent, StreamKey, StreamQueues, transmit};
use tidegate::codec::{Codec, CodecStatus, Input, Lifecycle, Outbound, Output, Step};
use tidegate::http1::BodyLength;
use tidegate::http1::client::Incoming;
use tidegate::http2::{ClientStream, Connection, Error, ErrorCode};

use crate::counters::Verdict;
use crate::pipeline::Exchange;
use crate::request::StreamRequest;

/// A message that the load sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Send {
    /// A request on a new stream, with a number by which the load knows it, and the place in the list of requests of one that
    /// is sent again.
    Request { number: u32, place: Option<usize> },
    /// The response to this request came too late: its stream is reset.
    Cancel(u32),
}

/// An event of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Http2Event {
    /// The settings of the server have come.
    Settings,
    /// The response to this request is complete.
    Response { number: u32, is_good: bool },
    /// This request has no response: the server has reset its stream.
    Lost { number: u32 },
    /// The server did not process this request: it has reset its stream with REFUSED_STREAM, or its GOAWAY has a lower stream.
    Refused { number: u32, place: usize },
}

/// The codec of a load over HTTP/2, on one connection.
#[derive(Debug)]
pub(crate) struct Http2Codec {
    exchange: Rc<Exchange>,
    /// The requests, which are sent in turn.
    requests: Rc<[Rc<StreamRequest>]>,
    /// The place of the next one.
    next: usize,
    connection: Connection,
    streams: Streams,
    /// A record of one stream, while its codec reads it.
    record: Input,
    has_settings: bool,
    has_goaway: bool,
}

/// The streams, by their places in the table of the connection.
#[derive(Debug, Default)]
struct Streams(Vec<Option<Stream>>);

#[derive(Debug)]
struct Stream {
    number: u32,
    /// The place in the list of requests.
    place: usize,
    codec: ClientStream,
    /// The bytes to send.
    queue: Outbound,
    status: u16,
    verdict: Verdict,
    body_bytes: u64,
    is_complete: bool,
}

impl StreamQueues for Streams {
    fn with(&mut self, owner: [u32; 2], act: impl FnOnce(&mut Outbound, bool) -> bool) {
        if let Some(Some(stream)) = self.0.get_mut(owner[0] as usize) {
            act(&mut stream.queue, false);
        }
    }
}

impl Http2Codec {
    /// # Panics
    /// If there is no request.
    pub(crate) fn new(exchange: Rc<Exchange>, requests: Rc<[Rc<StreamRequest>]>) -> Self {
        let connection = Connection::client(requests[0].config.clone());
        let next = (exchange.next_connection() % requests.len() as u64) as usize;
        let (streams, record) = (Streams::default(), Input::new());
        Self { exchange, requests, next, connection, streams, record, has_settings: false, has_goaway: false }
    }

    /// Whether the settings of the server have come.
    pub(crate) fn has_settings(&self) -> bool {
        self.has_settings
    }

    /// How many streams the server permits. No limit before its settings have come.
    pub(crate) fn streams_max(&self) -> u32 {
        self.connection.peer_streams_max().unwrap_or(u32::MAX)
    }

    /// Whether the connection takes no further request.
    pub(crate) fn is_ending(&self) -> bool {
        self.connection.is_ending()
    }

    /// Opens a stream, and sends the request on it.
    fn open(&mut self, number: u32, again: Option<usize>, out: &mut Output<'_>) {
        let Ok(key) = self.connection.open(out) else { return };
        let mut queue = Outbound::new(out.pool());
        let place = again.unwrap_or(self.next);
        let request = &self.requests[place];
        if again.is_none() {
            self.next = (place + 1) % self.requests.len();
        }
        out.with_queue(&mut queue).link_bytes(request.records.clone());
        let codec = ClientStream::new(request.limits.clone(), request.scheme);
        let (status, verdict, body_bytes, is_complete) = (0, Verdict::Good, 0, false);
        let stream = Stream { number, place, codec, queue, status, verdict, body_bytes, is_complete };
        let index = key.index() as usize;
        if index >= self.streams.0.len() {
            self.streams.0.resize_with(index + 1, || None);
        }
        self.streams.0[index] = Some(stream);
        self.connection.streams_mut().set_owner(key, [key.index(), 1]);
        self.connection.streams_mut().set_ready(key);
    }

    fn cancel(&mut self, number: u32, out: &mut Output<'_>) {
        let is_it = |stream: &Option<Stream>| stream.as_ref().is_some_and(|stream| stream.number == number);
        let Some(index) = self.streams.0.iter().position(is_it) else { return };
        if let Some(key) = self.connection.streams().at(index as u32) {
            self.connection.write_reset(key, ResetCause::Cancelled, out);
            self.close(key);
        }
    }

    fn close(&mut self, key: StreamKey) -> Option<Stream> {
        self.connection.streams_mut().close(key);
        self.streams.0.get_mut(key.index() as usize)?.take()
    }

    fn transmit(&mut self, out: &mut Output<'_>) {
        transmit(&mut self.connection, &mut self.streams, u64::MAX, out);
    }

    /// Reads a record of a stream.
    fn read(&mut self, key: StreamKey, reply: &mut Output<'_>) -> Result<(), tidegate::http1::Error> {
        let Some(Some(stream)) = self.streams.0.get_mut(key.index() as usize) else { return Ok(()) };
        let stats = &self.exchange.stats;
        loop {
            match stream.codec.decode(&mut self.record, reply)? {
                Step::Message(Incoming::Head(head)) => {
                    let length = match head.body() {
                        BodyLength::None => Some(0),
                        BodyLength::Known(length) => Some(length),
                        BodyLength::Chunked | BodyLength::UntilClose => None,
                    };
                    stream.status = head.status().code();
                    stream.verdict = stats.judge(stream.status, length);
                    stream.is_complete = !head.has_body();
                }
                Step::Message(Incoming::Data(data)) => stream.body_bytes += data.len() as u64,
                Step::Message(Incoming::End) => {
                    stream.is_complete = true;
                    if stream.verdict == Verdict::Good {
                        stream.verdict = stats.judge_length(stream.body_bytes);
                    }
                }
                Step::Message(Incoming::Interim(_) | Incoming::Trailers(_)) => {}
                Step::NeedMore | Step::End => return Ok(()),
            }
        }
    }

    fn on_event(&mut self, event: StreamEvent, reply: &mut Output<'_>) -> Option<Http2Event> {
        match event {
            StreamEvent::Data { stream: key, bytes } => {
                self.record.append(bytes, reply.pool());
                let read = self.read(key, reply);
                // An error leaves the rest of the record.
                self.record.consume(self.record.len());
                self.connection.streams_mut().set_unread(key, 0);
                if read.is_ok() {
                    return None;
                }
                self.exchange.stats.invalid();
                self.connection.write_reset(key, ResetCause::Violation, reply);
                self.close(key).map(|stream| Http2Event::Lost { number: stream.number })
            }
            StreamEvent::Ended(key) => {
                if !self.connection.streams().has_ended_locally(key) {
                    // The server does not want the rest of the request (RFC 9113 §8.1).
                    self.connection.write_reset(key, ResetCause::Unneeded, reply);
                }
                let Stream { number, status, verdict, is_complete, .. } = self.close(key)?;
                if !is_complete {
                    self.exchange.stats.invalid();
                    return Some(Http2Event::Lost { number });
                }
                self.exchange.stats.count_status(status, 1);
                self.exchange.stats.bad(verdict, 1);
                Some(Http2Event::Response { number, is_good: verdict == Verdict::Good })
            }
            // A GOAWAY resets the streams above its own in this way.
            StreamEvent::Reset { stream, code } if code == u64::from(ErrorCode::REFUSED_STREAM.0) => {
                self.close(stream).map(|Stream { number, place, .. }| Http2Event::Refused { number, place })
            }
            StreamEvent::Reset { stream, .. } => {
                self.exchange.stats.reset();
                self.close(stream).map(|stream| Http2Event::Lost { number: stream.number })
            }
            // A client accepts no streams.
            StreamEvent::Opened(_) => None,
        }
    }

    fn next(&mut self, input: &mut Input, reply: &mut Output<'_>, ended: bool) -> Result<Step<Http2Event>, Error> {
        loop {
            let before = input.len();
            let step =
                if ended { self.connection.decode_eof(input, reply) } else { self.connection.decode(input, reply) };
            self.exchange.stats.received(before - input.len());
            let step = step?;
            if !self.has_goaway && self.connection.peer_goaway().is_some() {
                self.has_goaway = true;
                self.exchange.stats.goaway();
            }
            match step {
                Step::Message(event) => {
                    if let Some(received) = self.on_event(event, reply) {
                        return Ok(Step::Message(received));
                    }
                }
                Step::NeedMore => {
                    self.transmit(reply);
                    if !self.has_settings && self.connection.peer_streams_max().is_some() {
                        self.has_settings = true;
                        return Ok(Step::Message(Http2Event::Settings));
                    }
                    return Ok(Step::NeedMore);
                }
                Step::End => return Ok(Step::End),
            }
        }
    }
}

impl Codec for Http2Codec {
    type In = Http2Event;
    type Out = Send;
    type Error = Error;

    fn decode(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Http2Event>, Error> {
        self.next(input, reply, false).inspect_err(|_| self.exchange.stats.invalid())
    }

    /// A request that the connection does not take stays without a response; [`is_ending`](Self::is_ending) says so
    /// before.
    fn encode(&mut self, send: Send, out: &mut Output<'_>) -> Result<(), Error> {
        match send {
            Send::Request { number, place } => self.open(number, place, out),
            Send::Cancel(number) => self.cancel(number, out),
        }
        self.transmit(out);
        Ok(())
    }

    fn decode_eof(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Http2Event>, Error> {
        let step = self.next(input, reply, true).inspect_err(|_| self.exchange.stats.invalid())?;
        if step == Step::End && !self.connection.streams().is_empty() {
            self.exchange.stats.closed();
            self.streams.0.clear();
            let open: Vec<_> = self.connection.streams().iter().collect();
            open.into_iter().for_each(|key| self.connection.streams_mut().close(key));
        }
        Ok(step)
    }

    fn on(&mut self, event: Lifecycle, out: &mut Output<'_>) -> Result<(), Error> {
        self.connection.on(event, out)
    }

    fn status(&self) -> CodecStatus {
        self.connection.status()
    }
}
