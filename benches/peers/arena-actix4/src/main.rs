//! The workloads of `benches/arena` by actix-web 4 on one worker, as its own guides write them.

use std::env;
use std::time::Duration;

use actix_web::http::header::ContentType;
use actix_web::web::{self, Bytes, Data, Path};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, error};
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

#[actix_web::main]
async fn main() -> std::io::Result<()> {
    let address = env::args().nth(1).ok_or_else(|| std::io::Error::other("usage: arena-actix4 ADDRESS"))?;
    let items = Data::new(items::items());
    let server = HttpServer::new(move || {
        App::new()
            .app_data(items.clone())
            .service(web::resource("/baseline11").route(web::get().to(sum)).route(web::post().to(sum)))
            .service(web::resource("/pipeline").route(web::get().to(pipeline)))
            .service(web::resource("/delay/{milliseconds}").route(web::get().to(delay)))
            .service(web::resource("/json/{count}").route(web::get().to(page)))
            .service(web::resource("/upload").route(web::post().to(upload)))
    })
    .workers(1)
    .bind(address)?;
    for address in server.addrs() {
        println!("listening on {address}");
    }
    server.run().await
}

/// The longest delay, in milliseconds.
const DELAY_MAX: u64 = 10_000;
