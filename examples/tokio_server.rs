//! A codec of Tidegate without its loops: HTTP/1.1 over tokio sockets.
//!
//! ```text
//! cargo run --example tokio_server                      # checks itself, prints the results and exits
//! cargo run --example tokio_server -- 127.0.0.1:8080    # serves until it is killed
//! ```

#![forbid(unsafe_code)]

use std::error::Error;

use tidegate::compat::Framed;
use tidegate::http1::{self, Incoming, Response};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{LocalSet, spawn_local};

/// Serves one connection: each request is answered with its target. The codec's deadlines and limits hold as they do on
/// a loop.
async fn serve(stream: TcpStream) -> Result<(), Box<dyn Error>> {
    let mut connection = Framed::new(stream, http1::Server::default());
    while let Some(incoming) = connection.recv().await? {
        if let Incoming::Head(head) = incoming {
            connection.send(Response::text(head.target().to_owned()).into())?;
        }
    }
    connection.close().await?;
    Ok(())
}

/// Accepts connections, each with a task of this thread.
async fn accept(listener: TcpListener) -> std::io::Result<()> {
    loop {
        let (stream, peer) = listener.accept().await?;
        spawn_local(async move {
            if let Err(error) = serve(stream).await {
                eprintln!("{peer}: {error}");
            }
        });
    }
}

/// Sends a request, and returns everything that the server answers.
async fn ask(address: std::net::SocketAddr, request: &[u8]) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(request).await?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await?;
    Ok(response)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1);
    let listener = TcpListener::bind(address.as_deref().unwrap_or("127.0.0.1:0")).await?;
    let local = listener.local_addr()?;
    println!("listening on {local}");
    let tasks = LocalSet::new();
    if address.is_some() {
        return Ok(tasks.run_until(accept(listener)).await?);
    }
    tasks.spawn_local(accept(listener));
    let request = b"GET /flow HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let response = tasks.run_until(ask(local, request)).await?;
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n") && response.ends_with("\r\n\r\n/flow"), "{response}");
    println!("{}", response.lines().next().unwrap_or_default());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pipelined_requests_are_answered_and_bad_ones_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let tasks = LocalSet::new();
        tasks.spawn_local(accept(listener));
        let two = b"GET /one HTTP/1.1\r\nHost: a\r\n\r\nGET /two HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        let response = tasks.run_until(ask(address, two)).await.unwrap();
        assert!(response.contains("/one") && response.ends_with("/two"), "{response}");
        let refused = tasks.run_until(ask(address, b"GET / HTTP/7.0\r\n\r\n")).await.unwrap();
        assert!(refused.starts_with("HTTP/1.1 505 "), "{refused}");
    }
}
