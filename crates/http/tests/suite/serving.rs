//! Requests to functions of all kinds over real connections.

use std::cell::Cell;
use std::io::{Read, Write};
use std::sync::mpsc;
use std::time::Duration;

use tidegate::http::{Body, BodyError, Path, Request, Response, Router, Server, State, StatusCode};
use tidegate::task;

use crate::support::{self, ask, split, start};

fn router() -> Router<Cell<u32>> {
    Router::with_state(Cell::new(0_u32))
        .get("/", || "hello")
        .get("/count", |State(count): State<Cell<u32>>| {
            count.set(count.get() + 1);
            count.get().to_string()
        })
        .get("/sleep/{ms}", async |request: Request| {
            let ms = request.parameter("ms").unwrap_or_default().parse().map_err(|_| StatusCode::BAD_REQUEST)?;
            task::sleep(Duration::from_millis(ms)).await;
            Ok::<_, StatusCode>(format!("slept {ms}"))
        })
        .get("/now", async || "now")
        .post("/echo", |request: Request| Response::new().body(request.into_body()))
        .post("/stream", async |request: Request| Response::new().body(request.into_body()))
        .post("/length", async |mut request: Request| {
            let mut length = 0;
            while let Some(piece) = request.body_mut().next().await {
                length += piece?.len();
            }
            Ok::<_, BodyError>(length.to_string())
        })
        .get("/rows/{count}", |request: Request| {
            let count: u32 = request.parameter("count").unwrap_or_default().parse().unwrap_or(0);
            Response::new().body(Body::produce(async move |writer| {
                for row in 0..count {
                    writer.write(format!("{row}\n")).await?;
                }
                Ok(())
            }))
        })
        .get("/panic", || -> &'static str { panic!("on purpose") })
        .get("/panic-later", async || -> &'static str {
            task::sleep(Duration::from_millis(1)).await;
            panic!("on purpose, later")
        })
}

#[test]
fn functions_respond_async_or_not() {
    let server = start(router);
    for (path, expected) in [("/", "hello"), ("/now", "now"), ("/sleep/3", "slept 3"), ("/rows/0", "0\r\n\r\n")] {
        let (head, body) = server.get(path);
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{path}: {head}");
        assert_eq!(body, expected, "{path}");
    }
    assert_eq!(server.get("/rows/2").1, "2\r\n0\n\r\n2\r\n1\n\r\n0\r\n\r\n");
    assert_eq!(server.get("/count").1, "1");
    assert_eq!(server.get("/count").1, "2");
}

#[test]
fn pipelined_requests_of_all_kinds_are_answered_in_order() {
    let server = start(router);
    let paths = ["/", "/now", "/", "/sleep/5", "/rows/1", "/count", "/now", "/sleep/1", "/"];
    let wire: String = paths.map(|path| format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n")).concat();
    let answer = server.exchange(&wire);
    let bodies: Vec<&str> =
        answer.split("HTTP/1.1 200 OK\r\n").skip(1).map(|one| one.split_once("\r\n\r\n").unwrap().1).collect();
    assert_eq!(bodies, ["hello", "now", "hello", "slept 5", "2\r\n0\n\r\n0\r\n\r\n", "1", "now", "slept 1", "hello"]);
}

#[test]
fn bodies_are_collected_or_read_piece_by_piece() {
    let server = start(router);
    for path in ["/echo", "/stream"] {
        let wire = format!("POST {path} HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\nConnection: close\r\n\r\ntides");
        let (head, body) = split(&server.exchange(&wire));
        assert!(head.contains("Content-Length: 5"), "{path}: {head}");
        assert_eq!(body, "tides", "{path}");
        let wire = format!(
            "POST {path} HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n2\r\nti\r\n3\r\ndes\r\n0\r\n\r\n"
        );
        let (_, body) = split(&server.exchange(&wire));
        assert!(body.contains("ti") && body.contains("des"), "{path}: {body}");
    }
    let wire = "POST /length HTTP/1.1\r\nHost: test\r\nContent-Length: 100000\r\nConnection: close\r\n\r\n".to_owned();
    let (_, body) = split(&server.exchange(&(wire + &"x".repeat(100_000))));
    assert_eq!(body, "100000");
}

#[test]
fn a_body_arrives_in_single_bytes() {
    let server = start(router);
    for path in ["/echo", "/stream", "/length"] {
        let mut stream = server.connect();
        stream.set_nodelay(true).unwrap();
        let wire = format!("POST {path} HTTP/1.1\r\nHost: test\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc");
        for byte in wire.bytes() {
            stream.write_all(&[byte]).unwrap();
        }
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert_eq!(split(&answer).1, if path == "/length" { "3" } else { "abc" }, "{path}");
    }
}

#[test]
fn continue_is_sent_when_the_body_is_wanted() {
    let server = start(router);
    for path in ["/echo", "/stream", "/length"] {
        let mut stream = server.connect();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: test\r\nContent-Length: 1\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut interim = [0; 25];
        stream.read_exact(&mut interim).unwrap();
        assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n", "{path}");
        stream.write_all(b"1").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert_eq!(split(&answer).1, "1", "{path}");
    }
    // A body that is too long is not asked for.
    let wire = "POST /echo HTTP/1.1\r\nHost: test\r\nContent-Length: 2000000\r\nExpect: 100-continue\r\n\r\n";
    assert!(server.exchange(wire).starts_with("HTTP/1.1 413"), "a body beyond collected_body_bytes_max");
}

#[test]
fn paths_and_methods_without_a_function_get_404_and_405() {
    let server = start(router);
    assert!(server.get("/nowhere").0.starts_with("HTTP/1.1 404 "));
    let answer = server.exchange("PUT /echo HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 405 ") && answer.contains("\r\nAllow: POST, OPTIONS\r\n"), "{answer}");
    let answer = server.exchange("OPTIONS / HTTP/1.1\r\nHost: test\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 204 ") && answer.contains("\r\nAllow: GET, HEAD, OPTIONS\r\n"), "{answer}");
    let answer = server.exchange("BREW / HTTP/1.1\r\nHost: test\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 501 "), "{answer}");
    let (head, body) = split(&server.exchange("HEAD / HTTP/1.1\r\nHost: test\r\n\r\n"));
    assert!(head.contains("Content-Length: 5"), "{head}");
    assert_eq!(body, "");
    let (_, body) = split(&server.exchange("HEAD /rows/3 HTTP/1.1\r\nHost: test\r\n\r\n"));
    assert_eq!(body, "");
}

