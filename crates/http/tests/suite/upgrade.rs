//! Responses after which the connection carries another protocol.

use std::cell::Cell;
use std::convert::Infallible;
use std::error::Error;
use std::rc::Rc;
use std::time::Duration;

use tidegate::codec::{DynOver, Filter, Input, Outbound, Output, Over, Step};
use tidegate::framing::Lines;
use tidegate::http::{
    Config, HttpCodec, HttpFilter, HttpHandler, IntoResponse, Request, Response, Router, StatusCode, Upgrade,
};
use tidegate::{Channel, CloseReason, Context, Handler, Outcome, Slice, http1, task};
use tidegate_testkit::Embedded;

const ASKS: &str =
    "GET /PATH HTTP/1.1\r\nHost: sea\r\nConnection: keep-alive, Upgrade\r\nUpgrade: other, shout\r\n\r\n";

async fn shout(mut channel: Channel<DynOver<Lines>>) -> Result<(), Box<dyn Error>> {
    while let Some(line) = channel.recv().await? {
        channel.send(line.to_ascii_uppercase().into())?;
    }
    Ok(())
}

struct Shout(Rc<Cell<u32>>);

impl Handler<DynOver<Lines>> for Shout {
    type Post = ();

    fn message(&mut self, line: Slice, cx: &mut Context<'_, DynOver<Lines>>) -> Outcome<DynOver<Lines>> {
        cx.send(line.to_ascii_uppercase().into()).into()
    }

    fn closed(&mut self, _: &CloseReason) {
        self.0.set(self.0.get() + 1);
    }
}

fn upgraded() -> Response {
    Response::upgrade("shout", Upgrade::channel(Lines::new(), shout)).into_response()
}

fn connections(closed: &Rc<Cell<u32>>) -> (http1::Server, HttpHandler) {
    let closed = closed.clone();
    let router = Router::new()
        .get("/sync", |request: Request| {
            if request.asks_for_upgrade("shout") { upgraded() } else { StatusCode::UPGRADE_REQUIRED.into_response() }
        })
        .get("/handler", move || {
            Response::upgrade("shout", Upgrade::handler(Lines::new(), Shout(closed.clone()))).into_response()
        })
        .get("/ready", async || upgraded())
        .get("/waits", async || {
            task::sleep(Duration::from_secs(1)).await;
            upgraded()
        })
        .post("/ready", async |mut request: Request| {
            request.body_mut().collect(1000).await.expect("it is short");
            upgraded()
        })
        .post("/unread", async || upgraded())
        .get("/plain", || "plain")
        .get("/tunnel", || Response::tunnel(Upgrade::channel(Lines::new(), shout)))
        .fallback(|request: Request| {
            assert_eq!(request.method(), tidegate::http::Method::CONNECT);
            Response::tunnel(Upgrade::channel(Lines::new(), shout))
        });
    Config::new().connections(router)()
}

fn open() -> Embedded<()> {
    let (codec, handler) = connections(&Rc::default());
    Embedded::new(codec, handler)
}

fn ask(pipe: &mut Embedded<()>, wire: impl AsRef<[u8]>) -> String {
    pipe.receive(wire.as_ref());
    String::from_utf8(pipe.take_written()).expect("text")
}

