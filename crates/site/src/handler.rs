//! `Site`: the handler of `tidegate serve`.

use std::cell::RefCell;
use std::fmt::Display;
use std::rc::Rc;
use std::sync::{Arc, LazyLock};

use serde::Serialize;
use tidegate::engine::Streams;
use tidegate::http1::{
    BodyLength, ContentType, Fields, Incoming, Method, Outgoing, RequestHead, Response, Status, StreamedResponse,
};
use tidegate::http2::{self, Connection, ServerStream};
use tidegate::http3;
use tidegate::{Context, Event, Handler, Outcome, Slice};

use crate::chat;
use crate::metrics::{record, record_on, refuse};
use crate::site_codec::{SiteCodec, StreamAddresses};
use crate::sum::Sum;
use crate::web_socket;

/// The handler of one HTTP/1.1 connection, or of one HTTP/2 stream.
pub(crate) struct Site {
    response: ResponseState,
}

thread_local! {
    /// HTTP/2 state of this thread's loop, shared by its connections. A connection has no room for it.
    static HTTP2: RefCell<Option<Http2>> = const { RefCell::new(None) };
}

/// HTTP/2 state that the connections of one loop share.
struct Http2 {
    config: Arc<http2::Config>,
    /// The streams of connections without a PROXY header.
    streams: Streams,
}

/// Has the loop of this thread serve HTTP/2.
pub(crate) fn serve_http2(config: &Arc<http2::Config>) {
    HTTP2.set(Some(Http2 { config: config.clone(), streams: streams(config, None) }));
}

fn streams(config: &Arc<http2::Config>, addresses: StreamAddresses) -> Streams {
    let config = config.clone();
    Streams::handle(move || (ServerStream::with_data(config.stream().clone(), addresses.clone()), Site::new()))
}

/// The requests of HTTP/3 connections.
pub(crate) fn serve_http3(config: &Arc<http3::Config>) -> Streams {
    let config = config.clone();
    Streams::handle(move || (http3::server_stream(&config, StreamAddresses::None), Site::new()))
}

/// The response in progress, if any.
enum ResponseState {
    None,
    /// The number of bytes left to send.
    Stream(u64),
    /// The request's body is sent back, after this head if it was not sent yet.
    Echo(Option<Box<StreamedResponse>>),
    /// The length and the checksum of the request's body are computed.
    Sum(Box<Sum>),
}

/// The answer to a request. A request for `/plaintext` has been answered before.
enum Answer {
    Response(Response),
    /// With so many bytes.
    Stream(StreamedResponse, u64),
    Address,
    Echo,
    Sum,
    WebSocket,
    Chat,
}

impl Answer {
    /// Compiled once, and not for each pipeline.
    #[inline(never)]
    fn to(head: &RequestHead, path: &[u8], method: Method) -> Self {
        let ok = |content_type| Response::new(Status::OK).content_type(content_type);
        Self::Response(match path {
            _ if method == Method::Extension => {
                let text = "This server does not implement the method.\n";
                Response::new(Status::NOT_IMPLEMENTED).content_type(ContentType::TEXT).body(text)
            }
            // The codec accepts this target with OPTIONS alone (RFC 9112 §3.2.4).
            b"*" => Response::new(Status::OK).fields(ALLOW_ANY),
            b"/echo" => return Self::Echo,
            b"/sum" => return Self::Sum,
            // WebSocket over HTTP/2 is an extended CONNECT (RFC 8441), in place of a GET.
            b"/ws" if head.protocol().is_some() => return Self::WebSocket,
            b"/chat/ws" if head.protocol().is_some() => return Self::Chat,
            _ if !matches!(method, Method::Get | Method::Head) && is_known(path) => {
                Response::new(Status::METHOD_NOT_ALLOWED).fields(ALLOW_GET)
            }
            b"/json" => ok(ContentType::JSON).body(r#"{"message":"Hello, World!"}"#),
            b"/address" => return Self::Address,
            b"/ws" => return Self::WebSocket,
            b"/chat/ws" => return Self::Chat,
            b"/chat" => ok(ContentType::HTML).body(chat::PAGE),
            b"/" => ok(ContentType::HTML).body(PAGE),
            _ => match (number_behind(path, "/bytes/"), number_behind(path, "/stream/")) {
                (Some(length), _) if length <= BLOCK_BYTES as u64 => {
                    ok(ContentType::BYTES).body(&BLOCK[..length as usize])
                }
                (Some(length), _) => return Self::Stream(StreamedResponse::new(Status::OK).length(length), length),
                (_, Some(length)) => return Self::Stream(StreamedResponse::new(Status::OK), length),
                _ => Response::new(Status::NOT_FOUND).content_type(ContentType::TEXT).body("There is nothing here.\n"),
            },
        })
    }
}

impl Site {
    pub(crate) fn new() -> Self {
        Self { response: ResponseState::None }
    }

