//! `tidegate load --http2`: against our server, in clear and over TLS, against nghttpd, and against servers that reset,
//! refuse, leave or never answer.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::Signal;
use serde_json::Value;

use crate::load::{Server, any_error, any_response, errors, load, load_until, only_errors, requests};
use crate::support::program::{Directory, Program, ending_with_the_test, skip, until};
use crate::tls::Files;

#[test]
fn a_load_over_http2_has_no_errors() {
    let program = Program::serve(&["--loops", "1"]);
    for (target, arguments) in [
        ("plaintext", &["-c", "4", "-m", "32"][..]),
        ("bytes/1", &["-c", "4", "-t", "3", "--streams", "7"]),
        ("bytes/300000", &["-c", "2", "-m", "5"]),
        ("bytes/0", &["-c", "2"]),
        ("stream/70000", &["-c", "2", "-m", "3"]),
        ("plaintext", &["-c", "2", "--method", "HEAD", "-m", "4"]),
        ("echo", &["-c", "2", "--body", "tides", "-m", "3"]),
        ("plaintext", &["-c", "3", "-H", "Connection: keep-alive", "-H", "Host: sea"]),
        ("plaintext", &["-c", "2", "-m", "8", "--rate", "500"]),
        ("plaintext", &["-c", "1", "-m", "4", "--idle", "5"]),
    ] {
        let (relay, begun) = relay(program.ip());
        let url = format!("{}{target}", relay.url());
        let (code, figures, log) = load_until(&[arguments, &["--http2", &url]].concat(), any_response);
        assert_eq!((code, errors(&figures), &log[..]), (Some(0), vec![], &[][..]), "{target} {arguments:?}");
        assert_eq!(figures["goaways"], 0, "{figures}");
        let (prefaces, others) = (begun.prefaces.load(Ordering::Relaxed), begun.others.load(Ordering::Relaxed));
        let connections: usize = arguments[1].parse().unwrap();
        assert!(prefaces >= connections && others == 0, "{target} {arguments:?}: {prefaces} prefaces, {others} others");
    }
}

/// How the connections through a relay have begun.
#[derive(Default)]
struct Begun {
    prefaces: AtomicUsize,
    others: AtomicUsize,
}

/// A relay in front of a server, which compares the first bytes of each connection with the HTTP/2 preface.
fn relay(to: SocketAddr) -> (Server, Arc<Begun>) {
    let begun = Arc::<Begun>::default();
    let counts = begun.clone();
    let relay = Server::start(move |mut client| {
        let mut first = [0; PREFACE.len()];
        // An idle connection may send nothing.
        if client.read_exact(&mut first).is_err() {
            return;
        }
        if first == *PREFACE { &counts.prefaces } else { &counts.others }.fetch_add(1, Ordering::Relaxed);
        let mut server = TcpStream::connect(to).expect("the server accepts");
        server.write_all(&first).expect("the server reads");
        let (mut output, mut back) = (server.try_clone().expect("a socket"), client.try_clone().expect("a socket"));
        let answers = std::thread::spawn(move || {
            // The load closes its connections when its time is over.
            let _ = io::copy(&mut output, &mut back);
            let _ = back.shutdown(Shutdown::Both);
        });
        let _ = io::copy(&mut client, &mut server);
        let _ = server.shutdown(Shutdown::Both);
        answers.join().expect("it does not panic");
    });
    (relay, begun)
}

const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

#[test]
fn streams_are_as_many_as_requested_and_as_the_server_permits() {
    let program = Program::serve(&["--loops", "1"]);
    let url = format!("http://{}/plaintext", program.ip());
    for (streams, most) in [("3", 3), ("5000", 128)] {
        let (code, figures, _) = load_until(&["--http2", "-c", "1", "-m", streams, &url], any_response);
        assert_eq!((code, errors(&figures)), (Some(0), vec![]), "{figures}");
        // At the end of the load all streams wait for their responses.
        assert_eq!(figures["unanswered"], most, "{figures}");
        assert_eq!(figures["streams"].to_string(), streams);
    }
}

#[test]
fn a_load_over_tls_agrees_on_http2() {
    let files = Files::new(&["localhost"]);
    let pcap = files.path("decrypted.pcap");
    let mut program = files.serve(&["localhost"], &["--pcap", &pcap]);
    let (url, ca) = (format!("https://{}/plaintext", program.ip()), files.path("ca.pem"));
    for trust in [&["--insecure"][..], &["--root", &ca]] {
        let arguments = [&[&url, "--http2", "-n", "500", "-c", "4", "-m", "16"], trust].concat();
        let (code, figures, _) = load(&arguments);
        assert_eq!((code, errors(&figures), requests(&figures)), (Some(0), vec![], 500), "{figures}");
    }
    program.signal(Signal::TERM);
    program.until_ended();
    // Each of the connections begins with the preface, within TLS.
    let capture = std::fs::read(&pcap).unwrap();
    let prefaces = capture.windows(PREFACE.len()).filter(|window| *window == PREFACE).count();
    assert_eq!(prefaces, 2 * 4);
}

