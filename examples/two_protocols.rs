//! Two protocols on one port: HTTP/1.1, and a protocol of lines. The first bytes of a connection choose.
//!
//! ```text
//! cargo run --example two_protocols                      # checks itself, prints the results and exits
//! cargo run --example two_protocols -- 127.0.0.1:7000    # serves: curl http://127.0.0.1:7000/, nc 127.0.0.1 7000
//! ```
//!
//! Both are applications as on a port of their own. A peer that begins with an HTTP request gets HTTP; any other text
//! is a line; a peer that is silent for a second is greeted; binary data closes the connection.

#![forbid(unsafe_code)]

use std::error::Error;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use tidegate::framing::Lines;
use tidegate::http1::{Config, Incoming, Outgoing, Response};
use tidegate::sniff::{self, Match};
use tidegate::{
    Channel, ChannelError, Context, Handler, Outcome, Protocol, Protocols, Server, ServerHandle, StartError, http1,
};

/// The HTTP application, a handler.
struct Site;

impl Handler<http1::Server> for Site {
    type Post = ();

    fn message(&mut self, message: Incoming, cx: &mut Context<'_, http1::Server>) -> Outcome<http1::Server> {
        match message {
            Incoming::Head(_) => cx.send(Outgoing::Response(Response::text("the tide is in\n"))).into(),
            _ => Outcome::Continue,
        }
    }
}

/// The application of the lines, a task.
async fn talk(mut channel: Channel<Lines>) -> Result<(), ChannelError> {
    while let Some(line) = channel.recv().await? {
        channel.send(format!("you said: {}", line.escape_ascii()).into())?;
    }
    Ok(())
}

/// The same, for peers that wait for the server to speak first.
async fn greet(mut channel: Channel<Lines>) -> Result<(), ChannelError> {
    channel.send("say something".into())?;
    talk(channel).await
}

/// A rule of our own: one printable character, which is a rule for the last place.
fn text(first: &[u8]) -> Match {
    if first[0].is_ascii_graphic() { Match::Matched } else { Match::NotMatched }
}

fn start(address: &str) -> Result<ServerHandle, StartError> {
    let config = Arc::new(Config::default());
    Server::bind(address)?.loops(1).sniff(move |_| {
        let config = config.clone();
        Protocols::new()
            .on(sniff::http1, Protocol::handle(move || (http1::Server::new(config.clone()), Site)))
            .on(text, Protocol::serve(Lines::new, talk))
            .when_silent(Protocol::serve(Lines::new, greet))
            .deadline(Duration::from_secs(1))
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1);
    let server = start(address.as_deref().unwrap_or("127.0.0.1:0"))?;
    println!("listening on {}", server.address());
    if address.is_some() {
        server.wait();
        return Ok(());
    }
    let to = server.address().ip().ok_or("the address is an IP address")?;
    for sent in ["GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "GET up\n", "POST haste\nebb\n", "\0\0\0"] {
        let answer = exchange(to, sent.as_bytes())?;
        println!("{:?} gets {:?}", sent.lines().next().unwrap_or_default(), answer.lines().last().unwrap_or_default());
    }
    let mut silent = TcpStream::connect(to)?;
    let mut greeting = [0; 14];
    silent.read_exact(&mut greeting)?;
    println!("a silent peer gets {:?}", String::from_utf8_lossy(&greeting));
    drop(silent);
    server.drain(Duration::from_secs(1));
    Ok(())
}

/// Sends these bytes, and reads to the end.
fn exchange(to: SocketAddr, bytes: &[u8]) -> Result<String, Box<dyn Error>> {
    let mut stream = TcpStream::connect(to)?;
    stream.write_all(bytes)?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_peer_is_served_in_its_protocol() {
        let server = start("127.0.0.1:0").unwrap();
        let to = server.address().ip().unwrap();
        let page = exchange(to, b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n") && page.ends_with("\r\n\r\nthe tide is in\n"), "{page}");
        assert_eq!(exchange(to, b"GET up\nGET / HTTP/1.1\n").unwrap(), "you said: GET up\nyou said: GET / HTTP/1.1\n");
        assert_eq!(exchange(to, b"\x16\x03\x01").unwrap(), "");
        assert_eq!(exchange(to, b"").unwrap(), "");
        let mut silent = TcpStream::connect(to).unwrap();
        let mut greeting = [0; 14];
        silent.read_exact(&mut greeting).unwrap();
        assert_eq!(&greeting, b"say something\n");
        drop(silent);
        server.drain(Duration::from_secs(5));
        assert_eq!(server.counts()[0].closed_protocol, 1);
    }
}
