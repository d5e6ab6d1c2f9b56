//! `Connection`: the codec of one HTTP/2 connection, in either role.
//!
//! It reads frames and yields events of streams; `inbound.rs` handles each frame, `field_block.rs` heads and trailers,
//! `outbound.rs` writes for streams. Streams and their windows are those of [`Streams`](tidegate_codec::mux::Streams).
//!
//! - An error of the connection ends it, after GOAWAY. An error of a stream resets the stream, and the connection goes on.
//! - A frame is decoded once it has arrived whole. It has at most 16 KiB.
//! - One frame may cause several events. They wait in `pending`, and are yielded before the next frame is decoded.

use std::cell::Cell;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use tidegate_codec::mux::{Mux, OpenError, ResetCause, StreamEvent, StreamKey, Streams, WindowUpdate, Windows};
use tidegate_codec::{Codec, CodecStatus, Input, Lifecycle, Outbound, Output, Slice, Step};
use tidegate_http_stream::AbuseBucket;
use tidegate_http1::Status;

use crate::error::{Error, Exceeded, Violation};
use crate::frame::{
    ErrorCode, FRAME_BYTES_MAX, FrameHead, HEAD_BYTES, PREFACE, STREAM_ID_MAX, WINDOW_BYTES_DEFAULT, kind, setting,
    short_frame,
};
use crate::hpack::{Decoder, Encoder};
use crate::keep_alive::{KEEP_ALIVE_PING, KeepAlive};
use crate::limits::Config;
use crate::partial_block::FieldBlock;
use crate::recently_reset::RecentlyReset;
use crate::stream_state::StreamState;

/// One HTTP/2 connection (RFC 9113), free of I/O: its messages are the events of streams.
///
/// The bytes of a stream are those of a [`ServerStream`](crate::ServerStream) or a
/// [`ClientStream`](crate::ClientStream), which the application of the stream sees as HTTP messages.
#[derive(Debug)]
pub struct Connection {
    pub(crate) config: Arc<Config>,
    pub(crate) streams: Streams<StreamState>,
    pub(crate) decoder: Decoder,
    pub(crate) encoder: Encoder,
    pub(crate) abuse: AbuseBucket,
    /// A field block that is not complete.
    pub(crate) block: Option<Box<FieldBlock>>,
    pub(crate) pending: PendingEvents,
    /// Streams that this side has reset lately: frames that the peer sent before it knew are no error.
    pub(crate) reset: Option<Box<RecentlyReset>>,
    /// The tasks to wake when the connection takes more requests, or no more.
    observer: Observer,
    /// Until when the peer has to acknowledge SETTINGS; `None` before it has sent its own, and once it has.
    pub(crate) settings_due: Option<Instant>,
    /// Learns of requests that the connection refuses without an application.
    pub(crate) on_refused: Option<Box<OnRefused>>,
    /// With `ping_interval`, once the peer has sent SETTINGS.
    pub(crate) keep_alive: Option<Box<KeepAlive>>,
    /// Since when the connection is in its phase, or without a frame, or within one.
    pub(crate) since: Option<Instant>,
    pub(crate) role: Role,
    pub(crate) phase: Phase,
    pub(crate) has_greeted: bool,
    /// A drain began before the peer had greeted; it goes on once the peer has.
    pub(crate) drains_later: bool,
    /// A part of a frame has come, and the rest has a deadline.
    is_in_frame: bool,
    /// The highest number of a stream that the peer has opened.
    pub(crate) peer_id: u32,
    /// The highest number of a stream that may have been processed: GOAWAY names it.
    pub(crate) processed_id: u32,
    /// Numbers that the peer has skipped last: from the first to the one before the second.
    pub(crate) skipped: [u32; 2],
    /// The number of the next stream that this side opens.
    pub(crate) next_id: u32,
    /// The last stream of GOAWAY from the peer.
    pub(crate) goaway: Option<u32>,
    /// The error code of it.
    pub(crate) goaway_code: ErrorCode,
    /// SETTINGS_MAX_FRAME_SIZE of the peer.
    pub(crate) frame_bytes_max: u32,
    /// SETTINGS_MAX_CONCURRENT_STREAMS of the peer.
    pub(crate) peer_streams_max: u32,
    /// SETTINGS_ENABLE_CONNECT_PROTOCOL of a server.
    pub(crate) peer_extends_connect: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Client,
    Server,
}

