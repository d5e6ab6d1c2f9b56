//! Exchanges without an end of their own, when the server drains: event streams and WebSockets, over HTTP/1.1 and HTTP/2.

use std::error::Error;
use std::time::Duration;

use tidegate::codec::DynOver;
use tidegate::http::{Body, Config, ContentType, Event, Response, ResponseCompression, Router, Sse, WebSocketUpgrade};
use tidegate::websocket::{Message, WebSocket};
use tidegate::{Channel, Context, Deadlines, Handler, Limits, Outcome, task};
use tidegate_testkit::Embedded;

use crate::support::http2_peer::Peer;

type Pipe = Embedded<()>;

struct Echo;

impl Handler<DynOver<WebSocket>> for Echo {
    type Post = ();

    fn message(&mut self, message: Message, cx: &mut Context<'_, DynOver<WebSocket>>) -> Outcome<DynOver<WebSocket>> {
        if matches!(message, Message::Close(_)) { Outcome::Continue } else { cx.send(message).into() }
    }
}

/// Ends when the peer has closed.
async fn echo(mut channel: Channel<DynOver<WebSocket>>) -> Result<(), Box<dyn Error>> {
    while let Some(message) = channel.recv().await? {
        if !matches!(message, Message::Close(_)) {
            channel.send(message)?;
        }
    }
    Ok(())
}

/// An hour is longer than every test waits.
const LONG: Duration = Duration::from_secs(3600);

/// How long an idle HTTP/1.1 connection waits for a request that is on its way.
const DRAIN_GRACE: Duration = Duration::from_secs(1);

fn events() -> Sse {
    Sse::new(async |mut events| {
        events.send(Event::new().data("ebb")).await?;
        task::sleep(LONG).await;
        events.send(Event::new().data("flow")).await?;
        Ok(())
    })
    .keep_alive(LONG)
}

/// Events that are written by hand, one of them in two pieces with a second between.
fn by_hand(content_type: &'static str) -> Response {
    let body = Body::produce(async |writer| {
        writer.write("data: ebb\n\n").await?;
        writer.write("data: fl").await?;
        task::sleep(Duration::from_secs(1)).await;
        writer.write("ow\n\n").await?;
        task::sleep(LONG).await;
        writer.write("data: never\n\n").await?;
        Ok(())
    });
    Response::new().content_type(ContentType::from_static(content_type)).body(body)
}

fn router() -> Router {
    Router::new()
        .get("/events", events)
        .get("/by-hand", || by_hand("text/event-stream; charset=utf-8"))
        .get("/rows", || by_hand("text/plain"))
        .get("/handler", |upgrade: WebSocketUpgrade| upgrade.handler(Echo))
        .get("/channel", |upgrade: WebSocketUpgrade| upgrade.channel(echo))
        .get("/push", |upgrade: WebSocketUpgrade| {
            upgrade.push(async |mut writer| {
                task::sleep(LONG).await;
                writer.send("late".into())?;
                Ok::<_, Box<dyn Error>>(())
            })
        })
}

fn open(router: Router) -> Pipe {
    let (codec, handler) = Config::new().connections(router)();
    Embedded::new(codec, handler)
}

fn ask(path: &str, fields: &str) -> Pipe {
    let mut pipe = open(router());
    pipe.receive(format!("GET {path} HTTP/1.1\r\nHost: sea\r\n{fields}\r\n").as_bytes());
    pipe
}

const HANDSHAKE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// Close frames of the code 1001: of the server, and of a client with a mask of zeros.
const GOING_AWAY: &[u8] = b"\x88\x02\x03\xE9";
const ANSWER: &[u8] = b"\x88\x82\0\0\0\0\x03\xE9";

#[test]
fn an_event_stream_ends_whole_at_a_drain() {
    let mut pipe = ask("/events", "");
    assert!(pipe.take_written().ends_with(b"data: ebb\n\n\r\n"));
    pipe.drain(LONG);
    assert_eq!(pipe.take_written(), b"0\r\n\r\n");
    pipe.advance(DRAIN_GRACE);
    assert!(pipe.is_write_closed() && !pipe.is_reset());
    pipe.receive_fin();
    assert!(pipe.is_drained());
}

