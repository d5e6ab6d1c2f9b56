//! Reading: in any pieces, through both families of traits, with cancelled futures.

use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::{Either, select};
use tidegate_compat::ByteStream;
use tidegate_engine::{Channel, task};
use tidegate_testkit::Embedded;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};

use crate::byte_stream::support::{Journal, Plain, Served, Stack, Toy, poll_once};

const TEXT: &[u8] = b"ebb, slack water and flow";

/// Reads to the end in pieces of a few bytes, and answers with everything in upper case.
async fn shout<P>(channel: Channel<P>, piece: usize) -> Served
where
    ByteStream<P>: From<Channel<P>> + tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    P: tidegate_codec::Pipeline,
{
    let mut stream = ByteStream::from(channel);
    let (mut all, mut buffer) = (Vec::new(), vec![0; piece]);
    loop {
        match stream.read(&mut buffer).await? {
            0 => break,
            count => all.extend_from_slice(&buffer[..count]),
        }
    }
    assert_eq!(stream.read(&mut buffer).await?, 0, "the end stays the end");
    stream.write_all(&all.to_ascii_uppercase()).await?;
    stream.shutdown().await?;
    Ok(())
}

#[test]
fn the_stream_is_the_same_at_every_split_and_for_every_size_of_a_read() {
    fn claim<S: Stack>(stack: S) {
        let wire = stack.wire(TEXT);
        for split in 0..=wire.len() {
            for piece in [1, 3, 1000] {
                let mut pipe = Embedded::serving(stack.pipeline(), move |channel| shout(channel, piece));
                pipe.receive(&wire[..split]);
                pipe.receive(&wire[split..]);
                pipe.receive_fin();
                let written = pipe.take_written();
                assert_eq!(stack.plain(&written), TEXT.to_ascii_uppercase(), "split at {split}, reads of {piece}");
                assert!(pipe.is_closed());
            }
        }
        let mut pipe = Embedded::serving(stack.pipeline(), move |channel| shout(channel, 4));
        pipe.receive_bytewise(&wire);
        pipe.receive_fin();
        assert_eq!(stack.plain(&pipe.take_written()), TEXT.to_ascii_uppercase(), "byte by byte");
    }
    claim(Plain);
    claim(Toy);
}

#[test]
fn a_reader_of_buffers_copies_nothing_and_may_take_a_part() {
    let mut pipe = Embedded::serving(Plain.pipeline(), |channel| async move {
        let mut stream = ByteStream::new(channel);
        let seen = AsyncBufReadExt::fill_buf(&mut stream).await?.to_vec();
        assert_eq!(seen, b"ebb and flow");
        AsyncBufReadExt::consume(&mut stream, 4);
        let mut rest = [0; 3];
        stream.read_exact(&mut rest).await?;
        assert_eq!(&rest, b"and");
        let (channel, unread) = stream.into_channel();
        assert_eq!(unread.as_deref(), Some(&b" flow"[..]));
        let mut again = ByteStream::new(channel);
        again.write_all(b"whole").await?;
        Served::Ok(())
    });
    pipe.receive(b"ebb and flow");
    assert_eq!(pipe.take_written(), b"whole");
    assert!(pipe.is_write_closed());
}

#[test]
fn a_read_that_is_dropped_loses_no_byte() {
    let journal = Journal::default();
    let notes = journal.clone();
    let mut pipe = Embedded::serving(Plain.pipeline(), move |channel| async move {
        let mut stream = ByteStream::new(channel);
        let mut all = Vec::new();
        loop {
            let mut buffer = [0; 7];
            let tick = pin!(task::sleep(Duration::from_millis(10)));
            match select(pin!(stream.read(&mut buffer)), tick).await {
                Either::Left((Ok(0), _)) => break,
                Either::Left((count, _)) => all.extend_from_slice(&buffer[..count?]),
                Either::Right(_) => notes.note("tick"),
            }
        }
        notes.note(String::from_utf8(all)?);
        Served::Ok(())
    });
    for piece in ["one ", "and another ", "", "and the last"] {
        pipe.receive(piece.as_bytes());
        pipe.advance(Duration::from_millis(35));
    }
    pipe.receive_fin();
    let notes = journal.take();
    assert!(notes.len() >= 9, "{notes:?}");
    assert_eq!(notes.last().map(String::as_str), Some("one and another and the last"));
}

#[test]
fn while_no_task_reads_nothing_is_received() {
    let mut pipe = Embedded::serving(Plain.pipeline(), |channel| async move {
        let mut stream = ByteStream::new(channel);
        let mut byte = [0];
        stream.read_exact(&mut byte).await?;
        task::sleep(Duration::from_secs(1)).await;
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await?;
        Served::Ok(())
    });
    assert!(pipe.is_receiving());
    pipe.receive(b"ebb and flow");
    assert!(!pipe.is_receiving(), "it has a rest, and sleeps");
    pipe.advance(Duration::from_secs(1));
    assert!(pipe.is_receiving());
    pipe.receive_fin();
    assert!(pipe.is_closed());
}

#[test]
fn a_read_into_no_space_takes_nothing_and_does_not_wait() {
    let mut pipe = Embedded::serving(Plain.pipeline(), |channel| async move {
        let mut stream = ByteStream::new(channel);
        assert_eq!(stream.read(&mut []).await?, 0);
        assert_eq!(stream.write(&[]).await?, 0);
        let polled = poll_once(stream.read(&mut [0; 4])).await;
        assert!(matches!(polled, Poll::Pending));
        let polled = std::future::poll_fn(|cx| {
            let mut buffer = tokio::io::ReadBuf::new(&mut []);
            Poll::Ready(tokio::io::AsyncRead::poll_read(Pin::new(&mut stream), cx, &mut buffer))
        });
        assert!(matches!(polled.await, Poll::Ready(Ok(()))));
        stream.write_all(b"done").await?;
        Served::Ok(())
    });
    pipe.run();
    assert_eq!(pipe.take_written(), b"done");
}
