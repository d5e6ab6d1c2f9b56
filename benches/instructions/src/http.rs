//! Complete turns with requests that the layer for applications answers, or passes on to an upstream: beside those of
//! `turns.rs`.

use std::future::poll_fn;
use std::task::Poll;

use tidegate_engine::{ConnectionRate, EventLoop, Limits};
use tidegate_http::{
    AccessLog, Config, ContentType, Edit, Fields, LineLog, LogFormat, Next, RateLimit, RequestIds, Response, Router,
    Template,
};
use tidegate_http_cache::Cache;
use tidegate_http_proxy::{Proxy, Upstreams};
use tidegate_http2::hpack::{Encoder, Indexing, TABLE_BYTES_DEFAULT};
use tidegate_sys::Socket;

use crate::codecs::{REQUEST, RESPONSE};
use crate::counted::count_this;
use crate::turns::{BETWEEN, turn, wired};
use crate::wire::{Peer, address};

/// `DEPTH` requests in one turn, answered by one function that is not async.
pub(crate) fn sync<const DEPTH: usize>(rounds: usize) {
    serve(Router::new().fallback(hello), DEPTH, rounds);
}

/// The same, found by a router.
pub(crate) fn routed<const DEPTH: usize>(rounds: usize) {
    let router = Router::new().get("/", || "").get("/plaintext", hello).get("/tides/{harbour}", || "");
    serve(router, DEPTH, rounds);
}

/// The same by an async function that is complete when it is polled first.
pub(crate) fn async_<const DEPTH: usize>(rounds: usize) {
    serve(Router::new().get("/plaintext", async || hello()), DEPTH, rounds);
}

/// The same in async middleware that passes each request on at once.
pub(crate) fn wrapped<const DEPTH: usize>(rounds: usize) {
    let router = Router::new().get("/plaintext", async || hello());
    serve(router.wrap(async |request, next: Next| next.run(request).await), DEPTH, rounds);
}

/// The same by an async function that waits once: it is complete when it is polled again.
pub(crate) fn awaits<const DEPTH: usize>(rounds: usize) {
    awaits_polls::<DEPTH>(1, rounds);
}

/// The same by an async function that its task waits for: it is woken again and again before it is complete.
pub(crate) fn suspends<const DEPTH: usize>(rounds: usize) {
    awaits_polls::<DEPTH>(4, rounds);
}

fn awaits_polls<const DEPTH: usize>(waits: u32, rounds: usize) {
    let waits = async move || {
        for _ in 0..waits {
            yield_once().await;
        }
        hello()
    };
    serve(Router::new().get("/plaintext", waits), DEPTH, rounds);
}

/// The same by a function whose response has the fields of one that a cache has stored: see [`cached`].
pub(crate) fn fields<const DEPTH: usize>(rounds: usize) {
    let (mut event_loop, peer) = wired(REQUEST.repeat(DEPTH), 0);
    let router = Router::new().fallback(|| Response::new().fields(STORED_FIELDS).body(HELLO));
    let (codec, handler) = Config::new().connections(router)();
    let adopted = event_loop.adopt(Socket::Simulated(0), &address(), Limits::default(), codec, handler);
    adopted.expect("it takes any stream");
    count_turns(&mut event_loop, &peer, DEPTH, rounds);
}

/// The same by a response that a cache has stored.
pub(crate) fn cached<const DEPTH: usize>(rounds: usize) {
    let cache = Cache::new();
    let stored = async || hello().header("Cache-Control", "max-age=86400").expect("a field");
    let router = Router::new().fallback(cache.wrap(stored));
    let (mut event_loop, peer) = wired(REQUEST.repeat(DEPTH), 0);
    let (codec, handler) = Config::new().connections(router)();
    let adopted = event_loop.adopt(Socket::Simulated(0), &address(), Limits::default(), codec, handler);
    adopted.expect("it takes any stream");
    peer.deliver();
    // The first request stores the response.
    for _ in 0..4 * DEPTH + 4 {
        event_loop.turn(None).expect("nothing fails on a wire");
    }
    count_turns(&mut event_loop, &peer, DEPTH, rounds);
    let counts = cache.counts();
    assert_eq!((counts.hits + 1) as usize, (rounds + 1) * DEPTH, "{counts:?}");
}

/// Counts turns that answer `depth` requests each.
fn count_turns(event_loop: &mut EventLoop, peer: &Peer, depth: usize, rounds: usize) {
    for _ in 0..4 {
        event_loop.turn(None).expect("nothing fails on a wire");
    }
    let mut received = peer.received();
    for _ in 0..rounds {
        peer.pass(BETWEEN);
        peer.deliver();
        count_this(|| event_loop.turn(None)).expect("nothing fails on a wire");
        assert!(peer.received() > received + (depth * HELLO.len()) as u64, "each turn answers all requests");
        received = peer.received();
    }
}

/// Requests on `STREAMS` streams of one HTTP/2 connection in one turn, answered as in [`sync`].
pub(crate) fn http2<const STREAMS: usize>(rounds: usize) {
    let mut client = Client::new();
    let (mut event_loop, peer) = wired(client.greeting(), 0);
    let (codec, handler) = Config::new().connections(Router::new().fallback(hello))();
    let adopted = event_loop.adopt(Socket::Simulated(0), &address(), Limits::default(), codec, handler);
    adopted.expect("it takes any stream");
    peer.deliver();
    for _ in 0..4 {
        event_loop.turn(None).expect("nothing fails on a wire");
    }
    for _ in 0..rounds {
        peer.set_bytes(&client.requests(STREAMS));
        peer.pass(BETWEEN);
        peer.deliver();
        count_this(|| event_loop.turn(None)).expect("nothing fails on a wire");
    }
    assert_eq!(event_loop.counts().streams, 0, "each turn answers all requests");
    assert!(peer.received() > (rounds * STREAMS * HELLO.len()) as u64, "each response has come");
}

