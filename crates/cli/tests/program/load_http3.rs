//! `tidegate load --http3`: against our server, and against servers that reset, refuse, leave or never answer.

use std::error::Error;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::Signal;
use tidegate::engine::{SessionLimits, SessionStreams, Streams};
use tidegate::framing::Raw;
use tidegate::quic::{self, TransportLimits};
use tidegate::tls::{Certificates, Provider, ServerConfig};
use tidegate::{Context, EndpointListener, Event, Handler, Outcome, ServerHandle, Slice};

use crate::load::{DURATIONS, any_error, any_response, errors, load, load_until, only_errors, requests};
use crate::support::program::{Program, run, until};
use crate::tls::Files;

fn serve() -> Program {
    Program::serve(&["--tls-self-signed", "--http3", "--loops", "1"])
}

fn url(server: SocketAddr, target: &str) -> String {
    format!("https://{server}/{target}")
}

#[test]
fn a_load_over_http3_has_no_errors() {
    let program = serve();
    for (target, arguments, total) in [
        ("plaintext", &["-n", "2000", "-c", "4", "-m", "32"][..], 2000),
        ("bytes/1", &["-n", "300", "-c", "4", "-t", "3", "--streams", "7"], 300),
        ("bytes/300000", &["-n", "40", "-c", "2", "-m", "5"], 40),
        ("bytes/0", &["-n", "20", "-c", "2"], 20),
        ("stream/70000", &["-n", "40", "-c", "2", "-m", "3"], 40),
        ("plaintext", &["-n", "100", "-c", "2", "--method", "HEAD", "-m", "4"], 100),
        ("echo", &["-n", "100", "-c", "2", "--body", "tides", "-m", "3"], 100),
        ("plaintext", &["-n", "100", "-c", "3", "-H", "X-Tide: high", "-H", "Host: sea"], 100),
        ("plaintext", &["-n", "200", "-c", "2", "-m", "8", "--rate", "2000"], 200),
        ("plaintext", &["-n", "30", "-c", "3", "--backend", "epoll"], 30),
    ] {
        let target = url(program.ip(), target);
        let arguments = [arguments, &["--http3", "--insecure", &target]].concat();
        let (code, figures, log) = load(&arguments);
        assert_eq!((code, errors(&figures), &log[..]), (Some(0), vec![], &[][..]), "{arguments:?}");
        assert_eq!((requests(&figures), &figures["statuses"]["200"]), (total, &total.into()), "{arguments:?}");
        assert_eq!((&figures["goaways"], &figures["version"]), (&0.into(), &"HTTP/3".into()), "{arguments:?}");
        assert!(figures["bytes_read"].as_u64() > Some(total), "{arguments:?}: {figures}");
    }
}

#[test]
fn a_load_over_http3_ends_after_its_time() {
    let program = serve();
    let arguments = ["--http3", "--insecure", "-c", "3", "-m", "4", &url(program.ip(), "plaintext")];
    let (code, figures, _) = load_until(&arguments, any_response);
    assert_eq!((code, errors(&figures)), (Some(0), vec![]), "{figures}");
    assert!(figures["latency"]["max"].as_f64() > Some(0.0), "{figures}");
    // Streams wait for their responses at the end.
    assert!(figures["unanswered"].as_u64() <= Some(3 * 4), "{figures}");
}

#[test]
fn the_table_names_the_version_and_other_statuses_are_errors() {
    let program = serve();
    let target = url(program.ip(), "nowhere");
    let (code, output, _) = run(&["load", "--http3", "--insecure", "-n", "20", "-c", "2", "-m", "3", &target]);
    let table = output.join("\n");
    assert_eq!(code, Some(1), "{table}");
    assert!(table.contains("HTTP/3: 3 streams on each connection, 0 reset, 0 GOAWAY"), "{table}");
    assert!(table.lines().any(|line| line.trim_start().starts_with("404")), "{table}");
}

#[test]
fn streams_are_as_many_as_the_server_permits() {
    let program = serve();
    let target = url(program.ip(), "plaintext");
    let arguments = ["--http3", "--insecure", "-n", "3000", "-c", "1", "-m", "5000", &target];
    let (code, figures, _) = load(&arguments);
    assert_eq!((code, errors(&figures), requests(&figures)), (Some(0), vec![], 3000), "{figures}");
}

