//! How streams end: half-closed, reset, drained, by a deadline, dropped.

use std::io::ErrorKind;
use std::time::Duration;

use tidegate_codec::Blame;
use tidegate_compat::{ByteStream, StreamError};
use tidegate_engine::{Channel, CloseReason, task};
use tidegate_testkit::Embedded;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::byte_stream::support::{Journal, Plain, Served, Stack, Toy, marks};

#[test]
fn after_the_peers_end_the_stream_still_writes() {
    fn claim<S: Stack>(stack: S) {
        let mut pipe = Embedded::serving(stack.pipeline(), |channel: Channel<S::P>| async move {
            let mut stream = ByteStream::new(channel);
            let mut request = Vec::new();
            stream.read_to_end(&mut request).await?;
            for _ in 0..10 {
                stream.write_all(&request).await?;
                task::sleep(Duration::from_secs(1)).await;
            }
            Served::Ok(())
        });
        pipe.receive(&stack.wire(b"flow "));
        pipe.receive_fin();
        pipe.advance(Duration::from_secs(20));
        assert_eq!(stack.plain(&pipe.take_written()), b"flow ".repeat(10));
        assert!(pipe.is_closed() && !pipe.is_reset());
    }
    claim(Plain);
    claim(Toy);
}

#[test]
fn after_its_shutdown_the_stream_still_reads_and_writes_no_more() {
    let journal = Journal::default();
    let notes = journal.clone();
    let mut pipe = Embedded::serving(Plain.pipeline(), move |channel| async move {
        let mut stream = ByteStream::new(channel);
        stream.write_all(b"the question").await?;
        stream.shutdown().await?;
        notes.note("shut down");
        stream.shutdown().await?;
        let error = stream.write(b"more").await.expect_err("our side has ended");
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        notes.note(answer);
        stream.flush().await?;
        Served::Ok(())
    });
    assert_eq!(journal.take(), ["shut down"]);
    assert_eq!(pipe.take_written(), b"the question");
    assert!(pipe.is_write_closed() && !pipe.is_closed());
    pipe.receive(b"the ans");
    pipe.receive(b"wer");
    pipe.receive_fin();
    assert_eq!(journal.take(), ["the answer"]);
    assert!(pipe.is_closed() && !pipe.is_reset());
}

#[test]
fn a_shutdown_waits_until_everything_is_sent() {
    let journal = Journal::default();
    let notes = journal.clone();
    let mut pipe = Embedded::serving(Plain.pipeline(), move |channel| async move {
        let mut stream = ByteStream::new(channel);
        stream.read_exact(&mut [0]).await?;
        stream.write_all(&[b'q'; 3000]).await?;
        stream.shutdown().await?;
        notes.note("shut down");
        stream.read_to_end(&mut Vec::new()).await?;
        Served::Ok(())
    });
    pipe.limit_peer_reads(0);
    pipe.receive(b"!");
    assert!(journal.take().is_empty() && !pipe.is_write_closed());
    pipe.limit_peer_reads(usize::MAX);
    pipe.run();
    assert_eq!(journal.take(), ["shut down"]);
    assert_eq!(pipe.take_written().len(), 3000);
    assert!(pipe.is_write_closed());
}

#[test]
fn a_reset_is_an_error_of_both_directions_after_the_bytes_that_had_arrived() {
    let journal = Journal::default();
    let notes = journal.clone();
    let mut pipe = Embedded::serving(Plain.pipeline(), move |channel| async move {
        let mut stream = ByteStream::new(channel);
        stream.read_exact(&mut [0; 3]).await?;
        task::sleep(Duration::from_secs(1)).await;
        let mut rest = Vec::new();
        let error = stream.read_to_end(&mut rest).await.expect_err("a reset");
        notes.note(format!("{} then {:?}", String::from_utf8(rest)?, error.kind()));
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<StreamError>()).expect("a reason");
        assert_eq!(inner.blame(), Some(Blame::Peer));
        assert!(matches!(stream.close_reason(), Some(CloseReason::Broken(_))));
        let kinds = [stream.write(b"x").await.map(drop), stream.flush().await, stream.shutdown().await];
        notes.note(format!("{:?}", kinds.map(|result| result.map_err(|error| error.kind()))));
        Served::Ok(())
    });
    pipe.receive(b"ebb and flow");
    pipe.reset();
    pipe.advance(Duration::from_secs(1));
    assert_eq!(
        journal.take(),
        [" and flow then ConnectionReset", "[Err(ConnectionReset), Err(ConnectionReset), Err(ConnectionReset)]"]
    );
}

#[test]
fn a_reset_wakes_a_task_that_waits_to_write_and_its_bytes_are_not_reported_as_sent() {
    let journal = Journal::default();
    let notes = journal.clone();
    let serve = move |channel| async move {
        let mut stream = ByteStream::new(channel);
        stream.read_exact(&mut [0]).await?;
        stream.write_all(&[b'x'; 500]).await?;
        let flushed = stream.flush().await.map_err(|error| error.kind());
        notes.note(format!("{flushed:?}"));
        Served::Ok(())
    };
    let mut pipe = Embedded::serving_with_limits(Plain.pipeline(), serve, marks(1000, 500));
    pipe.limit_peer_reads(0);
    pipe.receive(b"!");
    pipe.reset();
    assert!(matches!(&journal.take()[..], [only] if only == "Err(ConnectionReset)"));
}