#[test]
fn functions_of_every_kind_upgrade_their_connection() {
    for path in ["sync", "ready", "waits", "handler"] {
        let mut pipe = open();
        assert!(ask(&mut pipe, "GET /plain HTTP/1.1\r\nHost: sea\r\n\r\n").ends_with("plain"), "{path}");
        // The first line of the other protocol comes with the request.
        let mut answer = ask(&mut pipe, ASKS.replace("PATH", path) + "ebb\nfl");
        if path == "waits" {
            assert_eq!(answer, "");
            pipe.advance(Duration::from_secs(2));
            answer = String::from_utf8(pipe.take_written()).unwrap();
        }
        assert!(answer.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{path}: {answer}");
        let (head, rest) = answer.split_once("\r\n\r\n").expect("a head");
        assert!(head.contains("\r\nConnection: upgrade\r\nUpgrade: shout"), "{path}: {head}");
        assert_eq!(rest, "EBB\n", "{path}");
        assert_eq!(ask(&mut pipe, "ow\n"), "FLOW\n", "{path}");
        pipe.receive_fin();
        assert!(pipe.is_write_closed(), "{path}");
    }
}

#[test]
fn an_upgraded_handler_sees_the_end_of_its_connection() {
    let closed = Rc::new(Cell::new(0));
    let (codec, handler) = connections(&closed);
    let mut pipe = Embedded::new(codec, handler);
    ask(&mut pipe, ASKS.replace("PATH", "handler"));
    assert_eq!(closed.get(), 0);
    pipe.reset();
    assert_eq!(closed.get(), 1);
}

#[test]
fn a_request_may_have_a_body_that_is_read_before() {
    let mut pipe = open();
    let wire = ASKS.replace("GET /PATH", "POST /ready").replace("Host", "Content-Length: 3\r\nHost");
    let answer = ask(&mut pipe, wire.clone() + "abcebb\n");
    assert!(answer.starts_with("HTTP/1.1 101 ") && answer.ends_with("\r\n\r\nEBB\n"), "{answer}");

    let mut pipe = open();
    let answer = ask(&mut pipe, wire.replace("/ready", "/unread"));
    assert!(answer.starts_with("HTTP/1.1 500 ") && pipe.is_write_closed(), "{answer}");
}

#[test]
fn a_client_that_does_not_ask_is_not_upgraded() {
    let plain = "GET /sync HTTP/1.1\r\nHost: sea\r\n\r\n";
    for wire in [
        plain.to_owned(),
        ASKS.replace("PATH", "sync").replace("Connection: keep-alive, Upgrade", "Connection: keep-alive"),
        ASKS.replace("PATH", "sync").replace("other, shout", "shouting"),
        ASKS.replace("PATH", "sync").replace("HTTP/1.1", "HTTP/1.0"),
    ] {
        let mut pipe = open();
        assert!(ask(&mut pipe, &wire).starts_with("HTTP/1.1 426 "), "{wire}");
    }
    // The protocol itself forbids it to a client that does not know 101.
    let mut pipe = open();
    let answer = ask(&mut pipe, ASKS.replace("PATH", "ready").replace("HTTP/1.1", "HTTP/1.0"));
    assert!(answer.starts_with("HTTP/1.1 500 ") && pipe.is_write_closed(), "{answer}");
}

#[test]
fn connect_becomes_a_tunnel() {
    let mut pipe = open();
    let answer = ask(&mut pipe, "CONNECT sea:7 HTTP/1.1\r\nHost: sea:7\r\n\r\nebb\n");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nEBB\n"), "{answer}");
    assert!(!answer.contains("Content-Length"), "{answer}");

    let mut pipe = open();
    let answer = ask(&mut pipe, "GET /tunnel HTTP/1.1\r\nHost: sea\r\n\r\nebb\n");
    assert!(answer.ends_with("Content-Length: 0\r\n\r\n") && pipe.is_write_closed(), "{answer}");
}

#[test]
fn a_slow_peer_stops_an_upgraded_connection_as_any_other() {
    let mut pipe = open();
    pipe.limit_peer_reads(0);
    pipe.receive(ASKS.replace("PATH", "ready").as_bytes());
    for _ in 0..100 {
        pipe.receive(&[&[b'x'; 5000][..], b"\n"].concat());
    }
    assert_eq!(pipe.take_written(), b"");
    pipe.limit_peer_reads(10_000_000);
    let answer = String::from_utf8(pipe.take_written()).unwrap();
    let (_, lines) = answer.split_once("\r\n\r\n").expect("a head");
    assert_eq!(lines.len(), 100 * 5001);
}

/// Turns every bit around.
struct Invert;

impl Filter for Invert {
    type Error = Infallible;

    fn inbound(&mut self, wire: &mut Input, plain: &mut Input, reply: &mut Output<'_>) -> Result<Step<()>, Infallible> {
        if wire.is_empty() {
            return Ok(Step::NeedMore);
        }
        plain.append(reply.pool().copy(&inverted(wire.bytes())), reply.pool());
        wire.consume(wire.len());
        Ok(Step::Message(()))
    }

    fn outbound(&mut self, plain: &mut Outbound, out: &mut Output<'_>) -> Result<(), Infallible> {
        while let Some(front) = plain.front() {
            let count = front.len();
            out.write(&inverted(front));
            plain.advance(count as u64);
        }
        Ok(())
    }
}

impl HttpFilter for Invert {}

fn inverted(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().map(|byte| !byte).collect()
}

fn talk_over_filters<C: HttpCodec>(over: impl Fn(http1::Server) -> C, wire: impl Fn(&[u8]) -> Vec<u8>) {
    for path in ["sync", "waits", "handler"] {
        let (codec, handler) = connections(&Rc::default());
        let mut pipe = Embedded::new(over(codec), handler);
        pipe.receive(&wire(&(ASKS.replace("PATH", path) + "ebb\nfl").into_bytes()));
        pipe.advance(Duration::from_secs(2));
        let answer = String::from_utf8(wire(&pipe.take_written())).expect("text");
        assert!(answer.starts_with("HTTP/1.1 101 ") && answer.ends_with("\r\n\r\nEBB\n"), "{path}: {answer}");
        pipe.receive(&wire(b"ow\n"));
        assert_eq!(wire(&pipe.take_written()), b"FLOW\n", "{path}");
        pipe.receive_fin();
        assert!(pipe.is_write_closed(), "{path}");
    }
}

#[test]
fn filters_stay_below_the_other_protocol() {
    talk_over_filters(|codec| Over::new(Invert, codec), inverted);
    talk_over_filters(|codec| Over::new(Invert, Over::new(Invert, codec)), <[u8]>::to_vec);
}
