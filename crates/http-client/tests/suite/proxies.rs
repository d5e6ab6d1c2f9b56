//! Proxies: HTTP and SOCKS proxies, and proxies that refuse or answer with garbage; TLS through them; Unix sockets.

use std::io::{Read, Write};
use std::net::TcpStream;

use tidegate::http::client::{ClientError, Proxies, Proxy, ProxyError};
use tidegate::http::{Client, Request, Router, Server};
use tidegate::tls::{Certificates, ClientConfig, Provider, ServerConfig};

use crate::support::{Any, Scripted, Served, read_head, run};

fn through(proxy: &str) -> Client {
    Client::builder().proxies(Proxies::all(Proxy::to(proxy).expect("a proxy"))).build()
}

#[test]
fn a_request_of_http_goes_to_the_proxy_itself() {
    let proxy = Scripted::start(|_, stream| {
        let head = read_head(stream).unwrap_or_default();
        assert!(head.starts_with("GET http://sea.example/a?b HTTP/1.1\r\nHost: sea.example\r\n"), "{head}");
        assert!(head.contains("Proxy-Authorization: Basic dXNlcjp3b3Jk\r\n"), "{head}");
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nebb");
    });
    let uri = format!("http://user:word@{}", proxy.address());
    run(async move {
        assert_eq!(through(&uri).get("http://sea.example/a?b").send().await?.text().await?, "ebb");
        Ok(())
    });
}

#[test]
fn a_proxy_of_socks_connects_to_a_name() {
    let server = Served::start(|| Router::new().get("/", |request: Request| request.host().to_owned()));
    let target: std::net::SocketAddr = server.uri("").trim_start_matches("http://").parse().expect("an address");
    let proxy = Scripted::start(move |_, stream| {
        let mut bytes = [0; 64];
        let mut read = |stream: &mut TcpStream, count: usize| {
            stream.read_exact(&mut bytes[..count]).expect("the client sends it");
            bytes[..count].to_vec()
        };
        let greeting = read(stream, 2);
        drop(read(stream, usize::from(greeting[1])));
        stream.write_all(&[5, 0]).expect("it is sent");
        assert_eq!(read(stream, 5), [5, 1, 0, 3, 11]);
        assert_eq!(read(stream, 13), b"sea.example\0\x50");
        stream.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).expect("it is sent");
        let mut upstream = TcpStream::connect(target).expect("the server listens");
        let head = read_head(stream).expect("a request");
        upstream.write_all(head.as_bytes()).expect("it is sent");
        let answer = read_head(&mut upstream).expect("a response");
        let mut body = [0; 11];
        upstream.read_exact(&mut body).expect("a body");
        stream.write_all(&[answer.as_bytes(), &body].concat()).expect("it is sent");
    });
    let uri = format!("socks5h://{}", proxy.address());
    run(async move {
        assert_eq!(through(&uri).get("http://sea.example/").send().await?.text().await?, "sea.example");
        Ok(())
    });
}

