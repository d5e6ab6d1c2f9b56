//! Echo: the smallest server, with its own codec.
//!
//! ```text
//! cargo run --example echo                      # checks itself, prints the results and exits
//! cargo run --example echo -- 127.0.0.1:7000    # serves until it is killed
//! ```

#![forbid(unsafe_code)]

use std::convert::Infallible;
use std::error::Error;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use tidegate::codec::{Codec, Input, Output, Step};
use tidegate::{Context, Handler, Outcome, Server, Slice};

/// Bytes, in the pieces in which they arrive.
struct Raw;

impl Codec for Raw {
    type In = Slice;
    type Out = Slice;
    type Error = Infallible;

    fn decode(&mut self, input: &mut Input, _: &mut Output<'_>) -> Result<Step<Slice>, Infallible> {
        // A call returns a message or needs more input. Empty input must not become a message: the loop would not end.
        Ok(if input.is_empty() { Step::NeedMore } else { Step::Message(input.take_all()) })
    }

    fn encode(&mut self, bytes: Slice, out: &mut Output<'_>) -> Result<(), Infallible> {
        // Short pieces are copied into the queue, long ones are linked without a copy.
        out.link(bytes);
        Ok(())
    }
}

/// Echoes every message. When the peer ends its side, the connection closes after everything was sent: the default of a
/// handler.
struct Echo;

impl Handler<Raw> for Echo {
    type Post = ();

    fn message(&mut self, bytes: Slice, cx: &mut Context<'_, Raw>) -> Outcome<Raw> {
        // Output may have to wait, and a few bytes must not keep the loop's receive buffer alive meanwhile. Pending
        // output is bounded: above the bound, no further message is decoded.
        match cx.send(bytes.detach()) {
            Ok(_) => Outcome::Continue,
            Err(error) => Outcome::fail(error),
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1);
    let server = Server::bind(address.as_deref().unwrap_or("127.0.0.1:0"))?.start(|| (Raw, Echo))?;
    println!("listening on {}", server.address());
    if address.is_some() {
        // The loops have their own threads; this thread only waits.
        server.wait();
        return Ok(());
    }
    check(server.address().ip().ok_or("the address is an IP address")?)?;
    server.drain(Duration::from_secs(1));
    println!("the server has drained");
    Ok(())
}

/// A client that checks the server.
fn check(server: std::net::SocketAddr) -> Result<(), Box<dyn Error>> {
    let mut stream = TcpStream::connect(server)?;
    stream.write_all(b"the tide is in")?;
    let mut answer = [0; 14];
    stream.read_exact(&mut answer)?;
    println!("sent and got back: {}", answer.escape_ascii());

    // More than any buffer holds, from a client that ends its side before it has read: all of it comes back.
    let flood = vec![b'~'; 4 << 20];
    let mut reader = stream.try_clone()?;
    let rest = std::thread::spawn(move || {
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).map(|_| rest)
    });
    stream.write_all(&flood)?;
    stream.shutdown(Shutdown::Write)?;
    let rest = rest.join().map_err(|_| "the reader panicked")??;
    assert!(rest == flood, "the echo equals the sent bytes");
    println!("sent and got back: {} bytes, then the end", rest.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use tidegate_testkit::Embedded;

    use super::{Echo, Raw};

    #[test]
    fn input_is_echoed() {
        let mut echo = Embedded::new(Raw, Echo);
        echo.receive(b"ebb ");
        echo.receive(b"and flow");
        assert_eq!(echo.take_written(), b"ebb and flow");
        echo.receive_fin();
        assert!(echo.is_closed());
    }
}
