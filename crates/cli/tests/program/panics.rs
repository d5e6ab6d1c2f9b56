//! Handlers that panic, and requests that time out: on a small server of our own, since the program has neither
//! panicking handlers nor deadlines that are short enough for a test.

use std::sync::Arc;
use std::time::Duration;

use tidegate::engine::Counts;
use tidegate::http1::{Config, ContentType, Incoming, Outgoing, Response, Status, StreamedResponse};
use tidegate::{CloseReason, Context, Event, Handler, Outcome, Server, ServerHandle, http1};

use crate::support::peer::{Peer, post, request};
use crate::support::program::{PATIENCE, until};

/// A handler that panics at the point that the target names.
#[derive(Default)]
struct Clumsy {
    at_body: bool,
    at_writable: bool,
    at_closed: bool,
}

impl Handler<http1::Server> for Clumsy {
    type Post = ();

    fn message(&mut self, message: Incoming, cx: &mut Context<'_, http1::Server>) -> Outcome<http1::Server> {
        let head = match message {
            Incoming::Head(head) => head,
            Incoming::Data(_) if self.at_body => panic!("on request, within a body"),
            Incoming::Data(_) | Incoming::Trailers(_) | Incoming::End | Incoming::Preface => return Outcome::Continue,
        };
        match head.path() {
            "/panic" => panic!("on request"),
            "/panic/after-head" => {
                cx.send(Outgoing::Head(StreamedResponse::new(Status::OK).length(100))).expect("it is owed");
                panic!("on request, within a response")
            }
            "/panic/after-response" => {
                cx.send(Response::text("said").into()).expect("it is owed");
                panic!("on request, after a response")
            }
            "/panic/at-body" => self.at_body = true,
            "/panic/at-writable" => {
                self.at_writable = true;
                let response = Response::new(Status::OK).content_type(ContentType::BYTES).body(vec![b'a'; 1_000_000]);
                cx.send(response.into()).expect("it is owed");
            }
            "/panic/at-closed" => {
                self.at_closed = true;
                cx.send(Response::text("ok").close().into()).expect("it is owed");
            }
            "/fail" => return Outcome::fail("on request"),
            _ => drop(cx.send(Response::text("ok").into()).expect("it is owed")),
        }
        Outcome::Continue
    }

    fn event(&mut self, event: Event<()>, _: &mut Context<'_, http1::Server>) -> Outcome<http1::Server> {
        assert!(!(self.at_writable && event == Event::Writable), "on request, when writable");
        Outcome::Continue
    }

    fn closed(&mut self, _: &CloseReason) {
        assert!(!self.at_closed, "on request, when closed");
    }
}

/// A server, and a witness: a connection that must stay open and be served whatever other connections do.
struct Stage {
    running: ServerHandle,
    witness: Peer,
}

impl Stage {
    fn new(config: Config) -> Self {
        let config = Arc::new(config);
        let server = Server::bind("127.0.0.1:0").unwrap().loops(1);
        let running = server.start(move || (http1::Server::new(config.clone()), Clumsy::default())).unwrap();
        let witness = Peer::to(&running.address().ip().unwrap().into());
        Self { running, witness }
    }

    fn peer(&self) -> Peer {
        Peer::to(&self.running.address().ip().unwrap().into())
    }

    /// Waits until `count` has counted one more closed connection, and until only the witness is left.
    fn until_counted(&mut self, before: u64, count: impl Fn(&Counts) -> u64) {
        until("the connection to be counted", || {
            // The loop publishes counts once per iteration, so cause one.
            assert_eq!(self.witness.get("/").text(), "ok");
            let counts = self.running.counts()[0];
            count(&counts) == before + 1 && counts.connections == 1
        });
    }
}

#[test]
fn a_panicking_handler_answers_500_and_closes_its_connection_only() {
    let mut stage = Stage::new(Config::default());
    for (number, wire) in [
        request("GET", "/panic").into_bytes(),
        post("/panic", b"with a body"),
        post("/panic/at-body", b"with a body"),
        [request("GET", "/panic"), request("GET", "/")].concat().into_bytes(),
    ]
    .into_iter()
    .enumerate()
    {
        let mut peer = stage.peer();
        let reply = peer.exchange(wire);
        assert_eq!((reply.status, reply.field("connection")), (500, Some("close")));
        peer.expect_end();
        drop(peer);
        stage.until_counted(number as u64, |counts| counts.closed_panicked);
    }
}

