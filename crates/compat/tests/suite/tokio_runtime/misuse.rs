//! Services that never answer, spawn without end, block their loop, or outlive their connection.

use std::fmt::{Debug, Write as _};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use axum::routing::get;
use tidegate::http::{Limits, Router, Server};
use tidegate::{TokioRuntime, task, tower};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Subscriber};

use crate::tokio_runtime::requests::{self, PATIENCE};

#[test]
fn a_function_that_waits_for_tokio_forever_is_answered_for() {
    let mut limits = Limits::default();
    limits.request_timeout = Duration::from_millis(50);
    let never = async || {
        tokio::time::sleep(Duration::from_secs(86_400)).await;
        "never"
    };
    let server = Server::bind("127.0.0.1:0").unwrap().limits(limits).loops(1);
    let server = server.start(move || Router::new().get("/", never)).unwrap();
    let response = requests::receive(requests::send(&server, "/")).unwrap();
    assert!(response.starts_with("HTTP/1.1 503 "), "{response}");
}

/// Tasks of the tokio runtime that spawn the next ones for ever keep its thread busy, and no loop.
#[test]
fn tasks_of_tokio_that_spawn_without_end_leave_the_loop_alone() {
    fn spawn_again(ends: Arc<AtomicBool>) {
        if !ends.load(Ordering::Relaxed) {
            tokio::spawn(async move { spawn_again(ends) });
        }
    }
    let ends = Arc::new(AtomicBool::new(false));
    let router = {
        let ends = ends.clone();
        move || {
            let ends = ends.clone();
            Router::new().get("/spawn", async move || spawn_again(ends.clone())).get("/", async || "here")
        }
    };
    let server = Server::bind("127.0.0.1:0").unwrap().loops(1).tokio_runtime(TokioRuntime::with_threads(1));
    let server = server.start(router).unwrap();
    for _ in 0..10 {
        requests::get(&server, "/spawn");
        assert_eq!(requests::get(&server, "/"), "here");
    }
    server.drain(Duration::from_secs(10));
    ends.store(true, Ordering::Relaxed);
}

/// The same with tasks of the loop: a turn runs a bounded number of them.
#[test]
fn tasks_of_the_loop_that_spawn_without_end_leave_room_for_requests() {
    fn spawn_again(spawned: Arc<AtomicUsize>) {
        spawned.fetch_add(1, Ordering::Relaxed);
        task::spawn(async move { spawn_again(spawned) });
    }
    let spawned = Arc::new(AtomicUsize::new(0));
    let router = {
        let spawned = spawned.clone();
        move || {
            let spawned = spawned.clone();
            Router::new().get("/spawn", async move || spawn_again(spawned.clone())).get("/", async || "here")
        }
    };
    let server = Server::bind("127.0.0.1:0").unwrap().loops(1).start(router).unwrap();
    requests::get(&server, "/spawn");
    for _ in 0..10 {
        assert_eq!(requests::get(&server, "/"), "here");
    }
    server.drain(Duration::from_secs(10));
    assert!(spawned.load(Ordering::Relaxed) > 1);
}

/// Neither the task on the tokio runtime nor that on the loop ends with the connection whose request has spawned it.
#[test]
fn a_task_may_outlive_its_connection() {
    let (sender, receiver) = mpsc::channel();
    let router = move || {
        let sender = sender.clone();
        Router::new().get("/", async move || {
            let (on_tokio, on_loop) = (sender.clone(), sender.clone());
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(20)).await;
                on_tokio.send("tokio")
            });
            task::spawn(async move {
                tokio::time::sleep(Duration::from_millis(40)).await;
                on_loop.send("loop")
            });
            "spawned"
        })
    };
    let server = Server::bind("127.0.0.1:0").unwrap().loops(1).start(router).unwrap();
    assert_eq!(requests::get(&server, "/"), "spawned");
    let mut finished = [receiver.recv_timeout(PATIENCE).unwrap(), receiver.recv_timeout(PATIENCE).unwrap()];
    finished.sort_unstable();
    assert_eq!(finished, ["loop", "tokio"]);
}

