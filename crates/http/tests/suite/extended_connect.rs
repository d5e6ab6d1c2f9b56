//! WebSocket and other protocols over HTTP/2 streams (RFC 8441).

use std::error::Error;
use std::net::TcpStream;
use std::time::Duration;

use tidegate::codec::DynOver;
use tidegate::framing::Lines;
use tidegate::http::{Config, IntoResponse, Request, Response, Router, Server, StatusCode, Upgrade, WebSocketUpgrade};
use tidegate::websocket::{Message, WebSocket};
use tidegate::{Backend, Channel, Context, Handler, Outcome, task};
use tidegate_testkit::Embedded;

use crate::support::http2_peer::{DATA, END_STREAM, PADDED, Peer, RST_STREAM, WINDOW_UPDATE, Wire, frame};

struct Echo;

impl Handler<DynOver<WebSocket>> for Echo {
    type Post = ();

    fn message(&mut self, message: Message, cx: &mut Context<'_, DynOver<WebSocket>>) -> Outcome<DynOver<WebSocket>> {
        if matches!(message, Message::Close(_)) { Outcome::Continue } else { cx.send(message).into() }
    }
}

async fn echo(mut channel: Channel<DynOver<WebSocket>>) -> Result<(), Box<dyn Error>> {
    while let Some(message) = channel.recv().await? {
        if !matches!(message, Message::Close(_)) {
            channel.ready().await?;
            channel.send(message)?;
        }
    }
    Ok(())
}

#[expect(clippy::needless_pass_by_value, reason = "a function of a router takes its request")]
fn shout(request: Request) -> Response {
    if !request.asks_for_upgrade("shout") {
        return StatusCode::BAD_REQUEST.into_response();
    }
    let upgrade = Upgrade::channel(Lines::new(), async |mut channel| {
        while let Some(line) = channel.recv().await? {
            channel.send(line.to_ascii_uppercase().into())?;
        }
        channel.send("the end".into())?;
        Ok::<_, Box<dyn Error>>(())
    });
    Response::upgrade("shout", upgrade).into_response()
}

fn router() -> Router {
    Router::new()
        .get("/", || "a page")
        .get("/ws", |upgrade: WebSocketUpgrade| upgrade.handler(Echo))
        .get("/channel", |upgrade: WebSocketUpgrade| upgrade.protocols(&["tide"]).channel(echo))
        .get("/later", async |upgrade: WebSocketUpgrade| {
            task::sleep(Duration::from_millis(1)).await;
            upgrade.channel(echo)
        })
        .get("/shout", shout)
        .post("/post", || "posted")
        .any("/any", |request: Request| format!("{} {:?}", request.method(), request.protocol()))
}

fn embedded() -> Peer<Embedded<()>> {
    let (codec, handler) = Config::new().connections(router())();
    Peer::new(Embedded::new(codec, handler))
}

/// A WebSocket frame of a client, with a mask of zeros.
fn masked(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let length = match payload.len() {
        0..126 => vec![0x80 | payload.len() as u8],
        length => [&[0x80 | 126][..], &u16::try_from(length).expect("a short message").to_be_bytes()].concat(),
    };
    [&[0x80 | opcode][..], &length, &[0; 4], payload].concat()
}

const VERSION: (&str, &str) = ("sec-websocket-version", "13");

fn opened<W: Wire>(peer: &mut Peer<W>, stream: u32, path: &str) {
    peer.extended_connect(stream, "websocket", path, &[VERSION]);
    peer.read_until(|peer| !peer.stream(stream).fields.is_empty());
    let received = peer.stream(stream);
    assert_eq!((received.status(), received.is_over()), ("200", false), "{path}: {received:?}");
    assert_eq!((received.field("upgrade"), received.field("content-length")), (None, None));
}

#[test]
fn the_server_announces_that_it_allows_it() {
    assert!(embedded().settings.contains(&(8, 1)));
}

