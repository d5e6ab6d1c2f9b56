//! A client that ends its side of the connection, with and without [`half_close`](tidegate::http::Config::half_close):
//! by default the work for it ends, and complete responses are sent.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use tidegate::codec::Pipeline;
use tidegate::framing::{Payload, Raw};
use tidegate::http::proxy::{Proxy, Upstreams};
use tidegate::http::{Body, Config, Request, Response, Router};
use tidegate::tls::{Certificates, ClientConfig, Provider, ServerConfig};
use tidegate::{Channel, Client, Limits, Over, Slice, task};
use tidegate_testkit::Embedded;
use tidegate_testkit::network::Network;

use crate::support::http2_peer;

/// Counts the values of this type that are alive.
#[derive(Clone, Default)]
struct Count(Rc<Cell<i32>>);

struct Alive(Count);

impl Count {
    fn begin(&self) -> Alive {
        self.0.set(self.0.get() + 1);
        Alive(self.clone())
    }

    fn alive(&self) -> i32 {
        self.0.get()
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        let Self(Count(count)) = self;
        count.set(count.get() - 1);
    }
}

/// Functions that wait for a second, in a handler and in a task, before or within their responses; and one that does not
/// wait.
fn router(count: &Count) -> Router {
    let [handler, task, rows, upload, unread] = std::array::from_fn(|_| count.clone());
    Router::new()
        .get("/now", || "now")
        .get("/at-once", async || "at once")
        .get("/large", || "x".repeat(LARGE))
        .get("/handler", async move || {
            let _alive = handler.begin();
            task::sleep(Duration::from_secs(1)).await;
            "late"
        })
        .post("/task", async move |mut request: Request| {
            let _alive = task.begin();
            let body = request.body_mut().collect(1000).await.map(|body| body.len())?;
            task::sleep(Duration::from_secs(1)).await;
            Ok::<_, tidegate::http::BodyError>(format!("late {body}"))
        })
        .get("/rows", move || {
            let rows = rows.clone();
            Response::new().body(Body::produce(async move |writer| {
                let _alive = rows.begin();
                writer.write("one\n").await?;
                task::sleep(Duration::from_secs(1)).await;
                writer.write("two\n").await
            }))
        })
        .post("/upload", async move |mut request: Request| {
            let _alive = upload.begin();
            while let Some(piece) = request.body_mut().next().await {
                piece?;
            }
            Ok::<_, tidegate::http::BodyError>("whole")
        })
        .post("/unread", async move |request: Request| {
            let _alive = unread.begin();
            task::sleep(Duration::from_secs(1)).await;
            drop(request);
            "late"
        })
}

/// More than may wait before the connection is unwritable.
const LARGE: usize = 1_000_000;

fn open_with(config: Config, router: Router) -> Embedded<()> {
    let (codec, handler) = config.connections(router)();
    Embedded::new(codec, handler)
}

fn text(pipe: &mut Embedded<()>) -> String {
    String::from_utf8(pipe.take_written()).expect("text")
}

fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: sea\r\n\r\n").into_bytes()
}

fn post(path: &str, fields: &str, body: &str) -> Vec<u8> {
    format!("POST {path} HTTP/1.1\r\nHost: sea\r\n{fields}\r\n{body}").into_bytes()
}