#[test]
fn a_panic_is_a_500_and_ends_only_its_connection() {
    let server = start(router);
    for path in ["/panic", "/panic-later"] {
        assert!(server.get(path).0.starts_with("HTTP/1.1 500 "), "{path}");
    }
    assert_eq!(server.get("/").1, "hello");
}

#[test]
fn a_status_without_a_body_sends_none() {
    let server =
        start(|| Router::new().get("/{code}", |Path(code): Path<u16>| (StatusCode::from_u16(code).unwrap(), "text")));
    for code in [204, 304] {
        let (head, body) = server.get(&format!("/{code}"));
        assert!(head.starts_with(&format!("HTTP/1.1 {code} ")) && !head.contains("Content-Type"), "{head}");
        assert_eq!(body, "");
    }
}

#[test]
fn a_reload_makes_routers_anew_and_keeps_the_old_ones_if_that_panics() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use tidegate::http::{Reload, Server};

    let (reload, version) = (Reload::new(), Arc::new(AtomicU32::new(1)));
    let current = version.clone();
    let router = move || {
        let version = current.load(Ordering::Relaxed);
        assert_ne!(version, 3, "on purpose");
        Router::new().get("/", move || version.to_string())
    };
    let started = Server::bind("127.0.0.1:0").unwrap().reload(&reload).loops(1).start(router);
    let server = support::Running(started.expect("it starts"));
    let mut stream = server.connect();
    let mut ask = || {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
        let mut answer = [0; 1024];
        let length = stream.read(&mut answer).unwrap();
        answer[length - 1] - b'0'
    };
    assert_eq!(ask(), 1);
    for (next, expected) in [(2, 2), (3, 2), (4, 4)] {
        version.store(next, Ordering::Relaxed);
        reload.reload();
        // The same connection, and a new one.
        assert_eq!(ask(), expected);
        assert_eq!(server.get("/").1, expected.to_string());
    }
}

/// Reports its end when it is dropped.
struct Reports(mpsc::Sender<usize>, usize);

impl Drop for Reports {
    fn drop(&mut self) {
        let _ = self.0.send(self.1);
    }
}

#[test]
fn a_background_task_runs_on_each_loop_until_the_drain() {
    let ((started, starts), (ended, ends)) = (mpsc::channel(), mpsc::channel());
    let task = move |number| {
        let (started, ended) = (started.clone(), Reports(ended.clone(), number));
        async move {
            let _ended = ended;
            started.send(number).unwrap();
            std::future::pending::<()>().await;
        }
    };
    let server = Server::bind("127.0.0.1:0").unwrap().loops(2).background(task);
    let server = server.start(|| Router::new().get("/", || "hello")).unwrap();
    let both = |numbers: &mpsc::Receiver<usize>| {
        let (one, other) = (numbers.recv().unwrap(), numbers.recv().unwrap());
        (one.min(other), one.max(other))
    };
    assert_eq!(both(&starts), (0, 1));
    assert!(ends.try_recv().is_err(), "nothing has ended before the drain");
    // Without any time the loop would drop it as well; with an hour only the drain does.
    server.begin_drain(Duration::from_secs(3600));
    assert_eq!(both(&ends), (0, 1));
    server.wait();
}

#[test]
fn fields_and_a_body_are_a_response() {
    let created = || (StatusCode::CREATED, [("Location", "/tides/1".to_owned())], "made");
    let page = || ([("Content-Type", "text/css")], "p {}");
    let invalid = || ([("Location", "/\r\nSet-Cookie: a=b")], "never sent");
    let router = Router::new().get("/created", created).get("/page", page).get("/invalid", invalid);
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: sea\r\n\r\n");
    let answers = ask(router, &[&get("/created"), &get("/page"), &get("/invalid")]);
    assert!(
        answers[0].starts_with("HTTP/1.1 201 ") && answers[0].contains("\r\nLocation: /tides/1\r\n"),
        "{}",
        answers[0]
    );
    assert!(
        answers[1].contains("\r\nContent-Type: text/css\r\n") && !answers[1].contains("text/plain"),
        "{}",
        answers[1]
    );
    assert!(answers[2].starts_with("HTTP/1.1 500 ") && !answers[2].contains("Set-Cookie"), "{}", answers[2]);
}
