//! Deadlines of any protocol, and rates, by the flags that set them.

use std::time::{Duration, Instant};

use crate::support::peer::{Peer, letters, request};
use crate::support::program::{Program, run, until};

#[test]
fn a_silent_connection_closes_in_good_order() {
    let program = Program::serve(&["--loops", "1", "--silence-timeout", "1"]);
    let mut peer = Peer::connect(&program);
    assert_eq!(peer.get("/plaintext").text(), "Hello, World!");
    peer.expect_end();
    drop(peer);
    until("it to be counted", || program.count("closed_idle_timeout") == 1);
}

#[test]
fn a_request_that_stops_in_its_head_is_late() {
    let program = Program::serve(&["--loops", "1", "--read-timeout", "1", "--read-rate-min", "10"]);
    let mut peer = Peer::connect(&program);
    assert_eq!(peer.get("/plaintext").text(), "Hello, World!");
    peer.send("GET / HT");
    peer.expect_end();
    drop(peer);
    until("it to be counted", || program.count("closed_read_timeout") == 1);
}

#[test]
fn a_handshake_that_never_ends_is_reset() {
    let program = Program::serve(&["--loops", "1", "--tls-self-signed", "--handshake-timeout", "1"]);
    let mut peer = Peer::connect(&program);
    let _ = peer.rest();
    until("it to be counted", || program.count("closed_handshake_timeout") + program.count("closed_protocol") == 1);
}

#[test]
fn a_connection_of_age_ends_after_the_request_in_progress() {
    let program = Program::serve(&["--loops", "1", "--age-max", "1", "--age-grace", "60"]);
    let (mut idle, mut busy) = (Peer::connect(&program), Peer::connect(&program));
    busy.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nab");
    idle.expect_end();
    busy.send("cd");
    assert_eq!(busy.reply().body, b"abcd");
    until("both to be counted", || program.count("connections") == 0 || program.count("closed_done") > 0);
    assert_eq!(program.count("closed_age_timeout"), 0);
}

#[test]
fn a_connection_and_a_loop_have_their_rates() {
    for (flag, connections, least) in
        [("--rate-per-connection", 1, 0.8), ("--rate-per-loop", 2, 1.8), ("--rate-per-connection", 2, 0.8)]
    {
        let program = Program::serve(&["--loops", "1", flag, "out=100k:20000"]);
        let mut peers: Vec<_> = (0..connections).map(|_| Peer::connect(&program)).collect();
        let begun = Instant::now();
        peers.iter_mut().for_each(|peer| peer.send(request("GET", "/bytes/100000")));
        for peer in &mut peers {
            assert!(peer.reply().body == letters(100_000), "{flag}");
        }
        let took = begun.elapsed();
        assert!(took >= Duration::from_secs_f64(least), "{took:?} for {connections} with {flag}");
    }
    // The other direction.
    let program = Program::serve(&["--loops", "1", "--rate-per-connection", "in=100k:10k"]);
    let mut peer = Peer::connect(&program);
    let begun = Instant::now();
    peer.send(format!("POST /sum HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", 200_000));
    peer.send(letters(200_000));
    assert_eq!(peer.reply().status, 200);
    // One receive may exceed the rate.
    assert!(begun.elapsed() >= Duration::from_millis(1_200), "{:?}", begun.elapsed());
}

#[test]
fn rates_that_are_none_are_refused() {
    for rate in ["0", "fast", "up=1M", "1M:0"] {
        let (code, _, errors) = run(&["serve", "--listen", "127.0.0.1:0", "--rate-per-connection", rate]);
        assert!(code == Some(2) && errors[0].contains("--rate-per-connection"), "{errors:?}");
    }
}
