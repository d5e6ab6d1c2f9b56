//! Switching to another codec: bytes that were read already, and failures.

use std::time::Duration;

use tidegate_codec::framing::{LengthField, Lines};
use tidegate_codec::{Over, Slice};
use tidegate_engine::{Channel, ChannelError, Context, Event, Handler, Outcome, SendError, task};
use tidegate_testkit::Embedded;
use tidegate_testkit::filters::ToyTls;

use crate::channel::pairs::Pairs;
use crate::channel::support::{KEY, Served, listen, note};
use crate::journal::{Journal, once};

/// The bytes of a peer that sends lines, then lines within a toy TLS, then lines again.
fn three_phases() -> Vec<u8> {
    [b"plain\nSTARTTLS\n", &ToyTls::client_wire(KEY, b"secret\nSTOP\n", 3)[..], b"plain again\n"].concat()
}

/// Lines, then a toy TLS until the peer's goodbye, then lines again.
async fn three(notes: Journal, mut lines: Channel<Lines>) -> Served {
    while let Some(line) = lines.recv().await? {
        notes.note(line.escape_ascii().to_string());
        let starts = &*line == b"STARTTLS";
        lines.send(line.into())?;
        if starts {
            break;
        }
    }
    let mut sealed = lines.switch(|lines| Over::new(ToyTls::server(KEY), lines))?;
    while let Some(line) = sealed.recv().await? {
        notes.note(line.escape_ascii().to_string());
        sealed.send(line.into())?;
    }
    // It ended with the filter; the bytes after the goodbye are plain.
    let lines = sealed.switch(|over| {
        let (_, lines, rest) = over.into_parts();
        assert!(rest.is_empty());
        lines
    })?;
    listen(notes, lines).await
}

#[test]
fn bytes_reach_the_codec_of_their_phase_at_every_split() {
    let wire = three_phases();
    for split in 0..=wire.len() + 1 {
        let journal = Journal::default();
        let notes = journal.clone();
        let mut pipe = Embedded::serving(Lines::new(), move |lines: Channel<Lines>| three(notes, lines));
        if split > wire.len() {
            pipe.receive_bytewise(&wire);
        } else {
            pipe.receive(&wire[..split]);
            pipe.receive(&wire[split..]);
        }
        pipe.receive_fin();
        let noted = journal.take();
        assert_eq!(noted, ["plain", "STARTTLS", "secret", "STOP", "plain again", "none"], "split at {split}");
        let written = pipe.take_written();
        assert!(written.starts_with(b"plain\nSTARTTLS\nTOY!"), "{}", written.escape_ascii());
    }
}

#[test]
fn lines_become_frames() {
    let wire = b"BINARY\n\0\x03ebb\0\x04flow";
    for split in 0..=wire.len() {
        let mut pipe = Embedded::serving(Lines::new(), |mut lines: Channel<Lines>| async move {
            lines.recv().await?;
            lines.send("OK".into())?;
            let mut frames = lines.switch(|_| LengthField::new(2))?;
            while let Some(frame) = frames.recv().await? {
                frames.send(frame.into())?;
            }
            Served::Ok(())
        });
        pipe.receive(&wire[..split]);
        pipe.receive(&wire[split..]);
        assert_eq!(pipe.take_written(), b"OK\n\0\x03ebb\0\x04flow", "split at {split}");
    }
}

#[test]
fn the_old_codecs_output_is_sent_first_even_if_the_peer_reads_late() {
    let mut pipe = Embedded::serving(Lines::new(), |mut lines: Channel<Lines>| async move {
        lines.recv().await?;
        lines.send("OK".into())?;
        let mut frames = lines.switch(|_| LengthField::new(2))?;
        let mark = frames.send("ebb".into())?;
        frames.flushed(mark).await?;
        frames.close().await?;
        Served::Ok(())
    });
    pipe.limit_peer_reads(0);
    pipe.receive(b"BINARY\n");
    pipe.limit_peer_reads(usize::MAX);
    pipe.receive_fin();
    assert_eq!(pipe.take_written(), b"OK\n\0\x03ebb");
    assert_eq!(pipe.counts().closed_done, 1);
}

