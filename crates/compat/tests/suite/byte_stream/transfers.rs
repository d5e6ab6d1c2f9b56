//! Large transfers with checked bytes, over real sockets on each backend and over simulated ones with faults.

use std::error::Error;
use std::time::Duration;

use tidegate_codec::framing::{Payload, Raw};
use tidegate_codec::{Over, Pipeline, Slice};
use tidegate_compat::ByteStream;
use tidegate_engine::{Backend, Channel, Client, EventLoop, Limits, Server, task};
use tidegate_sys::Address;
use tidegate_testkit::filters::ToyTls;
use tidegate_testkit::network::{FaultRates, Network, NetworkFault};
use tidegate_testkit::{Random, seeds};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

type Any = Box<dyn Error>;

const KEY: u8 = 0x5a;

/// The byte at a place of the transferred stream.
fn byte_at(place: usize) -> u8 {
    (place ^ place >> 8 ^ place >> 16) as u8
}

/// Echoes with tokio's functions.
async fn echo<P: Pipeline<In = Slice, Out = Payload, Codec = Raw>>(channel: Channel<P>) -> Result<(), Any> {
    let (mut reader, mut writer) = ByteStream::new(channel).split();
    tokio::io::copy_buf(&mut reader, &mut writer).await?;
    writer.shutdown().await?;
    Ok(())
}

async fn write(mut writer: impl AsyncWrite + Unpin, length: usize, piece_max: usize) -> std::io::Result<()> {
    let mut random = Random::new(length as u64);
    let mut place = 0;
    while place < length {
        let piece = (1 + random.below(piece_max)).min(length - place);
        let bytes: Vec<_> = (place..place + piece).map(byte_at).collect();
        writer.write_all(&bytes).await?;
        place += piece;
    }
    writer.flush().await?;
    writer.shutdown().await
}

/// Reads to the end and compares each byte; returns how many there were.
async fn check(mut reader: impl AsyncRead + Unpin, piece_max: usize) -> std::io::Result<usize> {
    let mut random = Random::new(piece_max as u64);
    let mut buffer = vec![0; piece_max];
    let mut place = 0;
    loop {
        let piece = 1 + random.below(piece_max);
        let count = reader.read(&mut buffer[..piece]).await?;
        if count == 0 {
            return Ok(place);
        }
        for (offset, &byte) in buffer[..count].iter().enumerate() {
            assert_eq!(byte, byte_at(place + offset), "byte {}", place + offset);
        }
        place += count;
    }
}

/// Sends `length` bytes to an echo, and reads them back at the same time, by halves in two tasks.
async fn transfer<P>(address: Address, pipeline: P, length: usize, piece_max: usize) -> Result<usize, Any>
where
    P: Pipeline<In = Slice, Out = Payload, Codec = Raw>,
{
    let stream = ByteStream::new(Client::at(address).connect(pipeline).await?);
    let (reader, writer) = tokio::io::split(stream);
    let writing = task::spawn(write(writer, length, piece_max));
    let read = check(reader, piece_max).await?;
    writing.await??;
    Ok(read)
}

/// The backends of this machine.
fn backends() -> Vec<Backend> {
    let has_uring = EventLoop::on(Backend::Uring).is_ok();
    [Backend::Epoll].into_iter().chain(has_uring.then_some(Backend::Uring)).collect()
}

const MIB: usize = 1024 * 1024;

#[test]
fn tens_of_mebibytes_arrive_on_every_backend() {
    for backend in backends() {
        let server = Server::bind("127.0.0.1:0").unwrap().loops(1).backend(backend).serve(|| Raw, echo).unwrap();
        let address = server.address().clone();
        let mut event_loop = EventLoop::on(backend).unwrap();
        let read = event_loop.block_on(transfer(address, Raw, 32 * MIB, 100_000)).unwrap().unwrap();
        assert_eq!(read, 32 * MIB, "{backend:?}");
        server.drain(Duration::from_secs(10));
    }
}

#[test]
fn a_filter_beneath_the_stream_changes_nothing_on_every_backend() {
    for backend in backends() {
        let server = Server::bind("127.0.0.1:0").unwrap().loops(1).backend(backend);
        let server = server.serve(|| Over::new(ToyTls::server(KEY), Raw), echo).unwrap();
        let address = server.address().clone();
        let mut event_loop = EventLoop::on(backend).unwrap();
        let pipeline = Over::new(ToyTls::client(KEY), Raw);
        let read = event_loop.block_on(transfer(address, pipeline, 4 * MIB, 20_000)).unwrap().unwrap();
        assert_eq!(read, 4 * MIB, "{backend:?}");
        server.drain(Duration::from_secs(10));
    }
}

