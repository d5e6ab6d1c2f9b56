//! Functions that take time: deadlines, peers that leave or read slowly, drains, and the way between handler and task.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use tidegate::http::{Body, BodyError, Config, Limits, Path, Request, Response, Router};
use tidegate::task;
use tidegate_testkit::Embedded;

fn open<S: 'static>(router: Router<S>) -> Embedded<()> {
    open_with(Limits::default(), router)
}

fn open_with<S: 'static>(limits: Limits, router: Router<S>) -> Embedded<()> {
    let (codec, handler) = Config::new().limits(limits).connections(router)();
    Embedded::new(codec, handler)
}

fn text(pipe: &mut Embedded<()>) -> String {
    String::from_utf8(pipe.take_written()).expect("text")
}

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: sea\r\n\r\n";

/// Counts the values of this type that are alive.
struct Alive(Rc<Cell<i32>>);

impl Alive {
    fn new(count: &Rc<Cell<i32>>) -> Self {
        count.set(count.get() + 1);
        Self(count.clone())
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

#[test]
fn a_function_that_never_responds_gets_its_peer_a_503() {
    let router = Router::new().get("/", async || -> &'static str { std::future::pending().await });
    let mut pipe = open(router);
    pipe.receive(GET);
    pipe.advance(Duration::from_millis(59_999));
    assert_eq!(text(&mut pipe), "");
    pipe.advance(Duration::from_millis(2));
    let answer = text(&mut pipe);
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("\r\nConnection: close\r\n"), "{answer}");
    assert!(pipe.is_write_closed());
}

#[test]
fn functions_that_wait_are_answered_in_order_however_many_requests_there_are() {
    for times in [1, 4] {
        let router = Router::new().get("/{number}", async move |Path(number): Path<String>| {
            for _ in 0..times {
                task::spawn(async {}).await.expect("it neither panics nor is cancelled");
            }
            number
        });
        let mut pipe = open(router);
        let requests: String = (0..200).map(|number| format!("GET /{number} HTTP/1.1\r\nHost: sea\r\n\r\n")).collect();
        pipe.receive(requests.as_bytes());
        let answers = text(&mut pipe);
        let numbers: Vec<&str> =
            answers.split("HTTP/1.1 200 OK").skip(1).filter_map(|one| one.lines().last()).collect();
        assert_eq!(numbers, (0..200).map(|number| number.to_string()).collect::<Vec<_>>());
    }
}

#[test]
fn with_half_close_a_peer_that_sends_no_more_gets_the_response_of_a_function_that_waits() {
    let router = Router::new().half_close(true).get("/", async || {
        task::sleep(Duration::from_secs(1)).await;
        "ebb"
    });
    let mut pipe = open(router);
    pipe.receive(GET);
    pipe.receive_fin();
    assert_eq!(text(&mut pipe), "");
    assert!(!pipe.is_closed());
    pipe.advance(Duration::from_millis(1_001));
    assert!(text(&mut pipe).ends_with("\r\n\r\nebb"));
    assert!(pipe.is_write_closed());
}

#[test]
fn a_function_that_waits_is_dropped_when_its_peer_resets_the_connection() {
    let alive = Rc::new(Cell::new(0));
    let router = {
        let alive = alive.clone();
        Router::new().get("/", async move || {
            let _alive = Alive::new(&alive);
            std::future::pending::<&'static str>().await
        })
    };
    let mut pipe = open(router);
    pipe.receive(GET);
    assert_eq!(alive.get(), 1);
    pipe.reset();
    pipe.run();
    assert!(pipe.is_closed());
    assert_eq!(alive.get(), 0);
}

#[test]
fn an_upload_that_goes_on_is_not_late() {
    let length = async |mut request: Request| {
        let mut length = 0;
        while let Some(piece) = request.body_mut().next().await {
            length += piece?.len();
        }
        Ok::<_, BodyError>(length.to_string())
    };
    let mut pipe = open(Router::new().post("/", length));
    pipe.receive(b"POST / HTTP/1.1\r\nHost: sea\r\nContent-Length: 100000\r\n\r\n");
    for _ in 0..10 {
        pipe.receive(&[b'x'; 10_000]);
        pipe.advance(Duration::from_secs(25));
    }
    let answer = text(&mut pipe);
    assert!(answer.ends_with("\r\n\r\n100000"), "after 250 seconds: {answer}");
}

#[test]
fn a_body_has_to_be_complete_in_receive_timeout() {
    for router in [
        Router::new().post("/", |request: Request| request.bytes().len().to_string()),
        Router::new().post("/", async |mut request: Request| {
            request.body_mut().collect(1 << 20).await.map(|body| body.len().to_string())
        }),
    ] {
        let mut pipe = open(router);
        pipe.receive(b"POST / HTTP/1.1\r\nHost: sea\r\nContent-Length: 1000000\r\n\r\n");
        for _ in 0..59 {
            pipe.receive(&[b'x'; 10_000]);
            pipe.advance(Duration::from_secs(10));
            assert_eq!(text(&mut pipe), "");
        }
        pipe.advance(Duration::from_secs(11));
        let answer = text(&mut pipe);
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
        assert!(pipe.is_write_closed());
    }
}

#[test]
fn a_peer_that_leaves_ends_the_function_and_the_producer() {
    let alive = Rc::new(Cell::new(0));
    let (waiting, producing) = (alive.clone(), alive.clone());
    let router = Router::new()
        .get("/", async move || -> &'static str {
            let _alive = Alive::new(&waiting);
            std::future::pending().await
        })
        .get("/rows", move || {
            let producing = producing.clone();
            Response::new().body(Body::produce(async move |writer| {
                let _alive = Alive::new(&producing);
                writer.write("row\n").await?;
                std::future::pending().await
            }))
        });
    let connections = Config::new().half_close(true).connections(router);
    for path in ["/", "/rows"] {
        let (codec, handler) = connections();
        let mut pipe = Embedded::new(codec, handler);
        pipe.receive(format!("GET {path} HTTP/1.1\r\nHost: sea\r\n\r\n").as_bytes());
        assert_eq!(alive.get(), 1, "{path}");
        // A client may shut down its sending side and still read: `half_close.rs` has the default.
        pipe.receive_fin();
        assert_eq!(alive.get(), 1, "{path}");
        pipe.reset();
        assert_eq!(alive.get(), 0, "{path}");
        assert!(pipe.is_closed());
    }
}

#[test]
fn a_peer_that_leaves_in_its_body_ends_a_function_that_waits_for_something_else() {
    let alive = Rc::new(Cell::new(0));
    let waiting = alive.clone();
    let router = Router::new().post("/", async move |request: Request| {
        let _alive = Alive::new(&waiting);
        task::sleep(Duration::from_secs(30)).await;
        drop(request);
        "late"
    });
    let mut pipe = open(router);
    pipe.receive(b"POST / HTTP/1.1\r\nHost: sea\r\nContent-Length: 100\r\n\r\nsome");
    assert_eq!(alive.get(), 1);
    pipe.reset();
    assert_eq!(alive.get(), 0);
    assert!(pipe.is_closed());
}

#[test]
fn a_producer_that_never_ends_behind_its_trailers_ends_with_its_peer() {
    let alive = Rc::new(Cell::new(0));
    let producing = alive.clone();
    let router = Router::new().get("/", move || {
        let producing = producing.clone();
        Response::new().body(Body::produce(async move |writer| {
            let _alive = Alive::new(&producing);
            writer.trailers(tidegate::http::Fields::new())?;
            std::future::pending().await
        }))
    });
    let mut pipe = open(router);
    pipe.receive(GET);
    assert!(text(&mut pipe).ends_with("0\r\n\r\n"));
    assert_eq!(alive.get(), 1);
    pipe.reset();
    assert_eq!(alive.get(), 0);
    assert!(pipe.is_closed());
}

#[test]
fn a_slow_reader_stops_the_producer() {
    let written = Rc::new(Cell::new(0));
    let count = written.clone();
    let router = Router::new().get("/", move || {
        let count = count.clone();
        Response::new().body(Body::produce(async move |writer| {
            for _ in 0..1000 {
                writer.write(vec![b'x'; 10_000]).await?;
                count.set(count.get() + 1);
            }
            Ok(())
        }))
    });
    let mut pipe = open(router);
    pipe.limit_peer_reads(1000);
    pipe.receive(GET);
    let before = written.get();
    assert!((1..20).contains(&before), "{before} pieces of 10,000 bytes wait for a peer that reads nothing");
    pipe.limit_peer_reads(100_000);
    assert!(written.get() > before && written.get() < before + 20, "{} pieces", written.get());
    pipe.limit_peer_reads(usize::MAX);
    assert_eq!(written.get(), 1000);
    let answer = pipe.take_written();
    assert!(answer.ends_with(b"\r\n0\r\n\r\n"));
    assert!(!pipe.is_write_closed());
    // The connection has a handler again.
    pipe.receive(GET);
    assert!(pipe.take_written().starts_with(b"HTTP/1.1 200 OK"));
}

#[test]
fn a_slow_reader_stops_the_upload_that_it_echoes() {
    let mut pipe = open(Router::new().post("/", async |request: Request| Response::new().body(request.into_body())));
    pipe.limit_peer_reads(0);
    pipe.receive(b"POST / HTTP/1.1\r\nHost: sea\r\nContent-Length: 1000000\r\n\r\n");
    for _ in 0..100 {
        pipe.receive(&[b'x'; 10_000]);
    }
    assert!(!pipe.is_receiving());
    let memory = pipe.pool().ledger().used();
    assert!(memory < 400_000, "{memory} bytes of memory for an upload that is not read");
    pipe.limit_peer_reads(usize::MAX);
    assert_eq!(pipe.take_written().iter().filter(|&&byte| byte == b'x').count(), 1_000_000);
}

#[test]
fn a_producer_that_fails_or_writes_too_little_leaves_the_body_incomplete() {
    let fails = || {
        Response::new().body(Body::produce(async |writer| {
            writer.write("some").await?;
            Err("on purpose".into())
        }))
    };
    let short = || Response::new().body(Body::produce(async |writer| writer.write("some").await).with_length(9));
    for router in [Router::new().get("/", fails), Router::new().get("/", short)] {
        let mut pipe = open(router);
        pipe.receive(GET);
        let answer = text(&mut pipe);
        assert!(answer.contains("some") && !answer.contains("0\r\n\r\n"), "{answer}");
        assert!(pipe.is_write_closed());
    }
}

#[test]
fn a_body_outlives_its_exchange_and_reads_nothing_of_the_next() {
    let kept: Rc<RefCell<Option<Body>>> = Rc::default();
    let keep = kept.clone();
    let router = Router::new()
        .post("/", async move |request: Request| {
            *keep.borrow_mut() = Some(request.into_body());
            "kept"
        })
        .get("/", async || {
            task::sleep(Duration::from_millis(1)).await;
            "next"
        });
    let mut pipe = open(router);
    pipe.receive(b"POST / HTTP/1.1\r\nHost: sea\r\nContent-Length: 3\r\n\r\n");
    assert!(text(&mut pipe).ends_with("kept"));
    pipe.receive(b"abc");
    pipe.receive(GET);
    let mut body = kept.take().expect("it was kept");
    let read = pipe.spawn(async move { body.next().await });
    pipe.advance(Duration::from_millis(2));
    assert!(text(&mut pipe).ends_with("next"));
    let result = pipe.spawn(async move { matches!(read.await, Ok(Some(Err(BodyError::Over)))) });
    pipe.run();
    assert!(result.is_finished());
    let seen = pipe.spawn(async move { assert_eq!(result.await, Ok(true)) });
    pipe.run();
    assert!(seen.is_finished());
}

#[test]
fn a_drain_waits_for_the_function_and_closes_behind_its_response() {
    let router = Router::new().get("/", async || {
        task::sleep(Duration::from_secs(2)).await;
        "late"
    });
    let mut pipe = open(router);
    pipe.receive(GET);
    pipe.drain(Duration::from_secs(10));
    pipe.advance(Duration::from_secs(1));
    assert_eq!(text(&mut pipe), "");
    pipe.advance(Duration::from_secs(1));
    let answer = text(&mut pipe);
    assert!(answer.contains("\r\nConnection: close\r\n") && answer.ends_with("late"), "{answer}");
    pipe.receive_fin();
    pipe.advance(Duration::from_secs(3));
    assert!(pipe.is_closed() && pipe.is_drained());
}

#[test]
fn an_idle_connection_is_closed_after_its_timeout_whatever_served_it() {
    let router = || Router::new().get("/", async || task::sleep(Duration::from_secs(5)).await).get("/now", || "now");
    for wires in [&[GET][..], &[b"GET /now HTTP/1.1\r\nHost: sea\r\n\r\n", GET], &[GET, GET]] {
        let mut pipe = open(router());
        for wire in wires {
            pipe.receive(wire);
            pipe.advance(Duration::from_secs(5));
            assert!(pipe.take_written().starts_with(b"HTTP/1.1 200 OK"));
        }
        pipe.advance(Duration::from_millis(74_900));
        assert!(!pipe.is_write_closed());
        pipe.advance(Duration::from_millis(200));
        assert!(pipe.is_write_closed());
    }
}

#[test]
fn requests_torn_at_every_byte_are_answered_by_functions_of_both_kinds() {
    let router = || {
        Router::new()
            .get("/", || "a")
            .post("/", async |mut request: Request| request.body_mut().collect(10).await)
            .put("/", |request: Request| Response::new().body(request.into_body()))
    };
    let wire = b"GET / HTTP/1.1\r\nHost: s\r\n\r\nPOST / HTTP/1.1\r\nHost: s\r\nContent-Length: 2\r\n\r\nbcPUT / HTTP/1.1\r\nHost: s\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nd\r\n1\r\ne\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: s\r\n\r\n";
    let connections = Config::new().connections(router());
    let answer = |pieces: &[&[u8]]| {
        let (codec, handler) = connections();
        let mut pipe = Embedded::new(codec, handler);
        pieces.iter().for_each(|piece| pipe.receive(piece));
        let answer = text(&mut pipe);
        let bodies =
            answer.split("HTTP/1.1 200 OK").skip(1).map(|one| one.split_once("\r\n\r\n").unwrap().1.to_owned());
        bodies.collect::<Vec<_>>()
    };
    for at in 0..wire.len() {
        assert_eq!(answer(&[&wire[..at], &wire[at..]]), ["a", "bc", "de", "a"], "torn at {at}");
    }
    let bytes: Vec<&[u8]> = wire.chunks(1).collect();
    assert_eq!(answer(&bytes), ["a", "bc", "de", "a"], "byte by byte");
}
