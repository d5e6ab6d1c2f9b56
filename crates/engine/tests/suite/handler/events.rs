//! Every event, and when it comes.

use std::time::Duration;

use tidegate_buffer::WritePosition;
use tidegate_codec::framing::Lines;
use tidegate_codec::{Over, Slice};
use tidegate_engine::{Context, Event, Handler, Outcome, PostError};
use tidegate_testkit::Embedded;
use tidegate_testkit::filters::{StripPrefix, ToyTls};

use crate::handler::support::{Call, Habits, Journal, Probe, by_default, bytes, echo, marks};

const KEY: u8 = 0x5a;

#[test]
fn open_comes_first_and_messages_in_the_order_of_their_bytes() {
    for bytewise in [false, true] {
        let journal = Journal::default();
        let mut pipe = Embedded::new(Lines::new(), Probe::new(&journal, echo));
        if bytewise {
            pipe.receive_bytewise(b"ebb\nflow\n");
        } else {
            pipe.receive(b"ebb\nflow\n");
        }
        assert_eq!(journal.take(), ["open", "message ebb", "message flow"]);
        assert_eq!(pipe.take_written(), b"ebb\nflow\n");
    }
}

#[test]
fn messages_sent_in_open_leave_before_any_input() {
    let journal = Journal::default();
    let mut pipe = Embedded::new(
        Lines::new(),
        Probe::new(&journal, |call, cx| {
            if let Call::Open = call {
                cx.send("220 ready".into()).unwrap();
            }
            Outcome::Continue
        }),
    );
    assert_eq!(pipe.take_written(), b"220 ready\n");
}

