//! Connections end in good order: all data first, then the end, once, and each direction for itself.

use std::panic::resume_unwind;

use tidegate_engine::{Client, Event, Limits, Outcome};

use crate::echo::{echo, pattern};
use crate::journal::Journal;
use crate::stack::Stack;
use crate::stage::{Call, Served, Stage};

pub(crate) fn our_end_leaves_the_peers_side_open<S: Stack>(stage: &Stage) {
    let (server, client, journal) = (stage.server(), stage.client(), Journal::default());
    let seen = journal.clone();
    let to = stage.listen_noting::<S>(&server, Limits::default(), &journal, move |call, cx| match call {
        Call::Open => {
            let sent = cx.send(pattern(GREETING).into());
            cx.shutdown_write();
            if cx.send("late".into()).is_ok() {
                seen.note("sent after the end");
            }
            sent.into()
        }
        call => call.by_default(cx),
    });
    let started = stage.start(&client, async move {
        let mut channel = Client::at(to).connect(S::client()).await?;
        let mut come = Vec::new();
        while let Some(bytes) = channel.recv().await? {
            come.extend_from_slice(&bytes);
        }
        channel.send(pattern(ANSWER).into())?;
        channel.close().await?;
        Ok::<_, Box<dyn std::error::Error>>(come)
    });
    assert!(stage.outcome(&started).expect("nothing breaks") == pattern(GREETING), "other bytes have come");
    assert_eq!(stage.reason(1), "done");
    assert!(journal.bytes() == pattern(ANSWER), "other bytes have come after our end");
    assert_eq!(journal.count("ReadClosed"), 1);
    assert_eq!(journal.count("sent after the end"), 0);
}

pub(crate) fn the_peers_end_leaves_our_side_open<S: Stack>(stage: &Stage) {
    let (server, raw_peer, journal) = (stage.server(), stage.raw_peer(), Journal::default());
    let pause = stage.units(1) / 4;
    let to = stage.listen_noting::<S>(&server, Limits::default(), &journal, move |call, cx| match call {
        Call::Event(Event::ReadClosed) => {
            cx.deadline_after(pause);
            cx.send(pattern(GREETING).into()).into()
        }
        Call::Event(Event::Deadline) => match cx.send(pattern(ANSWER).into()) {
            Ok(_) => Outcome::Close,
            Err(error) => Outcome::fail(error),
        },
        _ => Outcome::Continue,
    });
    let end = stage.connect::<S>(&raw_peer, &to);
    raw_peer.send(end, &S::encoded(&pattern(LONG)));
    stage.send_goodbye::<S>(&raw_peer, end);
    stage.until("the server ends", || raw_peer.inspect(end, |seen| seen.ended > 0));
    let said = raw_peer.completions(end);
    assert!(S::decoded(&said.received) == [pattern(GREETING), pattern(ANSWER)].concat(), "other bytes have come");
    assert_eq!(stage.reason(1), "done");
    assert!(journal.bytes() == pattern(LONG), "other bytes have come before the end");
    assert_eq!(journal.count("ReadClosed"), 1);
    assert_eq!((raw_peer.completions(end).ended, raw_peer.completions(end).failed), (1, Vec::new()));
}

pub(crate) fn an_end_that_comes_with_data_is_seen_after_it<S: Stack>(stage: &Stage) {
    let (server, raw_peer) = (stage.server(), stage.raw_peer());
    for (index, length) in [1, 16 * 1024, LONG].into_iter().enumerate() {
        let journal = Journal::default();
        let seen = journal.clone();
        let to = stage.listen_noting::<S>(&server, Limits::default(), &journal, move |call, cx| {
            if let Call::Event(Event::ReadClosed) = call {
                seen.note(format!("{} bytes", seen.length()));
            }
            call.by_default(cx)
        });
        let end = stage.connect::<S>(&raw_peer, &to);
        raw_peer.send(end, &S::encoded(&pattern(length)));
        stage.send_goodbye::<S>(&raw_peer, end);
        assert_eq!(stage.reason(index + 1), "done");
        assert_eq!(journal.count(&format!("{length} bytes")), 1, "{:?}", journal.events());
        assert_eq!(journal.count("ReadClosed"), 1);
    }
}

pub(crate) fn both_sides_may_end_at_once<S: Stack>(stage: &Stage) {
    let (server, client) = (stage.server(), stage.client());
    let journals = [Journal::default(), Journal::default()];
    let to = stage.listen_noting::<S>(&server, Limits::default(), &journals[0], |call, cx| match call {
        Call::Open => {
            let sent = cx.send(pattern(LONG).into());
            cx.shutdown_write();
            sent.into()
        }
        _ => Outcome::Continue,
    });
    let theirs = journals[1].clone();
    let probe = stage.probe(move |call: Call, cx: &mut crate::stage::Cx<'_, S::Codec>| {
        theirs.note_call(&call);
        match call {
            Call::Open => {
                let sent = cx.send(pattern(LONG).into());
                cx.shutdown_write();
                sent.into()
            }
            _ => Outcome::Continue,
        }
    });
    let connect = async move { Client::at(to).connect_with(S::client(), probe).await.map(drop) };
    stage.outcome(&stage.start(&client, connect)).expect("a server listens");
    stage.reason(2);
    assert_eq!(stage.reasons(), ["done", "done"]);
    for journal in journals {
        assert!(journal.bytes() == pattern(LONG), "other bytes have come");
        assert_eq!(journal.count("ReadClosed"), 1);
    }
}

