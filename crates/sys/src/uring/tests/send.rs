//! Sending.

use tidegate_buffer::{FileRegion, Outbound};

use super::fake::{ALWAYS, Malice};
use super::stage::{Stage, Told, pattern, read};
use crate::uring::kernel::Request;
use crate::uring::operation::Kind;

fn is_send(request: &Request) -> bool {
    matches!(request, Request::Send { .. } | Request::SendMessage { .. })
}

fn sends(stage: &Stage) -> usize {
    stage.machine.kernel.requests.iter().filter(|request| is_send(request)).count()
}

/// A queue of several parts that are not one behind the other.
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
fn one_send_of_a_socket_is_in_flight_whatever_is_asked_for() {
    let mut stage = Stage::new();
    let (token, peer) = stage.pair();
    let mut queue = stage.queue(b"once");
    for _ in 0..5 {
        stage.send(token, &mut queue);
    }
    stage.run_until_idle();
    assert_eq!(sends(&stage), 1);
    assert_eq!(stage.take(token), [Told::Sent(Ok(4))]);
    assert_eq!(read(&peer), b"once");
}

#[test]
fn what_is_much_does_not_overtake_what_is_in_flight() {
    let mut stage = Stage::new();
    let (token, peer) = stage.pair();
    let mut queue = stage.queue(b"first");
    stage.send(token, &mut queue);
    stage.idle_turn();
    let (mut much, _) = parts(&stage, 3, 10_000);
    stage.send(token, &mut much);
    assert_eq!(read(&peer), b"");
    stage.run_until_idle();
    assert_eq!(stage.take(token), [Told::Sent(Ok(5))]);
    assert_eq!(read(&peer), b"first");
}

#[test]
fn short_answers_on_their_way_hold_no_pages() {
    let mut stage = Stage::new();
    let pairs: Vec<_> = (0..100).map(|_| stage.pair()).collect();
    let before = stage.pool.ledger().used();
    let mut queues: Vec<_> = pairs.iter().map(|_| Outbound::new(&stage.pool)).collect();
    for ((token, _), queue) in pairs.iter().zip(&mut queues) {
        queue.write(b"little");
        queue.flush();
        stage.send(*token, queue);
    }
    let held = (stage.pool.ledger().used() - before) / pairs.len();
    assert!(held <= 128, "{held} bytes for each");
    stage.run_until_idle();
    for (token, peer) in &pairs {
        assert_eq!((stage.take(*token), read(peer)), (vec![Told::Sent(Ok(6))], b"little".to_vec()));
    }
}

#[test]
fn what_is_sent_stays_although_its_queue_is_gone() {
    for count in [1, 5] {
        let mut stage = Stage::new();
        let (token, peer) = stage.pair();
        let (mut queue, bytes) = parts(&stage, count, 1000);
        stage.send(token, &mut queue);
        drop(queue);
        stage.idle_turn();
        // Whatever was given back is used by others now.
        let others: Vec<_> = (0..20).map(|_| stage.pool.copy(&[0xFF; 1000])).collect();
        stage.run_until_idle();
        assert_eq!(stage.take(token), [Told::Sent(Ok(bytes.len()))]);
        assert!(read(&peer) == bytes);
        drop((others, stage.machine));
        assert_eq!(stage.pool.ledger().used(), 0);
    }
}

#[test]
fn a_short_send_is_told_and_the_rest_follows_in_order() {
    let mut stage = Stage::new();
    stage.machine.kernel.malice.shorten = ALWAYS;
    let (token, peer) = stage.pair();
    let (mut queue, bytes) = parts(&stage, 5, 1000);
    let mut sent = 0;
    while !queue.is_empty() {
        stage.send(token, &mut queue);
        stage.run_until_idle();
        let told = stage.take(token);
        let [Told::Sent(Ok(count))] = told[..] else { panic!("{told:?}") };
        queue.advance(count as u64);
        sent += 1;
    }
    assert!(sent > 1, "it was not short");
    assert!(read(&peer) == bytes);
}

/// There is room for 64 headers, and for 1,024 vectors.
#[test]
fn headers_and_vectors_are_used_again_only_when_the_kernel_has_copied_them() {
    for (sockets, count) in [(200, 2), (40, 60)] {
        let mut stage = Stage::new();
        let pairs: Vec<_> = (0..sockets).map(|_| stage.pair()).collect();
        let mut queues: Vec<_> = pairs.iter().map(|_| parts(&stage, count, 100)).collect();
        for ((token, _), (queue, _)) in pairs.iter().zip(&mut queues) {
            stage.send(*token, queue);
        }
        stage.run_until_idle();
        for ((token, peer), (_, bytes)) in pairs.iter().zip(&queues) {
            assert_eq!(stage.take(*token), [Told::Sent(Ok(bytes.len()))]);
            assert!(read(peer) == *bytes);
        }
    }
}

#[test]
fn no_header_is_used_again_while_the_kernel_takes_none() {
    let mut stage = Stage::new();
    stage.machine.kernel.room = 100;
    let pairs: Vec<_> = (0..65).map(|_| stage.pair()).collect();
    let mut queues: Vec<_> = (0..65).map(|index| parts(&stage, 2 + index % 3, 100 + index)).collect();
    for (index, ((token, _), (queue, _))) in pairs.iter().zip(&mut queues).enumerate() {
        // Of 64 headers none is left for the last.
        stage.machine.kernel.malice.refuse = if index == 64 { ALWAYS } else { 0 };
        stage.send(*token, queue);
    }
    stage.machine.kernel.malice.refuse = 0;
    stage.run_until_idle();
    for (index, ((token, peer), (_, bytes))) in pairs.iter().zip(&queues).enumerate() {
        let sent = if index == 64 { &[][..] } else { bytes };
        assert_eq!(stage.take(*token), [Told::Sent(Ok(sent.len()))]);
        assert!(read(peer) == sent);
    }
}