#[test]
fn a_drain_does_not_end_a_stream_and_its_deadline_does() {
    let journal = Journal::default();
    let notes = journal.clone();
    let mut pipe = Embedded::serving(Plain.pipeline(), move |channel| async move {
        let mut stream = ByteStream::new(channel);
        let mut buffer = [0; 10];
        loop {
            let read = stream.read(&mut buffer).await.map_err(|error| error.kind());
            notes.note(format!("{read:?}, draining: {}", stream.is_draining()));
            if !matches!(read, Ok(1..)) {
                return Served::Ok(());
            }
        }
    });
    pipe.receive(b"one");
    pipe.drain(Duration::from_secs(10));
    pipe.receive(b"more");
    assert_eq!(journal.take(), ["Ok(3), draining: false", "Ok(4), draining: true"]);
    pipe.advance(Duration::from_secs(10));
    assert_eq!(journal.take(), ["Err(ConnectionAborted), draining: true"]);
}

#[test]
fn a_deadline_is_an_error_after_which_the_stream_goes_on() {
    let journal = Journal::default();
    let notes = journal.clone();
    let mut pipe = Embedded::serving(Plain.pipeline(), move |channel| async move {
        let mut stream = ByteStream::new(channel);
        stream.set_deadline(Some(task::now() + Duration::from_secs(5)));
        let error = stream.read(&mut [0; 10]).await.expect_err("no byte comes");
        notes.note(format!("{:?}", error.kind()));
        stream.set_deadline(None);
        notes.note(format!("{}", stream.read(&mut [0; 10]).await?));
        Served::Ok(())
    });
    pipe.advance(Duration::from_secs(5));
    pipe.receive(b"late");
    assert_eq!(journal.take(), ["TimedOut", "4"]);
}

#[test]
fn a_peer_that_reads_nothing_is_an_error_after_the_write_timeout() {
    let journal = Journal::default();
    let notes = journal.clone();
    let serve = move |channel| async move {
        let mut stream = ByteStream::new(channel);
        stream.read_exact(&mut [0]).await?;
        let error = stream.write_all(&[b'x'; 10_000]).await.expect_err("the peer reads nothing");
        notes.note(format!("{:?}", error.kind()));
        Served::Ok(())
    };
    let mut pipe = Embedded::serving_with_limits(Plain.pipeline(), serve, marks(1000, 500));
    pipe.limit_peer_reads(0);
    pipe.receive(b"!");
    pipe.advance(Duration::from_secs(200));
    assert_eq!(journal.take(), ["TimedOut"]);
    assert!(pipe.is_reset());
}

#[test]
fn a_truncated_stream_of_a_filter_is_invalid_data_and_not_an_end() {
    let journal = Journal::default();
    let notes = journal.clone();
    let mut pipe = Embedded::serving(Toy.pipeline(), move |channel| async move {
        let mut stream = ByteStream::new(channel);
        let mut all = Vec::new();
        let error = stream.read_to_end(&mut all).await.expect_err("no goodbye");
        notes.note(format!("{} {:?}", String::from_utf8(all)?, error.kind()));
        Served::Ok(())
    });
    let wire = Toy.wire(b"ebb");
    pipe.receive(&wire[..wire.len() - 2]);
    pipe.receive_fin();
    assert_eq!(journal.take(), ["ebb InvalidData"]);
}

#[test]
fn an_error_of_the_task_or_an_abort_resets_and_a_drop_closes_in_good_order() {
    let serve = |channel| async move {
        ByteStream::new(channel).write_all(b"half").await?;
        Err::<(), Box<dyn std::error::Error>>("the source failed".into())
    };
    let mut pipe = Embedded::serving(Plain.pipeline(), serve);
    pipe.run();
    assert!(pipe.is_reset());

    let mut pipe = Embedded::serving(Plain.pipeline(), |channel| async move {
        ByteStream::new(channel).abort();
        Served::Ok(())
    });
    pipe.run();
    assert!(pipe.is_reset());

    let mut pipe = Embedded::serving(Plain.pipeline(), |channel| async move {
        ByteStream::new(channel).write_all(b"all").await?;
        Served::Ok(())
    });
    assert_eq!(pipe.take_written(), b"all");
    assert!(pipe.is_write_closed() && !pipe.is_reset());
}

#[test]
fn halves_that_are_dropped_end_their_directions() {
    let journal = Journal::default();
    let notes = journal.clone();
    let mut pipe = Embedded::serving(Plain.pipeline(), move |channel| async move {
        let (mut reader, mut writer) = ByteStream::new(channel).split();
        writer.write_all(b"last").await?;
        drop(writer);
        let mut all = String::new();
        reader.read_to_string(&mut all).await?;
        notes.note(all);
        Served::Ok(())
    });
    assert_eq!(pipe.take_written(), b"last");
    assert!(pipe.is_write_closed() && !pipe.is_closed());
    pipe.receive(b"answer");
    pipe.receive_fin();
    assert_eq!(journal.take(), ["answer"]);
    assert!(pipe.is_closed());
}
