//! Tower and tower-http layers, and axum's features beside functions, each by name.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::{ConnectInfo, Multipart};
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::sse::{Event, Sse};
use axum::routing::{get, post};
use futures_util::stream;
use tidegate::ServerHandle;
use tidegate_testkit::Embedded;
use tokio::runtime::{Builder, Runtime};
use tower::limit::ConcurrencyLimitLayer;
use tower_http::csrf::CsrfLayer;
use tower_http::normalize_path::NormalizePath;
use tower_http::sensitive_headers::SetSensitiveRequestHeadersLayer;
use tower_http::services::ServeDir;
use tower_http::timeout::TimeoutLayer;
use tower_http::validate_request::ValidateRequestHeaderLayer;

type Pipe = Embedded<()>;

fn open<S>(service: S) -> Pipe
where
    S: tidegate::tower::TowerService<axum::body::Body> + Clone + 'static,
{
    let routes = tidegate::http::Router::new().fallback(tidegate::axum::function(service));
    let (codec, handler) = tidegate::http::Config::new().connections(routes)();
    Embedded::new(codec, handler)
}

fn ask(pipe: &mut Pipe, wire: impl AsRef<[u8]>) -> String {
    pipe.receive(wire.as_ref());
    String::from_utf8(pipe.take_written()).expect("text")
}

fn get_with(pipe: &mut Pipe, path: &str, fields: &str) -> String {
    ask(pipe, format!("GET {path} HTTP/1.1\r\nHost: sea\r\n{fields}\r\n"))
}

fn hello() -> Router {
    Router::new().route("/", get(|| async { "hello" }))
}

/// A tokio runtime, for layers that need its timers and its threads.
fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("threads")
}

