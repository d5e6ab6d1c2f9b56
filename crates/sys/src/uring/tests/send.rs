//! Sending.

use tidegate_buffer::{FileRegion, Outbound};

use super::fake::{ALWAYS, Faults};
use super::stage::{Report, Stage, pattern, read};
use crate::uring::kernel::Request;
use crate::uring::operation::Kind;

fn is_send(request: &Request) -> bool {
    matches!(request, Request::Send { .. } | Request::SendMessage { .. })
}

fn sends(stage: &Stage) -> usize {
    stage.driver.kernel.requests.iter().filter(|request| is_send(request)).count()
}

/// A queue of several parts that are not contiguous in memory.
fn parts(stage: &Stage, count: usize, length: usize) -> (Outbound, Vec<u8>) {
    let (mut queue, mut all) = (Outbound::new(&stage.pool), Vec::new());
    for part in 0..count {
        let bytes: Vec<u8> = pattern(length).into_iter().map(|byte| byte ^ part as u8).collect();
        all.extend_from_slice(&bytes);
        let segment = stage.pool.copy(&bytes);
        queue.link_shared(segment);
    }
    queue.flush();
    (queue, all)
}

#[test]
fn at_most_one_send_of_a_socket_is_in_flight() {
    let mut stage = Stage::new();
    let (token, peer) = stage.pair();
    let mut queue = stage.queue(b"once");
    for _ in 0..5 {
        stage.send(token, &mut queue);
    }
    stage.run_until_idle();
    assert_eq!(sends(&stage), 1);
    assert_eq!(stage.take(token), [Report::Sent(Ok(4))]);
    assert_eq!(read(&peer), b"once");
}

#[test]
fn a_large_send_does_not_overtake_a_send_in_flight() {
    let mut stage = Stage::new();
    let (token, peer) = stage.pair();
    let mut queue = stage.queue(b"first");
    stage.send(token, &mut queue);
    stage.idle_turn();
    let (mut much, _) = parts(&stage, 3, 10_000);
    stage.send(token, &mut much);
    assert_eq!(read(&peer), b"");
    stage.run_until_idle();
    assert_eq!(stage.take(token), [Report::Sent(Ok(5))]);
    assert_eq!(read(&peer), b"first");
}

#[test]
fn small_sends_in_flight_keep_no_pages() {
    let mut stage = Stage::new();
    let pairs: Vec<_> = (0..100).map(|_| stage.pair()).collect();
    let before = stage.pool.ledger().used();
    let mut queues: Vec<_> = pairs.iter().map(|_| Outbound::new(&stage.pool)).collect();
    for ((token, _), queue) in pairs.iter().zip(&mut queues) {
        queue.write(b"little");
        queue.flush();
        stage.send(*token, queue);
    }
    let used = (stage.pool.ledger().used() - before) / pairs.len();
    assert!(used <= 128, "{used} bytes for each");
    stage.run_until_idle();
    for (token, peer) in &pairs {
        assert_eq!((stage.take(*token), read(peer)), (vec![Report::Sent(Ok(6))], b"little".to_vec()));
    }
}

#[test]
fn bytes_in_flight_stay_valid_after_their_queue_is_dropped() {
    for count in [1, 5] {
        let mut stage = Stage::new();
        let (token, peer) = stage.pair();
        let (mut queue, bytes) = parts(&stage, count, 1000);
        stage.send(token, &mut queue);
        drop(queue);
        stage.idle_turn();
        // Memory that was given back is used again now.
        let others: Vec<_> = (0..20).map(|_| stage.pool.copy(&[0xFF; 1000])).collect();
        stage.run_until_idle();
        assert_eq!(stage.take(token), [Report::Sent(Ok(bytes.len()))]);
        assert!(read(&peer) == bytes);
        drop((others, stage.driver));
        assert_eq!(stage.pool.ledger().used(), 0);
    }
}

