//! More sockets at once than rings and buffers have room for: nothing is lost, no socket starves, nothing is leaked.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;

use tidegate_buffer::{LINK_BYTES_MIN, Outbound};
use tidegate_sys::{Operation, Token};

use crate::directory::Directory;
use crate::driver::harness::{Family, Harness, PATIENCE, Report, any_port, assert_same, pattern, read, reset};
use crate::driver::which::{Which, open_descriptors, raise_descriptor_limit};

/// Streams of the driver, all receiving and idle, and their peers.
fn crowd(harness: &mut Harness, count: usize) -> Vec<(Token, socket2::Socket)> {
    raise_descriptor_limit();
    let pairs: Vec<_> = (0..count).map(|_| harness.pair(Family::Unix)).collect();
    for (token, _) in &pairs {
        harness.receive(*token, true);
    }
    harness.run_until_idle();
    assert!(harness.take_all().is_empty());
    pairs
}

/// Closes all sockets at once, and runs until all are closed.
fn close_all(harness: &mut Harness, pairs: &[(Token, socket2::Socket)]) {
    pairs.iter().for_each(|(token, _)| harness.start_close(*token, false));
    harness.until(|harness| pairs.iter().all(|(token, _)| harness.is_closed(*token)).then_some(()));
}

pub(crate) fn bytes_and_ends_of_many_sockets_arrive_after_one_late_turn(driver: Which) {
    driver.alone("crowds::bytes_and_ends_of_many_sockets_arrive_after_one_late_turn", || {
        let descriptors = open_descriptors();
        let mut harness = Harness::on(driver);
        let pairs = crowd(&mut harness, CROWD);
        for (token, peer) in &pairs {
            let mut peer = peer;
            peer.write_all(&pattern(LITTLE + token.slot as usize)).unwrap();
            peer.shutdown(Shutdown::Write).unwrap();
        }
        for (token, _) in &pairs {
            let reports = harness.until_report(*token, &Report::Ended);
            assert_eq!(reports, [Report::Received(pattern(LITTLE + token.slot as usize)), Report::Ended]);
        }
        close_all(&mut harness, &pairs);
        harness.assert_quiet();
        drop((harness, pairs));
        assert_eq!(open_descriptors(), descriptors);
    });
}

pub(crate) fn sends_to_many_sockets_between_two_waits_arrive(driver: Which) {
    driver.alone("crowds::sends_to_many_sockets_between_two_waits_arrive", || {
        let mut harness = Harness::on(driver);
        let pairs = crowd(&mut harness, CROWD);
        let mut queues = Vec::new();
        for (token, _) in &pairs {
            let mut queue = Outbound::new(&harness.pool);
            // Every second queue has two pieces, which need a header and two vectors.
            for piece in 0..1 + token.slot % 2 {
                queue.link_bytes(vec![(token.slot + piece) as u8; PIECE].into());
            }
            queue.flush();
            harness.submit(*token, Operation::Send { queue: &mut queue, bytes_max: usize::MAX });
            queues.push(queue);
        }
        for ((token, peer), queue) in pairs.iter().zip(&mut queues) {
            while !queue.is_empty() {
                let sent = harness.until(|harness| harness.sent(*token, |_| true)).unwrap();
                queue.advance(sent as u64);
                if sent == 0 {
                    harness.submit(*token, Operation::Send { queue, bytes_max: usize::MAX });
                }
            }
            let pieces = (0..1 + token.slot % 2).flat_map(|piece| [(token.slot + piece) as u8; PIECE]);
            assert_same(&read(peer, PIECE * (1 + token.slot as usize % 2)), &pieces.collect::<Vec<_>>());
        }
        harness.run_until_idle();
        let reports = harness.take_all();
        assert!(reports.is_empty(), "completions without a send: {reports:?}");
    });
}

