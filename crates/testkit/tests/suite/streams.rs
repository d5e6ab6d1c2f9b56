//! A protocol with streams, as a codec alone: every split, mutated bytes, and two sides with windows of any size.

use std::collections::BTreeMap;

use tidegate_codec::mux::{RawStreams, ResetCause, StreamCommand, StreamEvent, StreamKey};
use tidegate_codec::{Codec, Pool};
use tidegate_testkit::contract::{Contract, never_panics};
use tidegate_testkit::{CodecHarness, Random, ToyMux, ToyMuxConfig, seeds};

const CONFIG: ToyMuxConfig = ToyMuxConfig { stream_window: 1_000, session_window: 1_500, streams_max: 4 };

fn server() -> RawStreams<ToyMux> {
    RawStreams::new(ToyMux::server(CONFIG))
}

/// A client's bytes that use every frame.
fn wire() -> Vec<u8> {
    let frame = ToyMux::frame;
    [
        frame(0, 0, 1, &[3]),
        frame(1, 0, 1, b"ebb"),
        frame(0, 0, 3, &[0]),
        frame(4, 0, 0, b"are you there"),
        frame(1, 1, 3, &[7; 900]),
        frame(2, 0, 0, &[0, 0, 1, 0]),
        frame(2, 0, 1, &[0, 0, 1, 0]),
        frame(1, 0, 1, b" and flow"),
        frame(3, 0, 1, &[0, 0, 0, 9]),
        frame(1, 0, 1, b"too late"),
        frame(0, 0, 5, &[3]),
        frame(1, 1, 5, b""),
        frame(5, 0, 0, b""),
        frame(0, 0, 7, &[3]),
    ]
    .concat()
}

#[test]
fn the_same_events_and_replies_in_whatever_pieces() {
    let answer = |event, codec: &mut RawStreams<ToyMux>, out: &mut tidegate_codec::Output<'_>| {
        if let StreamEvent::Data { stream, bytes } = event {
            let consumed = bytes.len() as u32;
            codec.encode(StreamCommand::Data(stream, bytes.into()), out).expect("a received message may be sent");
            codec.encode(StreamCommand::Consumed(stream, consumed), out).expect("it came");
        }
    };
    let seen = Contract::new(server).answer(answer).check(&wire());
    let text = seen.messages.join("\n");
    assert_eq!(seen.messages.len(), 9, "{text}");
    assert!(text.contains("code: 9") && !text.contains("too late"), "{text}");
    assert!(seen.replies.windows(7).any(|window| window == b"u there"), "the echo of the ping");
    assert!(seen.replies.ends_with(&ToyMux::frame(3, 0, 7, &[0, 0, 0, 4])), "refused after GOAWAY: {:?}", seen.replies);
}

#[test]
fn mutated_bytes_cause_errors_and_no_panics() {
    never_panics(server, &wire(), 300);
}

/// One side of a session, and the bytes received on its streams.
struct Side {
    harness: CodecHarness<RawStreams<ToyMux>>,
    received: BTreeMap<u32, Vec<u8>>,
    ended: Vec<u32>,
    keys: Vec<StreamKey>,
    /// Bytes that the application has not consumed yet.
    held: Vec<(StreamKey, u32)>,
}

impl Side {
    fn new(mux: ToyMux) -> Self {
        Self {
            harness: CodecHarness::new(RawStreams::new(mux)),
            received: BTreeMap::new(),
            ended: Vec::new(),
            keys: Vec::new(),
            held: Vec::new(),
        }
    }

    fn open(&mut self) -> Option<StreamKey> {
        let (codec, mut out) = self.harness.parts();
        let key = codec.open(&mut out).ok()?;
        self.keys.push(key);
        Some(key)
    }

    fn receive(&mut self, bytes: &[u8]) {
        for event in self.harness.decode(bytes).expect("the other side keeps the protocol") {
            match event {
                StreamEvent::Opened(key) => self.keys.push(key),
                StreamEvent::Data { stream, bytes } => {
                    self.received.entry(stream.id()).or_default().extend_from_slice(&bytes);
                    self.held.push((stream, bytes.len() as u32));
                }
                StreamEvent::Ended(stream) => self.ended.push(stream.id()),
                StreamEvent::Reset { .. } => panic!("no side resets a stream"),
            }
        }
    }

    fn command(&mut self, command: StreamCommand) {
        self.harness.encode(command).expect("a command is never refused");
    }

