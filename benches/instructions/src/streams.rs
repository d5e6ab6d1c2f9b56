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

/// A message on one stream in a turn, beside `NEIGHBOURS` streams whose applications read nothing: the peer has used up
/// the window of each.
pub(crate) fn beside_unread<const NEIGHBOURS: u32>(rounds: usize) {
    let live = 1 + 2 * NEIGHBOURS;
    let window = 1_000;
    let config = ToyMuxConfig { stream_window: window, session_window: i32::MAX as u32, streams_max: u32::MAX };
    let frame = ToyMux::frame(DATA, 0, live, LINE);
    let (mut event_loop, peer) = wired(frame.clone(), 0);
    let session = event_loop.open_session(Socket::Simulated(0), &address(), Limits::default(), ToyMux::client(config));
    let session = session.expect("it takes any socket");
    for _ in 0..NEIGHBOURS {
        session.open_handler(Lines::new(), Paused).expect("a stream");
    }
    session.open_handler(Lines::new(), Take).expect("a stream");
    for _ in 0..4 {
        event_loop.turn(None).expect("nothing fails on a wire");
    }
    let fill: Vec<u8> =
        (0..NEIGHBOURS).flat_map(|number| ToyMux::frame(DATA, 0, 1 + 2 * number, &[b'u'; 1_000])).collect();
    for part in fill.chunks(64 * 1024) {
        peer.set_bytes(part);
        peer.deliver();
        event_loop.turn(None).expect("nothing fails on a wire");
    }
    let unread = session.with_mux(|mux| mux.unconsumed_bytes()).expect("the session is open");
    assert_eq!(unread, NEIGHBOURS * window, "all windows but one are used up");
    peer.set_bytes(&frame);
    let before = event_loop.counts().messages;
    for _ in 0..rounds {
        peer.deliver();
        count_this(|| event_loop.turn(None)).expect("nothing fails on a wire");
    }
    assert_eq!(event_loop.counts().messages - before, rounds as u64, "each turn brings a message");
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
        // The session writes the output of its streams at the end of the turn.
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

/// Takes messages, and replies nothing.
struct Take;

impl<P: Pipeline<In = Slice, Out = Payload>> Handler<P> for Take {
    type Post = ();

    fn message(&mut self, _: Slice, _: &mut Context<'_, P>) -> Outcome<P> {
        Outcome::Continue
    }
}

/// Reads nothing.
struct Paused;

impl<P: Pipeline<In = Slice, Out = Payload>> Handler<P> for Paused {
    type Post = ();

    fn open(&mut self, cx: &mut Context<'_, P>) -> Outcome<P> {
        cx.pause();
        Outcome::Continue
    }

    fn message(&mut self, _: Slice, _: &mut Context<'_, P>) -> Outcome<P> {
        Outcome::Continue
    }
}

pub(crate) const STREAMS: usize = 100;

const LINE: &[u8] = b"what goes out with the ebb comes back with the flow\n";

/// The type of a frame with bytes of a stream.
const DATA: u8 = 1;
