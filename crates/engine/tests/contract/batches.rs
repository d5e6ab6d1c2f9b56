//! Frames of many streams that arrive together: an action of one stream in the middle concerns no other, and each reply
//! arrives whole.

use std::cell::RefCell;
use std::rc::Rc;

use tidegate_buffer::WaterMarks;
use tidegate_engine::{Event, Limits, Outcome};
use tidegate_testkit::ToyMuxConfig;

use crate::multiplexer::{DATA, Multiplexer, OPEN, PING, RESET, WINDOW};
use crate::raw_peer::RawPeer;
use crate::stack::Stack;
use crate::stage::{Call, Cx, Stage, panic_on_request};
use crate::streams::{NARROW, connect, echo, frames, limits, listen};

/// Opens streams.
fn open<S: Stack, M: Multiplexer>(stage: &Stage, raw_peer: &RawPeer, end: usize, streams: &[(u32, u8)]) {
    let opening: Vec<_> = streams.iter().flat_map(|(id, urgency)| M::frame(OPEN, 0, *id, &[*urgency])).collect();
    raw_peer.send(end, &S::encoded(&opening));
    stage.until("they are open", || stage.life().made() == streams.len());
}

/// One write with a message to each stream.
fn batch<M: Multiplexer>(messages: &[(u32, &str)]) -> Vec<u8> {
    messages.iter().flat_map(|(id, text)| M::frame(DATA, 0, *id, format!("{text}\n").as_bytes())).collect()
}

/// The bytes received on a stream.
fn text<S: Stack, M: Multiplexer>(raw_peer: &RawPeer, end: usize, id: u32) -> String {
    let frames = frames::<S, M>(raw_peer, end);
    let pieces = frames.iter().filter(|frame| (frame.0, frame.2) == (DATA, id)).map(|frame| &*frame.3);
    String::from_utf8(pieces.collect::<Vec<_>>().concat()).expect("it is text")
}

fn has<S: Stack, M: Multiplexer>(raw_peer: &RawPeer, end: usize, kind: u8, id: u32) -> bool {
    frames::<S, M>(raw_peer, end).iter().any(|frame| (frame.0, frame.2) == (kind, id))
}

/// Replies of all sizes, between control frames to which the session itself replies.
pub(crate) fn replies_of_any_length_arrive_whole<S: Stack, M: Multiplexer>(stage: &Stage) {
    let (server, raw_peer) = (stage.server(), stage.raw_peer());
    let config = ToyMuxConfig { streams_max: 100, ..ToyMuxConfig::default() };
    let to = listen::<S, M, _>(stage, &server, config, limits(), || {
        |call: Call, cx: &mut Cx<'_, M::Server>| match call {
            Call::Message(length) => {
                let length: usize = String::from_utf8_lossy(&length).parse().expect("a number");
                if length > 0 {
                    cx.send("r".repeat(length - 1).into()).expect("there is room");
                }
                Outcome::Continue
            }
            call => call.by_default(cx),
        }
    });
    let lengths = [1, 50, 0, 250, 256, 257, 300, 2_047, 2_048, 0, 2_049, 4_096, 5_000, 12_000, 3, 16_384, 20_000, 7, 7];
    let ids = (0..lengths.len() as u32).map(|number| 1 + 2 * number);
    let end = connect::<S, M>(stage, &raw_peer, &to, config);
    let streams: Vec<_> = ids.clone().map(|id| (id, 3)).collect();
    open::<S, M>(stage, &raw_peer, end, &streams);
    for round in 1..=2 {
        let mut wire = Vec::new();
        for (id, length) in ids.clone().zip(lengths) {
            wire.extend(batch::<M>(&[(id, &length.to_string())]));
            if length % 3 == 0 {
                wire.extend(M::frame(PING, 0, 0, &[round; 9]));
            }
        }
        raw_peer.send(end, &S::encoded(&wire));
        stage.until("all has come", || {
            ids.clone()
                .zip(lengths)
                .all(|(id, length)| text::<S, M>(&raw_peer, end, id).len() >= length * usize::from(round))
        });
    }
    let pings = 2 * lengths.iter().filter(|length| *length % 3 == 0).count();
    stage.until("the session has replied as well", || {
        frames::<S, M>(&raw_peer, end).iter().filter(|frame| frame.0 == PING).count() == pings
    });
    for (id, length) in ids.zip(lengths) {
        let reply = if length == 0 { String::new() } else { format!("{}\n", "r".repeat(length - 1)) };
        assert_eq!(text::<S, M>(&raw_peer, end, id), reply.repeat(2), "a reply of {length} bytes");
    }
}

