//! Each fault has its documented effect, and no benign one does harm in any combination.

use std::cell::{Cell, RefCell};
use std::error::Error;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use tidegate_buffer::{Outbound, Pool};
use tidegate_codec::framing::Raw;
use tidegate_engine::{Channel, Client, ConnectError, Limits, task};
use tidegate_sys::{Accepted, Address, Completion, Driver, Operation, SocketOptions, Token};
use tidegate_testkit::network::{FaultCounts, FaultRates, Network, NetworkFault, SimNode};
use tidegate_testkit::seeds;

use crate::network::exchange_all;
use crate::network::journal::{Begun, Done, Journal, Seen};
use crate::network::pair::{Pair, SECOND, Served, echo, exchange, without_messages};

#[test]
fn no_benign_fault_does_harm_however_often_it_strikes() {
    let mut sum = FaultCounts::default();
    for fault in NetworkFault::BENIGN {
        for often in [2, 3] {
            // A clock that jumps at every step is later than any time-out.
            let faults = FaultRates::none().with(fault, if fault == NetworkFault::ClockJump { 50 } else { often });
            for seed in seeds(10) {
                let (_, fault_counts, whole) = exchange_all(seed, faults.clone());
                assert_eq!(whole, 4, "exchanges that came back whole with {fault:?} and seed {seed}");
                let others: u64 =
                    NetworkFault::ALL.iter().filter(|other| **other != fault).map(|it| fault_counts.count(*it)).sum();
                assert_eq!(others, 0, "others than {fault:?} occurred");
                sum += fault_counts;
            }
        }
    }
    // Alone it cannot strike: no peer here is so slow that a loop stops receiving. See below.
    let others = without_messages(&NetworkFault::BENIGN).into_iter().filter(|fault| *fault != NetworkFault::LateCancel);
    sum.assert_all(&others.collect::<Vec<_>>());
}

/// A client whose driver records its operations and completions, and a server.
fn journalled(faults: FaultRates) -> (Network, SimNode, SimNode, Journal) {
    let network = Network::new(1);
    network.set_faults(faults);
    let journal = Journal::default();
    let client = network.host("10.0.0.2").node_with_driver(journal.shim());
    (network.clone(), network.host("10.0.0.1").node(), client, journal)
}

/// Exchanges `length` bytes with an echo, and returns the journal of the client's driver.
fn exchanged(faults: FaultRates, length: usize) -> (Network, Vec<Seen>) {
    let (network, server, client, journal) = journalled(faults);
    let to = server.serve(7, Limits::default(), || Raw, echo).expect("the port is free");
    let come = client.spawn(exchange(to, vec![1; length], length));
    let come = network.run_task(SECOND * 600, come).expect("nothing breaks");
    assert_eq!(come.len(), length);
    (network, journal.read())
}

#[test]
fn a_full_buffer_takes_few_bytes_at_a_time() {
    let sends = |faults: FaultRates| {
        let (_, seen) = exchanged(faults, 30_000);
        let sent = seen.into_iter().filter_map(|seen| match seen {
            Seen::Done(_, Done::Sent(count), _) if count > 0 => Some(count),
            _ => None,
        });
        sent.collect::<Vec<_>>()
    };
    assert_eq!(sends(FaultRates::none()), [30_000]);
    let few = sends(FaultRates::none().with(NetworkFault::FullBuffer, 1));
    assert!(few.len() >= 15 && few.iter().all(|count| *count <= 2000), "{few:?}");
    assert_eq!(few.iter().sum::<usize>(), 30_000);
}

#[test]
fn the_end_may_arrive_and_be_reported_with_the_last_bytes() {
    let joined = |faults: FaultRates| {
        let (network, server, client, journal) = journalled(faults);
        let parting = |mut channel: Channel<Raw>| async move {
            channel.send("farewell".into())?;
            channel.shutdown_write();
            while channel.recv().await?.is_some() {}
            Served::Ok(())
        };
        let to = server.serve(7, Limits::default(), || Raw, parting).expect("the port is free");
        let heard = client.spawn(async move {
            let mut channel = Client::at(to).connect(Raw).await?;
            while channel.recv().await?.is_some() {}
            Ok::<_, Box<dyn Error>>(())
        });
        network.run_task(SECOND * 60, heard).expect("nothing breaks");
        let done = journal
            .read()
            .into_iter()
            .filter(|seen| matches!(seen, Seen::Turn | Seen::Done(_, Done::Received | Done::Ended, _)));
        let done: Vec<_> = done.collect();
        done.windows(2).any(|two| matches!(two, [Seen::Done(_, Done::Received, _), Seen::Done(_, Done::Ended, _)]))
    };
    // Even where every segment is late by a different time.
    assert!(!joined(FaultRates::none().with(NetworkFault::Jitter, 1)));
    assert!(joined(FaultRates::none().with(NetworkFault::Jitter, 1).with(NetworkFault::FinWithData, 1)));
}

