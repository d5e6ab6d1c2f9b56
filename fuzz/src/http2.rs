//! HTTP/2: any frames to either role, with applications that answer; and any field blocks.
//!
//! Whatever comes, no stream is served beyond the limit, the window of the connection covers the unconsumed bytes, and
//! the output consists of whole frames. A field block that is decoded is encoded and decoded again to the same fields.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_codec::mux::{Mux, RawStreams, StreamCommand, StreamEvent, StreamKey};
use tidegate_codec::{Codec, Step};
use tidegate_http1::{Incoming, Response, client};
use tidegate_http2::hpack::{Decoder, Encoder, Indexing};
use tidegate_http2::{ClientStream, Config, Connection, Limits, ServerStream};
use tidegate_testkit::CodecHarness;

use crate::choices::Choices;

/// Frames to a connection. The first byte chooses the role.
pub fn http2(data: &[u8]) {
    let mut choices = Choices::new(data);
    let is_client = choices.byte() & 1 != 0;
    let limits = Limits { streams_max: 4, abuse_max: 50, headers_max: 8, head_bytes_max: 600, ..Limits::default() };
    let config = Arc::new(Config::new(limits));
    let mux = if is_client { Connection::client(config.clone()) } else { Connection::server(config.clone()) };
    let mut side =
        Side { harness: CodecHarness::new(RawStreams::new(mux)), config, streams: BTreeMap::new(), sent: Vec::new() };
    let mut start = if is_client { Vec::new() } else { PREFACE.to_vec() };
    start.extend(frame(4, 0, 0, &[]));
    let mut is_alive = side.receive(&start);
    for _ in 0..FRAMES_MAX {
        if choices.is_over() || !is_alive {
            break;
        }
        is_alive = match choices.byte() % 16 {
            0 => side.receive(choices.take(40)),
            1 if is_client => side.request(),
            2 => side.harness.advance_time(std::time::Duration::from_secs(choices.byte().into())).is_ok(),
            _ => {
                let (kind, flags, id) = (choices.byte() % 18, choices.byte(), u32::from(choices.byte() % 16));
                let length = choices.length(200);
                let content = if choices.byte() & 1 == 0 { choices.take(length).to_vec() } else { GET.to_vec() };
                side.receive(&frame(kind, flags, id, &content))
            }
        };
        side.check();
    }
    let _ = side.harness.decode_eof();
}

struct Side {
    harness: CodecHarness<RawStreams<Connection>>,
    config: Arc<Config>,
    streams: BTreeMap<u32, Stream>,
    sent: Vec<u8>,
}

struct Stream {
    key: StreamKey,
    codec: StreamCodec,
}

enum StreamCodec {
    Server(CodecHarness<ServerStream>),
    Client(CodecHarness<ClientStream>),
}

impl Side {
    /// Returns whether the connection goes on.
    fn receive(&mut self, bytes: &[u8]) -> bool {
        self.harness.receive(bytes);
        loop {
            match self.harness.step() {
                Ok(Step::Message(event)) => self.on_event(event),
                Ok(Step::NeedMore) => return true,
                Ok(Step::End) | Err(_) => return false,
            }
        }
    }

    fn on_event(&mut self, event: StreamEvent) {
        match event {
            StreamEvent::Opened(key) => {
                let codec = StreamCodec::Server(CodecHarness::new(ServerStream::new(self.config.stream().clone())));
                self.streams.insert(key.id(), Stream { key, codec });
            }
            StreamEvent::Data { stream, bytes } => self.on_data(stream, &bytes),
            StreamEvent::Ended(_) => {}
            StreamEvent::Reset { stream, .. } => drop(self.streams.remove(&stream.id())),
        }
    }

