//! The administrative server of a running server: its pages, and its refusals.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;
use tidegate::admin::{Admin, AdminError, AdminHandle, BackplaneFigures};
use tidegate::framing::Lines;
use tidegate::http::cache::Cache;
use tidegate::http::{Response, Router, Server};
use tidegate::metrics::{FacadeRecorder, HttpMetrics};
use tidegate::{Address, RoomLimits, Rooms, ServerHandle, Slow};

struct Both {
    server: ServerHandle,
    admin: AdminHandle,
}

fn start() -> Both {
    let metrics = HttpMetrics::new();
    let router = || Router::new().get("/tides/{harbour}", || "high");
    let server = Server::bind("127.0.0.1:0").unwrap().loops(2).metrics(&metrics).start(router).expect("it starts");
    let admin = Admin::new(&server).requests(&metrics).host("ops.example");
    let admin = admin.start(&"127.0.0.1:0".parse().unwrap()).expect("it starts");
    Both { server, admin }
}

fn connect(address: &Address) -> TcpStream {
    let peer = TcpStream::connect(address.ip().expect("an IP address")).expect("it connects");
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    peer
}

/// A response: its status, its head, its body.
fn send(address: &Address, request: &str) -> (u16, String, String) {
    let mut peer = connect(address);
    peer.write_all(request.as_bytes()).unwrap();
    peer.shutdown(Shutdown::Write).unwrap();
    let mut text = String::new();
    peer.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    (head[9..12].parse().expect("a status"), head.to_owned(), body.to_owned())
}

impl Both {
    fn get(&self, path: &str) -> (u16, String, String) {
        self.get_with(path, "")
    }

    fn get_with(&self, path: &str, fields: &str) -> (u16, String, String) {
        send(self.admin.address(), &format!("GET {path} HTTP/1.1\r\nHost: {}\r\n{fields}\r\n", self.admin.address()))
    }

    fn connections(&self, query: &str) -> Value {
        let (status, _, body) = self.get(&format!("/dashboard/connections?{query}"));
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).expect("JSON")
    }

    /// A connection that has had a response.
    fn visit(&self, path: &str) -> TcpStream {
        let mut peer = connect(self.server.address());
        peer.write_all(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).unwrap();
        let mut seen = Vec::new();
        while !seen.windows(4).any(|four| four == b"\r\n\r\n") {
            let mut piece = [0; 1024];
            let length = peer.read(&mut piece).unwrap();
            assert!(length > 0, "the connection ended");
            seen.extend_from_slice(&piece[..length]);
        }
        peer
    }
}

impl Drop for Both {
    fn drop(&mut self) {
        self.server.drain(Duration::ZERO);
    }
}

