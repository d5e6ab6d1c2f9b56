//! Both HTTP/1.1 roles against each other: the receiver decodes exactly the message that the sender has encoded, or the
//! sender's codec has refused it.
//!
//! The bytes choose the requests, the splits and the responses.

use std::sync::Arc;

use tidegate_codec::{Pipeline, Step};
use tidegate_http1::{
    BodyLength, Chunk, Client, Fields, Interim, Outgoing, Request, Response, Server, Status, StreamedRequest,
    StreamedResponse, client,
};
use tidegate_testkit::CodecHarness;

use crate::choices::Choices;

/// Some exchanges on one connection.
pub fn round_trips(data: &[u8]) {
    let mut choices = Choices::new(data);
    let config = client::Config::default().host("a").expect("it is a host");
    let mut pair =
        Pair { client: CodecHarness::new(Client::new(Arc::new(config))), server: CodecHarness::new(Server::default()) };
    while !choices.is_over() && pair.client.codec().is_ready() && pair.exchange(&mut choices) {}
}

struct Pair {
    client: CodecHarness<Client>,
    server: CodecHarness<Server>,
}

/// Fields, as pairs of name and value.
type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// A message as it was encoded, or as it was decoded.
#[derive(Debug, Default, PartialEq, Eq)]
struct Message {
    start: String,
    fields: Pairs,
    body: Vec<u8>,
    trailers: Pairs,
    interim: Vec<u16>,
}

impl Pair {
    /// One request and its response. A request that the codec refuses is skipped. Returns whether HTTP continues.
    fn exchange(&mut self, choices: &mut Choices<'_>) -> bool {
        let Some(asked) = self.ask(choices) else { return true };
        let Some(received) = self.receive_request(choices) else { panic!("{asked:?} was not received") };
        assert_eq!(received, asked, "the request changed");
        let is_head = asked.start.starts_with("HEAD ");
        let answered = self.answer(choices, is_head);
        assert_eq!(self.receive_response(choices), answered, "the response changed");
        !self.client.codec().is_switched()
    }

    fn ask(&mut self, choices: &mut Choices<'_>) -> Option<Message> {
        let method = *choices.pick(&["GET", "HEAD", "POST", "PUT", "OPTIONS", "TRACE", "TIDE", "DELETE"]);
        let target = text(choices, b"/ab?#%\r \n*:");
        let (extra, pairs) = fields(choices);
        let streams = choices.below(2) == 1;
        let mut asked = Message { start: format!("{method} {target}"), fields: pairs, ..Message::default() };
        if streams {
            let head = StreamedRequest::extension(method, &target).ok()?.fields(extra);
            let pieces = pieces(choices);
            let length = (choices.below(2) == 1).then(|| pieces.iter().map(Vec::len).sum::<usize>() as u64);
            let head = match length {
                Some(length) => head.length(length),
                None => head,
            };
            self.client.encode(head.into()).ok()?;
            for piece in pieces {
                asked.body.extend_from_slice(&piece);
                let message =
                    if piece.len() % 2 == 0 { client::Outgoing::Data(piece.into()) } else { Chunk::new(&piece).into() };
                self.client.encode(message).expect("it is as long as announced");
            }
            let (trailers, pairs) = trailers(choices);
            asked.trailers = if length.is_none() { pairs } else { Vec::new() };
            self.client.encode(client::Outgoing::Trailers(trailers)).expect("they are trailers");
        } else {
            let body = pieces(choices).concat();
            asked.body.clone_from(&body);
            let request = Request::extension(method, &target).ok()?.fields(extra).body(body);
            self.client.encode(request.into()).ok()?;
        }
        Some(asked)
    }

    fn receive_request(&mut self, choices: &mut Choices<'_>) -> Option<Message> {
        use tidegate_http1::Incoming;
        let mut received = None;
        for bytes in sent(&mut self.client, choices) {
            self.server.receive(&bytes);
            loop {
                match self.server.step().expect("the client's output is valid") {
                    Step::Message(Incoming::Head(head)) => {
                        let start = format!("{} {}", head.method_text(), head.target());
                        received =
                            Some(Message { start, fields: of_application(head.headers()), ..Message::default() });
                    }
                    Step::Message(Incoming::Data(data)) => received.as_mut()?.body.extend_from_slice(&data),
                    Step::Message(Incoming::Trailers(trailers)) => received.as_mut()?.trailers = owned(trailers.iter()),
                    Step::Message(Incoming::End | Incoming::Preface) => {}
                    Step::NeedMore | Step::End => break,
                }
            }
            self.server.compact();
        }
        received
    }

