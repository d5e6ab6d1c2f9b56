//! `Connection`: the state of one HTTP/3 connection beside its request streams, in either role.
//!
//! It opens one stream, its control stream, and reads the unidirectional streams of the peer. The QPACK streams are
//! not opened: with tables of 0 bytes nothing is sent on them (RFC 9204 §4.2). If its limits permit tables, they are here, and
//! the [`Endpoint`](crate::Endpoint) opens the streams. Request streams belong to
//! [`RequestStream`](crate::RequestStream); the connection counts them, for GOAWAY, and keeps their priorities.
//!
//! It does no I/O: the caller passes received bytes to `handle_*`, and takes work from `poll_*`. An error ends the
//! connection, with [`Error::code`] in CONNECTION_CLOSE.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_http_stream::{AbuseBucket, Priority};

use crate::control_stream::{ControlFrame, ControlStream};
use crate::error::{Error, ErrorCode, Exceeded, Violation};
use crate::frame::{FrameHead, kind, reserved, stream_type};
use crate::limits::Config;
use crate::qpack::{DecoderInstruction, DecoderStream, TableDecoder, TableEncoder, read_encoder_stream};
use crate::settings::Settings;
use crate::varint;

/// One HTTP/3 connection (RFC 9114), free of I/O, beside its request streams.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Instant;
/// use tidegate::http3::{Config, Connection, Event};
///
/// let config = Arc::new(Config::default());
/// let (mut client, mut server) = (Connection::client(config.clone()), Connection::server(config));
/// // The first unidirectional stream of a client has the number 2.
/// let control = client.poll_control().expect("its type and SETTINGS");
/// server.handle_uni(2, &control, Instant::now())?;
/// assert!(matches!(server.poll_event(), Some(Event::Settings(_))));
/// # Ok::<(), tidegate::http3::Error>(())
/// ```
#[derive(Debug)]
pub struct Connection {
    config: Arc<Config>,
    role: ConnectionRole,
    /// The unidirectional streams of the peer that are open.
    peer_streams: Vec<(u64, UniStream)>,
    /// The last ones that were stopped: bytes of them may be on their way.
    stopped_streams: VecDeque<u64>,
    /// The types of critical streams that the peer has opened, as bits.
    seen_types: u8,
    settings: Option<Settings>,
    /// Bytes for our control stream.
    output: Vec<u8>,
    events: VecDeque<Event>,
    /// The number in our last GOAWAY.
    goaway_sent: Option<u64>,
    /// The number in the peer's last GOAWAY.
    goaway_received: Option<u64>,
    max_push_id: Option<u64>,
    /// The number of the first request stream that was not accepted yet.
    next_request: u64,
    /// The number of the first request stream that QUIC does not permit.
    requests_end: u64,
    /// Priorities of requests that have not come.
    waiting_priorities: VecDeque<(u64, Priority)>,
    abuse: AbuseBucket,
    /// The table that the peer fills, once it was needed.
    table_decoder: Option<Box<TableDecoder>>,
    /// The table that this side fills, once it was needed.
    table_encoder: Option<Box<TableEncoder>>,
}

/// The role of this side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionRole {
    Client,
    Server,
}

/// Something that the peer's unidirectional streams have caused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The settings of the peer have come.
    Settings(Settings),
    /// GOAWAY of a server: requests on streams from this number on are not processed, and may be sent again elsewhere.
    /// GOAWAY of a client, which names a push, has 0.
    GoAway {
        /// The number of the first stream that is not processed.
        stream: u64,
    },
    /// PRIORITY_UPDATE of a request that was accepted (RFC 9218 §7.2).
    Priority {
        /// The number of the request stream.
        stream: u64,
        /// Its priority from now on.
        priority: Priority,
    },
    /// STOP_SENDING is due on a unidirectional stream of the peer. The caller discards later bytes of it.
    StopUni {
        /// The number of the stream.
        stream: u64,
        /// The code.
        code: ErrorCode,
    },
}

/// The answer to a request stream that the peer has opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// The stream is read. The priority is that of a PRIORITY_UPDATE that came before, which counts more than the field.
    Accepted(Option<Priority>),
    /// GOAWAY has named a lower stream: this one is reset with H3_REQUEST_REJECTED.
    Rejected,
}

/// A unidirectional stream of the peer.
#[derive(Debug)]
enum UniStream {
    /// The type has not come whole.
    Type {
        bytes: [u8; 8],
        length: u8,
    },
    Control(Box<ControlStream>),
    QpackEncoder,
    QpackDecoder(DecoderStream),
    /// How many more bytes are discarded before the stream is stopped; `None` afterwards.
    Unknown {
        left: Option<u32>,
    },
}

