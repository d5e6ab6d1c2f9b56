//! Streams that were opened and closed leave nothing: neither in their session, nor in the tables of the loop.
//!
//! The allocator counts for each thread, so other threads of the test do not count. `TIDEGATE_STREAMS` sets how many streams there are;
//! `cargo xtask long` has a million.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use tidegate_buffer::{HEADROOM_BYTES, Pool, RECEIVE_BYTES_MAX};
use tidegate_codec::framing::{Lines, Payload};
use tidegate_codec::{Pipeline, Slice};
use tidegate_engine::{Context, EventLoop, Handler, Limits, Outcome};
use tidegate_sys::readiness::Readiness;
use tidegate_sys::{ListenOptions, Socket, Token};
use tidegate_testkit::allocations::Region;
use tidegate_testkit::{ToyMux, ToyMuxConfig};

struct Echo;

impl<C: Pipeline<In = Slice, Out = Payload>> Handler<C> for Echo {
    type Post = ();

    fn message(&mut self, message: Slice, cx: &mut Context<'_, C>) -> Outcome<C> {
        cx.send(message.into()).into()
    }
}

#[test]
fn a_crowd_of_streams_leaves_nothing() {
    let streams: usize = std::env::var("TIDEGATE_STREAMS").map_or(12_800, |count| count.parse().expect("a number"));
    let pool = Pool::new();
    let driver = Readiness::new(&pool).expect("a driver");
    let mut event_loop = EventLoop::new(Box::new(driver), pool.clone());
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let listener = Socket::from_listener(listener, &ListenOptions::default()).expect("a listener");
    let config = ToyMuxConfig { session_window: i32::MAX as u32, ..ToyMuxConfig::default() };
    let mux = move || ToyMux::server(config);
    let listening =
        event_loop.listen_streams(listener, Limits::default(), Arc::default(), mux, || (Lines::new(), Echo));
    listening.expect("it listens");
    let mut peers: Vec<_> = (0..SESSIONS).map(|_| TcpStream::connect(address).expect("it listens")).collect();
    for peer in &peers {
        peer.set_nonblocking(true).expect("a socket can be non-blocking");
    }
    let mut messages = 0;
    let mut wave = |event_loop: &mut EventLoop, number: usize| {
        for peer in &mut peers {
            peer.write_all(&wire_of_wave(number)).expect("the socket's buffer has room");
        }
        messages += (SESSIONS * WAVE) as u64;
        loop {
            event_loop.turn(Some(Duration::from_millis(10))).expect("waiting does not fail");
            for peer in &mut peers {
                discard(peer);
            }
            let counts = event_loop.counts();
            // Sessions take note of streams that have closed in a dispatch that follows.
            if counts.messages == messages && counts.streams == 0 && !event_loop.is_busy() {
                break;
            }
        }
    };
    event_loop.turn(Some(Duration::from_millis(10))).expect("waiting does not fail");
    while event_loop.counts().connections < SESSIONS as u64 {
        event_loop.turn(Some(Duration::from_millis(10))).expect("waiting does not fail");
    }
    let idle = Region::new();
    wave(&mut event_loop, 0);
    let used = pool.ledger().used();
    let region = Region::new();
    for number in 1..streams.div_ceil(SESSIONS * WAVE) {
        wave(&mut event_loop, number);
    }
    assert_eq!(pool.ledger().used(), used);
    assert_eq!(event_loop.counts().connections, SESSIONS as u64);
    let grown = grown(&region);
    let kept = self::grown(&idle) - pool.spare_bytes() as i64;
    println!("{grown} bytes more after {messages} streams on {SESSIONS} sessions; {kept} more than with idle sessions");
    assert!(grown <= (QUEUE_BYTES_MAX + TABLES_BYTES_MAX) as i64, "{grown} bytes");
    // The loop's scratch, into which it receives, is allocated with the first bytes.
    let first = RECEIVE_BYTES_MAX + HEADROOM_BYTES + 16 * 1024;
    assert!(kept <= (first + QUEUE_BYTES_MAX + TABLES_BYTES_MAX) as i64, "{kept} bytes, beside spare segments");
}

/// The frames of the streams of a wave: each is opened and sends a line.
fn wire_of_wave(number: usize) -> Vec<u8> {
    let mut wire = Vec::new();
    for stream in 0..WAVE {
        let id = (2 * (number * WAVE + stream) + 1) as u32;
        wire.extend(ToyMux::frame(OPEN, 0, id, &[(stream % 8) as u8]));
        // Every fourth is reset, the others end both ways.
        let is_reset = stream % 4 == 0;
        wire.extend(ToyMux::frame(DATA, u8::from(!is_reset), id, b"ebb and flow\n"));
        if is_reset {
            wire.extend(ToyMux::frame(RESET, 0, id, &[0; 4]));
        }
    }
    wire
}

/// Bytes that were allocated and not freed.
fn grown(region: &Region) -> i64 {
    let change = region.change();
    change.bytes_allocated as i64 - change.bytes_deallocated as i64
}

/// Reads the received bytes.
fn discard(peer: &mut TcpStream) {
    let mut bytes = [0; 16 * 1024];
    loop {
        match peer.read(&mut bytes) {
            Ok(0) => panic!("the session has ended"),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(error) => panic!("{error}"),
        }
    }
}

const SESSIONS: usize = 64;

/// Streams of one session that are open at a time.
const WAVE: usize = 50;

/// The loop's queue of streams that have sent all and wait to be closed. It keeps the room of its longest length. That is
/// the number of streams whose sessions are dispatched in one turn, so it depends on the turn's time, and cannot exceed
/// the streams of a wave.
const QUEUE_BYTES_MAX: usize = (SESSIONS * WAVE).next_power_of_two() * size_of::<Token>();

/// The driver's queue of ready sockets, a page of slots, and the list of pages with room.
const TABLES_BYTES_MAX: usize = 8 * 1024;

const OPEN: u8 = 0;
const DATA: u8 = 1;
const RESET: u8 = 3;
