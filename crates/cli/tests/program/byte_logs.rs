//! `--pcap` and `--log-bytes`.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use rustix::process::Signal;

use crate::support::peer::Peer;
use crate::support::program::{Directory, Program, refused, run, skip, tidegate};

#[test]
fn a_capture_file_has_the_bytes_of_connections() {
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
    // The address and the port of the server, as the TCP source and destination over IPv4.
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

#[test]
fn with_tls_a_capture_file_and_hex_dumps_have_the_decrypted_bytes() {
    for more in [&[][..], &["--proxy-protocol", "optional"]] {
        let directory = Directory::new();
        let file = directory.path("site.pcap");
        let arguments = [&["--loops", "1", "--tls-self-signed", "--log-bytes", "--pcap", &file], more].concat();
        let mut program = Program::serve(&arguments);
        let url = format!("https://{}/plaintext", program.ip());
        let (code, ..) = run(&["load", "--insecure", &url, "-n", "5", "-c", "1"]);
        assert_eq!(code, Some(0));
        program.until_logged("|HTTP/1.1 200 OK.|", 1);
        program.signal(Signal::TERM);
        assert!(program.until_ended().success());
        let captured = std::fs::read(&file).unwrap();
        let count = |bytes: &[u8]| captured.windows(bytes.len()).filter(|window| *window == bytes).count();
        let (requests, responses) = (count(b"GET /plaintext HTTP/1.1"), count(b"Hello, World!"));
        assert!(requests > 0 && responses > 0, "{requests} requests and {responses} responses");
        assert_eq!(captured[24 + 16 + 14 + 20 + 2..][..2], program.ip().port().to_be_bytes());
        // A ClientHello would be a record of the handshake in version 1.0 of the record layer.
        assert!(!captured[..400].windows(3).any(|window| window == [22, 3, 1]), "it has encrypted bytes");
        // Wireshark decodes the streams as HTTP only if a flag says so.
        let decode = format!("tcp.port=={},http", program.ip().port());
        let arguments = ["-r", &file, "-d", &decode, "-Y", "http.request", "-T", "fields", "-e", "http.request.uri"];
        match Command::new("tshark").args(arguments).output() {
            Ok(output) => {
                let paths = String::from_utf8(output.stdout).unwrap();
                assert!(paths.lines().next() == Some("/plaintext"), "{paths}");
            }
            Err(error) => skip("tshark", &error),
        }
    }
}
