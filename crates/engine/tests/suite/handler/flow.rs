//! Back-pressure, pausing, and refused messages.

use std::convert::Infallible;
use std::time::Duration;

use tidegate_buffer::WaterMarks;
use tidegate_codec::framing::Lines;
use tidegate_codec::{Filter, Input, Outbound, Output, Over, Step};
use tidegate_engine::{Event, Limits, Outcome, SendError};
use tidegate_testkit::Embedded;
use tidegate_testkit::filters::ToyTls;

use crate::handler::support::{Call, Cx, Habits, Happening, Journal, Parcel, Probe, by_default, bytes, echo, marks};

#[test]
fn a_cap_below_the_high_mark_makes_a_full_connection_unwritable() {
    let journal = Journal::default();
    let inside = journal.clone();
    let limits = Limits { water: WaterMarks { cap: 3_000, ..WaterMarks::new(64_000, 32_000) }, ..Limits::default() };
    let mut pipe = Embedded::with_limits(
        Lines::new(),
        Probe::new(&journal, move |call, cx: &mut Cx<'_, Lines>| {
            if let Call::Event(Event::Posted(_)) = call {
                while cx.is_writable() {
                    cx.send(bytes(1_000)).unwrap();
                }
                let refused = matches!(cx.send(bytes(1_000)), Err(SendError::Full(_)));
                inside.note(format!("refused: {refused}"));
            }
            Outcome::Continue
        }),
        limits,
    );
    pipe.post("go");
    assert_eq!(journal.count("refused: true"), 1);
}

