//! Compressing, decompressing and parsing beside a light connection: the work of each turn is bounded, however many
//! connections ask for it. Work is measured by the estimates of codecs, so that these tests know no time.

use std::cell::Cell;
use std::error::Error;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tidegate::codec::DynOver;
use tidegate::codec::work::Work;
use tidegate::compress::{Algorithm, Compressor, DecompressionLimits, Decompressor};
use tidegate::http::{
    Body, BodyError, Config, Json, Request, RequestDecompression, Response, ResponseCompression, Router,
    WebSocketUpgrade,
};
use tidegate::sys::Socket;
use tidegate::websocket::{self, Message, WebSocket};
use tidegate::{Address, Bytes, Context, EventLoop, Handler, Outcome, task};

/// A loop that is turned by hand, its connections, and the bytes that each of their peers has received.
struct Stage {
    event_loop: EventLoop,
    peers: Vec<(UnixStream, Vec<u8>)>,
}

impl Stage {
    /// `count` connections of the same application.
    fn new(count: usize, config: Config, router: Router) -> Self {
        let mut event_loop = EventLoop::readiness().expect("there is a descriptor left");
        let connections = config.connections(router);
        let mut peers = Vec::new();
        for _ in 0..count {
            let (ours, theirs) = UnixStream::pair().expect("there are descriptors left");
            theirs.set_nonblocking(true).expect("a socket");
            let (codec, handler) = connections();
            let (ours, unnamed) = (Socket::from_stream(ours).expect("a stream"), Address::Unix(PathBuf::new()));
            event_loop.adopt(ours, &unnamed, tidegate::Limits::default(), codec, handler).expect("it is taken");
            peers.push((theirs, Vec::new()));
        }
        let mut stage = Self { event_loop, peers };
        // The first connection is no longer a new one.
        stage.peers[0].0.write_all(b"GET /light HTTP/1.1\r\nHost: sea\r\n\r\n").expect("there is room");
        stage.turns(3);
        stage
    }

    /// One turn, after which all peers read. Returns the work that it did, in nanoseconds.
    fn turn(&mut self) -> u64 {
        let work = Work::begin();
        self.event_loop.turn(Some(Duration::ZERO)).expect("waiting does not fail");
        let nanos = work.nanos();
        for (peer, received) in &mut self.peers {
            let mut room = [0; 64 * 1024];
            while let Ok(count @ 1..) = peer.read(&mut room) {
                received.extend_from_slice(&room[..count]);
            }
        }
        nanos
    }

    fn turns(&mut self, count: usize) {
        for _ in 0..count {
            self.turn();
        }
    }

    /// A peer sends all of it, while the loop turns. Returns the most work of a turn.
    fn send(&mut self, peer: usize, mut bytes: &[u8]) -> u64 {
        let mut most = 0;
        loop {
            match self.peers[peer].0.write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(_) => most = most.max(self.turn()),
            }
            if bytes.is_empty() {
                return most;
            }
        }
    }

    /// Sends a light request on the first connection, and turns until it is answered. Returns the most work of a turn.
    fn ask_light(&mut self) -> u64 {
        self.peers[0].1.clear();
        self.peers[0].0.write_all(b"GET /light HTTP/1.1\r\nHost: sea\r\n\r\n").expect("there is room");
        let mut most = 0;
        for _ in 0..TURNS_MAX {
            most = most.max(self.turn());
            if self.peers[0].1.ends_with(b"\r\n\r\nlight") {
                return most;
            }
        }
        panic!("the light request waits for more than {TURNS_MAX} turns");
    }

    /// Turns until each of the other peers has a response that ends with `end`, while one light request follows the other.
    /// Returns the most work of a turn.
    fn ask_light_until_all_end_with(&mut self, end: &[u8]) -> u64 {
        let mut most = 0;
        while !self.peers[1..].iter().all(|(_, received)| received.ends_with(end)) {
            most = most.max(self.ask_light());
        }
        most
    }
}

/// Turns within which a light request is answered.
const TURNS_MAX: usize = 2;

const HEAVY: usize = 32;

/// The estimated work of a turn: its parts, and in each a piece that began before its end.
const WORK_PER_TURN_MAX: u64 = 12_000_000;

fn text(length: usize) -> Vec<u8> {
    let words = (0_u32..).flat_map(|number| format!("{} ", number.wrapping_mul(2_654_435_761) % 10_007).into_bytes());
    words.take(length).collect()
}

fn light() -> Router {
    Router::new().get("/light", || "light")
}

fn chunks(mut rest: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(line) = rest.windows(2).position(|two| two == b"\r\n") {
        let length = usize::from_str_radix(std::str::from_utf8(&rest[..line]).unwrap(), 16).expect("a chunk");
        all.extend_from_slice(&rest[line + 2..line + 2 + length]);
        rest = &rest[line + 2 + length + 2..];
    }
    all
}