#[test]
fn a_late_send_completes_in_a_later_turn_before_the_next_send() {
    let (network, seen) = exchanged(FaultRates::none().with(NetworkFault::LateSend, 1), 100_000);
    assert!(network.fault_counts().count(NetworkFault::LateSend) > 2);
    let mut in_flight = false;
    let mut sent = 0;
    for seen in seen {
        match seen {
            Seen::Begun(_, Begun::Send) => assert!(!std::mem::replace(&mut in_flight, true)),
            Seen::Done(_, Done::Sent(count), promptly) => {
                assert!(!promptly || count == 0, "{count} bytes were reported as sent at once");
                in_flight = false;
                sent += count;
            }
            _ => {}
        }
    }
    assert_eq!(sent, 100_000);
}

#[test]
fn after_receiving_was_stopped_one_more_completion_may_come_and_not_two() {
    // The client reads a little at a time, with pauses, from a server that never stops sending.
    let stops = |faults: FaultRates, seed| {
        let network = Network::new(seed);
        network.set_faults(faults);
        let journal = Journal::default();
        let (server, client) = (network.host("10.0.0.1").node(), network.host("10.0.0.2"));
        let client = client.node_with_driver(journal.shim());
        let floods = |mut channel: Channel<Raw>| async move {
            while channel.ready().await.is_ok() && channel.send(vec![7; 1000].into()).is_ok() {}
            Served::Ok(())
        };
        let to = server.serve(7, Limits::default(), || Raw, floods).expect("the port is free");
        let reads = client.spawn(async move {
            let mut channel = Client::at(to).connect(Raw).await?;
            for _ in 0..100 {
                let bytes = channel.recv().await?.expect("it never stops");
                assert!(bytes.iter().all(|byte| *byte == 7));
                task::sleep(Duration::from_millis(3)).await;
            }
            Ok::<_, Box<dyn Error>>(())
        });
        network.run_task(SECOND * 60, reads).expect("nothing breaks");
        let (mut receives, mut late, mut told_late) = (false, 0, 0);
        for seen in journal.read() {
            match seen {
                Seen::Begun(_, Begun::Receive(on)) => (receives, late) = (on, 0),
                Seen::Done(_, Done::Received | Done::Ended, _) if !receives => {
                    late += 1;
                    told_late += 1;
                }
                _ => {}
            }
            assert!(late < 2, "two completions after receiving was stopped, with seed {seed}");
        }
        // A listener that pauses may have accepted one more as well.
        assert!(network.fault_counts().count(NetworkFault::LateCancel) >= told_late);
        told_late
    };
    assert_eq!(stops(FaultRates::none(), 1), 0);
    for seed in seeds(20) {
        assert!(stops(FaultRates::none().with(NetworkFault::LateCancel, 2), seed) > 0, "seed {seed}");
        stops(FaultRates::benign().with(NetworkFault::LateCancel, 2), seed);
    }
}

#[test]
fn after_accepting_was_stopped_one_more_stream_may_come() {
    let network = Network::new(1);
    network.set_faults(FaultRates::none().with(NetworkFault::NoDescriptor, 2).with(NetworkFault::LateCancel, 1));
    let journal = Journal::default();
    let server = network.host("10.0.0.1").node_with_driver(journal.shim());
    let client = network.host("10.0.0.2").node();
    let to = server.serve(7, Limits::default(), || Raw, echo).expect("the port is free");
    let exchanges: Vec<_> = (0..20).map(|_| client.spawn(exchange(to.clone(), vec![1; 100], 100))).collect();
    for exchange in exchanges {
        assert!(network.run_task(SECOND * 60, exchange).is_ok_and(|come| come == [1; 100]));
    }
    let (mut accepts, mut late) = (true, 0);
    for seen in journal.read() {
        match seen {
            Seen::Begun(_, Begun::Accept(on)) => accepts = on,
            Seen::Done(_, Done::Accepted, _) if !accepts => late += 1,
            _ => {}
        }
    }
    assert!(late > 0);
}

