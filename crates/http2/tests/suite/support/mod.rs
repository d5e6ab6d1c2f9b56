//! A peer that is written by hand: it sends frames to a server on a real loop, and reads the answers.

use std::sync::Arc;
use std::time::Duration;

use tidegate::engine::Streams;
use tidegate::http1::{Body, Error, Incoming, Outgoing, Response, Server, Status, StreamedResponse};
use tidegate::http2::hpack::{Decoder, Encoder, Indexing};
use tidegate::http2::{Config, Connection, ErrorCode, Limits, ServerStream};
use tidegate::{Context, Event, Handler, Outcome, http1};
use tidegate_codec::Pipeline;
use tidegate_testkit::Embedded;

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PUSH_PROMISE: u8 = 5;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const ACK: u8 = 1;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
pub(crate) const PADDED: u8 = 8;

/// A frame that came from the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) content: Vec<u8>,
    /// The fields of HEADERS.
    pub(crate) fields: Vec<(String, String)>,
}

/// A frame as bytes.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).expect("a frame is short").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), content].concat()
}

/// The frames in `bytes`, all of them whole.
pub(crate) fn frames(mut bytes: &[u8]) -> Vec<Frame> {
    let mut frames = Vec::new();
    while let Some((&[a, b, c, kind, flags, e, f, g, h], rest)) = bytes.split_first_chunk() {
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        let (content, rest) = rest.split_at(length);
        let (stream, content) = (u32::from_be_bytes([e, f, g, h]), content.to_vec());
        frames.push(Frame { kind, flags, stream, content, fields: Vec::new() });
        bytes = rest;
    }
    assert!(bytes.is_empty(), "half a frame: {bytes:?}");
    frames
}

/// A response as the peer has received it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) heads: Vec<Vec<(String, String)>>,
    pub(crate) body: Vec<u8>,
    pub(crate) has_ended: bool,
    pub(crate) reset: Option<ErrorCode>,
}

impl Received {
    pub(crate) fn status(&self) -> &str {
        self.field(":status").expect("a head has a status")
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let fields = self.heads.iter().flatten();
        fields.filter(|(found, _)| found == name).map(|(_, value)| &**value).next_back()
    }
}

/// The peer of a server.
pub(crate) struct Peer {
    pub(crate) pipe: Embedded<()>,
    encoder: Encoder,
    decoder: Decoder,
    /// Received frames that the test has not looked at.
    pub(crate) unseen: Vec<Frame>,
}

impl Peer {
    /// A peer whose preface and SETTINGS were received, and theirs as well.
    pub(crate) fn new(limits: Limits) -> Self {
        let mut peer = Self::silent(limits);
        peer.send(PREFACE);
        peer.send(&frame(SETTINGS, 0, 0, &[]));
        let first = peer.frames();
        assert_eq!((first[0].kind, first[0].flags), (SETTINGS, 0), "a server begins with SETTINGS");
        assert!(first.iter().any(|frame| (frame.kind, frame.flags) == (SETTINGS, ACK)));
        peer.send(&frame(SETTINGS, ACK, 0, &[]));
        peer
    }

    /// A peer that has sent nothing.
    pub(crate) fn silent(limits: Limits) -> Self {
        let config = Arc::new(Config::new(limits));
        let streams = {
            let config = config.clone();
            Streams::handle(move || (ServerStream::new(config.stream().clone()), App::default()))
        };
        let http1 = Arc::new(http1::Config::default().detect_http2(true));
        let pipe = Embedded::new(Server::new(http1), Begin { config, streams });
        Self { pipe, encoder: Encoder::new(0), decoder: Decoder::new(4096), unseen: Vec::new() }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.pipe.receive(bytes);
    }

    /// All frames since the last call.
    pub(crate) fn frames(&mut self) -> Vec<Frame> {
        let mut all = std::mem::take(&mut self.unseen);
        for mut frame in frames(&self.pipe.take_written()) {
            // In their order: later blocks refer to earlier ones.
            if frame.kind == HEADERS {
                let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("fields are text");
                let add = |name: &[u8], value: &[u8]| frame.fields.push((text(name), text(value)));
                self.decoder.decode(&frame.content, &mut Vec::new(), add).expect("a valid block");
            }
            all.push(frame);
        }
        all
    }

