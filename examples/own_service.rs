//! A service as it is deployed: an axum router by HTTP and HTTPS on the same loops, probes on a listener of their own, and an
//! end in good order.
//!
//! ```text
//! cargo run --example own_service                                         # checks itself, and ends
//! cargo run --example own_service -- 0.0.0.0:80 0.0.0.0:443 127.0.0.1:9090 chain.pem key.pem
//! ```
//!
//! `docs/guide/own-service.md` has a unit and an image for it.

#![forbid(unsafe_code)]

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use axum::extract::ConnectInfo;
use axum::routing::get;
use tidegate::admin::{Admin, AdminHandle};
use tidegate::http::{Client, Config, Limits, Router, Server};
use tidegate::metrics::HttpMetrics;
use tidegate::tls::rustls::RootCertStore;
use tidegate::tls::{Certificates, ClientConfig, Provider, ServerConfig};
use tidegate::{EventLoop, Listener, ServerHandle, axum as on_our_loops};

/// The routes. Both listeners have the same ones.
fn pages() -> axum::Router {
    let hello = async |ConnectInfo(client): ConnectInfo<SocketAddr>| format!("hello, {}\n", client.ip());
    axum::Router::new().route("/", get(hello))
}

/// Starts the service, and its probes.
fn start(
    http: &str,
    https: &str,
    admin: &str,
    tls: ServerConfig,
) -> Result<(ServerHandle, AdminHandle), Box<dyn Error>> {
    let mut limits = Limits::default();
    limits.connections_max = 20_000;
    limits.body_bytes_max = 64 * 1024;
    let metrics = HttpMetrics::new();
    let router = || Router::new().fallback(on_our_loops::function(pages()).with_connect_info());
    let secure = Config::new().limits(limits.clone()).metrics(&metrics).tls(tls);
    let secure = secure.serve(Listener::bind(https)?.label("https"), router);
    let server = Server::bind(http)?.limits(limits).metrics(&metrics).listener(secure).start(router)?;
    let admin = Admin::new(&server).requests(&metrics).start(&admin.parse()?)?;
    Ok((server, admin))
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [] => check(),
        [http, https, admin, chain, key] => {
            let provider = Provider::aws_lc_rs();
            let certificates = Certificates::from_files(&provider, [(chain, key)])?;
            let (server, _admin) = start(http, https, admin, ServerConfig::builder(&provider, certificates).build()?)?;
            println!("listening on {http} and {https}");
            server.run_until_signal(Duration::from_secs(25))?;
            Ok(())
        }
        _ => Err("usage: own_service HTTP HTTPS ADMIN CHAIN KEY".into()),
    }
}

fn check() -> Result<(), Box<dyn Error>> {
    let (provider, made) = (Provider::aws_lc_rs(), rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?);
    let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let certificates = Certificates::from_pem(&provider, chain.as_bytes(), key.as_bytes())?;
    let tls = ServerConfig::builder(&provider, certificates).build()?;
    let (server, admin) = start("127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0", tls)?;
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone())?;
    let trusting = ClientConfig::builder(&provider, roots)?.build()?;
    let (mut http, mut https) = (None, None);
    for listener in server.listeners() {
        let place = if listener.label() == "https" { &mut https } else { &mut http };
        *place = listener.addresses().first();
    }
    let (http, https) = (http.ok_or("a listener of http")?, https.ok_or("a listener of https")?);
    let urls = [format!("http://{http}/"), format!("https://{https}/"), format!("http://{}/ready", admin.address())];
    let texts = EventLoop::on(tidegate::Backend::Auto)?.block_on(async move {
        let client = Client::builder().tls(trusting).build();
        let mut texts = Vec::new();
        for url in urls {
            texts.push(client.get(&url).send().await?.error_for_status()?.text().await?);
        }
        Ok::<_, tidegate::http::client::ClientError>(texts)
    })??;
    assert_eq!(texts[..2], ["hello, 127.0.0.1\n", "hello, 127.0.0.1\n"]);
    server.drain(Duration::from_secs(1));
    println!("all is as expected");
    Ok(())
}

#[test]
fn the_example_checks_itself() -> Result<(), Box<dyn Error>> {
    check()
}
