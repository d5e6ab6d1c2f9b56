//! Each side knows its own address and the other's.

use std::path::PathBuf;

use tidegate_engine::{Client, Limits};
use tidegate_sys::{Address, Side};

use crate::echo::echo;
use crate::journal::Journal;
use crate::stack::Stack;
use crate::stage::{Call, Cx, Family, Stage};

/// Listens with handlers that note both of their addresses.
fn listen<S: Stack>(stage: &Stage, family: Family, server: &crate::stage::Site, journal: &Journal) -> Address {
    let seen = journal.clone();
    stage.listen_at(family, server, Limits::default(), S::server, move || {
        let seen = seen.clone();
        move |call: Call, cx: &mut Cx<'_, S::Codec>| {
            if let Call::Open = call {
                seen.note(format!("peer {}", cx.peer()));
                seen.note(cx.local().map_or_else(|error| error.to_string(), |here| format!("local {here}")));
            }
            echo::<S>(call, cx)
        }
    })
}

pub(crate) fn are_right_on_both_sides<S: Stack>(stage: &Stage) {
    let (server, client) = (stage.server(), stage.client());
    for (index, family) in stage.families().iter().enumerate() {
        let journal = Journal::default();
        let to = listen::<S>(stage, *family, &server, &journal);
        let target = Client::at(to.clone());
        let started = stage.start(&client, async move {
            let channel = target.connect(S::client()).await?;
            let addresses = (channel.local()?, channel.peer()?);
            channel.close().await?;
            Ok::<_, Box<dyn std::error::Error>>(addresses)
        });
        let (local, peer) = stage.outcome(&started).expect("a server listens");
        stage.reason(index + 1);
        assert_eq!(peer, to, "{family:?}");
        assert_eq!(local == Address::Unix(PathBuf::new()), *family == Family::Unix, "a client has no path");
        assert_eq!(journal.events()[..2], [format!("peer {local}"), format!("local {peer}")], "{family:?}");
    }
}

pub(crate) fn are_those_of_the_listener_to_a_driver<S: Stack>(stage: &Stage) {
    for family in stage.families() {
        let (host, guest) = (stage.raw_peer(), stage.raw_peer());
        let (socket, to) = stage.listener(*family);
        let listener = host.listen(socket);
        assert_eq!(host.address(listener, Side::Local).expect("it listens"), to);
        let end = guest.connect(&to);
        stage.until("it is accepted", || host.inspect(listener, |seen| seen.accepted.len() == 1));
        stage.until("it is connected", || guest.inspect(end, |seen| seen.connected == Some(Ok(()))));
        let (accepted, peer) = host.inspect(listener, |seen| seen.accepted[0].clone());
        let both = |raw_peer: &crate::raw_peer::RawPeer, end| {
            [Side::Local, Side::Peer].map(|side| raw_peer.address(end, side).ok())
        };
        let [local, remote] = both(&guest, end);
        assert_eq!((&remote, local.as_ref()), (&Some(to), Some(&peer)), "{family:?}");
        assert_eq!(both(&host, accepted), [remote, local], "{family:?}");
    }
}

pub(crate) fn of_the_peer_are_gone_after_a_reset<S: Stack>(stage: &Stage) {
    let (host, guest) = (stage.raw_peer(), stage.raw_peer());
    let (socket, to) = stage.listener(Family::V4);
    let listener = host.listen(socket);
    let end = guest.connect(&to);
    stage.until("it is accepted", || host.inspect(listener, |seen| seen.accepted.len() == 1));
    let (accepted, peer) = host.inspect(listener, |seen| seen.accepted[0].clone());
    assert_eq!(host.address(accepted, Side::Peer).expect("it is connected"), peer);
    stage.until("it is connected", || guest.inspect(end, |seen| seen.connected == Some(Ok(()))));
    guest.close(end, true);
    stage.until("it is reported", || host.inspect(accepted, |seen| !seen.failed.is_empty()));
    assert!(host.address(accepted, Side::Peer).is_err(), "the peer is gone");
    assert_eq!(host.address(accepted, Side::Local).expect("our end is there still"), to);
}

/// A handle still knows the peer's address after its connection has closed.
pub(crate) fn of_the_peer_are_remembered_by_channels<S: Stack>(stage: &Stage) {
    let (server, client, journal) = (stage.server(), stage.client(), Journal::default());
    let to = stage.listen_noting::<S>(&server, Limits::default(), &journal, |call, cx| match call {
        Call::Message(_) => tidegate_engine::Outcome::fail("it is enough"),
        call => call.by_default(cx),
    });
    let target = Client::at(to.clone());
    let started = stage.start(&client, async move {
        let mut channel = target.connect(S::client()).await?;
        channel.send("!".into())?;
        let broken = loop {
            match channel.recv().await {
                Ok(Some(_)) => {}
                Ok(None) => break false,
                Err(_) => break true,
            }
        };
        Ok::<_, Box<dyn std::error::Error>>((broken, channel.peer()?, channel.local().is_err()))
    });
    assert_eq!(stage.outcome(&started).expect("a server listens"), (true, to, true));
}
