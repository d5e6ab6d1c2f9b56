//! Deadlines of the channel and of its codec, drains, and faults.

use std::time::Duration;

use tidegate_codec::framing::Lines;
use tidegate_engine::{Channel, ChannelError, Limits, SendError, task};
use tidegate_testkit::Embedded;

use crate::channel::habits::{Habits, PATIENCE};
use crate::channel::pairs::Pairs;
use crate::channel::support::{Plain, Served, Stack, Toy, listen, marks, note};
use crate::journal::{Journal, once};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn past_the_deadline_every_wait_fails_and_nothing_is_lost() {
    let journal = Journal::default();
    let notes = journal.clone();
    let serve = move |mut channel: Channel<Lines>| async move {
        channel.recv().await?;
        channel.set_deadline_after(SECOND * 5);
        note(&notes, &channel.recv().await);
        while channel.is_writable() {
            channel.send(vec![b'x'; 100].into())?;
        }
        notes.note(format!("{}", matches!(channel.ready().await, Err(ChannelError::Deadline))));
        let mark = channel.send("last".into())?;
        notes.note(format!("{}", matches!(channel.flushed(mark).await, Err(ChannelError::Deadline))));
        channel.set_deadline(None);
        channel.flushed(mark).await?;
        note(&notes, &channel.recv().await);
        Served::Ok(())
    };
    let mut pipe = Embedded::serving_with_limits(Lines::new(), serve, marks(1000, 500));
    pipe.limit_peer_reads(0);
    pipe.receive(b"go\nhal");
    pipe.advance(SECOND * 4);
    assert_eq!(journal.take(), [""; 0]);
    pipe.advance(SECOND);
    assert_eq!(journal.take(), ["error: the deadline has come", "true", "true"]);
    pipe.limit_peer_reads(usize::MAX);
    pipe.receive(b"f\n");
    assert_eq!(journal.take(), ["half"]);
}

/// Ticks are 32 bits wide, and wrap after 49 days.
#[test]
fn a_deadline_that_has_come_is_passed_for_ever() {
    let journal = Journal::default();
    let notes = journal.clone();
    let serve = move |mut channel: Channel<Lines>| async move {
        channel.recv().await?;
        channel.set_deadline_after(SECOND);
        for _ in 0..8 {
            note(&notes, &channel.recv().await);
            task::sleep(SECOND * 86_400 * 7).await;
        }
        Served::Ok(())
    };
    let mut pipe = Embedded::serving(Lines::new(), serve);
    pipe.receive(b"go\n");
    for _ in 0..8 {
        pipe.advance(SECOND * 86_400 * 7);
        assert_eq!(journal.take(), ["error: the deadline has come"]);
    }
}

/// A deadline that has passed stays passed; the loop must neither spin on it nor forget its other timers.
#[test]
fn a_deadline_that_has_come_lets_the_loop_sleep_and_other_timers_fire() {
    let limits = Limits { write_timeout: Duration::from_secs(10), ..marks(1000, 500) };
    let serve = |mut channel: Channel<Lines>| async move {
        channel.recv().await?;
        channel.set_deadline_after(SECOND);
        task::sleep(SECOND * 600).await;
        channel.send("never taken".into())?;
        task::sleep(SECOND * 600).await;
        Served::Ok(())
    };
    let mut pipe = Embedded::serving_with_limits(Lines::new(), serve, limits);
    pipe.receive(b"go\n");
    pipe.limit_peer_reads(0);
    let before = pipe.counts().turns;
    pipe.advance(SECOND * 599);
    assert!(pipe.counts().turns - before < 1000, "{} turns", pipe.counts().turns - before);
    pipe.advance(SECOND * 12);
    assert!(pipe.is_reset(), "the write deadline is ten seconds");
    assert_eq!(pipe.counts().closed_write_timeout, 1);
}

#[test]
fn the_deadline_outlives_a_switch() {
    let journal = Journal::default();
    let notes = journal.clone();
    let mut pipe = Embedded::serving(Lines::new(), move |mut channel: Channel<Lines>| async move {
        channel.set_deadline_after(SECOND);
        let mut switched = channel.switch(|lines| lines)?;
        note(&notes, &switched.recv().await);
        let mut again = switched.switch(|lines| lines)?;
        note(&notes, &again.recv().await);
        again.set_deadline(None);
        listen(notes, again).await
    });
    pipe.advance(SECOND);
    assert_eq!(journal.take(), ["error: the deadline has come", "error: the deadline has come"]);
    let before = pipe.counts().turns;
    pipe.advance(SECOND * 600);
    assert!(pipe.counts().turns - before < 1000);
    pipe.receive(b"ebb\n");
    assert_eq!(journal.take(), ["ebb"]);
}