/// A client that resets its connection while a function waits: the future of the function is dropped, with its values.
#[test]
fn a_function_that_waits_is_dropped_with_its_connection() {
    struct Dropped(mpsc::Sender<()>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }
    let (entered, entering) = mpsc::channel();
    let (sender, receiver) = mpsc::channel();
    let router = move || {
        let (entered, sender) = (entered.clone(), sender.clone());
        Router::new().get("/", async move || {
            let _dropped = Dropped(sender.clone());
            let _ = entered.send(());
            tokio::time::sleep(Duration::from_secs(86_400)).await;
        })
    };
    let server = Server::bind("127.0.0.1:0").unwrap().loops(1).start(router).unwrap();
    let stream = requests::send(&server, "/");
    entering.recv_timeout(PATIENCE).unwrap();
    let handle = TokioRuntime::shared().handle().unwrap();
    let _runtime = handle.enter();
    stream.set_nonblocking(true).unwrap();
    let stream = tokio::net::TcpStream::from_std(stream).unwrap();
    stream.set_zero_linger().unwrap();
    drop(stream);
    receiver.recv_timeout(PATIENCE).unwrap();
}

/// A panic within a function that has waited for tokio is answered, and costs the loop nothing else.
#[test]
fn a_panic_after_a_wait_for_tokio_is_a_response() {
    let panics = async || {
        tokio::task::yield_now().await;
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(std::hint::black_box(false), "this panic belongs to the test");
    };
    let router = move || Router::new().get("/panic", panics).get("/", async || "here");
    let server = Server::bind("127.0.0.1:0").unwrap().loops(1).start(router).unwrap();
    let response = requests::receive(requests::send(&server, "/panic")).unwrap();
    assert!(response.starts_with("HTTP/1.1 500 "), "{response}");
    assert_eq!(requests::get(&server, "/"), "here");
}

/// Each kind of function blocks its loop once: before its first wait, after it, without being async, and within an axum
/// router. The watchdog names the route, or the request where a router of its own has the routes.
#[test]
fn the_watchdog_names_the_route_that_blocks_the_loop() {
    tracing::subscriber::set_global_default(Collect).expect("no other test sets it");
    let block_until_reported = |name: &'static str| {
        let begun = Instant::now();
        while !reported(name) && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(10));
        }
        if reported(name) { "reported" } else { "not reported" }
    };
    let router = move || {
        let pages = axum::Router::new().route(
            "/pages/{number}",
            get(async move || {
                tokio::time::sleep(Duration::from_millis(1)).await;
                block_until_reported("GET /pages/7")
            }),
        );
        Router::new()
            .get("/sync/{number}", move || block_until_reported("GET /sync/{number}"))
            .get("/first", async move || block_until_reported("GET /first"))
            .get("/later", async move || {
                tokio::time::sleep(Duration::from_millis(1)).await;
                block_until_reported("GET /later")
            })
            .fallback(tower::function(pages))
    };
    let server = Server::bind("127.0.0.1:0").unwrap().loops(1).start(router).unwrap();
    // One after the other: the watchdog names one function of a turn.
    for path in ["/sync/1", "/first", "/later", "/pages/7"] {
        assert_eq!(requests::get(&server, path), "reported", "{path}");
    }
    let stalls: u64 = server.counts().iter().map(|counts| counts.stalls).sum();
    assert_eq!(stalls, 4);
}

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Whether the watchdog has named this.
fn reported(name: &str) -> bool {
    let lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    lines.iter().any(|line| line.contains("loop stalled") && line.contains(&format!("activity=\"{name}\"")))
}

struct Collect;

impl Subscriber for Collect {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("tidegate")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        LINES.lock().unwrap_or_else(PoisonError::into_inner).push(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, " {field}={value:?}");
    }
}
