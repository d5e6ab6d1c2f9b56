//! `Http2`: HTTP/2, where a stream of lines is a request whose body has those of the client, and a response whose body
//! has those of the server.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tidegate::http1::client as http1_client;
use tidegate::http1::{self, Incoming, Method, Outgoing, Status, StreamedResponse};
use tidegate::http2::hpack::{Encoder, Indexing};
use tidegate::http2::{ClientStream, Config, Connection, Limits, ServerStream};
use tidegate_codec::framing::Lines;
use tidegate_codec::{Codec, Filter, Input, Outbound, Output, Over, Step};
use tidegate_testkit::ToyMuxConfig;

use super::{DATA, Frame, Multiplexer, OPEN, PING, REFUSED, RESET, WINDOW, lines};

pub(crate) struct Http2;

impl Multiplexer for Http2 {
    type Mux = Connection;
    type Server = Over<ServerBody, Lines>;
    type Client = Over<ClientBody, Lines>;

    /// An overflow ends its stream (RFC 9113 §6.9.1).
    const HAS_FIXED_WINDOWS: bool = false;

    fn fit(config: ToyMuxConfig) -> ToyMuxConfig {
        let [stream_window, session_window] =
            [config.stream_window, config.session_window].map(|bytes| bytes.max(WINDOW_BYTES_MIN));
        ToyMuxConfig { stream_window, session_window, ..config }
    }

    fn server(config: ToyMuxConfig) -> Connection {
        Connection::server(configuration(config))
    }

    fn client(config: ToyMuxConfig) -> Connection {
        Connection::client(configuration(config))
    }

    fn server_stream() -> Self::Server {
        static CONFIG: OnceLock<Arc<Config>> = OnceLock::new();
        let config = CONFIG.get_or_init(|| configuration(ToyMuxConfig::default()));
        Over::new(ServerBody { stream: ServerStream::new(config.stream().clone()), is_established: false }, lines())
    }

    fn client_stream() -> Self::Client {
        let limits = http1_client::Limits {
            body_bytes_max: u64::MAX,
            head_timeout: LONG,
            body_timeout: LONG,
            ..http1_client::Limits::default()
        };
        Over::new(ClientBody { stream: ClientStream::new(Arc::new(limits), "http"), is_established: false }, lines())
    }

    fn hello(config: ToyMuxConfig) -> Vec<u8> {
        let more = Self::fit(config).session_window - WINDOW_BYTES_DEFAULT;
        let update = frame(WINDOW_UPDATE, 0, 0, &more.to_be_bytes());
        [PREFACE.to_vec(), initial_window(config.stream_window), update].concat()
    }

    fn frame(kind: u8, flags: u8, id: u32, payload: &[u8]) -> Vec<u8> {
        match kind {
            OPEN => frame(HEADERS, END_HEADERS, id, &request(payload[0])),
            DATA if payload.len() <= FRAME_BYTES_MAX => frame(0, flags, id, payload),
            DATA => payload.chunks(FRAME_BYTES_MAX).map(|piece| frame(0, 0, id, piece)).collect::<Vec<_>>().concat(),
            WINDOW => frame(WINDOW_UPDATE, 0, id, payload),
            RESET => frame(RST_STREAM, 0, id, payload),
            PING => {
                let mut content = payload.to_vec();
                content.resize(8, 0);
                frame(PING_FRAME, 0, 0, &content)
            }
            _ => panic!("no frame of type {kind} is translated"),
        }
    }

    /// A session's window cannot begin so small (RFC 9113 §6.9.2).
    fn closed_windows(bytes: u32) -> ToyMuxConfig {
        ToyMuxConfig { stream_window: 0, session_window: bytes, ..ToyMuxConfig::default() }
    }

    fn open_windows(bytes: u32) -> Vec<u8> {
        initial_window(bytes)
    }

    fn broken_frame() -> Vec<u8> {
        frame(0, 0, 0, b"DATA without a stream")
    }

    fn frames(bytes: &[u8]) -> Vec<Frame> {
        let (mut frames, mut rest) = (Vec::new(), bytes);
        while let Some((&[a, b, c, kind, flags, e, f, g, h], behind)) = rest.split_first_chunk() {
            let length = u32::from_be_bytes([0, a, b, c]) as usize;
            let Some((payload, behind)) = behind.split_at_checked(length) else { break };
            rest = behind;
            let payload = if kind == RST_STREAM && payload == REFUSED_STREAM { &REFUSED } else { payload };
            let kind = match kind {
                0 => DATA,
                RST_STREAM => RESET,
                PING_FRAME => PING,
                WINDOW_UPDATE => WINDOW,
                // Heads, settings, GOAWAY.
                _ => continue,
            };
            frames.push((kind, flags, u32::from_be_bytes([e, f, g, h]), payload.to_vec()));
        }
        frames
    }
}

/// Windows that do not grow, and no deadline of its own, since a scenario may take long in the time of its network.
fn configuration(config: ToyMuxConfig) -> Arc<Config> {
    let ToyMuxConfig { stream_window, session_window, streams_max } = Http2::fit(config);
    Arc::new(Config::new(Limits {
        streams_max,
        abuse_max: 200,
        stream_window_bytes: stream_window,
        stream_window_bytes_max: stream_window,
        connection_window_bytes: session_window,
        body_bytes_max: u64::MAX,
        body_timeout: LONG,
        head_timeout: LONG,
        settings_timeout: LONG,
        idle_timeout: LONG,
        ..Limits::default()
    }))
}