    fn consume(&mut self, count: usize) {
        for (key, bytes) in self.held.drain(..count).collect::<Vec<_>>() {
            self.command(StreamCommand::Consumed(key, bytes));
        }
    }
}

#[test]
fn bytes_of_all_streams_arrive_whole_and_in_order_through_any_windows() {
    for seed in seeds(60) {
        let mut random = Random::new(seed);
        let stream_window = 1 + random.below(3_000) as u32;
        let session_window = 1 + random.below(5_000) as u32;
        let config = ToyMuxConfig { stream_window, session_window, streams_max: 100 };
        let mut sides = [Side::new(ToyMux::client(config)), Side::new(ToyMux::server(config))];
        let pool = Pool::new();
        let mut sent: [BTreeMap<u32, Vec<u8>>; 2] = Default::default();
        let mut ended: [Vec<u32>; 2] = Default::default();
        for _ in 0..200 {
            let which = random.below(2);
            match random.below(8) {
                0 => drop(sides[which].open()),
                1..4 if !sides[which].keys.is_empty() => {
                    let key = sides[which].keys[random.below(sides[which].keys.len())];
                    if !ended[which].contains(&key.id()) {
                        let bytes = vec![random.below(256) as u8; random.below(2_000)];
                        sent[which].entry(key.id()).or_default().extend_from_slice(&bytes);
                        sides[which].command(StreamCommand::Data(key, pool.copy(&bytes).into()));
                    }
                }
                4 if !sides[which].keys.is_empty() => {
                    let key = sides[which].keys[random.below(sides[which].keys.len())];
                    if !ended[which].contains(&key.id()) {
                        ended[which].push(key.id());
                        sides[which].command(StreamCommand::End(key));
                    }
                }
                5 => {
                    let count = random.below(sides[which].held.len() + 1);
                    sides[which].consume(count);
                }
                _ => pass(&mut sides, which, 1 + random.below(3_000)),
            }
        }
        drain(&mut sides);
        for (which, other) in [(0, 1), (1, 0)] {
            sent[which].retain(|_, bytes| !bytes.is_empty());
            assert!(sides[other].received == sent[which], "seed {seed:#x}: other bytes have arrived");
            let mut seen = sides[other].ended.clone();
            seen.sort_unstable();
            ended[which].sort_unstable();
            assert_eq!(seen, ended[which], "seed {seed:#x}: ends");
            let codec = sides[which].harness.codec();
            assert_eq!(codec.mux().unconsumed_bytes(), 0, "seed {seed:#x}");
            assert_eq!(codec.status().buffered_bytes, 0, "seed {seed:#x}");
        }
    }
}

/// Consumes and passes on everything, until nothing moves.
fn drain(sides: &mut [Side; 2]) {
    for _ in 0..200_000 {
        let count = sides.iter().map(|side| side.held.len()).collect::<Vec<_>>();
        sides[0].consume(count[0]);
        sides[1].consume(count[1]);
        let before: Vec<_> = sides.iter().map(|side| side.harness.queue().sent()).collect();
        pass(sides, 0, 60_000);
        pass(sides, 1, 60_000);
        if before == sides.iter().map(|side| side.harness.queue().sent()).collect::<Vec<_>>() {
            break;
        }
    }
}

/// Passes bytes from one side to the other.
fn pass(sides: &mut [Side; 2], from: usize, bytes_max: usize) {
    sides[from].harness.flush().expect("nothing fails");
    let bytes = sides[from].harness.take_sent_up_to(bytes_max);
    sides[1 - from].receive(&bytes);
}

#[test]
fn a_reset_discards_waiting_bytes_and_closes_the_stream() {
    let mut side = Side::new(ToyMux::client(ToyMuxConfig { stream_window: 10, ..CONFIG }));
    let key = side.open().expect("a stream");
    side.command(StreamCommand::Data(key, vec![1; 5_000].into()));
    assert!(side.harness.codec().status().buffered_bytes >= 4_990);
    side.command(StreamCommand::Reset(key, ResetCause::Code(8)));
    side.command(StreamCommand::Data(key, vec![2; 10].into()));
    assert_eq!(side.harness.codec().status().buffered_bytes, 0);
    side.harness.flush().expect("nothing fails");
    let sent = side.harness.take_sent();
    assert!(sent.ends_with(&ToyMux::frame(3, 0, 1, &[0, 0, 0, 8])) && !sent.contains(&2), "{sent:?}");
}
