//! `RequestTemplate` and `EncodedRequest`: the request of a load, as the user describes it, and in its encoded form.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tidegate::Bytes;
use tidegate::codec::{Codec, Outbound, Output, Pool, Stages, Time};
use tidegate::http1::client::{Config, Limits, Outgoing};
use tidegate::http1::{Client, Request};
use tidegate::http2::{self, ClientStream};
use tidegate::http3;

use super::frames;
use super::results::{HttpVersion, Protocol};
use super::url::Url;

/// The request of a load: for the codec that decodes responses, and as encoded bytes.
#[derive(Debug, Clone)]
pub(crate) struct EncodedRequest {
    /// The request that the responses belong to.
    pub(crate) request: Request,
    /// The limits of each connection's codec.
    pub(crate) config: Arc<Config>,
    /// One encoded request.
    pub(crate) one: Bytes,
    /// `depth` encoded requests.
    pub(crate) run: Bytes,
    /// The message of a WebSocket. `one` and `run` are frames with it then, and `request` is the handshake without its
    /// key.
    pub(crate) message: Option<Bytes>,
    /// The same request on an HTTP/2 stream, if the load uses HTTP/2.
    pub(crate) http2: Option<Rc<StreamRequest>>,
    /// The same on an HTTP/3 stream.
    pub(crate) http3: Option<Rc<Http3Request>>,
}

impl EncodedRequest {
    /// The first `count` requests of `run`.
    pub(crate) fn of_run(&self, count: u32) -> Bytes {
        self.run.slice(..self.run.len().min(self.one.len() * count as usize))
    }
}

/// The request of a load over HTTP/2.
#[derive(Debug)]
pub(crate) struct StreamRequest {
    /// The records that a stream's codec passes to the connection's codec.
    pub(crate) records: Bytes,
    /// The limits of streams.
    pub(crate) limits: Arc<Limits>,
    /// The configuration of connections.
    pub(crate) config: Arc<http2::Config>,
    pub(crate) scheme: &'static str,
}

/// The request of a load over HTTP/3.
#[derive(Debug)]
pub(crate) struct Http3Request {
    /// All bytes of its stream.
    pub(crate) wire: Bytes,
    /// The request, if it is a HEAD.
    pub(crate) of_head: Option<Request>,
    /// The limits of streams.
    pub(crate) limits: Arc<Limits>,
}

/// The request as the user describes it.
#[derive(Debug, Clone)]
pub(crate) struct RequestTemplate {
    pub(crate) url: Url,
    pub(crate) method: String,
    /// Each `Name: value`.
    pub(crate) headers: Vec<String>,
    /// With a WebSocket, the message.
    pub(crate) body: Vec<u8>,
    /// The number of requests sent at once.
    pub(crate) depth: u32,
    pub(crate) version: HttpVersion,
}

impl RequestTemplate {
    /// Encodes the request, for the connections of one loop.
    ///
    /// # Errors
    /// If a part is not valid in HTTP: names the part.
    pub(crate) fn encode(&self) -> Result<EncodedRequest, BadRequest> {
        let Self { url, method, headers, body, depth, version } = self;
        if method.eq_ignore_ascii_case("CONNECT") {
            return Err(BadRequest("CONNECT asks for a tunnel, which is no load of requests".into()));
        }
        let target = url.target();
        let mut request = Request::extension(method, target)
            .map_err(|error| BadRequest(format!("cannot ask '{method} {target}': {error}")))?;
        let (mut host, mut keeps_alive) = (None, false);
        for header in headers {
            let bad = |why: &dyn fmt::Display| BadRequest(format!("cannot send the header '{header}': {why}"));
            let Some((name, value)) = header.split_once(':') else { return Err(bad(&"write 'Name: value'")) };
            let (name, value) = (name.trim(), value.trim());
            if name.eq_ignore_ascii_case("connection") && value.eq_ignore_ascii_case("close") && *depth > 1 {
                return Err(bad(&"a connection that closes after one request cannot pipeline more"));
            }
            if name.eq_ignore_ascii_case("host") {
                if host.replace(value).is_some() {
                    return Err(bad(&"a request has one host"));
                }
            } else if name.eq_ignore_ascii_case("connection") && value.eq_ignore_ascii_case("close") {
                request = request.close();
            } else if name.eq_ignore_ascii_case("connection") && value.eq_ignore_ascii_case("keep-alive") {
                keeps_alive = true;
            } else {
                request = request.field(name, value).map_err(|error| bad(&error))?;
            }
        }
        let host = host.unwrap_or(url.authority());
        let request =
            request.host(host).map_err(|error| BadRequest(format!("cannot ask the host '{host}': {error}")))?;
        let config =
            Arc::new(Config::new(Limits { pipeline_max: 2, body_bytes_max: u64::MAX / 2, ..Limits::default() }));
        if url.protocol() == Protocol::WebSocket {
            return self.messages(request.upgrade("websocket"), config);
        }
        let request = if body.is_empty() { request } else { request.body(body.clone()) };
        let is = |wanted| (*version == wanted).then(|| request.clone());
        let http2 = is(HttpVersion::Http2).map(|request| stream_request(request, url.is_secure())).transpose()?;
        let http3 = is(HttpVersion::Http3).map(|request| http3_request(request, method)).transpose()?;
        let (http2, http3) = (http2.map(Rc::new), http3.map(Rc::new));
        let mut one = encoded(request.clone(), Client::new(config.clone()))?;
        if keeps_alive {
            // The default in HTTP/1.1, so the codec does not write it. The user wants the server to parse it.
            let fields = one.iter().position(|&byte| byte == b'\n').map_or(0, |at| at + 1);
            one.splice(fields..fields, *b"Connection: keep-alive\r\n");
        }
        let run_bytes = one.len() as u64 * u64::from(*depth);
        if run_bytes > RUN_BYTES_MAX {
            let bytes = one.len();
            return Err(BadRequest(format!(
                "{depth} requests of {bytes} bytes are {run_bytes} at once, and {RUN_BYTES_MAX} is the most: pipeline fewer"
            )));
        }
        let run = one.repeat(*depth as usize).into();
        Ok(EncodedRequest { request, config, one: one.into(), run, message: None, http2, http3 })
    }

