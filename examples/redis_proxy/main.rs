//! A proxy for Redis: the commands of many clients over few connections.
//!
//! ```text
//! cargo run --release --example redis_proxy                                          # checks itself and exits
//! cargo run --release --example redis_proxy -- 127.0.0.1:6380 127.0.0.1:6379         # serves until SIGTERM
//! cargo run --release --example redis_proxy -- 127.0.0.1:6380 127.0.0.1:6379 secret  # both sides need this password
//! redis-cli -p 6380 GET brest
//! ```
//!
//! Each loop has one connection to the upstream for each version of the protocol and each database in use. Replies pass
//! through unchanged. A transaction, a blocking command or a subscriber has a connection of its own:
//! [decision 139](../../docs/decisions/0139-redis-proxy.md).
//!
//! | file | holds |
//! |---|---|
//! | `upstream.rs` | the connections of a loop to the upstream |
//! | `session.rs` | one client: its commands, and its replies in order |
//! | `connection_commands.rs` | HELLO, AUTH, CLIENT and SELECT |
//! | `relay.rs` | a client with a connection of its own for good |

#![forbid(unsafe_code)]

mod connection_commands;
mod relay;
mod session;
#[cfg(test)]
mod tests;
mod toy_upstream;
mod upstream;

use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tidegate::redis::{ProtocolLimits, ServerCodec};
use tidegate::{Address, Server, ServerHandle};

use crate::session::serve;
use crate::upstream::Upstream;

type Any = Box<dyn Error>;

fn main() -> Result<(), Any> {
    let mut arguments = std::env::args().skip(1);
    let Some(address) = arguments.next() else { return check() };
    let upstream = arguments.next().ok_or("usage: redis_proxy ADDRESS UPSTREAM [PASSWORD]")?;
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let server = start(&address, &upstream, arguments.next(), CLIENT_BYTES_MAX)?;
    println!("listening on {}", server.address());
    signals.forever().next();
    server.drain(Duration::from_secs(5));
    Ok(())
}

/// Starts a proxy on one loop. Replies of `client_bytes_max` may wait for a client.
fn start(
    address: &str,
    upstream: &str,
    password: Option<String>,
    client_bytes_max: usize,
) -> Result<ServerHandle, Any> {
    // An upstream that cannot be one is an error now, and not for each client.
    let _ = tidegate::Client::to(upstream)?;
    let protocol = Arc::new(ProtocolLimits { whole_bytes_max: COMMAND_BYTES_MAX, ..ProtocolLimits::default() });
    let upstream = upstream.to_owned();
    Ok(Server::bind(address)?.loops(1).serve_each(move |_| {
        let upstream = Rc::new(Upstream::new(&upstream, password.as_deref(), client_bytes_max));
        let protocol = protocol.clone();
        (move |_: &Address| ServerCodec::shared(&protocol), move |channel| serve(channel, upstream.clone()))
    })?)
}

/// Checks a proxy in front of a toy.
fn check() -> Result<(), Any> {
    let upstream = toy_upstream::start()?;
    let proxy = start("127.0.0.1:0", &upstream.address().to_string(), None, CLIENT_BYTES_MAX)?;
    let mut stream = TcpStream::connect(proxy.address().ip().ok_or("the address is an IP address")?)?;
    let talk = [
        ("SET brest 412\r\nGET brest\r\n", "+OK\r\n$3\r\n412\r\n"),
        ("MULTI\r\nINCR brest\r\nEXEC\r\n", "+OK\r\n+QUEUED\r\n*1\r\n:413\r\n"),
        ("CLIENT SETNAME quay\r\nCLIENT GETNAME\r\n", "+OK\r\n$4\r\nquay\r\n"),
        ("SUBSCRIBE tide\r\n", "*3\r\n$9\r\nsubscribe\r\n$4\r\ntide\r\n:1\r\n"),
    ];
    for (commands, wanted) in talk {
        stream.write_all(commands.as_bytes())?;
        let mut replies = vec![0; wanted.len()];
        stream.read_exact(&mut replies)?;
        assert_eq!(String::from_utf8_lossy(&replies), wanted);
        println!("{} gets {}", commands.escape_debug(), wanted.escape_debug());
    }
    drop(stream);
    proxy.drain(Duration::from_secs(5));
    upstream.drain(Duration::from_secs(5));
    Ok(())
}

/// Bytes of replies that wait for one client. A client with more is disconnected: the connections to the upstream do not
/// wait for it, since others have replies there.
const CLIENT_BYTES_MAX: usize = 128 << 20;

/// A longer command is refused.
const COMMAND_BYTES_MAX: usize = 64 << 20;
