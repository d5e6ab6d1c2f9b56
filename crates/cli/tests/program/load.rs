//! `tidegate load`: its figures against servers that answer well, badly, or not at all; and its usage errors. The tests
//! of idle and never-reading connections are in `load_held.rs`.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::program::{Directory, PATIENCE, Program, backend, run, tidegate};

/// The server side of one connection.
type Serve = fn(TcpStream);

/// A server that runs the same function on each connection. It ends when it is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn start(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let (address, is_over) = (listener.local_addr().expect("it is bound"), Arc::new(AtomicBool::new(false)));
        let (serve, over) = (Arc::new(serve), is_over.clone());
        let thread = std::thread::spawn(move || {
            let mut connections = Vec::new();
            for stream in listener.incoming() {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                let (serve, stream) = (serve.clone(), stream.expect("it accepts"));
                stream.set_read_timeout(Some(PATIENCE)).expect("a stream");
                connections.push(std::thread::spawn(move || serve(stream)));
            }
            connections.into_iter().for_each(|connection| drop(connection.join()));
        });
        Self { address, is_over, thread: Some(thread) }
    }

    /// A server that answers every request with these bytes.
    pub(crate) fn responding(answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::start(move |mut stream| while read_request(&mut stream) && stream.write_all(&answer).is_ok() {})
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(self.address));
        self.thread.take().map(JoinHandle::join);
    }
}

/// Reads a request without a body. False at the end of the stream.
pub(crate) fn read_request(stream: &mut TcpStream) -> bool {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        match stream.read(&mut byte) {
            Ok(1) => request.push(byte[0]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            _ => return false,
        }
    }
    true
}

/// Runs a load to its end: its exit code, its figures, and its standard error.
pub(crate) fn load(arguments: &[&str]) -> (Option<i32>, Value, Vec<String>) {
    let (code, output, log) = run(&[&["load", "--json", "-"], arguments].concat());
    let figures = serde_json::from_str(&output.join("\n")).unwrap_or_else(|_| panic!("no JSON: {output:?} {log:?}"));
    (code, figures, log)
}

/// The errors by kind, without zeros.
pub(crate) fn errors(figures: &Value) -> Vec<(&str, u64)> {
    let errors = figures["errors"].as_object().expect("errors by kind");
    let counts = errors.iter().map(|(kind, count)| (kind.as_str(), count.as_u64().expect("a count")));
    counts.filter(|&(_, count)| count > 0).collect()
}

/// The only kind of error, and its count.
pub(crate) fn only_errors(figures: &Value) -> (&str, u64) {
    let errors = errors(figures);
    assert_eq!(errors.len(), 1, "{errors:?}");
    errors[0]
}

pub(crate) fn requests(figures: &Value) -> u64 {
    figures["requests"].as_u64().expect("a count")
}

#[test]
fn a_load_on_a_correct_server_has_no_errors() {
    let program = Program::serve(&["--loops", "1"]);
    for (target, arguments) in [
        ("plaintext", &["-c", "8"][..]),
        ("plaintext", &["-c", "8", "--pipeline", "64"]),
        ("bytes/1", &["-c", "4", "-t", "3", "--pipeline", "7"]),
        ("bytes/300000", &["-c", "2", "--pipeline", "5"]),
        ("bytes/0", &["-c", "2"]),
        ("stream/70000", &["-c", "2", "--pipeline", "3"]),
        ("plaintext", &["-c", "2", "--method", "HEAD", "--pipeline", "4"]),
        ("echo", &["-c", "2", "--body", "tides", "--pipeline", "3"]),
        ("plaintext", &["-c", "3", "-H", "Connection: close"]),
        ("plaintext", &["-c", "3", "-H", "Connection: keep-alive", "-H", "Host: sea"]),
        ("plaintext", &["-c", "4", "--rate", "500"]),
    ] {
        let url = format!("http://{}/{target}", program.ip());
        let (code, figures, log) = load(&[arguments, &["-d", "300ms", &url]].concat());
        assert_eq!((code, errors(&figures), &log[..]), (Some(0), vec![], &[][..]), "{target} {arguments:?}");
        assert!(requests(&figures) > 0, "{target} {arguments:?}: {figures}");
    }
}

