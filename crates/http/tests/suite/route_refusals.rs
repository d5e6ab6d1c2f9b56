//! Responses of limits to requests whose functions are not called: the middleware of their routes sees them.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use tidegate::ConnectionRate;
use tidegate::http::{
    Body, Config, HttpHandler, Limits, Middleware, Next, RateLimit, Request, RequestInfo, Response, Router, StatusCode,
    route, with_middleware,
};
use tidegate::http1::Server;
use tidegate_testkit::Embedded;

use crate::support::http2_peer;
use crate::support::http3_stage::{DATA, Received, Stage, frame, receive, request};

/// Adds a letter to the fields `Trail` of the response, and counts the requests and the responses that it has seen.
#[derive(Clone)]
struct Letter(&'static str, Rc<Cell<(u32, u32)>>);

impl Middleware for Letter {
    fn before(&self, _: &mut Request) -> Result<(), Response> {
        let (requests, responses) = self.1.get();
        self.1.set((requests + 1, responses));
        Ok(())
    }

    fn after(&self, _: &RequestInfo, response: &mut Response) {
        let (requests, responses) = self.1.get();
        self.1.set((requests, responses + 1));
        response.add_header("Trail", self.0).expect("letters");
    }
}

async fn pass(request: Request, next: Next) -> Response {
    next.run(request).await
}

fn never(_: String) -> &'static str {
    unreachable!("no body is complete")
}

async fn never_async(_: String) -> &'static str {
    unreachable!("no body is complete")
}

async fn never_read(_: Body) -> &'static str {
    unreachable!("the route has a limit")
}

/// The paths of functions that want the whole body, and the middleware that their responses pass.
const WHOLE: &[(&str, &str)] =
    &[("/in/sync", "abd"), ("/in/async", "abd"), ("/in/wrapped", "abd"), ("/in/inner", "abd"), ("/in/bare", "bd")];

/// Routes with middleware. Requests and responses are counted that each of four has seen.
fn router(counts: &[Rc<Cell<(u32, u32)>>; 3]) -> Router {
    let [a, b, d] = [("a", 0), ("b", 1), ("d", 2)].map(|(letter, index)| Letter(letter, counts[index].clone()));
    let inner = Router::new()
        .post("/sync", with_middleware(never).with(a.clone()))
        .post("/async", with_middleware(never_async).with(a.clone()))
        .post("/wrapped", with_middleware(never_async).wrap(pass).with(a.clone()))
        .post("/inner", with_middleware(with_middleware(never).with(a.clone())).wrap(pass))
        .post("/bare", never)
        .post("/limited", route(with_middleware(never_read).with(a.clone())).body_bytes_max(10))
        .post("/limited-sync", route(with_middleware(never).with(a)).body_bytes_max(10))
        .with(b);
    Router::new().nest("/in", inner).with(d)
}

/// Each middleware of a trail has seen one request more, with its response.
fn check_counts(counts: &[Rc<Cell<(u32, u32)>>; 3], trail: &str, path: &str) {
    for (letter, count) in ["a", "b", "d"].into_iter().zip(counts) {
        let expected = u32::from(trail.contains(letter));
        assert_eq!(count.take(), (expected, expected), "{letter} {path}");
    }
}

fn limits() -> Limits {
    let mut limits = Limits::default();
    limits.collected_body_bytes_max = 100;
    // Before the codec finds that the body is too slow.
    limits.receive_timeout = Duration::from_secs(5);
    limits
}

fn trail_of(answer: &str) -> String {
    answer.lines().filter_map(|line| line.strip_prefix("Trail: ")).collect()
}

#[test]
fn middleware_of_a_route_sees_413_and_408_over_http1() {
    let counts = Default::default();
    let exchange = |path: &str, rest: &str, status: &str, trail: &str| {
        let connections = Config::new().limits(limits()).connections(router(&counts));
        let (codec, handler): (Server, HttpHandler) = connections();
        let mut pipe = Embedded::new(codec, handler);
        pipe.receive(format!("POST {path} HTTP/1.1\r\nHost: sea\r\n{rest}").as_bytes());
        if status == "408" {
            assert_eq!(pipe.take_written(), b"");
            pipe.advance(Duration::from_secs(6));
        }
        let answer = String::from_utf8(pipe.take_written()).expect("text");
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{path} {answer}");
        assert_eq!(trail_of(&answer), trail, "{path} {answer}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{path} {answer}");
        check_counts(&counts, trail, path);
    };
    let piece = format!("Transfer-Encoding: chunked\r\n\r\n65\r\n{}", "x".repeat(0x65));
    for (path, trail) in WHOLE {
        exchange(path, "Content-Length: 101\r\n\r\n", "413", trail);
        exchange(path, "Content-Length: 101\r\nExpect: 100-continue\r\n\r\n", "413", trail);
        exchange(path, &piece, "413", trail);
        exchange(path, &format!("{piece}\r\n0\r\n\r\n"), "413", trail);
        exchange(path, "Content-Length: 20\r\n\r\nx", "408", trail);
        // A body without a length is collected behind async middleware, which ends when the body is late.
        let trail = if *path == "/in/inner" { "bd" } else { trail };
        exchange(path, "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n", "408", trail);
    }
    for path in ["/in/limited", "/in/limited-sync"] {
        exchange(path, "Content-Length: 11\r\n\r\n", "413", "abd");
        exchange(path, "Content-Length: 11\r\n\r\nhello hello", "413", "abd");
    }
}

