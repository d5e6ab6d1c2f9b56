//! Decoding and encoding, without an event loop.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use tidegate_buffer::Scratch;
use tidegate_codec::{Codec, Input, Outbound, Output, Pool, Step, Time};
use tidegate_http1::client::{self, Client, Config, Limits, Request};
use tidegate_http1::{Incoming, Outgoing, Response, Server};

use crate::counted::count_this;

/// A minimal request, as wrk sends it.
pub(crate) const SHORT: &[u8] = b"GET /plaintext HTTP/1.1\r\nHost: localhost:8080\r\n\r\n";

/// The request of `benches/compare.py`.
pub(crate) const REQUEST: &[u8] = b"GET /plaintext HTTP/1.1\r\n\
    Host: localhost\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n\
    Connection: keep-alive\r\n\r\n";

/// The response to it.
pub(crate) const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nServer: tidegate\r\n\
    Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n\
    Content-Type: text/plain\r\nContent-Length: 13\r\n\r\nHello, World!";

const BROWSER_LINE: &[u8] = b"GET /products/overview?category=books&page=3 HTTP/1.1\r\n";
const BROWSER_FIELDS: &[u8] = include_bytes!("../../../crates/scan/tests/suite/support/browser.txt");

/// The number of pipelined messages, where it is not one.
pub(crate) const DEPTH: usize = 16;

/// A connection without a socket.
struct Bench {
    pool: Pool,
    time: Time,
    scratch: Scratch,
    input: Input,
    queue: Outbound,
}

impl Bench {
    fn new() -> Self {
        let pool = Pool::new();
        let (scratch, queue) = (Scratch::new(&pool), Outbound::new(&pool));
        let time = Time::new(Instant::now(), SystemTime::UNIX_EPOCH);
        Self { pool, time, scratch, input: Input::new(), queue }
    }

    fn receive(&mut self, bytes: &[u8]) {
        self.scratch.space(bytes.len())[..bytes.len()].copy_from_slice(bytes);
        self.input.append(self.scratch.received(bytes.len()), &self.pool);
    }

    fn views(&mut self) -> (&mut Input, Output<'_>) {
        (&mut self.input, Output::new(&mut self.queue, &self.pool, &self.time))
    }

    /// Discards all output, and compacts the input.
    fn discard(&mut self) {
        self.queue.flush();
        self.queue.advance(self.queue.pending());
        self.input.compact(&self.pool);
    }
}

pub(crate) fn decode_short(rounds: usize) {
    decode_requests(SHORT, rounds);
}

pub(crate) fn decode_plaintext(rounds: usize) {
    decode_requests(REQUEST, rounds);
}

pub(crate) fn decode_browser(rounds: usize) {
    decode_requests(&[BROWSER_LINE, BROWSER_FIELDS].concat(), rounds);
}

fn decode_requests(request: &[u8], rounds: usize) {
    let (mut bench, mut server) = (Bench::new(), Server::default());
    let wire = request.repeat(DEPTH);
    for _ in 0..rounds {
        bench.receive(&wire);
        let (input, mut out) = bench.views();
        for _ in 0..DEPTH {
            let Ok(Step::Message(Incoming::Head(head))) = count_this(|| server.decode(input, &mut out)) else {
                panic!("a head is a message");
            };
            drop(black_box(head));
            server.encode(answer(), &mut out).expect("a response is due");
        }
        bench.discard();
    }
}

pub(crate) fn encode_response(rounds: usize) {
    let (mut bench, mut server) = (Bench::new(), Server::default());
    let wire = REQUEST.repeat(DEPTH);
    for _ in 0..rounds {
        bench.receive(&wire);
        let (input, mut out) = bench.views();
        for _ in 0..DEPTH {
            drop(server.decode(input, &mut out).expect("a good head"));
            count_this(|| server.encode(answer(), &mut out)).expect("a response is due");
        }
        assert_eq!(out.pending(), (DEPTH * RESPONSE.len()) as u64, "the response is the expected one");
        bench.discard();
    }
}

fn answer() -> Outgoing {
    black_box(Response::text("Hello, World!")).into()
}

/// A response has three messages: its head, its body and its end.
pub(crate) fn decode_response(rounds: usize) {
    let (mut bench, mut client) = (Bench::new(), pipelining());
    let wire = RESPONSE.repeat(DEPTH);
    for _ in 0..rounds {
        let (_, mut out) = bench.views();
        for _ in 0..DEPTH {
            client.encode(question(), &mut out).expect("a good request");
        }
        bench.receive(&wire);
        let (input, mut out) = bench.views();
        for _ in 0..DEPTH {
            count_this(|| {
                for _ in 0..3 {
                    let Ok(Step::Message(message)) = client.decode(input, &mut out) else { panic!("a message") };
                    drop(black_box(message));
                }
            });
        }
        bench.discard();
    }
}

pub(crate) fn encode_request(rounds: usize) {
    let (mut bench, mut client) = (Bench::new(), pipelining());
    let wire = RESPONSE.repeat(DEPTH);
    for _ in 0..rounds {
        let (_, mut out) = bench.views();
        for _ in 0..DEPTH {
            let question = question();
            count_this(|| client.encode(question, &mut out)).expect("a good request");
        }
        bench.receive(&wire);
        let (input, mut out) = bench.views();
        for _ in 0..3 * DEPTH {
            drop(client.decode(input, &mut out).expect("a good response"));
        }
        bench.discard();
    }
}

/// Deeper pipelining than most clients have, which keep one request in flight.
fn pipelining() -> Client {
    let limits = Limits { pipeline_max: DEPTH as u8, ..Limits::default() };
    Client::new(Arc::new(Config::new(limits)))
}

fn question() -> client::Outgoing {
    let request = Request::get("/plaintext").expect("a target").host("localhost").expect("a host");
    black_box(request).into()
}
