//! `tidegate load`: its figures against servers that answer well, badly, or not at all; and its usage errors. The tests
//! of idle and never-reading connections are in `load_held.rs`.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use tidegate_testkit::ClosedPort;

use crate::support::program::{Directory, PATIENCE, Program, backend, run, tidegate, until};

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

/// Runs a load for a time within which `is_enough` holds for its figures: a machine that runs other programs may leave the
/// load or the server without a processor for all of a short one.
pub(crate) fn load_until(arguments: &[&str], is_enough: impl Fn(&Value) -> bool) -> (Option<i32>, Value, Vec<String>) {
    let mut loads = DURATIONS.iter().map(|duration| load(&[arguments, &["-d", duration]].concat()));
    loads.find(|(_, figures, _)| is_enough(figures)).expect("one of the times is enough")
}

/// From the usual one to one that no machine is without a processor for.
pub(crate) const DURATIONS: [&str; 3] = ["300ms", "3s", "60s"];

pub(crate) fn any_response(figures: &Value) -> bool {
    requests(figures) > 0
}

pub(crate) fn any_error(figures: &Value) -> bool {
    !errors(figures).is_empty()
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
        let (code, figures, log) = load_until(&[arguments, &[&url]].concat(), any_response);
        assert_eq!((code, errors(&figures), &log[..]), (Some(0), vec![], &[][..]), "{target} {arguments:?}");
    }
}

#[test]
fn the_request_count_matches_the_servers_count() {
    let program = Program::serve(&["--loops", "1"]);
    let url = format!("http://{}/plaintext", program.ip());
    let mut attempts = DURATIONS.iter().map(|duration| {
        let before = program.count("messages");
        let (_, figures, _) = load(&["-c", "3", "-d", duration, "--pipeline", "16", &url]);
        (program.count("messages") - before, requests(&figures), figures)
    });
    // The server also counts the requests in flight at the end, the load does not.
    let enough = attempts.find(|(_, counted, _)| *counted > 0);
    let (served, counted, figures) = enough.expect("one of the times is enough");
    assert!((counted..=counted + 3 * 16).contains(&served), "{served} served, {counted} counted");
    let percentiles = &figures["latency"]["percentiles"];
    assert!(percentiles["50"].as_f64() <= percentiles["99.9"].as_f64(), "{percentiles}");
    assert!(percentiles["50"].as_f64() > Some(0.0), "{percentiles}");
}

#[test]
fn a_load_does_not_exceed_its_rate() {
    let program = Program::serve(&["--loops", "1"]);
    let url = format!("http://{}/plaintext", program.ip());
    let (code, figures, _) = load(&["-c", "4", "-t", "1", "-n", "300", "--rate", "400", "--pipeline", "2", &url]);
    assert_eq!((code, requests(&figures)), (Some(0), 300), "{figures}");
    // The last of 150 pairs is due 149 intervals after the first. A busy machine may take longer.
    assert!(figures["seconds"].as_f64() >= Some(149.0 / 200.0), "{figures}");
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
    let (code, figures, _) = load(&["-c", "1", "-n", "7", "--rate", "50", &server.url()]);
    assert_eq!((code, requests(&figures)), (Some(0), 7), "{figures}");
    let longest = figures["latency"]["max"].as_f64().expect("a latency");
    assert!(longest > 1_000_000.0, "the last request was due more than a second before it was sent: {figures}");
}

#[test]
fn with_a_rate_unanswered_requests_count_with_their_wait() {
    // Each connection gets five responses, and then none.
    let unanswered = Arc::new(AtomicUsize::new(0));
    let count = unanswered.clone();
    let server = Server::start(move |mut stream| {
        for answers in 0.. {
            if !read_request(&mut stream) || answers < 5 && stream.write_all(OK).is_err() {
                break;
            }
            count.fetch_add(usize::from(answers == 5), Ordering::Relaxed);
        }
    });
    let load = RunningLoad::start(&["-c", "2", "-t", "1", "-d", "1h", "--rate", "100", "--json", "-", &server.url()]);
    until("two requests without a response", || unanswered.load(Ordering::Relaxed) == 2);
    // They wait in real time. A bound from below: they may wait longer.
    std::thread::sleep(Duration::from_millis(1_500));
    let (code, output, _) = load.interrupt();
    let figures: Value = serde_json::from_str(&output.join("\n")).expect("JSON");
    assert_eq!((code, requests(&figures)), (Some(0), 10), "{figures}");
    let latency = &figures["latency"];
    assert!(latency["max"].as_f64() > Some(1_490_000.0), "the first waits since before the pause: {figures}");
    assert!(latency["percentiles"]["50"].as_f64() > Some(400_000.0), "most requests wait: {figures}");
    assert!(figures["unsent"].as_u64() > Some(50), "{figures}");
    assert_eq!(figures["unanswered"], 2, "{figures}");
}

