//! Over sockets: large transfers with checked bytes, resets, and both sides of the crate against each other.

use std::io::ErrorKind;
use std::time::Duration;

use tidegate_codec::framing::{LengthField, Lines, Raw};
use tidegate_codec::{Over, Slice};
use tidegate_compat::Framed;
use tidegate_compat::framed::FramedError;
use tidegate_engine::{Channel, Server};
use tidegate_testkit::filters::ToyTls;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::LocalSet;

const KEY: u8 = 9;

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (near, far) = tokio::join!(TcpStream::connect(address), listener.accept());
    (near.unwrap(), far.unwrap().0)
}

fn byte_at(place: usize) -> u8 {
    (place ^ place >> 8 ^ place >> 16) as u8
}

#[tokio::test]
async fn tens_of_mebibytes_are_echoed_by_messages_of_all_sizes() {
    const BYTES: usize = 24 * 1024 * 1024;
    let (near, far) = pair().await;
    let tasks = LocalSet::new();
    tasks.spawn_local(async move {
        let mut framed = Framed::new(far, Raw);
        while let Some(bytes) = framed.recv().await.unwrap() {
            framed.send(bytes.into()).unwrap();
            framed.ready().await.unwrap();
        }
        framed.close().await.unwrap();
    });
    let (mut sink, mut stream) = futures_util::StreamExt::split(Framed::new(near, Raw));
    tasks.spawn_local(async move {
        let (mut place, mut length) = (0, 1);
        while place < BYTES {
            let end = BYTES.min(place + length);
            let message: Vec<_> = (place..end).map(byte_at).collect();
            futures_util::SinkExt::send(&mut sink, message.into()).await.unwrap();
            (place, length) = (end, length * 3 % 100_003);
        }
        futures_util::SinkExt::flush(&mut sink).await.unwrap();
    });
    tasks
        .run_until(async move {
            let mut place = 0;
            while place < BYTES {
                let bytes: Slice = futures_util::StreamExt::next(&mut stream).await.unwrap().unwrap();
                assert!(bytes.iter().enumerate().all(|(offset, &byte)| byte == byte_at(place + offset)));
                place += bytes.len();
            }
        })
        .await;
}

#[tokio::test]
async fn a_reset_of_the_peer_is_an_error_of_the_stream() {
    let (near, far) = pair().await;
    let mut framed = Framed::new(near, Lines::new());
    far.set_zero_linger().unwrap();
    drop(far);
    let error = framed.recv().await.map(drop).expect_err("a reset");
    assert!(matches!(&error, FramedError::Io(error) if error.kind() == ErrorKind::ConnectionReset), "{error:?}");
}

#[tokio::test]
async fn a_peer_that_reads_late_gets_everything_before_the_end() {
    let (near, far) = pair().await;
    let mut framed = Framed::new(near, LengthField::new(4));
    let sending = async {
        for _ in 0..64 {
            framed.ready().await.unwrap();
            framed.send(vec![b'x'; 60_000].into()).unwrap();
        }
        framed.close().await.unwrap();
    };
    let reading = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let mut framed = Framed::new(far, LengthField::new(4));
        let mut count = 0;
        while let Some(message) = framed.recv().await.unwrap() {
            assert_eq!(message.len(), 60_000);
            count += 1;
        }
        framed.close().await.unwrap();
        count
    };
    let ((), count) = tokio::join!(sending, reading);
    assert_eq!(count, 64);
}

async fn echo(mut channel: Channel<Over<ToyTls, Lines>>) -> Result<(), Box<dyn std::error::Error>> {
    while let Some(line) = channel.recv().await? {
        channel.send(line.into())?;
    }
    Ok(())
}

/// The same pipeline on a loop of ours and on a tokio stream.
#[tokio::test]
async fn a_codec_on_tokio_talks_to_the_same_codec_on_a_loop() {
    let server = Server::bind("127.0.0.1:0").unwrap().loops(1);
    let server = server.serve(|| Over::new(ToyTls::server(KEY), Lines::new()), echo).unwrap();
    let stream = TcpStream::connect(server.address().ip().unwrap()).await.unwrap();
    let mut framed = Framed::new(stream, Over::new(ToyTls::client(KEY), Lines::new()));
    for number in 0..1000 {
        framed.send(format!("line {number}").into()).unwrap();
    }
    framed.shutdown_write();
    for number in 0..1000 {
        let line = framed.recv().await.unwrap().unwrap();
        assert_eq!(&*line, format!("line {number}").as_bytes());
    }
    assert!(framed.recv().await.unwrap().is_none());
    framed.close().await.unwrap();
    server.drain(Duration::from_secs(10));
}