#[test]
fn past_the_cap_a_message_is_refused_and_returned() {
    let journal = Journal::default();
    let inside = journal.clone();
    let mut pipe = Embedded::with_limits(
        Lines::new(),
        Probe::new(&journal, move |call, cx: &mut Cx<'_, Lines>| {
            if let Call::Event(Event::Posted(_)) = call {
                for number in 0.. {
                    match cx.send(bytes(1_000)) {
                        Ok(_) => assert!(cx.pending_bytes() > number * 1_000),
                        Err(SendError::Full(message)) => {
                            assert_eq!(message.as_ref().len(), 1_000);
                            inside.note(format!("full after {number}"));
                            break;
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
            }
            Outcome::Continue
        }),
        marks(4_000, 2_000),
    );
    pipe.limit_peer_reads(0);
    pipe.post("fill");
    // The cap is four times the high mark, and the message that passes it is still taken.
    assert_eq!(journal.take(), ["open", r#"Posted("fill")"#, "full after 16"]);
    pipe.limit_peer_reads(usize::MAX);
    assert_eq!(pipe.take_written().len(), 16 * 1_001);
    assert_eq!(journal.take(), ["Writable"]);
}

#[test]
fn a_message_that_the_codec_refuses_has_no_other_effect() {
    let journal = Journal::default();
    let mut pipe = Embedded::new(
        Lines::new(),
        Probe::new(&journal, |call, cx| {
            if let Call::Message(line) = call {
                assert!(matches!(cx.send("two\nlines".into()), Err(SendError::Codec(_))));
                cx.send(line.into()).unwrap();
            }
            Outcome::Continue
        }),
    );
    pipe.receive(b"ebb\n");
    assert_eq!(pipe.take_written(), b"ebb\n");
    assert!(!pipe.is_write_closed());
}

#[test]
fn after_shutdown_write_sends_are_refused_and_receiving_goes_on() {
    let journal = Journal::default();
    let mut pipe = Embedded::new(
        Lines::new(),
        Probe::new(&journal, |call, cx: &mut Cx<'_, Lines>| {
            match &call {
                Call::Open => {
                    cx.send("last".into()).unwrap();
                    cx.shutdown_write();
                }
                Call::Message(line) => match cx.send(line.clone().into()) {
                    Err(SendError::Closed(back)) => assert_eq!(back.as_ref(), &**line),
                    other => panic!("{other:?}"),
                },
                Call::Event(_) => {}
            }
            by_default(&call, cx)
        }),
    );
    assert!(pipe.is_write_closed() && !pipe.is_closed());
    assert_eq!(pipe.take_written(), b"last\n");
    pipe.receive(b"still\nheard\n");
    assert_eq!(journal.take(), ["open", "message still", "message heard"]);
    pipe.receive_fin();
    assert!(pipe.is_closed(), "both sides have ended, there is nothing to linger for");
    assert_eq!(journal.take(), ["ReadClosed", "closed: done"]);
}

#[test]
fn shutdown_write_waits_until_everything_was_taken() {
    let journal = Journal::default();
    let mut pipe = Embedded::new(
        Lines::new(),
        Probe::new(&journal, |call, cx| {
            if let Call::Message(line) = call {
                cx.send(line.into()).unwrap();
                cx.shutdown_write();
            }
            Outcome::Continue
        }),
    );
    pipe.limit_peer_reads(0);
    pipe.receive(b"ebb\n");
    assert!(!pipe.is_write_closed());
    pipe.limit_peer_reads(usize::MAX);
    assert!(pipe.is_write_closed() && !pipe.is_closed());
}

#[test]
fn shutdown_write_sends_the_final_bytes_of_a_filter() {
    let journal = Journal::default();
    let mut pipe = Embedded::new(
        Over::new(ToyTls::server(1), Lines::new()),
        Probe::new(&journal, |call, cx| {
            if let Call::Message(line) = call
                && cx.send(line.into()).is_ok()
            {
                cx.shutdown_write();
            }
            Outcome::Continue
        }),
    );
    let wire = ToyTls::client_wire(1, b"ebb\nflow\n", 4);
    let (first, rest) = wire.split_at(4 + 2 + 4);
    pipe.receive(first);
    assert!(pipe.is_write_closed());
    assert_eq!(ToyTls::decode_wire(1, &pipe.take_written()), (b"ebb\n".to_vec(), true));
    pipe.receive(rest);
    assert_eq!(journal.take(), ["open", "Established", "message ebb", "message flow", "ReadClosed"]);
}

#[test]
fn replies_of_the_codec_after_shutdown_write_are_dropped() {
    let journal = Journal::default();
    let mut pipe = Embedded::new(
        Habits::default(),
        Probe::new(&journal, |call, cx| {
            if let Call::Open = call {
                cx.shutdown_write();
            }
            by_default(&call, cx)
        }),
    );
    pipe.receive(b"reply 100\nebb\n");
    assert_eq!(pipe.take_written(), b"");
    pipe.receive_fin();
    assert_eq!(journal.take(), ["open", "message ebb", "ReadClosed", "closed: done"]);
}

#[test]
fn a_pause_in_the_middle_of_pipelined_messages_is_respected_at_once() {
    let journal = Journal::default();
    let mut pipe = Embedded::new(
        Lines::new(),
        Probe::new(&journal, |call, cx| {
            match call {
                Call::Message(_) => cx.pause(),
                Call::Event(Event::Posted(_)) => cx.resume(),
                _ => {}
            }
            Outcome::Continue
        }),
    );
    pipe.receive(b"1\n2\n3\n4");
    assert_eq!(journal.take(), ["open", "message 1"]);
    assert!(!pipe.is_receiving());
    pipe.receive(b"5\n");
    assert_eq!(journal.take(), [""; 0], "later messages wait");
    for message in ["message 2", "message 3", "message 45"] {
        pipe.post("next");
        assert_eq!(journal.take(), [r#"Posted("next")"#, message]);
    }
}

#[test]
fn the_end_of_the_peer_waits_while_the_handler_is_paused() {
    let journal = Journal::default();
    let mut pipe = Embedded::new(
        Lines::new(),
        Probe::new(&journal, |call, cx| {
            match call {
                Call::Message(_) => cx.pause(),
                Call::Event(Event::Posted(_)) => cx.resume(),
                _ => {}
            }
            by_default(&call, cx)
        }),
    );
    pipe.receive(b"1\n2\n");
    pipe.receive_fin();
    assert_eq!(journal.take(), ["open", "message 1"]);
    pipe.post("next");
    assert_eq!(journal.take(), [r#"Posted("next")"#, "message 2"]);
    pipe.post("next");
    assert_eq!(journal.take(), [r#"Posted("next")"#, "ReadClosed", "closed: done"]);
}

#[test]
fn a_paused_handler_resumes_from_every_event() {
    let cases: [(&str, Happening); 3] = [
        ("Deadline", |pipe| pipe.advance(Duration::from_secs(1))),
        ("Flushed", |pipe| pipe.limit_peer_reads(usize::MAX)),
        ("Drain", |pipe| pipe.drain(Duration::from_secs(60))),
    ];
    for (event, happen) in cases {
        let journal = Journal::default();
        let mut pipe = Embedded::new(
            Lines::new(),
            Probe::new(&journal, move |call, cx| {
                match call {
                    Call::Message(line) => {
                        cx.pause();
                        cx.deadline_after(Duration::from_secs(1));
                        let mark = cx.send(line.into()).unwrap();
                        cx.watch(mark);
                    }
                    Call::Event(call) if format!("{call:?}") == event => cx.resume(),
                    _ => {}
                }
                Outcome::Continue
            }),
        );
        pipe.limit_peer_reads(0);
        pipe.receive(b"1\n2\n");
        assert_eq!(journal.take(), ["open", "message 1"]);
        happen(&mut pipe);
        assert_eq!(journal.take()[..2], [event, "message 2"]);
    }
}

#[test]
fn reading_stops_while_the_connection_is_unwritable_and_goes_on_afterwards() {
    let journal = Journal::default();
    let mut pipe = Embedded::with_limits(Lines::new(), Probe::new(&journal, echo), marks(4_000, 1_000));
    pipe.limit_peer_reads(0);
    let line = [&[b'x'; 999][..], b"\n"].concat();
    pipe.receive(&line.repeat(20));
    let answered = journal.take().len() - 1;
    assert_eq!(answered, 4, "decoding stops past the high mark, in the middle of the received bytes");
    assert!(!pipe.is_receiving());
    pipe.receive(&line.repeat(20));
    assert_eq!(journal.take().len(), 0);
    pipe.limit_peer_reads(usize::MAX);
    assert_eq!(pipe.take_written(), line.repeat(40));
    assert!(pipe.is_receiving());
}

#[test]
fn a_large_answer_beside_codec_replies_does_not_close_the_connection() {
    let journal = Journal::default();
    let mut pipe = Embedded::with_limits(
        Habits::default(),
        Probe::new(&journal, |call, cx| {
            if let Call::Message(_) = call {
                // One message may be as large as it likes, while there is room at all.
                for _ in 0..16 {
                    let _ = cx.send(Parcel::Line(bytes(1_000)));
                }
            }
            Outcome::Continue
        }),
        marks(1_000, 500),
    );
    pipe.limit_peer_reads(0);
    pipe.receive(b"reply 10\nebb\n");
    assert!(!pipe.is_closed(), "{:?}", journal.take());
}

#[test]
fn a_peer_that_does_not_read_the_codecs_replies_is_cut_off() {
    let journal = Journal::default();
    let mut pipe =
        Embedded::with_limits(Habits::default(), Probe::new(&journal, |_, _| Outcome::Continue), marks(4_000, 1_000));
    pipe.limit_peer_reads(0);
    pipe.receive(b"reply 15000\n");
    assert!(!pipe.is_closed(), "below the cap");
    pipe.receive(&b"reply 1000\n".repeat(100));
    assert!(!pipe.is_closed(), "it is unwritable, so it is not made to answer more");
    pipe.limit_peer_reads(usize::MAX);
    assert_eq!(pipe.counts().closed_replies_unread, 1, "but as much at once is over the cap");
    assert!(pipe.is_reset());
    assert!(journal.take().last().unwrap().starts_with("closed: the peer does not read"));
}

#[test]
fn the_cap_of_replies_counts_through_a_filter() {
    let journal = Journal::default();
    let mut pipe = Embedded::with_limits(
        Over::new(ToyTls::server(9), Habits::default()),
        Probe::new(&journal, |_, _| Outcome::Continue),
        marks(4_000, 1_000),
    );
    pipe.receive(&ToyTls::client_wire(9, &b"reply 1000\n".repeat(100), 4096));
    assert_eq!(pipe.counts().closed_replies_unread, 1, "{:?}", journal.take());
}

#[test]
fn a_peer_that_takes_nothing_is_disconnected() {
    let journal = Journal::default();
    let limits = Limits { write_timeout: Duration::from_secs(60), ..Limits::default() };
    let mut pipe = Embedded::with_limits(Lines::new(), Probe::new(&journal, echo), limits);
    pipe.advance(Duration::from_secs(3_600));
    assert!(!pipe.is_closed(), "nothing waits");
    pipe.limit_peer_reads(0);
    pipe.receive(b"ebb\n");
    pipe.advance(Duration::from_millis(59_999));
    assert!(!pipe.is_closed());
    pipe.receive(b"flow\n");
    pipe.advance(Duration::from_millis(1));
    assert!(pipe.is_reset(), "bytes of the peer are no progress of ours");
    assert_eq!(pipe.counts().closed_write_timeout, 1);
}

#[test]
fn a_peer_that_takes_few_bytes_stays_connected_without_a_least_rate() {
    let journal = Journal::default();
    let limits = Limits { write_timeout: Duration::from_secs(60), write_rate_min: 0, ..Limits::default() };
    let mut pipe = Embedded::with_limits(Lines::new(), Probe::new(&journal, echo), limits);
    pipe.limit_peer_reads(0);
    pipe.receive(b"0123456789\n");
    for _ in 0..10 {
        pipe.advance(Duration::from_secs(59));
        pipe.limit_peer_reads(1);
    }
    assert!(!pipe.is_closed());
    assert_eq!(pipe.take_written(), b"0123456789");
    pipe.advance(Duration::from_secs(60));
    assert!(pipe.is_reset());
}

#[test]
fn messages_before_a_handshake_may_exceed_every_water_mark() {
    let journal = Journal::default();
    let mut pipe = Embedded::new(
        Over::new(ToyTls::server(9), Lines::new().with_line_bytes_max(2 << 20)),
        Probe::new(&journal, |call, cx| {
            if let Call::Open = call {
                cx.send(bytes(1 << 20)).unwrap();
            }
            Outcome::Continue
        }),
    );
    pipe.receive_bytewise(b"TOY?");
    assert_eq!(journal.take(), ["open", "Established", "Writable"]);
    let (plain, _) = ToyTls::decode_wire(9, &pipe.take_written());
    assert_eq!(plain.len(), (1 << 20) + 1);
}

/// A handshake without an end: acknowledges every byte with a thousand, also while the handler is paused.
struct Acknowledges;

impl Filter for Acknowledges {
    type Error = Infallible;

    fn inbound(&mut self, wire: &mut Input, _: &mut Input, reply: &mut Output<'_>) -> Result<Step<()>, Infallible> {
        for _ in &*wire.take_all() {
            reply.write(&[b'a'; 1_000]);
        }
        Ok(Step::NeedMore)
    }

    fn outbound(&mut self, _: &mut Outbound, _: &mut Output<'_>) -> Result<(), Infallible> {
        Ok(())
    }

    fn is_established(&self) -> bool {
        false
    }
}

#[test]
fn a_handshake_stops_when_its_replies_are_unread() {
    let journal = Journal::default();
    let mut pipe = Embedded::with_limits(
        Over::new(Acknowledges, Lines::new()),
        Probe::new(&journal, |call, cx| {
            if let Call::Open = call {
                cx.pause();
            }
            Outcome::Continue
        }),
        marks(4_000, 1_000),
    );
    pipe.receive(b"ab");
    assert_eq!(pipe.take_written().len(), 2_000);
    pipe.limit_peer_reads(0);
    pipe.receive_bytewise(&[b'x'; 1_000]);
    assert!(!pipe.is_receiving() && !pipe.is_closed());
    assert!(pipe.pool().ledger().used() < 200_000, "{}", pipe.pool().ledger().used());
    pipe.limit_peer_reads(usize::MAX);
    assert_eq!(pipe.take_written().len(), 1_000_000, "and continues as soon as it does");
}
