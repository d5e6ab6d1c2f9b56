//! Echo as straight-line code: an async task pulls messages from a channel, where the handler of `echo.rs` receives
//! callbacks.
//!
//! ```text
//! cargo run --example echo_channel                      # checks itself, prints the results and exits
//! cargo run --example echo_channel -- 127.0.0.1:7000    # serves until it is killed
//! ```

#![forbid(unsafe_code)]

use std::error::Error;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use tidegate::framing::Raw;
use tidegate::{Channel, Server};

/// Serves one connection. While the peer does not read its answers, `recv` waits: pending output is bounded without
/// code for it here. Returning drops the channel, which sends the remaining output and closes.
async fn echo(mut channel: Channel<Raw>) -> Result<(), Box<dyn Error>> {
    while let Some(bytes) = channel.recv().await? {
        channel.send(bytes.into())?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1);
    let server = Server::bind(address.as_deref().unwrap_or("127.0.0.1:0"))?.serve(|| Raw, echo)?;
    println!("listening on {}", server.address());
    if address.is_some() {
        server.wait();
        return Ok(());
    }
    let mut stream = TcpStream::connect(server.address().ip().ok_or("not an IP address")?)?;
    stream.write_all(b"what goes out with the ebb ")?;
    stream.write_all(b"comes back with the flow")?;
    stream.shutdown(Shutdown::Write)?;
    let mut echoed = String::new();
    stream.read_to_string(&mut echoed)?;
    assert_eq!(echoed, "what goes out with the ebb comes back with the flow");
    println!("echoed: {echoed}");
    server.drain(Duration::from_secs(5));
    Ok(())
}