/// How far a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// A server waits for the preface.
    Preface,
    /// The first SETTINGS of the peer have not come.
    Settings,
    Open,
    /// The first GOAWAY was sent: the peer may still open streams that were on their way.
    Draining,
    /// The last GOAWAY was sent, or nothing more comes: the streams that are open end.
    Ending,
}

/// Events that a frame has caused beside the one that was yielded.
#[derive(Debug, Default)]
pub(crate) struct PendingEvents {
    pub(crate) data: Option<(StreamKey, Slice)>,
    pub(crate) ended: Option<StreamKey>,
    pub(crate) reset: Vec<(StreamKey, ErrorCode)>,
}

impl PendingEvents {
    #[inline]
    fn next(&mut self) -> Option<StreamEvent> {
        if let Some((stream, bytes)) = self.data.take() {
            return Some(StreamEvent::Data { stream, bytes });
        }
        if let Some(stream) = self.ended.take() {
            return Some(StreamEvent::Ended(stream));
        }
        let (stream, code) = self.reset.pop()?;
        if self.reset.is_empty() {
            self.reset = Vec::new();
        }
        Some(StreamEvent::Reset { stream, code: code.0.into() })
    }
}

/// Tasks that wait for a change.
#[derive(Default)]
#[expect(clippy::box_collection, reason = "few connections have one, so the others have a word for it")]
struct Observer(Cell<Option<Box<Vec<Waker>>>>);

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}

/// Learns the status of each request that a connection refuses.
pub(crate) struct OnRefused(pub(crate) Box<dyn Fn(Status)>);

impl fmt::Debug for OnRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnRefused")
    }
}

impl Connection {
    /// The server's side of a connection.
    #[must_use]
    pub fn server(config: Arc<Config>) -> Self {
        Self::new(Role::Server, config)
    }

    /// The client's side of a connection.
    #[must_use]
    pub fn client(config: Arc<Config>) -> Self {
        Self::new(Role::Client, config)
    }

    fn new(role: Role, config: Arc<Config>) -> Self {
        let limits = config.limits();
        let mut streams = Streams::new(Windows {
            stream_receive: limits.stream_window_bytes,
            session_receive: limits.connection_window_bytes,
            stream_send: WINDOW_BYTES_DEFAULT,
            session_send: WINDOW_BYTES_DEFAULT,
        });
        streams.set_window_max(limits.stream_window_bytes_max);
        // They count as abuse, which decreases with time: a connection that lasts for days may see many.
        streams.set_resets_max(u32::MAX);
        Self {
            streams,
            decoder: Decoder::new(limits.header_table_bytes_max),
            encoder: Encoder::new(ENCODER_TABLE_BYTES),
            abuse: AbuseBucket::default(),
            block: None,
            pending: PendingEvents::default(),
            reset: None,
            observer: Observer::default(),
            settings_due: None,
            on_refused: None,
            keep_alive: None,
            since: None,
            role,
            phase: if role == Role::Server { Phase::Preface } else { Phase::Settings },
            has_greeted: false,
            drains_later: false,
            is_in_frame: false,
            peer_id: 0,
            processed_id: 0,
            skipped: [0; 2],
            next_id: if role == Role::Client { 1 } else { 2 },
            goaway: None,
            goaway_code: ErrorCode::NO_ERROR,
            frame_bytes_max: FRAME_BYTES_MAX,
            peer_streams_max: u32::MAX,
            peer_extends_connect: false,
            config,
        }
    }

    /// Calls `note` with the status of each request that the connection refuses without an application: 431, of a head that is
    /// too large.
    #[must_use]
    pub fn on_refused(self, note: impl Fn(Status) + 'static) -> Self {
        Self { on_refused: Some(Box::new(OnRefused(Box::new(note)))), ..self }
    }

