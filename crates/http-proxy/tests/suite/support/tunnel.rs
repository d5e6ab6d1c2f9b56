//! The requirements on a tunnel between an HTTP/2 stream and an HTTP/1.1 connection.

use std::io::Read;
use std::net::{Shutdown, TcpStream};

use crate::support::http2_peer::{DATA, END_STREAM, Peer};
use crate::support::proxy_peers;

/// Checks that bytes go both ways on stream 1, on which "early " was sent and "hello" has come, and that each direction
/// ends on its own.
pub(crate) fn both_ways(client: &mut Peer<TcpStream>, server: &mut proxy_peers::Peer) {
    client.data(1, b"ebb");
    assert_eq!(server.until("early ebb"), "early ebb");
    let flow = vec![b'f'; 300_000];
    server.send(&flow);
    client.read_until(|client| client.stream(1).body.len() == 5 + flow.len());
    // The client ends its direction, and the other goes on.
    client.frame(DATA, END_STREAM, 1, b".");
    let mut rest = Vec::new();
    server.0.read_to_end(&mut rest).expect("the end");
    assert_eq!(rest, b".");
    server.send("last");
    server.0.shutdown(Shutdown::Write).expect("a socket");
    client.read_until(|client| client.stream(1).has_ended);
    assert!(client.stream(1).body.ends_with(b"last"));
}
