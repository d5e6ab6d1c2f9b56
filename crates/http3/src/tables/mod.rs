//! The methods of `Endpoint` about dynamic QPACK tables (decision 178), if its limits permit them.
//!
//! The tables stand at the edge of HTTP/3: the frames of a request stream are read by `inbound.rs`, which rewrites the
//! sections of the peer to ones without references, and written by `outbound.rs`, which rewrites those of this side. Everything
//! behind it, [`RequestStream`](crate::RequestStream) first, has no state of a connection. `waiting.rs` bounds the bytes that wait, and `streams.rs`
//! has both for each stream.
//!
//! Our encoder and decoder streams are opened with their first instruction.

mod inbound;
mod outbound;
mod streams;
mod waiting;

use bytes::Bytes;
use foldhash::HashMap;
use tidegate_codec::{Direction, ReadEnd, SessionEvent, SessionNumber, StreamEndpoint, StreamNumber, WriteRefused};

use self::inbound::{InboundFrames, InboundStep, Shared};
use self::outbound::SectionSink;
use self::streams::StreamFrames;
pub(crate) use self::streams::TableStreams;
use self::waiting::PIECE_BYTES_MAX;
use crate::endpoint::Endpoint;
use crate::error::{Error, Exceeded, Violation};
use crate::frame::stream_type;

impl<E: StreamEndpoint> Endpoint<E> {
    /// A request stream begins, of the peer or of this side.
    pub(crate) fn add_frames(&mut self, stream: StreamNumber) {
        if self.config.limits().has_tables()
            && let Some(session) = self.sessions.get_mut(&stream.session)
        {
            let tables = session.tables.get_or_insert_default();
            tables.requests.insert(stream.stream, Box::default());
        }
    }

    fn take_frames(&mut self, stream: StreamNumber) -> Option<Box<StreamFrames>> {
        self.sessions.get_mut(&stream.session)?.tables.as_mut()?.requests.remove(&stream.stream)
    }

    fn put_frames(&mut self, stream: StreamNumber, frames: Box<StreamFrames>) {
        if let Some(tables) = self.sessions.get_mut(&stream.session).and_then(|session| session.tables.as_mut()) {
            tables.requests.insert(stream.stream, frames);
        }
    }

    /// Reads bytes of a stream as the peer has sent them.
    pub(crate) fn read_raw(&mut self, stream: StreamNumber, space: &mut [u8]) -> (usize, ReadEnd) {
        match self.early.read(stream, space) {
            Some(count) => (count, ReadEnd::More),
            None => self.read_beside(stream, space).unwrap_or_else(|| self.quic.read(stream, space)),
        }
    }

    /// Reads a request stream. `None` if the connection has no table that the peer fills.
    pub(crate) fn read_frames(&mut self, stream: StreamNumber, space: &mut [u8]) -> Option<(usize, ReadEnd)> {
        if self.config.limits().qpack_table_bytes_max == 0 {
            return None;
        }
        let mut frames = self.take_frames(stream)?;
        let read = self.read_inbound(stream, &mut frames.inbound, space);
        self.put_frames(stream, frames);
        self.count_tables(stream.session);
        self.wake_frames(stream.session);
        match read.and_then(|read| self.flush_tables(stream.session).map(|()| read)) {
            Ok(read) => Some(read),
            Err(error) => {
                if let Some(now) = self.now {
                    self.fail(stream.session, error, now);
                }
                Some((0, ReadEnd::Blocked))
            }
        }
    }

