//! Sending: every byte once, in order, whatever the size of the parts.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tidegate_buffer::Outbound;
use tidegate_sys::Operation;

use crate::driver::harness::{Family, Harness, Report, assert_same, pattern, read, reset};
use crate::driver::which::Which;

pub(crate) fn more_parts_than_fit_one_call_arrive_in_order(driver: Which) {
    for family in Family::BOTH {
        let mut harness = Harness::on(driver);
        let (token, peer) = harness.pair(family);
        let bytes = pattern(5000 * PART);
        let mut queue = Outbound::new(&harness.pool);
        for part in bytes.chunks(PART) {
            queue.write(part);
            queue.flush();
        }
        let reader = thread::spawn(move || read(&peer, 5000 * PART));
        let first = harness.send(token, &mut queue, usize::MAX).unwrap().unwrap();
        assert!(first <= 1024 * PART && first > PART, "{first} bytes in the first call");
        harness.send_all(token, &mut queue, usize::MAX).unwrap();
        assert_same(&reader.join().unwrap(), &bytes);
    }
}

pub(crate) fn a_blocked_send_resumes_at_the_right_byte(driver: Which) {
    for family in Family::BOTH {
        let mut harness = Harness::on(driver);
        let (token, peer) = harness.pair(family);
        let bytes = pattern(24 << 20);
        let mut queue = Outbound::new(&harness.pool);
        // Parts of many lengths, copied and linked; none is a divisor of the number of bytes that a kernel takes.
        let mut rest = &bytes[..];
        for length in [1, 7, 333, 2048, 4095, 10_007, 65_537].into_iter().cycle() {
            let (part, behind) = rest.split_at(length.min(rest.len()));
            queue.link_bytes(part.to_vec().into());
            rest = behind;
            if rest.is_empty() {
                break;
            }
        }
        queue.flush();
        let taken = harness.send_until_full(token, &mut queue);
        assert!(harness.send(token, &mut queue, usize::MAX).is_none(), "a second send waits as well");
        harness.run_until_idle();
        assert_eq!(harness.take(token), [], "the peer has read nothing");
        let reader = thread::spawn(move || read(&peer, 24 << 20));
        let resumed = harness.send_all(token, &mut queue, usize::MAX).unwrap();
        assert!(resumed >= 1, "{taken} bytes were taken at first");
        assert_same(&reader.join().unwrap(), &bytes);
        harness.run_until_idle();
        assert!(harness.take(token).len() <= 1, "at most the edge of the last send");
    }
}

pub(crate) fn a_call_sends_at_most_bytes_max(driver: Which) {
    for bytes_max in [0, 1, 3, 1000] {
        let mut harness = Harness::on(driver);
        let (token, peer) = harness.pair(Family::Tcp);
        let bytes = pattern(2000);
        let mut queue = Outbound::new(&harness.pool);
        for part in bytes.chunks(7) {
            queue.write(part);
            queue.flush();
        }
        // The harness checks each call.
        harness.send_all(token, &mut queue, bytes_max).unwrap();
        assert_same(&read(&peer, bytes.len()), &bytes);
    }
}

pub(crate) fn sent_bytes_use_no_memory(driver: Which) {
    let mut harness = Harness::on(driver);
    let pairs: Vec<_> = (0..20).map(|_| harness.pair(Family::Unix)).collect();
    harness.run_until_idle();
    let used = harness.pool.ledger().used();
    for length in [10, 1000, 100_000] {
        let mut queues: Vec<_> = pairs.iter().map(|_| Outbound::new(&harness.pool)).collect();
        for ((token, _), queue) in pairs.iter().zip(&mut queues) {
            queue.write(&pattern(length));
            queue.flush();
            harness.submit(*token, Operation::Send { queue, bytes_max: usize::MAX });
        }
        // A queue may be dropped before its sends complete.
        drop(queues);
        for (token, peer) in &pairs {
            let sent = harness.until(|harness| harness.sent(*token, |_| true)).unwrap();
            assert_same(&read(peer, sent), &pattern(length)[..sent]);
        }
        harness.run_until_idle();
        assert_eq!(harness.pool.ledger().used(), used, "{length} bytes each");
    }
}