#[test]
fn the_request_count_matches_the_servers_count() {
    let program = Program::serve(&["--loops", "1"]);
    let url = format!("http://{}/plaintext", program.ip());
    let (_, figures, _) = load(&["-c", "3", "-d", "300ms", "--pipeline", "16", &url]);
    // The server also counts the requests in flight at the end, the load does not.
    let (served, counted) = (program.count("messages"), requests(&figures));
    assert!((counted..=counted + 3 * 16).contains(&served), "{served} served, {counted} counted");
    let percentiles = &figures["latency"]["percentiles"];
    assert!(percentiles["50"].as_f64() <= percentiles["99.9"].as_f64(), "{percentiles}");
    assert!(percentiles["50"].as_f64() > Some(0.0), "{percentiles}");
}

#[test]
fn a_load_reaches_its_rate() {
    let program = Program::serve(&["--loops", "1"]);
    let url = format!("http://{}/plaintext", program.ip());
    let (code, figures, _) = load(&["-c", "4", "-d", "1s", "--rate", "400", "--pipeline", "2", &url]);
    assert_eq!(code, Some(0), "{figures}");
    // Requests due in the last moment may be in flight, and more of them on a busy machine.
    assert!((200..=410).contains(&requests(&figures)), "{figures}");
    assert_eq!(figures["latency"]["corrected"], true);
}

#[test]
fn with_a_rate_latency_starts_at_the_scheduled_send_time() {
    // The server answers one request in 200 ms, and the rate is 50 a second.
    let server = Server::start(|mut stream| {
        while read_request(&mut stream) {
            std::thread::sleep(Duration::from_millis(200));
            if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").is_err() {
                break;
            }
        }
    });
    let (code, figures, _) = load(&["-c", "1", "-d", "2s", "--rate", "50", &server.url()]);
    assert_eq!(code, Some(0), "{figures}");
    let longest = figures["latency"]["max"].as_f64().expect("a latency");
    assert!(longest > 1_000_000.0, "the last request was due more than a second before it was sent: {figures}");
    assert!(figures["unsent"].as_u64() > Some(50), "{figures}");
}

#[test]
fn with_a_rate_unanswered_requests_count_with_their_wait() {
    // Each connection gets five responses, and then none.
    let server = Server::start(|mut stream| {
        for answers in 0.. {
            if !read_request(&mut stream) || answers < 5 && stream.write_all(OK).is_err() {
                break;
            }
        }
    });
    let (code, figures, _) = load(&["-c", "2", "-t", "1", "-d", "1900ms", "--rate", "100", &server.url()]);
    assert_eq!((code, requests(&figures)), (Some(0), 10), "{figures}");
    let latency = &figures["latency"];
    assert!(latency["max"].as_f64() > Some(1_500_000.0), "the first was due after a tenth of a second: {figures}");
    assert!(latency["percentiles"]["50"].as_f64() > Some(500_000.0), "most requests wait: {figures}");
    assert_eq!(figures["unanswered"], 2, "{figures}");
}

#[test]
fn a_load_without_any_response_fails() {
    let ends: [Serve; 3] = [
        |mut stream| while read_request(&mut stream) {},
        |mut stream| {
            read_request(&mut stream);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nebbed");
            while read_request(&mut stream) {}
        },
        |mut stream| {
            read_request(&mut stream);
            let mut head = b"HTTP/1.1 200 OK\r\nX: ".iter().chain(std::iter::repeat(&b'x'));
            while head.next().is_some_and(|byte| stream.write_all(&[*byte]).is_ok()) {
                std::thread::sleep(Duration::from_millis(100));
            }
        },
    ];
    for serve in ends {
        let server = Server::start(serve);
        let arguments = ["-c", "2", "-t", "1", "-d", "1s", "--pipeline", "3", "--timeout", "20s", &server.url()];
        let said = "No successful response arrived; at the end 6 requests were in flight";
        let (code, figures, log) = load(&arguments);
        assert_eq!((code, requests(&figures), &figures["unanswered"]), (Some(1), 0, &6.into()), "{figures}");
        assert_eq!(log, [format!("tidegate: {said}")]);
        let (code, table, log) = run(&[&["load"], &arguments[..]].concat());
        assert_eq!((code, &log[..]), (Some(1), &[][..]), "{table:?}");
        assert!(table.iter().any(|line| line == said), "{table:?}");
    }
}

