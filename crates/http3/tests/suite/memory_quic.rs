//! A QUIC connection in memory: a test decides which bytes of which stream arrive when, and how many a stream takes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;

use bytes::Bytes;
use tidegate::codec::mux::{OpenError, ResetCause};
use tidegate::codec::{
    Datagram, Direction, ReadEnd, SessionEvent, SessionNumber, StreamEndpoint, StreamNumber, Transmits, WriteRefused,
};
use tidegate::http3::{Config, Endpoint, Limits, datagram};

pub(crate) const SESSION: SessionNumber = SessionNumber(1);

pub(crate) fn at(stream: u64) -> StreamNumber {
    StreamNumber { session: SESSION, stream }
}

/// One side of the connection.
#[derive(Default)]
pub(crate) struct MemoryQuic {
    events: VecDeque<SessionEvent>,
    /// Bytes that have arrived and were not read, and the end behind them.
    pub(crate) inbound: BTreeMap<u64, (VecDeque<u8>, Option<ReadEnd>)>,
    /// Bytes that have not arrived at the peer, and whether the stream ends behind them.
    pub(crate) outbound: BTreeMap<u64, (VecDeque<u8>, bool)>,
    /// How many more bytes streams take; the others take all.
    pub(crate) windows: BTreeMap<u64, usize>,
    blocked: BTreeSet<u64>,
    /// How many bytes each stream has sent.
    pub(crate) sent: BTreeMap<u64, usize>,
    opened: u64,
    is_client: bool,
    pub(crate) closed: Vec<(u64, Option<ResetCause>)>,
    pub(crate) ended: Option<Option<ResetCause>>,
    /// Datagrams that HTTP/3 has not taken.
    datagrams: VecDeque<Bytes>,
}

impl tidegate::codec::Endpoint for MemoryQuic {
    fn handle_datagram(&mut self, _: Datagram, _: Instant) {}

    fn poll_transmit(&mut self, _: Instant, _: &mut Transmits) {}
}

impl StreamEndpoint for MemoryQuic {
    fn poll_event(&mut self, _: Instant) -> Option<SessionEvent> {
        self.events.pop_front()
    }

    fn read(&mut self, stream: StreamNumber, space: &mut [u8]) -> (usize, ReadEnd) {
        let Some((bytes, end)) = self.inbound.get_mut(&stream.stream) else { return (0, ReadEnd::Blocked) };
        if let Some(reset @ ReadEnd::Reset(_)) = *end {
            return (0, reset);
        }
        let count = bytes.len().min(space.len());
        bytes.drain(..count).zip(space).for_each(|(byte, place)| *place = byte);
        (count, if bytes.is_empty() { end.unwrap_or(ReadEnd::Blocked) } else { ReadEnd::More })
    }

    fn write(&mut self, stream: StreamNumber, bytes: &[u8]) -> Result<usize, WriteRefused> {
        let stream = stream.stream;
        let window = self.windows.get(&stream).copied().unwrap_or(usize::MAX);
        let count = bytes.len().min(window);
        if let Some(window) = self.windows.get_mut(&stream) {
            *window -= count;
        }
        if count < bytes.len() {
            self.blocked.insert(stream);
        }
        self.outbound.entry(stream).or_default().0.extend(&bytes[..count]);
        *self.sent.entry(stream).or_default() += count;
        Ok(count)
    }

    fn finish(&mut self, stream: StreamNumber) {
        self.outbound.entry(stream.stream).or_default().1 = true;
    }

    fn close(&mut self, stream: StreamNumber, cause: Option<ResetCause>, _: bool) {
        self.inbound.remove(&stream.stream);
        self.closed.push((stream.stream, cause));
    }

    fn open(&mut self, _: SessionNumber, direction: Direction) -> Result<StreamNumber, OpenError> {
        let kind = if direction == Direction::Unidirectional { 2 } else { 0 };
        self.opened += 1;
        Ok(at(4 * (self.opened - 1) + kind + u64::from(!self.is_client)))
    }

    fn read_datagram(&mut self, _: SessionNumber) -> Option<Bytes> {
        self.datagrams.pop_front()
    }

    fn end_session(&mut self, _: SessionNumber, cause: Option<ResetCause>, _: Instant) {
        self.ended = Some(cause);
    }
}

/// HTTP/3 on it.
pub(crate) struct Side {
    pub(crate) http3: Endpoint<MemoryQuic>,
    pub(crate) now: Instant,
    /// Bytes that the application has for streams that take no more.
    pub(crate) unsent: BTreeMap<u64, VecDeque<u8>>,
    /// Bytes that it has read, and the end behind them.
    pub(crate) read: BTreeMap<u64, (Vec<u8>, Option<ReadEnd>)>,
    /// Why the connection has ended.
    pub(crate) ended: Option<String>,
}

impl Side {
    pub(crate) fn new(is_client: bool, limits: Limits) -> Self {
        Self::with(is_client, Config::new(limits).grease(None))
    }

