//! An HTTP/2 client that is written by hand, over a socket or over memory.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use tidegate::http2::hpack::{Decoder, Encoder, Indexing};
use tidegate_testkit::Embedded;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
pub(crate) const PADDED: u8 = 8;

/// The carrier of a peer's bytes.
pub(crate) trait Wire {
    fn send(&mut self, bytes: &[u8]);

    /// Waits for bytes; none when the server has closed the connection, or when nothing comes by itself.
    fn read(&mut self) -> Vec<u8>;
}

impl Wire for Embedded<()> {
    fn send(&mut self, bytes: &[u8]) {
        self.receive(bytes);
    }

    fn read(&mut self) -> Vec<u8> {
        self.run();
        self.take_written()
    }
}

impl Wire for TcpStream {
    fn send(&mut self, bytes: &[u8]) {
        // The server may have closed the connection: a test looks at its earlier bytes.
        let _ = self.write_all(bytes);
    }

    fn read(&mut self) -> Vec<u8> {
        let mut bytes = vec![0; 64 * 1024];
        match Read::read(self, &mut bytes) {
            Ok(count) => bytes.truncate(count),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => bytes.clear(),
            Err(error) => panic!("nothing comes: {error}"),
        }
        bytes
    }
}

/// The frames received for a stream.
#[derive(Debug, Clone, Default)]
pub(crate) struct Received {
    /// The fields of all heads and trailers.
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) has_ended: bool,
    pub(crate) reset: Option<u32>,
}

impl Received {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(found, _)| found == name).map(|(_, value)| &**value)
    }

    pub(crate) fn status(&self) -> &str {
        self.field(":status").unwrap_or_default()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.has_ended || self.reset.is_some()
    }
}

pub(crate) struct Peer<W> {
    pub(crate) wire: W,
    encoder: Encoder,
    decoder: Decoder,
    input: Vec<u8>,
    pub(crate) streams: HashMap<u32, Received>,
    /// The settings of the server.
    pub(crate) settings: Vec<(u16, u32)>,
    /// The code and the last stream of each GOAWAY.
    pub(crate) goaways: Vec<(u32, u32)>,
    pub(crate) pongs: u32,
    pub(crate) is_closed: bool,
    /// Grants windows again for DATA.
    pub(crate) grants: bool,
    /// PINGs of the server that are not acknowledged, if none is at once.
    pub(crate) pings: Option<Vec<Vec<u8>>>,
}

impl<W: Wire> Peer<W> {
    /// A peer that has sent its preface and SETTINGS.
    pub(crate) fn new(wire: W) -> Self {
        let mut peer = Self::silent(wire);
        peer.wire.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        peer.frame(SETTINGS, 0, 0, &[]);
        peer.read_until(|peer| !peer.settings.is_empty());
        peer.frame(SETTINGS, ACK, 0, &[]);
        peer
    }

    pub(crate) fn silent(wire: W) -> Self {
        Self {
            wire,
            encoder: Encoder::new(0),
            decoder: Decoder::new(4096),
            input: Vec::new(),
            streams: HashMap::new(),
            settings: Vec::new(),
            goaways: Vec::new(),
            pongs: 0,
            is_closed: false,
            grants: true,
            pings: None,
        }
    }

    pub(crate) fn frame(&mut self, kind: u8, flags: u8, stream: u32, content: &[u8]) {
        self.wire.send(&frame(kind, flags, stream, content));
    }

    pub(crate) fn wire_send(&mut self, bytes: &[u8]) {
        self.wire.send(bytes);
    }

    pub(crate) fn is_over(&self, stream: u32) -> bool {
        self.streams.get(&stream).is_some_and(Received::is_over)
    }

    pub(crate) fn data(&mut self, stream: u32, content: &[u8]) {
        self.frame(DATA, 0, stream, content);
    }

    pub(crate) fn block(&mut self, fields: &[(&str, &str)]) -> Vec<u8> {
        let mut block = Vec::new();
        self.encoder.begin(&mut block);
        for (name, value) in fields {
            self.encoder.encode(name.as_bytes(), value.as_bytes(), Indexing::Omitted, &mut block);
        }
        block
    }