    /// The configuration that all connections of this side share.
    #[must_use]
    pub fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// Whether the connection accepts no further stream, on either side.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.phase == Phase::Ending || self.goaway.is_some()
    }

    /// How many streams this side may have open at a time: SETTINGS_MAX_CONCURRENT_STREAMS of the peer. `None` before the
    /// peer has sent its first SETTINGS.
    #[must_use]
    pub fn peer_streams_max(&self) -> Option<u32> {
        (!matches!(self.phase, Phase::Preface | Phase::Settings)).then_some(self.peer_streams_max)
    }

    /// Whether the server allows extended CONNECT (RFC 8441 §3), as a stream with
    /// [`extended_connect`](crate::ClientStream::extended_connect) sends it. False before its first SETTINGS.
    #[must_use]
    pub fn peer_extends_connect(&self) -> bool {
        self.peer_extends_connect
    }

    /// The error code of the last GOAWAY of the peer, if it has sent one.
    #[must_use]
    pub fn peer_goaway(&self) -> Option<ErrorCode> {
        self.goaway.map(|_| self.goaway_code)
    }

    /// Wakes a task, once, when how many streams this side may open has changed: the peer has sent settings or GOAWAY, or
    /// the connection ends. Several tasks may wait.
    pub fn wake_on_change(&mut self, waker: &Waker) {
        let observers = self.observer.0.get_mut().get_or_insert_default();
        if !observers.iter().any(|known| known.will_wake(waker)) {
            observers.push(waker.clone());
        }
    }

    /// How many streams this side may open has changed.
    pub(crate) fn wake_observer(&self) {
        if let Some(observers) = self.observer.0.take() {
            observers.into_iter().for_each(Waker::wake);
        }
    }

    /// Whether a number is one of a stream that the peer opens.
    pub(crate) fn is_by_peer(&self, id: u32) -> bool {
        (id % 2 == 1) == (self.role == Role::Server)
    }

    /// Whether no stream had this number yet.
    pub(crate) fn is_idle(&self, id: u32) -> bool {
        if self.is_by_peer(id) {
            id > self.peer_id || (self.skipped[0]..self.skipped[1]).contains(&id)
        } else {
            id >= self.next_id
        }
    }

    /// Sends a side's first frames: SETTINGS, after the preface if it is a client.
    fn greet(&mut self, out: &mut Output<'_>) {
        self.has_greeted = true;
        if self.role == Role::Client {
            out.write(PREFACE);
        }
        let limits = self.config.limits();
        let table = (setting::HEADER_TABLE_SIZE, limits.header_table_bytes_max);
        let window = (setting::INITIAL_WINDOW_SIZE, limits.stream_window_bytes);
        let list = (setting::MAX_HEADER_LIST_SIZE, limits.head_bytes_max);
        let [fourth, fifth] = match self.role {
            Role::Client => [(setting::ENABLE_PUSH, 0), (setting::MAX_CONCURRENT_STREAMS, 0)],
            Role::Server => {
                [(setting::MAX_CONCURRENT_STREAMS, limits.streams_max), (setting::NO_RFC7540_PRIORITIES, 1)]
            }
        };
        let settings = [table, window, list, fourth, fifth, (setting::ENABLE_CONNECT_PROTOCOL, 1)];
        let has_connect = self.role == Role::Server && self.config.extends_connect();
        let settings = &settings[..settings.len() - usize::from(!has_connect)];
        let mut content = [0; 36];
        let content = &mut content[..6 * settings.len()];
        for ((id, value), place) in settings.iter().zip(content.chunks_exact_mut(6)) {
            place[..2].copy_from_slice(&id.to_be_bytes());
            place[2..].copy_from_slice(&value.to_be_bytes());
        }
        let head = FrameHead { length: content.len() as u32, kind: kind::SETTINGS, flags: 0, stream: 0 };
        out.write(&head.bytes());
        out.write(content);
        let more = limits.connection_window_bytes - WINDOW_BYTES_DEFAULT;
        if more > 0 {
            out.write(&short_frame(kind::WINDOW_UPDATE, 0, more));
        }
    }

    #[inline]
    fn greet_once(&mut self, out: &mut Output<'_>) {
        if !self.has_greeted {
            self.greet(out);
        }
    }

    /// GOAWAY with the last stream that this side may have processed.
    pub(crate) fn write_goaway(&self, last: u32, code: ErrorCode, out: &mut Output<'_>) {
        let head = FrameHead { length: 8, kind: kind::GOAWAY, flags: 0, stream: 0 };
        out.write(&head.bytes());
        out.write(&last.to_be_bytes());
        out.write(&code.0.to_be_bytes());
    }

    /// Ends the connection with an error.
    #[cold]
    fn fail(&mut self, error: Error, out: &mut Output<'_>) -> Error {
        self.greet_once(out);
        self.write_goaway(self.processed_id, error.code(), out);
        self.phase = Phase::Ending;
        self.wake_observer();
        error
    }

    /// A connection is idle from its last frame on, or from the end of its last stream.
    #[inline]
    pub(crate) fn count_idle_from(&mut self, now: Instant) {
        if self.phase == Phase::Open && self.block.is_none() && !self.is_in_frame {
            self.since = Some(now);
        }
    }

    /// Takes note of whether the input begins with a part of a frame. The body of an open stream has a minimum rate, so
    /// DATA has no deadline beside it.
    #[cold]
    fn note_part(&mut self, input: &Input, now: Instant) {
        let is_data = FrameHead::read(input.bytes()).is_some_and(|head| head.kind == kind::DATA);
        let has_deadline = !is_data || self.streams.is_empty();
        if has_deadline {
            self.count_idle_from(now);
        }
        self.is_in_frame = has_deadline;
    }

    /// Begins to drain: the peer opens no further stream once it knows (RFC 9113 §6.8).
    pub(crate) fn drain(&mut self, out: &mut Output<'_>) {
        if matches!(self.phase, Phase::Preface | Phase::Settings) {
            self.since = Some(out.now());
            self.drains_later = true;
        } else if self.phase == Phase::Open {
            self.write_deferred_resets(out);
            self.write_goaway(STREAM_ID_MAX, ErrorCode::NO_ERROR, out);
            write_ping(DRAIN_PING, out);
            self.since = Some(out.now());
            self.phase = Phase::Draining;
        }
    }

    /// Sends the last GOAWAY, with the exact last stream.
    pub(crate) fn end_drain(&mut self, out: &mut Output<'_>) {
        self.write_deferred_resets(out);
        self.write_goaway(self.processed_id, ErrorCode::NO_ERROR, out);
        self.phase = Phase::Ending;
        self.wake_observer();
    }

    /// The peer has cancelled too many requests. It gets no further one; those in progress are completed.
    #[cold]
    pub(crate) fn end_calmly(&mut self, out: &mut Output<'_>) {
        self.write_deferred_resets(out);
        self.write_goaway(self.processed_id, ErrorCode::ENHANCE_YOUR_CALM, out);
        self.phase = Phase::Ending;
        self.wake_observer();
    }

    /// Takes note of a stream that this side has reset.
    #[cold]
    pub(crate) fn remember_reset(&mut self, id: u32) {
        let ids_max = self.config.limits().streams_max.clamp(RESETS_REMEMBERED_MIN, RESETS_REMEMBERED_MAX) as usize;
        self.reset.get_or_insert_default().remember(id, ids_max);
    }

    pub(crate) fn forget_reset(&mut self, id: u32) {
        if let Some(recent) = &mut self.reset {
            recent.forget(id);
        }
    }

    pub(crate) fn was_reset(&self, id: u32) -> bool {
        self.reset.as_ref().is_some_and(|recent| recent.contains(id))
    }

    /// Resets a stream that has its response before its request has ended: the client need not send the rest (RFC 9113
    /// §8.1). RST_STREAM is written when the client sends more of it, or after [`RESET_DELAY`]. A client that ends the
    /// request by then gets none, and an error in a frame that is already on its way is the one that is reported.
    #[cold]
    pub(crate) fn reset_unneeded(&mut self, id: u32, out: &mut Output<'_>) {
        if self.phase != Phase::Open {
            return self.write_reset_code(id, ErrorCode::NO_ERROR, out);
        }
        self.remember_reset(id);
        let due = out.now() + RESET_DELAY;
        if let Some(oldest) = self.reset.get_or_insert_default().defer_reset(id, due) {
            self.write_reset_code(oldest, ErrorCode::NO_ERROR, out);
        }
    }

    /// Writes every RST_STREAM that was deferred.
    fn write_deferred_resets(&mut self, out: &mut Output<'_>) {
        while let Some(id) = self.reset.as_mut().and_then(|recent| recent.take_oldest()) {
            self.write_reset_code(id, ErrorCode::NO_ERROR, out);
        }
    }

    fn read_preface(&mut self, input: &mut Input) -> Result<bool, Error> {
        let length = input.len().min(PREFACE.len());
        if input.bytes()[..length] != PREFACE[..length] {
            return Err(Violation::Preface.into());
        }
        if length < PREFACE.len() {
            return Ok(false);
        }
        input.consume(length);
        self.phase = Phase::Settings;
        Ok(true)
    }

    fn decode_frames(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Option<StreamEvent>, Error> {
        if self.phase == Phase::Preface && !self.read_preface(input)? {
            return Ok(None);
        }
        while let Some(head) = FrameHead::read(input.bytes()) {
            if head.length > FRAME_BYTES_MAX {
                return Err(Violation::FrameSize.into());
            }
            if self.phase == Phase::Settings && head.kind != kind::SETTINGS {
                return Err(Violation::Preface.into());
            }
            if input.len() < HEAD_BYTES + head.length as usize {
                break;
            }
            if self.is_in_frame {
                self.is_in_frame = false;
                self.count_idle_from(reply.now());
            }
            if let Some(event) = self.on_frame(head, input, reply)? {
                return Ok(Some(event));
            }
            if let Some(event) = self.pending.next() {
                return Ok(Some(event));
            }
        }
        if !input.is_empty() {
            self.note_part(input, reply.now());
        }
        Ok(None)
    }

    /// Whether the peer owes the rest of a frame or of a field block.
    fn is_incomplete(&self) -> bool {
        self.block.is_some() || self.is_in_frame
    }

    fn ping_deadline(&self) -> Option<Instant> {
        self.keep_alive.as_ref()?.deadline(!self.streams.is_empty(), self.config.limits())
    }

    /// Sends a PING, or ends the connection of a peer that has not answered one.
    #[cold]
    fn ping(&mut self, out: &mut Output<'_>) -> Result<(), Error> {
        let Some(keep_alive) = &mut self.keep_alive else { return Ok(()) };
        match (keep_alive.awaits_answer(), out.pending() > 0) {
            // The peer takes bytes at the least rate of the connection, or the connection ends.
            (false, true) => keep_alive.on_received(out.now()),
            (true, true) => keep_alive.on_ping_sent(out.now()),
            (false, false) => {
                keep_alive.on_ping_sent(out.now());
                write_ping(KEEP_ALIVE_PING, out);
            }
            (true, false) => return Err(self.fail(Exceeded::PingTime.into(), out)),
        }
        Ok(())
    }

    /// When the phase of the connection ends.
    fn deadline(&self) -> Option<Instant> {
        let limits = self.config.limits();
        let after = match self.phase {
            Phase::Preface | Phase::Settings if self.drains_later => limits.drain_grace,
            Phase::Preface | Phase::Settings => limits.head_timeout,
            Phase::Open if self.is_incomplete() => limits.head_timeout,
            Phase::Open if self.streams.is_empty() => limits.idle_timeout,
            Phase::Draining => limits.drain_grace,
            Phase::Open | Phase::Ending => return None,
        };
        self.since?.checked_add(after)
    }
}