#[test]
fn a_short_send_is_reported_and_the_rest_follows_in_order() {
    let mut stage = Stage::new();
    stage.driver.kernel.faults.shorten = ALWAYS;
    let (token, peer) = stage.pair();
    let (mut queue, bytes) = parts(&stage, 5, 1000);
    let mut sent = 0;
    while !queue.is_empty() {
        stage.send(token, &mut queue);
        stage.run_until_idle();
        let reports = stage.take(token);
        let [Report::Sent(Ok(count))] = reports[..] else { panic!("{reports:?}") };
        queue.advance(count as u64);
        sent += 1;
    }
    assert!(sent > 1, "it was not short");
    assert!(read(&peer) == bytes);
}

/// The driver has room for 64 headers and 1,024 vectors.
#[test]
fn headers_and_vectors_are_reused_only_after_submission() {
    for (sockets, count) in [(200, 2), (40, 60)] {
        let mut stage = Stage::new();
        let pairs: Vec<_> = (0..sockets).map(|_| stage.pair()).collect();
        let mut queues: Vec<_> = pairs.iter().map(|_| parts(&stage, count, 100)).collect();
        for ((token, _), (queue, _)) in pairs.iter().zip(&mut queues) {
            stage.send(*token, queue);
        }
        stage.run_until_idle();
        for ((token, peer), (_, bytes)) in pairs.iter().zip(&queues) {
            assert_eq!(stage.take(*token), [Report::Sent(Ok(bytes.len()))]);
            assert!(read(peer) == *bytes);
        }
    }
}

#[test]
fn headers_are_not_reused_while_the_kernel_refuses_requests() {
    let mut stage = Stage::new();
    stage.driver.kernel.room = 100;
    let pairs: Vec<_> = (0..65).map(|_| stage.pair()).collect();
    let mut queues: Vec<_> = (0..65).map(|index| parts(&stage, 2 + index % 3, 100 + index)).collect();
    for (index, ((token, _), (queue, _))) in pairs.iter().zip(&mut queues).enumerate() {
        // The last send finds none of the 64 headers free.
        stage.driver.kernel.faults.refuse = if index == 64 { ALWAYS } else { 0 };
        stage.send(*token, queue);
    }
    stage.driver.kernel.faults.refuse = 0;
    stage.run_until_idle();
    for (index, ((token, peer), (_, bytes))) in pairs.iter().zip(&queues).enumerate() {
        let sent = if index == 64 { &[][..] } else { bytes };
        assert_eq!(stage.take(*token), [Report::Sent(Ok(sent.len()))]);
        assert!(read(peer) == sent);
    }
}

#[test]
fn a_send_that_the_kernel_refuses_can_be_retried() {
    let mut stage = Stage::new();
    let (token, peer) = stage.pair();
    let mut queue = stage.queue(b"patience");
    stage.driver.kernel.faults = Faults { refuse: 20, ..Faults::default() };
    let mut refused = 0;
    loop {
        stage.send(token, &mut queue);
        stage.run_until_idle();
        match stage.take(token)[..] {
            [Report::Sent(Ok(0))] => refused += 1,
            [Report::Sent(Ok(8))] if refused > 0 => break,
            [Report::Sent(Ok(8))] => assert_eq!(read(&peer), b"patience"),
            ref other => panic!("{other:?}"),
        }
    }
    assert_eq!(read(&peer), b"patience");
}

#[test]
fn many_sends_that_the_kernel_refuses_lose_nothing() {
    let mut stage = Stage::new();
    let pairs: Vec<_> = (0..100).map(|_| stage.pair()).collect();
    let mut queues: Vec<_> = pairs.iter().map(|_| parts(&stage, 3, 100)).collect();
    stage.driver.kernel.faults = Faults { refuse: 200, interrupt: 200, ..Faults::default() };
    let mut waiting: Vec<_> = (0..pairs.len()).collect();
    while !waiting.is_empty() {
        for index in &waiting {
            stage.send(pairs[*index].0, &mut queues[*index].0);
        }
        stage.run_until_idle();
        waiting.retain(|index| match stage.take(pairs[*index].0)[..] {
            [Report::Sent(Ok(0))] => true,
            [Report::Sent(Ok(300))] => false,
            ref other => panic!("{other:?}"),
        });
    }
    for ((_, peer), (_, bytes)) in pairs.iter().zip(&queues) {
        assert!(read(peer) == *bytes);
    }
}

