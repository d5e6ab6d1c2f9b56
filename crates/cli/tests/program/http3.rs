//! `--http3`: UDP beside TCP at the same port, `Alt-Svc`, and requests of a client.

use std::error::Error;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;

use tidegate::engine::{SessionEndpoint, SessionLimits, SessionStreams};
use tidegate::http1::client::Incoming;
use tidegate::http1::{Request, Version};
use tidegate::quic::{self, Direction};
use tidegate::sys::DatagramOptions;
use tidegate::tls::{ClientConfig, Provider};
use tidegate::{Backend, EventLoop, http3};

use crate::support::program::{Program, skip, tidegate};

/// Status, version and body of the response to a GET over HTTP/3.
fn get(server: SocketAddr, path: &'static str) -> Result<(u16, Version, Vec<u8>), Box<dyn Error>> {
    let tls = ClientConfig::dangerous_builder_without_verification(&Provider::aws_lc_rs()).alpn(["h3"]).build()?;
    let config = quic::ClientConfig::new(&tls, quic::TransportLimits::default())?;
    EventLoop::on(Backend::Epoll)?.block_on(async move {
        let of_http3 = Arc::new(http3::Config::default());
        let endpoint = http3::Endpoint::client(of_http3.clone(), config.endpoint());
        let (options, limits) = (DatagramOptions::default(), SessionLimits::default());
        let services = |_| SessionStreams::default();
        let socket = SessionEndpoint::bind("127.0.0.1:0".parse()?, &options, limits, endpoint, services)?;
        let connection = quic::Connector::new(socket, &config).connect(server, "localhost").await?;
        let codec = http3::client_stream(&of_http3, Arc::default(), false);
        let mut channel = connection.open_when_allowed(Direction::Bidirectional, codec).await?;
        channel.send(Request::get(path)?.host("localhost")?.into())?;
        let (mut status, mut version, mut body) = (0, Version::Http11, Vec::new());
        while let Some(message) = channel.recv().await? {
            match message {
                Incoming::Head(head) => (status, version) = (head.status().code(), head.version()),
                Incoming::Data(data) => body.extend_from_slice(&data),
                Incoming::End => break,
                _ => {}
            }
        }
        Ok((status, version, body))
    })?
}

/// The value of `Alt-Svc` that curl sees, if it is installed.
fn alt_svc(server: SocketAddr, version: &str) -> Option<String> {
    let arguments = ["-sk", "-o", "/dev/null", "-w", "%{http_version} %header{alt-svc}", version];
    let output = Command::new("curl").args(arguments).arg(format!("https://{server}/plaintext")).output();
    match output {
        Ok(output) => Some(String::from_utf8_lossy(&output.stdout).into_owned()),
        Err(error) => {
            skip("curl", &error);
            None
        }
    }
}

#[test]
fn one_port_serves_three_versions() {
    for backend in ["epoll", "auto"] {
        let flags = ["--tls-self-signed", "--http3", "--loops", "2", "--backend", backend];
        let program = Program::serve(&flags);
        let server = program.ip();
        for (path, expected) in [("/plaintext", &b"Hello, World!"[..]), ("/bytes/3", b"abc")] {
            let (status, version, body) = get(server, path).expect("a response");
            assert_eq!((status, version, &body[..]), (200, Version::Http3, expected));
        }
        assert_eq!(get(server, "/nothing").expect("a response").0, 404);
        let expected = format!("h3=\":{}\"; ma=86400", server.port());
        for (flag, version) in [("--http1.1", "1.1"), ("--http2", "2")] {
            if let Some(seen) = alt_svc(server, flag) {
                assert_eq!(seen, format!("{version} {expected}"));
            }
        }
    }
}

#[test]
fn without_the_flag_there_is_no_udp_and_no_alt_svc() {
    let program = Program::serve(&["--tls-self-signed", "--loops", "1"]);
    // The port is free.
    std::net::UdpSocket::bind(program.ip()).expect("no socket has it");
    if let Some(seen) = alt_svc(program.ip(), "--http2") {
        assert_eq!(seen, "2 ");
    }
}

#[test]
fn denied_peers_are_refused_over_http3_as_over_tcp() {
    let program = Program::serve(&["--tls-self-signed", "--http3", "--loops", "1", "--deny", "127.0.0.0/8"]);
    assert!(get(program.ip(), "/plaintext").is_err());
}

#[test]
fn http3_needs_a_certificate() {
    let output = tidegate(&["serve", "--http3", "--listen", "127.0.0.1:0"]).output();
    let output = output.expect("it starts");
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("--http3 needs"), "{output:?}");
}