/// The response, once a tokio thread has done its part.
fn wait(pipe: &mut Pipe, is_complete: impl Fn(&str) -> bool) -> String {
    let mut all = String::new();
    for _ in 0..120_000 {
        pipe.run();
        all += &String::from_utf8(pipe.take_written()).expect("text");
        if is_complete(&all) {
            return all;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("the response is not complete: {all}");
}

/// Counts how often a layer is made.
#[derive(Clone, Default)]
struct Count(Arc<AtomicU32>);

impl<S> tower::Layer<S> for Count {
    type Service = S;

    fn layer(&self, service: S) -> S {
        self.0.fetch_add(1, Ordering::Relaxed);
        service
    }
}

#[test]
fn layers_of_routes_are_made_once() {
    let made = |open: &dyn Fn(Count) -> Pipe| {
        let count = Count::default();
        let mut pipe = open(count.clone());
        let before = count.0.load(Ordering::Relaxed);
        for _ in 0..3 {
            assert!(get_with(&mut pipe, "/", "").ends_with("hello"));
        }
        assert!(before > 0);
        count.0.load(Ordering::Relaxed) - before
    };
    let route = |count: Count| get(|| async { "hello" }).layer(count);
    assert_eq!(made(&|count| open(Router::new().route("/", route(count)))), 0);
    assert_eq!(made(&|count| open(route(count))), 0, "a MethodRouter");
    assert_eq!(made(&|count| open(Router::new().fallback(|| async { "hello" }).layer(count))), 0, "a fallback");
    let deadlines = |count| open(tidegate::tower::grpc::Deadlines::new(Router::new().route("/", route(count))));
    assert_eq!(made(&deadlines), 0, "with deadlines of gRPC");
}

#[test]
fn a_limit_of_a_route_is_one_for_all_loops() {
    let count = Count::default();
    let router = Router::new().route("/", get(|| async { "hello" }).layer(count.clone()));
    let made: [fn(Router, TcpListener) -> ServerHandle; 3] = [
        |router, listener| {
            let serve = tidegate::axum::serve(listener, router);
            serve.server(|server| server.loops(2)).start().expect("it starts")
        },
        |router, listener| {
            let serve = tidegate::axum::serve(listener, router.into_make_service());
            serve.server(|server| server.loops(2)).start().expect("it starts")
        },
        |router, listener| {
            let service = router.into_make_service_with_connect_info::<SocketAddr>();
            let serve = tidegate::axum::serve(listener, service);
            serve.server(|server| server.loops(2)).start().expect("it starts")
        },
    ];
    for start in made {
        let listener = TcpListener::bind("127.0.0.1:0").expect("an address");
        let address = listener.local_addr().expect("an address");
        let server = start(router.clone(), listener);
        let before = count.0.load(Ordering::Relaxed);
        for _ in 0..8 {
            let mut client = TcpStream::connect(address).expect("a connection");
            client.write_all(b"GET / HTTP/1.1\r\nHost: sea\r\nConnection: close\r\n\r\n").expect("it is sent");
            let mut answer = String::new();
            client.read_to_string(&mut answer).expect("a response");
            assert!(answer.ends_with("hello"), "{answer}");
        }
        assert_eq!(count.0.load(Ordering::Relaxed), before);
        server.drain(Duration::ZERO);
    }
}

#[test]
fn auth() {
    let mut pipe = open(hello().layer(ValidateRequestHeaderLayer::accept("text/plain")));
    assert!(get_with(&mut pipe, "/", "Accept: text/plain\r\n").ends_with("hello"));
    assert!(get_with(&mut pipe, "/", "Accept: image/png\r\n").starts_with("HTTP/1.1 406 "));
}

#[test]
fn csrf() {
    let form = Router::new().route("/", post(|| async { "changed" }));
    let mut pipe = open(form.layer(CsrfLayer::new()));
    let wire = "POST / HTTP/1.1\r\nHost: sea\r\nContent-Length: 0\r\nSec-Fetch-Site: SITE\r\n\r\n";
    assert!(ask(&mut pipe, wire.replace("SITE", "same-origin")).ends_with("changed"));
    assert!(ask(&mut pipe, wire.replace("SITE", "cross-site")).starts_with("HTTP/1.1 403 "));
}

#[test]
fn sensitive_headers() {
    let seen = Router::new()
        .route("/", get(|fields: HeaderMap| async move { fields[header::AUTHORIZATION].is_sensitive().to_string() }));
    let mut pipe = open(seen.layer(SetSensitiveRequestHeadersLayer::new([header::AUTHORIZATION])));
    assert!(get_with(&mut pipe, "/", "Authorization: Bearer 7\r\n").ends_with("true"));
}

#[test]
fn normalize_path() {
    let router = Router::new().route("/tides", get(|| async { "rising" }));
    let mut pipe = open(NormalizePath::trim_trailing_slash(router));
    assert!(get_with(&mut pipe, "/tides/", "").ends_with("rising"));
}

#[test]
fn timeout() {
    let runtime = runtime();
    let _within = runtime.enter();
    let slow = Router::new()
        .route("/", get(|| async { std::future::pending::<()>().await }))
        .route("/now", get(|| async { "now" }));
    let layer = TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, Duration::from_millis(20));
    let mut pipe = open(slow.layer(layer));
    assert!(get_with(&mut pipe, "/now", "").ends_with("now"));
    pipe.receive(b"GET / HTTP/1.1\r\nHost: sea\r\n\r\n");
    assert!(wait(&mut pipe, |all| all.contains("\r\n\r\n")).starts_with("HTTP/1.1 504 "));
}

#[test]
fn serve_dir() {
    let runtime = runtime();
    let _within = runtime.enter();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/suite");
    let mut pipe = open(Router::new().nest_service("/files", ServeDir::new(folder)));
    let source = include_str!("layers.rs");
    pipe.receive(b"GET /files/layers.rs HTTP/1.1\r\nHost: sea\r\n\r\n");
    let answer = wait(&mut pipe, |all| all.ends_with(source));
    assert!(answer.contains(&format!("\r\nContent-Length: {}\r\n", source.len())), "{answer}");
    pipe.receive(b"GET /files/none HTTP/1.1\r\nHost: sea\r\n\r\n");
    assert!(wait(&mut pipe, |all| all.contains("\r\n\r\n")).starts_with("HTTP/1.1 404 "));
}

#[test]
fn a_service_that_is_not_ready_is_waited_for() {
    let (finish, finished) = tokio::sync::watch::channel(false);
    let waits = Router::new().route(
        "/",
        get(move || {
            let mut finished = finished.clone();
            async move { finished.wait_for(|finished| *finished).await.map(|_| "done").unwrap_or("gone") }
        }),
    );
    let limited = tower::Layer::layer(&ConcurrencyLimitLayer::new(1), waits);
    let routes = tidegate::http::Router::new().fallback(tidegate::axum::function(limited));
    let connections = tidegate::http::Config::new().connections(routes);
    // Both connections are of the same service, on loops of their own in this test.
    let mut pipes = [(); 2].map(|()| {
        let (codec, handler) = connections();
        Embedded::new(codec, handler)
    });
    for pipe in &mut pipes {
        assert_eq!(get_with(pipe, "/", ""), "");
    }
    finish.send(true).expect("both wait");
    for pipe in &mut pipes {
        pipe.run();
        assert!(String::from_utf8(pipe.take_written()).unwrap().ends_with("done"));
    }
    assert!(get_with(&mut pipes[0], "/", "").ends_with("done"));
}

#[test]
fn multipart() {
    let upload = Router::new().route(
        "/",
        post(|mut form: Multipart| async move {
            let mut names = String::new();
            while let Some(field) = form.next_field().await.expect("it is well-formed") {
                names +=
                    &format!("{}={};", field.name().unwrap_or_default().to_owned(), field.text().await.expect("text"));
            }
            names
        }),
    );
    let mut pipe = open(upload);
    let body = "--sea\r\nContent-Disposition: form-data; name=\"tide\"\r\n\r\nebb\r\n--sea\r\nContent-Disposition: form-data; name=\"metres\"\r\n\r\n3\r\n--sea--\r\n";
    let length = body.len();
    let head = format!(
        "POST / HTTP/1.1\r\nHost: sea\r\nContent-Type: multipart/form-data; boundary=sea\r\nContent-Length: {length}\r\n\r\n"
    );
    assert!(ask(&mut pipe, head + body).ends_with("tide=ebb;metres=3;"));
}

#[test]
fn the_head_of_events_does_not_wait_for_the_first_event() {
    let events = Router::new()
        .route("/", get(|| async { Sse::new(stream::pending::<Result<Event, std::convert::Infallible>>()) }));
    let mut pipe = open(events);
    let answer = get_with(&mut pipe, "/", "");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\n"), "{answer}");
    assert!(answer.to_lowercase().contains("\r\ncontent-type: text/event-stream\r\n"), "{answer}");
}

#[test]
fn connect_info() {
    let whose = Router::new().route(
        "/",
        get(|ConnectInfo(peer): ConnectInfo<SocketAddr>| async move { peer.ip().is_loopback().to_string() }),
    );
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serve = tidegate::axum::serve(listener, whose).with_connect_info();
    let server = serve.server(|server| server.loops(1)).start().unwrap();
    assert!(fetch(address).ends_with("true"));
    server.drain(Duration::from_secs(5));
}

#[test]
fn serve_takes_makers_of_services() {
    let whose = || {
        Router::new().route(
            "/",
            get(|info: Option<axum::Extension<ConnectInfo<SocketAddr>>>| async move {
                info.map_or("unknown".to_owned(), |info| info.0.0.ip().is_loopback().to_string())
            }),
        )
    };
    /// The result of a call, as a service that is started.
    fn started<S, M>(service: S) -> (SocketAddr, ServerHandle)
    where
        S: tidegate::axum::IntoService<M>,
    {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = tidegate::axum::serve(listener, service).server(|server| server.loops(1)).start().unwrap();
        (address, server)
    }
    for ((address, server), wanted) in [
        (started(whose()), "unknown"),
        (started(whose().into_make_service()), "unknown"),
        (started(whose().into_make_service_with_connect_info::<SocketAddr>()), "true"),
        (started(get(async || "method")), "method"),
        (started(get(async || "method").into_make_service()), "method"),
        (
            started(axum::ServiceExt::<axum::extract::Request>::into_make_service(NormalizePath::trim_trailing_slash(
                whose(),
            ))),
            "unknown",
        ),
        (started(axum::handler::HandlerWithoutStateExt::into_make_service(async || "function")), "function"),
    ] {
        let answer = fetch(address);
        assert!(answer.ends_with(wanted), "{wanted}: {answer}");
        server.drain(Duration::from_secs(5));
    }
}

/// One request on a connection of its own.
fn fetch(address: SocketAddr) -> String {
    use std::io::{Read, Write};
    let mut stream = TcpStream::connect(address).expect("the server listens");
    stream.write_all(b"GET / HTTP/1.1\r\nHost: sea\r\nConnection: close\r\n\r\n").expect("the server reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the server responds");
    answer
}

/// The interface of the service below.
#[derive(utoipa::OpenApi)]
#[openapi(paths(tide))]
struct Interface;

#[utoipa::path(get, path = "/tide", responses((status = 200, description = "where the water goes")))]
async fn tide() -> &'static str {
    "rising"
}

