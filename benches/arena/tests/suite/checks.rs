//! The requirements of the workloads on a server, beyond speed.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme};
use serde_json::Value;
use tidegate::ServerHandle;

struct Arena(ServerHandle);

impl Drop for Arena {
    fn drop(&mut self) {
        self.0.drain(Duration::ZERO);
    }
}

/// The files, which are written once for all tests.
pub(crate) static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("arena-files");
    arena::files::write(&folder).unwrap();
    folder
});

/// A response: its status, head and body.
struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    fn of(wire: &[u8]) -> Self {
        let end = wire.windows(4).position(|window| window == b"\r\n\r\n").expect("a head");
        let head = String::from_utf8(wire[..end].to_vec()).unwrap();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        Self { status, head, body: wire[end + 4..].to_vec() }
    }
}

impl Arena {
    fn start() -> Self {
        let options = arena::Options {
            loops: Some(1),
            tls_address: Some("127.0.0.1:0"),
            http3: true,
            ..arena::Options::default()
        };
        Self(arena::start("127.0.0.1:0", &FOLDER, options).unwrap())
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.0.address().ip().unwrap()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// Sends pieces of one request, each by itself, and reads until the server closes.
    fn send<'a>(&self, pieces: impl IntoIterator<Item = &'a [u8]>) -> Answer {
        let mut stream = self.connect();
        for piece in pieces {
            stream.write_all(piece).unwrap();
        }
        let mut wire = Vec::new();
        stream.read_to_end(&mut wire).unwrap();
        Answer::of(&wire)
    }

    fn request(&self, method: &str, target: &str, fields: &str, body: &str) -> Answer {
        let head = format!("{method} {target} HTTP/1.1\r\nHost: arena\r\nConnection: close\r\n{fields}\r\n{body}");
        self.send([head.as_bytes()])
    }

    fn get(&self, target: &str) -> Answer {
        self.request("GET", target, "", "")
    }
}

#[test]
fn baseline_adds_the_query_and_the_body() {
    let arena = Arena::start();
    assert_eq!(arena.get("/baseline11?a=13&b=42").text(), "55");
    assert_eq!(arena.get("/baseline11?a=1&b=-8").text(), "-7");
    assert_eq!(arena.get("/baseline11?b=9000000000&c=1&a=2").text(), "9000000003");
    let length = |body: &str| format!("Content-Length: {}\r\n", body.len());
    assert_eq!(arena.request("POST", "/baseline11?a=13&b=42", &length("20"), "20").text(), "75");
    assert_eq!(arena.request("POST", "/baseline11?a=1&b=2", &length("-44"), "-44").text(), "-41");
    let chunks = "1\r\n2\r\n1\r\n0\r\n0\r\n\r\n";
    assert_eq!(arena.request("POST", "/baseline11?a=13&b=42", "Transfer-Encoding: chunked\r\n", chunks).text(), "75");
    for target in ["/baseline11?a=x", "/baseline11?a=9223372036854775807&b=1"] {
        assert_eq!(arena.get(target).status, 400, "{target}");
    }
    assert_eq!(arena.request("POST", "/baseline11", &length("2x"), "2x").status, 400);
}

#[test]
fn baseline2_adds_as_well_and_a_delay_is_as_long_as_it_says() {
    let arena = Arena::start();
    assert_eq!(arena.get("/baseline2?a=1&b=1").text(), "2");
    let begun = std::time::Instant::now();
    assert_eq!(arena.get("/delay/10").text(), "10");
    assert!(begun.elapsed() >= Duration::from_millis(10));
    for target in ["/delay/x", "/delay/-1", "/delay/10001"] {
        assert!((400..=404).contains(&arena.get(target).status), "{target}");
    }
}

#[test]
fn a_body_may_be_torn_at_every_byte() {
    let arena = Arena::start();
    let head = "POST /baseline11?a=13&b=42 HTTP/1.1\r\nHost: arena\r\nConnection: close\r\n";
    let wires = [
        format!("{head}Content-Length: 2\r\n\r\n20"),
        format!("{head}Transfer-Encoding: chunked\r\n\r\n1\r\n2\r\n1\r\n0\r\n0\r\n\r\n"),
    ];
    for wire in &wires {
        let wire = wire.as_bytes();
        for split in 1..wire.len() {
            let (first, second) = wire.split_at(split);
            assert_eq!(arena.send([first, second]).text(), "75", "torn at {split}");
        }
        assert_eq!(arena.send(wire.chunks(1)).text(), "75", "in single bytes");
    }
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let arena = Arena::start();
    let mut stream = arena.connect();
    let wire = "GET /pipeline HTTP/1.1\r\nHost: arena\r\n\r\n".repeat(16);
    stream.write_all(wire.as_bytes()).unwrap();
    stream.write_all(b"GET /baseline11?a=1 HTTP/1.1\r\nHost: arena\r\nConnection: close\r\n\r\n").unwrap();
    let mut answers = String::new();
    stream.read_to_string(&mut answers).unwrap();
    assert_eq!(answers.matches("\r\n\r\nok").count(), 16, "{answers}");
    assert!(answers.ends_with("\r\n\r\n1"), "{answers}");
}