impl Codec for Connection {
    type In = StreamEvent;
    type Out = Infallible;
    type Error = Error;

    fn protocol(&self) -> &'static str {
        "HTTP/2"
    }

    fn decode(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<StreamEvent>, Error> {
        if let Some(event) = self.pending.next() {
            return Ok(Step::Message(event));
        }
        self.greet_once(reply);
        self.since.get_or_insert(reply.now());
        self.count_idle_from(reply.now());
        if let Some(keep_alive) = &mut self.keep_alive {
            keep_alive.on_input(input.len(), reply.now());
        }
        let result = self.decode_frames(input, reply);
        if let Some(keep_alive) = &mut self.keep_alive {
            keep_alive.on_undecoded(input.len());
        }
        if !matches!(result, Ok(Some(_))) {
            Self::forget_record();
        }
        match result {
            Ok(Some(event)) => Ok(Step::Message(event)),
            Ok(None) => {
                self.abuse.end_batch(self.peer_id, self.config.limits().abuse_credit_per_request);
                Ok(Step::NeedMore)
            }
            Err(error) => Err(self.fail(error, reply)),
        }
    }

    fn encode(&mut self, message: Infallible, _: &mut Output<'_>) -> Result<(), Error> {
        match message {}
    }

    fn decode_eof(&mut self, input: &mut Input, reply: &mut Output<'_>) -> Result<Step<StreamEvent>, Error> {
        let step = self.decode(input, reply)?;
        if matches!(step, Step::Message(_)) {
            return Ok(step);
        }
        self.write_deferred_resets(reply);
        // A peer that sends nothing more can answer nothing.
        (self.settings_due, self.keep_alive) = (None, None);
        self.phase = Phase::Ending;
        self.wake_observer();
        if input.is_empty() { Ok(Step::End) } else { Err(Violation::Truncated.into()) }
    }

    fn on(&mut self, event: Lifecycle, out: &mut Output<'_>) -> Result<(), Error> {
        match event {
            Lifecycle::Opened => {
                self.since = Some(out.now());
                self.greet_once(out);
            }
            Lifecycle::Resumed => {
                if let Some(keep_alive) = &mut self.keep_alive {
                    keep_alive.on_received(out.now());
                }
            }
            Lifecycle::Drain => self.drain(out),
            Lifecycle::Close if self.has_greeted && self.phase != Phase::Ending => self.end_drain(out),
            _ => {}
        }
        Ok(())
    }

    fn status(&self) -> CodecStatus {
        let is_over = self.phase == Phase::Ending || (self.role == Role::Client && self.goaway.is_some());
        CodecStatus { is_finished: is_over && self.streams.is_empty(), reports_finish: true, ..CodecStatus::default() }
    }

    fn is_between_messages(&self) -> bool {
        self.streams.is_empty() && self.block.is_none()
    }

    fn kept_bytes(&self) -> usize {
        self.block.as_ref().map_or(0, |block| block.charge.bytes())
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let reset = self.reset.as_ref().and_then(|recent| recent.deadline());
        [self.deadline(), reset, self.settings_due, self.ping_deadline()].into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, _: &Input, reply: &mut Output<'_>) -> Result<(), Error> {
        while let Some(id) = self.reset.as_mut().and_then(|recent| recent.take_due(reply.now())) {
            self.write_reset_code(id, ErrorCode::NO_ERROR, reply);
        }
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= reply.now());
        if is_due(self.settings_due) {
            return Err(self.fail(Exceeded::SettingsTime.into(), reply));
        }
        if is_due(self.ping_deadline()) {
            self.ping(reply)?;
        }
        match self.deadline() {
            Some(at) if at <= reply.now() => match self.phase {
                Phase::Draining => self.end_drain(reply),
                Phase::Open if !self.is_incomplete() => self.end_drain(reply),
                Phase::Open => return Err(self.fail(Exceeded::FrameTime.into(), reply)),
                _ => return Err(self.fail(Exceeded::Time.into(), reply)),
            },
            _ => {}
        }
        Ok(())
    }
}

