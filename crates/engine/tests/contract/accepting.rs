//! Accepting: paused and resumed, up to the limit, and with slots and descriptors that other connections had just
//! before.

use std::cell::RefCell;
use std::rc::Rc;

use tidegate_engine::{Limits, Outcome};

use crate::echo::echo;
use crate::journal::Journal;
use crate::stack::Stack;
use crate::stage::{Call, Cx, Family, Stage};

pub(crate) fn simultaneous_connections_are_all_served<S: Stack>(stage: &Stage) {
    let (server, raw_peer) = (stage.server(), stage.raw_peer());
    let to = stage.listen_noting::<S>(&server, Limits::default(), &Journal::default(), echo::<S>);
    let ends: Vec<_> = (0..stage.many()).map(|_| raw_peer.connect(&to)).collect();
    for (index, end) in ends.iter().enumerate() {
        raw_peer.receive(*end, true);
        raw_peer.send(*end, &[S::hello(), S::encoded(&[index as u8; 9])].concat());
    }
    for (index, end) in ends.iter().enumerate() {
        stage.until("it is answered", || raw_peer.inspect(*end, |seen| S::decoded(&seen.received) == [index as u8; 9]));
    }
    assert_eq!(server.counts().accepted, ends.len() as u64);
}

/// Further connections wait, and are served when others have closed.
pub(crate) fn no_more_are_served_than_may_be<S: Stack>(stage: &Stage) {
    let (server, raw_peer) = (stage.server(), stage.raw_peer());
    let limits = Limits { connections_max: SERVED_MAX, ..Limits::default() };
    let to = stage.listen_noting::<S>(&server, limits, &Journal::default(), echo::<S>);
    let mut waiting: Vec<_> = (0..3 * SERVED_MAX).map(|_| raw_peer.connect(&to)).collect();
    for end in &waiting {
        raw_peer.receive(*end, true);
        raw_peer.send(*end, &[S::hello(), S::encoded(b"ebb")].concat());
    }
    let is_served = |end: usize| raw_peer.inspect(end, |seen| S::decoded(&seen.received) == b"ebb");
    let mut served = 0;
    while !waiting.is_empty() {
        stage.until("as many are served as may be", || {
            let most = server.counts().connections;
            assert!(most <= SERVED_MAX as u64, "{most} are served at once");
            waiting.iter().filter(|end| is_served(**end)).count() == SERVED_MAX.min(waiting.len())
        });
        // No further one is served.
        stage.rest(stage.units(1) / 4);
        let (done, left): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|end| is_served(*end));
        assert!(done.len() <= SERVED_MAX);
        served += done.len();
        // Some are closed in good order, some reset.
        for (index, end) in done.into_iter().enumerate() {
            if index % 2 == 0 { raw_peer.close(end, true) } else { stage.send_goodbye::<S>(&raw_peer, end) }
        }
        waiting = left;
    }
    assert_eq!(served, 3 * SERVED_MAX);
}

pub(crate) fn accepting_pauses_on_request<S: Stack>(stage: &Stage) {
    let (host, guest) = (stage.raw_peer(), stage.raw_peer());
    let (socket, to) = stage.listener(Family::V4);
    let listener = host.listen(socket);
    let accepted = || host.inspect(listener, |seen| seen.accepted.len());
    let first = guest.connect_bare(&to);
    stage.until("the first is accepted", || accepted() == 1);
    host.accept(listener, false);
    // The kernel may learn of it a little later.
    stage.rest(stage.units(1) / 20);
    let others: Vec<_> = (0..5).map(|_| guest.connect_bare(&to)).collect();
    stage.rest(stage.units(1) / 4);
    // One more may have been on its way.
    assert!(accepted() <= 2, "it accepts though it pauses");
    host.accept(listener, true);
    stage.until("the others are accepted", || accepted() == 1 + others.len());
    // Each connection has the address that it sends.
    for end in others.into_iter().chain([first]) {
        stage.until("it is connected", || guest.inspect(end, |seen| seen.connected == Some(Ok(()))));
        let here = guest.address(end, tidegate_sys::Side::Local).expect("it is connected");
        guest.send(end, here.to_string().as_bytes());
        let (theirs, _) = host
            .inspect(listener, |seen| seen.accepted.iter().find(|(_, peer)| *peer == here).cloned())
            .expect("it was accepted");
        let said = here.to_string();
        stage.until("it is received", || host.inspect(theirs, |received| received.received == said.as_bytes()));
    }
}

