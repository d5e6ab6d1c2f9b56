//! actix-web 4 on one worker, as its authors enter it in public benchmarks: HTTP/1 only, and no timer for a request.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;
use std::{env, error, io};

use actix_http::{HttpService, KeepAlive};
use actix_server::Server;
use actix_service::map_config;
use actix_web::dev::AppConfig;
use actix_web::http::StatusCode;
use actix_web::http::header::{CONTENT_TYPE, HeaderValue, SERVER};
use actix_web::web::{self, Bytes, Path};
use actix_web::{App, HttpResponse};
use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

async fn plaintext() -> HttpResponse<Bytes> {
    respond(Bytes::from_static(b"Hello, World!"))
}

async fn bytes(count: Path<usize>) -> HttpResponse<Bytes> {
    match FILLER.get(..*count) {
        Some(bytes) => respond(Bytes::from_static(bytes)),
        None => HttpResponse::with_body(StatusCode::NOT_FOUND, Bytes::new()),
    }
}

async fn echo(body: Bytes) -> HttpResponse<Bytes> {
    respond(body)
}

fn respond(body: Bytes) -> HttpResponse<Bytes> {
    let mut response = HttpResponse::with_body(StatusCode::OK, body);
    response.headers_mut().insert(SERVER, HeaderValue::from_static("actix"));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}

async fn serve(listener: TcpListener) -> io::Result<()> {
    Server::build()
        .workers(1)
        .disable_signals()
        .listen("peer", listener, || {
            let app = App::new()
                .service(web::resource("/plaintext").route(web::get().to(plaintext)))
                .service(web::resource("/bytes/{count}").route(web::get().to(bytes)))
                .service(web::resource("/echo").route(web::post().to(echo)));
            HttpService::build()
                .keep_alive(KeepAlive::Os)
                .client_request_timeout(Duration::ZERO)
                .tcp_nodelay(true)
                .h1(map_config(app, |()| AppConfig::default()))
                .tcp()
        })?
        .run()
        .await
}

fn main() -> Result<(), Box<dyn error::Error>> {
    let address: SocketAddr = env::args().nth(1).ok_or("usage: actix4 ADDRESS")?.parse()?;
    let listener = TcpListener::bind(address)?;
    // The standard library's backlog is too short for many connections at once.
    rustix::net::listen(&listener, BACKLOG)?;
    println!("listening on {}", listener.local_addr()?);
    actix_web::rt::System::new().block_on(serve(listener))?;
    Ok(())
}

static FILLER: [u8; 64 * 1024] = [b'x'; 64 * 1024];
const BACKLOG: i32 = 1024;