#[test]
fn a_switch_whose_closure_panics_is_an_error_and_closes_the_connection() {
    let journal = Journal::default();
    let notes = journal.clone();
    let mut pipe = Embedded::serving(Lines::new(), move |mut lines: Channel<Lines>| async move {
        lines.recv().await?;
        match lines.switch(|_| -> LengthField { panic!("on request") }) {
            Ok(_) => notes.note("switched"),
            Err(error) => notes.note(error.to_string()),
        }
        Served::Ok(())
    });
    pipe.receive(b"BINARY\n");
    assert_eq!(journal.take(), ["the handler panicked"]);
    assert!(pipe.is_closed());
    let counts = pipe.counts();
    assert_eq!((counts.closed_panicked, counts.connections, counts.tasks_panicked), (1, 0, 0));
    pipe.drain(Duration::from_secs(1));
}

#[test]
fn a_closed_connection_can_be_switched_and_keeps_its_input() {
    let journal = Journal::default();
    let notes = journal.clone();
    let mut pipe = Embedded::serving(Lines::new(), move |mut lines: Channel<Lines>| async move {
        lines.recv().await?;
        task::sleep(Duration::from_secs(1)).await;
        let mut frames = lines.switch(|_| LengthField::new(2))?;
        note(&notes, &frames.recv().await);
        notes.note(format!("{:?}", matches!(frames.send("x".into()), Err(SendError::Closed(_)))));
        note(&notes, &frames.recv().await);
        Served::Ok(())
    });
    pipe.receive(b"BINARY\n\0\x03ebb\0\x04fl");
    pipe.reset();
    pipe.advance(Duration::from_secs(1));
    let noted = journal.take();
    assert_eq!(noted[..2], ["ebb", "true"]);
    assert!(noted[2].starts_with("error: the connection broke"), "{noted:?}");
}

#[test]
fn a_closed_connection_lost_in_a_switch_is_counted_once() {
    let journal = Journal::default();
    let notes = journal.clone();
    let mut pipe = Embedded::serving(Lines::new(), move |mut lines: Channel<Lines>| async move {
        lines.recv().await?;
        task::sleep(Duration::from_secs(1)).await;
        notes.note(format!("{}", lines.switch(|_| -> LengthField { panic!("on request") }).is_err()));
        Served::Ok(())
    });
    pipe.receive(b"BINARY\n");
    pipe.reset();
    pipe.advance(Duration::from_secs(1));
    assert_eq!(journal.take(), ["true"]);
    let counts = pipe.counts();
    assert_eq!((counts.connections, counts.closed_broken, counts.closed_panicked, counts.tasks_panicked), (0, 1, 0, 0));
    pipe.drain(Duration::from_secs(1));
}

#[test]
fn a_task_error_after_a_switch_is_the_close_reason() {
    let mut pipe = Embedded::serving(Lines::new(), |lines: Channel<Lines>| async move {
        let mut frames = lines.switch(|_| LengthField::new(2))?;
        frames.recv().await?;
        Served::Err("nothing works".into())
    });
    pipe.receive(b"\0\x03ebb");
    pipe.receive_fin();
    assert_eq!(pipe.counts().closed_failed, 1);
}

/// Lines until `BINARY`, then a channel.
struct Text(Journal);

impl Handler<Lines> for Text {
    type Post = ();

