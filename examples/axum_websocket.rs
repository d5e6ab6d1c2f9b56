//! An axum WebSocket over TLS, by a route of `get`: a browser that has loaded the page over HTTP/2 opens it as a stream
//! of the same connection (RFC 8441), another client over HTTP/1.1.
//!
//! ```text
//! cargo run --example axum_websocket                      # checks itself, and ends
//! cargo run --example axum_websocket -- 127.0.0.1:8443    # serves; the certificate is made up
//! ```

#![forbid(unsafe_code)]

use std::error::Error;
use std::time::Duration;

use axum::Router;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Html;
use axum::routing::get;
use tidegate::http::Client;
use tidegate::tls::rustls::RootCertStore;
use tidegate::tls::{Certificates, ClientConfig, Provider, ServerConfig};
use tidegate::websocket;
use tidegate::{Backend, EventLoop, Listener};

type Any = Box<dyn Error>;

fn router() -> Router {
    Router::new()
        .route("/", get(|| async { Html(PAGE) }))
        .route("/ws", get(|upgrade: WebSocketUpgrade| async { upgrade.on_upgrade(echo) }))
}

/// Sends every message back.
async fn echo(mut socket: WebSocket) {
    while let Some(Ok(message)) = socket.recv().await {
        if let Message::Text(_) | Message::Binary(_) = message
            && socket.send(message).await.is_err()
        {
            return;
        }
    }
}

const PAGE: &str = "<!doctype html><title>Echo</title><p id=text><script>
const socket = new WebSocket(location.origin.replace('http', 'ws') + '/ws');
socket.onopen = () => socket.send('high water');
socket.onmessage = message => { document.getElementById('text').textContent = message.data; };
</script>";

fn main() -> Result<(), Any> {
    let given = std::env::args().nth(1);
    let provider = Provider::aws_lc_rs();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()])?;
    let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let certificates = Certificates::from_pem(&provider, chain.as_bytes(), key.as_bytes())?;
    let tls = ServerConfig::builder(&provider, certificates).build()?;
    let listener = Listener::bind(given.as_deref().unwrap_or("127.0.0.1:0"))?;
    let server = tidegate::axum::serve_on(listener, router()).server(|server| server.loops(1).tls(tls)).start()?;
    println!("listening on https://{}", server.address());
    if given.is_some() {
        server.wait();
        return Ok(());
    }
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone())?;
    let port = server.address().ip().ok_or("an IP address")?.port();
    EventLoop::on(Backend::Auto)?.block_on(async move {
        let client = Client::builder().tls(ClientConfig::builder(&provider, roots)?.build()?).build();
        let mut channel = client.websocket(format!("wss://localhost:{port}/ws")).open().await?;
        channel.send("high water".into())?;
        let Some(websocket::Message::Text(text)) = channel.recv().await? else {
            return Err("a text comes back".into());
        };
        println!("the service has sent {:?} back", text.as_str());
        Ok::<_, Any>(())
    })??;
    server.drain(Duration::from_secs(1));
    Ok(())
}