#[test]
fn the_pages_of_utoipa() {
    use utoipa::OpenApi;
    let pages = utoipa_swagger_ui::SwaggerUi::new("/pages").url("/interface.json", Interface::openapi());
    let mut pipe = open(Router::new().route("/tide", get(tide)).merge(pages));
    let answer = get_with(&mut pipe, "/interface.json", "");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("where the water goes"), "{answer}");
    let answer = get_with(&mut pipe, "/pages", "");
    assert!(
        answer.starts_with("HTTP/1.1 303 ") && answer.to_lowercase().contains("\r\nlocation: /pages/\r\n"),
        "{answer}"
    );
    for (path, kind) in
        [("/pages/", "text/html"), ("/pages/swagger-ui.css", "text/css"), ("/pages/swagger-ui-bundle.js", "javascript")]
    {
        let answer = get_with(&mut pipe, path, "");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains(kind), "{path}: {head}");
        assert!(head.to_lowercase().contains(&format!("content-length: {}", body.len())), "{path}: {head}");
    }
    assert!(get_with(&mut pipe, "/pages/nothing", "").starts_with("HTTP/1.1 404 "));
    assert!(get_with(&mut pipe, "/tide", "").ends_with("rising"));
}

#[test]
fn serve_is_awaited_as_that_of_axum() {
    runtime().block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let serving = tidegate::axum::serve(listener, hello()).with_graceful_shutdown(async move {
            let _ = stopped.await;
        });
        let serving = tokio::spawn(serving.into_future());
        let answer = tokio::task::spawn_blocking(move || fetch(address)).await.unwrap();
        assert!(answer.ends_with("hello"), "{answer}");
        stop.send(()).expect("the server runs");
        serving.await.expect("no panic").expect("the server has run");
        assert!(TcpStream::connect(address).is_err());
    });
}

