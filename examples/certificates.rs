//! A server whose certificate an authority issues and renews (ACME).
//!
//! `cargo run --example certificates -- DIRECTORY FOLDER NAME...` serves HTTPS at port 443, and answers HTTP-01 at port 80.
//! Without arguments it checks itself, without an authority.

#![forbid(unsafe_code)]

use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use tidegate::ServerHandle;
use tidegate::acme::{Acme, ChallengeKind, FolderStore};
use tidegate::http::{Router, Server};
use tidegate::tls::{ClientConfig, Provider, ServerConfig};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [directory, folder, names @ ..] = &arguments[..] else { return check() };
    let acme = certificate(directory, folder, names)?;
    let servers = serve(&acme, "[::]:443", "[::]:80")?;
    // The servers answer challenges from here on.
    let renewals = acme.start()?;
    servers.0.run_until_signal(Duration::from_secs(25))?;
    drop((renewals, servers.1));
    Ok(())
}

fn certificate(directory: &str, folder: &str, names: &[String]) -> Result<Acme, Box<dyn Error>> {
    let provider = Provider::aws_lc_rs();
    let authority = ClientConfig::builder_with_platform_roots(&provider)?.build()?;
    let builder = Acme::builder(&provider, authority, directory, FolderStore::open(folder)?);
    let kinds = [ChallengeKind::TlsAlpn01, ChallengeKind::Http01];
    Ok(builder.names(names.to_vec()).challenges(kinds).build()?)
}

/// The server of HTTPS, and the one that answers HTTP-01.
fn serve(acme: &Acme, https: &str, http: &str) -> Result<(ServerHandle, ServerHandle), Box<dyn Error>> {
    let tls = ServerConfig::builder(&Provider::aws_lc_rs(), acme.certificates()).alpn(["h2", "http/1.1"]).build()?;
    let secure = Server::bind(https)?.tls(tls).start(|| Router::new().get("/", || "ebb and flow"))?;
    let http01 = acme.http01();
    let plain = Server::bind(http)?.loops(1).start(move || Router::new().with(http01.clone()))?;
    Ok((secure, plain))
}

fn check() -> Result<(), Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("tidegate-certificates-{}", std::process::id()));
    let path = folder.to_string_lossy();
    let acme = certificate("https://authority.test/directory", &path, &["localhost".to_owned()])?;
    let (secure, plain) = serve(&acme, "127.0.0.1:0", "127.0.0.1:0")?;
    assert_eq!(acme.names(), ["localhost"]);
    assert!(acme.status().not_after.is_none(), "nothing is issued before `start`");
    let mut stream = TcpStream::connect(plain.address().to_string())?;
    let target = "/.well-known/acme-challenge/unexpected";
    write!(stream, "GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    assert!(response.starts_with("HTTP/1.1 404"), "{response}");
    secure.drain(Duration::ZERO);
    plain.drain(Duration::ZERO);
    std::fs::remove_dir_all(&folder)?;
    println!("all is as expected");
    Ok(())
}

#[test]
fn the_example_checks_itself() -> Result<(), Box<dyn Error>> {
    check()
}
