//! `--http3`: UDP beside TCP at the same port, `Alt-Svc`, and requests of a client.

use std::error::Error;
use std::fs;
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

use rustix::process::Signal;

use crate::configuration::Files;
use crate::support::peer::{Peer, assert_same, letters, post, post_chunked};
use crate::support::program::{Directory, Program, skip, tidegate};

/// Status, version and body of the response to a GET over HTTP/3.
pub(crate) fn get(server: SocketAddr, path: &'static str) -> Result<(u16, Version, Vec<u8>), Box<dyn Error>> {
    Ok(get_with_settings(server, path)?.0)
}

/// The same with the settings that the server has sent before.
#[expect(clippy::type_complexity, reason = "one test uses it")]
fn get_with_settings(
    server: SocketAddr,
    path: &'static str,
) -> Result<((u16, Version, Vec<u8>), Option<http3::Settings>), Box<dyn Error>> {
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
        let number = connection.number();
        let settings = connection.with(|endpoint, _| endpoint.peer_settings(number).copied())?;
        Ok(((status, version, body), settings))
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

/// A certificate of this machine's loopback address in a folder, as flags of a server, and the file that vouches for it.
fn certificate(directory: &Directory) -> (Vec<String>, String) {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    let (cert, key) = (directory.path("cert.pem"), directory.path("key.pem"));
    fs::write(&cert, made.cert.pem()).expect("a file");
    fs::write(&key, made.signing_key.serialize_pem()).expect("a file");
    let flags = ["--http3", "--loops", "2", "--tls-cert", &cert, "--tls-key", &key];
    (flags.map(str::to_owned).into(), cert)
}

/// Sends a request while its response is read: an echo that nothing reads stops its request.
fn upload(peer: &mut Peer, wire: Vec<u8>) -> Vec<u8> {
    let mut sender = peer.sender();
    let sending = std::thread::spawn(move || sender.send(wire));
    let body = peer.reply().body;
    sending.join().expect("it is sent");
    body
}

#[test]
fn a_proxy_reaches_its_upstream_by_http3() {
    for backend in ["epoll", "auto"] {
        let directory = Directory::new();
        let (mut flags, ca) = certificate(&directory);
        flags.extend(["--backend", backend].map(str::to_owned));
        let flags: Vec<_> = flags.iter().map(String::as_str).collect();
        let mut upstream = Program::serve(&flags);
        let (address, url) = (upstream.ip().to_string(), format!("https+h3://{}", upstream.ip()));
        let of_upstream = ["--loops", "2", "--backend", backend, "--upstream", &url, "--upstream-ca", &ca];
        let proxy = Program::proxy(&of_upstream);
        let mut peer = Peer::connect(&proxy);
        assert_eq!(peer.get("/plaintext").text(), "Hello, World!");
        assert_eq!(peer.get("/bytes/3000000").body.len(), 3_000_000);
        assert_eq!(peer.ask("HEAD", "/bytes/3").field("content-length"), Some("3"));
        assert_eq!(peer.get("/nothing").status, 404);
        let body = letters(1_000_000);
        assert_same(&upload(&mut peer, post("/echo", &body)), &body);
        assert_same(&upload(&mut peer, post_chunked("/echo", &body, 7_000)), &body);
        // HTTP/3 on both sides.
        let both = Program::proxy(&[&of_upstream[..], &["--http3", "--tls-self-signed"]].concat());
        let (status, version, received) = get(both.ip(), "/bytes/300000").expect("a response");
        assert_eq!((status, version, received.len()), (200, Version::Http3, 300_000));
        upstream.signal(Signal::TERM);
        assert_eq!(upstream.until_ended().code(), Some(0));
        assert_eq!(peer.get("/plaintext").status, 502);
        let _again = Program::at(&address, &flags);
        assert_eq!(peer.get("/plaintext").text(), "Hello, World!");
    }
}

#[test]
fn a_file_names_upstreams_of_http3() {
    let directory = Directory::new();
    let (flags, ca) = certificate(&directory);
    let upstream = Program::serve(&flags.iter().map(String::as_str).collect::<Vec<_>>());
    let file = directory.path("gateway.toml");
    let text = format!(
        "[[upstream]]\nname = \"app\"\nservers = [\"https+h3://{}\"]\nca = \"{ca}\"\n\
         health-check = {{ path = \"/plaintext\" }}\n[[route]]\nupstream = \"app\"\n",
        upstream.ip()
    );
    fs::write(&file, text).expect("a file");
    let proxy = Program::proxy(&["--loops", "1", "--config", &file]);
    assert_eq!(Peer::connect(&proxy).get("/plaintext").text(), "Hello, World!");
    // A certificate that nothing vouches for.
    let url = format!("https+h3://{}", upstream.ip());
    let other = Program::proxy(&["--loops", "1", "--upstream", &url]);
    assert_eq!(Peer::connect(&other).get("/plaintext").status, 502);
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

#[test]
fn secrets_go_to_the_file_of_the_flag_and_not_to_that_of_the_environment() {
    let directory = Directory::new();
    let [of_flag, of_environment, of_load] = ["flag", "environment", "load"].map(|name| directory.path(name));
    let flags = ["serve", "--listen", "127.0.0.1:0", "--tls-self-signed", "--http3", "--loops", "1"];
    let mut command = tidegate(&[&flags[..], &["--tls-key-log", &of_flag]].concat());
    command.env("SSLKEYLOGFILE", &of_environment);
    let program = Program::start(command).expect("it starts");
    let url = format!("https://{}/plaintext", program.ip());
    for version in ["--http3", "--http2"] {
        let arguments = ["load", "-n", "1", "-c", "1", "--insecure", "--tls-key-log", &of_load, version, &url];
        let output = tidegate(&arguments).env("SSLKEYLOGFILE", &of_environment).output().expect("it runs");
        assert!(output.status.success(), "{output:?}");
    }
    for path in [of_flag, of_load] {
        let text = fs::read_to_string(&path).expect("a file");
        // Each connection has several secrets, over QUIC and over TCP.
        let secrets = text.lines().filter(|line| line.starts_with("CLIENT_TRAFFIC_SECRET_0 ")).count();
        assert_eq!(secrets, 2, "{path}: {text}");
    }
    assert!(!fs::exists(of_environment).expect("a folder"), "the environment chooses no file");
}

#[test]
fn early_data_needs_http3() {
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--tls-self-signed", "--http3-early-data"];
    let output = tidegate(&arguments).output().expect("it starts");
    assert!(String::from_utf8_lossy(&output.stderr).contains("--http3"), "{output:?}");
    assert!(!output.status.success());
    let program = Program::serve(&["--tls-self-signed", "--http3", "--http3-early-data", "--loops", "1"]);
    assert_eq!(get(program.ip(), "/plaintext").expect("a response").0, 200);
}

#[test]
fn qpack_tables_are_off_unless_a_flag_or_a_key_sets_them() {
    let announced = |program: &Program| {
        let (page, settings) = get_with_settings(program.ip(), "/plaintext").expect("a response");
        assert_eq!(page.0, 200);
        let settings = settings.expect("the control stream comes before a response");
        (settings.table_bytes_max, settings.blocked_streams_max)
    };
    let flags = ["--tls-self-signed", "--http3", "--loops", "1"];
    assert_eq!(announced(&Program::serve(&flags)), (0, 0));
    let tables = ["--qpack-max-table-capacity", "4096", "--qpack-blocked-streams", "16"];
    let tables = [&tables[..], &["--qpack-encoder-table-capacity", "512"]].concat();
    assert_eq!(announced(&Program::serve(&[&flags[..], &tables].concat())), (4096, 16));
    let files = Files::new();
    let limits =
        "limits = { qpack-max-table-capacity = 512, qpack-blocked-streams = 4, qpack-encoder-table-capacity = 256 }";
    let listen =
        "[[listen]]\naddress = \"127.0.0.1:0\"\nprotocol = \"https\"\nself-signed = [\"localhost\"]\nhttp3 = true\n";
    let route = "[[route]]\nrespond = { status = 200 }\n";
    files.write("tables.toml", &format!("{listen}{limits}\n{route}"));
    assert_eq!(announced(&files.start("tables.toml", &[])), (512, 4));
    for (flags, needed) in [
        (&["--tls-self-signed", "--qpack-max-table-capacity", "1"][..], "--http3"),
        (&["--tls-self-signed", "--http3", "--qpack-blocked-streams", "1"], "--qpack-max-table-capacity"),
        (&["--tls-self-signed", "--http3", "--qpack-max-table-capacity", "1048577"], "1048577"),
    ] {
        let output = tidegate(&[&["serve", "--listen", "127.0.0.1:0"], flags].concat()).output().expect("it starts");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(needed), "{flags:?}: {error}");
    }
}

#[test]
fn rates_of_connections_are_refused_with_http3() {
    for flag in ["--rate-per-connection", "--rate-per-loop"] {
        for command in [&["serve"][..], &["proxy", "--upstream", "http://127.0.0.1:1"]] {
            let flags = ["--listen", "127.0.0.1:0", "--tls-self-signed", "--http3", flag, "1M"];
            let output = tidegate(&[command, &flags[..]].concat()).output().expect("it starts");
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success() && error.contains("hold over TCP alone"), "{command:?}: {error}");
        }
    }
}

#[cfg(not(feature = "qlog"))]
#[test]
fn a_build_without_qlog_names_the_feature() {
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--tls-self-signed", "--http3", "--qlog", "/"];
    let output = tidegate(&arguments).output().expect("it starts");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("--features qlog"), "{error}");
}
