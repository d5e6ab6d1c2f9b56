//! `proxy`: requests through the program, its reload, and its restart.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use rustix::process::Signal;

use crate::support::peer::{Peer, assert_same, letters, post, post_chunked, request};
use crate::support::program::{Directory, Program, can_use_uring, run};
use crate::takeover::restart_as;

fn url(program: &Program) -> String {
    format!("http://{}", program.ip())
}

#[test]
fn requests_are_passed_on_by_flags() {
    let (one, two) = (Program::serve(&["--loops", "1"]), Program::serve(&["--loops", "1"]));
    let (first, second) = (url(&one), url(&two));
    let flags = ["--loops", "2", "--upstream", &first, "--upstream", &second, "--access-log", "json"];
    let mut proxy = Program::proxy(&flags);
    let mut peer = Peer::connect(&proxy);
    for _ in 0..4 {
        assert_eq!(peer.get("/plaintext").text(), "Hello, World!");
    }
    assert_eq!(peer.get("/bytes/3000000").body.len(), 3_000_000);
    assert_eq!(peer.get("/nowhere").status, 404);
    let body = letters(1_000_000);
    assert_same(&peer.exchange(post("/echo", &body)).body, &body);
    assert_same(&peer.exchange(post_chunked("/echo", &body, 7_000)).body, &body);
    assert_eq!(peer.get("/../plaintext").status, 400);
    let lines = proxy.until_logged("\"target\":\"/plaintext\"", 4);
    assert!(lines.iter().all(|line| line.contains("\"status\":200")), "{lines:?}");
    proxy.signal(Signal::TERM);
    assert_eq!(proxy.until_ended().code(), Some(0));
}

#[test]
fn an_upstream_of_h2c_gets_requests_by_http2() {
    let upstream = Program::proxy(&["--loops", "1", "--upstream", "http://127.0.0.1:9", "--access-log", "json"]);
    let proxy = Program::proxy(&["--loops", "1", "--upstream", &format!("h2c://{}", upstream.ip())]);
    // The log of the second proxy names the version; nothing is behind it.
    assert_eq!(Peer::connect(&proxy).get("/far").status, 502);
    let lines = upstream.until_logged("\"target\":\"/far\"", 1);
    assert!(lines[0].contains("\"version\":\"HTTP/2.0\""), "{lines:?}");

    let upstream = Program::serve(&["--loops", "1"]);
    let proxy = Program::proxy(&["--loops", "1", "--upstream", &format!("h2c://{}", upstream.ip())]);
    let mut peer = Peer::connect(&proxy);
    assert_eq!(peer.get("/plaintext").text(), "Hello, World!");
    assert_eq!(peer.get("/bytes/3000000").body.len(), 3_000_000);
    let body = letters(300_000);
    assert_same(&peer.exchange(post("/echo", &body)).body, &body);
    assert_same(&peer.exchange(post_chunked("/echo", &body, 7_000)).body, &body);
    let upstream = upstream.ip().to_string();
    let (code, _, errors) = run(&["proxy", "--listen", "127.0.0.1:0", "--upstream", &format!("h3://{upstream}")]);
    assert!(code != Some(0) && errors.iter().any(|line| line.contains("h2c")), "{errors:?}");
}

#[test]
fn an_upstream_that_is_gone_is_left_out() {
    let one = Program::serve(&["--loops", "1"]);
    let gone = url(&Program::serve(&["--loops", "1"]));
    let proxy = Program::proxy(&["--loops", "1", "--upstream", &gone, "--upstream", &url(&one)]);
    for _ in 0..20 {
        let mut peer = Peer::connect(&proxy);
        assert_eq!(peer.get("/plaintext").status, 200);
    }
    drop(one);
    assert_eq!(Peer::connect(&proxy).get("/plaintext").status, 502);
}

#[test]
fn tls_is_on_both_sides() {
    let upstream = Program::serve(&["--loops", "1", "--tls-self-signed"]);
    let directory = Directory::new();
    // The certificate of the upstream is made at its start, so no file vouches for it.
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let ca = directory.path("ca.pem");
    fs::write(&ca, other.cert.pem()).unwrap();
    let secure = format!("https://{}", upstream.ip());
    let proxy = Program::proxy(&["--loops", "1", "--upstream", &secure, "--upstream-ca", &ca]);
    assert_eq!(Peer::connect(&proxy).get("/plaintext").status, 502);

    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let (cert, key) = (directory.path("cert.pem"), directory.path("key.pem"));
    fs::write(&cert, made.cert.pem()).unwrap();
    fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let upstream = Program::serve(&["--loops", "1", "--tls-cert", &cert, "--tls-key", &key]);
    let secure = format!("https://{}", upstream.ip());
    let proxy = Program::proxy(&["--loops", "1", "--upstream", &secure, "--upstream-ca", &cert]);
    let mut peer = Peer::connect(&proxy);
    for _ in 0..3 {
        assert_eq!(peer.get("/bytes/100000").body.len(), 100_000);
    }
    let body = letters(300_000);
    assert_same(&peer.exchange(post("/echo", &body)).body, &body);
}

