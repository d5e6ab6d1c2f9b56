//! WebTransport on a route of an HTTPS server, and a client of it: streams, datagrams and a close with a code.
//!
//! ```text
//! cargo run --example webtransport                                    # both, talking to each other, and exits
//! cargo run --example webtransport -- 0.0.0.0:4433 chain.pem key.pem  # serves a page and /echo until it is killed
//! ```
//!
//! A browser opens a session to a certificate that it trusts, or by the hash of one that is valid for at most 14 days:
//! `new WebTransport(url, {serverCertificateHashes: [{algorithm: "sha-256", value}]})`.

#![forbid(unsafe_code)]

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use tidegate::engine::SessionError;
use tidegate::framing::Raw;
use tidegate::http::{Response, Router, Server, WebTransportClient, WebTransportSession, WebTransportUpgrade};
use tidegate::http3::webtransport::WebTransportLimits;
use tidegate::tls::rustls::RootCertStore;
use tidegate::tls::{Certificates, ClientConfig, Provider, ServerConfig};
use tidegate::{Backend, Channel, ChannelError, EventLoop, ServerHandle, task};

type Any = Box<dyn Error>;

/// Sends everything back: datagrams, bidirectional streams, and each unidirectional stream on one of this side.
async fn echo(session: WebTransportSession) -> Result<(), Any> {
    let (datagrams, one_way) = (session.clone(), session.clone());
    task::spawn(async move {
        while let Some(datagram) = datagrams.recv_datagram().await {
            datagrams.send_datagram(&datagram)?;
        }
        Ok::<_, SessionError>(())
    });
    task::spawn(async move {
        while let Some(mut reader) = one_way.accept_unidirectional().await {
            let mut writer = one_way.open_unidirectional().await?;
            while let Some(bytes) = reader.recv().await? {
                writer.send(bytes.into())?;
                writer.ready().await?;
            }
        }
        Ok::<_, Any>(())
    });
    while let Some(stream) = session.accept_bidirectional().await {
        task::spawn(echo_stream(stream, session.clone()));
    }
    Ok(())
}

/// Sends the bytes of a stream back. A stream with the word `close` closes the session.
async fn echo_stream(mut stream: Channel<Raw>, session: WebTransportSession) -> Result<(), ChannelError> {
    while let Some(bytes) = stream.recv().await? {
        if &*bytes == b"close" {
            session.close(5, "as you wish");
        }
        stream.send(bytes.into())?;
        // While the peer does not read, its own bytes wait in the window of the stream.
        stream.ready().await?;
    }
    stream.close().await
}

fn serve(address: &str, certificates: Certificates, provider: &Provider) -> Result<ServerHandle, Any> {
    let tls = ServerConfig::builder(provider, certificates).build()?;
    let server = Server::bind(address)?.tls(tls).webtransport(WebTransportLimits::default())?;
    let router = || {
        Router::new()
            .get("/", || Response::html("<!doctype html><title>WebTransport</title><p>A session is at /echo."))
            .get("/echo", |upgrade: WebTransportUpgrade| upgrade.session(echo))
    };
    Ok(server.start(router)?)
}

fn main() -> Result<(), Any> {
    run(&std::env::args().skip(1).collect::<Vec<_>>())
}

fn run(arguments: &[String]) -> Result<(), Any> {
    let provider = Provider::aws_lc_rs();
    if let [address, chain, key] = arguments {
        let certificates = Certificates::from_files(&provider, [(chain, key)])?;
        let server = serve(address, certificates, &provider)?;
        println!("listening on {}", server.address());
        server.wait();
        return Ok(());
    }
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let key = made.signing_key.serialize_pem();
    let certificates = Certificates::from_pem(&provider, made.cert.pem().as_bytes(), key.as_bytes())?;
    let server = serve("127.0.0.1:0", certificates, &provider)?;
    println!("listening on {}", server.address());
    let address = server.address().ip().ok_or("the address is an IP address")?;

    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone())?;
    let tls = ClientConfig::builder(&provider, roots)?.build()?;
    EventLoop::on(Backend::Auto)?.block_on(check(address, tls))??;
    server.drain(Duration::from_secs(1));
    println!("the server has drained");
    Ok(())
}

/// A client that checks the server.
async fn check(address: SocketAddr, tls: ClientConfig) -> Result<(), Any> {
    let client = WebTransportClient::bind("127.0.0.1:0".parse()?, &tls, WebTransportLimits::default())?;
    let session = client.open(address, "localhost", "/echo").await?;
    for length in [1, 1_000, 100_000] {
        let bytes: Vec<u8> = (0..length).map(|place: usize| place as u8).collect();
        let mut stream = session.open_bidirectional().await?;
        stream.send(bytes.clone().into())?;
        stream.shutdown_write();
        if read_all(async || Ok(stream.recv().await?)).await? != bytes {
            return Err(format!("{length} bytes came back changed").into());
        }
        println!("{length} bytes came back on a stream");
    }
    let mut writer = session.open_unidirectional().await?;
    writer.send(b"ebb".to_vec().into())?;
    drop(writer);
    let mut reader = session.accept_unidirectional().await.ok_or("the session is over")?;
    let bytes = read_all(async || Ok(reader.recv().await?)).await?;
    println!("{} came back on a stream of the server", String::from_utf8_lossy(&bytes));
    session.send_datagram(b"flow")?;
    let datagram = session.recv_datagram().await.ok_or("the session is over")?;
    println!("{} came back as a datagram", String::from_utf8_lossy(&datagram));
    let mut stream = session.open_bidirectional().await?;
    stream.send(b"close".to_vec().into())?;
    let close = session.closed().await.ok_or("the connection broke")?;
    println!("the server has closed the session with code {}: {}", close.code, close.reason);
    assert_eq!((&bytes[..], &datagram[..], close.code), (&b"ebb"[..], &b"flow"[..], 5));
    Ok(())
}

/// The bytes of a stream, to its end.
async fn read_all(mut recv: impl AsyncFnMut() -> Result<Option<tidegate::Slice>, Any>) -> Result<Vec<u8>, Any> {
    let mut bytes = Vec::new();
    while let Some(piece) = recv().await? {
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

#[test]
fn it_checks_itself() -> Result<(), Any> {
    run(&[])
}