pub(crate) fn many_sockets_closed_at_once_are_closed(driver: Which) {
    driver.alone("crowds::many_sockets_closed_at_once_are_closed", || {
        let mut harness = Harness::on(driver);
        let descriptors = open_descriptors();
        let pairs = crowd(&mut harness, CROWD);
        for (_, peer) in &pairs {
            let mut peer = peer;
            peer.write_all(b"too late").unwrap();
        }
        close_all(&mut harness, &pairs);
        harness.run_until_idle();
        assert!(harness.take_all().is_empty());
        assert_eq!(open_descriptors(), descriptors + pairs.len());
    });
}

pub(crate) fn a_long_backlog_is_accepted(driver: Which) {
    driver.alone("crowds::a_long_backlog_is_accepted", || {
        raise_descriptor_limit();
        let directory = Directory::new();
        let mut harness = Harness::on(driver);
        let descriptors = open_descriptors();
        let (listener, _) = harness.listen_with(&directory.socket("listener"), CROWD as u32);
        let connect = |_| UnixStream::connect(directory.path("listener")).unwrap();
        // The system's limit for a backlog.
        let room = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap().trim().parse::<usize>().unwrap();
        let clients: Vec<_> = (0..CROWD.min(room)).map(connect).collect();
        harness.until(|harness| (harness.accepted.len() == clients.len()).then_some(()));
        harness.run_until_idle();
        assert_eq!(harness.take(listener).len(), clients.len());
        harness.close(listener, false);
        harness.accepted.clear();
        drop(clients);
        assert_eq!(open_descriptors(), descriptors);
    });
}

pub(crate) fn connections_that_arrive_while_a_listener_closes_leak_nothing(driver: Which) {
    driver.alone("crowds::connections_that_arrive_while_a_listener_closes_leak_nothing", || {
        let descriptors = open_descriptors();
        let mut harness = Harness::on(driver);
        let (listener, address) = harness.listen(&any_port());
        harness.run_until_idle();
        let clients: Vec<_> = (0..100).map(|_| TcpStream::connect(address.ip().unwrap()).unwrap()).collect();
        // The kernel has reported some of them, and the driver none.
        harness.driver.wait(Some(PATIENCE)).unwrap();
        harness.close(listener, false);
        harness.run_until_idle();
        for mut client in clients {
            // Reset in the backlog, or closed.
            let end = client.read(&mut [0]);
            assert!(end.as_ref().map_or_else(|error| error.kind() == ErrorKind::ConnectionReset, |end| *end == 0));
        }
        drop(harness);
        assert_eq!(open_descriptors(), descriptors);
    });
}

pub(crate) fn more_sockets_than_buffers_all_receive(driver: Which) {
    let mut harness = Harness::on(driver);
    let pairs = crowd(&mut harness, WRITERS);
    for index in 0..WRITERS {
        (&pairs[index * 7 % WRITERS].1).write_all(b"here").unwrap();
    }
    let mut received = BTreeSet::new();
    harness.until(|harness| {
        received.extend(harness.take_all().into_keys());
        (received.len() == WRITERS).then_some(())
    });
    harness.run_until_idle();
    assert_eq!(harness.take_all().len(), 0, "each peer wrote once");
}

pub(crate) fn long_streams_of_more_sockets_than_buffers_arrive_whole(driver: Which) {
    for bytes in [10_000, 100_000] {
        let mut harness = Harness::on(driver);
        let pairs = crowd(&mut harness, WRITERS);
        let bytes = pattern(bytes);
        for (_, peer) in &pairs {
            let mut peer = peer;
            peer.write_all(&bytes).unwrap();
        }
        for (token, _) in &pairs {
            assert_same(&harness.until_received(*token, bytes.len()), &bytes);
        }
        harness.assert_quiet();
    }
}

