//! The rate of one connection, in each direction.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use tidegate_codec::Slice;
use tidegate_codec::framing::Raw;
use tidegate_engine::{Client, Context, Handler, Limits, Outcome, Rate, Shaping};
use tidegate_sys::Address;
use tidegate_testkit::network::FaultRates;
use tidegate_testkit::seeds;

use crate::shaping::support::{MILLISECOND, Run, SECOND, admits, filtered_client, filtered_server, limits};

const RATE: Rate = Rate::per_second(100_000);
const BYTES: usize = 500_000;

fn sending(rate: Rate) -> Shaping {
    Shaping { send: Some(rate), ..Shaping::default() }
}

fn receiving(rate: Rate) -> Shaping {
    Shaping { receive: Some(rate), ..Shaping::default() }
}

/// How long the bytes take that the burst does not cover.
fn time_of(rate: Rate, bytes: usize) -> Duration {
    Duration::from_secs_f64((bytes as f64 - rate.burst_bytes() as f64) / rate.bytes_per_second() as f64)
}

#[test]
fn a_connection_sends_at_its_rate_to_the_byte() {
    for rate in [RATE, RATE.burst(1_000), RATE.burst(300_000), Rate::per_second(3_000).burst(490_000)] {
        let run = Run::new(1);
        let to = run.serve(limits(sending(rate)), || Raw);
        let (task, received) = run.download(&to, Limits::default(), Raw, BYTES);
        let time = Cell::new(Duration::ZERO);
        run.each_millisecond(
            || task.is_finished(),
            |elapsed, _, sent| {
                assert!(sent <= admits(rate, elapsed), "{sent} bytes after {elapsed:?} at {rate:?}");
                // It keeps up: at most a turn, and a few milliseconds of the way, are missing.
                let least = admits(rate, elapsed.saturating_sub(20 * MILLISECOND)).saturating_sub(1_460);
                let opened = elapsed > 10 * MILLISECOND && rate.burst_bytes() < 50_000;
                assert!(!opened || sent >= least.min(BYTES as u64), "{sent} bytes after {elapsed:?} at {rate:?}");
                time.set(elapsed);
            },
        );
        assert_eq!(received.get(), BYTES);
        assert!(run.network.run_task(SECOND, task), "other bytes arrived");
        let (time, least) = (time.get(), time_of(rate, BYTES));
        assert!((least..least + 30 * MILLISECOND).contains(&time), "{time:?} and not {least:?} at {rate:?}");
    }
}

#[test]
fn a_connection_receives_at_its_rate() {
    for rate in [RATE, RATE.burst(1_460), RATE.burst(300_000)] {
        let run = Run::new(2);
        let to = run.serve(limits(receiving(rate)), || Raw);
        let task = run.upload(&to, Limits::default(), Raw, BYTES);
        let time = Cell::new(Duration::ZERO);
        run.each_millisecond(
            || task.is_finished(),
            |elapsed, received, _| {
                // The driver of this network takes the size of a receive from the bucket.
                assert!(received <= admits(rate, elapsed), "{received} bytes after {elapsed:?} at {rate:?}");
                time.set(elapsed);
            },
        );
        let (time, least) = (time.get(), time_of(rate, BYTES));
        assert!((least..least + 50 * MILLISECOND).contains(&time), "{time:?} and not {least:?} at {rate:?}");
    }
}

#[test]
fn a_client_is_shaped_as_a_server_is() {
    let run = Run::new(3);
    let to = run.serve(Limits::default(), || Raw);
    let begun = run.network.elapsed();
    let (task, _) = run.download(&to, limits(receiving(RATE)), Raw, BYTES);
    assert!(run.network.run_task(100 * SECOND, task));
    // A receive that comes late is no faster: the bucket is in debt then.
    let down = run.network.elapsed() - begun;
    run.network.run_task(100 * SECOND, run.upload(&to, limits(sending(RATE)), Raw, BYTES));
    let up = run.network.elapsed() - begun - down;
    for time in [down, up] {
        let least = time_of(RATE, BYTES);
        assert!((least..least + 50 * MILLISECOND).contains(&time), "{time:?} and not {least:?}");
    }
}

#[test]
fn bytes_count_below_the_filters() {
    let run = Run::new(4);
    let shaping = Shaping { send: Some(RATE), receive: Some(RATE), ..Shaping::default() };
    let to = run.serve(limits(shaping), filtered_server);
    let (down, _) = run.download(&to, Limits::default(), filtered_client(), BYTES);
    let up = run.upload(&to, Limits::default(), filtered_client(), BYTES);
    run.each_millisecond(
        || down.is_finished() && up.is_finished(),
        |elapsed, received, sent| {
            // Two connections, each with a rate of its own.
            assert!(received <= 2 * admits(RATE, elapsed) && sent <= 2 * admits(RATE, elapsed));
        },
    );
    assert!(run.network.run_task(SECOND, down), "other bytes arrived");
    assert!(run.network.elapsed() > time_of(RATE, BYTES));
}