#[test]
fn the_figures_of_upstreams_are_in_the_metrics_on_the_page_and_in_top() {
    let upstream = Program::serve(&["--loops", "1"]);
    let folder = Directory::new();
    let (socket, server) = (folder.path("admin"), url(&upstream));
    fs::create_dir_all(folder.path("")).unwrap();
    let admin = format!("unix:{socket}");
    let flags = ["--loops", "1", "--tls-self-signed", "--upstream", &server, "--access-log", "json", "--admin", &admin];
    let proxy = Program::proxy(&flags);
    let target = format!("https://{}/plaintext", proxy.ip());
    let (code, _, errors) = run(&["load", "--insecure", "-c", "1", "-n", "10", &target]);
    assert_eq!(code, Some(0), "{errors:?}");
    let lines = proxy.until_logged("\"target\":\"/plaintext\"", 10);
    let line: serde_json::Value = serde_json::from_str(&lines[0]).expect(&lines[0]);
    assert_eq!(
        (line["tls_version"].as_str(), line["upstream_status"].as_u64()),
        (Some("TLSv1.3"), Some(200)),
        "{line}"
    );
    assert!(line["tls_cipher"].as_str().is_some_and(|cipher| cipher.starts_with("TLS_")), "{line}");
    let (code, shown, errors) = run(&["top", "--once", &admin]);
    assert_eq!(code, Some(0), "{errors:?}");
    assert!(shown.iter().any(|line| line.starts_with("up ") && line.contains(&server)), "{shown:?}");
}

#[test]
fn a_configuration_is_read_again_without_dropping_a_connection() {
    let (one, two, files) = (Program::serve(&["--loops", "1"]), Program::serve(&["--loops", "1"]), Directory::new());
    let path = files.path("proxy.toml");
    let write = |server: &str, route: &str| {
        let text =
            format!("[[upstream]]\nname = \"app\"\nservers = [\"{server}\"]\n[[route]]\nupstream = \"app\"\n{route}\n");
        fs::write(&path, text).unwrap();
    };
    write(&url(&one), "response-headers = { set = { X-Version = \"1\" } }");
    let proxy = Program::proxy(&["--loops", "2", "--config", &path]);
    let mut peer = Peer::connect(&proxy);
    assert_eq!(peer.get("/plaintext").field("x-version"), Some("1"));
    write(&url(&two), "response-headers = { set = { X-Version = \"2\" } }");
    proxy.signal(Signal::HUP);
    proxy.until_logged("configuration reloaded", 1);
    drop(one);
    let reply = peer.get("/plaintext");
    assert_eq!((reply.status, reply.field("x-version")), (200, Some("2")), "the same connection, the new upstream");
    write(&url(&two), "rout = 1");
    proxy.signal(Signal::HUP);
    let lines = proxy.until_logged("not reloaded", 1);
    assert!(lines[0].contains("proxy.toml:6:1") && lines[0].contains("rout"), "{lines:?}");
    assert_eq!(peer.get("/plaintext").field("x-version"), Some("2"));

    // A proxy without a valid configuration does not start.
    let (code, _, errors) = run(&["proxy", "--listen", "127.0.0.1:0", "--config", &path]);
    assert_eq!(code, Some(2));
    assert!(errors.iter().any(|line| line.contains("proxy.toml:6:1")), "{errors:?}");
}

#[test]
fn restarts_of_a_proxy_under_load_fail_no_request() {
    let server = Program::serve(&["--loops", "1"]);
    let upstream = url(&server);
    for depth in [1, 16] {
        let start = |flags: &[&str]| Program::proxy(&[flags, &["--upstream", &upstream]].concat());
        restart_as(start, 5, 32, depth, Duration::from_millis(50));
    }
}

/// The upstream has the request, and does not respond.
fn waiting_upstream() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    (listener, url)
}

/// Reads the head of a request.
fn read_head(stream: &mut TcpStream) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
}

#[test]
fn a_client_that_ends_its_side_ends_the_exchange_with_the_upstream() {
    let (listener, url) = waiting_upstream();
    let backends: &[_] = if can_use_uring() { &["epoll", "uring"] } else { &["epoll"] };
    // One whose next request is unread has left as well.
    let wires = [request("GET", "/"), request("GET", "/") + &request("POST", "/")];
    for (backend, wire) in backends.iter().flat_map(|backend| wires.iter().map(move |wire| (backend, wire))) {
        let proxy = Program::proxy(&["--loops", "1", "--backend", backend, "--upstream", &url]);
        let mut peer = Peer::connect(&proxy);
        peer.send(wire);
        let (mut upstream, _) = listener.accept().unwrap();
        read_head(&mut upstream);
        peer.finish();
        // The end of the connection, or its reset.
        assert!(matches!(upstream.read(&mut [0; 100]), Ok(0) | Err(_)));
        peer.expect_end();
    }
}

#[test]
fn half_close_keeps_the_exchange_of_a_client_that_has_ended_its_side() {
    let (listener, url) = waiting_upstream();
    let directory = Directory::new();
    let file = directory.path("proxy.toml");
    let upstream = format!("[[upstream]]\nname = \"app\"\nservers = [\"{url}\"]\n");
    fs::write(&file, format!("{upstream}[[route]]\nupstream = \"app\"\nhalf-close = true\n")).unwrap();
    for flags in [&["--half-close", "--upstream", &url][..], &["--config", &file]] {
        let proxy = Program::proxy(&[&["--loops", "1"], flags].concat());
        let mut peer = Peer::connect(&proxy);
        peer.send(request("GET", "/"));
        peer.finish();
        let (mut upstream, _) = listener.accept().unwrap();
        read_head(&mut upstream);
        upstream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate").unwrap();
        assert_eq!(peer.reply().text(), "late");
        peer.expect_end();
    }
}
