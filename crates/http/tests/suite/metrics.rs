//! Requests are counted by route, method and class of status, whatever way they take to their response.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use tidegate::http::{Limits, Request, Response, Router, Server, StatusCode, TraceContexts};
use tidegate::metrics::{Format, HttpMetrics, HttpSnapshot, MetricsText};
use tidegate::{ServerHandle, task};

use crate::support::http2_peer::Peer;

fn router() -> Router {
    let nested =
        Router::new().get("/{name}", |request: Request| request.parameter("name").unwrap_or_default().into_owned());
    Router::new()
        .get("/now", || "now")
        .get("/later", async || {
            task::sleep(Duration::from_millis(20)).await;
            StatusCode::ACCEPTED
        })
        .get("/busy", || {
            let began = Instant::now();
            while began.elapsed() < Duration::from_millis(3) {}
            "busy"
        })
        .get("/moved", || Response::see_other("/now"))
        .post("/length", |body: tidegate::Bytes| body.len().to_string())
        .get("/panics", || -> &'static str { panic!("as planned") })
        .nest("/tides", nested)
}

fn start(metrics: &HttpMetrics) -> ServerHandle {
    Server::bind("127.0.0.1:0").unwrap().loops(2).metrics(metrics).start(router).expect("it starts")
}

fn connect(server: &ServerHandle) -> TcpStream {
    let peer = TcpStream::connect(server.address().ip().expect("an IP address")).expect("it connects");
    peer.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    peer
}

/// Sends requests on one connection, and reads to its end.
fn exchange(server: &ServerHandle, requests: &str) -> String {
    let mut peer = connect(server);
    peer.write_all(requests.as_bytes()).unwrap();
    let last = "GET /now HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    peer.write_all(last.as_bytes()).unwrap();
    let mut text = String::new();
    peer.read_to_string(&mut text).unwrap();
    text
}

fn of<'a>(all: &'a [HttpSnapshot], route: &str, method: &str) -> &'a HttpSnapshot {
    let found = all.iter().find(|series| &*series.route == route && series.method == method);
    found.unwrap_or_else(|| panic!("no {method} {route} in {all:?}"))
}

#[test]
fn every_way_to_a_response_is_counted_once() {
    let metrics = HttpMetrics::new();
    let server = start(&metrics);
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut requests = String::new();
    for path in ["/now", "/now", "/later", "/moved", "/tides/ebb", "/tides/flow", "/nowhere", "/%3Cb%3E%22"] {
        requests.push_str(&get(path));
    }
    requests.push_str("POST /length HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nebb");
    requests.push_str("DELETE /now HTTP/1.1\r\nHost: a\r\n\r\n");
    requests.push_str("HEAD /now HTTP/1.1\r\nHost: a\r\n\r\n");
    for _ in 0..4 {
        exchange(&server, &requests);
        // It closes its connection.
        exchange(&server, &get("/panics"));
    }
    let all = metrics.snapshot();
    assert_eq!(of(&all, "/now", "GET").statuses, [0, 12, 0, 0, 0]);
    assert_eq!(of(&all, "/now", "HEAD").statuses, [0, 4, 0, 0, 0]);
    assert_eq!(of(&all, "/later", "GET").statuses, [0, 4, 0, 0, 0]);
    assert_eq!(of(&all, "/moved", "GET").statuses, [0, 0, 4, 0, 0]);
    assert_eq!(of(&all, "/panics", "GET").statuses, [0, 0, 0, 0, 4]);
    assert_eq!(of(&all, "/tides/{name}", "GET").statuses, [0, 8, 0, 0, 0]);
    assert_eq!(of(&all, "/length", "POST").statuses, [0, 4, 0, 0, 0]);
    // A peer's text is no label.
    assert_eq!(of(&all, "", "GET").statuses, [0, 0, 0, 8, 0]);
    assert_eq!(of(&all, "", "DELETE").statuses, [0, 0, 0, 4, 0]);
    assert_eq!(all.len(), 9);
    let later = of(&all, "/later", "GET").latency;
    assert!(later.count() == 4 && later.sum() >= Duration::from_millis(80), "{later:?}");

    let mut text = MetricsText::new(Format::OpenMetrics);
    metrics.write(&mut text);
    tidegate::metrics::write_server(&server, &mut text);
    let text = text.finish();
    let expected = "tidegate_http_requests_total{route=\"/tides/{name}\",method=\"GET\",status=\"2xx\"} 8\n";
    assert!(text.contains(expected) && text.ends_with("# EOF\n"), "{text}");
    server.drain(Duration::ZERO);
}

