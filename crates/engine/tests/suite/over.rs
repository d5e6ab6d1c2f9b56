//! `Over` on real sockets: a toy TLS with a handshake, a filter that strips a prefix, and one over the other, against
//! clients that build the wire bytes by hand.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use tidegate_codec::framing::{FramingError, LengthField, Lines, Payload};
use tidegate_codec::{Codec, FileRegion, Input, Output, Over, Pipeline, Slice, Step};
use tidegate_engine::{Context, Event, Handler, Limits, Outcome, Server, ServerHandle};
use tidegate_testkit::Random;
use tidegate_testkit::filters::{RECORD_BYTES_MAX, StripPrefix, ToyTls};

const KEY: u8 = 0xa5;
const PREFIX: &[u8] = b"PROXY tide\r\n";
const MIB: usize = 1 << 20;

/// Echoes every message; reading stops while the connection is unwritable.
struct Echo;

impl<C: Pipeline<In = Slice, Out = Payload>> Handler<C> for Echo {
    type Post = ();

    fn message(&mut self, message: Slice, cx: &mut Context<'_, C>) -> Outcome<C> {
        cx.send(message.into()).into()
    }
}

fn serve<C: Pipeline, H: Handler<C>>(make: impl Fn() -> (C, H) + Send + Sync + 'static) -> ServerHandle {
    let server = Server::bind("127.0.0.1:0").expect("an address").loops(1);
    server.limits(Limits::default()).start(make).expect("the port is free")
}

fn connect(server: &ServerHandle) -> TcpStream {
    let stream = TcpStream::connect(server.address().ip().expect("it listens on TCP")).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(120))).expect("a timeout that is not zero");
    stream.set_write_timeout(Some(Duration::from_secs(120))).expect("a timeout that is not zero");
    stream.set_nodelay(true).expect("a TCP socket");
    stream
}

/// Sends `wire` in pieces, from a thread of its own, and reads to the end.
fn exchange(server: &ServerHandle, wire: Vec<u8>, piece: usize) -> Vec<u8> {
    let mut stream = connect(server);
    let mut sending = stream.try_clone().expect("a socket");
    let sender = std::thread::spawn(move || {
        for piece in wire.chunks(piece) {
            sending.write_all(piece).expect("the server reads");
        }
        sending.shutdown(Shutdown::Write).expect("it is connected");
    });
    let mut seen = Vec::new();
    stream.read_to_end(&mut seen).expect("the server ends in good order");
    sender.join().expect("the sender is fine");
    seen
}

/// The wire form of a client's message for the tested stack, and the decoded form of an answer.
type Speak = fn(&[u8], usize) -> Vec<u8>;
type Listen = fn(&[u8]) -> Vec<u8>;

fn prefixed(plain: &[u8], _: usize) -> Vec<u8> {
    [PREFIX, plain].concat()
}

fn sealed(plain: &[u8], record: usize) -> Vec<u8> {
    ToyTls::client_wire(KEY, plain, record)
}

fn prefixed_sealed(plain: &[u8], record: usize) -> Vec<u8> {
    [PREFIX, &sealed(plain, record)].concat()
}

fn sealed_prefixed(plain: &[u8], record: usize) -> Vec<u8> {
    sealed(&[PREFIX, plain].concat(), record)
}

fn opened(wire: &[u8]) -> Vec<u8> {
    let (plain, goodbye) = ToyTls::decode_wire(KEY, wire);
    assert!(goodbye, "the server says goodbye before it ends");
    plain
}

/// The stacks, each as a server that echoes frames, with its client.
fn stacks() -> Vec<(&'static str, ServerHandle, Speak, Listen)> {
    let framing = || LengthField::builder(4).frame_bytes_max(2 * MIB).build();
    let (prefix, tls) = (|| StripPrefix::new(PREFIX), || ToyTls::server(KEY));
    vec![
        (
            "a prefix",
            serve(move || (Over::new(prefix(), framing()), Echo)),
            prefixed as Speak,
            <[u8]>::to_vec as Listen,
        ),
        ("a toy TLS", serve(move || (Over::new(tls(), framing()), Echo)), sealed, opened),
        // The filter that is named first is next to the wire.
        (
            "a prefix, then a toy TLS",
            serve(move || (Over::new(prefix(), Over::new(tls(), framing())), Echo)),
            prefixed_sealed,
            opened,
        ),
        (
            "a prefix within a toy TLS",
            serve(move || (Over::new(tls(), Over::new(prefix(), framing())), Echo)),
            sealed_prefixed,
            opened,
        ),
    ]
}