    fn message(&mut self, line: Slice, cx: &mut Context<'_, Lines>) -> Outcome<Lines> {
        let notes = self.0.clone();
        match &*line {
            b"BINARY" => {
                drop(cx.send("OK".into()));
                Outcome::channel(|_| LengthField::new(2), |channel| listen(notes, channel))
            }
            b"PANIC" => Outcome::channel(|_| -> LengthField { panic!("on request") }, |channel| listen(notes, channel)),
            b"FAIL" => Outcome::channel(|_| LengthField::new(2), |_| async { Served::Err("no".into()) }),
            _ => Outcome::Continue,
        }
    }

    fn event(&mut self, event: Event<()>, cx: &mut Context<'_, Lines>) -> Outcome<Lines> {
        match event {
            Event::Drain => Outcome::Continue,
            event => event.by_default(cx),
        }
    }
}

#[test]
fn a_handler_hands_its_connection_to_a_channel_with_the_bytes_that_follow() {
    let wire = b"text\nBINARY\n\0\x03ebb\0\x04flow";
    for split in 0..=wire.len() {
        let journal = Journal::default();
        let mut pipe = Embedded::new(Lines::new(), Text(journal.clone()));
        pipe.receive(&wire[..split]);
        pipe.receive(&wire[split..]);
        pipe.receive_fin();
        assert_eq!(journal.take(), ["ebb", "flow", "none"], "split at {split}");
        assert_eq!(pipe.take_written(), b"OK\n");
        assert!(pipe.is_closed() && !pipe.is_reset());
    }
}

#[test]
fn a_hand_over_that_panics_or_whose_task_fails_ends_the_connection() {
    for (line, failed, panicked) in [(&b"PANIC\n"[..], 0, 1), (b"FAIL\n", 1, 0)] {
        let mut pipe = Embedded::new(Lines::new(), Text(Journal::default()));
        pipe.receive(line);
        pipe.receive_fin();
        assert!(pipe.is_closed());
        let counts = pipe.counts();
        assert_eq!((counts.closed_failed, counts.closed_panicked, counts.connections), (failed, panicked, 0));
    }
}

#[test]
fn a_channel_that_begins_during_a_drain_is_notified_of_it() {
    let journal = Journal::default();
    let mut pipe = Embedded::new(Lines::new(), Text(journal.clone()));
    pipe.drain(Duration::from_secs(60));
    pipe.receive(b"BINARY\n\0\x03ebb");
    assert_eq!(journal.take(), ["ebb", "none"]);
    assert!(pipe.is_write_closed());
}

#[test]
fn a_channel_that_a_handler_uses_returns_busy() {
    struct Meddler(Option<Channel<Lines>>, Journal);

    impl Handler<Lines> for Meddler {
        type Post = ();

        fn message(&mut self, line: Slice, _: &mut Context<'_, Lines>) -> Outcome<Lines> {
            let mut channel = self.0.take().expect("there is one");
            self.1.note(format!("{}", matches!(channel.send(line.into()), Err(SendError::Busy(_)))));
            self.1.note(format!("{}", matches!(channel.with_codec(|_| ()), Err(ChannelError::Busy))));
            // Dropped here, within the dispatch; it is closed as soon as that is over.
            Outcome::Continue
        }
    }

    let journal = Journal::default();
    let mut pairs = Pairs::new();
    let (channel, mut peer) = pairs.open(Lines::new());
    let mut other = pairs.adopt(Lines::new(), Meddler(Some(channel), journal.clone()));
    other.say(b"x\n");
    pairs.turn_until(|| journal.len() == 2);
    assert_eq!(journal.take(), ["true", "true"]);
    pairs.turn_until(|| peer.has_ended());
}

#[test]
fn with_codec_reads_and_changes_the_codec() {
    let mut pipe = Embedded::serving(Lines::new(), |mut channel: Channel<Lines>| async move {
        channel.recv().await?;
        channel.with_codec(|lines| *lines = Lines::new().with_crlf())?;
        channel.send("ebb".into())?;
        assert!(channel.with_codec(|_| -> () { panic!("on request") }).is_err());
        assert!(once(channel.recv()).await.expect("it is over").is_err());
        Served::Ok(())
    });
    pipe.receive(b"go\n");
    assert_eq!(pipe.take_written(), b"ebb\r\n");
    pipe.receive_fin();
    assert_eq!(pipe.counts().closed_panicked, 1);
}

