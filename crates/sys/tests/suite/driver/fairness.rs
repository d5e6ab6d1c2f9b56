//! Light sockets report before heavy ones, whatever the number of heavy sockets and the order of events.

use std::io::Write;

use tidegate_buffer::Outbound;
use tidegate_sys::{Class, Completion, Token};

use crate::driver::harness::{Family, Harness, PATIENCE, Report, any_port, pattern};
use crate::driver::which::Which;

/// Sockets that have received so much that they are heavy, with their peers.
fn heavy_pairs(harness: &mut Harness, family: Family, count: usize) -> Vec<(Token, socket2::Socket)> {
    let mut pairs: Vec<_> = (0..count).map(|_| harness.pair(family)).collect();
    for (token, peer) in &mut pairs {
        harness.receive(*token, true);
        peer.write_all(&pattern(HEAVY_BYTES)).unwrap();
        harness.until_received(*token, HEAVY_BYTES);
    }
    harness.run_until_idle();
    pairs
}

/// The tokens of the completions of the next turn that has any, in order.
fn order(harness: &mut Harness) -> Vec<Token> {
    loop {
        harness.driver.wait(Some(PATIENCE)).unwrap();
        let mut order = Vec::new();
        while let Some((token, completion)) = harness.next() {
            order.push(token);
            harness.record(token, completion);
        }
        if !order.is_empty() {
            return order;
        }
    }
}

/// Runs a scenario until both events that it causes were in the same turn: the kernel may report one of them a turn later,
/// as one of 32 edges on io_uring. `scenario` checks their order and returns whether they were.
fn until_in_one_turn(scenario: impl Fn() -> bool) {
    assert!((0..ATTEMPTS).any(|_| scenario()), "both events were never reported in one turn");
}

pub(crate) fn a_light_socket_reports_before_heavy_ones_that_were_first(driver: Which) {
    for family in Family::BOTH {
        until_in_one_turn(|| {
            let mut harness = Harness::on(driver);
            let mut heavy = heavy_pairs(&mut harness, family, 100);
            let (light, mut light_peer) = harness.pair(family);
            harness.receive(light, true);
            light_peer.write_all(b"a").unwrap();
            assert_eq!(harness.until_received(light, 1), b"a");
            harness.run_until_idle();
            for (_, peer) in &mut heavy {
                peer.write_all(&pattern(HEAVY_BYTES)).unwrap();
            }
            light_peer.write_all(b"b").unwrap();
            let order = order(&mut harness);
            let place = order.iter().position(|token| *token == light);
            assert!(matches!(place, None | Some(0)), "{order:?}");
            for (token, _) in &heavy {
                harness.until_received(*token, HEAVY_BYTES);
            }
            place.is_some() && order.len() > 1
        });
    }
}

/// The queue keeps its order, so no heavy socket has a second receive before another had its first.
pub(crate) fn heavy_sockets_take_turns(driver: Which) {
    let mut harness = Harness::on(driver);
    let mut heavy = heavy_pairs(&mut harness, Family::Tcp, 20);
    for (_, peer) in &mut heavy {
        peer.write_all(&pattern(4 * HEAVY_BYTES)).unwrap();
    }
    // Each turn ends after three heavy receives, as in a loop whose time is up.
    let mut receives = vec![0_usize; heavy.len()];
    while receives.iter().any(|count| *count < 2) {
        harness.driver.wait(Some(PATIENCE)).unwrap();
        while let Some((token, completion)) = harness.driver.next(Class::Light) {
            harness.record(token, completion);
        }
        for _ in 0..3 {
            let Some((token, completion)) = harness.driver.next(Class::Heavy) else { break };
            let place = heavy.iter().position(|(of, _)| *of == token);
            if let (Some(place), Completion::Received(_)) = (place, &completion) {
                receives[place] += 1;
                let least = receives.iter().min().copied().unwrap_or(0);
                assert!(receives[place] <= least + 2, "{receives:?}");
            }
            harness.record(token, completion);
        }
    }
}

pub(crate) fn a_new_connection_comes_before_heavy_sockets(driver: Which) {
    until_in_one_turn(|| {
        let mut harness = Harness::on(driver);
        let mut heavy = heavy_pairs(&mut harness, Family::Tcp, 50);
        let (_, address) = harness.listen(&any_port());
        harness.run_until_idle();
        for (_, peer) in &mut heavy {
            peer.write_all(&pattern(HEAVY_BYTES)).unwrap();
        }
        let _client = std::net::TcpStream::connect(address.ip().unwrap()).unwrap();
        harness.driver.wait(Some(PATIENCE)).unwrap();
        let mut order = Vec::new();
        while let Some((_, completion)) = harness.next() {
            order.push(matches!(completion, Completion::Accepted(Ok(_))));
        }
        let place = order.iter().position(|accepted| *accepted);
        assert!(matches!(place, None | Some(0)), "{order:?}");
        place.is_some() && order.len() > 1
    });
}

/// A socket whose peer reads less than it is sent is heavy, so it reports room after light sockets.
pub(crate) fn a_light_socket_reports_before_room_for_a_heavy_one(driver: Which) {
    until_in_one_turn(|| {
        let mut harness = Harness::on(driver);
        let (blocked, mut reader) = harness.pair(Family::Unix);
        let (light, mut light_peer) = harness.pair(Family::Unix);
        harness.receive(light, true);
        let mut queue = Outbound::new(&harness.pool);
        queue.link_bytes(pattern(16 << 20).into());
        queue.flush();
        let taken = harness.send_until_blocked(blocked, &mut queue);
        harness.run_until_idle();
        harness.take_all();
        std::io::Read::read_exact(&mut reader, &mut vec![0; taken]).unwrap();
        light_peer.write_all(b"a").unwrap();
        let first = order(&mut harness);
        let is_in_one_turn = first.len() == 2;
        let order = if is_in_one_turn { first } else { [first, order(&mut harness)].concat() };
        assert!(order == [light, blocked] || !is_in_one_turn && order == [blocked, light], "{order:?}");
        assert_eq!(harness.take(blocked), [Report::Sent(Ok(0))]);
        is_in_one_turn
    });
}

const HEAVY_BYTES: usize = 20_000;

const ATTEMPTS: usize = 32;
