//! `Pipeline`: the codec of a load. It sends the same request many at a time, and checks every response.
//!
//! What comes back is the same as well, mostly to the byte. So a head that the client's codec has read and found good is
//! remembered, once for all connections of a loop, and what comes is compared with it; whatever differs by one byte is
//! read by that codec, as strictly as any response to a client of ours, and is remembered in its place.

use std::cell::RefCell;
use std::rc::Rc;

use tidegate::http1::client::{Incoming, Outgoing};
use tidegate::http1::{BodyLength, Client, Error, Violation};
use tidegate::{Codec, Input, Outbound, Output, Step};

use super::request::Ask;
use super::tally::{Tally, Verdict};

/// What the connections of a loop share: the request, the head that is known, and what was counted.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) ask: Ask,
    pub(crate) tally: Tally,
    known: RefCell<Known>,
}

/// A head that was read, and what follows it.
#[derive(Debug, Default)]
struct Known {
    /// Empty before there is one.
    head: Vec<u8>,
    body_bytes: usize,
    verdict: Verdict,
}

impl Exchange {
    pub(crate) fn new(ask: Ask, tally: Tally) -> Self {
        Self { ask, tally, known: RefCell::default() }
    }
}

/// How many requests are sent at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Volley {
    /// A single one, as connections ask that are idle otherwise.
    One,
    /// As many as are pipelined.
    Run,
}

/// Responses that have come, one after the other: how many, and how many of them were as they should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answers {
    pub(crate) all: u32,
    pub(crate) good: u32,
}

/// The codec of a load, on one connection.
#[derive(Debug)]
pub(crate) struct Pipeline {
    exchange: Rc<Exchange>,
    client: Client,
    /// Responses that are yet to come, the one that is under way included.
    owed: u32,
    /// The client's codec is within a response.
    reading: bool,
    /// What is yet to come of the body of a known head.
    rest: usize,
    /// What the response under way is found to be.
    verdict: Verdict,
    /// How much body the client's codec has read of it.
    body_bytes: u64,
}

impl Pipeline {
    pub(crate) fn new(exchange: Rc<Exchange>) -> Self {
        let client = Client::new(exchange.ask.config.clone());
        Self { exchange, client, owed: 0, reading: false, rest: 0, verdict: Verdict::Good, body_bytes: 0 }
    }

    /// Takes what is known from the front of the input.
    fn take_known(&mut self, input: &mut Input) -> Answers {
        let known = self.exchange.known.borrow();
        let (bytes, mut at, mut answers) = (input.bytes(), 0, Answers { all: 0, good: 0 });
        if self.rest > 0 {
            at = self.rest.min(bytes.len());
            self.rest -= at;
            if self.rest == 0 {
                self.answered(self.verdict, 1, &mut answers);
            }
        }
        if self.rest == 0 && !known.head.is_empty() {
            let (owed, mut whole) = (self.owed - answers.all, 0);
            while whole < owed && bytes[at..].starts_with(&known.head) {
                at += known.head.len();
                let there = bytes.len() - at;
                if there < known.body_bytes {
                    (self.rest, self.verdict) = (known.body_bytes - there, known.verdict);
                    at = bytes.len();
                    break;
                }
                at += known.body_bytes;
                whole += 1;
            }
            self.answered(known.verdict, whole, &mut answers);
        }
        self.owed -= answers.all;
        self.exchange.tally.received(at);
        input.consume(at);
        answers
    }

    fn answered(&self, verdict: Verdict, count: u32, answers: &mut Answers) {
        answers.all += count;
        match verdict {
            Verdict::Good => answers.good += count,
            _ => self.exchange.tally.bad(verdict, count),
        }
    }

    /// Whether what is there may become a known head.
    fn may_be_known(&self, input: &Input) -> bool {
        self.exchange.known.borrow().head.starts_with(input.bytes())
    }

    /// Tells the client's codec of requests that were sent, for which it has to know of as many as may follow each other.
    fn tell(&mut self, reply: &Output<'_>) -> Result<(), Error> {
        while self.client.unanswered() < self.owed.min(2) as usize {
            let mut unsent = Outbound::new(reply.pool());
            let request = Outgoing::Request(self.exchange.ask.request.clone());
            self.client.encode(request, &mut reply.with_queue(&mut unsent))?;
        }
        Ok(())
    }

