//! A gateway: a reverse proxy in front of two services, with a rule for each route.
//!
//! ```sh
//! cargo run --example gateway                                          # checks itself, and ends
//! cargo run --example gateway -- 127.0.0.1:8080 http://127.0.0.1:9000  # in front of a service
//! ```

#![forbid(unsafe_code)]

use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use tidegate::http::proxy::{Balance, Edit, Proxy, RateLimit, Upstreams};
use tidegate::http::{AccessLog, LogFormat, Request, Router, Server};
use tidegate::{ConnectionRate, ServerHandle};

/// Starts a gateway in front of services that can answer the same requests.
fn gateway(address: &str, urls: &[String]) -> Result<ServerHandle, Box<dyn Error>> {
    let mut upstreams = Upstreams::builder().balance(Balance::LeastConnections);
    for url in urls {
        upstreams = upstreams.server(url.parse()?);
    }
    let upstreams = upstreams.build()?;
    let limit = RateLimit::new(ConnectionRate::per_second(100).burst(200));
    let gateway = Edit::set("X-Gateway", "tide")?;
    let router = move || {
        let proxy = Proxy::new(&upstreams).edit_response(gateway.clone());
        // The service does not know the prefix, and its clients are limited.
        let api = Router::new().fallback(proxy.clone().strip_prefix("/api").rate_limit(&limit));
        Router::new()
            .get("/health", || "up")
            .nest("/api", api)
            .fallback(proxy)
            .with(AccessLog::new(LogFormat::Combined))
    };
    Ok(Server::bind(address)?.start(router)?)
}

/// A service for the check: it answers with the requested target.
fn service(name: &'static str) -> Result<ServerHandle, Box<dyn Error>> {
    let answer = move |request: Request| format!("{name} {}\n", request.target());
    Ok(Server::bind("127.0.0.1:0")?.loops(1).start(move || Router::new().fallback(answer))?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [] => check(),
        [address, urls @ ..] => {
            let gateway = gateway(address, urls)?;
            println!("listening on {}", gateway.address());
            gateway.wait();
            Ok(())
        }
    }
}

fn check() -> Result<(), Box<dyn Error>> {
    let services = [service("ebb")?, service("flow")?];
    let urls: Vec<_> = services.iter().map(|service| format!("http://{}", service.address())).collect();
    let gateway = gateway("127.0.0.1:0", &urls)?;
    assert!(get(&gateway, "/health")?.ends_with("\r\n\r\nup"));
    let response = get(&gateway, "/api/tides?now")?;
    assert!(response.contains("\r\nX-Gateway: tide\r\n") && response.ends_with(" /tides?now\n"), "{response}");
    assert!(get(&gateway, "/plain")?.ends_with(" /plain\n"));
    assert!(get(&gateway, "/../plain")?.starts_with("HTTP/1.1 400 "));
    gateway.drain(Duration::from_secs(1));
    for service in services {
        service.drain(Duration::ZERO);
    }
    println!("all is as expected");
    Ok(())
}

fn get(server: &ServerHandle, target: &str) -> Result<String, Box<dyn Error>> {
    let mut stream = TcpStream::connect(server.address().to_string())?;
    write!(stream, "GET {target} HTTP/1.1\r\nHost: sea\r\nConnection: close\r\n\r\n")?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    Ok(response)
}

#[test]
fn the_example_checks_itself() -> Result<(), Box<dyn Error>> {
    check()
}
