//! The share of a turn, and of memory, that one connection may use before others get theirs.

use std::cell::Cell;
use std::io::Write;
use std::rc::Rc;

use tidegate_codec::Over;
use tidegate_codec::framing::{Lines, Payload};
use tidegate_engine::{Event, Limits, Outcome};
use tidegate_testkit::Embedded;
use tidegate_testkit::filters::StripPrefix;

use crate::handler::support::{Call, Journal, PATIENCE, Pairs, Probe, bytes, echo, exchange, marks};

#[test]
fn a_flood_of_tiny_messages_does_not_starve_another_connection() {
    let (journal, seen) = (Journal::default(), Rc::new(Cell::new(0)));
    let mut pairs = Pairs::new(usize::MAX);
    let count = seen.clone();
    let (mut flood, _) = pairs.connect(
        Limits::default(),
        Lines::new(),
        Probe::new(&Journal::default(), move |call, _| {
            count.set(count.get() + usize::from(matches!(call, Call::Message(_))));
            Outcome::Continue
        }),
    );
    let (mut other, _) = pairs.connect(Limits::default(), Lines::new(), Probe::new(&journal, echo));
    // The whole flood is there first.
    flood.write_all(&b"\n".repeat(60_000)).unwrap();
    other.write_all(b"me too\n").unwrap();
    pairs.turn_until(|| journal.count("message me too") == 1);
    assert!(seen.get() <= 4_096, "{} messages went before", seen.get());
    pairs.turn_until(|| seen.get() == 60_000);
}

#[test]
fn a_flood_of_tiny_messages_does_not_pile_up_in_memory() {
    /// Records the maximum of the loop's memory.
    fn run(mut pipe: Embedded<&'static str>, most: &Cell<usize>) {
        for _ in 0..4 {
            pipe.receive(&b"\n".repeat(1 << 20));
        }
        assert!(pipe.counts().messages >= 4 << 20);
        // The scratch, the rest of one receive, and as much again for a stage above.
        assert!(most.get() < 400_000, "{} bytes", most.get());
    }

    let most = Rc::new(Cell::new(0));
    let probe = Probe::new(&Journal::default(), watch_memory(&most));
    run(Embedded::new(Lines::new(), Counting(probe)), &most);
    let probe = Probe::new(&Journal::default(), watch_memory(&most));
    let mut pipe = Embedded::new(Over::new(StripPrefix::new(b"P"), Lines::new()), Counting(probe));
    pipe.receive(b"P");
    run(pipe, &most);
}

