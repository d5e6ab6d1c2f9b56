//! `Pipeline`: the codec of a load. It sends batches of the same request, or of several in turn, and checks every response.
//!
//! The responses to one request are mostly equal as well, to the byte. The codec therefore caches the last head that the HTTP client
//! codec has decoded, once for all connections of a loop, and compares input with it. A response whose head differs by
//! a byte goes through the client codec, which is as strict as for any client, and its head replaces the cached one.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use tidegate::codec::{Codec, CodecStatus, Input, Outbound, Output, Step};
use tidegate::http1::client::{Incoming, Outgoing};
use tidegate::http1::{BodyLength, Client, Error, Violation};

use super::counters::{Verdict, WorkerStats};
use super::redis::RedisCounts;
use super::request::EncodedRequest;

/// Shared state of a loop's connections: the cached head, and the counts.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) stats: WorkerStats,
    /// The messages of a WebSocket or of a channel are delivered to other connections.
    pub(crate) broadcasts: bool,
    /// Replies to commands of Redis.
    pub(crate) redis: RefCell<RedisCounts>,
    /// The number of the next connection.
    connections: Cell<u64>,
    known: RefCell<CachedHead>,
}

/// The cached head, and the length behind it.
#[derive(Debug, Default)]
struct CachedHead {
    /// Empty before the first response.
    head: Vec<u8>,
    body_bytes: usize,
    judged: Judged,
}

/// The status of a response, and the verdict on it.
#[derive(Debug, Clone, Copy, Default)]
struct Judged {
    status: u16,
    verdict: Verdict,
}

impl Exchange {
    /// The exchange of the loop with this number.
    pub(crate) fn new(stats: WorkerStats, index: usize) -> Self {
        let connections = Cell::new((index as u64) << 32);
        Self { stats, broadcasts: false, redis: RefCell::default(), connections, known: RefCell::default() }
    }

    /// A number that no other load has at the same time, as far as chance goes: the author of its broadcasts.
    pub(crate) fn author(&self) -> u64 {
        self.stats.author()
    }

    /// A number for a new connection. The numbers of two loops differ.
    pub(crate) fn next_connection(&self) -> u64 {
        let number = self.connections.get();
        self.connections.set(number + 1);
        number
    }
}

/// How many requests to send at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Batch {
    /// The handshake that opens a WebSocket, or the first command of Redis.
    Opening,
    /// One: the request of an idle connection.
    One,
    /// So many: those given with `--pipeline`, or what is left of `-n`.
    Run(u32),
}

/// Consecutive responses: how many have arrived, and how many of them were good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Responses {
    pub(crate) all: u32,
    pub(crate) good: u32,
}

/// The codec of a load, on one connection.
#[derive(Debug)]
pub(crate) struct Pipeline {
    exchange: Rc<Exchange>,
    /// The requests, which are sent in turn.
    requests: Rc<[EncodedRequest]>,
    /// The places of the next request to send, and of the one whose response comes next.
    next_sent: usize,
    next_answered: usize,
    client: Client,
    /// Outstanding responses, the one in progress included.
    owed: u32,
    /// The client codec is within a response.
    reading: bool,
    /// The input has bytes beyond the last outstanding response. They must not count as a response to a later request.
    stray: bool,
    /// The server has closed with no response outstanding.
    ended: bool,
    /// Outstanding body bytes of a response with the cached head.
    rest: usize,
    /// The status of the response in progress, and the verdict on it.
    judged: Judged,
    /// The body bytes of it that the client codec has decoded.
    body_bytes: u64,
}

impl Pipeline {
    /// # Panics
    /// If there is no request.
    pub(crate) fn new(exchange: Rc<Exchange>, requests: Rc<[EncodedRequest]>) -> Self {
        let client = Client::new(requests[0].config.clone());
        // Connections begin at different requests, so that the server gets all of them from the start.
        let first = (exchange.next_connection() % requests.len() as u64) as usize;
        Self {
            exchange,
            requests,
            next_sent: first,
            next_answered: first,
            client,
            owed: 0,
            reading: false,
            stray: false,
            ended: false,
            rest: 0,
            judged: Judged::default(),
            body_bytes: 0,
        }
    }

