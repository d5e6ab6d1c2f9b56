//! Receiving: no message is lost, and every way to end.

use std::time::Duration;

use tidegate_codec::framing::Lines;
use tidegate_engine::{Channel, ChannelError, task};
use tidegate_testkit::Embedded;

use crate::channel::support::{Plain, SCRATCH_BYTES, Served, Stack, Toy, echo, listen, note};
use crate::journal::{Journal, once};

const MOMENT: Duration = Duration::from_millis(1);

#[test]
fn messages_come_in_order_whatever_the_pieces() {
    fn claim(stack: impl Stack) {
        let wire = [stack.hello(), stack.say(b"one\ntwo\n\nfour\n"), stack.goodbye()].concat();
        for split in 0..=wire.len() {
            let journal = Journal::default();
            let notes = journal.clone();
            let mut pipe = Embedded::serving(stack.codec(), |channel| listen(notes, channel));
            pipe.receive(&wire[..split]);
            pipe.receive(&wire[split..]);
            pipe.receive_fin();
            assert_eq!(journal.take(), ["one", "two", "", "four", "none"], "split at {split}");
            assert!(pipe.is_closed());
            assert!(pipe.pool().ledger().used() <= SCRATCH_BYTES);
        }
    }
    claim(Plain);
    claim(Toy);
}

/// Every `recv` is dropped after a moment, by a timeout, by its own deadline or after one poll, and the input is split
/// everywhere.
#[test]
fn dropping_a_recv_future_loses_no_message() {
    fn claim(stack: impl Stack) {
        let wire = [stack.hello(), stack.say(b"one\ntwo\n\nfour\n"), stack.goodbye()].concat();
        for (kind, split) in (0..4).flat_map(|kind| (0..=wire.len()).map(move |split| (kind, split))) {
            let journal = Journal::default();
            let notes = journal.clone();
            let mut pipe = Embedded::serving(stack.codec(), move |mut channel| async move {
                let mut polls = 0;
                loop {
                    polls += 1;
                    let come = match (kind, polls % 2) {
                        (0, _) | (3, 0) => task::timeout(MOMENT, channel.recv()).await.ok(),
                        (1, _) => match channel.recv().within(MOMENT).await {
                            Err(ChannelError::Deadline) => None,
                            come => Some(come),
                        },
                        (2, 0) => {
                            let nested = task::timeout(MOMENT, task::timeout(MOMENT * 2, channel.recv())).await;
                            nested.ok().map(|inner| inner.expect("the outer one is sooner"))
                        }
                        _ => once(channel.recv()).await,
                    };
                    let Some(come) = come else { continue };
                    note(&notes, &come);
                    if !matches!(come, Ok(Some(_))) {
                        return Served::Ok(());
                    }
                }
            });
            pipe.receive(&wire[..split]);
            pipe.advance(MOMENT);
            pipe.advance(MOMENT);
            pipe.receive(&wire[split..]);
            pipe.advance(MOMENT);
            pipe.receive_fin();
            pipe.advance(MOMENT * 4);
            assert_eq!(journal.take(), ["one", "two", "", "four", "none"], "split at {split}, kind {kind}");
        }
    }
    claim(Plain);
    claim(Toy);
}

#[test]
fn nothing_is_received_while_no_task_waits() {
    let mut pipe = Embedded::serving(Lines::new(), |mut channel: Channel<Lines>| async move {
        let first = channel.recv().await?;
        assert_eq!(first.as_deref(), Some(&b"one"[..]));
        task::sleep(Duration::from_secs(5)).await;
        let second = once(channel.recv()).await;
        assert_eq!(second.expect("it has come with the first")?.as_deref(), Some(&b"two"[..]));
        assert!(once(channel.recv()).await.is_none());
        task::sleep(Duration::from_secs(5)).await;
        Served::Ok(())
    });
    assert!(pipe.is_receiving());
    pipe.receive(b"one\ntwo\nthr");
    assert!(!pipe.is_receiving(), "no task is in recv");
    pipe.advance(Duration::from_secs(5));
    assert!(!pipe.is_receiving(), "the task in recv has ended");
    assert_eq!(pipe.counts().closed_panicked, 0);
}

#[test]
fn an_adapter_polls_without_a_future_of_its_own() {
    let mut pipe = Embedded::serving(Lines::new(), |mut channel: Channel<Lines>| async move {
        while let Some(line) = std::future::poll_fn(|cx| channel.poll_recv(cx)).await? {
            channel.send(line.into())?;
        }
        Served::Ok(())
    });
    pipe.receive_bytewise(b"ebb\nflow\n");
    assert_eq!(pipe.take_written(), b"ebb\nflow\n");
    pipe.receive_fin();
    assert!(pipe.is_closed());
}

