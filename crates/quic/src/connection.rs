//! `ConnectionState`: one connection of an endpoint.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tidegate_codec::mux::{OpenError, ResetCause};
use tidegate_codec::{
    DatagramQueue, Direction, ReadEnd, SessionEvent, SessionNumber, StreamNumber, WriteRefused, later,
};

use crate::codes::Codes;
use crate::error::ConnectionError;
use crate::generation::HandshakeIds;
use crate::limits::{TransportLimits, silence_of};
use crate::quinn::{
    self, Dir, Event, FinishError, Machine, ReadError, Sent, Side, StreamEvent, StreamId, WriteError, code,
};
use crate::run_length::RunLength;
use crate::short_writes::ShortWrites;

/// A connection with its state in the endpoint.
pub(crate) struct ConnectionState {
    pub(crate) machine: Machine,
    pub(crate) number: SessionNumber,
    pub(crate) peer: SocketAddr,
    /// The caller knows of it: its handshake is complete, or it has early data.
    pub(crate) is_reported: bool,
    /// The handshake is complete.
    pub(crate) is_established: bool,
    /// Streams of the peer that came before the handshake was complete.
    pub(crate) early: Vec<u64>,
    /// It is over for the caller, and its last packets may be left.
    pub(crate) is_over: bool,
    /// It may have packets to send.
    pub(crate) is_queued: bool,
    pub(crate) run: RunLength,
    /// It ends with this number once the peer has all bytes of its streams.
    pub(crate) ends_with: Option<u64>,
    /// Unidirectional streams of this side that have no end yet: those of a protocol such as HTTP/3 never end.
    pub(crate) endless: Vec<u64>,
    /// Bidirectional streams that the caller has not closed.
    pub(crate) open: u32,
    /// When the last packet of the peer came.
    pub(crate) received: Instant,
    /// After how long without a packet of the peer its idle timeout demands a PING.
    pub(crate) silence_of_peer: Duration,
    /// When the next PING may be due.
    pub(crate) ping_at: Option<Instant>,
    /// By when it ends, even if the peer does not have all.
    pub(crate) ends_by: Option<Instant>,
    /// Its timer in the table of the endpoint.
    pub(crate) timer: Option<Instant>,
    /// By when the handshake has to be complete.
    pub(crate) handshake_deadline: Option<Instant>,
    /// The datagrams of the peer that were not read, once there was one.
    pub(crate) datagrams: Option<Box<DatagramQueue>>,
    /// Bytes of datagrams in the sum of the endpoint.
    pub(crate) counted_datagrams: usize,
    /// The lowest stream whose write may share its memory: each shares one at most.
    pub(crate) shares_from: u64,
    /// The last stream whose bytes were read to their end, and the last one that this side has finished: `NO_STREAM` before
    /// the first. The machine needs no further call for a side that is over.
    pub(crate) read_whole: u64,
    pub(crate) finished: u64,
    /// The ids by which a successor knows the connection while its handshake is under way.
    pub(crate) handshake: Option<Box<HandshakeIds>>,
}

/// The events of a connection, beside the events of its streams.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pub(crate) has_been_established: bool,
    pub(crate) error: Option<ConnectionError>,
    /// Tasks that wait to open a stream may succeed.
    pub(crate) may_open: bool,
    /// Datagrams that a full queue has dropped.
    pub(crate) datagrams_dropped: u64,
}

impl ConnectionState {
    /// Takes the events of the machine, and the datagrams, of which at most `datagram_bytes_max` wait.
    pub(crate) fn take_events(
        &mut self,
        codes: &Codes,
        datagram_bytes_max: u32,
        events: &mut VecDeque<SessionEvent>,
    ) -> Progress {
        let mut progress = Progress::default();
        while let Some(event) = self.machine.poll() {
            match event {
                Event::Connected => progress.has_been_established = true,
                Event::ConnectionLost { reason } => progress.error = Some(reason.into()),
                Event::Stream(StreamEvent::Available { .. }) => progress.may_open = true,
                Event::Stream(event) => {
                    if !self.is_reported && matches!(event, StreamEvent::Opened { .. }) {
                        self.report(events);
                    }
                    self.on_stream(&event, codes, events);
                }
                Event::DatagramReceived => {
                    progress.datagrams_dropped += self.take_datagrams(datagram_bytes_max);
                    // A datagram does not say that it was early: those before the end of the handshake wait for it.
                    if self.is_established {
                        events.push_back(SessionEvent::Datagrams(self.number));
                    }
                }
                Event::HandshakeDataReady | Event::DatagramsUnblocked => {}
            }
            if progress.has_been_established && !self.is_established {
                self.is_established = true;
                self.silence_of_peer = silence_of(quinn::idle_timeout_of_peer(&self.machine));
                self.handshake_deadline = None;
                if self.is_reported {
                    events.push_back(SessionEvent::Confirmed(self.number));
                } else {
                    self.report(events);
                }
                if self.datagrams.is_some() {
                    events.push_back(SessionEvent::Datagrams(self.number));
                }
            }
        }
        progress
    }