    /// A field block.
    pub(crate) fn block(&mut self, fields: &[(&str, &str)]) -> Vec<u8> {
        let mut block = Vec::new();
        self.encoder.begin(&mut block);
        for (name, value) in fields {
            self.encoder.encode(name.as_bytes(), value.as_bytes(), Indexing::Omitted, &mut block);
        }
        block
    }

    /// The frame of a request.
    pub(crate) fn request(
        &mut self,
        stream: u32,
        method: &str,
        path: &str,
        more: &[(&str, &str)],
        ends: bool,
    ) -> Vec<u8> {
        let start = [(":method", method), (":scheme", "http"), (":path", path), (":authority", "sea")];
        let block = self.block(&[&start, more].concat());
        frame(HEADERS, END_HEADERS | u8::from(ends), stream, &block)
    }

    pub(crate) fn get(&mut self, stream: u32, path: &str) -> Vec<u8> {
        self.request(stream, "GET", path, &[], true)
    }

    /// The frames received for a stream.
    pub(crate) fn received(&mut self, stream: u32) -> Received {
        let mut received = Received::default();
        for frame in self.frames() {
            if frame.stream != stream {
                self.unseen.push(frame);
                continue;
            }
            received.has_ended |= matches!(frame.kind, DATA | HEADERS) && frame.flags & END_STREAM != 0;
            match frame.kind {
                DATA => received.body.extend_from_slice(&frame.content),
                HEADERS => received.heads.push(frame.fields),
                RST_STREAM => received.reset = Some(error_code(&frame)),
                _ => {}
            }
        }
        received
    }

    /// Asserts that the connection has ended with GOAWAY and this code.
    #[track_caller]
    pub(crate) fn assert_ended(&mut self, code: ErrorCode) {
        let frames = self.frames();
        let goaway = frames.iter().rfind(|frame| frame.kind == GOAWAY);
        let goaway = goaway.unwrap_or_else(|| panic!("no GOAWAY: {frames:?}"));
        let content: [u8; 4] = goaway.content[4..8].try_into().expect("eight bytes");
        assert_eq!(ErrorCode(u32::from_be_bytes(content)), code);
        assert!(self.pipe.is_write_closed() || self.pipe.is_closed());
    }

    /// Asserts that the connection answers as before.
    #[track_caller]
    pub(crate) fn assert_open(&mut self) {
        self.send(&frame(PING, 0, 0, b"are open"));
        let frames = self.frames();
        assert!(frames.iter().any(|frame| frame.kind == PING && frame.flags == ACK), "{frames:?}");
    }
}

pub(crate) fn error_code(frame: &Frame) -> ErrorCode {
    ErrorCode(u32::from_be_bytes(frame.content[..4].try_into().expect("four bytes")))
}

/// The handler of a connection whose version is not known.
struct Begin {
    config: Arc<Config>,
    streams: Streams,
}

impl Handler<Server> for Begin {
    type Post = ();

    fn message(&mut self, message: Incoming, cx: &mut Context<'_, Server>) -> Outcome<Server> {
        match message {
            Incoming::Preface => {
                let config = self.config.clone();
                Outcome::session(move |_| Connection::server(config), &self.streams)
            }
            Incoming::Head(_) => cx.send(Response::text("one").into()).into(),
            _ => Outcome::Continue,
        }
    }
}

/// The application: `/echo` returns the body of the request, `/big` a megabyte, `/never` nothing, `/panic` panics,
/// `/stream` a body of unannounced length, `/early` a response before the body, and everything else a text. `/held`
/// does not read its body, `/stops` reads the first 20 MB of it, `/mirror` returns each piece of it at once, `/pieces`
/// returns the number of its pieces, and `/late` reads nothing for 20 seconds, and returns the length of the body.
#[derive(Default)]
pub(crate) struct App {
    body: Vec<u8>,
    trailers: Vec<(String, String)>,
    path: String,
    /// How many more bytes `/stops` reads.
    stops_after: usize,
    pieces: usize,
}