pub(crate) fn pending_bytes_arrive_before_the_close<S: Stack>(stage: &Stage) {
    let (server, raw_peer, journal) = (stage.server(), stage.raw_peer(), Journal::default());
    let all = pattern(stage.much() / 8);
    let answer = all.clone();
    let to = stage.listen_noting::<S>(&server, Limits::default(), &journal, move |call, cx| match call {
        Call::Open => match cx.send(answer.clone().into()) {
            Ok(_) => Outcome::Close,
            Err(error) => Outcome::fail(error),
        },
        call => call.by_default(cx),
    });
    let end = stage.connect::<S>(&raw_peer, &to);
    stage.until("the server ends", || raw_peer.inspect(end, |seen| seen.ended > 0));
    assert!(S::decoded(&raw_peer.completions(end).received) == all, "other bytes have come");
    stage.send_goodbye::<S>(&raw_peer, end);
    assert_eq!(stage.reason(1), "done");
    assert_eq!((raw_peer.completions(end).ended, raw_peer.completions(end).failed), (1, Vec::new()));
    assert!(journal.count("ReadClosed") == 0, "a closing connection gets no events");
}

pub(crate) fn a_dropped_channel_sends_its_pending_bytes<S: Stack>(stage: &Stage) {
    let (server, client, journal) = (stage.server(), stage.client(), Journal::default());
    let to = stage.listen_noting::<S>(&server, Limits::default(), &journal, |call, cx| match call {
        // A peer that reads slowly.
        Call::Message(_) => {
            cx.pause();
            cx.deadline_after(std::time::Duration::from_millis(1));
            Outcome::Continue
        }
        Call::Event(Event::Deadline) => {
            cx.resume();
            Outcome::Continue
        }
        call => call.by_default(cx),
    });
    let all = pattern(2 * LONG);
    let sent = all.clone();
    let started = stage.start(&client, async move {
        let mut channel = Client::at(to).connect(S::client()).await?;
        channel.send(sent.into())?;
        Served::Ok(())
    });
    stage.outcome(&started).expect("a server listens");
    assert_eq!(stage.reason(1), "done");
    assert!(journal.bytes() == all, "other bytes have come");
    assert_eq!(journal.count("ReadClosed"), 1);
}

pub(crate) fn a_handler_that_fails_cuts_its_connection_off<S: Stack>(stage: &Stage) {
    let (server, raw_peer, journal) = (stage.server(), stage.raw_peer(), Journal::default());
    let to = stage.listen_noting::<S>(&server, Limits::default(), &journal, |call, cx| match call {
        Call::Message(_) => Outcome::fail("the disk is full"),
        call => call.by_default(cx),
    });
    let end = stage.connect::<S>(&raw_peer, &to);
    raw_peer.send(end, &S::encoded(b"ebb"));
    assert_eq!(stage.reason(1), "the handler failed: the disk is full");
    stage.until("the peer sees the reset", || raw_peer.inspect(end, |seen| !seen.failed.is_empty()));
    assert_eq!(raw_peer.completions(end).ended, 0, "bytes without framing must not look complete");
    assert_eq!(server.counts().closed_failed, 1);
}

pub(crate) fn a_panic_ends_its_own_connection_only<S: Stack>(stage: &Stage) {
    stage.expect_panics();
    let (server, raw_peer, journal) = (stage.server(), stage.raw_peer(), Journal::default());
    let to = stage.listen_noting::<S>(&server, Limits::default(), &journal, |call, cx| match call {
        // Not by `panic!`, which would print.
        Call::Message(message) if message.starts_with(b"!") => resume_unwind(Box::new("on purpose")),
        call => echo::<S>(call, cx),
    });
    let [one, other] = [stage.connect::<S>(&raw_peer, &to), stage.connect::<S>(&raw_peer, &to)];
    raw_peer.send(one, &S::encoded(b"!"));
    assert_eq!(stage.reason(1), "the handler panicked");
    stage.until("the peer sees the reset", || raw_peer.inspect(one, |seen| !seen.failed.is_empty()));
    raw_peer.send(other, &S::encoded(b"ebb"));
    stage.until("the other is answered", || raw_peer.inspect(other, |seen| S::decoded(&seen.received) == b"ebb"));
    stage.send_goodbye::<S>(&raw_peer, other);
    assert_eq!(stage.reason(2), "done");
    assert_eq!(server.counts().closed_panicked, 1);
}

