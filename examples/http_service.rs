//! An HTTP service: tide levels as JSON, a stream of events, an upload, and a page.
//!
//! ```text
//! cargo run --example http_service                      # checks itself, and ends
//! cargo run --example http_service -- 127.0.0.1:8080    # serves
//! curl -X PUT -H 'Content-Type: application/json' -d '{"level": 412}' http://127.0.0.1:8080/levels/brest
//! curl http://127.0.0.1:8080/levels/brest
//! curl http://127.0.0.1:8080/watch
//! ```

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate::framing::Lines;
use tidegate::http::{
    AccessLog, BodyError, Event, IntoResponse, Json, Limits, LogFormat, Path, Query, Request, RequestIds, Response,
    ResponseCompression, Router, Server, Sse, State, StatusCode, Upgrade,
};
use tidegate::{ServerHandle, StartError, task};

/// A gauge's report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Report {
    level: i32,
}

/// The levels of all stations. Clones are the same levels, on any loop.
#[derive(Clone, Default)]
struct Levels(Arc<Mutex<BTreeMap<String, Report>>>);

impl Levels {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Report>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a request is refused.
enum Refusal {
    NoSuchStation(String),
    NoSuchLevel(i32),
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        match self {
            Self::NoSuchStation(station) => (StatusCode::NOT_FOUND, format!("there is no station {station}\n")),
            Self::NoSuchLevel(level) => (StatusCode::UNPROCESSABLE_ENTITY, format!("{level} is no level of water\n")),
        }
        .into_response()
    }
}

/// `GET /levels/{station}`
fn level(State(levels): State<Levels>, Path(station): Path<String>) -> Result<Json<Report>, Refusal> {
    levels.lock().get(&station).copied().map(Json).ok_or(Refusal::NoSuchStation(station))
}

/// `PUT /levels/{station}`
fn set_level(
    State(levels): State<Levels>,
    Path(station): Path<String>,
    Json(report): Json<Report>,
) -> Result<StatusCode, Refusal> {
    if !(-2_000..2_000).contains(&report.level) {
        return Err(Refusal::NoSuchLevel(report.level));
    }
    let before = levels.lock().insert(station, report);
    Ok(if before.is_none() { StatusCode::CREATED } else { StatusCode::NO_CONTENT })
}

/// The query of `GET /levels`.
#[derive(Deserialize)]
struct Above {
    #[serde(default = "lowest")]
    above: i32,
}

fn lowest() -> i32 {
    i32::MIN
}

/// `GET /levels?above=400`
fn levels(State(levels): State<Levels>, Query(Above { above }): Query<Above>) -> Json<BTreeMap<String, Report>> {
    let levels = levels.lock();
    Json(
        levels
            .iter()
            .filter(|(_, report)| report.level > above)
            .map(|(name, &report)| (name.clone(), report))
            .collect(),
    )
}

/// `GET /watch`: the number of stations, each second.
fn watch(State(levels): State<Levels>) -> Sse {
    Sse::new(async move |mut events| {
        loop {
            let count = levels.lock().len();
            events.send(Event::new().data(count.to_string())).await?;
            task::sleep(Duration::from_secs(1)).await;
        }
    })
}

/// `POST /archive`: counts the lines of an upload of any length, piece by piece.
async fn archive(mut request: Request) -> Result<String, BodyError> {
    let mut lines = 0;
    while let Some(piece) = request.body_mut().next().await {
        lines += piece?.iter().filter(|&&byte| byte == b'\n').count();
    }
    Ok(format!("{lines} lines\n"))
}

/// Leaves HTTP: the connection echoes lines afterwards.
#[expect(clippy::needless_pass_by_value, reason = "a function of a router receives its arguments")]
fn lines(request: Request) -> Response {
    if !request.asks_for_upgrade("lines") {
        return StatusCode::UPGRADE_REQUIRED.into_response();
    }
    let upgrade = Upgrade::channel(Lines::new(), async |mut channel| {
        while let Some(line) = channel.recv().await? {
            channel.send(line.into())?;
        }
        Ok::<_, Box<dyn Error>>(())
    });
    Response::upgrade("lines", upgrade).into_response()
}

/// The routes, made once on each loop.
fn router(levels_of_all: Levels) -> Router<Levels> {
    Router::with_state(levels_of_all)
        .get("/", || Response::html("<h1>Tides</h1><p><a href=\"/levels\">levels</a></p>"))
        .get("/levels", levels)
        .get("/levels/{station}", level)
        .put("/levels/{station}", set_level)
        .get("/watch", watch)
        .post("/archive", archive)
        .get("/lines", lines)
        .with(AccessLog::new(LogFormat::Combined))
        .with(RequestIds::new())
        .with(ResponseCompression::new())
}

