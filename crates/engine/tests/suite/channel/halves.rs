//! The halves of a channel: alone, together, and with halves of other channels.

use std::time::Duration;

use tidegate_codec::framing::{LengthField, Lines};
use tidegate_engine::{Channel, Limits, task};
use tidegate_testkit::Embedded;

use crate::channel::habits::Habits;
use crate::channel::support::{Place, Plain, Served, Stack, Toy, listen, marks, note};
use crate::journal::{Journal, once};

#[test]
fn two_tasks_with_a_half_each_do_not_block_each_other() {
    fn claim<S: Stack>(stack: S) {
        let journal = Journal::default();
        let notes = journal.clone();
        let serve = move |channel: Channel<S::C>| async move {
            let (mut reader, mut writer) = channel.split();
            let writing = task::spawn(async move {
                for _ in 0..100 {
                    if writer.ready().await.is_err() {
                        return false;
                    }
                    let mark = writer.send(vec![b'y'; 100].into()).expect("it was ready");
                    if writer.flushed(mark).await.is_err() {
                        return false;
                    }
                }
                true
            });
            while let Some(line) = reader.recv().await? {
                notes.note(line.escape_ascii().to_string());
            }
            notes.note(format!("{:?}", writing.await));
            Served::Ok(())
        };
        let mut pipe = Embedded::serving_with_limits(stack.codec(), serve, marks(1000, 500));
        pipe.limit_peer_reads(100);
        pipe.receive(&[stack.hello(), stack.say(b"one\n")].concat());
        pipe.receive(&stack.say(b"two\n"));
        assert_eq!(journal.take(), ["one", "two"], "it reads however much waits to be sent");
        pipe.limit_peer_reads(usize::MAX);
        assert_eq!(stack.decoded(&pipe.take_written()).len(), 101 * 100);
        pipe.receive(&stack.goodbye());
        pipe.receive_fin();
        assert_eq!(journal.take(), ["Ok(true)"]);
        assert!(pipe.is_closed());
    }
    claim(Plain);
    claim(Toy);
}

#[test]
fn halves_know_the_peer_the_drain_and_the_pending_bytes() {
    let journal = Journal::default();
    let notes = journal.clone();
    let mut pipe = Embedded::serving(Lines::new(), move |channel: Channel<Lines>| async move {
        let (peer, id) = (channel.peer()?, channel.id());
        let (mut reader, mut writer) = channel.split();
        assert_eq!([reader.peer()?, writer.peer()?], [peer.clone(), peer]);
        assert_eq!([reader.id(), writer.id()], [id, id]);
        assert!(!reader.is_draining() && writer.pending_bytes() == 0);
        writer.send("ebb".into())?;
        assert!(writer.pending_bytes() > 0);
        let end = reader.recv().await?;
        notes.note(format!("{end:?}, {}, {}", reader.is_draining(), writer.is_draining()));
        Served::Ok(())
    });
    pipe.drain(Duration::from_secs(10));
    assert_eq!(journal.take(), ["None, true, true"]);
    assert_eq!(pipe.take_written(), b"ebb\n");
}

#[test]
fn a_writer_that_has_nothing_to_send_learns_of_the_end() {
    let journal = Journal::default();
    let notes = journal.clone();
    let mut pipe = Embedded::serving(Lines::new(), move |channel: Channel<Lines>| async move {
        let (mut reader, mut writer) = channel.split();
        reader.set_deadline_after(Duration::from_secs(5));
        let reading = task::spawn(async move { reader.recv().await.map(drop).map_err(|error| error.to_string()) });
        notes.note(format!("{:?}", reading.await));
        notes.note(std::future::poll_fn(|cx| writer.poll_closed(cx)).await.to_string());
        Served::Ok(())
    });
    pipe.advance(Duration::from_secs(5));
    assert_eq!(journal.take().len(), 1);
    pipe.reset();
    assert_eq!(journal.take().len(), 1);
}

#[test]
fn a_writer_that_is_dropped_ends_our_side_and_the_reader_goes_on() {
    let journal = Journal::default();
    let notes = journal.clone();
    let mut pipe = Embedded::serving(Lines::new(), move |channel: Channel<Lines>| async move {
        let (mut reader, mut writer) = channel.split();
        writer.send("last".into())?;
        drop(writer);
        while let Some(line) = reader.recv().await? {
            notes.note(line.escape_ascii().to_string());
        }
        notes.note("end");
        Served::Ok(())
    });
    assert_eq!(pipe.take_written(), b"last\n");
    assert!(pipe.is_write_closed() && !pipe.is_closed());
    pipe.receive(b"one\n");
    pipe.receive_fin();
    assert_eq!(journal.take(), ["one", "end"]);
    assert!(pipe.is_closed());
}

#[test]
fn a_reader_that_is_dropped_receives_no_more_and_the_writer_goes_on() {
    let mut pipe = Embedded::serving(Lines::new(), |channel: Channel<Lines>| async move {
        let (mut reader, mut writer) = channel.split();
        assert!(once(reader.recv()).await.is_none());
        drop(reader);
        task::sleep(Duration::from_secs(1)).await;
        writer.send("still here".into())?;
        Served::Ok(())
    });
    assert!(!pipe.is_receiving());
    pipe.receive(b"unheard\n");
    pipe.advance(Duration::from_secs(1));
    assert_eq!(pipe.take_written(), b"still here\n");
    assert!(pipe.is_write_closed());
    assert_eq!(pipe.counts().messages, 0);
}