#[test]
fn one_connected_thread_keeps_an_unconnected_thread_retrying() {
    // The server accepts one connection, and closes its listener.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}/", listener.local_addr().expect("it is bound"));
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("it accepts");
        drop(listener);
        while read_request(&mut stream) && stream.write_all(OK).is_ok() {}
    });
    let (code, figures, log) = load(&["-c", "2", "-t", "2", "-d", "1500ms", &url]);
    server.join().expect("it ends with the load");
    assert_eq!((code, &log[..]), (Some(1), &[][..]), "{figures}");
    assert!(figures["errors"]["connect"].as_u64() > Some(2), "the other thread retries: {figures}");
}

#[test]
fn a_refused_load_ends_early_with_the_reason() {
    let closed = TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("it is bound");
    let url = format!("http://{closed}/");
    let begun = Instant::now();
    let (code, figures, log) = load(&["-c", "6", "-t", "2", "-d", "1h", &url]);
    assert_eq!((code, only_errors(&figures).0, requests(&figures)), (Some(1), "connect", 0));
    assert!(only_errors(&figures).1 >= 6, "{figures}");
    assert!(log.iter().any(|line| line.contains("cannot connect to") && line.contains("refused")), "{log:?}");
    assert!(begun.elapsed() < PATIENCE, "the load went on after no connection was made");
}

