//! An axum router over HTTP/2: with existing clients, and with a peer that is written by hand.

use std::convert::Infallible;
use std::net::TcpStream;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Multipart, Request};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version};
use axum::response::sse::{Event, Sse};
use axum::routing::{any, get, post};
use futures_util::{SinkExt, StreamExt, stream};
use http_body_util::channel::Channel;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tidegate::ServerHandle;
use tidegate::tls::{Certificates, Provider, ServerConfig};
use tokio::runtime::Runtime;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite;
use tokio_tungstenite::tungstenite::protocol::Role;
use tower_http::compression::CompressionLayer;
use tower_http::cors::{Any, CorsLayer};
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::request_id::{MakeRequestUuid, PropagateRequestIdLayer, SetRequestIdLayer};
use tower_http::trace::TraceLayer;

use crate::http2_peer::Peer;

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("threads")
}

/// A server that drains when it is dropped.
struct Running(ServerHandle);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.drain(Duration::ZERO);
    }
}

fn start(router: Router) -> Running {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("an address");
    Running(tidegate::axum::serve(listener, router).server(|server| server.loops(1)).start().expect("it starts"))
}

impl Running {
    /// A connection of hyper's client, by prior knowledge.
    async fn connect<B>(&self) -> SendRequest<B>
    where
        B: hyper::body::Body<Error: std::error::Error + Send + Sync> + Send + Unpin + 'static,
        B::Data: Send,
    {
        let address = self.0.address().ip().expect("an IP address");
        let socket = tokio::net::TcpStream::connect(address).await.expect("a connection");
        let (sender, connection) =
            Builder::new(TokioExecutor::new()).handshake(TokioIo::new(socket)).await.expect("a handshake");
        tokio::spawn(connection);
        sender
    }

    fn peer(&self) -> Peer<TcpStream> {
        let socket = TcpStream::connect(self.0.address().ip().expect("an IP address")).expect("a connection");
        socket.set_read_timeout(Some(Duration::from_secs(120))).expect("a time-out");
        Peer::new(socket)
    }
}

fn request<B>(method: Method, path: &str, body: B) -> hyper::Request<B> {
    let uri = format!("http://sea{path}");
    hyper::Request::builder().method(method).uri(uri).body(body).expect("a request")
}

async fn text(response: hyper::Response<Incoming>) -> String {
    let body = response.into_body().collect().await.expect("a whole body").to_bytes();
    String::from_utf8(body.to_vec()).expect("text")
}

async fn parts(mut form: Multipart) -> Result<String, StatusCode> {
    let mut parts = Vec::new();
    while let Some(field) = form.next_field().await.map_err(|_| StatusCode::BAD_REQUEST)? {
        let name = field.name().unwrap_or_default().to_owned();
        let length = field.bytes().await.map_err(|_| StatusCode::BAD_REQUEST)?.len();
        parts.push(format!("{name}: {length}"));
    }
    Ok(parts.join(", "))
}

/// The trailers of the request as those of the response.
async fn trailers(request: Request) -> axum::response::Response {
    let collected = request.into_body().collect().await.expect("the peer sends all of it");
    let trailers = collected.trailers().cloned().unwrap_or_default();
    let body = Full::new(collected.to_bytes()).with_trailers(async move { Some(Ok(trailers)) });
    axum::response::Response::new(Body::new(body))
}

fn router() -> Router {
    let id = HeaderName::from_static("x-request-id");
    Router::new()
        .route("/", get(|version: Version| async move { format!("{version:?}") }))
        .route("/method", any(|method: Method| async move { method.to_string() }))
        .route("/host", get(|headers: HeaderMap| async move { format!("{:?}", headers.get("host")) }))
        .route("/pass", post(|body: Body| async move { body }))
        .route("/parts", post(parts))
        .route("/trailers", post(trailers))
        .route(
            "/events",
            get(|| async {
                let events = stream::iter(0..100).map(|index| Event::default().data(index.to_string()));
                Sse::new(events.map(Ok::<_, Infallible>))
            }),
        )
        .route("/long", get(|| async { "tide ".repeat(20_000) }))
        .layer(TraceLayer::new_for_http())
        .layer(CompressionLayer::new())
        .layer(CorsLayer::new().allow_origin(Any))
        .layer(RequestBodyLimitLayer::new(2_000_000))
        .layer(PropagateRequestIdLayer::new(id.clone()))
        .layer(SetRequestIdLayer::new(id, MakeRequestUuid))
}

