//! Drains: each connection is notified once, requests under way are finished, connections that do not end are cut off
//! in time, and the loop sleeps meanwhile.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tidegate_engine::{Channel, Client, Event, Limits, Outcome};

use crate::echo::{echo, pattern};
use crate::journal::Journal;
use crate::stack::Stack;
use crate::stage::{Call, Served, Site, Stage};

/// Drains a loop, and waits until it is drained.
fn drain(stage: &Stage, site: &Site, deadline: Duration) {
    site.with(|event_loop| event_loop.drain(deadline));
    stage.until("the loop is drained", || site.is_drained());
}

pub(crate) fn idle_connections_end_at_once<S: Stack>(stage: &Stage) {
    let (server, raw_peer, journal) = (stage.server(), stage.raw_peer(), Journal::default());
    let to = stage.listen_noting::<S>(&server, Limits::default(), &journal, echo::<S>);
    let ends: Vec<_> = (0..3).map(|_| stage.connect::<S>(&raw_peer, &to)).collect();
    stage.until("all are open", || journal.count("open") == 3);
    server.with(|event_loop| event_loop.drain(FOR_EVER));
    for end in ends {
        stage.until("the server ends", || raw_peer.inspect(end, |seen| seen.ended == 1));
        stage.send_goodbye::<S>(&raw_peer, end);
    }
    stage.until("the loop is drained", || server.is_drained());
    assert_eq!((journal.count("Drain"), stage.reasons()), (3, vec!["done".to_owned(); 3]));
}

pub(crate) fn nothing_more_is_accepted<S: Stack>(stage: &Stage) {
    let (server, raw_peer, journal) = (stage.server(), stage.raw_peer(), Journal::default());
    let stays = journal.clone();
    let to = stage.listen_noting::<S>(&server, Limits::default(), &journal, move |call, cx| match call {
        Call::Event(Event::Drain) => {
            stays.note("stays");
            Outcome::Continue
        }
        call => echo::<S>(call, cx),
    });
    let old = stage.connect::<S>(&raw_peer, &to);
    stage.until("it is open", || journal.count("open") == 1);
    server.with(|event_loop| event_loop.drain(FOR_EVER));
    // A connection that comes before the kernel has closed the listener is reset.
    let late = Cell::new(raw_peer.connect(&to));
    stage.until("the listener is closed", || match raw_peer.inspect(late.get(), |seen| seen.connected) {
        Some(Ok(())) => {
            late.set(raw_peer.connect(&to));
            false
        }
        connected => connected.is_some(),
    });
    // A connection that was there before is still served.
    raw_peer.send(old, &S::encoded(b"ebb"));
    stage.until("it is answered", || raw_peer.inspect(old, |seen| S::decoded(&seen.received) == b"ebb"));
    assert!(!server.is_drained());
    stage.send_goodbye::<S>(&raw_peer, old);
    stage.until("the loop is drained", || server.is_drained());
    assert_eq!((journal.count("Drain"), server.counts().accepted), (1, 1));
}

pub(crate) fn a_request_under_way_is_answered<S: Stack>(stage: &Stage) {
    let (server, raw_peer, journal) = (stage.server(), stage.raw_peer(), Journal::default());
    let (much, pause) = (stage.much() / 16, stage.units(1) / 4);
    let to = stage.listen_noting::<S>(&server, Limits::default(), &journal, move |call, cx| match call {
        Call::Message(_) => {
            cx.deadline_after(pause);
            Outcome::Continue
        }
        Call::Event(Event::Drain) => Outcome::Continue,
        Call::Event(Event::Deadline) => match cx.send(pattern(much).into()) {
            Ok(_) if cx.is_draining() => Outcome::Close,
            result => result.into(),
        },
        call => call.by_default(cx),
    });
    let end = stage.connect::<S>(&raw_peer, &to);
    raw_peer.send(end, &S::encoded(b"?"));
    stage.until("the request has come", || journal.length() == 1);
    server.with(|event_loop| event_loop.drain(FOR_EVER));
    stage.until("the server ends", || raw_peer.inspect(end, |seen| seen.ended == 1));
    assert!(S::decoded(&raw_peer.completions(end).received) == pattern(much), "other bytes have come");
    stage.send_goodbye::<S>(&raw_peer, end);
    stage.until("the loop is drained", || server.is_drained());
    assert_eq!((journal.count("Drain"), stage.reason(1).as_str()), (1, "done"));
}

