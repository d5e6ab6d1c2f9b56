//! Loops on hosts of a simulated network: the bytes that they exchange arrive, and a break is reported to both sides.

mod addresses;
mod crowd;
mod fairness;
mod faults;
mod journal;
mod pair;
mod seeds;
mod uses;

use std::cell::Cell;
use std::error::Error;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_buffer::{Pool, WaterMarks};
use tidegate_codec::Slice;
use tidegate_codec::framing::{Lines, Raw};
use tidegate_engine::{Channel, Client, ConnectError, Context, Event, EventLoop, Handler, Limits, Outcome, task};
use tidegate_sys::Address;
use tidegate_testkit::network::{FaultCounts, FaultRates, Link, Network, NetworkFault};
use tidegate_testkit::{Random, seeds};

use crate::network::pair::{Pair, SECOND, Served, echo, exchange, without_messages};

/// Four exchanges at once, large and byte by byte, with handlers and with tasks.
pub(crate) fn exchange_all(seed: u64, faults: FaultRates) -> (u64, FaultCounts, usize) {
    let pair = Pair::new(seed, faults);
    let mut random = Random::new(seed);
    let servers = [pair.serve_with_handlers(Limits::default()), pair.serve_with_tasks()];
    let mut started = Vec::new();
    for (size, piece) in [(150_000, 9000), (60, 1)] {
        for server in &servers {
            let length = 1 + random.below(size);
            let bytes = random.bytes(length);
            started.push((bytes.clone(), pair.start(exchange(server.clone(), bytes, piece))));
        }
    }
    let network = pair.network.clone();
    let over = network.run_until(SECOND * 600, || started.iter().all(|(_, place)| place.is_there()));
    assert!(over, "an exchange has not ended, of {:?}", pair.server.counts());
    let mut whole = 0;
    for (sent, place) in started {
        match place.take() {
            Ok(come) => {
                assert!(sent.starts_with(&come), "other bytes came back, or in another order");
                whole += usize::from(come == sent);
            }
            Err(error) => println!("an exchange failed: {error}"),
        }
    }
    let (made, gone) = (pair.made.clone(), pair.gone.clone());
    drop(network);
    let (trace, fault_counts) = pair.ends_clean();
    assert_eq!(made.get(), gone.get(), "handlers that were made, and those that were notified of their end");
    (trace, fault_counts, whole)
}

#[test]
fn every_byte_arrives_in_order_whatever_is_slow_short_or_late() {
    let mut fault_counts = FaultCounts::default();
    for seed in seeds(200) {
        let (_, occurred, whole) = exchange_all(seed, FaultRates::benign());
        assert_eq!(whole, 4, "exchanges that came back whole with seed {seed}");
        fault_counts += occurred;
    }
    fault_counts.assert_all(&without_messages(&NetworkFault::BENIGN));
}

#[test]
fn under_resets_every_connection_ends_and_nothing_is_left() {
    let (mut fault_counts, mut exchanges) = (FaultCounts::default(), 0);
    let faults = FaultRates::benign()
        .with(NetworkFault::Reset, 60)
        .with(NetworkFault::Refused, 20)
        .with(NetworkFault::TimedOut, 20);
    for seed in seeds(200) {
        let (_, occurred, whole) = exchange_all(seed, faults.clone());
        fault_counts += occurred;
        exchanges += whole;
    }
    println!("{exchanges} exchanges came back whole\n{fault_counts}");
    fault_counts.assert_all(&without_messages(&NetworkFault::ALL));
}

#[test]
fn a_reset_is_reported_to_both_sides() {
    let pair = Pair::new(1, FaultRates::none());
    let to = pair.serve_with_handlers(Limits::default());
    let place = pair.start(async move {
        let mut channel = Client::at(to).connect(Raw).await?;
        channel.send("ebb".into())?;
        let first = channel.recv().await?.map(|bytes| bytes.to_vec());
        channel.send("flow".into())?;
        Ok::<_, Box<dyn Error>>((first, channel.recv().await.map(|_| ()).unwrap_err().to_string()))
    });
    pair.network.run_until(SECOND, || pair.server.counts().received_bytes == 3);
    pair.network.set_faults(FaultRates::none().with(NetworkFault::Reset, 1));
    pair.network.run_for(SECOND);
    pair.network.set_faults(FaultRates::none());
    match place.take() {
        Ok((first, error)) => assert!(first.is_some() && error.contains("reset"), "{error}"),
        Err(error) => assert!(error.to_string().contains("reset"), "{error}"),
    }
    assert_eq!(pair.gone.get(), 1);
    assert_eq!((pair.server.counts().closed_broken, pair.client.counts().closed_broken), (1, 1));
    pair.ends_clean();
}

