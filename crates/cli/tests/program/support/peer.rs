//! A client that can misbehave, and that parses responses strictly.

use std::io::{self, ErrorKind, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use socket2::{Domain, SockAddr, Socket, Type};

use crate::support::program::{PATIENCE, Program};

/// One connection to the server.
pub(crate) struct Peer {
    pub(crate) socket: Socket,
    unread: Vec<u8>,
}

/// A response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// From the status line to the empty line.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Peer {
    pub(crate) fn connect(program: &Program) -> Self {
        Self::to(&program.address())
    }

    pub(crate) fn to(address: &SockAddr) -> Self {
        Self::try_to(address, None).unwrap()
    }

    /// A peer with the source address `local`.
    pub(crate) fn from(local: SocketAddr, program: &Program) -> Self {
        Self::try_at(Some(local), &program.address(), None).unwrap()
    }

    /// A peer with a small receive buffer.
    pub(crate) fn narrow(program: &Program) -> Self {
        Self::try_to(&program.address(), Some(NARROW_BYTES)).unwrap()
    }

    pub(crate) fn try_to(address: &SockAddr, receive_buffer: Option<usize>) -> io::Result<Self> {
        Self::try_at(None, address, receive_buffer)
    }

    fn try_at(local: Option<SocketAddr>, address: &SockAddr, receive_buffer: Option<usize>) -> io::Result<Self> {
        let socket = Socket::new(Domain::from(i32::from(address.family())), Type::STREAM, None)?;
        if let Some(bytes) = receive_buffer {
            socket.set_recv_buffer_size(bytes)?;
        }
        if let Some(local) = local {
            socket.bind(&local.into())?;
        }
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        socket.connect(address)?;
        Ok(Self { socket, unread: Vec::new() })
    }

    /// A second handle of the connection, for a thread that sends while this one reads.
    pub(crate) fn sender(&self) -> Self {
        Self { socket: self.socket.try_clone().unwrap(), unread: Vec::new() }
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes).unwrap();
    }

    pub(crate) fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        (&self.socket).write_all(bytes.as_ref())
    }

    /// Sends a GET request and reads the response.
    pub(crate) fn get(&mut self, target: &str) -> Reply {
        self.ask("GET", target)
    }

    pub(crate) fn ask(&mut self, method: &str, target: &str) -> Reply {
        self.send(request(method, target));
        self.reply_to(method)
    }

    /// Sends exactly these bytes, and reads the response to a GET request.
    pub(crate) fn exchange(&mut self, bytes: impl AsRef<[u8]>) -> Reply {
        self.send(bytes);
        self.reply()
    }

    pub(crate) fn reply(&mut self) -> Reply {
        self.reply_to("GET")
    }

    /// Reads one response, which must be complete.
    pub(crate) fn reply_to(&mut self, method: &str) -> Reply {
        let head = self.head();
        let mut reply = Reply { status: status(&head), head, body: Vec::new() };
        if method == "HEAD" || matches!(reply.status, 100..=199 | 204 | 304) {
            return reply;
        }
        reply.body = match (reply.field("content-length"), reply.field("transfer-encoding")) {
            (Some(length), None) => self.take(length.parse().unwrap()),
            (None, Some("chunked")) => self.chunked(),
            (None, None) => self.rest().unwrap(),
            other => panic!("both lengths: {other:?}"),
        };
        reply
    }

    /// Reads a head, including the empty line.
    pub(crate) fn head(&mut self) -> String {
        let mut looked_at = 0;
        let end = loop {
            let from = self.unread[looked_at..].windows(4).position(|four| four == b"\r\n\r\n");
            if let Some(position) = from {
                break looked_at + position + 4;
            }
            looked_at = self.unread.len().saturating_sub(3);
            self.more();
        };
        String::from_utf8(self.unread.drain(..end).collect()).unwrap()
    }

    /// Reads exactly `length` bytes.
    pub(crate) fn take(&mut self, length: usize) -> Vec<u8> {
        while self.unread.len() < length {
            self.more();
        }
        let rest = self.unread.split_off(length);
        std::mem::replace(&mut self.unread, rest)
    }

    /// Reads to the end of the stream. An error if the connection breaks instead.
    pub(crate) fn rest(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = std::mem::take(&mut self.unread);
        (&self.socket).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Asserts that the server closes the connection in good order, without further output.
    pub(crate) fn expect_end(&mut self) {
        let rest = self.rest().expect("a clean end");
        assert!(rest.is_empty(), "nothing more was expected: {}", String::from_utf8_lossy(&rest));
    }

    /// Whether the server sends nothing for `moment`, and does not close the connection either.
    pub(crate) fn receives_nothing(&mut self, moment: Duration) -> bool {
        self.socket.set_read_timeout(Some(moment)).unwrap();
        let read = (&self.socket).read(&mut [0; 1]);
        self.socket.set_read_timeout(Some(PATIENCE)).unwrap();
        self.unread.is_empty() && read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }

    /// Whether a byte of a reply has come. It does not wait.
    pub(crate) fn has_reply(&self) -> bool {
        self.socket.set_nonblocking(true).unwrap();
        let peeked = self.socket.peek(&mut [MaybeUninit::uninit(); 1]);
        self.socket.set_nonblocking(false).unwrap();
        !self.unread.is_empty() || peeked.is_ok()
    }

    /// Shuts down the write half.
    pub(crate) fn finish(&self) {
        self.socket.shutdown(Shutdown::Write).unwrap();
    }

    /// Resets the connection: the server receives RST.
    pub(crate) fn reset(self) {
        self.socket.set_linger(Some(Duration::ZERO)).unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            line.extend(self.take(1));
        }
        line.truncate(line.len() - 2);
        String::from_utf8(line).unwrap()
    }

    fn chunked(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let size = usize::from_str_radix(&self.line(), 16).expect("the size of a chunk");
            body.extend(self.take(size));
            assert_eq!(self.line(), "", "the end of a chunk");
            if size == 0 {
                return body;
            }
        }
    }

    /// The start of the unread bytes, for a panic message.
    fn shown(&self) -> String {
        let shown = &self.unread[..self.unread.len().min(500)];
        format!("{} bytes, \"{}\"", self.unread.len(), shown.escape_ascii())
    }

    fn more(&mut self) {
        let mut piece = [0; 64 * 1024];
        match (&self.socket).read(&mut piece) {
            Ok(0) => panic!("the connection ended; unread: {}", self.shown()),
            Ok(length) => self.unread.extend_from_slice(&piece[..length]),
            // By a signal; the caller asks for more again.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => panic!("{error}; unread: {}", self.shown()),
        }
    }
}

