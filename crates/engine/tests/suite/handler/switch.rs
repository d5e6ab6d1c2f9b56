//! Another codec and another handler in the middle of a connection.

use std::time::Duration;

use tidegate_codec::framing::{Fixed, LengthField, Lines};
use tidegate_codec::{Over, Pipeline};
use tidegate_engine::{Context, Event, Handler, Outcome};
use tidegate_testkit::Embedded;
use tidegate_testkit::filters::{StripPrefix, ToyTls};

use crate::handler::support::{Call, Journal, Probe, by_default, echo};

/// Echoes lines until a line `switch`, which it answers with `go`; then `to` makes the switch.
fn lines_until<D, H>(
    journal: &Journal,
    to: impl Fn() -> (D, H) + Clone + 'static,
) -> impl Handler<Lines, Post = &'static str>
where
    D: Pipeline,
    H: Handler<D, Post = &'static str>,
{
    Probe::new(journal, move |call, cx: &mut Context<'_, Lines, _>| match call {
        Call::Message(line) if &*line == b"switch" => {
            cx.send("go".into()).unwrap();
            let to = to.clone();
            Outcome::switch(move |_| to())
        }
        call => echo(call, cx),
    })
}

#[test]
fn bytes_that_were_read_already_reach_the_new_codec_at_every_split() {
    let wire = b"ebb\nswitch\n\0\x03one\0\x03two\0\x05three";
    for split in 0..=wire.len() {
        let journal = Journal::default();
        let after = journal.clone();
        let first = lines_until(&journal, move || (LengthField::new(2), Probe::new(&after, echo)));
        let mut pipe = Embedded::new(Lines::new(), first);
        pipe.receive(&wire[..split]);
        pipe.receive(&wire[split..]);
        assert_eq!(pipe.take_written(), b"ebb\ngo\n\0\x03one\0\x03two\0\x05three", "split at {split}");
        let lines = journal.take();
        assert_eq!(
            lines,
            ["open", "message ebb", "message switch", "open", "message one", "message two", "message three"]
        );
        pipe.receive_fin();
        assert_eq!(journal.take(), ["ReadClosed", "closed: done"], "only the present handler is notified");
    }
}

#[test]
fn the_old_codecs_output_is_sent_first_even_if_the_peer_is_slow() {
    let journal = Journal::default();
    let after = journal.clone();
    let first = lines_until(&journal, move || (LengthField::new(1), Probe::new(&after, echo)));
    let mut pipe = Embedded::new(Lines::new(), first);
    pipe.limit_peer_reads(0);
    pipe.receive(b"ebb\nswitch\n\x03one");
    assert_eq!(journal.count("message one"), 1);
    pipe.limit_peer_reads(usize::MAX);
    assert_eq!(pipe.take_written(), b"ebb\ngo\n\x03one");
}

#[test]
fn lines_go_on_over_a_filter_as_with_starttls() {
    let wire = [&b"ebb\nswitch\n"[..], &ToyTls::client_wire(3, b"one\ntwo\n", 5)].concat();
    for bytewise in [false, true] {
        let journal = Journal::default();
        let after = journal.clone();
        let first =
            lines_until(&journal, move || (Over::new(ToyTls::server(3), Lines::new()), Probe::new(&after, echo)));
        let mut pipe = Embedded::new(Lines::new(), first);
        if bytewise {
            pipe.receive_bytewise(&wire);
        } else {
            pipe.receive(&wire);
        }
        pipe.receive_fin();
        let written = pipe.take_written();
        let (plain, sealed) = written.split_at(b"ebb\ngo\n".len());
        assert_eq!(plain, b"ebb\ngo\n");
        assert_eq!(ToyTls::decode_wire(3, sealed), (b"one\ntwo\n".to_vec(), true));
        let lines = journal.take();
        let expected = ["open", "Established", "message one", "message two", "ReadClosed", "closed: done"];
        assert_eq!(lines[..3], ["open", "message ebb", "message switch"]);
        assert_eq!(lines[3..], expected);
    }
}

#[test]
fn over_a_filter_the_codec_is_mapped_and_the_filter_stays() {
    let plain = b"ebb\nswitch\n\x03one\x03two";
    for record in [1, 4, 4096] {
        let journal = Journal::default();
        let after = journal.clone();
        let first = Probe::new(&journal, move |call, cx: &mut Context<'_, Over<ToyTls, Lines>, _>| match call {
            Call::Message(line) if &*line == b"switch" => {
                cx.send("go".into()).unwrap();
                let after = after.clone();
                Outcome::switch(move |over: Over<ToyTls, Lines>| {
                    (over.map(|_| LengthField::new(1)), Probe::new(&after, echo))
                })
            }
            call => echo(call, cx),
        });
        let mut pipe = Embedded::new(Over::new(ToyTls::server(3), Lines::new()), first);
        pipe.receive(&ToyTls::client_wire(3, plain, record));
        pipe.receive_fin();
        assert_eq!(ToyTls::decode_wire(3, &pipe.take_written()), (b"ebb\ngo\n\x03one\x03two".to_vec(), true));
        assert_eq!(journal.count("Established"), 1, "the handshake was over before the switch");
        assert_eq!(journal.take().last().unwrap(), "closed: done");
    }
}

