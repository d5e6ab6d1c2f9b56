//! `--pcap` and `--log-bytes`.

use std::os::unix::fs::PermissionsExt;

use rustix::process::Signal;

use crate::support::peer::Peer;
use crate::support::program::{Directory, Program, refused, tidegate};

#[test]
fn a_capture_file_has_what_connections_sent_and_received() {
    let directory = Directory::new();
    let file = directory.path("site.pcap");
    let mut program = Program::serve(&["--loops", "1", "--pcap", &file]);
    let port = program.ip().port();
    for _ in 0..2 {
        assert_eq!(Peer::connect(&program).get("/plaintext").text(), "Hello, World!");
    }
    program.signal(Signal::TERM);
    assert!(program.until_ended().success());
    let captured = std::fs::read(&file).unwrap();
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let count = |bytes: &[u8]| captured.windows(bytes.len()).filter(|window| *window == bytes).count();
    assert_eq!((count(b"GET /plaintext"), count(b"Hello, World!")), (2, 2));
    // The address and the port of the server, as the source and the destination of TCP over IPv4.
    assert_eq!(captured[24 + 16 + 14 + 16..][..4], [127, 0, 0, 1]);
    assert_eq!(captured[24 + 16 + 14 + 20 + 2..][..2], port.to_be_bytes());

    // It is not overwritten.
    let (status, lines) = refused(tidegate(&["serve", "--listen", "127.0.0.1:0", "--pcap", &file]));
    assert_eq!(status, Some(2));
    assert!(lines.len() == 1 && lines[0].contains(&file), "{lines:?}");
}

#[test]
fn bytes_are_logged_as_hex_dumps() {
    let program = Program::serve(&["--loops", "1", "--log-bytes"]);
    assert_eq!(Peer::connect(&program).get("/plaintext").text(), "Hello, World!");
    program.until_logged("00000000  48 54 54 50 2f 31 2e 31  20 32 30 30 20 4f 4b 0d  |HTTP/1.1 200 OK.|", 1);
    let request = "00000000  47 45 54 20 2f 70 6c 61  69 6e 74 65 78 74 20 48  |GET /plaintext H|";
    let lines = program.log();
    assert!(lines.iter().any(|line| line.contains(request) && line.contains("direction=\"in\"")), "{lines:?}");
}
