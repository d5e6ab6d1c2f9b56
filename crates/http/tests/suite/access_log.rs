//! The access log: whole lines of a format, also for requests that no function sees.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tidegate::Limits;
use tidegate::http::proxy::{Proxy, Upstreams};
use tidegate::http::{
    AccessLog, Body, Client, Config, LineLog, LogFormat, LogTemplate, Request, RequestIds, Router, StatusCode,
    TraceContexts,
};
use tidegate_testkit::Embedded;
use tidegate_testkit::network::Network;

use crate::support::http2_peer::Peer;
use crate::support::http3_stage::{Stage, receive, request};

/// An output that a test reads.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The lines that a connection leaves in its log.
fn lines(format: LogFormat, router: Router, converse: impl FnOnce(&mut Embedded<()>)) -> Vec<String> {
    let written = Written::default();
    let log = LineLog::new("test", written.clone());
    let (codec, handler) = Config::new().connections(router.with(AccessLog::new(format).to(&log)))();
    converse(&mut Embedded::new(codec, handler));
    assert!(log.flush(Duration::from_secs(86_400)));
    let all = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
    all.lines().map(str::to_owned).collect()
}

fn router() -> Router {
    Router::new().get("/", || "hello").post("/", |body: Vec<u8>| format!("{}", body.len()))
}

#[test]
fn the_time_of_a_function_that_does_not_wait_is_measured() {
    let router = Router::new().get("/", || {
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(3) {}
        ""
    });
    let lines = lines(LogFormat::Json, router, |pipe| pipe.receive(b"GET / HTTP/1.1\r\nHost: sea\r\n\r\n"));
    let line: serde_json::Value = serde_json::from_str(&lines[0]).expect(&lines[0]);
    assert!(line["microseconds"].as_u64().unwrap() >= 3_000, "{line}");
}

#[test]
fn the_time_of_a_function_that_waits_is_that_of_its_loop() {
    let router = Router::new().get("/", async |_: Request| {
        tidegate::task::sleep(Duration::from_secs(5)).await;
        ""
    });
    let lines = lines(LogFormat::Json, router, |pipe| {
        pipe.receive(b"GET / HTTP/1.1\r\nHost: sea\r\n\r\n");
        pipe.advance(Duration::from_secs(5));
    });
    let line: serde_json::Value = serde_json::from_str(&lines[0]).expect(&lines[0]);
    assert!((5_000_000..6_000_000).contains(&line["microseconds"].as_u64().unwrap()), "{line}");
}

#[test]
fn a_request_that_the_codec_refuses_is_logged_with_its_line() {
    let long = format!("GET / HTTP/1.1\r\nHost: sea\r\nA: {}", "a".repeat(100_000));
    for (wire, status, first_line) in [
        (&b"GET /a\"b HTTP/1.1\r\nHost sea\r\n\r\n"[..], 400, "GET /a\"b HTTP/1.1"),
        (b"GET / HTTP/1.1\r\n\r\n", 400, "GET / HTTP/1.1"),
        (b"\x16\x03\x01\n\r\n", 400, "\u{16}\u{3}\u{1}"),
        (b"GET / HTTP/3.7\r\nHost: sea\r\n\r\n", 505, "GET / HTTP/3.7"),
        (long.as_bytes(), 431, "GET / HTTP/1.1"),
    ] {
        let logged = lines(LogFormat::Json, router(), |pipe| pipe.receive(wire));
        assert_eq!(logged.len(), 1, "{logged:?}");
        let line: serde_json::Value = serde_json::from_str(&logged[0]).expect(&logged[0]);
        assert_eq!((line["status"].as_u64(), line["line"].as_str()), (Some(status), Some(first_line)), "{line}");
        assert!(!line["refused"].as_str().unwrap().is_empty());
        let logged = lines(LogFormat::Combined, router(), |pipe| pipe.receive(wire));
        assert!(logged[0].ends_with(&format!("\" {status} - \"-\" \"-\"")), "{logged:?}");
        assert!(logged[0].is_ascii() && !logged[0].contains('\u{16}'), "{logged:?}");
    }
}

