//! Sending: write positions, the caps, and peers that do not read.

use std::time::Duration;

use tidegate_codec::framing::{Lines, Payload};
use tidegate_engine::{Channel, Limits, SendError, task};
use tidegate_testkit::Embedded;

use crate::channel::support::{Place, Plain, Served, Stack, Toy, echo, marks};
use crate::journal::{Journal, once};

const SECOND: Duration = Duration::from_secs(1);

fn line(bytes: usize) -> Payload {
    vec![b'x'; bytes].into()
}

#[test]
fn messages_sent_before_a_task_waits_are_written_together() {
    let mut pipe = Embedded::serving(Lines::new(), |mut channel: Channel<Lines>| async move {
        channel.send("a".into())?;
        channel.send("b".into())?;
        assert!(channel.pending_bytes() > 0 && channel.is_writable());
        task::sleep(SECOND).await;
        assert_eq!(channel.pending_bytes(), 0);
        channel.send("c".into())?;
        Served::Ok(())
    });
    assert_eq!(pipe.take_written(), b"a\nb\n");
    pipe.advance(SECOND);
    assert_eq!(pipe.take_written(), b"c\n");
}

#[test]
fn past_the_hard_cap_the_message_comes_back() {
    let limits = marks(1000, 500);
    let mut pipe = Embedded::serving_with_limits(
        Lines::new(),
        |mut channel: Channel<Lines>| async move {
            let mut accepted = 0;
            let back = loop {
                match channel.send(line(100)) {
                    Ok(_) => accepted += 1,
                    Err(SendError::Full(message)) => break message,
                    Err(error) => return Err(error.into()),
                }
                assert!(accepted < 100);
            };
            assert!(matches!(&back, Payload::Bytes(bytes) if bytes.len() == 100));
            channel.ready().await?;
            assert!(channel.pending_bytes() < 500);
            channel.send(back)?;
            Served::Ok(())
        },
        limits,
    );
    let written = pipe.take_written();
    assert!(written.len() > 1000 && written.len() % 101 == 0 && pipe.is_write_closed(), "{}", written.len());
}

#[test]
fn a_codec_that_refuses_a_message_leaves_the_channel_as_it_was() {
    let mut pipe = Embedded::serving(Lines::new(), |mut channel: Channel<Lines>| async move {
        assert!(matches!(channel.send("two\nlines".into()), Err(SendError::Codec(_))));
        channel.send("one".into())?;
        Served::Ok(())
    });
    assert_eq!(pipe.take_written(), b"one\n");
}

#[test]
fn flushed_waits_for_the_kernel_and_can_be_repeated_after_a_drop() {
    fn claim(stack: impl Stack) {
        let journal = Journal::default();
        let notes = journal.clone();
        let mut pipe = Embedded::serving(stack.codec(), move |mut channel| async move {
            // Until then the peer takes everything.
            task::sleep(SECOND).await;
            let first = channel.send("ebb".into())?;
            let second = channel.send("flow".into())?;
            loop {
                if once(channel.flushed(first)).await.transpose()?.is_some() {
                    break;
                }
                let within = channel.flushed(first).within(Duration::from_millis(1)).await;
                if within.is_ok() {
                    break;
                }
            }
            notes.note("first");
            channel.flushed(second).await?;
            notes.note("second");
            channel.flushed(first).await?;
            Served::Ok(())
        });
        pipe.receive(&stack.hello());
        let greeting = pipe.take_written();
        pipe.limit_peer_reads(0);
        pipe.advance(SECOND * 2);
        assert!(journal.take().is_empty(), "the peer has taken nothing");
        pipe.limit_peer_reads(usize::MAX);
        pipe.advance(SECOND);
        assert_eq!(journal.take(), ["first", "second"]);
        assert_eq!(stack.decoded(&[greeting, pipe.take_written()].concat()), b"ebb\nflow\n");
    }
    claim(Plain);
    claim(Toy);
}

#[test]
fn ready_waits_for_the_peer_and_can_be_repeated_after_a_drop() {
    let mut pipe = Embedded::serving_with_limits(
        Lines::new(),
        |mut channel: Channel<Lines>| async move {
            for _ in 0..50 {
                while once(channel.ready()).await.transpose()?.is_none() {
                    let _ = task::timeout(Duration::from_millis(1), channel.ready()).await;
                }
                channel.send(line(100))?;
            }
            Served::Ok(())
        },
        marks(1000, 500),
    );
    let mut seen = pipe.take_written();
    for _ in 0..100 {
        pipe.limit_peer_reads(101);
        pipe.advance(Duration::from_millis(2));
        seen.extend(pipe.take_written());
    }
    assert_eq!(seen.len(), 50 * 101);
}

