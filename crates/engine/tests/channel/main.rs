//! Channels and tasks, on real loops.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use tidegate_codec::framing::Lines;
use tidegate_engine::{Channel, Server};

async fn echo(mut channel: Channel<Lines>) -> Result<(), Box<dyn std::error::Error>> {
    while let Some(line) = channel.recv().await? {
        channel.send(line.into())?;
    }
    Ok(())
}

#[test]
fn an_echo_echoes() {
    let server = Server::bind("127.0.0.1:0").unwrap().loops(1).serve(Lines::new, echo).unwrap();
    let mut stream = TcpStream::connect(server.address().ip().unwrap()).unwrap();
    stream.write_all(b"hello\nwor").unwrap();
    let mut bytes = [0; 6];
    stream.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"hello\n");
    stream.write_all(b"ld\n").unwrap();
    stream.read_exact(&mut bytes).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(stream.read(&mut bytes).unwrap(), 0);
    server.drain(Duration::from_secs(5));
}
