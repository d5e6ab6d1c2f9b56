//! One service in four frameworks: the programs of the pages in `docs/moving`, which say how to move from each of them.
//!
//! ```text
//! GET  /hello/{name}                    Hello, name!
//! POST /counters/{name} {"by": 2}       {"total": 2}; 401 without the token
//! ```
//!
//! `service.rs` is the service on Tidegate. `of_axum.rs` and `of_hyper.rs` are the same before the move, which this program
//! compiles and checks too: `cargo run --example moving`. `store.rs` is a protocol of lines, as a Netty service has one.

#![forbid(unsafe_code)]

mod of_axum;
mod of_hyper;
mod service;
mod store;

use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

fn main() -> Result<(), Box<dyn Error>> {
    let server = service::start("127.0.0.1:0")?;
    check(server.address().ip().ok_or("the address is an IP address")?)?;
    server.drain(Duration::from_secs(1));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        tokio::spawn(async move { of_axum::serve(listener).await });
        tokio::task::spawn_blocking(move || check(address).map_err(|error| error.to_string())).await??;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        tokio::spawn(async move { of_hyper::serve(listener).await });
        tokio::task::spawn_blocking(move || check(address).map_err(|error| error.to_string())).await??;
        Ok::<_, Box<dyn Error>>(())
    })?;
    let server = store::start("127.0.0.1:0")?;
    check_store(server.address().ip().ok_or("the address is an IP address")?)?;
    server.drain(Duration::from_secs(1));
    println!("the services answer alike");
    Ok(())
}

/// Asks a service, and compares the responses.
fn check(address: SocketAddr) -> Result<(), Box<dyn Error>> {
    assert_eq!(ask(address, "GET /hello/sea", "", "")?, (200, "Hello, sea!".into()));
    let by_two = r#"{"by":2}"#;
    assert_eq!(ask(address, "POST /counters/tide", "", by_two)?.0, 401);
    let token = "Authorization: Bearer harbour\r\n";
    assert_eq!(ask(address, "POST /counters/tide", token, by_two)?, (200, r#"{"total":2}"#.into()));
    assert_eq!(ask(address, "POST /counters/tide", token, by_two)?, (200, r#"{"total":4}"#.into()));
    assert_eq!(ask(address, "POST /counters/tide", token, "{")?.0, 400);
    assert_eq!(ask(address, "GET /nothing", "", "")?.0, 404);
    Ok(())
}

/// The status and the body of a response.
fn ask(address: SocketAddr, request: &str, fields: &str, body: &str) -> Result<(u16, String), Box<dyn Error>> {
    let mut stream = TcpStream::connect(address)?;
    let length = body.len();
    let content = format!("Content-Type: application/json\r\nContent-Length: {length}\r\n");
    write!(stream, "{request} HTTP/1.1\r\nHost: sea\r\nConnection: close\r\n{fields}{content}\r\n{body}")?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    let (head, body) = response.split_once("\r\n\r\n").ok_or("a response has a head")?;
    let status = head.split(' ').nth(1).ok_or("a head has a status")?.parse()?;
    Ok((status, body.to_owned()))
}

fn check_store(address: SocketAddr) -> Result<(), Box<dyn Error>> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(b"GET tide\nSET tide high water\nGET tide\nHELLO\n")?;
    let mut responses = String::new();
    stream.read_to_string(&mut responses)?;
    assert_eq!(responses, "NONE\nOK\nhigh water\nERROR\n");
    Ok(())
}

#[test]
fn the_example_checks_itself() -> Result<(), Box<dyn Error>> {
    main()
}

/// Each Rust block of the pages is a piece of this folder, line by line.
#[test]
fn the_pages_show_this_code() -> Result<(), Box<dyn Error>> {
    let trimmed = |text: &str| text.lines().map(str::trim).collect::<Vec<_>>().join("\n");
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut code = String::new();
    for entry in std::fs::read_dir(folder.join("moving"))? {
        code.push_str(&trimmed(&std::fs::read_to_string(entry?.path())?));
    }
    let mut blocks = 0;
    for entry in std::fs::read_dir(folder.join("../docs/moving"))? {
        let path = entry?.path();
        let text = std::fs::read_to_string(&path)?;
        for block in text.split("```rust\n").skip(1) {
            let block = trimmed(block.split("```").next().unwrap_or_default());
            blocks += 1;
            for piece in block.split("// ...") {
                assert!(code.contains(piece.trim()), "{} shows code that is in no file:\n{piece}", path.display());
            }
        }
    }
    assert!(blocks > 0, "the pages have programs");
    Ok(())
}
