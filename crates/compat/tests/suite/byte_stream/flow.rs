//! Writing: back-pressure, flushing, and two tasks with a direction each.

use std::rc::Rc;
use std::task::Poll;

use tidegate_compat::ByteStream;
use tidegate_engine::{Channel, task};
use tidegate_testkit::Embedded;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::byte_stream::support::{Journal, Plain, Served, Stack, Toy, marks, poll_once};

#[test]
fn a_write_takes_the_bytes_that_the_marks_admit_and_waits_for_the_peer() {
    let journal = Journal::default();
    let notes = journal.clone();
    let serve = move |channel| async move {
        let mut stream = ByteStream::new(channel);
        stream.read_exact(&mut [0]).await?;
        notes.note(format!("took {}", stream.write(&[b'x'; 5000]).await?));
        notes.note(format!("pending {}", stream.pending_bytes()));
        let second = stream.write(b"more").await?;
        notes.note(format!("took {second}"));
        stream.flush().await?;
        notes.note(format!("flushed {}", stream.pending_bytes()));
        Served::Ok(())
    };
    let mut pipe = Embedded::serving_with_limits(Plain.pipeline(), serve, marks(1000, 400));
    pipe.limit_peer_reads(0);
    pipe.receive(b"!");
    let taken = journal.take();
    assert_eq!(taken[0], "took 1001", "one byte more than the mark");
    assert_eq!(taken.len(), 2, "the second write waits: {taken:?}");
    pipe.limit_peer_reads(500);
    pipe.run();
    pipe.limit_peer_reads(usize::MAX);
    pipe.run();
    assert_eq!(journal.take(), ["took 4", "flushed 0"]);
    assert_eq!(pipe.take_written().len(), 1005);
}

#[test]
fn a_flush_waits_until_the_peers_system_has_every_byte() {
    fn claim<S: Stack>(stack: S) {
        let journal = Journal::default();
        let notes = journal.clone();
        let mut pipe = Embedded::serving(stack.pipeline(), move |channel| async move {
            let mut stream = ByteStream::from(channel);
            stream.read_exact(&mut [0; 3]).await?;
            stream.write_all(b"an answer").await?;
            stream.flush().await?;
            notes.note("flushed");
            stream.flush().await?;
            notes.note("flushed again");
            Served::Ok(())
        });
        pipe.limit_peer_reads(0);
        pipe.receive(&stack.wire(b"ask"));
        assert!(journal.take().is_empty());
        pipe.limit_peer_reads(usize::MAX);
        pipe.run();
        assert_eq!(journal.take(), ["flushed", "flushed again"]);
        assert_eq!(stack.plain(&pipe.take_written()), b"an answer");
    }
    claim(Plain);
    claim(Toy);
}

/// A task reads while another one cannot write: by our halves, and by tokio's.
#[test]
fn the_directions_do_not_wait_for_each_other_however_the_stream_is_split() {
    fn claim<F: Future<Output = Served> + 'static>(serve: impl FnOnce(ByteStream, Journal) -> F + 'static) {
        let journal = Journal::default();
        let notes = journal.clone();
        let serve = move |channel: Channel<_>| async move {
            let mut stream = ByteStream::new(channel);
            stream.read_exact(&mut [0]).await?;
            serve(stream, notes).await
        };
        let mut pipe = Embedded::serving_with_limits(Plain.pipeline(), serve, marks(1000, 500));
        pipe.limit_peer_reads(0);
        pipe.receive(b"!");
        pipe.receive(b"one");
        pipe.receive(b"two");
        assert_eq!(journal.take(), ["one", "two"], "it reads although nothing can be written");
        pipe.limit_peer_reads(usize::MAX);
        pipe.run();
        assert_eq!(journal.take(), ["written"]);
        assert_eq!(pipe.take_written().len(), 10_000);
        pipe.receive_fin();
        assert_eq!(journal.take(), [""]);
        assert!(pipe.is_closed());
    }

    async fn write(mut writer: impl tokio::io::AsyncWrite + Unpin, notes: Journal) {
        writer.write_all(&[b'y'; 10_000]).await.expect("a peer that reads in the end");
        writer.flush().await.expect("a peer that reads in the end");
        notes.note("written");
        writer.shutdown().await.expect("an open connection");
    }

    async fn read(mut reader: impl tokio::io::AsyncRead + Unpin, notes: Journal) -> Served {
        let mut buffer = [0; 100];
        loop {
            let count = reader.read(&mut buffer).await?;
            notes.note(String::from_utf8_lossy(&buffer[..count]));
            if count == 0 {
                return Ok(());
            }
        }
    }

    claim(|stream, notes| async move {
        let (reader, writer) = stream.split();
        task::spawn(write(writer, notes.clone()));
        read(reader, notes).await
    });
    claim(|stream, notes| async move {
        let (reader, writer) = tokio::io::split(stream);
        task::spawn(write(writer, notes.clone()));
        read(reader, notes).await
    });
}

