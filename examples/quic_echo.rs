//! An echo over QUIC: each stream has the handler that a TCP connection has.
//!
//! ```text
//! cargo run --example quic_echo                                          # checks itself, prints the results and exits
//! cargo run --release --example quic_echo -- 127.0.0.1:7000 chain.pem key.pem  # echoes until it is killed
//! ```

#![forbid(unsafe_code)]

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use tidegate::engine::{SessionLimits, SessionStreams, Streams};
use tidegate::framing::Raw;
use tidegate::quic::{self, Direction, TransportLimits};
use tidegate::tls::rustls::RootCertStore;
use tidegate::tls::{Certificates, ClientConfig, Provider, ServerConfig};
use tidegate::{Backend, Context, EndpointListener, Event, EventLoop, Handler, Outcome, Server, Slice};

/// Sends bytes back, and ends its side behind those of the peer.
struct Echo;

impl Handler<Raw> for Echo {
    type Post = ();

    fn message(&mut self, bytes: Slice, cx: &mut Context<'_, Raw>) -> Outcome<Raw> {
        cx.send(bytes.into()).into()
    }

    fn event(&mut self, event: Event<()>, _: &mut Context<'_, Raw>) -> Outcome<Raw> {
        if event == Event::ReadClosed { Outcome::Close } else { Outcome::Continue }
    }
}

/// Serves at an address, on all loops.
fn serve(
    address: &str,
    certificates: Certificates,
    provider: &Provider,
) -> Result<tidegate::ServerHandle, Box<dyn Error>> {
    let tls = ServerConfig::builder(provider, certificates).alpn(["echo"]).build()?;
    let config =
        quic::ServerConfig::new(&tls, TransportLimits { connections_max: 10_000, ..TransportLimits::default() })?;
    let services = |_session| SessionStreams {
        bidirectional: Some(Streams::handle(|| (Raw, Echo))),
        // Streams on which the client alone sends are refused.
        unidirectional: None,
    };
    let make = move |loop_number| config.endpoint(loop_number);
    let listener = EndpointListener::bind(address)?.serve_sessions(SessionLimits::default(), make, services);
    Ok(Server::new().endpoint(listener).run()?)
}

/// Sends bytes on a stream, and returns those that come back.
async fn ask(connection: &quic::Connection, bytes: Vec<u8>) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut channel = connection.open_when_allowed(Direction::Bidirectional, Raw).await?;
    channel.send(bytes.into())?;
    channel.shutdown_write();
    let mut echoed = Vec::new();
    while let Some(piece) = channel.recv().await? {
        echoed.extend_from_slice(&piece);
    }
    Ok(echoed)
}

fn main() -> Result<(), Box<dyn Error>> {
    run(&std::env::args().skip(1).collect::<Vec<_>>())
}

fn run(arguments: &[String]) -> Result<(), Box<dyn Error>> {
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
    let tls = ClientConfig::builder(&provider, roots)?.alpn(["echo"]).build()?;
    let config = quic::ClientConfig::new(&tls, TransportLimits::default())?;
    EventLoop::on(Backend::Auto)?.block_on(check(address, config))??;
    server.drain(Duration::from_secs(1));
    println!("the server has drained");
    Ok(())
}

/// A client that checks the server.
async fn check(address: SocketAddr, config: quic::ClientConfig) -> Result<(), Box<dyn Error>> {
    let client = quic::Connector::bind("127.0.0.1:0".parse()?, &config)?;
    let connection = client.connect(address, "localhost").await?;
    for length in [1, 1_000, 100_000] {
        let bytes: Vec<u8> = (0..length).map(|place: usize| place as u8).collect();
        if ask(&connection, bytes.clone()).await? != bytes {
            return Err(format!("{length} bytes came back changed").into());
        }
        println!("{length} bytes came back on a stream");
    }
    connection.close(0, "done");
    Ok(())
}

#[test]
fn it_checks_itself() -> Result<(), Box<dyn Error>> {
    run(&[])
}