impl App {
    fn respond<C: Pipeline<In = Incoming, Out = Outgoing, Error = Error>>(
        &mut self,
        cx: &mut Context<'_, C>,
    ) -> Outcome<C> {
        let messages = match &*self.path {
            "/echo" => {
                let mut response = Response::new(Status::OK).body(std::mem::take(&mut self.body));
                for (name, value) in &self.trailers {
                    response = response.field(&format!("Trailer-{name}"), value).expect("a field");
                }
                vec![response.into()]
            }
            "/late" => vec![Response::new(Status::OK).body(self.body.len().to_string()).into()],
            "/pieces" => vec![Response::new(Status::OK).body(self.pieces.to_string()).into()],
            "/big" => vec![Response::new(Status::OK).body(vec![b'x'; 1024 * 1024]).into()],
            "/never" => return Outcome::Continue,
            "/panic" => panic!("as requested"),
            "/slow" => {
                cx.deadline_after(Duration::from_secs(70));
                return Outcome::Continue;
            }
            "/stream" => {
                let mut trailers = http1::Fields::new();
                trailers.push("Tide", "ebb").expect("a field");
                vec![
                    StreamedResponse::new(Status::OK).into(),
                    Outgoing::Data(Body::from("piece by ")),
                    Outgoing::Data(Body::from("piece")),
                    Outgoing::Trailers(trailers),
                ]
            }
            "/short" => vec![StreamedResponse::new(Status::OK).length(9).into(), Outgoing::Data("half".into())],
            "/switch" => {
                let fields = http1::Fields::from_static("Upgrade: websocket\r\n");
                vec![Response::new(Status::SWITCHING_PROTOCOLS).fields(fields).into()]
            }
            "/nothing" => vec![Response::new(Status::NO_CONTENT).into()],
            "/upgrade" => {
                let fields = http1::Fields::from_static("Upgrade: TLS/1.0\r\nKeep-Alive: 5\r\nTide: ebb\r\n");
                vec![Response::new(Status::OK).fields(fields).into()]
            }
            _ => vec![Response::text("Hello, World!").into()],
        };
        for message in messages {
            if let Err(error) = cx.send(message) {
                return Outcome::fail(error);
            }
        }
        if self.path == "/short" { Outcome::Close } else { Outcome::Continue }
    }
}

impl<C: Pipeline<In = Incoming, Out = Outgoing, Error = Error>> Handler<C> for App {
    type Post = ();

    fn message(&mut self, message: Incoming, cx: &mut Context<'_, C>) -> Outcome<C> {
        match message {
            Incoming::Head(head) => {
                head.path().clone_into(&mut self.path);
                match &*self.path {
                    "/held" => cx.pause(),
                    "/late" => {
                        cx.pause();
                        cx.deadline_after(Duration::from_secs(20));
                    }
                    "/stops" => self.stops_after = 20_000_000,
                    "/mirror" => return cx.send(StreamedResponse::new(Status::OK).into()).into(),
                    _ => {}
                }
                if head.has_body() && self.path != "/early" {
                    return Outcome::Continue;
                }
                self.respond(cx)
            }
            Incoming::Data(data) if self.path == "/stops" => {
                self.stops_after = self.stops_after.saturating_sub(data.len());
                if self.stops_after == 0 {
                    cx.pause();
                }
                Outcome::Continue
            }
            Incoming::Data(data) if self.path == "/mirror" => cx.send(Outgoing::Data(data.detach().into())).into(),
            Incoming::End if self.path == "/mirror" => cx.send(Outgoing::End).into(),
            Incoming::Data(data) => {
                self.pieces += 1;
                self.body.extend_from_slice(&data);
                Outcome::Continue
            }
            Incoming::Trailers(trailers) => {
                let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("fields are text");
                self.trailers = trailers.iter().map(|(name, value)| (text(name), text(value))).collect();
                Outcome::Continue
            }
            Incoming::End if self.path != "/early" => self.respond(cx),
            Incoming::End | Incoming::Preface => Outcome::Continue,
        }
    }

    fn event(&mut self, event: Event<()>, cx: &mut Context<'_, C>) -> Outcome<C> {
        match event {
            Event::Deadline if self.path == "/late" => {
                cx.resume();
                Outcome::Continue
            }
            Event::Deadline => cx.send(Response::text("slow").into()).into(),
            event => event.by_default(cx),
        }
    }
}