    fn answer(&mut self, choices: &mut Choices<'_>, is_head: bool) -> Message {
        let status = Status::new(200 + choices.byte() as u16).expect("it is one");
        let (extra, pairs) = fields(choices);
        let mut answered = Message { start: status.code().to_string(), fields: pairs, ..Message::default() };
        while choices.below(3) == 1 && answered.interim.len() < 16 {
            let interim = Interim::new(Status::EARLY_HINTS).fields(extra.clone());
            self.server.encode(Outgoing::Interim(interim)).expect("a response is owed");
            answered.interim.push(103);
        }
        let pieces = pieces(choices);
        if choices.below(2) == 1 {
            let length = (choices.below(2) == 1).then(|| pieces.iter().map(Vec::len).sum::<usize>() as u64);
            let head = StreamedResponse::new(status).fields(extra);
            let head = match length {
                Some(length) => head.length(length),
                None => head,
            };
            self.server.encode(head.into()).expect("a response is owed");
            let has_body = status.allows_body() && !is_head;
            for piece in pieces {
                if has_body {
                    answered.body.extend_from_slice(&piece);
                }
                // A status without a body may have ended the response with its head.
                let _ = self.server.encode(Outgoing::Data(piece.into()));
            }
            let (trailers, pairs) = trailers(choices);
            answered.trailers = if length.is_none() && has_body { pairs } else { Vec::new() };
            let _ = self.server.encode(Outgoing::Trailers(trailers));
        } else {
            let body = if status.allows_body() { pieces.concat() } else { Vec::new() };
            if !is_head {
                answered.body.clone_from(&body);
            }
            let response = Response::new(status).fields(extra).body(body);
            self.server.encode(response.into()).expect("a response is owed");
        }
        answered
    }

    fn receive_response(&mut self, choices: &mut Choices<'_>) -> Message {
        use client::Incoming;
        let mut received = Message::default();
        for bytes in sent(&mut self.server, choices) {
            self.client.receive(&bytes);
            loop {
                match self.client.step().expect("the server's output is valid") {
                    Step::Message(Incoming::Interim(head)) => received.interim.push(head.status().code()),
                    Step::Message(Incoming::Head(head)) => {
                        assert_ne!(head.body(), BodyLength::UntilClose, "every HTTP/1.1 body is delimited");
                        received.start = head.status().code().to_string();
                        received.fields = of_application(head.headers());
                    }
                    Step::Message(Incoming::Data(data)) => received.body.extend_from_slice(&data),
                    Step::Message(Incoming::Trailers(trailers)) => received.trailers = owned(trailers.iter()),
                    Step::Message(Incoming::End) => {}
                    Step::NeedMore | Step::End => break,
                }
            }
            self.client.compact();
        }
        received
    }
}

/// The output of one side, split in two.
fn sent<C: Pipeline<Error: std::fmt::Debug>>(harness: &mut CodecHarness<C>, choices: &mut Choices<'_>) -> [Vec<u8>; 2] {
    harness.flush().expect("no filter buffers output");
    let mut bytes = harness.take_sent();
    let rest = bytes.split_off(choices.length(bytes.len()));
    [bytes, rest]
}

/// Some fields, those that are valid.
fn fields(choices: &mut Choices<'_>) -> (Fields, Pairs) {
    let (mut fields, mut pairs) = (Fields::new(), Vec::new());
    for _ in 0..choices.below(4) {
        let name = format!("X{}", text(choices, b"ab-:\r ~"));
        let value = text(choices, b"a \t\r\n,\"\0~");
        if fields.push(&name, &value).is_ok() {
            pairs.push((name.into(), value.trim_matches([' ', '\t']).into()));
        }
    }
    (fields, pairs)
}

/// Some trailers.
fn trailers(choices: &mut Choices<'_>) -> (Fields, Pairs) {
    if choices.below(2) == 0 { (Fields::new(), Vec::new()) } else { fields(choices) }
}

fn text(choices: &mut Choices<'_>, letters: &[u8]) -> String {
    let prefix = if letters.starts_with(b"/") { "/" } else { "" };
    let rest: String = (0..choices.below(8)).map(|_| *choices.pick(letters) as char).collect();
    format!("{prefix}{rest}")
}

fn pieces(choices: &mut Choices<'_>) -> Vec<Vec<u8>> {
    (0..choices.below(4)).map(|piece| vec![b'a' + piece as u8; choices.length(4000)]).collect()
}

/// The fields of the application, without those that the codec adds.
fn of_application<'a>(headers: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Pairs {
    owned(headers.filter(|(name, _)| name.starts_with(b"X")))
}

fn owned<'a>(headers: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Pairs {
    headers.map(|(name, value)| (name.to_vec(), value.to_vec())).collect()
}