#[test]
fn late_and_long_requests_are_logged_and_no_request_twice() {
    let logged = lines(LogFormat::Common, router(), |pipe| {
        pipe.receive(b"GET / HTTP/1.1\r\nHost: sea\r\n\r\nGET / HT");
        pipe.advance(Duration::from_secs(60));
    });
    assert_eq!(logged.len(), 2, "{logged:?}");
    assert!(logged[0].contains("\"GET / HTTP/1.1\" 200 5") && logged[1].ends_with("\"GET / HT\" 408 -"), "{logged:?}");
    let logged = lines(LogFormat::Json, router(), |pipe| {
        pipe.receive(b"GET /late HTTP/1.1\r\nHost: s");
        pipe.advance(Duration::from_secs(60));
    });
    assert!(logged[0].contains("\"line\":\"GET /late HTTP/1.1\",\"status\":408"), "{logged:?}");
    let logged = lines(LogFormat::Common, router(), |pipe| {
        pipe.receive(b"POST / HTTP/1.1\r\nHost: sea\r\nContent-Length: 99999999999\r\n\r\nabc");
    });
    assert_eq!(logged.len(), 1, "{logged:?}");
    assert!(logged[0].contains("\"POST / HTTP/1.1\" 413 "), "{logged:?}");
    let logged = lines(LogFormat::Common, router(), |pipe| {
        pipe.receive(b"POST / HTTP/1.1\r\nHost: sea\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloX");
    });
    assert_eq!(logged.len(), 1, "{logged:?}");
    assert!(logged[0].contains("\"POST / HTTP/1.1\" 400 "), "{logged:?}");
}

#[test]
fn a_head_that_does_not_come_to_its_end_is_logged_once_with_its_line_and_silence_is_not() {
    const LATE: Duration = Duration::from_secs(60);
    let starts = |rest: &str| format!("GET /tides?from=2 HTTP/1.1\r\nHost: sea\r\n{rest}");
    for (rest, line) in [("", "GET /tides?from=2 HTTP/1.1"), ("A: b", "GET /tides?from=2 HTTP/1.1")] {
        let late = lines(LogFormat::Json, router(), |pipe| {
            pipe.receive_bytewise(starts(rest).as_bytes());
            (0..3).for_each(|_| pipe.advance(LATE));
        });
        assert_eq!(late.len(), 1, "{late:?}");
        let late: serde_json::Value = serde_json::from_str(&late[0]).expect(&late[0]);
        assert_eq!((late["status"].as_u64(), late["line"].as_str()), (Some(408), Some(line)), "{late}");
        assert!(late["refused"].as_str().unwrap().contains("head"), "{late}");
    }
    // A line of any length, with bytes of any kind, has a bound and is text.
    let long = [&[0xff; 1000][..], b" / HTTP/1.1"].concat();
    let logged = lines(LogFormat::Combined, router(), |pipe| {
        pipe.receive(&long);
        pipe.advance(LATE);
    });
    assert_eq!(logged.len(), 1, "{logged:?}");
    assert!(logged[0].is_ascii() && logged[0].len() < 2_000, "{logged:?}");
    // Neither a connection without a byte has a line, nor one that ends between requests.
    for wire in ["", "GET / HTTP/1.1\r\nHost: sea\r\n\r\n"] {
        for ends in [false, true] {
            let logged = lines(LogFormat::Common, router(), |pipe| {
                pipe.receive(wire.as_bytes());
                if ends {
                    pipe.receive_fin();
                }
                pipe.advance(LATE);
                pipe.advance(LATE * 60);
            });
            assert_eq!(logged.len(), usize::from(!wire.is_empty()), "{logged:?}");
        }
    }
}

