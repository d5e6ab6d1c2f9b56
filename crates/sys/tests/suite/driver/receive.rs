//! Receiving: all bytes arrive, in order, and only while the loop wants them.

use std::io::Write;
use std::net::Shutdown;
use std::thread;

use tidegate_buffer::{BULK_RECEIVE_BYTES, Outbound, RECEIVE_BYTES_MAX, ReceiveHint, Slice};
use tidegate_sys::{Completion, Operation};

use crate::driver::harness::{Family, Harness, Report, any_port, assert_same, pattern, read};
use crate::driver::which::Which;

pub(crate) fn a_long_stream_arrives_whole(driver: Which) {
    for family in Family::BOTH {
        let mut harness = Harness::on(driver);
        let (token, mut peer) = harness.pair(family);
        harness.receive(token, true);
        let bytes = pattern(8 << 20);
        let expected = bytes.clone();
        let writer = thread::spawn(move || peer.write_all(&bytes).unwrap());
        let reports = harness.until_report(token, &Report::Ended);
        writer.join().unwrap();
        let [Report::Received(received), Report::Ended] = &reports[..] else { panic!("{family:?}") };
        assert_same(received, &expected);
        assert!(harness.receives.iter().all(|&length| length <= RECEIVE_BYTES_MAX));
    }
}

pub(crate) fn receives_grow_while_they_are_full_and_shrink_again(driver: Which) {
    let mut harness = Harness::on(driver);
    let (near, mut peer) = Family::Tcp.pair();
    let look = near.try_clone().unwrap();
    let token = harness.adopt(near);
    let (bytes, much) = (pattern(LADDER.iter().sum()), RECEIVE_BYTES_MAX);
    let burst = |harness: &mut Harness, mut peer: &socket2::Socket| {
        assert_eq!(harness.pause(token), []);
        peer.write_all(&bytes).unwrap();
        while rustix::io::ioctl_fionread(&look).unwrap() < bytes.len() as u64 {
            harness.run_until_idle();
        }
        harness.receives.clear();
        harness.receive(token, true);
        assert_same(&harness.until_received(token, bytes.len()), &bytes);
        // The fence receives as well, a byte at a time.
        harness.receives.iter().copied().filter(|&length| length > 1).collect::<Vec<_>>()
    };
    let first = burst(&mut harness, &peer);
    // A buffer of the ring is a little less than the second step.
    assert!(first[0] <= LADDER[1] && first.iter().any(|&length| length > LADDER[4]), "{first:?}");
    assert!(driver.runs_ahead() || first == LADDER, "{first:?}");
    assert_eq!(burst(&mut harness, &peer)[0], much, "it remembers");
    for _ in 0..8 {
        peer.write_all(b"a").unwrap();
        harness.until_received(token, 1);
    }
    assert!(burst(&mut harness, &peer)[0] <= LADDER[1], "it forgets after a few short receives");
}

pub(crate) fn a_receive_is_larger_where_many_bytes_are_missing(driver: Which) {
    let mut harness = Harness::on(driver);
    let (near, peer) = Family::Unix.pair();
    let token = harness.adopt(near);
    let bytes = pattern(BULK_BYTES);
    let mut burst = |hint: Option<ReceiveHint>| {
        assert_eq!(harness.pause(token), []);
        (&peer).write_all(&bytes).unwrap();
        harness.run_until_idle();
        hint.into_iter().for_each(|hint| harness.driver.hint_receive(token, hint));
        harness.receives.clear();
        harness.receive(token, true);
        assert_same(&harness.until_received(token, bytes.len()), &bytes);
        harness.receives[0]
    };
    let missing = |bytes| ReceiveHint { missing_bytes: bytes as u32, ..ReceiveHint::default() };
    let first = burst(Some(missing(u32::MAX as usize)));
    assert!(first <= RECEIVE_BYTES_MAX, "{first}: the first receive of a socket");
    assert_eq!(burst(None), RECEIVE_BYTES_MAX);
    assert_eq!(burst(Some(missing(BULK_RECEIVE_BYTES - 1))), RECEIVE_BYTES_MAX);
    assert_eq!(burst(Some(missing(BULK_RECEIVE_BYTES))), BULK_BYTES);
    assert_eq!(burst(None), RECEIVE_BYTES_MAX, "the hint is about one receive");
    let whole = ReceiveHint { whole_bytes: 100_000, ..ReceiveHint::default() };
    assert_eq!(burst(Some(whole)), 100_000, "a message is received whole");
}

