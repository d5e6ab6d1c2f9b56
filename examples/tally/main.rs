//! Tally: a binary protocol of our own, from the bytes to a running server.
//!
//! Clients add to counters and ask for them. `protocol.rs` is the codec, `service.rs` the handler and its test without
//! a network; this file is the server.
//!
//! ```text
//! cargo run --example tally                      # talks to itself, says what happened and ends
//! cargo run --example tally -- 127.0.0.1:7001    # serves until it is killed
//! ```

#![forbid(unsafe_code)]

mod protocol;
mod service;

use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use tidegate::{Address, Running, Server};

use crate::protocol::Protocol;
use crate::service::{Service, Tallies};

fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1);
    let server = start(address.as_deref().unwrap_or("127.0.0.1:0"))?;
    println!("listening on {}", server.address());
    if address.is_some() {
        server.wait();
        return Ok(());
    }
    check(server.address().ip().ok_or("the address is an IP address")?)?;
    server.drain(Duration::from_secs(1));
    println!("the server has drained");
    Ok(())
}

/// The counters belong to one loop, whose connections share them without a lock. With more loops each would have
/// counters of its own.
fn start(address: &str) -> Result<Running, tidegate::StartError> {
    Server::bind(address)?.loops(1).start_each(|_| {
        let tallies = Tallies::default();
        move |_: &Address| (Protocol::new(), Service::new(tallies.clone()))
    })
}

/// Talks to the server as a client would, in bytes.
fn check(server: std::net::SocketAddr) -> Result<(), Box<dyn Error>> {
    let mut stream = TcpStream::connect(server)?;
    let mut ask = |request: &[u8]| -> std::io::Result<Vec<u8>> {
        stream.write_all(request)?;
        let mut length = [0; 2];
        stream.read_exact(&mut length)?;
        let mut answer = vec![0; u16::from_be_bytes(length).into()];
        stream.read_exact(&mut answer).map(|()| answer)
    };
    // Each begins with its length, then version 1, a kind, and what belongs to it.
    let total = ask(b"\x00\x0a\x01\x01\x00\x00\x00\x05boat")?;
    println!("add 5 boats: {}", total.escape_ascii());
    assert_eq!(total, b"\x01\x81\0\0\0\0\0\0\0\x05");
    let total = ask(b"\x00\x06\x01\x02boat")?;
    println!("how many boats? {}", total.escape_ascii());
    assert_eq!(total, b"\x01\x81\0\0\0\0\0\0\0\x05");
    let refused = ask(b"\x00\x06\x07\x02boat")?;
    println!("the same in version 7: {}", refused.escape_ascii());
    assert_eq!(refused, b"\x01\x80unsupported version");
    assert_eq!(stream.read(&mut [0])?, 0, "then the server closes");
    Ok(())
}