#[test]
fn json_has_the_first_items_with_their_totals() {
    let arena = Arena::start();
    let all: Value = serde_json::to_value(arena::items::items()).unwrap();
    for (count, multiplier) in [(1, 3), (5, 7), (10, 2), (15, 5), (25, 4), (40, 8), (50, 6)] {
        let answer = arena.get(&format!("/json/{count}?m={multiplier}"));
        assert!(answer.head.contains("\r\nContent-Type: application/json\r\n"), "{}", answer.head);
        let page: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(page["count"], count);
        let items = page["items"].as_array().unwrap();
        assert_eq!(items.len(), count);
        for (item, known) in items.iter().zip(all.as_array().unwrap()) {
            let total = known["price"].as_u64().unwrap() * known["quantity"].as_u64().unwrap() * multiplier;
            let mut expected = known.clone();
            expected["total"] = total.into();
            assert_eq!(*item, expected);
        }
    }
    for target in ["/json/0?m=1", "/json/51?m=1", "/json/ten?m=1", "/json/-1", "/json/10?m=x", "/json/10?m=-1"] {
        assert_eq!(arena.get(target).status, 400, "{target}");
    }
    assert_eq!(arena.get("/json/").status, 404);
    assert_eq!(arena.get("/json/10/20").status, 404);
    let plain = arena.request("GET", "/json/50?m=6", "Accept-Encoding: identity\r\n", "");
    assert!(!plain.head.to_ascii_lowercase().contains("content-encoding"), "{}", plain.head);
}

#[test]
fn json_is_compressed_for_clients_that_accept_it_and_for_no_others() {
    let arena = Arena::start();
    for count in [25, 40, 50] {
        let target = format!("/json/{count}?m=4");
        let plain = arena.get(&target).body;
        for (accepted, coding) in [("gzip, br", "br"), ("gzip", "gzip"), ("br;q=0, gzip;q=0.5", "gzip")] {
            let answer = arena.request("GET", &target, &format!("Accept-Encoding: {accepted}\r\n"), "");
            assert!(answer.head.contains(&format!("\r\nContent-Encoding: {coding}\r\n")), "{}", answer.head);
            let mut unpacked = Vec::new();
            match coding {
                "br" => brotli::Decompressor::new(&answer.body[..], 4096).read_to_end(&mut unpacked),
                _ => flate2::read::GzDecoder::new(&answer.body[..]).read_to_end(&mut unpacked),
            }
            .unwrap();
            assert!(unpacked == plain && answer.body.len() < plain.len() / 2, "{accepted}");
        }
    }
}

#[test]
fn json_over_tls_is_the_same() {
    let arena = Arena::start();
    let address = arena.0.listeners().iter().flat_map(|listener| listener.addresses()).nth(1).unwrap().ip().unwrap();
    let mut connection = ClientConnection::new(trusting_all(), "localhost".try_into().unwrap()).unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut tls = rustls::Stream::new(&mut connection, &mut stream);
    tls.write_all(b"GET /json/10?m=2 HTTP/1.1\r\nHost: arena\r\nConnection: close\r\n\r\n").unwrap();
    let mut wire = Vec::new();
    tls.read_to_end(&mut wire).unwrap();
    assert!(Answer::of(&wire).body == arena.get("/json/10?m=2").body);
}

/// A client that trusts any certificate: the server has made its own.
fn trusting_all() -> Arc<ClientConfig> {
    #[derive(Debug)]
    struct Trusting;
    impl ServerCertVerifier for Trusting {
        fn verify_server_cert(
            &self,
            _: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            _: UnixTime,
        ) -> Result<ServerCertVerified, rustls::Error> {
            Ok(ServerCertVerified::assertion())
        }

        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            Ok(HandshakeSignatureValid::assertion())
        }

        fn verify_tls13_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            Ok(HandshakeSignatureValid::assertion())
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes()
        }
    }
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Trusting))
        .with_no_client_auth();
    Arc::new(config)
}

#[test]
fn an_upload_is_counted_as_it_arrives() {
    let arena = Arena::start();
    for length in [0, 1, 500_000, 20_000_000] {
        let head =
            format!("POST /upload HTTP/1.1\r\nHost: arena\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
        let body = vec![b'u'; length];
        assert_eq!(arena.send([head.as_bytes(), &body[..]]).text(), length.to_string());
    }
    let mut chunked =
        b"POST /upload HTTP/1.1\r\nHost: arena\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for length in 1..=1_000 {
        chunked.extend_from_slice(format!("{length:x}\r\n{}\r\n", "c".repeat(length)).as_bytes());
    }
    chunked.extend_from_slice(b"0\r\n\r\n");
    assert_eq!(arena.send([&chunked[..]]).text(), "500500");
}