    /// Takes responses with the cached head from the front of the input.
    fn take_known(&mut self, input: &mut Input) -> Responses {
        let known = self.exchange.known.borrow();
        let (bytes, mut at, mut responses) = (input.bytes(), 0, Responses { all: 0, good: 0 });
        if self.rest > 0 {
            at = self.rest.min(bytes.len());
            self.rest -= at;
            if self.rest == 0 {
                self.count(self.judged, 1, &mut responses);
            }
        }
        if self.rest == 0 && !known.head.is_empty() {
            let (owed, mut whole) = (self.owed - responses.all, 0);
            while whole < owed && bytes[at..].starts_with(&known.head) {
                at += known.head.len();
                let there = bytes.len() - at;
                if there < known.body_bytes {
                    (self.rest, self.judged) = (known.body_bytes - there, known.judged);
                    at = bytes.len();
                    break;
                }
                at += known.body_bytes;
                whole += 1;
            }
            self.count(known.judged, whole, &mut responses);
        }
        self.owed -= responses.all;
        self.exchange.stats.received(at);
        input.consume(at);
        self.stray = self.owed == 0 && !input.is_empty();
        responses
    }

    fn count(&self, judged: Judged, count: u32, responses: &mut Responses) {
        responses.all += count;
        if count > 0 {
            self.exchange.stats.count_status(judged.status, count);
        }
        match judged.verdict {
            Verdict::Good => responses.good += count,
            verdict => self.exchange.stats.bad(verdict, count),
        }
    }

    /// Whether the input may grow into the cached head.
    fn may_be_known(&self, input: &Input) -> bool {
        self.exchange.known.borrow().head.starts_with(input.bytes())
    }

    /// Registers sent requests with the client codec, two at most: it needs to know whether another response follows.
    fn register_requests(&mut self, reply: &Output<'_>) -> Result<(), Error> {
        while self.client.unanswered() < self.owed.min(2) as usize {
            let mut unsent = Outbound::new(reply.pool());
            let index = (self.next_answered + self.client.unanswered()) % self.requests.len();
            let request = Outgoing::Request(self.requests[index].request.clone());
            self.client.encode(request, &mut reply.with_queue(&mut unsent))?;
        }
        Ok(())
    }

    /// Decodes a response, or the available part of it, with the client codec.
    fn read(&mut self, input: &mut Input, reply: &mut Output<'_>, ended: bool) -> Result<Option<Responses>, Error> {
        if !self.reading {
            self.register_requests(reply)?;
            self.reading = true;
        }
        loop {
            let before = input.len();
            let step = if ended { self.client.decode_eof(input, reply) } else { self.client.decode(input, reply) };
            self.exchange.stats.received(before - input.len());
            let is_complete = match step? {
                Step::Message(Incoming::Head(head)) => {
                    let length = match head.body() {
                        BodyLength::None => Some(0),
                        BodyLength::Known(length) => Some(length),
                        BodyLength::Chunked | BodyLength::UntilClose => None,
                    };
                    let status = head.status().code();
                    let verdict = self.exchange.stats.judge(status, length);
                    (self.body_bytes, self.judged) = (0, Judged { status, verdict });
                    // With several requests the next response may be to HEAD, and have no body behind the same head.
                    if self.requests.len() == 1
                        && let Some(length) = length
                        && let Ok(body_bytes) = usize::try_from(length)
                        && head.keeps_alive()
                    {
                        let mut known = self.exchange.known.borrow_mut();
                        known.head.clear();
                        known.head.extend_from_slice(head.bytes());
                        (known.body_bytes, known.judged) = (body_bytes, self.judged);
                    }
                    !head.has_body()
                }
                Step::Message(Incoming::Data(data)) => {
                    self.body_bytes += data.len() as u64;
                    false
                }
                Step::Message(Incoming::End) => {
                    if self.judged.verdict == Verdict::Good {
                        self.judged.verdict = self.exchange.stats.judge_length(self.body_bytes);
                    }
                    true
                }
                Step::Message(Incoming::Interim(_) | Incoming::Trailers(_)) => false,
                Step::NeedMore | Step::End => return Ok(None),
            };
            if is_complete {
                self.reading = false;
                self.next_answered = (self.next_answered + 1) % self.requests.len();
                self.owed -= 1;
                self.stray = self.owed == 0 && !input.is_empty() && !self.client.status().is_finished;
                let mut responses = Responses { all: 0, good: 0 };
                self.count(self.judged, 1, &mut responses);
                return Ok(Some(responses));
            }
        }
    }