    /// The peer has sent the HTTP/2 preface.
    #[cold]
    fn go_on<C: SiteCodec>(cx: &Context<'_, C>) -> Outcome<C> {
        HTTP2.with_borrow(|http2| {
            let Some(Http2 { config, streams: plain }) = http2 else { return Outcome::Close };
            let of_connection = config.clone();
            let to = move |codec: C| codec.into_http2(Connection::server(of_connection));
            match cx.codec().reported_addresses() {
                None => Outcome::session(to, plain),
                Some(addresses) => Outcome::session(to, &streams(config, Some(Rc::new(addresses)))),
            }
        })
    }

    fn request<C: SiteCodec>(&mut self, head: &RequestHead, cx: &mut Context<'_, C>) -> Outcome<C> {
        let (path, method) = (head.path_bytes(), head.method());
        // One comparison of the whole path: a `match` pattern would compare byte by byte.
        if path == b"/plaintext" && matches!(method, Method::Get | Method::Head) {
            record(head, Status::OK, cx);
            return send(cx, Outgoing::Response(Response::text("Hello, World!")));
        }
        let response = match Answer::to(head, path, method) {
            Answer::Response(response) => response,
            Answer::Address => address(cx),
            Answer::Echo => return self.echo(head, cx),
            Answer::Sum => return self.sum(head, cx),
            Answer::WebSocket => return web_socket::echo(head, cx),
            Answer::Chat => return chat::accept(head, cx),
            Answer::Stream(response, length) => {
                record(head, Status::OK, cx);
                return self.stream(response, length, method, cx);
            }
        };
        record(head, response.status(), cx);
        send(cx, Outgoing::Response(response))
    }

    #[inline(never)]
    fn stream<C: SiteCodec>(
        &mut self,
        head: StreamedResponse,
        length: u64,
        method: Method,
        cx: &mut Context<'_, C>,
    ) -> Outcome<C> {
        // HEAD skips the body: nothing is written, so the connection would never become unwritable.
        self.response = ResponseState::Stream(if method == Method::Head { 0 } else { length });
        match cx.send(Outgoing::Head(head.content_type(ContentType::BYTES))) {
            Ok(_) => self.stream_on(cx),
            Err(error) => Outcome::fail(error),
        }
    }

    /// Sends as much as the connection accepts. The rest follows when the connection is writable again.
    fn stream_on<C: SiteCodec>(&mut self, cx: &mut Context<'_, C>) -> Outcome<C> {
        while let ResponseState::Stream(left) = self.response {
            if !cx.is_writable() {
                return Outcome::Continue;
            }
            let length = left.min(PIECE_BYTES as u64);
            let piece = if length == 0 {
                self.response = ResponseState::None;
                Outgoing::End
            } else {
                self.response = ResponseState::Stream(left - length);
                Outgoing::Data(BLOCK[..length as usize].into())
            };
            if let Err(error) = cx.send(piece) {
                return Outcome::fail(error);
            }
        }
        Outcome::Continue
    }

    /// Starts to send the request's body back, with its type and, if known, its length.
    #[inline(never)]
    fn echo<C: SiteCodec>(&mut self, head: &RequestHead, cx: &mut Context<'_, C>) -> Outcome<C> {
        let response = match head_of_echo(head) {
            Ok(response) => response,
            Err(refusal) => return refuse(head, refusal, cx),
        };
        if !head.has_body() {
            record(head, Status::OK, cx);
            return match cx.send(Outgoing::Head(response)) {
                Ok(_) => send(cx, Outgoing::End),
                Err(error) => Outcome::fail(error),
            };
        }
        // A client that sent `Expect: 100-continue` gets the interim response alone first: HAProxy 2.6 forwards none of
        // the body if the interim and the final head arrive together.
        if head.expects_continue() {
            self.response = ResponseState::Echo(Some(Box::new(response)));
            return Outcome::Continue;
        }
        self.response = ResponseState::Echo(None);
        record(head, Status::OK, cx);
        send(cx, Outgoing::Head(response))
    }

