//! Caps: which connections are refused, and that every connection gives its place back, however it ends.

use std::cell::Cell;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tidegate_engine::{Admission, AdmissionControl, Channel, ConnectionRate, IpNet, Limits, Outcome};
use tidegate_sys::{Address, Side};

use crate::echo::echo;
use crate::journal::Journal;
use crate::raw_peer::RawPeer;
use crate::stack::Stack;
use crate::stage::{Call, Cx, Family, Served, Site, Stage, panic_on_request};

/// So many connections per address.
fn capped(connections: u32) -> Arc<AdmissionControl> {
    control(&Admission { connections_per_address_max: Some(connections), ..Admission::default() })
}

fn control(admission: &Admission) -> Arc<AdmissionControl> {
    AdmissionControl::new(admission).expect("it has a cap")
}

/// Echoes at an address of this family, with these caps.
fn echo_at<S: Stack>(stage: &Stage, site: &Site, family: Family, control: &Arc<AdmissionControl>) -> Address {
    site.with(|event_loop| event_loop.admission(Some(control.clone())));
    stage.listen_at(family, site, Limits::default(), S::server, || echo::<S>)
}

/// A connection that is served, or refused.
fn connect<S: Stack>(raw_peer: &RawPeer, to: &Address) -> usize {
    let end = raw_peer.connect(to);
    raw_peer.receive(end, true);
    raw_peer.send(end, &[S::hello(), S::encoded(b"ebb")].concat());
    end
}

fn is_served<S: Stack>(raw_peer: &RawPeer, end: usize) -> bool {
    raw_peer.inspect(end, |seen| S::decoded(&seen.received) == b"ebb")
}

/// Whether a connection was reset, without a byte.
fn is_refused(raw_peer: &RawPeer, end: usize) -> bool {
    raw_peer.inspect(end, |seen| {
        assert_eq!(seen.ended, 0, "it ended in order");
        let is_reset = !seen.failed.is_empty() || matches!(seen.connected, Some(Err(_)));
        is_reset && seen.received.is_empty()
    })
}

/// Connects a peer that is served.
fn serve_one<S: Stack>(stage: &Stage, raw_peer: &RawPeer, to: &Address) -> usize {
    let end = connect::<S>(raw_peer, to);
    stage.until("it is served", || is_served::<S>(raw_peer, end));
    end
}

/// Connects a peer that is refused.
fn refuse_one<S: Stack>(stage: &Stage, raw_peer: &RawPeer, to: &Address) {
    let end = connect::<S>(raw_peer, to);
    stage.until("it is refused", || is_refused(raw_peer, end));
}

fn ip(raw_peer: &RawPeer, end: usize) -> IpAddr {
    raw_peer.address(end, Side::Local).expect("it is connected").ip().expect("an address of IP").ip()
}

pub(crate) fn no_more_are_served_than_an_address_may_have<S: Stack>(stage: &Stage) {
    let (server, raw_peer, control) = (stage.server(), stage.raw_peer(), capped(3));
    let to = echo_at::<S>(stage, &server, Family::V4, &control);
    let ends: Vec<_> = (0..stage.many()).map(|_| connect::<S>(&raw_peer, &to)).collect();
    stage.until("each is served or refused", || {
        ends.iter().all(|end| is_served::<S>(&raw_peer, *end) || is_refused(&raw_peer, *end))
    });
    let served: Vec<_> = ends.iter().filter(|end| is_served::<S>(&raw_peer, **end)).collect();
    assert_eq!((served.len(), control.connections(ip(&raw_peer, *served[0]))), (3, 3));
    let counts = server.counts();
    assert_eq!((counts.connections, counts.accepted, counts.refused), (3, 3, ends.len() as u64 - 3));
    // Each place that becomes free is taken once.
    for end in served {
        raw_peer.close(*end, true);
        stage.until("the place is free", || server.counts().connections == 2);
        serve_one::<S>(stage, &raw_peer, &to);
        refuse_one::<S>(stage, &raw_peer, &to);
    }
}