#[test]
fn an_event_that_is_written_in_part_is_completed_before_the_end() {
    let mut pipe = ask("/by-hand", "");
    assert!(pipe.take_written().ends_with(b"data: fl\r\n"));
    pipe.drain(LONG);
    assert_eq!(pipe.take_written(), b"", "the event is incomplete");
    pipe.advance(Duration::from_secs(1));
    assert_eq!(pipe.take_written(), b"4\r\now\n\n\r\n0\r\n\r\n");
    pipe.advance(DRAIN_GRACE);
    assert!(pipe.is_write_closed());
    // Another body has its end from its producer.
    let mut pipe = ask("/rows", "");
    pipe.take_written();
    pipe.drain(LONG);
    pipe.advance(Duration::from_secs(2));
    assert_eq!(pipe.take_written(), b"4\r\now\n\n\r\n");
    assert!(!pipe.is_write_closed());
}

#[test]
fn an_event_stream_with_a_content_coding_ends_whole_at_a_drain() {
    let compression = ResponseCompression::new().bytes_min(0);
    let mut pipe = open(Router::new().get("/", events).with(compression));
    pipe.receive(b"GET / HTTP/1.1\r\nHost: sea\r\nAccept-Encoding: gzip\r\n\r\n");
    let before = pipe.take_written();
    let has = |wire: &[u8], text: &[u8]| wire.windows(text.len()).any(|bytes| bytes == text);
    assert!(has(&before, b"Content-Encoding: gzip\r\n"), "{}", before.escape_ascii());
    pipe.drain(LONG);
    let end = pipe.take_written();
    // The last block, and the sum and the length of gzip, come before the last chunk.
    assert!(end.len() > 13 && end.ends_with(b"\r\n0\r\n\r\n"), "{}", end.escape_ascii());
    pipe.advance(DRAIN_GRACE);
    assert!(pipe.is_write_closed());
}

#[test]
fn event_streams_of_http2_end_whole_at_a_drain() {
    for path in ["/events", "/by-hand"] {
        let mut peer = Peer::new(open(router()));
        peer.request(1, "GET", path, &[], true);
        peer.read_until(|peer| peer.stream(1).body.starts_with(b"data: ebb\n\n"));
        peer.wire.drain(LONG);
        peer.wire.advance(Duration::from_secs(1));
        peer.read_until(|peer| peer.is_over(1));
        let received = peer.stream(1);
        assert_eq!((received.has_ended, received.reset), (true, None), "{path}");
        assert!(received.body.ends_with(b"\n\n"), "{path}");
        peer.read_until(|peer| peer.is_closed || !peer.goaways.is_empty());
    }
}

#[test]
fn websockets_close_at_a_drain() {
    for path in ["/handler", "/channel", "/push"] {
        let mut pipe = ask(path, HANDSHAKE);
        assert!(pipe.take_written().starts_with(b"HTTP/1.1 101 "), "{path}");
        pipe.drain(LONG);
        assert_eq!(pipe.take_written(), GOING_AWAY, "{path}");
        pipe.receive(ANSWER);
        assert!(pipe.is_write_closed(), "{path}");
        pipe.receive_fin();
        assert!(pipe.is_drained(), "{path}");

        // A peer that does not answer has five seconds.
        let mut pipe = ask(path, HANDSHAKE);
        pipe.drain(LONG);
        pipe.advance(Duration::from_secs(6));
        pipe.advance(Duration::from_secs(3));
        assert!(pipe.is_closed() && pipe.is_drained(), "{path}");
    }
}

