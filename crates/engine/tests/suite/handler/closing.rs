//! How connections close: flushed first, lingering, and with exactly one `closed` call.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use tidegate_codec::Over;
use tidegate_codec::framing::Lines;
use tidegate_engine::{Backend, Counts, Event, EventLoop, Limits, Outcome};
use tidegate_sys::{Address, Socket};
use tidegate_testkit::Embedded;
use tidegate_testkit::filters::ToyTls;

use crate::handler::support::{Call, Habits, Happening, Journal, Parcel, Probe, by_default, bytes, echo, marks};

/// Answers `bye` and closes; echoes everything else.
fn until_bye(call: Call, cx: &mut crate::handler::support::Cx<'_, Habits>) -> Outcome<Habits> {
    match call {
        Call::Message(line) => {
            let closes = &*line == b"bye";
            cx.send(line.into()).unwrap();
            if closes { Outcome::Close } else { Outcome::Continue }
        }
        call => by_default(&call, cx),
    }
}

#[test]
fn close_first_sends_pending_bytes_and_the_protocols_final_bytes() {
    let journal = Journal::default();
    let codec = Habits { says_bye: true, ..Habits::default() };
    let mut pipe = Embedded::new(codec, Probe::new(&journal, until_bye));
    pipe.limit_peer_reads(0);
    pipe.receive(b"ebb\nbye\nignored\n");
    assert!(!pipe.is_write_closed());
    pipe.limit_peer_reads(5);
    assert!(!pipe.is_write_closed());
    pipe.limit_peer_reads(usize::MAX);
    assert!(pipe.is_write_closed() && !pipe.is_closed());
    assert_eq!(pipe.take_written(), b"ebb\nbye\nbye\n");
    assert_eq!(journal.take(), ["open", "message ebb", "message bye"]);
}

#[test]
fn after_our_close_input_is_discarded_and_the_peers_end_closes_at_once() {
    let journal = Journal::default();
    let mut pipe = Embedded::new(Habits::default(), Probe::new(&journal, until_bye));
    pipe.receive(b"bye\n");
    assert!(pipe.is_write_closed() && pipe.is_receiving());
    let held = pipe.pool().ledger().used();
    for _ in 0..100 {
        pipe.receive(&[b'x'; 10_000]);
    }
    assert!(pipe.pool().ledger().used() <= held, "nothing is kept of it");
    assert_eq!(journal.take(), ["open", "message bye"]);
    pipe.receive_fin();
    assert!(pipe.is_closed() && !pipe.is_reset());
    assert_eq!(journal.take(), ["closed: done"]);
}

#[test]
fn a_peer_that_does_not_end_is_waited_for_until_the_linger_timeout() {
    let journal = Journal::default();
    let limits = Limits { linger_timeout: Duration::from_secs(2), ..Limits::default() };
    let mut pipe = Embedded::with_limits(Habits::default(), Probe::new(&journal, until_bye), limits);
    pipe.receive(b"bye\n");
    pipe.advance(Duration::from_millis(1_000));
    pipe.receive(b"who is busy sending has not read yet");
    pipe.advance(Duration::from_millis(1_999));
    assert!(!pipe.is_closed());
    pipe.advance(Duration::from_millis(1));
    assert!(pipe.is_closed() && !pipe.is_reset());
    assert_eq!(journal.take(), ["open", "message bye", "closed: done"]);
}

#[test]
fn a_peer_that_sends_for_ever_is_waited_for_a_bounded_time() {
    let mut pipe = Embedded::new(Habits::default(), Probe::new(&Journal::default(), until_bye));
    pipe.receive(b"bye\n");
    for _ in 0..29 {
        pipe.receive(b"more");
        pipe.advance(Duration::from_secs(1));
        assert!(!pipe.is_closed());
    }
    pipe.receive(b"more");
    pipe.advance(Duration::from_secs(1));
    assert!(pipe.is_closed());
}

#[test]
fn a_peer_that_sends_for_ever_is_cut_off_also_after_our_shutdown() {
    let journal = Journal::default();
    let mut pipe = Embedded::new(
        Habits::default(),
        Probe::new(&journal, |call, cx| {
            if let Call::Open = call {
                cx.shutdown_write();
                cx.deadline_after(Duration::from_secs(3));
            }
            if matches!(&call, Call::Message(line) if **line == *b"bye") { Outcome::Close } else { Outcome::Continue }
        }),
    );
    pipe.receive(b"bye\n");
    // The linger bound closes it, and the handler's deadline does not close it earlier.
    for _ in 0..29 {
        pipe.receive(b"more");
        pipe.advance(Duration::from_secs(1));
        assert!(!pipe.is_closed());
    }
    pipe.receive(b"more");
    pipe.advance(Duration::from_secs(1));
    assert!(pipe.is_closed());
}