#[test]
fn the_same_functions_serve_websockets_of_both_versions() {
    for path in ["/ws", "/channel", "/later"] {
        let mut peer = embedded();
        if path == "/later" {
            peer.extended_connect(1, "websocket", path, &[VERSION]);
            peer.wire.advance(Duration::from_millis(5));
            peer.read();
        } else {
            opened(&mut peer, 1, path);
        }
        peer.data(1, &masked(1, b"ebb"));
        peer.read_until(|peer| !peer.stream(1).body.is_empty());
        assert_eq!(peer.stream(1).body, b"\x81\x03ebb", "{path}");
        // A message in several HTTP/2 frames, one of them with padding, one without a byte.
        let flow = masked(2, b"flow");
        peer.data(1, &flow[..3]);
        peer.data(1, b"");
        peer.frame(DATA, PADDED, 1, &[&[2][..], &flow[3..], &[0, 0]].concat());
        peer.read_until(|peer| peer.stream(1).body.len() > 5);
        assert_eq!(peer.stream(1).body[5..], *b"\x82\x04flow", "{path}");
        peer.data(1, &masked(8, &[3, 232]));
        peer.read_until(|peer| peer.stream(1).has_ended);
        let received = peer.stream(1);
        assert_eq!((&received.body[11..], received.reset), (&[0x88, 2, 3, 232][..], None), "{path}");
        peer.frame(DATA, END_STREAM, 1, b"");
        peer.ping();
        peer.read_until(|peer| peer.pongs == 1);
        assert_eq!(peer.stream(1).reset, None);
    }
}

#[test]
fn bytes_behind_the_request_are_the_first_messages() {
    let mut peer = embedded();
    let start = [(":method", "CONNECT"), (":protocol", "websocket"), (":scheme", "http"), (":authority", "sea")];
    let block = peer.block(&[&start[..], &[(":path", "/ws"), VERSION]].concat());
    let wire = [frame(1, 4, 1, &block), frame(DATA, 0, 1, &masked(1, b"ebb")), frame(DATA, 0, 1, &masked(1, b"flow"))];
    peer.wire.send(&wire.concat());
    peer.read_until(|peer| peer.stream(1).body.len() >= 11);
    assert_eq!(peer.stream(1).body, b"\x81\x03ebb\x81\x04flow");
}

#[test]
fn bytes_and_the_end_that_come_before_the_response_are_kept() {
    let mut peer = embedded();
    peer.extended_connect(1, "websocket", "/later", &[VERSION]);
    peer.data(1, &masked(1, b"ebb"));
    peer.frame(DATA, END_STREAM, 1, &masked(8, &[3, 232]));
    assert!(peer.stream(1).fields.is_empty());
    peer.wire.advance(Duration::from_millis(5));
    peer.read_until(|peer| peer.stream(1).has_ended);
    let received = peer.stream(1);
    assert_eq!((received.status(), received.reset), ("200", None));
    assert_eq!(received.body, [&b"\x81\x03ebb"[..], &[0x88, 2, 3, 232]].concat());
}

#[test]
fn a_subprotocol_is_selected() {
    let mut peer = embedded();
    peer.extended_connect(1, "websocket", "/channel", &[VERSION, ("sec-websocket-protocol", "chat, tide")]);
    peer.read_until(|peer| !peer.stream(1).fields.is_empty());
    assert_eq!(peer.stream(1).field("sec-websocket-protocol"), Some("tide"));
    assert_eq!(peer.stream(1).field("sec-websocket-accept"), None);
}

#[test]
fn each_side_of_another_protocol_ends_on_its_own() {
    let mut peer = embedded();
    peer.extended_connect(1, "shout", "/shout", &[]);
    peer.data(1, b"eb");
    peer.frame(DATA, END_STREAM, 1, b"b\nflow\n");
    peer.read_until(|peer| peer.stream(1).has_ended);
    let received = peer.stream(1);
    assert_eq!((received.status(), received.reset), ("200", None));
    assert_eq!(received.body, b"EBB\nFLOW\nthe end\n");
}

#[test]
fn a_function_that_does_not_accept_the_protocol_opens_no_tunnel() {
    let mut peer = embedded();
    for (stream, protocol, path, fields, expected) in [
        (1, "websocket", "/", &[VERSION][..], "501"),
        (3, "websocket", "/any", &[VERSION], "501"),
        (5, "websocket", "/post", &[VERSION], "405"),
        (7, "websocket", "/nowhere", &[VERSION], "404"),
        (9, "connect-udp", "/ws", &[VERSION], "501"),
        (11, "connect-udp", "/shout", &[], "400"),
        (13, "websocket", "/ws", &[], "426"),
        (15, "websocket", "/ws", &[VERSION, ("origin", "https://elsewhere")], "403"),
    ] {
        peer.extended_connect(stream, protocol, path, fields);
        peer.read_until(|peer| peer.stream(stream).is_over());
        let received = peer.stream(stream);
        assert_eq!((received.status(), received.has_ended), (expected, true), "{protocol} {path}");
    }
}

