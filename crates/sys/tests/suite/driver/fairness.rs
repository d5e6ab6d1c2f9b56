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

pub(crate) fn a_light_socket_reports_before_heavy_ones_that_were_first(driver: Which) {
    for family in Family::BOTH {
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
        assert_eq!(order.first(), Some(&light), "{order:?}");
        for (token, _) in &heavy {
            harness.until_received(*token, HEAVY_BYTES);
        }
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
    assert_eq!(order.iter().position(|accepted| *accepted), Some(0), "{order:?}");
}

/// A socket whose peer reads less than it is sent is heavy, so it reports room after light sockets.
pub(crate) fn a_light_socket_reports_before_room_for_a_heavy_one(driver: Which) {
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
    assert_eq!(order(&mut harness), [light, blocked]);
    assert_eq!(harness.take(blocked), [Report::Sent(Ok(0))]);
}

const HEAVY_BYTES: usize = 20_000;