#[test]
fn a_connection_closes_when_both_sides_have_ended_in_either_order() {
    for ends_first in [false, true] {
        let journal = Journal::default();
        let mut pipe = Embedded::new(
            Habits::default(),
            Probe::new(&journal, move |call, cx| {
                if matches!(call, Call::Event(Event::ReadClosed)) == ends_first {
                    cx.shutdown_write();
                }
                Outcome::Continue
            }),
        );
        pipe.receive_fin();
        assert!(pipe.is_closed(), "{ends_first}");
        assert_eq!(journal.take(), ["open", "ReadClosed", "closed: done"]);
    }
}

#[test]
fn fail_sends_pending_bytes_and_the_codecs_error_and_reports() {
    let journal = Journal::default();
    let mut pipe = Embedded::new(
        Habits::default(),
        Probe::new(&journal, |call, cx| match call {
            Call::Message(line) => {
                cx.send(line.into()).unwrap();
                Outcome::fail("the disk is full")
            }
            _ => Outcome::Continue,
        }),
    );
    pipe.receive(b"ebb\nflow\n");
    assert!(pipe.is_write_closed());
    assert_eq!(pipe.take_written(), b"ebb\nfailed\n");
    pipe.receive_fin();
    assert_eq!(journal.take(), ["open", "message ebb", "closed: the handler failed: the disk is full"]);
    assert_eq!(pipe.counts().closed_failed, 1);
}

#[test]
fn a_closing_connection_gets_no_events() {
    let journal = Journal::default();
    let mut pipe = Embedded::with_limits(
        Habits::default(),
        Probe::new(&journal, |call, cx| {
            if let Call::Message(_) = call {
                // It is unwritable, watches a position and has a deadline when it closes.
                let mark = cx.send(Parcel::Line(bytes(5_000))).unwrap();
                cx.watch(mark);
                cx.deadline_after(Duration::from_secs(1));
                return Outcome::Close;
            }
            Outcome::Continue
        }),
        marks(4_000, 1_000),
    );
    pipe.limit_peer_reads(0);
    pipe.receive(b"ebb\n");
    pipe.post("too late");
    pipe.advance(Duration::from_secs(5));
    pipe.drain(Duration::from_secs(60));
    pipe.limit_peer_reads(usize::MAX);
    pipe.receive_fin();
    assert_eq!(journal.take(), ["open", "message ebb", "closed: done"]);
}

#[test]
fn an_event_after_which_the_connection_closes_is_the_last_one() {
    let journal = Journal::default();
    let mut pipe = Embedded::new(
        Over::new(ToyTls::server(3), Lines::new()),
        Probe::new(&journal, |call, cx| match call {
            Call::Open => {
                let mark = cx.send("greeting".into()).unwrap();
                cx.watch(mark);
                Outcome::Continue
            }
            // The kernel takes the bytes up to the watched position at the same time.
            Call::Event(Event::Established) => Outcome::Close,
            _ => Outcome::Continue,
        }),
    );
    pipe.receive(&ToyTls::client_wire(3, b"ebb\n", 4));
    assert_eq!(ToyTls::decode_wire(3, &pipe.take_written()), (b"greeting\n".to_vec(), true));
    pipe.receive_fin();
    assert_eq!(journal.take(), ["open", "Established", "closed: done"]);
}

#[test]
fn no_writable_event_comes_while_a_closed_queue_is_freed() {
    let journal = Journal::default();
    let mut pipe = Embedded::with_limits(Lines::new(), Probe::new(&journal, echo), marks(100, 50));
    pipe.limit_peer_reads(0);
    pipe.receive(&b"0123456789\n".repeat(100));
    journal.take();
    pipe.reset();
    assert_eq!(journal.take().len(), 1, "only that it is closed");
    assert_eq!(pipe.pool().ledger().used() / 100_000, 0, "and everything was given back");
}

