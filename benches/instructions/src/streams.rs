//! Messages on the streams of a session, beside the same messages on one connection.

use tidegate_codec::framing::{Lines, Payload};
use tidegate_codec::{Pipeline, Slice};
use tidegate_engine::{Context, EventLoop, Handler, Limits, Outcome};
use tidegate_sys::Socket;
use tidegate_testkit::{ToyMux, ToyMuxConfig};

use crate::counted::count_this;
use crate::turns::wired;
use crate::wire::{Peer, address};

/// A message on each of [`STREAMS`] streams in one turn.
pub(crate) fn one_on_each(rounds: usize) {
    let frames: Vec<u8> = (0..STREAMS as u32).flat_map(|number| ToyMux::frame(DATA, 0, 1 + 2 * number, LINE)).collect();
    let (mut event_loop, peer) = wired(frames.clone(), 0);
    let window = i32::MAX as u32;
    let config = ToyMuxConfig { stream_window: window, session_window: window, ..ToyMuxConfig::default() };
    let mux = ToyMux::client(config);
    let session = event_loop.open_session(Socket::Simulated(0), &address(), Limits::default(), mux);
    let session = session.expect("it takes any socket");
    for _ in 0..STREAMS {
        session.open_handler(Lines::new(), Echo).expect("a stream");
    }
    turn(&mut event_loop, &peer, frames.len(), rounds);
}

/// As many messages in one turn, pipelined on one connection.
pub(crate) fn pipelined(rounds: usize) {
    let lines = LINE.repeat(STREAMS);
    let (mut event_loop, peer) = wired(lines.clone(), 0);
    let adopted = event_loop.adopt(Socket::Simulated(0), &address(), Limits::default(), Lines::new(), Echo);
    drop(adopted.expect("it takes any socket"));
    turn(&mut event_loop, &peer, lines.len(), rounds);
}

fn turn(event_loop: &mut EventLoop, peer: &Peer, bytes: usize, rounds: usize) {
    for _ in 0..4 {
        event_loop.turn(None).expect("nothing fails on a wire");
    }
    let before = peer.received();
    for _ in 0..rounds {
        peer.deliver();
        // The session writes what its streams have sent at the end of the turn.
        count_this(|| event_loop.turn(None)).expect("nothing fails on a wire");
    }
    assert_eq!(peer.received() - before, (rounds * bytes) as u64, "each turn answers all messages that it received");
}

struct Echo;

impl<P: Pipeline<In = Slice, Out = Payload>> Handler<P> for Echo {
    type Post = ();

    fn message(&mut self, line: Slice, cx: &mut Context<'_, P>) -> Outcome<P> {
        cx.send(line.into()).into()
    }
}

pub(crate) const STREAMS: usize = 100;

const LINE: &[u8] = b"what goes out with the ebb comes back with the flow\n";

/// The type of a frame with bytes of a stream.
const DATA: u8 = 1;
