//! The ledger: a loop whose memory is used up.

use std::io::{Read, Write};

use tidegate_codec::framing::{LengthField, Lines, Payload};
use tidegate_codec::{Over, Pipeline, Slice};
use tidegate_engine::{Limits, Outcome};
use tidegate_testkit::filters::StripPrefix;

use crate::handler::support::{Call, Journal, Pairs, Probe, by_default, echo, exchange};

const MIB: usize = 1 << 20;

#[test]
fn at_the_budget_the_connection_with_most_bytes_waiting_is_shed_first() {
    const BUDGET: usize = 6 * MIB + MIB / 2;
    let mut pairs = Pairs::new(BUDGET);
    let mut connections = Vec::new();
    for mib in [2, 4, 1, 3] {
        let journal = Journal::default();
        let probe = Probe::new(&journal, move |call, cx| {
            if let Call::Message(_) = call {
                // The kernel takes some of it.
                cx.send(Payload::Encoded(vec![mib as u8; mib * MIB].into())).unwrap();
            }
            Outcome::Continue
        });
        let (stream, _) = pairs.connect(Limits::default(), Lines::new(), probe);
        connections.push((mib, stream, journal));
    }
    for (_, stream, journal) in &mut connections {
        stream.write_all(b"send\n").unwrap();
        pairs.turn_until(|| journal.count("message send") == 1);
        pairs.turns(3);
    }
    // Two and four fit, with one it is too much: four goes, and then there is room for three.
    let shed: Vec<_> = connections.iter().filter(|(.., journal)| journal.take().len() == 3).map(|c| c.0).collect();
    assert_eq!(shed, [4]);
    assert_eq!(pairs.event_loop.counts().closed_shed, 1);
    assert!(pairs.pool.ledger().used() < BUDGET);
    for (mib, stream, _) in &mut connections {
        let mut seen = Vec::new();
        if *mib == 4 {
            // It was reset: the peer must not take a truncated message for a complete one.
            let _ = stream.read_to_end(&mut seen);
            assert!(seen.len() < 4 * MIB);
            continue;
        }
        pairs.turn_until(|| {
            exchange(stream, &mut &b""[..], &mut seen);
            seen.len() == *mib * MIB
        });
        assert!(seen.iter().all(|byte| usize::from(*byte) == *mib), "every byte of the others is right");
    }
}

#[test]
fn bytes_that_wait_to_be_decoded_count_as_well() {
    let framing = || LengthField::builder(4).frame_bytes_max(8 * MIB).build();
    shed_for_undecoded_bytes(framing, b"");
    // Here the bytes wait above the filter.
    shed_for_undecoded_bytes(move || Over::new(StripPrefix::new(b"PROXY"), framing()), b"PROXY");
}

fn shed_for_undecoded_bytes<C>(make: impl Fn() -> C, first_bytes: &[u8])
where
    C: Pipeline<In = Slice, Out = Payload>,
{
    let mut pairs = Pairs::new(3 * MIB);
    let (small, large) = (Journal::default(), Journal::default());
    let (mut first, _) = pairs.connect(Limits::default(), make(), Probe::new(&small, echo));
    let (mut second, _) = pairs.connect(Limits::default(), make(), Probe::new(&large, echo));
    // The halves of two frames, the second of which is too much for the loop.
    let half = [first_bytes, &(MIB as u32).to_be_bytes(), &vec![1; MIB / 2]].concat();
    let (mut rest, mut seen) = (&half[..], Vec::new());
    pairs.turn_until(|| {
        exchange(&mut first, &mut rest, &mut seen);
        rest.is_empty()
    });
    let frame = [first_bytes, &(7 * MIB as u32).to_be_bytes(), &vec![2; 7 * MIB]].concat();
    let (mut much, mut nothing) = (&frame[..], Vec::new());
    pairs.turn_until(|| {
        exchange(&mut second, &mut much, &mut nothing);
        pairs_shed(&large)
    });
    assert!(!pairs_shed(&small));
    assert!(pairs.pool.ledger().used() < 3 * MIB);
    // The remaining connection is served as before.
    let other_half = vec![1; MIB / 2];
    let (mut rest, mut seen) = (&other_half[..], Vec::new());
    pairs.turn_until(|| {
        exchange(&mut first, &mut rest, &mut seen);
        seen.len() == MIB + 4
    });
}

