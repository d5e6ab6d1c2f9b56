//! Our loops in a tokio program: it starts a server, asks it, and drains it, without blocking a worker.
//!
//! ```text
//! cargo run --example within_tokio
//! ```

#![forbid(unsafe_code)]

use std::error::Error;
use std::time::Duration;

use tidegate::http::{Router, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

/// Starts a server whose requests go to a task of the program, and ends it.
#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (sender, mut receiver) = mpsc::channel::<String>(16);
    let reports = tokio::spawn(async move {
        let mut reports = Vec::new();
        while let Some(report) = receiver.recv().await {
            reports.push(report);
        }
        reports
    });

    let router = move || {
        let sender = sender.clone();
        Router::new().post("/reports", async move |report: String| {
            // It waits while the task is behind, and with it the peer.
            sender.send(report).await.map_or("nothing takes reports any more\n", |()| "taken\n")
        })
    };
    let server = Server::bind("127.0.0.1:0")?.start(router)?;

    assert_eq!(report(&server, "ebb").await?, "taken\n");
    assert_eq!(report(&server, "flow").await?, "taken\n");
    server.drained(Duration::from_secs(10)).await;
    // The loops, and the senders that they had, are gone.
    drop(server);
    assert_eq!(reports.await?, ["ebb", "flow"]);
    println!("two reports were taken");
    Ok(())
}

/// Sends a report, and returns the body of the response.
async fn report(server: &tidegate::ServerHandle, text: &str) -> Result<String, Box<dyn Error>> {
    let mut stream = TcpStream::connect(server.address().ip().ok_or("an IP address")?).await?;
    let head = format!("POST /reports HTTP/1.1\r\nHost: sea\r\nConnection: close\r\nContent-Length: {}", text.len());
    stream.write_all(format!("{head}\r\n\r\n{text}").as_bytes()).await?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await?;
    Ok(response.split_once("\r\n\r\n").map_or("", |(_, body)| body).to_owned())
}

#[cfg(test)]
mod tests {
    #[test]
    fn reports_reach_the_program() {
        super::main().unwrap();
    }
}