impl Reply {
    /// The value of a field, which must not be repeated.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut values = self.head.lines().skip(1).filter_map(|line| {
            let (field, value) = line.split_once(": ")?;
            field.eq_ignore_ascii_case(name).then_some(value)
        });
        let value = values.next();
        assert_eq!(values.next(), None, "{name} is there twice: {}", self.head);
        value
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// The response without its date.
    pub(crate) fn dateless(&self) -> Self {
        let lines = self.head.split_inclusive("\r\n").filter(|line| !line.starts_with("Date: "));
        Self { head: lines.collect(), ..self.clone() }
    }
}

/// A request without body.
pub(crate) fn request(method: &str, target: &str) -> String {
    format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n\r\n")
}

/// A request with a body and its Content-Length.
pub(crate) fn post(target: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// A request with a body in the chunked coding, in chunks of `size`.
pub(crate) fn post_chunked(target: &str, body: &[u8], size: usize) -> Vec<u8> {
    let head = format!("POST {target} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
    let mut bytes = head.into_bytes();
    for chunk in body.chunks(size) {
        bytes.extend(format!("{:x}\r\n", chunk.len()).as_bytes());
        bytes.extend(chunk);
        bytes.extend(b"\r\n");
    }
    bytes.extend(b"0\r\n\r\n");
    bytes
}

/// The status of a response from its head, or from its first bytes.
pub(crate) fn status(head: &str) -> u16 {
    let code = head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3));
    code.and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("no response: {head:?}"))
}

/// The content of /bytes/N and /stream/N.
pub(crate) fn letters(length: usize) -> Vec<u8> {
    const LINE: &[u8] = b"abcdefghijklmnopqrstuvwxyz\n";
    let mut bytes = LINE.repeat(length.div_ceil(LINE.len()));
    bytes.truncate(length);
    bytes
}

/// Bytes without repetition, so that misplaced pieces are detected.
pub(crate) fn pattern(length: usize) -> Vec<u8> {
    (0..length as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

/// Compares without printing megabytes.
pub(crate) fn assert_same(actual: &[u8], expected: &[u8]) {
    assert_eq!(actual.len(), expected.len());
    // Without optimisation the search for a difference in megabytes takes most of the time of a test.
    let difference = || actual.iter().zip(expected).position(|(actual, expected)| actual != expected);
    assert!(actual == expected, "the first different byte: {:?}", difference());
}

/// A request after which the server closes the connection.
pub(crate) const LAST: &str = "GET /plaintext HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

/// The receive buffer of a narrow peer.
const NARROW_BYTES: usize = 8 * 1024;