/// Frames with these contents.
fn frames(contents: &[Vec<u8>]) -> Vec<u8> {
    contents.iter().flat_map(|content| [&(content.len() as u32).to_be_bytes()[..], content].concat()).collect()
}

#[test]
fn every_stack_echoes_bytes_that_come_one_by_one_and_all_at_once() {
    let frames = frames(&[b"ebb".to_vec(), Vec::new(), b"flow".to_vec(), vec![7; 300]]);
    for (name, server, speak, listen) in stacks() {
        for record in [1, 5, RECORD_BYTES_MAX] {
            for piece in [1, 7, usize::MAX] {
                let seen = exchange(&server, speak(&frames, record), piece);
                assert_eq!(listen(&seen), frames, "{name}, records of {record}, pieces of {piece}");
            }
        }
    }
}

#[test]
fn every_stack_echoes_a_mebibyte_at_every_piece_size() {
    let seed = tidegate_testkit::seed();
    println!("TIDEGATE_SEED={seed}");
    let mut random = Random::new(seed);
    // One frame beyond every water mark, and many smaller ones.
    let mut contents = vec![random.bytes(MIB)];
    contents.extend((0..300).map(|_| {
        let length = random.below(20_000);
        random.bytes(length)
    }));
    let frames = frames(&contents);
    for (name, server, speak, listen) in stacks() {
        let seen = exchange(&server, speak(&frames, RECORD_BYTES_MAX), 1 + random.below(100_000));
        assert!(listen(&seen) == frames, "{name}, seed {seed}");
    }
}

#[test]
fn a_peer_that_does_not_read_stops_the_server_from_reading() {
    for (name, server, speak, listen) in stacks() {
        let frames = frames(&vec![vec![3; 10_000]; 2_000]);
        let mut stream = connect(&server);
        let mut sending = stream.try_clone().unwrap();
        let wire = speak(&frames, RECORD_BYTES_MAX);
        let length = wire.len();
        let sender = std::thread::spawn(move || {
            sending.write_all(&wire).unwrap();
            sending.shutdown(Shutdown::Write).unwrap();
        });
        // Both kernels' buffers fill, and the queue up to its water mark: then both sides stop.
        let (mut before, mut same) = (0, 0);
        while same < 20 {
            std::thread::sleep(Duration::from_millis(5));
            let now = server.counts()[0].received_bytes;
            same = if now == before && now > 0 { same + 1 } else { 0 };
            before = now;
        }
        let counts = server.counts()[0];
        assert!(counts.received_bytes < length as u64, "{name}: all of it was read");
        assert!(counts.memory_bytes < MIB as u64, "{name}: {} bytes are in use", counts.memory_bytes);
        let mut seen = Vec::new();
        stream.read_to_end(&mut seen).unwrap();
        sender.join().unwrap();
        assert!(listen(&seen) == frames, "{name}");
    }
}

#[test]
fn a_greeting_waits_for_the_handshake() {
    struct Greets;

    impl<C: Pipeline<Out = Payload>> Handler<C> for Greets {
        type Post = ();

        fn open(&mut self, cx: &mut Context<'_, C>) -> Outcome<C> {
            cx.send("220 ready".into()).into()
        }

        fn message(&mut self, _: C::In, _: &mut Context<'_, C>) -> Outcome<C> {
            Outcome::Close
        }

        fn event(&mut self, event: Event<()>, cx: &mut Context<'_, C>) -> Outcome<C> {
            match event {
                Event::Established => cx.send("established".into()).into(),
                Event::ReadClosed => Outcome::Close,
                _ => Outcome::Continue,
            }
        }
    }

    let server = serve(|| (Over::new(ToyTls::server(KEY), Lines::new()), Greets));
    let mut stream = connect(&server);
    stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    assert!(stream.read(&mut [0]).is_err(), "no byte may come yet");
    stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    stream.write_all(&ToyTls::client_wire(KEY, b"quit\n", 5)).unwrap();
    let mut seen = Vec::new();
    stream.read_to_end(&mut seen).unwrap();
    assert_eq!(opened(&seen), b"220 ready\nestablished\n");
}