#[test]
fn several_urls_are_requested_in_turn_over_http3() {
    let program = serve();
    let urls = ["plaintext", "nowhere", "bytes/5000"].map(|target| url(program.ip(), target));
    let urls: Vec<_> = urls.iter().map(String::as_str).collect();
    let (code, figures, _) = load(&[&["--http3", "--insecure", "-n", "300", "-c", "2", "-m", "5"], &urls[..]].concat());
    assert_eq!((code, requests(&figures)), (Some(1), 300), "{figures}");
    let of = |status: &str| figures["statuses"][status].as_u64().unwrap_or(0);
    assert!(of("200").abs_diff(200) < 20 && of("200") + of("404") == 300, "{figures}");
}

#[test]
fn idle_and_never_reading_connections_are_held_over_http3() {
    let program = serve();
    let base = ["--http3", "--insecure", "-c", "2"];
    let target = url(program.ip(), "plaintext");
    let arguments = [&base[..], &["--idle", "5", &target]].concat();
    let (code, figures, _) = load_until(&arguments, any_response);
    assert_eq!((code, &figures["idle"]["held"]), (Some(0), &5.into()), "{figures}");
    let target = url(program.ip(), "bytes/3000000");
    let arguments = [&base[..], &["--never-read", &target]].concat();
    let (_, figures, _) = load_until(&arguments, |figures| figures["stuck"]["held"] == 2);
    assert_eq!(figures["stuck"]["lost"], 0, "{figures}");
}

#[test]
fn certificates_are_checked_over_http3_as_over_tcp() {
    let files = Files::new(&["localhost"]);
    let program = files.serve(&["localhost"], &["--http3"]);
    let (target, ca) = (url(program.ip(), "plaintext"), files.path("ca.pem"));
    for trust in [&["--insecure"][..], &["--root", &ca]] {
        let (code, figures, _) = load(&[&["--http3", "-n", "20", "-c", "2", &target], trust].concat());
        assert_eq!((code, errors(&figures), requests(&figures)), (Some(0), vec![], 20), "{figures}");
    }
    let others = Files::new(&["localhost"]);
    let other = others.path("ca.pem");
    let (code, figures, log) = load(&["--http3", "-c", "1", "-d", "1h", "--root", &other, &target]);
    assert_eq!((code, only_errors(&figures).0, requests(&figures)), (Some(1), "connect", 0), "{figures}");
    assert!(log.iter().any(|line| line.contains("over QUIC") && line.contains("certificate")), "{log:?}");
}

/// A server of QUIC whose streams answer their requests by number with a function.
struct Answering {
    answer: Answers,
    /// The answer comes at the first bytes, and the rest of the request is stopped.
    is_early: bool,
    count: Arc<AtomicU64>,
}

/// The answer to the request with this number.
type Answers = fn(u64) -> Answer;

enum Answer {
    Bytes(&'static [u8]),
    Reset(u64),
    Nothing,
}

/// `:status: 200`, in a HEADERS frame.
const OK: &[u8] = &[1, 3, 0, 0, 0xd9];

impl Handler<Raw> for Answering {
    type Post = ();

    fn message(&mut self, _: Slice, cx: &mut Context<'_, Raw>) -> Outcome<Raw> {
        if self.is_early { self.answer(cx) } else { Outcome::Continue }
    }

    fn event(&mut self, event: Event<()>, cx: &mut Context<'_, Raw>) -> Outcome<Raw> {
        if event == Event::ReadClosed { self.answer(cx) } else { event.by_default(cx) }
    }
}

impl Answering {
    fn answer(&mut self, cx: &mut Context<'_, Raw>) -> Outcome<Raw> {
        match (self.answer)(self.count.fetch_add(1, Ordering::Relaxed)) {
            Answer::Bytes(bytes) => match cx.send(bytes.to_vec().into()) {
                Ok(_) => Outcome::Close,
                Err(error) => Outcome::fail(error),
            },
            Answer::Reset(code) => Outcome::Reset(code),
            Answer::Nothing => Outcome::Continue,
        }
    }
}

/// A server in this process.
struct Quic {
    handle: ServerHandle,
    config: quic::ServerConfig,
}

impl Quic {
    fn url(&self) -> String {
        url(self.handle.address().ip().expect("an IP address"), "")
    }
}

fn answering(files: &Files, protocol: &str, answer: Answers) -> Result<Quic, Box<dyn Error>> {
    answering_when(files, protocol, answer, false)
}

fn answering_when(files: &Files, protocol: &str, answer: Answers, is_early: bool) -> Result<Quic, Box<dyn Error>> {
    let provider = Provider::aws_lc_rs();
    let certificates =
        Certificates::from_files(&provider, [(files.path("localhost.pem"), files.path("localhost.key"))])?;
    let tls = ServerConfig::builder(&provider, certificates).alpn([protocol]).build()?;
    let config = quic::ServerConfig::new(&tls, TransportLimits::default())?;
    let count = Arc::<AtomicU64>::default();
    let services = move |_| {
        let count = count.clone();
        // The control stream of the client is read, and nothing is answered there.
        SessionStreams {
            bidirectional: Some(Streams::handle(move || (Raw, Answering { answer, is_early, count: count.clone() }))),
            unidirectional: Some(Streams::handle(|| (Raw, Ignoring))),
        }
    };
    let endpoints = config.clone();
    let make = move |loop_number| endpoints.endpoint(loop_number);
    let listener = EndpointListener::bind("127.0.0.1:0")?.serve_sessions(SessionLimits::default(), make, services);
    let handle = tidegate::Server::new().loops(1).endpoint(listener).run()?;
    Ok(Quic { handle, config })
}

struct Ignoring;

impl Handler<Raw> for Ignoring {
    type Post = ();

