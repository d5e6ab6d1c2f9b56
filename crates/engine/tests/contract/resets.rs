//! Connections that are reset: in every state the reset is noticed, reported once, and costs a bounded number of
//! turns.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use tidegate_engine::{Channel, Client, Event, Limits, Outcome, task};

use crate::echo::{echo, exchange, pattern};
use crate::journal::Journal;
use crate::raw_peer::RawPeer;
use crate::stack::Stack;
use crate::stage::{Call, Cx, Served, Stage};

/// The state when the peer resets.
struct Scene<'a> {
    stage: &'a Stage,
    server: crate::stage::Site,
    raw_peer: RawPeer,
    end: usize,
    journal: Journal,
}

impl Scene<'_> {
    fn until_noted(&self, what: &str) {
        self.stage.until(what, || self.journal.count(what) > 0);
    }

    /// Once the bytes in transit have come, the loop sleeps.
    fn assert_sleeps(&self) {
        self.stage.rest(self.stage.units(1) / 4);
        let turns = self.stage.turns_within(&self.server, self.stage.units(1) / 4);
        assert!(turns <= TURNS_MAX, "{turns} turns while nothing happened");
    }
}

/// Brings a connection into a state, resets it from the other end, and returns the close reason.
fn reset_in<S: Stack>(
    stage: &Stage,
    act: impl Fn(Call, &mut Cx<'_, S::Codec>) -> Outcome<S::Codec> + 'static,
    get_there: impl FnOnce(&Scene<'_>),
) -> String {
    let (server, raw_peer, journal) = (stage.server(), stage.raw_peer(), Journal::default());
    let to = stage.listen_noting::<S>(&server, Limits::default(), &journal, act);
    let end = stage.connect::<S>(&raw_peer, &to);
    let scene = Scene { stage, server, raw_peer, end, journal };
    get_there(&scene);
    scene.raw_peer.close(end, true);
    let reason = stage.reason(1);
    scene.assert_sleeps();
    assert_eq!(scene.server.counts().connections, 0);
    reason
}

fn assert_broken(reason: &str) {
    assert!(reason.starts_with("the connection broke"), "{reason}");
}

pub(crate) fn before_it_is_accepted<S: Stack>(stage: &Stage) {
    let (server, client, raw_peer, journal) = (stage.server(), stage.client(), stage.raw_peer(), Journal::default());
    let to = stage.listen_noting::<S>(&server, Limits::default(), &journal, echo::<S>);
    for _ in 0..5 {
        let end = raw_peer.connect(&to);
        // In real time, without a turn of the server's loop.
        (0..100).for_each(|_| raw_peer.turn());
        stage.until("it is connected", || raw_peer.inspect(end, |seen| seen.connected.is_some()));
        raw_peer.close(end, true);
    }
    let started = stage.start(&client, exchange::<S>(to, pattern(100), 100));
    assert!(stage.outcome(&started).expect("accepting goes on") == pattern(100), "other bytes came back");
}

pub(crate) fn right_after_connecting<S: Stack>(stage: &Stage) {
    let reason = reset_in::<S>(stage, echo::<S>, |_| {});
    assert_broken(&reason);
}

pub(crate) fn while_idle<S: Stack>(stage: &Stage) {
    let reason = reset_in::<S>(stage, echo::<S>, |scene| {
        let Scene { stage, raw_peer, end, .. } = scene;
        raw_peer.send(*end, &S::encoded(b"ebb"));
        stage.until("it is answered", || raw_peer.inspect(*end, |seen| S::decoded(&seen.received) == b"ebb"));
        scene.assert_sleeps();
    });
    assert_broken(&reason);
}

pub(crate) fn with_unread_data<S: Stack>(stage: &Stage) {
    let pause = stage.units(1);
    let reason = reset_in::<S>(
        stage,
        move |call, cx| match call {
            Call::Open => {
                cx.pause();
                cx.deadline_after(pause);
                Outcome::Continue
            }
            Call::Event(Event::Deadline) => {
                cx.resume();
                Outcome::Continue
            }
            call => call.by_default(cx),
        },
        |scene| {
            scene.raw_peer.send(scene.end, &S::encoded(&pattern(2_000)));
            scene.until_noted("open");
        },
    );
    assert_broken(&reason);
}

pub(crate) fn with_pending_bytes<S: Stack>(stage: &Stage) {
    let much = stage.much();
    let mut pool = None;
    let reason = reset_in::<S>(
        stage,
        move |call, cx| match call {
            Call::Open => cx.send(pattern(much).into()).into(),
            call => call.by_default(cx),
        },
        |scene| {
            scene.raw_peer.receive(scene.end, false);
            scene.until_noted("open");
            scene.stage.rest(scene.stage.units(1) / 4);
            pool = Some(scene.server.pool());
        },
    );
    assert_broken(&reason);
    let used = pool.map_or(0, |pool| pool.ledger().used());
    assert!(used < MEMORY_MAX, "{used} bytes are left of a connection that is gone");
}

pub(crate) fn after_our_end<S: Stack>(stage: &Stage) {
    let reason = reset_in::<S>(
        stage,
        |call, cx| match call {
            Call::Open => {
                let sent = cx.send("ebb".into());
                cx.shutdown_write();
                sent.into()
            }
            call => call.by_default(cx),
        },
        |scene| {
            let Scene { stage, raw_peer, end, .. } = scene;
            stage.until("the server ends", || raw_peer.inspect(*end, |seen| seen.ended == 1));
            scene.assert_sleeps();
        },
    );
    assert_broken(&reason);
}

/// Another project's loop never slept again after this (CVE-2026-42577).
pub(crate) fn after_the_peers_end<S: Stack>(stage: &Stage) {
    let reason = reset_in::<S>(
        stage,
        |_, _| Outcome::Continue,
        |scene| {
            scene.stage.send_goodbye::<S>(&scene.raw_peer, scene.end);
            scene.until_noted("ReadClosed");
            scene.assert_sleeps();
            assert_eq!(scene.journal.count("ReadClosed"), 1);
        },
    );
    assert_broken(&reason);
}

pub(crate) fn while_waiting_for_the_peers_end<S: Stack>(stage: &Stage) {
    let reason = reset_in::<S>(
        stage,
        |call, cx| match call {
            Call::Message(message) => match cx.send(message.into()) {
                Ok(_) => Outcome::Close,
                Err(error) => Outcome::fail(error),
            },
            call => call.by_default(cx),
        },
        |scene| {
            let Scene { stage, raw_peer, end, .. } = scene;
            raw_peer.send(*end, &S::encoded(b"ebb"));
            stage.until("the server ends", || raw_peer.inspect(*end, |seen| seen.ended == 1));
        },
    );
    assert_eq!(reason, "done");
}

pub(crate) fn a_peer_that_never_reads_is_cut_off<S: Stack>(stage: &Stage) {
    let (server, client, journal) = (stage.server(), stage.client(), Journal::default());
    let much = stage.much();
    // Making so many bytes takes a while as well.
    let limits = Limits { write_timeout: stage.units(4), ..Limits::default() };
    let to = stage.listen_noting::<S>(&server, limits, &journal, move |call, cx| match call {
        Call::Open => cx.send(pattern(much).into()).into(),
        call => call.by_default(cx),
    });
    let connect = async move { Client::at(to).connect(S::client()).await };
    // A channel from which no task receives.
    let channel = stage.outcome(&stage.start(&client, connect)).expect("a server listens");
    assert_eq!(stage.reason(1), "the peer took too few bytes before the write deadline");
    let used = server.used();
    assert!(used < MEMORY_MAX, "{used} bytes are left of a connection that is gone");
    assert_eq!(server.counts().closed_write_timeout, 1);
    client.with(|_| drop(channel));
}

/// The peer shuts down its side and closes before it has read the bytes in transit.
pub(crate) fn by_a_peer_that_leaves_in_the_middle<S: Stack>(stage: &Stage) {
    let much = stage.much();
    let (server, raw_peer, journal) = (stage.server(), stage.raw_peer(), Journal::default());
    let to = stage.listen_noting::<S>(&server, Limits::default(), &journal, move |call, cx| match call {
        Call::Open => cx.send(pattern(much).into()).into(),
        call => call.by_default(cx),
    });
    let end = stage.connect::<S>(&raw_peer, &to);
    stage.until("something has come", || raw_peer.inspect(end, |seen| !seen.received.is_empty()));
    raw_peer.close(end, false);
    let reason = stage.reason(1);
    // Below a filter an end without a goodbye breaks the protocol; and the kernel may have taken everything already.
    let known = ["the peer ended without a goodbye", "TLS: the peer ended without a close_notify", "done"];
    let known = known.contains(&reason.as_str());
    assert!(known || reason.starts_with("the connection broke"), "{reason}");
    let used = server.used();
    assert!(used < MEMORY_MAX, "{used} bytes are left of a connection that is gone");
}

/// Every wait of a channel's task ends with the connection.
pub(crate) fn end_whatever_a_channel_waits_for<S: Stack>(stage: &Stage) {
    let (server, raw_peer, much) = (stage.server(), stage.raw_peer(), stage.much());
    let waits = Rc::new(RefCell::new(Vec::new()));
    for what in ["recv", "ready", "flushed", "close"] {
        let (waited, begun) = (waits.clone(), Rc::new(Cell::new(false)));
        let begins = begun.clone();
        let serve = move |mut channel: Channel<S::Codec>| {
            let (waited, begins) = (waited.clone(), begins.clone());
            async move {
                let result = if what == "recv" {
                    begins.set(true);
                    channel.recv().await.map(drop)
                } else {
                    let mark = channel.send(pattern(much).into())?;
                    begins.set(true);
                    match what {
                        "ready" => channel.ready().await,
                        "flushed" => channel.flushed(mark).await,
                        _ => channel.close().await,
                    }
                };
                waited.borrow_mut().push(what);
                // The other waits may be over a moment before.
                if what == "recv" && result.is_ok() { Err("nothing has come".into()) } else { Served::Ok(()) }
            }
        };
        let to = stage.serve(&server, Limits::default(), S::server, serve);
        let end = stage.connect::<S>(&raw_peer, &to);
        raw_peer.receive(end, false);
        stage.until("the task waits", || begun.get());
        stage.rest(stage.units(1) / 100);
        raw_peer.close(end, true);
        stage.until("the task waits no more", || waits.borrow().last() == Some(&what));
    }
    assert_eq!(server.counts().closed_failed, 0);
}

/// The raw peer sees a reset, and neither an end nor the pending bytes.
fn assert_reset(stage: &Stage, server: &crate::stage::Site, raw_peer: &RawPeer, end: usize, much: usize) {
    stage.until("the peer sees the reset", || raw_peer.inspect(end, |seen| !seen.failed.is_empty()));
    let said = raw_peer.completions(end);
    assert_eq!(said.ended, 0, "a reset is not an end");
    assert!(said.received.len() < much, "pending bytes were dropped");
    stage.until("the connection is closed", || server.counts().closed_aborted == 1);
    let counts = server.counts();
    assert_eq!((counts.connections, counts.closed_done, counts.closed_failed), (0, 0, 0));
    stage.until("the waiting bytes are given back", || server.used() < MEMORY_MAX);
}

pub(crate) fn on_purpose_by_a_channel_are_seen_by_the_peer<S: Stack>(stage: &Stage) {
    for waiting in [0, stage.much()] {
        let (server, raw_peer) = (stage.server(), stage.raw_peer());
        let serve = move |mut channel: Channel<S::Codec>| async move {
            channel.recv().await?;
            if waiting > 0 {
                channel.send(pattern(waiting).into())?;
            }
            channel.abort();
            Served::Ok(())
        };
        let to = stage.serve(&server, Limits::default(), S::server, serve);
        let end = stage.connect::<S>(&raw_peer, &to);
        raw_peer.send(end, &S::encoded(b"ebb"));
        assert_reset(stage, &server, &raw_peer, end, waiting.max(1_000));
    }
}

/// Either half may abort; the other one, which waits meanwhile, gets the reason.
pub(crate) fn on_purpose_by_a_half_end_the_other_half<S: Stack>(stage: &Stage) {
    for by_reader in [true, false] {
        let (server, raw_peer) = (stage.server(), stage.raw_peer());
        let reasons = Rc::new(RefCell::new(Vec::new()));
        let seen = reasons.clone();
        let serve = move |mut channel: Channel<S::Codec>| {
            let seen = seen.clone();
            async move {
                channel.recv().await?;
                let (mut reader, mut writer) = channel.split();
                if by_reader {
                    task::spawn(async move {
                        // Until neither the peer's kernel nor ours has room, and on.
                        while writer.ready().await.is_ok() && writer.send(pattern(10_000).into()).is_ok() {}
                        let ready = writer.ready().await;
                        seen.borrow_mut().push(ready.map_err(|error| error.to_string()));
                    });
                    task::sleep(Duration::from_millis(1)).await;
                    reader.abort();
                } else {
                    task::spawn(async move {
                        // The first message may come in pieces.
                        let received = loop {
                            let received = reader.recv().await;
                            if !matches!(received, Ok(Some(_))) {
                                break received;
                            }
                        };
                        seen.borrow_mut().push(received.map(drop).map_err(|error| error.to_string()));
                    });
                    task::sleep(Duration::from_millis(1)).await;
                    writer.abort();
                }
                Served::Ok(())
            }
        };
        let to = stage.serve(&server, Limits::default(), S::server, serve);
        let end = stage.connect::<S>(&raw_peer, &to);
        raw_peer.receive(end, !by_reader);
        raw_peer.send(end, &S::encoded(b"ebb"));
        stage.until("the other half waits no more", || reasons.borrow().len() == 1);
        assert_eq!(reasons.borrow()[0], Err("the application reset the connection".into()));
        raw_peer.receive(end, true);
        assert_reset(stage, &server, &raw_peer, end, usize::MAX);
    }
}

pub(crate) fn on_purpose_by_a_handler_are_seen_by_the_peer<S: Stack>(stage: &Stage) {
    let (server, raw_peer, journal) = (stage.server(), stage.raw_peer(), Journal::default());
    let much = stage.much();
    let to = stage.listen_noting::<S>(&server, Limits::default(), &journal, move |call, cx| match call {
        Call::Message(_) => match cx.send(pattern(much).into()) {
            Ok(_) => Outcome::Abort,
            Err(error) => Outcome::fail(error),
        },
        call => call.by_default(cx),
    });
    let end = stage.connect::<S>(&raw_peer, &to);
    raw_peer.send(end, &S::encoded(b"ebb"));
    assert_eq!(stage.reason(1), "the application reset the connection");
    assert_reset(stage, &server, &raw_peer, end, much);
    assert_eq!(journal.count("ReadClosed"), 0);
}

/// Turns of an idle loop; in real time an event may be late.
const TURNS_MAX: u64 = 5;

/// Memory that a loop keeps for the next connection.
const MEMORY_MAX: usize = 300_000;