#[test]
fn rates_hold_whatever_the_network_does() {
    for seed in seeds(8) {
        let run = Run::new(seed);
        run.network.set_faults(FaultRates::benign());
        let shaping = Shaping { send: Some(RATE), receive: Some(RATE.burst(20_000)), ..Shaping::default() };
        let to = run.serve(limits(shaping), filtered_server);
        let (down, _) = run.download(&to, Limits::default(), filtered_client(), 200_000);
        let up = run.upload(&to, Limits::default(), filtered_client(), 200_000);
        run.each_millisecond(
            || down.is_finished() && up.is_finished(),
            |elapsed, received, sent| {
                assert!(sent <= 2 * admits(RATE, elapsed), "{sent} bytes after {elapsed:?}");
                // Faults bring receives that were under way, and those may be large.
                let most = 2 * (admits(RATE.burst(20_000), elapsed) + 64 * 1024);
                assert!(received <= most, "{received} bytes after {elapsed:?}");
            },
        );
        assert!(run.network.run_task(SECOND, down), "other bytes arrived");
    }
}

/// Shapes its connection by the first byte: `s` slowly, `f` not at all.
struct Shaped(Rc<Cell<usize>>);

impl Handler<Raw> for Shaped {
    type Post = ();

    fn message(&mut self, bytes: Slice, cx: &mut Context<'_, Raw>) -> Outcome<Raw> {
        self.0.set(self.0.get() + bytes.len());
        match bytes[0] {
            b's' => cx.set_shaping(receiving(Rate::per_second(1_000).burst(2_000))),
            b'f' => cx.set_shaping(Shaping::default()),
            _ => {}
        }
        Outcome::Continue
    }
}

#[test]
fn a_handler_shapes_its_connection_in_the_middle() {
    let (run, received) = (Run::new(5), Rc::<Cell<usize>>::default());
    let counted = received.clone();
    let make = move |_: &Address| (Raw, Shaped(counted.clone()));
    let to = run.server.listen(7, Limits::default(), make).expect("the port is free");
    let task = run.client.spawn(async move {
        let mut channel = Client::at(to).connect(Raw).await.expect("it listens");
        let sent = channel.send(vec![b'.'; 30_000].into()).expect("it is open");
        channel.flushed(sent).await.expect("it is open");
        tidegate_engine::task::sleep(SECOND).await;
        let sent = channel.send("s".into()).expect("it is open");
        channel.flushed(sent).await.expect("it is open");
        tidegate_engine::task::sleep(SECOND).await;
        let sent = channel.send([vec![b'.'; 11_999], vec![b'f'; 50_000]].concat().into()).expect("it is open");
        channel.flushed(sent).await.expect("it is open");
        channel
    });
    run.network.run_for(SECOND);
    assert_eq!(received.get(), 30_000);
    run.network.run_for(SECOND + 500 * MILLISECOND);
    assert!((32_000..34_000).contains(&received.get()), "{}", received.get());
    run.network.run_for(4 * SECOND);
    assert!((36_000..38_000).contains(&received.get()), "{}", received.get());
    run.network.run_for(8 * SECOND);
    // The rest came at once.
    assert_eq!(received.get(), 92_000);
    assert!(task.is_finished());
}

#[test]
fn a_connection_that_closes_sends_the_rest_at_its_rate() {
    let run = Run::new(6);
    let shaping = sending(RATE);
    let to = run
        .server
        .serve(
            7,
            limits(shaping),
            || Raw,
            async |mut channel| {
                channel.recv().await?;
                for _ in 0..20 {
                    channel.ready().await?;
                    channel.send(vec![b'.'; 10_000].into())?;
                }
                // It is dropped here, with bytes that wait.
                Ok::<_, Box<dyn std::error::Error>>(())
            },
        )
        .expect("the port is free");
    let begun = run.network.elapsed();
    let task = run.client.spawn(async move {
        let mut channel = Client::at(to).connect(Raw).await.expect("it listens");
        channel.send("go on".into()).expect("it is open");
        let mut received = 0;
        while let Some(piece) = channel.recv().await.expect("it ends in good order") {
            received += piece.len();
        }
        received
    });
    assert_eq!(run.network.run_task(100 * SECOND, task), 200_000);
    let time = run.network.elapsed() - begun;
    let least = time_of(RATE, 200_000);
    assert!((least..least + 50 * MILLISECOND).contains(&time), "{time:?} and not {least:?}");
    assert!(run.network.run_until(SECOND, || run.server.counts().closed_done == 1));
}

#[test]
fn a_drain_waits_for_a_shaped_connection_as_long_as_for_others() {
    for (deadline, is_complete) in [(10 * SECOND, true), (300 * MILLISECOND, false)] {
        let run = Run::new(7);
        let to = run.serve(limits(Shaping { receive: Some(RATE), ..sending(RATE) }), || Raw);
        let client = Client::at(to);
        let received = Rc::<Cell<usize>>::default();
        let counted = received.clone();
        let task = run.client.spawn(async move {
            let mut channel = client.connect(Raw).await.expect("it listens");
            channel.send("200000".into()).expect("it is open");
            while let Ok(Some(piece)) = channel.recv().await {
                counted.set(counted.get() + piece.len());
            }
        });
        run.network.run_for(100 * MILLISECOND);
        // Its queue leaves at the rate, and the connection ends.
        run.server.drain(deadline);
        assert!(run.network.run_until(deadline + MILLISECOND, || run.server.is_drained()));
        run.network.run_for(SECOND);
        assert!(task.is_finished());
        let counts = run.server.counts();
        assert_eq!((counts.closed_done, counts.closed_drained), if is_complete { (1, 0) } else { (0, 1) });
    }
}