    /// Takes the datagrams of the machine, whose views would keep whole packets. Returns how many were dropped.
    fn take_datagrams(&mut self, bytes_max: u32) -> u64 {
        let queue = self.datagrams.get_or_insert_default();
        let mut dropped = 0;
        while let Some(datagram) = self.machine.datagrams().recv() {
            dropped += queue.push(&datagram, bytes_max as usize);
        }
        dropped
    }

    /// The caller learns of the connection: streams may be opened, and those of the peer follow.
    pub(crate) fn report(&mut self, events: &mut VecDeque<SessionEvent>) {
        self.is_reported = true;
        events.push_back(SessionEvent::Established { session: self.number, peer: self.peer });
    }

    /// Whether this side has sent early data that its server has refused.
    pub(crate) fn has_lost_early_data(&self) -> bool {
        let is_client = self.machine.side() == Side::Client;
        is_client && self.is_reported && self.machine.has_0rtt() && !self.machine.accepted_0rtt()
    }

    /// The peer has processed no early stream of this side.
    pub(crate) fn report_refused(&mut self, code: u64, events: &mut VecDeque<SessionEvent>) {
        for stream in std::mem::take(&mut self.early) {
            if id(stream).is_some_and(|id| id.dir() == Dir::Bi) {
                let stream = StreamNumber { session: self.number, stream };
                events.push_back(SessionEvent::Stopped { stream, code, is_unneeded: false });
            }
        }
    }

    fn on_stream(&mut self, event: &StreamEvent, codes: &Codes, events: &mut VecDeque<SessionEvent>) {
        match *event {
            StreamEvent::Opened { dir } => {
                while let Some(id) = self.machine.streams().accept(dir) {
                    let direction = match dir {
                        Dir::Bi => {
                            self.open += 1;
                            Direction::Bidirectional
                        }
                        Dir::Uni => Direction::Unidirectional,
                    };
                    if !self.is_established {
                        self.early.push(id.into());
                    }
                    events.push_back(SessionEvent::Opened { stream: self.stream(id), direction });
                }
            }
            StreamEvent::Readable { id } => events.push_back(SessionEvent::Readable(self.stream(id))),
            StreamEvent::Writable { id } => events.push_back(SessionEvent::Writable(self.stream(id))),
            StreamEvent::Stopped { id, error_code } => {
                // A peer that wants no more gets RESET_STREAM with its number (RFC 9000 §3.5).
                let _reset_before = self.machine.send_stream(id).reset(error_code);
                let code = error_code.into_inner();
                let is_unneeded = code == codes.unneeded;
                events.push_back(SessionEvent::Stopped { stream: self.stream(id), code, is_unneeded });
            }
            StreamEvent::Finished { .. } | StreamEvent::Available { .. } => {}
        }
    }

    fn stream(&self, id: StreamId) -> StreamNumber {
        StreamNumber { session: self.number, stream: id.into() }
    }

    /// The id of a stream, if this side receives on it.
    fn received(&self, stream: u64) -> Option<StreamId> {
        let id = id(stream)?;
        (id.dir() == Dir::Bi || id.initiator() != self.machine.side()).then_some(id)
    }

    /// The id of a stream, if this side sends on it.
    fn sent(&self, stream: u64) -> Option<StreamId> {
        let id = id(stream)?;
        (id.dir() == Dir::Bi || id.initiator() == self.machine.side()).then_some(id)
    }