#[test]
fn requests_of_one_connection_reach_the_router() {
    let server = start(router());
    runtime().block_on(async {
        let mut client = server.connect::<Empty<Bytes>>().await;
        let version = client.send_request(request(Method::GET, "/", Empty::new())).await.expect("a response");
        assert_eq!((version.version(), version.status()), (Version::HTTP_2, StatusCode::OK));
        assert_eq!(text(version).await, "HTTP/2.0");
        let host = client.send_request(request(Method::GET, "/host", Empty::new())).await.expect("a response");
        assert_eq!(text(host).await, "Some(\"sea\")");
        let many = (0..100).map(|_| client.send_request(request(Method::DELETE, "/method", Empty::new())));
        for response in many.collect::<Vec<_>>() {
            assert_eq!(text(response.await.expect("a response")).await, "DELETE");
        }
        let none = client.send_request(request(Method::GET, "/none", Empty::new())).await.expect("a response");
        assert_eq!(none.status(), StatusCode::NOT_FOUND);
        let events = client.send_request(request(Method::GET, "/events", Empty::new())).await.expect("a response");
        assert_eq!(events.headers()["content-type"], "text/event-stream");
        let events = text(events).await;
        assert!(events.starts_with("data: 0\n\n") && events.ends_with("data: 99\n\n"), "{events}");
    });
}

#[test]
fn a_body_goes_both_ways_at_once() {
    let server = start(router());
    runtime().block_on(async {
        let mut client = server.connect().await;
        let (mut sender, body) = Channel::<Bytes, Infallible>::new(1);
        let response = client.send_request(request(Method::POST, "/pass", body));
        sender.send_data("piece 0".into()).await.expect("it is read");
        let mut body = response.await.expect("a response").into_body();
        for index in 1..50 {
            let frame = body.frame().await.expect("there is more").expect("it is open");
            assert_eq!(frame.into_data().expect("data"), format!("piece {}", index - 1), "before the next is sent");
            sender.send_data(format!("piece {index}").into()).await.expect("it is read");
        }
        drop(sender);
        let rest = body.collect().await.expect("the end").to_bytes();
        assert_eq!(rest, "piece 49");
    });
}

/// A service that reads the body of a request on another thread, as it responds.
async fn on_another_thread(request: Request) -> Body {
    let (sender, receiver) = tokio::sync::mpsc::channel::<Result<Bytes, axum::Error>>(1);
    let pass_on = async move {
        let mut pieces = request.into_body().into_data_stream();
        while let Some(piece) = pieces.next().await {
            if sender.send(piece).await.is_err() {
                return;
            }
        }
    };
    std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(pass_on);
    });
    Body::from_stream(stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver))))
}

/// The same, and the response comes afterwards.
async fn whole_on_another_thread(request: Request) -> String {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let collected = runtime.block_on(request.into_body().collect());
        let _ = sender.send(collected.map(|body| body.to_bytes().len()).map_err(|error| error.to_string()));
    });
    format!("{:?}", receiver.await.expect("the thread has sent it"))
}

