//! Arguments of functions, and event streams, over real connections: also with peers that attack them.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tidegate::Bytes;
use tidegate::http::{
    Body, BodyError, Cookie, Cookies, Event, Extension, FORM_PAIRS_MAX, Form, HeaderMap, Host, Json, LastEventId,
    Method, Middleware, Multipart, MultipartError, Path, Peer, Query, Request, Response, Router, Sse, StatusCode,
};
use tidegate::task;

use crate::support::{Running, ask, split, start};

#[derive(Debug, Deserialize, Serialize)]
struct Tide {
    harbour: String,
    metres: f64,
}

#[derive(Debug, Deserialize, Serialize)]
struct Page {
    number: u32,
    size: Option<u32>,
    #[serde(default)]
    tags: Vec<String>,
}

#[derive(Clone)]
struct User(&'static str);

struct Login;

impl Middleware for Login {
    fn before(&self, request: &mut Request) -> Result<(), Response> {
        if request.header("x-user").is_some() {
            request.extensions_mut().insert(User("pilot"));
        }
        Ok(())
    }
}

fn router() -> Router {
    Router::new()
        .get("/tides/{year}/{month}", |Path((year, month)): Path<(u16, u8)>| format!("{month}/{year}"))
        .get("/files/{*path}", async |path: Path<String>| path.0)
        .get("/bug/{id}", |_: Path<(u8, u8)>| "never")
        .get("/query", |Query(page): Query<Page>| Json(page))
        .get("/optional", |page: Option<Query<Page>>| format!("{}", page.is_some()))
        .post("/form", |Form(form): Form<HashMap<String, String>>| form.len().to_string())
        .post("/pairs", async |Form(pairs): Form<Vec<(String, String)>>| pairs.len().to_string())
        .post("/json", |Json(tide): Json<Tide>| Json(tide))
        .post("/json-later", async |Json(tide): Json<Tide>| Json(tide))
        .post("/json-any", |_: Json<serde_json::Value>| "ok")
        .post("/json-result", |json: Result<Json<Tide>, Response>| match json {
            Ok(_) => "ok".to_owned(),
            Err(response) => format!("refused with {}", response.status_code()),
        })
        .post("/json-optional", |json: Option<Json<Tide>>| json.is_some().to_string())
        .post("/text", |text: String, request: Request| format!("{text} {}", request.bytes().len()))
        .post("/bytes", async |bytes: Bytes, vec: Vec<u8>| (bytes == vec).to_string())
        .post("/body", async |mut body: Body, request: Request| {
            let all = body.collect(100).await?;
            Ok::<_, BodyError>(format!("{} {}", all.len(), request.body().length() == Some(0)))
        })
        .any("/head", |method: Method, fields: HeaderMap, host: Host, peer: Peer| {
            format!("{method} {} {} {}", fields.len(), &*host, peer.ip().is_some())
        })
        .get("/user", |Extension(user): Extension<User>| user.0)
        .get("/maybe-user", |user: Option<Extension<User>>| user.map_or("nobody", |user| user.0.0))
        .get("/cookies", |cookies: Cookies| {
            cookies.iter().map(|(name, value)| format!("{name}={value};")).collect::<String>()
        })
        .get("/set-cookie", |Query(values): Query<HashMap<String, String>>| {
            Response::new().cookie(&Cookie::new("c", values["value"].clone()))
        })
        .get("/header", |Query(values): Query<HashMap<String, String>>| {
            Response::new().header("X-Echo", &values["value"])
        })
        .post("/parts", parts)
        .post("/skip", async |mut form: Multipart| {
            let mut count = 0;
            while form.next().await?.is_some() {
                count += 1;
            }
            Ok::<_, MultipartError>(count.to_string())
        })
        .post("/drop", async |form: Multipart| drop(form))
        .with(Login)
}

/// The names, file names and lengths of the parts of a form.
async fn parts(mut form: Multipart) -> Result<String, MultipartError> {
    let mut found = String::new();
    while let Some(mut field) = form.next().await? {
        found += &format!("{} {} ", field.name().unwrap_or("-"), field.file_name().unwrap_or("-"));
        if field.file_name().is_some() {
            let mut length = 0;
            while let Some(piece) = field.next().await? {
                length += piece.len();
            }
            found += &format!("{length}\n");
        } else {
            found += &field.text().await?;
            found += "\n";
        }
    }
    Ok(found)
}

impl Running {
    fn post(&self, path: &str, media_type: &str, body: &str) -> (String, String) {
        let length = body.len();
        split(&self.exchange(&format!(
            "POST {path} HTTP/1.1\r\nHost: test\r\nContent-Type: {media_type}\r\nContent-Length: {length}\r\n\
             Connection: close\r\n\r\n{body}"
        )))
    }

    fn status_of_post(&self, path: &str, media_type: &str, body: &str) -> u16 {
        status(&self.post(path, media_type, body).0)
    }
}

fn status(head: &str) -> u16 {
    head.split(' ').nth(1).expect("a status").parse().expect("a number")
}

const JSON: &str = "application/json";
const FORM: &str = "application/x-www-form-urlencoded";
const MULTIPART: &str = "multipart/form-data; boundary=tide";

#[test]
fn parameters_of_the_path_are_parsed() {
    let server = start(router);
    assert_eq!(server.get("/tides/2026/11").1, "11/2026");
    assert_eq!(server.get("/files/a/b%20c%2Fd").1, "a/b c/d");
    let (head, body) = server.get("/tides/2026/300");
    assert_eq!(status(&head), 400);
    assert_eq!(body, "the parameter `month` of the path is not valid: number too large to fit in target type\n");
    assert_eq!(status(&server.get("/files/%FF").0), 400);
    assert_eq!(status(&server.get("/bug/7").0), 500);
}

#[test]
fn queries_and_forms_are_parsed() {
    let server = start(router);
    let (_, page) = server.get("/query?number=3&tags=a+b&tags=%C3%BC");
    assert_eq!(page, "{\"number\":3,\"size\":null,\"tags\":[\"a b\",\"ü\"]}");
    assert!(server.get("/query?number=3&size=9").1.contains("\"size\":9"));
    for query in ["", "?", "?size=1", "?number=x", "?number=1&number=2"] {
        assert_eq!(status(&server.get(&format!("/query{query}")).0), 400, "{query}");
    }
    assert_eq!(server.get("/optional").1, "false");
    assert_eq!(server.get("/optional?number=1").1, "true");
    assert_eq!(status(&server.get("/optional?number=x").0), 400);
    assert_eq!(server.post("/form", FORM, "a=1&b=2").1, "2");
    assert_eq!(server.post("/form", "Application/X-WWW-form-urlencoded; charset=utf-8", "a=1").1, "1");
    assert_eq!(server.post("/pairs", FORM, "").1, "0");
    for media_type in [JSON, "", "text/plain"] {
        assert_eq!(server.status_of_post("/form", media_type, "a=1"), 415, "{media_type}");
    }
}

#[test]
fn a_form_with_a_million_equal_keys_is_refused() {
    let server = start(router);
    let most = vec!["a=1"; FORM_PAIRS_MAX].join("&");
    assert_eq!(server.post("/pairs", FORM, &most).1, FORM_PAIRS_MAX.to_string());
    assert_eq!(server.status_of_post("/pairs", FORM, &(most + "&a=1")), 400);
    // As many as fit into a body that is collected, and more.
    for path in ["/pairs", "/form"] {
        assert_eq!(server.status_of_post(path, FORM, &"a&".repeat(500_000)), 400, "{path}");
        assert_eq!(server.status_of_post(path, FORM, &"a&".repeat(1_000_000)), 413, "{path}");
    }
}

#[test]
fn json_is_parsed_and_serialized() {
    let server = start(router);
    for path in ["/json", "/json-later"] {
        for media_type in [JSON, "application/json; charset=utf-8", "application/tide+json"] {
            let (head, body) = server.post(path, media_type, "{\"metres\": 12.5, \"harbour\": \"Saint-Malo\"}");
            assert!(head.contains("\r\nContent-Type: application/json\r\n"), "{path}: {head}");
            assert_eq!(body, "{\"harbour\":\"Saint-Malo\",\"metres\":12.5}", "{path}");
        }
        for media_type in ["", "text/plain", FORM] {
            assert_eq!(server.status_of_post(path, media_type, "{}"), 415, "{path}: {media_type}");
        }
        let (head, body) = server.post(path, JSON, "{\n  \"metres\": ,}");
        assert_eq!(status(&head), 400, "{path}");
        assert_eq!(body, "the body is not JSON: expected value at line 2 column 13\n", "{path}");
        let (head, body) = server.post(path, JSON, "{\"metres\": true}");
        assert_eq!(status(&head), 422, "{path}");
        assert!(body.starts_with("the JSON does not fit: ") && body.contains("at line 1 column"), "{path}: {body}");
        for malformed in ["", "{", "{\"harbour\": \"\u{1}\"}", "{} {}"] {
            let status = server.status_of_post(path, JSON, malformed);
            assert!(status == 400 || status == 422, "{path}: {malformed}: {status}");
        }
    }
    assert_eq!(server.post("/json-result", JSON, "{}").1, "refused with 422 Unprocessable Entity");
    assert_eq!(server.post("/json-result", JSON, "{\"metres\": 1, \"harbour\": \"\"}").1, "ok");
    let (_, body) = split(
        &server.exchange("POST /json-optional HTTP/1.1\r\nHost: t\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"),
    );
    assert_eq!(body, "false");
    assert_eq!(server.status_of_post("/json-optional", JSON, "{"), 400);
}

#[test]
fn json_a_million_levels_deep_is_refused() {
    let server = start(router);
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let deep = format!("{}0{}", open.repeat(120), close.repeat(120));
        assert_eq!(server.post("/json-any", JSON, &deep).1, "ok");
        assert_eq!(server.status_of_post("/json-any", JSON, &open.repeat(1_000_000 / open.len())), 400);
    }
    assert_eq!(server.status_of_post("/json-any", JSON, &"[".repeat(1_000_000)), 400);
    // Parts that the type does not have are skipped without recursion.
    let skipped = format!("{{\"harbour\": \"\", \"metres\": 1, \"more\": {}}}", "[".repeat(1_000_000));
    assert_eq!(server.status_of_post("/json", JSON, &skipped), 400);
}