/// A peer that reads late, and has the session reply meanwhile: the bytes of streams that wait for it are no replies that
/// it leaves unread.
pub(crate) fn a_peer_that_reads_late_may_ping<S: Stack, M: Multiplexer>(stage: &Stage) {
    const REPLY_BYTES: usize = 12_000;
    let (server, raw_peer) = (stage.server(), stage.raw_peer());
    let count = stage.bulk() / REPLY_BYTES + 40;
    let window = (REPLY_BYTES * count) as u32;
    let config = ToyMuxConfig { stream_window: window, session_window: window, streams_max: 20 };
    let to = listen::<S, M, _>(stage, &server, config, limits(), || {
        |call: Call, cx: &mut Cx<'_, M::Server>| match call {
            Call::Message(_) => cx.send("r".repeat(REPLY_BYTES - 1).into()).into(),
            call => call.by_default(cx),
        }
    });
    let ids = (0..20).map(|number| 1 + 2 * number);
    let end = connect::<S, M>(stage, &raw_peer, &to, config);
    let streams: Vec<_> = ids.clone().map(|id| (id, 3)).collect();
    open::<S, M>(stage, &raw_peer, end, &streams);
    raw_peer.receive(end, false);
    let before = server.counts().received_bytes;
    let mut length = 0;
    for (number, id) in ids.clone().cycle().take(count).enumerate() {
        let mut wire = batch::<M>(&[(id, "more")]);
        if number % 4 == 0 {
            wire.extend(M::frame(PING, 0, 0, &[0; 9]));
        }
        let wire = S::encoded(&wire);
        length += wire.len() as u64;
        raw_peer.send(end, &wire);
    }
    // Most messages wait in their streams, which are not writable.
    stage.until("all is received", || server.counts().received_bytes >= before + length);
    assert_eq!(server.counts().streams, 20);
    raw_peer.receive(end, true);
    stage.until("all has come", || {
        let (mut bytes, mut pings) = (0, 0);
        for (kind, _, _, payload) in frames::<S, M>(&raw_peer, end).iter() {
            bytes += if *kind == DATA { payload.len() } else { 0 };
            pings += usize::from(*kind == PING);
        }
        bytes == REPLY_BYTES * count && pings == count.div_ceil(4)
    });
}

/// Replies that find no window wait, and leave by urgency, whenever they were queued.
pub(crate) fn replies_that_wait_leave_by_urgency<S: Stack, M: Multiplexer>(stage: &Stage) {
    let (server, raw_peer) = (stage.server(), stage.raw_peer());
    let config = ToyMuxConfig { stream_window: 100_000, session_window: 80_000, streams_max: 10 };
    // All replies may wait.
    let limits = Limits { water: WaterMarks::new(256 * 1024, 128 * 1024), ..limits() };
    let to = listen::<S, M, _>(stage, &server, config, limits, || {
        |call: Call, cx: &mut Cx<'_, M::Server>| match call {
            Call::Message(_) => cx.send("r".repeat(39_999).into()).into(),
            call => call.by_default(cx),
        }
    });
    let end = connect::<S, M>(stage, &raw_peer, &to, config);
    open::<S, M>(stage, &raw_peer, end, &[(1, 3), (3, 5), (5, 0), (7, 3), (9, 5)]);
    // The first two replies use up the session's window.
    raw_peer.send(end, &S::encoded(&batch::<M>(&[(1, "a"), (3, "b"), (3, "c"), (7, "d"), (5, "e"), (9, "f")])));
    stage.until("the window is used up, and all is handled", || {
        let sent: usize = [1, 3, 5, 7, 9].iter().map(|id| text::<S, M>(&raw_peer, end, *id).len()).sum();
        sent == 80_000 && server.counts().messages == 6
    });
    let before = frames::<S, M>(&raw_peer, end).iter().filter(|frame| frame.0 == DATA).count();
    raw_peer.send(end, &S::encoded(&M::frame(WINDOW, 0, 0, &200_000_u32.to_be_bytes())));
    stage.until("all has come", || {
        [(1, 40_000), (3, 80_000), (5, 40_000), (7, 40_000), (9, 40_000)]
            .iter()
            .all(|(id, length)| text::<S, M>(&raw_peer, end, *id).len() == *length)
    });
    let frames = frames::<S, M>(&raw_peer, end);
    let data = frames.iter().filter(|frame| frame.0 == DATA);
    let urgencies: Vec<_> = data.skip(before).map(|frame| [3, 5, 0, 3, 5][(frame.2 / 2) as usize]).collect();
    assert!(urgencies.is_sorted(), "{urgencies:?}");
}

