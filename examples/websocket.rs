//! A WebSocket on a route of an HTTP server, and a client that echoes its messages.
//!
//! ```text
//! cargo run --example websocket                                       # both, talking to each other, and exits
//! cargo run --example websocket -- ws://127.0.0.1:8080/ws             # a client that sends every message back
//! cargo run --example websocket -- --print ws://127.0.0.1:8080/ws     # a client that prints every text
//! ```
//!
//! With `wss://` the server has to have a certificate that the system trusts, or that is in the file of SSL_CERT_FILE.

#![forbid(unsafe_code)]

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use tidegate::http::client::WebSocketChannel;
use tidegate::http::{Client, Router, WebSocketUpgrade};
use tidegate::tls::{ClientConfig, Provider};
use tidegate::websocket::{Close, CloseCode, Config, Deflate, Message};
use tidegate::{Backend, EventLoop};

type Any = Box<dyn Error>;

/// Sends every message back. `recv` ends when the peer closes, and waits while the peer does not read.
async fn echo(channel: &mut WebSocketChannel) -> Result<(), Any> {
    while let Some(message) = channel.recv().await? {
        channel.send(message)?;
    }
    Ok(())
}

/// Prints every text.
async fn print(channel: &mut WebSocketChannel) -> Result<(), Any> {
    while let Some(message) = channel.recv().await? {
        if let Message::Text(text) = message {
            println!("{text}");
        }
    }
    Ok(())
}

/// Messages up to 64 MiB, and compression where the peer has it.
fn config() -> Arc<Config> {
    let mut config = Config::default();
    config.message_bytes_max = 64 * 1024 * 1024;
    config.deflate = Some(Deflate::default());
    Arc::new(config)
}

/// Opens a WebSocket.
async fn open(url: &str) -> Result<WebSocketChannel, Any> {
    let mut client = Client::builder();
    if url.starts_with("wss://") {
        client = client.tls(ClientConfig::builder_with_platform_roots(&Provider::aws_lc_rs())?.build()?);
    }
    Ok(client.build().websocket(url).config(&config()).open().await?)
}

fn main() -> Result<(), Any> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let (prints, url) = match &arguments[..] {
        [] => return demonstrate(),
        [flag, url] if flag == "--print" => (true, url),
        [url] => (false, url),
        _ => return Err("usage: websocket [--print] URL".into()),
    };
    let url = url.clone();
    EventLoop::on(Backend::Auto)?.block_on(async move {
        let mut channel = open(&url).await?;
        let served = if prints { print(&mut channel).await } else { echo(&mut channel).await };
        // The program ends when the last answers and the close frame are sent, after an error of the peer as well.
        let closed = channel.close().await;
        served?;
        Ok(closed?)
    })?
}

/// A server on a route, and a client of it.
fn demonstrate() -> Result<(), Any> {
    let router = || {
        Router::new().get("/ws", |upgrade: WebSocketUpgrade| {
            upgrade.config(&config()).channel(async |mut channel| echo(&mut channel).await)
        })
    };
    let server = tidegate::http::Server::bind("127.0.0.1:0")?.start(router)?;
    let url = format!("ws://{}/ws", server.address());
    let answers = EventLoop::on(Backend::Auto)?.block_on(async move {
        let mut channel = open(&url).await?;
        let mut answers = Vec::new();
        for text in ["ebb", "flow", &"tide ".repeat(100)] {
            channel.send(text.to_owned().into())?;
            if let Some(Message::Text(text)) = channel.recv().await? {
                answers.push(text.as_str().len());
            }
        }
        channel.send(Close::from(CloseCode::NORMAL).into())?;
        while channel.recv().await?.is_some() {}
        channel.close().await?;
        Ok::<_, Any>(answers)
    })??;
    println!("texts of {answers:?} bytes came back");
    assert_eq!(answers, [3, 4, 500]);
    server.drain(Duration::from_secs(5));
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_client_and_a_server_talk_and_close() {
        super::demonstrate().unwrap();
    }
}
