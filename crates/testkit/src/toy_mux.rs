//! `ToyMux`: a small protocol with streams, for tests of multiplexing.
//!
//! A frame is a type, flags, the length of its payload in two bytes, the number of a stream in four, all big endian,
//! and the payload:
//!
//! | type | payload | means |
//! |---|---|---|
//! | 0 OPEN | an urgency, one byte | opens the stream: odd numbers for the client, even ones for the server, increasing |
//! | 1 DATA | bytes | within the windows of the stream and of the session; flag 1: the last of the sender |
//! | 2 WINDOW | a number, four bytes | credit for the stream; stream 0 is the session |
//! | 3 RESET | a code, four bytes | ends the stream both ways |
//! | 4 PING | anything | answered by the same payload with flag 1 |
//! | 5 GOAWAY | nothing | the sender accepts no further stream |

use std::convert::Infallible;
use std::fmt;

use tidegate_codec::mux::{
    FlowError, Mux, OpenError, ResetCause, StreamEvent, StreamKey, Streams, WindowUpdate, Windows,
};
use tidegate_codec::{Blame, Codec, CodecStatus, Fault, Input, Lifecycle, Outbound, Output, Step};

/// Either role of the protocol.
#[derive(Debug)]
pub struct ToyMux {
    streams: Streams,
    is_client: bool,
    streams_max: u32,
    /// The number of the next stream of ours.
    next_id: u32,
    /// The highest number of a stream of the peer.
    peer_id: u32,
    /// A stream that ends behind the bytes that were just yielded.
    ended: Option<StreamKey>,
    /// Either side has sent GOAWAY, or the peer has ended the connection.
    is_ending: bool,
}

/// The limits of both sides, which have to agree on the windows.
#[derive(Debug, Clone, Copy)]
pub struct ToyMuxConfig {
    /// Each stream's window at the start, both ways.
    pub stream_window: u32,
    /// The session's window at the start, both ways.
    pub session_window: u32,
    /// How many streams of the peer may be open at a time; further ones are refused.
    pub streams_max: u32,
}

impl Default for ToyMuxConfig {
    fn default() -> Self {
        Self { stream_window: 64 * 1024, session_window: 256 * 1024, streams_max: 1000 }
    }
}

/// A peer's violation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToyMuxError {
    /// A frame of an unknown type, of a wrong length, or for a stream that it cannot concern.
    Frame,
    /// It does not respect flow control.
    Flow(FlowError),
    /// It ended within a frame.
    Truncated,
}

impl ToyMux {
    /// The side whose streams have odd numbers.
    #[must_use]
    pub fn client(config: ToyMuxConfig) -> Self {
        Self::new(true, config)
    }

    /// The side whose streams have even numbers.
    #[must_use]
    pub fn server(config: ToyMuxConfig) -> Self {
        Self::new(false, config)
    }

    fn new(is_client: bool, config: ToyMuxConfig) -> Self {
        let ToyMuxConfig { stream_window, session_window, streams_max } = config;
        let windows = Windows {
            stream_receive: stream_window,
            session_receive: session_window,
            stream_send: stream_window,
            session_send: session_window,
        };
        Self {
            streams: Streams::new(windows),
            is_client,
            streams_max,
            next_id: if is_client { 1 } else { 2 },
            peer_id: 0,
            ended: None,
            is_ending: false,
        }
    }

    /// Bytes that have arrived on streams, and that no application has consumed.
    #[must_use]
    pub fn unconsumed_bytes(&self) -> u32 {
        self.streams.unconsumed_bytes()
    }

