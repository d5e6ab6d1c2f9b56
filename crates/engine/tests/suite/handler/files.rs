//! Regions of files: sent by the kernel, or read if a filter has to change them.

use std::sync::Arc;

use tidegate_codec::{FileRegion, Over, Pipeline};
use tidegate_engine::{Event, Handler, Outcome};
use tidegate_testkit::filters::{StripPrefix, ToyTls};
use tidegate_testkit::{Embedded, Random};

use crate::handler::support::{Call, Cx, Habits, Journal, Parcel, Post, Probe, by_default, file, marks};

/// Answers each message with a line, the region, and another line; watches the position of the last one.
fn serve<C: Pipeline<Out = Parcel>>(region: &FileRegion) -> impl FnMut(Call, &mut Cx<'_, C>) -> Outcome<C> + 'static {
    let region = region.clone();
    move |call, cx| {
        if let Call::Message(_) = call {
            for parcel in [Parcel::Line("head".into()), Parcel::File(region.clone()), Parcel::Line("tail".into())] {
                let mark = cx.send(parcel).unwrap_or_else(|error| panic!("{error}"));
                cx.watch(mark);
            }
        }
        by_default(&call, cx)
    }
}

/// The water marks are above the length of these regions, which counts against them.
fn embedded<C: Pipeline, H: Handler<C, Post = Post>>(codec: C, handler: H) -> Embedded<Post> {
    Embedded::with_limits(codec, handler, marks(4 << 20, 1 << 20))
}

fn region(content: &[u8], offset: u64, length: u64) -> FileRegion {
    FileRegion { file: Arc::new(file(content)), offset, length }
}

fn expected(content: &[u8]) -> Vec<u8> {
    [b"head\n", content, b"tail\n"].concat()
}

#[test]
fn a_region_leaves_between_the_writes_around_it() {
    let content = Random::new(1).bytes(200_000);
    let journal = Journal::default();
    let mut pipe = embedded(Habits::default(), Probe::new(&journal, serve(&region(&content, 1_000, 150_000))));
    pipe.receive(b"get\n");
    assert!(pipe.take_written() == expected(&content[1_000..151_000]));
    assert_eq!(journal.take(), ["open", "message get", "Flushed"]);
    assert!(pipe.pool().ledger().used() < 100_000, "it did not pass through memory as a whole");
}

#[test]
fn a_region_leaves_in_whatever_pieces_the_peer_takes() {
    let content = Random::new(2).bytes(10_000);
    let journal = Journal::default();
    let mut pipe = embedded(Habits::default(), Probe::new(&journal, serve(&region(&content, 0, 10_000))));
    pipe.limit_peer_reads(0);
    pipe.receive(b"get\n");
    let mut written = Vec::new();
    for step in (1..).step_by(37) {
        pipe.limit_peer_reads(step);
        written.extend(pipe.take_written());
        if written.len() >= expected(&content).len() {
            break;
        }
        assert_eq!(journal.count("Flushed"), 0);
    }
    assert!(written == expected(&content));
    assert_eq!(journal.count("Flushed"), 1);
}

#[test]
fn over_a_filter_that_changes_bytes_a_region_is_read_in_bounded_pieces() {
    let content = Random::new(3).bytes(1 << 20);
    let journal = Journal::default();
    let codec = Over::new(ToyTls::server(5), Habits::default());
    let mut pipe = embedded(codec, Probe::new(&journal, serve(&region(&content, 0, 1 << 20))));
    pipe.limit_peer_reads(0);
    let wire = ToyTls::client_wire(5, b"get\n", 4);
    pipe.receive(&wire[..wire.len() - 2]);
    assert!(pipe.pool().ledger().used() < 200_000, "no more than a piece is in memory while the peer does not read");
    assert_eq!(journal.count("Flushed"), 0);
    pipe.limit_peer_reads(usize::MAX);
    assert!(ToyTls::decode_wire(5, &pipe.take_written()) == (expected(&content), false));
    assert_eq!(journal.count("Flushed"), 1);
}

#[test]
fn over_a_filter_that_changes_nothing_a_region_is_not_read_into_memory() {
    let content = Random::new(4).bytes(300_000);
    let journal = Journal::default();
    let codec = Over::new(StripPrefix::new(b"P"), Habits::default());
    let mut pipe = embedded(codec, Probe::new(&journal, serve(&region(&content, 0, 300_000))));
    pipe.limit_peer_reads(0);
    pipe.receive(b"Pget\n");
    assert!(pipe.pool().ledger().used() < 100_000);
    pipe.limit_peer_reads(usize::MAX);
    assert!(pipe.take_written() == expected(&content));
}

#[test]
fn a_file_shorter_than_its_region_is_the_callers_fault() {
    let short = region(&[b'x'; 5_000], 1_000, 5_000);
    let journal = Journal::default();
    let mut pipe = embedded(Habits::default(), Probe::new(&journal, serve(&short)));
    pipe.receive(b"get\n");
    assert!(pipe.is_reset(), "the peer must not take a truncated message for a complete one");
    assert_eq!(pipe.counts().closed_failed, 1, "{:?}", journal.take());
    assert!(pipe.take_written() == [&b"head\n"[..], &[b'x'; 4_000]].concat());

    let mut pipe = embedded(Over::new(ToyTls::server(5), Habits::default()), Probe::new(&journal, serve(&short)));
    pipe.receive(&ToyTls::client_wire(5, b"get\n", 4));
    assert!(pipe.is_reset());
    assert_eq!(pipe.counts().closed_failed, 1, "{:?}", journal.take());
}

#[test]
fn a_region_without_bytes_is_nothing() {
    let journal = Journal::default();
    let mut pipe = embedded(Habits::default(), Probe::new(&journal, serve(&region(b"", 0, 0))));
    pipe.receive(b"get\n");
    assert!(pipe.take_written() == b"head\ntail\n");
    assert_eq!(journal.count("Flushed"), 1);
}

#[test]
fn a_region_that_waits_for_a_handshake_leaves_after_it() {
    let content = Random::new(5).bytes(50_000);
    let journal = Journal::default();
    let whole = region(&content, 0, 50_000);
    let mut pipe = embedded(
        Over::new(ToyTls::server(5), Habits::default()),
        Probe::new(&journal, move |call, cx| {
            match call {
                Call::Open => cx.send(Parcel::File(whole.clone())).map(drop).unwrap_or_else(|error| panic!("{error}")),
                Call::Event(Event::Established) => return Outcome::Close,
                _ => {}
            }
            Outcome::Continue
        }),
    );
    pipe.receive(b"TOY?");
    assert!(ToyTls::decode_wire(5, &pipe.take_written()) == (content, true));
    assert!(pipe.is_write_closed());
}