#[test]
fn malformed_requests_reset_their_stream() {
    let complete = [
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "http"),
        (":path", "/ws"),
        (":authority", "sea"),
        VERSION,
    ];
    let mut peer = embedded();
    let mut streams = (1..).step_by(2);
    let mut refused = |fields: &[(&str, &str)]| {
        let stream = streams.next().expect("there are many");
        peer.headers(stream, fields, false);
        peer.read_until(|peer| peer.stream(stream).is_over());
        assert_eq!(peer.stream(stream).reset, Some(1), "{fields:?}");
    };
    for missing in 0..5 {
        let mut fields = complete.to_vec();
        fields.remove(missing);
        refused(&fields);
    }
    for (place, value) in [(0, "GET"), (0, "POST"), (1, ""), (1, "web socket"), (3, "*"), (3, "ws"), (4, "")] {
        let mut fields = complete;
        fields[place].1 = value;
        refused(&fields);
    }
    refused(&[&complete[..], &[(":protocol", "websocket")]].concat());
    refused(&[&complete[..], &[("upgrade", "websocket")]].concat());
    refused(&[&complete[..], &[("connection", "upgrade")]].concat());
    opened(&mut peer, 1001, "/ws");
}

#[test]
fn trailers_behind_a_connect_reset_the_stream() {
    let mut peer = embedded();
    opened(&mut peer, 1, "/ws");
    peer.headers(1, &[("tide", "ebb")], true);
    peer.read_until(|peer| peer.stream(1).is_over());
    assert_eq!(peer.stream(1).reset, Some(1));
}

#[test]
fn a_length_that_is_announced_does_not_matter_unless_it_is_one() {
    let mut peer = embedded();
    peer.extended_connect(1, "websocket", "/ws", &[VERSION, ("content-length", "0")]);
    peer.data(1, &masked(1, b"ebb"));
    peer.read_until(|peer| !peer.stream(1).body.is_empty());
    peer.extended_connect(3, "websocket", "/ws", &[VERSION, ("content-length", "9")]);
    peer.read_until(|peer| peer.stream(3).is_over());
    assert_eq!(peer.stream(3).status(), "400");
}

#[test]
fn a_request_before_settings_ends_the_connection() {
    let (codec, handler) = Config::new().connections(router())();
    let mut peer = Peer::silent(Embedded::new(codec, handler));
    peer.wire.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    peer.extended_connect(1, "websocket", "/ws", &[VERSION]);
    peer.read_until(|peer| !peer.goaways.is_empty());
    assert_eq!(peer.goaways, [(1, 0)]);
    assert!(peer.wire.is_write_closed());
}

#[test]
fn a_reset_ends_the_websocket_and_not_the_connection() {
    let mut peer = embedded();
    opened(&mut peer, 1, "/channel");
    peer.frame(RST_STREAM, 0, 1, &8_u32.to_be_bytes());
    opened(&mut peer, 3, "/ws");
    peer.data(3, &masked(1, b"ebb"));
    peer.read_until(|peer| !peer.stream(3).body.is_empty());
    assert_eq!(peer.stream(3).body, b"\x81\x03ebb");
}