/// The server's side of a stream: it takes bytes out of a request, and puts bytes into a response, which begins at once.
pub(crate) struct ServerBody {
    stream: ServerStream,
    /// The head of the response was written.
    is_established: bool,
}

impl Filter for ServerBody {
    type Error = http1::Error;

    fn inbound(
        &mut self,
        wire: &mut Input,
        plain: &mut Input,
        reply: &mut Output<'_>,
    ) -> Result<Step<()>, Self::Error> {
        match self.stream.decode(wire, reply)? {
            Step::Message(Incoming::Head(_)) => {
                self.stream.encode(Outgoing::Head(StreamedResponse::new(Status::OK)), reply)?;
                self.is_established = true;
            }
            Step::Message(Incoming::Data(bytes)) => plain.append(bytes, reply.pool()),
            Step::Message(Incoming::End) | Step::End => return Ok(Step::End),
            Step::Message(_) => {}
            Step::NeedMore => return Ok(Step::NeedMore),
        }
        Ok(Step::Message(()))
    }

    fn outbound(&mut self, plain: &mut Outbound, out: &mut Output<'_>) -> Result<(), Self::Error> {
        while self.is_established
            && let Some(body) = take_front(plain)
        {
            self.stream.encode(Outgoing::Data(body.into()), out)?;
        }
        Ok(())
    }

    fn decode_eof(&mut self, wire: &mut Input, reply: &mut Output<'_>) -> Result<(), Self::Error> {
        self.stream.decode_eof(wire, reply).map(drop)
    }

    fn close(&mut self, out: &mut Output<'_>) -> Result<(), Self::Error> {
        self.stream.encode(Outgoing::End, out)
    }

    fn is_established(&self) -> bool {
        self.is_established
    }
}

/// The client's side of a stream.
pub(crate) struct ClientBody {
    stream: ClientStream,
    /// The head of the request was written.
    is_established: bool,
}

impl Filter for ClientBody {
    type Error = http1::Error;

    fn inbound(
        &mut self,
        wire: &mut Input,
        plain: &mut Input,
        reply: &mut Output<'_>,
    ) -> Result<Step<()>, Self::Error> {
        match self.stream.decode(wire, reply)? {
            Step::Message(http1_client::Incoming::Data(bytes)) => plain.append(bytes, reply.pool()),
            Step::Message(http1_client::Incoming::End) | Step::End => return Ok(Step::End),
            Step::Message(_) => {}
            Step::NeedMore => return Ok(Step::NeedMore),
        }
        Ok(Step::Message(()))
    }

    fn outbound(&mut self, plain: &mut Outbound, out: &mut Output<'_>) -> Result<(), Self::Error> {
        if !std::mem::replace(&mut self.is_established, true) {
            let request =
                http1_client::StreamedRequest::new(Method::Post, "/").and_then(|request| request.host("tide"));
            self.stream.encode(http1_client::Outgoing::Head(request.expect("a valid request")), out)?;
        }
        while let Some(body) = take_front(plain) {
            self.stream.encode(http1_client::Outgoing::Data(body.into()), out)?;
        }
        Ok(())
    }

    fn decode_eof(&mut self, wire: &mut Input, reply: &mut Output<'_>) -> Result<(), Self::Error> {
        self.stream.decode_eof(wire, reply).map(drop)
    }

    fn close(&mut self, out: &mut Output<'_>) -> Result<(), Self::Error> {
        self.stream.encode(http1_client::Outgoing::End, out)
    }

    fn is_established(&self) -> bool {
        self.is_established
    }
}

/// Removes the first bytes of a queue, as many as are in one piece.
fn take_front(queue: &mut Outbound) -> Option<Vec<u8>> {
    let bytes = queue.front()?.to_vec();
    queue.advance(bytes.len() as u64);
    Some(bytes).filter(|bytes| !bytes.is_empty())
}

fn frame(kind: u8, flags: u8, stream: u32, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).expect("a frame is short").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), content].concat()
}

/// SETTINGS with the window of streams.
fn initial_window(bytes: u32) -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[&[0, 4][..], &bytes.to_be_bytes()].concat())
}

/// The field block of a request whose stream takes turns with others of its urgency.
fn request(urgency: u8) -> Vec<u8> {
    let (mut block, mut encoder) = (Vec::new(), Encoder::new(0));
    let priority = format!("u={urgency}, i");
    let fields =
        [(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "tide"), ("priority", &priority)];
    encoder.begin(&mut block);
    for (name, value) in fields {
        encoder.encode(name.as_bytes(), value.as_bytes(), Indexing::Omitted, &mut block);
    }
    block
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING_FRAME: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const END_HEADERS: u8 = 4;
const REFUSED_STREAM: [u8; 4] = [0, 0, 0, 7];

/// Every peer begins with this window (RFC 9113 §6.9.2).
const WINDOW_BYTES_DEFAULT: u32 = 65_535;

/// The least that [`Limits`] allows.
const WINDOW_BYTES_MIN: u32 = 64 * 1024;

const FRAME_BYTES_MAX: usize = 16 * 1024;

const LONG: Duration = Duration::from_secs(100_000);