/// Requests whose functions wait when the client ends its side, and the end of the response that each gets if it goes on.
fn waiting() -> [(Vec<u8>, &'static str); 4] {
    [
        (get("/handler"), "\r\n\r\nlate"),
        (b"GET /handler HTTP/1.1\r\nHost: sea\r\nConnection: close\r\n\r\n".to_vec(), "\r\n\r\nlate"),
        (post("/task", "Content-Length: 5\r\n", "spray"), "\r\n\r\nlate 5"),
        (get("/rows"), "two\n\r\n0\r\n\r\n"),
    ]
}

#[test]
fn the_end_of_the_client_ends_a_function_that_waits() {
    for (wire, _) in waiting() {
        let count = Count::default();
        let mut pipe = open_with(Config::new(), router(&count));
        pipe.receive(&wire);
        assert_eq!(count.alive(), 1);
        let begun = text(&mut pipe);
        pipe.receive_fin();
        assert_eq!(count.alive(), 0, "{begun}");
        assert!(pipe.is_closed(), "{begun}");
        assert_eq!(text(&mut pipe), "", "nothing more is sent, neither an error nor the end of a body");
    }
}

#[test]
fn a_listener_or_a_router_with_half_close_keeps_it() {
    for (wire, end) in waiting() {
        let count = Count::default();
        let configs: [fn(Router) -> (Config, Router); 5] = [
            |router| (Config::new().half_close(true), router),
            |router| (Config::new(), router.half_close(true)),
            |router| (Config::new(), Router::new().host("sea", router.half_close(true))),
            |router| (Config::new(), Router::new().half_close(true).host("sea", router)),
            |router| {
                (Config::new().half_close(false), Router::new().half_close(false).host("sea", router.half_close(true)))
            },
        ];
        for (number, config) in configs.into_iter().enumerate() {
            let (config, router) = config(router(&count));
            let mut pipe = open_with(config, router);
            pipe.receive(&wire);
            pipe.receive_fin();
            assert_eq!(count.alive(), 1, "{number}");
            pipe.advance(Duration::from_millis(1_001));
            let answer = text(&mut pipe);
            assert!(answer.ends_with(end), "{number}: {answer}");
            assert!(pipe.is_closed() && count.alive() == 0);
        }
    }
}

#[test]
fn a_route_decides_for_itself() {
    for (listener, outer, inner, keeps) in
        [(true, None, Some(false), false), (false, Some(true), None, true), (true, Some(false), Some(true), true)]
    {
        let count = Count::default();
        let decided = |router: Router, half_close: Option<bool>| match half_close {
            Some(half_close) => router.half_close(half_close),
            None => router,
        };
        let nested = decided(Router::new().nest("/inner", decided(router(&count), inner)), outer);
        let mut pipe = open_with(Config::new().half_close(listener), nested);
        pipe.receive(&get("/inner/handler"));
        pipe.receive_fin();
        assert_eq!(count.alive() == 1, keeps, "{listener} {outer:?} {inner:?}");
    }
}

#[test]
fn pipelined_requests_are_answered_up_to_the_first_one_that_waits() {
    let count = Count::default();
    let mut pipe = open_with(Config::new(), router(&count));
    pipe.receive(&[get("/now"), get("/at-once"), get("/handler")].concat());
    pipe.receive_fin();
    let answers = text(&mut pipe);
    assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), 2, "{answers}");
    assert!(answers.ends_with("\r\n\r\nat once"), "{answers}");
    assert!(pipe.is_closed() && count.alive() == 0);
}

#[test]
fn functions_that_respond_at_once_answer_a_client_that_has_ended_its_side_already() {
    let network = Network::new(36);
    let count = Count::default();
    let connections = Config::new().connections(router(&count));
    let server = network.host("10.0.0.1").node();
    let address = server.listen(80, Limits::default(), move |_| connections()).expect("the port is free");
    let client = network.host("10.0.0.2").node();
    for path in ["/now", "/at-once"] {
        for times in [1, 3, 40] {
            let address = address.clone();
            let exchange = client.spawn(async move {
                let mut channel = raw(address).await;
                channel.send(get(path).repeat(times).into()).expect("there is room");
                channel.shutdown_write();
                all(channel).await
            });
            let answers = network.run_task(Duration::from_secs(10), exchange);
            assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), times, "{path}: {answers}");
        }
    }
}

#[test]
fn a_body_that_only_the_end_of_the_connection_ends_is_reset() {
    let count = Count::default();
    let mut pipe = open_with(Config::new(), router(&count));
    pipe.receive(b"GET /rows HTTP/1.0\r\nHost: sea\r\n\r\n");
    assert!(text(&mut pipe).ends_with("\r\n\r\none\n"));
    pipe.receive_fin();
    assert!(pipe.is_closed() && pipe.is_reset() && count.alive() == 0);
}

#[test]
fn the_end_of_the_client_within_its_body_ends_the_function() {
    for half_close in [false, true] {
        let count = Count::default();
        let mut pipe = open_with(Config::new().half_close(half_close), router(&count));
        pipe.receive(&post("/upload", "Content-Length: 100\r\n", "some"));
        assert_eq!(count.alive(), 1);
        pipe.receive_fin();
        assert!(pipe.is_closed() && count.alive() == 0);
        assert_eq!(text(&mut pipe), "");
    }
}

/// Bytes that nothing reads hide the end of the client from a loop that only receives.
#[test]
fn the_end_of_the_client_behind_unread_bytes_ends_a_function_that_waits() {
    let body = "x".repeat(1_000_000);
    for (wire, ends) in [
        ([get("/handler"), get("/now")].concat(), ["\r\n\r\nlate", "\r\n\r\nnow"]),
        (post("/unread", "Content-Length: 100\r\n", "some"), ["\r\n\r\nlate", ""]),
        (post("/unread", "Content-Length: 1000000\r\n", &body), ["\r\n\r\nlate", ""]),
        (post("/unread", "Content-Length: 100\r\nExpect: 100-continue\r\n", ""), ["\r\n\r\nlate", ""]),
    ] {
        for half_close in [false, true] {
            let count = Count::default();
            let mut pipe = open_with(Config::new().half_close(half_close), router(&count));
            pipe.receive(&wire);
            assert_eq!((count.alive(), text(&mut pipe)), (1, String::new()));
            pipe.receive_fin();
            assert_eq!(count.alive() == 1, half_close, "{}", ends[0]);
            pipe.advance(Duration::from_millis(1_001));
            let answers = text(&mut pipe);
            assert!(pipe.is_closed() && count.alive() == 0);
            if half_close {
                assert!(ends.iter().all(|end| answers.contains(end)), "{answers}");
            } else {
                assert_eq!(answers, "");
            }
        }
    }
}