    pub(crate) fn headers(&mut self, stream: u32, fields: &[(&str, &str)], ends: bool) {
        let block = self.block(fields);
        self.frame(HEADERS, END_HEADERS | u8::from(ends), stream, &block);
    }

    pub(crate) fn request(&mut self, stream: u32, method: &str, path: &str, more: &[(&str, &str)], ends: bool) {
        let start = [(":method", method), (":scheme", "http"), (":path", path), (":authority", "sea")];
        self.headers(stream, &[&start, more].concat(), ends);
    }

    /// An extended CONNECT (RFC 8441).
    pub(crate) fn extended_connect(&mut self, stream: u32, protocol: &str, path: &str, more: &[(&str, &str)]) {
        let start = [
            (":method", "CONNECT"),
            (":protocol", protocol),
            (":scheme", "http"),
            (":path", path),
            (":authority", "sea"),
        ];
        self.headers(stream, &[&start, more].concat(), false);
    }

    pub(crate) fn stream(&self, stream: u32) -> Received {
        self.streams.get(&stream).cloned().unwrap_or_default()
    }

    pub(crate) fn ping(&mut self) {
        self.frame(PING, 0, 0, b"are open");
    }

    /// Reads once, and handles the frames that are whole.
    pub(crate) fn read(&mut self) {
        let bytes = self.wire.read();
        if bytes.is_empty() {
            self.is_closed = true;
        }
        self.input.extend_from_slice(&bytes);
        while let Some((&[a, b, c, kind, flags, e, f, g, h], rest)) = self.input.split_first_chunk() {
            let length = u32::from_be_bytes([0, a, b, c]) as usize;
            let Some(content) = rest.get(..length).map(<[u8]>::to_vec) else { break };
            drop(self.input.drain(..9 + length));
            self.on_frame(kind, flags, u32::from_be_bytes([e, f, g, h]), &content);
        }
    }

    /// Reads until something is so, or nothing more comes.
    #[track_caller]
    pub(crate) fn read_until(&mut self, is_so: impl Fn(&Self) -> bool) {
        while !is_so(self) {
            self.read();
            assert!(!self.is_closed || is_so(self), "nothing more comes: {:?} {:?}", self.streams, self.goaways);
            self.is_closed = false;
        }
    }

    /// Reads to the end of the connection.
    pub(crate) fn read_to_end(&mut self) {
        while !self.is_closed {
            self.read();
        }
    }

    fn on_frame(&mut self, kind: u8, flags: u8, id: u32, content: &[u8]) {
        let word = |at: usize| u32::from_be_bytes(content[at..at + 4].try_into().expect("four bytes"));
        match kind {
            SETTINGS if flags & ACK == 0 => {
                let entries = content.chunks_exact(6).map(|entry| {
                    let &[a, b, c, d, e, f] = entry else { unreachable!("six bytes") };
                    (u16::from_be_bytes([a, b]), u32::from_be_bytes([c, d, e, f]))
                });
                self.settings.extend(entries);
            }
            PING if flags & ACK == 0 => match &mut self.pings {
                Some(pings) => pings.push(content.to_vec()),
                None => self.frame(PING, ACK, 0, content),
            },
            PING => self.pongs += 1,
            GOAWAY => self.goaways.push((word(4), word(0))),
            _ => {}
        }
        if !matches!(kind, DATA | HEADERS | RST_STREAM) {
            return;
        }
        let Self { streams, decoder, .. } = self;
        let stream = streams.entry(id).or_default();
        match kind {
            DATA => stream.body.extend_from_slice(content),
            HEADERS => {
                let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("fields are text");
                let add = |name: &[u8], value: &[u8]| stream.fields.push((text(name), text(value)));
                decoder.decode(content, &mut Vec::new(), add).expect("a valid block");
            }
            _ => stream.reset = Some(word(0)),
        }
        stream.has_ended |= kind != RST_STREAM && flags & END_STREAM != 0;
        if kind == DATA && !content.is_empty() && self.grants {
            let bytes = (content.len() as u32).to_be_bytes();
            self.frame(WINDOW_UPDATE, 0, 0, &bytes);
            if !self.stream(id).is_over() {
                self.frame(WINDOW_UPDATE, 0, id, &bytes);
            }
        }
    }
}

/// A frame as bytes.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).expect("a frame is short").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), content].concat()
}