#[test]
fn the_time_of_a_function_that_does_not_wait_is_measured() {
    let metrics = HttpMetrics::new();
    let server = start(&metrics);
    for _ in 0..4 {
        exchange(&server, "GET /busy HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    let latency = of(&metrics.snapshot(), "/busy", "GET").latency;
    assert!(latency.count() == 4 && latency.sum() >= Duration::from_millis(12), "{latency:?}");
    server.drain(Duration::ZERO);
}

/// A server whose limits are small.
fn start_strict(metrics: &HttpMetrics, head_timeout: Duration) -> ServerHandle {
    let mut limits = Limits::default();
    limits.request_line_bytes_max = 100;
    limits.head_bytes_max = 1000;
    limits.body_bytes_max = 1000;
    limits.head_timeout = head_timeout;
    let router = || {
        router()
            // Its body is read by a task.
            .post("/pieces", async |mut request: Request| {
                let mut length = 0;
                while let Some(piece) = request.body_mut().next().await {
                    length += piece.map_or(0, |piece| piece.len());
                }
                length.to_string()
            })
    };
    Server::bind("127.0.0.1:0").unwrap().loops(2).limits(limits).metrics(metrics).start(router).expect("it starts")
}

#[test]
fn a_request_that_the_codec_refuses_is_counted_once_by_its_status() {
    let metrics = HttpMetrics::new();
    let server = start_strict(&metrics, Duration::from_secs(60));
    // No other request may be late, however slow the machine is.
    let impatient = start_strict(&metrics, Duration::from_millis(50));
    let long = "x".repeat(2000);
    let chunked =
        |path: &str, body: &str| format!("POST {path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
    let refused = [
        ("400", "GET / HTTP/1.1\r\n\r\n".to_owned()),
        ("400", "GET <script> HTTP/1.1\r\nHost: a\r\n\r\n".to_owned()),
        ("414", format!("GET /{long} HTTP/1.1\r\nHost: a\r\n\r\n")),
        ("431", format!("GET / HTTP/1.1\r\nHost: a\r\nX: {long}\r\n\r\n")),
        ("505", "GET / HTTP/3.0\r\nHost: a\r\n\r\n".to_owned()),
        ("501", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n".to_owned()),
        ("408", "GET / HTTP/1.1\r\nHost:".to_owned()),
        // Requests that have a function already, which gets their bodies whole, and in pieces.
        ("400", chunked("/length", "zz\r\n")),
        ("400", chunked("/pieces", "3\r\nebb\r\nzz\r\n")),
        ("413", chunked("/length", &format!("7d0\r\n{long}\r\n0\r\n\r\n"))),
    ];
    for (status, request) in &refused {
        let mut peer = connect(if *status == "408" { &impatient } else { &server });
        peer.write_all(request.as_bytes()).unwrap();
        let mut response = String::new();
        peer.read_to_string(&mut response).unwrap();
        assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {response}");
    }
    let all = metrics.snapshot();
    assert_eq!(of(&all, "", "other").statuses, [0, 0, 0, 8, 2]);
    assert_eq!(all.len(), 1, "{all:?}");

    let mut peer = Peer::new(connect(&server));
    peer.request(1, "GET", "/now", &[("x", &long)], true);
    peer.request(3, "POST", "/length", &[("content-length", "2000")], false);
    peer.request(5, "GET", "/now", &[], true);
    peer.read_until(|peer| [1, 3, 5].iter().all(|stream| peer.is_over(*stream)));
    assert_eq!([1, 3, 5].map(|stream| peer.stream(stream).status().to_owned()), ["431", "413", "200"]);
    let all = metrics.snapshot();
    assert_eq!(of(&all, "", "other").statuses, [0, 0, 0, 10, 2]);
    assert_eq!(of(&all, "/now", "GET").statuses, [0, 1, 0, 0, 0]);
    assert_eq!(all.len(), 2, "{all:?}");

    let mut text = MetricsText::new(Format::Prometheus);
    metrics.write(&mut text);
    let expected = "tidegate_http_requests_total{route=\"\",method=\"other\",status=\"4xx\"} 10\n";
    assert!(text.finish().contains(expected));
    impatient.drain(Duration::ZERO);
    server.drain(Duration::ZERO);
}

#[test]
fn a_recorded_trace_is_an_exemplar_of_its_route() {
    let metrics = HttpMetrics::new();
    let router = || Router::new().get("/tides", || "high").get("/now", || "now").with(TraceContexts::new());
    let server = Server::bind("127.0.0.1:0").unwrap().loops(1).metrics(&metrics).start(router).expect("it starts");
    let parent = |flags| format!("traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-{flags}\r\n");
    for flags in ["00", "01"] {
        exchange(&server, &format!("GET /tides HTTP/1.1\r\nHost: a\r\n{}\r\n", parent(flags)));
        let all = metrics.snapshot();
        let traces: Vec<_> = of(&all, "/tides", "GET").exemplars().map(|exemplar| exemplar.ids().trace[0]).collect();
        assert_eq!(traces, if flags == "01" { vec![0x4b] } else { vec![] }, "of those that are recorded");
        assert_eq!(of(&all, "/now", "GET").exemplars().count(), 0);
    }
    let mut text = MetricsText::new(Format::OpenMetrics);
    metrics.write(&mut text);
    let text = text.finish();
    let line = text.lines().find(|line| line.contains(" # {trace_id=\"4bf92f3577b34da6a3ce929d0e0e4736\",span_id=\""));
    assert!(
        line.is_some_and(|line| line.starts_with("tidegate_http_request_duration_seconds_bucket{route=\"/tides\"")),
        "{text}"
    );
    server.drain(Duration::from_secs(1));
}