impl Mux for Connection {
    type State = StreamState;

    fn streams(&self) -> &Streams<StreamState> {
        &self.streams
    }

    fn streams_mut(&mut self) -> &mut Streams<StreamState> {
        &mut self.streams
    }

    fn open(&mut self, out: &mut Output<'_>) -> Result<StreamKey, OpenError> {
        self.greet_once(out);
        if self.role == Role::Server
            || self.is_ending()
            || self.phase == Phase::Draining
            || self.drains_later
            || self.next_id > STREAM_ID_MAX
        {
            return Err(OpenError::Ending);
        }
        if self.streams.opened_locally() >= self.peer_streams_max as usize {
            return Err(OpenError::Full);
        }
        let id = self.next_id;
        self.next_id += 2;
        Ok(self.streams.open(id, false))
    }

    fn write_turn(&mut self, stream: StreamKey, queue: &mut Outbound, ends: bool, out: &mut Output<'_>) -> bool {
        self.write_records(stream, queue, ends, out)
    }

    /// A client that has ended its side has left. A server that has ended its side may have sent complete answers
    /// before.
    fn ends_streams_with_peer(&self) -> bool {
        self.role == Role::Server
    }

    fn take_opening(&mut self, stream: StreamKey) -> Option<Slice> {
        // Both are of the stream that was opened last.
        self.pending.ended.take_if(|ended| *ended == stream)?;
        self.pending.data.take().map(|(_, record)| record)
    }

