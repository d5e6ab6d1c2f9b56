//! A service with an administrative server: metrics for Prometheus, health, readiness, and a live page.
//!
//! ```sh
//! cargo run --example operations                                 # checks itself, and ends
//! cargo run --example operations -- 127.0.0.1:8080 127.0.0.1:9090 # serves; then open http://127.0.0.1:9090/dashboard
//! ```

#![forbid(unsafe_code)]

use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use tidegate::ServerHandle;
use tidegate::admin::{Admin, AdminHandle};
use tidegate::http::{Request, Router, Server};
use tidegate::metrics::HttpMetrics;

/// Starts the service and, on a listener and a loop of its own, its metrics and health pages.
fn start(address: &str, admin: &str) -> Result<(ServerHandle, AdminHandle), Box<dyn Error>> {
    let metrics = HttpMetrics::new();
    let router = || {
        Router::new().get("/tides/{harbour}", |request: Request| {
            format!("The tide at {} is high.\n", request.parameter("harbour").unwrap_or_default())
        })
    };
    let server = Server::bind(address)?.metrics(&metrics).start(router)?;
    let admin = Admin::new(&server).requests(&metrics).start(&admin.parse()?)?;
    Ok((server, admin))
}

fn main() -> Result<(), Box<dyn Error>> {
    run(&std::env::args().skip(1).collect::<Vec<_>>())
}

fn run(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    if let [address, admin] = arguments {
        let (server, admin) = start(address, admin)?;
        println!("http://{}/tides/brest, http://{}/dashboard", server.address(), admin.address());
        server.wait();
        return Ok(());
    }
    let (server, admin) = start("127.0.0.1:0", "127.0.0.1:0")?;
    let get = |address: &tidegate::Address, path: &str| -> Result<String, Box<dyn Error>> {
        let mut peer = TcpStream::connect(address.ip().ok_or("no IP address")?)?;
        peer.set_read_timeout(Some(Duration::from_secs(20)))?;
        write!(peer, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
        let mut response = String::new();
        peer.read_to_string(&mut response)?;
        Ok(response)
    };
    for harbour in ["brest", "dover"] {
        assert!(get(server.address(), &format!("/tides/{harbour}"))?.ends_with("is high.\n"));
    }
    let text = get(admin.address(), "/metrics")?;
    let line = "tidegate_http_requests_total{route=\"/tides/{harbour}\",method=\"GET\",status=\"2xx\"} 2";
    assert!(text.contains(line), "{text}");
    assert!(get(admin.address(), "/ready")?.starts_with("HTTP/1.1 200 "));
    server.begin_drain(Duration::from_secs(1));
    assert!(get(admin.address(), "/ready")?.starts_with("HTTP/1.1 503 "));
    server.wait();
    println!("{line}");
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_checks_itself() -> Result<(), Box<dyn std::error::Error>> {
        super::run(&[])
    }
}