#[test]
fn whole_bodies_are_arguments() {
    let server = start(router);
    assert_eq!(server.post("/text", "text/plain", "tide").1, "tide 4");
    assert_eq!(server.post("/bytes", "", "tide").1, "true");
    assert_eq!(server.post("/body", "", "tide").1, "4 true");
    assert_eq!(server.status_of_post("/body", "", &"x".repeat(101)), 413);
    let wire = b"POST /text HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\nConnection: close\r\n\r\n\xff\xfe";
    let mut stream = server.connect();
    stream.write_all(wire).unwrap();
    let answer = read_all(&mut stream);
    assert_eq!(status(&answer), 400);
    assert!(answer.contains("the body is not UTF-8"), "{answer}");
}

#[test]
fn parts_of_the_head_are_arguments() {
    let server = start(router);
    let answer = server.exchange("PURGE /head HTTP/1.1\r\nHost: test:80\r\nA: 1\r\na: 2\r\nConnection: close\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("PURGE 4 test:80 true"), "{answer}");
    assert_eq!(status(&server.get("/user").0), 500);
    assert_eq!(server.get("/maybe-user").1, "nobody");
    for path in ["/user", "/maybe-user"] {
        let answer =
            server.exchange(&format!("GET {path} HTTP/1.1\r\nHost: t\r\nX-User: 1\r\nConnection: close\r\n\r\n"));
        assert!(answer.ends_with("pilot"), "{answer}");
    }
}

#[test]
fn cookies_are_parsed_and_set() {
    let server = start(router);
    let wire =
        "GET /cookies HTTP/1.1\r\nHost: t\r\nCookie: a=1; b=\"2\"; ;=;c\r\nCookie: d=%20\r\nConnection: close\r\n\r\n";
    assert!(server.exchange(wire).ends_with("a=1;b=2;d=%20;"));
    // As many as the head has room for.
    let many =
        format!("GET /cookies HTTP/1.1\r\nHost: t\r\nCookie: {}\r\nConnection: close\r\n\r\n", "a=;".repeat(5_000));
    assert_eq!(status(&server.exchange(&many)), 200);
    assert!(server.get("/set-cookie?value=7").0.contains("\r\nSet-Cookie: c=7\r\n"));
}

#[test]
fn line_ends_from_the_application_are_errors_at_the_call() {
    let server = start(router);
    for path in ["/set-cookie", "/header"] {
        for value in ["a%0D%0ASet-Cookie:%20b=c", "a%0Ab", "a%0Db", "a%00"] {
            let (head, _) = server.get(&format!("{path}?value={value}"));
            assert_eq!(status(&head), 500, "{path} {value}");
            assert!(!head.contains("b=c") && !head.contains("X-Echo"), "{path} {value}: {head}");
        }
    }
}

#[test]
fn multipart_is_read_part_by_part() {
    let server = start(router);
    let file = "x\r\n--tid\r\n".repeat(30_000);
    let body = format!(
        "preamble\r\n--tide\r\nContent-Disposition: form-data; name=\"harbour\"\r\n\r\nSaint-Malo\r\n--tide  \r\n\
         Content-Disposition: form-data; name=\"file\"; filename=\"../a.txt\"\r\nContent-Type: text/plain\r\n\r\n{file}\r\n\
         --tide\r\nA: b\r\n\r\n\r\n--tide--\r\nepilogue"
    );
    let (head, found) = server.post("/parts", MULTIPART, &body);
    assert_eq!(status(&head), 200, "{found}");
    assert_eq!(found, format!("harbour - Saint-Malo\nfile ../a.txt {}\n- - \n", file.len()));
    assert_eq!(server.post("/skip", MULTIPART, &body).1, "3");
    assert_eq!(server.status_of_post("/drop", MULTIPART, &body), 200);
}

#[test]
fn multipart_is_split_anywhere() {
    let server = start(router);
    let body = "--tide\r\nContent-Disposition: form-data; name=a; filename=f\r\n\r\n1\r\n-\r\n--tide\r\n\
                Content-Disposition: form-data; name=b\r\n\r\n\r\n--tide--";
    let head = format!(
        "POST /parts HTTP/1.1\r\nHost: t\r\nContent-Type: {MULTIPART}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    );
    for size in 1..body.len() {
        let chunks: String = body
            .as_bytes()
            .chunks(size)
            .map(|chunk| format!("{:x}\r\n{}\r\n", chunk.len(), std::str::from_utf8(chunk).unwrap()))
            .collect();
        let answer = server.exchange(&format!("{head}{chunks}0\r\n\r\n"));
        assert!(answer.ends_with("a f 4\nb - \n"), "{size}: {answer}");
    }
}

#[test]
fn malformed_multipart_is_refused() {
    let server = start(router);
    for (media_type, expected) in [
        ("multipart/form-data", 400),
        ("multipart/form-data; boundary=", 400),
        ("multipart/mixed; boundary=tide", 415),
        ("text/plain", 415),
        ("", 415),
    ] {
        assert_eq!(server.status_of_post("/parts", media_type, "--tide--"), expected, "{media_type}");
    }
    let long = format!("multipart/form-data; boundary={}", "b".repeat(71));
    assert_eq!(server.status_of_post("/parts", &long, "--tide--"), 400);
    let named = "Content-Disposition: form-data; name=a\r\n\r\n";
    for body in [
        String::new(),
        "no boundary".to_owned(),
        "--tide".to_owned(),
        "--tide\r\n".to_owned(),
        "--tideX\r\n".to_owned(),
        format!("--tide\r\n{named}no end"),
        format!("--tide\r\n{named}no end\r\n--tid"),
        format!("--tide\r\n{named}no end\r\n--tide-"),
        "--tide\r\nno colon\r\n\r\n\r\n--tide--".to_owned(),
        format!("--tide\r\n{}\r\n\r\n--tide--", "A: b\r\n".repeat(33)),
        "--tide\r\nContent-Disposition: form-data; name=a\r\n\r\n\u{1}\r\n--tide".to_owned(),
    ] {
        for path in ["/parts", "/skip"] {
            assert_eq!(server.status_of_post(path, MULTIPART, &body), 400, "{path} {body:?}");
        }
    }
}

#[test]
fn multipart_beyond_its_limits_is_refused() {
    let server = start(router);
    let part = "--tide\r\nContent-Disposition: form-data; name=a\r\n\r\n\r\n";
    assert_eq!(server.post("/skip", MULTIPART, &(part.repeat(100) + "--tide--")).1, "100");
    assert_eq!(server.status_of_post("/skip", MULTIPART, &(part.repeat(101) + "--tide--")), 413);
    assert_eq!(server.status_of_post("/parts", MULTIPART, &(part.to_owned() + &"x".repeat(1024 * 1024 + 1))), 413);
    // A million parts, and a body without end, of which the peer sends as much as the server takes.
    let endless = [
        (String::new(), "--tide\r\n\r\n\r\n"),
        (String::new(), "no boundary at all"),
        ("--tide\r\nA: ".to_owned(), "a head without end"),
        ("--tide\r\n".to_owned(), "A: b\r\n"),
        ("--tide\r\nContent-Disposition: form-data; name=a\r\n\r\n".to_owned(), "a field without end"),
        ("--tide\r\nContent-Disposition: form-data; filename=a\r\n\r\n".to_owned(), "a file without end"),
    ];
    for (begin, repeated) in endless {
        let mut stream = server.connect();
        write!(
            stream,
            "POST /parts HTTP/1.1\r\nHost: t\r\nContent-Type: {MULTIPART}\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{begin}\r\n",
            begin.len().max(1),
            begin = if begin.is_empty() { "\n" } else { &begin },
        )
        .unwrap();
        let piece = repeated.repeat(1_000);
        let chunk = format!("{:x}\r\n{piece}\r\n", piece.len());
        // The peer looks for the response after each chunk. The kernel holds a few mebibytes, so the response has to come
        // before 64 MiB are sent, however slowly each side runs.
        let mut sent = 0;
        while sent < 64 * 1024 * 1024 && !has_answer(&stream) && stream.write_all(chunk.as_bytes()).is_ok() {
            sent += chunk.len();
        }
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap_or_else(|error| panic!("{repeated}: {error}"));
        let answer = String::from_utf8_lossy(&answer);
        assert_eq!(answer, "HTTP/1.1 413", "{repeated}");
        assert!(sent < 64 * 1024 * 1024, "{repeated}: the server takes {sent} bytes");
    }
}

/// Whether bytes have come, or the end.
fn has_answer(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let has_answer = stream.peek(&mut [0]).is_ok();
    stream.set_nonblocking(false).unwrap();
    has_answer
}

#[test]
fn a_body_that_outlives_its_exchange_is_over() {
    let later = Arc::new(std::sync::Mutex::new(None));
    let result = later.clone();
    let server = start(move || {
        let result = result.clone();
        Router::new()
            .post("/keep", move |_: ()| "never")
            .post("/keep-body", {
                let result = result.clone();
                move |mut body: Body| {
                    let result = result.clone();
                    async move {
                        let first = body.next().await.is_some_and(|piece| piece.is_ok());
                        task::spawn(async move {
                            task::sleep(Duration::from_millis(50)).await;
                            let after = body.next().await;
                            *result.lock().unwrap() = Some(matches!(after, Some(Err(BodyError::Over))));
                        });
                        first.to_string()
                    }
                }
            })
            .post("/ignore", async || "ignored")
            .post("/dropped", async |body: Body| drop(body))
    });
    // The peer sends half of the body before the response, and the rest after it.
    for path in ["/keep-body", "/ignore", "/dropped"] {
        let mut stream = server.connect();
        write!(stream, "POST {path} HTTP/1.1\r\nHost: t\r\nContent-Length: 8\r\n\r\nhalf").unwrap();
        let mut status = [0; 15];
        stream.read_exact(&mut status).unwrap();
        assert_eq!(&status, b"HTTP/1.1 200 OK", "{path}");
        // The server may close the connection in place of receiving the rest.
        let _ = stream.write_all(b"rest");
        drop(read_all(&mut stream));
    }
    wait_until("the task reads its body", || later.lock().unwrap().is_some());
    assert_eq!(*later.lock().unwrap(), Some(true), "a body that is read after the response yields `Over`");
}

#[test]
fn events_are_sent_as_they_are_written() {
    let server = start(|| {
        Router::new().get("/events", |last: LastEventId| {
            let first: u32 = last.as_deref().and_then(|id| id.parse().ok()).map_or(0, |id: u32| id + 1);
            Sse::new(async move |mut events| {
                for id in first..3 {
                    let event = Event::new().id(&id.to_string())?.name("tide")?.data("high\nlow");
                    events.send(event).await?;
                    task::sleep(Duration::from_millis(1)).await;
                }
                events.send(Event::new().json(&[1, 2])?.retry(Duration::from_millis(1500))).await?;
                Ok(())
            })
        })
    });
    let (head, _) = server.get("/events");
    for field in ["Content-Type: text/event-stream", "Cache-Control: no-store", "Transfer-Encoding: chunked"] {
        assert!(head.contains(field), "{field}: {head}");
    }
    let wire = "GET /events HTTP/1.0\r\nHost: t\r\nLast-Event-ID: 1\r\n\r\n";
    let (_, body) = split(&server.exchange(wire));
    assert_eq!(body, "id: 2\nevent: tide\ndata: high\ndata: low\n\ndata: [1,2]\nretry: 1500\n\n");
}

#[test]
fn comments_keep_an_event_stream_alive() {
    let server = start(|| {
        Router::new().get("/events", || {
            Sse::new(async |mut events| {
                events.send(Event::new().data("first")).await?;
                std::future::pending().await
            })
            .keep_alive(Duration::from_millis(5))
        })
    });
    let mut stream = server.connect();
    stream.write_all(b"GET /events HTTP/1.0\r\nHost: t\r\n\r\n").unwrap();
    let mut received = Vec::new();
    while !received.ends_with(b"data: first\n\n:\n\n:\n\n:\n\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        received.push(byte[0]);
    }
}

/// Counts the produced pieces, and notices when the producer is dropped.
#[derive(Default)]
struct Progress {
    produced: AtomicUsize,
    is_dropped: AtomicBool,
}

struct OnDrop(Arc<Progress>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.is_dropped.store(true, SeqCst);
    }
}

const EVENTS: usize = 2_000;
const EVENT_BYTES: usize = 32 * 1024;

fn start_producer(progress: &Arc<Progress>) -> Running {
    let progress = progress.clone();
    start(move || {
        let progress = progress.clone();
        Router::new().get("/events", move || {
            let guard = OnDrop(progress.clone());
            Sse::new(async move |mut events| {
                for _ in 0..EVENTS {
                    events.send(Event::new().data("x".repeat(EVENT_BYTES))).await?;
                    guard.0.produced.fetch_add(1, SeqCst);
                }
                std::future::pending().await
            })
            .keep_alive(Duration::from_millis(20))
        })
    })
}

#[test]
fn a_slow_reader_stops_the_producer_of_events() {
    let progress = Arc::new(Progress::default());
    let server = start_producer(&progress);
    let mut stream = server.connect();
    stream.write_all(b"GET /events HTTP/1.0\r\nHost: t\r\n\r\n").unwrap();
    let mut last = (0, Instant::now());
    wait_until("the producer stops", || {
        let produced = progress.produced.load(SeqCst);
        if produced != last.0 {
            last = (produced, Instant::now());
        }
        produced > 0 && last.1.elapsed() > Duration::from_millis(300)
    });
    let stopped = progress.produced.load(SeqCst);
    assert!(stopped < EVENTS, "nothing reads, and all {EVENTS} events are produced");
    let mut left = EVENTS * (EVENT_BYTES + "data: \n\n".len());
    let mut buffer = vec![0; 1 << 20];
    while left > 0 {
        let length = stream.read(&mut buffer).unwrap();
        assert_ne!(length, 0);
        left = left.saturating_sub(length);
    }
    wait_until("the producer goes on", || progress.produced.load(SeqCst) == EVENTS);
    assert!(!progress.is_dropped.load(SeqCst));
}

#[test]
fn a_peer_that_leaves_ends_the_producer_of_events() {
    // While the producer waits for room, and while it waits for something else.
    for reads in [false, true] {
        let progress = Arc::new(Progress::default());
        let server = start_producer(&progress);
        let mut stream = server.connect();
        stream.write_all(b"GET /events HTTP/1.0\r\nHost: t\r\n\r\n").unwrap();
        let mut buffer = vec![0; 1 << 20];
        wait_until("the first events are produced", || {
            if reads {
                assert_ne!(stream.read(&mut buffer).unwrap(), 0);
            }
            progress.produced.load(SeqCst) >= if reads { EVENTS } else { 1 }
        });
        assert!(!progress.is_dropped.load(SeqCst));
        drop(stream);
        wait_until("the producer is dropped", || progress.is_dropped.load(SeqCst));
    }
}

#[test]
fn a_producer_that_fails_leaves_the_stream_incomplete() {
    let server = start(|| {
        Router::new().get("/events", || {
            Sse::new(async |mut events| {
                events.send(Event::new().data("first")).await?;
                events.send(Event::new().id("7\nevent: injected")?).await?;
                Ok(())
            })
        })
    });
    let answer = server.exchange("GET /events HTTP/1.1\r\nHost: t\r\n\r\n");
    assert!(!answer.contains("injected") && !answer.ends_with("0\r\n\r\n"), "{answer}");
}

#[test]
fn a_value_that_cannot_be_serialized_is_a_500() {
    let server = start(|| Router::new().get("/", || Json(HashMap::from([(vec![1_u8], "a key that is no text")]))));
    let (head, body) = server.get("/");
    assert_eq!(status(&head), StatusCode::INTERNAL_SERVER_ERROR.as_u16());
    assert!(!body.contains('{'), "{body}");
}

/// Everything until the server closes the connection or resets it.
fn read_all(stream: &mut TcpStream) -> String {
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut all = Vec::new();
    let _ = stream.read_to_end(&mut all);
    String::from_utf8_lossy(&all).into_owned()
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(120);
    while !is_so() {
        assert!(Instant::now() < end, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// As a hyper user writes it first.
#[test]
fn the_iterator_of_fields_finds_them_by_name() {
    let show = |request: Request| {
        let fields = request.headers();
        let text = |value: Option<&[u8]>| String::from_utf8_lossy(value.unwrap_or(b"-")).into_owned();
        let all: Vec<_> = fields.get_all("tide").map(|value| text(Some(value))).collect();
        let names: Vec<_> = fields.iter().map(|(name, _)| name).collect();
        assert_eq!(fields.contains_key("HOST"), fields.get("none").is_none());
        format!("{} {} {} {}", text(fields.get("Tide")), text(fields.get("none")), all.join("+"), names.join(","))
    };
    let wire = "GET / HTTP/1.1\r\nHost: sea\r\ntide: ebb\r\nX: y\r\nTIDE:  flow \r\n\r\n";
    let answers = ask(Router::new().get("/", show), &[wire]);
    assert!(answers[0].ends_with("\r\n\r\nebb - ebb+flow Host,tide,X,TIDE"), "{}", answers[0]);
}
