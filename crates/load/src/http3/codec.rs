//! `Http3Codec`: the codec of one request of a load over HTTP/3, on a stream of its own. It checks the response.
//!
//! HTTP/3 without a dynamic table encodes equal requests into equal bytes, so these are made once for all connections.

use std::rc::Rc;
use std::sync::Arc;

use tidegate::codec::{Codec, CodecStatus, Input, Output, Stages, Step};
use tidegate::http1::BodyLength;
use tidegate::http1::client::{Incoming, Outgoing};
use tidegate::http3::{self, ClientStream};

use crate::counters::Verdict;
use crate::pipeline::Exchange;
use crate::request::Http3Request;

/// The request is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SendRequest;

/// The response is complete, and the server has ended the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Http3Response {
    pub(super) is_good: bool,
}

/// The codec of a load over HTTP/3, on one stream.
#[derive(Debug)]
pub(super) struct Http3Codec {
    exchange: Rc<Exchange>,
    request: Rc<Http3Request>,
    stream: ClientStream,
    status: u16,
    verdict: Verdict,
    body_bytes: u64,
    is_complete: bool,
    /// The response was yielded.
    is_over: bool,
}

type Http3Error = <ClientStream as Stages>::Error;

impl Http3Codec {
    pub(super) fn new(exchange: Rc<Exchange>, request: Rc<Http3Request>, config: &Arc<http3::Config>) -> Self {
        let stream = http3::client_stream(config, request.limits.clone(), false);
        Self {
            exchange,
            request,
            stream,
            status: 0,
            verdict: Verdict::Good,
            body_bytes: 0,
            is_complete: false,
            is_over: false,
        }
    }

    fn on_message(&mut self, message: &Incoming) {
        let stats = &self.exchange.stats;
        match message {
            Incoming::Head(head) => {
                let length = match head.body() {
                    // The length in the response to a HEAD is that of no body here.
                    _ if self.request.of_head.is_some() => Some(0),
                    BodyLength::None => Some(0),
                    BodyLength::Known(length) => Some(length),
                    BodyLength::Chunked | BodyLength::UntilClose => None,
                };
                self.status = head.status().code();
                self.verdict = stats.judge(self.status, length);
                self.is_complete = !head.has_body();
            }
            Incoming::Data(data) => self.body_bytes += data.len() as u64,
            Incoming::End => {
                self.is_complete = true;
                if self.verdict == Verdict::Good {
                    self.verdict = stats.judge_length(self.body_bytes);
                }
            }
            Incoming::Interim(_) | Incoming::Trailers(_) => {}
        }
    }

    /// Reads until more bytes are needed, or to the end of the stream.
    fn read(&mut self, input: &mut Input, reply: &mut Output<'_>, ended: bool) -> Result<bool, Http3Error> {
        loop {
            let before = input.len();
            let step = if ended { self.stream.decode_eof(input, reply) } else { self.stream.decode(input, reply) };
            self.exchange.stats.received(before - input.len());
            match step.inspect_err(|_| self.exchange.stats.invalid())? {
                Step::Message(message) => self.on_message(&message),
                Step::NeedMore => return Ok(false),
                Step::End => return Ok(true),
            }
        }
    }
}

impl Codec for Http3Codec {
    type In = Http3Response;
    type Out = SendRequest;
    type Error = Http3Error;

    fn decode(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Http3Response>, Http3Error> {
        self.read(input, reply, false)?;
        Ok(Step::NeedMore)
    }

    fn encode(&mut self, _: SendRequest, out: &mut Output<'_>) -> Result<(), Http3Error> {
        match &self.request.of_head {
            // The codec has to know that a length announces no body.
            Some(request) => {
                self.stream.encode(Outgoing::Request(request.clone()), out)?;
                self.stream.flush(out)
            }
            None => {
                out.link_bytes(self.request.wire.clone());
                Ok(())
            }
        }
    }

    fn decode_eof(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Http3Response>, Http3Error> {
        if self.is_over {
            return Ok(Step::End);
        }
        self.read(input, reply, true)?;
        self.is_over = true;
        if !self.is_complete {
            self.exchange.stats.invalid();
            return Ok(Step::End);
        }
        self.exchange.stats.count_status(self.status, 1);
        self.exchange.stats.bad(self.verdict, 1);
        Ok(Step::Message(Http3Response { is_good: self.verdict == Verdict::Good }))
    }

    fn status(&self) -> CodecStatus {
        CodecStatus { is_finished: self.is_over, reports_finish: true, ..CodecStatus::default() }
    }
}
