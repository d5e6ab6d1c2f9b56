//! A cache that speaks the protocol of Redis: strings with expiry, channels and transactions, in bounded memory.
//!
//! ```text
//! cargo run --release --example cache_server                                     # checks itself and exits
//! cargo run --release --example cache_server -- 127.0.0.1:6379                   # serves until SIGTERM
//! cargo run --release --example cache_server -- 127.0.0.1:6379 1073741824 2      # in 1 GiB of memory, on two loops
//! redis-cli -p 6379 SET brest 412 EX 60
//! ```
//!
//! `keyspace.rs` has the keys, `commands.rs` the commands on them. All loops share one keyspace behind a lock, which
//! is held for one command, or for one transaction: [decision 129](../../docs/decisions/0129-redis.md).

#![forbid(unsafe_code)]

mod commands;
mod keyspace;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tidegate::redis::{Channels, Handler, HandlerConfig, ProtocolLimits, ServerCodec};
use tidegate::{Address, Server, ServerHandle, task};

use crate::commands::{Cache, CacheService};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let Some(address) = arguments.next() else { return check() };
    let memory_bytes_max = arguments.next().map_or(Ok(MEMORY_BYTES_MAX), |bytes| bytes.parse())?;
    let loops = arguments.next().map_or(Ok(1), |loops| loops.parse())?;
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let server = start(&address, memory_bytes_max, loops)?;
    println!("listening on {}", server.address());
    signals.forever().next();
    server.drain(Duration::from_secs(5));
    Ok(())
}

/// Starts a server with `loops` loops and so much memory for keys and values.
fn start(address: &str, memory_bytes_max: usize, loops: usize) -> Result<ServerHandle, Box<dyn Error>> {
    let cache = Arc::new(Cache::new(memory_bytes_max));
    let (channels, config) = (Channels::new(), Arc::new(HandlerConfig::default()));
    let protocol = Arc::new(ProtocolLimits { whole_bytes_max: (512 << 20) + 1024, ..ProtocolLimits::default() });

    let server = Server::bind(address)?.loops(loops);
    Ok(server.start_each(move |number| {
        if number == 0 {
            drop(task::spawn(expire(cache.clone())));
        }
        let (cache, config, channels) = (cache.clone(), config.clone(), channels.clone());
        let protocol = protocol.clone();
        move |_: &Address| {
            let handler = Handler::with(CacheService::new(cache.clone()), config.clone(), channels.clone());
            (ServerCodec::shared(&protocol), handler)
        }
    })?)
}

/// Removes expired keys, a few at a time, so that no command waits long for the lock.
async fn expire(cache: Arc<Cache>) {
    loop {
        while cache.expire(EXPIRED_AT_ONCE_MAX) == EXPIRED_AT_ONCE_MAX {
            task::sleep(Duration::from_millis(1)).await;
        }
        task::sleep(EXPIRY_INTERVAL).await;
    }
}

/// A client that checks the server.
fn check() -> Result<(), Box<dyn Error>> {
    let server = start("127.0.0.1:0", MEMORY_BYTES_MAX, 1)?;
    let mut stream = TcpStream::connect(server.address().ip().ok_or("the address is an IP address")?)?;
    let talk = [
        ("SET brest 412\r\n", "+OK\r\n"),
        ("*2\r\n$3\r\nGET\r\n$5\r\nbrest\r\n", "$3\r\n412\r\n"),
        ("INCRBY brest -12\r\nTTL brest\r\n", ":400\r\n:-1\r\n"),
        ("MULTI\r\nINCR brest\r\nEXEC\r\n", "+OK\r\n+QUEUED\r\n*1\r\n:401\r\n"),
        ("SUBSCRIBE tide\r\n", "*3\r\n$9\r\nsubscribe\r\n$4\r\ntide\r\n:1\r\n"),
    ];
    for (commands, wanted) in talk {
        stream.write_all(commands.as_bytes())?;
        let mut replies = vec![0; wanted.len()];
        stream.read_exact(&mut replies)?;
        assert_eq!(String::from_utf8_lossy(&replies), wanted);
        println!("{} gets {}", commands.escape_debug(), wanted.escape_debug());
    }
    server.drain(Duration::from_secs(5));
    Ok(())
}

/// Memory for keys and values, unless an argument says otherwise.
const MEMORY_BYTES_MAX: usize = 256 << 20;

const EXPIRED_AT_ONCE_MAX: usize = 200;

/// Redis looks as often. A key that has expired is removed earlier when a command looks at it.
const EXPIRY_INTERVAL: Duration = Duration::from_millis(100);
