//! An HTTP/2 server that is written by hand: the side of an upstream, on sockets.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

pub(crate) struct Upstream(TcpListener);

impl Upstream {
    pub(crate) fn new() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").expect("a port"))
    }

    pub(crate) fn url(&self) -> String {
        format!("h2c://{}", self.0.local_addr().expect("an address"))
    }

    /// The next connection, whose preface is read, and which has SETTINGS.
    pub(crate) fn accept(&self) -> Session {
        self.accept_with(&[])
    }

    /// The same with the content of SETTINGS.
    pub(crate) fn accept_with(&self, settings: &[u8]) -> Session {
        let (mut stream, _) = self.0.accept().expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(120))).expect("a socket");
        // A kernel that resets the connection drops bytes that Nagle's algorithm holds back.
        stream.set_nodelay(true).expect("a socket");
        stream.read_exact(&mut [0; 24]).expect("a preface");
        let mut session = Session(stream);
        session.send(SETTINGS, 0, 0, settings);
        session
    }

    /// Whether a connection waits that was not accepted.
    pub(crate) fn has_another(&self) -> bool {
        self.0.set_nonblocking(true).expect("a socket");
        let has = self.0.accept().is_ok();
        self.0.set_nonblocking(false).expect("a socket");
        has
    }
}

/// A frame of the proxy.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) content: Vec<u8>,
}

pub(crate) struct Session(TcpStream);

impl Session {
    pub(crate) fn send(&mut self, kind: u8, flags: u8, stream: u32, content: &[u8]) {
        self.send_at_once(&[(kind, flags, stream, content)]);
    }

    /// Sends frames by one write: kind, flags, stream and content of each.
    pub(crate) fn send_at_once(&mut self, frames: &[(u8, u8, u32, &[u8])]) {
        let mut bytes = Vec::new();
        for (kind, flags, stream, content) in frames {
            let length = (content.len() as u32).to_be_bytes();
            bytes.extend([&length[1..], &[*kind, *flags], &stream.to_be_bytes(), *content].concat());
        }
        self.0.write_all(&bytes).expect("the proxy reads");
    }

    /// The same connection, for another thread.
    pub(crate) fn other(&self) -> Self {
        Self(self.0.try_clone().expect("a socket"))
    }

    /// The next frame; `None` at the end. SETTINGS are acknowledged.
    pub(crate) fn receive(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).ok()?;
        let [a, b, c, kind, flags, e, f, g, h] = head;
        let mut content = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.0.read_exact(&mut content).ok()?;
        if (kind, flags) == (SETTINGS, 0) {
            self.send(SETTINGS, 1, 0, &[]);
        }
        Some(Frame { kind, flags, stream: u32::from_be_bytes([e, f, g, h]), content })
    }

    /// The stream of the next request, once all of it has come.
    #[track_caller]
    pub(crate) fn request(&mut self) -> u32 {
        loop {
            let frame = self.receive().expect("a request");
            if matches!(frame.kind, HEADERS | DATA) && frame.flags & END_STREAM != 0 {
                return frame.stream;
            }
        }
    }

    /// The stream of the next head.
    #[track_caller]
    pub(crate) fn head(&mut self) -> u32 {
        loop {
            let frame = self.receive().expect("a head");
            if frame.kind == HEADERS {
                return frame.stream;
            }
        }
    }

    /// The body of a request whose head has come.
    #[track_caller]
    pub(crate) fn body(&mut self, stream: u32) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let frame = self.receive().expect("a body");
            if (frame.kind, frame.stream) == (DATA, stream) {
                body.extend(frame.content);
                if frame.flags & END_STREAM != 0 {
                    return body;
                }
            }
        }
    }

    /// A response with status 200 and this body.
    pub(crate) fn answer(&mut self, stream: u32, body: &str) {
        let length = body.len().to_string();
        // `:status: 200`, and `content-length` as a literal with the name of the static table.
        let head = [&[0x88, 0x0f, 0x0d, length.len() as u8], length.as_bytes()].concat();
        self.send(HEADERS, END_HEADERS, stream, &head);
        self.send(DATA, END_STREAM, stream, body.as_bytes());
    }

    pub(crate) fn reset(&mut self, stream: u32, code: u32) {
        self.send(RST_STREAM, 0, stream, &code.to_be_bytes());
    }

    pub(crate) fn go_away(&mut self, last: u32) {
        self.send(GOAWAY, 0, 0, &[last.to_be_bytes(), [0; 4]].concat());
    }

    /// The heads that come until the proxy closes the connection.
    pub(crate) fn heads_to_the_end(&mut self) -> usize {
        std::iter::from_fn(|| self.receive()).filter(|frame| frame.kind == HEADERS).count()
    }
}
