//! Services that misbehave, and bodies that outlive their connection.

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::routing::{get, post};
use http_body::Body as _;
use tidegate_testkit::Embedded;

type Pipe = Embedded<()>;

fn open(router: Router) -> Pipe {
    let routes = tidegate::http::Router::new().fallback(tidegate::axum::function(router));
    let (codec, handler) = tidegate::http::Config::new().connections(routes)();
    Embedded::new(codec, handler)
}

fn ask(pipe: &mut Pipe, wire: impl AsRef<[u8]>) -> String {
    pipe.receive(wire.as_ref());
    String::from_utf8(pipe.take_written()).expect("text")
}

fn get_path(pipe: &mut Pipe, path: &str) -> String {
    ask(pipe, format!("GET {path} HTTP/1.1\r\nHost: sea\r\n\r\n"))
}

/// A service that panics when it is called, not when its future is polled.
#[derive(Clone)]
struct PanicsAtCall(bool);

impl tower::Service<Request> for PanicsAtCall {
    type Response = axum::response::Response;
    type Error = std::convert::Infallible;
    type Future = std::future::Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        assert!(!(self.0 && request.uri().path() == "/panic"), "on purpose");
        std::future::ready(Ok(axum::response::IntoResponse::into_response("fine")))
    }
}

#[test]
fn a_service_that_panics_responds_500_and_serves_other_connections() {
    let panics = || {
        Router::new()
            .route("/panic", get(|request: Request| async move { assert_eq!(request.uri().path(), "/", "on purpose") }))
            .route("/", get(|| async { "fine" }))
    };
    let routes = tidegate::http::Router::new().fallback(tidegate::axum::function(panics()));
    let connections = tidegate::http::Config::new().connections(routes);
    for _ in 0..3 {
        let (codec, handler) = connections();
        let mut pipe = Embedded::new(codec, handler);
        assert!(get_path(&mut pipe, "/").ends_with("fine"));
        assert!(get_path(&mut pipe, "/panic").starts_with("HTTP/1.1 500 "));
        assert!(pipe.is_write_closed());
    }
    let routes = tidegate::http::Router::new().fallback(tidegate::axum::function(PanicsAtCall(true)));
    let connections = tidegate::http::Config::new().connections(routes);
    for _ in 0..3 {
        let (codec, handler) = connections();
        let mut pipe = Embedded::new(codec, handler);
        assert!(get_path(&mut pipe, "/").ends_with("fine"));
        assert!(get_path(&mut pipe, "/panic").starts_with("HTTP/1.1 500 "));
    }
}

#[test]
fn a_body_that_is_kept_longer_than_its_connection_yields_an_error() {
    let kept: Arc<Mutex<Option<Body>>> = Arc::default();
    let keeps = kept.clone();
    let router = Router::new().route(
        "/",
        post(move |body: Body| {
            let keeps = keeps.clone();
            async move {
                *keeps.lock().unwrap() = Some(body);
                std::future::pending::<()>().await;
            }
        }),
    );
    for is_reset in [true, false] {
        let mut pipe = open(router.clone());
        pipe.receive(b"POST / HTTP/1.1\r\nHost: sea\r\nContent-Length: 10\r\n\r\nsome");
        let mut body = kept.lock().unwrap().take().expect("the service has it");
        if is_reset {
            pipe.reset();
        } else {
            drop(pipe);
        }
        let mut cx = Context::from_waker(Waker::noop());
        let mut polled = std::pin::Pin::new(&mut body).poll_frame(&mut cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            // Earlier input may still be there.
            assert_eq!(frame.data_ref().map(|data| &data[..]), Some(&b"some"[..]));
            polled = std::pin::Pin::new(&mut body).poll_frame(&mut cx);
        }
        assert!(matches!(polled, Poll::Ready(Some(Err(_)))), "{polled:?}");
        assert!(matches!(std::pin::Pin::new(&mut body).poll_frame(&mut cx), Poll::Ready(None)));
    }
}

#[test]
fn a_body_that_is_read_after_the_response_yields_an_error() {
    let kept: Arc<Mutex<Option<Body>>> = Arc::default();
    let keeps = kept.clone();
    let router = Router::new().route(
        "/",
        post(move |body: Body| {
            let keeps = keeps.clone();
            async move {
                *keeps.lock().unwrap() = Some(body);
                "done"
            }
        }),
    );
    let mut pipe = open(router);
    let wire = "POST / HTTP/1.1\r\nHost: sea\r\nContent-Length: 4\r\n\r\nsome";
    assert!(ask(&mut pipe, wire).ends_with("done"));
    let mut body = kept.lock().unwrap().take().expect("the service has it");
    // The next request of the connection has a body too, which is not that one.
    pipe.receive(wire.as_bytes());
    let polled = std::pin::Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(polled, Poll::Ready(Some(Err(_)))), "{polled:?}");
}

#[test]
fn a_body_that_the_service_drops_unread_is_skipped() {
    let mut pipe = open(Router::new().route("/", post(|| async { "unread" }).get(|| async { "fine" })));
    for _ in 0..3 {
        let wire = "POST / HTTP/1.1\r\nHost: sea\r\nContent-Length: 4\r\n\r\nsome";
        assert!(ask(&mut pipe, wire).ends_with("unread"));
        assert!(get_path(&mut pipe, "/").ends_with("fine"));
    }
    // One that is long, and not there yet, ends the connection behind the response.
    let answer = ask(&mut pipe, "POST / HTTP/1.1\r\nHost: sea\r\nContent-Length: 9000000\r\n\r\nsome");
    assert!(answer.contains("\r\nConnection: close\r\n") && answer.ends_with("unread"), "{answer}");
}

#[test]
fn a_router_with_ten_thousand_routes() {
    let mut router = Router::new();
    for number in 0..10_000 {
        router = router.route(&format!("/r{number}/{{id}}"), get(move || async move { number.to_string() }));
    }
    let mut pipe = open(router);
    for number in [0, 7, 4999, 9999] {
        let answer = get_path(&mut pipe, &format!("/r{number}/x"));
        assert!(answer.ends_with(&format!("\r\n\r\n{number}")), "{answer}");
    }
    assert!(get_path(&mut pipe, "/r10000/x").starts_with("HTTP/1.1 404 "));
}

#[test]
fn a_body_that_is_shorter_than_its_length_does_not_look_complete() {
    let short = || async {
        let body = Body::from_stream(futures_util::stream::iter([Ok::<_, std::convert::Infallible>("spring")]));
        ([("content-length", "11")], body)
    };
    let mut pipe = open(Router::new().route("/", get(short)));
    let wire = get_path(&mut pipe, "/").to_ascii_lowercase();
    assert!(wire.contains("content-length: 11\r\n") && wire.ends_with("\r\n\r\nspring"), "{wire}");
    assert!(pipe.is_write_closed(), "the peer sees that something is missing");
}