#[test]
fn a_load_without_any_response_fails() {
    for beginning in ["", "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nebbed", "HTTP/1.1 200 OK\r\nX: xxx"] {
        let begun = Arc::new(AtomicUsize::new(0));
        let count = begun.clone();
        let server = Server::start(move |mut stream| {
            read_request(&mut stream);
            let _ = stream.write_all(beginning.as_bytes());
            count.fetch_add(1, Ordering::Relaxed);
            while read_request(&mut stream) {}
        });
        let url = server.url();
        let run = |more: &[&str]| {
            begun.store(0, Ordering::Relaxed);
            let arguments = ["-c", "2", "-t", "1", "-d", "1h", "--pipeline", "3", "--timeout", "1h", &url];
            let load = RunningLoad::start(&[more, &arguments[..]].concat());
            until("requests on both connections", || begun.load(Ordering::Relaxed) == 2);
            load.interrupt()
        };
        let said = "No successful response arrived; at the end 6 requests were in flight";
        let (code, output, log) = run(&["--json", "-"]);
        let figures: Value = serde_json::from_str(&output.join("\n")).expect("JSON");
        assert_eq!((code, requests(&figures), &figures["unanswered"]), (Some(1), 0, &6.into()), "{figures}");
        assert_eq!(log, [format!("tidegate: {said}")]);
        let (code, table, log) = run(&[]);
        assert_eq!((code, &log[..]), (Some(1), &[][..]), "{table:?}");
        assert!(table.iter().any(|line| line == said), "{table:?}");
    }
}

#[test]
fn one_connected_thread_keeps_an_unconnected_thread_retrying() {
    let run = |duration: &str| {
        // The server accepts one connection, and closes its listener.
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}/", listener.local_addr().expect("it is bound"));
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("it accepts");
            drop(listener);
            while read_request(&mut stream) && stream.write_all(OK).is_ok() {}
        });
        let loaded = load(&["-c", "2", "-t", "2", "-d", duration, &url]);
        server.join().expect("it ends with the load");
        loaded
    };
    // The other thread retries, in real time: the longer the load, the more often.
    let retries = |figures: &Value| figures["errors"]["connect"].as_u64() > Some(2);
    let mut loads = ["1500ms", "15s", "60s"].into_iter().map(run);
    let (code, figures, log) = loads.find(|(_, figures, _)| retries(figures)).expect("the other thread retries");
    assert_eq!((code, &log[..]), (Some(1), &[][..]), "{figures}");
}

#[test]
fn a_refused_load_ends_early_with_the_reason() {
    let closed = ClosedPort::tcp();
    let url = format!("http://{}/", closed.address());
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
        let (code, figures, _) = load_until(&["-c", "2", "--timeout", timeout_for(kind), &server.url()], any_error);
        assert!(figures["errors"][kind].as_u64() > Some(0), "{answer:?}: {figures}");
        assert_eq!((code, only_errors(&figures).0), (Some(1), kind), "{answer:?}: {figures}");
        let (count, none_is_good) = (only_errors(&figures).1, kind == "status" || kind == "timeout");
        assert!(count > 0 && (figures["good"] == 0 || !none_is_good), "{answer:?}: {figures}");
    }
}

/// A short timeout if one is expected, and else one that no answer exceeds.
pub(crate) fn timeout_for(kind: &str) -> &'static str {
    if kind == "timeout" { "100ms" } else { "1h" }
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
    let arguments = ["-c", "1", &server.url()];
    let (code, figures, _) = load_until(&arguments, any_error);
    let (kind, count) = only_errors(&figures);
    assert_eq!((code, kind), (Some(1), "length"));
    let good = figures["good"].as_u64().expect("a count");
    assert_eq!(requests(&figures), good + count, "{figures}");
    assert!((3 * count..=3 * count + 3).contains(&good), "every fourth is: {good} were good, {count} were not");
    let (code, figures, _) = load_until(&[&["--any-length"], &arguments[..]].concat(), any_response);
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
        let (code, figures, _) = load_until(&["-c", "2", "--timeout", timeout_for(kind), &server.url()], any_error);
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
        let (code, figures, _) = load_until(&["-c", "2", &server.url()], |figures| requests(figures) > 4);
        assert_eq!((code, errors(&figures)), (Some(0), vec![]), "{figures}");
    }
}