#[test]
fn a_head_that_http3_refuses_or_waits_for_in_vain_is_logged_once() {
    let written = Written::default();
    let log = LineLog::new("test", written.clone());
    Stage::simulated(|stage| {
        let server = stage.serve(Config::new(), router().with(AccessLog::new(LogFormat::Json).to(&log)));
        let peer = stage.connect(server);
        let many = "x".repeat(20_000);
        let [large, late] = [request("GET", "/", &[("a", &many)]), request("GET", "/", &[])[..3].to_vec()];
        let statuses = stage.task(async move {
            let large = peer.ask(&large).await.status;
            let mut channel = peer.open(&late).await;
            (large, receive(&mut channel).await.status)
        });
        assert_eq!(statuses, ("431".to_owned(), "408".to_owned()));
    });
    assert!(log.flush(Duration::from_secs(86_400)));
    let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let statuses: Vec<_> = lines.iter().map(|line| line["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [431, 408], "{text}");
    assert!(lines.iter().all(|line| !line["refused"].as_str().unwrap().is_empty()), "{text}");
}

#[test]
fn a_body_that_the_codec_refuses_while_a_function_reads_it_is_logged_with_the_status_that_the_client_gets() {
    let reads = || {
        Router::new().post("/", async |mut body: Body| {
            let mut bytes = 0;
            while let Some(piece) = body.next().await {
                match piece {
                    Ok(piece) => bytes += piece.len(),
                    Err(_) => return "an excuse".to_owned(),
                }
            }
            bytes.to_string()
        })
    };
    let chunked = b"POST / HTTP/1.1\r\nHost: sea\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";
    let malformed = lines(LogFormat::Common, reads(), |pipe| {
        pipe.receive(chunked);
        pipe.receive(b"no chunk\r\n");
        assert!(pipe.take_written().starts_with(b"HTTP/1.1 400 "));
    });
    assert_eq!(malformed.len(), 1, "{malformed:?}");
    assert!(malformed[0].contains("\"POST / HTTP/1.1\" 400 "), "{malformed:?}");
    let late = lines(LogFormat::Common, reads(), |pipe| {
        pipe.receive(chunked);
        pipe.advance(Duration::from_secs(120));
        assert!(pipe.take_written().starts_with(b"HTTP/1.1 408 "));
    });
    assert_eq!(late.len(), 1, "{late:?}");
    assert!(late[0].contains("\"POST / HTTP/1.1\" 408 "), "{late:?}");
}

#[test]
fn a_head_that_a_connection_of_http2_refuses_is_logged() {
    let written = Written::default();
    let log = LineLog::new("test", written.clone());
    let logged = router().with(AccessLog::new(LogFormat::Json).to(&log));
    let (codec, handler) = Config::new().connections(logged)();
    let mut peer = Peer::new(Embedded::new(codec, handler));
    let many: Vec<_> = (0..200).map(|_| ("a", "b")).collect();
    peer.request(1, "GET", "/", &many, true);
    peer.read_until(|peer| peer.is_over(1));
    assert_eq!(peer.stream(1).status(), "431");
    assert!(log.flush(Duration::from_secs(86_400)));
    let line: serde_json::Value = serde_json::from_slice(&written.0.lock().unwrap()).expect("one line");
    assert_eq!((line["status"].as_u64(), line["line"].as_str()), (Some(431), Some("")), "{line}");
    assert!(line["refused"].as_str().unwrap().contains("too large"), "{line}");
}

#[test]
fn a_request_of_a_proxy_is_logged_with_its_upstream_and_the_reason_of_its_failure() {
    let network = Network::new(0);
    let upstream = network.host("10.0.1.1").node();
    let connections = Config::new().connections(Router::new().fallback(|| "a response"));
    upstream.listen(80, Limits::default(), move |_| connections()).expect("the port is free");
    let written = Written::default();
    let log = LineLog::new("test", written.clone());
    let gateway = network.host("10.0.0.1").node();
    let set = |url| Upstreams::new([url]).expect("an upstream");
    let router = Router::new()
        .get("/there", Proxy::new(&set("http://10.0.1.1")))
        .get("/refuses", Proxy::new(&set("http://10.0.1.1:81")))
        .get("/own", || "no upstream");
    let connections = Config::new().connections(router.with(AccessLog::new(LogFormat::Json).to(&log)));
    let address = gateway.listen(80, Limits::default(), move |_| connections()).expect("the port is free");
    let client = network.host("10.0.0.2").node();
    let asked = client.spawn(async move {
        for (path, status) in [("/there", 200), ("/refuses", 502), ("/own", 200)] {
            let response = Client::new().get(format!("http://{address}{path}")).send().await.expect("a response");
            assert_eq!(response.status().as_u16(), status, "{path}");
        }
    });
    network.run_task(Duration::from_secs(600), asked);
    assert!(log.flush(Duration::from_secs(86_400)));
    let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let upstreams: Vec<_> = lines.iter().map(|line| line["upstream"].as_str()).collect();
    assert_eq!(upstreams, [Some("http://10.0.1.1:80"), Some("http://10.0.1.1:81"), None], "{text}");
    let errors: Vec<_> = lines.iter().map(|line| line["upstream_error"].as_str()).collect();
    assert!(matches!(errors[..], [None, Some(error), None] if error.contains("refused")), "{text}");
}

#[test]
fn a_format_of_ones_own_has_its_fields_and_no_peer_can_end_them() {
    let template: LogTemplate = "{client.ip} {request.id} \"{request.line}\" {response.status} {request.bytes} \
        {response.bytes} \"{request.header.x-sea}\" {upstream.address} {tls.version} {cache} {end} {{}}"
        .parse()
        .unwrap();
    let log = |log: AccessLog, wire: &[u8]| {
        let written = Written::default();
        let lines = LineLog::new("test", written.clone());
        let router = router().with(log.to(&lines)).with(RequestIds::new());
        let (codec, handler) = Config::new().connections(router)();
        Embedded::new(codec, handler).receive(wire);
        assert!(lines.flush(Duration::from_secs(86_400)));
        String::from_utf8(written.0.lock().unwrap().clone()).unwrap()
    };
    let wire =
        b"POST /?\" HTTP/1.1\r\nHost: sea\r\nX-Request-Id: id7\r\nX-Sea: a\"b\\c\xff\r\nContent-Length: 3\r\n\r\nebb";
    let line = log(AccessLog::template(&template), wire);
    let (_, line) = line.split_once(' ').unwrap();
    assert_eq!(line, "id7 \"POST /?\\\" HTTP/1.1\" 200 3 1 \"a\\\"b\\\\c\\xff\" - - - done {}\n");
    let line = log(AccessLog::template(&template), b"GET /\x01 HTTP/1.1\r\n\r\n");
    let (_, line) = line.split_once(' ').unwrap();
    assert_eq!(line, "- \"GET /\\x01 HTTP/1.1\" 400 - - \"-\" - - - refused {}\n");
}

/// A body that a function writes in pieces, with so long a wait behind each.
fn slow_pieces() -> Router {
    Router::new().get("/", || {
        Body::produce(async |writer| {
            for _ in 0..3 {
                writer.write("0123456789").await?;
                tidegate::task::sleep(Duration::from_secs(1)).await;
            }
            Ok(())
        })
    })
}

#[test]
fn the_line_of_a_body_in_pieces_is_written_at_its_end_with_its_bytes_and_its_time() {
    const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: sea\r\n\r\n";
    let logged = lines(LogFormat::Json, slow_pieces(), |pipe| {
        pipe.receive(GET);
        (0..5).for_each(|_| pipe.advance(Duration::from_secs(1)));
        assert!(pipe.take_written().ends_with(b"0\r\n\r\n"));
    });
    let line: serde_json::Value = serde_json::from_str(&logged[0]).expect(&logged[0]);
    assert_eq!((logged.len(), line["bytes"].as_u64(), line["end"].as_str()), (1, Some(30), None), "{line}");
    assert!((3_000_000..4_000_000).contains(&line["total_microseconds"].as_u64().unwrap()), "{line}");
    let logged = lines(LogFormat::Combined, slow_pieces(), |pipe| {
        pipe.receive(GET);
        (0..5).for_each(|_| pipe.advance(Duration::from_secs(1)));
    });
    assert!(logged[0].ends_with("\"GET / HTTP/1.1\" 200 30 \"-\" \"-\""), "{logged:?}");
    let logged = lines(LogFormat::Json, slow_pieces(), |pipe| {
        pipe.receive(b"HEAD / HTTP/1.1\r\nHost: sea\r\n\r\n");
    });
    let line: serde_json::Value = serde_json::from_str(&logged[0]).expect(&logged[0]);
    assert_eq!((logged.len(), line["bytes"].as_u64(), line["end"].as_str()), (1, Some(0), None), "{line}");
}

#[test]
fn a_client_that_leaves_is_logged_before_and_within_its_response() {
    let waits = || {
        Router::new().get("/", async |_: Request| {
            tidegate::task::sleep(Duration::from_secs(5)).await;
            "late"
        })
    };
    for (router, status, bytes) in [(waits(), 499, 0), (slow_pieces(), 200, 20)] {
        let logged = lines(LogFormat::Json, router, |pipe| {
            pipe.receive(b"GET / HTTP/1.1\r\nHost: sea\r\n\r\n");
            pipe.advance(Duration::from_secs(1));
            pipe.receive_fin();
        });
        assert_eq!(logged.len(), 1, "{logged:?}");
        let line: serde_json::Value = serde_json::from_str(&logged[0]).expect(&logged[0]);
        assert_eq!((line["status"].as_u64(), line["end"].as_str()), (Some(status), Some("client_left")), "{line}");
        assert_eq!(line["bytes"].as_u64(), Some(bytes), "{line}");
    }
}

#[test]
fn a_function_that_fails_within_its_body_is_logged_as_such() {
    let router = Router::new().get("/", || {
        Body::produce(async |writer| {
            writer.write("0123456789").await?;
            Err("no more".into())
        })
    });
    let logged = lines(LogFormat::Json, router, |pipe| pipe.receive(b"GET / HTTP/1.1\r\nHost: sea\r\n\r\n"));
    let line: serde_json::Value = serde_json::from_str(&logged[0]).expect(&logged[0]);
    assert_eq!((logged.len(), line["end"].as_str(), line["bytes"].as_u64()), (1, Some("failed"), Some(10)), "{line}");
}

#[test]
fn a_stream_of_http2_that_is_refused_within_its_body_or_reset_has_one_line() {
    let written = Written::default();
    let log = LineLog::new("test", written.clone());
    let mut limits = tidegate::http::Limits::default();
    limits.body_bytes_max = 100;
    let router = router().get("/never", async || std::future::pending::<&str>().await);
    let logged = router.with(AccessLog::new(LogFormat::Json).to(&log));
    let (codec, handler) = Config::new().limits(limits).connections(logged)();
    let mut peer = Peer::new(Embedded::new(codec, handler));
    peer.request(1, "POST", "/", &[("content-length", "500")], false);
    peer.read_until(|peer| peer.is_over(1));
    assert_eq!(peer.stream(1).status(), "413");
    peer.request(3, "GET", "/never", &[], true);
    peer.frame(3, 0, 3, &8_u32.to_be_bytes());
    peer.request(5, "GET", "/", &[], true);
    peer.read_until(|peer| peer.is_over(5));
    assert!(log.flush(Duration::from_secs(86_400)));
    let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let mut ends: Vec<_> = lines.iter().map(|line| (line["status"].as_u64().unwrap(), line["end"].as_str())).collect();
    ends.sort_unstable();
    assert_eq!(ends, [(200, None), (413, Some("refused")), (499, Some("client_left"))], "{text}");
}

#[test]
fn a_line_has_the_attributes_of_the_conventions() {
    let router = router().get("/tides/{harbour}", || StatusCode::SERVICE_UNAVAILABLE).with(RequestIds::new());
    let lines = lines(LogFormat::OpenTelemetry, router.with(TraceContexts::new()), |pipe| {
        let head = "GET /tides/brest?from=\"2\" HTTP/1.1\r\nHost: sea.example:81\r\nUser-Agent: buoy/1\r\n";
        let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        pipe.receive(format!("{head}Traceparent: {trace}\r\n\r\n").as_bytes());
        pipe.receive(b"POST / HTTP/1.1\r\nHost: sea\r\nContent-Length: 3\r\n\r\nabc");
        pipe.receive(b"bad\r\n\r\n");
    });
    let lines: Vec<serde_json::Value> = lines.iter().map(|line| serde_json::from_str(line).expect(line)).collect();
    let expected = serde_json::json!({
        "http.request.method": "GET", "url.scheme": "http", "url.path": "/tides/brest", "url.query": "from=\"2\"",
        "network.protocol.version": "1.1", "server.address": "sea.example", "server.port": 81,
        "http.route": "/tides/{harbour}", "user_agent.original": "buoy/1", "http.response.status_code": 503,
        "error.type": "503", "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736", "trace_flags": "01",
    });
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&lines[0][name], value, "{name}: {}", lines[0]);
    }
    assert!(lines[0]["timestamp"].is_f64() && lines[0]["http.server.request.duration"].is_f64(), "{}", lines[0]);
    let post = &lines[1];
    let sizes = (&post["http.request.body.size"], &post["http.response.body.size"]);
    assert_eq!(sizes, (&3.into(), &1.into()), "{post}");
    assert!(post.get("error.type").is_none() && post.get("tidegate.end").is_none(), "{post}");
    assert_eq!((&lines[2]["tidegate.end"], &lines[2]["http.response.status_code"]), (&"refused".into(), &400.into()));
}