fn start(address: &str) -> Result<ServerHandle, StartError> {
    let levels = Levels::default();
    let mut limits = Limits::default();
    limits.body_bytes_max = 1024 * 1024 * 1024;
    Server::bind(address)?.limits(limits).start(move || router(levels.clone()))
}

fn main() -> Result<(), Box<dyn Error>> {
    if let Some(address) = std::env::args().nth(1) {
        let server = start(&address)?;
        println!("listening on http://{}", server.address());
        server.wait();
        return Ok(());
    }
    let server = start("127.0.0.1:0")?;
    let address = server.address().ip().ok_or("an IP address")?;
    for (wire, expected) in EXCHANGES {
        let response = ask(address, wire)?;
        assert!(response.starts_with("HTTP/1.1 ") && response.contains(expected), "{wire}\n{response}");
    }
    server.drain(Duration::from_secs(1));
    println!("all responses are as expected");
    Ok(())
}

/// Sends a request, and returns the response.
fn ask(address: std::net::SocketAddr, wire: &str) -> std::io::Result<String> {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address)?;
    stream.write_all(wire.as_bytes())?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    Ok(response)
}

/// Requests, and a part of the response to each.
const EXCHANGES: [(&str, &str); 6] = [
    (
        "PUT /levels/brest HTTP/1.1\r\nHost: tides\r\nContent-Type: application/json\r\nContent-Length: 14\r\nConnection: close\r\n\r\n{\"level\": 412}",
        " 201 Created\r\n",
    ),
    ("GET /levels/brest HTTP/1.1\r\nHost: tides\r\nConnection: close\r\n\r\n", "{\"level\":412}"),
    ("GET /levels?above=400 HTTP/1.1\r\nHost: tides\r\nConnection: close\r\n\r\n", "{\"brest\":{\"level\":412}}"),
    ("GET /levels/paris HTTP/1.1\r\nHost: tides\r\nConnection: close\r\n\r\n", " 404 Not Found\r\n"),
    (
        "DELETE /levels/brest HTTP/1.1\r\nHost: tides\r\nConnection: close\r\n\r\n",
        "\r\nAllow: GET, PUT, HEAD, OPTIONS\r\n",
    ),
    ("POST /archive HTTP/1.1\r\nHost: tides\r\nContent-Length: 4\r\nConnection: close\r\n\r\na\nb\n", "2 lines\n"),
];

#[cfg(test)]
mod tests {
    use tidegate::http::Config;
    use tidegate_testkit::Embedded;

    use super::*;

    #[test]
    fn a_level_is_there_once_it_is_set() {
        let (codec, handler) = Config::new().connections(router(Levels::default()))();
        let mut pipe = Embedded::new(codec, handler);
        let mut ask = |wire: &str| {
            pipe.receive(wire.as_bytes());
            String::from_utf8(pipe.take_written()).unwrap()
        };
        assert!(ask("GET /levels/brest HTTP/1.1\r\nHost: tides\r\n\r\n").starts_with("HTTP/1.1 404 "));
        let put = "PUT /levels/brest HTTP/1.1\r\nHost: tides\r\nContent-Type: application/json\r\n";
        assert!(ask(&format!("{put}Content-Length: 13\r\n\r\n{{\"level\":412}}")).starts_with("HTTP/1.1 201 "));
        assert!(ask("GET /levels/brest HTTP/1.1\r\nHost: tides\r\n\r\n").ends_with("{\"level\":412}"));
        let answer = ask(&format!("{put}Content-Length: 13\r\n\r\n{{\"level\":\"x\"}}"));
        assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
        assert!(ask(&format!("{put}Content-Length: 14\r\n\r\n{{\"level\":4120}}")).starts_with("HTTP/1.1 422 "));
    }

    #[test]
    fn a_connection_that_leaves_http_echoes_lines() {
        let (codec, handler) = Config::new().connections(router(Levels::default()))();
        let mut pipe = Embedded::new(codec, handler);
        pipe.receive(b"GET /lines HTTP/1.1\r\nHost: tides\r\nConnection: upgrade\r\nUpgrade: lines\r\n\r\nebb\n");
        let wire = pipe.take_written();
        assert!(wire.starts_with(b"HTTP/1.1 101 ") && wire.ends_with(b"\r\n\r\nebb\n"));
    }

    #[test]
    fn a_watcher_gets_an_event_each_second() {
        let (codec, handler) = Config::new().connections(router(Levels::default()))();
        let mut pipe = Embedded::new(codec, handler);
        pipe.receive(b"GET /watch HTTP/1.1\r\nHost: tides\r\n\r\n");
        pipe.advance(Duration::from_millis(2_500));
        let text = String::from_utf8(pipe.take_written()).unwrap();
        assert_eq!(text.matches("data: 0\n").count(), 3, "{text}");
        pipe.receive_fin();
        pipe.reset();
        assert!(pipe.is_closed());
    }
}