    /// Lets the client's codec read a response, or what is there of it.
    fn read(&mut self, input: &mut Input, reply: &mut Output<'_>, ended: bool) -> Result<Option<Answers>, Error> {
        if !self.reading {
            self.tell(reply)?;
            self.reading = true;
        }
        loop {
            let before = input.len();
            let step = if ended { self.client.end(input, reply) } else { self.client.decode(input, reply) };
            self.exchange.tally.received(before - input.len());
            let is_complete = match step? {
                Step::Message(Incoming::Head(head)) => {
                    let length = match head.body() {
                        BodyLength::None => Some(0),
                        BodyLength::Known(length) => Some(length),
                        BodyLength::Chunked | BodyLength::UntilClose => None,
                    };
                    (self.body_bytes, self.verdict) = (0, self.exchange.tally.judge(head.status().code(), length));
                    if let Some(length) = length
                        && let Ok(body_bytes) = usize::try_from(length)
                        && head.keeps_alive()
                    {
                        let mut known = self.exchange.known.borrow_mut();
                        known.head.clear();
                        known.head.extend_from_slice(head.bytes());
                        (known.body_bytes, known.verdict) = (body_bytes, self.verdict);
                    }
                    !head.has_body()
                }
                Step::Message(Incoming::Data(data)) => {
                    self.body_bytes += data.len() as u64;
                    false
                }
                Step::Message(Incoming::End) => {
                    if self.verdict == Verdict::Good {
                        self.verdict = self.exchange.tally.judge_length(self.body_bytes);
                    }
                    true
                }
                Step::Message(Incoming::Interim(_) | Incoming::Trailers(_)) => false,
                Step::More | Step::End => return Ok(None),
            };
            if is_complete {
                self.reading = false;
                self.owed -= 1;
                let mut answers = Answers { all: 0, good: 0 };
                self.answered(self.verdict, 1, &mut answers);
                return Ok(Some(answers));
            }
        }
    }

    fn next(&mut self, input: &mut Input, reply: &mut Output<'_>, ended: bool) -> Result<Step<Answers>, Error> {
        if self.client.is_finished() {
            return Ok(Step::End);
        }
        if !self.reading {
            let answers = self.take_known(input);
            if answers.all > 0 {
                return Ok(Step::Message(answers));
            }
            if self.owed == 0 && !input.is_empty() {
                return Err(Error::Peer(Violation::ResponseUnasked));
            }
            if !ended && (input.is_empty() || self.may_be_known(input)) {
                return Ok(Step::More);
            }
            if ended && self.rest > 0 {
                return Err(Error::Peer(Violation::ResponseTruncated));
            }
            if ended && self.owed == 0 {
                return Ok(Step::End);
            }
        }
        Ok(self.read(input, reply, ended)?.map_or(Step::More, Step::Message))
    }
}

impl Codec for Pipeline {
    type In = Answers;
    type Out = Volley;
    type Error = Error;

    fn decode(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Answers>, Error> {
        self.next(input, reply, false).inspect_err(|_| self.exchange.tally.invalid())
    }

    fn encode(&mut self, volley: Volley, out: &mut Output<'_>) -> Result<(), Error> {
        let Ask { one, run, depth, .. } = &self.exchange.ask;
        let (bytes, count) = match volley {
            Volley::One => (one, 1),
            Volley::Run => (run, *depth),
        };
        self.owed += count;
        out.link_bytes(bytes.clone());
        Ok(())
    }

    fn end(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Answers>, Error> {
        self.next(input, reply, true).inspect_err(|error| match error {
            Error::Peer(Violation::Unanswered | Violation::ResponseTruncated) => self.exchange.tally.closed(),
            _ => self.exchange.tally.invalid(),
        })
    }

    fn is_finished(&self) -> bool {
        self.client.is_finished()
    }

    fn knows_its_end(&self) -> bool {
        true
    }
}
