//! Unix paths, and loops over drivers of the test.

use std::cell::Cell;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use tidegate_codec::framing::Raw;
use tidegate_engine::{Client, ConnectError, Limits};
use tidegate_sys::Address;
use tidegate_testkit::network::{FaultRates, Network, NetworkFault};
use tidegate_testkit::seeds;

use crate::network::journal::{Begun, Done, Journal, Seen};
use crate::network::pair::{Echo, Pair, SECOND, echo, exchange};

fn path() -> Address {
    Address::Unix("/run/app.sock".into())
}

#[test]
fn a_path_is_an_address_like_any_other() {
    for seed in seeds(20) {
        let pair = Pair::new(seed, FaultRates::benign());
        let host = pair.network.host("10.0.0.1");
        let listener = host.listener_at(&path()).expect("the path is free");
        assert_eq!(host.listener_at(&path()).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(host);
        let peers = Rc::new(Cell::new(0));
        let (gone, seen) = (pair.gone.clone(), peers.clone());
        let make = move |peer: &Address| {
            assert_eq!(*peer, Address::Unix(PathBuf::new()), "a connecting socket has no name");
            seen.set(seen.get() + 1);
            (Raw, Echo(gone.clone()))
        };
        let listens = |event_loop: &mut tidegate_engine::EventLoop| {
            event_loop.listen(listener, Limits::default(), std::sync::Arc::default(), make)
        };
        pair.server.with(listens).expect("it is a listener");
        let whole = pair.start(exchange(path(), vec![7; 100_000], 1000));
        let named = pair.start(async {
            let channel = Client::at(path()).connect(Raw).await?;
            Ok::<_, ConnectError>((channel.local().expect("it is open"), channel.peer().expect("it is open")))
        });
        assert!(pair.network.run_until(SECOND * 60, || whole.is_there() && named.is_there()), "seed {seed}");
        assert!(whole.take().is_ok_and(|come| come == [7; 100_000]), "seed {seed}");
        assert_eq!(named.take().expect("a server listens"), (Address::Unix(PathBuf::new()), path()));
        // A client that has closed already is accepted all the same.
        pair.ends_clean();
        assert_eq!(peers.get(), 2);
    }
}

#[test]
fn a_vsock_address_is_an_address_like_any_other() {
    let pair = Pair::new(1, FaultRates::none());
    let there: Address = "vsock:1:1024".parse().expect("it is one");
    let listener = pair.network.host("10.0.0.1").listener_at(&there).expect("the port is free");
    let listens = |event_loop: &mut tidegate_engine::EventLoop| {
        event_loop.serve(listener, Limits::default(), std::sync::Arc::default(), || Raw, echo)
    };
    pair.server.with(listens).expect("it is a listener");
    let to = there.clone();
    let named = pair.start(async move {
        let channel = Client::at(to).connect(Raw).await?;
        Ok::<_, ConnectError>((channel.local().expect("it is open"), channel.peer().expect("it is open")))
    });
    let whole = pair.start(exchange(there.clone(), vec![7; 1000], 100));
    assert!(pair.network.run_until(SECOND, || whole.is_there() && named.is_there()));
    assert!(whole.take().is_ok_and(|come| come == [7; 1000]));
    let (local, peer) = named.take().expect("a server listens");
    assert!(matches!(local, Address::Vsock { cid: 1, .. }) && peer == there, "{local}");
}

#[test]
fn a_path_without_a_listener_refuses_and_an_unknown_path_is_not_found() {
    let pair = Pair::new(1, FaultRates::none());
    let outcome = || {
        let place = pair.start(async { Client::at(path()).connect(Raw).await.map(drop) });
        pair.network.run_for(Duration::ZERO);
        match place.take() {
            Err(ConnectError::Failed(_, error)) => error.kind(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(outcome(), io::ErrorKind::NotFound);
    let listener = pair.network.host("10.0.0.1").listener_at(&path()).expect("the path is free");
    let listens = |event_loop: &mut tidegate_engine::EventLoop| {
        event_loop.serve(listener, Limits::default(), std::sync::Arc::default(), || Raw, echo)
    };
    pair.server.with(listens).expect("it is a listener");
    pair.network.set_faults(FaultRates::none().with(NetworkFault::Refused, 1));
    assert_eq!(outcome(), io::ErrorKind::ConnectionRefused);
    pair.network.set_faults(FaultRates::none());
    pair.server.drain(Duration::ZERO);
    assert!(pair.network.run_until(SECOND, || pair.server.is_drained()));
    assert_eq!(outcome(), io::ErrorKind::ConnectionRefused);
    assert!(pair.network.host("10.0.0.3").listener_at(&path()).is_ok(), "it is free again");
    pair.ends_clean();
}

#[test]
fn listening_at_a_foreign_address_or_an_empty_path_fails() {
    let host = Network::new(1).host("10.0.0.1");
    let others: Address = "10.0.0.2:7".parse().expect("it is one");
    assert_eq!(host.listener_at(&others).unwrap_err().kind(), io::ErrorKind::AddrNotAvailable);
    let unnamed = Address::Unix(PathBuf::new());
    assert_eq!(host.listener_at(&unnamed).unwrap_err().kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn a_test_may_have_a_driver_of_its_own_over_that_of_the_network() {
    let network = Network::new(1);
    let journal = Journal::default();
    let server = network.host("10.0.0.1").node_with_driver(journal.shim());
    let client = network.host("10.0.0.2").node();
    let to = server.serve(7, Limits::default(), || Raw, echo).expect("the port is free");
    let come = client.spawn(exchange(to, vec![1; 1000], 1000));
    assert_eq!(network.run_task(SECOND, come).expect("nothing breaks"), [1; 1000]);
    let done = |kind| journal.count(|seen| matches!(seen, Seen::Done(_, found, _) if *found == kind));
    let begun = |kind| journal.count(|seen| matches!(seen, Seen::Begun(_, found) if *found == kind));
    assert_eq!((done(Done::Accepted), done(Done::Received), done(Done::Ended)), (1, 1, 1));
    assert_eq!((begun(Begun::Listen), begun(Begun::Adopt), begun(Begun::Close)), (1, 1, 1));
}