/// One connection has much pending output for a peer that does not read, the other stays idle.
pub(crate) fn a_connection_that_does_not_end_is_cut_off_in_time<S: Stack>(stage: &Stage) {
    let (server, raw_peer, journal) = (stage.server(), stage.raw_peer(), Journal::default());
    let much = stage.much();
    let to = stage.listen_noting::<S>(&server, Limits::default(), &journal, move |call, cx| match call {
        Call::Message(_) => cx.send(pattern(much).into()).into(),
        Call::Event(Event::Drain) if !cx.is_writable() => Outcome::Close,
        _ => Outcome::Continue,
    });
    let [stuck, idle] = [stage.connect::<S>(&raw_peer, &to), stage.connect::<S>(&raw_peer, &to)];
    stage.until("both are open", || journal.count("open") == 2);
    raw_peer.receive(stuck, false);
    raw_peer.send(stuck, &S::encoded(b"?"));
    stage.until("the request has come", || journal.length() == 1);
    let begun = Instant::now();
    server.with(|event_loop| event_loop.drain(stage.units(1)));
    stage.rest(stage.units(1) / 4);
    // The loop waits for the deadline only.
    let turns = stage.turns_within(&server, stage.units(1) / 4);
    assert!(turns <= TURNS_MAX, "{turns} turns while nothing happened");
    let is_open = !server.is_drained() && server.counts().connections == 2;
    assert!(is_open || is_late(stage, begun, stage.units(1)), "a connection has ended too early");
    stage.until("the loop is drained", || server.is_drained());
    assert_eq!(stage.reasons(), ["the deadline of the drain had come"; 2]);
    assert_eq!(journal.count("Drain"), 2);
    raw_peer.receive(stuck, true);
    for end in [stuck, idle] {
        stage.until("the peer sees the end", || raw_peer.inspect(end, |seen| seen.failed.len() + seen.ended == 1));
    }
    let used = server.used();
    assert!(used < 300_000, "{used} bytes are left of connections that are gone");
}

pub(crate) fn channels_are_notified_once<S: Stack>(stage: &Stage) {
    let (server, raw_peer) = (stage.server(), stage.raw_peer());
    let notified = Rc::new(Cell::new(0));
    let count = notified.clone();
    let serve = move |mut channel: Channel<S::Codec>| {
        let count = count.clone();
        async move {
            while let Some(message) = channel.recv().await? {
                channel.send(message.into())?;
            }
            count.set(count.get() + u32::from(channel.is_draining()));
            // A task that calls `recv` again continues, until the peer ends.
            while let Some(message) = channel.recv().await? {
                channel.send(message.into())?;
            }
            count.set(count.get() + 10);
            Served::Ok(())
        }
    };
    let to = stage.serve(&server, Limits::default(), S::server, serve);
    let end = stage.connect::<S>(&raw_peer, &to);
    raw_peer.send(end, &S::encoded(b"ebb"));
    stage.until("it is answered", || raw_peer.inspect(end, |seen| S::decoded(&seen.received) == b"ebb"));
    server.with(|event_loop| event_loop.drain(FOR_EVER));
    stage.until("the channel is notified", || notified.get() == 1);
    raw_peer.send(end, &S::encoded(b"flow"));
    stage.until("it is answered", || raw_peer.inspect(end, |seen| S::decoded(&seen.received) == b"ebbflow"));
    assert_eq!(notified.get(), 1);
    stage.send_goodbye::<S>(&raw_peer, end);
    stage.until("the loop is drained", || server.is_drained());
    assert_eq!(notified.get(), 11);
}

pub(crate) fn a_connection_that_is_being_made_is_given_up_in_time<S: Stack>(stage: &Stage) {
    let client = stage.client();
    let target = Client::at(stage.unresponsive()).connect_timeout(FOR_EVER);
    let started = stage.start(&client, async move { target.connect(S::client()).await.is_ok() });
    stage.rest(stage.units(1) / 10);
    let begun = Instant::now();
    client.with(|event_loop| event_loop.drain(stage.units(1) / 2));
    stage.rest(stage.units(1) / 10);
    let is_open = !client.is_drained();
    assert!(is_open || is_late(stage, begun, stage.units(1) / 2), "it may come about still");
    stage.until("the loop is drained", || client.is_drained());
    assert!(!stage.outcome(&started), "no answer comes");
}

pub(crate) fn a_second_drain_shortens_the_first<S: Stack>(stage: &Stage) {
    let (server, raw_peer, journal) = (stage.server(), stage.raw_peer(), Journal::default());
    let to = stage.listen_noting::<S>(&server, Limits::default(), &journal, |_, _| Outcome::Continue);
    stage.connect::<S>(&raw_peer, &to);
    stage.until("it is open", || journal.count("open") == 1);
    server.with(|event_loop| event_loop.drain(FOR_EVER));
    stage.rest(stage.units(1) / 10);
    assert!(!server.is_drained());
    drain(stage, &server, Duration::ZERO);
    assert_eq!(stage.reason(1), "the deadline of the drain had come");
}

/// Whether this thread has not run for so long that a deadline has come meanwhile, which only real time brings.
fn is_late(stage: &Stage, begun: Instant, timeout: Duration) -> bool {
    stage.is_real() && begun.elapsed() >= timeout
}

/// Of a loop that only waits for a deadline.
const TURNS_MAX: u64 = 5;

const FOR_EVER: Duration = Duration::from_secs(86_400);