/// Every way to end: the action on a connection whose queue is full, and the counter.
#[test]
fn closed_is_called_exactly_once_on_every_path() {
    type Path = (&'static str, Happening, fn(&Counts) -> u64);
    let paths: [Path; 10] = [
        ("done", |pipe| pipe.receive(b"close\n"), |counts| counts.closed_done),
        ("the connection broke", |pipe| pipe.reset(), |counts| counts.closed_broken),
        ("refused", |pipe| pipe.receive(b"error\n"), |counts| counts.closed_protocol),
        ("the application reset", |pipe| pipe.receive(b"abort\n"), |counts| counts.closed_aborted),
        ("the handler failed", |pipe| pipe.receive(b"fail\n"), |counts| counts.closed_failed),
        ("the handler panicked", |pipe| pipe.receive(b"die\n"), |counts| counts.closed_panicked),
        ("the handler panicked", |pipe| pipe.receive(b"panic\n"), |counts| counts.closed_panicked),
        (
            "the peer took too few bytes",
            |pipe| {
                pipe.limit_peer_reads(0);
                pipe.receive(b"say\n");
                pipe.advance(Duration::from_secs(61));
            },
            |counts| counts.closed_write_timeout,
        ),
        ("the peer does not read", |pipe| pipe.receive(b"reply 1000000\n"), |counts| counts.closed_replies_unread),
        (
            "the deadline of the drain",
            |pipe| {
                pipe.drain(Duration::from_secs(1));
                pipe.advance(Duration::from_secs(1));
            },
            |counts| counts.closed_drained,
        ),
    ];
    for (reason, happen, count) in paths {
        let journal = Journal::default();
        let codec = Habits { reports_finish: true, ..Habits::default() };
        let mut pipe = Embedded::new(
            codec,
            Probe::new(&journal, |call, cx| match call {
                Call::Message(line) => match &*line {
                    b"close" => Outcome::Close,
                    b"abort" => Outcome::Abort,
                    b"fail" => Outcome::fail("on request"),
                    b"die" => panic!("on request"),
                    _ => {
                        cx.send(line.into()).unwrap();
                        Outcome::Continue
                    }
                },
                _ => Outcome::Continue,
            }),
        );
        assert_eq!(pipe.counts().connections, 1, "{reason}");
        happen(&mut pipe);
        pipe.receive_fin();
        pipe.advance(Duration::from_secs(100));
        let call: Vec<_> = journal.take().into_iter().filter(|line| line.starts_with("closed: ")).collect();
        assert!(call.len() == 1 && call[0].contains(reason), "{reason}: {call:?}");
        let counts = pipe.counts();
        assert_eq!((count(&counts), counts.connections), (1, 0), "{reason}");
        drop(pipe);
        assert_eq!(journal.take(), [""; 0], "{reason}");
    }
}

#[test]
fn a_failed_handshake_does_not_wait_for_buffered_bytes() {
    // The greeting can never leave, so neither bad bytes nor an end may wait for it.
    let cases: [(&str, Happening); 3] = [
        ("closed: the peer said no hello", |pipe| {
            pipe.receive(b"GET / HTTP/1.1\r\n");
            pipe.receive(&[b'x'; 100_000]);
            assert!(pipe.is_write_closed());
            pipe.receive_fin();
        }),
        ("closed: the peer ended without a goodbye", |pipe| pipe.receive_fin()),
        ("closed: the peer ended without a goodbye", |pipe| {
            pipe.receive(b"TO");
            pipe.receive_fin();
        }),
    ];
    for (reason, happen) in cases {
        let journal = Journal::default();
        let mut pipe = Embedded::new(
            Over::new(ToyTls::server(3), Lines::new()),
            Probe::new(&journal, |call, cx| {
                if let Call::Open = call {
                    cx.send("greeting".into()).unwrap();
                }
                Outcome::Continue
            }),
        );
        happen(&mut pipe);
        assert_eq!(journal.take(), ["open", reason]);
        assert!(pipe.is_closed());
    }
}

#[test]
fn closing_during_a_handshake_waits_for_queued_messages() {
    let journal = Journal::default();
    let mut pipe = Embedded::new(
        Over::new(ToyTls::server(3), Lines::new()),
        Probe::new(&journal, |_, cx| {
            cx.send("sorry, too many".into()).unwrap();
            Outcome::Close
        }),
    );
    pipe.receive(b"TO");
    assert!(!pipe.is_write_closed());
    pipe.receive(b"Y?");
    assert!(pipe.is_write_closed());
    assert_eq!(ToyTls::decode_wire(3, &pipe.take_written()), (b"sorry, too many\n".to_vec(), true));
    pipe.receive_fin();
    assert_eq!(journal.take(), ["open", "closed: done"]);
}

#[test]
fn the_end_of_the_loop_notifies_connections_on_every_backend() {
    for backend in [Backend::Epoll, Backend::Uring] {
        // Not every kernel has io_uring.
        let Ok(mut event_loop) = EventLoop::on(backend) else { continue };
        let journal = Journal::default();
        let (mut peer, ours) = UnixStream::pair().expect("two descriptors");
        let (socket, unnamed) = (Socket::from_stream(ours).expect("a stream"), Address::Unix(PathBuf::new()));
        let probe = Probe::new(&journal, until_bye);
        event_loop.adopt(socket, &unnamed, Limits::default(), Habits::default(), probe).expect("it is taken over");
        peer.write_all(b"ebb\n").expect("there is room");
        while journal.count("message ebb") == 0 {
            event_loop.turn(Some(Duration::from_secs(10))).expect("waiting does not fail");
        }
        drop(event_loop);
        assert_eq!(journal.take(), ["open", "message ebb", "closed: the event loop ended"], "{backend:?}");
    }
}