    /// Reads from a stream. Returns as well whether the peer gets credit for it now.
    pub(crate) fn read(&mut self, stream: u64, space: &mut [u8]) -> (usize, ReadEnd, bool) {
        let Some(id) = self.received(stream) else { return (0, ReadEnd::Ended, false) };
        let mut receiving = self.machine.recv_stream(id);
        let Ok(mut chunks) = receiving.read(true) else { return (0, ReadEnd::Ended, false) };
        let mut count = 0;
        let end = loop {
            let left = space.len() - count;
            if left == 0 {
                break ReadEnd::More;
            }
            match chunks.next(left) {
                Ok(Some(chunk)) => {
                    let Some(place) = space.get_mut(count..count + chunk.bytes.len()) else { break ReadEnd::More };
                    place.copy_from_slice(&chunk.bytes);
                    count += chunk.bytes.len();
                }
                Ok(None) => break ReadEnd::Ended,
                Err(ReadError::Blocked) => break ReadEnd::Blocked,
                Err(ReadError::Reset(code)) => break ReadEnd::Reset(code.into_inner()),
            }
        };
        let sends = chunks.finalize().should_transmit();
        if end == ReadEnd::Ended {
            self.read_whole = stream;
        }
        (count, end, sends)
    }

    /// Writes to a stream. Short bytes share their memory with others, unless the stream, or a later one, has shared some.
    pub(crate) fn write_short(
        &mut self,
        stream: u64,
        bytes: &[u8],
        writes: &mut ShortWrites,
    ) -> Result<usize, WriteRefused> {
        let shared = if stream >= self.shares_from { writes.copy(bytes) } else { None };
        match shared {
            Some(shared) => {
                self.shares_from = stream + 1;
                self.write_bytes(stream, shared)
            }
            None => self.write(stream, bytes),
        }
    }

