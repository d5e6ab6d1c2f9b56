//! The log and the access log of the program: whole lines, in their own place, and no connection waits for their reader.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};

use rustix::process::Signal;

use crate::support::peer::Peer;
use crate::support::program::{Directory, PATIENCE, Program, run, tidegate, until};

/// A server whose standard error is a socket that the test reads when it wants to. Dropping it kills the process.
struct Unread {
    child: Child,
    address: String,
    log: UnixStream,
}

impl Unread {
    fn serve(arguments: &[&str]) -> Self {
        let (log, stderr) = UnixStream::pair().unwrap();
        log.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut command = tidegate(&["serve", "--listen", "127.0.0.1:0", "--loops", "1"]);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(OwnedFd::from(stderr));
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.split("//").nth(1).and_then(|rest| rest.split(' ').next()).expect(&line).to_owned();
        Self { child, address, log }
    }

    /// Sends so many requests, with a long field that the log has, and returns how many were answered.
    fn get(&self, requests: usize) -> usize {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let agent = "a".repeat(4_000);
        let request = format!("GET /x HTTP/1.1\r\nHost: sea\r\nUser-Agent: {agent}\r\n\r\n");
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        (0..requests)
            .take_while(|_| {
                stream.write_all(request.as_bytes()).unwrap();
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") {
                    assert!(reader.read_line(&mut head).unwrap() > 0, "{head}");
                }
                head.starts_with("HTTP/1.1 404 ") && {
                    let length = head.to_lowercase().split("content-length: ").nth(1).map(str::to_owned).unwrap();
                    let length: u64 = length.split("\r\n").next().unwrap().parse().unwrap();
                    reader.by_ref().take(length).read_to_end(&mut Vec::new()).unwrap() as u64 == length
                }
            })
            .count()
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn an_unread_log_delays_no_connection_and_its_lost_lines_are_counted() {
    let root = Directory::new();
    fs::create_dir_all(root.path("")).unwrap();
    let server = Unread::serve(&["--root", &root.path(""), "--access-log", "combined"]);
    // 4 MB of lines: more than the kernel and the queue of the program have room for.
    assert_eq!(server.get(1_000), 1_000);
    let mut written = BufReader::new(&server.log).lines().map(Result::unwrap);
    let report = written.by_ref().find(|line| line.contains("lines dropped")).expect("a report");
    let dropped = report.split("dropped=").nth(1).and_then(|rest| rest.split(' ').next()).unwrap_or_default();
    assert!(dropped.parse::<u32>().is_ok_and(|dropped| (100..1_000).contains(&dropped)), "{report}");
    // It goes on.
    assert_eq!(server.get(1), 1);
    assert!(written.next().unwrap().starts_with("127.0.0.1 - - ["));
}

#[test]
fn the_access_log_has_a_file_of_its_own_which_sighup_opens_again() {
    let folder = Directory::new();
    fs::create_dir_all(folder.path("root")).unwrap();
    let (root, log, old) = (folder.path("root"), folder.path("access.log"), folder.path("access.log.1"));
    let mut program = Program::serve(&["--root", &root, "--access-log", "json", "--access-log-to", &log]);
    assert_eq!(Peer::connect(&program).get("/first").status, 404);
    let lines =
        |path: &str| fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect::<Vec<_>>();
    until("the first line is written", || lines(&log).len() == 1);
    assert_eq!(fs::metadata(&log).unwrap().permissions().mode() & 0o007, 0, "not for all users");
    fs::rename(&log, &old).unwrap();
    program.signal(Signal::HUP);
    program.until_logged("access log opened again", 1);
    let mut peer = Peer::connect(&program);
    peer.send("GET /second HTTP/1.1\r\nHost sea\r\n\r\n");
    assert!(peer.head().starts_with("HTTP/1.1 400 "));
    program.signal(Signal::TERM);
    assert_eq!(program.until_ended().code(), Some(0));
    // The end of the program writes the waiting lines.
    let lines = [lines(&old), lines(&log)].concat();
    let lines: Vec<serde_json::Value> = lines.iter().map(|line| serde_json::from_str(line).expect(line)).collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert_eq!((lines[0]["target"].as_str(), lines[0]["status"].as_u64()), (Some("/first"), Some(404)));
    assert_eq!((lines[1]["line"].as_str(), lines[1]["status"].as_u64()), (Some("GET /second HTTP/1.1"), Some(400)));
}

#[test]
fn sigusr1_opens_the_file_of_the_access_log_again_and_lines_have_a_format_of_ones_own() {
    let folder = Directory::new();
    fs::create_dir_all(folder.path("root")).unwrap();
    let (root, log, old) = (folder.path("root"), folder.path("access.log"), folder.path("access.log.1"));
    let format = "{client.ip} \"{request.line}\" {response.status} {tls.version} {end}";
    let mut program = Program::serve(&["--root", &root, "--access-log", format, "--access-log-file", &log]);
    assert_eq!(Peer::connect(&program).get("/first").status, 404);
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    until("the first line is written", || read(&log).ends_with('\n'));
    fs::rename(&log, &old).unwrap();
    program.signal(Signal::USR1);
    program.until_logged("access log opened again", 1);
    assert_eq!(Peer::connect(&program).get("/second").status, 404);
    program.signal(Signal::TERM);
    assert_eq!(program.until_ended().code(), Some(0));
    assert_eq!(read(&old), "127.0.0.1 \"GET /first HTTP/1.1\" 404 - done\n");
    assert_eq!(read(&log), "127.0.0.1 \"GET /second HTTP/1.1\" 404 - done\n");
}

#[test]
fn standard_output_has_lines_of_the_access_log_alone_if_it_has_them() {
    let root = Directory::new();
    fs::create_dir_all(root.path("")).unwrap();
    let mut command = tidegate(&["serve", "--listen", "127.0.0.1:0", "--root", &root.path("")]);
    command.args(["--admin", "127.0.0.1:0", "--access-log", "json", "--access-log-to", "stdout"]);
    let mut program = Program::spawn(&mut command);
    let line = program.until_logged("tidegate: listening on", 1).remove(0);
    let address = line.split("//").nth(1).and_then(|rest| rest.split(' ').next()).expect(&line);
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /a HTTP/1.1\r\nHost: sea\r\nConnection: close\r\n\r\n").unwrap();
    stream.read_to_end(&mut Vec::new()).unwrap();
    program.signal(Signal::USR1);
    program.until_logged("tidegate: counts:", 1);
    program.signal(Signal::TERM);
    assert_eq!(program.until_ended().code(), Some(0));
    let lines = program.output();
    assert_eq!(lines.len(), 1, "{lines:?}");
    let line: serde_json::Value = serde_json::from_str(&lines[0]).expect(&lines[0]);
    assert_eq!(line["target"].as_str(), Some("/a"));
}

#[test]
fn a_format_with_an_unknown_field_is_refused_with_the_nearest_name() {
    for (format, expected) in [("{client.pi}", "did you mean {client.ip}?"), ("jsn", "common, combined, json")] {
        let (code, _, errors) = run(&["serve", "--listen", "127.0.0.1:0", "--root", ".", "--access-log", format]);
        assert_eq!(code, Some(2), "{errors:?}");
        assert!(errors.iter().any(|line| line.contains(expected)), "{errors:?}");
    }
}

#[test]
fn lines_of_the_access_log_on_a_stream_with_others_are_of_their_format() {
    let root = Directory::new();
    fs::create_dir_all(root.path("")).unwrap();
    let program = Program::serve(&["--root", &root.path(""), "--access-log", "json"]);
    let mut peer = Peer::connect(&program);
    peer.exchange("GET /a HTTP/1.1\r\nHost: sea\r\nUser-Agent: \u{9b}31m\u{2028}\r\n\r\n");
    let lines = program.until_logged("\"target\":\"/a\"", 1);
    let line: serde_json::Value = serde_json::from_str(&lines[0]).expect(&lines[0]);
    assert_eq!(line["user_agent"].as_str(), Some("\u{9b}31m\u{2028}"));
    assert!(line["microseconds"].as_u64().unwrap() > 0, "{line}");
    assert!(!lines[0].contains(['\u{9b}', '\u{2028}']));
}

#[test]
fn a_check_that_fails_is_logged_with_its_reason_and_a_request_without_an_upstream_with_their_names() {
    let folder = Directory::new();
    fs::create_dir_all(folder.path("")).unwrap();
    let (file, socket, gone) = (folder.path("gateway.toml"), folder.path("socket"), folder.path("gone"));
    let text = format!(
        "[[listen]]\naddress = \"unix:{socket}\"\n[[upstream]]\nname = \"own\"\nservers = [\"unix:{gone}\"]\n\
         health-check = {{ path = \"/health\", interval = 1, failures = 1 }}\n\
         [[route]]\nupstream = \"own\"\n"
    );
    fs::write(&file, text).unwrap();
    let mut program = Program::spawn(&mut tidegate(&["run", "--config", &file]));
    let line = program.until_logged("upstream checked", 1).remove(0);
    let expected =
        format!("upstream=unix:{gone} state=\"down\" path=\"/health\" reason=\"cannot connect to unix:{gone}");
    assert!(line.contains(&expected) && line.contains("No such file"), "{line}");
    until("the program listens", || UnixStream::connect(&socket).is_ok());
    let mut stream = UnixStream::connect(&socket).unwrap();
    stream.write_all(b"GET /a HTTP/1.1\r\nHost: sea\r\nConnection: close\r\n\r\n").unwrap();
    stream.read_to_end(&mut Vec::new()).unwrap();
    let line = program.until_logged("request failed", 1).remove(0);
    assert!(line.contains(&format!("upstreams=\"unix:{gone}\"")), "{line}");
    program.signal(Signal::TERM);
    program.until_ended();
}

#[test]
fn quiet_logs_no_fault_of_a_client() {
    let mut program = Program::serve(&["--quiet", "--loops", "1"]);
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
                   Sec-WebSocket-Version: 13\r\n";
    for (request, status) in [
        (format!("GET /ws HTTP/1.0\r\nHost: sea\r\n{upgrade}\r\n"), "426"),
        (format!("GET /ws HTTP/1.1\r\nHost: sea\r\nContent-Length: 2\r\n{upgrade}\r\nab"), "400"),
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), "400"),
    ] {
        let mut peer = Peer::connect(&program);
        peer.send(&request);
        let head = peer.head();
        assert_eq!(head.split(' ').nth(1), Some(status), "{head}");
        peer.reset();
    }
    program.signal(Signal::TERM);
    program.until_ended();
    assert!(program.log().is_empty(), "{:?}", program.log());
}