pub(crate) fn a_panic_loses_its_own_stream_only<S: Stack, M: Multiplexer>(stage: &Stage) {
    stage.expect_panics();
    let (server, raw_peer) = (stage.server(), stage.raw_peer());
    let to = listen::<S, M, _>(stage, &server, NARROW, limits(), || {
        |call: Call, cx: &mut Cx<'_, M::Server>| match call {
            Call::Message(line) if &*line == b"panic" => {
                cx.send("before".into()).expect("there is room");
                panic_on_request()
            }
            call => echo(call, cx),
        }
    });
    let end = connect::<S, M>(stage, &raw_peer, &to, NARROW);
    open::<S, M>(stage, &raw_peer, end, &[(1, 3), (3, 3), (5, 3)]);
    let messages = [(1, "a"), (3, "b"), (3, "panic"), (5, "c"), (3, "late"), (1, "d"), (5, "e")];
    raw_peer.send(end, &S::encoded(&batch::<M>(&messages)));
    stage.until("the others have replied", || {
        [1, 5].map(|id| text::<S, M>(&raw_peer, end, id)) == ["a\nd\n", "c\ne\n"]
            && has::<S, M>(&raw_peer, end, RESET, 3)
    });
    assert!(["b\n", "b\nbefore\n"].contains(&&*text::<S, M>(&raw_peer, end, 3)));
    assert_eq!(server.counts().streams, 2);
    assert_eq!(stage.reason(1), "the handler panicked");
}

pub(crate) fn a_stream_may_end_or_reset_itself<S: Stack, M: Multiplexer>(stage: &Stage) {
    let (server, raw_peer) = (stage.server(), stage.raw_peer());
    let to = listen::<S, M, _>(stage, &server, NARROW, limits(), || {
        |call: Call, cx: &mut Cx<'_, M::Server>| match call {
            Call::Message(line) if &*line == b"close" => {
                cx.send("closing".into()).expect("there is room");
                Outcome::Close
            }
            Call::Message(line) if &*line == b"shut" => {
                cx.send("shutting".into()).expect("there is room");
                cx.shutdown_write();
                Outcome::Continue
            }
            Call::Message(line) if &*line == b"reset" => {
                cx.send("never sent".into()).expect("there is room");
                Outcome::Reset(7)
            }
            call => echo(call, cx),
        }
    });
    let end = connect::<S, M>(stage, &raw_peer, &to, NARROW);
    open::<S, M>(stage, &raw_peer, end, &[(1, 3), (3, 3), (5, 3), (7, 3)]);
    let messages = [(1, "close"), (3, "reset"), (5, "shut"), (7, "a"), (1, "late"), (3, "late"), (7, "b")];
    raw_peer.send(end, &S::encoded(&batch::<M>(&messages)));
    stage.until("all has come", || {
        text::<S, M>(&raw_peer, end, 7) == "a\nb\n"
            && has::<S, M>(&raw_peer, end, RESET, 3)
            && [1, 5].iter().all(|id| {
                frames::<S, M>(&raw_peer, end).iter().any(|frame| (frame.0, frame.1, frame.2) == (DATA, 1, *id))
            })
    });
    let texts = [1, 3, 5].map(|id| text::<S, M>(&raw_peer, end, id));
    assert_eq!(texts, ["closing\n", "", "shutting\n"]);
}