#[test]
fn sockets_of_both_backends_carry_many_websockets_on_one_connection() {
    for backend in [Backend::Epoll, Backend::Uring] {
        let started = Server::bind("127.0.0.1:0").expect("an address").backend(backend).loops(1).start(router);
        let server = match started {
            Ok(server) => server,
            Err(error) if backend == Backend::Uring => {
                println!("skipped: io_uring: {error}");
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        let socket = TcpStream::connect(server.address().ip().expect("an IP address")).expect("a connection");
        socket.set_read_timeout(Some(Duration::from_secs(120))).expect("a time-out");
        let mut peer = Peer::new(socket);
        let streams: Vec<u32> = (0..50).map(|index| 2 * index + 1).collect();
        for stream in &streams {
            opened(&mut peer, *stream, if stream % 4 == 1 { "/ws" } else { "/channel" });
        }
        let message = vec![b'x'; 4_000];
        for round in 1..=3 {
            for stream in &streams {
                peer.data(*stream, &masked(2, &message));
            }
            for stream in &streams {
                peer.read_until(|peer| peer.stream(*stream).body.len() >= round * (message.len() + 4));
            }
        }
        for stream in &streams {
            peer.frame(DATA, END_STREAM, *stream, &masked(8, &[3, 232]));
        }
        for stream in &streams {
            peer.read_until(|peer| peer.stream(*stream).is_over());
            assert_eq!(peer.stream(*stream).reset, None);
        }
        server.drain(Duration::from_secs(5));
    }
}

/// Counts messages, and reports when it has all of them.
struct Count(usize);

impl Handler<DynOver<WebSocket>> for Count {
    type Post = ();

    fn message(&mut self, message: Message, cx: &mut Context<'_, DynOver<WebSocket>>) -> Outcome<DynOver<WebSocket>> {
        self.0 += usize::from(matches!(message, Message::Binary(_)));
        if self.0 == EARLY_MESSAGES { cx.send("all".into()).into() } else { Outcome::Continue }
    }
}

const EARLY_MESSAGES: usize = 100;

/// Sends on stream 1 as far as the peer has credit: `bytes` of `wire` from `at` on. Returns the received bytes.
fn send_granted(peer: &mut Peer<Embedded<()>>, wire: &[u8], at: &mut usize, window: &mut usize) -> Vec<u8> {
    let mut received = Vec::new();
    loop {
        peer.wire.run();
        let written = peer.wire.take_written();
        let mut frames = &written[..];
        while let [a, b, c, kind, _, id @ ..] = frames {
            let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
            let (id, content) = (u32::from_be_bytes(id[..4].try_into().unwrap()), &frames[9..9 + length]);
            match (*kind, id) {
                (WINDOW_UPDATE, 1) => *window += u32::from_be_bytes(content.try_into().unwrap()) as usize,
                (DATA, 1) => received.extend_from_slice(content),
                _ => {}
            }
            frames = &frames[9 + length..];
        }
        let length = (*window).min(16_384).min(wire.len() - *at);
        if length == 0 {
            return received;
        }
        peer.wire_send(&frame(DATA, 0, 1, &wire[*at..*at + length]));
        (*at, *window) = (*at + length, *window - length);
    }
}

/// Bytes behind a CONNECT belong to the function's upgrade: until then they hold their window, and afterwards the
/// window is granted again.
#[test]
fn bytes_behind_a_connect_wait_within_its_window() {
    for kind in ["handler", "channel"] {
        let router = Router::new()
            .any("/handler", async |upgrade: WebSocketUpgrade| {
                task::sleep(Duration::from_secs(1)).await;
                upgrade.handler(Count(0))
            })
            .any("/channel", async |upgrade: WebSocketUpgrade| {
                task::sleep(Duration::from_secs(1)).await;
                upgrade.channel(async |mut channel| {
                    let mut count = 0;
                    while let Some(message) = channel.recv().await? {
                        count += usize::from(matches!(message, Message::Binary(_)));
                        if count == EARLY_MESSAGES {
                            channel.send("all".into())?;
                        }
                    }
                    Ok::<_, Box<dyn Error>>(())
                })
            });
        let (codec, handler) = Config::new().connections(router)();
        let mut peer = Peer::new(Embedded::new(codec, handler));
        peer.extended_connect(1, "websocket", &format!("/{kind}"), &[("sec-websocket-version", "13")]);
        let message = [&[0x82, 0x80 | 126, 0x10, 0x00, 0, 0, 0, 0][..], &[7; 4096]].concat();
        let wire = message.repeat(EARLY_MESSAGES);
        let (mut at, mut window) = (0, 65_536);
        send_granted(&mut peer, &wire, &mut at, &mut window);
        assert_eq!((at, window), (65_536, 0), "nothing is granted before the function has responded");
        let mut received = Vec::new();
        for _ in 0..200 {
            peer.wire.advance(Duration::from_millis(100));
            received.extend(send_granted(&mut peer, &wire, &mut at, &mut window));
        }
        assert!(received.ends_with(b"all"), "{kind}: of {} bytes {at} were granted", wire.len());
    }
}