#[test]
fn posts_arrive_in_order_and_leave_in_one_piece() {
    let journal = Journal::default();
    let mut pipe = Embedded::new(
        Lines::new(),
        Probe::new(&journal, |call, cx| match call {
            Call::Event(Event::Posted(text)) => cx.send(text.into()).into(),
            call => by_default(&call, cx),
        }),
    );
    let remote = pipe.remote();
    for text in ["one", "two"] {
        remote.post(text).unwrap();
    }
    pipe.post("three");
    assert_eq!(journal.take(), ["open", r#"Posted("one")"#, r#"Posted("two")"#, r#"Posted("three")"#]);
    assert_eq!(pipe.take_written(), b"one\ntwo\nthree\n");
}

#[test]
fn a_post_to_a_closing_or_closed_connection_is_dropped() {
    let journal = Journal::default();
    let mut pipe = Embedded::new(Lines::new(), Probe::new(&journal, |_, _| Outcome::Close));
    pipe.post("while it lingers");
    pipe.receive_fin();
    let remote = pipe.remote();
    assert!(remote.is_closed());
    assert_eq!(remote.post("when it is gone"), Err(PostError::Closed("when it is gone")));
    assert_eq!(journal.take(), ["open", "closed: done"]);
}

#[test]
fn a_remote_of_a_connection_that_closed_in_its_first_dispatch_is_gone() {
    struct Refuse;
    impl Handler<Lines> for Refuse {
        type Post = ();
        fn open(&mut self, _: &mut Context<'_, Lines>) -> Outcome<Lines> {
            panic!("on request")
        }
        fn message(&mut self, _: Slice, _: &mut Context<'_, Lines>) -> Outcome<Lines> {
            Outcome::Continue
        }
    }
    let mut pipe = Embedded::new(Lines::new(), Refuse);
    pipe.receive_fin();
    assert!(pipe.is_closed() && pipe.remote().is_closed());
}

#[test]
fn after_the_end_of_the_loop_a_post_comes_back() {
    let journal = Journal::default();
    let pipe = Embedded::new(Lines::new(), Probe::new(&journal, echo));
    let remote = pipe.remote();
    drop(pipe);
    assert_eq!(remote.post("late"), Err(PostError::Closed("late")));
    assert_eq!(journal.take(), ["open", "closed: the event loop ended"]);
}

#[test]
fn a_deadline_fires_once_and_not_before_its_time() {
    let journal = Journal::default();
    let mut pipe = Embedded::new(
        Lines::new(),
        Probe::new(&journal, |call, cx| {
            if let Call::Open = call {
                cx.deadline_after(Duration::from_secs(5));
            }
            Outcome::Continue
        }),
    );
    pipe.advance(Duration::from_millis(4_999));
    assert_eq!(journal.take(), ["open"]);
    pipe.advance(Duration::from_millis(1));
    assert_eq!(journal.take(), ["Deadline"]);
    pipe.advance(Duration::from_secs(3_600));
    assert_eq!(journal.take(), [""; 0]);
}

#[test]
fn a_deadline_that_is_moved_fires_at_its_new_time_only() {
    // Each message moves the deadline: to later, which the wheel does lazily, or to sooner.
    for (first, then) in [(10, 30), (30, 10)] {
        let journal = Journal::default();
        let mut pipe = Embedded::new(
            Lines::new(),
            Probe::new(&journal, move |call, cx| {
                match call {
                    Call::Open => cx.deadline_after(Duration::from_secs(first)),
                    Call::Message(_) => cx.deadline_after(Duration::from_secs(then)),
                    Call::Event(_) => {}
                }
                Outcome::Continue
            }),
        );
        pipe.receive(b"move\n");
        pipe.advance(Duration::from_secs(then) - Duration::from_millis(1));
        assert_eq!(journal.count("Deadline"), 0);
        pipe.advance(Duration::from_millis(1));
        assert_eq!(journal.count("Deadline"), 1);
        pipe.advance(Duration::from_secs(60));
        assert_eq!(journal.count("Deadline"), 1);
    }
}

#[test]
fn a_deadline_that_is_taken_back_does_not_fire() {
    let journal = Journal::default();
    let mut pipe = Embedded::new(
        Lines::new(),
        Probe::new(&journal, |call, cx| {
            match call {
                Call::Open => cx.deadline_after(Duration::from_secs(5)),
                _ => cx.deadline(None),
            }
            Outcome::Continue
        }),
    );
    pipe.receive(b"no\n");
    pipe.advance(Duration::from_secs(60));
    assert_eq!(journal.take(), ["open", "message no"]);
}

#[test]
fn a_deadline_may_be_set_anew_when_it_has_come() {
    let journal = Journal::default();
    let mut pipe = Embedded::new(
        Lines::new(),
        Probe::new(&journal, |_, cx| {
            cx.deadline_after(Duration::from_secs(1));
            Outcome::Continue
        }),
    );
    pipe.advance(Duration::from_millis(10_500));
    assert_eq!(journal.count("Deadline"), 10);
}

#[test]
fn flushed_comes_once_the_kernel_has_all_bytes_up_to_the_position() {
    let journal = Journal::default();
    let mut pipe = Embedded::new(
        Lines::new(),
        Probe::new(&journal, |call, cx| {
            if let Call::Message(_) = call {
                let mark = cx.send("12345".into()).unwrap();
                cx.watch(mark);
                cx.send("behind the mark".into()).unwrap();
            }
            Outcome::Continue
        }),
    );
    pipe.limit_peer_reads(0);
    pipe.receive(b"go\n");
    pipe.advance(Duration::from_secs(30));
    assert_eq!(journal.take(), ["open", "message go"]);
    pipe.limit_peer_reads(5);
    assert_eq!(journal.take(), [""; 0], "five of six bytes");
    pipe.limit_peer_reads(1);
    assert_eq!(journal.take(), ["Flushed"]);
    pipe.limit_peer_reads(usize::MAX);
    assert_eq!(journal.take(), [""; 0], "it comes once");
}

#[test]
fn a_position_that_was_reached_already_is_reported_at_once() {
    let journal = Journal::default();
    let mut pipe = Embedded::new(
        Lines::new(),
        Probe::new(&journal, |call, cx| {
            match call {
                Call::Open => cx.send("hello".into()).map(drop).unwrap(),
                Call::Event(Event::Posted(_)) => cx.watch(WritePosition(6)),
                _ => {}
            }
            Outcome::Continue
        }),
    );
    pipe.post("watch");
    assert_eq!(journal.take(), ["open", r#"Posted("watch")"#, "Flushed"]);
}

#[test]
fn a_new_watched_position_replaces_the_old_one() {
    let journal = Journal::default();
    let mut pipe = Embedded::new(
        Lines::new(),
        Probe::new(&journal, |call, cx| {
            if let Call::Message(line) = call {
                let mark = cx.send(line.into()).unwrap();
                cx.watch(mark);
            }
            Outcome::Continue
        }),
    );
    pipe.limit_peer_reads(0);
    pipe.receive(b"one\ntwo\n");
    pipe.limit_peer_reads(4);
    assert_eq!(journal.count("Flushed"), 0);
    pipe.limit_peer_reads(4);
    assert_eq!(journal.count("Flushed"), 1);
}

#[test]
fn watching_again_in_flushed_gives_one_event_per_turn() {
    let journal = Journal::default();
    let mut left = 50;
    let mut pipe = Embedded::new(
        Lines::new(),
        Probe::new(&journal, move |call, cx| {
            if matches!(call, Call::Event(Event::Posted(_) | Event::Flushed)) && left > 0 {
                left -= 1;
                // The kernel has the bytes already: a loop that reported it at once would never end.
                cx.watch(WritePosition(0));
            }
            Outcome::Continue
        }),
    );
    let before = pipe.counts().turns;
    pipe.post("watch");
    assert_eq!(journal.count("Flushed"), 50);
    assert!(pipe.counts().turns - before >= 50, "more than one in a turn");
}

#[test]
fn a_filter_translates_the_write_position() {
    let journal = Journal::default();
    let mut pipe = Embedded::new(
        Over::new(ToyTls::server(KEY), Lines::new()),
        Probe::new(&journal, |call, cx| {
            if let Call::Open = call {
                let mark = cx.send("greeting".into()).unwrap();
                assert_eq!(mark, WritePosition(9), "a mark counts the bytes of the uppermost codec");
                cx.watch(mark);
            }
            Outcome::Continue
        }),
    );
    assert_eq!((pipe.take_written(), journal.take()), (vec![], vec!["open".to_owned()]));
    pipe.limit_peer_reads(0);
    pipe.receive(b"TOY?");
    assert_eq!(journal.take(), ["Established"], "the peer has taken nothing yet");
    // A hello of four bytes, a header of two, nine of the line.
    pipe.limit_peer_reads(4 + 2 + 8);
    assert_eq!(journal.take(), [""; 0]);
    pipe.limit_peer_reads(1);
    assert_eq!(journal.take(), ["Flushed"]);
    assert_eq!(ToyTls::decode_wire(KEY, &pipe.take_written()), (b"greeting\n".to_vec(), false));
}

#[test]
fn writable_comes_only_after_the_connection_was_unwritable() {
    let journal = Journal::default();
    let mut pipe = Embedded::with_limits(
        Lines::new(),
        Probe::new(&journal, |call, cx| {
            if let Call::Event(Event::Posted(_)) = call {
                assert!(cx.is_writable());
                cx.send(bytes(3_000)).unwrap();
                cx.send(bytes(3_000)).unwrap();
                assert!(!cx.is_writable() && cx.pending_bytes() > 6_000);
            }
            Outcome::Continue
        }),
        marks(4_000, 1_000),
    );
    pipe.limit_peer_reads(0);
    pipe.post("send");
    pipe.limit_peer_reads(4_000);
    assert_eq!(journal.count("Writable"), 0, "2,000 wait, which is more than the low mark");
    pipe.limit_peer_reads(1_500);
    assert_eq!(journal.count("Writable"), 1);
    pipe.limit_peer_reads(usize::MAX);
    assert_eq!(journal.count("Writable"), 1);
}

#[test]
fn a_connection_that_stays_writable_gets_no_writable_event() {
    let journal = Journal::default();
    let mut pipe = Embedded::with_limits(Lines::new(), Probe::new(&journal, echo), marks(4_000, 1_000));
    for _ in 0..100 {
        pipe.receive(b"just a line\n");
    }
    assert_eq!(journal.count("Writable"), 0);
}

#[test]
fn a_handler_that_refills_its_queue_gets_no_nested_writable_events() {
    let journal = Journal::default();
    let (inside, mut left) = (journal.clone(), 40);
    let mut pipe = Embedded::with_limits(
        Lines::new(),
        Probe::new(&journal, move |call, cx| {
            if matches!(call, Call::Event(Event::Posted(_) | Event::Writable)) && left > 0 {
                left -= 1;
                inside.note("begin");
                while cx.is_writable() {
                    cx.send(bytes(1_000)).unwrap();
                }
                inside.note("end");
            }
            Outcome::Continue
        }),
        marks(4_000, 1_000),
    );
    let before = pipe.counts().turns;
    pipe.post("stream");
    assert_eq!(journal.count("Writable"), 40);
    assert!(pipe.counts().turns - before >= 20, "at most at the dispatches of a turn");
    let lines = journal.take();
    for (line, next) in lines.iter().zip(&lines[1..]) {
        assert!(line != "begin" || next == "end", "an event in the middle of sending: {next}");
    }
    assert_eq!(pipe.take_written().len(), 40 * 4 * 1_001);
}

#[test]
fn an_application_may_block_writes() {
    let journal = Journal::default();
    let mut pipe = Embedded::new(
        Lines::new(),
        Probe::new(&journal, |call, cx| {
            if let Call::Event(Event::Posted(what)) = call {
                cx.block_writes(what == "hold");
            }
            Outcome::Continue
        }),
    );
    pipe.post("hold");
    assert!(!pipe.is_receiving(), "an unwritable connection does not receive");
    pipe.post("let go");
    assert_eq!(journal.take(), ["open", r#"Posted("hold")"#, r#"Posted("let go")"#, "Writable"]);
    assert!(pipe.is_receiving());
}

#[test]
fn the_end_of_the_peer_closes_by_default_once_everything_was_sent() {
    let journal = Journal::default();
    let mut pipe = Embedded::new(Lines::new(), Probe::new(&journal, echo));
    pipe.limit_peer_reads(0);
    pipe.receive(b"ebb\n");
    pipe.receive_fin();
    assert!(!pipe.is_write_closed());
    pipe.limit_peer_reads(usize::MAX);
    assert!(pipe.is_closed() && !pipe.is_reset());
    assert_eq!(pipe.take_written(), b"ebb\n");
    assert_eq!(journal.take(), ["open", "message ebb", "ReadClosed", "closed: done"]);
}

#[test]
fn a_codec_that_knows_its_end_is_left_to_find_it() {
    let journal = Journal::default();
    let codec = Habits { reports_finish: true, ..Habits::default() };
    let mut pipe = Embedded::new(
        codec,
        Probe::new(&journal, |call, cx| {
            if let Call::Message(line) = call {
                cx.send(line.into()).unwrap();
                return Outcome::Continue;
            }
            by_default(&call, cx)
        }),
    );
    pipe.receive(b"ebb\n");
    pipe.receive_fin();
    assert_eq!(journal.take(), ["open", "message ebb", "ReadClosed"]);
    assert!(!pipe.is_write_closed());
}

#[test]
fn a_codec_that_is_finished_closes_the_connection() {
    let journal = Journal::default();
    let mut pipe = Embedded::new(Habits::default(), Probe::new(&journal, |_, _| Outcome::Continue));
    pipe.receive(b"ebb\nquit\n");
    pipe.receive_fin();
    assert!(pipe.is_closed());
    assert_eq!(journal.take(), ["open", "message ebb", "closed: done"]);
}

#[test]
fn the_end_of_the_protocol_is_reported_like_that_of_the_peer() {
    let journal = Journal::default();
    let mut pipe = Embedded::new(Habits::default(), Probe::new(&journal, |_, _| Outcome::Continue));
    pipe.receive(b"ebb\nend\nflow\n");
    assert_eq!(journal.take(), ["open", "message ebb", "ReadClosed"], "once, and no message after it");
    pipe.receive(b"more\n");
    assert_eq!(journal.take(), [""; 0]);
}

#[test]
fn established_comes_once_before_the_first_message_at_every_split() {
    let wire = ToyTls::client_wire(KEY, b"ebb\nflow\n", 3);
    for bytewise in [false, true] {
        let journal = Journal::default();
        let mut pipe = Embedded::new(Over::new(ToyTls::server(KEY), Lines::new()), Probe::new(&journal, echo));
        if bytewise {
            pipe.receive_bytewise(&wire);
        } else {
            pipe.receive(&wire);
        }
        pipe.receive_fin();
        let lines = journal.take();
        assert_eq!(lines, ["open", "Established", "message ebb", "message flow", "ReadClosed", "closed: done"]);
        assert_eq!(ToyTls::decode_wire(KEY, &pipe.take_written()), (b"ebb\nflow\n".to_vec(), true));
    }
}

#[test]
fn a_handshake_goes_on_while_the_handler_is_paused() {
    let journal = Journal::default();
    let mut pipe = Embedded::new(
        Over::new(ToyTls::server(KEY), Lines::new()),
        Probe::new(&journal, |call, cx| {
            match call {
                Call::Open => cx.pause(),
                Call::Event(Event::Posted(_)) => cx.resume(),
                _ => {}
            }
            Outcome::Continue
        }),
    );
    pipe.receive(&ToyTls::client_wire(KEY, b"ebb\n", 4));
    assert_eq!(journal.take(), ["open", "Established"]);
    assert!(!pipe.is_receiving());
    pipe.post("go");
    assert_eq!(journal.take(), [r#"Posted("go")"#, "message ebb", "ReadClosed"]);
}

#[test]
fn a_drain_is_an_event_and_closes_by_default_after_the_flush() {
    let journal = Journal::default();
    let codec = Habits::default();
    let mut pipe = Embedded::new(
        codec,
        Probe::new(&journal, |call, cx| {
            assert_eq!(cx.is_draining(), matches!(call, Call::Event(Event::Drain)));
            by_default(&call, cx)
        }),
    );
    pipe.limit_peer_reads(0);
    pipe.drain(Duration::from_secs(10));
    assert!(!pipe.is_write_closed());
    pipe.limit_peer_reads(usize::MAX);
    assert_eq!(pipe.take_written(), b"draining\n", "the protocol may notify the peer");
    pipe.receive_fin();
    assert_eq!(journal.take(), ["open", "Drain", "closed: done"]);
}

#[test]
fn a_second_drain_is_no_event_and_only_shortens_the_time() {
    let journal = Journal::default();
    let codec = Habits { reports_finish: true, ..Habits::default() };
    let mut pipe = Embedded::new(codec, Probe::new(&journal, |call, cx| by_default(&call, cx)));
    pipe.drain(Duration::from_secs(10));
    pipe.drain(Duration::from_secs(5));
    pipe.drain(Duration::from_secs(20));
    pipe.advance(Duration::from_millis(4_999));
    assert_eq!(journal.take(), ["open", "Drain"]);
    pipe.advance(Duration::from_millis(1));
    assert_eq!(journal.take(), ["closed: the deadline of the drain had come"]);
}

#[test]
fn a_drain_cuts_off_remaining_connections_at_its_deadline() {
    let journal = Journal::default();
    let codec = Habits { reports_finish: true, ..Habits::default() };
    let mut pipe = Embedded::new(codec, Probe::new(&journal, |call, cx| by_default(&call, cx)));
    pipe.drain(Duration::from_secs(10));
    pipe.receive(b"still here\n");
    pipe.advance(Duration::from_millis(9_999));
    assert_eq!(journal.take(), ["open", "Drain", "message still here"]);
    pipe.advance(Duration::from_millis(1));
    assert_eq!(journal.take(), ["closed: the deadline of the drain had come"]);
    assert!(pipe.is_closed());
}

#[test]
fn a_handshake_within_filters_goes_on_while_the_handler_has_paused() {
    let journal = Journal::default();
    let mut pipe = Embedded::new(
        Over::new(StripPrefix::new(b"PROXY "), Over::new(ToyTls::server(9), Lines::new())),
        Probe::new(&journal, |call, cx| {
            match call {
                Call::Open => cx.pause(),
                _ => cx.resume(),
            }
            Outcome::Continue
        }),
    );
    pipe.receive(b"PROXY ");
    pipe.receive(&ToyTls::client_wire(9, b"ebb\n", 4));
    assert_eq!(journal.take()[..3], ["open", "Established", "message ebb"]);
}

#[test]
fn a_connection_that_both_sides_have_shut_is_over() {
    let journal = Journal::default();
    let mut pipe = Embedded::new(
        Lines::new(),
        Probe::new(&journal, |call, cx| {
            if matches!(call, Call::Message(_)) {
                cx.shutdown_write();
            }
            Outcome::Continue
        }),
    );
    pipe.receive(b"bye\n");
    assert!(pipe.is_write_closed() && !pipe.is_closed());
    pipe.receive_fin();
    assert!(pipe.is_closed());
    assert_eq!(journal.take(), ["open", "message bye", "ReadClosed", "closed: done"]);
}
