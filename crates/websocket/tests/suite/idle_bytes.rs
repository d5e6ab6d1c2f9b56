//! The memory of an idle connection, counted by the allocator.
//!
//! The allocator counts for each thread, so other threads of the test do not count.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use tidegate::sys::{ListenOptions, Socket};
use tidegate::websocket::{Config, Deflate, Message, Parameters, WebSocket};
use tidegate::{Context, EventLoop, Handler, Limits, Outcome, Room, RoomLimits, Slow, Visit};
use tidegate_testkit::allocations::Region;

struct Echo;

impl Handler<WebSocket> for Echo {
    type Post = ();

    fn message(&mut self, message: Message, cx: &mut Context<'_, WebSocket>) -> Outcome<WebSocket> {
        cx.send(message).into()
    }
}

/// The same in a room.
struct Member {
    room: Room<WebSocket>,
    visit: Option<Visit<WebSocket>>,
}

impl Handler<WebSocket> for Member {
    type Post = ();

    fn open(&mut self, cx: &mut Context<'_, WebSocket>) -> Outcome<WebSocket> {
        match self.room.enter(&cx.member(), (), |_| None) {
            Ok(visit) => self.visit = Some(visit),
            Err(error) => return Outcome::fail(error),
        }
        Outcome::Continue
    }

    fn message(&mut self, message: Message, cx: &mut Context<'_, WebSocket>) -> Outcome<WebSocket> {
        cx.send(message).into()
    }
}

#[test]
fn an_idle_connection_has_no_buffer_and_no_context() {
    let without_takeover =
        Parameters { server_no_context_takeover: true, client_no_context_takeover: true, ..Parameters::default() };
    let hello = b"\xC1\x87\0\0\0\0\xF2\x48\xCD\xC9\xC9\x07\x00";
    let plain = idle_bytes(|| Echo, None, b"\x81\x83\0\0\0\0ebb", b"\x81\x03ebb");
    let deflate = idle_bytes(|| Echo, Some(without_takeover), hello, b"\x81\x05Hello");
    let room = Room::new(Slow::Skip, RoomLimits::default());
    let member = move || Member { room: room.clone(), visit: None };
    let in_room = idle_bytes(member, Some(without_takeover), hello, b"\x81\x05Hello");
    println!("bytes for an idle connection after an echo: {plain}, {deflate} with compression negotiated");
    println!("and {in_room} in a room");
    assert!(in_room <= 480, "{in_room} bytes");
    assert!(plain <= 300, "{plain} bytes");
    assert!(deflate <= 400, "{deflate} bytes");
}

/// The memory for each of many connections that are idle, after an echo.
fn idle_bytes<H: Handler<WebSocket>>(
    handler: impl Fn() -> H + 'static,
    agreed: Option<Parameters>,
    message: &[u8],
    answer: &[u8],
) -> usize {
    const COUNT: usize = 256;
    let mut event_loop = EventLoop::readiness().expect("a loop");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let listener = Socket::from_listener(listener, &ListenOptions::default()).expect("a listener");
    let mut config = Config::default();
    config.deflate = Some(Deflate::default());
    let config = Arc::new(config);
    let listening = event_loop.listen(listener, Limits::default(), Arc::default(), move |_| {
        (WebSocket::server(config.clone(), agreed), handler())
    });
    listening.expect("it listens");
    let mut serve = |peers: &mut Vec<TcpStream>| {
        let mut peer = TcpStream::connect(address).expect("there are descriptors left");
        peer.set_nonblocking(true).expect("a socket");
        peer.write_all(message).expect("there is room");
        let mut seen = [0; 64];
        let length = loop {
            match peer.read(&mut seen) {
                Ok(length) => break length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    event_loop.turn(Some(Duration::from_secs(1))).expect("waiting does not fail");
                }
                Err(error) => panic!("{error}"),
            }
        };
        assert_eq!(&seen[..length], answer);
        event_loop.turn(Some(Duration::ZERO)).expect("waiting does not fail");
        peers.push(peer);
    };
    let mut peers = Vec::with_capacity(2 * COUNT);
    (0..COUNT).for_each(|_| serve(&mut peers));
    let region = Region::new();
    (0..COUNT).for_each(|_| serve(&mut peers));
    let change = region.change();
    change.bytes_allocated.saturating_sub(change.bytes_deallocated) / COUNT
}