/// Any call of a handler may be the last but `closed`.
pub(crate) fn a_handler_may_end_at_any_event<S: Stack>(stage: &Stage) {
    const MOMENTS: [&str; 7] = ["open", "message", "Deadline", "Flushed", "Posted(7)", "ReadClosed", "Drain"];
    stage.expect_panics();
    let (raw_peer, mut ended) = (stage.raw_peer(), 0);
    for ending in ["done", "the handler failed: on purpose", "the handler panicked"] {
        let server = stage.server();
        for moment in MOMENTS {
            let journal = Journal::default();
            let to = stage.listen_noting::<S>(&server, Limits::default(), &journal, move |call, cx| {
                let name = match &call {
                    Call::Open => "open".to_owned(),
                    Call::Message(_) => "message".to_owned(),
                    Call::Event(event) => format!("{event:?}"),
                };
                if let Call::Open = call
                    && let Ok(mark) = cx.send(pattern(GREETING).into())
                {
                    cx.watch(mark);
                    cx.deadline_after(std::time::Duration::from_millis(1));
                    let _ = cx.remote().post(7);
                }
                match ending {
                    _ if name != moment => Outcome::Continue,
                    "done" => Outcome::Close,
                    "the handler panicked" => resume_unwind(Box::new("on purpose")),
                    _ => Outcome::fail("on purpose"),
                }
            });
            let end = stage.connect::<S>(&raw_peer, &to);
            raw_peer.send(end, &S::encoded(b"!"));
            stage.send_goodbye::<S>(&raw_peer, end);
            if moment == "Drain" {
                stage.until("it has seen the end", || journal.count("ReadClosed") == 1);
                server.with(|event_loop| event_loop.drain(stage.units(100)));
            }
            ended += 1;
            assert_eq!((stage.reason(ended).as_str(), moment), (ending, moment));
        }
    }
}

/// A peer sends other bytes in the place of a handshake.
pub(crate) fn a_broken_handshake_ends_its_own_connection_only<S: Stack>(stage: &Stage) {
    let Some(broken) = S::broken_handshake() else { return };
    let (server, raw_peer) = (stage.server(), stage.raw_peer());
    let to = stage.listen(&server, Limits::default(), S::server, || echo::<S>);
    let good = stage.connect::<S>(&raw_peer, &to);
    let bad = raw_peer.connect_bare(&to);
    raw_peer.receive(bad, true);
    raw_peer.send(bad, &broken);
    stage.until("it is ended", || raw_peer.inspect(bad, |seen| seen.ended + seen.failed.len() > 0));
    raw_peer.close(bad, false);
    raw_peer.send(good, &S::encoded(b"ebb"));
    stage.until("the other is answered", || raw_peer.inspect(good, |seen| S::decoded(&seen.received) == b"ebb"));
    stage.until("it is counted", || server.counts().closed_protocol == 1);
    stage.send_goodbye::<S>(&raw_peer, good);
    stage.until("the other is done", || server.counts().closed_done == 1);
}

/// Input of a connection that is cut off meanwhile is discarded, so often that the receive buffers would be used up if
/// they were lost with it.
pub(crate) fn input_of_a_closed_connection_uses_up_no_receive_buffers<S: Stack>(stage: &Stage) {
    let (server, client, raw_peer, journal) = (stage.server(), stage.client(), stage.raw_peer(), Journal::default());
    let soon = stage.units(1) / 6;
    let brief = stage.listen_noting::<S>(&server, Limits::default(), &journal, move |call, cx| match call {
        Call::Open => {
            cx.deadline_after(soon);
            Outcome::Continue
        }
        Call::Event(Event::Deadline) => Outcome::fail("it is time"),
        call => call.by_default(cx),
    });
    let to = stage.listen(&server, Limits::default(), S::server, || echo::<S>);
    for round in 1..=40 {
        let end = stage.connect::<S>(&raw_peer, &brief);
        stage.until("it is open", || journal.count("open") == round);
        stage.rest(soon / 10);
        raw_peer.send(end, &S::encoded(b"late"));
        raw_peer.turn();
        // In real time the deadline and the bytes come in the same turn.
        stage.turns_within(&client, soon);
        stage.until("it is cut off", || raw_peer.inspect(end, |seen| seen.ended + seen.failed.len() > 0));
        raw_peer.close(end, true);
    }
    let end = stage.connect::<S>(&raw_peer, &to);
    raw_peer.send(end, &S::encoded(b"ebb"));
    stage.until("it is answered", || raw_peer.inspect(end, |seen| S::decoded(&seen.received) == b"ebb"));
}

const GREETING: usize = 5_000;

const ANSWER: usize = 3_000;

/// Several receives.
const LONG: usize = 40_000;
