//! The same through the traits of futures-io.

use futures_util::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tidegate_compat::ByteStream;
use tidegate_engine::task;
use tidegate_testkit::Embedded;

use crate::byte_stream::support::{Journal, Plain, Served, Stack, marks};

#[test]
fn lines_vectors_and_the_end_are_read_and_vectors_written() {
    let mut pipe = Embedded::serving(Plain.pipeline(), |channel| async move {
        let mut stream = ByteStream::new(channel);
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        assert_eq!(line, "ebb\n");
        let mut both = ([0; 2], [0; 3]);
        let mut buffers = [std::io::IoSliceMut::new(&mut both.0), std::io::IoSliceMut::new(&mut both.1)];
        assert_eq!(stream.read_vectored(&mut buffers).await?, 4);
        assert_eq!((&both.0, &both.1[..2]), (b"fl", &b"ow"[..]));
        assert!(stream.fill_buf().await?.is_empty(), "the end");
        assert_eq!(stream.read(&mut []).await?, 0);
        let pieces = [std::io::IoSlice::new(b"one "), std::io::IoSlice::new(b""), std::io::IoSlice::new(b"two")];
        assert_eq!(stream.write_vectored(&pieces).await?, 7);
        assert_eq!(stream.write_vectored(&[]).await?, 0);
        stream.flush().await?;
        stream.close().await?;
        Served::Ok(())
    });
    pipe.receive(b"eb");
    pipe.receive(b"b\nflow");
    pipe.receive_fin();
    assert_eq!(pipe.take_written(), b"one two");
    assert!(pipe.is_closed());
}

#[test]
fn the_halves_of_futures_do_not_wait_for_each_other() {
    let journal = Journal::default();
    let notes = journal.clone();
    let serve = move |channel| async move {
        let (mut reader, mut writer) = AsyncReadExt::split(ByteStream::new(channel));
        reader.read_exact(&mut [0]).await?;
        let others = notes.clone();
        task::spawn(async move {
            writer.write_all(&[b'y'; 10_000]).await.expect("a peer that reads in the end");
            writer.flush().await.expect("a peer that reads in the end");
            others.note("written");
            writer.close().await.expect("an open connection");
        });
        let mut buffer = [0; 100];
        loop {
            let count = reader.read(&mut buffer).await?;
            notes.note(String::from_utf8_lossy(&buffer[..count]));
            if count == 0 {
                return Served::Ok(());
            }
        }
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

#[test]
fn a_copy_between_the_halves_is_an_echo() {
    let mut pipe = Embedded::serving(Plain.pipeline(), |channel| async move {
        let (reader, mut writer) = ByteStream::new(channel).split();
        futures_util::io::copy_buf(reader, &mut writer).await?;
        writer.close().await?;
        Served::Ok(())
    });
    pipe.receive_bytewise(b"ebb and flow");
    pipe.receive_fin();
    assert_eq!(pipe.take_written(), b"ebb and flow");
    assert!(pipe.is_closed());
}