    /// Writes to a stream, until it takes no more: the machine reports room only after it has refused bytes.
    pub(crate) fn write(&mut self, stream: u64, bytes: &[u8]) -> Result<usize, WriteRefused> {
        let id = self.sent(stream).ok_or(WriteRefused)?;
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.machine.send_stream(id).write(rest) {
                Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                Err(WriteError::Blocked) => break,
                Err(WriteError::Stopped(_) | WriteError::ClosedStream) => return Err(WriteRefused),
            }
        }
        Ok(bytes.len() - rest.len())
    }

    /// The same without a copy of the bytes.
    pub(crate) fn write_bytes(&mut self, stream: u64, bytes: Bytes) -> Result<usize, WriteRefused> {
        let id = self.sent(stream).ok_or(WriteRefused)?;
        let count = bytes.len();
        let mut rest = [bytes];
        while !rest[0].is_empty() {
            match self.machine.send_stream(id).write_chunks(&mut rest) {
                Ok(_) => {}
                Err(WriteError::Blocked) => break,
                Err(WriteError::Stopped(_) | WriteError::ClosedStream) => return Err(WriteRefused),
            }
        }
        Ok(count - rest[0].len())
    }

    pub(crate) fn finish(&mut self, stream: u64) {
        self.endless.retain(|other| *other != stream);
        if let Some(id) = self.sent(stream) {
            // A stream that is stopped cannot be finished, and is reset when it closes.
            if self.machine.send_stream(id).finish().is_ok() {
                self.finished = stream;
            }
        }
    }

    /// The application is done with a stream.
    pub(crate) fn close(&mut self, stream: u64, cause: Option<ResetCause>, resets: bool, codes: &Codes) {
        self.early.retain(|other| *other != stream);
        self.endless.retain(|other| *other != stream);
        if id(stream).is_some_and(|id| id.dir() == Dir::Bi) {
            self.open = self.open.saturating_sub(1);
        }
        let number = cause.map_or(codes.cancelled, |cause| codes.of(cause));
        // A stop that comes behind the end of a stream resets it at once.
        let is_finished = self.finished == stream && !resets;
        if let Some(id) = self.sent(stream).filter(|_| !is_finished) {
            let mut sending = self.machine.send_stream(id);
            // The number of a peer that wants no more is sent back (RFC 9000 §3.5).
            let stopped = match resets {
                true => sending.stopped().ok().flatten(),
                false => sending.finish().err().and_then(|error| match error {
                    FinishError::Stopped(code) => Some(code),
                    FinishError::ClosedStream => None,
                }),
            };
            if resets || stopped.is_some() {
                let _closed = sending.reset(stopped.unwrap_or_else(|| code(number)));
            }
        }
        if let Some(id) = self.received(stream).filter(|_| self.read_whole != stream) {
            let _closed = self.machine.recv_stream(id).stop(code(number));
        }
    }

    pub(crate) fn open(&mut self, direction: Direction) -> Result<StreamNumber, OpenError> {
        if self.is_over || !self.is_reported {
            return Err(OpenError::Ending);
        }
        let dir = match direction {
            Direction::Bidirectional => Dir::Bi,
            Direction::Unidirectional => Dir::Uni,
        };
        let id = self.machine.streams().open(dir).ok_or(OpenError::Full)?;
        if !self.is_established {
            self.early.push(id.into());
        }
        match direction {
            Direction::Unidirectional => self.endless.push(id.into()),
            Direction::Bidirectional => self.open += 1,
        }
        Ok(self.stream(id))
    }

    /// The send window follows the congestion window, so that bytes are bound late.
    pub(crate) fn bind_late(&mut self, window_max: u32) {
        let window_max = u64::from(window_max);
        let window = self.machine.congestion_state().window().saturating_mul(2);
        self.machine.set_send_window(window.clamp(SEND_WINDOW_MIN.min(window_max), window_max));
    }

    /// Makes the next run of packets.
    pub(crate) fn poll_transmit(
        &mut self,
        now: Instant,
        limits: &TransportLimits,
        buffer: &mut Vec<u8>,
    ) -> Option<Sent> {
        // The machine reserves memory for the longest run if a buffer is too short for one datagram. One datagram is the usual
        // case, and its buffer is used again.
        let datagram_bytes = usize::from(self.machine.current_mtu());
        if buffer.capacity() < datagram_bytes {
            buffer.reserve_exact(datagram_bytes);
        }
        let rate = (self.machine.congestion_state().window(), self.machine.rtt());
        let most = self.run.datagrams_max(limits.run_max, limits.run_time, rate, self.machine.current_mtu());
        let sent = self.machine.poll_transmit(now, most, buffer)?;
        self.run.note(sent.segment_size.map_or(1, |size| sent.size.div_ceil(size)), most);
        Some(sent)
    }

    /// Streams of a higher number are sent first.
    pub(crate) fn set_priority(&mut self, stream: u64, priority: i32) {
        if let Some(id) = self.sent(stream) {
            // A stream that is closed has no priority.
            let _closed = self.machine.send_stream(id).set_priority(priority);
        }
    }

    /// When the connection is to be called again.
    pub(crate) fn deadline(&mut self) -> Option<Instant> {
        [self.machine.poll_timeout(), self.handshake_deadline, self.ends_by, self.ping_at].into_iter().flatten().min()
    }

    /// Sends a PING if the peer was silent for so long although streams are open.
    pub(crate) fn ping_if_silent(&mut self, now: Instant, silence: Option<Duration>) {
        let Some(silence) = silence.filter(|_| self.open > 0 && self.is_established && !self.is_over) else {
            self.ping_at = None;
            return;
        };
        let silence = silence.min(self.silence_of_peer);
        // It moves only when it has come, so that packets do not move timers.
        match self.ping_at {
            Some(at) if at > now => {}
            Some(_) if later(self.received, silence) <= now => {
                self.machine.ping();
                self.ping_at = Some(later(now, silence));
            }
            _ => self.ping_at = Some(later(self.received, silence)),
        }
    }

    /// Ends the connection if it is to end and the peer has all bytes. Returns whether it did.
    pub(crate) fn end_when_delivered(&mut self, now: Instant) -> bool {
        if self.is_over || self.machine.streams().send_streams() > self.endless.len() {
            return false;
        }
        let Some(number) = self.ends_with.take() else { return false };
        self.end(now, number, "");
        true
    }

    /// The number with which the connection ends, if the time for an end in good order is over.
    pub(crate) fn end_is_overdue(&mut self, now: Instant) -> Option<u64> {
        self.ends_by.take_if(|deadline| *deadline <= now)?;
        if self.is_over { None } else { self.ends_with.take() }
    }

    /// Ends the connection. No event follows.
    pub(crate) fn end(&mut self, now: Instant, number: u64, reason: &'static str) {
        self.is_over = true;
        (self.handshake_deadline, self.ends_by) = (None, None);
        quinn::close(&mut self.machine, now, number, reason);
    }
}

/// The id of a stream with this number (RFC 9000 §2.1).
fn id(stream: u64) -> Option<StreamId> {
    let side = if stream & 1 == 0 { Side::Client } else { Side::Server };
    let dir = if stream & 2 == 0 { Dir::Bi } else { Dir::Uni };
    (stream < 1 << 62).then(|| StreamId::new(side, dir, stream >> 2))
}

/// No stream has such a number (RFC 9000 §2.1).
pub(crate) const NO_STREAM: u64 = u64::MAX;

/// A connection may have at least so many bytes that are not acknowledged, unless its limit is lower.
const SEND_WINDOW_MIN: u64 = 32 * 1024;