#[test]
fn an_upload_whose_length_lies_harms_only_its_own_connection() {
    let arena = Arena::start();
    // Fewer bytes than announced, then the end.
    let mut stream = arena.connect();
    stream.write_all(b"POST /upload HTTP/1.1\r\nHost: arena\r\nContent-Length: 1000\r\n\r\nshort").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut wire = Vec::new();
    // The server may reset the connection.
    let _ = stream.read_to_end(&mut wire);
    assert!(!wire.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&wire));
    // More bytes than announced: the rest is the next request, and a bad one.
    let long = "POST /upload HTTP/1.1\r\nHost: arena\r\nContent-Length: 3\r\n\r\nabc\0def\r\n\r\n";
    let answer = arena.send([long.as_bytes()]);
    assert_eq!((answer.status, answer.text().starts_with('3')), (200, true));
    assert!(answer.text().contains("HTTP/1.1 400 "), "{}", answer.text());
    // Beyond the limit.
    let answer = arena.request("POST", "/upload", "Content-Length: 99999999999\r\n", "");
    assert_eq!(answer.status, 413);
    assert_eq!(arena.get("/pipeline").text(), "ok");
}

#[test]
fn files_are_sent_as_they_are() {
    let arena = Arena::start();
    let mut sum = 0;
    for (name, length) in arena::files::FILES {
        let answer = arena.request("GET", &format!("/static/{name}"), "Accept-Encoding: br;q=1, gzip;q=0.8\r\n", "");
        assert_eq!(answer.status, 200, "{name}");
        assert!(answer.body == arena::files::content(name, *length), "{name}");
        let tag = answer.head.lines().find_map(|line| line.strip_prefix("ETag: ")).expect("a tag");
        let again = arena.request("GET", &format!("/static/{name}"), &format!("If-None-Match: {tag}\r\n"), "");
        assert_eq!((again.status, again.body.len()), (304, 0), "{name}");
        sum += length;
    }
    assert_eq!((arena::files::FILES.len(), sum), (20, 842_000));
    for target in ["/static/nothing.css", "/static/../Cargo.toml", "/static/%2e%2e/Cargo.toml"] {
        assert_eq!(arena.get(target).status, 404, "{target}");
    }
}

#[test]
fn unknown_paths_and_methods_are_refused() {
    let arena = Arena::start();
    for target in ["/", "/nothing", "/baseline", "/baseline11/", "/pipelined", "/json"] {
        assert_eq!(arena.get(target).status, 404, "{target}");
    }
    let answer = arena.request("DELETE", "/pipeline", "", "");
    assert_eq!(answer.status, 405);
    assert!(answer.head.contains("\r\nAllow: GET, HEAD, OPTIONS\r\n"), "{}", answer.head);
    assert_eq!(arena.request("GET", "/upload", "", "").status, 405);
    assert_eq!(arena.request("BREW", "/pipeline", "", "").status, 501);
}

#[test]
fn head_has_no_body_and_names_have_any_case() {
    let arena = Arena::start();
    for (target, length) in [("/pipeline", 2), ("/baseline11?a=13&b=42", 2), ("/static/app.css", 48_000)] {
        let answer = arena.request("HEAD", target, "", "");
        assert_eq!((answer.status, answer.body.len()), (200, 0), "{target}");
        assert!(answer.head.contains(&format!("\r\nContent-Length: {length}")), "{target}: {}", answer.head);
    }
    for name in ["content-length", "CONTENT-LENGTH", "cOnTeNt-LeNgTh"] {
        assert_eq!(arena.request("POST", "/baseline11?a=13&b=42", &format!("{name}: 2\r\n"), "20").text(), "75");
    }
    let wire = b"post /pipeline HTTP/1.1\r\nhOST: arena\r\ncONNECTION: CLOSE\r\n\r\n";
    assert_eq!(arena.send([&wire[..]]).status, 501, "a method has a case");
}

#[test]
fn a_connection_serves_ten_requests_and_is_made_anew() {
    let arena = Arena::start();
    for _ in 0..20 {
        let mut stream = arena.connect();
        for number in 0..10 {
            write!(stream, "GET /baseline11?a={number}&b=10 HTTP/1.1\r\nHost: arena\r\n\r\n").unwrap();
            let mut answer = Vec::new();
            while !answer.ends_with((10 + number).to_string().as_bytes()) || !answer.contains(&b'\n') {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                answer.push(byte[0]);
            }
        }
    }
}