/// Waits for the end of the stream before it answers.
struct Late(usize);

impl Handler<Raw> for Late {
    type Post = ();

    fn message(&mut self, bytes: Slice, _: &mut Context<'_, Raw>) -> Outcome<Raw> {
        self.0 += bytes.len();
        Outcome::Continue
    }

    fn event(&mut self, event: Event<()>, cx: &mut Context<'_, Raw>) -> Outcome<Raw> {
        if event == Event::ReadClosed
            && let Err(error) = cx.send(self.0.to_string().into())
        {
            return Outcome::fail(error);
        }
        event.by_default(cx)
    }
}

#[test]
fn either_side_may_end_first_and_still_receive() {
    for seed in seeds(20) {
        let pair = Pair::new(seed, FaultRates::benign());
        let to = pair.server.listen(7, Limits::default(), |_| (Raw, Late(0))).expect("the port is free");
        let counted = pair.start(exchange(to, vec![1; 100_000], 1000));
        // The server ends first, and receives up to the client's end.
        let heard = Rc::new(Cell::new(0));
        let hears = heard.clone();
        let serve = move |mut channel: Channel<Raw>| {
            let hears = hears.clone();
            async move {
                channel.send("hello".into())?;
                channel.shutdown_write();
                while let Some(bytes) = channel.recv().await? {
                    hears.set(hears.get() + bytes.len());
                }
                Served::Ok(())
            }
        };
        let to = pair.server.serve(8, Limits::default(), || Raw, serve).expect("the port is free");
        let seen = pair.start(async move {
            let mut channel = Client::at(to).connect(Raw).await?;
            let mut come = Vec::new();
            while let Some(bytes) = channel.recv().await? {
                come.extend_from_slice(&bytes);
            }
            channel.send("and goodbye".into())?;
            channel.close().await?;
            Ok::<_, Box<dyn Error>>(come)
        });
        let network = pair.network.clone();
        assert!(network.run_until(SECOND * 60, || counted.is_there() && seen.is_there()), "seed {seed}");
        assert_eq!(counted.take().expect("nothing breaks"), b"100000");
        assert_eq!(seen.take().expect("nothing breaks"), b"hello");
        drop(network);
        pair.ends_clean();
        assert_eq!(heard.get(), "and goodbye".len());
    }
}

#[test]
fn connecting_without_a_listener_is_refused() {
    let pair = Pair::new(1, FaultRates::none());
    let unused: Address = "10.0.0.1:9".parse().expect("it is one");
    let place = pair.start(async move { Client::at(unused).connect(Raw).await.map(drop) });
    assert!(pair.network.run_until(SECOND, || place.is_there()));
    let Err(ConnectError::Failed(_, error)) = place.take() else { panic!("no server listens") };
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    assert_eq!(pair.network.elapsed(), Link::default().latency * 2);
    pair.ends_clean();
}

#[test]
fn an_unanswered_connect_times_out_in_virtual_time() {
    let begun = Instant::now();
    let pair = Pair::new(1, FaultRates::none().with(NetworkFault::TimedOut, 1));
    let to = pair.serve_with_tasks();
    let patient = Client::at(to.clone()).connect_timeout(SECOND * 3600);
    let impatient = pair.start(async move { Client::at(to).connect(Raw).await.map(drop) });
    let patient = pair.start(async move { patient.connect(Raw).await.map(drop) });
    assert!(pair.network.run_until(SECOND * 11, || impatient.is_there()));
    assert!(matches!(impatient.take(), Err(ConnectError::Timeout(_))));
    assert!((SECOND * 10..SECOND * 11).contains(&pair.network.elapsed()));
    assert!(pair.network.run_until(SECOND * 200, || patient.is_there()));
    let Err(ConnectError::Failed(_, error)) = patient.take() else { panic!("no host answers") };
    assert_eq!((error.kind(), pair.network.elapsed()), (io::ErrorKind::TimedOut, SECOND * 127));
    pair.ends_clean();
    assert!(begun.elapsed() < SECOND * 120, "time was waited for");
}

#[test]
fn a_drain_ends_idle_connections() {
    let pair = Pair::new(1, FaultRates::benign());
    let to = pair.serve_with_handlers(Limits::default());
    let place = pair.start(async move {
        let mut channel = Client::at(to).connect(Raw).await?;
        channel.send("ebb".into())?;
        let mut come = Vec::new();
        while let Some(bytes) = channel.recv().await? {
            come.extend_from_slice(&bytes);
        }
        Ok::<_, Box<dyn Error>>(come)
    });
    pair.network.run_for(SECOND * 5);
    assert!(!place.is_there());
    pair.server.drain(SECOND * 30);
    assert!(pair.network.run_until(SECOND * 5, || pair.server.is_drained()));
    assert!(pair.network.run_until(SECOND * 5, || place.is_there()));
    assert_eq!(place.take().expect("it ended in good order"), b"ebb");
    pair.ends_clean();
}

