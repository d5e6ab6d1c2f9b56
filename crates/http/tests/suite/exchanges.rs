//! Exchanges that end in unusual ways: before their function, before their body, or while a task of the application holds
//! a part of them.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use tidegate::http::{
    Body, BodyError, Config, Fields, Limits, Request, RequestDecompression, Response, ResponseCompression, Router,
    StatusCode,
};
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

fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: sea\r\n\r\n").into_bytes()
}

#[test]
fn a_producer_that_waits_behind_its_trailers_takes_nothing_of_the_next_request() {
    let router = Router::new().get("/next", || "next").get("/", || {
        Response::new().body(Body::produce(async |writer| {
            writer.write("rows").await?;
            let mut trailers = Fields::new();
            trailers.push("Checksum", "7")?;
            writer.trailers(trailers)?;
            task::sleep(Duration::from_secs(1)).await;
            Ok(())
        }))
    });
    let mut pipe = open(router);
    pipe.receive(&[get("/"), get("/next")].concat());
    pipe.advance(Duration::from_secs(2));
    let answer = text(&mut pipe);
    assert!(answer.contains("Checksum: 7\r\n\r\nHTTP/1.1 200 OK") && answer.ends_with("next"), "{answer}");
    assert!(!pipe.is_write_closed());
}

#[test]
fn a_body_that_is_read_behind_the_end_of_the_response_takes_nothing_of_the_next_request() {
    let router = Router::new().get("/next", || "next").post("/", async |request: Request| {
        let mut body = request.into_body();
        Response::new().body(Body::produce(async move |writer| {
            writer.write("rows").await?;
            writer.trailers(Fields::new())?;
            assert!(matches!(body.next().await, Some(Err(BodyError::Over))));
            Ok(())
        }))
    });
    let mut pipe = open(router);
    let post = b"POST / HTTP/1.1\r\nHost: sea\r\nContent-Length: 3\r\n\r\nabc".to_vec();
    pipe.receive(&[post, get("/next")].concat());
    let answer = text(&mut pipe);
    assert!(answer.ends_with("next"), "{answer}");
}

#[test]
fn tasks_that_wait_for_a_part_of_an_exchange_end_with_it() {
    let results: Rc<RefCell<Vec<BodyError>>> = Rc::default();
    let (reading, writing) = (results.clone(), results.clone());
    let router = Router::new()
        .post("/", async move |request: Request| {
            let (mut body, reading) = (request.into_body(), reading.clone());
            drop(task::spawn(async move {
                while let Some(piece) = body.next().await {
                    if let Err(error) = piece {
                        reading.borrow_mut().push(error);
                    }
                }
            }));
            task::sleep(Duration::from_millis(1)).await;
            "early"
        })
        .get("/", move || {
            let writing = writing.clone();
            Response::new().body(Body::produce(async move |writer| {
                drop(task::spawn(async move {
                    loop {
                        if let Err(error) = writer.write(vec![b'x'; 100_000]).await {
                            writing.borrow_mut().push(*error.downcast().expect("an error of a body"));
                            break;
                        }
                    }
                }));
                task::sleep(Duration::from_millis(1)).await;
                Ok(())
            }))
        });
    let mut pipe = open(router);
    pipe.receive(b"POST / HTTP/1.1\r\nHost: sea\r\nContent-Length: 3\r\n\r\n");
    pipe.advance(Duration::from_millis(2));
    assert!(text(&mut pipe).ends_with("early"));
    assert!(matches!(results.take()[..], [BodyError::Over]), "{results:?}");
    pipe.receive(b"abc");
    pipe.limit_peer_reads(1000);
    pipe.receive(&get("/"));
    pipe.advance(Duration::from_millis(2));
    assert!(matches!(results.take()[..], [BodyError::Over]), "{results:?}");
}

/// Two tasks of the application wait for one connection: the one for bytes of the client, the other for room.
#[test]
fn a_task_that_waits_for_room_is_woken_also_while_another_one_reads_the_request() {
    let router = Router::new().post("/", async |request: Request| {
        let mut body = request.into_body();
        Response::new().body(Body::produce(async move |writer| {
            let writing = task::spawn(async move {
                for _ in 0..8 {
                    writer.write(vec![b'x'; 100_000]).await?;
                }
                Ok::<_, Box<dyn std::error::Error>>(())
            });
            while let Some(piece) = body.next().await {
                piece?;
            }
            writing.await?
        }))
    });
    let mut pipe = open(router);
    pipe.limit_peer_reads(0);
    pipe.receive(b"POST / HTTP/1.1\r\nHost: sea\r\nContent-Length: 2\r\n\r\n");
    pipe.receive(b"a");
    pipe.limit_peer_reads(usize::MAX);
    pipe.run();
    let answer = text(&mut pipe);
    assert_eq!(answer.matches('x').count(), 800_000, "the client has not ended its request");
    pipe.receive(b"b");
    assert_eq!(text(&mut pipe), "0\r\n\r\n");
}

