//! The client's side, against the server's side.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate::codec::mux::{OpenError, RawStreams, ResetCause, StreamCommand, StreamEvent, StreamKey};
use tidegate::http1::client::{self, Incoming, Outgoing};
use tidegate::http1::{Fields, Method, Request, StreamedRequest};
use tidegate::http2::{ClientStream, Config, Connection, ErrorCode, Limits};
use tidegate_testkit::CodecHarness;

use crate::support::{self, GOAWAY, Peer, frame};

/// A client, and the server that it is connected to.
struct Pair {
    client: CodecHarness<RawStreams<Connection>>,
    server: Peer,
    streams: BTreeMap<u32, (StreamKey, CodecHarness<ClientStream>)>,
    /// Streams that were reset.
    resets: BTreeMap<u32, u64>,
}

impl Pair {
    fn new(limits: Limits) -> Self {
        let connection = Connection::client(Arc::new(Config::default()));
        let client = CodecHarness::new(RawStreams::new(connection));
        Self { client, server: Peer::silent(limits), streams: BTreeMap::new(), resets: BTreeMap::new() }
    }

    /// Opens a stream.
    fn open(&mut self) -> Result<u32, OpenError> {
        let (codec, mut out) = self.client.parts();
        let key = codec.open(&mut out)?;
        let stream = ClientStream::new(Arc::new(client::Limits::default()), "http");
        self.streams.insert(key.id(), (key, CodecHarness::new(stream)));
        Ok(key.id())
    }

    fn send(&mut self, id: u32, message: impl Into<Outgoing>) {
        let (key, stream) = self.streams.get_mut(&id).expect("a stream");
        stream.encode(message.into()).expect("a valid message");
        stream.flush().expect("no filter");
        let bytes = stream.take_sent();
        self.client.encode(StreamCommand::Data(*key, bytes.into())).expect("a command");
    }

    /// Passes bytes to and fro until none come, and returns the messages of each stream.
    fn run(&mut self) -> BTreeMap<u32, Vec<Incoming>> {
        let mut messages = BTreeMap::<u32, Vec<Incoming>>::new();
        loop {
            self.client.flush().expect("no filter");
            let sent = self.client.take_sent();
            self.server.send(&sent);
            let received = self.server.pipe.take_written();
            if received.is_empty() {
                return messages;
            }
            // A loop receives a part at a time.
            let mut events = Vec::new();
            for part in received.chunks(16 * 1024) {
                events.extend(self.client.decode(part).expect("a server of ours"));
            }
            for event in events {
                match event {
                    StreamEvent::Data { stream, bytes } => {
                        let (key, codec) = self.streams.get_mut(&stream.id()).expect("a stream");
                        let more = codec.decode(&bytes).expect("a response");
                        messages.entry(stream.id()).or_default().extend(more);
                        self.client.encode(StreamCommand::Consumed(*key, bytes.len() as u32)).expect("a command");
                    }
                    StreamEvent::Reset { stream, code } => drop(self.resets.insert(stream.id(), code)),
                    StreamEvent::Opened(_) | StreamEvent::Ended(_) => {}
                }
            }
        }
    }
}

/// The status and the body of a response.
fn response(messages: &[Incoming]) -> (u16, Vec<u8>) {
    let (mut status, mut body) = (0, Vec::new());
    for message in messages {
        match message {
            Incoming::Head(head) => status = head.status().code(),
            Incoming::Data(data) => body.extend_from_slice(data),
            Incoming::Interim(_) | Incoming::Trailers(_) | Incoming::End => {}
        }
    }
    (status, body)
}

#[test]
fn requests_get_their_responses_whatever_their_order() {
    let mut pair = Pair::new(Limits::default());
    let slow = pair.open().expect("a stream");
    let mut head = StreamedRequest::new(Method::Post, "/echo").expect("a request").host("sea").expect("a host");
    head = head.content_type(tidegate::http1::ContentType::TEXT);
    pair.send(slow, head);
    let fast = pair.open().expect("a stream");
    pair.send(fast, Outgoing::Request(Request::get("http://sea/hello?x").expect("a request")));
    let messages = pair.run();
    assert_eq!((messages.len(), response(&messages[&fast])), (1, (200, b"Hello, World!".to_vec())));
    pair.send(slow, Outgoing::Data("ebb ".into()));
    pair.send(slow, Outgoing::Data("and flow".into()));
    let mut trailers = Fields::new();
    trailers.push("Tide", "rising").expect("a field");
    pair.send(slow, Outgoing::Trailers(trailers));
    let messages = &pair.run()[&slow];
    assert_eq!(response(messages), (200, b"ebb and flow".to_vec()));
    let Incoming::Head(head) = &messages[0] else { panic!("a head comes first") };
    assert_eq!(head.header("trailer-tide"), Some(&b"rising"[..]));
    assert!(matches!(messages.last(), Some(Incoming::End)));
}

#[test]
fn a_large_response_comes_through_windows_that_are_granted_again() {
    let mut pair = Pair::new(Limits::default());
    let id = pair.open().expect("a stream");
    pair.send(id, Outgoing::Request(Request::get("/big").expect("a request").host("sea").expect("a host")));
    let (status, body) = response(&pair.run()[&id]);
    assert_eq!((status, body.len()), (200, 1024 * 1024));
}