#[test]
fn within_ends_one_wait_only_and_two_halves_have_their_own() {
    let journal = Journal::default();
    let (notes, others) = (journal.clone(), journal.clone());
    let serve = move |channel: Channel<Lines>| async move {
        let (mut reader, mut writer) = channel.split();
        while writer.is_writable() {
            writer.send(vec![b'x'; 100].into())?;
        }
        let writing = task::spawn(async move {
            others.note(format!("writer {:?}", writer.ready().within(SECOND * 3).await.is_err()));
            writer
        });
        for seconds in [1, 4] {
            let come = reader.recv().within(SECOND * seconds).await;
            notes.note(format!("reader {seconds} {}", matches!(come, Err(ChannelError::Deadline))));
        }
        note(&notes, &reader.recv().await);
        drop(writing.await);
        Served::Ok(())
    };
    let mut pipe = Embedded::serving_with_limits(Lines::new(), serve, marks(1000, 500));
    // The peer took all bytes that were sent first, and those that followed.
    assert!(pipe.is_receiving());
    pipe.advance(SECOND);
    assert!(journal.take().contains(&"reader 1 true".to_owned()));
    pipe.advance(SECOND * 4);
    assert!(journal.take().contains(&"reader 4 true".to_owned()));
    pipe.receive(b"ebb\n");
    assert_eq!(journal.take(), ["ebb"]);
}

fn timed(serve: impl AsyncFnOnce(Channel<Habits>) -> Served + 'static) -> Embedded<std::convert::Infallible> {
    Embedded::serving(Habits::default(), move |mut channel: Channel<Habits>| async move {
        let deadline = task::now() + PATIENCE;
        channel.with_codec(|codec| codec.deadline = Some(deadline))?;
        serve(channel).await
    })
}

#[test]
fn a_slow_peer_does_not_stretch_the_codecs_deadline() {
    let journal = Journal::default();
    let notes = journal.clone();
    let mut pipe = timed(async move |channel| listen(notes, channel).await);
    for _ in 0..9 {
        pipe.advance(SECOND);
        pipe.receive(b"x");
    }
    assert!(!pipe.is_write_closed());
    pipe.advance(SECOND);
    assert_eq!(pipe.take_written(), b"late\n");
    assert!(pipe.is_write_closed());
    assert_eq!(journal.take(), ["error: late"], "the reader gets the error before the close is over");
}

#[test]
fn a_slow_peer_does_not_stretch_the_tasks_own_timers() {
    for kind in 0..3 {
        let mut pipe = timed(async move |mut channel| {
            loop {
                let come = match kind {
                    0 => channel.recv().within(SECOND).await,
                    1 => task::timeout(SECOND, channel.recv()).await.unwrap_or(Err(ChannelError::Deadline)),
                    _ => {
                        channel.set_deadline_after(SECOND);
                        channel.recv().await
                    }
                };
                match come {
                    Err(ChannelError::Deadline) => {}
                    Err(_) => return Served::Ok(()),
                    Ok(_) => unreachable!("there is no message"),
                }
            }
        });
        for _ in 0..12 {
            pipe.advance(SECOND);
            pipe.receive(b"x");
        }
        assert_eq!(pipe.take_written(), b"late\n", "kind {kind}");
    }
}

#[test]
fn the_codecs_deadline_is_suspended_while_no_task_is_in_recv() {
    for kind in 0..3 {
        let mut pipe = timed(async move |mut channel| {
            match kind {
                0 => assert!(once(channel.recv()).await.is_none()),
                1 => assert!(channel.recv().within(SECOND).await.is_err()),
                _ => assert!(task::timeout(SECOND, channel.recv()).await.is_err()),
            }
            task::sleep(SECOND * 60).await;
            listen(Journal::default(), channel).await
        });
        pipe.advance(SECOND * 62);
        assert!(!pipe.is_write_closed(), "kind {kind}");
        pipe.advance(SECOND * 7);
        assert!(!pipe.is_write_closed(), "kind {kind}: its time began anew");
        pipe.advance(SECOND * 5);
        assert_eq!(pipe.take_written(), b"late\n", "kind {kind}");
    }
}