#[test]
fn a_connection_that_fails_is_closed_while_the_application_keeps_its_body() {
    let kept: Rc<RefCell<Option<Body>>> = Rc::default();
    let keep = kept.clone();
    let router = Router::new().post("/", async move |request: Request| {
        *keep.borrow_mut() = Some(request.into_body());
        Response::new().body(Body::produce(async |writer| {
            writer.write("some").await?;
            panic!("on purpose")
        }))
    });
    let mut pipe = open(router);
    pipe.receive(b"POST / HTTP/1.1\r\nHost: sea\r\nContent-Length: 3\r\n\r\nabc");
    let answer = text(&mut pipe);
    assert!(answer.contains("some") && !answer.contains("0\r\n\r\n"), "{answer}");
    assert!(pipe.is_write_closed());
    drop(kept);
}

#[test]
fn a_head_request_with_a_body_runs_no_producer() {
    let runs = Rc::new(Cell::new(0));
    let count = runs.clone();
    let router = Router::new().get("/", move |request: Request| {
        let count = count.clone();
        assert_eq!(request.bytes(), b"a");
        Response::new().body(Body::produce(async move |writer| {
            for _ in 0..1000 {
                count.set(count.get() + 1);
                writer.write("row\n").await?;
            }
            Ok(())
        }))
    });
    let mut pipe = open(router);
    pipe.receive(b"HEAD / HTTP/1.1\r\nHost: sea\r\nContent-Length: 1\r\n\r\na");
    assert!(text(&mut pipe).starts_with("HTTP/1.1 200 OK"));
    assert_eq!(runs.get(), 0, "a HEAD request gets no body");
    pipe.receive(&get("/none"));
    assert!(text(&mut pipe).starts_with("HTTP/1.1 404"));
}

#[test]
fn a_large_last_piece_does_not_break_the_end_of_the_body() {
    for path in ["/", "/trailers", "/twice"] {
        let router = Router::new()
            .get("/", || Response::new().body(Body::produce(async |writer| writer.write(vec![b'x'; 10_000_000]).await)))
            .get("/trailers", || {
                Response::new().body(Body::produce(async |writer| {
                    writer.write(vec![b'x'; 10_000_000]).await?;
                    Ok(writer.trailers(Fields::new())?)
                }))
            })
            .get("/twice", async || {
                Response::new().body(Body::produce(async |writer| {
                    writer.write(vec![b'x'; 5_000_000]).await?;
                    writer.write(vec![b'x'; 5_000_000]).await
                }))
            });
        let mut pipe = open(router);
        pipe.limit_peer_reads(1000);
        pipe.receive(&get(path));
        pipe.limit_peer_reads(usize::MAX);
        let answer = pipe.take_written();
        assert!(answer.ends_with(b"\r\n0\r\n\r\n"), "{path}: {} bytes", answer.len());
        assert!(!pipe.is_write_closed());
    }
}

#[test]
fn a_peer_that_reads_nothing_does_not_make_pipelined_responses_pile_up() {
    let router = || {
        Router::new()
            .get("/now", || vec![b'x'; 50_000])
            .get("/async", async || vec![b'x'; 50_000])
            .get("/rows", || Response::new().body(Body::produce(async |writer| writer.write(vec![b'x'; 50_000]).await)))
    };
    for paths in [&["/async"][..], &["/rows"], &["/now", "/async", "/rows"]] {
        let mut pipe = open(router());
        pipe.limit_peer_reads(0);
        let wire: Vec<u8> = paths.iter().cycle().take(300).flat_map(|path| get(path)).collect();
        pipe.receive(&wire);
        let memory = pipe.counts().memory_bytes;
        assert!(memory < 600_000, "{paths:?}: {memory} bytes");
        pipe.limit_peer_reads(usize::MAX);
        let answer = pipe.take_written();
        assert_eq!(answer.windows(12).filter(|window| window == b"HTTP/1.1 200").count(), 300, "{paths:?}");
    }
}

