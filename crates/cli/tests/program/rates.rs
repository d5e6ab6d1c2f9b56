//! Minimum rates: a peer that sends a body or reads a response more slowly is closed.

use std::io::Read;
use std::time::{Duration, Instant};

use crate::support::peer::{Peer, request};
use crate::support::program::{Program, until};

#[test]
fn a_body_below_the_minimum_rate_gets_408() {
    let body = "POST /sum HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n";
    let program = Program::serve(&["--loops", "1", "--request-timeout", "1", "--body-rate-min", "1000"]);
    let mut peer = Peer::connect(&program);
    peer.send(body);
    let mut sender = peer.sender();
    let sending = std::thread::spawn(move || {
        while sender.try_send("a").is_ok() {
            std::thread::sleep(MOMENT / 10);
        }
    });
    assert_eq!(peer.reply().status, 408);
    peer.finish();
    sending.join().unwrap();

    // Without a minimum, a body that comes byte by byte may take longer than the timeout. In real time: if the sender
    // was late, the next one has a longer timeout.
    let is_served = TIMEOUTS.into_iter().any(|seconds| {
        let timeout = Duration::from_secs(seconds);
        let seconds = seconds.to_string();
        let program = Program::serve(&["--loops", "1", "--request-timeout", &seconds, "--body-rate-min", "0"]);
        let mut peer = Peer::connect(&program);
        let (begun, mut last, mut longest, mut sent) = (Instant::now(), Instant::now(), Duration::ZERO, 0);
        peer.send(body);
        while begun.elapsed() < timeout * 2 {
            std::thread::sleep(MOMENT);
            if peer.sender().try_send("a").is_err() {
                break;
            }
            (sent, longest, last) = (sent + 1, longest.max(last.elapsed()), Instant::now());
        }
        if longest.max(last.elapsed()) >= timeout {
            return false;
        }
        peer.send(vec![b'a'; 100_000 - sent]);
        assert_eq!(peer.reply().status, 200);
        true
    });
    assert!(is_served, "the sender is late with every timeout");
}

#[test]
fn a_reader_below_the_minimum_rate_is_closed() {
    let taste = |peer: &Peer| {
        let _ = (&peer.socket).read(&mut [0; 1024]);
    };
    let program = Program::serve(&["--loops", "1", "--write-timeout", "1", "--write-rate-min", "10000000"]);
    let mut peer = Peer::narrow(&program);
    peer.send(request("GET", "/bytes/1000000000"));
    until("the reader to be closed", || {
        taste(&peer);
        program.count("closed_write_timeout") == 1
    });

    // Without a minimum, a slow reader is no late one. In real time, as above.
    let is_kept = TIMEOUTS.into_iter().any(|seconds| {
        let timeout = Duration::from_secs(seconds);
        let seconds = seconds.to_string();
        let program = Program::serve(&["--loops", "1", "--write-timeout", &seconds, "--write-rate-min", "0"]);
        let mut peer = Peer::narrow(&program);
        peer.send(request("GET", "/bytes/1000000000"));
        let begun = Instant::now();
        let (mut last, mut longest) = (begun, Duration::ZERO);
        while begun.elapsed() < timeout * 2 {
            (0..4).for_each(|_| taste(&peer));
            std::thread::sleep(MOMENT / 10);
            (longest, last) = (longest.max(last.elapsed()), Instant::now());
        }
        let is_open = program.count("closed_write_timeout") == 0 && program.count("connections") == 1;
        assert!(is_open || longest >= timeout / 2, "it is closed although it reads, at least every {longest:?}");
        is_open
    });
    assert!(is_kept, "the reader is late with every timeout");
}

/// In seconds.
const TIMEOUTS: [u64; 4] = [1, 4, 16, 64];

const MOMENT: Duration = Duration::from_millis(100);