/// nghttpd, which ends when it is dropped.
struct Nghttpd {
    process: Child,
    address: String,
}

impl Nghttpd {
    /// A server of `folder`, unless it is not installed. `files` are its key and its certificate.
    fn start(folder: &Directory, files: Option<&Files>) -> Option<Self> {
        // It cannot choose a port itself: one that is free now is free in a moment, most likely.
        for _ in 0..10 {
            let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let mut command = ending_with_the_test("nghttpd");
            command.args(["--address=127.0.0.1", "--htdocs", &folder.path("")]).arg(port.to_string());
            match files {
                None => command.arg("--no-tls"),
                Some(files) => command.args([files.path("localhost.key"), files.path("localhost.pem")]),
            };
            let spawned = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
            let process = match spawned {
                Ok(process) => process,
                Err(error) => {
                    skip("nghttpd", &error);
                    return None;
                }
            };
            let address = format!("127.0.0.1:{port}");
            let mut server = Self { process, address };
            let mut has_ended = false;
            until("nghttpd", || {
                has_ended = server.process.try_wait().unwrap().is_some();
                has_ended || TcpStream::connect(&server.address).is_ok()
            });
            if !has_ended {
                return Some(server);
            }
        }
        panic!("nghttpd found no free port");
    }
}

impl Drop for Nghttpd {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

#[test]
fn a_load_on_nghttpd_has_no_errors() {
    let (folder, files) = (Directory::new(), Files::new(&["localhost"]));
    std::fs::write(folder.path("short"), "tides").unwrap();
    std::fs::write(folder.path("long"), "x".repeat(200_000)).unwrap();
    for (scheme, with) in [("http", None), ("https", Some(&files))] {
        let Some(server) = Nghttpd::start(&folder, with) else { return };
        for target in ["short", "long"] {
            let url = format!("{scheme}://{}/{target}", server.address);
            let (code, figures, _) = load(&["--http2", "--insecure", "-c", "2", "-m", "10", "-n", "100", &url]);
            assert_eq!((code, errors(&figures), requests(&figures)), (Some(0), vec![], 100), "{figures}");
        }
    }
}

/// An HTTP/2 frame.
fn frame(kind: u8, flags: u8, stream: u32, content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), content].concat()
}

/// Reads a frame: its type, its flags, its stream. `None` at the end.
fn read_frame(stream: &mut TcpStream) -> Option<(u8, u8, u32)> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).ok()?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    stream.read_exact(&mut vec![0; length as usize]).ok()?;
    Some((head[3], head[4], u32::from_be_bytes([head[5], head[6], head[7], head[8]])))
}

/// An HTTP/2 server that passes the stream of each request to `answer`, and sends the result. It ends a connection
/// without an answer.
fn server(answer: fn(u32) -> Option<Vec<u8>>) -> Server {
    Server::start(move |mut stream| {
        let mut preface = [0; PREFACE.len()];
        if stream.read_exact(&mut preface).is_err()
            || preface != *PREFACE
            || stream.write_all(&frame(4, 0, 0, &[])).is_err()
        {
            return;
        }
        while let Some((kind, flags, id)) = read_frame(&mut stream) {
            let reply = match (kind, flags) {
                (4, 0) => Some(frame(4, 1, 0, &[])),
                (1, _) => answer(id),
                _ => continue,
            };
            if reply.is_none_or(|reply| stream.write_all(&reply).is_err()) {
                return;
            }
        }
    })
}

/// `:status: 200`, with the end of the stream.
fn ok(id: u32) -> Vec<u8> {
    frame(1, 5, id, &[0x88])
}

#[test]
fn streams_that_the_server_resets_count_as_errors() {
    // INTERNAL_ERROR.
    let server = server(|id| Some(if id % 4 == 1 { ok(id) } else { frame(3, 0, id, &2_u32.to_be_bytes()) }));
    let (code, figures, _) = load_until(&["--http2", "-c", "1", "-m", "4", &server.url()], any_error);
    let (kind, count) = only_errors(&figures);
    assert_eq!((code, kind), (Some(1), "reset"), "{figures}");
    assert!(count.abs_diff(requests(&figures)) <= 4, "{figures}");
}