pub(crate) fn closing_a_listener_closes_its_waiting_connections<S: Stack>(stage: &Stage) {
    let (host, guest) = (stage.raw_peer(), stage.raw_peer());
    let (socket, to) = stage.listener(Family::V4);
    let listener = host.listen(socket);
    host.accept(listener, false);
    let ends: Vec<_> = (0..3).map(|_| guest.connect(&to)).collect();
    for end in &ends {
        stage.until("it is connected", || guest.inspect(*end, |seen| seen.connected == Some(Ok(()))));
        guest.receive(*end, true);
    }
    host.close(listener, false);
    // One more may have been on its way when accepting was stopped.
    for (late, _) in host.completions(listener).accepted {
        host.close(late, true);
    }
    for end in ends {
        // A guest that sends gets the failure of its send, and then that of the connection.
        stage.until("it is reported", || guest.inspect(end, |seen| seen.failed.len() + seen.ended > 0));
    }
    let late = guest.connect(&to);
    stage.until("the listener is closed", || guest.inspect(late, |seen| matches!(seen.connected, Some(Err(_)))));
}

/// Each connection sends its own number, again and again, and neither side ever sees another's: late events of a
/// closed connection do not reach the one that reuses its slot, or its descriptor.
pub(crate) fn events_of_a_closed_connection_do_not_reach_its_successor<S: Stack>(stage: &Stage) {
    let (server, raw_peer) = (stage.server(), stage.raw_peer());
    let strangers = Rc::new(RefCell::new(Vec::new()));
    let found = strangers.clone();
    let to = stage.listen(&server, Limits::default(), S::server, move || {
        let (found, mut own) = (found.clone(), None);
        move |call: Call, cx: &mut Cx<'_, S::Codec>| match call {
            Call::Message(message) => {
                let own = *own.get_or_insert(message[0]);
                if message.iter().any(|byte| *byte != own) {
                    found.borrow_mut().push(own);
                }
                // Connections that close by themselves do not read the bytes in transit.
                match cx.send(message.into()) {
                    Ok(_) if own % 5 == 0 => Outcome::Close,
                    result => result.into(),
                }
            }
            call => call.by_default(cx),
        }
    });
    let mut number = 0_u8;
    for wave in 0..WAVES {
        let ends: Vec<_> = (0..stage.many()).map(|_| raw_peer.connect(&to)).collect();
        let first = number;
        for end in &ends {
            number = number.wrapping_add(1);
            raw_peer.receive(*end, true);
            raw_peer.send(*end, &[S::hello(), S::encoded(&[number; 3_000])].concat());
        }
        // Some are closed at once, some when all bytes have come, the others during the next wave.
        let mut number = first;
        for (index, end) in ends.iter().enumerate() {
            number = number.wrapping_add(1);
            match (index + wave) % 4 {
                0 => raw_peer.close(*end, true),
                1 => {
                    let ends_early = number.is_multiple_of(5);
                    let come = || raw_peer.inspect(*end, |seen| S::decoded(&seen.received));
                    stage.until("it is answered", || come().len() == 3_000 || (ends_early && !come().is_empty()));
                    raw_peer.close(*end, false);
                }
                2 => stage.rest(stage.units(1) / 1_000),
                _ => {}
            }
            let come = raw_peer.inspect(*end, |seen| S::decoded(&seen.received));
            assert!(come.iter().all(|byte| *byte == number), "bytes of another connection");
        }
        if wave % 2 == 1 {
            raw_peer.close_all();
        }
    }
    stage.until("all are gone", || {
        raw_peer.close_all();
        server.counts().connections == 0
    });
    assert!(strangers.borrow().is_empty(), "bytes of other connections came to {:?}", strangers.borrow());
}

const SERVED_MAX: usize = 3;

const WAVES: usize = 4;