/// The kernel's buffers fill up, so both directions of both ends are blocked at times.
#[test]
fn a_reader_that_pauses_bounds_the_memory_of_the_writers_loop() {
    for backend in backends() {
        let server = Server::bind("127.0.0.1:0").unwrap().loops(1).backend(backend).serve(|| Raw, flood).unwrap();
        let mut event_loop = EventLoop::on(backend).unwrap();
        let address = server.address().clone();
        let read = event_loop.block_on(async move {
            let mut stream = ByteStream::new(Client::at(address).connect(Raw).await?);
            let mut pending_max = 0;
            let mut seen = vec![0; 64 * 1024];
            let mut place = 0;
            for round in 0.. {
                if round % 64 == 0 {
                    task::sleep(Duration::from_millis(5)).await;
                }
                let count = stream.read(&mut seen).await?;
                if count == 0 {
                    break;
                }
                assert!(seen[..count].iter().enumerate().all(|(offset, &byte)| byte == byte_at(place + offset)));
                place += count;
                pending_max = pending_max.max(stream.pending_bytes());
            }
            Ok::<_, Any>((place, pending_max))
        });
        assert_eq!(read.unwrap().unwrap(), (16 * MIB, 0), "{backend:?}");
        server.drain(Duration::from_secs(10));
    }
}

/// Sends 16 MiB, and never queues more than the high mark and one byte.
async fn flood(channel: Channel<Raw>) -> Result<(), Any> {
    let mut stream = ByteStream::new(channel);
    let high = Limits::default().water.high;
    let mut place = 0;
    while place < 16 * MIB {
        let length = 50_000.min(16 * MIB - place);
        let bytes: Vec<_> = (place..place + length).map(byte_at).collect();
        let count = stream.write(&bytes).await?;
        place += count;
        // Each entry of the queue costs at most 48 bytes, and has a segment of 4 KiB.
        let pending = stream.pending_bytes();
        assert!(pending <= high + high / 32, "{pending} bytes wait");
    }
    stream.shutdown().await?;
    Ok(())
}

#[test]
fn streams_work_in_a_simulated_network_with_faults() {
    for seed in seeds(20) {
        let network = Network::new(seed);
        network.set_faults(FaultRates::benign());
        let (server, client) = (network.host("10.0.0.1").node(), network.host("10.0.0.2").node());
        let address = server.serve(7, Limits::default(), || Raw, echo).unwrap();
        let filtered = server.serve(8, Limits::default(), || Over::new(ToyTls::server(KEY), Raw), echo).unwrap();
        let plain = client.spawn(transfer(address, Raw, 300_000, 5000));
        assert_eq!(network.run_task(PATIENCE, plain).unwrap(), 300_000);
        let sealed = client.spawn(transfer(filtered, Over::new(ToyTls::client(KEY), Raw), 100_000, 5000));
        assert_eq!(network.run_task(PATIENCE, sealed).unwrap(), 100_000);
        network.run_for(Duration::from_secs(40));
        assert_eq!((server.counts().connections, client.counts().connections), (0, 0), "none is left");
    }
}

/// Connections that the network resets are errors, and nothing stays behind.
#[test]
fn resets_of_the_network_end_both_ends() {
    let mut failed = 0;
    for seed in seeds(20) {
        let network = Network::new(seed);
        network.set_faults(FaultRates::benign().with(NetworkFault::Reset, 200));
        let (server, client) = (network.host("10.0.0.1").node(), network.host("10.0.0.2").node());
        let address = server.serve(7, Limits::default(), || Raw, echo).unwrap();
        let transfer = client.spawn(transfer(address, Raw, 300_000, 5000));
        match network.run_task(PATIENCE, transfer) {
            Ok(read) => assert_eq!(read, 300_000, "an end in good order has all bytes"),
            Err(_) => failed += 1,
        }
        network.run_for(Duration::from_secs(200));
        assert_eq!((server.counts().connections, client.counts().connections), (0, 0), "none is left");
    }
    assert!(failed > 0, "no reset struck");
}

const PATIENCE: Duration = Duration::from_secs(300);
