//! Servers of WebSockets to measure Tidegate beside: `/ws` sends every message back, and `/chat/ws` sends every message
//! to all its connections. Each has one thread.

use std::error::Error;
use std::future::Future;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A message of a room that a slow connection may be behind by.
pub const ROOM_MESSAGES_MAX: usize = 64;

/// Connections that wait to be accepted: with fewer the kernel drops some of a crowd, which try again a second later.
const BACKLOG: u32 = 4096;

/// Serves connections at the address that the arguments name.
pub fn run<F: Future<Output = ()> + 'static>(serve: impl Fn(TcpStream) -> F + 'static) -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).ok_or("usage: PROGRAM ADDRESS")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, async move {
        let socket = TcpSocket::new_v4()?;
        socket.bind(address.parse()?)?;
        let listener = socket.listen(BACKLOG)?;
        println!("listening on {}", listener.local_addr()?);
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            tokio::task::spawn_local(serve(stream));
        }
    })
}

/// Answers the handshake of a client. Returns its path.
pub async fn accept(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        // The client sends nothing behind the head before it has the response.
        if head.len() > 16 * 1024 || stream.read_buf(&mut head).await.ok()? == 0 {
            return None;
        }
    }
    let head = str::from_utf8(&head).ok()?;
    let path = head.split(' ').nth(1)?.to_owned();
    let fields = head.lines().filter_map(|line| line.split_once(": "));
    let (_, key) = fields.into_iter().find(|(name, _)| name.eq_ignore_ascii_case("sec-websocket-key"))?;
    let response = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {}\r\n\r\n",
        derive_accept_key(key.as_bytes())
    );
    stream.write_all(response.as_bytes()).await.ok()?;
    Some(path)
}