    /// Starts to compute the length and the CRC-32 of the request's body. The response follows the whole body: some
    /// proxies stop sending the body once they receive a response.
    #[inline(never)]
    fn sum<C: SiteCodec>(&mut self, head: &RequestHead, cx: &mut Context<'_, C>) -> Outcome<C> {
        if head.method() != Method::Post {
            return refuse(head, Response::new(Status::METHOD_NOT_ALLOWED).fields(ALLOW_POST), cx);
        }
        let sum = Sum::new();
        if !head.has_body() {
            record(head, Status::OK, cx);
            return send(cx, Outgoing::Response(Response::text(sum.to_string())));
        }
        self.response = ResponseState::Sum(Box::new(sum));
        Outcome::Continue
    }

    /// Sends a piece of the request's body back.
    fn echo_on<C: SiteCodec>(&mut self, piece: Outgoing, cx: &mut Context<'_, C>) -> Outcome<C> {
        if let ResponseState::Echo(head) = &mut self.response
            && let Some(head) = head.take()
        {
            record_on(b"/echo", Method::Post, Status::OK, cx);
            if let Err(error) = cx.send(Outgoing::Head(*head)) {
                return Outcome::fail(error);
            }
        }
        send(cx, piece)
    }

    /// Handles a piece of the request's body.
    #[inline(never)]
    fn data<C: SiteCodec>(&mut self, data: Slice, cx: &mut Context<'_, C>) -> Outcome<C> {
        match &mut self.response {
            ResponseState::Echo(_) => self.echo_on(Outgoing::Data(data.detach().into()), cx),
            ResponseState::Sum(sum) => {
                sum.add(&data);
                Outcome::Continue
            }
            ResponseState::None | ResponseState::Stream(_) => Outcome::Continue,
        }
    }

    /// Handles the end of the request's body.
    #[inline(never)]
    fn end<C: SiteCodec>(&mut self, cx: &mut Context<'_, C>) -> Outcome<C> {
        let outcome = match &self.response {
            ResponseState::Echo(_) => self.echo_on(Outgoing::End, cx),
            ResponseState::Sum(sum) => {
                // Only now: the codec may have refused the body before, and then it has responded.
                record_on(b"/sum", Method::Post, Status::OK, cx);
                send(cx, Outgoing::Response(Response::text(sum.to_string())))
            }
            ResponseState::None | ResponseState::Stream(_) => return Outcome::Continue,
        };
        self.response = ResponseState::None;
        outcome
    }
}

impl<C: SiteCodec> Handler<C> for Site {
    type Post = ();

    fn open(&mut self, cx: &mut Context<'_, C>) -> Outcome<C> {
        if cx.codec_mut().capture().is_some() {
            // The filter was made before the connection had a local address.
            let local = cx.local().ok().and_then(|local| local.ip());
            if let (Some(local), Some(capture)) = (local, cx.codec_mut().capture()) {
                capture.set_local(local);
            }
        }
        Outcome::Continue
    }

    fn message(&mut self, message: Incoming, cx: &mut Context<'_, C>) -> Outcome<C> {
        match message {
            Incoming::Head(head) => self.request(&head, cx),
            Incoming::Data(data) => self.data(data, cx),
            Incoming::End => self.end(cx),
            Incoming::Trailers(_) => Outcome::Continue,
            Incoming::Preface => Self::go_on(cx),
        }
    }

