//! Rates of a loop: the connections that share one, and the streams of a session.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tidegate_codec::framing::{Lines, Raw};
use tidegate_engine::{Client, Limits, Rate, Shaping};
use tidegate_sys::Address;
use tidegate_testkit::network::FaultRates;
use tidegate_testkit::{ToyMux, ToyMuxConfig, seeds};

use crate::shaping::support::{
    MILLISECOND, Run, SECOND, admits, ask_now_and_then, filtered_client, filtered_server, limits,
};

const RATE: Rate = Rate::per_second(1_000_000).burst(20_000);

fn shared(rate: Rate) -> Shaping {
    Shaping { loop_receive: Some(rate), loop_send: Some(rate), ..Shaping::default() }
}

#[test]
fn connections_of_a_loop_share_its_send_rate() {
    let run = Run::new(1);
    let to = run.serve(limits(shared(RATE)), || Raw);
    let downloads: Vec<_> = (0..5).map(|_| run.download(&to, Limits::default(), Raw, 400_000)).collect();
    run.each_millisecond(
        || downloads.iter().all(|(task, _)| task.is_finished()),
        |elapsed, _, sent| {
            assert!(sent <= admits(RATE, elapsed), "{sent} bytes after {elapsed:?}");
            // Each has had its turns: none is ahead of another by more than three turns and the bytes in flight.
            let received: Vec<_> = downloads.iter().map(|(_, received)| received.get()).collect();
            let (most, least) = (received.iter().max().unwrap(), received.iter().min().unwrap());
            assert!(most - least <= 50_000, "{received:?} after {elapsed:?}");
        },
    );
    let time = run.network.elapsed();
    assert!((1_980 * MILLISECOND..2_050 * MILLISECOND).contains(&time), "{time:?}");
    assert!(downloads.into_iter().all(|(task, _)| run.network.run_task(SECOND, task)), "other bytes arrived");
}

#[test]
fn connections_of_a_loop_share_its_receive_rate() {
    let run = Run::new(2);
    let to = run.serve(limits(shared(RATE)), || Raw);
    let uploads: Vec<_> = (0..5).map(|_| run.upload(&to, Limits::default(), Raw, 400_000)).collect();
    run.each_millisecond(
        || uploads.iter().all(tidegate_engine::task::Task::is_finished),
        |elapsed, received, _| {
            // Each connection may owe a turn.
            assert!(received <= admits(RATE, elapsed) + 5 * 20_000, "{received} bytes after {elapsed:?}");
        },
    );
    let time = run.network.elapsed();
    assert!((1_900 * MILLISECOND..2_050 * MILLISECOND).contains(&time), "{time:?}");
}

#[test]
fn a_light_connection_does_not_starve_beside_heavy_ones() {
    for heavy in [1, 4] {
        let run = Run::new(3);
        let to = run.serve(limits(shared(RATE)), || Raw);
        let downloads: Vec<_> = (0..heavy).map(|_| run.download(&to, Limits::default(), Raw, 20_000_000)).collect();
        let uploads: Vec<_> = (0..heavy).map(|_| run.upload(&to, Limits::default(), Raw, 20_000_000)).collect();
        run.network.run_for(SECOND);
        let asking = run.client.spawn(ask_now_and_then(Client::at(to), 50, 30 * MILLISECOND));
        let times = run.network.run_task(100 * SECOND, asking);
        // A turn of 10 ms for each of the others in each direction, its own, and the way.
        let most = 10 * (2 * heavy + 2) * MILLISECOND;
        assert!(times.iter().all(|time| *time <= most), "{times:?}, and not within {most:?}");
        assert!(
            !downloads.iter().any(|(task, _)| task.is_finished()) && !uploads.iter().any(|task| task.is_finished())
        );
    }
}

#[test]
fn a_shared_rate_holds_whatever_the_network_does() {
    for seed in seeds(8) {
        let run = Run::new(seed);
        run.network.set_faults(FaultRates::benign());
        let to = run.serve(limits(shared(RATE)), filtered_server);
        let download = |_| run.download(&to, Limits::default(), filtered_client(), 200_000);
        let downloads: Vec<_> = (0..5).map(download).collect();
        run.each_millisecond(
            || downloads.iter().all(|(task, _)| task.is_finished()),
            |elapsed, _, sent| assert!(sent <= admits(RATE, elapsed), "{sent} bytes after {elapsed:?}"),
        );
        assert!(downloads.into_iter().all(|(task, _)| run.network.run_task(SECOND, task)), "other bytes arrived");
    }
}

