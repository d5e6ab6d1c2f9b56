//! The workloads of `benches/arena` by actix-web 4 on one worker, as its own guides write them: `arena-actix4 ADDRESS FOLDER`.
//! FOLDER has the static files. HTTP/2 is by prior knowledge.

use std::env;
use std::time::Duration;

use actix_files::Files;
use actix_web::http::header::ContentType;
use actix_web::middleware::Compress;
use actix_web::web::{self, Bytes, Data, Path};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, error};
use actix_ws::{AggregatedMessage, MessageStream, Session};
use futures_util::StreamExt;
use mimalloc::MiMalloc;

#[path = "../../../arena/src/items.rs"]
mod items;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// The sum of the integers in the query and in the body.
async fn sum(request: HttpRequest, body: Bytes) -> Result<HttpResponse, actix_web::Error> {
    let mut sum = 0_i64;
    let values = request.query_string().split('&').filter_map(|pair| pair.split_once('=').map(|(_, value)| value));
    let body = std::str::from_utf8(&body).map_err(error::ErrorBadRequest)?.trim();
    for value in values.chain(Some(body).filter(|body| !body.is_empty())) {
        let value = value.parse().map_err(error::ErrorBadRequest)?;
        sum = i64::checked_add(sum, value).ok_or_else(|| error::ErrorBadRequest("too large"))?;
    }
    Ok(HttpResponse::Ok().content_type(ContentType::plaintext()).body(sum.to_string()))
}

async fn pipeline() -> HttpResponse {
    HttpResponse::Ok().content_type(ContentType::plaintext()).body("ok")
}

/// The first items, each with its total.
async fn page(
    request: HttpRequest,
    count: Path<usize>,
    items: Data<Vec<items::Item>>,
) -> Result<HttpResponse, actix_web::Error> {
    if !(1..=items.len()).contains(&*count) {
        return Err(error::ErrorBadRequest("count"));
    }
    let multiplier = request.query_string().split('&').find_map(|pair| pair.strip_prefix("m="));
    let multiplier = multiplier.map_or(Ok(1), str::parse).map_err(error::ErrorBadRequest)?;
    Ok(HttpResponse::Ok().json(items::page(&items, *count, multiplier)))
}

/// Answers after a time.
async fn delay(milliseconds: web::Path<u64>) -> HttpResponse {
    let milliseconds = milliseconds.into_inner();
    if milliseconds > DELAY_MAX {
        return HttpResponse::BadRequest().finish();
    }
    actix_web::rt::time::sleep(Duration::from_millis(milliseconds)).await;
    HttpResponse::Ok().content_type(ContentType::plaintext()).body(milliseconds.to_string())
}

/// The length of the body, counted as it arrives.
async fn upload(mut body: web::Payload) -> Result<HttpResponse, actix_web::Error> {
    let mut bytes = 0;
    while let Some(piece) = body.next().await {
        bytes += piece?.len();
    }
    Ok(HttpResponse::Ok().content_type(ContentType::plaintext()).body(bytes.to_string()))
}

/// Sends every message back.
async fn echo(request: HttpRequest, body: web::Payload) -> Result<HttpResponse, actix_web::Error> {
    let (response, session, messages) = actix_ws::handle(&request, body)?;
    actix_web::rt::spawn(echo_messages(session, messages));
    Ok(response)
}

async fn echo_messages(mut session: Session, messages: MessageStream) {
    let mut messages = messages.aggregate_continuations();
    while let Some(Ok(message)) = messages.next().await {
        let is_sent = match message {
            AggregatedMessage::Text(text) => session.text(text).await.is_ok(),
            AggregatedMessage::Binary(bytes) => session.binary(bytes).await.is_ok(),
            AggregatedMessage::Ping(bytes) => session.pong(&bytes).await.is_ok(),
            AggregatedMessage::Pong(_) => true,
            AggregatedMessage::Close(_) => false,
        };
        if !is_sent {
            break;
        }
    }
    drop(session.close(None).await);
}

#[actix_web::main]
async fn main() -> std::io::Result<()> {
    let usage = || std::io::Error::other("usage: arena-actix4 ADDRESS FOLDER");
    let (address, folder) = (env::args().nth(1).ok_or_else(usage)?, env::args().nth(2).ok_or_else(usage)?);
    let items = Data::new(items::items());
    let server = HttpServer::new(move || {
        App::new()
            .app_data(items.clone())
            .service(web::resource("/baseline11").route(web::get().to(sum)).route(web::post().to(sum)))
            .service(web::resource("/baseline2").route(web::get().to(sum)).route(web::post().to(sum)))
            .service(web::resource("/pipeline").route(web::get().to(pipeline)))
            .service(web::resource("/delay/{milliseconds}").route(web::get().to(delay)))
            .service(web::resource("/json/{count}").wrap(Compress::default()).route(web::get().to(page)))
            .service(web::resource("/ws").route(web::get().to(echo)))
            .service(Files::new("/static", &folder))
            .service(web::resource("/upload").route(web::post().to(upload)))
    })
    .workers(1)
    .bind_auto_h2c(address)?;
    for address in server.addrs() {
        println!("listening on {address}");
    }
    server.run().await
}

/// The longest delay, in milliseconds.
const DELAY_MAX: u64 = 10_000;
