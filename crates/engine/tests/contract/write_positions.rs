//! Write positions: a flush is reported once, when the bytes have left, and not a byte too early.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use tidegate_buffer::{WaterMarks, WritePosition};
use tidegate_codec::framing::Payload;
use tidegate_engine::{Event, Limits, Outcome, Remote};
use tidegate_sys::Address;

use crate::caller::Caller;
use crate::echo::pattern;
use crate::stack::Stack;
use crate::stage::{Call, Cx, Post, Site, Stage};

/// Limits of a connection on which any number of bytes may wait.
fn unlimited() -> Limits {
    Limits { water: WaterMarks::new(1 << 40, 1), ..Limits::default() }
}

/// The record of positions that are awaited one after the other.
#[derive(Default)]
struct Marks {
    all: RefCell<Vec<u64>>,
    /// How many were reported.
    reported: Cell<usize>,
}

impl Marks {
    /// No position is reported before its bytes have left.
    #[track_caller]
    fn check<S: Stack>(&self, sent: u64) {
        let (all, reported) = (self.all.borrow(), self.reported.get());
        let are_sent = all.len() >= reported && all[..reported].iter().all(|mark| is_sent::<S>(*mark, sent));
        assert!(are_sent, "one of {reported} positions was reported too early");
    }

    /// Whether all positions whose bytes have left are reported. Below a filter a position may wait for bytes that were
    /// sealed together with it.
    fn are_reported<S: Stack>(&self, sent: u64) -> bool {
        S::FILTERED || !self.all.borrow()[self.reported.get()..].iter().any(|mark| is_sent::<S>(*mark, sent))
    }
}

fn is_sent<S: Stack>(mark: u64, sent: u64) -> bool {
    S::wire_bytes(mark as usize) as u64 <= sent
}

/// Follows the positions while a peer does not read, and while it does.
fn follow<S: Stack>(stage: &Stage, server: &Site, to: &Address, marks: &Marks, bytes: &[u8]) {
    let sent = || server.counts().sent_bytes;
    let caller = Caller::<S>::not_reading(stage, to);
    stage.until("everything was sent", || !marks.all.borrow().is_empty());
    for listens in [false, true, false] {
        caller.set_reading(listens);
        stage.happens(stage.units(1) / 10, || {
            marks.check::<S>(sent());
            caller.inspect(|seen| listens && seen.received.len() > bytes.len() / 8)
        });
    }
    stage.rest(stage.units(1));
    stage.until("all positions that have left are reported", || marks.are_reported::<S>(sent()));
    marks.check::<S>(sent());
    assert!(marks.reported.get() < marks.all.borrow().len(), "not everything can have left");
    caller.set_reading(true);
    stage.until("the server ends", || {
        marks.check::<S>(sent());
        caller.is_over()
    });
    assert!(caller.all_received(stage) == bytes, "other bytes arrived");
    assert_eq!(marks.reported.get(), marks.all.borrow().len(), "positions that were reported");
}

/// Serves bytes in pieces, each of which is waited for.
fn promises<S: Stack>(stage: &Stage, server: &Site, marks: &Rc<Marks>, bytes: &[u8], piece: usize) -> Address {
    let (marks, bytes) = (marks.clone(), bytes.to_vec());
    stage.serve(server, unlimited(), S::server, move |mut channel| {
        let (marks, bytes) = (marks.clone(), bytes.clone());
        async move {
            let pieces = bytes.chunks(piece).map(|piece| Payload::from(piece.to_vec()));
            let all: Result<Vec<_>, _> = pieces.map(|piece| channel.send(piece)).collect();
            let all = all.map_err(|_| "refused")?;
            *marks.all.borrow_mut() = all.iter().map(|mark| mark.0).collect();
            for mark in all {
                channel.flushed(mark).await?;
                marks.reported.set(marks.reported.get() + 1);
            }
            Ok(())
        }
    })
}

pub(crate) fn a_position_is_flushed_when_its_bytes_have_left_and_not_before<S: Stack>(stage: &Stage) {
    let (server, marks) = (stage.server(), Rc::<Marks>::default());
    let bytes = pattern(2 * stage.bulk());
    let to = promises::<S>(stage, &server, &marks, &bytes, 5000);
    follow::<S>(stage, &server, &to, &marks, &bytes);
}