    fn write_answer(&mut self, stream: StreamKey, queue: &mut Outbound, out: &mut Output<'_>) -> bool {
        if self.write_whole(stream, queue, out) {
            return true;
        }
        let allowance = self.streams.send_allowance(stream).min(FRAME_BYTES_MAX);
        queue.pending() <= allowance.into()
            && self.write_records(stream, queue, true, out)
            && self.streams.close_ended(stream)
    }

    /// Called for streams whose application has gone: a stream that has not ended in good order is reset.
    fn write_data(&mut self, stream: StreamKey, _: &mut Outbound, _: u32, _: bool, out: &mut Output<'_>) {
        self.reset_unended(stream, out);
    }

    fn write_update(&mut self, update: WindowUpdate, out: &mut Output<'_>) {
        out.write(&short_frame(kind::WINDOW_UPDATE, update.stream.unwrap_or(0), update.bytes));
    }

    fn write_reset(&mut self, stream: StreamKey, cause: ResetCause, out: &mut Output<'_>) {
        if self.is_known_to_peer(stream) {
            self.write_reset_code(stream.id(), code(cause), out);
        }
    }

    fn on_session_closed(&self) {
        // It may have been cut off in the middle of a batch.
        Self::forget_record();
        self.wake_observer();
    }

    fn frame_bytes_max(&self) -> u32 {
        FRAME_BYTES_MAX
    }
}

