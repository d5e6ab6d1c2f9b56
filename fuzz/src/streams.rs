//! A protocol with streams: any frames, between any commands of the application.
//!
//! The first bytes choose the windows. Then each byte chooses a command, a frame that may be right, or bytes that need
//! not be one. Whatever comes, the session's window covers the unconsumed bytes, and streams that are closed leave
//! nothing.

use tidegate_codec::Codec;
use tidegate_codec::mux::{Mux, RawStreams, ResetCause, StreamCommand, StreamEvent, StreamKey};
use tidegate_testkit::{CodecHarness, ToyMux, ToyMuxConfig};

use crate::choices::Choices;

/// Frames and commands on a session.
pub fn streams(data: &[u8]) {
    let mut choices = Choices::new(data);
    let config = ToyMuxConfig {
        stream_window: 1 + choices.length(4_000) as u32,
        session_window: 1 + choices.length(8_000) as u32,
        streams_max: 1 + u32::from(choices.byte() % 8),
    };
    let is_client = choices.byte() & 1 != 0;
    let mux = if is_client { ToyMux::client(config) } else { ToyMux::server(config) };
    let peer_id = if is_client { 2 } else { 1 };
    let mut side = Side { harness: CodecHarness::new(RawStreams::new(mux)), held: Vec::new(), peer_id };
    for _ in 0..ACTIONS_MAX {
        if choices.is_over() {
            break;
        }
        let is_alive = match choices.byte() % 16 {
            0 => {
                let (codec, mut out) = side.harness.parts();
                let _ = codec.open(&mut out);
                true
            }
            1..4 => side.with_stream(&mut choices, |key, choices| {
                let length = choices.length(5_000);
                StreamCommand::Data(key, vec![b'd'; length].into())
            }),
            4 => side.with_stream(&mut choices, |key, _| StreamCommand::End(key)),
            5 => side.with_stream(&mut choices, |key, _| StreamCommand::Reset(key, ResetCause::Cancelled)),
            6 => side.consume(),
            7 => side.receive(choices.take(64)),
            _ => {
                let (kind, flags) = (choices.byte() % 6, choices.byte() & 1);
                let id = side.frame_id(&mut choices, kind);
                let payload = match kind {
                    0 => vec![choices.byte()],
                    2 | 3 => {
                        u32::from_be_bytes([0, choices.byte(), choices.byte(), choices.byte()]).to_be_bytes().to_vec()
                    }
                    _ => vec![b'p'; choices.length(3_000)],
                };
                side.receive(&ToyMux::frame(kind, flags, id, &payload))
            }
        };
        let codec = side.harness.codec();
        assert!(codec.mux().streams().unconsumed_bytes() <= config.session_window, "more than the session's window");
        assert!(codec.mux().streams().opened_by_peer() <= config.streams_max as usize, "more streams than allowed");
        let _ = side.harness.flush();
        side.harness.take_sent();
        if !is_alive {
            return;
        }
    }
    side.close_all();
}

struct Side {
    harness: CodecHarness<RawStreams<ToyMux>>,
    /// Bytes that the application has not consumed.
    held: Vec<(StreamKey, u32)>,
    /// The number of the peer's next stream.
    peer_id: u32,
}

impl Side {
    /// The number of a frame's stream: mostly one that the frame may have.
    fn frame_id(&mut self, choices: &mut Choices<'_>, kind: u8) -> u32 {
        let choice = choices.byte();
        if choice.is_multiple_of(32) {
            return u32::from(choice / 8);
        }
        if kind == 0 {
            self.peer_id += 2;
            return self.peer_id - 2;
        }
        let keys: Vec<_> = self.harness.codec().mux().streams().iter().collect();
        if keys.is_empty() { 0 } else { keys[usize::from(choice) % keys.len()].id() }
    }

    /// Decodes; returns whether the session goes on.
    fn receive(&mut self, bytes: &[u8]) -> bool {
        let Ok(events) = self.harness.decode(bytes) else { return false };
        for event in events {
            if let StreamEvent::Data { stream, bytes } = event {
                self.held.push((stream, bytes.len() as u32));
            }
        }
        true
    }

    fn command(&mut self, command: StreamCommand) -> bool {
        self.harness.encode(command).is_ok()
    }

    fn with_stream(
        &mut self,
        choices: &mut Choices<'_>,
        command: impl FnOnce(StreamKey, &mut Choices<'_>) -> StreamCommand,
    ) -> bool {
        let keys: Vec<_> = self.harness.codec().mux().streams().iter().collect();
        if keys.is_empty() {
            return true;
        }
        let command = command(keys[choices.below(keys.len())], choices);
        self.command(command)
    }

    fn consume(&mut self) -> bool {
        for (key, bytes) in std::mem::take(&mut self.held) {
            self.command(StreamCommand::Consumed(key, bytes));
        }
        true
    }

    fn close_all(mut self) {
        let keys: Vec<_> = self.harness.codec().mux().streams().iter().collect();
        for key in keys {
            self.command(StreamCommand::Reset(key, ResetCause::Unneeded));
        }
        let codec = self.harness.codec();
        assert!(codec.mux().streams().is_empty());
        assert_eq!((codec.status().buffered_bytes, codec.mux().streams().unconsumed_bytes()), (0, 0));
        let _ = self.harness.flush();
        self.harness.take_sent();
    }
}

/// Longer sequences find nothing more.
const ACTIONS_MAX: usize = 200;