    fn event(&mut self, event: Event<()>, cx: &mut Context<'_, C>) -> Outcome<C> {
        match event {
            Event::Writable => self.stream_on(cx),
            _ => Outcome::Continue,
        }
    }
}

/// The head of the response to a POST of `/echo`, or the response that refuses it. Compiled once, and not for each pipeline.
#[inline(never)]
fn head_of_echo(head: &RequestHead) -> Result<StreamedResponse, Response> {
    if head.method() != Method::Post {
        return Err(Response::new(Status::METHOD_NOT_ALLOWED).fields(ALLOW_POST));
    }
    if !head.has_body() && head.header("content-length").is_none() {
        return Err(Response::new(Status::LENGTH_REQUIRED).close());
    }
    let response = StreamedResponse::new(Status::OK);
    let response = match head.header("content-type") {
        None => response.content_type(ContentType::BYTES),
        // The value was valid when the request was parsed, so it is valid in the response.
        Some(value) => {
            response.field("Content-Type", value).map_err(|_| Response::new(Status::INTERNAL_SERVER_ERROR))?
        }
    };
    Ok(match head.body() {
        BodyLength::None => response.length(0),
        BodyLength::Known(length) => response.length(length),
        BodyLength::Chunked | BodyLength::UntilClose => response,
    })
}

#[inline]
fn send<C: SiteCodec>(cx: &mut Context<'_, C>, message: Outgoing) -> Outcome<C> {
    match cx.send(message) {
        Ok(_) => Outcome::Continue,
        Err(error) => Outcome::fail(error),
    }
}

/// The addresses of both ends of the connection: those that a proxy has reported, if one has.
#[inline(never)]
fn address<C: SiteCodec>(cx: &Context<'_, C>) -> Response {
    match (cx.codec().reported_addresses(), cx.local()) {
        (Some((client, server)), _) => response_of_addresses(&client, &server, true),
        (None, Ok(local)) => response_of_addresses(&cx.peer(), &local, false),
        (None, Err(_)) => response_of_addresses(&cx.peer(), &"", false),
    }
}

/// Compiled once, and not for each pipeline.
#[inline(never)]
fn response_of_addresses(client: &dyn Display, server: &dyn Display, proxied: bool) -> Response {
    let addresses = Addresses { client: client.to_string(), proxied, server: server.to_string() };
    let Ok(json) = serde_json::to_string(&addresses) else { return Response::new(Status::INTERNAL_SERVER_ERROR) };
    Response::new(Status::OK).content_type(ContentType::JSON).body(json)
}

/// The response of `/address`.
#[derive(Serialize)]
struct Addresses {
    client: String,
    proxied: bool,
    server: String,
}

fn is_known(path: &[u8]) -> bool {
    matches!(path, b"/" | b"/plaintext" | b"/json" | b"/address" | b"/ws" | b"/chat" | b"/chat/ws")
        || path.starts_with(b"/bytes/")
        || path.starts_with(b"/stream/")
}

/// The number that follows `prefix`, if it is one.
fn number_behind(path: &[u8], prefix: &str) -> Option<u64> {
    let digits = path.strip_prefix(prefix.as_bytes())?;
    // A plus sign would parse as well.
    if digits.iter().all(u8::is_ascii_digit) {
        str::from_utf8(digits).ok()?.parse().ok().filter(|&number| number <= LENGTH_MAX)
    } else {
        None
    }
}

const PAGE: &str = include_str!("index.html");

const ALLOW_GET: Fields = Fields::from_static("Allow: GET, HEAD\r\n");
/// The methods that any path allows, and OPTIONS, which applies to the server itself.
const ALLOW_ANY: Fields = Fields::from_static("Allow: GET, HEAD, POST, OPTIONS\r\n");
const ALLOW_POST: Fields = Fields::from_static("Allow: POST\r\n");

/// The content of /bytes and /stream, repeated: linked and not copied, shared by all connections.
static BLOCK: LazyLock<Box<[u8]>> = LazyLock::new(|| LETTERS.iter().copied().cycle().take(BLOCK_BYTES).collect());

const BLOCK_BYTES: usize = 64 * 1024;

const LETTERS: &[u8; 27] = b"abcdefghijklmnopqrstuvwxyz\n";

/// The longest body, which fits a client's signed 64-bit counter.
const LENGTH_MAX: u64 = i64::MAX as u64;

/// The length of a piece of a streamed response: a multiple of the alphabet, so that each piece starts with its first
/// letter, and every response is a prefix of every longer one.
const PIECE_BYTES: usize = 600 * LETTERS.len();

const _: () = assert!(PIECE_BYTES <= BLOCK_BYTES);

// Every connection owns a `Site`.
const _: () = assert!(size_of::<Site>() <= 16);