    fn read_inbound(
        &mut self,
        stream: StreamNumber,
        inbound: &mut InboundFrames,
        space: &mut [u8],
    ) -> Result<(usize, ReadEnd), Error> {
        let config = self.config.clone();
        let mut piece = [0; PIECE_BYTES_MAX];
        loop {
            let Some(session) = self.sessions.get_mut(&stream.session) else { return Ok((0, ReadEnd::Blocked)) };
            let (Some(table), Some(tables)) = (session.connection.table_decoder(), &mut session.tables) else {
                return Ok((0, ReadEnd::Blocked));
            };
            let mut shared = Shared { table, waiting: &mut tables.waiting, limits: config.limits() };
            match inbound.step(stream.stream, space, &mut shared)? {
                InboundStep::Read(count, end) => return Ok((count, end)),
                InboundStep::Pass => {
                    let (count, end) = self.read_raw(stream, space);
                    let passed = inbound.pass(space.get(..count).unwrap_or_default(), end);
                    if passed.0 > 0 || passed.1 != ReadEnd::More {
                        return Ok(passed);
                    }
                }
                InboundStep::Wait => {
                    let (count, end) = self.read_raw(stream, &mut piece[..1]);
                    inbound.collect(&piece[..count], end);
                    if !matches!(end, ReadEnd::Reset(_)) {
                        return Ok((0, ReadEnd::Blocked));
                    }
                }
                InboundStep::Collect(bytes) => {
                    let space = &mut piece[..bytes.min(PIECE_BYTES_MAX)];
                    let (count, end) = self.read_raw(stream, space);
                    inbound.collect(&space[..count], end);
                    if count == 0 && matches!(end, ReadEnd::Blocked | ReadEnd::More) {
                        return Ok((0, end));
                    }
                }
            }
        }
    }

    /// Writes to a request stream. `None` if the connection has no table that this side may fill.
    pub(crate) fn write_frames(&mut self, stream: StreamNumber, bytes: &[u8]) -> Option<Result<usize, WriteRefused>> {
        if self.config.limits().qpack_encoder_bytes_max == 0 {
            return None;
        }
        let mut frames = self.take_frames(stream)?;
        let written = frames.outbound.write(bytes, &mut Sink { endpoint: self, stream });
        self.put_frames(stream, frames);
        self.count_tables(stream.session);
        Some(written)
    }

    /// The same with bytes that QUIC may keep: those of bodies pass.
    pub(crate) fn write_frame_bytes(&mut self, stream: StreamNumber, bytes: Bytes) -> Result<usize, WriteRefused> {
        if self.config.limits().qpack_encoder_bytes_max == 0 {
            return self.quic.write_bytes(stream, bytes);
        }
        let tables = self.sessions.get_mut(&stream.session).and_then(|session| session.tables.as_mut());
        let Some(frames) = tables.and_then(|tables| tables.requests.get_mut(&stream.stream)) else {
            return self.quic.write_bytes(stream, bytes);
        };
        if !frames.outbound.passes(bytes.len()) {
            return self.write_frames(stream, &bytes).unwrap_or(Err(WriteRefused));
        }
        let written = self.quic.write_bytes(stream, bytes)?;
        frames.outbound.on_passed(written);
        Ok(written)
    }

    /// Writes a section with references in place of one without.
    fn encode_section(&mut self, stream: StreamNumber, section: &[u8], out: &mut Vec<u8>) {
        let Some(session) = self.sessions.get_mut(&stream.session) else { return };
        let may_insert = session.tables.as_ref().is_some_and(|tables| tables.own[ENCODER].unsent.is_empty());
        let Some(table) = session.connection.table_encoder() else { return out.extend_from_slice(section) };
        let has_references = table.encode(stream.stream, section, may_insert, out);
        if !may_insert {
            return;
        }
        let flushed = self.flush_tables(stream.session);
        if let (Err(error), Some(now)) = (flushed, self.now) {
            return self.fail(stream.session, error, now);
        }
        let Some(session) = self.sessions.get_mut(&stream.session) else { return };
        let is_sent = session.tables.as_ref().is_some_and(|tables| tables.own[ENCODER].unsent.is_empty());
        if let (true, false, Some(table)) = (has_references, is_sent, session.connection.table_encoder()) {
            // The peer might get the section, and never the entries (RFC 9204 §2.1.3).
            table.retract(stream.stream);
            out.clear();
            table.encode(stream.stream, section, false, out);
        }
    }