fn pairs_shed(journal: &Journal) -> bool {
    journal.count("closed: shed: the memory budget is used up, and this connection had most bytes waiting") == 1
}

#[test]
fn many_partial_messages_do_not_stop_a_loop() {
    // Each frame fits, all of them together do not: some connections are shed, and the others finish.
    let mut pairs = Pairs::new(2 * MIB);
    let framing = || LengthField::builder(4).frame_bytes_max(MIB).build();
    let mut connections = Vec::new();
    for number in 0..12 {
        let journal = Journal::default();
        let (stream, _) = pairs.connect(Limits::default(), framing(), Probe::new(&journal, echo));
        let size = 250_000 + number * 1_000;
        let frame = [&(size as u32).to_be_bytes()[..], &vec![number as u8; size]].concat();
        connections.push((stream, frame, 0, Vec::new(), journal));
    }
    // All of them, in turn, send all but the last byte.
    for _ in 0..200 {
        for (stream, frame, sent, seen, _) in &mut connections {
            let end = frame.len() - 1;
            let mut rest = &frame[(*sent).min(end)..((*sent) + 10_000).min(end)];
            let before = rest.len();
            exchange(stream, &mut rest, seen);
            *sent += before - rest.len();
        }
        pairs.turns(1);
    }
    let mut alive = 0;
    for (mut stream, frame, sent, mut seen, journal) in connections {
        if pairs_shed(&journal) {
            continue;
        }
        alive += 1;
        let mut rest = &frame[sent..];
        pairs.turn_until(|| {
            exchange(&mut stream, &mut rest, &mut seen);
            seen.len() == frame.len()
        });
        assert_eq!(seen, frame);
    }
    assert!((1..12).contains(&alive), "{alive}");
    drop(pairs);
}

#[test]
fn a_loop_that_got_room_by_itself_reads_on() {
    let mut pairs = Pairs::new(4 * MIB);
    let mut sends = |kib: usize| {
        let journal = Journal::default();
        let probe = Probe::new(&journal, move |call, cx| match call {
            Call::Message(_) => {
                cx.send(Payload::Encoded(vec![1; kib * 1024].into())).unwrap();
                Outcome::Continue
            }
            call => by_default(&call, cx),
        });
        let (stream, _) = pairs.connect(Limits::default(), Lines::new(), probe);
        (stream, journal)
    };
    let (mut first, mut second, mut third) = (sends(3_000), sends(500), sends(800));
    let echoes = Journal::default();
    let (mut other, _) = pairs.connect(Limits::default(), Lines::new(), Probe::new(&echoes, echo));
    for (stream, journal) in [&mut first, &mut second] {
        stream.write_all(b"send\n").unwrap();
        pairs.turn_until(|| journal.count("message send") == 1);
    }
    // Within one turn the third connection uses up the budget, and the second, whose peer has closed, frees some: less
    // than an eighth stays free, and no connection is shed.
    third.0.write_all(b"send\n").unwrap();
    drop(second.0);
    pairs.turn_until(|| third.1.count("message send") == 1);
    pairs.turns(3);
    assert_eq!(pairs.event_loop.counts().closed_shed, 0);
    assert!(pairs.pool.ledger().used() > 4 * MIB / 8 * 7);
    other.write_all(b"ebb\n").unwrap();
    pairs.turn_until(|| echoes.count("message ebb") == 1);
}

#[test]
fn all_memory_is_freed_when_connections_are_closed() {
    let mut pairs = Pairs::new(usize::MAX);
    let journal = Journal::default();
    for _ in 0..3 {
        let mut streams = Vec::new();
        for _ in 0..50 {
            let (mut stream, _) = pairs.connect(Limits::default(), Lines::new(), Probe::new(&journal, echo));
            stream.write_all(b"ebb\nhalf a li").unwrap();
            streams.push(stream);
        }
        pairs.turn_until(|| journal.count("message ebb") == 50);
        for stream in &mut streams {
            let mut answer = [0; 4];
            stream.read_exact(&mut answer).unwrap();
        }
        drop(streams);
        pairs.turn_until(|| journal.count("closed: the peer ended after 9 bytes of a frame") == 50);
        journal.take();
        pairs.turns(2);
        assert_eq!(pairs.event_loop.counts().connections, 0);
        // The scratch stays.
        assert!(pairs.pool.ledger().used() < 84 * 1024, "{}", pairs.pool.ledger().used());
    }
}