    pub(crate) fn with(is_client: bool, config: Config) -> Self {
        let mut quic = MemoryQuic { is_client, ..MemoryQuic::default() };
        quic.events.push_back(SessionEvent::Established { session: SESSION, peer: ([127, 0, 0, 1], 1).into() });
        let http3 = match is_client {
            true => Endpoint::client(config.into(), quic),
            false => Endpoint::server(config.into(), quic),
        };
        let mut side = Self { http3, now: Instant::now(), unsent: BTreeMap::new(), read: BTreeMap::new(), ended: None };
        side.work();
        side
    }

    pub(crate) fn quic(&mut self) -> &mut MemoryQuic {
        self.http3.as_mut()
    }

    /// Bytes of the peer arrive.
    pub(crate) fn arrive(&mut self, stream: u64, bytes: &[u8], end: Option<ReadEnd>) {
        let quic = self.quic();
        let is_new = !quic.inbound.contains_key(&stream);
        let is_own = stream & 1 == u64::from(!quic.is_client);
        let direction = if stream & 2 == 0 { Direction::Bidirectional } else { Direction::Unidirectional };
        let inbound = quic.inbound.entry(stream).or_default();
        inbound.0.extend(bytes);
        inbound.1 = end.or(inbound.1);
        quic.events.push_back(match is_new && !is_own {
            true => SessionEvent::Opened { stream: at(stream), direction },
            false => SessionEvent::Readable(at(stream)),
        });
        self.work();
    }

    /// A datagram of a stream arrives.
    pub(crate) fn arrive_datagram(&mut self, stream: u64, payload: &[u8]) {
        let mut bytes = Vec::new();
        datagram::write(stream, payload, &mut bytes);
        self.quic().datagrams.push_back(bytes.into());
        self.quic().events.push_back(SessionEvent::Datagrams(SESSION));
        self.work();
    }

    /// The memory that the endpoint keeps, which is all of its one connection.
    pub(crate) fn kept(&self) -> usize {
        let mut of_session = 0;
        self.http3.each_kept(&mut |session, bytes| {
            assert_eq!(session, SESSION);
            of_session += bytes;
        });
        assert_eq!(self.http3.kept_bytes(), of_session);
        of_session
    }

    /// A stream takes so many more bytes.
    pub(crate) fn widen(&mut self, stream: u64, bytes: usize) {
        let quic = self.quic();
        let window = quic.windows.entry(stream).or_default();
        *window = window.saturating_add(bytes);
        if quic.blocked.remove(&stream) {
            quic.events.push_back(SessionEvent::Writable(at(stream)));
        }
        self.work();
    }

    pub(crate) fn write(&mut self, stream: u64, bytes: &[u8]) {
        self.unsent.entry(stream).or_default().extend(bytes);
        self.flush(stream);
    }

    fn flush(&mut self, stream: u64) {
        let Some(unsent) = self.unsent.get_mut(&stream) else { return };
        let taken = self.http3.write(at(stream), unsent.make_contiguous()).expect("the stream is open");
        unsent.drain(..taken);
    }

    /// Handles events, and reads all that there is.
    pub(crate) fn work(&mut self) {
        while let Some(event) = self.http3.poll_event(self.now) {
            match event {
                SessionEvent::Opened { stream, .. } | SessionEvent::Readable(stream) => self.read(stream.stream),
                SessionEvent::Writable(stream) => self.flush(stream.stream),
                SessionEvent::Ended { reason, .. } => self.ended = Some(reason.to_string()),
                _ => {}
            }
        }
    }

    fn read(&mut self, stream: u64) {
        loop {
            let mut space = [0; 100];
            let (count, end) = self.http3.read(at(stream), &mut space);
            let read = self.read.entry(stream).or_default();
            read.0.extend_from_slice(&space[..count]);
            match end {
                ReadEnd::More => {}
                ReadEnd::Blocked => return,
                end => {
                    read.1 = Some(end);
                    return;
                }
            }
        }
    }
}

/// Moves at most `count` bytes of a stream.
pub(crate) fn deliver(from: &mut Side, to: &mut Side, stream: u64, count: usize) {
    let (bytes, ends) = from.quic().outbound.get_mut(&stream).expect("a stream with bytes");
    let count = count.min(bytes.len());
    let piece: Vec<u8> = bytes.drain(..count).collect();
    let is_over = *ends && bytes.is_empty();
    if bytes.is_empty() {
        from.quic().outbound.remove(&stream);
    }
    to.arrive(stream, &piece, is_over.then_some(ReadEnd::Ended));
}

/// Moves all bytes both ways, until there are none.
pub(crate) fn deliver_all(one: &mut Side, other: &mut Side) {
    loop {
        let from_one = one.quic().outbound.keys().next().copied();
        if let Some(stream) = from_one {
            deliver(one, other, stream, usize::MAX);
        }
        let from_other = other.quic().outbound.keys().next().copied();
        if let Some(stream) = from_other {
            deliver(other, one, stream, usize::MAX);
        }
        if from_one.is_none() && from_other.is_none() {
            return;
        }
    }
}