#[test]
fn a_send_that_the_kernel_does_not_take_may_be_tried_again() {
    let mut stage = Stage::new();
    let (token, peer) = stage.pair();
    let mut queue = stage.queue(b"patience");
    stage.machine.kernel.malice = Malice { refuse: 20, ..Malice::default() };
    let mut refused = 0;
    loop {
        stage.send(token, &mut queue);
        stage.run_until_idle();
        match stage.take(token)[..] {
            [Told::Sent(Ok(0))] => refused += 1,
            [Told::Sent(Ok(8))] if refused > 0 => break,
            [Told::Sent(Ok(8))] => assert_eq!(read(&peer), b"patience"),
            ref other => panic!("{other:?}"),
        }
    }
    assert_eq!(read(&peer), b"patience");
}

#[test]
fn many_sends_and_a_kernel_that_takes_none_lose_nothing() {
    let mut stage = Stage::new();
    let pairs: Vec<_> = (0..100).map(|_| stage.pair()).collect();
    let mut queues: Vec<_> = pairs.iter().map(|_| parts(&stage, 3, 100)).collect();
    stage.machine.kernel.malice = Malice { refuse: 200, interrupt: 200, ..Malice::default() };
    let mut waiting: Vec<_> = (0..pairs.len()).collect();
    while !waiting.is_empty() {
        for index in &waiting {
            stage.send(pairs[*index].0, &mut queues[*index].0);
        }
        stage.run_until_idle();
        waiting.retain(|index| match stage.take(pairs[*index].0)[..] {
            [Told::Sent(Ok(0))] => true,
            [Told::Sent(Ok(300))] => false,
            ref other => panic!("{other:?}"),
        });
    }
    for ((_, peer), (_, bytes)) in pairs.iter().zip(&queues) {
        assert!(read(peer) == *bytes);
    }
}

#[test]
fn what_is_much_goes_by_calls_and_waits_for_room_without_lending_anything() {
    let mut stage = Stage::new();
    let (token, peer) = stage.pair();
    let (mut queue, bytes) = parts(&stage, 100, 10_000);
    let (mut come, mut waited) = (Vec::new(), 0);
    while !queue.is_empty() {
        stage.send(token, &mut queue);
        stage.run_until_idle();
        if stage.told(token).is_empty() {
            waited += 1;
            come.extend(read(&peer));
            stage.run_until_idle();
        }
        let told = stage.take(token);
        let [Told::Sent(Ok(count))] = told[..] else { panic!("{told:?}") };
        queue.advance(count as u64);
    }
    come.extend(read(&peer));
    assert!(come == bytes);
    assert!(waited > 0, "it has never waited");
    // The last of it may be little.
    assert!(sends(&stage) <= 1);
}

#[test]
fn a_file_that_cannot_go_on_waits_for_room() {
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
        if stage.told(token).is_empty() {
            waited += 1;
            come.extend(read(&peer));
            stage.run_until_idle();
        }
        let told = stage.take(token);
        let [Told::Sent(Ok(count))] = told[..] else { panic!("{told:?}") };
        queue.advance(count as u64);
    }
    come.extend(read(&peer));
    assert!(come == bytes && waited > 0);
    assert_eq!(sends(&stage), 0, "files go by calls");
}

/// Who waits for the next turn alone, as its send is on its way, has to hear from it.
#[test]
fn a_little_that_finds_no_room_is_told_at_once_and_again_when_there_is_room() {
    let mut stage = Stage::new();
    let (token, peer) = stage.pair();
    let mut much = stage.queue(&pattern(1 << 22));
    while stage.told(token).is_empty() || matches!(stage.take(token)[..], [Told::Sent(Ok(1..))]) {
        stage.send(token, &mut much);
        if stage.told(token).is_empty() {
            break;
        }
    }
    stage.run_until_idle();
    stage.take(token);
    let _ = read(&peer);
    stage.run_until_idle();
    assert_eq!(stage.take(token), [Told::Sent(Ok(0))], "there is room");
    let mut little = stage.queue(b"little");
    let mut sent = 0;
    let is_on_its_way = |stage: &Stage| {
        let socket = stage.machine.sockets.get(token).unwrap();
        !socket.operations.is_idle(Kind::Send)
    };
    while sent < 1 << 20 {
        stage.send(token, &mut little);
        stage.run_until_idle();
        match stage.take(token)[..] {
            [Told::Sent(Ok(count @ 1..))] => sent += count,
            [Told::Sent(Ok(0))] => break,
            ref told => panic!("{told:?}"),
        }
    }
    assert!(!is_on_its_way(&stage));
    stage.send(token, &mut little);
    stage.run_until_idle();
    assert_eq!(stage.take(token), [], "it waits");
    assert!(!is_on_its_way(&stage), "which is not to be on its way");
    let _ = read(&peer);
    stage.run_until_idle();
    assert_eq!(stage.take(token), [Told::Sent(Ok(0))]);
}