/// Answers lines with their number. A task answers `LATER` and everything until a line with `BACK`.
struct Numbering(u32);

impl Handler<Lines> for Numbering {
    type Post = ();

    fn open(&mut self, cx: &mut Context<'_, Lines>) -> Outcome<Lines> {
        cx.deadline_after(Duration::from_secs(60));
        Outcome::Continue
    }

    fn message(&mut self, line: Slice, cx: &mut Context<'_, Lines>) -> Outcome<Lines> {
        self.0 += 1;
        let number = self.0;
        if &*line == b"LATER" {
            return Outcome::into_channel(move |channel| number_later(channel, number));
        }
        cx.send(format!("{number} {}", line.escape_ascii()).into()).into()
    }
}

async fn number_later(mut channel: Channel<Lines>, mut number: u32) -> Served {
    channel.send(format!("{number} task").into())?;
    while let Some(line) = channel.recv().await? {
        number += 1;
        channel.send(format!("{number} {}", line.escape_ascii()).into())?;
        if &*line == b"BACK" {
            return Ok(channel.into_handler(Numbering(number))?);
        }
    }
    Ok(())
}

#[test]
fn a_handler_and_a_task_take_turns_at_every_split() {
    let wire = b"a\nLATER\nb\nBACK\nc\nLATER\nBACK\nd\n";
    let answer = b"1 a\n2 task\n3 b\n4 BACK\n5 c\n6 task\n7 BACK\n8 d\n";
    for split in 0..=wire.len() + 1 {
        let mut pipe = Embedded::new(Lines::new(), Numbering(0));
        if split > wire.len() {
            pipe.receive_bytewise(wire);
        } else {
            pipe.receive(&wire[..split]);
            pipe.receive(&wire[split..]);
        }
        assert_eq!(
            pipe.take_written().escape_ascii().to_string(),
            answer.escape_ascii().to_string(),
            "split at {split}"
        );
        pipe.receive_fin();
        assert!(pipe.is_closed(), "the handler ends with its peer, split at {split}");
        assert_eq!(pipe.counts().connections, 0);
    }
}

#[test]
fn a_handler_is_not_taken_by_a_connection_that_is_gone() {
    let mut pipe = Embedded::serving(Lines::new(), |mut channel: Channel<Lines>| async move {
        let gone = channel.recv().await;
        assert!(matches!(gone, Err(ChannelError::Closed(_))), "{gone:?}");
        assert!(matches!(channel.into_handler(Numbering(0)), Err(ChannelError::Closed(_))));
        Served::Ok(())
    });
    pipe.reset();
    assert!(pipe.is_closed());
    assert_eq!(pipe.counts().connections, 0);
    pipe.drain(Duration::from_secs(1));
    assert!(pipe.is_drained());
}

#[test]
fn a_handler_takes_a_connection_that_drains() {
    let mut pipe = Embedded::new(Lines::new(), Numbering(0));
    pipe.receive(b"LATER\n");
    pipe.drain(Duration::from_secs(10));
    assert_eq!(pipe.take_written(), b"1 task\n");
    assert!(pipe.is_write_closed(), "the drain ends the messages of a task");
}

#[test]
fn the_queue_of_a_task_leaves_before_the_messages_of_the_handler_to_a_slow_reader() {
    let mut pipe = Embedded::new(Lines::new(), Numbering(0));
    pipe.limit_peer_reads(3);
    pipe.receive(b"LATER\nBACK\na\n");
    assert_eq!(pipe.take_written(), b"1 t");
    pipe.limit_peer_reads(usize::MAX);
    assert_eq!(pipe.take_written(), b"ask\n2 BACK\n3 a\n");
}