#[test]
fn websockets_of_http2_close_at_a_drain() {
    for path in ["/handler", "/channel", "/push"] {
        let mut peer = Peer::new(open(router()));
        peer.extended_connect(1, "websocket", path, &[("sec-websocket-version", "13")]);
        peer.read_until(|peer| peer.stream(1).status() == "200");
        peer.wire.drain(LONG);
        peer.read_until(|peer| peer.stream(1).body == GOING_AWAY);
        peer.data(1, ANSWER);
        peer.read_until(|peer| peer.is_over(1));
        assert_eq!((peer.stream(1).has_ended, peer.stream(1).reset), (true, None), "{path}");
    }
}

/// A connection that drains at this age, a tenth more or less, and has an hour for that.
fn open_with_age(age: Duration) -> Pipe {
    let (codec, handler) = Config::new().connections(router())();
    let deadlines = Deadlines { age_max: Some(age), age_grace: LONG, ..Deadlines::default() };
    Embedded::with_limits(codec, handler, Limits { deadlines, ..Limits::default() })
}

/// Less than WebSockets wait before they ping.
const AGE: Duration = Duration::from_secs(10);
const BEFORE_AGE: Duration = Duration::from_millis(8_500);
const FROM_THEN_TO_AGE: Duration = Duration::from_millis(2_600);

#[test]
fn an_event_stream_ends_whole_at_the_age_of_its_connection() {
    let mut pipe = open_with_age(AGE);
    pipe.receive(b"GET /events HTTP/1.1\r\nHost: sea\r\n\r\n");
    pipe.advance(BEFORE_AGE);
    assert!(pipe.take_written().ends_with(b"data: ebb\n\n\r\n"));
    pipe.advance(FROM_THEN_TO_AGE);
    assert_eq!(pipe.take_written(), b"0\r\n\r\n");
    pipe.advance(DRAIN_GRACE);
    assert!(pipe.is_write_closed() && !pipe.is_reset());
}

#[test]
fn websockets_close_at_the_age_of_their_connection() {
    for path in ["/handler", "/channel", "/push"] {
        let mut pipe = open_with_age(AGE);
        pipe.receive(format!("GET {path} HTTP/1.1\r\nHost: sea\r\n{HANDSHAKE}\r\n").as_bytes());
        pipe.advance(BEFORE_AGE);
        assert!(pipe.take_written().starts_with(b"HTTP/1.1 101 "), "{path}");
        pipe.advance(FROM_THEN_TO_AGE);
        assert_eq!(pipe.take_written(), GOING_AWAY, "{path}");
        pipe.receive(ANSWER);
        assert!(pipe.is_write_closed(), "{path}");
    }
}

#[test]
fn exchanges_of_http2_end_at_the_age_of_their_connection() {
    let mut peer = Peer::new(open_with_age(AGE));
    peer.request(1, "GET", "/events", &[], true);
    let sockets = [(3, "/handler"), (5, "/channel"), (7, "/push")];
    for (stream, path) in sockets {
        peer.extended_connect(stream, "websocket", path, &[("sec-websocket-version", "13")]);
    }
    peer.wire.advance(BEFORE_AGE);
    peer.read();
    assert!(peer.goaways.is_empty() && !peer.is_over(1) && peer.stream(7).status() == "200");
    peer.wire.advance(FROM_THEN_TO_AGE);
    peer.read_until(|peer| peer.is_over(1) && !peer.goaways.is_empty());
    assert_eq!((peer.stream(1).has_ended, peer.stream(1).reset), (true, None));
    for (stream, path) in sockets {
        peer.read_until(|peer| peer.stream(stream).body == GOING_AWAY);
        peer.data(stream, ANSWER);
        peer.read_until(|peer| peer.is_over(stream));
        assert_eq!((peer.stream(stream).has_ended, peer.stream(stream).reset), (true, None), "{path}");
    }
}

#[test]
fn extended_connect_is_announced_unless_the_application_denies_it() {
    for is_allowed in [true, false] {
        let (codec, handler) = Config::new().extended_connect(is_allowed).connections(router())();
        let peer = Peer::new(Embedded::new(codec, handler));
        // SETTINGS_ENABLE_CONNECT_PROTOCOL (RFC 8441 §3).
        assert_eq!(peer.settings.contains(&(8, 1)), is_allowed);
    }
}