/// RST_STREAM with REFUSED_STREAM.
fn refuse(id: u32) -> Vec<u8> {
    frame(3, 0, id, &7_u32.to_be_bytes())
}

#[test]
fn streams_that_the_server_refuses_are_sent_again() {
    let some = server(|id| Some(if matches!(id, 3..=7) { refuse(id) } else { ok(id) }));
    for rate in [&[][..], &["--rate", "1000"]] {
        let arguments = ["--http2", "-c", "1", "-t", "1", "-m", "4", "-n", "20", &some.url()];
        let (code, figures, _) = load(&[&arguments[..], rate].concat());
        assert_eq!((code, errors(&figures), requests(&figures)), (Some(0), vec![], 20), "{figures}");
        assert_eq!(figures["refused"], 3, "{figures}");
    }
    // Five times each.
    let all = server(|id| Some(refuse(id)));
    let (code, figures, _) = load(&["--http2", "-c", "1", "-t", "1", "-m", "2", "-n", "3", &all.url()]);
    assert_eq!((code, only_errors(&figures), requests(&figures)), (Some(1), ("reset", 3), 0), "{figures}");
    assert_eq!(figures["refused"], 12, "{figures}");
}

#[test]
fn after_goaway_the_load_goes_on_with_another_connection() {
    // GOAWAY comes with the third response, and names its stream.
    let server = server(|id| match id {
        5 => Some([frame(7, 0, 0, &[0, 0, 0, 5, 0, 0, 0, 0]), ok(id)].concat()),
        7.. => Some(Vec::new()),
        _ => Some(ok(id)),
    });
    let goaways = |figures: &Value| figures["goaways"].as_u64().unwrap();
    let arguments = ["--http2", "-c", "1", "-m", "1", &server.url()];
    let (code, figures, _) = load_until(&arguments, |figures| goaways(figures) > 1);
    assert_eq!((code, errors(&figures)), (Some(0), vec![]), "{figures}");
    let goaways = goaways(&figures);
    assert!(requests(&figures).abs_diff(3 * goaways) <= 3, "{figures}");
    // With several streams the server has not processed some.
    let (code, figures, _) = load(&["--http2", "-c", "1", "-t", "1", "-m", "8", "-n", "90", &server.url()]);
    assert_eq!((code, errors(&figures), requests(&figures)), (Some(0), vec![], 90), "{figures}");
    assert!(figures["refused"].as_u64().unwrap() > 0, "{figures}");
}

#[test]
fn requests_without_a_response_time_out() {
    let server = server(|id| Some(if id == 1 { ok(id) } else { Vec::new() }));
    let arguments = ["--http2", "-c", "1", "-m", "2", "--timeout", "100ms", &server.url()];
    let (code, figures, _) = load_until(&arguments, |figures| any_response(figures) && any_error(figures));
    assert_eq!((code, only_errors(&figures).0, requests(&figures)), (Some(1), "timeout", 1), "{figures}");
    // Neither has a server that sends no settings.
    let silent = Server::start(|mut stream| while stream.read(&mut [0; 1000]).is_ok_and(|count| count > 0) {});
    let arguments = ["--http2", "-c", "1", "--timeout", "100ms", &silent.url()];
    let (code, figures, _) = load_until(&arguments, any_error);
    assert_eq!((code, only_errors(&figures).0), (Some(1), "timeout"), "{figures}");
}

#[test]
fn a_server_that_speaks_no_http2_is_an_error() {
    let server = Server::start(|mut stream| {
        let _ = stream.read(&mut [0; 1000]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        // With unread bytes the close would be a reset, which can overtake the response.
        while stream.read(&mut [0; 1000]).is_ok_and(|count| count > 0) {}
    });
    let (code, figures, _) = load_until(&["--http2", "-c", "1", &server.url()], any_error);
    assert_eq!((code, requests(&figures)), (Some(1), 0), "{figures}");
    assert_eq!(only_errors(&figures).0, "invalid", "{figures}");
}

#[test]
fn bodies_of_the_wrong_length_are_errors() {
    // `content-length: 9` with five bytes: the codec resets the stream.
    let server = server(|id| {
        let head = [&[0x88, 0x0f, 0x0d, 0x01][..], b"9"].concat();
        Some([frame(1, 4, id, &head), frame(0, 1, id, b"tides")].concat())
    });
    let (code, figures, _) = load_until(&["--http2", "-c", "1", &server.url()], any_error);
    assert_eq!((code, requests(&figures)), (Some(1), 0), "{figures}");
}
