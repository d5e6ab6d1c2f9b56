//! An upstream of `https` that is played byte by byte: tunnels over TLS, and certificates that are refused.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use tidegate::http::proxy::{Proxy, UpstreamUrl, Upstreams};
use tidegate::http::{AccessLog, LineLog, LogFormat, Router};
use tidegate::tls::{ClientConfig, Provider};

use crate::support::proxy_peers::{Peer, client};
use crate::support::{Running, start};

/// An upstream, and the configuration of a proxy that trusts it.
struct Upstream {
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    trusting: ClientConfig,
}

/// A connection of the proxy, at the upstream.
type TlsPeer = StreamOwned<ServerConnection, TcpStream>;

impl Upstream {
    /// An upstream whose certificate has this name.
    fn new(name: &str) -> Self {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).expect("a certificate");
        let certificate: CertificateDer<'static> = made.cert.der().clone();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
        let tls = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key)
            .expect("a configuration");
        let mut roots = RootCertStore::empty();
        roots.add(certificate).expect("a root");
        let trusting = ClientConfig::builder(&Provider::ring(), roots).expect("roots").build().expect("it is valid");
        Self { listener: TcpListener::bind("127.0.0.1:0").expect("a port"), tls: Arc::new(tls), trusting }
    }

    fn proxy(&self, log: Option<&LineLog>) -> Running {
        let url: UpstreamUrl = format!("https://{}", self.address()).parse().expect("a URL");
        let upstreams = Upstreams::builder().server(url).tls(self.trusting.clone()).build().expect("upstreams");
        let log = log.cloned();
        start(move || {
            let router = Router::new().fallback(Proxy::new(&upstreams));
            match &log {
                Some(log) => router.with(AccessLog::new(LogFormat::Json).to(log)),
                None => router,
            }
        })
    }

    fn address(&self) -> String {
        self.listener.local_addr().expect("an address").to_string()
    }

    fn accept(&self) -> TlsPeer {
        let (stream, _) = self.listener.accept().expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(120))).expect("a socket");
        StreamOwned::new(ServerConnection::new(self.tls.clone()).expect("a connection"), stream)
    }
}

/// Reads up to the end of `marker`.
fn until(peer: &mut TlsPeer, marker: &str) -> String {
    let mut read = Vec::new();
    while !read.ends_with(marker.as_bytes()) {
        let mut byte = [0];
        peer.read_exact(&mut byte).expect("a byte");
        read.push(byte[0]);
    }
    String::from_utf8(read).expect("text")
}

/// Sends each piece in a TLS record of its own, and all of them by one write.
fn send_records(peer: &mut TlsPeer, pieces: &[&[u8]]) {
    for piece in pieces {
        peer.conn.writer().write_all(piece).expect("room");
    }
    let mut wire = Vec::new();
    while peer.conn.wants_write() {
        peer.conn.write_tls(&mut wire).expect("memory");
    }
    peer.sock.write_all(&wire).expect("the proxy reads");
}

const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

/// A tunnel of the client to the upstream, which has sent these records at once.
fn tunnel(records: &[&[u8]]) -> (Running, Peer, TlsPeer) {
    let upstream = Upstream::new("127.0.0.1");
    let proxy = upstream.proxy(None);
    let mut client = client(&proxy);
    client.send("GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    let mut server = upstream.accept();
    let head = until(&mut server, "\r\n\r\n");
    assert!(head.contains("\r\nUpgrade: websocket\r\n"), "{head}");
    send_records(&mut server, records);
    let head = client.head();
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    (proxy, client, server)
}

#[test]
fn bytes_that_come_with_the_switch_over_tls_are_the_first_of_the_tunnel() {
    let switch_and_first = [SWITCH.as_bytes(), b"first "].concat();
    for records in [
        &[&switch_and_first[..], b"second ", b"third."][..],
        &[SWITCH.as_bytes(), b"first second ", b"third."],
        &[&SWITCH.as_bytes()[..30], &[&SWITCH.as_bytes()[30..], b"first "].concat(), b"second third."],
    ] {
        let (_proxy, mut client, mut server) = tunnel(records);
        assert_eq!(client.until("third."), "first second third.");
        client.send("\x00ping");
        assert_eq!(until(&mut server, "\x00ping"), "\x00ping");
        let flow = vec![b'f'; 300_000];
        send_in_pieces(&mut server, &flow);
        client.bytes_until(&"f".repeat(100));
    }
}

/// Sends more bytes than one TLS buffer has room for.
fn send_in_pieces(peer: &mut TlsPeer, bytes: &[u8]) {
    bytes.chunks(10_000).for_each(|piece| send_records(peer, &[piece]));
}

#[test]
fn each_direction_of_a_tunnel_over_tls_ends_on_its_own() {
    let (_proxy, mut client, mut server) = tunnel(&[SWITCH.as_bytes()]);
    client.send("last words");
    client.0.shutdown(Shutdown::Write).expect("a socket");
    let mut received = Vec::new();
    server.read_to_end(&mut received).expect("the end in good order");
    assert_eq!(received, b"last words");
    let flow = vec![b'f'; 200_000];
    send_in_pieces(&mut server, &flow);
    server.conn.send_close_notify();
    server.flush().expect("the proxy reads");
    drop(server);
    assert_eq!(client.rest(), (flow, false));
}

#[test]
fn a_tunnel_over_tls_that_is_cut_off_does_not_end_in_good_order() {
    let (_proxy, mut client, mut server) = tunnel(&[SWITCH.as_bytes()]);
    send_records(&mut server, &[b"half of it"]);
    assert_eq!(client.until("half of it"), "half of it");
    // Without a close_notify.
    server.sock.shutdown(Shutdown::Both).expect("a socket");
    let (rest, is_reset) = client.rest();
    assert!(rest.is_empty() && is_reset);
}

/// An output that a test reads.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn an_upstream_whose_certificate_has_another_name_is_a_bad_gateway_with_the_reason_in_the_log() {
    let upstream = Upstream::new("sea.example");
    let written = Written::default();
    let log = LineLog::new("test", written.clone());
    let proxy = upstream.proxy(Some(&log));
    let asked = std::thread::spawn(move || proxy.get("/").0);
    let mut server = upstream.accept();
    assert!(server.read(&mut [0]).is_err(), "nothing of a request comes");
    drop(server);
    let head = asked.join().expect("a response");
    assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
    assert!(log.flush(Duration::from_secs(86_400)));
    let text = String::from_utf8(written.0.lock().expect("no panic").clone()).expect("text");
    let (before, reason) = text.split_once("\"upstream_error\":\"").expect(&text);
    assert!(before.contains("\"status\":502"), "{text}");
    let reason = reason.strip_prefix(&format!("cannot connect to {}: ", upstream.address())).expect(&text);
    assert!(reason.contains("certificate") && !reason.contains("connection is closed"), "{text}");
}