fn watch_memory<C: tidegate_codec::Pipeline>(
    most: &Rc<Cell<usize>>,
) -> impl FnMut(Call, &mut crate::handler::support::Cx<'_, C>) -> Outcome<C> + 'static {
    let most = most.clone();
    move |_, cx| {
        most.set(most.get().max(cx.pool().ledger().used()));
        Outcome::Continue
    }
}

/// A probe whose messages are not noted: there are millions.
struct Counting<F>(Probe<F>);

impl<C, F> tidegate_engine::Handler<C> for Counting<F>
where
    C: tidegate_codec::Pipeline<In = tidegate_codec::Slice>,
    F: FnMut(Call, &mut crate::handler::support::Cx<'_, C>) -> Outcome<C> + 'static,
{
    type Post = &'static str;

    fn message(&mut self, message: tidegate_codec::Slice, cx: &mut crate::handler::support::Cx<'_, C>) -> Outcome<C> {
        self.0.act(Call::Message(message), cx)
    }
}

#[test]
fn a_flood_of_messages_without_bytes_costs_nothing() {
    let journal = Journal::default();
    let mut pipe = Embedded::with_limits(
        Lines::new(),
        Probe::new(&journal, |call, cx| {
            if let Call::Event(Event::Posted(_)) = call {
                let before = (cx.pending_bytes(), cx.pool().ledger().used());
                for _ in 0..100_000 {
                    cx.send(Payload::Encoded(Default::default())).unwrap();
                }
                assert_eq!((cx.pending_bytes(), cx.pool().ledger().used()), before);
                assert!(cx.is_writable());
            }
            Outcome::Continue
        }),
        marks(1_000, 500),
    );
    pipe.limit_peer_reads(0);
    pipe.post("flood");
    assert_eq!(pipe.take_written(), b"");
    assert_eq!(journal.take(), ["open", r#"Posted("flood")"#]);
}

#[test]
fn a_large_answer_to_a_fast_reader_does_not_starve_another_connection() {
    let journal = Journal::default();
    let mut pairs = Pairs::new(usize::MAX);
    let (mut fast, _) = pairs.connect(
        Limits::default(),
        Lines::new(),
        Probe::new(&Journal::default(), |call, cx| {
            if let Call::Message(_) = call {
                cx.send(Payload::Encoded(vec![b'x'; 8 << 20].into())).unwrap();
            }
            Outcome::Continue
        }),
    );
    let (mut other, _) = pairs.connect(Limits::default(), Lines::new(), Probe::new(&journal, echo));
    let (mut request, mut read) = (&b"get\n"[..], Vec::new());
    exchange(&mut fast, &mut request, &mut read);
    other.write_all(b"me too\n").unwrap();
    pairs.turn_until(|| journal.count("message me too") == 1);
    assert!(read.len() < 8 << 20);
    pairs.turn_until(|| {
        exchange(&mut fast, &mut request, &mut read);
        read.len() == 8 << 20
    });
}

#[test]
fn posts_of_one_sender_do_not_starve_a_connection() {
    let (journal, posted) = (Journal::default(), Rc::new(Cell::new(0)));
    let mut pairs = Pairs::new(usize::MAX);
    let count = posted.clone();
    let (_stream, remote) = pairs.connect(
        Limits::default(),
        Lines::new(),
        Probe::new(&Journal::default(), move |_, _| {
            count.set(count.get() + 1);
            Outcome::Continue
        }),
    );
    let (mut other, _) = pairs.connect(Limits::default(), Lines::new(), Probe::new(&journal, echo));
    for _ in 0..20_000 {
        remote.post("post").unwrap();
    }
    other.write_all(b"me too\n").unwrap();
    pairs.turn_until(|| journal.count("message me too") == 1);
    assert!(posted.get() < 10_000, "{}", posted.get());
    pairs.turn_until(|| posted.get() == 20_001);
}

#[test]
fn one_message_larger_than_the_cap_is_taken_and_sent() {
    let journal = Journal::default();
    let mut pipe = Embedded::with_limits(
        Lines::new().with_line_bytes_max(1 << 20),
        Probe::new(&journal, |call, cx| {
            if let Call::Event(Event::Posted(_)) = call {
                cx.send(bytes(1 << 20)).unwrap();
            }
            Outcome::Continue
        }),
        marks(1_000, 500),
    );
    pipe.post("send");
    assert_eq!(pipe.take_written().len(), (1 << 20) + 1);
    assert_eq!(journal.count("Writable"), 1);
}

#[test]
fn posts_during_a_delivery_need_no_extra_wake_up() {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let (journal, mut pairs) = (Journal::default(), Pairs::new(usize::MAX));
        let (_stream, remote) =
            pairs.connect(Limits::default(), Lines::new(), Probe::new(&journal, |_, _| Outcome::Continue));
        // More posts than one turn delivers; a later post comes to a turn that still has work.
        (0..1_500).for_each(|_| remote.post("old").unwrap());
        pairs.event_loop.turn(None).unwrap();
        remote.post("new").unwrap();
        // On a slow machine the time of a turn ends before its work: a turn that were to sleep would never return.
        while journal.count(r#"Posted("new")"#) == 0 {
            pairs.event_loop.turn(None).unwrap();
        }
        sender.send(journal.count(r#"Posted("new")"#)).unwrap();
    });
    assert_eq!(receiver.recv_timeout(PATIENCE), Ok(1), "the loop sleeps though there is a post");
}