#[test]
fn delayed_completions_come_later_than_the_links_require() {
    let takes = |faults: FaultRates| {
        let (network, _) = exchanged(faults, 1000);
        network.elapsed()
    };
    assert!(takes(FaultRates::none().with(NetworkFault::Delayed, 2)) > takes(FaultRates::none()));
}

/// A driver that the test drives itself, a socket that is connected to an echo, and bytes to send there.
fn connected(network: &Network) -> (Box<dyn Driver>, Token, Outbound) {
    let pool = Pool::new();
    let mut driver = network.host("10.0.0.1").driver(&pool);
    let server = network.host("10.0.0.2").node();
    let to = server.serve(7, Limits::default(), || Raw, echo).expect("the port is free");
    let token = Token { slot: 0, generation: 0 };
    driver.submit(token, Operation::Connect { address: &to, local: None, options: &SocketOptions::default() });
    network.run_for(SECOND);
    driver.wait(None).expect("nothing is waited for");
    assert!(matches!(driver.next_of_any(), Some((_, Completion::Connected(Ok(()))))));
    let mut queue = Outbound::new(&pool);
    queue.write(b"ebb");
    queue.flush();
    (driver, token, queue)
}

/// No loop does this, so the test does.
#[test]
#[should_panic(expected = "a second send of a socket while one is in flight")]
fn a_second_send_while_one_is_in_flight_fails_the_test() {
    let network = Network::new(1);
    network.set_faults(FaultRates::none().with(NetworkFault::LateSend, 1));
    let (mut driver, token, mut queue) = connected(&network);
    for _ in 0..2 {
        assert!(driver.submit(token, Operation::Send { queue: &mut queue, bytes_max: 100 }).is_none());
    }
    queue.clear();
    network.run_for(SECOND);
}

/// Until a send completes the driver owns its bytes: nothing may end the connection before.
#[test]
fn a_reset_is_reported_by_or_after_the_send_in_flight() {
    let (mut after, mut by) = (0, 0);
    for seed in 0..20 {
        let network = Network::new(seed);
        network.set_faults(FaultRates::none().with(NetworkFault::LateSend, 1));
        let (mut driver, token, mut queue) = connected(&network);
        assert!(driver.submit(token, Operation::Send { queue: &mut queue, bytes_max: 100 }).is_none());
        // The bytes that the echo sends back reset the stream.
        network.set_faults(FaultRates::none().with(NetworkFault::Reset, 1));
        let mut done = Vec::new();
        network.run_until(SECOND, || {
            driver.wait(None).expect("nothing is waited for");
            done.extend(std::iter::from_fn(|| driver.next_of_any()).map(|(_, completion)| completion));
            false
        });
        match &done[..] {
            [Completion::Sent(Ok(3)), Completion::Failed(_)] => after += 1,
            [Completion::Sent(Err(error))] if error.kind() == io::ErrorKind::ConnectionReset => by += 1,
            done => panic!("{done:?} with seed {seed}"),
        }
        queue.clear();
    }
    assert!(after > 0 && by > 0, "{after} and {by}");
}

#[test]
fn a_close_completes_after_the_send_in_flight() {
    let network = Network::new(1);
    network.set_faults(FaultRates::none().with(NetworkFault::LateSend, 1));
    let (mut driver, token, mut queue) = connected(&network);
    assert!(driver.submit(token, Operation::Send { queue: &mut queue, bytes_max: 100 }).is_none());
    assert!(driver.submit(token, Operation::Close { reset: true }).is_none());
    network.run_for(SECOND);
    driver.wait(None).expect("nothing is waited for");
    assert!(matches!(driver.next_of_any(), Some((closed, Completion::Closed)) if closed == token));
    assert!(driver.next_of_any().is_none());
    queue.clear();
}

#[test]
fn an_unadopted_stream_is_open_until_its_driver_is_dropped() {
    let network = Network::new(1);
    let host = network.host("10.0.0.1");
    let mut driver = host.driver(&Pool::new());
    let listener = host.listener(7).expect("the port is free");
    driver.submit(Token { slot: 0, generation: 0 }, Operation::Listen(listener));
    let client = network.host("10.0.0.2").node();
    let to: Address = "10.0.0.1:7".parse().expect("it is one");
    let ended =
        client.spawn(async move { Client::at(to).connect(Raw).await?.recv().await.map_err(Box::<dyn Error>::from) });
    network.run_for(SECOND);
    driver.wait(None).expect("nothing is waited for");
    let Some((_, Completion::Accepted(Ok(Accepted { socket, .. })))) = driver.next_of_any() else {
        panic!("it has come")
    };
    drop(socket);
    network.run_for(SECOND);
    assert_eq!((network.open_endpoints(), ended.is_finished()), (2, false));
    drop(driver);
    assert!(network.run_until(SECOND * 10, || ended.is_finished() && network.open_endpoints() == 0));
}

