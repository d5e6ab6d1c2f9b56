//! Complete turns with messages of WebSockets, which a handler sends back.

use std::sync::Arc;

use tidegate_engine::{Context, Handler, Limits, Outcome};
use tidegate_sys::Socket;
use tidegate_websocket::{Config, Message, WebSocket};

use crate::counted::count_this;
use crate::turns::{BETWEEN, wired};
use crate::wire::address;

/// `DEPTH` texts of `BYTES` bytes in one turn.
pub(crate) fn echo<const BYTES: usize, const DEPTH: usize>(rounds: usize) {
    let (mut event_loop, peer) = wired(frame(BYTES).repeat(DEPTH), 0);
    let codec = WebSocket::server(Arc::new(Config::default()), None);
    let adopted = event_loop.adopt(Socket::Simulated(0), &address(), Limits::default(), codec, Echo);
    adopted.expect("it takes any stream");
    // Warm-up: open the connection.
    for _ in 0..4 {
        event_loop.turn(None).expect("nothing fails on a wire");
    }
    for _ in 0..rounds {
        peer.pass(BETWEEN);
        peer.deliver();
        count_this(|| event_loop.turn(None)).expect("nothing fails on a wire");
    }
    let echoes = rounds * DEPTH * (frame(BYTES).len() - KEY.len());
    assert_eq!(peer.received(), echoes as u64, "each turn sends all messages back");
}

struct Echo;

impl Handler<WebSocket> for Echo {
    type Post = ();

    fn message(&mut self, message: Message, cx: &mut Context<'_, WebSocket>) -> Outcome<WebSocket> {
        cx.send(message).into()
    }
}

/// A text of a client, in one frame.
fn frame(length: usize) -> Vec<u8> {
    let mut bytes = vec![0x81];
    match length {
        0..126 => bytes.push(0x80 | length as u8),
        126..65_536 => {
            bytes.push(0x80 | 126);
            bytes.extend((length as u16).to_be_bytes());
        }
        _ => {
            bytes.push(0x80 | 127);
            bytes.extend((length as u64).to_be_bytes());
        }
    }
    bytes.extend(KEY);
    bytes.extend((0..length).map(|at| b'x' ^ KEY[at % 4]));
    bytes
}

const KEY: [u8; 4] = [0x37, 0xFA, 0x21, 0x3D];