#[test]
fn a_prefix_may_be_stripped_after_a_switch() {
    let journal = Journal::default();
    let after = journal.clone();
    let first =
        lines_until(&journal, move || (Over::new(StripPrefix::new(b"PROXY "), Lines::new()), Probe::new(&after, echo)));
    let mut pipe = Embedded::new(Lines::new(), first);
    pipe.receive_bytewise(b"switch\nPROXY ebb\n");
    assert_eq!(pipe.take_written(), b"go\nebb\n");
}

#[test]
fn the_new_handler_inherits_no_state_of_the_old_one() {
    let journal = Journal::default();
    let after = journal.clone();
    let mut pipe = Embedded::new(
        Lines::new(),
        Probe::new(&journal, move |call, cx| {
            if let Call::Message(_) = call {
                cx.deadline_after(Duration::from_secs(1));
                let mark = cx.send("held".into()).unwrap();
                cx.watch(mark);
                cx.pause();
                cx.block_writes(true);
                let after = after.clone();
                return Outcome::switch(move |lines: Lines| (lines, Probe::new(&after, echo)));
            }
            Outcome::Continue
        }),
    );
    pipe.limit_peer_reads(0);
    pipe.receive(b"switch\nebb\n");
    assert_eq!(journal.take()[..3], ["open", "message switch", "open"]);
    pipe.limit_peer_reads(usize::MAX);
    pipe.advance(Duration::from_secs(10));
    pipe.receive(b"flow\n");
    let lines = journal.take();
    assert!(!lines.iter().any(|line| line == "Deadline" || line == "Flushed"), "{lines:?}");
    assert_eq!(pipe.take_written(), b"held\nebb\nflow\n");
}

#[test]
fn a_switch_may_come_from_any_event_and_from_open() {
    let journal = Journal::default();
    let after = journal.clone();
    let mut pipe = Embedded::new(
        Lines::new(),
        Probe::new(&journal, move |call, cx| match call {
            Call::Event(Event::Posted(_)) => {
                let after = after.clone();
                Outcome::switch(move |_: Lines| {
                    let last = after.clone();
                    let middle = Probe::new(&after, move |_, _: &mut Context<'_, Fixed, _>| {
                        let last = last.clone();
                        Outcome::switch(move |_: Fixed| (LengthField::new(1), Probe::new(&last, echo)))
                    });
                    (Fixed::new(1), middle)
                })
            }
            call => by_default(&call, cx),
        }),
    );
    pipe.post("switch");
    pipe.receive(b"\x02hi");
    assert_eq!(pipe.take_written(), b"\x02hi");
    assert_eq!(journal.take(), ["open", r#"Posted("switch")"#, "open", "open", "message hi"]);
}

#[test]
fn a_panic_between_two_handlers_ends_the_connection_and_is_counted() {
    let journal = Journal::default();
    let mut pipe = Embedded::new(
        Lines::new(),
        Probe::new(&journal, |call, _| match call {
            Call::Message(_) => Outcome::switch(|_: Lines| -> (Lines, Quiet) { panic!("on request") }),
            _ => Outcome::Continue,
        }),
    );
    pipe.receive(b"switch\n");
    assert!(pipe.is_closed());
    let counts = pipe.counts();
    assert_eq!((counts.connections, counts.closed_panicked), (0, 1));
}

struct Quiet;

impl Handler<Lines> for Quiet {
    type Post = &'static str;

    fn message(&mut self, _: tidegate_codec::Slice, _: &mut Context<'_, Lines, &'static str>) -> Outcome<Lines> {
        Outcome::Continue
    }
}

#[test]
fn switching_with_every_message_of_a_long_pipeline_needs_no_stack() {
    /// Switches to itself.
    struct Restless;

    impl Handler<Lines> for Restless {
        type Post = ();

        fn message(&mut self, _: tidegate_codec::Slice, _: &mut Context<'_, Lines>) -> Outcome<Lines> {
            Outcome::switch(|lines: Lines| (lines, Self))
        }
    }

    let mut pipe = Embedded::new(Lines::new(), Restless);
    pipe.receive(&b"\n".repeat(60_000));
    assert_eq!(pipe.counts().messages, 60_000);
}