    /// Encodes the messages of a load on a WebSocket that this request opens.
    fn messages(&self, request: Request, config: Arc<Config>) -> Result<EncodedRequest, BadRequest> {
        if self.method != "GET" {
            return Err(BadRequest("a WebSocket is opened by GET: leave out --method".into()));
        }
        let (message, depth) = (Bytes::from(self.body.clone()), self.depth);
        let run_bytes = (message.len() as u64 + FRAME_HEAD_BYTES_MAX) * u64::from(depth);
        if run_bytes > RUN_BYTES_MAX {
            let bytes = message.len();
            return Err(BadRequest(format!(
                "{depth} messages of {bytes} bytes are {run_bytes} at once, and {RUN_BYTES_MAX} is the most: pipeline fewer"
            )));
        }
        let encode = |depth| {
            let (pool, time) = (Pool::new(), Time::new(Instant::now(), SystemTime::UNIX_EPOCH));
            let mut queue = Outbound::new(&pool);
            let written = frames::write(&message, depth, &mut Output::new(&mut queue, &pool, &time));
            written.map_err(|error| BadRequest(format!("cannot send this message: {error}")))?;
            Ok::<_, BadRequest>(Bytes::from(drained(&mut queue)))
        };
        let (one, run) = (encode(1)?, encode(depth)?);
        Ok(EncodedRequest { request, config, one, run, message: Some(message), http2: None, http3: None })
    }
}

/// The request for HTTP/2 streams.
fn stream_request(request: Request, is_https: bool) -> Result<StreamRequest, BadRequest> {
    let limits = Arc::new(Limits { body_bytes_max: u64::MAX / 2, ..Limits::default() });
    let scheme = if is_https { "https" } else { "http" };
    let records = encoded(request, ClientStream::new(limits.clone(), scheme))?;
    let config = http2::Limits { idle_timeout: FOREVER, head_bytes_max: 32 * 1024, ..http2::Limits::default() };
    Ok(StreamRequest { records: records.into(), limits, config: Arc::new(http2::Config::new(config)), scheme })
}

/// The request for HTTP/3 streams.
fn http3_request(request: Request, method: &str) -> Result<Http3Request, BadRequest> {
    let limits = Arc::new(Limits { body_bytes_max: u64::MAX / 2, ..Limits::default() });
    let mut stream = http3::client_stream(&Arc::default(), limits.clone(), false);
    let (pool, time) = (Pool::new(), Time::new(Instant::now(), SystemTime::UNIX_EPOCH));
    let mut queue = Outbound::new(&pool);
    let mut out = Output::new(&mut queue, &pool, &time);
    let of_head = (method == "HEAD").then(|| request.clone());
    let sent = stream.encode(Outgoing::Request(request), &mut out).and_then(|()| stream.flush(&mut out));
    sent.map_err(|error| BadRequest(format!("cannot send this request: {error}")))?;
    Ok(Http3Request { wire: drained(&mut queue).into(), of_head, limits })
}