    fn message(&mut self, _: Slice, _: &mut Context<'_, Raw>) -> Outcome<Raw> {
        Outcome::Continue
    }
}

fn load_on(server: &Quic, arguments: &[&str]) -> (Option<i32>, serde_json::Value) {
    let (code, figures, _) = load(&[&["--http3", "--insecure", "-c", "1"], arguments, &[&server.url()]].concat());
    (code, figures)
}

#[test]
fn bad_responses_over_http3_are_counted_by_kind() {
    let files = Files::new(&["localhost"]);
    let kinds: [(&str, Answers); 4] = [
        // H3_INTERNAL_ERROR.
        ("reset", |number| if number % 2 == 0 { Answer::Bytes(OK) } else { Answer::Reset(0x102) }),
        // A stream without a response, and a frame that is cut off.
        ("invalid", |number| if number % 2 == 0 { Answer::Bytes(OK) } else { Answer::Bytes(b"") }),
        ("invalid", |number| if number % 2 == 0 { Answer::Bytes(OK) } else { Answer::Bytes(&[1, 9, 0]) }),
        ("timeout", |number| if number % 2 == 0 { Answer::Bytes(OK) } else { Answer::Nothing }),
    ];
    for (kind, answer) in kinds {
        let server = answering(&files, "h3", answer).expect("a server");
        let (code, figures) = load_on(&server, &["-n", "10", "-m", "1", "--timeout", "300ms"]);
        // A frame that is cut off ends the connection, and the next one goes on.
        assert_eq!((code, only_errors(&figures), requests(&figures)), (Some(1), (kind, 5), 5), "{kind}: {figures}");
    }
}

/// H3_REQUEST_REJECTED (RFC 9114 §8.1).
const REQUEST_REJECTED: u64 = 0x10b;

#[test]
fn requests_that_the_server_rejects_are_sent_again_on_another_connection() {
    let files = Files::new(&["localhost"]);
    let server =
        answering(
            &files,
            "h3",
            |number| {
                if number % 2 == 0 { Answer::Bytes(OK) } else { Answer::Reset(REQUEST_REJECTED) }
            },
        );
    let server = server.expect("a server");
    for rate in [&[][..], &["--rate", "1000"]] {
        let (code, figures) = load_on(&server, &[&["-n", "10", "-m", "1", "-t", "1"], rate].concat());
        assert_eq!((code, errors(&figures), requests(&figures)), (Some(0), vec![], 10), "{figures}");
        let refused = figures["refused"].as_u64().expect("a number");
        assert!((9..=10).contains(&refused), "{figures}");
    }
}

#[test]
fn a_server_that_rejects_every_request_is_an_error() {
    let files = Files::new(&["localhost"]);
    let server = answering(&files, "h3", |_| Answer::Reset(REQUEST_REJECTED)).expect("a server");
    let (code, figures) = load_on(&server, &["-n", "2", "-m", "1", "-t", "1"]);
    assert_eq!((code, only_errors(&figures), requests(&figures)), (Some(1), ("reset", 2), 0), "{figures}");
    assert_eq!(figures["refused"], 8, "{figures}");
}

#[test]
fn a_server_that_stops_a_request_and_answers_it_is_no_error() {
    let files = Files::new(&["localhost"]);
    let server = answering_when(&files, "h3", |_| Answer::Bytes(OK), true).expect("a server");
    let body = "x".repeat(100_000);
    let (code, figures) = load_on(&server, &["-n", "10", "-m", "1", "--body", &body]);
    assert_eq!((code, errors(&figures), requests(&figures)), (Some(0), vec![], 10), "{figures}");
}

#[test]
fn a_load_closes_its_connections_at_its_end() {
    let files = Files::new(&["localhost"]);
    let mut loads = DURATIONS.iter().map(|duration| {
        let server = answering(&files, "h3", |_| Answer::Bytes(OK)).expect("a server");
        let loaded = load_on(&server, &["-m", "4", "--idle", "3", "-d", duration]);
        (server, loaded)
    });
    let enough = loads.find(|(_, (_, figures))| any_response(figures));
    let (server, (code, figures)) = enough.expect("one of the times is enough");
    assert_eq!((code, errors(&figures)), (Some(0), vec![]), "{figures}");
    until("the server has no connection", || server.config.counts().connections == 0);
    let counts = server.config.counts();
    assert_eq!((counts.handshakes, counts.idle_timeouts), (4, 0), "{counts:?}");
}

#[test]
fn a_handshake_without_http3_is_refused_with_the_reason() {
    let files = Files::new(&["localhost"]);
    let server = answering(&files, "echo", |_| Answer::Nothing).expect("a server");
    let target = server.url();
    let (code, figures, log) = load(&["--http3", "--insecure", "-c", "2", "-d", "1h", &target]);
    assert_eq!((code, only_errors(&figures).0, requests(&figures)), (Some(1), "connect", 0), "{figures}");
    assert!(log.iter().any(|line| line.contains("cannot connect to") && line.contains("over QUIC")), "{log:?}");
}

#[test]
fn a_port_where_nobody_answers_ends_the_load_early_with_the_reason() {
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let target = url(silent.local_addr().expect("it is bound"), "");
    let (code, figures, log) = load(&["--http3", "--insecure", "-c", "3", "-d", "1h", "--timeout", "200ms", &target]);
    assert_eq!((code, only_errors(&figures).0, requests(&figures)), (Some(1), "connect", 0), "{figures}");
    assert!(log.iter().any(|line| line.contains("no answer over UDP")), "{log:?}");
}

#[test]
fn a_server_that_drains_sends_goaway_and_one_that_is_killed_stays_silent() {
    let load_for = |duration: &'static str, signal: Signal| {
        let mut program = serve();
        let target = url(program.ip(), "plaintext");
        let loading = std::thread::spawn(move || {
            load(&["--http3", "--insecure", "-c", "2", "-m", "4", "-d", duration, "--timeout", "200ms", &target])
        });
        until("requests came", || program.count("messages") > 100);
        program.signal(signal);
        program.until_ended();
        loading.join().expect("it does not panic")
    };
    for (signal, expected) in
        [(Signal::TERM, &["connect", "timeout", "closed"][..]), (Signal::KILL, &["connect", "timeout", "read"])]
    {
        // In real time: the load connects again, in vain, if it goes on for long enough after the end of the server.
        let mut loads = ["3s", "15s", "60s"].into_iter().map(|duration| load_for(duration, signal));
        let failed = loads.find(|(_, figures, _)| figures["errors"]["connect"] != 0);
        let (code, figures, _) = failed.expect("connecting fails");
        let kinds: Vec<_> = errors(&figures).iter().map(|(kind, _)| *kind).collect();
        assert!(kinds.iter().all(|kind| expected.contains(kind)), "{signal:?}: {figures}");
        assert_eq!(code, Some(1), "{figures}");
        assert!(requests(&figures) > 0, "{figures}");
        let goaways = if signal == Signal::TERM { 2 } else { 0 };
        assert_eq!(figures["goaways"], goaways, "{signal:?}: {figures}");
    }
}

