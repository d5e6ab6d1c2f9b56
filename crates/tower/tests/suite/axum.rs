//! An axum router, with tower-http layers, on our loops.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Uri};
use axum::response::sse::{Event, Sse};
use axum::routing::{any, get, post};
use axum::{Json, Router, middleware};
use futures_util::{StreamExt, stream};
use http_body::Body as _;
use tidegate::http::{Config, HttpHandler};
use tidegate::{http1, tower};
use tidegate_testkit::Embedded;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::cors::{Any, CorsLayer};
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::request_id::{MakeRequestUuid, PropagateRequestIdLayer, SetRequestIdLayer};
use tower_http::set_header::SetResponseHeaderLayer;
use tower_http::trace::TraceLayer;

#[derive(Clone, Default)]
struct Counter(Arc<AtomicU32>);

#[derive(serde::Deserialize, serde::Serialize)]
struct Sum {
    a: i32,
    b: i32,
}

async fn upload(body: Body) -> Result<String, StatusCode> {
    let mut pieces = body.into_data_stream();
    let mut length = 0;
    while let Some(piece) = pieces.next().await {
        length += piece.map_err(|_| StatusCode::BAD_REQUEST)?.len();
    }
    Ok(length.to_string())
}

fn router() -> Router {
    let nested =
        Router::new().route("/{name}", get(|Path(name): Path<String>| async move { format!("nested {name}") }));
    Router::new()
        .route("/", get(|| async { "hello" }))
        .route(
            "/count",
            get(|State(Counter(count)): State<Counter>| async move {
                (count.fetch_add(1, Ordering::Relaxed) + 1).to_string()
            }),
        )
        .route("/sum", get(|Query(Sum { a, b }): Query<Sum>| async move { (a + b).to_string() }))
        .route("/json", post(|Json(Sum { a, b }): Json<Sum>| async move { Json(Sum { a: b, b: a }) }))
        .route("/echo", post(|body: Bytes| async move { body }))
        .route("/pass", post(|body: Body| async move { body }))
        .route("/upload", post(upload))
        .route("/stream", get(|| async { Body::from_stream(stream::iter(["a", "b", "c"]).map(Ok::<_, Infallible>)) }))
        .route(
            "/events",
            get(|| async {
                Sse::new(stream::iter(["x", "y"]).map(|data| Ok::<_, Infallible>(Event::default().data(data))))
            }),
        )
        .route("/method", any(|method: Method| async move { method.to_string() }))
        .route("/status", get(|| async { (StatusCode::IM_A_TEAPOT, [("x-tea", "green")], "short and stout") }))
        .route(
            "/panic",
            get(|| async {
                if true {
                    panic!("on purpose")
                }
            }),
        )
        .nest("/nest", nested)
        .with_state(Counter::default())
}

type Pipe = Embedded<()>;

fn open(router: Router) -> Pipe {
    let routes = tidegate::http::Router::new().fallback(tower::function(router));
    let (codec, handler): (http1::Server, HttpHandler) = Config::new().connections(routes)();
    Embedded::new(codec, handler)
}

fn ask(pipe: &mut Pipe, wire: impl AsRef<[u8]>) -> String {
    pipe.receive(wire.as_ref());
    String::from_utf8(pipe.take_written()).expect("text")
}

fn get_path(pipe: &mut Pipe, path: &str) -> String {
    ask(pipe, format!("GET {path} HTTP/1.1\r\nHost: sea\r\n\r\n"))
}

fn post_to(pipe: &mut Pipe, path: &str, content_type: &str, body: &str) -> String {
    let length = body.len();
    ask(
        pipe,
        format!(
            "POST {path} HTTP/1.1\r\nHost: sea\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\r\n{body}"
        ),
    )
}

