//! One request by a plain socket, and its response.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use tidegate::ServerHandle;

/// The address of a server.
pub(crate) fn address(server: &ServerHandle) -> SocketAddr {
    server.address().ip().expect("it listens at an IP address")
}

/// A connection, with a request that has been sent.
pub(crate) fn send(server: &ServerHandle, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address(server)).expect("it accepts");
    stream.set_read_timeout(Some(PATIENCE)).expect("it is a socket");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: sea\r\nConnection: close\r\n\r\n").expect("the server reads");
    stream
}

/// The whole response.
pub(crate) fn receive(mut stream: TcpStream) -> io::Result<String> {
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    Ok(response)
}

/// The body of the response to one request.
pub(crate) fn get(server: &ServerHandle, path: &str) -> String {
    let response = receive(send(server, path)).expect("the server responds");
    let (head, body) = response.split_once("\r\n\r\n").expect("a response");
    assert!(head.starts_with("HTTP/1.1 200 "), "{response}");
    body.to_owned()
}

pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
