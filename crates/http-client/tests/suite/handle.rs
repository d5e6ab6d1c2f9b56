//! A client on a loop of its own, used from other threads.

use std::future::Future;
use std::io::Write;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use tidegate::http::client::{ClientError, HandleError};
use tidegate::http::{Body, Client, Request, Response, Router, TraceContext};
use tidegate::{Backend, EventLoop};
use tidegate_testkit::ClosedPort;

use crate::support::{Scripted, Served, read_head};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread, without a loop.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park_timeout(Duration::from_secs(60)),
        }
    }
}

fn router() -> Router {
    Router::new()
        .get("/", || "ebb and flow")
        .get("/large", || vec![b'a'; 4_000_000])
        .post("/echo", async |request: Request| Response::new().body(request.into_body()))
        .get("/endless", || {
            Response::new().body(Body::produce(async |writer| {
                loop {
                    writer.write(vec![b'a'; 10_000]).await?;
                }
            }))
        })
}

#[test]
fn threads_without_a_loop_send_requests_and_read_bodies() {
    let server = Served::start(router);
    let handle = Client::spawn(Client::new).expect("a thread");
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (handle, root, large) = (handle.clone(), server.uri("/"), server.uri("/large"));
            std::thread::spawn(move || {
                block_on(async {
                    for _ in 0..5 {
                        let response = handle.get(&root).send().await?;
                        assert_eq!(response.status().as_u16(), 200);
                        assert_eq!(response.headers()["content-length"], "12");
                        assert_eq!(response.into_body().bytes(100).await?, "ebb and flow");
                        let body = handle.get(&large).send().await?.into_body();
                        assert_eq!(body.bytes(5_000_000).await?.len(), 4_000_000);
                    }
                    Ok::<_, HandleError>(())
                })
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("it does not panic").expect("its requests succeed");
    }
}

#[test]
fn a_trace_is_passed_on_in_place_of_other_fields() {
    let show = |request: Request| {
        let lines = request.headers().filter(|(name, _)| name.to_ascii_lowercase().starts_with("trace"));
        lines.map(|(name, value)| format!("{name}: {}\n", String::from_utf8_lossy(value))).collect::<String>()
    };
    let server = Served::start(move || Router::new().get("/", show).get("/moved", || Response::see_other("/")));
    let received = TraceContext::received(
        [&b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"[..]],
        [&b"a=1"[..], &b"b=2"[..]],
    );
    let expected =
        format!("traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-{}-01\ntracestate: a=1,b=2\n", received.span_id());
    let begun = TraceContext::begin();
    let handle = Client::spawn(Client::new).expect("a thread");
    let (root, moved) = (server.uri("/"), server.uri("/moved"));
    block_on(async {
        let sent =
            handle.get(&root).header("TraceParent", "x").header("tracestate", "y").trace(&received).send().await?;
        assert_eq!(sent.into_body().bytes(1000).await?, expected);
        let sent = handle.get(&root).trace(&received).trace(&begun).send().await?;
        assert_eq!(sent.into_body().bytes(1000).await?, format!("traceparent: {}\n", begun.traceparent()));
        Ok::<_, HandleError>(())
    })
    .expect("the requests succeed");
    let texts = EventLoop::on(Backend::Auto).unwrap().block_on(async move {
        let client = Client::new();
        let sent = client.get(&moved).header("traceparent", "x").header("tracestate", "y").trace(&received);
        let (first, child) = (sent.send().await?.text().await?, received.child());
        let second = client.get(&root).trace(&received).trace(&begun).send().await?.text().await?;
        assert_eq!((child.trace_id(), child.parent_id()), (received.trace_id(), Some(received.span_id())));
        Ok::<_, ClientError>((first, second, begun.traceparent()))
    });
    let (first, second, begun) = texts.unwrap().expect("the requests succeed");
    assert_eq!((first, second), (expected, format!("traceparent: {begun}\n")));
}

#[test]
fn bodies_of_requests_come_from_any_thread() {
    let server = Served::start(router);
    let handle = Client::spawn(Client::new).expect("a thread");
    let body = block_on(async {
        let response = handle.post(server.uri("/echo")).header("X", "y").body("tide").send().await?;
        response.into_body().bytes(10).await
    });
    assert_eq!(body.expect("it is sent back"), "tide");
}

#[test]
fn a_body_that_is_dropped_and_a_request_that_is_dropped_end() {
    let server = Served::start(router);
    let handle = Client::spawn(Client::new).expect("a thread");
    block_on(async {
        let mut body = handle.get(server.uri("/endless")).send().await?.into_body();
        for _ in 0..100 {
            assert!(body.next().await.transpose()?.is_some());
        }
        drop(body);
        let error = handle.get(server.uri("/endless")).send().await?.into_body().bytes(1_000_000).await;
        assert_eq!(error, Err(HandleError::TooLong));
        drop(handle.get(server.uri("/")).send());
        assert_eq!(handle.get(server.uri("/")).send().await?.into_body().bytes(100).await?, "ebb and flow");
        Ok::<_, HandleError>(())
    })
    .expect("the requests succeed");
}

#[test]
fn errors_cross_threads_as_texts() {
    let handle = Client::spawn(Client::new).expect("a thread");
    let closed = ClosedPort::tcp();
    let url = format!("http://{}/", closed.address());
    let error = block_on(handle.get(&url).send()).expect_err("no server is there");
    assert!(matches!(&error, HandleError::Failed { is_connect: true, is_timeout: false, .. }), "{error}");
    let error = block_on(handle.get("gopher://a/").send()).expect_err("the scheme is another");
    assert!(error.to_string().contains("neither http nor https"), "{error}");
}

#[test]
fn a_body_whose_loop_ends_is_not_taken_for_a_whole_one() {
    let server = Served::start(router);
    let (give, handle) = std::sync::mpsc::channel();
    let (end, ends) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        let mut event_loop = EventLoop::on(Backend::Auto).expect("a loop");
        let until_end = async move {
            give.send(Client::new().handle()).expect("the test waits");
            tidegate::blocking(move || ends.recv()).await
        };
        let ended = event_loop.block_on(until_end).expect("the loop runs");
        assert!(matches!(ended, Ok(Ok(()))), "the test ends the loop");
    });
    let handle = handle.recv().expect("the loop has a client");
    let error = block_on(async {
        let mut body = handle.get(server.uri("/endless")).send().await?.into_body();
        assert!(body.next().await.transpose()?.is_some());
        end.send(()).expect("the loop runs");
        thread.join().expect("the loop ends");
        while body.next().await.transpose()?.is_some() {}
        Ok(())
    });
    assert_eq!(error, Err(HandleError::LoopEnded));
}

#[test]
fn an_unrequested_response_ends_its_connection() {
    let (ended, has_ended) = std::sync::mpsc::channel();
    let server = Scripted::start(move |_, stream| {
        if read_head(stream).is_some() {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
            while stream.write_all(b"4\r\nebbs\r\n").is_ok() {}
            let _ = ended.send(());
        }
    });
    let handle = Client::spawn(Client::new).expect("a thread");
    let mut response = Box::pin(handle.get(server.uri("/")).send());
    let (wake, woken) = std::sync::mpsc::channel();
    let waker = Waker::from(Arc::new(Report(Mutex::new(wake))));
    assert!(response.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    woken.recv_timeout(Duration::from_secs(120)).expect("the response comes");
    // It is there, and nothing takes it.
    drop(response);
    has_ended.recv_timeout(Duration::from_secs(120)).expect("the client closes the connection");
}

/// Tells the test of a wake-up.
struct Report(Mutex<std::sync::mpsc::Sender<()>>);

impl Wake for Report {
    fn wake(self: Arc<Self>) {
        let _ = self.0.lock().map(|wake| wake.send(()));
    }
}