    /// A frame, for a peer that is written by hand.
    ///
    /// # Panics
    /// If the payload is longer than 65,535 bytes.
    #[must_use]
    pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = u16::try_from(payload.len()).expect("a frame has at most 65,535 bytes");
        [&head(kind, flags, length, stream)[..], payload].concat()
    }

    fn is_idle(&self, id: u32) -> bool {
        if self.is_by_peer(id) { id > self.peer_id } else { id >= self.next_id }
    }

    fn is_by_peer(&self, id: u32) -> bool {
        (id % 2 == 1) != self.is_client
    }

    /// The stream of a frame with bytes. `None` if these are for no application.
    #[inline]
    fn stream_of_data(&mut self, id: u32, length: usize) -> Result<Option<StreamKey>, ToyMuxError> {
        if id == 0 || self.is_idle(id) {
            return Err(ToyMuxError::Frame);
        }
        self.streams.receive_frame(id, length as u32).map_err(ToyMuxError::Flow)
    }

    /// Any other frame. `None` if it concerns no stream of the application.
    #[inline(never)]
    fn control_in(
        &mut self,
        kind: u8,
        flags: u8,
        id: u32,
        payload: &mut Input,
        length: usize,
        reply: &mut Output<'_>,
    ) -> Result<Option<StreamEvent>, ToyMuxError> {
        let (by_peer, is_idle) = (self.is_by_peer(id), self.is_idle(id));
        match kind {
            OPEN if length == 1 && id > 0 && by_peer && is_idle => {
                let urgency = payload.bytes()[0];
                payload.consume(1);
                self.peer_id = id;
                if self.is_ending || self.streams.opened_by_peer() >= self.streams_max as usize {
                    reply.write(&head(RESET, 0, 4, id));
                    reply.write(&code(ResetCause::Refused).to_be_bytes());
                    return Ok(None);
                }
                let key = self.streams.open(id, true);
                self.streams.set_urgency(key, urgency);
                Ok(Some(StreamEvent::Opened(key)))
            }
            WINDOW if length == 4 && (id == 0 || !is_idle) => {
                let bytes = number(payload);
                let stream = self.streams.find(id);
                if id == 0 || stream.is_some() {
                    self.streams.grant(stream, bytes).map_err(ToyMuxError::Flow)?;
                }
                Ok(None)
            }
            RESET if length == 4 && id > 0 && !is_idle => {
                let code = number(payload).into();
                let Some(stream) = self.streams.find(id) else { return Ok(None) };
                self.streams.reset_by_peer(stream).map_err(ToyMuxError::Flow)?;
                Ok(Some(StreamEvent::Reset { stream, code }))
            }
            PING => {
                let echo = payload.take(length);
                if flags & LAST == 0 {
                    reply.write(&head(PING, LAST, length as u16, id));
                    reply.write(&echo);
                }
                Ok(None)
            }
            GOAWAY if length == 0 => {
                self.is_ending = true;
                Ok(None)
            }
            _ => Err(ToyMuxError::Frame),
        }
    }
}

impl Codec for ToyMux {
    type In = StreamEvent;
    type Out = Infallible;
    type Error = ToyMuxError;

