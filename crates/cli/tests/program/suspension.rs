//! A process that is stopped for longer than its timeouts: requests that were sent in time are answered.
//!
//! The clock of another process is real time: no test can turn it on. The steps before the stop are measured, and if
//! they took longer than the timeout allows, they are repeated with a longer one.

use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::peer::Peer;
use crate::support::program::{Program, can_use_uring, until};

/// The statuses of peers that send the first part, and then the second part while the server is stopped for longer than
/// its timeout.
fn statuses(backend: &str, first: &str, second: &str) -> Vec<u16> {
    let timeouts = [1, 4, 16, 64].into_iter();
    timeouts.filter_map(|timeout| statuses_in_time(backend, first, second, timeout)).next().expect("a timeout suffices")
}

/// The same with a timeout of so many seconds, or `None` if it may have expired before the server was stopped.
fn statuses_in_time(backend: &str, first: &str, second: &str, timeout: u64) -> Option<Vec<u16>> {
    let seconds = timeout.to_string();
    let arguments = ["--loops", "1", "--backend", backend, "--request-timeout", &seconds, "--idle-timeout", &seconds];
    let program = Program::serve(&arguments);
    let (begun, timeout) = (Instant::now(), Duration::from_secs(timeout));
    let mut peers: Vec<_> = (0..PEERS).map(|_| Peer::connect(&program)).collect();
    let is_late = || begun.elapsed() >= timeout;
    until("all are connected", || program.count("connections") == PEERS as u64 || is_late());
    if is_late() {
        return None;
    }
    peers.iter_mut().for_each(|peer| peer.send(first));
    let received = (PEERS * first.len()) as u64;
    until("the first parts are received", || program.count("received_bytes") >= received || is_late());
    if is_late() {
        return None;
    }
    if first.ends_with("\r\n\r\n") && first.starts_with("GET") {
        peers.iter_mut().for_each(|peer| assert_eq!(peer.reply().status, 200));
    }
    program.signal(Signal::STOP);
    program.until_stopped();
    if is_late() {
        return None;
    }
    peers.iter_mut().for_each(|peer| peer.send(second));
    // Twice the timeout and the granularity of the server's timers: each deadline has passed.
    sleep(timeout * 2 + Duration::from_millis(500));
    program.signal(Signal::CONT);
    Some(peers.iter_mut().map(|peer| peer.reply().status).collect())
}

fn backends() -> &'static [&'static str] {
    if can_use_uring() { &["epoll", "uring"] } else { &["epoll"] }
}

#[test]
fn heads_completed_while_the_process_was_stopped_are_answered() {
    for backend in backends() {
        let statuses = statuses(backend, "GET /plaintext HTTP/1.1\r\nHost: a", "\r\n\r\n");
        assert_eq!(statuses, [200; PEERS], "{backend}");
    }
}

#[test]
fn bodies_completed_while_the_process_was_stopped_are_answered() {
    for backend in backends() {
        let first = "POST /sum HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nab";
        assert_eq!(statuses(backend, first, "cd"), [200; PEERS], "{backend}");
    }
}

#[test]
fn requests_sent_on_idle_connections_during_a_stop_are_answered() {
    for backend in backends() {
        let request = "GET /plaintext HTTP/1.1\r\nHost: a\r\n\r\n";
        assert_eq!(statuses(backend, request, request), [200; PEERS], "{backend}");
    }
}

const PEERS: usize = 300;