#[test]
fn metrics_come_in_the_format_that_was_asked_for() {
    let both = start();
    let _peers: Vec<_> = (0..3).map(|_| both.visit("/tides/brest")).collect();
    let (status, head, body) = both.get("/metrics");
    assert_eq!(status, 200);
    assert!(head.contains("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{head}");
    let series = "tidegate_http_requests_total{route=\"/tides/{harbour}\",method=\"GET\",status=\"2xx\"} 3\n";
    for expected in
        [series, "# TYPE tidegate_connections gauge\n", "tidegate_listener_connections{", "tidegate_draining 0\n"]
    {
        assert!(body.contains(expected), "{expected}: {body}");
    }
    assert!(!body.contains("# EOF"));
    let (_, head, body) = both.get_with("/metrics", "Accept: application/openmetrics-text\r\n");
    assert!(head.contains("Content-Type: application/openmetrics-text;") && head.contains("Vary: Accept"), "{head}");
    assert!(body.contains("# TYPE tidegate_http_requests counter\n") && body.ends_with("# EOF\n"), "{body}");
}

#[test]
fn readiness_ends_when_the_drain_begins_and_health_does_not() {
    let both = start();
    // It is not idle, so the server waits for it.
    let mut busy = connect(both.server.address());
    busy.write_all(b"GET /tides/brest HTTP/1.1\r\n").unwrap();
    assert_eq!((both.get("/ready").0, both.get("/health").0), (200, 200));
    both.server.begin_drain(PATIENCE);
    assert_eq!((both.get("/ready").0, both.get("/health").0), (503, 200));
    assert_eq!(both.get("/ready").2, "draining\n");
}

#[test]
fn requests_of_other_sites_are_refused() {
    let both = start();
    let address = both.admin.address();
    for host in ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example"] {
        let (status, head, _) = send(address, &format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(status, 403, "{host}");
        assert!(!head.to_ascii_lowercase().contains("access-control"), "{head}");
    }
    for host in ["ops.example", "OPS.example:1", "localhost", "[::1]:80", "10.0.0.1"] {
        assert_eq!(send(address, &format!("GET /health HTTP/1.1\r\nHost: {host}\r\n\r\n")).0, 200, "{host}");
    }
    for origin in ["null", "http://evil.example", "http://127.0.0.1", "http://127.0.0.1:1\r\nOrigin: http://a"] {
        assert_eq!(both.get_with("/metrics", &format!("Origin: {origin}\r\n")).0, 403, "{origin}");
    }
    assert_eq!(both.get_with("/metrics", &format!("Origin: http://{address}\r\n")).0, 200);
}

#[test]
fn a_connection_is_closed_by_a_post_with_our_own_origin_only() {
    let both = start();
    let mut peer = both.visit("/tides/brest");
    let listed = both.connections("");
    let row = &listed["rows"][0];
    assert_eq!(row["peer"], peer.local_addr().unwrap().to_string());
    assert_eq!((row["protocol"].as_str(), row["state"].as_str()), (Some("HTTP/1.1"), Some("open")));
    let target = format!("/dashboard/close?loop={}&id={}", row["loop"], row["id"].as_str().expect("a text"));
    let address = both.admin.address();
    let ask = |method: &str, fields: &str| {
        send(address, &format!("{method} {target} HTTP/1.1\r\nHost: {address}\r\n{fields}Content-Length: 0\r\n\r\n")).0
    };
    assert_eq!(ask("GET", ""), 405);
    assert_eq!(ask("POST", ""), 403, "without an origin");
    assert_eq!(ask("POST", "Origin: http://evil.example\r\n"), 403);
    assert_eq!(both.connections("")["total"], 1);
    assert_eq!(ask("POST", &format!("Origin: http://{address}\r\n")), 204);
    let end = peer.read(&mut [0]).expect_err("it is reset");
    assert_eq!(end.kind(), ErrorKind::ConnectionReset);
    // Numbers of no connection, or no numbers.
    for (query, status) in [("loop=0&id=1", 404), ("loop=9&id=1", 404), ("loop=x&id=1", 400), ("id=1", 400)] {
        let request = format!(
            "POST /dashboard/close?{query} HTTP/1.1\r\nHost: {address}\r\nOrigin: http://{address}\r\n\
             Content-Length: 0\r\n\r\n"
        );
        assert_eq!(send(address, &request).0, status, "{query}");
    }
}

#[test]
fn connections_are_searched_and_sorted() {
    let both = start();
    let peers: Vec<_> = (0..30).map(|_| both.visit("/tides/brest")).collect();
    let all = both.connections("sort=peer&ascending=true&rows=100");
    assert_eq!((all["total"].as_u64(), all["rows"].as_array().map(Vec::len)), (Some(30), Some(30)));
    let mut ports: Vec<_> = peers.iter().map(|peer| peer.local_addr().unwrap().port()).collect();
    ports.sort_unstable();
    let listed = |value: &Value| -> Vec<u16> {
        let rows = value["rows"].as_array().expect("rows").iter();
        rows.map(|row| row["peer"].as_str().unwrap().rsplit(':').next().unwrap().parse().unwrap()).collect()
    };
    assert_eq!(listed(&all), ports);
    let last = both.connections("sort=peer&rows=5");
    assert_eq!(listed(&last), ports.iter().rev().take(5).copied().collect::<Vec<_>>());
    let one = both.connections(&format!("search=:{}", ports[3]));
    assert_eq!((one["matching"].as_u64(), listed(&one)), (Some(1), vec![ports[3]]));
    assert_eq!(both.connections("search=http%2F1.1%20closing&rows=0")["matching"], 0);
    assert_eq!(both.connections("search=http%2F1.1%20OPEN&rows=0")["matching"], 30);
    for wrong in ["sort=nothing", "rows=-1", "ascending=7"] {
        assert_eq!(both.get(&format!("/dashboard/connections?{wrong}")).0, 400, "{wrong}");
    }
}

#[test]
fn the_page_may_load_nothing_from_elsewhere() {
    let both = start();
    let (status, head, body) = both.get("/dashboard");
    assert_eq!(status, 200);
    for expected in ["default-src 'none'", "frame-ancestors 'none'", "connect-src 'self'", "nosniff", "no-store"] {
        assert!(head.contains(expected), "{expected}: {head}");
    }
    for absent in ["http://", "https://", "//cdn", "innerHTML", "NONCE", "@import", "document.write", "eval("] {
        let found = body.replace("http://www.w3.org/2000/svg", "").contains(absent);
        assert!(!found, "the page contains {absent}");
    }
    let nonce = |text: &str| text.split_once("'nonce-").map(|(_, rest)| rest[..16].to_owned()).expect("a nonce");
    assert!(body.contains(&format!("nonce=\"{}\"", nonce(&head))));
    assert_ne!(nonce(&head), nonce(&both.get("/dashboard").1), "each page has its own");
}

#[test]
fn events_have_the_figures_as_json() {
    let both = start();
    let _peer = both.visit("/tides/brest");
    let mut page = connect(both.admin.address());
    page.write_all(format!("GET /dashboard/events HTTP/1.1\r\nHost: {}\r\n\r\n", both.admin.address()).as_bytes())
        .unwrap();
    let mut seen = String::new();
    let event = loop {
        let mut piece = [0; 4096];
        let length = page.read(&mut piece).unwrap();
        assert!(length > 0, "the stream ended: {seen}");
        seen.push_str(std::str::from_utf8(&piece[..length]).unwrap());
        let data = seen.split_once("data: ").and_then(|(_, rest)| rest.split_once("\n\n"));
        if let Some((data, _)) = data {
            break serde_json::from_str::<Value>(data).expect("JSON");
        }
    };
    assert_eq!(event["loops"].as_array().map(Vec::len), Some(2));
    assert_eq!(event["requests"]["routes"][0]["route"], "/tides/{harbour}");
    let open: u64 = event["loops"].as_array().unwrap().iter().map(|one| one["connections"].as_u64().unwrap()).sum();
    assert_eq!(open, 1);
}

#[test]
fn the_figures_have_the_largest_rooms_and_the_backplane() {
    let both = start();
    let server = both.server.clone();
    let rooms = Rooms::<Lines>::new(Slow::Skip, RoomLimits::default()).encoding(|_| None);
    let kept: Vec<_> = (0..30).filter_map(|number| rooms.room(&format!("room {number}"))).collect();
    let _member = kept[7].subscribe(None, ()).expect("there is room");
    let none = both.get("/dashboard/snapshot").2;
    assert!(!none.contains("\"rooms\"") && !none.contains("\"backplane\""), "{none}");
    let figures = BackplaneFigures {
        lag_micros: 412,
        gaps: 3,
        unconfirmed: 5,
        refused: 7,
        fault: Some("the broker refuses messages: READONLY".to_owned()),
        ..BackplaneFigures::default()
    };
    let fault = figures.fault.clone();
    let admin = Admin::new(&server).rooms(move || rooms.summary(1000)).backplane(move || figures.clone());
    let admin = admin.ready_unless(|| None).ready_unless(move || fault.clone()).ready_if("later", || false);
    let admin = admin.start(&"127.0.0.1:0".parse().unwrap()).expect("it starts");
    let both = Both { server, admin };
    let (status, _, body) = both.get("/dashboard/snapshot");
    let snapshot: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!((status, snapshot["rooms"]["total"].as_u64()), (200, Some(30)));
    assert_eq!(snapshot["rooms"]["rows"].as_array().map(Vec::len), Some(20));
    assert_eq!((&snapshot["rooms"]["rows"][0]["name"], &snapshot["rooms"]["members"]), (&"room 7".into(), &1.into()));
    assert_eq!(snapshot["backplane"]["lag_micros"], 412);
    assert_eq!(snapshot["backplane"]["fault"], "the broker refuses messages: READONLY");
    let (status, _, body) = both.get("/ready");
    assert_eq!((status, &*body), (503, "the broker refuses messages: READONLY\n"));
    assert_eq!((&snapshot["backplane"]["unconfirmed"], &snapshot["backplane"]["refused"]), (&5.into(), &7.into()));
    assert_eq!((&snapshot["backplane"]["is_up"], &snapshot["backplane"]["gaps"]), (&false.into(), &3.into()));
}

#[test]
fn a_hundred_scrapes_at_once_all_get_the_whole_text() {
    let both = start();
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", both.admin.address());
    let mut peers: Vec<_> = (0..100).map(|_| connect(both.admin.address())).collect();
    // A client that reads nothing, and one that sends half a request, delay no other client.
    let mut slow = connect(both.admin.address());
    slow.write_all(request.as_bytes()).unwrap();
    let mut half = connect(both.admin.address());
    half.write_all(&request.as_bytes()[..20]).unwrap();
    for peer in &mut peers {
        peer.write_all(request.as_bytes()).unwrap();
    }
    for peer in &mut peers {
        let mut text = String::new();
        peer.read_to_string(&mut text).unwrap();
        assert!(text.contains("tidegate_build_info") && text.ends_with('\n'));
    }
}

#[test]
fn a_reader_that_takes_none_of_its_scrapes_delays_no_other_scrape() {
    let both = start();
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {}\r\n\r\n", both.admin.address());
    let mut slow = connect(both.admin.address());
    slow.set_nonblocking(true).unwrap();
    let batch = request.repeat(100);
    let mut write = || slow.write(batch.as_bytes()).map_err(|error| error.kind());
    // Once the responses fill the kernel's buffers, the admin reads no more requests: another scrape frees no room in
    // the kernel.
    let stops = (0..1000).any(|_| {
        while write().is_ok() {}
        assert!(both.get("/metrics").2.contains("tidegate_build_info"));
        write() == Err(ErrorKind::WouldBlock)
    });
    assert!(stops, "the admin reads requests whose responses no client takes");
}

#[test]
fn markup_of_a_peer_is_in_no_answer() {
    let both = start();
    let markup = "<script>alert(1)</script>";
    let fields = format!("User-Agent: {markup}\r\nReferer: {markup}\r\nX-Forwarded-For: {markup}\r\n");
    // A target may have such bytes; the response has none of them.
    let (status, _, body) = send(both.server.address(), &format!("GET /{markup} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
    assert_eq!((status, body.contains("<script")), (404, false), "{body}");
    let escaped = "/%3Cscript%3E?q=%3Cscript%3E";
    assert_eq!(send(both.server.address(), &format!("GET {escaped} HTTP/1.1\r\nHost: a\r\n{fields}\r\n")).0, 404);
    let _open = both.visit("/tides/%3Cscript%3E");
    for path in ["/metrics", "/dashboard/snapshot", "/dashboard/connections?search=%3Cscript%3E"] {
        let (status, head, body) = both.get(path);
        assert_eq!(status, 200);
        assert!(!body.contains("<script") && !body.contains("%3Cscript"), "{path}: {body}");
        assert!(!head.contains("text/html"), "{path}: {head}");
    }
    let page = both.get("/dashboard").2;
    for sink in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write"] {
        assert!(!page.contains(sink), "the page makes markup of texts by {sink}");
    }
}

#[test]
fn nothing_of_it_is_on_the_server_itself() {
    let both = start();
    for path in ["/metrics", "/health", "/ready", "/dashboard"] {
        assert_eq!(send(both.server.address(), &format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).0, 404, "{path}");
    }
}

#[test]
fn an_address_that_other_machines_reach_has_to_be_allowed() {
    let both = start();
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let error = Admin::new(&both.server).start(&address.parse().unwrap()).expect_err("it is refused");
        assert!(matches!(error, AdminError::Remote(_)) && error.to_string().contains("loopback"), "{error}");
    }
    let open = Admin::new(&both.server).allow_remote().start(&"0.0.0.0:0".parse().unwrap()).expect("it starts");
    assert_ne!(open.address().ip().expect("an IP address").port(), 0);
}

#[test]
fn it_responds_while_every_loop_of_the_server_hangs() {
    let server = Server::bind("127.0.0.1:0").unwrap().loops(1);
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = Mutex::new(released);
    let released = Arc::new(released);
    let router = move || {
        let released = released.clone();
        Router::new().get("/hang", move || {
            let _ = released.lock().unwrap().recv_timeout(PATIENCE);
            "over"
        })
    };
    let server = server.start(router).expect("it starts");
    let admin = Admin::new(&server).start(&"127.0.0.1:0".parse().unwrap()).expect("it starts");
    let mut peer = connect(server.address());
    peer.write_all(b"GET /hang HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let begun = Instant::now();
    loop {
        let (_, _, body) =
            send(admin.address(), &format!("GET /metrics HTTP/1.1\r\nHost: {}\r\n\r\n", admin.address()));
        if body.contains("tidegate_stalls_total{loop=\"0\"} 1\n") {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{body}");
        std::thread::sleep(Duration::from_millis(50));
    }
    let health = send(admin.address(), &format!("GET /health HTTP/1.1\r\nHost: {}\r\n\r\n", admin.address()));
    assert_eq!((health.0, health.2.as_str()), (503, "an event loop hangs\n"));
    let list = format!("GET /dashboard/connections HTTP/1.1\r\nHost: {}\r\n\r\n", admin.address());
    let listed: Value = serde_json::from_str(&send(admin.address(), &list).2).expect("JSON");
    assert_eq!((&listed["silent_loops"][0], &listed["total"]), (&Value::from(0), &Value::from(0)));
    drop(release);
    peer.read_exact(&mut [0; 12]).unwrap();
    server.drain(Duration::ZERO);
}

/// No wait takes longer, even if the machine is busy.
const PATIENCE: Duration = Duration::from_secs(120);

#[test]
fn metrics_of_the_application_are_behind_those_of_the_server() {
    let recorder = FacadeRecorder::new();
    metrics::with_local_recorder(&recorder, || metrics::counter!("ships", "name" => "\"}\n").increment(3));
    let server = Server::bind("127.0.0.1:0").unwrap().loops(1).start(Router::new).expect("it starts");
    let admin = Admin::new(&server).metrics(move |text| recorder.write(text));
    let both = Both { server, admin: admin.start(&"127.0.0.1:0".parse().unwrap()).expect("it starts") };
    let (_, _, text) = both.get("/metrics");
    let ours = text.find("tidegate_draining 0\n").expect("those of the server");
    assert!(text[ours..].contains("ships_total{name=\"\\\"}\\n\"} 3\n"), "{text}");
    let (_, _, text) = both.get_with("/metrics", "Accept: application/openmetrics-text\r\n");
    assert!(text.contains("# TYPE ships counter\nships_total{") && text.ends_with("\n# EOF\n"), "{text}");
}

#[test]
fn a_purge_removes_stored_responses_if_a_cache_is_given() {
    let cache = Cache::new();
    let stored = cache.clone();
    let tide = async || Response::text("ebb").header("Cache-Control", "max-age=60").expect("a field");
    let server = Server::bind("127.0.0.1:0").expect("an address").loops(1).half_close(true);
    let server = server.start(move || Router::new().fallback(stored.wrap(tide))).expect("it starts");
    let local = "127.0.0.1:0".parse().expect("an address");
    let without = Admin::new(&server).start(&local).expect("it starts");
    let admin = Admin::new(&server).cache(&cache).start(&local).expect("it starts");
    let purge = |admin: &AdminHandle, query: &str, origin: bool| {
        let address = admin.address();
        let origin = if origin { format!("Origin: http://{address}\r\n") } else { String::new() };
        let request =
            format!("POST /cache/purge?{query} HTTP/1.1\r\nHost: {address}\r\n{origin}Content-Length: 0\r\n\r\n");
        let (status, _, body) = send(address, &request);
        (status, body)
    };
    for (query, removed) in
        [("url=http%3A%2F%2Fsea%2Fa%3Fb", 1), ("prefix=http://sea/a", 2), ("host=sea", 3), ("all=true", 3)]
    {
        for target in ["/a?b", "/a/c", "/d"] {
            let request = format!("GET {target} HTTP/1.1\r\nHost: sea\r\n\r\n");
            assert_eq!(send(server.address(), &request).0, 200);
        }
        assert_eq!(purge(&admin, query, false).0, 403);
        let (status, body) = purge(&admin, query, true);
        assert_eq!((status, body.contains(&format!("{{\"removed\":{removed}}}"))), (200, true), "{query}: {body}");
    }
    for query in ["", "url=sea", "prefix=/", "all=false", "host=sea&all=true"] {
        assert_eq!(purge(&admin, query, true).0, 400, "{query}");
    }
    assert_eq!(purge(&without, "all=true", true).0, 404);
    server.drain(Duration::ZERO);
}

#[test]
fn a_purge_is_for_the_caches_and_a_state_for_the_server_that_are_in_use() {
    let caches = Arc::<Mutex<Vec<Cache>>>::default();
    let start = || Server::bind("127.0.0.1:0").expect("an address").loops(1).start(Router::new).expect("it starts");
    let current = Arc::new(Mutex::new(start()));
    let (read_caches, read_server) = (caches.clone(), current.clone());
    let admin = Admin::following(move || read_server.lock().unwrap().clone());
    let admin = admin.caches(move || read_caches.lock().unwrap().clone());
    let admin = admin.start(&"127.0.0.1:0".parse().expect("an address")).expect("it starts");
    let address = admin.address();
    let purge = format!(
        "POST /cache/purge?all=true HTTP/1.1\r\nHost: {address}\r\nOrigin: http://{address}\r\nContent-Length: 0\r\n\r\n"
    );
    assert_eq!(send(address, &purge).0, 404);
    caches.lock().unwrap().push(Cache::new());
    assert_eq!(send(address, &purge).0, 200);
    // The server before drains, and another one is ready.
    let ready = format!("GET /ready HTTP/1.1\r\nHost: {address}\r\n\r\n");
    let before = std::mem::replace(&mut *current.lock().unwrap(), start());
    before.drain(Duration::ZERO);
    assert_eq!(send(address, &ready).0, 200);
    let last = current.lock().unwrap().clone();
    last.drain(Duration::ZERO);
    assert_eq!(send(address, &ready).0, 503);
}