#[test]
fn a_body_may_be_read_on_another_thread() {
    let server =
        start(Router::new().route("/pass", post(on_another_thread)).route("/length", post(whole_on_another_thread)));
    let sent: Bytes = (0..1_500_000_u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    runtime().block_on(async {
        let mut client = server.connect().await;
        for _ in 0..3 {
            let response = client.send_request(request(Method::POST, "/pass", Full::new(sent.clone())));
            let received = response.await.expect("a response").into_body().collect().await.expect("a body").to_bytes();
            assert!(received == sent);
            let response = client.send_request(request(Method::POST, "/length", Full::new(sent.clone())));
            assert_eq!(text(response.await.expect("a response")).await, "Ok(1500000)");
        }
    });
    // A thread that waits when the peer is gone ends.
    let mut peer = server.peer();
    peer.request(1, "POST", "/pass", &[], false);
    peer.data(1, b"ebb");
    peer.read_until(|peer| peer.stream(1).body == b"ebb");
    drop(peer);
}

#[test]
fn a_large_body_comes_back_as_it_was_sent() {
    let server = start(router());
    let sent: Bytes = (0..1_500_000_u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    runtime().block_on(async {
        let mut client = server.connect().await;
        let response = client.send_request(request(Method::POST, "/pass", Full::new(sent.clone())));
        let received = response.await.expect("a response").into_body().collect().await.expect("a body").to_bytes();
        assert!(received == sent);
        let too_long = Full::new(Bytes::from(vec![0; 2_000_001]));
        let refused = client.send_request(request(Method::POST, "/pass", too_long)).await.expect("a response");
        assert_eq!(refused.status(), StatusCode::PAYLOAD_TOO_LARGE);
    });
}

#[test]
fn forms_arrive_in_parts() {
    let server = start(router());
    let form = [
        "--X\r\nContent-Disposition: form-data; name=\"short\"\r\n\r\nebb\r\n",
        "--X\r\nContent-Disposition: form-data; name=\"long\"; filename=\"tide\"\r\n\r\n",
        &"x".repeat(100_000),
        "\r\n--X--\r\n",
    ]
    .concat();
    runtime().block_on(async {
        let mut client = server.connect().await;
        let mut request = request(Method::POST, "/parts", Full::new(Bytes::from(form)));
        let content_type = HeaderValue::from_static("multipart/form-data; boundary=X");
        request.headers_mut().insert("content-type", content_type);
        let response = client.send_request(request).await.expect("a response");
        assert_eq!(text(response).await, "short: 3, long: 100000");
    });
}

#[test]
fn trailers_go_both_ways() {
    let server = start(router());
    runtime().block_on(async {
        let mut client = server.connect().await;
        let mut trailers = HeaderMap::new();
        trailers.insert("tide", HeaderValue::from_static("ebb"));
        let body = Full::<Bytes>::new("body".into()).with_trailers(std::future::ready(Some(Ok(trailers.clone()))));
        let response = client.send_request(request(Method::POST, "/trailers", Box::pin(body))).await;
        let collected = response.expect("a response").into_body().collect().await.expect("a whole body");
        assert_eq!(collected.trailers(), Some(&trailers));
        assert_eq!(collected.to_bytes(), "body");
    });
}

#[test]
fn layers_of_tower_http_work() {
    let server = start(router());
    runtime().block_on(async {
        let mut client = server.connect().await;
        let mut request = request(Method::GET, "/long", Empty::<Bytes>::new());
        for (name, value) in [("origin", "http://shore"), ("x-request-id", "7"), ("accept-encoding", "gzip")] {
            request.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        let response = client.send_request(request).await.expect("a response");
        let fields = response.headers();
        assert_eq!(
            (&fields["access-control-allow-origin"], &fields["x-request-id"]),
            (&"*".parse().unwrap(), &"7".parse().unwrap())
        );
        assert_eq!(fields["content-encoding"], "gzip");
        let length = response.into_body().collect().await.expect("a whole body").to_bytes().len();
        assert!((100..10_000).contains(&length), "{length} bytes");
    });
}

async fn echo(mut socket: WebSocket) {
    while let Some(Ok(message)) = socket.recv().await {
        if let Message::Text(_) | Message::Binary(_) = message
            && socket.send(message).await.is_err()
        {
            return;
        }
    }
}

#[test]
fn a_websocket_of_axum_opens_over_http2() {
    let runtime = runtime();
    let handle = runtime.handle().clone();
    let upgrade = move |upgrade: WebSocketUpgrade| {
        let handle = handle.clone();
        async move {
            // axum spawns a tokio task.
            let _within = handle.enter();
            upgrade.protocols(["tide"]).on_upgrade(echo)
        }
    };
    let routes = Router::new().route("/ws", get(upgrade.clone())).route("/any", any(upgrade));
    let server = start(routes.route("/page", any(|| async { "a page" })));
    runtime.block_on(async {
        let mut client = server.connect::<Empty<Bytes>>().await;
        let connect = |path: &str| {
            let mut request = request(Method::CONNECT, path, Empty::new());
            request.extensions_mut().insert(hyper::ext::Protocol::from_static("websocket"));
            request.headers_mut().insert("sec-websocket-version", HeaderValue::from_static("13"));
            request.headers_mut().insert("sec-websocket-protocol", HeaderValue::from_static("tide"));
            request
        };
        // hyper waits for the setting of the server by itself; the first response shows that it has come.
        let page = client.send_request(request(Method::GET, "/page", Empty::new())).await.expect("a response");
        assert_eq!(text(page).await, "a page");
        for path in ["/ws", "/any"] {
            let response = client.send_request(connect(path)).await.expect("a response");
            assert_eq!(response.status(), StatusCode::OK);
            assert_eq!(response.headers()["sec-websocket-protocol"], "tide");
            assert!(!response.headers().contains_key("sec-websocket-accept"), "the client has no key");
            let stream = TokioIo::new(hyper::upgrade::on(response).await.expect("a stream"));
            let mut socket = WebSocketStream::from_raw_socket(stream, Role::Client, None).await;
            let messages = [tungstenite::Message::text("rising"), tungstenite::Message::binary(vec![7; 300_000])];
            for message in messages {
                socket.send(message.clone()).await.expect("it is open");
                assert_eq!(socket.next().await.expect("a message").expect("it is open"), message);
            }
            socket.close(None).await.expect("it is open");
            while let Some(Ok(message)) = socket.next().await {
                assert!(message.is_close(), "{message:?}");
            }
        }
        // A function that does not take the protocol does not open a tunnel.
        let refused = client.send_request(connect("/page")).await.expect("a response");
        assert_eq!(refused.status(), StatusCode::NOT_IMPLEMENTED);
        // A drain closes a WebSocket long before its deadline.
        let response = client.send_request(connect("/ws")).await.expect("a response");
        let stream = TokioIo::new(hyper::upgrade::on(response).await.expect("a stream"));
        let mut socket = WebSocketStream::from_raw_socket(stream, Role::Client, None).await;
        server.0.begin_drain(Duration::from_secs(3600));
        let close = socket.next().await.expect("a message").expect("it is open");
        let tungstenite::Message::Close(Some(close)) = close else { panic!("{close:?}") };
        assert_eq!(u16::from(close.code), 1001);
        while let Some(Ok(_)) = socket.next().await {}
    });
    drop(runtime);
    server.0.wait();
}

#[test]
fn an_extended_connect_is_a_get_of_http11_unless_the_function_keeps_it() {
    let seen = |method: Method, version: Version, fields: HeaderMap| async move {
        let field = |name: &str| fields.get(name).map(|value| value.to_str().unwrap_or_default().to_owned());
        let [connection, upgrade, key] = ["connection", "upgrade", "sec-websocket-key"].map(field);
        let seen = format!("{method} {version:?} {connection:?} {upgrade:?} {}", key.is_some());
        (StatusCode::NOT_FOUND, seen)
    };
    let pages = Router::new().route("/", any(seen));
    for (keeps, protocol, expected) in [
        (false, "websocket", "GET HTTP/1.1 Some(\"upgrade\") Some(\"websocket\") true"),
        (true, "websocket", "CONNECT HTTP/2.0 None None false"),
        (false, "connect-udp", "CONNECT HTTP/2.0 None None false"),
    ] {
        let function = tidegate::axum::function(pages.clone());
        let function = if keeps { function.with_extended_connect() } else { function };
        let routes = tidegate::http::Router::new().fallback(function);
        let (codec, handler) = tidegate::http::Config::new().connections(routes)();
        let mut peer = Peer::new(tidegate_testkit::Embedded::<()>::new(codec, handler));
        peer.extended_connect(1, protocol, "/", &[("sec-websocket-version", "13")]);
        peer.read_until(|peer| peer.is_over(1));
        assert_eq!(String::from_utf8_lossy(&peer.stream(1).body), expected);
    }
}

#[test]
fn a_date_and_a_server_of_the_service_are_kept() {
    const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    let own = get(|| async { ([("server", "mine/1"), ("date", DATE), ("x-tide", "ebb")], "own") });
    let routes = tidegate::http::Router::new()
        .get("/ours", || {
            let response = tidegate::http::Response::text("own").header("X-Tide", "ebb")?;
            response.header("Date", DATE)?.header("Server", "mine/1")
        })
        .fallback(tidegate::axum::function(Router::new().route("/own", own)));
    let (codec, handler) = tidegate::http::Config::new().connections(routes)();
    let mut peer = Peer::new(tidegate_testkit::Embedded::<()>::new(codec, handler));
    for (stream, path) in [(1, "/own"), (3, "/ours"), (5, "/own")] {
        peer.request(stream, "GET", path, &[], true);
        peer.read_until(|peer| peer.is_over(stream));
        let received = peer.stream(stream);
        let values = |name: &str| {
            let found = received.fields.iter().filter(|(found, _)| found == name);
            found.map(|(_, value)| value.clone()).collect::<Vec<_>>()
        };
        assert_eq!((values("server"), values("date")), (vec!["mine/1".into()], vec![DATE.into()]), "{path}");
        assert_eq!((received.field("x-tide"), &received.body[..]), (Some("ebb"), &b"own"[..]));
    }
}

#[test]
fn a_stream_that_the_peer_resets_drops_its_function_and_its_body() {
    let alive = Arc::new(AtomicU32::new(0));
    let count = alive.clone();
    let endless = post(move |body: Body| {
        let token = count.clone();
        async move {
            let pieces = body.into_data_stream().map(move |piece| {
                token.fetch_add(1, Ordering::Relaxed);
                piece
            });
            Body::from_stream(pieces)
        }
    });
    let server = start(Router::new().route("/", endless));
    let references = Arc::strong_count(&alive);
    let mut peer = server.peer();
    peer.request(1, "POST", "/", &[], false);
    peer.data(1, b"ebb");
    peer.read_until(|peer| peer.stream(1).body == b"ebb");
    assert!(Arc::strong_count(&alive) > references);
    peer.frame(3, 0, 1, &8_u32.to_be_bytes());
    peer.ping();
    peer.read_until(|peer| peer.pongs == 1);
    for _ in 0..12_000 {
        if Arc::strong_count(&alive) == references {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("the body is still there");
}

#[test]
fn a_stream_that_is_not_read_stops_its_body_and_no_other() {
    let pulled = Arc::new(AtomicU32::new(0));
    let count = pulled.clone();
    let endless = get(move || {
        let count = count.clone();
        async move {
            Body::from_stream(stream::repeat_with(move || {
                count.fetch_add(1, Ordering::Relaxed);
                Ok::<_, Infallible>(vec![b'x'; 10_000])
            }))
        }
    });
    let server = start(Router::new().route("/endless", endless).route("/", get(|| async { "hello" })));
    let mut peer = server.peer();
    peer.grants = false;
    // The windows of the connection, but not of the stream, have room for more.
    peer.frame(8, 0, 0, &1_000_000_u32.to_be_bytes());
    peer.request(1, "GET", "/endless", &[], true);
    peer.read_until(|peer| peer.stream(1).body.len() == 65_535);
    for stream in (3..50).step_by(2) {
        peer.request(stream, "GET", "/", &[], true);
        peer.read_until(|peer| peer.stream(stream).has_ended);
        assert_eq!(peer.stream(stream).body, b"hello");
    }
    let pieces = pulled.load(Ordering::Relaxed);
    assert!((7..40).contains(&pieces), "{pieces} pieces");
}

#[test]
fn a_drain_sends_goaway_twice_and_finishes_open_streams() {
    let server = start(Router::new().route("/", post(|body: Body| async move { body })));
    let mut peer = server.peer();
    peer.request(1, "POST", "/", &[], false);
    peer.data(1, b"before, ");
    peer.read_until(|peer| !peer.stream(1).body.is_empty());
    peer.pings = Some(Vec::new());
    server.0.begin_drain(Duration::from_secs(20));
    peer.read_until(|peer| !peer.goaways.is_empty() && peer.pings.as_ref().is_some_and(|pings| !pings.is_empty()));
    assert_eq!(peer.goaways, [(0, 0x7fff_ffff)], "a warning");
    // A request that was on its way is served. The peer acknowledges the PING of the drain behind it.
    peer.request(3, "POST", "/", &[], true);
    let pings = peer.pings.take().expect("they are kept");
    pings.iter().for_each(|content| peer.frame(6, 1, 0, content));
    peer.read_until(|peer| peer.goaways.len() == 2);
    assert_eq!(peer.goaways[1], (0, 3), "the last stream");
    peer.frame(0, 1, 1, b"after");
    peer.read_until(|peer| peer.stream(1).has_ended && peer.stream(3).has_ended);
    assert_eq!(peer.stream(1).body, b"before, after");
    peer.read_to_end();
    server.0.wait();
}

/// The output of curl, unless it is missing.
fn curl(arguments: &[&str]) -> Option<String> {
    match Command::new("curl").args(arguments).output() {
        Ok(output) => {
            assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
            Some(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        Err(error) => {
            assert!(std::env::var_os("TIDEGATE_TOOLS_REQUIRED").is_none(), "curl: {error}");
            println!("skipped: curl is missing");
            None
        }
    }
}

#[test]
fn tls_selects_the_version() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let provider = Provider::aws_lc_rs();
    let certificates = Certificates::from_pem(&provider, chain.as_bytes(), key.as_bytes()).expect("a certificate");
    let config = ServerConfig::builder(&provider, certificates).build().expect("a configuration");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("an address");
    let serve = tidegate::axum::serve(listener, router()).server(move |server| server.loops(1).tls(config.clone()));
    let server = Running(serve.start().expect("it starts"));
    let url = format!("https://{}/", server.0.address());
    for (version, expected) in [("--http1.1", "HTTP/1.1"), ("--http2", "HTTP/2.0")] {
        let Some(body) = curl(&["-sSk", version, &url]) else { return };
        assert_eq!(body, expected);
    }
}
