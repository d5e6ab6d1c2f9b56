//! A proxy of UDP over HTTP (RFC 9298), and a client that reaches a target through it.
//!
//! ```text
//! cargo run --example udp_proxy                                    # both and a target, and exits
//! cargo run --example udp_proxy -- 0.0.0.0:4433 chain.pem key.pem  # a proxy until it is killed, for targets of this machine too
//! ```

#![forbid(unsafe_code)]

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use tidegate::codec::Transmit;
use tidegate::http::{CapsuleClient, Router, Server, UdpProxy, UdpProxyRules, UdpTunnel};
use tidegate::http3::HttpDatagramLimits;
use tidegate::sys::DatagramOptions;
use tidegate::tls::rustls::RootCertStore;
use tidegate::tls::{Certificates, ClientConfig, Provider, ServerConfig};
use tidegate::{Backend, DatagramChannel, EndpointLimits, EventLoop, ServerHandle, task};

type Any = Box<dyn Error>;

/// Rules for clients and targets of this machine. A proxy in a network names its clients in `clients`, and leaves `allow` empty.
fn rules() -> Result<UdpProxyRules, Any> {
    let mut rules = UdpProxyRules::default();
    rules.allow = vec!["127.0.0.0/8".parse()?];
    Ok(rules)
}

fn serve(
    address: &str,
    certificates: Certificates,
    provider: &Provider,
    rules: UdpProxyRules,
) -> Result<ServerHandle, Any> {
    let tls = ServerConfig::builder(provider, certificates).build()?;
    let proxy = UdpProxy::new(rules);
    let router = move || Router::new().get(UdpProxy::PATH, proxy.function());
    let server = Server::bind(address)?.tls(tls).http_datagrams(HttpDatagramLimits::default())?;
    Ok(server.start(router)?)
}

fn main() -> Result<(), Any> {
    let provider = Provider::aws_lc_rs();
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if let [address, chain, key] = arguments.as_slice() {
        let certificates = Certificates::from_files(&provider, [(chain, key)])?;
        let server = serve(address, certificates, &provider, rules()?)?;
        println!("listening on {}", server.address());
        server.wait();
        return Ok(());
    }
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let key = made.signing_key.serialize_pem();
    let certificates = Certificates::from_pem(&provider, made.cert.pem().as_bytes(), key.as_bytes())?;
    let server = serve("127.0.0.1:0", certificates, &provider, rules()?)?;
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

/// A target that sends each datagram back.
async fn echo(mut target: DatagramChannel) {
    while let Ok(datagram) = target.recv_from().await {
        if target.send(Transmit::response(&datagram, datagram.payload.clone())).is_err() {
            return;
        }
    }
}

/// A client that checks the proxy.
async fn check(address: SocketAddr, tls: ClientConfig) -> Result<(), Any> {
    let options = DatagramOptions::default();
    let target = DatagramChannel::bind("127.0.0.1:0".parse()?, &options, EndpointLimits::default())?;
    let echoes_at = target.local_address()?;
    let _echo = task::spawn(echo(target));
    let answer = ask(address, &tls, echoes_at).await?;
    println!("{} came back from the target", String::from_utf8_lossy(&answer));
    assert_eq!(answer, b"high water");
    Ok(())
}

async fn ask(address: SocketAddr, tls: &ClientConfig, target: SocketAddr) -> Result<Vec<u8>, Any> {
    let client = CapsuleClient::bind("127.0.0.1:0".parse()?, tls, HttpDatagramLimits::default())?;
    let connection = client.connect(address, "localhost").await?;
    let mut tunnel = UdpTunnel::open(&connection, "127.0.0.1", target.port()).await?;
    tunnel.send(b"high water")?;
    let answer = tunnel.recv().await?.ok_or("the proxy has ended the tunnel")?;
    Ok(answer.to_vec())
}

#[test]
fn it_checks_itself() -> Result<(), Any> {
    main()
}