/// `DEPTH` requests in one turn, passed on to an upstream that answers each in the turn after it. Both connections are kept
/// alive.
pub(crate) fn proxied<const DEPTH: usize>(rounds: usize) {
    pass_on(Router::new().fallback(proxy()), DEPTH, 0, rounds);
}

/// The same for one request of a route with a log, ids, edits of fields and a rate limit.
pub(crate) fn proxied_with_features(rounds: usize) {
    let lines = LineLog::new("log", std::io::sink()).wait_when_full(false);
    let id = Template::parse("{request.id}").expect("a template");
    let limit = RateLimit::new(ConnectionRate::per_second(1_000_000_000).burst(1_000_000_000));
    let proxy = proxy()
        .edit_request(Edit::set("X-Request-Id", id).expect("a field"))
        .edit_response(Edit::set("X-Gateway", "gate").expect("a field"))
        .rate_limit(&limit);
    let log = AccessLog::new(LogFormat::Json).to(&lines);
    let added = ADDED_BYTES;
    pass_on(Router::new().fallback(proxy).with(log).with(RequestIds::new().ignoring_peers()), 1, added, rounds);
}

/// The fields that are added to a response: `X-Request-Id` with 32 digits, and `X-Gateway`.
const ADDED_BYTES: usize = "X-Request-Id: \r\n".len() + 32 + "X-Gateway: gate\r\n".len();

fn proxy() -> Proxy {
    let upstreams = Upstreams::new(["http://192.0.2.2:8080"]).expect("a URL");
    Proxy::new(&upstreams).via("gate")
}

/// `depth` requests in one turn. `added` is the number of bytes that are added to each response.
fn pass_on(router: Router, depth: usize, added: usize, rounds: usize) {
    let (mut event_loop, peer) = wired(REQUEST.repeat(depth), 0);
    peer.answer(RESPONSE);
    let response = RESPONSE.len() + added;
    let (codec, handler) = Config::new().connections(router)();
    let adopted = event_loop.adopt(Socket::Simulated(0), &address(), Limits::default(), codec, handler);
    adopted.expect("it takes any stream");
    // Each request takes a turn, and its answer another one; the first makes a connection.
    let turns = 2 * depth + 2;
    for round in 0..=rounds {
        peer.pass(BETWEEN);
        peer.deliver();
        for _ in 0..turns {
            // The first round is a warm-up.
            let turned = if round == 0 { event_loop.turn(None) } else { count_this(|| event_loop.turn(None)) };
            turned.expect("nothing fails on a wire");
            if peer.received() as usize == (round + 1) * depth * response {
                break;
            }
        }
        assert_eq!(peer.received() as usize, (round + 1) * depth * response, "each request is answered");
    }
}

/// The bytes of an HTTP/2 client.
struct Client {
    encoder: Encoder,
    next_id: u32,
}

impl Client {
    fn new() -> Self {
        Self { encoder: Encoder::new(TABLE_BYTES_DEFAULT), next_id: 1 }
    }

    /// The preface, SETTINGS, and a window for all responses.
    fn greeting(&self) -> Vec<u8> {
        let (settings, update) = (frame(4, 0, 0, &[]), frame(8, 0, 0, &0x7000_0000_u32.to_be_bytes()));
        [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &settings[..], &update].concat()
    }

    /// One request on each of as many new streams. All fields but the path come from the tables but for the first time.
    fn requests(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        for _ in 0..count {
            let mut block = Vec::new();
            self.encoder.begin(&mut block);
            for (name, value, indexing) in [
                (":method", "GET", Indexing::Allowed),
                (":scheme", "http", Indexing::Allowed),
                (":path", "/plaintext", Indexing::Omitted),
                (":authority", "127.0.0.1:8080", Indexing::Allowed),
                ("user-agent", "tidegate-instructions", Indexing::Allowed),
            ] {
                self.encoder.encode(name.as_bytes(), value.as_bytes(), indexing, &mut block);
            }
            bytes.extend(frame(1, END_STREAM | END_HEADERS, self.next_id, &block));
            self.next_id += 2;
        }
        bytes
    }
}

fn frame(kind: u8, flags: u8, stream: u32, content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), content].concat()
}

const STORED_FIELDS: Fields = Fields::from_static(
    "Date: Thu, 01 Jan 1970 00:00:00 GMT\r\nCache-Control: max-age=86400\r\nContent-Type: text/plain\r\nAge: 1\r\n\
     Cache-Status: Tidegate; hit; ttl=86398\r\n",
);

const HELLO: &str = "Hello, World!";

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn serve(router: Router, depth: usize, rounds: usize) {
    let (mut event_loop, peer) = wired(REQUEST.repeat(depth), 0);
    let (codec, handler) = Config::new().connections(router)();
    let adopted = event_loop.adopt(Socket::Simulated(0), &address(), Limits::default(), codec, handler);
    adopted.expect("it takes any stream");
    turn(&mut event_loop, &peer, depth, rounds);
}

pub(crate) fn hello() -> Response {
    Response::new().content_type(ContentType::TEXT).body(HELLO)
}

pub(crate) async fn yield_once() {
    let mut has_yielded = false;
    let wait = poll_fn(move |cx| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    });
    wait.await;
}