#[test]
fn messages_from_before_a_reset_are_received_before_its_error() {
    fn claim(stack: impl Stack) {
        let journal = Journal::default();
        let notes = journal.clone();
        let mut pipe = Embedded::serving(stack.codec(), move |mut channel| async move {
            let come = channel.recv().await;
            note(&notes, &come);
            task::sleep(Duration::from_secs(1)).await;
            listen(notes.clone(), channel).await
        });
        pipe.receive(&[stack.hello(), stack.say(b"one\ntwo\nthree\nhal")].concat());
        pipe.reset();
        assert!(pipe.is_closed());
        assert_eq!(pipe.counts().connections, 0);
        pipe.advance(Duration::from_secs(1));
        let noted = journal.take();
        assert_eq!(noted[..3], ["one", "two", "three"]);
        assert!(noted[3].starts_with("error: the connection broke"), "{noted:?}");
        assert_eq!(noted.len(), 4);
        assert!(pipe.pool().ledger().used() <= SCRATCH_BYTES, "something is left");
    }
    claim(Plain);
    claim(Toy);
}

#[test]
fn both_halves_get_the_error_of_a_reset() {
    let journal = Journal::default();
    let (notes, others) = (journal.clone(), journal.clone());
    let mut pipe = Embedded::serving(Lines::new(), move |channel: Channel<Lines>| async move {
        let (mut reader, mut writer) = channel.split();
        let writing = task::spawn(async move {
            task::sleep(Duration::from_secs(1)).await;
            others.note(format!("ready {}", writer.ready().await.is_err()));
            others.note(format!("send {}", writer.send("x".into()).is_err()));
        });
        task::sleep(Duration::from_secs(1)).await;
        for _ in 0..2 {
            note(&notes, &reader.recv().await);
        }
        writing.await.expect("it is fine");
        Served::Ok(())
    });
    pipe.receive(b"");
    pipe.reset();
    pipe.advance(Duration::from_secs(1));
    let noted = journal.take();
    assert_eq!(noted.iter().filter(|line| line.starts_with("error: the connection broke")).count(), 2, "{noted:?}");
    assert!(noted.contains(&"ready true".to_owned()) && noted.contains(&"send true".to_owned()), "{noted:?}");
}

#[test]
fn an_end_within_a_message_is_an_error() {
    let journal = Journal::default();
    let notes = journal.clone();
    let mut pipe = Embedded::serving(Lines::new(), |channel| listen(notes, channel));
    pipe.receive(b"one\nhal");
    pipe.receive_fin();
    let noted = journal.take();
    assert_eq!(noted[0], "one");
    assert!(noted[1].starts_with("error: "), "{noted:?}");
    assert_eq!(pipe.counts().closed_protocol, 1);
}

#[test]
fn every_recv_after_the_end_returns_none() {
    let mut pipe = Embedded::serving(Lines::new(), |mut channel: Channel<Lines>| async move {
        assert!(channel.recv().await?.is_none());
        assert!(channel.recv().await?.is_none());
        channel.send("and yet it sends".into())?;
        Served::Ok(())
    });
    pipe.receive_fin();
    assert_eq!(pipe.take_written(), b"and yet it sends\n");
    assert!(pipe.is_closed() && !pipe.is_reset());
    assert_eq!(pipe.counts().closed_done, 1);
}

#[test]
fn a_paused_channel_takes_nothing_and_loses_nothing_on_resume() {
    let mut pipe = Embedded::serving(Lines::new(), |mut channel: Channel<Lines>| async move {
        channel.pause();
        assert!(task::timeout(Duration::from_secs(1), channel.recv()).await.is_err());
        channel.resume();
        echo(channel).await
    });
    pipe.receive(b"ebb\nflow\n");
    assert!(!pipe.is_receiving());
    assert_eq!(pipe.take_written(), b"");
    pipe.advance(Duration::from_secs(1));
    assert_eq!(pipe.take_written(), b"ebb\nflow\n");
}

#[test]
fn a_flood_is_taken_in_whole() {
    let mut pipe = Embedded::serving(Lines::new(), echo);
    let flood = b"x\n".repeat(100_000);
    pipe.receive(&flood);
    assert!(pipe.take_written() == flood);
    assert_eq!(pipe.counts().messages, 100_000);
}