/// Encodes a request.
fn encoded(
    request: Request,
    mut codec: impl Codec<Out = Outgoing, Error = tidegate::http1::Error>,
) -> Result<Vec<u8>, BadRequest> {
    let (pool, time) = (Pool::new(), Time::new(Instant::now(), SystemTime::UNIX_EPOCH));
    let mut queue = Outbound::new(&pool);
    let sent = codec.encode(Outgoing::Request(request), &mut Output::new(&mut queue, &pool, &time));
    sent.map_err(|error| BadRequest(format!("cannot send this request: {error}")))?;
    Ok(drained(&mut queue))
}

/// All bytes of a queue.
fn drained(queue: &mut Outbound) -> Vec<u8> {
    queue.flush();
    let mut bytes = Vec::new();
    while let Some(piece) = queue.front() {
        let length = piece.len();
        bytes.extend_from_slice(piece);
        queue.advance(length as u64);
    }
    bytes
}

/// Why a request cannot be sent.
#[derive(Debug)]
pub(crate) struct BadRequest(String);

impl fmt::Display for BadRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadRequest {}

/// The maximum length of `EncodedRequest::run`, which stays in memory.
const RUN_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// The longest head of a frame that a client sends (RFC 6455 §5.2).
const FRAME_HEAD_BYTES_MAX: u64 = 14;

/// Longer than any load: idle connections are kept open.
const FOREVER: Duration = Duration::from_secs(1_000_000);

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, headers: &[&str], body: &str, depth: u32) -> Result<EncodedRequest, BadRequest> {
        let headers = headers.iter().map(ToString::to_string).collect();
        let url = "http://a:81/b?c".parse().expect("a URL");
        RequestTemplate { url, method: method.into(), headers, body: body.into(), depth, version: HttpVersion::Http2 }
            .encode()
    }

    #[test]
    fn the_encoded_request_is_minimal_and_repeated() {
        let encoded = request("GET", &[], "", 3).expect("it is good");
        assert_eq!(encoded.one, "GET /b?c HTTP/1.1\r\nHost: a:81\r\n\r\n");
        assert_eq!(encoded.run, encoded.one.repeat(3));
    }

    #[test]
    fn method_headers_and_body_are_sent() {
        let encoded =
            request("PUT", &["host: c", "X-Tide:high ", "Content-Type: text/css"], "a body", 1).expect("it is good");
        let text = String::from_utf8(encoded.one.to_vec()).expect("a text");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        assert!(head.starts_with("PUT /b?c HTTP/1.1\r\nHost: c\r\n"), "{head}");
        for field in ["X-Tide: high", "Content-Type: text/css", "Content-Length: 6"] {
            assert!(head.lines().any(|line| line == field), "{field} in {head}");
        }
        assert_eq!(body, "a body");
    }

    #[test]
    fn the_connection_field_of_the_user_is_sent_once() {
        for (field, expected) in
            [("Connection: keep-alive", "Connection: keep-alive"), ("connection: Close", "Connection: close")]
        {
            let encoded = request("GET", &[field], "", 1).expect("it is good");
            let text = String::from_utf8(encoded.one.to_vec()).expect("a text");
            assert_eq!(text.lines().filter(|line| line.starts_with("Connection")).collect::<Vec<_>>(), [expected]);
            assert!(text.starts_with("GET /b?c HTTP/1.1\r\n") && text.ends_with("\r\n\r\n"), "{text}");
        }
    }

    #[test]
    fn a_long_body_is_encoded_whole() {
        let body = "x".repeat(100_000);
        let encoded = request("POST", &[], &body, 2).expect("it is good");
        assert!(encoded.one.ends_with(body.as_bytes()) && encoded.run.len() == 2 * encoded.one.len());
    }

    #[test]
    fn too_many_bytes_at_once_are_refused_in_headers_and_body_alike() {
        let long = "x".repeat(30_000);
        for (headers, body) in [(&[&*format!("X: {long}")][..], ""), (&[], &*long)] {
            let error = request("POST", headers, body, 16_384).expect_err("it is half a gigabyte").to_string();
            assert!(error.contains("pipeline fewer"), "{error}");
            assert!(request("POST", headers, body, 64).is_ok());
        }
    }

    #[test]
    fn an_invalid_part_is_named_in_the_error() {
        for (method, headers, why) in [
            ("GE T", &[][..], "GE T"),
            ("CONNECT", &[], "tunnel"),
            ("GET", &["no colon"], "Name: value"),
            ("GET", &["bad name: a"], "bad name"),
            ("GET", &["a: b\r\nc: d"], "header"),
            ("GET", &["Content-Length: 5"], "Content-Length"),
            ("GET", &["Host: a b"], "host"),
            ("GET", &["connection: close"], "pipeline"),
            ("GET", &["Host: a", "host: b"], "one host"),
        ] {
            let error = request(method, headers, "", 2).expect_err(why).to_string();
            assert!(error.contains(why), "{why}: {error}");
        }
    }
}