/// Out of line they would be lost, and make a receive that waits in the kernel retry without effect, until it gives up.
pub(crate) fn urgent_bytes_are_bytes_like_any_other(driver: Which) {
    let mut harness = Harness::on(driver);
    let (listener, address) = harness.listen(&any_port());
    let far = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    far.connect(&address.ip().unwrap().into()).unwrap();
    far.set_tcp_nodelay(true).unwrap();
    let (of, accepted) = harness.until_accepted();
    assert_eq!(of, listener);
    let token = harness.token();
    harness.submit(token, Operation::Adopt(accepted.socket));
    harness.receive(token, true);
    harness.run_until_idle();
    for number in 0..200_u8 {
        far.send_out_of_band(&[number]).unwrap();
        if number % 20 == 0 {
            harness.run_until_idle();
        }
    }
    let expected: Vec<u8> = (0..200).collect();
    assert_eq!(harness.until_received(token, 200), expected);
    // No worker thread of the kernel waits in the place of the driver. Their names end with the thread that made the ring.
    let worker = format!("iou-wrk-{}", rustix::thread::gettid().as_raw_nonzero());
    let names = std::fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    assert_eq!(names.filter(|name| name.trim_end() == worker).count(), 0);
}

pub(crate) fn a_stopped_socket_reports_nothing_and_loses_nothing(driver: Which) {
    for family in Family::BOTH {
        let mut harness = Harness::on(driver);
        let (token, mut peer) = harness.pair(family);
        peer.write_all(b"one ").unwrap();
        harness.run_until_idle();
        assert_eq!(harness.take(token), [], "nothing is received before `Receive(true)`");
        harness.receive(token, true);
        assert_eq!(harness.until_received(token, 4), b"one ");
        assert_eq!(harness.pause(token), []);
        peer.write_all(b"two ").unwrap();
        harness.run_until_idle();
        peer.write_all(b"three").unwrap();
        harness.run_until_idle();
        assert_eq!(harness.take(token), []);
        harness.receive(token, true);
        assert_eq!(harness.until_received(token, 9), b"two three");
    }
}

/// A socket that stops often may have one receive in flight when it stops. No more than that completes, however long
/// the stop is.
pub(crate) fn repeated_stops_report_at_most_one_receive_and_lose_nothing(driver: Which) {
    for family in Family::BOTH {
        let mut harness = Harness::on(driver);
        let (token, mut peer) = harness.pair(family);
        for _ in 0..10 {
            harness.receive(token, true);
            peer.write_all(b"awake").unwrap();
            assert_eq!(harness.until_received(token, 5), b"awake");
            assert_eq!(harness.pause(token), []);
            for piece in [b"one ", b"two ", b"more"] {
                peer.write_all(piece).unwrap();
                harness.run_until_idle();
            }
            let most = if driver.runs_ahead() { 4 } else { 0 };
            assert!(harness.bytes_received() <= most, "{:?}", harness.take_all());
            harness.receive(token, true);
            assert_eq!(harness.until_received(token, 12), b"one two more");
        }
    }
}

pub(crate) fn stopping_within_a_long_stream_keeps_the_rest(driver: Which) {
    for family in Family::BOTH {
        let mut harness = Harness::on(driver);
        let (token, mut peer) = harness.pair(family);
        let bytes = pattern(4 << 20);
        let expected = bytes.clone();
        let writer = thread::spawn(move || peer.write_all(&bytes).unwrap());
        let mut received = Vec::new();
        loop {
            harness.receive(token, true);
            harness.until(|harness| (!harness.reports(token).is_empty()).then_some(()));
            match &harness.pause(token)[..] {
                [Report::Received(bytes)] => received.extend_from_slice(bytes),
                [Report::Ended] => break,
                [Report::Received(bytes), Report::Ended] => {
                    received.extend_from_slice(bytes);
                    break;
                }
                other => panic!("{other:?}"),
            }
            harness.run_until_idle();
            assert_eq!(harness.take(token), [], "paused");
        }
        writer.join().unwrap();
        assert_same(&received, &expected);
    }
}

pub(crate) fn an_end_that_arrives_with_bytes_is_reported_after_them_once(driver: Which) {
    for family in Family::BOTH {
        for length in [1, 5000, 16 * 1024, 100_000] {
            let mut harness = Harness::on(driver);
            let (near, mut peer) = family.pair();
            if family == Family::Tcp {
                // With the cork, the bytes leave in one segment with the end.
                peer.set_tcp_nodelay(false).unwrap();
                rustix::net::sockopt::set_tcp_cork(&peer, true).unwrap();
            }
            let bytes = pattern(length);
            peer.write_all(&bytes).unwrap();
            peer.shutdown(Shutdown::Write).unwrap();
            let token = harness.adopt(near);
            harness.receive(token, true);
            let reports = harness.until_report(token, &Report::Ended);
            assert_eq!(reports, [Report::Received(bytes), Report::Ended]);
            harness.run_until_idle();
            harness.receive(token, false);
            harness.receive(token, true);
            harness.run_until_idle();
            assert_eq!(harness.take(token), [], "the end is reported once");
        }
    }
}

