//! Panics, faults of the protocol, and its time-outs.

use std::time::{Duration, Instant};

use tidegate_codec::Over;
use tidegate_codec::framing::Lines;
use tidegate_engine::{CloseReason, Context, Event, Handler, Outcome};
use tidegate_testkit::Embedded;
use tidegate_testkit::filters::ToyTls;

use crate::handler::support::{Call, Habits, Journal, Pairs, Probe, by_default, echo};

#[test]
fn a_panic_anywhere_in_a_handler_ends_its_connection_only() {
    for place in ["open", "message", "event", "closed"] {
        let (journal, neighbour) = (Journal::default(), Journal::default());
        let mut pairs = Pairs::new(usize::MAX);
        let (mut other, _) = pairs.connect(Default::default(), Lines::new(), Probe::new(&neighbour, echo));
        let (mut victim, remote) =
            pairs.connect(Default::default(), Habits::default(), Dies { at: place, journal: journal.clone() });
        if place == "message" || place == "closed" {
            std::io::Write::write_all(&mut victim, b"go\n").unwrap();
        } else {
            remote.post("go").unwrap();
        }
        pairs.turns(10);
        drop(victim);
        pairs.turn_until(|| journal.count("closed") == 1);
        std::io::Write::write_all(&mut other, b"alive?\n").unwrap();
        pairs.turn_until(|| neighbour.count("message alive?") == 1);
        pairs.turns(2);
        let counts = pairs.event_loop.counts();
        assert_eq!(counts.connections, 1, "{place}");
        assert_eq!(counts.closed_panicked, u64::from(place != "closed"), "{place}");
    }
}

/// Panics at one place.
struct Dies {
    at: &'static str,
    journal: Journal,
}

impl Dies {
    fn pass(&self, place: &str) -> Outcome<Habits> {
        assert!(place != self.at, "call to panic in {place}");
        Outcome::Continue
    }
}

impl Handler<Habits> for Dies {
    type Post = &'static str;

    fn open(&mut self, _: &mut Context<'_, Habits, &'static str>) -> Outcome<Habits> {
        self.pass("open")
    }

    fn message(&mut self, _: tidegate_codec::Slice, _: &mut Context<'_, Habits, &'static str>) -> Outcome<Habits> {
        self.pass("message")
    }

    fn event(&mut self, event: Event<&'static str>, cx: &mut Context<'_, Habits, &'static str>) -> Outcome<Habits> {
        if let Event::Posted(_) = event { self.pass("event") } else { by_default(&Call::Event(event), cx) }
    }

    fn closed(&mut self, reason: &CloseReason) {
        self.journal.note("closed");
        assert!(matches!(reason, CloseReason::Panicked) || self.at == "closed", "{reason}");
        let _ = self.pass("closed");
    }
}

#[test]
fn messages_before_a_panic_are_sent_and_the_codec_reports_the_error() {
    let journal = Journal::default();
    let mut pipe = Embedded::new(
        Habits::default(),
        Probe::new(&journal, |call, cx| {
            if let Call::Message(line) = call {
                cx.send(line.into()).unwrap();
                panic!("on request");
            }
            Outcome::Continue
        }),
    );
    pipe.receive(b"ebb\nflow\n");
    assert_eq!(pipe.take_written(), b"ebb\nfailed\n");
    assert!(pipe.is_write_closed());
    pipe.receive_fin();
    assert_eq!(journal.take(), ["open", "message ebb", "closed: the handler panicked"]);
}

#[test]
fn the_final_bytes_of_a_failing_codec_are_sent_before_the_close() {
    let journal = Journal::default();
    let mut pipe = Embedded::new(
        Habits::default(),
        Probe::new(&journal, |call, cx| match call {
            Call::Message(line) => cx.send(line.into()).into(),
            call => by_default(&call, cx),
        }),
    );
    pipe.limit_peer_reads(0);
    pipe.receive(b"ebb\nerror\nnever decoded\n");
    assert!(!pipe.is_write_closed());
    pipe.limit_peer_reads(usize::MAX);
    assert!(pipe.is_write_closed() && !pipe.is_closed());
    assert_eq!(pipe.take_written(), b"ebb\nsorry\n");
    pipe.receive_fin();
    assert_eq!(journal.take(), ["open", "message ebb", "closed: refused"]);
    assert_eq!(pipe.counts().closed_protocol, 1);
}

#[test]
fn a_fault_at_the_end_of_the_peer_is_reported() {
    let journal = Journal::default();
    let mut pipe = Embedded::new(Lines::new(), Probe::new(&journal, echo));
    pipe.receive(b"ebb\nhalf a li");
    pipe.receive_fin();
    assert!(pipe.is_closed());
    assert_eq!(journal.take(), ["open", "message ebb", "closed: the peer ended after 9 bytes of a frame"]);
}

#[test]
fn a_filter_seals_the_codecs_final_bytes_and_appends_its_own() {
    let journal = Journal::default();
    let mut pipe =
        Embedded::new(Over::new(ToyTls::server(7), Habits::default()), Probe::new(&journal, |_, _| Outcome::Continue));
    pipe.receive(&ToyTls::client_wire(7, b"error\n", 4));
    assert_eq!(ToyTls::decode_wire(7, &pipe.take_written()), (b"sorry\n".to_vec(), true));
    pipe.receive_fin();
    assert_eq!(journal.take(), ["open", "Established", "closed: refused"]);
}

#[test]
fn a_codec_is_called_when_its_time_has_come_and_not_before() {
    let journal = Journal::default();
    let codec = Habits { deadline: Some(Instant::now() + Duration::from_secs(60)), ..Habits::default() };
    let mut pipe = Embedded::new(codec, Probe::new(&journal, |_, _| Outcome::Continue));
    pipe.advance(Duration::from_secs(59));
    assert!(!pipe.is_write_closed());
    pipe.advance(Duration::from_secs(2));
    assert_eq!(pipe.take_written(), b"late\n");
    pipe.receive_fin();
    assert_eq!(journal.take(), ["open", "closed: late"]);
    assert_eq!(pipe.counts().closed_protocol, 1);
}

#[test]
fn a_fault_at_a_timeout_is_reported_instead_of_the_handlers_deadline() {
    let journal = Journal::default();
    let codec = Habits { deadline: Some(Instant::now() + Duration::from_secs(60)), ..Habits::default() };
    let mut pipe = Embedded::new(
        codec,
        Probe::new(&journal, |call, cx| {
            if let Call::Open = call {
                cx.deadline_after(Duration::from_secs(60));
            }
            Outcome::Continue
        }),
    );
    pipe.advance(Duration::from_secs(62));
    pipe.receive_fin();
    let lines = journal.take();
    assert_eq!(lines.last().unwrap(), "closed: late", "{lines:?}");
    assert!(lines.len() <= 3, "{lines:?}");
}

#[test]
fn a_handshake_that_takes_too_long_ends_the_connection() {
    let journal = Journal::default();
    let filter = ToyTls::server(7).with_deadline(Instant::now() + Duration::from_secs(10));
    let mut pipe = Embedded::new(
        Over::new(filter, Lines::new()),
        Probe::new(&journal, |call, cx| {
            if let Call::Open = call {
                cx.send("kept back".into()).unwrap();
            }
            Outcome::Continue
        }),
    );
    pipe.receive(b"TOY");
    pipe.advance(Duration::from_secs(11));
    assert!(pipe.is_write_closed());
    pipe.receive_fin();
    assert_eq!(journal.take(), ["open", "closed: the handshake took too long"]);
}