    fn decode(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<StreamEvent>, ToyMuxError> {
        if let Some(stream) = self.ended.take() {
            return Ok(Step::Message(StreamEvent::Ended(stream)));
        }
        loop {
            let Some(&[kind, flags, high, low, a, b, c, d]) = input.bytes().first_chunk() else {
                return Ok(Step::NeedMore);
            };
            let length = usize::from(u16::from_be_bytes([high, low]));
            if input.len() < HEAD_BYTES + length {
                return Ok(Step::NeedMore);
            }
            input.consume(HEAD_BYTES);
            let id = u32::from_be_bytes([a, b, c, d]);
            if kind != DATA {
                if let Some(event) = self.control_in(kind, flags, id, input, length, reply)? {
                    return Ok(Step::Message(event));
                }
                continue;
            }
            let stream = self.stream_of_data(id, length)?;
            let bytes = input.take(length);
            let Some(stream) = stream else { continue };
            let is_last = flags & LAST != 0;
            if is_last {
                self.streams.end_by_peer(stream);
            }
            if length > 0 {
                self.ended = is_last.then_some(stream);
                return Ok(Step::Message(StreamEvent::Data { stream, bytes }));
            }
            if is_last {
                return Ok(Step::Message(StreamEvent::Ended(stream)));
            }
        }
    }

    fn encode(&mut self, message: Infallible, _: &mut Output<'_>) -> Result<(), ToyMuxError> {
        match message {}
    }

    fn decode_eof(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<StreamEvent>, ToyMuxError> {
        let step = self.decode(input, reply)?;
        if matches!(step, Step::Message(_)) {
            return Ok(step);
        }
        self.is_ending = true;
        if input.is_empty() { Ok(Step::End) } else { Err(ToyMuxError::Truncated) }
    }

    fn on(&mut self, event: Lifecycle, out: &mut Output<'_>) -> Result<(), ToyMuxError> {
        if event == Lifecycle::Drain && !self.is_ending {
            self.is_ending = true;
            out.write(&head(GOAWAY, 0, 0, 0));
        }
        Ok(())
    }

    fn status(&self) -> CodecStatus {
        CodecStatus {
            is_finished: self.is_ending && self.streams.is_empty(),
            reports_finish: true,
            ..CodecStatus::default()
        }
    }
}

impl Mux for ToyMux {
    type State = ();

    fn streams(&self) -> &Streams {
        &self.streams
    }

    fn streams_mut(&mut self) -> &mut Streams {
        &mut self.streams
    }

    fn open(&mut self, out: &mut Output<'_>) -> Result<StreamKey, OpenError> {
        if self.is_ending || self.next_id > u32::MAX - 2 {
            return Err(OpenError::Ending);
        }
        if self.streams.len() - self.streams.opened_by_peer() >= self.streams_max as usize {
            return Err(OpenError::Full);
        }
        let id = self.next_id;
        self.next_id += 2;
        out.write_pieces((&head(OPEN, 0, 1, id)[..], &[URGENCY][..], &[][..]));
        Ok(self.streams.open(id, false))
    }

    fn write_data(
        &mut self,
        stream: StreamKey,
        queue: &mut Outbound,
        length: u32,
        is_last: bool,
        out: &mut Output<'_>,
    ) {
        out.write(&head(DATA, if is_last { LAST } else { 0 }, length as u16, stream.id()));
        out.take_flushed_up_to(queue, length.into());
    }

    fn write_update(&mut self, update: WindowUpdate, out: &mut Output<'_>) {
        out.write(&head(WINDOW, 0, 4, update.stream.unwrap_or(0)));
        out.write(&update.bytes.to_be_bytes());
    }

    fn write_reset(&mut self, stream: StreamKey, cause: ResetCause, out: &mut Output<'_>) {
        out.write(&head(RESET, 0, 4, stream.id()));
        out.write(&code(cause).to_be_bytes());
    }
}

/// The number of a cause on the wire.
fn code(cause: ResetCause) -> u32 {
    match cause {
        ResetCause::Unneeded => 0,
        ResetCause::Cancelled => 1,
        ResetCause::Violation => 3,
        ResetCause::Refused => 4,
        ResetCause::Code(code) => code as u32,
        _ => 2,
    }
}

fn head(kind: u8, flags: u8, length: u16, stream: u32) -> [u8; HEAD_BYTES] {
    let ([high, low], [a, b, c, d]) = (length.to_be_bytes(), stream.to_be_bytes());
    [kind, flags, high, low, a, b, c, d]
}

fn number(payload: &mut Input) -> u32 {
    let bytes = *payload.bytes().first_chunk().expect("the length was checked");
    payload.consume(4);
    u32::from_be_bytes(bytes)
}

impl Fault for ToyMuxError {
    fn blame(&self) -> Blame {
        match self {
            Self::Flow(FlowError::ResetFlood) => Blame::Limit,
            _ => Blame::Peer,
        }
    }
}

impl fmt::Display for ToyMuxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frame => f.write_str("a frame that cannot be"),
            Self::Flow(error) => write!(f, "flow control: {error:?}"),
            Self::Truncated => f.write_str("the peer has ended within a frame"),
        }
    }
}

impl std::error::Error for ToyMuxError {}

const HEAD_BYTES: usize = 8;
const OPEN: u8 = 0;
const DATA: u8 = 1;
const WINDOW: u8 = 2;
const RESET: u8 = 3;
const PING: u8 = 4;
const GOAWAY: u8 = 5;
const LAST: u8 = 1;
const URGENCY: u8 = 3;