#[test]
fn flushed_fails_if_the_peer_resets() {
    let journal = Journal::default();
    let notes = journal.clone();
    let mut pipe = Embedded::serving(Lines::new(), move |mut channel: Channel<Lines>| async move {
        channel.recv().await?;
        let mark = channel.send("never".into())?;
        notes.note(format!("{:?}", channel.flushed(mark).await.is_err()));
        notes.note(format!("{:?}", channel.ready().await.is_err()));
        notes.note(format!("{:?}", matches!(channel.send("x".into()), Err(SendError::Closed(_)))));
        Served::Ok(())
    });
    pipe.limit_peer_reads(0);
    pipe.receive(b"go\n");
    pipe.reset();
    assert_eq!(journal.take(), ["true", "true", "true"]);
}

#[test]
fn an_echo_stops_receiving_until_its_peer_reads_again() {
    fn claim(stack: impl Stack) {
        let flood = b"0123456789abcdef\n".repeat(20_000);
        let mut pipe = Embedded::serving(stack.codec(), echo);
        pipe.receive(&stack.hello());
        pipe.limit_peer_reads(0);
        pipe.receive(&stack.say(&flood));
        assert!(!pipe.is_receiving());
        let used = pipe.pool().ledger().used();
        assert!(used < 400_000, "{used} bytes are in use");
        let mut seen = Vec::new();
        while seen.len() < 100_000_000 {
            pipe.limit_peer_reads(10_000);
            let more = pipe.take_written();
            seen.extend_from_slice(&more);
            if more.is_empty() {
                break;
            }
        }
        pipe.limit_peer_reads(usize::MAX);
        seen.extend(pipe.take_written());
        assert!(stack.decoded(&seen) == flood);
        assert!(pipe.is_receiving());
    }
    claim(Plain);
    claim(Toy);
}

#[test]
fn a_peer_that_takes_nothing_is_cut_off_and_the_task_gets_the_error() {
    let journal = Journal::default();
    let notes = journal.clone();
    let limits = Limits { write_timeout: Duration::from_secs(10), ..marks(1000, 500) };
    let mut pipe = Embedded::serving_with_limits(
        Lines::new(),
        move |mut channel: Channel<Lines>| async move {
            channel.recv().await?;
            let error = loop {
                if let Err(error) = channel.ready().await {
                    break error;
                }
                channel.send(line(100))?;
            };
            notes.note(error.to_string());
            Served::Ok(())
        },
        limits,
    );
    pipe.limit_peer_reads(0);
    pipe.receive(b"go\n");
    pipe.advance(Duration::from_secs(11));
    assert_eq!(journal.take().len(), 1);
    assert!(pipe.is_reset());
    assert_eq!(pipe.counts().closed_write_timeout, 1);
}

#[test]
fn an_unread_echo_ends_by_the_write_deadline() {
    let limits = Limits { write_timeout: Duration::from_secs(10), ..marks(1000, 500) };
    let mut pipe = Embedded::serving_with_limits(Lines::new(), echo, limits);
    pipe.limit_peer_reads(0);
    pipe.receive(&b"0123456789\n".repeat(1000));
    pipe.advance(Duration::from_secs(9));
    assert!(!pipe.is_closed());
    pipe.advance(Duration::from_secs(2));
    assert!(pipe.is_reset());
    assert_eq!(pipe.counts().closed_write_timeout, 1);
}

#[test]
fn after_shutdown_write_nothing_is_sent_and_receiving_goes_on() {
    fn claim(stack: impl Stack) {
        let journal = Journal::default();
        let notes = journal.clone();
        let mut pipe = Embedded::serving(stack.codec(), move |mut channel| async move {
            channel.send("last".into())?;
            channel.shutdown_write();
            assert!(matches!(channel.send("more".into()), Err(SendError::Closed(_))));
            assert!(channel.ready().await.is_err());
            while let Some(line) = channel.recv().await? {
                notes.note(line.escape_ascii().to_string());
            }
            Served::Ok(())
        });
        pipe.receive(&[stack.hello(), stack.say(b"one\n")].concat());
        assert!(pipe.is_write_closed() && !pipe.is_closed());
        pipe.receive(&[stack.say(b"two\n"), stack.goodbye()].concat());
        pipe.receive_fin();
        assert_eq!(journal.take(), ["one", "two"]);
        assert_eq!(stack.decoded(&pipe.take_written()), b"last\n");
        assert!(pipe.is_closed() && !pipe.is_reset());
    }
    claim(Plain);
    claim(Toy);
}