/// A handler that posts to another stream, which then sends without having received.
pub(crate) fn a_stream_may_make_another_send<S: Stack, M: Multiplexer>(stage: &Stage) {
    let (server, raw_peer, remote) = (stage.server(), stage.raw_peer(), Rc::new(RefCell::new(None)));
    let to = listen::<S, M, _>(stage, &server, NARROW, limits(), move || {
        let remote = remote.clone();
        move |call: Call, cx: &mut Cx<'_, M::Server>| match call {
            Call::Message(line) if &*line == b"here" => {
                *remote.borrow_mut() = Some(cx.remote());
                Outcome::Continue
            }
            Call::Message(line) if &*line == b"there" => {
                remote.borrow().as_ref().expect("it is there").post(1).expect("it is open");
                cx.send("posted".into()).into()
            }
            Call::Event(Event::Posted(_)) => cx.send("relayed".into()).into(),
            call => echo(call, cx),
        }
    });
    let end = connect::<S, M>(stage, &raw_peer, &to, NARROW);
    open::<S, M>(stage, &raw_peer, end, &[(1, 3), (3, 3)]);
    raw_peer.send(end, &S::encoded(&batch::<M>(&[(1, "here"), (3, "there"), (3, "x"), (3, "there"), (1, "y")])));
    stage.until("all has come", || {
        text::<S, M>(&raw_peer, end, 3) == "posted\nx\nposted\n" && text::<S, M>(&raw_peer, end, 1).len() == 2 * 8 + 2
    });
}

/// The peer breaks the protocol between the messages of streams.
pub(crate) fn a_session_that_ends_ends_its_streams<S: Stack, M: Multiplexer>(stage: &Stage) {
    let (server, raw_peer) = (stage.server(), stage.raw_peer());
    let to = listen::<S, M, _>(stage, &server, NARROW, limits(), || echo);
    let end = connect::<S, M>(stage, &raw_peer, &to, NARROW);
    open::<S, M>(stage, &raw_peer, end, &[(1, 3), (3, 3)]);
    let broken = [batch::<M>(&[(1, "a")]), M::broken_frame(), batch::<M>(&[(3, "b"), (1, "c")])].concat();
    raw_peer.send(end, &S::encoded(&broken));
    stage.until("the session is closed", || server.counts().closed_protocol == 1 && server.counts().streams == 0);
    assert_eq!(text::<S, M>(&raw_peer, end, 3), "");
    assert_eq!(server.counts().messages, 1);
    assert_eq!(stage.reasons().len(), 2);
}

/// Write positions of replies, watched or not, count the stream's own bytes.
pub(crate) fn write_positions_are_those_of_the_stream<S: Stack, M: Multiplexer>(stage: &Stage) {
    let (server, raw_peer, seen) = (stage.server(), stage.raw_peer(), Rc::new(RefCell::new(Vec::new())));
    let notes = seen.clone();
    let to = listen::<S, M, _>(stage, &server, NARROW, limits(), move || {
        let notes = notes.clone();
        move |call: Call, cx: &mut Cx<'_, M::Server>| {
            match call {
                Call::Message(line) => {
                    let is_watched = line.starts_with(b"watch");
                    let position = cx.send(line.into()).expect("there is room");
                    notes.borrow_mut().push((cx.id(), position.0));
                    assert!(cx.pending_bytes() > 0);
                    if is_watched {
                        cx.watch(position);
                    }
                }
                Call::Event(Event::Flushed) => {
                    assert_eq!(cx.pending_bytes(), 0);
                    cx.send("flushed".into()).expect("there is room");
                }
                call => return call.by_default(cx),
            }
            Outcome::Continue
        }
    });
    let end = connect::<S, M>(stage, &raw_peer, &to, NARROW);
    open::<S, M>(stage, &raw_peer, end, &[(1, 3), (3, 3)]);
    raw_peer.send(end, &S::encoded(&batch::<M>(&[(1, "abc"), (3, "a"), (1, "watch"), (3, "b")])));
    stage.until("it is flushed", || text::<S, M>(&raw_peer, end, 1) == "abc\nwatch\nflushed\n");
    raw_peer.send(end, &S::encoded(&batch::<M>(&[(3, "watch"), (1, "d"), (3, "")])));
    stage.until("it is flushed", || {
        let [one, three] = [1, 3].map(|id| text::<S, M>(&raw_peer, end, id));
        one == "abc\nwatch\nflushed\nd\n" && ["flushed\n\n", "\nflushed\n"].iter().any(|end| three.ends_with(end))
    });
    let first = seen.borrow()[0].0;
    let of = |is_first: bool| -> Vec<u64> {
        seen.borrow().iter().filter(|(id, _)| (*id == first) == is_first).map(|(_, position)| *position).collect()
    };
    assert_eq!(of(true), [4, 10, 20]);
    assert_eq!(of(false)[..3], [2, 4, 10]);
}