impl Connection {
    /// The server's side of a connection.
    #[must_use]
    pub fn server(config: Arc<Config>) -> Self {
        Self::new(ConnectionRole::Server, config)
    }

    /// The client's side of a connection.
    #[must_use]
    pub fn client(config: Arc<Config>) -> Self {
        Self::new(ConnectionRole::Client, config)
    }

    fn new(role: ConnectionRole, config: Arc<Config>) -> Self {
        let mut output = vec![stream_type::CONTROL as u8];
        let settings = Settings::of(&config, role);
        settings.write(config.grease_seed(), &mut output);
        if let Some(seed) = config.grease_seed() {
            FrameHead { kind: reserved(seed.rotate_right(32)), length: 0 }.write(&mut output);
        }
        Self {
            config,
            role,
            peer_streams: Vec::new(),
            stopped_streams: VecDeque::new(),
            seen_types: 0,
            settings: None,
            output,
            events: VecDeque::new(),
            goaway_sent: None,
            goaway_received: None,
            max_push_id: None,
            next_request: 0,
            requests_end: varint::MAX,
            waiting_priorities: VecDeque::new(),
            abuse: AbuseBucket::default(),
            table_decoder: None,
            table_encoder: None,
        }
    }

    /// The table that the peer fills, if the limits permit one.
    pub(crate) fn table_decoder(&mut self) -> Option<&mut TableDecoder> {
        let limits = self.config.limits();
        if limits.qpack_table_bytes_max == 0 {
            return None;
        }
        let make = || Box::new(TableDecoder::new(limits.qpack_table_bytes_max, limits.qpack_blocked_streams_max));
        Some(self.table_decoder.get_or_insert_with(make))
    }

    /// The table that this side fills, if the limits and the settings of the peer permit one.
    pub(crate) fn table_encoder(&mut self) -> Option<&mut TableEncoder> {
        let (limits, settings) = (self.config.limits(), self.settings.as_ref()?);
        if limits.qpack_encoder_bytes_max == 0 || settings.table_bytes_max == 0 {
            return None;
        }
        let (bytes, streams) = (settings.table_bytes_max, settings.blocked_streams_max);
        let make = || Box::new(TableEncoder::new(bytes, streams, limits.qpack_encoder_bytes_max));
        Some(self.table_encoder.get_or_insert_with(make))
    }

    /// Bytes of memory of both tables.
    pub(crate) fn table_memory_bytes(&self) -> usize {
        self.table_decoder.as_ref().map_or(0, |table| table.memory_bytes())
            + self.table_encoder.as_ref().map_or(0, |table| table.memory_bytes())
    }

    /// The streams that have waited for entries of the table, and need not wait any longer.
    pub(crate) fn take_unblocked(&mut self) -> Vec<u64> {
        self.table_decoder.as_mut().map(|table| table.take_unblocked()).unwrap_or_default()
    }

    /// Bytes for our encoder stream and for our decoder stream.
    pub(crate) fn poll_qpack(&mut self) -> [Option<Vec<u8>>; 2] {
        let encoder = self.table_encoder.as_mut().and_then(|table| table.poll_instructions());
        [encoder, self.table_decoder.as_mut().and_then(|table| table.poll_instructions())]
    }

    /// The configuration that all connections of this side share.
    #[must_use]
    pub fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// The settings of the peer, once they have come.
    #[must_use]
    pub fn peer_settings(&self) -> Option<&Settings> {
        self.settings.as_ref()
    }

