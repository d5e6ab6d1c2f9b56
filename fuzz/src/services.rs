//! Requests to an HTTP application: routes, extractors, files, content codings, bodies in pieces both ways.
//!
//! The first byte chooses the middleware, the second how the requests are split; the rest is the peer's input. Every
//! response has to be an HTTP/1.1 response, and complete unless the connection ended within it.

use std::cell::Cell;
use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use tidegate_engine::task;
use tidegate_http::{
    BasicAuth, Body, BodyError, Config, ConnectionState, Cookies, ErrorPages, Event, Fields, Files, Form, HeaderMap,
    Host, Json, LastEventId, Limits, Multipart, MultipartError, Path, Peer, Query, Request, RequestDecompression,
    RequestIds, Response, ResponseCompression, Router, Sse, StatusCode, TraceContexts,
};
use tidegate_testkit::Embedded;

use crate::choices::Choices;

/// A server of all kinds of functions, which receives a peer's input.
pub fn services(data: &[u8]) {
    let mut choices = Choices::new(data);
    let (options, split) = (choices.byte(), usize::from(choices.byte()));
    let wire = choices.take(WIRE_BYTES_MAX);
    let mut limits = Limits::default();
    limits.collected_body_bytes_max = 4 * 1024;
    let (codec, handler) = Config::new().limits(limits).connections(router(options))();
    let mut pipe = Embedded::new(codec, handler);
    for piece in wire.chunks(if split == 0 { WIRE_BYTES_MAX } else { split }) {
        if pipe.is_closed() {
            break;
        }
        pipe.receive(piece);
    }
    for _ in 0..4 {
        pipe.advance(Duration::from_millis(1));
    }
    if !pipe.is_closed() {
        pipe.receive_fin();
        pipe.advance(Duration::from_secs(1));
    }
    let mut written = pipe.take_written();
    // A body that is larger than the marks of the queue comes in several turns.
    while !pipe.is_closed() && written.len() < WRITTEN_BYTES_MAX {
        pipe.advance(Duration::from_secs(60));
        let more = pipe.take_written();
        if more.is_empty() {
            break;
        }
        written.extend_from_slice(&more);
    }
    if wire.starts_with(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") {
        // The connection has become an HTTP/2 connection, which has a target of its own.
        return;
    }
    // A tunnel and a response to HEAD have no body, whatever their fields say.
    let is_unknown = [&b"HEAD"[..], b"CONNECT"].iter().any(|method| wire.windows(method.len()).any(|at| at == *method));
    check(&written, pipe.is_reset() || pipe.is_write_closed(), is_unknown);
}

fn router(options: u8) -> Router<Vec<u32>> {
    let files =
        Files::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).expect("the sources are there").precompressed(true);
    let mut router = Router::with_state(vec![1, 2, 3])
        .connection_state(|_| Cell::new(0_u32))
        .get("/", |requests: ConnectionState<Cell<u32>>| {
            requests.set(requests.get() + 1);
            requests.get().to_string()
        })
        .get("/waits", async |Host(host): Host| {
            task::sleep(Duration::from_millis(1)).await;
            host
        })
        .get("/items/{id}/{name}", |Path((id, name)): Path<(u32, String)>| format!("{id} {name}"))
        .get("/query", |Query(query): Query<HashMap<String, String>>| query.len().to_string())
        .post("/json", |Json(value): Json<Value>| Json(value))
        .post("/form", async |Form(pairs): Form<Vec<(String, String)>>| pairs.len().to_string())
        .post("/bytes", |bytes: Bytes| bytes)
        .post("/parts", parts)
        .any("/echo", |request: Request| (StatusCode::ACCEPTED, request.bytes().to_vec()))
        .any("/pieces", async |request: Request| Response::new().body(request.into_body()))
        .any("/count", count)
        .get("/field", field)
        .get("/cookies", |cookies: Cookies| cookies.get("tide").map(str::to_owned))
        .get("/rows", rows)
        .get("/events", |LastEventId(last): LastEventId| {
            Sse::new(async move |mut writer| {
                writer.send(Event::new().data(last.unwrap_or_default())).await?;
                Ok(())
            })
        })
        .nest_files("/files", files.clone())
        .fallback(files);
    if options & 1 != 0 {
        router = router.with(ResponseCompression::new());
    }
    if options & 2 != 0 {
        router = router.with(RequestDecompression::new());
    }
    if options & 4 != 0 {
        router = router.with(RequestIds::new()).with(TraceContexts::new());
    }
    if options & 8 != 0 {
        router = router.with(ErrorPages::new());
    }
    if options & 16 != 0 {
        router = router.with(BasicAuth::new("tides"));
    }
    router
}