#[test]
fn a_write_that_is_dropped_has_queued_all_or_nothing_of_its_bytes() {
    let journal = Journal::default();
    let notes = journal.clone();
    let serve = move |channel| async move {
        let mut stream = ByteStream::new(channel);
        stream.read_exact(&mut [0]).await?;
        assert_eq!(stream.write(&[b'a'; 101]).await?, 101);
        for _ in 0..3 {
            assert!(matches!(poll_once(stream.write(b"lost")).await, Poll::Pending));
        }
        notes.note("cancelled");
        stream.write_all(b"kept").await?;
        Served::Ok(())
    };
    let mut pipe = Embedded::serving_with_limits(Plain.pipeline(), serve, marks(100, 50));
    pipe.limit_peer_reads(0);
    pipe.receive(b"!");
    assert_eq!(journal.take(), ["cancelled"]);
    pipe.limit_peer_reads(usize::MAX);
    pipe.run();
    assert_eq!(pipe.take_written(), [&[b'a'; 101][..], b"kept"].concat());
}

#[test]
fn a_stream_that_copies_to_itself_uses_bounded_memory_with_a_slow_reader() {
    let serve = |channel| async move {
        let (mut reader, mut writer) = ByteStream::new(channel).split();
        tokio::io::copy(&mut reader, &mut writer).await?;
        writer.shutdown().await?;
        Served::Ok(())
    };
    let mut pipe = Embedded::serving_with_limits(Plain.pipeline(), serve, marks(16 * 1024, 8 * 1024));
    pipe.limit_peer_reads(0);
    let (piece, mut sent) = (vec![b'z'; 8000], 0_usize);
    // The peer sends for as long as the loop takes it, and reads nothing.
    while pipe.is_receiving() {
        pipe.receive(&piece);
        sent += piece.len();
        assert!(sent < 1_000_000, "it takes everything");
    }
    let used = pipe.pool().ledger().used();
    assert!(used < 200 * 1024, "{used} bytes of memory for {sent} unread ones");
    let mut echoed = 0;
    while echoed < sent {
        pipe.limit_peer_reads(3000);
        pipe.run();
        echoed += pipe.take_written().len();
    }
    assert_eq!(echoed, sent);
    assert!(pipe.is_receiving(), "it goes on");
}

#[test]
fn a_task_that_is_cancelled_in_a_transfer_closes_its_connection() {
    let count = Rc::new(std::cell::Cell::new(0));
    let counted = count.clone();
    let mut pipe = Embedded::serving_with_limits(
        Plain.pipeline(),
        move |channel| async move {
            let (mut reader, mut writer) = ByteStream::new(channel).split();
            reader.read_exact(&mut [0]).await?;
            let writing = task::spawn(async move { writer.write_all(&[b'w'; 100_000]).await });
            counted.set(reader.read(&mut [0; 10]).await?);
            writing.cancel();
            Served::Ok(())
        },
        marks(1000, 500),
    );
    pipe.limit_peer_reads(0);
    pipe.receive(b"!");
    pipe.receive(b"stop");
    assert_eq!(count.get(), 4);
    pipe.limit_peer_reads(usize::MAX);
    pipe.run();
    assert_eq!(pipe.take_written().len(), 1001, "the queue is still sent");
    assert!(pipe.is_write_closed());
}