/// The plain body of a response that is chunked or not.
fn plain(algorithm: Algorithm, response: &[u8]) -> Vec<u8> {
    let end = response.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
    let is_chunked = response[..end].windows(7).any(|word| word == b"chunked");
    let body = if is_chunked { chunks(&response[end..]) } else { response[end..].to_vec() };
    let mut plain = Vec::new();
    let mut decompressor = Decompressor::new(algorithm, DecompressionLimits::default());
    decompressor.write(&body, usize::MAX, &mut plain).expect("it is valid");
    decompressor.finish().expect("it is complete");
    plain
}

#[test]
fn a_light_request_beside_bodies_that_are_compressed_waits_for_a_few_slices() {
    for (name, algorithm) in [("br", Algorithm::Brotli), ("gzip", Algorithm::Gzip), ("zstd", Algorithm::Zstd)] {
        let long = Bytes::from(text(500_000));
        let (whole, pieces, one) = (long.clone(), long.clone(), long.clone());
        let router = light()
            .get("/whole", move || Response::text(whole.clone()))
            .get("/pieces", move || {
                let pieces = pieces.clone();
                Response::text(Body::produce(async move |writer| {
                    for piece in pieces.chunks(1_000) {
                        writer.write(piece.to_vec()).await?;
                    }
                    Ok(())
                }))
            })
            .get("/one", move || {
                let one = one.clone();
                Response::text(Body::produce(async move |writer| {
                    writer.write(one).await?;
                    Ok(())
                }))
            })
            .with(ResponseCompression::new());
        let mut stage = Stage::new(HEAVY + 1, Config::new(), router);
        for peer in 1..=HEAVY {
            let path = ["/whole", "/pieces", "/one"][peer % 3];
            let asked = format!("GET {path} HTTP/1.1\r\nHost: sea\r\nAccept-Encoding: {name}\r\n\r\n");
            stage.send(peer, asked.as_bytes());
        }
        let most = stage.ask_light_until_all_end_with(b"0\r\n\r\n");
        assert!(most <= WORK_PER_TURN_MAX, "{name}: {most} ns of work in a turn");
        for (_, received) in &stage.peers[1..] {
            assert!(plain(algorithm, received) == long, "{name}");
        }
        assert!(stage.event_loop.counts().long_work_waits > 0);
    }
}

#[test]
fn short_bodies_that_many_ask_for_at_once_are_not_compressed_in_one_turn() {
    let short = Bytes::from(text(60_000));
    let body = short.clone();
    let router = light().get("/short", move || Response::text(body.clone())).with(ResponseCompression::new());
    let mut stage = Stage::new(HEAVY + 1, Config::new(), router);
    for peer in 1..=HEAVY {
        stage.send(peer, b"GET /short HTTP/1.1\r\nHost: sea\r\nAccept-Encoding: br\r\n\r\n");
    }
    let mut most = 0;
    let is_there = |received: &Vec<u8>| {
        received.windows(7).any(|word| word == b"chunked") && received.ends_with(b"0\r\n\r\n")
            || received.windows(16).any(|word| word.eq_ignore_ascii_case(b"\r\nContent-Length"))
    };
    for _ in 0..1_000 {
        most = most.max(stage.turn());
        if stage.peers[1..].iter().all(|(_, received)| is_there(received)) {
            break;
        }
    }
    assert!(most <= WORK_PER_TURN_MAX, "{most} ns of work in a turn");
    for (_, received) in &stage.peers[1..] {
        assert!(plain(Algorithm::Brotli, received) == short);
    }
}

#[test]
fn bodies_of_requests_are_decompressed_in_slices() {
    let router = light()
        .post("/collected", |request: Request| format!("{} bytes.", request.bytes().len()))
        .post("/read", async |mut request: Request| {
            let mut length = 0;
            while let Some(piece) = request.body_mut().next().await {
                length += piece?.len();
            }
            Ok::<_, BodyError>(format!("{length} bytes."))
        })
        .with(RequestDecompression::new());
    let mut stage = Stage::new(HEAVY + 1, Config::new(), router);
    let mut body = Vec::new();
    Compressor::new(Algorithm::Gzip.into()).finish_with(&[b'x'; 500_000], &mut body).expect("it compresses");
    let mut most = 0;
    for peer in 1..=HEAVY {
        let (path, length) = (["/collected", "/read"][peer % 2], body.len());
        let head =
            format!("POST {path} HTTP/1.1\r\nHost: sea\r\nContent-Encoding: gzip\r\nContent-Length: {length}\r\n\r\n");
        most = most.max(stage.send(peer, &[head.as_bytes(), &body].concat()));
    }
    most = most.max(stage.ask_light_until_all_end_with(b"500000 bytes."));
    assert!(most <= WORK_PER_TURN_MAX, "{most} ns of work in a turn");
}

