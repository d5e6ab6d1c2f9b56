//! Connecting succeeds, is refused, times out or is cancelled; a failed attempt leaves nothing behind.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use tidegate_engine::{Client, ConnectError, Limits, task};

use crate::echo::{echo, exchange, pattern};
use crate::journal::Journal;
use crate::stack::Stack;
use crate::stage::{Call, Cx, Stage};

pub(crate) fn is_refused_without_a_listener<S: Stack>(stage: &Stage) {
    let (client, to) = (stage.client(), stage.nowhere());
    let several = [stage.nowhere(), to.clone()];
    for (target, last) in [(Client::at(to.clone()), &to), (Client::at_each(several), &to)] {
        let connect = async move { target.connect(S::client()).await };
        match stage.outcome(&stage.start(&client, connect)) {
            Err(ConnectError::Failed(address, error)) => {
                assert_eq!((&address, error.kind()), (last, ErrorKind::ConnectionRefused));
            }
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) fn times_out_without_an_answer<S: Stack>(stage: &Stage) {
    let (client, to, unit) = (stage.client(), stage.unresponsive(), stage.units(1));
    let target = Client::at(to.clone()).connect_timeout(unit);
    let started = stage.start(&client, async move {
        let begun = task::now();
        (target.connect(S::client()).await, task::now() - begun)
    });
    let (connected, took) = stage.outcome(&started);
    assert!(matches!(&connected, Err(ConnectError::Timeout(address)) if *address == to.ip()), "{connected:?}");
    assert!(took >= unit && took < 2 * unit + stage.delay_max(), "{took:?}");
    stage.until("the attempt is gone", || client.counts().connections == 0);
}

/// The future is dropped at any time: before the first answer, and when no answer comes.
pub(crate) fn is_given_up_with_its_future<S: Stack>(stage: &Stage) {
    let (server, client, journal) = (stage.server(), stage.client(), Journal::default());
    let to = stage.listen_noting::<S>(&server, Limits::default(), &journal, echo::<S>);
    let brief = stage.units(1) / 100;
    let (again, deaf_after) = (to.clone(), brief);
    let started = stage.start(&client, async move {
        for patience in [Duration::ZERO, deaf_after / 4, deaf_after] {
            let _ = task::timeout(patience, Client::at(again.clone()).connect(S::client())).await;
        }
    });
    stage.outcome(&started);
    let started = stage.start(&client, exchange::<S>(to, pattern(100), 100));
    assert!(stage.outcome(&started).expect("connecting goes on") == pattern(100), "other bytes came back");
    stage.until("all are gone", || client.counts().connections + server.counts().connections == 0);

    let unresponsive = stage.unresponsive();
    let started =
        stage.start(&client, async move { task::timeout(brief, Client::at(unresponsive).connect(S::client())).await });
    assert!(stage.outcome(&started).is_err(), "no answer comes");
}

pub(crate) fn succeeds_twice_with_the_same_client<S: Stack>(stage: &Stage) {
    let (server, client, journal) = (stage.server(), stage.client(), Journal::default());
    let to = stage.listen_noting::<S>(&server, Limits::default(), &journal, echo::<S>);
    let target = Client::at(to);
    let started = stage.start(&client, async move {
        let mut open = Vec::new();
        for word in ["ebb", "flow", "slack"] {
            let mut channel = target.connect(S::client()).await?;
            channel.send(word.into())?;
            let mut come = Vec::new();
            while come.len() < word.len()
                && let Some(bytes) = channel.recv().await?
            {
                come.extend_from_slice(&bytes);
            }
            assert_eq!(come, word.as_bytes());
            open.push(channel);
        }
        // One after the other, beginning with the second.
        open.swap(0, 1);
        for channel in open {
            channel.close().await?;
        }
        Ok::<_, Box<dyn std::error::Error>>(())
    });
    stage.outcome(&started).expect("a server listens");
    stage.reason(3);
    assert_eq!(stage.reasons(), ["done"; 3]);
}

pub(crate) fn goes_on_with_the_next_address<S: Stack>(stage: &Stage) {
    let (server, client, journal) = (stage.server(), stage.client(), Journal::default());
    let to = stage.listen_noting::<S>(&server, Limits::default(), &journal, echo::<S>);
    let addresses = [stage.nowhere(), stage.nowhere(), to.clone()];
    let connect = async move {
        let channel = Client::at_each(addresses).connect(S::client()).await?;
        Ok::<_, ConnectError>(channel.peer().ok())
    };
    assert_eq!(stage.outcome(&stage.start(&client, connect)).expect("the last one listens"), Some(to));
    stage.reason(1);
}

pub(crate) fn uses_the_requested_local_address<S: Stack>(stage: &Stage) {
    let (server, client, journal) = (stage.server(), stage.client(), Journal::default());
    let seen = journal.clone();
    let to = stage.listen_noting::<S>(&server, Limits::default(), &journal, move |call, cx| {
        if let Call::Open = call {
            seen.note(format!("from {}", cx.peer()));
        }
        call.by_default(cx)
    });
    let port = stage.free_port();
    let started = stage.start(&client, async move {
        let mut channel = Client::at(to.clone()).connect(S::client()).await?;
        let mut here = vec![channel.local()?];
        let ip = here[0].ip().map(|address| address.ip());
        for port in [0, port] {
            let local = ip.map(|ip| SocketAddr::new(ip, port)).expect("it is TCP");
            channel = Client::at(to.clone()).local(local).connect(S::client()).await?;
            here.push(channel.local()?);
        }
        Ok::<_, Box<dyn std::error::Error>>(here)
    });
    let here = stage.outcome(&started).expect("a server listens");
    stage.reason(3);
    let ips = here.iter().filter_map(|address| Some(address.ip()?.ip()));
    assert!(ips.eq([here[0].ip().expect("it is TCP").ip(); 3]), "{here:?}");
    assert_eq!(here[2].ip().expect("it is TCP").port(), port);
    for address in here {
        assert_eq!(journal.count(&format!("from {address}")), 1, "{address} in {:?}", journal.events());
    }
}

pub(crate) fn hands_its_connection_to_a_handler<S: Stack>(stage: &Stage) {
    let (server, client, journal) = (stage.server(), stage.client(), Journal::default());
    let to = stage.listen_noting::<S>(&server, Limits::default(), &Journal::default(), echo::<S>);
    let seen = journal.clone();
    let probe = stage.probe(move |call: Call, cx: &mut Cx<'_, S::Codec>| {
        seen.note_call(&call);
        match call {
            Call::Open => cx.send("ebb".into()).into(),
            Call::Message(_) if seen.length() == 3 => tidegate_engine::Outcome::Close,
            call => call.by_default(cx),
        }
    });
    let connect = async move { Client::at(to).connect_with(S::client(), probe).await };
    let remote = stage.outcome(&stage.start(&client, connect)).expect("a server listens");
    stage.reason(2);
    assert_eq!((journal.bytes(), journal.count("open")), (b"ebb".to_vec(), 1));
    stage.until("the handle knows", || remote.is_closed());
}
