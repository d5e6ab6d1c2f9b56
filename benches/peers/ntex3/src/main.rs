//! ntex 3 on one worker, as its authors enter it in public benchmarks: the framework (`web`), or its HTTP/1 codec alone on
//! the bare connection, with heads written by hand (`codec`); on epoll or on io_uring.

use std::any::Any;
use std::net::SocketAddr;
use std::{env, error, io};

use mimalloc::MiMalloc;
use ntex::http::h1::{self, PayloadDecoder, PayloadItem, PayloadType};
use ntex::http::header::{CONTENT_TYPE, HeaderValue, SERVER};
use ntex::http::{DateService, HttpService, HttpServiceConfig, KeepAlive, StatusCode};
use ntex::io::{Io, IoConfig};
use ntex::rt::{self, BlockFuture, Reactor, Runner, Runtime, System};
use ntex::server::{self, ServerBuilder};
use ntex::time::Seconds;
use ntex::util::{BytePages, Bytes, BytesMut};
use ntex::web::types::Path;
use ntex::web::{self, App, HttpResponse};
use ntex::{SharedCfg, fn_service};

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Which of its reactors ntex runs on: its own choice is made when it is built, and there is one build here.
#[derive(Clone, Copy)]
enum Transport {
    Epoll,
    Uring,
}

impl Runner for Transport {
    fn block_on(&self, future: BlockFuture) -> Result<(), Box<dyn Any + Send>> {
        let reactor: Box<dyn Reactor> = match self {
            Self::Epoll => Box::new(rt::polling::Reactor::new().expect("epoll is there")),
            Self::Uring => Box::new(rt::uring::Reactor::new(RING_ENTRIES).expect("io_uring is there")),
        };
        rt::with_reactor(&reactor, || Runtime::new(reactor.handle()).block_on(future, &*reactor));
        Ok(())
    }
}

#[web::get("/plaintext")]
async fn plaintext() -> HttpResponse {
    respond(Bytes::from_static(HELLO))
}

#[web::get("/bytes/{count}")]
async fn bytes(count: Path<usize>) -> HttpResponse {
    match FILLER.get(..*count) {
        Some(bytes) => respond(Bytes::from_static(bytes)),
        None => HttpResponse::NotFound().finish(),
    }
}

#[web::post("/echo")]
async fn echo(body: Bytes) -> HttpResponse {
    respond(body)
}

fn respond(body: Bytes) -> HttpResponse {
    let mut response = HttpResponse::with_body(StatusCode::OK, body.into());
    response.headers_mut().append(SERVER, HeaderValue::from_static("ntex"));
    response.headers_mut().append(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}

/// Serves one connection with the codec alone.
async fn serve(io: Io) -> Result<(), ()> {
    let codec = h1::Codec::new(0, io.shared().get());
    while let Ok(Some((request, payload))) = io.recv(&codec).await {
        let body = match (request.path(), payload) {
            ("/echo", PayloadType::Payload(body)) => receive(&io, &body).await,
            ("/plaintext", _) => Some(Bytes::from_static(HELLO)),
            (path, _) => filler(path),
        };
        let written = io.with_write_buf(|buffer| match body {
            Some(body) => write_response(buffer, body),
            None => buffer.extend_from_slice(NOT_FOUND),
        });
        if written.is_err() {
            break;
        }
    }
    Ok(())
}

/// A complete body, or `None` if the connection ended before it.
async fn receive(io: &Io, body: &PayloadDecoder) -> Option<Bytes> {
    let mut received = BytesMut::new();
    loop {
        match io.recv(body).await.ok()?? {
            PayloadItem::Chunk(chunk) => received.extend_from_slice(&chunk),
            PayloadItem::Eof => return Some(received.freeze()),
        }
    }
}

/// The body of `/bytes/N`.
fn filler(path: &str) -> Option<Bytes> {
    FILLER.get(..path.strip_prefix("/bytes/")?.parse().ok()?).map(Bytes::from_static)
}

fn write_response(buffer: &mut BytePages, body: Bytes) {
    buffer.extend_from_slice(HEAD);
    buffer.extend_from_slice(itoa::Buffer::new().format(body.len()).as_bytes());
    buffer.extend_from_slice(b"\r\n");
    // The date ends the head as well.
    DateService.set_date_header2(buffer);
    buffer.append(body);
}

fn build(kind: &str, address: SocketAddr) -> io::Result<ServerBuilder> {
    let config = || {
        SharedCfg::new("peer")
            .add(IoConfig::new().set_read_buf(BUFFER_BYTES_MAX, BUFFER_BYTES_LOW, BUFFERS_KEPT).set_write_buf(
                BUFFER_BYTES_MAX,
                BUFFER_BYTES_LOW,
                BUFFERS_KEPT,
            ))
            .add(HttpServiceConfig::new().set_keepalive(KeepAlive::Os).set_client_timeout(Seconds::ZERO))
    };
    let listener = server::create_tcp_listener(address, BACKLOG)?;
    println!("listening on {}", listener.local_addr()?);
    let server = server::build().workers(1).disable_signals();
    match kind {
        "web" => server.listen("web", listener, async move |service| {
            service.config(config());
            HttpService::h1(App::new().service((plaintext, bytes, echo)))
        }),
        "codec" => server.listen("codec", listener, async move |service| {
            service.config(config());
            fn_service(serve)
        }),
        _ => Err(io::Error::other(USAGE)),
    }
}

fn main() -> Result<(), Box<dyn error::Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [kind, transport, address] = &arguments[..] else { return Err(USAGE.into()) };
    let address = address.parse()?;
    let transport = match transport.as_str() {
        "epoll" => Transport::Epoll,
        "uring" => Transport::Uring,
        _ => return Err(USAGE.into()),
    };
    let kind = kind.clone();
    System::build().name("peer").build(transport).block_on(async move { build(&kind, address)?.run().await })?;
    Ok(())
}

const USAGE: &str = "usage: ntex3 web|codec epoll|uring ADDRESS";
const HELLO: &[u8] = b"Hello, World!";
const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nServer: ntex\r\nContent-Type: text/plain\r\nContent-Length: ";
const NOT_FOUND: &[u8] = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
static FILLER: [u8; 64 * 1024] = [b'x'; 64 * 1024];
const BACKLOG: i32 = 1024;
/// The default of ntex.
const RING_ENTRIES: u32 = 2048;
const BUFFER_BYTES_MAX: usize = 65535;
const BUFFER_BYTES_LOW: usize = 2048;
const BUFFERS_KEPT: usize = 128;
