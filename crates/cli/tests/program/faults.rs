//! Fault injection into system calls, on epoll; `faults_on_uring.rs` has those of the other driver. strace makes some
//! of the server's calls fail while clients send requests: a fault costs at most the connection that it hits.
//!
//! Only errors that a real kernel returns are injected, and they determine the claims. Errors of one connection break
//! that connection; errors without a connection (no descriptor, no memory, a signal) are retried.
//! Left out, and why:
//! - EAGAIN from `recvfrom` with bytes waiting, from `accept4` with connections waiting, and from `sendto` and
//!   `sendmsg` with free space: on an edge-triggered socket EAGAIN promises a later edge. A kernel that breaks the
//!   promise has lost the wake-up, and a driver could recover only by polling every socket.
//! - an error from `close`: Linux frees the descriptor all the same, whereas strace would skip the call.
//! - `sendfile`: the program sends no files.
//!
//! The byte counts of calls are not changed either: short sends and receives occur naturally in other tests.

use std::io::{self, ErrorKind, Read};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::peer::{LAST, Peer, assert_same, letters, pattern, post, request};
use crate::support::program::{Directory, PATIENCE, Program, can_use, refused, strace, until};

#[test]
fn accept_continues_after_any_error() {
    // The first call fails, and then every seventh.
    for error in ["EMFILE", "ENFILE", "ENOBUFS", "ENOMEM", "ECONNABORTED", "EINTR", "EPROTO", "ENETDOWN", "EPERM"] {
        let broken = ask_on_epoll(&[&format!("accept4:error={error}:when=1+7")]);
        // A connection stays in the backlog if `accept4` fails.
        assert!(broken.is_none_or(|broken| broken == 0), "{error}: {broken:?} broke");
    }
}

#[test]
fn a_persistently_failing_accept_costs_no_cpu_time() {
    if !can_trace() {
        return;
    }
    let directory = Directory::new();
    for error in ["EMFILE", "ENOBUFS"] {
        let fault = format!("accept4:error={error}:when=1+");
        let (log, begun) = (directory.path("strace"), Instant::now());
        let program = Program::under_strace(&[&fault], &log, &["--loops", "1", "--backend", "epoll"]);
        let _waiting: Vec<_> = (0..10).map(|_| Peer::connect(&program)).collect();
        program.until_logged("accept failed", 1);
        assert_idle(&program, &[&fault]);
        // The server repeats the line after a minute.
        assert!(program.log().len() as u64 <= 1 + begun.elapsed().as_secs() / 60, "{:?}", program.log());
        // A busy loop under strace mostly waits for strace, so CPU time alone would not reveal it.
        let tried = hits(&log, "accept4");
        // The server pauses for 100 ms behind each; strace writes up to two lines of one.
        let most = 10 + begun.elapsed().as_millis() / 50;
        assert!(tried as u128 <= most, "accepting was tried {tried} times, and {most} are right");
    }
}

#[test]
fn a_failed_receive_closes_its_connection_only() {
    for error in ["ECONNRESET", "ETIMEDOUT", "EHOSTUNREACH", "ENOMEM", "ENOBUFS"] {
        let broken = ask_on_epoll(&[&format!("recvfrom:error={error}:when=1+7")]);
        assert!(broken.is_none_or(|broken| broken > 0), "{error} broke nothing");
    }
}

#[test]
fn a_failed_send_closes_its_connection_only() {
    for error in ["EPIPE", "ECONNRESET", "ENOBUFS", "ENOMEM", "EHOSTUNREACH"] {
        for call in ["sendto", "sendmsg"] {
            let broken = ask_on_epoll(&[&format!("{call}:error={error}:when=1+7")]);
            assert!(broken.is_none_or(|broken| broken > 0), "{call}: {error} broke nothing");
        }
    }
}

#[test]
fn an_interrupted_call_breaks_no_connection() {
    for call in ["accept4", "recvfrom", "sendto", "sendmsg", "epoll_wait"] {
        let broken = ask_on_epoll(&[&format!("{call}:error=EINTR:when=1+2")]);
        assert!(broken.is_none_or(|broken| broken == 0), "{call}: {broken:?} broke");
    }
}

/// The first two calls of a loop register its waker and its listener, without which it does not start.
#[test]
fn a_failed_epoll_registration_closes_its_connection_only() {
    for error in ["ENOMEM", "ENOSPC"] {
        let broken = ask_on_epoll(&[&format!("epoll_ctl:error={error}:when=3+7")]);
        assert!(broken.is_none_or(|broken| broken > 0), "{error} broke nothing");
    }
}

/// `shutdown` fails if the peer has already closed, and then the peer needs no FIN.
#[test]
fn a_failed_shutdown_breaks_no_connection() {
    let broken = ask_on_epoll(&["shutdown:error=ENOTCONN:when=1+2"]);
    assert!(broken.is_none_or(|broken| broken == 0), "{broken:?} broke");
}

