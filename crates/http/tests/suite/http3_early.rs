//! HTTP/3 requests in early data (0-RTT, RFC 8470): safe ones are served at once, and all others wait for the handshake.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use tidegate::engine::SessionLimits;
use tidegate::http::{Config, EarlyData, Request, Router};
use tidegate::quic::{ServerConfig, TransportLimits};

use crate::support::http3_stage::{DATA, Stage, frame, request};

/// The requests that functions have seen: the method, and the field that marks early ones.
type Seen = Rc<RefCell<Vec<String>>>;

fn router(seen: &Seen) -> Router {
    let note = |seen: &Seen| {
        let seen = seen.clone();
        move |request: Request| {
            let mark = request.header_str("early-data").unwrap_or("-").to_owned();
            seen.borrow_mut().push(format!("{} {} {mark}", request.method(), request.path()));
            "done"
        }
    };
    let careful = Router::new().get("/", note(seen)).with(EarlyData::refuse());
    Router::new().get("/", note(seen)).post("/", note(seen)).get("/more", note(seen)).nest("/careful", careful)
}

fn limits() -> TransportLimits {
    TransportLimits { early_data: true, ..TransportLimits::default() }
}

fn serve(stage: &mut Stage, quic: &ServerConfig, seen: &Seen) -> SocketAddr {
    stage.serve_quic((quic.clone(), SessionLimits::default()), Config::new(), router(seen))
}

/// A server, whose sessions the client knows from a first connection.
fn prepare(stage: &mut Stage) -> (ServerConfig, SocketAddr, Seen) {
    let (quic, seen) = (stage.quic(limits()), Seen::default());
    let address = serve(stage, &quic, &seen);
    let peer = stage.connect_within(address, limits());
    let page = stage.task(async move { peer.get("/").await });
    assert_eq!((&*page.status, seen.take()), ("200", vec!["GET / -".to_owned()]));
    (quic, address, seen)
}

fn post() -> Vec<u8> {
    [request("POST", "/", &[]), frame(DATA, b"ebb")].concat()
}

#[test]
fn requests_on_a_resumed_connection_are_all_served() {
    Stage::each(|stage| {
        let (_, address, seen) = prepare(stage);
        let peer = stage.connect_within(address, limits());
        let pages = stage.task(async move { [peer.get("/").await, peer.ask(&post()).await, peer.get("/more").await] });
        assert!(pages.iter().all(|page| page.status == "200"), "{pages:?}");
        assert_eq!((seen.borrow().len(), &*seen.borrow()[1]), (3, "POST / -"));
    });
}

#[test]
fn a_safe_request_is_served_before_the_handshake_and_marked() {
    // Without latency the handshake may be complete before a task opens its stream.
    Stage::simulated(|stage| {
        let (_, address, seen) = prepare(stage);
        let peer = stage.connect_within(address, limits());
        let pages = stage.task(async move { [peer.get("/").await, peer.ask(&post()).await, peer.get("/more").await] });
        assert!(pages.iter().all(|page| page.status == "200"), "{pages:?}");
        // The first one came early. The others may have come behind the handshake.
        assert_eq!(seen.borrow()[0], "GET / 1");
        assert_eq!(seen.borrow()[1], "POST / -");
    });
}

#[test]
fn a_route_may_refuse_early_requests() {
    Stage::simulated(|stage| {
        let (_, address, seen) = prepare(stage);
        let peer = stage.connect_within(address, limits());
        let statuses = stage.task(async move {
            let early = peer.get("/careful").await.status;
            peer.connection.confirmed().await.expect("a handshake");
            let marked_by_front = request("GET", "/careful", &[("early-data", "1")]);
            [early, peer.get("/careful").await.status, peer.ask(&marked_by_front).await.status]
        });
        assert_eq!(statuses, ["425", "200", "425"]);
        assert_eq!(seen.take(), ["GET /careful -"]);
    });
}

#[test]
fn a_replayed_post_runs_no_function() {
    Stage::simulated(|stage| {
        let (quic, _, seen) = prepare(stage);
        let with_body = [request("GET", "/", &[("content-length", "3")]), frame(DATA, b"ebb")].concat();
        let streams = [post(), request("GET", "/more", &[]), with_body, request("POST", "/", &[])];
        let datagrams = stage.early_datagrams(limits(), &streams);
        // Another server that knows the sessions; the handshake of the copy never ends.
        let address = serve(stage, &quic, &seen);
        stage.replay(address, datagrams.clone());
        assert_eq!(seen.take(), ["GET /more 1"]);
        // A second copy finds its session used up.
        stage.replay(address, datagrams);
        assert_eq!(seen.take(), Vec::<String>::new());
    });
}