/// The parts of a form, read one by one.
async fn parts(mut form: Multipart) -> Result<String, MultipartError> {
    let mut bytes = 0;
    while let Some(field) = form.next().await? {
        bytes += field.bytes().await?.len();
    }
    Ok(bytes.to_string())
}

/// The length of the body, read piece by piece, up to a limit.
async fn count(Peer(_): Peer, headers: HeaderMap, mut request: Request) -> Result<String, BodyError> {
    let mut bytes = 0;
    while let Some(piece) = request.body_mut().next().await {
        bytes += piece?.len();
        if bytes > 1_000 && headers.contains_key("stop") {
            break;
        }
    }
    Ok(bytes.to_string())
}

/// The peer's input as a field of the response.
#[expect(clippy::needless_pass_by_value, reason = "a function of a router receives its arguments")]
fn field(request: Request) -> Result<Response, tidegate_http::InvalidField> {
    let (name, value) =
        (request.header_str("x-name").unwrap_or("X-Name"), request.header("x-value").unwrap_or(b"none"));
    Response::text("field").header(name, value)
}

/// A body of unknown length, with trailers.
#[expect(clippy::needless_pass_by_value, reason = "a function of a router receives its arguments")]
fn rows(request: Request) -> Response {
    let rows = request.query().and_then(|query| query.parse().ok()).unwrap_or(3).min(2_000);
    Response::new().body(Body::produce(async move |writer| {
        for row in 0..rows {
            writer.write(format!("row {row}\n")).await?;
        }
        let mut trailers = Fields::new();
        trailers.push("Rows", rows.to_string())?;
        Ok(writer.trailers(trailers)?)
    }))
}

/// Whether the bytes are responses, one after the other, all of them complete unless the connection `has_ended`: a body
/// that is passed on ends within it if the request's does. If it is `unknown` which of them have no body, only the
/// first head is checked.
fn check(mut written: &[u8], has_ended: bool, unknown: bool) {
    while !written.is_empty() {
        let mut fields = [httparse::EMPTY_HEADER; 64];
        let mut response = httparse::Response::new(&mut fields);
        let length = match response.parse(written) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) if has_ended => return,
            other => panic!("{other:?}: {}", written[..written.len().min(300)].escape_ascii()),
        };
        if unknown {
            return;
        }
        let rest = &written[length..];
        let field = |name: &str| {
            let mut found = response.headers.iter().filter(|field| field.name.eq_ignore_ascii_case(name));
            let value = found.next().map(|field| field.value);
            assert!(found.next().is_none(), "{name} comes twice");
            value
        };
        let known = field("content-length").map(|value| std::str::from_utf8(value).unwrap().parse::<usize>().unwrap());
        let is_chunked = field("transfer-encoding").is_some();
        let code = response.code.expect("a complete head has a status");
        assert!(known.is_none() || !is_chunked, "a body with two lengths");
        let body = match known {
            _ if matches!(code, 100..200 | 204 | 304) => Some(0),
            Some(length) => (length <= rest.len()).then_some(length),
            None if is_chunked => chunks(rest),
            // Up to the end of the connection.
            None => Some(rest.len()),
        };
        match body {
            Some(length) => written = &rest[length..],
            None => {
                assert!(has_ended, "a body is not complete: {}", written[..length].escape_ascii());
                return;
            }
        }
    }
}

/// The length of a chunked body and its trailers; none if it is not complete.
fn chunks(body: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let line = body[at..].windows(2).position(|two| two == b"\r\n")?;
        let size = usize::from_str_radix(std::str::from_utf8(&body[at..at + line]).unwrap(), 16).expect("a size");
        at += line + 2;
        if size == 0 {
            break;
        }
        assert_eq!(body.get(at + size..at + size + 2)?, b"\r\n", "the end of a chunk");
        at += size + 2;
    }
    loop {
        let line = body[at..].windows(2).position(|two| two == b"\r\n")?;
        at += line + 2;
        if line == 0 {
            return Some(at);
        }
    }
}

const WIRE_BYTES_MAX: usize = 16 * 1024;

/// More is not read: there is a bug, and the server does not end.
const WRITTEN_BYTES_MAX: usize = 64 * 1024 * 1024;