/// The first writes are the start-up line, and the first log line of the loop.
#[test]
fn a_failed_log_write_breaks_no_connection() {
    for error in ["ENOSPC", "EAGAIN", "EIO"] {
        let broken = ask_on_epoll(&[&format!("write:error={error}:when=2+1")]);
        assert!(broken.is_none_or(|broken| broken == 0), "{error}: {broken:?} broke");
    }
}

/// After a single error the loop waits again.
#[test]
fn a_loop_continues_after_one_failed_wait() {
    let broken = ask_on_epoll(&["epoll_wait:error=ENOMEM:when=3+5"]);
    assert!(broken.is_none_or(|broken| broken == 0), "{broken:?} broke");
}

/// Only a bug in the driver causes this. The program must then exit rather than hang.
#[test]
fn a_loop_that_cannot_wait_ends_the_program_with_an_error() {
    if !can_trace() {
        return;
    }
    assert_ends_where_it_cannot_wait("epoll", "epoll_wait:error=EINVAL:when=3+");
}

pub(crate) fn assert_ends_where_it_cannot_wait(backend: &str, fault: &str) {
    let directory = Directory::new();
    let arguments = ["--loops", "2", "--backend", backend];
    let mut program = Program::under_strace(&[fault], &directory.path("strace"), &arguments);
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE
        && Peer::try_to(&program.address(), None).is_ok_and(|mut peer| peer.try_send(LAST).is_ok())
        && program.is_running()
    {}
    assert_eq!(program.until_ended().code(), Some(1));
    program.until_logged("an event loop has ended", 1);
}

#[test]
fn the_server_survives_all_faults_at_once() {
    ask_on_epoll(&[
        "accept4:error=EMFILE:when=1+7",
        "recvfrom:error=ECONNRESET:when=3+11",
        "sendto:error=EPIPE:when=5+13",
        "sendmsg:error=ENOBUFS:when=2+5",
        "epoll_wait:error=EINTR:when=1+3",
        "epoll_ctl:error=ENOSPC:when=3+11",
    ]);
}

/// Tests that count lines leave these out, by their text.
#[test]
fn a_turn_with_a_call_that_takes_long_is_logged() {
    if !can_trace() {
        return;
    }
    let directory = Directory::new();
    let faults = ["sendto:delay_enter=3000000:when=1", "sendmsg:delay_enter=3000000:when=1"];
    let arguments = ["--loops", "1", "--backend", "epoll"];
    let program = Program::under_strace(&faults, &directory.path("strace"), &arguments);
    assert_eq!(Peer::connect(&program).get("/plaintext").status, 200);
    for text in ["slow turn", "loop stalled"] {
        until(text, || program.log_of_long_turns().iter().any(|line| line.contains(text)));
    }
    assert_eq!(program.log(), Vec::<String>::new());
}

#[test]
fn a_failed_start_is_one_error_line_and_exit_code_2() {
    if !can_trace() {
        return;
    }
    for fault in [
        "socket:error=EMFILE:when=1",
        "bind:error=EACCES:when=1",
        "bind:error=EADDRINUSE:when=1",
        "listen:error=EADDRINUSE:when=1",
        "setsockopt:error=ENOMEM:when=1",
        "getsockname:error=ENOBUFS:when=1",
        "epoll_create1:error=EMFILE:when=1",
        "eventfd2:error=ENFILE:when=1",
        "epoll_ctl:error=ENOMEM:when=1",
        "epoll_ctl:error=ENOSPC:when=2",
        "socketpair:error=EMFILE:when=1",
        // The threads of the first and of the second loop.
        "clone3:error=EAGAIN:when=1",
        "clone3:error=EAGAIN:when=2",
    ] {
        assert_no_start("epoll", fault);
    }
}

/// Asserts that the program prints in one line why it does not start. Returns the line.
pub(crate) fn assert_no_start(backend: &str, fault: &str) -> String {
    let directory = Directory::new();
    let mut command = strace(&[fault], &directory.path("strace"));
    command.args(["serve", "--listen", "127.0.0.1:0", "--loops", "2", "--backend", backend]);
    let (code, errors) = refused(command);
    assert_eq!((code, errors.len()), (Some(2), 1), "{fault}: {errors:?}");
    assert!(errors[0].starts_with("tidegate: "), "{fault}: {errors:?}");
    errors[0].clone()
}

fn ask_on_epoll(faults: &[&str]) -> Option<usize> {
    ask_under("epoll", faults)
}