/// Wherever a kernel stops taking bytes, there is a position right before and one right behind.
pub(crate) fn positions_that_are_a_byte_apart_are_distinct<S: Stack>(stage: &Stage) {
    let (server, marks) = (stage.server(), Rc::<Marks>::default());
    let bytes = pattern(1500);
    let to = promises::<S>(stage, &server, &marks, &bytes, 1);
    let caller = Caller::<S>::new(stage, &to);
    stage.until("the server ends", || {
        marks.check::<S>(server.counts().sent_bytes);
        caller.is_over()
    });
    assert!(caller.all_received(stage) == bytes, "other bytes arrived");
    assert_eq!(marks.reported.get(), bytes.len(), "positions that were reported");
}

pub(crate) fn a_watched_position_is_reported_once_when_its_bytes_have_left<S: Stack>(stage: &Stage) {
    let (server, marks) = (stage.server(), Rc::<Marks>::default());
    let (note, bytes) = (marks.clone(), pattern(2 * stage.bulk()));
    let said = bytes.clone();
    let to = stage.listen(&server, unlimited(), S::server, move || {
        let (marks, said) = (note.clone(), said.clone());
        move |event, cx: &mut Cx<'_, S::Codec>| {
            let watch = |cx: &mut Cx<'_, S::Codec>| {
                marks.all.borrow().get(marks.reported.get()).map(|mark| cx.watch(WritePosition(*mark))).is_some()
            };
            match event {
                Call::Open => {
                    let all = said.chunks(5000).map(|piece| cx.send(Payload::from(piece.to_vec())).map(|mark| mark.0));
                    match all.collect() {
                        Ok(all) => *marks.all.borrow_mut() = all,
                        Err(error) => return Outcome::fail(error),
                    }
                    watch(cx);
                    Outcome::Continue
                }
                Call::Event(Event::Flushed) => {
                    marks.reported.set(marks.reported.get() + 1);
                    if watch(cx) { Outcome::Continue } else { Outcome::Close }
                }
                event => event.by_default(cx),
            }
        }
    });
    follow::<S>(stage, &server, &to, &marks, &bytes);
}

/// Where a peer has stopped reading, the position one byte ahead of the bytes it took waits until it goes on.
pub(crate) fn a_position_one_byte_ahead_waits<S: Stack>(stage: &Stage) {
    let (server, handle) = (stage.server(), Rc::new(RefCell::new(None::<Remote<Post>>)));
    let (flushed, opened) = (Rc::new(Cell::new(0)), handle.clone());
    let (reported, bytes) = (flushed.clone(), pattern(2 * stage.bulk()));
    let said = bytes.clone();
    let to = stage.listen(&server, unlimited(), S::server, move || {
        let (reported, said, opened) = (reported.clone(), said.clone(), opened.clone());
        move |what, cx: &mut Cx<'_, S::Codec>| match what {
            Call::Open => {
                *opened.borrow_mut() = Some(cx.remote());
                cx.send(Payload::from(said.clone())).into()
            }
            Call::Event(Event::Posted(mark)) => {
                cx.watch(WritePosition(u64::from(mark)));
                Outcome::Continue
            }
            Call::Event(Event::Flushed) => {
                reported.set(reported.get() + 1);
                Outcome::Close
            }
            what => what.by_default(cx),
        }
    });
    let caller = Caller::<S>::not_reading(stage, &to);
    stage.until("a connection is there", || handle.borrow().is_some());
    stage.rest(stage.units(1));
    // Below a filter only the filter knows which of our bytes have left: the last one has not, in any case.
    let sent = server.counts().sent_bytes as usize;
    let ahead = if S::FILTERED { bytes.len() } else { sent + 1 };
    assert!(sent < bytes.len(), "not everything can have left");
    handle.borrow().as_ref().map(|handle| handle.post(ahead as Post)).expect("it has opened").expect("it is there");
    stage.rest(stage.units(1));
    assert_eq!(flushed.get(), 0, "the peer has taken {sent} bytes");
    caller.set_reading(true);
    assert!(caller.all_received(stage) == bytes, "other bytes arrived");
    assert_eq!(flushed.get(), 1, "positions that were reported");
    caller.end(stage);
}