#[test]
fn a_server_that_denies_the_load_is_an_error() {
    let program = Program::serve(&["--tls-self-signed", "--http3", "--loops", "1", "--deny", "127.0.0.0/8"]);
    let target = url(program.ip(), "plaintext");
    let (code, figures, _) = load_until(&["--http3", "--insecure", "-c", "2", &target], any_error);
    assert_eq!((code, requests(&figures)), (Some(1), 0), "{figures}");
}

#[test]
fn flags_that_contradict_http3_are_refused_with_advice() {
    for (arguments, advice) in [
        (&["--http3", "http://127.0.0.1:1/"][..], "give a URL of https"),
        (&["--http3", "--http2", "https://127.0.0.1:1/"], "give one of them"),
        (&["--http3", "--pipeline", "4", "https://127.0.0.1:1/"], "-m N"),
        (&["--http3", "wss://127.0.0.1:1/"], "--http3 is for HTTP"),
        (&["--http3", "redis://127.0.0.1:1/"], "--http3 is not for Redis"),
        (&["-m", "4", "https://127.0.0.1:1/"], "--http3"),
    ] {
        let (code, _, log) = run(&[&["load"], arguments].concat());
        assert_eq!(code, Some(2), "{arguments:?}");
        assert!(log.join("\n").contains(advice), "{arguments:?}: {log:?}");
    }
}