/// Regression: the loop spun from the drain's deadline until the last socket was closed.
#[test]
fn past_a_drains_deadline_the_loop_sleeps_until_the_driver_has_let_go() {
    let pair = Pair::new(1, FaultRates::none().with(NetworkFault::LateClose, 1));
    let to = pair.serve_with_handlers(Limits::default());
    let place =
        pair.start(async move { Client::at(to).connect(Raw).await?.recv().await.map_err(Box::<dyn Error>::from) });
    pair.network.run_for(SECOND);
    let turns = pair.server.counts().turns;
    pair.server.drain(Duration::ZERO);
    assert!(pair.network.run_until(SECOND, || pair.server.is_drained() && place.is_there()));
    assert!(pair.server.counts().turns - turns < 20);
    pair.ends_clean();
}

#[test]
fn a_peer_that_never_reads_is_cut_off_when_the_write_deadline_has_come() {
    let pair = Pair::new(1, FaultRates::none());
    let limits = Limits { write_timeout: SECOND * 40, ..Limits::default() };
    let to = pair.serve_with_handlers(limits);
    let place = pair.start(async move {
        let patient = Limits { write_timeout: SECOND * 600, ..Limits::default() };
        let (reader, mut writer) = Client::at(to).limits(patient).connect(Raw).await?.split();
        loop {
            if let Err(error) = writer.ready().await {
                drop(reader);
                return Ok::<_, ConnectError>(error.to_string());
            }
            let _ = writer.send(vec![0; 10_000].into());
        }
    });
    pair.network.run_for(SECOND * 39);
    assert_eq!(pair.server.counts().closed_write_timeout, 0);
    // Bytes that were acknowledged after the last send count as progress, once.
    pair.network.run_for(SECOND * 42);
    assert_eq!(pair.server.counts().closed_write_timeout, 1);
    let seen = place.take().expect("it was connected");
    assert!(seen.contains("reset"), "{seen}");
    pair.ends_clean();
}

#[test]
fn bytes_take_the_time_of_their_link_in_either_direction() {
    let network = Network::new(1);
    let (here, there) = (network.host("10.0.0.1"), network.host("10.0.0.2"));
    network.set_link_between(&here, &there, Link { latency: SECOND, bytes_per_second: 1000 });
    network.set_link_between(&there, &here, Link { latency: SECOND * 2, bytes_per_second: 1_000_000 });
    let (server, client) = (there.node(), here.node());
    let to = server.serve(7, Limits::default(), || Raw, echo).expect("the port is free");
    let finished = Rc::new(Cell::new(None));
    let finishes = finished.clone();
    drop(client.spawn(async move {
        let mut channel = Client::at(to).connect(Raw).await.expect("a server listens");
        channel.send(vec![0; 4000].into()).expect("there is room");
        let mut come = 0;
        while come < 4000 {
            come += channel.recv().await.ok().flatten().expect("the echo comes").len();
        }
        finishes.set(Some(task::now()));
    }));
    let start = network.now();
    assert!(network.run_until(SECOND * 60, || finished.get().is_some()));
    // Connecting takes three seconds, and a round trip takes as long. Four thousand bytes take four seconds one way,
    // and almost no time on the way back.
    assert_eq!(finished.get().map(|at| at - start), Some(SECOND * 10 + Duration::from_millis(4)));
}

#[test]
fn a_loop_that_is_stopped_is_late_and_loses_nothing() {
    let network = Network::new(1);
    let (server, client) = (network.host("10.0.0.1").node(), network.host("10.0.0.2").node());
    let address = server.serve(7, Limits::default(), Lines::new, echo_lines).expect("the port is free");
    let asking = client.spawn(async move {
        let mut channel = Client::at(address).connect(Lines::new()).await.expect("a connection");
        channel.send("ebb and flow".into()).expect("there is room");
        channel.recv().await.expect("no error").map(|line| line.to_vec())
    });
    server.set_stopped(true);
    assert!(!network.run_until(SECOND * 40, || asking.is_finished()));
    server.set_stopped(false);
    let stopped = network.elapsed();
    assert_eq!(network.run_task(SECOND, asking).as_deref(), Some(&b"ebb and flow"[..]));
    assert!(stopped >= SECOND * 40);
}