    fn next(&mut self, input: &mut Input, reply: &mut Output<'_>, ended: bool) -> Result<Step<Responses>, Error> {
        if self.client.status().is_finished {
            return Ok(Step::End);
        }
        if self.stray {
            return Err(Error::Peer(Violation::UnsolicitedResponse));
        }
        if !self.reading {
            let responses = self.take_known(input);
            if responses.all > 0 {
                return Ok(Step::Message(responses));
            }
            if self.stray {
                return Err(Error::Peer(Violation::UnsolicitedResponse));
            }
            if !ended && (input.is_empty() || self.may_be_known(input)) {
                return Ok(Step::NeedMore);
            }
            if ended && self.rest > 0 {
                return Err(Error::Peer(Violation::ResponseTruncated));
            }
            if ended && self.owed == 0 {
                self.ended = true;
                return Ok(Step::End);
            }
        }
        Ok(self.read(input, reply, ended)?.map_or(Step::NeedMore, Step::Message))
    }
}

impl Codec for Pipeline {
    type In = Responses;
    type Out = Batch;
    type Error = Error;

    fn decode(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Responses>, Error> {
        self.next(input, reply, false).inspect_err(|_| self.exchange.stats.invalid())
    }

    fn encode(&mut self, batch: Batch, out: &mut Output<'_>) -> Result<(), Error> {
        let count = match batch {
            Batch::Opening => return Ok(()),
            Batch::One => 1,
            Batch::Run(count) => count,
        };
        self.owed += count;
        if let [request] = &*self.requests {
            out.link_bytes(request.of_run(count));
            return Ok(());
        }
        for _ in 0..count {
            out.link_bytes(self.requests[self.next_sent].one.clone());
            self.next_sent = (self.next_sent + 1) % self.requests.len();
        }
        Ok(())
    }

    fn decode_eof(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Responses>, Error> {
        self.next(input, reply, true).inspect_err(|error| match error {
            Error::Peer(Violation::Unanswered | Violation::ResponseTruncated) => self.exchange.stats.closed(),
            _ => self.exchange.stats.invalid(),
        })
    }

    fn status(&self) -> CodecStatus {
        let client = self.client.status();
        CodecStatus { is_finished: self.ended || client.is_finished, ..client }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Instant, SystemTime};

    use tidegate::codec::{Pool, Time};

    use super::super::counters::SharedStats;
    use super::super::request::RequestTemplate;
    use super::super::results::Errors;
    use super::*;

    /// The result of a connection: responses, good responses, the error that ended it, error counts, bytes read.
    type Outcome = (u32, u32, Option<Error>, Errors, u64);

    /// Sends `depth` requests, and receives these pieces.
    fn receive(method: &str, depth: u32, pieces: &[&[u8]], ends: bool) -> Outcome {
        let url = "http://a/".parse().expect("a URL");
        let template =
            RequestTemplate { url, method: method.into(), headers: vec![], body: vec![], depth, is_http2: false };
        let exchange = Exchange::new(WorkerStats::new(Arc::new(SharedStats::new(false, None))), 0);
        let mut codec = Pipeline::new(Rc::new(exchange), [template.encode().expect("it is good")].into());
        let (pool, time) = (Pool::new(), Time::new(Instant::now(), SystemTime::UNIX_EPOCH));
        let (mut queue, mut input) = (Outbound::new(&pool), Input::new());
        let mut out = Output::new(&mut queue, &pool, &time);
        codec.encode(Batch::Run(depth), &mut out).expect("it is sent");
        let (mut all, mut good, mut failure) = (0, 0, None);
        for piece in pieces {
            input.append(pool.copy(piece), &pool);
            while failure.is_none() {
                match codec.decode(&mut input, &mut out) {
                    Ok(Step::Message(responses)) => (all, good) = (all + responses.all, good + responses.good),
                    Ok(Step::NeedMore | Step::End) => break,
                    Err(error) => failure = Some(error),
                }
            }
        }
        while ends && failure.is_none() {
            match codec.decode_eof(&mut input, &mut out) {
                Ok(Step::Message(responses)) => (all, good) = (all + responses.all, good + responses.good),
                Ok(Step::NeedMore | Step::End) => break,
                Err(error) => failure = Some(error),
            }
        }
        let stats = &codec.exchange.stats;
        (all, good, failure, stats.errors(), stats.bytes_read())
    }

    /// Receives the bytes whole, split at every position, and byte by byte, and asserts equal results.
    fn receive_split(method: &str, depth: u32, bytes: &[u8], ends: bool) -> Outcome {
        let whole = receive(method, depth, &[bytes], ends);
        for at in 1..bytes.len() {
            let (first, second) = bytes.split_at(at);
            assert_eq!(receive(method, depth, &[first, second], ends), whole, "split at {at}");
        }
        assert_eq!(receive(method, depth, &bytes.chunks(1).collect::<Vec<_>>(), ends), whole, "byte by byte");
        whole
    }

    const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nebbs";
    const OTHER: &str = "HTTP/1.1 200 OK\r\nX: y\r\nContent-Length: 4\r\n\r\nrise";
    const CHUNKED: &str =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\ne\r\n3\r\nbbs\r\n0\r\nA: b\r\n\r\n";
    const LONGER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfloods"; // its last byte is one too many
    const MISSING: &str = "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno";
    const EARLY: &str = "HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n";

    #[test]
    fn responses_are_counted_alike_at_every_split() {
        let text = [OK, OK, OTHER, OK, OK, EARLY, OK, CHUNKED, OK, MISSING, MISSING, OK].concat();
        let (all, good, failure, errors, bytes) = receive_split("GET", 11, text.as_bytes(), false);
        assert_eq!((all, good, failure), (11, 9, None));
        assert_eq!(errors, Errors { status: 2, ..Errors::default() });
        assert_eq!(bytes, text.len() as u64);
    }

    #[test]
    fn a_response_of_another_length_counts_as_an_error() {
        let text = [OK, OK, &LONGER[..LONGER.len() - 1], OK, "HTTP/1.1 204 No Content\r\n\r\n", OK].concat();
        let (all, good, failure, errors, _) = receive_split("GET", 6, text.as_bytes(), false);
        assert_eq!((all, good, failure), (6, 4, None));
        assert_eq!(errors, Errors { length: 2, ..Errors::default() });
    }

    #[test]
    fn a_response_without_a_request_is_an_error() {
        for text in [[OK, OK, OK].concat(), [OK, CHUNKED, "x"].concat()] {
            let (all, good, failure, errors, _) = receive("GET", 2, &[text.as_bytes()], false);
            assert_eq!((all, good), (2, 2));
            assert_eq!(failure, Some(Error::Peer(Violation::UnsolicitedResponse)));
            assert_eq!(errors, Errors { invalid: 1, ..Errors::default() });
        }
        // Body bytes beyond `Content-Length` are no valid response.
        let (all, _, failure, errors, _) = receive_split("GET", 3, [OK, LONGER, OK].concat().as_bytes(), false);
        assert_eq!((all, failure.is_some(), errors.invalid), (2, true, 1));
    }

    #[test]
    fn end_of_input_is_an_error_only_with_responses_outstanding() {
        let closing = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\nebbs";
        let until_close = "HTTP/1.0 200 OK\r\n\r\nebbs";
        for (text, depth, responses, is_error) in [
            ([OK, OK].concat(), 2, 2, false),
            ([OK, closing].concat(), 5, 2, false),
            ([OK, until_close].concat(), 5, 2, false),
            (OK.to_owned(), 2, 1, true),
            ([OK, &OK[..20]].concat(), 2, 1, true),
            ([OK, &OK[..OK.len() - 1]].concat(), 2, 1, true),
            ([OK, &CHUNKED[..CHUNKED.len() - 1]].concat(), 2, 1, true),
        ] {
            let (all, good, failure, errors, _) = receive_split("GET", depth, text.as_bytes(), true);
            assert_eq!((all, good, failure.is_some()), (responses, responses, is_error), "{text:?}");
            assert_eq!(errors, Errors { closed: u64::from(is_error), ..Errors::default() }, "{text:?}");
        }
    }

    #[test]
    fn responses_to_head_have_no_body() {
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 4000\r\n\r\n";
        let (all, good, failure, ..) = receive_split("HEAD", 3, head.repeat(3).as_bytes(), true);
        assert_eq!((all, good, failure), (3, 3, None));
    }
}
