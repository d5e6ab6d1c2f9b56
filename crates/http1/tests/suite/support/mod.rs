//! Shared by the tests: a codec of whole requests, and a connection that a test drives.

pub(crate) mod agreement;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_codec::{Codec, CodecStatus, Input, Lifecycle, Output, Step};
use tidegate_http1::{Config, Error, Incoming, Limits, Outgoing, RequestHead, Response, Server, Trailers};
use tidegate_testkit::CodecHarness;
use tidegate_testkit::contract::Contract;

/// A request with its whole body, as text: the pieces of a body depend on how it arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
    pub(crate) trailers: Vec<(String, String)>,
}

/// A [`Server`] that collects bodies.
#[derive(Debug, Default)]
pub(crate) struct Gathering {
    pub(crate) server: Server,
    head: Option<RequestHead>,
    body: Vec<u8>,
    trailers: Option<Trailers>,
}

impl Gathering {
    pub(crate) fn new(server: Server) -> Self {
        Self { server, ..Self::default() }
    }

    fn gather(&mut self, incoming: Incoming) -> Option<Request> {
        match incoming {
            Incoming::Head(head) => {
                let has_body = head.has_body();
                self.head = Some(head.detach());
                if has_body {
                    return None;
                }
            }
            Incoming::Data(data) => {
                self.body.extend_from_slice(&data);
                return None;
            }
            Incoming::Trailers(trailers) => {
                self.trailers = Some(trailers.detach());
                return None;
            }
            Incoming::End => {}
            Incoming::Preface => return None,
        }
        let head = self.head.take().expect("a body follows a head");
        let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Some(Request {
            method: head.method_text().to_owned(),
            target: head.target().to_owned(),
            headers: head.headers().map(|(name, value)| (lossy(name), lossy(value))).collect(),
            body: lossy(&std::mem::take(&mut self.body)),
            trailers: self.trailers.take().iter().flatten().map(|(name, value)| (lossy(name), lossy(value))).collect(),
        })
    }
}

impl Codec for Gathering {
    type In = Request;
    type Out = Outgoing;
    type Error = Error;

    fn decode(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Request>, Error> {
        loop {
            match self.server.decode(input, reply)? {
                Step::Message(incoming) => {
                    if let Some(request) = self.gather(incoming) {
                        return Ok(Step::Message(request));
                    }
                }
                Step::NeedMore => return Ok(Step::NeedMore),
                Step::End => return Ok(Step::End),
            }
        }
    }

    fn encode(&mut self, message: Outgoing, out: &mut Output<'_>) -> Result<(), Error> {
        self.server.encode(message, out)
    }

    fn decode_eof(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Request>, Error> {
        loop {
            match self.server.decode_eof(input, reply)? {
                Step::Message(incoming) => {
                    if let Some(request) = self.gather(incoming) {
                        return Ok(Step::Message(request));
                    }
                }
                Step::NeedMore => return Ok(Step::NeedMore),
                Step::End => return Ok(Step::End),
            }
        }
    }

    fn on(&mut self, event: Lifecycle, out: &mut Output<'_>) -> Result<(), Error> {
        self.server.on(event, out)
    }

    fn status(&self) -> CodecStatus {
        self.server.status()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.server.poll_timeout()
    }

    fn handle_timeout(&mut self, input: &Input, reply: &mut Output<'_>) -> Result<(), Error> {
        self.server.handle_timeout(input, reply)
    }
}

/// The contract of a server that answers every request with `ok`.
pub(crate) fn contract(config: Config) -> Contract<'static, Gathering> {
    let config = Arc::new(config);
    Contract::new(move || Gathering::new(Server::new(Arc::clone(&config))))
        .answer(|_, codec, out| codec.encode(Response::text("ok").into(), out).expect("a response is owed"))
}

/// The result of decoding some bytes; cut off if a request was incomplete, or not read.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) requests: Vec<Request>,
    pub(crate) error: Option<Error>,
    pub(crate) cut_off: bool,
    pub(crate) finished: bool,
    pub(crate) sent: String,
}