#[test]
fn a_producer_may_read_a_body_that_waits_for_100_continue() {
    let router =
        Router::new().post("/", async |request: Request| Response::new().body(Body::stream(request.into_body())));
    let mut pipe = open(router);
    pipe.receive(b"POST / HTTP/1.1\r\nHost: sea\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
    assert!(text(&mut pipe).starts_with("HTTP/1.1 100 Continue\r\n\r\n"));
    pipe.receive(b"abc");
    let answer = text(&mut pipe);
    assert!(answer.ends_with("abc\r\n0\r\n\r\n"), "{answer}");
    assert!(!pipe.is_write_closed());
}

#[test]
fn deadlines_may_be_endless() {
    let mut limits = Limits::default();
    limits.request_timeout = Duration::MAX;
    limits.receive_timeout = Duration::MAX;
    let router = Router::new().post("/", async |mut request: Request| {
        task::sleep(Duration::from_secs(1000)).await;
        request.body_mut().collect(10).await
    });
    let mut pipe = open_with(limits, router);
    pipe.receive(b"POST / HTTP/1.1\r\nHost: sea\r\nContent-Length: 3\r\n\r\nabc");
    pipe.advance(Duration::from_secs(1001));
    assert!(text(&mut pipe).ends_with("abc"));
}

#[test]
fn the_fallback_of_a_nested_router_has_all_paths_behind_its_prefix() {
    let outer = || Router::new().get("/{name}", || "outer");
    let nested = || Router::new().fallback(|| "nested");
    for router in [outer().nest("/sea", nested()), Router::new().nest("/sea", nested())] {
        let mut pipe = open(router);
        for path in ["/sea", "/sea/", "/sea/x", "/sea/x/y"] {
            pipe.receive(&get(path));
            assert!(text(&mut pipe).ends_with("nested"), "{path}");
        }
    }
}

#[test]
fn a_response_without_content_ends_where_its_producer_would_begin() {
    for status in [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED] {
        let rows = move || {
            let rows = Body::produce(async |writer| writer.write("row").await);
            Response::status(status).body(rows)
        };
        let mut pipe = open(Router::new().get("/", rows).get("/next", || "next"));
        pipe.receive(&[get("/"), get("/next")].concat());
        let answer = text(&mut pipe);
        assert!(!answer.contains("row") && answer.ends_with("next"), "{answer}");
    }
}

#[test]
fn a_connect_that_is_answered_with_200_is_no_tunnel_for_requests() {
    let router = Router::new().any("/", async || "hello").fallback(|| "fallback");
    let mut pipe = open(router);
    pipe.receive(b"CONNECT sea:443 HTTP/1.1\r\nHost: sea:443\r\n\r\nGET / HTTP/1.1\r\nHost: sea\r\n\r\n");
    let answer = text(&mut pipe);
    assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{answer}");
    pipe.advance(Duration::from_secs(76));
    assert!(pipe.is_write_closed());
}

#[test]
fn a_body_that_is_passed_on_and_is_not_valid_in_its_coding_gets_its_peer_a_400() {
    let echo = async |request: Request| Response::new().body(request.into_body());
    let mut pipe = open(Router::new().post("/", echo).with(RequestDecompression::new()));
    pipe.receive(
        b"POST / HTTP/1.1\r\nHost: sea\r\nContent-Encoding: gzip\r\nContent-Length: 20\r\n\r\nthis is no gzip data",
    );
    let answer = text(&mut pipe);
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
}

#[test]
fn a_long_compression_lets_other_tasks_run() {
    let turns = Rc::new(Cell::new(0));
    let seen = Rc::new(Cell::new(0));
    let (counted, noted) = (turns.clone(), seen.clone());
    let router = Router::new().get("/", move || {
        let (counted, noted) = (counted.clone(), noted.clone());
        Response::text(Body::produce(async move |writer| {
            let count = counted.clone();
            drop(task::spawn(async move {
                poll_fn(|cx| {
                    count.set(count.get() + 1);
                    cx.waker().wake_by_ref();
                    if count.get() < 1000 { Poll::Pending } else { Poll::Ready(()) }
                })
                .await;
            }));
            for _ in 0..100 {
                writer.write(vec![b'x'; 64 * 1024]).await?;
            }
            noted.set(counted.get());
            Ok(())
        }))
    });
    let mut pipe = open(router.with(ResponseCompression::new()));
    pipe.receive(b"GET / HTTP/1.1\r\nHost: sea\r\nAccept-Encoding: gzip\r\n\r\n");
    assert!(pipe.take_written().ends_with(b"\r\n0\r\n\r\n"));
    assert!(seen.get() >= 20, "the other task ran {} times", seen.get());
}