/// With one place, and each way in which a connection ends.
pub(crate) fn every_end_gives_the_place_back<S: Stack>(stage: &Stage) {
    stage.expect_panics();
    let (server, raw_peer, control) = (stage.server(), stage.raw_peer(), capped(1));
    server.with(|event_loop| event_loop.admission(Some(control.clone())));
    let act = |call: Call, cx: &mut Cx<'_, S::Codec>| match call {
        Call::Message(message) => match &*message {
            b"C" => Outcome::Close,
            b"A" => Outcome::Abort,
            b"F" => Outcome::Fail("on request".into()),
            b"P" => panic_on_request(),
            _ => cx.send(message.into()).into(),
        },
        call => call.by_default(cx),
    };
    let to = stage.listen(&server, Limits::default(), S::server, move || act);
    for kind in ["C", "A", "F", "P", "reset", "end", "garbage"] {
        let end = serve_one::<S>(stage, &raw_peer, &to);
        let ip = ip(&raw_peer, end);
        assert_eq!(control.connections(ip), 1);
        refuse_one::<S>(stage, &raw_peer, &to);
        match kind {
            "reset" => raw_peer.close(end, true),
            "end" => stage.send_goodbye::<S>(&raw_peer, end),
            "garbage" => {
                raw_peer.send(end, &[0xFF; 900]);
                raw_peer.shutdown_write(end);
            }
            // One byte, so that it comes in one piece.
            request => raw_peer.send(end, &S::encoded(request.as_bytes())),
        }
        stage.until("the server has ended it", || {
            raw_peer.inspect(end, |seen| seen.closed || seen.ended + seen.failed.len() > 0)
        });
        if kind != "reset" {
            raw_peer.close(end, false);
        }
        stage.until("the place is free", || control.connections(ip) == 0);
        assert_eq!(control.addresses(), 0, "after {kind}");
    }
}

/// A task that keeps the channel of a closed connection keeps the place.
pub(crate) fn a_channel_that_is_kept_keeps_the_place<S: Stack>(stage: &Stage) {
    let (server, raw_peer, control) = (stage.server(), stage.raw_peer(), capped(1));
    server.with(|event_loop| event_loop.admission(Some(control.clone())));
    let (keeps, has_ended) = (Rc::new(Cell::new(true)), Rc::new(Cell::new(false)));
    let (on, ended) = (keeps.clone(), has_ended.clone());
    let to = stage.serve(&server, Limits::default(), S::server, move |mut channel: Channel<S::Codec>| {
        let (keeps, has_ended) = (on.clone(), ended.clone());
        async move {
            while let Ok(Some(message)) = channel.recv().await {
                channel.send(message.into())?;
            }
            has_ended.set(true);
            while keeps.get() {
                tidegate_engine::task::sleep(Duration::from_millis(5)).await;
            }
            Served::Ok(())
        }
    });
    let end = serve_one::<S>(stage, &raw_peer, &to);
    let ip = ip(&raw_peer, end);
    raw_peer.close(end, true);
    stage.until("the connection is gone", || has_ended.get() && server.counts().connections == 0);
    refuse_one::<S>(stage, &raw_peer, &to);
    assert_eq!(control.connections(ip), 1);
    keeps.set(false);
    stage.until("the place is free", || control.connections(ip) == 0);
    let end = serve_one::<S>(stage, &raw_peer, &to);
    stage.send_goodbye::<S>(&raw_peer, end);
}

pub(crate) fn a_drain_gives_all_places_back<S: Stack>(stage: &Stage) {
    let (server, raw_peer, control, journal) = (stage.server(), stage.raw_peer(), capped(10), Journal::default());
    server.with(|event_loop| event_loop.admission(Some(control.clone())));
    let to = stage.listen_noting::<S>(&server, Limits::default(), &journal, |call, cx| match call {
        Call::Open | Call::Event(tidegate_engine::Event::Drain) => Outcome::Continue,
        call => echo::<S>(call, cx),
    });
    let ends: Vec<_> = (0..3).map(|_| serve_one::<S>(stage, &raw_peer, &to)).collect();
    let ip = ip(&raw_peer, ends[0]);
    assert_eq!(control.connections(ip), 3);
    stage.send_goodbye::<S>(&raw_peer, ends[0]);
    server.with(|event_loop| event_loop.drain(stage.units(1) / 2));
    stage.until("the loop is drained", || server.is_drained());
    stage.until("the places are free", || (control.connections(ip), control.addresses()) == (0, 0));
}

pub(crate) fn listeners_with_caps_of_their_own_count_apart<S: Stack>(stage: &Stage) {
    let (server, raw_peer) = (stage.server(), stage.raw_peer());
    let controls = [capped(1), capped(2)];
    let to = controls.each_ref().map(|control| echo_at::<S>(stage, &server, Family::V4, control));
    let first = serve_one::<S>(stage, &raw_peer, &to[0]);
    refuse_one::<S>(stage, &raw_peer, &to[0]);
    serve_one::<S>(stage, &raw_peer, &to[1]);
    let last = serve_one::<S>(stage, &raw_peer, &to[1]);
    refuse_one::<S>(stage, &raw_peer, &to[1]);
    assert_eq!(controls.each_ref().map(|control| control.connections(ip(&raw_peer, last))), [1, 2]);
    raw_peer.close(first, true);
    stage.until("its place is free", || controls[0].connections(ip(&raw_peer, last)) == 0);
    refuse_one::<S>(stage, &raw_peer, &to[1]);
}