/// One connection, answered with `ok`, that receives all of `wire` at once and then nothing.
pub(crate) fn seen_with(config: Config, wire: &[u8]) -> Seen {
    let mut harness = CodecHarness::new(Gathering::new(Server::new(Arc::new(config))));
    harness.receive(wire);
    let mut seen = Seen::default();
    loop {
        match harness.step() {
            Ok(Step::Message(request)) => {
                seen.requests.push(request);
                harness.encode(Response::text("ok").into()).expect("a response is owed");
            }
            Ok(Step::NeedMore | Step::End) => break,
            Err(error) => {
                seen.error = Some(error);
                break;
            }
        }
    }
    harness.flush().expect("nothing is held back");
    seen.finished = harness.codec().status().is_finished;
    seen.cut_off = seen.error.is_none() && (harness.decode_eof().is_err() || !harness.input().is_empty());
    seen.sent = String::from_utf8(harness.take_sent()).expect("responses are text");
    seen
}

/// The same with the usual configuration.
pub(crate) fn seen(wire: &[u8]) -> Seen {
    seen_with(Config::default(), wire)
}

/// A connection that the test answers itself.
pub(crate) struct Talk {
    pub(crate) harness: CodecHarness<Server>,
}

impl Talk {
    pub(crate) fn new() -> Self {
        Self::with(Config::default())
    }

    pub(crate) fn with(config: Config) -> Self {
        Self { harness: CodecHarness::new(Server::new(Arc::new(config))) }
    }

    pub(crate) fn limited(limits: Limits) -> Self {
        Self::with(Config::new(limits))
    }

    /// The result of decoding `bytes`, up to where more is needed.
    pub(crate) fn receive(&mut self, bytes: &[u8]) -> Result<Vec<String>, Error> {
        self.harness.receive(bytes);
        self.decode_more()
    }

    /// The result of decoding without further bytes.
    pub(crate) fn decode_more(&mut self) -> Result<Vec<String>, Error> {
        let mut messages = Vec::new();
        loop {
            match self.harness.step()? {
                Step::Message(message) => messages.push(describe(&message)),
                Step::NeedMore => break,
                Step::End => {
                    messages.push("end of connection".into());
                    break;
                }
            }
        }
        self.harness.compact();
        Ok(messages)
    }

    /// The result of decoding after the peer has stopped sending.
    pub(crate) fn receive_fin(&mut self) -> Result<Vec<String>, Error> {
        let mut messages = Vec::new();
        loop {
            match self.harness.decode_eof()? {
                Step::Message(message) => messages.push(describe(&message)),
                Step::NeedMore => return Ok(messages),
                Step::End => {
                    messages.push("end of connection".into());
                    return Ok(messages);
                }
            }
        }
    }

    pub(crate) fn say(&mut self, message: impl Into<Outgoing>) -> Result<(), Error> {
        self.harness.encode(message.into()).map(drop)
    }

    pub(crate) fn sent(&mut self) -> String {
        self.harness.flush().expect("nothing is held back");
        String::from_utf8(self.harness.take_sent()).expect("responses are text")
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.harness.codec().status().is_finished
    }

    pub(crate) fn wait(&mut self, seconds: u64) -> Result<(), Error> {
        self.harness.advance_time(Duration::from_secs(seconds))
    }
}

fn describe(message: &Incoming) -> String {
    match message {
        Incoming::Head(head) => format!("{} {}", head.method_text(), head.target()),
        Incoming::Data(data) => format!("data {}", String::from_utf8_lossy(data)),
        Incoming::Trailers(trailers) => format!("{trailers:?}"),
        Incoming::End => "end".into(),
        Incoming::Preface => "preface".into(),
    }
}

/// A GET for `/` on a connection that stays open.
pub(crate) const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