#[test]
fn a_channel_that_is_dropped_sends_its_queue_and_then_closes() {
    fn claim(stack: impl Stack) {
        let mut pipe = Embedded::serving(stack.codec(), |mut channel| async move {
            channel.recv().await?;
            for _ in 0..30 {
                channel.send(line(1_000))?;
            }
            Served::Ok(())
        });
        pipe.limit_peer_reads(1000);
        pipe.receive(&[stack.hello(), stack.say(b"go\n")].concat());
        assert!(!pipe.is_write_closed());
        pipe.limit_peer_reads(usize::MAX);
        assert!(pipe.is_write_closed() && !pipe.is_closed(), "the peer has a moment to end its side");
        assert_eq!(stack.decoded(&pipe.take_written()).len(), 30_030);
        pipe.receive_fin();
        assert!(pipe.is_closed() && !pipe.is_reset());
        assert_eq!(pipe.counts().closed_done, 1);
    }
    claim(Plain);
    claim(Toy);
}

#[test]
fn a_channel_that_is_dropped_with_bytes_queued_closes_by_the_deadline() {
    let limits = Limits { write_timeout: Duration::from_secs(10), ..Limits::default() };
    let mut pipe = Embedded::serving_with_limits(
        Lines::new(),
        |mut channel: Channel<Lines>| async move {
            channel.recv().await?;
            for _ in 0..30 {
                channel.send(line(1_000))?;
            }
            Served::Ok(())
        },
        limits,
    );
    pipe.limit_peer_reads(0);
    pipe.receive(b"go\n");
    pipe.advance(Duration::from_secs(11));
    assert!(pipe.is_reset());
}

#[test]
fn close_waits_for_the_end_and_returns_whether_all_was_sent() {
    for resets in [false, true] {
        let journal = Journal::default();
        let notes = journal.clone();
        let mut pipe = Embedded::serving(Lines::new(), move |mut channel: Channel<Lines>| async move {
            channel.recv().await?;
            channel.send("bye".into())?;
            notes.note(format!("closed {}", channel.close().await.is_ok()));
            Served::Ok(())
        });
        pipe.limit_peer_reads(0);
        pipe.receive(b"go\n");
        assert_eq!(journal.take(), [""; 0]);
        if resets {
            pipe.reset();
        }
        pipe.limit_peer_reads(usize::MAX);
        pipe.receive_fin();
        assert_eq!(journal.take(), [format!("closed {}", !resets)]);
    }
}

#[test]
fn dropping_the_close_future_still_closes() {
    let mut pipe = Embedded::serving(Lines::new(), |mut channel: Channel<Lines>| async move {
        channel.send("bye".into())?;
        assert!(once(channel.close()).await.is_none());
        task::sleep(Duration::from_secs(3600)).await;
        Served::Ok(())
    });
    assert_eq!(pipe.take_written(), b"bye\n");
    pipe.receive_fin();
    assert!(pipe.is_closed());
}

#[test]
fn a_task_error_is_the_close_reason_and_earlier_messages_are_sent() {
    let mut pipe = Embedded::serving(Lines::new(), |mut channel: Channel<Lines>| async move {
        channel.send("sorry".into())?;
        Served::Err("nothing works".into())
    });
    assert_eq!(pipe.take_written(), b"sorry\n");
    pipe.receive_fin();
    assert_eq!(pipe.counts().closed_failed, 1);
}

#[test]
fn a_channel_may_move_to_another_task() {
    let place = Place::new();
    let there = place.clone();
    let mut pipe = Embedded::serving(Lines::new(), move |mut channel: Channel<Lines>| async move {
        // It has waited here before.
        assert!(once(channel.recv()).await.is_none());
        there.put(channel);
        Served::Ok(())
    });
    let channel = place.take().expect("it is there");
    let echo = pipe.spawn(async { echo(channel).await.is_ok() });
    pipe.receive(b"ebb\n");
    assert_eq!(pipe.take_written(), b"ebb\n");
    pipe.receive_fin();
    assert!(echo.is_finished() && pipe.is_closed());
}

/// A task may keep the channel of a broken connection for as long as it likes.
#[test]
fn a_kept_channel_of_a_broken_connection_keeps_no_bytes_to_send() {
    let mut pipe = Embedded::serving(Lines::new(), |mut channel: Channel<Lines>| async move {
        channel.recv().await?;
        for _ in 0..50 {
            channel.send("x".repeat(2_000).into())?;
        }
        task::sleep(SECOND * 60).await;
        Served::Ok(())
    });
    pipe.limit_peer_reads(0);
    pipe.receive(b"go\n");
    assert!(pipe.pool().ledger().used() > 100_000);
    pipe.reset();
    assert!(pipe.is_closed());
    assert!(pipe.pool().ledger().used() < 100_000, "{}", pipe.pool().ledger().used());
}