pub(crate) fn an_end_that_arrives_while_stopped_is_reported_on_resume(driver: Which) {
    for family in Family::BOTH {
        let mut harness = Harness::on(driver);
        let (token, mut peer) = harness.pair(family);
        harness.receive(token, true);
        peer.write_all(b"a").unwrap();
        harness.until_received(token, 1);
        assert_eq!(harness.pause(token), []);
        peer.write_all(b"b").unwrap();
        harness.run_until_idle();
        peer.shutdown(Shutdown::Write).unwrap();
        harness.run_until_idle();
        assert_eq!(harness.take(token), []);
        harness.receive(token, true);
        assert_eq!(harness.until_report(token, &Report::Ended), [Report::Received(b"b".to_vec()), Report::Ended]);
    }
}

pub(crate) fn sending_works_after_the_peer_has_ended(driver: Which) {
    for family in Family::BOTH {
        let mut harness = Harness::on(driver);
        let (token, mut peer) = harness.pair(family);
        harness.receive(token, true);
        peer.write_all(b"request").unwrap();
        peer.shutdown(Shutdown::Write).unwrap();
        assert_eq!(harness.until_report(token, &Report::Ended).len(), 2);
        let bytes = pattern(16 << 20);
        let mut queue = Outbound::new(&harness.pool);
        queue.link_bytes(bytes.clone().into());
        queue.flush();
        let reader = thread::spawn(move || read(&peer, usize::MAX));
        harness.send_all(token, &mut queue, 1 << 20).unwrap();
        harness.submit(token, Operation::ShutdownWrite);
        assert_same(&reader.join().unwrap(), &bytes);
        assert_eq!(harness.take(token), []);
    }
}

pub(crate) fn receiving_works_after_our_shutdown(driver: Which) {
    for family in Family::BOTH {
        let mut harness = Harness::on(driver);
        let (token, mut peer) = harness.pair(family);
        harness.receive(token, true);
        let mut queue = Outbound::new(&harness.pool);
        queue.write(b"request");
        queue.flush();
        harness.send_all(token, &mut queue, usize::MAX).unwrap();
        harness.submit(token, Operation::ShutdownWrite);
        assert_eq!(read(&peer, usize::MAX), b"request");
        harness.run_until_idle();
        assert_eq!(harness.take(token), []);
        peer.write_all(b"response").unwrap();
        assert_eq!(harness.until_received(token, 8), b"response");
        drop(peer);
        assert_eq!(harness.until_report(token, &Report::Ended), [Report::Ended]);
    }
}

pub(crate) fn a_turn_that_is_cut_short_loses_nothing(driver: Which) {
    let mut harness = Harness::on(driver);
    let peers: Vec<_> = (0..20).map(|_| harness.pair(Family::Tcp)).collect();
    for (token, peer) in &peers {
        let mut peer = peer;
        harness.receive(*token, true);
        peer.write_all(&token.slot.to_be_bytes()).unwrap();
    }
    let mut received = Vec::new();
    while received.len() < peers.len() {
        let (token, completion) = harness.first();
        let Completion::Received(bytes) = completion else { panic!("{completion:?}") };
        assert_eq!(*bytes, token.slot.to_be_bytes());
        received.push(token);
    }
    received.sort();
    assert_eq!(received, peers.iter().map(|(token, _)| *token).collect::<Vec<_>>());
}

pub(crate) fn kept_bytes_are_not_overwritten_by_later_receives(driver: Which) {
    let mut harness = Harness::on(driver);
    let (token, mut peer) = harness.pair(Family::Unix);
    harness.receive(token, true);
    let mut kept: Vec<Slice> = Vec::new();
    for round in 0..5_u8 {
        peer.write_all(&[round; 100]).unwrap();
        let (_, completion) = harness.first();
        let Completion::Received(bytes) = completion else { panic!("{completion:?}") };
        kept.push(bytes);
        assert!(harness.next().is_none());
    }
    for (round, bytes) in kept.iter().enumerate() {
        assert_eq!(**bytes, [round as u8; 100]);
    }
}

/// More than a usual receive brings, and less than the buffer of a socket.
const BULK_BYTES: usize = 160 << 10;

/// The sizes of consecutive receives while all of them are full.
const LADDER: [usize; 6] = [2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];

const _: () = assert!(LADDER[5] == RECEIVE_BYTES_MAX);
const _: () = assert!(RECEIVE_BYTES_MAX < BULK_BYTES && BULK_BYTES < BULK_RECEIVE_BYTES);