/// Lines in, files out.
#[derive(Default)]
struct FileServer(Lines);

impl Codec for FileServer {
    type In = Slice;
    type Out = FileRegion;
    type Error = FramingError;

    fn decode(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<Slice>, FramingError> {
        self.0.decode(input, reply)
    }

    fn encode(&mut self, region: FileRegion, out: &mut Output<'_>) -> Result<(), FramingError> {
        out.write(b"file:");
        out.link_file(region);
        Ok(())
    }
}

struct Sends(Arc<File>, u64);

impl<C: Pipeline<Out = FileRegion>> Handler<C> for Sends {
    type Post = ();

    fn message(&mut self, _: C::In, cx: &mut Context<'_, C>) -> Outcome<C> {
        let region = FileRegion { file: self.0.clone(), offset: 0, length: self.1 };
        cx.send(region).into()
    }
}

/// A file with `content` that is removed in the end.
fn file(name: &str, content: &[u8]) -> Arc<File> {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("over-{name}-{}", std::process::id()));
    std::fs::write(&path, content).expect("the target directory can be written to");
    let file = File::open(&path).expect("it was just written");
    std::fs::remove_file(&path).expect("it was just opened");
    Arc::new(file)
}

#[test]
fn a_file_is_sent_by_sendfile_unless_a_filter_changes_its_bytes() {
    let content = Random::new(11).bytes(3 * MIB + 17);
    let file = file("whole", &content);
    let expected = [&b"file:"[..], &content].concat();
    let length = content.len() as u64;
    let served = file.clone();
    let server =
        serve(move || (Over::new(StripPrefix::new(PREFIX), FileServer::default()), Sends(served.clone(), length)));
    let seen = exchange(&server, prefixed(b"get\n", 0), usize::MAX);
    assert!(seen == expected);
    assert!(server.counts()[0].memory_bytes < 300_000);

    let server = serve(move || (Over::new(ToyTls::server(KEY), FileServer::default()), Sends(file.clone(), length)));
    let mut stream = connect(&server);
    stream.write_all(&sealed(b"get\n", 4)).unwrap();
    // While the peer does not read, no more than a piece of it is in memory.
    while server.counts()[0].sent_bytes < 50_000 {
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(server.counts()[0].memory_bytes < 400_000, "{}", server.counts()[0].memory_bytes);
    let mut seen = Vec::new();
    stream.read_to_end(&mut seen).unwrap();
    assert!(opened(&seen) == expected, "the goodbye comes behind all of it");
}

#[test]
fn a_file_that_is_too_short_resets_the_connection() {
    for sealed in [false, true] {
        let file = file("short", &[1; 10_000]);
        let server = if sealed {
            serve(move || (Over::new(ToyTls::server(KEY), FileServer::default()), Sends(file.clone(), 20_000)))
        } else {
            serve(move || (Over::new(StripPrefix::new(PREFIX), FileServer::default()), Sends(file.clone(), 20_000)))
        };
        let mut stream = connect(&server);
        let wire = if sealed { self::sealed(b"get\n", 4) } else { prefixed(b"get\n", 0) };
        stream.write_all(&wire).unwrap();
        let mut seen = Vec::new();
        let error = stream.read_to_end(&mut seen).expect_err("truncated bytes must not look complete");
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        while server.counts()[0].closed_failed == 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

#[test]
fn peers_of_another_protocol_are_disconnected() {
    for (name, server, speak, _) in stacks() {
        for wire in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\0", b"TOX?"] {
            let mut stream = connect(&server);
            stream.write_all(wire).unwrap();
            let mut seen = Vec::new();
            // With an end or, if it had not read everything, with a reset.
            let _ = stream.read_to_end(&mut seen);
            assert!(seen.is_empty() || name.contains("prefix within"), "{name}: {}", seen.escape_ascii());
        }
        // Cut off within the handshake, and within the first record.
        for cut in [1, 3, PREFIX.len() + 2] {
            let wire = speak(&frames(&[b"ebb".to_vec()]), 100);
            exchange(&server, wire[..cut].to_vec(), usize::MAX);
        }
        let expected = frames(&[b"still there".to_vec()]);
        let seen = exchange(&server, speak(&expected, 100), usize::MAX);
        assert!(seen.len() >= expected.len(), "{name}");
    }
}