#[test]
fn a_request_behind_one_that_a_task_serves_is_refused_in_the_same_way() {
    let counts = Default::default();
    let router = router(&counts).post("/echo", async |body: Body| body);
    let (codec, handler): (Server, HttpHandler) = Config::new().limits(limits()).connections(router)();
    let mut pipe = Embedded::new(codec, handler);
    let first = "POST /echo HTTP/1.1\r\nHost: sea\r\nContent-Length: 5\r\n\r\nhel";
    let second = "loPOST /in/limited HTTP/1.1\r\nHost: sea\r\nContent-Length: 11\r\n\r\n";
    [first, second].iter().for_each(|wire| pipe.receive(wire.as_bytes()));
    let answers = String::from_utf8(pipe.take_written()).expect("text");
    let (first, second) = answers.split_at(answers.rfind("HTTP/1.1 ").expect("a response"));
    assert!(first.ends_with("hello") && second.starts_with("HTTP/1.1 413 "), "{answers}");
    assert_eq!((trail_of(first).as_str(), trail_of(second).as_str()), ("d", "abd"), "{answers}");
}

#[test]
fn middleware_of_a_route_sees_413_and_408_over_http2() {
    let counts = Default::default();
    let exchange = |path: &str, length: Option<&str>, body: &[u8], status: &str, trail: &str| {
        let (codec, handler) = Config::new().limits(limits()).connections(router(&counts))();
        let mut peer = http2_peer::Peer::new(Embedded::new(codec, handler));
        let length: Vec<_> = length.map(|length| ("content-length", length)).into_iter().collect();
        peer.request(1, "POST", path, &length, false);
        peer.data(1, body);
        peer.wire.run();
        if status == "408" {
            peer.wire.advance(Duration::from_secs(6));
        }
        peer.read_until(|peer| peer.is_over(1));
        let received = peer.stream(1);
        assert_eq!(received.status(), status, "{path}");
        let fields = received.fields.iter().filter(|(name, _)| name == "trail");
        assert_eq!(fields.map(|(_, value)| value.as_str()).collect::<String>(), trail, "{path}");
        check_counts(&counts, trail, path);
    };
    for (path, trail) in WHOLE {
        exchange(path, Some("101"), b"", "413", trail);
        exchange(path, None, &[b'x'; 101], "413", trail);
        exchange(path, Some("20"), b"x", "408", trail);
    }
    exchange("/in/limited", Some("11"), b"x", "413", "abd");
    exchange("/in/limited-sync", Some("11"), b"", "413", "abd");
}

#[test]
fn middleware_of_a_route_sees_413_and_408_over_http3() {
    let counts = Default::default();
    let exchange = |path: &str, length: Option<&str>, body: &'static [u8], status: &str, trail: &str| {
        Stage::simulated(|stage| {
            let server = stage.serve(Config::new().limits(limits()), router(&counts));
            let peer = stage.connect(server);
            let length: Vec<_> = length.map(|length| ("content-length", length)).into_iter().collect();
            let head = request("POST", path, &length);
            let received: Received = stage.task(async move {
                let mut channel = peer.open(&[head, frame(DATA, body)].concat()).await;
                receive(&mut channel).await
            });
            assert_eq!(received.status, status, "{path}");
            let fields = received.fields.iter().filter(|(name, _)| name == "trail");
            assert_eq!(fields.map(|(_, value)| value.as_str()).collect::<String>(), trail, "{path}");
            check_counts(&counts, trail, path);
        });
    };
    for (path, trail) in WHOLE {
        exchange(path, Some("101"), b"", "413", trail);
        exchange(path, None, &[b'x'; 101], "413", trail);
        exchange(path, Some("20"), b"x", "408", trail);
    }
    exchange("/in/limited", Some("11"), b"x", "413", "abd");
}

#[test]
fn middleware_of_a_route_may_refuse_a_request_in_place_of_the_limit() {
    let forbid = async |_: Request, _: Next| StatusCode::FORBIDDEN;
    let router = Router::new().post("/", route(with_middleware(never_async).wrap(forbid)).body_bytes_max(10));
    let (codec, handler): (Server, HttpHandler) = Config::new().connections(router)();
    let mut pipe = Embedded::new(codec, handler);
    pipe.receive(b"POST / HTTP/1.1\r\nHost: sea\r\nContent-Length: 11\r\n\r\n");
    assert!(pipe.take_written().starts_with(b"HTTP/1.1 403 "));
}

#[test]
fn a_request_beyond_the_rate_of_a_route_costs_no_work_of_its_middleware() {
    let counts: [Rc<Cell<(u32, u32)>>; 3] = Default::default();
    let letter = Letter("a", counts[0].clone());
    let limit = RateLimit::new(ConnectionRate::per_minute(1).burst(1));
    let router = Router::new().get("/", route(with_middleware(|| "ebb").with(letter)).rate_limit(limit));
    let (codec, handler): (Server, HttpHandler) = Config::new().connections(router)();
    let mut pipe = Embedded::new(codec, handler);
    for status in ["200", "429"] {
        pipe.receive(b"GET / HTTP/1.1\r\nHost: sea\r\n\r\n");
        assert!(pipe.take_written().starts_with(format!("HTTP/1.1 {status} ").as_bytes()));
        assert_eq!(counts[0].get(), (1, 1));
    }
}
