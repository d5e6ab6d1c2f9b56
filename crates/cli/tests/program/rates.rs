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

    let program = Program::serve(&["--loops", "1", "--request-timeout", "3", "--body-rate-min", "0"]);
    let mut peer = Peer::connect(&program);
    peer.send(body);
    for _ in 0..50 {
        std::thread::sleep(MOMENT);
        peer.send("a");
    }
    peer.send([b'a'; 100_000 - 50]);
    assert_eq!(peer.reply().status, 200);
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

    let program = Program::serve(&["--loops", "1", "--write-timeout", "2", "--write-rate-min", "0"]);
    let mut peer = Peer::narrow(&program);
    peer.send(request("GET", "/bytes/1000000000"));
    let begun = Instant::now();
    while begun.elapsed() < 50 * MOMENT {
        taste(&peer);
        std::thread::sleep(MOMENT / 10);
    }
    assert_eq!(program.count("closed_write_timeout"), 0);
    assert_eq!(program.count("connections"), 1);
}

const MOMENT: Duration = Duration::from_millis(100);
