//! Bounds on the memory of connections, which catch regressions. `benches/` measures the published figures.

use std::time::Duration;

use crate::support::peer::{Peer, assert_same, letters, request};
use crate::support::program::{Program, until};

/// Makes the server allocate everything that it allocates once, and waits until it has freed the rest.
pub(crate) fn warm_up(program: &Program) {
    for _ in 0..3 {
        let mut peers: Vec<_> = (0..200).map(|_| Peer::connect(program)).collect();
        for peer in &mut peers {
            peer.send(request("GET", "/bytes/16384").repeat(8));
        }
        for peer in &mut peers {
            for _ in 0..8 {
                assert_eq!(peer.reply().body.len(), 16_384);
            }
        }
        drop(peers);
        until("descriptors to be given back", || program.descriptors() < 30);
    }
}

/// Resident memory, once it is stable.
pub(crate) fn settled(program: &Program) -> u64 {
    let mut last = program.resident();
    until("resident memory to settle", || {
        std::thread::sleep(Duration::from_millis(50));
        let before = std::mem::replace(&mut last, program.resident());
        before == last
    });
    last
}

pub(crate) fn assert_growth(what: &str, before: u64, after: u64, bound: u64) {
    let growth = after.saturating_sub(before);
    println!("{what}: resident memory grew by {growth} bytes; {bound} are allowed");
    assert!(growth <= bound, "{what}: {growth} bytes of growth are more than {bound}");
}

#[test]
fn a_server_without_connections_is_small() {
    let program = Program::serve(&["--loops", "1"]);
    let resident = settled(&program);
    let anonymous = program.anonymous();
    println!("resident at start: {resident} bytes, of them {anonymous} not of the program file");
    assert!(anonymous <= 3 << 19, "{anonymous} bytes");
    // The kernel maps pages of the program file beside those that are used, as far as its cache has them. Without optimisation
    // the code of all protocols takes 24 to 30 MiB.
    let resident_max = if cfg!(debug_assertions) { 40 << 20 } else { 28 << 20 };
    assert!(resident <= resident_max, "{resident} bytes");
}

#[test]
fn idle_connections_stay_within_their_memory_bound() {
    const CONNECTIONS: usize = 2_000;
    // Pages of the program itself become resident at any time, so the smallest growth of several servers is the one
    // that the connections cause.
    let growth = (0..3).map(|_| {
        let program = Program::serve(&["--loops", "1"]);
        warm_up(&program);
        let before = settled(&program);
        let mut peers: Vec<_> = (0..CONNECTIONS).map(|_| Peer::connect(&program)).collect();
        for peer in &mut peers {
            assert_eq!(peer.get("/plaintext").status, 200);
        }
        let growth = settled(&program).saturating_sub(before);
        // All connections are established.
        for peer in &mut peers {
            assert_eq!(peer.get("/plaintext").status, 200);
        }
        growth
    });
    let growth = growth.min().expect("there are three");
    assert_growth("idle connections", 0, growth, 640 * CONNECTIONS as u64);
}

#[test]
fn a_never_reading_connection_stays_small_and_loses_no_bytes() {
    const CONNECTIONS: usize = 200;
    let program = Program::serve(&["--loops", "1"]);
    warm_up(&program);
    let before = settled(&program);
    let mut stuck: Vec<_> = (0..CONNECTIONS).map(|_| Peer::narrow(&program)).collect();
    for peer in &mut stuck {
        peer.send(request("GET", "/bytes/16384").repeat(256));
    }
    for _ in 0..10 {
        assert_eq!(Peer::connect(&program).get("/plaintext").text(), "Hello, World!");
    }
    assert_growth("stuck connections", before, settled(&program), 64 * 1024 * CONNECTIONS as u64);

    let mut peer = stuck.pop().expect("there are many");
    let expected = letters(16_384);
    for _ in 0..256 {
        assert_same(&peer.reply().body, &expected);
    }
    assert_eq!(peer.get("/plaintext").status, 200);
    drop(stuck);
    until("descriptors to be given back", || program.descriptors() < 30);
    assert_growth("after stuck connections", before, settled(&program), 2 << 20);
}

/// The responses wait in the server's queues. The loop may be too busy to sleep until the peers are gone.
#[test]
fn memory_of_peers_that_have_stopped_reading_goes_back() {
    const CONNECTIONS: usize = 400;
    let program = Program::serve(&["--loops", "1"]);
    warm_up(&program);
    let before = settled(&program);
    let mut stuck: Vec<_> = (0..CONNECTIONS).map(|_| Peer::narrow(&program)).collect();
    for peer in &mut stuck {
        // As much as the kernel takes.
        peer.socket.set_nonblocking(true).expect("a socket");
        let _ = peer.try_send(request("GET", "/plaintext").repeat(8_000));
    }
    until("the responses to wait", || program.resident() > before + (8 << 20));
    drop(stuck);
    until("the memory to go back", || program.resident() < before + (3 << 20));
}

#[test]
fn over_the_memory_budget_the_largest_connections_are_shed() {
    const CONNECTIONS: usize = 400;
    const BUDGET: u64 = 2 << 20;
    let program = Program::serve(&["--loops", "1", "--memory-max", &BUDGET.to_string()]);
    // Stays under the budget too: the server must not shed connections that read.
    warm_up(&program);
    let before = settled(&program);
    let mut witness = Peer::connect(&program);
    let mut stuck: Vec<_> = (0..CONNECTIONS).map(|_| Peer::narrow(&program)).collect();
    let mut most = before;
    for (number, peer) in stuck.iter_mut().enumerate() {
        // Some connections are shed while their peers still send.
        let _ = peer.try_send(request("GET", "/bytes/1000").repeat(256));
        if number % 20 == 0 {
            assert_eq!(witness.get("/plaintext").text(), "Hello, World!");
            most = most.max(program.resident());
        }
    }
    assert_eq!(witness.get("/bytes/100000").body.len(), 100_000);
    assert_eq!(Peer::connect(&program).get("/plaintext").text(), "Hello, World!");
    most = most.max(settled(&program));
    assert_growth("stuck connections under a budget", before, most, BUDGET + (1 << 20));
    assert!(!program.until_logged("shed", 1).is_empty());
    // A shed connection is reset: a FIN would look like the end of a response.
    let shed = stuck.iter_mut().filter_map(|peer| peer.socket.take_error().unwrap()).count();
    assert!(shed > 0 && shed < CONNECTIONS, "{shed} of {CONNECTIONS} were shed");
}

#[test]
fn closed_connections_leave_no_memory_behind() {
    const CONNECTIONS: usize = 2_000;
    let program = Program::serve(&["--loops", "1"]);
    assert_eq!(Peer::connect(&program).get("/plaintext").status, 200);
    let before = settled(&program);
    for _ in 0..2 {
        let mut peers: Vec<_> = (0..CONNECTIONS).map(|_| Peer::connect(&program)).collect();
        for peer in &mut peers {
            assert_eq!(peer.get("/plaintext").status, 200);
        }
        drop(peers);
        until("descriptors to be given back", || program.descriptors() < 30);
    }
    assert_growth("connections that are gone", before, settled(&program), 2 << 20);
}