#[test]
fn a_load_on_a_silent_server_ends_in_time() {
    // The server neither reads nor answers until the load has ended.
    let gate = Arc::new(RwLock::new(()));
    let until_open = gate.clone();
    let silent = Server::start(move |_stream| drop(until_open.read()));
    let shut = gate.write().expect("no thread panics with it");
    let begun = Instant::now();
    let body = "x".repeat(100_000);
    let (code, figures, _) =
        load(&["-c", "2", "-d", "1s", "--timeout", "300ms", "--body", &body, "--pipeline", "100", &silent.url()]);
    drop(shut);
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
    let base = ["load", "-t", "1", "-c", "2", "--latency", "--json", &json, "--html", &html, &url];
    let mut loads = DURATIONS.iter().map(|duration| (duration, run(&[&base[..], &["-d", duration]].concat())));
    let (duration, (_, lines, log)) = loads.find(|(_, (code, ..))| *code == Some(0)).expect("a response arrives");
    assert!(log.is_empty(), "{log:?}");
    assert_eq!(lines[0], format!("Running {duration} test @ {url}"));
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
    let (code, lines, log) = run(&["load", "-c", "1", "-n", "50", "--html", "-", &server.url()]);
    assert_eq!((code, &log[..]), (Some(0), &[][..]));
    assert!(lines[0].starts_with("<!doctype html>") && lines.iter().any(|line| line.contains("<svg")), "{lines:?}");
}

#[test]
fn a_failed_write_of_the_figures_names_its_destination() {
    let gate = Arc::new(RwLock::new(()));
    let until_open = gate.clone();
    let server = Server::start(move |mut stream| {
        while read_request(&mut stream) {
            drop(until_open.read());
            let _ = stream.write_all(OK);
        }
    });
    let url = server.url();
    let full = || std::fs::File::options().write(true).open("/dev/full").expect("it is there");
    for (arguments, stdout, named) in [
        (&["--json", "-"][..], full().into(), "standard output"),
        (&[], full().into(), "standard output"),
        (&["--json", "/dev/full"], Stdio::null(), "'/dev/full'"),
        (&["--html", "/dev/full"], Stdio::null(), "'/dev/full'"),
    ] {
        let mut load = tidegate(&[&["load", "-c", "1", "-n", "5", &url], arguments].concat());
        let output = load.stdin(Stdio::null()).stdout(stdout).output().expect("it runs");
        let log = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {log}");
        assert!(log.contains(named) && log.contains("No space left") && log.lines().count() == 1, "{log}");
    }
    // With a closed standard output the exit code still reports success.
    let shut = gate.write().expect("no thread panics with it");
    let mut load = tidegate(&["load", "-c", "1", "-n", "5", &url]);
    let mut load = load.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
    drop(load.stdout.take());
    drop(shut);
    assert_eq!(load.wait().expect("it ends").code(), Some(0));
}

#[test]
fn ctrl_c_ends_a_load_early_and_prints_the_figures_so_far() {
    let program = Program::serve(&["--loops", "1"]);
    let url = format!("http://{}/plaintext", program.ip());
    let load = RunningLoad::start(&["-c", "2", "-d", "1h", "--json", "-", &url]);
    // The load has the responses to the requests of both connections, but for the last 2.
    until("requests", || program.count("messages") > 2);
    let (code, output, _) = load.interrupt();
    let figures: Value = serde_json::from_str(&output.join("\n")).expect("JSON");
    assert_eq!(code, Some(0), "{figures}");
    assert!(requests(&figures) > 0, "{figures}");
}

/// A load that runs until it is interrupted.
struct RunningLoad(Child);

impl RunningLoad {
    fn start(arguments: &[&str]) -> Self {
        let mut load = tidegate(&[&["load"], arguments].concat());
        let load = load.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self(load.spawn().expect("it starts"))
    }

    /// Ends it as Ctrl-C does: its exit code, and the lines of its output and of its log.
    fn interrupt(self) -> (Option<i32>, Vec<String>, Vec<String>) {
        kill_process(Pid::from_child(&self.0), Signal::INT).expect("it runs");
        let output = self.0.wait_with_output().expect("it ends");
        let lines = |bytes: Vec<u8>| String::from_utf8(bytes).expect("a text").lines().map(str::to_owned).collect();
        (output.status.code(), lines(output.stdout), lines(output.stderr))
    }
}

/// A good answer.
pub(crate) const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nebbed";
