//! A TCP forwarder: it connects each client to another address, and copies bytes in both directions.
//!
//! ```text
//! cargo run --example forwarder                                       # forwards to its own echo server, and exits
//! cargo run --example forwarder -- 127.0.0.1:7000 127.0.0.1:8080      # listens on the first, connects to the second
//! ```
//!
//! Back-pressure: each direction receives only while its writer is ready, so it buffers little more than a water mark
//! of bytes, and a fast sender waits for a slow reader. Large pieces are not copied.
//!
//! A FIN is forwarded as a FIN, and a reset as a reset: otherwise a truncated stream would look complete on the other
//! side.

#![forbid(unsafe_code)]

use std::error::Error;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use tidegate::framing::Raw;
use tidegate::{Channel, Client, ReadHalf, Server, ServerHandle, WriteHalf, task};

type Any = Box<dyn Error>;

/// Copies one direction. When its source ends, so does its sink: dropping a writer ends that side in good order. When
/// either of the two connections breaks, both are reset.
async fn pump(mut from: ReadHalf<Raw>, mut to: WriteHalf<Raw>) -> Result<(), Any> {
    let copied = copy(&mut from, &mut to).await;
    if copied.is_err() {
        from.abort();
        to.abort();
    }
    copied
}

async fn copy(from: &mut ReadHalf<Raw>, to: &mut WriteHalf<Raw>) -> Result<(), Any> {
    while let Some(bytes) = from.recv().await? {
        to.send(bytes.into())?;
        // The halves of a channel do not wait for each other: without this line a slow sink would fill our memory.
        to.ready().await?;
    }
    Ok(())
}

async fn forward(mut near: Channel<Raw>, upstream: Client) -> Result<(), Any> {
    // If the connect fails, the error closes the near side, and is logged.
    let mut far = upstream.connect(Raw).await?;
    // Only the two peers know when they are done.
    near.ignore_drain();
    far.ignore_drain();
    let (near_reader, near_writer) = near.split();
    let (far_reader, far_writer) = far.split();
    // If one direction fails because a connection broke, the other direction ends too.
    task::try_join(pump(near_reader, far_writer), pump(far_reader, near_writer)).await?;
    Ok(())
}

fn start(listen: &str, upstream: &str) -> Result<ServerHandle, Any> {
    let upstream = Client::to(upstream)?.connect_timeout(Duration::from_secs(5));
    let server = Server::bind(listen)?;
    Ok(server.serve(|| Raw, move |channel| forward(channel, upstream.clone()))?)
}

async fn echo(mut channel: Channel<Raw>) -> Result<(), Any> {
    while let Some(bytes) = channel.recv().await? {
        channel.send(bytes.into())?;
    }
    Ok(())
}

fn main() -> Result<(), Any> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if let [listen, upstream] = &arguments[..] {
        let running = start(listen, upstream)?;
        println!("forwarding {} to {upstream}", running.address());
        running.wait();
        return Ok(());
    }
    let echo = Server::bind("127.0.0.1:0")?.loops(1).serve(|| Raw, echo)?;
    let forwarder = start("127.0.0.1:0", &echo.address().to_string())?;
    let mut stream = TcpStream::connect(forwarder.address().ip().ok_or("not an IP address")?)?;
    let sent: Vec<u8> = (0..4_000_000_u32).map(|n| (n % 251) as u8).collect();
    let mut writer = stream.try_clone()?;
    let received = std::thread::scope(|scope| {
        scope.spawn(|| writer.write_all(&sent).and_then(|()| writer.shutdown(Shutdown::Write)));
        let mut received = Vec::new();
        stream.read_to_end(&mut received).map(|_| received)
    })?;
    assert!(received == sent, "{} bytes came back of {}", received.len(), sent.len());
    println!("{} bytes went there and back", received.len());
    forwarder.drain(Duration::from_secs(5));
    echo.drain(Duration::from_secs(5));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;
    use std::net::TcpListener;

    /// A forwarder, its client, and the upstream server's socket of the same stream.
    fn forwarded() -> (ServerHandle, TcpStream, TcpStream) {
        let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
        let running = start("127.0.0.1:0", &upstream.local_addr().unwrap().to_string()).unwrap();
        let near = TcpStream::connect(running.address().ip().unwrap()).unwrap();
        let far = upstream.accept().unwrap().0;
        for stream in [&near, &far] {
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        }
        (running, near, far)
    }

    /// Resets a stream: the kernel does so when a socket is closed that has unread bytes.
    fn reset(stream: TcpStream, mut other: &TcpStream) {
        other.write_all(b"unread").unwrap();
        stream.peek(&mut [0]).unwrap();
        drop(stream);
    }

    /// Reads a stream to its end, and returns how it ended.
    fn end(mut stream: &TcpStream) -> Result<(), ErrorKind> {
        loop {
            match stream.read(&mut [0; 4096]) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) => return Err(error.kind()),
            }
        }
    }

    #[test]
    fn a_reset_is_forwarded_as_a_reset() {
        for round in 0..30 {
            let (_running, near, far) = forwarded();
            let (mut from, to) = if round % 2 == 0 { (near, far) } else { (far, near) };
            from.write_all(b"half a mess").unwrap();
            if round % 3 > 0 {
                (&to).read_exact(&mut [0; 11]).unwrap();
            }
            reset(from, &to);
            assert_eq!(end(&to), Err(ErrorKind::ConnectionReset), "round {round}");
        }
    }

    #[test]
    fn a_fin_is_forwarded_and_the_other_direction_stays_open() {
        let (running, mut near, mut far) = forwarded();
        near.write_all(b"question").unwrap();
        near.shutdown(Shutdown::Write).unwrap();
        let mut text = String::new();
        far.read_to_string(&mut text).unwrap();
        assert_eq!(text, "question");
        far.write_all(b"answer").unwrap();
        drop(far);
        text.clear();
        near.read_to_string(&mut text).unwrap();
        assert_eq!(text, "answer");
        running.drain(Duration::from_secs(5));
    }
}