#[test]
fn a_proxy_that_refuses_or_sends_garbage_is_the_error() {
    let provider = Provider::ring();
    for (answer, is_407) in [
        ("HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n", true),
        ("garbage\r\n\r\n", false),
        ("", false),
    ] {
        let proxy = Scripted::start(move |_, stream| {
            if let Some(head) = read_head(stream) {
                assert!(head.starts_with("CONNECT sea.example:443 HTTP/1.1\r\n"), "{head}");
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        let uri = format!("http://{}", proxy.address());
        let tls = ClientConfig::dangerous_builder_without_verification(&provider).build().expect("a configuration");
        run(async move {
            let proxies = Proxies::all(Proxy::to(&uri)?);
            let client = Client::builder().proxies(proxies).tls(tls).build();
            let error = client.get("https://sea.example/").send().await.expect_err("there is no tunnel");
            match &error {
                ClientError::Proxy(ProxyError::Refused(status)) => assert!(is_407 && status.code() == 407),
                ClientError::Proxy(_) => assert!(!is_407, "{error}"),
                _ => panic!("{error}"),
            }
            assert_eq!(client.connections(), 0);
            Ok(())
        });
    }
    for answer in [&[5, 255][..], &[4, 0], &[5, 0, 5, 5, 0, 1, 0, 0, 0, 0, 0, 0], b"HTTP/1.1 400\r\n\r\n"] {
        let proxy = Scripted::start(move |_, stream| {
            let mut greeting = [0; 3];
            let _ = stream.read_exact(&mut greeting);
            let _ = stream.write_all(answer);
            let _ = stream.read_to_end(&mut Vec::new());
        });
        let uri = format!("socks5h://{}", proxy.address());
        run(async move {
            let error = through(&uri).get("http://sea.example/").send().await.expect_err("the proxy refuses");
            assert!(matches!(error, ClientError::Proxy(_)), "{error}");
            Ok(())
        });
    }
}

/// Bytes both ways between two sockets, until one of them ends.
pub(crate) fn relay(one: &TcpStream, other: &TcpStream) {
    std::thread::scope(|scope| {
        for (mut from, mut to) in [(one, other), (other, one)] {
            scope.spawn(move || {
                let _ = std::io::copy(&mut from, &mut to);
                let _ = to.shutdown(std::net::Shutdown::Write);
            });
        }
    });
}

#[test]
fn https_goes_through_a_tunnel_and_its_certificate_is_verified() {
    let provider = Provider::ring();
    let issued = rcgen::generate_simple_self_signed(["sea.example".to_owned()]).expect("a certificate");
    let pem = issued.cert.pem();
    let certificates = Certificates::from_pem(&provider, pem.as_bytes(), issued.signing_key.serialize_pem().as_bytes());
    let tls = ServerConfig::builder(&provider, certificates.expect("a certificate")).build().expect("a configuration");
    let server = Server::bind("127.0.0.1:0").expect("a port").loops(1).tls(tls);
    let server = server.start(|| Router::new().get("/", |request: Request| request.host().to_owned()));
    let server = server.expect("it starts");
    let target = server.address().ip().expect("an address");
    let proxy = Scripted::start(move |_, stream| {
        let head = read_head(stream).unwrap_or_default();
        assert!(head.starts_with("CONNECT "), "{head}");
        stream.write_all(b"HTTP/1.1 200 Connected\r\n\r\n").expect("it is sent");
        relay(stream, &TcpStream::connect(target).expect("the server listens"));
    });
    let uri = format!("http://{}", proxy.address());
    let folder = std::env::temp_dir().join(format!("tidegate-client-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let roots = folder.join("roots.pem");
    std::fs::write(&roots, &pem).expect("a file");
    let tls = ClientConfig::builder_with_root_file(&provider, &roots).expect("roots").build().expect("a configuration");
    std::fs::remove_dir_all(&folder).expect("it is removed");
    run(async move {
        let proxies = Proxies::all(Proxy::to(&uri)?);
        let client = Client::builder().proxies(proxies).tls(tls.clone()).build();
        for _ in 0..2 {
            assert_eq!(client.get("https://sea.example/").send().await?.text().await?, "sea.example");
        }
        assert_eq!(client.connections(), 1, "the tunnel is used again");
        client.close_idle();
        let error = client.get("https://other.example/").send().await.expect_err("the name is another");
        assert!(matches!(error, ClientError::Closed(_)), "{error}");
        let direct = Client::builder().tls(tls).build();
        assert_eq!(direct.get("https://sea.example/").at(target).send().await?.text().await?, "sea.example");
        let error = Client::new().get("https://sea.example/").send().await.expect_err("there is no TLS");
        assert!(matches!(error, ClientError::NoTls | ClientError::Resolve(..)), "{error}");
        Ok::<_, Any>(())
    });
    server.drain(std::time::Duration::ZERO);
}

#[test]
fn a_unix_socket_takes_the_place_of_a_host() {
    let name = format!("unix:@tidegate-client-{}", std::process::id());
    let server = Server::bind(&name).expect("a name").loops(1);
    let server = server.start(|| Router::new().get("/", |request: Request| request.host().to_owned()));
    let server = server.expect("it starts");
    run(async move {
        let address: tidegate::Address = name.parse()?;
        let client = Client::new();
        assert_eq!(client.get("http://sea.example/").at(address).send().await?.text().await?, "sea.example");
        Ok(())
    });
    server.drain(std::time::Duration::ZERO);
}