#[test]
fn a_drain_yields_none_once_and_recv_may_continue_after_it() {
    fn claim(stack: impl Stack) {
        let journal = Journal::default();
        let notes = journal.clone();
        let mut pipe = Embedded::serving(stack.codec(), move |mut channel| async move {
            while let Some(line) = channel.recv().await? {
                notes.note(line.escape_ascii().to_string());
            }
            notes.note(format!("draining {}", channel.is_draining()));
            listen(notes, channel).await
        });
        pipe.receive(&[stack.hello(), stack.say(b"one\ntw")].concat());
        pipe.drain(SECOND * 60);
        assert_eq!(journal.take(), ["one", "draining true"]);
        pipe.receive(&stack.say(b"o\n"));
        assert_eq!(journal.take(), ["two"]);
        pipe.receive(&stack.goodbye());
        pipe.receive_fin();
        assert_eq!(journal.take(), ["none"]);
        assert!(pipe.is_closed());
    }
    claim(Plain);
    claim(Toy);
}

#[test]
fn messages_that_have_arrived_come_before_the_none_of_a_drain() {
    let journal = Journal::default();
    let notes = journal.clone();
    let mut pipe = Embedded::serving(Lines::new(), move |mut channel: Channel<Lines>| async move {
        channel.recv().await?;
        task::sleep(SECOND).await;
        listen(notes, channel).await
    });
    pipe.receive(b"go\none\ntwo\nthr");
    pipe.drain(SECOND * 60);
    pipe.advance(SECOND);
    assert_eq!(journal.take(), ["one", "two", "none"]);
    assert!(pipe.is_write_closed());
}

#[test]
fn a_protocol_that_knows_its_end_is_left_to_find_it() {
    let journal = Journal::default();
    let notes = journal.clone();
    let codec = Habits { reports_finish: true, ..Habits::default() };
    let mut pipe = Embedded::serving(codec, |channel| listen(notes, channel));
    pipe.drain(SECOND * 60);
    pipe.receive(b"one\n");
    assert_eq!(journal.take(), ["one"]);
    pipe.receive(b"quit\n");
    assert_eq!(journal.take(), ["none"]);
    assert!(pipe.is_write_closed());
}

#[test]
fn the_deadline_of_a_drain_closes_and_notifies_remaining_channels() {
    let journal = Journal::default();
    let notes = journal.clone();
    let mut pipe = Embedded::serving(Lines::new(), move |mut channel: Channel<Lines>| async move {
        while channel.recv().await?.is_some() {}
        note(&notes, &channel.recv().await);
        task::sleep(SECOND * 3600).await;
        Served::Ok(())
    });
    pipe.drain(SECOND * 10);
    pipe.advance(SECOND * 9);
    assert!(!pipe.is_closed());
    pipe.advance(SECOND * 2);
    assert!(pipe.is_closed());
    assert_eq!(journal.take(), ["error: the deadline of the drain had come"]);
    assert!(pipe.is_drained(), "it does not wait for a task longer than that");
}

#[test]
fn a_channel_that_ignores_drains_goes_on_until_the_deadline() {
    let mut pipe = Embedded::serving(Lines::new(), |mut channel: Channel<Lines>| async move {
        channel.ignore_drain();
        while let Some(line) = channel.recv().await? {
            let answer = if channel.is_draining() { "draining".into() } else { line.into() };
            channel.send(answer)?;
        }
        Served::Ok(())
    });
    pipe.receive(b"one\n");
    pipe.drain(SECOND * 60);
    pipe.receive(b"two\n");
    assert_eq!(pipe.take_written(), b"one\ndraining\n");
    pipe.advance(SECOND * 59);
    assert!(!pipe.is_write_closed());
    pipe.advance(SECOND);
    assert!(pipe.is_closed());
}

#[test]
fn a_session_that_returns_a_channel_error_can_recv_and_send_with_it() {
    async fn session(mut channel: Channel<Lines>) -> Result<(), ChannelError> {
        let patience = SECOND * 10;
        while let Some(line) = channel.recv().within(patience).await? {
            let mark = channel.send(line.into())?;
            channel.flushed(mark).await?;
        }
        Ok(())
    }
    let mut pipe = Embedded::serving(Lines::new(), session);
    pipe.receive(b"ebb\n");
    assert_eq!(pipe.take_written(), b"ebb\n");
    pipe.advance(SECOND * 10);
    pipe.receive_fin();
    assert!(pipe.is_closed());
    assert_eq!((pipe.counts().closed_deadline, pipe.counts().closed_failed), (1, 0));
    let full: ChannelError = SendError::<_, std::convert::Infallible>::Full("a message").into();
    assert!(matches!(full, ChannelError::Full));
}