fn write_ping(content: [u8; 8], out: &mut Output<'_>) {
    let head = FrameHead { length: 8, kind: kind::PING, flags: 0, stream: 0 };
    out.write(&head.bytes());
    out.write(&content);
}

/// The number of a cause on the wire.
fn code(cause: ResetCause) -> ErrorCode {
    match cause {
        ResetCause::Unneeded => ErrorCode::NO_ERROR,
        ResetCause::Cancelled => ErrorCode::CANCEL,
        ResetCause::Violation => ErrorCode::PROTOCOL_ERROR,
        ResetCause::Refused => ErrorCode::REFUSED_STREAM,
        ResetCause::Code(code) => ErrorCode(u32::try_from(code).unwrap_or(ErrorCode::INTERNAL_ERROR.0)),
        _ => ErrorCode::INTERNAL_ERROR,
    }
}

/// The content of the PING that comes with the first GOAWAY: once it is acknowledged, the peer knows of both.
pub(crate) const DRAIN_PING: [u8; 8] = *b"tidedrai";

/// The most bytes of the dynamic table for this side's fields. A response has few fields that come again.
const ENCODER_TABLE_BYTES: u32 = 1024;

/// How many streams that this side has reset a connection remembers, at least and at most.
const RESETS_REMEMBERED_MIN: u32 = 32;
const RESETS_REMEMBERED_MAX: u32 = 1024;

/// How long a client that has its response may take to end its request before it is reset.
const RESET_DELAY: Duration = Duration::from_secs(1);
