//! The protocols with streams that scenarios run over: one made for tests, and HTTP/2.
//!
//! Scenarios are written in the frames of [`ToyMux`]. A protocol translates them for raw peers.

mod http2;

pub(crate) use self::http2::Http2;

use tidegate_codec::Pipeline;
use tidegate_codec::Slice;
use tidegate_codec::framing::{Lines, Payload};
use tidegate_codec::mux::Mux;
use tidegate_testkit::{ToyMux, ToyMuxConfig};

/// A protocol with streams of lines.
pub(crate) trait Multiplexer: 'static {
    type Mux: Mux;

    /// The pipeline of one stream of a server, and of a client.
    type Server: Pipeline<In = Slice, Out = Payload>;
    type Client: Pipeline<In = Slice, Out = Payload>;

    /// Whether the windows are as simple as they can be: that of a session does not grow when streams that nothing reads
    /// occupy it, and a peer that overflows the window of one stream ends its session.
    const HAS_FIXED_WINDOWS: bool;

    /// The nearest windows that both sides may begin with.
    fn fit(config: ToyMuxConfig) -> ToyMuxConfig;

    fn server(config: ToyMuxConfig) -> Self::Mux;
    fn client(config: ToyMuxConfig) -> Self::Mux;

    fn server_stream() -> Self::Server;
    fn client_stream() -> Self::Client;

    /// The first bytes of a raw client. Its windows are those of `config`, and may be smaller than [`fit`](Self::fit)
    /// says, except that of the session.
    fn hello(config: ToyMuxConfig) -> Vec<u8>;

    /// The bytes that a raw client sends for a frame.
    fn frame(kind: u8, flags: u8, id: u32, payload: &[u8]) -> Vec<u8>;

    /// A configuration of a raw client to which a server sends no body before [`open_windows`](Self::open_windows).
    fn closed_windows(bytes: u32) -> ToyMuxConfig;

    /// Has the server send so many bytes of all streams.
    fn open_windows(bytes: u32) -> Vec<u8>;

    /// A frame that ends the session.
    fn broken_frame() -> Vec<u8>;

    /// The whole frames of a server so far: type, flags, stream, payload.
    fn frames(bytes: &[u8]) -> Vec<Frame>;
}

/// A frame in the terms of [`ToyMux`]: type, flags, stream, payload.
pub(crate) type Frame = (u8, u8, u32, Vec<u8>);

pub(crate) const OPEN: u8 = 0;
pub(crate) const DATA: u8 = 1;
pub(crate) const WINDOW: u8 = 2;
pub(crate) const RESET: u8 = 3;
pub(crate) const PING: u8 = 4;

/// The code of a reset of a stream that was refused.
pub(crate) const REFUSED: [u8; 4] = [0, 0, 0, 4];

/// No line of a scenario is longer.
const LINE_BYTES_MAX: usize = 4 << 20;

fn lines() -> Lines {
    Lines::new().with_line_bytes_max(LINE_BYTES_MAX)
}

/// The protocol for tests.
pub(crate) struct Toy;

impl Multiplexer for Toy {
    type Mux = ToyMux;
    type Server = Lines;
    type Client = Lines;

    const HAS_FIXED_WINDOWS: bool = true;

    fn fit(config: ToyMuxConfig) -> ToyMuxConfig {
        config
    }

    fn server(config: ToyMuxConfig) -> ToyMux {
        ToyMux::server(config)
    }

    fn client(config: ToyMuxConfig) -> ToyMux {
        ToyMux::client(config)
    }

    fn server_stream() -> Lines {
        lines()
    }

    fn client_stream() -> Lines {
        lines()
    }

    fn hello(_: ToyMuxConfig) -> Vec<u8> {
        Vec::new()
    }

    fn frame(kind: u8, flags: u8, id: u32, payload: &[u8]) -> Vec<u8> {
        ToyMux::frame(kind, flags, id, payload)
    }

    fn closed_windows(bytes: u32) -> ToyMuxConfig {
        ToyMuxConfig { stream_window: bytes, session_window: 0, ..ToyMuxConfig::default() }
    }

    fn open_windows(bytes: u32) -> Vec<u8> {
        ToyMux::frame(WINDOW, 0, 0, &bytes.to_be_bytes())
    }

    fn broken_frame() -> Vec<u8> {
        ToyMux::frame(99, 0, 0, b"")
    }

    fn frames(bytes: &[u8]) -> Vec<Frame> {
        let (mut frames, mut rest) = (Vec::new(), bytes);
        while let Some((&[kind, flags, high, low, a, b, c, d], behind)) = rest.split_first_chunk() {
            let length = usize::from(u16::from_be_bytes([high, low]));
            let Some((payload, behind)) = behind.split_at_checked(length) else { break };
            frames.push((kind, flags, u32::from_be_bytes([a, b, c, d]), payload.to_vec()));
            rest = behind;
        }
        frames
    }
}