#[test]
fn every_kind_of_bad_response_is_counted_by_kind() {
    let ok = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nebbed";
    for (answer, kind) in [
        ("HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno", "status"),
        ("HTTP/1.1 500 Oh\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n", "status"),
        ("this is no HTTP at all\r\n\r\n", "invalid"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5, 6\r\n\r\nebbed", "invalid"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nebbed and more", "invalid"),
        (&format!("{ok}{ok}"), "invalid"),
        ("\0\0\0", "invalid"),
        ("HTTP/1.1 200 OK\r\nContent-Le", "timeout"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nebbed", "timeout"),
    ] {
        let server = Server::responding(answer);
        let (code, figures, _) = load(&["-c", "2", "-d", "600ms", "--timeout", "200ms", &server.url()]);
        assert!(figures["errors"][kind].as_u64() > Some(0), "{answer:?}: {figures}");
        assert_eq!((code, only_errors(&figures).0), (Some(1), kind), "{answer:?}: {figures}");
        let (count, none_is_good) = (only_errors(&figures).1, kind == "status" || kind == "timeout");
        assert!(count > 0 && (figures["good"] == 0 || !none_is_good), "{answer:?}: {figures}");
    }
}

#[test]
fn responses_of_every_status_are_in_the_figures() {
    let server = Server::responding("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n");
    let (code, figures, log) = load(&["-n", "1000", "-c", "3", "--pipeline", "7", &server.url()]);
    assert_eq!((code, requests(&figures), &figures["good"]), (Some(1), 1000, &0.into()), "{figures}");
    assert_eq!((&figures["statuses"]["401"], only_errors(&figures)), (&1000.into(), ("status", 1000)));
    assert!(figures["requests_per_second"].as_f64() > Some(0.0) && figures["latency"]["max"].as_f64() > Some(0.0));
    assert_eq!(log, ["tidegate: No successful response arrived"]);
}

#[test]
fn exactly_as_many_requests_are_sent_as_are_asked_for() {
    let program = Program::serve(&["--loops", "1"]);
    let url = format!("http://{}/plaintext", program.ip());
    for (arguments, total) in [
        (&["-n", "1000", "-c", "7", "--pipeline", "16"][..], 1000),
        (&["-n", "3"], 3),
        (&["-n", "50", "-c", "5", "-t", "3", "-H", "Connection: close"], 50),
        (&["-n", "200", "-c", "4", "--rate", "5000"], 200),
        (&["-n", "500", "-c", "3", "--http2", "-m", "9"], 500),
    ] {
        let served = program.count("messages");
        let (code, figures, log) = load(&[arguments, &[&url]].concat());
        assert_eq!((code, requests(&figures), &log[..]), (Some(0), total, &[][..]), "{arguments:?}: {figures}");
        // Each connection of HTTP/2 begins with a message of its own.
        let prefaces = if arguments.contains(&"--http2") { 3 } else { 0 };
        assert_eq!(program.count("messages") - served, total + prefaces, "{arguments:?}");
        assert_eq!((&figures["unanswered"], &figures["total"]), (&0.into(), &total.into()), "{arguments:?}");
    }
}

#[test]
fn several_urls_are_requested_in_turn() {
    let program = Program::serve(&["--loops", "1"]);
    let urls = ["plaintext", "nowhere", "bytes/5000"].map(|target| format!("http://{}/{target}", program.ip()));
    let urls: Vec<_> = urls.iter().map(String::as_str).collect();
    for arguments in [&["-n", "300", "-c", "4", "--pipeline", "5"][..], &["-n", "300", "-c", "2", "--http2", "-m", "5"]]
    {
        let (code, figures, _) = load(&[arguments, &urls].concat());
        assert_eq!((code, requests(&figures)), (Some(1), 300), "{arguments:?}: {figures}");
        let of = |status: &str| figures["statuses"][status].as_u64().unwrap_or(0);
        assert!(of("200").abs_diff(200) < 20 && of("200") + of("404") == 300, "{arguments:?}: {figures}");
    }
}

#[test]
fn responses_of_another_length_are_errors_unless_allowed() {
    let server = Server::start(|mut stream| {
        for length in (1..).map(|number| 5 + usize::from(number % 4 == 0)) {
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{}", "x".repeat(length));
            if !read_request(&mut stream) || stream.write_all(answer.as_bytes()).is_err() {
                break;
            }
        }
    });
    let arguments = ["-c", "1", "-d", "300ms", &server.url()];
    let (code, figures, _) = load(&arguments);
    let (kind, count) = only_errors(&figures);
    assert_eq!((code, kind), (Some(1), "length"));
    let good = figures["good"].as_u64().expect("a count");
    assert_eq!(requests(&figures), good + count, "{figures}");
    assert!((3 * count..=3 * count + 3).contains(&good), "every fourth is: {good} were good, {count} were not");
    let (code, figures, _) = load(&[&["--any-length"], &arguments[..]].concat());
    assert_eq!((code, errors(&figures)), (Some(0), vec![]), "{figures}");
}

#[test]
fn a_close_with_responses_outstanding_is_an_error_unless_announced() {
    let cases: [(&str, Serve); 4] = [
        ("closed", |mut stream| {
            read_request(&mut stream);
        }),
        ("closed", |mut stream| {
            read_request(&mut stream);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nebbed");
        }),
        ("read", |mut stream| {
            read_request(&mut stream);
            let socket = socket2::SockRef::from(&stream);
            socket.set_linger(Some(Duration::ZERO)).expect("a socket");
        }),
        ("timeout", |mut stream| while read_request(&mut stream) {}),
    ];
    for (kind, serve) in cases {
        let server = Server::start(serve);
        let (code, figures, _) = load(&["-c", "2", "-d", "500ms", "--timeout", "200ms", &server.url()]);
        assert_eq!((code, only_errors(&figures).0, requests(&figures)), (Some(1), kind, 0), "{figures}");
    }
    // An announced close, or a close with no response outstanding, is no error; the load reconnects.
    let polite: [Serve; 3] = [
        |mut stream| {
            read_request(&mut stream);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        },
        |mut stream| {
            read_request(&mut stream);
            let _ = stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nuntil the end");
        },
        |mut stream| {
            read_request(&mut stream);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
            read_request(&mut stream);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        },
    ];
    for serve in polite {
        let server = Server::start(serve);
        let (code, figures, _) = load(&["-c", "2", "-d", "400ms", &server.url()]);
        assert_eq!((code, errors(&figures)), (Some(0), vec![]), "{figures}");
        assert!(requests(&figures) > 4, "{figures}");
    }
}

#[test]
fn a_load_on_a_silent_server_ends_in_time() {
    let silent = Server::start(|mut stream| {
        // The server neither reads nor answers until the load has ended.
        let _ = stream.set_read_timeout(Some(PATIENCE));
        std::thread::sleep(Duration::from_millis(1500));
        let _ = stream.read(&mut [0; 1]);
    });
    let begun = Instant::now();
    let body = "x".repeat(100_000);
    let (code, figures, _) =
        load(&["-c", "2", "-d", "1s", "--timeout", "300ms", "--body", &body, "--pipeline", "100", &silent.url()]);
    assert_eq!((code, only_errors(&figures).0), (Some(1), "timeout"), "{figures}");
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
}

#[test]
fn usage_errors_of_load_are_one_line_and_exit_code_2() {
    for (arguments, expected) in [
        (&["http://127.0.0.1:1/", "-c", "0"][..], "no connections"),
        (&["http://127.0.0.1:1/", "-c", "2", "-t", "3"], "3 threads"),
        (&["http://127.0.0.1:1/", "-c", "900k"], "descriptors"),
        (&["http://127.0.0.1:1/", "-c", "many"], "many"),
        (&["http://127.0.0.1:1/", "-n", "5", "-c", "6"], "use -c 5 or fewer"),
        (&["http://127.0.0.1:1/", "-n", "0"], "from 1 on"),
        (&["http://127.0.0.1:1/", "http://127.0.0.1:2/"], "on two"),
        (&["http://127.0.0.1:1/", "-d", "soon"], "500ms, 30s"),
        (&["http://127.0.0.1:1/", "-d", "0"], "above zero"),
        (&["http://127.0.0.1:1/", "--rate", "-3"], "-3"),
        (&["http://127.0.0.1:1/", "--pipeline", "0"], "0"),
        (&["http://127.0.0.1:1/", "--pipeline", "60000", "--body", "@/proc/self/exe"], "pipeline fewer"),
        (
            &["http://127.0.0.1:1/", "--pipeline", "16384", "-H", &format!("X: {}", "x".repeat(30_000))],
            "pipeline fewer",
        ),
        (&["http://127.0.0.1:1/", "-H", "no colon"], "Name: value"),
        (&["http://127.0.0.1:1/", "-H", "Host: a", "-H", "Host: b"], "one host"),
        (&["http://127.0.0.1:+1/"], "bad port"),
        (&["http://127.0.0.1:1/", "--json", "-", "--html", "-"], "cannot both be printed"),
        (&["http://127.0.0.1:1/", "--method", "GE T"], "GE T"),
        (&["http://127.0.0.1:1/", "--body", "@/nowhere"], "/nowhere"),
        (&["http://127.0.0.1:1/", "--json", "/nowhere/file"], "/nowhere/file"),
        (&["http://name.invalid/"], "name.invalid"),
        (&["127.0.0.1:1"], "http://HOST"),
        (&[], "URL"),
    ] {
        let (code, output, log) = run(&[&["load"], arguments].concat());
        assert_eq!((code, output.len(), log.len()), (Some(2), 0, 1), "{arguments:?}: {output:?} {log:?}");
        assert!(log[0].starts_with("tidegate: ") && log[0].contains(expected), "{arguments:?}: {log:?}");
    }
}

#[test]
fn the_table_has_wrks_format() {
    let program = Program::serve(&["--loops", "1"]);
    let url = format!("http://{}/plaintext", program.ip());
    let directory = Directory::new();
    let (json, html) = (directory.path("figures.json"), directory.path("page.html"));
    let (code, lines, log) =
        run(&["load", "-t", "1", "-c", "2", "-d", "300ms", "--latency", "--json", &json, "--html", &html, &url]);
    assert_eq!((code, &log[..]), (Some(0), &[][..]), "{lines:?}");
    assert_eq!(lines[0], format!("Running 300ms test @ {url}"));
    assert_eq!(lines[1], "  1 threads and 2 connections");
    assert_eq!(lines[2], "  Thread Stats   Avg      Stdev     Max   +/- Stdev");
    for beginning in
        ["    Latency   ", "    Req/Sec   ", "  Latency Distribution", "     99%  ", "Requests/sec:", "Transfer/sec:"]
    {
        assert!(lines.iter().any(|line| line.starts_with(beginning)), "{beginning:?} in {lines:?}");
    }
    let figures: Value = serde_json::from_str(&std::fs::read_to_string(json).expect("a file")).expect("JSON");
    assert_eq!((figures["url"].as_str(), figures["connections"].as_u64()), (Some(&*url), Some(2)));
    assert_eq!(figures["backend"], backend());
    let page = std::fs::read_to_string(html).expect("a file");
    assert!(page.contains("<svg") && page.contains(&url) && !page.contains("NaN"), "{page}");
}

#[test]
fn html_is_printed_on_standard_output_on_request() {
    let server = Server::responding(OK);
    let (code, lines, log) = run(&["load", "-c", "1", "-d", "500ms", "--html", "-", &server.url()]);
    assert_eq!((code, &log[..]), (Some(0), &[][..]));
    assert!(lines[0].starts_with("<!doctype html>") && lines.iter().any(|line| line.contains("<svg")), "{lines:?}");
}

#[test]
fn a_failed_write_of_the_figures_names_its_destination() {
    let server = Server::responding(OK);
    let url = server.url();
    let full = || std::fs::File::options().write(true).open("/dev/full").expect("it is there");
    for (arguments, stdout, named) in [
        (&["--json", "-"][..], full().into(), "standard output"),
        (&[], full().into(), "standard output"),
        (&["--json", "/dev/full"], Stdio::null(), "'/dev/full'"),
        (&["--html", "/dev/full"], Stdio::null(), "'/dev/full'"),
    ] {
        let mut load = tidegate(&[&["load", "-c", "1", "-d", "100ms", &url], arguments].concat());
        let output = load.stdin(Stdio::null()).stdout(stdout).output().expect("it runs");
        let log = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {log}");
        assert!(log.contains(named) && log.contains("No space left") && log.lines().count() == 1, "{log}");
    }
    // With a closed standard output the exit code still reports success.
    let mut load = tidegate(&["load", "-c", "1", "-d", "500ms", &url]);
    let mut load = load.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
    drop(load.stdout.take());
    assert_eq!(load.wait().expect("it ends").code(), Some(0));
}

#[test]
fn ctrl_c_ends_a_load_early_and_prints_the_figures_so_far() {
    let program = Program::serve(&["--loops", "1"]);
    let url = format!("http://{}/plaintext", program.ip());
    let mut load = tidegate(&["load", "-c", "2", "-d", "1h", "--json", "-", &url]);
    let load = load.stdout(Stdio::piped()).spawn().expect("it starts");
    let pid = rustix::process::Pid::from_child(&load);
    crate::support::program::until("requests", || program.count("messages") > 0);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    let output = load.wait_with_output().expect("it ends");
    let figures: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(output.status.code(), Some(0), "{figures}");
    assert!(requests(&figures) > 0, "{figures}");
}

/// A good answer.
pub(crate) const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nebbed";