#[test]
fn a_drain_waits_for_the_tasks_that_serve() {
    let mut pipe = Embedded::serving(Lines::new(), |mut channel: Channel<Lines>| async move {
        while channel.recv().await?.is_some() {}
        drop(channel);
        task::sleep(SECOND * 5).await;
        Served::Ok(())
    });
    pipe.drain(SECOND * 60);
    pipe.receive_fin();
    assert!(pipe.is_closed() && !pipe.is_drained());
    pipe.advance(SECOND * 5);
    assert!(pipe.is_drained());
}

#[test]
fn a_peer_fault_is_an_error_and_the_codec_sends_its_final_bytes() {
    let journal = Journal::default();
    let notes = journal.clone();
    let mut pipe = Embedded::serving(Habits::default(), |channel| listen(notes, channel));
    pipe.receive(b"one\nerror\nunheard\n");
    assert_eq!(journal.take(), ["one", "error: refused"]);
    assert_eq!(pipe.take_written(), b"sorry\n");
    pipe.receive_fin();
    assert_eq!(pipe.counts().closed_protocol, 1);
}

#[test]
fn a_codec_that_panics_ends_its_connection_and_is_an_error_to_the_task() {
    let journal = Journal::default();
    let notes = journal.clone();
    let mut pipe = Embedded::serving(Habits::default(), |channel| listen(notes, channel));
    pipe.receive(b"one\npanic\n");
    assert_eq!(journal.take(), ["one", "error: the handler panicked"]);
    assert_eq!(pipe.take_written(), b"failed\n");
    pipe.receive_fin();
    assert_eq!((pipe.counts().closed_panicked, pipe.counts().tasks_panicked), (1, 0));

    let notes = journal.clone();
    let mut pipe = Embedded::serving(Habits::default(), move |mut channel: Channel<Habits>| async move {
        notes.note(format!("{}", matches!(channel.send("panic".into()), Err(SendError::Panicked))));
        notes.note(format!("{}", matches!(channel.send("more".into()), Err(SendError::Closed(_)))));
        Served::Ok(())
    });
    assert_eq!(journal.take(), ["true", "true"]);
    assert_eq!(pipe.take_written(), b"failed\n");
}

#[test]
fn a_task_that_fails_in_a_message_ended_by_the_close_cuts_it_off() {
    for panics in [false, true] {
        let codec = Habits { is_close_delimited: true, ..Habits::default() };
        let mut pipe = Embedded::serving(codec, move |mut channel: Channel<Habits>| async move {
            channel.send("half of it".into())?;
            let _ = channel.recv().await;
            assert!(!panics, "on request");
            Served::Err("nothing works".into())
        });
        pipe.receive(b"go\n");
        assert!(pipe.is_reset(), "or the peer would take it for a complete message");
        let counts = pipe.counts();
        assert_eq!((counts.closed_failed, counts.closed_panicked), (u64::from(!panics), u64::from(panics)));
    }
}

#[test]
fn a_protocol_that_finishes_while_halves_wait_wakes_them() {
    let journal = Journal::default();
    let (notes, others) = (journal.clone(), journal.clone());
    let serve = move |channel: Channel<Habits>| async move {
        let (mut reader, mut writer) = channel.split();
        task::spawn(async move {
            while writer.is_writable() {
                writer.send(vec![b'x'; 100].into()).expect("it is open");
            }
            others.note(format!("writer {}", writer.ready().await.is_err()));
        });
        note(&notes, &reader.recv().await);
        Served::Ok(())
    };
    let mut pipe = Embedded::serving_with_limits(Habits::default(), serve, marks(1000, 500));
    pipe.limit_peer_reads(0);
    pipe.receive(b"quit\n");
    assert!(journal.take().contains(&"none".to_owned()));
}

#[test]
fn a_handle_is_two_words() {
    assert_eq!(size_of::<Channel<Lines>>(), 16);
    assert_eq!(size_of::<tidegate_engine::ReadHalf<Lines>>(), 16);
    assert_eq!(size_of::<tidegate_engine::WriteHalf<Lines>>(), 16);
}