/// Sends requests to a server whose calls fail. Returns how many connections broke, or `None` without strace.
pub(crate) fn ask_under(backend: &str, faults: &[&str]) -> Option<usize> {
    if !can_trace() {
        return None;
    }
    let directory = Directory::new();
    let log = directory.path("strace");
    let mut program = Program::under_strace(faults, &log, &["--loops", "1", "--backend", backend]);
    let descriptors = program.descriptors();
    let mut broken = 0;
    let mut kept: Vec<_> = (0..KEPT).map(|_| None).collect();
    for round in 0..ROUNDS {
        for peer in &mut kept {
            broken += ask(&program, peer);
        }
        // Two short connections: one that the peer closes, and one that the server closes.
        broken += ask(&program, &mut None);
        broken += usize::from(try_last(&program).is_err());
        let gone = Peer::try_to(&program.address(), None).unwrap();
        if round % 2 == 0 { drop(gone) } else { gone.reset() }
    }
    drop(kept);
    until("descriptors to be given back", || program.descriptors() <= descriptors);
    assert_idle(&program, faults);
    // The server still answers every connection on which no call fails.
    let answers = (0..10).filter(|_| try_last(&program).is_ok());
    assert!(answers.count() > 1, "{faults:?}");
    until("descriptors to be given back", || program.descriptors() <= descriptors);
    assert!(program.is_running(), "{faults:?}: {:?}", program.log());
    if faults.iter().all(|fault| LOOPS_ONLY.iter().any(|call| fault.starts_with(call))) {
        program.signal(Signal::TERM);
        assert_eq!(program.until_ended().code(), Some(0), "{faults:?}: {:?}", program.log());
    }
    assert!(program.log().len() < LINES_MAX, "{faults:?}: {:?}", program.log());

    for fault in faults {
        let hits = hits(&log, fault.split(':').next().unwrap());
        assert!(hits > 1, "{fault} hit {hits} times");
    }
    Some(broken)
}

/// How often strace has made a call fail, according to its log.
fn hits(log: &str, call: &str) -> usize {
    let log = std::fs::read_to_string(log).unwrap();
    log.lines().filter(|line| line.contains(call) && line.ends_with("(INJECTED)")).count()
}

/// Requests a small and a large response, and the echo of a large request, on the kept connection if there is one, and
/// otherwise on a new connection, which is then kept. Returns 1 if the connection broke.
fn ask(program: &Program, kept: &mut Option<Peer>) -> usize {
    let Ok(mut peer) = kept.take().map_or_else(|| Peer::try_to(&program.address(), None), Ok) else { return 1 };
    for (target, body) in [("/plaintext", b"Hello, World!".to_vec()), ("/bytes/300000", letters(300_000))] {
        if try_exchange(&mut peer, request("GET", target), &body).is_err() {
            return 1;
        }
    }
    // The server receives the body while it sends the echo.
    let body = pattern(100_000);
    if try_exchange(&mut peer, post("/echo", &body), &body).is_err() {
        return 1;
    }
    *kept = Some(peer);
    0
}

/// One request on a connection of its own, which the server closes. A connection that is reset before `connect` returns
/// fails there.
fn try_last(program: &Program) -> io::Result<()> {
    let mut peer = Peer::try_to(&program.address(), None)?;
    try_exchange(&mut peer, LAST, b"Hello, World!")
}

/// Sends a request and reads the response, of which every received byte must be right. A timeout is neither a response
/// nor a broken connection, and panics.
fn try_exchange(peer: &mut Peer, request: impl AsRef<[u8]>, expected: &[u8]) -> io::Result<()> {
    peer.try_send(&request)?;
    let mut answer = Vec::new();
    let mut piece = [0; 64 * 1024];
    loop {
        match (&peer.socket).read(&mut piece) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(length) => answer.extend_from_slice(&piece[..length]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let request = request.as_ref();
                panic!("neither answered nor broken: {}", request[..request.len().min(200)].escape_ascii())
            }
            Err(error) => return Err(error),
        }
        if let Some(head) = answer.windows(4).position(|four| four == b"\r\n\r\n") {
            let body = &answer[head + 4..];
            assert_same(body, &expected[..body.len()]);
            if body.len() == expected.len() {
                return Ok(());
            }
        }
    }
}

/// Asserts that the server becomes idle and does not spin: strace makes calls slow, but an idle server makes none.
fn assert_idle(program: &Program, faults: &[&str]) {
    let begun = Instant::now();
    loop {
        let before = program.ticks();
        std::thread::sleep(WHILE);
        let used = program.ticks() - before;
        if used < TICKS_MAX {
            return;
        }
        // Its last requests keep the program busy for a while, and a busy machine makes that longer.
        assert!(begun.elapsed() < PATIENCE, "{faults:?}: it goes on doing something: {used} ticks in {WHILE:?}");
    }
}

/// Whether strace is installed, and is permitted to trace.
pub(crate) fn can_trace() -> bool {
    can_use("strace", &["-f", "--seccomp-bpf", "-o", "/dev/null", "true"])
}

/// Calls that only the loops make. A signal reaches its thread through a socket of our own, and from there reaches a
/// loop through an eventfd, which do not fail.
const LOOPS_ONLY: [&str; 6] = ["accept4", "io_uring_enter", "epoll_wait", "epoll_ctl", "sendmsg", "shutdown"];

/// Connections that are kept and reused.
const KEPT: usize = 4;

/// The number of rounds of requests on each of them.
const ROUNDS: usize = 6;

/// How long the test observes the idle server.
const WHILE: Duration = Duration::from_millis(200);

/// A quarter of that time: waiting costs nothing, a busy loop all of it.
const TICKS_MAX: u64 = 5;

/// The bound of log lines: one per broken connection is right, one per failed call is too many.
const LINES_MAX: usize = 100;