pub(crate) fn loops_with_the_same_caps_count_together<S: Stack>(stage: &Stage) {
    let (loops, raw_peer, control) = ([stage.server(), stage.server()], stage.raw_peer(), capped(3));
    let to = loops.each_ref().map(|site| echo_at::<S>(stage, site, Family::V4, &control));
    let ends = [0, 1, 0].map(|number| serve_one::<S>(stage, &raw_peer, &to[number]));
    to.iter().for_each(|to| refuse_one::<S>(stage, &raw_peer, to));
    assert_eq!(loops.each_ref().map(|site| site.counts().connections), [2, 1]);
    raw_peer.close(ends[0], true);
    stage.until("its place is free", || control.connections(ip(&raw_peer, ends[1])) == 2);
    serve_one::<S>(stage, &raw_peer, &to[1]);
    to.iter().for_each(|to| refuse_one::<S>(stage, &raw_peer, to));
}

pub(crate) fn refused_peers_disturb_no_other<S: Stack>(stage: &Stage) {
    let (server, raw_peer, control) = (stage.server(), stage.raw_peer(), capped(1));
    let to = echo_at::<S>(stage, &server, Family::V4, &control);
    let end = serve_one::<S>(stage, &raw_peer, &to);
    let mut answers = b"ebb".to_vec();
    for round in 0..5 {
        let refused: Vec<_> = (0..stage.many()).map(|_| connect::<S>(&raw_peer, &to)).collect();
        let line = format!("flow {round}");
        raw_peer.send(end, &S::encoded(line.as_bytes()));
        answers.extend_from_slice(line.as_bytes());
        stage.until("it is answered", || raw_peer.inspect(end, |seen| S::decoded(&seen.received) == answers));
        stage.until("the others are refused", || refused.iter().all(|end| is_refused(&raw_peer, *end)));
    }
    assert_eq!((server.counts().refused, server.counts().accepted), (5 * stage.many() as u64, 1));
    assert_eq!((control.connections(ip(&raw_peer, end)), control.addresses()), (1, 1));
}

/// The rate has no end within the scenario.
pub(crate) fn a_burst_is_admitted_and_no_more<S: Stack>(stage: &Stage) {
    let rate = ConnectionRate { interval: Duration::from_secs(1_000_000), burst: 3 };
    let control = control(&Admission { rate_per_address: Some(rate), ..Admission::default() });
    let (server, raw_peer) = (stage.server(), stage.raw_peer());
    let to = echo_at::<S>(stage, &server, Family::V4, &control);
    for _ in 0..3 {
        let end = serve_one::<S>(stage, &raw_peer, &to);
        raw_peer.close(end, true);
        stage.until("it is gone", || server.counts().connections == 0);
    }
    (0..3).for_each(|_| refuse_one::<S>(stage, &raw_peer, &to));
    assert_eq!((control.addresses(), server.counts().refused), (1, 3));
}

pub(crate) fn lists_of_networks_admit_and_refuse<S: Stack>(stage: &Stage) {
    let (server, raw_peer) = (stage.server(), stage.raw_peer());
    let here = |stage: &Stage, family| {
        server.with(|event_loop| event_loop.admission(None));
        let to = stage.listen_at(family, &server, Limits::default(), S::server, || echo::<S>);
        IpNet::from(ip(&raw_peer, serve_one::<S>(stage, &raw_peer, &to)))
    };
    for family in [Family::V4, Family::V6] {
        let (here, elsewhere) = (here(stage, family), "192.0.2.0/24".parse().expect("a network"));
        let none = Admission::default();
        for (admission, admits) in [
            (Admission { deny: vec![here], ..none.clone() }, false),
            (Admission { deny: vec![elsewhere], ..none.clone() }, true),
            (Admission { allow: vec![elsewhere, here], ..none.clone() }, true),
            (Admission { allow: vec![elsewhere], ..none.clone() }, false),
            (Admission { allow: vec![here], deny: vec![here], ..none.clone() }, false),
            (Admission { connections_per_address_max: Some(0), ..none.clone() }, false),
            (Admission { connections_per_address_max: Some(0), exempt: vec![here], ..none.clone() }, true),
            (Admission { deny: vec![here], exempt: vec![here], ..none.clone() }, false),
        ] {
            let control = control(&admission);
            let to = echo_at::<S>(stage, &server, family, &control);
            if admits {
                serve_one::<S>(stage, &raw_peer, &to);
            } else {
                refuse_one::<S>(stage, &raw_peer, &to);
            }
            assert_eq!(control.addresses(), 0, "{admission:?}");
        }
    }
}

/// Their peers have no address that could be counted.
pub(crate) fn peers_of_unix_sockets_are_always_admitted<S: Stack>(stage: &Stage) {
    let (server, raw_peer) = (stage.server(), stage.raw_peer());
    let control = control(&Admission {
        allow: vec!["192.0.2.0/24".parse().expect("a network")],
        connections_per_address_max: Some(0),
        ..Admission::default()
    });
    let to = echo_at::<S>(stage, &server, Family::Unix, &control);
    for _ in 0..3 {
        serve_one::<S>(stage, &raw_peer, &to);
    }
    assert_eq!((control.addresses(), server.counts().refused), (0, 0));
}
