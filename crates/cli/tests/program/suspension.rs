//! A process that is stopped for longer than its timeouts: requests that were sent in time are answered.

use std::time::Duration;

use rustix::process::Signal;

use crate::support::peer::Peer;
use crate::support::program::{Program, can_use_uring, until};

/// The statuses of peers that send the first part, and then the second part while the server is stopped for longer than
/// its timeout.
fn statuses(backend: &str, first: &str, second: &str) -> Vec<u16> {
    let arguments = ["--loops", "1", "--backend", backend, "--request-timeout", "1", "--idle-timeout", "1"];
    let program = Program::serve(&arguments);
    let mut peers: Vec<_> = (0..PEERS).map(|_| Peer::connect(&program)).collect();
    until("all are connected", || program.count("connections") == PEERS as u64);
    peers.iter_mut().for_each(|peer| peer.send(first));
    let received = (PEERS * first.len()) as u64;
    until("the first parts are received", || program.count("received_bytes") >= received);
    if first.ends_with("\r\n\r\n") && first.starts_with("GET") {
        peers.iter_mut().for_each(|peer| assert_eq!(peer.reply().status, 200));
    }
    program.signal(Signal::STOP);
    peers.iter_mut().for_each(|peer| peer.send(second));
    std::thread::sleep(Duration::from_millis(2500));
    program.signal(Signal::CONT);
    peers.iter_mut().map(|peer| peer.reply().status).collect()
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
