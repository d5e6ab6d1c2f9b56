//! A gateway that stores the responses of a slow service, in memory and in a folder.
//!
//! ```sh
//! cargo run --example caching_gateway                                                       # checks itself, and ends
//! cargo run --example caching_gateway -- 127.0.0.1:8080 http://127.0.0.1:9000 /tmp/responses  # in front of a service
//! ```

#![forbid(unsafe_code)]

use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use tidegate::ServerHandle;
use tidegate::http::cache::{Cache, CacheLimits};
use tidegate::http::proxy::{Proxy, Upstreams};
use tidegate::http::{Request, Response, Router, Server};

/// Starts a gateway with a cache. A purge goes through the cache that it returns.
fn gateway(address: &str, url: &str, folder: &Path) -> Result<(ServerHandle, Cache), Box<dyn Error>> {
    let limits = CacheLimits { memory_bytes_max: 256 * 1024 * 1024, ..CacheLimits::default() };
    let cache = Cache::builder().limits(limits).folder(folder).stale_if_error(Duration::from_secs(3600)).build()?;
    let (upstreams, stored) = (Upstreams::new([url])?, cache.clone());
    let router = move || Router::new().fallback(stored.wrap(Proxy::new(&upstreams)));
    Ok((Server::bind(address)?.start(router)?, cache))
}

/// A service for the check: it counts its requests.
fn service(count: &Arc<AtomicU32>) -> Result<ServerHandle, Box<dyn Error>> {
    let count = count.clone();
    let answer = move |request: Request| {
        let number = count.fetch_add(1, Relaxed) + 1;
        Response::text(format!("{} {number}\n", request.target())).header("Cache-Control", "max-age=60")
    };
    Ok(Server::bind("127.0.0.1:0")?.loops(1).start(move || Router::new().fallback(answer.clone()))?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [] => check(),
        [address, url, folder] => {
            let (gateway, cache) = gateway(address, url, Path::new(folder))?;
            println!("listening on {}", gateway.address());
            gateway.wait();
            cache.flush();
            Ok(())
        }
        _ => Err("an address, a URL and a folder".into()),
    }
}

fn check() -> Result<(), Box<dyn Error>> {
    let count = Arc::<AtomicU32>::default();
    let service = service(&count)?;
    let folder = std::env::temp_dir().join(format!("tidegate-caching-gateway-{}", std::process::id()));
    let (gateway, cache) = gateway("127.0.0.1:0", &format!("http://{}", service.address()), &folder)?;
    assert!(get(&gateway, "/tides")?.ends_with("/tides 1\n"));
    let second = get(&gateway, "/tides")?;
    assert!(second.contains("\r\nCache-Status: Tidegate; hit; ttl=") && second.ends_with("/tides 1\n"), "{second}");
    assert_eq!(cache.purge("http://sea/tides"), Some(1));
    assert!(get(&gateway, "/tides")?.ends_with("/tides 2\n"));
    gateway.drain(Duration::from_secs(1));
    service.drain(Duration::ZERO);
    cache.flush();
    std::fs::remove_dir_all(&folder)?;
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
