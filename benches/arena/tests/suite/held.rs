//! Connections that last: WebSockets in all variants, and many connections that wait.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use tidegate::ServerHandle;

use crate::checks::FOLDER;

struct Arena(ServerHandle);

impl Arena {
    fn start() -> Self {
        let options = arena::Options { loops: Some(1), ..arena::Options::default() };
        Self(arena::start("127.0.0.1:0", &FOLDER, options).unwrap())
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.0.address().ip().unwrap()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    /// A WebSocket, behind its handshake.
    fn websocket(&self) -> TcpStream {
        let mut stream = self.connect();
        let head = "GET /ws HTTP/1.1\r\nHost: arena\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
            Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        let head = until(&mut stream, b"\r\n\r\n");
        assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&head));
        assert!(String::from_utf8_lossy(&head).contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "the answer to the key");
        stream
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        self.0.drain(Duration::ZERO);
    }
}

/// Reads until these bytes come, byte by byte, so that nothing behind them is taken.
fn until(stream: &mut TcpStream, end: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    while !bytes.ends_with(end) {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        bytes.push(byte[0]);
    }
    bytes
}

/// A frame of a client, masked by zeros if the mask is zero.
fn masked(opcode: u8, payload: &[u8], mask: [u8; 4]) -> Vec<u8> {
    let mut frame = head(opcode, payload.len(), 0x80);
    frame.extend_from_slice(&mask);
    frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame
}

/// A frame of the server.
fn plain(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = head(opcode, payload.len(), 0);
    frame.extend_from_slice(payload);
    frame
}

fn head(opcode: u8, length: usize, mask_bit: u8) -> Vec<u8> {
    let mut head = vec![0x80 | opcode];
    match length {
        0..=125 => head.push(mask_bit | length as u8),
        126..=0xFFFF => {
            head.push(mask_bit | 126);
            head.extend_from_slice(&(length as u16).to_be_bytes());
        }
        _ => {
            head.push(mask_bit | 127);
            head.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    head
}

fn expect(stream: &mut TcpStream, expected: &[u8]) {
    let mut bytes = vec![0; expected.len()];
    stream.read_exact(&mut bytes).unwrap();
    assert!(bytes == expected, "{:?}", &bytes[..bytes.len().min(40)]);
}

const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

#[test]
fn messages_of_each_kind_and_length_come_back() {
    let arena = Arena::start();
    let mut stream = arena.websocket();
    for mask in [[0; 4], [0x37, 0xFA, 0x21, 0x3D]] {
        for length in [0, 5, 125, 126, 0xFFFF, 0x1_0000] {
            for opcode in [TEXT, BINARY] {
                let payload = vec![b'h'; length];
                stream.write_all(&masked(opcode, &payload, mask)).unwrap();
                expect(&mut stream, &plain(opcode, &payload));
            }
        }
    }
    stream.write_all(&masked(PING, b"tide", [1; 4])).unwrap();
    expect(&mut stream, &plain(PONG, b"tide"));
    stream.write_all(&masked(CLOSE, &1000_u16.to_be_bytes(), [2; 4])).unwrap();
    expect(&mut stream, &plain(CLOSE, &1000_u16.to_be_bytes()));
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "the server closes behind the handshake of closing");
}

#[test]
fn many_messages_at_once_come_back_in_order() {
    let arena = Arena::start();
    let mut stream = arena.websocket();
    let numbers = || (0..1_000).map(|number| format!("hello {number}"));
    let wire: Vec<u8> = numbers().flat_map(|text| masked(TEXT, text.as_bytes(), [9, 8, 7, 6])).collect();
    stream.write_all(&wire).unwrap();
    let echo: Vec<u8> = numbers().flat_map(|text| plain(TEXT, text.as_bytes())).collect();
    expect(&mut stream, &echo);
}

/// Each connection ends after ten messages, some without a handshake of closing.
#[test]
fn websockets_reconnect() {
    let arena = Arena::start();
    for number in 0..50 {
        let mut stream = arena.websocket();
        for _ in 0..10 {
            stream.write_all(&masked(TEXT, b"hello", [1, 2, 3, 4])).unwrap();
            expect(&mut stream, &plain(TEXT, b"hello"));
        }
        if number % 2 == 0 {
            stream.write_all(&masked(CLOSE, &1000_u16.to_be_bytes(), [0; 4])).unwrap();
            expect(&mut stream, &plain(CLOSE, &1000_u16.to_be_bytes()));
        }
    }
    assert!(arena.websocket().write_all(&masked(TEXT, b"hello", [0; 4])).is_ok());
}

/// All requests wait on the loop at the same time, and each is answered.
#[test]
fn connections_that_wait_are_all_answered() {
    let arena = Arena::start();
    let mut waiting: Vec<TcpStream> = (0..200).map(|_| arena.connect()).collect();
    for _ in 0..3 {
        for (number, stream) in waiting.iter_mut().enumerate() {
            write!(stream, "GET /delay/{} HTTP/1.1\r\nHost: arena\r\n\r\n", 10 + number % 10).unwrap();
        }
        for (number, stream) in waiting.iter_mut().enumerate() {
            let answer = until(stream, format!("\r\n\r\n{}", 10 + number % 10).as_bytes());
            assert!(answer.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&answer));
        }
    }
}