    fn on_data(&mut self, key: StreamKey, bytes: &[u8]) {
        let Some(stream) = self.streams.get_mut(&key.id()) else { return };
        let sent = match &mut stream.codec {
            StreamCodec::Server(codec) => {
                let messages = codec.decode(bytes).unwrap_or_default();
                // Every other stream never gets an answer.
                if messages.iter().any(|message| matches!(message, Incoming::Head(_))) && key.id() % 4 == 1 {
                    codec.encode(Response::text("an answer").into()).expect("a response is owed");
                }
                let _ = codec.flush();
                codec.take_sent()
            }
            StreamCodec::Client(codec) => {
                let _ = codec.decode(bytes);
                codec.take_sent()
            }
        };
        let key = stream.key;
        let _ = self.harness.encode(StreamCommand::Consumed(key, bytes.len() as u32));
        if !sent.is_empty() {
            let _ = self.harness.encode(StreamCommand::Data(key, sent.into()));
        }
    }

    fn request(&mut self) -> bool {
        let (codec, mut out) = self.harness.parts();
        let Ok(key) = codec.open(&mut out) else { return true };
        let mut codec = CodecHarness::new(ClientStream::new(Arc::default(), "http"));
        let request = client::Request::get("http://sea/").expect("a request");
        codec.encode(client::Outgoing::Request(request)).expect("the first one");
        let _ = codec.flush();
        let sent = codec.take_sent();
        self.streams.insert(key.id(), Stream { key, codec: StreamCodec::Client(codec) });
        let _ = self.harness.encode(StreamCommand::Data(key, sent.into()));
        true
    }

    fn check(&mut self) {
        let mux = self.harness.codec().mux();
        let limits = self.config.limits();
        assert!(mux.streams().opened_by_peer() <= limits.streams_max as usize, "more streams than allowed");
        assert!(mux.streams().unconsumed_bytes() <= limits.stream_window_bytes_max, "more than the window");
        let _ = mux.status();
        let _ = self.harness.flush();
        self.sent.extend(self.harness.take_sent());
        let mut rest = self.sent.strip_prefix(PREFACE).unwrap_or(&self.sent);
        while let Some((&[a, b, c, ..], _)) = rest.split_first_chunk::<9>() {
            let length = 9 + u32::from_be_bytes([0, a, b, c]) as usize;
            assert!(length <= 9 + 16 * 1024, "a frame of {length} bytes");
            let Some(next) = rest.get(length..) else { break };
            rest = next;
        }
        assert!(rest.is_empty(), "half a frame: {rest:?}");
        self.sent.clear();
    }
}

fn frame(kind: u8, flags: u8, stream: u32, content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), content].concat()
}

/// Field blocks of one connection, each behind its length.
pub fn hpack(data: &[u8]) {
    let mut choices = Choices::new(data);
    let table_bytes = u32::from(choices.byte()) * 64;
    let (mut decoder, mut encoder, mut again) =
        (Decoder::new(table_bytes), Encoder::new(table_bytes), Decoder::new(4096));
    decoder.on_acknowledged();
    while !choices.is_over() {
        let length = usize::from(choices.byte());
        let mut fields = Vec::new();
        let decoded = decoder.decode(choices.take(length), &mut Vec::new(), |name, value| {
            fields.push((name.to_vec(), value.to_vec()));
        });
        if decoded.is_err() {
            return;
        }
        let mut block = Vec::new();
        encoder.begin(&mut block);
        for (index, (name, value)) in fields.iter().enumerate() {
            let indexing = [Indexing::Allowed, Indexing::Omitted, Indexing::Never][index % 3];
            encoder.encode(name, value, indexing, &mut block);
        }
        let mut same = Vec::new();
        let decoded = again.decode(&block, &mut Vec::new(), |name, value| same.push((name.to_vec(), value.to_vec())));
        assert_eq!((decoded, same), (Ok(()), fields), "encoded fields are decoded");
    }
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A request for `/` by indices of the static table, and a host.
const GET: &[u8] = b"\x82\x86\x84\x01\x03sea";

const FRAMES_MAX: usize = 200;