pub(crate) fn unflushed_bytes_are_not_sent(driver: Which) {
    let mut harness = Harness::on(driver);
    let (token, peer) = harness.pair(Family::Tcp);
    let mut queue = Outbound::new(&harness.pool);
    assert_eq!(harness.send(token, &mut queue, usize::MAX).unwrap().unwrap(), 0, "an empty queue");
    queue.write(b"now");
    queue.flush();
    queue.write(b" later");
    assert_eq!(harness.send(token, &mut queue, usize::MAX).unwrap().unwrap(), 3);
    assert_eq!(harness.send(token, &mut queue, usize::MAX).unwrap().unwrap(), 0);
    harness.close(token, false);
    assert_eq!(read(&peer, usize::MAX), b"now");
}

pub(crate) fn sending_to_a_closed_peer_fails_without_sigpipe(driver: Which) {
    driver.alone("send::sending_to_a_closed_peer_fails_without_sigpipe", || {
        let signal = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(signal_hook::consts::SIGPIPE, signal.clone()).unwrap();
        for parts in [1, 2] {
            for family in Family::BOTH {
                let mut harness = Harness::on(driver);
                let (token, peer) = harness.pair(family);
                reset(peer);
                harness.run_until_idle();
                let kind = send_parts(&mut harness, token, parts).unwrap_err().kind();
                assert!(matches!(kind, ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{kind}");
                // The first error may have been that of the reset; after it there is only a broken pipe.
                assert_eq!(send_parts(&mut harness, token, parts).unwrap_err().kind(), ErrorKind::BrokenPipe);
            }
        }
        assert!(!signal.load(Ordering::Relaxed), "SIGPIPE");
    });
}

pub(crate) fn sending_after_our_shutdown_fails(driver: Which) {
    for family in Family::BOTH {
        let mut harness = Harness::on(driver);
        let (token, _peer) = harness.pair(family);
        harness.submit(token, Operation::ShutdownWrite);
        assert_eq!(send_parts(&mut harness, token, 1).unwrap_err().kind(), ErrorKind::BrokenPipe);
    }
}

/// Two ends that both send before they receive: each waits for the other, until one receives.
pub(crate) fn both_directions_make_progress_at_the_same_time(driver: Which) {
    for family in Family::BOTH {
        let mut harness = Harness::on(driver);
        let (near, far) = family.pair();
        let tokens = [harness.adopt(near), harness.adopt(far)];
        let bytes = pattern(12 << 20);
        let mut queues = tokens.map(|_| Outbound::new(&harness.pool));
        for (token, queue) in tokens.iter().zip(&mut queues) {
            queue.link_bytes(bytes.clone().into());
            queue.flush();
            harness.send_until_blocked(*token, queue);
        }
        for token in tokens {
            harness.receive(token, true);
        }
        let mut received = [const { Vec::new() }; 2];
        harness.until(|harness| {
            for (index, token) in tokens.into_iter().enumerate() {
                for report in harness.take(token) {
                    match report {
                        Report::Received(more) => received[index].extend_from_slice(&more),
                        Report::Sent(Ok(sent)) => {
                            queues[index].advance(sent as u64);
                            while_possible(harness, token, &mut queues[index]);
                        }
                        other => panic!("{other:?}"),
                    }
                }
            }
            received.iter().all(|received| received.len() == bytes.len()).then_some(())
        });
        for received in received {
            assert_same(&received, &bytes);
        }
    }
}

fn while_possible(harness: &mut Harness, token: tidegate_sys::Token, queue: &mut Outbound) {
    while !queue.is_empty() {
        match harness.send(token, queue, 1 << 20) {
            Some(sent) => assert!(sent.unwrap() > 0),
            None => return,
        }
    }
}

fn send_parts(harness: &mut Harness, token: tidegate_sys::Token, parts: usize) -> io::Result<usize> {
    let mut queue = Outbound::new(&harness.pool);
    for _ in 0..parts {
        queue.write(b"a part");
        queue.flush();
    }
    harness.send(token, &mut queue, usize::MAX).expect("a broken connection does not wait")
}

const PART: usize = 37;