#[test]
fn hosts_that_are_cut_off_communicate_again_when_healed() {
    for seed in seeds(20) {
        let pair = Pair::new(seed, FaultRates::benign());
        let hosts = ["10.0.0.1", "10.0.0.2"].map(|ip| pair.network.host(ip));
        let to = pair.serve_with_handlers(Limits::default());
        let whole = pair.start(exchange(to.clone(), vec![1; 200_000], 5000));
        assert!(pair.network.run_until(SECOND * 10, || pair.server.counts().received_bytes > 0));
        pair.network.partition(&hosts[0], &hosts[1]);
        let unheard = pair.start(async move { Client::at(to).connect(Raw).await.map(drop) });
        pair.network.run_for(SECOND * 20);
        assert!(!whole.is_there(), "seed {seed}");
        assert!(matches!(unheard.take(), Err(ConnectError::Timeout(_))), "seed {seed}");
        pair.network.heal(&hosts[0], &hosts[1]);
        drop(hosts);
        assert!(pair.network.run_until(SECOND * 60, || whole.is_there()), "seed {seed}");
        assert!(whole.take().is_ok_and(|come| come == [1; 200_000]), "seed {seed}");
        pair.ends_clean();
    }
}

#[test]
fn connecting_to_a_host_that_is_cut_off_times_out() {
    let pair = Pair::new(1, FaultRates::none());
    let to = pair.serve_with_tasks();
    pair.network.partition(&pair.network.host("10.0.0.1"), &pair.network.host("10.0.0.2"));
    let client = Client::at(to).connect_timeout(SECOND * 3600);
    let place = pair.start(async move { client.connect(Raw).await.map(drop) });
    assert!(pair.network.run_until(SECOND * 200, || place.is_there()));
    let Err(ConnectError::Failed(_, error)) = place.take() else { panic!("no host answers") };
    assert_eq!((error.kind(), pair.network.elapsed().as_secs()), (io::ErrorKind::TimedOut, 127));
    pair.network.heal(&pair.network.host("10.0.0.1"), &pair.network.host("10.0.0.2"));
    pair.ends_clean();
}

/// How late each of a hundred wake-ups of a task by the task of another loop came.
fn wake_ups(faults: FaultRates) -> (Vec<Duration>, FaultCounts) {
    let network = Network::new(1);
    network.set_faults(faults);
    let waiting: Rc<RefCell<Option<Waker>>> = Rc::default();
    let woken_at = Rc::new(Cell::new(network.now()));
    let (slot, at) = (waiting.clone(), woken_at.clone());
    let late = network.host("10.0.0.1").node().spawn(async move {
        let mut late = Vec::new();
        for _ in 0..100 {
            let mut is_waiting = false;
            poll_fn(|cx| {
                if std::mem::replace(&mut is_waiting, true) {
                    return Poll::Ready(());
                }
                *slot.borrow_mut() = Some(cx.waker().clone());
                Poll::Pending
            })
            .await;
            late.push(task::now() - at.get());
        }
        late
    });
    let waking = network.host("10.0.0.2").node().spawn(async move {
        loop {
            task::sleep(SECOND).await;
            woken_at.set(task::now());
            if let Some(waker) = waiting.take() {
                waker.wake();
            }
        }
    });
    let late = network.run_task(SECOND * 200, late);
    drop(waking);
    (late, network.fault_counts())
}

#[test]
fn a_late_wake_up_delays_messages_between_loops() {
    let (late, fault_counts) = wake_ups(FaultRates::none());
    assert_eq!((late, fault_counts.count(NetworkFault::LateWakeUp)), (vec![Duration::ZERO; 100], 0));
    let (late, fault_counts) = wake_ups(FaultRates::none().with(NetworkFault::LateWakeUp, 2));
    let strikes = fault_counts.count(NetworkFault::LateWakeUp);
    assert!((20..80).contains(&strikes), "{strikes} of 100 wake-ups were late");
    assert_eq!(late.iter().filter(|time| !time.is_zero()).count() as u64, strikes);
    assert!(late.iter().all(|time| *time <= Duration::from_millis(50)), "{late:?}");
}