/// The FIN comes before the request is even decoded: it waits for the one before it.
#[test]
fn the_end_of_the_client_is_found_again_by_each_request_that_waits() {
    let count = Count::default();
    let mut pipe = open_with(Config::new(), router(&count));
    pipe.limit_peer_reads(0);
    pipe.receive(&[get("/large"), get("/handler"), get("/handler")].concat());
    pipe.receive_fin();
    assert_eq!(count.alive(), 0, "nothing is begun while the client reads nothing");
    assert!(!pipe.is_closed());
    pipe.limit_peer_reads(usize::MAX);
    assert!(text(&mut pipe).len() > LARGE, "complete responses are sent");
    assert!(pipe.is_closed() && count.alive() == 0);
}

#[test]
fn the_end_of_a_connection_of_http2_ends_its_streams() {
    // Over HTTP/2 a client ends a stream on its own, so `half_close` is not about it.
    for half_close in [false, true] {
        let count = Count::default();
        let mut peer = http2_peer::Peer::new(open_with(Config::new().half_close(half_close), router(&count)));
        peer.request(1, "GET", "/handler", &[], true);
        peer.request(3, "GET", "/rows", &[], true);
        peer.request(5, "GET", "/now", &[], true);
        assert_eq!(count.alive(), 2);
        peer.wire.receive_fin();
        assert_eq!(count.alive(), 0);
        peer.read_until(|peer| peer.is_over(5));
        assert_eq!(peer.stream(5).body, b"now");
        assert!(peer.wire.is_closed());
    }
}

/// A complete response may leave as far as the windows go, and no longer than a peer may read nothing.
#[test]
fn a_complete_response_of_http2_is_sent_while_the_client_has_a_window_for_it() {
    let mut peer = http2_peer::Peer::new(open_with(Config::new(), router(&Count::default())));
    peer.grants = false;
    peer.request(1, "GET", "/now", &[], true);
    peer.request(3, "GET", "/large", &[], true);
    peer.wire.receive_fin();
    // All that the window of the connection allows.
    peer.read_until(|peer| peer.is_over(1) && peer.stream(3).body.len() == 65_535 - 3);
    peer.wire.advance(Duration::from_secs(130));
    assert!(peer.wire.is_closed(), "no window can be granted");
}

/// A connection without a protocol.
async fn raw(address: tidegate::Address) -> Channel<Raw> {
    Client::at(address).connect(Raw).await.expect("it listens")
}

/// All that comes, as text.
async fn all<C: Pipeline<In = Slice>>(mut channel: Channel<C>) -> String {
    let mut bytes = Vec::new();
    while let Ok(Some(piece)) = channel.recv().await {
        bytes.extend_from_slice(&piece);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// An HTTP/2 request for `path`, behind the connection preface.
fn get_over_http2(path: &str) -> Vec<u8> {
    // `:method: GET`, `:scheme: http`, `:path`, and `:authority` (RFC 7541 Appendix A).
    let mut block = vec![0x82, 0x86, 0x04, path.len() as u8];
    block.extend_from_slice(path.as_bytes());
    block.extend_from_slice(b"\x01\x03sea");
    let flags = http2_peer::END_HEADERS | http2_peer::END_STREAM;
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        http2_peer::frame(http2_peer::SETTINGS, 0, 0, &[]),
        http2_peer::frame(http2_peer::HEADERS, flags, 1, &block),
    ]
    .concat()
}

/// Sends `wire`, and ends the sending side half a second later. Returns the bytes received until the connection is
/// closed.
async fn send_and_leave<C: Pipeline<In = Slice, Out = Payload>>(mut channel: Channel<C>, wire: Vec<u8>) -> String {
    channel.send(wire.into()).map_err(|_| ()).expect("there is room");
    task::sleep(Duration::from_millis(500)).await;
    channel.shutdown_write();
    all(channel).await
}

#[test]
fn the_end_of_the_client_ends_its_exchange_with_the_upstream() {
    for scheme in ["http", "h2c"] {
        for wire in
            [get("/handler"), [get("/handler"), get("/handler")].concat(), get_over_http2("/handler"), get("/rows")]
        {
            let count = Count::default();
            let network = Network::new(36);
            let upstream = network.host("10.0.1.1").node();
            let connections = Config::new().connections(router(&count));
            upstream.listen(80, Limits::default(), move |_| connections()).expect("the port is free");
            let url = format!("{scheme}://10.0.1.1").parse().expect("a URL");
            let upstreams = Upstreams::builder().server(url).build().expect("all is set");
            let gateway = network.host("10.0.0.1").node();
            let connections = Config::new().connections(Router::new().fallback(Proxy::new(&upstreams)));
            let address = gateway.listen(80, Limits::default(), move |_| connections()).expect("the port is free");
            let client = network.host("10.0.0.2").node();
            let leaving = client.spawn(async move { send_and_leave(raw(address).await, wire).await });
            assert!(network.run_until(Duration::from_secs(5), || count.alive() > 0), "it reaches the upstream");
            let began = network.elapsed();
            assert!(network.run_until(Duration::from_secs(5), || count.alive() == 0));
            assert!(network.elapsed() - began < Duration::from_millis(900), "{scheme}: it goes on");
            network.run_task(Duration::from_secs(5), leaving);
        }
    }
}

/// An upstream that accepts an upgrade, and answers behind the end of the tunnel's input.
async fn answer_behind_the_end(mut channel: Channel<Raw>) -> Result<(), Box<dyn std::error::Error>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.extend_from_slice(&channel.recv().await?.ok_or("the head ends early")?);
    }
    let fields = "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: 8\r\n";
    channel.send(format!("HTTP/1.1 101 Switching Protocols\r\n{fields}\r\n").into())?;
    let mut received = b"behind the end of ".to_vec();
    while let Some(bytes) = channel.recv().await? {
        received.extend_from_slice(&bytes);
    }
    channel.send(received.into())?;
    Ok(channel.close().await?)
}

