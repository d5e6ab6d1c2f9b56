//! Limits that axum does not have: their refusals, the log lines, and their removal.
//!
//! A program of its own: a process logs each limit once, so the requests of other tests would take that line.

#![forbid(unsafe_code)]

use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use futures_util::StreamExt;
use tidegate::http::{Config, Limits};
use tidegate_testkit::Embedded;
use tokio::sync::Notify;

type Pipe = Embedded<()>;

async fn upload(body: Body) -> Result<String, String> {
    let (mut pieces, mut length) = (body.into_data_stream(), 0);
    while let Some(piece) = pieces.next().await {
        length += piece.map_err(|error| error.to_string())?.len();
    }
    Ok(format!("{length} bytes"))
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn open(limits: Limits) -> (Pipe, Arc<Notify>) {
    let done = Arc::new(Notify::new());
    let awaited = done.clone();
    let slow = get(async move || {
        awaited.notified().await;
        "done"
    });
    let pages = Router::new().route("/upload", post(upload).layer(DefaultBodyLimit::disable())).route("/slow", slow);
    let routes = tidegate::http::Router::new().fallback(tidegate::axum::function(pages));
    let (codec, handler) = Config::new().limits(limits).connections(routes)();
    (Embedded::new(codec, handler), done)
}

fn written(pipe: &mut Pipe) -> String {
    String::from_utf8(pipe.take_written()).expect("text")
}

const SLOW: &[u8] = b"GET /slow HTTP/1.1\r\nHost: sea\r\n\r\n";
const UPLOADS: &[u8] = b"POST /upload HTTP/1.1\r\nHost: sea\r\nContent-Length: 20000000\r\n\r\n";

/// Where the subscriber writes.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("a line").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn each_limit_that_refuses_is_named_in_the_log() {
    let log = Written::default();
    let subscriber = tracing_subscriber::fmt().with_ansi(false);
    let to = log.clone();
    let _logs =
        tracing_subscriber::util::SubscriberInitExt::set_default(subscriber.with_writer(move || to.clone()).finish());
    let mut long = Limits::default();
    long.body_timeout = Duration::MAX;
    long.body_rate_min = 0;
    for _ in 0..2 {
        let (mut pipe, _) = open(Limits::default());
        pipe.receive(SLOW);
        pipe.advance(Duration::from_secs(61));
        assert!(written(&mut pipe).starts_with("HTTP/1.1 503 "));

        // Longer than `body_bytes_max` by its length.
        let (mut pipe, _) = open(Limits::default());
        pipe.receive(UPLOADS);
        assert!(written(&mut pipe).starts_with("HTTP/1.1 413 "));
        // The connection closes when the peer has had its time to read that.
        pipe.advance(Duration::from_secs(61));

        // The codec finds a silent upload, and without its deadline the layer does.
        for limits in [Limits::default(), long.clone()] {
            let (mut pipe, _) = open(limits);
            pipe.receive(b"POST /upload HTTP/1.1\r\nHost: sea\r\nContent-Length: 9\r\n\r\nx");
            pipe.advance(Duration::from_secs(61));
            assert!(written(&mut pipe).starts_with("HTTP/1.1 408 "));
        }
    }
    let log = String::from_utf8(log.0.lock().expect("the lines").clone()).expect("text");
    let lines = |name: &str| log.lines().filter(|line| line.contains(name)).count();
    // The layer's own are logged once, those of the codec with each connection.
    assert_eq!((lines("limit=\"request_timeout\""), lines("limit=\"receive_timeout")), (1, 1), "{log}");
    assert_eq!((lines("is body_bytes_max"), lines("body_timeout and body_rate_min")), (2, 2), "{log}");
}

#[test]
fn limits_that_axum_does_not_have_can_be_lifted() {
    let mut limits = Limits::default();
    limits.body_bytes_max = u64::MAX;
    limits.request_timeout = Duration::MAX;
    limits.receive_timeout = Duration::MAX;
    limits.body_timeout = Duration::MAX;
    limits.body_rate_min = 0;
    let (mut pipe, _) = open(limits.clone());
    pipe.receive(UPLOADS);
    for piece in 0..20 {
        pipe.receive(&[b'x'; 1_000_000]);
        if piece == 9 {
            pipe.advance(DAY);
        }
    }
    assert!(written(&mut pipe).ends_with("\r\n\r\n20000000 bytes"));
    let (mut pipe, done) = open(limits);
    pipe.receive(SLOW);
    pipe.advance(DAY);
    assert_eq!(written(&mut pipe), "");
    done.notify_one();
    pipe.run();
    assert!(written(&mut pipe).ends_with("\r\n\r\ndone"));
}