    /// Bytes for our control stream, which is the first unidirectional stream that this side opens. The first call yields
    /// the type of the stream and SETTINGS. `None` if there is nothing to send.
    pub fn poll_control(&mut self) -> Option<Vec<u8>> {
        (!self.output.is_empty()).then(|| std::mem::take(&mut self.output))
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Bytes of a unidirectional stream of the peer, in their order. A caller that has taken
    /// [`Event::StopUni`] of a stream passes nothing more of it: bytes of the last 64 such streams are discarded, and those
    /// of an older one would be those of a new stream.
    ///
    /// # Errors
    /// The connection ends.
    pub fn handle_uni(&mut self, stream: u64, bytes: &[u8], now: Instant) -> Result<(), Error> {
        let place = self.peer_streams.iter().position(|(number, _)| *number == stream);
        if place.is_none() && self.stopped_streams.contains(&stream) {
            return Ok(());
        }
        let mut state = match place {
            Some(place) => self.peer_streams.swap_remove(place).1,
            None if self.peer_streams.len() >= self.config.limits().uni_streams_max as usize => {
                return Err(Exceeded::UniStreams.into());
            }
            None => UniStream::Type { bytes: [0; 8], length: 0 },
        };
        self.read_uni(stream, &mut state, bytes, now)?;
        if matches!(state, UniStream::Unknown { left: None }) {
            // A stream that is stopped has no place among those that are open.
            if self.stopped_streams.len() >= STOPPED_STREAMS_MAX {
                self.stopped_streams.pop_front();
            }
            self.stopped_streams.push_back(stream);
        } else {
            self.peer_streams.push((stream, state));
        }
        Ok(())
    }

    /// The peer has ended or reset one of its unidirectional streams. An unknown one, or one without a type, may end
    /// (RFC 9114 §6.2).
    ///
    /// # Errors
    /// [`Violation::ClosedCriticalStream`]; the connection ends.
    pub fn handle_uni_end(&mut self, stream: u64) -> Result<(), Error> {
        let Some(place) = self.peer_streams.iter().position(|(number, _)| *number == stream) else { return Ok(()) };
        match self.peer_streams.swap_remove(place).1 {
            UniStream::Type { .. } | UniStream::Unknown { .. } => Ok(()),
            _ => Err(Violation::ClosedCriticalStream.into()),
        }
    }

    /// The peer has sent STOP_SENDING for our control stream.
    ///
    /// # Errors
    /// Always [`Violation::ClosedCriticalStream`]; the connection ends (RFC 9114 §6.2.1).
    pub fn handle_control_stopped(&mut self) -> Result<(), Error> {
        Err(Violation::ClosedCriticalStream.into())
    }

    /// The peer has opened a bidirectional stream.
    ///
    /// # Errors
    /// [`Violation::StreamCreation`] if the peer is a server, which opens none (RFC 9114 §6.1); [`Exceeded::Abuse`].
    pub fn handle_request(&mut self, stream: u64, now: Instant) -> Result<Admission, Error> {
        if self.role == ConnectionRole::Client {
            return Err(Violation::StreamCreation.into());
        }
        if self.goaway_sent.is_some_and(|end| stream >= end) {
            self.count_abuse(now)?;
            return Ok(Admission::Rejected);
        }
        self.next_request = self.next_request.max(stream.saturating_add(4));
        let waiting = self.waiting_priorities.iter().position(|(number, _)| *number == stream);
        let priority = waiting.and_then(|place| self.waiting_priorities.remove(place));
        Ok(Admission::Accepted(priority.map(|(_, priority)| priority)))
    }

    /// Whether the request of a stream may still come: it has a higher number than all that were accepted.
    pub(crate) fn may_come(&self, stream: u64) -> bool {
        self.role == ConnectionRole::Server && stream >= self.next_request
    }

    /// Counts abuse: a request whose stream the peer makes this side reset or refuse.
    ///
    /// # Errors
    /// [`Exceeded::Abuse`]; the connection ends.
    pub fn count_abuse(&mut self, now: Instant) -> Result<(), Error> {
        let limits = self.config.limits();
        match self.abuse.add(now, limits.abuse_max, limits.abuse_leak_per_second) {
            true => Ok(()),
            false => Err(Exceeded::Abuse.into()),
        }
    }

    /// The peer has reset or stopped a request stream that is `age` old, before its response was complete. A young one is
    /// abuse.
    ///
    /// # Errors
    /// [`Exceeded::Abuse`]; the connection ends.
    pub fn handle_request_reset(&mut self, age: Duration, now: Instant) -> Result<(), Error> {
        if age < self.config.limits().abuse_reset_age { self.count_abuse(now) } else { Ok(()) }
    }

    /// A request is complete, which takes abuse away.
    pub fn credit_request(&mut self) {
        self.abuse.credit(self.config.limits().abuse_credit_per_request);
        for (_, stream) in &mut self.peer_streams {
            if let UniStream::Control(control) = stream {
                control.credit(self.config.limits());
            }
        }
    }

    /// QUIC permits the client request streams below this number, so no priority may be about a higher one (RFC 9218
    /// §7.2).
    pub fn permit_requests(&mut self, end: u64) {
        self.requests_end = end;
    }

    /// The number in the last GOAWAY of the peer.
    #[must_use]
    pub fn peer_goaway(&self) -> Option<u64> {
        self.goaway_received
    }

    /// Whether a client may open a further request stream.
    #[must_use]
    pub fn may_request(&self) -> bool {
        self.role == ConnectionRole::Client && self.goaway_received.is_none() && self.goaway_sent.is_none()
    }

    /// Whether the server may have processed the request of a stream, by its GOAWAY (RFC 9114 §5.2). A request that it
    /// has not is safe to send again.
    #[must_use]
    pub fn may_be_processed(&self, stream: u64) -> bool {
        self.goaway_received.is_none_or(|end| stream < end)
    }

    /// Begins to drain: a server sends GOAWAY that permits all requests on their way, a client one that permits no push
    /// (RFC 9114 §5.2).
    pub fn drain(&mut self) {
        let end = if self.role == ConnectionRole::Server { LAST_REQUEST } else { 0 };
        self.write_goaway(end);
    }

    /// Ends the drain: a server sends GOAWAY with the first stream that it has not accepted, and rejects those from there
    /// on.
    pub fn end_drain(&mut self) {
        let end = if self.role == ConnectionRole::Server { self.next_request } else { 0 };
        self.write_goaway(end);
    }

    /// Sends GOAWAY, unless the last one has a number as low: it never grows.
    fn write_goaway(&mut self, end: u64) {
        if self.goaway_sent.is_some_and(|before| before <= end) {
            return;
        }
        self.goaway_sent = Some(end);
        FrameHead { kind: kind::GOAWAY, length: varint::encoded_bytes(end) as u64 }.write(&mut self.output);
        varint::write(end, &mut self.output);
    }

    /// Sends PRIORITY_UPDATE for a request of this client. A server sends none.
    pub fn update_priority(&mut self, stream: u64, priority: Priority) {
        if self.role == ConnectionRole::Server {
            return;
        }
        let urgency = [b'0' + priority.urgency.min(7)];
        let incremental: &[u8] = if priority.is_incremental { b", i" } else { b"" };
        let field = [&b"u="[..], &urgency, incremental].concat();
        let length = (varint::encoded_bytes(stream) + field.len()) as u64;
        FrameHead { kind: kind::PRIORITY_UPDATE, length }.write(&mut self.output);
        varint::write(stream, &mut self.output);
        self.output.extend_from_slice(&field);
    }

    fn read_uni(&mut self, stream: u64, state: &mut UniStream, mut bytes: &[u8], now: Instant) -> Result<(), Error> {
        if let UniStream::Type { bytes: start, length } = state {
            loop {
                let Some((&byte, rest)) = bytes.split_first() else { return Ok(()) };
                bytes = rest;
                // A type has at most eight bytes, and is complete with them.
                start[usize::from(*length).min(7)] = byte;
                *length += 1;
                if let Some((kind, _)) = varint::read(&start[..usize::from(*length).min(8)]) {
                    *state = self.begin_uni(kind, now)?;
                    break;
                }
            }
        }
        match state {
            UniStream::Type { .. } => {}
            UniStream::Control(control) => {
                while let Some(frame) = control.read(&mut bytes, self.config.limits())? {
                    self.on_frame(&frame, now)?;
                }
            }
            UniStream::QpackEncoder => {
                let useless = match self.table_decoder() {
                    Some(table) => table.handle_instructions(bytes)?,
                    None => read_encoder_stream(bytes)?,
                };
                for _ in 0..useless {
                    self.count_abuse(now)?;
                }
            }
            UniStream::QpackDecoder(decoder) => {
                while let Some(instruction) = decoder.read(&mut bytes)? {
                    self.on_decoder_instruction(instruction, now)?;
                }
            }
            UniStream::Unknown { left } => {
                *left = left.and_then(|left| {
                    left.checked_sub(u32::try_from(bytes.len()).unwrap_or(u32::MAX)).or_else(|| {
                        self.events.push_back(Event::StopUni { stream, code: ErrorCode::STREAM_CREATION_ERROR });
                        None
                    })
                });
            }
        }
        Ok(())
    }

    /// Without a table of this side a section needs no acknowledgment, and there is no insertion.
    fn on_decoder_instruction(&mut self, instruction: DecoderInstruction, now: Instant) -> Result<(), Error> {
        let had_use = match (&mut self.table_encoder, instruction) {
            (Some(table), instruction) => table.handle_instruction(instruction)?,
            (None, DecoderInstruction::Cancel { .. }) => false,
            (None, _) => return Err(Violation::DecoderStream.into()),
        };
        if had_use { Ok(()) } else { self.count_abuse(now) }
    }

    /// The type of a stream is known.
    fn begin_uni(&mut self, kind: u64, now: Instant) -> Result<UniStream, Error> {
        let state = match kind {
            stream_type::CONTROL => UniStream::Control(Box::new(ControlStream::new(self.config.limits()))),
            stream_type::QPACK_ENCODER => UniStream::QpackEncoder,
            stream_type::QPACK_DECODER => UniStream::QpackDecoder(DecoderStream::default()),
            // A client pushes nothing, and this client has permitted no push.
            stream_type::PUSH if self.role == ConnectionRole::Server => return Err(Violation::StreamCreation.into()),
            stream_type::PUSH => return Err(Violation::Id.into()),
            _ => {
                self.count_abuse(now)?;
                return Ok(UniStream::Unknown { left: Some(self.config.limits().unknown_stream_bytes_max) });
            }
        };
        if self.seen_types >> kind & 1 != 0 {
            return Err(Violation::StreamCreation.into());
        }
        self.seen_types |= 1 << kind;
        Ok(state)
    }

    fn on_frame(&mut self, frame: &ControlFrame, now: Instant) -> Result<(), Error> {
        let payload = &frame.payload[..];
        if frame.kind == kind::SETTINGS {
            let settings = Settings::parse(payload, self.config.limits().settings_max)?;
            self.settings = Some(settings);
            self.events.push_back(Event::Settings(settings));
            return Ok(());
        }
        self.count_abuse(now)?;
        match frame.kind {
            kind::GOAWAY => self.on_goaway(number(payload)?),
            kind::MAX_PUSH_ID if self.role == ConnectionRole::Server => {
                let push = number(payload)?;
                if self.max_push_id.replace(push).is_some_and(|before| before > push) {
                    return Err(Violation::Id.into());
                }
                Ok(())
            }
            // A server sends none (RFC 9114 §7.2.7).
            kind::MAX_PUSH_ID => Err(Violation::FrameUnexpected.into()),
            // No push was promised, and none permitted (RFC 9114 §7.2.3).
            kind::CANCEL_PUSH => number(payload).and(Err(Violation::Id)).map_err(Error::from),
            kind::PRIORITY_UPDATE if self.role == ConnectionRole::Server => self.on_priority_update(payload),
            kind::PRIORITY_UPDATE_OF_PUSH if self.role == ConnectionRole::Server => Err(Violation::Id.into()),
            // A client receives none (RFC 9218 §7.2).
            kind::PRIORITY_UPDATE | kind::PRIORITY_UPDATE_OF_PUSH => Err(Violation::FrameUnexpected.into()),
            _ => Ok(()),
        }
    }

    /// RFC 9114 §5.2, §7.2.6.
    fn on_goaway(&mut self, number: u64) -> Result<(), Error> {
        let is_stream = self.role == ConnectionRole::Client;
        if (is_stream && !number.is_multiple_of(4)) || self.goaway_received.is_some_and(|before| before < number) {
            return Err(Violation::Id.into());
        }
        self.goaway_received = Some(number);
        self.events.push_back(Event::GoAway { stream: if is_stream { number } else { 0 } });
        Ok(())
    }

    /// RFC 9218 §7.2.
    fn on_priority_update(&mut self, payload: &[u8]) -> Result<(), Error> {
        let (stream, length) = varint::read(payload).ok_or(Violation::FrameLayout)?;
        if !stream.is_multiple_of(4) || stream >= self.requests_end {
            return Err(Violation::Id.into());
        }
        let priority = Priority::parse(&payload[length..]);
        if stream < self.next_request {
            self.events.push_back(Event::Priority { stream, priority });
            return Ok(());
        }
        self.waiting_priorities.retain(|(number, _)| *number != stream);
        self.waiting_priorities.push_back((stream, priority));
        if self.waiting_priorities.len() > self.config.limits().waiting_priorities_max as usize {
            self.waiting_priorities.pop_front();
        }
        Ok(())
    }
}

/// The number that is a whole payload.
fn number(payload: &[u8]) -> Result<u64, Violation> {
    match varint::read(payload) {
        Some((number, length)) if length == payload.len() => Ok(number),
        _ => Err(Violation::FrameLayout),
    }
}

/// Streams that were stopped and are remembered.
const STOPPED_STREAMS_MAX: usize = 64;

/// The highest number of a request stream, for the first GOAWAY.
const LAST_REQUEST: u64 = varint::MAX - 3;