    /// The application is done with a request stream.
    pub(crate) fn remove_frames(&mut self, stream: StreamNumber) {
        if !self.config.limits().has_tables() {
            return;
        }
        let Some(frames) = self.take_frames(stream) else { return };
        let Some(session) = self.sessions.get_mut(&stream.session) else { return };
        if !frames.inbound.has_ended()
            && let Some(table) = session.connection.table_decoder()
        {
            table.cancel(stream.stream);
        }
        if let Some(tables) = &mut session.tables {
            frames.inbound.release(stream.stream, &mut tables.waiting);
            if tables.requests.is_empty() {
                // An idle connection keeps no memory for them.
                tables.requests = HashMap::default();
            }
        }
        self.wake_frames(stream.session);
        if let (Err(error), Some(now)) = (self.flush_tables(stream.session), self.now) {
            self.fail(stream.session, error, now);
        }
        self.count_tables(stream.session);
    }

    /// Counts the memory of a connection's tables as it is now.
    pub(crate) fn count_tables(&mut self, number: SessionNumber) {
        let Some(session) = self.sessions.get_mut(&number) else { return };
        let bytes = session.connection.table_memory_bytes();
        if bytes == 0 && session.tables.is_none() {
            return;
        }
        let tables = session.tables.get_or_insert_default();
        let bytes = bytes + tables.waiting_bytes();
        self.kept = self.kept - tables.counted + bytes;
        tables.counted = bytes;
    }

    /// Streams that have waited are read again.
    pub(crate) fn wake_frames(&mut self, number: SessionNumber) {
        let Self { sessions, events, .. } = self;
        let Some(session) = sessions.get_mut(&number) else { return };
        let Some(tables) = &mut session.tables else { return };
        let unblocked = session.connection.take_unblocked().into_iter().chain(tables.waiting.take_streams());
        events.extend(unblocked.map(|stream| SessionEvent::Readable(StreamNumber { session: number, stream })));
    }

    /// Writes to our QPACK streams, and opens them first.
    pub(crate) fn flush_tables(&mut self, number: SessionNumber) -> Result<(), Error> {
        let Self { quic, sessions, .. } = self;
        let Some(session) = sessions.get_mut(&number) else { return Ok(()) };
        let polled = session.connection.poll_qpack();
        if session.tables.is_none() && polled.iter().all(Option::is_none) {
            return Ok(());
        }
        let own = &mut session.tables.get_or_insert_default().own;
        for ((own, polled), kind) in
            own.iter_mut().zip(polled).zip([stream_type::QPACK_ENCODER, stream_type::QPACK_DECODER])
        {
            own.unsent.extend(polled.into_iter().flatten());
            if own.unsent.is_empty() {
                continue;
            }
            let stream = match own.number {
                Some(stream) => stream,
                None => {
                    // RFC 9114 §6.2: a peer permits at least three.
                    let opened = quic.open(number, Direction::Unidirectional).map_err(|_| Violation::StreamCreation)?;
                    quic.set_urgency(opened, 0);
                    own.unsent.insert(0, kind as u8);
                    *own.number.insert(opened)
                }
            };
            let written = quic.write(stream, &own.unsent).map_err(|WriteRefused| Violation::ClosedCriticalStream)?;
            if written == own.unsent.len() {
                own.unsent = Vec::new();
            } else {
                own.unsent.drain(..written);
                // Our insertions are bounded by the table, and none is made while some wait.
                if kind == stream_type::QPACK_DECODER && own.unsent.len() > UNSENT_BYTES_MAX {
                    return Err(Exceeded::Abuse.into());
                }
            }
        }
        Ok(())
    }
}

/// Where the frames of a stream go.
struct Sink<'a, E> {
    endpoint: &'a mut Endpoint<E>,
    stream: StreamNumber,
}

impl<E: StreamEndpoint> SectionSink for Sink<'_, E> {
    fn encode(&mut self, section: &[u8], out: &mut Vec<u8>) {
        self.endpoint.encode_section(self.stream, section, out);
    }

    fn write(&mut self, bytes: &[u8]) -> Result<usize, WriteRefused> {
        self.endpoint.quic.write(self.stream, bytes)
    }
}

/// Acknowledgments that wait for a peer that does not read them. A peer that sends sections and takes no acknowledgment would
/// make them grow without end.
const UNSENT_BYTES_MAX: usize = 16 * 1024;

/// The place of the encoder stream among our own.
const ENCODER: usize = 0;
