//! Shared by the tests: a connection that a test drives, and a codec of whole responses.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_buffer::RECEIVE_BYTES_MAX;
use tidegate_codec::{Codec, CodecStatus, Input, Lifecycle, Output, Step};
use tidegate_http1::client::{Config, Incoming, Limits, Outgoing};
use tidegate_http1::{Client, Error, Misuse, Request, ResponseHead, Violation};
use tidegate_testkit::CodecHarness;
use tidegate_testkit::contract::Contract;

/// A connection to a host called `a`.
pub(crate) struct Talk {
    pub(crate) harness: CodecHarness<Client>,
}

pub(crate) fn config(limits: Limits) -> Config {
    Config::new(limits).host("a").expect("it is a host")
}

impl Talk {
    pub(crate) fn new() -> Self {
        Self::limited(Limits::default())
    }

    pub(crate) fn limited(limits: Limits) -> Self {
        Self { harness: CodecHarness::new(Client::new(Arc::new(config(limits)))) }
    }

    /// A connection that has sent a GET for `/`.
    pub(crate) fn asked() -> Self {
        let mut talk = Self::new();
        talk.say(get("/")).expect("it is ready");
        talk.sent();
        talk
    }

    pub(crate) fn say(&mut self, message: impl Into<Outgoing>) -> Result<(), Error> {
        self.harness.encode(message.into()).map(drop)
    }

    pub(crate) fn sent(&mut self) -> String {
        self.harness.flush().expect("nothing is held back");
        String::from_utf8(self.harness.take_sent()).expect("requests are text")
    }

    /// The result of decoding `bytes`, up to where more is needed.
    pub(crate) fn receive(&mut self, bytes: impl AsRef<[u8]>) -> Result<Vec<String>, Error> {
        let bytes = bytes.as_ref();
        let mut messages = Vec::new();
        // No bytes at all are a dispatch, too.
        for received in bytes.chunks(RECEIVE_BYTES_MAX).chain(bytes.is_empty().then_some(&b""[..])) {
            self.harness.receive(received);
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
        }
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

    pub(crate) fn wait(&mut self, seconds: u64) -> Result<(), Error> {
        self.harness.advance_time(Duration::from_secs(seconds))
    }

    pub(crate) fn drain(&mut self) {
        self.harness.notify(Lifecycle::Drain).expect("a client may always drain");
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.harness.codec().status().is_finished
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.harness.codec().is_ready()
    }
}

pub(crate) fn describe(message: &Incoming) -> String {
    match message {
        Incoming::Interim(head) => format!("interim {}", head.status().code()),
        Incoming::Head(head) => head.status().code().to_string(),
        Incoming::Data(data) => format!("data {}", String::from_utf8_lossy(data)),
        Incoming::Trailers(trailers) => format!("{trailers:?}"),
        Incoming::End => "end".into(),
    }
}

pub(crate) fn get(target: &str) -> Request {
    Request::get(target).expect("it is a target")
}

pub(crate) fn misuse(misuse: Misuse) -> Result<(), Error> {
    Err(Error::Caller(misuse))
}

pub(crate) fn broken<T>(violation: Violation) -> Result<T, Error> {
    Err(Error::Peer(violation))
}

/// A response with its whole body, as text: the pieces of a body depend on how it arrived.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) interim: Vec<u16>,
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
    pub(crate) trailers: Vec<(String, String)>,
}

/// A [`Client`] that collects responses.
#[derive(Debug, Default)]
pub(crate) struct Gathering {
    client: Client,
    interim: Vec<u16>,
    head: Option<ResponseHead>,
    body: Vec<u8>,
    trailers: Vec<(String, String)>,
}

impl Gathering {
    fn new(client: Client) -> Self {
        Self { client, ..Self::default() }
    }

    fn gather(&mut self, incoming: Incoming) -> Option<Reply> {
        let has_more = match incoming {
            Incoming::Interim(head) => {
                self.interim.push(head.status().code());
                true
            }
            Incoming::Head(head) => {
                let has_body = head.has_body();
                self.head = Some(head.detach());
                has_body
            }
            Incoming::Data(data) => {
                self.body.extend_from_slice(&data);
                true
            }
            Incoming::Trailers(trailers) => {
                self.trailers = trailers.iter().map(texts).collect();
                true
            }
            Incoming::End => false,
        };
        if has_more {
            return None;
        }
        let head = self.head.take().expect("a body follows a head");
        Some(Reply {
            interim: std::mem::take(&mut self.interim),
            status: head.status().code(),
            headers: head.headers().map(texts).collect(),
            body: String::from_utf8_lossy(&std::mem::take(&mut self.body)).into_owned(),
            trailers: std::mem::take(&mut self.trailers),
        })
    }

    fn gather_from(
        &mut self,
        mut step: impl FnMut(&mut Client) -> Result<Step<Incoming>, Error>,
    ) -> Result<Step<Reply>, Error> {
        loop {
            match step(&mut self.client)? {
                Step::Message(incoming) => {
                    if let Some(reply) = self.gather(incoming) {
                        return Ok(Step::Message(reply));
                    }
                }
                Step::NeedMore => return Ok(Step::NeedMore),
                Step::End => return Ok(Step::End),
            }
        }
    }
}

fn texts((name, value): (&[u8], &[u8])) -> (String, String) {
    (String::from_utf8_lossy(name).into_owned(), String::from_utf8_lossy(value).into_owned())
}

impl Codec for Gathering {
    type In = Reply;
    type Out = Outgoing;
    type Error = Error;

    fn decode(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Reply>, Error> {
        self.gather_from(|client| client.decode(input, reply))
    }

    fn encode(&mut self, message: Outgoing, out: &mut Output<'_>) -> Result<(), Error> {
        self.client.encode(message, out)
    }

    fn decode_eof(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Reply>, Error> {
        self.gather_from(|client| client.decode_eof(input, reply))
    }

    fn on(&mut self, event: Lifecycle, out: &mut Output<'_>) -> Result<(), Error> {
        self.client.on(event, out)
    }

    fn status(&self) -> CodecStatus {
        self.client.status()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.client.poll_timeout()
    }

    fn handle_timeout(&mut self, input: &Input, reply: &mut Output<'_>) -> Result<(), Error> {
        self.client.handle_timeout(input, reply)
    }
}

/// The contract of a client that has sent these requests, one after the other.
pub(crate) fn contract<'a>(limits: &Limits, requests: &'a [&str]) -> Contract<'a, Gathering> {
    let config = Arc::new(config(Limits { pipeline_max: 8, ..limits.clone() }));
    Contract::new(move || Gathering::new(Client::new(Arc::clone(&config)))).open(move |client, out| {
        for request in requests {
            let (method, target) = request.split_once(' ').expect("a method and a target");
            let request = match method {
                "UPGRADE" => get(target).upgrade("tide"),
                method => Request::extension(method, target).expect("a request that can be sent"),
            };
            client.encode(request.into(), out).expect("there is room for it");
        }
    })
}