#[test]
fn each_side_of_a_tunnel_ends_by_itself() {
    let network = Network::new(36);
    let upstream = network.host("10.0.1.1").node();
    upstream.serve(80, Limits::default(), || Raw, answer_behind_the_end).expect("the port is free");
    let upstreams = Upstreams::builder().server("http://10.0.1.1".parse().expect("a URL")).build().expect("all is set");
    let gateway = network.host("10.0.0.1").node();
    let connections = Config::new().connections(Router::new().fallback(Proxy::new(&upstreams)));
    let address = gateway.listen(80, Limits::default(), move |_| connections()).expect("the port is free");
    let client = network.host("10.0.0.2").node();
    let talk = client.spawn(async move {
        let mut channel = raw(address).await;
        let fields = "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: 7\r\n";
        channel.send(format!("GET /chat HTTP/1.1\r\nHost: sea\r\n{fields}\r\n").into()).expect("there is room");
        let accepted = channel.recv().await.expect("nothing breaks").expect("the upstream responds");
        assert!(accepted.starts_with(b"HTTP/1.1 101 "));
        channel.send("ebb".into()).expect("there is room");
        channel.shutdown_write();
        all(channel).await
    });
    let rest = network.run_task(Duration::from_secs(10), talk);
    assert!(rest.ends_with("behind the end of ebb"), "{rest}");
}

#[test]
fn the_end_of_tls_ends_its_content() {
    let provider = Provider::ring();
    let made = rcgen::generate_simple_self_signed(["sea".to_owned()]).expect("a name");
    let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let certificates = Certificates::from_pem(&provider, chain.as_bytes(), key.as_bytes()).expect("PEM");
    let server_tls = ServerConfig::builder(&provider, certificates).build().expect("it is complete");
    let client_tls = ClientConfig::dangerous_builder_without_verification(&provider).build().expect("it is complete");
    for (wire, half_close, answers) in [
        (get("/handler"), false, false),
        (get("/handler"), true, true),
        (get("/rows"), false, false),
        (get_over_http2("/handler"), false, false),
        (get_over_http2("/handler"), true, false),
    ] {
        let count = Count::default();
        let network = Network::new(36);
        let server = network.host("10.0.0.1").node();
        let connections = Config::new().half_close(half_close).connections(router(&count));
        let tls = server_tls.clone();
        let address = server
            .listen(443, Limits::default(), move |_| {
                let (codec, handler) = connections();
                (Over::new(tls.accept(), codec), handler)
            })
            .expect("the port is free");
        let client = network.host("10.0.0.2").node();
        let tls = client_tls.connect("sea").expect("a name");
        let leaving = client.spawn(async move {
            let pipeline = Over::new(tls, Raw);
            send_and_leave(Client::at(address).connect(pipeline).await.expect("it listens"), wire).await
        });
        assert!(network.run_until(Duration::from_secs(5), || count.alive() > 0));
        let began = network.elapsed();
        assert!(network.run_until(Duration::from_secs(5), || count.alive() == 0));
        assert_eq!(network.elapsed() - began > Duration::from_millis(900), answers, "half_close: {half_close}");
        let received = network.run_task(Duration::from_secs(5), leaving);
        assert_eq!(received.ends_with("\r\n\r\nlate"), answers, "{received}");
    }
}