#[test]
fn a_loop_that_is_killed_leaves_no_socket_and_no_task() {
    let network = Network::new(1);
    let (server, client) = (network.host("10.0.0.1").node(), network.host("10.0.0.2").node());
    let address = server.serve(7, Limits::default(), Lines::new, echo_lines).expect("the port is free");
    let waiting = client.spawn(async move {
        let mut channel = Client::at(address).connect(Lines::new()).await.expect("a connection");
        channel.recv().await.is_ok_and(|line| line.is_some())
    });
    network.run_for(SECOND);
    assert!(!waiting.is_finished());
    let kept = Rc::new(());
    let of_task = kept.clone();
    drop(server.spawn(async move {
        task::sleep(SECOND * 1000).await;
        drop(of_task);
    }));
    network.run_for(SECOND);
    server.kill();
    assert_eq!(Rc::strong_count(&kept), 1, "the task is dropped");
    assert!(!network.run_task(SECOND, waiting), "the connection has ended");
    network.run_for(SECOND * 10);
    assert_eq!(network.open_endpoints(), 0);
}

async fn echo_lines(mut channel: Channel<Lines>) -> Result<(), Box<dyn Error>> {
    while let Some(line) = channel.recv().await? {
        channel.send(line.into())?;
    }
    Ok(())
}

#[test]
fn several_loops_of_one_host_talk_to_each_other() {
    let network = Network::new(1);
    let host = network.host("::1");
    let (server, client) = (host.node(), host.node());
    let serve = async |mut channel: Channel<Lines>| {
        while let Some(line) = channel.recv().await? {
            channel.send(line.into())?;
        }
        Served::Ok(())
    };
    let to = server.serve(7, Limits::default(), Lines::new, serve).expect("the port is free");
    assert!(server.serve(7, Limits::default(), Lines::new, serve).is_err(), "the port is taken");
    let answer = client.spawn(async move {
        let mut channel = Client::at(to).connect(Lines::new()).await?;
        assert_ne!(channel.local()?, channel.peer()?);
        channel.send("ebb".into())?;
        Ok::<_, Box<dyn Error>>(channel.recv().await?.map(|line| line.to_vec()))
    });
    assert!(network.run_until(SECOND, || answer.is_finished()));
}

#[test]
fn a_loop_that_the_test_turns_itself_is_on_the_network_as_well() {
    let network = Network::new(1);
    let (here, there) = (network.host("10.0.0.1"), network.host("10.0.0.2"));
    let pool = Pool::new();
    let mut server = EventLoop::new(here.driver(&pool), pool);
    let listener = here.listener(7).expect("the port is free");
    server.serve(listener, Limits::default(), Arc::default(), || Raw, echo).expect("it is a listener");
    let to: Address = "10.0.0.1:7".parse().expect("it is one");
    let client = there.node();
    let come = client.spawn(exchange(to, vec![7; 10_000], 100));
    let turned = network.run_until(SECOND, || {
        server.turn(None).expect("nothing is waited for");
        come.is_finished()
    });
    assert!(turned, "{:?}", server.counts());
}

/// Receives are paused while the memory is used up, and resume when the peer that did not read was shed.
#[test]
fn a_loop_whose_memory_is_used_up_sheds_and_goes_on() {
    for seed in seeds(20) {
        let pair = Pair::new(seed, FaultRates::benign());
        pair.server.pool().ledger().set_budget(400_000);
        let limits = Limits { water: WaterMarks::new(1 << 20, 1 << 19), ..Limits::default() };
        let to = pair.serve_with_handlers(limits);
        for _ in 0..8 {
            let to = to.clone();
            pair.start(async move {
                let (reader, mut writer) = Client::at(to).connect(Raw).await?.split();
                while writer.ready().await.is_ok() && writer.send(vec![0; 5000].into()).is_ok() {}
                drop(reader);
                Ok::<_, ConnectError>(())
            });
        }
        let shed = || pair.server.counts().closed_shed > 0;
        assert!(pair.network.run_until(SECOND * 60, shed), "seed {seed}");
        // The other connections are reset when they have taken nothing for a minute, or earlier.
        let alone = || (pair.server.counts().accepted, pair.server.counts().connections) == (8, 0);
        assert!(pair.network.run_until(SECOND * 200, alone), "seed {seed}");
        let whole = pair.start(exchange(to, vec![1; 20_000], 500));
        assert!(pair.network.run_until(SECOND * 60, || whole.is_there()), "seed {seed}");
        let come = whole.take().unwrap_or_else(|error| panic!("{error}, {:?}", pair.server.counts()));
        assert_eq!(come, [1; 20_000]);
        pair.server.drain(SECOND);
        pair.ends_clean();
    }
}
