//! More connections than the limits allow.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::faults::can_trace;
use crate::support::peer::{LAST, Peer, request};
use crate::support::program::{Directory, PATIENCE, Program, until};

#[test]
fn connections_over_the_limit_wait_and_are_served_in_turn() {
    for loops in ["1", "2"] {
        let program = Program::serve(&["--loops", loops, "--max-connections", "3"]);
        let mut served: Vec<_> = (0..3).map(|_| Peer::connect(&program)).collect();
        for peer in &mut served {
            assert_eq!(peer.get("/plaintext").status, 200);
        }
        let mut waiting: Vec<_> = (0..4).map(|_| Peer::connect(&program)).collect();
        for peer in &mut waiting {
            peer.send(LAST);
        }
        let before = program.ticks();
        for peer in &mut waiting {
            assert!(peer.receives_nothing(WHILE / 4), "the server is full");
        }
        let used = program.ticks() - before;
        assert!(used < TICKS_MAX, "{used} ticks were spent on waiting");
        for peer in &mut served {
            assert_eq!(peer.get("/plaintext").status, 200);
        }
        // One connection closes, and the waiting ones are served in its place, one after the other.
        served.pop();
        answer_all(waiting);
        for peer in &mut served {
            assert_eq!(peer.get("/plaintext").status, 200);
        }
    }
}

/// Whether a peer was reset without a byte.
fn is_refused(mut peer: std::net::TcpStream) -> bool {
    let patience = Some(PATIENCE);
    peer.set_read_timeout(patience).expect("a timeout that is not zero");
    std::io::Read::read(&mut peer, &mut [0]).is_err_and(|error| error.kind() == ErrorKind::ConnectionReset)
}

#[test]
fn networks_that_may_not_connect_are_reset() {
    for (flags, is_served) in [
        (&["--deny", "127.0.0.0/8"][..], false),
        (&["--allow", "10.0.0.0/8", "--allow", "::1"], false),
        (&["--allow", "127.0.0.1", "--deny", "10.0.0.0/8"], true),
    ] {
        let mut program = Program::serve(&[&["--loops", "1"], flags].concat());
        if is_served {
            assert_eq!(Peer::connect(&program).get("/plaintext").status, 200);
        } else {
            assert!(is_refused(std::net::TcpStream::connect(program.ip()).expect("it listens")));
            program.until_logged("connection refused", 1);
        }
        program.signal(Signal::TERM);
        assert_eq!(program.until_ended().code(), Some(0));
    }
}

#[test]
fn an_address_has_no_more_connections_than_it_may() {
    let program = Program::serve(&["--loops", "2", "--max-connections-per-address", "2"]);
    let mut served: Vec<_> = (0..2).map(|_| Peer::connect(&program)).collect();
    served.iter_mut().for_each(|peer| assert_eq!(peer.get("/plaintext").status, 200));
    assert!(is_refused(std::net::TcpStream::connect(program.ip()).expect("it listens")));
    served.iter_mut().for_each(|peer| assert_eq!(peer.get("/plaintext").status, 200));
}

#[test]
fn an_address_opens_no_more_connections_than_its_burst() {
    let program = Program::serve(&["--loops", "2", "--connection-rate-per-address", "1/m:3"]);
    (0..3).for_each(|_| assert_eq!(Peer::connect(&program).get("/plaintext").status, 200));
    assert!(is_refused(std::net::TcpStream::connect(program.ip()).expect("it listens")));
    let exempt = ["--connection-rate-per-address", "1/m:3", "--exempt", "127.0.0.1"];
    let program = Program::serve(&[&["--loops", "1"][..], &exempt].concat());
    (0..9).for_each(|_| assert_eq!(Peer::connect(&program).get("/plaintext").status, 200));
}

#[test]
fn every_connection_is_served_by_a_server_that_is_always_full() {
    for loops in ["1", "2"] {
        let program = Program::serve(&["--loops", loops, "--max-connections", "5"]);
        let mut peers: Vec<_> = (0..100).map(|_| Peer::connect(&program)).collect();
        for peer in &mut peers {
            peer.send(LAST);
        }
        answer_all(peers);
    }
}

#[test]
fn without_descriptors_existing_connections_are_served() {
    let started = Instant::now();
    let program = Program::with_descriptors(64, &["--loops", "1", "--max-connections", "1000"]);
    let mut peers: Vec<_> = (0..200).map(|_| Peer::connect(&program)).collect();
    for peer in &mut peers {
        peer.send(request("GET", "/plaintext"));
    }
    program.until_logged("accept failed", 1);
    let (begun, before, failed) = (Instant::now(), program.ticks(), program.count("accepts_failed"));
    std::thread::sleep(WHILE);
    until("another attempt", || program.count("accepts_failed") > failed);
    let (used, failed) = (program.ticks() - before, program.count("accepts_failed") - failed);
    assert!(used < TICKS_MAX, "{used} ticks were spent on waiting");
    // The server retries at intervals.
    let most = 100 * (begun.elapsed().as_millis() / WHILE.as_millis());
    assert!(u128::from(failed) < most, "accepting was tried {failed} times");

    let mut first = peers.remove(0);
    assert_eq!(first.reply().status, 200);
    assert_eq!(first.get("/bytes/100000").body.len(), 100_000);
    drop(first);
    // Waiting connections are accepted as earlier ones close.
    for mut peer in peers {
        assert_eq!(peer.reply().status, 200);
    }
    assert_eq!(Peer::connect(&program).get("/plaintext").status, 200);
    let lines: Vec<_> = program.log().into_iter().filter(|line| line.contains("accept failed")).collect();
    // The server repeats the line after a minute.
    assert!(lines.len() as u64 <= 1 + started.elapsed().as_secs() / 60, "{lines:?}");
    assert!(lines[0].contains("raise the limit of descriptors"), "{lines:?}");
    until("descriptors to be given back", || program.descriptors() < 20);
}