pub(crate) fn a_light_socket_does_not_starve_among_busy_ones(driver: Which) {
    for length in [10, 3000, 20_000] {
        let mut harness = Harness::on(driver);
        let pairs = crowd(&mut harness, WRITERS);
        let (quiet, mut quiet_peer) = harness.pair(Family::Unix);
        harness.receive(quiet, true);
        let (words, mut turns) = (pattern(length), 0);
        let write = |of: Token| {
            let pair = pairs.iter().find(|(token, _)| *token == of);
            pair.into_iter().for_each(|(_, peer)| {
                let mut peer = peer;
                peer.write_all(&words).unwrap();
            });
        };
        pairs.iter().for_each(|(token, _)| write(*token));
        harness.until(|harness| {
            turns += 1;
            if turns == 10 {
                quiet_peer.write_all(b"me too").unwrap();
            }
            let reports = harness.take_all();
            // A peer whose bytes were received writes again, so there are always more readable sockets than buffers.
            reports.keys().for_each(|token| write(*token));
            assert!(turns < 10 + TURNS_MAX, "it received nothing in {TURNS_MAX} turns, of {length} bytes each");
            reports.contains_key(&quiet).then_some(())
        });
    }
}

pub(crate) fn clients_that_connect_and_reset_in_a_loop_leak_nothing(driver: Which) {
    driver.alone("crowds::clients_that_connect_and_reset_in_a_loop_leak_nothing", || {
        let mut harness = Harness::on(driver);
        let (_, address) = harness.listen(&any_port());
        let address = address.ip().unwrap();
        let descriptors = open_descriptors();
        let mut open: Vec<Token> = Vec::new();
        let mut accepted = 0;
        let mut serve = |harness: &mut Harness, open: &mut Vec<Token>| {
            for (_, stream) in std::mem::take(&mut harness.accepted) {
                accepted += 1;
                let token = harness.token();
                harness.submit(token, Operation::Adopt(stream.socket));
                harness.receive(token, true);
                open.push(token);
            }
            open.retain(|&token| match harness.take(token).last() {
                None | Some(Report::Received(_)) => true,
                Some(Report::Failed(_) | Report::Ended) => {
                    harness.start_close(token, false);
                    false
                }
                Some(other) => panic!("{other:?}"),
            });
            accepted
        };
        for round in 0..RESETS / RESETS_AT_ONCE {
            for index in 0..RESETS_AT_ONCE {
                let mut client = TcpStream::connect(address).unwrap();
                if (round + index) % 3 == 0 {
                    client.write_all(b"never read").unwrap();
                }
                // Half of a round are reset before the driver accepts them, the others while they are served.
                if index == RESETS_AT_ONCE / 2 {
                    harness.run_until_idle();
                    serve(&mut harness, &mut open);
                }
                reset(client.into());
            }
        }
        harness.until(|harness| (serve(harness, &mut open) <= RESETS && open.is_empty()).then_some(()));
        harness.run_until_idle();
        assert!(serve(&mut harness, &mut open) <= RESETS && open.is_empty());
        harness.assert_quiet();
        assert_eq!(open_descriptors(), descriptors);
        // A normal client is still served.
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(b"hello").unwrap();
        let token = harness.token();
        let stream = harness.until_accepted().1.socket;
        harness.submit(token, Operation::Adopt(stream));
        harness.receive(token, true);
        assert_eq!(harness.until_received(token, 5), b"hello");
        harness.close(token, false);
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
    });
}

/// More than the capacity of the rings: 256 requests, 2,048 completions.
const CROWD: usize = 3000;

/// More than a driver has buffers.
const WRITERS: usize = 300;

/// The fewest bytes that a peer writes.
const LITTLE: usize = 64;

/// The number of turns in which every socket has to receive. A turn has at least eight buffers.
const TURNS_MAX: usize = 2 * WRITERS / 8;

/// A piece of this size is linked, and not copied behind the piece before it.
const PIECE: usize = LINK_BYTES_MIN;

const RESETS: usize = 3000;
const RESETS_AT_ONCE: usize = 50;
