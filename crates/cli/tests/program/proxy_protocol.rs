//! `--proxy-protocol`: trusted and untrusted senders of headers, and the address that the application sees.

use std::process::Command;

use crate::support::peer::{Peer, request};
use crate::support::program::{Directory, Program, run, skip, until};

const LINE: &str = "PROXY TCP4 192.0.2.1 198.51.100.1 50000 443\r\n";

/// TCP over IPv4, with the name of a host.
const BINARY: &[u8] =
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x1A\xC0\0\x02\x01\xC6\x33\x64\x01\xC3\x50\x01\xBB\x02\0\x0Bsea.example";

const REPORTED: &str = r#"{"client":"192.0.2.1:50000","proxied":true,"server":"198.51.100.1:443"}"#;

/// Sends a header and a request, whole and byte by byte, and returns the response of `/address`.
fn address_behind(program: &Program, header: &[u8]) -> String {
    let wire = [header, request("GET", "/address").as_bytes()].concat();
    let mut replies = [wire.len(), 1].map(|piece| {
        let mut peer = Peer::connect(program);
        peer.socket.set_tcp_nodelay(true).unwrap();
        wire.chunks(piece).for_each(|piece| peer.send(piece));
        let reply = peer.reply();
        assert_eq!(peer.get("/plaintext").text(), "Hello, World!", "the connection goes on");
        reply.text().replace(&peer.socket.local_addr().unwrap().as_socket().unwrap().to_string(), "CLIENT")
    });
    assert_eq!(replies[0], replies[1]);
    std::mem::take(&mut replies[0]).replace(&program.ip().to_string(), "SERVER")
}

/// Asserts that a connection that begins so is closed without a response, and that the log has the reason.
fn is_refused(program: &Program, begins: &[u8], reason: &str) {
    let lines = program.log().len();
    let mut peer = Peer::connect(program);
    let _ = peer.try_send([begins, request("GET", "/address").as_bytes()].concat());
    peer.expect_end();
    // The server lingers until the peer has closed as well, and logs the reason then.
    drop(peer);
    until("the reason in the log", || program.log().len() > lines);
    let log = program.log().split_off(lines);
    assert!(log.iter().any(|line| line.contains("connection closed") && line.contains(reason)), "{log:?}");
}

const DIRECT: &str = r#"{"client":"CLIENT","proxied":false,"server":"SERVER"}"#;

#[test]
fn a_required_header_reports_the_client_and_a_missing_one_is_refused() {
    let program = Program::serve(&["--proxy-protocol", "required"]);
    assert_eq!(address_behind(&program, LINE.as_bytes()), REPORTED);
    assert_eq!(address_behind(&program, BINARY), REPORTED);
    assert_eq!(address_behind(&program, b"PROXY UNKNOWN\r\n"), DIRECT);
    assert_eq!(address_behind(&program, b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"), DIRECT);
    is_refused(&program, b"", "no PROXY header");
    is_refused(&program, b"PROXY TCP4 192.0.2.1\r\n", "malformed");
    is_refused(&program, format!("PROXY UNKNOWN {}\r\n", "x".repeat(92)).as_bytes(), "longer than 107 bytes");
    is_refused(&program, &[&BINARY[..30], b"\xFF\xFF", &BINARY[32..]].concat(), "TLV");
    assert_eq!(address_behind(&program, BINARY), REPORTED, "others are served");
}

#[test]
fn an_optional_header_reports_the_client_and_may_be_missing() {
    let program = Program::serve(&["--proxy-protocol", "optional"]);
    assert_eq!(address_behind(&program, LINE.as_bytes()), REPORTED);
    assert_eq!(address_behind(&program, BINARY), REPORTED);
    assert_eq!(address_behind(&program, b""), DIRECT);
}

#[test]
fn a_header_from_an_untrusted_address_is_refused() {
    let trusted = ["--proxy-trusted", "192.0.2.0/24", "--proxy-trusted", "2001:db8::/32,unix"];
    let program = Program::serve(&[&["--proxy-protocol", "optional"], &trusted[..]].concat());
    is_refused(&program, LINE.as_bytes(), "no network whose PROXY header is trusted");
    is_refused(&program, BINARY, "no network whose PROXY header is trusted");
    assert_eq!(address_behind(&program, b""), DIRECT);
    let program = Program::serve(&[&["--proxy-protocol", "required"], &trusted[..]].concat());
    is_refused(&program, LINE.as_bytes(), "no network whose PROXY header is trusted");
    is_refused(&program, b"", "no network whose PROXY header is trusted");
}

#[test]
fn without_the_flag_a_header_is_no_http() {
    let program = Program::serve(&[]);
    let mut peer = Peer::connect(&program);
    assert_eq!(peer.exchange([LINE, &request("GET", "/address")].concat()).status, 400);
    assert_eq!(address_behind(&program, b""), DIRECT);
}

#[test]
fn a_proxy_on_a_unix_socket_is_trusted() {
    let directory = Directory::new();
    let path = directory.path("socket");
    let program = Program::at(&format!("unix:{path}"), &["--proxy-protocol", "required"]);
    let mut peer = Peer::connect(&program);
    peer.send(LINE);
    assert_eq!(peer.get("/address").text(), REPORTED);
}

#[test]
fn a_network_that_is_none_is_a_usage_error() {
    for flags in [["--proxy-trusted", "10.0.0.1/8"], ["--proxy-protocol", "sometimes"]] {
        let (code, _, errors) = run(&[&["serve"], &flags[..]].concat());
        assert_eq!((code, errors.len()), (Some(2), 1), "{errors:?}");
        assert!(errors[0].contains(flags[1]), "{errors:?}");
    }
}

#[test]
fn curl_announces_itself() {
    let program = Program::serve(&["--proxy-protocol", "required"]);
    let url = format!("http://{}/address", program.ip());
    let arguments =
        ["--silent", "--show-error", "--max-time", "60", "--noproxy", "*", "--haproxy-protocol", &url, &url];
    match Command::new("curl").args(arguments).output() {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            assert_eq!(
                text.matches("\"proxied\":true").count(),
                2,
                "{text} {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Err(error) => skip("curl", &error),
    }
}
