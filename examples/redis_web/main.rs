//! A service that keeps sessions and pages in Redis, and limits logins for all of its processes together.
//!
//! ```text
//! cargo run --example redis_web                                          # checks itself and exits
//! cargo run --example redis_web -- 127.0.0.1:8080 redis://127.0.0.1/     # serves until it is killed
//! curl -c jar -b jar -d name=Maren http://127.0.0.1:8080/login
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `sessions.rs` | sessions: the cookie, sliding expiry, another id at the login, bounded values, the loss of Redis |
//! | `response_cache.rs` | pages that one process has made, and all send |
//!
//! The check runs against the example `cache_server`, whose commands are enough for both.

#![forbid(unsafe_code)]

#[path = "../cache_server/commands.rs"]
#[expect(dead_code, reason = "the check needs no expiry in the background")]
mod commands;
#[path = "../cache_server/keyspace.rs"]
mod keyspace;
mod response_cache;
mod sessions;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use tidegate::http::{
    Body, Extension, IntoResponse, Next, RateLimit, RedisRateStore, Request, Response, Router, Server, StatusCode,
};
use tidegate::redis::{Client, Handler, ServerCodec};
use tidegate::{Bytes, ConnectionRate, ServerHandle};

use crate::response_cache::ResponseCache;
use crate::sessions::{Session, Sessions};

type Any = Box<dyn Error>;

fn main() -> Result<(), Any> {
    let mut arguments = std::env::args().skip(1);
    let Some(address) = arguments.next() else { return check() };
    let url = arguments.next().ok_or("usage: redis_web ADDRESS URL")?;
    let server = start(&address, &url, IDLE)?;
    println!("listening on {}", server.address());
    server.wait();
    Ok(())
}

/// Starts the service on one loop. A session ends after `idle`.
fn start(address: &str, url: &str, idle: Duration) -> Result<ServerHandle, Any> {
    let client = Client::url(url)?.name("redis_web").timeout(Duration::from_secs(1)).spawn()?;
    let made = Arc::<AtomicU32>::default();
    let logins = RateLimit::new(ConnectionRate::per_minute(10)).shared("logins", RedisRateStore::new(client.clone()));
    let server = Server::bind(address)?.loops(1).start(move || {
        let sessions = Sessions::new(client.clone(), idle, false);
        let pages = ResponseCache::new(client.clone(), Duration::from_secs(60), 1 << 20);
        let made = made.clone();
        let purging = pages.clone();
        Router::new()
            .post("/login", tidegate::http::with_middleware(login).wrap(logins.clone()))
            .post("/logout", |Extension(session): Extension<Session>| {
                session.end();
                "bye\n"
            })
            .get("/me", |Extension(session): Extension<Session>| match session.get("name") {
                Some(name) => format!("{name}\n").into_response(),
                None => StatusCode::UNAUTHORIZED.into_response(),
            })
            .get("/tides", async move || {
                let page = pages.page("/tides", async || {
                    let number = made.fetch_add(1, Relaxed) + 1;
                    Ok::<_, StatusCode>(Bytes::from(format!("<p>High water, as computed {number} times.</p>\n")))
                });
                page.await.map(IntoResponse::into_response)
            })
            .post("/purge", async move || match purging.purge("/tides").await {
                Ok(()) => StatusCode::NO_CONTENT,
                Err(_) => StatusCode::SERVICE_UNAVAILABLE,
            })
            .wrap(async move |request: Request, next: Next| sessions.around(request, next).await)
    })?;
    Ok(server)
}

/// `name=NAME`: a service of your own checks a password here.
async fn login(Extension(session): Extension<Session>, mut body: Body) -> Response {
    let Ok(form) = body.collect(1024).await else { return StatusCode::PAYLOAD_TOO_LARGE.into_response() };
    let name = std::str::from_utf8(&form).ok().and_then(|form| form.strip_prefix("name="));
    match name.map(|name| session.set("name", name)) {
        Some(Ok(())) => {
            session.rotate();
            "welcome\n".into_response()
        }
        _ => StatusCode::BAD_REQUEST.into_response(),
    }
}

/// The example `cache_server`, without its channels.
fn start_cache() -> Result<ServerHandle, Any> {
    let cache = Arc::new(commands::Cache::new(1 << 20));
    let server = tidegate::Server::bind("127.0.0.1:0")?.loops(1);
    Ok(server.start(move || {
        let service = commands::CacheService::new(cache.clone());
        (ServerCodec::default(), Handler::new(service))
    })?)
}

/// A request and its response, on a connection of its own.
fn ask(server: &ServerHandle, method: &str, path: &str, cookie: &str, body: &str) -> Result<String, Any> {
    let mut stream = TcpStream::connect(server.address().ip().ok_or("the address is an IP address")?)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let length = body.len();
    let cookie = if cookie.is_empty() { String::new() } else { format!("Cookie: a=b; {cookie}\r\n") };
    let head = format!("{method} {path} HTTP/1.1\r\nHost: sea\r\nConnection: close\r\nContent-Length: {length}\r\n");
    stream.write_all(format!("{head}{cookie}\r\n{body}").as_bytes())?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    Ok(response)
}

/// `sid=..` of a response.
fn cookie_of(response: &str) -> Option<&str> {
    let at = response.find("sid=")?;
    response[at..].split(';').next()
}

fn check() -> Result<(), Any> {
    let cache = start_cache()?;
    let server = start("127.0.0.1:0", &format!("redis://{}/", cache.address()), IDLE)?;
    let login = ask(&server, "POST", "/login", "", "name=Maren")?;
    let cookie = cookie_of(&login).ok_or("there is no cookie")?;
    let me = ask(&server, "GET", "/me", cookie, "")?;
    assert!(me.ends_with("\r\n\r\nMaren\n"), "{me}");
    for outcome in ["miss", "hit"] {
        let page = ask(&server, "GET", "/tides", "", "")?;
        assert!(page.contains(&format!("X-Cache: {outcome}")) || outcome == "hit", "{page}");
        print!("{}", page.split("\r\n\r\n").nth(1).unwrap_or_default());
    }
    println!("{cookie} is Maren");
    server.drain(Duration::from_secs(5));
    cache.drain(Duration::from_secs(5));
    Ok(())
}

/// How long a user may be away.
const IDLE: Duration = Duration::from_secs(3600);