#[test]
fn functions_that_parse_long_bodies_are_called_in_turns_of_their_own() {
    let calls = Rc::new(Cell::new(0_u32));
    let (one, other) = (calls.clone(), calls.clone());
    let router = light()
        .post("/sync", move |Json(numbers): Json<Vec<u32>>| {
            one.set(one.get() + 1);
            format!("{} numbers.", numbers.len())
        })
        .post("/async", async move |Json(numbers): Json<Vec<u32>>| {
            other.set(other.get() + 1);
            task::sleep(Duration::ZERO).await;
            format!("{} numbers.", numbers.len())
        });
    let mut stage = Stage::new(HEAVY + 1, Config::new(), router);
    let body = format!("[{}7]", "7,".repeat(299_999));
    // All of them are complete in the same turn.
    for peer in 1..=HEAVY {
        let (path, length) = (["/sync", "/async"][peer % 2], body.len());
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: sea\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        );
        stage.send(peer, &[head.as_bytes(), &body.as_bytes()[..body.len() - 1]].concat());
    }
    stage.turns(100);
    assert_eq!(calls.get(), 0);
    (1..=HEAVY).for_each(|peer| stage.peers[peer].0.write_all(b"]").expect("there is room"));
    let mut most = 0;
    while calls.get() < HEAVY as u32 {
        let before = calls.get();
        stage.ask_light();
        most = most.max(calls.get() - before);
    }
    // In each turn one that need not wait, and one at its end.
    assert!(most <= 2 * TURNS_MAX as u32, "{most} bodies were parsed while one light request waited");
    stage.ask_light_until_all_end_with(b"300000 numbers.");
}

fn is_end(message: &Message) -> bool {
    matches!(message, Message::Text(text) if text == "end")
}

struct Sink;

impl Handler<DynOver<WebSocket>> for Sink {
    type Post = ();

    fn message(&mut self, message: Message, cx: &mut Context<'_, DynOver<WebSocket>>) -> Outcome<DynOver<WebSocket>> {
        if is_end(&message) { cx.send(message).into() } else { Outcome::Continue }
    }
}

#[test]
fn messages_of_web_sockets_are_compressed_and_decompressed_within_the_bound_of_a_turn() {
    let mut config = websocket::Config::default();
    let mut deflate = websocket::Deflate::default();
    deflate.ratio_max = u32::MAX;
    config.deflate = Some(deflate);
    let (task, handler, flood) = (Arc::new(config.clone()), Arc::new(config.clone()), Arc::new(config));
    let router = light()
        .get("/task", move |upgrade: WebSocketUpgrade| {
            upgrade.config(&task).channel(async |mut channel| {
                while let Some(message) = channel.recv().await? {
                    if is_end(&message) {
                        channel.send(message)?;
                    }
                }
                Ok::<_, Box<dyn Error>>(())
            })
        })
        .get("/handler", move |upgrade: WebSocketUpgrade| upgrade.config(&handler).handler(Sink))
        .get("/flood", move |upgrade: WebSocketUpgrade| {
            upgrade.config(&flood).channel(async |mut channel| {
                // They take so few bytes that there is always room.
                for _ in 0..MESSAGES {
                    channel.ready().await?;
                    channel.send(Message::from("x".repeat(MESSAGE_BYTES)))?;
                }
                channel.send(Message::from("end"))?;
                while channel.recv().await?.is_some() {}
                Ok::<_, Box<dyn Error>>(())
            })
        });
    let mut stage = Stage::new(HEAVY + 1, Config::new(), router);
    let mut payload = Vec::new();
    let mut compressor = Compressor::new(Algorithm::RawDeflate.into());
    compressor.write(&[b'x'; MESSAGE_BYTES], &mut payload).expect("it compresses");
    compressor.flush(&mut payload).expect("it compresses");
    payload.truncate(payload.len() - 4);
    // A compressed text of a client, with a mask of zeros.
    let length = u8::try_from(payload.len()).expect("it compresses well");
    assert!(length <= 125);
    let frame = [&[0xC1, 0x80 | length, 0, 0, 0, 0], &payload[..]].concat();
    for peer in 1..=HEAVY {
        let path = ["/task", "/handler", "/flood"][peer % 3];
        let handshake = format!(
            "GET {path} HTTP/1.1\r\nHost: sea\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Extensions: permessage-deflate; \
             client_no_context_takeover; server_no_context_takeover\r\n\r\n"
        );
        stage.send(peer, handshake.as_bytes());
    }
    let mut most = stage.ask_light();
    while !stage.peers[1..].iter().all(|(_, received)| received.starts_with(b"HTTP/1.1 101 ")) {
        most = most.max(stage.ask_light());
    }
    for peer in 1..=HEAVY {
        let end = b"\x81\x83\0\0\0\0end";
        most = most.max(stage.send(peer, &[&frame.repeat(MESSAGES), &end[..]].concat()));
    }
    // At first all of them are light: a few have their first dispatch in each turn.
    for _ in 0..HEAVY {
        most = most.max(stage.turn());
    }
    most = most.max(stage.ask_light_until_all_end_with(b"\x81\x03end"));
    assert!(most <= WORK_PER_TURN_MAX, "{most} ns of work in a turn");
}

const MESSAGES: usize = 50;
const MESSAGE_BYTES: usize = 60_000;