#[test]
fn request_ids_and_fields_reach_the_service_in_their_order() {
    let fields = Router::new().route(
        "/",
        get(|fields: HeaderMap| async move {
            let all = fields.get_all(HeaderName::from_static("x-tide"));
            all.iter().map(|value| value.to_str().unwrap_or("?").to_owned() + ";").collect::<String>()
        }),
    );
    let mut pipe = open(fields);
    // The heads of a batch share memory.
    for round in 0..100 {
        let answer = get_with(&mut pipe, "/", &format!("X-Tide: ebb {round}\r\nOther: 1\r\nX-Tide: flow\r\n"));
        assert!(answer.ends_with(&format!("ebb {round};flow;")), "{answer}");
    }
}

#[test]
fn events_end_whole_at_a_drain() {
    let events = get(|| async {
        let first = stream::iter([Ok::<_, std::convert::Infallible>(Event::default().data("ebb"))]);
        Sse::new(futures_util::StreamExt::chain(first, stream::pending()))
    });
    let mut pipe = open(Router::new().route("/", events));
    assert!(get_with(&mut pipe, "/", "").ends_with("data: ebb\n\n\r\n"));
    pipe.drain(Duration::from_secs(3600));
    assert_eq!(pipe.take_written(), b"0\r\n\r\n");
    // An idle connection waits so long for a request that is on its way.
    pipe.advance(Duration::from_secs(1));
    assert!(pipe.is_write_closed());
    pipe.receive_fin();
    assert!(pipe.is_drained());
}