#[test]
fn large_sends_go_by_calls_and_wait_for_room_without_lending_memory() {
    let mut stage = Stage::new();
    let (token, peer) = stage.pair();
    let (mut queue, bytes) = parts(&stage, 100, 10_000);
    let (mut come, mut waited) = (Vec::new(), 0);
    while !queue.is_empty() {
        stage.send(token, &mut queue);
        stage.run_until_idle();
        if stage.reports(token).is_empty() {
            waited += 1;
            come.extend(read(&peer));
            stage.run_until_idle();
        }
        let reports = stage.take(token);
        let [Report::Sent(Ok(count))] = reports[..] else { panic!("{reports:?}") };
        queue.advance(count as u64);
    }
    come.extend(read(&peer));
    assert!(come == bytes);
    assert!(waited > 0, "it never waited");
    // The last part may be small.
    assert!(sends(&stage) <= 1);
}

#[test]
fn a_blocked_file_send_waits_for_room() {
    let mut stage = Stage::new();
    let (token, peer) = stage.pair();
    let bytes = pattern(1 << 20);
    let mut file: std::fs::File = rustix::fs::memfd_create("file", rustix::fs::MemfdFlags::CLOEXEC).unwrap().into();
    std::io::Write::write_all(&mut file, &bytes).unwrap();
    let mut queue = Outbound::new(&stage.pool);
    queue.link_file(FileRegion { file: file.into(), offset: 0, length: bytes.len() as u64 });
    queue.flush();
    let (mut come, mut waited) = (Vec::new(), 0);
    while !queue.is_empty() {
        stage.send(token, &mut queue);
        stage.run_until_idle();
        if stage.reports(token).is_empty() {
            waited += 1;
            come.extend(read(&peer));
            stage.run_until_idle();
        }
        let reports = stage.take(token);
        let [Report::Sent(Ok(count))] = reports[..] else { panic!("{reports:?}") };
        queue.advance(count as u64);
    }
    come.extend(read(&peer));
    assert!(come == bytes && waited > 0);
    assert_eq!(sends(&stage), 0, "files go by calls");
}

/// `is_sending` promises that the next turn completes the send, so that completion must come even without room.
#[test]
fn a_small_send_without_room_completes_at_once_and_again_with_room() {
    let mut stage = Stage::new();
    let (token, peer) = stage.pair();
    let mut much = stage.queue(&pattern(1 << 22));
    while stage.reports(token).is_empty() || matches!(stage.take(token)[..], [Report::Sent(Ok(1..))]) {
        stage.send(token, &mut much);
        if stage.reports(token).is_empty() {
            break;
        }
    }
    stage.run_until_idle();
    stage.take(token);
    let _ = read(&peer);
    stage.run_until_idle();
    assert_eq!(stage.take(token), [Report::Sent(Ok(0))], "there is room");
    let mut little = stage.queue(b"little");
    let mut sent = 0;
    let is_in_flight = |stage: &Stage| {
        let socket = stage.driver.sockets.get(token).unwrap();
        !socket.operations.is_idle(Kind::Send)
    };
    while sent < 1 << 20 {
        stage.send(token, &mut little);
        stage.run_until_idle();
        match stage.take(token)[..] {
            [Report::Sent(Ok(count @ 1..))] => sent += count,
            [Report::Sent(Ok(0))] => break,
            ref reports => panic!("{reports:?}"),
        }
    }
    assert!(!is_in_flight(&stage));
    stage.send(token, &mut little);
    stage.run_until_idle();
    assert_eq!(stage.take(token), [], "it waits");
    assert!(!is_in_flight(&stage), "a send that waits for room is not in flight");
    let _ = read(&peer);
    stage.run_until_idle();
    assert_eq!(stage.take(token), [Report::Sent(Ok(0))]);
}