/// The peer has read a little, so its deadline is extended; that must not swallow the task's deadline in the same
/// tick.
#[test]
fn a_deadline_in_the_same_tick_as_a_progress_check_is_kept() {
    let journal = Journal::default();
    let notes = journal.clone();
    let limits = Limits { write_timeout: SECOND * 10, write_rate_min: 0, ..Limits::default() };
    let serve = move |mut channel: Channel<Lines>| async move {
        channel.recv().await?;
        channel.send("slowly".into())?;
        let come = channel.recv().within(SECOND * 10).await;
        notes.note(format!("{}", matches!(come, Err(ChannelError::Deadline))));
        Served::Ok(())
    };
    let mut pipe = Embedded::serving_with_limits(Lines::new(), serve, limits);
    pipe.limit_peer_reads(3);
    pipe.set_unacknowledged(3);
    pipe.receive(b"go\n");
    pipe.set_unacknowledged(2);
    pipe.advance(SECOND * 10);
    assert_eq!(journal.take(), ["true"]);
    assert!(!pipe.is_reset());
}

/// At a byte a second, ten in the time between two progress checks.
#[test]
fn a_peer_has_to_read_at_the_least_rate() {
    let limits = Limits { write_timeout: SECOND * 10, write_rate_min: 1, ..Limits::default() };
    let serve = move |mut channel: Channel<Lines>| async move {
        channel.recv().await?;
        channel.send("x".repeat(100).into())?;
        channel.recv().await?;
        Served::Ok(())
    };
    let mut pipe = Embedded::serving_with_limits(Lines::new(), serve, limits);
    pipe.limit_peer_reads(50);
    pipe.set_unacknowledged(50);
    pipe.receive(b"go\n");
    for unread in [40, 30] {
        pipe.set_unacknowledged(unread);
        pipe.advance(SECOND * 10);
        assert!(!pipe.is_reset(), "{unread}");
    }
    pipe.set_unacknowledged(21);
    pipe.advance(SECOND * 10);
    assert!(pipe.is_reset());
    assert_eq!(pipe.counts().closed_write_timeout, 1);
}

/// Once the kernel has room for a few more bytes it takes them, whether or not the system reports acknowledged bytes.
#[test]
fn bytes_that_the_kernel_takes_count_no_more_than_bytes_the_peer_reads() {
    for notifies in [true, false] {
        let limits = Limits { write_timeout: SECOND * 10, write_rate_min: 10, ..Limits::default() };
        let serve = move |mut channel: Channel<Lines>| async move {
            channel.recv().await?;
            channel.send("x".repeat(5_000).into())?;
            channel.recv().await?;
            Served::Ok(())
        };
        let mut pipe = Embedded::serving_with_limits(Lines::new(), serve, limits);
        pipe.limit_peer_reads(50);
        if notifies {
            pipe.set_unacknowledged(50);
        }
        pipe.receive(b"go\n");
        let mut lasts = |bytes| {
            let mut second = || {
                pipe.limit_peer_reads(bytes);
                pipe.advance(SECOND);
                !pipe.is_reset()
            };
            (0..100).take_while(|_| second()).count()
        };
        assert_eq!(lasts(10), 100, "at the least rate, {notifies}");
        assert!(lasts(9) < 20, "at less, {notifies}");
        assert_eq!(pipe.counts().closed_write_timeout, 1);
    }
}

/// Over sockets, in real time: a test cannot move the kernel's clock.
#[test]
fn two_ends_that_both_stop_reading_end_by_the_write_deadline() {
    let mut pairs = Pairs::new();
    let limits = Limits { write_timeout: Duration::from_millis(100), ..marks(1000, 500) };
    let ends = pairs.connected(&limits, Lines::new);
    let tasks = ends.map(|mut channel| {
        pairs.event_loop.spawn(async move {
            loop {
                // Each side writes and never reads, like an echo of an echo once both queues are full.
                if let Err(error) = channel.ready().await {
                    return error.closed().is_some_and(|reason| reason.blame().is_some());
                }
                channel.send(vec![b'x'; 1000].into()).expect("it was ready");
            }
        })
    });
    pairs.turn_until(|| tasks.iter().all(task::Task::is_finished));
    assert!(pairs.event_loop.counts().closed_write_timeout >= 1);
}