#[test]
fn a_router_answers_as_on_its_own_server() {
    let mut pipe = open(router());
    for (path, body) in [
        ("/", "hello"),
        ("/count", "1"),
        ("/count", "2"),
        ("/sum?a=13&b=42", "55"),
        ("/nest/tide", "nested tide"),
        ("/method", "GET"),
    ] {
        let answer = get_path(&mut pipe, path);
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with(&format!("\r\n\r\n{body}")), "{answer}");
    }
    assert!(get_path(&mut pipe, "/stream").ends_with("1\r\na\r\n1\r\nb\r\n1\r\nc\r\n0\r\n\r\n"));
    let events = get_path(&mut pipe, "/events");
    assert!(events.contains("data: x\n\n") && events.contains("data: y\n\n"), "{events}");
    let status = get_path(&mut pipe, "/status");
    assert!(status.starts_with("HTTP/1.1 418") && status.contains("\r\nx-tea: green\r\n"), "{status}");
    assert!(get_path(&mut pipe, "/none").starts_with("HTTP/1.1 404 "));
    assert!(post_to(&mut pipe, "/", "text/plain", "x").starts_with("HTTP/1.1 405 "));
    let head = ask(&mut pipe, "HEAD / HTTP/1.1\r\nHost: sea\r\n\r\n");
    assert!(head.contains("\r\nContent-Length: 5\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    assert!(!pipe.is_write_closed());
}

#[test]
fn bodies_are_read_whole_in_pieces_or_passed_on() {
    let mut pipe = open(router());
    assert!(post_to(&mut pipe, "/json", "application/json", "{\"a\":1,\"b\":2}").ends_with("{\"a\":2,\"b\":1}"));
    assert!(post_to(&mut pipe, "/json", "text/plain", "{}").starts_with("HTTP/1.1 415 "));
    for path in ["/echo", "/pass"] {
        assert!(post_to(&mut pipe, path, "text/plain", "tides").contains("tides"), "{path}");
    }
    pipe.receive(b"POST /upload HTTP/1.1\r\nHost: sea\r\nContent-Length: 300000\r\n\r\n");
    for _ in 0..300 {
        pipe.receive(&[b'x'; 1000]);
    }
    let answer = String::from_utf8(pipe.take_written()).unwrap();
    assert!(answer.ends_with("\r\n\r\n300000"), "{answer}");
    let chunked =
        "POST /upload HTTP/1.1\r\nHost: sea\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    assert!(ask(&mut pipe, chunked).ends_with("\r\n\r\n5"));
    // A body that no one reads is skipped.
    assert!(post_to(&mut pipe, "/method", "text/plain", "unread").ends_with("POST"));
    assert!(get_path(&mut pipe, "/").ends_with("hello"));
}

#[test]
fn layers_of_tower_http_work() {
    let id = HeaderName::from_static("x-request-id");
    let layered = router()
        .layer(CatchPanicLayer::new())
        .layer(RequestBodyLimitLayer::new(10))
        .layer(SetResponseHeaderLayer::overriding(HeaderName::from_static("x-sea"), HeaderValue::from_static("north")))
        .layer(PropagateRequestIdLayer::new(id.clone()))
        .layer(SetRequestIdLayer::new(id, MakeRequestUuid))
        .layer(CorsLayer::new().allow_origin(Any))
        .layer(TraceLayer::new_for_http())
        .layer(CompressionLayer::new())
        .layer(middleware::from_fn(async |request, next: middleware::Next| next.run(request).await));
    let mut pipe = open(layered);
    let answer = ask(&mut pipe, "GET / HTTP/1.1\r\nHost: sea\r\nOrigin: http://shore\r\nX-Request-Id: 7\r\n\r\n");
    for field in ["x-sea: north", "x-request-id: 7", "access-control-allow-origin: *"] {
        assert!(answer.contains(&format!("\r\n{field}\r\n")), "{answer}");
    }
    assert!(post_to(&mut pipe, "/echo", "text/plain", "longer than ten").starts_with("HTTP/1.1 413 "));
    let mut pipe = open(router().layer(CatchPanicLayer::new()));
    assert!(get_path(&mut pipe, "/panic").starts_with("HTTP/1.1 500 "));
    assert!(get_path(&mut pipe, "/").ends_with("hello"));
}

#[test]
fn a_slow_reader_stops_the_body_of_a_response() {
    let pulled = Arc::new(AtomicU32::new(0));
    let count = pulled.clone();
    let endless = Router::new().route(
        "/",
        get(move || async move {
            Body::from_stream(stream::repeat_with(move || {
                count.fetch_add(1, Ordering::Relaxed);
                Ok::<_, Infallible>(vec![b'x'; 10_000])
            }))
        }),
    );
    let mut pipe = open(endless);
    pipe.limit_peer_reads(0);
    pipe.receive(b"GET / HTTP/1.1\r\nHost: sea\r\n\r\n");
    let before = pulled.load(Ordering::Relaxed);
    assert!((1..20).contains(&before), "{before} pieces");
    pipe.limit_peer_reads(100_000);
    let after = pulled.load(Ordering::Relaxed);
    assert!(after > before && after < before + 20, "{after} pieces");
    pipe.reset();
    assert!(pipe.is_closed());
    assert_eq!(Arc::strong_count(&pulled), 1, "the stream is dropped with its connection");
}

#[test]
fn a_service_that_never_responds_and_one_that_fails() {
    let pending = Router::new().route("/", get(|| async { std::future::pending::<()>().await }));
    let mut pipe = open(pending);
    pipe.receive(b"GET / HTTP/1.1\r\nHost: sea\r\n\r\n");
    pipe.advance(Duration::from_secs(61));
    assert!(String::from_utf8(pipe.take_written()).unwrap().starts_with("HTTP/1.1 503 "));

    let failing = Router::new().route(
        "/",
        get(|| async { Body::from_stream(stream::iter([Ok("some"), Err(std::io::Error::other("on purpose"))])) }),
    );
    let mut pipe = open(failing);
    let answer = get_path(&mut pipe, "/");
    assert!(answer.contains("some") && !answer.contains("\r\n0\r\n"), "{answer}");
    assert!(pipe.is_write_closed());
}

/// A body that has trailers alone, as the gRPC response to a call without messages.
struct TrailersAlone(Option<HeaderMap>);

impl http_body::Body for TrailersAlone {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.take().map(|trailers| Ok(http_body::Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }
}

#[test]
fn a_body_of_trailers_alone_is_sent_with_them() {
    let trailers = || {
        let mut fields = HeaderMap::new();
        fields.insert("grpc-status", HeaderValue::from_static("0"));
        Response::new(Body::new(TrailersAlone(Some(fields))))
    };
    let mut pipe = open(Router::new().route("/", get(move || async move { trailers() })));
    let answer = get_path(&mut pipe, "/");
    assert!(answer.ends_with("\r\n\r\n0\r\ngrpc-status: 0\r\n\r\n"), "{answer}");
}

#[test]
fn the_size_hint_of_a_body_is_its_rest() {
    let sizes = |request: axum::extract::Request| async move {
        let mut body = request.into_body();
        let mut sizes = vec![body.size_hint().exact()];
        while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            frame.expect("the peer sends all of it");
            sizes.push(body.size_hint().exact());
        }
        format!("{sizes:?}")
    };
    let mut pipe = open(Router::new().route("/", post(sizes)));
    pipe.receive(b"POST / HTTP/1.1\r\nHost: sea\r\nContent-Length: 7\r\n\r\ntide");
    let answer = ask(&mut pipe, "ebb");
    assert!(answer.ends_with("\r\n\r\n[Some(7), Some(3), Some(0)]"), "{answer}");
}

/// Takes one from a counter for as long as it lives.
struct Permit(Arc<AtomicU32>);

impl Permit {
    fn take(from: &Arc<AtomicU32>) -> Self {
        from.fetch_sub(1, Ordering::Relaxed);
        Self(from.clone())
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_client_that_ends_its_side_has_its_handler_and_its_body_dropped() {
    let permits = Arc::new(AtomicU32::new(1));
    let [handler, body, events] = std::array::from_fn(|_| permits.clone());
    let router = Router::new()
        .route(
            "/handler",
            get(move || async move {
                let _permit = Permit::take(&handler);
                std::future::pending::<&'static str>().await
            })
            .post(move |request: axum::extract::Request| async move {
                let (_permit, _unread) = (Permit::take(&body), request);
                std::future::pending::<&'static str>().await
            }),
        )
        .route(
            "/events",
            get(move || async move {
                let permit = Permit::take(&events);
                let begin = stream::iter([Ok::<_, Infallible>(Event::default().data("x"))]);
                Sse::new(begin.chain(stream::pending()).map(move |event| {
                    let _permit = &permit;
                    event
                }))
            }),
        );
    for wire in [
        "GET /handler HTTP/1.1\r\nHost: sea\r\n\r\n",
        "GET /events HTTP/1.1\r\nHost: sea\r\n\r\n",
        "POST /handler HTTP/1.1\r\nHost: sea\r\nContent-Length: 1000\r\n\r\nsome",
    ] {
        let mut pipe = open(router.clone());
        pipe.receive(wire.as_bytes());
        assert_eq!(permits.load(Ordering::Relaxed), 0, "{wire}");
        pipe.receive_fin();
        assert_eq!(permits.load(Ordering::Relaxed), 1, "{wire}");
        assert!(pipe.is_closed(), "{wire}");
    }
}

/// `http::Uri` refuses some of the bytes that user agents send: a service gets them as escapes.
#[test]
fn targets_reach_axum_as_user_agents_send_them() {
    let router = || {
        Router::new()
            .route("/of/{name}", get(|Path(name): Path<String>| async move { name }))
            .fallback(|uri: Uri| async move { uri.to_string() })
    };
    for (target, expected) in [
        (&b"/a|b{c}^\"?|`"[..], "/a|b{c}^\"?|`"),
        (b"/of/100%", "100%"),
        (b"/of/a|b", "a|b"),
        (b"/of/`<>", "`<>"),
        (b"/of/\xc3\xa9", "é"),
        (b"/`%41%zz?`%", "/%60%41%zz?%60%"),
        (b"/x?\xe9", "/x?%E9"),
    ] {
        let answer = ask(&mut open(router()), [b"GET ", target, b" HTTP/1.1\r\nHost: sea\r\n\r\n"].concat());
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with(&format!("\r\n\r\n{expected}")), "{answer}");
    }
}