#[test]
fn the_peer_bounds_the_streams() {
    let mut pair = Pair::new(Limits { streams_max: 2, ..Limits::default() });
    let first = pair.open().expect("a stream");
    pair.send(first, Outgoing::Request(Request::get("/never").expect("a request").host("sea").expect("a host")));
    pair.run();
    pair.open().expect("a second stream");
    assert_eq!(pair.open(), Err(OpenError::Full));
}

#[test]
fn goaway_refuses_unprocessed_requests() {
    let mut pair = Pair::new(Limits::default());
    let first = pair.open().expect("a stream");
    pair.send(first, Outgoing::Request(Request::get("/never").expect("a request").host("sea").expect("a host")));
    pair.run();
    let second = pair.open().expect("a stream");
    let goaway = frame(GOAWAY, 0, 0, &[first.to_be_bytes(), [0; 4]].concat());
    for event in pair.client.decode(&goaway).expect("a valid frame") {
        if let StreamEvent::Reset { stream, code } = event {
            pair.resets.insert(stream.id(), code);
        }
    }
    assert_eq!(pair.resets, BTreeMap::from([(second, ErrorCode::REFUSED_STREAM.0.into())]));
    assert_eq!(pair.open(), Err(OpenError::Ending));
}

#[test]
fn pushes_are_refused() {
    let mut client = CodecHarness::new(RawStreams::new(Connection::client(Arc::new(Config::default()))));
    let settings = frame(support::SETTINGS, 0, 0, &[]);
    let push = frame(support::PUSH_PROMISE, support::END_HEADERS, 1, &[0, 0, 0, 2]);
    assert!(client.decode(&[settings, push].concat()).is_err());
    let sent = client.take_sent();
    assert!(sent.starts_with(support::PREFACE), "a client begins with the preface");
    let last = support::frames(&sent[support::PREFACE.len()..]).pop().expect("a frame");
    assert_eq!((last.kind, &last.content[4..8]), (GOAWAY, &[0, 0, 0, 1][..]));
}

#[test]
fn a_stream_that_is_given_up_before_its_head_is_written_is_unknown_to_the_server() {
    let mut pair = Pair::new(Limits::default());
    pair.run();
    for cause in [ResetCause::Cancelled, ResetCause::Failed] {
        let given_up = pair.open().expect("a stream");
        let key = pair.streams[&given_up].0;
        pair.client.encode(StreamCommand::Reset(key, cause)).expect("a command");
        // A reset of an idle stream would end the connection.
        let next = pair.open().expect("a stream");
        pair.send(next, Outgoing::Request(Request::get("http://sea/hello").expect("a request")));
        assert_eq!(response(&pair.run()[&next]).0, 200);
    }
}

fn websocket() -> Request {
    let request = Request::get("http://sea/ws?room=1").expect("a request");
    request.upgrade_to("websocket").expect("the name of a protocol")
}

fn extended() -> CodecHarness<ClientStream> {
    let stream = ClientStream::new(Arc::new(client::Limits::default()), "http").extended_connect();
    let mut stream = CodecHarness::new(stream);
    stream.encode(websocket().into()).expect("a valid message");
    stream
}

fn sent(stream: &mut CodecHarness<ClientStream>) -> Vec<u8> {
    stream.flush().expect("no filter");
    stream.take_sent()
}

#[test]
fn a_get_with_an_upgrade_is_an_extended_connect_if_the_stream_allows_it() {
    let mut plain = CodecHarness::new(ClientStream::new(Arc::new(client::Limits::default()), "http"));
    assert!(plain.encode(websocket().into()).is_err(), "the server may not allow it");
    let mut stream = extended();
    let sent = sent(&mut stream);
    let lines =
        b":method: CONNECT\r\n:protocol: websocket\r\n:scheme: http\r\n:path: /ws?room=1\r\n:authority: sea\r\n";
    assert_eq!(
        (&sent[..2], &sent[12..]),
        (&[1, 0][..], &lines[..]),
        "a head of a request, behind which the stream goes on"
    );
    assert!(stream.encode(Outgoing::Data("ebb".into())).is_err(), "the server has not accepted");
    assert!(stream.encode(websocket().into()).is_err(), "a stream has one request");
}

#[test]
fn a_2xx_to_an_extended_connect_makes_a_tunnel_and_any_other_status_ends_the_request() {
    let head = |status: u16, flags| frame(1, flags, 1, format!("HTTP/1.1 {status} \r\n\r\n").as_bytes());
    let mut stream = extended();
    let _ = sent(&mut stream);
    let messages = stream.decode(&[head(200, 0), frame(0, 0, 1, b"\x81\x03ebb")].concat()).expect("a response");
    assert_eq!((messages.len(), response(&messages).0), (1, 200), "the later bytes are of another protocol");
    assert!(stream.parts().0.is_switched() && sent(&mut stream).is_empty());
    let mut stream = extended();
    let _ = sent(&mut stream);
    let messages = stream.decode(&[head(404, 0), frame(0, 1, 1, b"none")].concat()).expect("a response");
    assert_eq!(response(&messages), (404, b"none".to_vec()));
    assert!(!stream.parts().0.is_switched() && matches!(messages.last(), Some(Incoming::End)));
    assert_eq!(sent(&mut stream), [3, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], "the end of the request");
}