#[test]
fn output_sent_before_a_panic_arrives() {
    let mut stage = Stage::new(Config::default());
    let mut peer = stage.peer();
    peer.send([request("GET", "/"), request("GET", "/panic/after-response"), request("GET", "/")].concat());
    assert_eq!((peer.reply().text(), peer.reply().text()), ("ok", "said"));
    peer.expect_end();
    drop(peer);
    stage.until_counted(0, |counts| counts.closed_panicked);

    // A second head within a response would be read as its body.
    let mut peer = stage.peer();
    peer.send(request("GET", "/panic/after-head"));
    let answer = String::from_utf8(peer.rest().expect("a clean end")).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\n"), "{answer}");
    assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{answer}");
    drop(peer);
    stage.until_counted(1, |counts| counts.closed_panicked);
}

#[test]
fn panics_outside_requests_close_their_connection_only() {
    let mut stage = Stage::new(Config::default());
    let mut peer = stage.peer();
    assert_eq!(peer.get("/panic/at-writable").body.len(), 1_000_000);
    peer.expect_end();
    drop(peer);
    stage.until_counted(0, |counts| counts.closed_panicked);

    let mut peer = stage.peer();
    assert_eq!(peer.get("/panic/at-closed").text(), "ok");
    peer.expect_end();
    drop(peer);
    // The connection closed in good order before the handler's `closed` ran.
    stage.until_counted(0, |counts| counts.closed_done);
}

#[test]
fn many_panics_leak_nothing() {
    let mut stage = Stage::new(Config::default());
    assert_eq!((stage.witness.get("/").text(), stage.witness.get("/").text()), ("ok", "ok"));
    let before = stage.running.counts()[0].memory_bytes;
    for _ in 0..200 {
        let mut peer = stage.peer();
        assert_eq!(peer.get("/panic").status, 500);
        peer.expect_end();
    }
    stage.until_counted(199, |counts| counts.closed_panicked);
    until("memory to be given back", || {
        assert_eq!(stage.witness.get("/").text(), "ok");
        stage.running.counts()[0].memory_bytes == before
    });
    drop(stage.witness);
    stage.running.drain(PATIENCE);
}

#[test]
fn a_failing_handler_answers_500_and_is_counted() {
    let mut stage = Stage::new(Config::default());
    let mut peer = stage.peer();
    assert_eq!(peer.get("/fail").status, 500);
    peer.expect_end();
    drop(peer);
    stage.until_counted(0, |counts| counts.closed_failed);
}

/// A server with short deadlines.
fn hasty() -> Stage {
    let soon = Duration::from_millis(150);
    Stage::new(Config::new(http1::Limits { head_timeout: soon, body_timeout: soon, ..http1::Limits::default() }))
}

#[test]
fn an_incomplete_request_gets_408_at_its_deadline() {
    let mut stage = hasty();
    for (number, wire) in ["G", "GET / HTTP/1.1\r\nHost:", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab"]
        .into_iter()
        .enumerate()
    {
        let mut peer = stage.peer();
        if wire.starts_with("POST") {
            // The response precedes the body, which never comes; the server must not wait for it without bound.
            assert_eq!(peer.exchange(wire).status, 200);
        } else {
            assert_eq!(peer.exchange(wire).status, 408);
        }
        peer.expect_end();
        drop(peer);
        if number < 2 {
            stage.until_counted(number as u64, |counts| counts.closed_protocol);
        }
    }
}

/// The deadline applies to the whole head, so sending byte by byte does not extend it.
#[test]
fn a_trickling_head_gets_408_at_its_deadline() {
    let stage = hasty();
    let mut peer = stage.peer();
    for byte in request("GET", "/").repeat(100).replace("\r\n\r\n", "\r\nA: ").bytes() {
        if peer.try_send([byte]).is_err() || peer.has_reply() {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(peer.reply().status, 408);
}

#[test]
fn an_idle_connection_is_closed_without_output() {
    let idle_timeout = Duration::from_millis(150);
    let stage = Stage::new(Config::new(http1::Limits { idle_timeout, ..http1::Limits::default() }));
    let mut peer = stage.peer();
    assert_eq!(peer.get("/").text(), "ok");
    peer.expect_end();
    stage.peer().expect_end();
}
