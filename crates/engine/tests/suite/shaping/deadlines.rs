//! Deadlines of the peer while we hold it back: that time does not count, and the rest still does.

use std::cell::Cell;
use std::rc::Rc;

use tidegate_codec::Over;
use tidegate_codec::framing::{Lines, Raw};
use tidegate_engine::{Client, Deadlines, Limits, Rate, Shaping};
use tidegate_testkit::filters::ToyTls;

use crate::shaping::support::{MILLISECOND, Run, SECOND, limits};

/// It holds a connection for 2.5 s at a time.
const SLOW: Rate = Rate::per_second(100).burst(500);

#[test]
fn a_peer_that_takes_all_that_we_send_is_not_too_slow() {
    let run = Run::new(1);
    let limits = Limits {
        write_timeout: SECOND,
        write_rate_min: 1_000_000,
        ..limits(Shaping { send: Some(SLOW), ..Shaping::default() })
    };
    let to = run.serve(limits, || Raw);
    let (task, _) = run.download(&to, Limits::default(), Raw, 6_000);
    assert!(run.network.run_task(100 * SECOND, task), "other bytes arrived");
    assert_eq!(run.server.counts().closed_write_timeout, 0);
}

#[test]
fn a_peer_that_takes_nothing_is_cut_off_once_the_kernel_is_full() {
    let run = Run::new(2);
    let rate = Rate::per_second(100_000);
    let limits = Limits { write_timeout: SECOND, ..limits(Shaping { send: Some(rate), ..Shaping::default() }) };
    let to = run.serve(limits, || Raw);
    let client = Client::at(to);
    let task = run.client.spawn(async move {
        let mut channel = client.connect(Raw).await.expect("it listens");
        let sent = channel.send("1000000".into()).expect("it is open");
        channel.flushed(sent).await.expect("it is open");
        // It never receives.
        tidegate_engine::task::sleep(100 * SECOND).await;
        drop(channel);
    });
    // The buffers of the network hold more than a second's bytes, and then it has a second.
    run.network.run_for(SECOND);
    assert_eq!(run.server.counts().closed_write_timeout, 0);
    assert!(run.network.run_until(3 * SECOND, || run.server.counts().closed_write_timeout == 1));
    drop(task);
}

#[test]
fn a_message_that_we_receive_slowly_is_not_late() {
    let run = Run::new(3);
    let deadlines = Deadlines {
        idle_timeout: Some(SECOND),
        read_timeout: Some(SECOND),
        read_rate_min: 100_000,
        ..Deadlines::default()
    };
    let shaping = Shaping { receive: Some(SLOW), ..Shaping::default() };
    let received = Rc::<Cell<usize>>::default();
    let counted = received.clone();
    let serve = move |mut channel: tidegate_engine::Channel<Lines>| {
        let counted = counted.clone();
        async move {
            while let Some(line) = channel.recv().await? {
                counted.set(counted.get() + line.len());
            }
            Ok::<_, tidegate_engine::ChannelError>(())
        }
    };
    let lines = || Lines::new().with_line_bytes_max(1 << 20);
    let to = run.server.serve(7, Limits { deadlines, ..limits(shaping) }, lines, serve).expect("the port is free");
    let client = Client::at(to);
    let task = run.client.spawn(async move {
        let mut channel = client.connect(Lines::new().with_line_bytes_max(1 << 20)).await.expect("it listens");
        channel.send(vec![b'x'; 3_000].into()).expect("it is open");
        let sent = channel.send("y".into()).expect("it is open");
        // A part of a message: now the peer is late.
        channel.flushed(sent).await.expect("it is open");
        channel.recv().await
    });
    assert!(run.network.run_until(60 * SECOND, || received.get() == 3_001), "{:?}", run.server.counts());
    let elapsed = run.network.elapsed();
    assert!(elapsed > 24 * SECOND, "{elapsed:?}");
    assert_eq!(run.server.counts().closed_idle_timeout, 0);
    // From now on it is idle.
    assert!(run.network.run_until(3 * SECOND, || run.server.counts().closed_idle_timeout == 1));
    run.network.run_for(SECOND);
    assert!(task.is_finished());
}

#[test]
fn a_peer_that_stops_in_the_middle_of_a_message_is_late_although_it_is_shaped() {
    let run = Run::new(4);
    let deadlines = Deadlines { read_timeout: Some(SECOND), ..Deadlines::default() };
    let shaping = Shaping { receive: Some(SLOW), ..Shaping::default() };
    let to = run.server.serve(
        7,
        Limits { deadlines, ..limits(shaping) },
        || Lines::new().with_line_bytes_max(1 << 20),
        async |mut channel: tidegate_engine::Channel<Lines>| {
            while channel.recv().await?.is_some() {}
            Ok::<_, tidegate_engine::ChannelError>(())
        },
    );
    let client = Client::at(to.expect("the port is free"));
    let task = run.client.spawn(async move {
        let mut channel = client.connect(Raw).await.expect("it listens");
        let sent = channel.send(vec![b'x'; 900].into()).expect("it is open");
        channel.flushed(sent).await.expect("it is open");
        channel.recv().await
    });
    // The last of its bytes is received after about 5 s.
    run.network.run_for(6 * SECOND);
    assert_eq!(run.server.counts().closed_read_timeout, 0);
    run.network.run_for(4 * SECOND);
    assert_eq!(run.server.counts().closed_read_timeout, 1);
    assert!(task.is_finished());
}

#[test]
fn a_handshake_has_its_time_beside_that_in_which_we_hold_it_back() {
    let run = Run::new(5);
    let deadlines = Deadlines { handshake_timeout: Some(SECOND), ..Deadlines::default() };
    // The hello of a side alone takes longer.
    let rate = Rate::per_second(1).burst(1);
    let shaping = Shaping { receive: Some(rate), send: Some(rate), ..Shaping::default() };
    let to = run
        .server
        .serve(
            7,
            Limits { deadlines, ..limits(shaping) },
            || Over::new(ToyTls::server(7), Lines::new()),
            async |mut channel| {
                channel.recv().await?;
                Ok::<_, tidegate_engine::ChannelError>(())
            },
        )
        .expect("the port is free");
    let client = Client::at(to.clone());
    let task = run.client.spawn(async move {
        let mut channel = client.connect(Over::new(ToyTls::client(7), Lines::new())).await.expect("it listens");
        channel.send("hello".into()).expect("it is open");
        channel.recv().await
    });
    assert!(run.network.run_until(60 * SECOND, || task.is_finished()));
    assert!(run.network.elapsed() > 2 * SECOND);
    assert!(run.network.run_until(60 * SECOND, || run.server.counts().closed_done == 1), "{:?}", run.server.counts());
    assert_eq!(run.server.counts().closed_handshake_timeout, 0);
    // A peer that sends nothing is reset in time.
    let client = Client::at(to);
    let silent = run.client.spawn(async move {
        let mut channel = client.connect(Raw).await.expect("it listens");
        channel.recv().await
    });
    run.network.run_for(2 * SECOND + 100 * MILLISECOND);
    assert_eq!(run.server.counts().closed_handshake_timeout, 1);
    assert!(silent.is_finished());
}