/// A restart is the way to raise the descriptor limit, so the takeover must not need a free descriptor.
#[test]
fn takeover_works_without_free_descriptors() {
    let directory = Directory::new();
    let path = directory.path("takeover");
    let arguments = ["--loops", "1", "--max-connections", "1000", "--takeover", &path];
    let mut program = Program::with_descriptors(64, &arguments);
    let mut peers: Vec<_> = (0..200).map(|_| Peer::connect(&program)).collect();
    for peer in &mut peers {
        peer.send(request("GET", "/plaintext"));
    }
    program.until_logged("accept failed", 1);

    let next = Program::serve(&arguments);
    next.until_logged("took over", 1);
    // The old server answers some connections, the new server those that waited.
    for peer in &mut peers {
        assert_eq!(peer.reply().status, 200);
    }
    assert_eq!(program.until_ended().code(), Some(0));
}

/// The thread that waits for a successor is held up on its way to `accept`, and connections use up the descriptors.
#[test]
fn takeover_works_if_descriptors_ran_out_before_accept() {
    if !can_trace() {
        return;
    }
    let directory = Directory::new();
    let path = directory.path("takeover");
    let arguments = ["--loops", "1", "--backend", "epoll", "--max-connections", "1000", "--takeover", &path];
    // The second call of each thread takes a second longer.
    let delay = "accept4:delay_enter=1000000:when=2";
    let mut program = Program::under_strace(&[delay], &directory.path("strace"), &arguments);
    program.limit_descriptors(64);
    // The loop has its second call behind it, and the takeover thread begins with its own.
    let mut peers: Vec<_> = (0..2).map(|_| Peer::connect(&program)).collect();
    for peer in &mut peers {
        assert_eq!(peer.get("/plaintext").status, 200);
    }
    drop(UnixStream::connect(&path).unwrap());
    program.until_logged("takeover failed", 1);
    peers.extend((0..200).map(|_| Peer::connect(&program)));
    program.until_logged("accept failed", 1);
    std::thread::sleep(WHILE * 2);

    let next = Program::serve(&["--loops", "1", "--takeover", &path]);
    next.until_logged("took over", 1);
    drop(peers);
    assert_eq!(program.until_ended().code(), Some(0));
}

/// A pending takeover must not flood the log.
#[test]
fn a_takeover_that_fails_for_lack_of_descriptors_is_logged_once() {
    let directory = Directory::new();
    let path = directory.path("takeover");
    let program = Program::with_descriptors(64, &["--loops", "1", "--max-connections", "1000", "--takeover", &path]);
    let mut peers: Vec<_> = (0..200).map(|_| Peer::connect(&program)).collect();
    for peer in &mut peers {
        peer.send(request("GET", "/plaintext"));
    }
    program.until_logged("accept failed", 1);
    // The server closes the takeover connection without a message; its descriptor now serves another connection.
    let stranger = || UnixStream::connect(&path).unwrap();
    drop(stranger());
    program.until_logged("takeover failed", 1);
    std::thread::sleep(WHILE);
    let waiting: Vec<_> = (0..3).map(|_| stranger()).collect();
    let before = program.ticks();
    std::thread::sleep(WHILE);
    let used = program.ticks() - before;
    assert!(used < TICKS_MAX, "{used} ticks were spent on waiting");
    let lines: Vec<_> = program.log().into_iter().filter(|line| line.contains("takeover failed")).collect();
    assert!(lines.len() <= 3, "{lines:?}");
    drop((waiting, peers));
    let mut next = Program::serve(&["--loops", "1", "--takeover", &path]);
    assert_eq!(Peer::connect(&next).get("/plaintext").status, 200);
    next.signal(Signal::TERM);
    assert_eq!(next.until_ended().code(), Some(0));
}

#[test]
fn a_server_without_descriptors_drains_on_a_signal() {
    let mut program = Program::with_descriptors(64, &["--loops", "2", "--max-connections", "1000"]);
    let mut peers: Vec<_> = (0..200).map(|_| Peer::connect(&program)).collect();
    for peer in &mut peers {
        peer.send(request("GET", "/plaintext"));
    }
    program.until_logged("accept failed", 1);
    program.signal(Signal::TERM);
    assert_eq!(program.until_ended().code(), Some(0));
}

#[test]
fn the_default_connection_limit_fits_the_descriptor_limit() {
    // The default limit is three quarters of the descriptors, so they never run out.
    let program = Program::with_descriptors(64, &["--loops", "2"]);
    let mut peers: Vec<_> = (0..200).map(|_| Peer::connect(&program)).collect();
    for peer in &mut peers {
        peer.send(LAST);
    }
    answer_all(peers);
    assert!(program.log().is_empty(), "{:?}", program.log());
}

/// Reads the last response of each peer concurrently: the order of service is unspecified.
fn answer_all(peers: Vec<Peer>) {
    let answer = |mut peer: Peer| {
        std::thread::spawn(move || {
            assert_eq!(peer.reply().status, 200);
            peer.expect_end();
        })
    };
    let threads: Vec<_> = peers.into_iter().map(answer).collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

/// How long the test observes the idle server.
const WHILE: Duration = Duration::from_secs(1);

/// A fifth of the observed time: waiting costs a fraction of that, a busy loop all of it.
const TICKS_MAX: u64 = 20;