#[test]
fn a_connection_with_both_rates_keeps_both() {
    let run = Run::new(4);
    let own = Rate::per_second(200_000).burst(10_000);
    let shaping = Shaping { send: Some(own), ..shared(RATE) };
    let to = run.serve(limits(shaping), || Raw);
    // Two of them are below the rate of the loop; ten are not.
    for (count, least) in [(2, Duration::from_millis(450)), (10, Duration::from_millis(980))] {
        let begun = run.network.elapsed();
        let downloads: Vec<_> = (0..count).map(|_| run.download(&to, Limits::default(), Raw, 100_000)).collect();
        for (task, _) in downloads {
            assert!(run.network.run_task(100 * SECOND, task), "other bytes arrived");
        }
        let time = run.network.elapsed() - begun;
        assert!((least..least + 60 * MILLISECOND).contains(&time), "{time:?} and not {least:?}");
    }
}

#[test]
fn connections_with_other_rates_of_the_loop_do_not_share() {
    let run = Run::new(5);
    let to = run.serve(limits(shared(RATE)), || Raw);
    let other = shared(RATE.burst(20_001));
    let unshaped = run.client.spawn(async {});
    let downloads = [Shaping::default(), shared(RATE)].map(|shaping| {
        // The clients are on one loop, and receive at the rates of their limits.
        run.download(&to, limits(if shaping == Shaping::default() { other } else { shaping }), Raw, 500_000).0
    });
    downloads.into_iter().for_each(|task| assert!(run.network.run_task(100 * SECOND, task)));
    run.network.run_task(SECOND, unshaped);
    let time = run.network.elapsed();
    assert!((980 * MILLISECOND..1_060 * MILLISECOND).contains(&time), "{time:?}");
}

const CONFIG: ToyMuxConfig = ToyMuxConfig { stream_window: 64 * 1024, session_window: 1024 * 1024, streams_max: 50 };

/// A server whose streams echo lines.
fn serve_streams(run: &Run, limits: Limits) -> Address {
    let socket = run.network.host("10.0.0.1").listener(8).expect("the port is free");
    let lines = || Lines::new().with_line_bytes_max(1 << 20);
    let echo = async |mut channel: tidegate_engine::Channel<Lines>| {
        while let Some(line) = channel.recv().await? {
            channel.ready().await?;
            channel.send(line.into())?;
        }
        Ok::<_, Box<dyn std::error::Error>>(())
    };
    let mux = || ToyMux::server(CONFIG);
    run.server
        .with(|event_loop| event_loop.serve_streams(socket, limits, Arc::default(), mux, lines, echo))
        .expect("the listener is taken");
    "10.0.0.1:8".parse().expect("an address")
}

#[test]
fn a_session_is_shaped_as_a_whole_and_its_streams_are_not_late() {
    let run = Run::new(6);
    let rate = Rate::per_second(10_000).burst(2_000);
    let limits = Limits {
        // A stream alone gets a tenth of the rate, which is less than this.
        write_timeout: 5 * SECOND,
        write_rate_min: 5_000,
        ..limits(Shaping { receive: Some(rate), send: Some(rate), ..Shaping::default() })
    };
    let to = serve_streams(&run, limits);
    let done = Rc::<Cell<usize>>::default();
    let counted = done.clone();
    let task = run.client.spawn(async move {
        let session = Client::at(to).open_session(ToyMux::client(CONFIG)).await.expect("it listens");
        let mut asking = Vec::new();
        for stream in 0..10_u8 {
            let lines = Lines::new().with_line_bytes_max(1 << 20);
            let mut channel = session.open(lines).expect("there is room");
            let counted = counted.clone();
            asking.push(tidegate_engine::task::spawn(async move {
                let line = vec![b'a' + stream; 30_000];
                channel.send(line.clone().into()).expect("it is open");
                let answer = channel.recv().await.expect("it is open").expect("an answer");
                assert!(*answer == *line, "another line came back");
                counted.set(counted.get() + 1);
            }));
        }
        for asked in asking {
            asked.await.expect("it is answered");
        }
    });
    run.each_millisecond(
        || task.is_finished(),
        |elapsed, received, sent| {
            assert!(received <= admits(rate, elapsed) && sent <= admits(rate, elapsed));
        },
    );
    assert_eq!(done.get(), 10);
    run.network.run_task(SECOND, task);
    // 300 KB in each direction, one after the other for the most part.
    assert!(run.network.elapsed() > 30 * SECOND);
    assert_eq!(run.server.counts().closed_write_timeout, 0);
}