#[test]
fn halves_reunite_and_a_half_of_another_channel_is_returned() {
    let places = [Place::new(), Place::new()];
    let mut pipes = places.clone().map(|place| {
        Embedded::serving(Lines::new(), move |channel: Channel<Lines>| async move {
            place.put(channel.split());
            Served::Ok(())
        })
    });
    let [(reader_a, writer_a), (reader_b, writer_b)] = places.map(|place| place.take().expect("it is there"));
    let (reader_a, writer_b) = reader_a.reunite(writer_b).expect_err("they are strangers");
    let (reader_b, writer_a) = reader_b.reunite(writer_a).expect_err("they are strangers");
    let mut channel_a = reader_a.reunite(writer_a).expect("they are one channel's");
    let channel_b = reader_b.reunite(writer_b).expect("they are one channel's");
    channel_a.send("a".into()).expect("it is open");
    drop((channel_a, channel_b));
    pipes.iter_mut().for_each(Embedded::run);
    assert_eq!(pipes[0].take_written(), b"a\n");
    assert_eq!(pipes[1].take_written(), b"");
    assert!(pipes.iter().all(Embedded::is_write_closed));
}

#[test]
fn a_reunited_channel_can_be_switched_and_has_back_pressure_again() {
    let serve = |channel: Channel<Lines>| async move {
        let (mut reader, writer) = channel.split();
        assert_eq!(reader.recv().await?.as_deref(), Some(&b"one"[..]));
        let channel = reader.reunite(writer).expect("they are one channel's");
        let mut frames = channel.switch(|_| LengthField::new(2))?;
        while let Some(frame) = frames.recv().await? {
            frames.send(frame.into())?;
        }
        Served::Ok(())
    };
    let mut pipe = Embedded::serving_with_limits(Lines::new(), serve, marks(1000, 500));
    pipe.limit_peer_reads(0);
    pipe.receive(b"one\n");
    pipe.receive(&b"\0\x05tides".repeat(10_000));
    assert!(!pipe.is_receiving());
    pipe.limit_peer_reads(usize::MAX);
    assert_eq!(pipe.take_written().len(), 70_000);
}

#[test]
fn a_reader_whose_codec_replies_to_a_peer_that_does_not_read_stops_reading() {
    let serve = |channel: Channel<Habits>| async move {
        let (mut reader, writer) = channel.split();
        while reader.recv().await?.is_some() {}
        drop(writer);
        Served::Ok(())
    };
    let limits = Limits { write_timeout: Duration::from_secs(10), ..marks(1000, 500) };
    let mut pipe = Embedded::serving_with_limits(Habits::default(), serve, limits);
    pipe.limit_peer_reads(0);
    for _ in 0..1000 {
        pipe.receive(b"reply 1000\n");
    }
    assert!(!pipe.is_receiving());
    assert!(pipe.pool().ledger().used() < 200_000, "{}", pipe.pool().ledger().used());
    pipe.limit_peer_reads(usize::MAX);
    assert_eq!(pipe.take_written().len(), 1_000_000);
    pipe.receive_fin();
    assert!(pipe.is_closed() && !pipe.is_reset());
}

#[test]
fn a_half_that_is_dropped_by_a_panic_closes_the_whole() {
    let journal = Journal::default();
    let notes = journal.clone();
    let mut pipe = Embedded::serving(Lines::new(), move |channel: Channel<Lines>| async move {
        let (mut reader, writer) = channel.split();
        task::spawn(async move {
            let _writer = writer;
            task::sleep(Duration::from_secs(1)).await;
            panic!("on request");
        });
        note(&notes, &reader.recv().await);
        Served::Ok(())
    });
    pipe.advance(Duration::from_secs(1));
    pipe.receive_fin();
    assert_eq!(journal.take(), ["error: the handler panicked"]);
    assert_eq!((pipe.counts().closed_panicked, pipe.counts().tasks_panicked), (1, 1));
}

#[test]
fn messages_from_before_a_reset_are_received_by_the_reader() {
    let place = Place::new();
    let there = place.clone();
    let mut pipe = Embedded::serving(Lines::new(), move |mut channel: Channel<Lines>| async move {
        assert_eq!(channel.recv().await?.as_deref(), Some(&b"one"[..]));
        there.put(channel.split());
        Served::Ok(())
    });
    pipe.receive(b"one\ntwo\nthr");
    pipe.reset();
    let (reader, writer) = place.take().expect("it is there");
    let journal = Journal::default();
    let notes = journal.clone();
    let listening = pipe.spawn(async move {
        let channel = reader.reunite(writer).expect("they are one channel's");
        listen(notes, channel).await.is_ok()
    });
    assert!(listening.is_finished());
    let noted = journal.take();
    assert_eq!(noted[0], "two");
    assert!(noted[1].starts_with("error: the connection broke"), "{noted:?}");
}
