//! The sessions and streams of an endpoint, by number, and the streams that have something to do.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::num::NonZeroU8;
use std::ops::Range;
use std::rc::{Rc, Weak};
use std::task::Waker;
use std::time::Instant;

use foldhash::HashMap;
use slab::Slab;
use tidegate_codec::{Direction, SessionNumber, StreamNumber};
use tidegate_sys::Token;

use crate::session::Streams;

/// The services of the streams that the peer of one session opens. Without one, streams of that direction are refused.
#[derive(Debug, Clone, Default)]
pub struct SessionStreams {
    /// Streams on which both sides send.
    pub bidirectional: Option<Streams>,
    /// Streams on which the peer alone sends. Bytes that their applications send are dropped.
    pub unidirectional: Option<Streams>,
}

impl SessionStreams {
    fn is_same(&self, other: &Self) -> bool {
        let same = |one: &Option<Streams>, other: &Option<Streams>| match (one, other) {
            (Some(one), Some(other)) => one.is_same(other),
            (one, other) => one.is_none() && other.is_none(),
        };
        same(&self.bidirectional, &other.bidirectional) && same(&self.unidirectional, &other.unidirectional)
    }
}

/// A session of an endpoint.
pub(super) struct Session {
    /// Its number among the sessions of the loop.
    pub(super) link: u32,
    /// The services of the streams that the peer opens. Sessions with the same ones share them.
    services: Option<Rc<SessionStreams>>,
    /// The address that was admitted: that of the peer may change.
    pub(super) admitted: IpAddr,
    /// When it was established.
    pub(super) since: Instant,
    /// The places of its streams, boxed to keep a session without any small.
    streams: Option<Box<StreamPlaces>>,
    /// The task that waits for a datagram of the peer.
    pub(super) datagram_waker: Option<Waker>,
    /// No handle opens streams: it ends behind its last stream.
    ends_when_empty: bool,
}

impl Session {
    /// The service of the streams in a direction that the peer opens.
    pub(super) fn service(&self, direction: Direction) -> Option<&Streams> {
        let services = self.services.as_deref()?;
        match direction {
            Direction::Bidirectional => services.bidirectional.as_ref(),
            Direction::Unidirectional => services.unidirectional.as_ref(),
        }
    }

    /// The places of its streams.
    pub(super) fn places(&self) -> impl Iterator<Item = u32> {
        self.streams.iter().flat_map(|streams| streams.0.iter().copied())
    }

    fn place(&self, stream: u64, table: &Slab<Stream>) -> Option<u32> {
        let streams = self.streams.as_ref()?;
        streams.find(stream, table).ok().map(|at| streams.0[at])
    }

    /// Forgets the place of a stream, which is in the table still. Returns the memory for places if there are no others.
    fn remove_stream(&mut self, stream: u64, table: &Slab<Stream>) -> Option<Box<StreamPlaces>> {
        let streams = self.streams.as_mut()?;
        if let Ok(at) = streams.find(stream, table) {
            streams.0.remove(at);
        }
        self.streams.take_if(|streams| streams.0.is_empty())
    }
}

/// The places of the streams of a session, in the order of their numbers: the numbers are in the table, so a stream costs its
/// session one place.
#[derive(Default)]
struct StreamPlaces(Vec<u32>);

impl StreamPlaces {
    /// Where the place of a stream is, or where it belongs.
    fn find(&self, stream: u64, table: &Slab<Stream>) -> Result<usize, usize> {
        let number = |place: &u32| table.get(*place as usize).map_or(0, |stream| stream.number.stream);
        // New streams have the highest number, and most requests are about new streams.
        match self.0.last().map(number) {
            Some(last) if last == stream => Ok(self.0.len() - 1),
            Some(last) if last > stream => self.0.binary_search_by_key(&stream, number),
            _ => Err(self.0.len()),
        }
    }

    fn insert(&mut self, stream: u64, place: u32, table: &Slab<Stream>) {
        let (Ok(at) | Err(at)) = self.find(stream, table);
        self.0.insert(at, place);
    }
}

/// A stream of an endpoint.
pub(super) struct Stream {
    pub(super) number: StreamNumber,
    pub(super) token: Token,
    flags: u16,
    urgency: Urgency,
}

/// One more than the urgency of a stream (RFC 9218 §4.1). The table needs no tag beside a value that is never zero.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Urgency(NonZeroU8);

impl Urgency {
    /// The urgency of a stream without another one.
    const DEFAULT: Self = Self::new(3);

    const fn new(urgency: u8) -> Self {
        let last = URGENCIES as u8 - 1;
        Self(NonZeroU8::MIN.saturating_add(if urgency < last { urgency } else { last }))
    }

    fn index(self) -> usize {
        usize::from(self.0.get()) - 1
    }
}

impl Stream {
    /// The protocol has bytes, an end or a reset.
    pub(super) const READABLE: u16 = 1;
    /// The application has bytes that it has not finished with.
    pub(super) const UNREAD: u16 = 1 << 1;
    /// Nothing more is received.
    pub(super) const READ_OVER: u16 = 1 << 2;
    /// The queue has bytes.
    pub(super) const WRITABLE: u16 = 1 << 3;
    /// The protocol takes no bytes now.
    pub(super) const BLOCKED: u16 = 1 << 4;
    /// Nothing more is sent: bytes of the queue are dropped.
    pub(super) const WRITE_OVER: u16 = 1 << 5;
    /// It is among those that are read, or written, next.
    const IN_READS: u16 = 1 << 6;
    const IN_WRITES: u16 = 1 << 7;
    /// Its urgency is known.
    pub(super) const PRIORITIZED: u16 = 1 << 8;

    pub(super) fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// All bytes of the peer were read, and its application has them.
    pub(super) fn set_read_whole(&mut self) {
        self.flags = self.flags & !Self::READABLE | Self::UNREAD | Self::READ_OVER;
    }

    pub(super) fn set(&mut self, flag: u16, on: bool) {
        self.flags = if on { self.flags | flag } else { self.flags & !flag };
    }
}

/// The sessions and streams of an endpoint.
#[derive(Default)]
pub(super) struct SessionTables {
    sessions: HashMap<SessionNumber, Session>,
    /// The sessions by their numbers on the loop: each page of a list begins behind the last one.
    links: BTreeMap<u32, SessionNumber>,
    streams: Slab<Stream>,
    reads: VecDeque<u32>,
    /// By urgency.
    writes: [VecDeque<u32>; URGENCIES],
    has_ending: bool,
    /// The memory for the places of one stream, for the session that gets its first one next.
    spare_places: Option<Box<StreamPlaces>>,
    /// Those of the session that was added last, for as long as a session has them.
    last_services: Weak<SessionStreams>,
}

impl SessionTables {
    pub(super) fn add_session(
        &mut self,
        number: SessionNumber,
        (link, since): (u32, Instant),
        services: SessionStreams,
        admitted: IpAddr,
    ) {
        let services = self.share(services);
        let (streams, datagram_waker, ends_when_empty) = Default::default();
        let session = Session { link, services, admitted, since, streams, datagram_waker, ends_when_empty };
        self.links.insert(link, number);
        self.sessions.insert(number, session);
    }

    /// The services that the session before has, if these are the same.
    fn share(&mut self, services: SessionStreams) -> Option<Rc<SessionStreams>> {
        if services.bidirectional.is_none() && services.unidirectional.is_none() {
            return None;
        }
        if let Some(last) = self.last_services.upgrade().filter(|last| last.is_same(&services)) {
            return Some(last);
        }
        let services = Rc::new(services);
        self.last_services = Rc::downgrade(&services);
        Some(services)
    }

    pub(super) fn session(&self, number: SessionNumber) -> Option<&Session> {
        self.sessions.get(&number)
    }

    /// The task that waits for datagrams of a session, which it wakes once.
    pub(super) fn datagram_waker(&mut self, number: SessionNumber) -> Option<&mut Option<Waker>> {
        Some(&mut self.sessions.get_mut(&number)?.datagram_waker)
    }

    /// Removes a session. Returns it, with the tokens of its streams.
    pub(super) fn remove_session(&mut self, number: SessionNumber) -> Option<(Session, Vec<Token>)> {
        let mut session = self.sessions.remove(&number)?;
        if let Some(waker) = session.datagram_waker.take() {
            waker.wake();
        }
        self.links.remove(&session.link);
        let streams = session.places().filter_map(|index| self.streams.try_remove(index as usize));
        let tokens = streams.map(|stream| stream.token).collect();
        self.release_memory();
        Some((session, tokens))
    }

    /// The sessions with these numbers on the loop.
    pub(super) fn linked(&self, links: Range<u32>) -> impl Iterator<Item = (SessionNumber, &Session)> {
        self.links.range(links).filter_map(|(_, number)| Some((*number, self.sessions.get(number)?)))
    }

    /// The tokens of a session's streams.
    pub(super) fn tokens<'a>(&'a self, session: &'a Session) -> impl Iterator<Item = Token> + 'a {
        session.places().filter_map(|index| Some(self.streams.get(index as usize)?.token))
    }

    pub(super) fn numbers(&self) -> Vec<SessionNumber> {
        self.sessions.keys().copied().collect()
    }

    /// A session ends behind its last stream.
    pub(super) fn end_when_empty(&mut self, number: SessionNumber) {
        if let Some(session) = self.sessions.get_mut(&number) {
            session.ends_when_empty = true;
            self.has_ending = true;
        }
    }

    /// Sessions without a stream that are to end: all, or those that end behind their last stream.
    pub(super) fn ended_sessions(&mut self, all: bool) -> Vec<SessionNumber> {
        if !all && !self.has_ending {
            return Vec::new();
        }
        self.has_ending = self.sessions.values().any(|session| session.ends_when_empty);
        let ends = |session: &Session| session.streams.is_none() && (all || session.ends_when_empty);
        self.sessions.iter().filter(|(_, session)| ends(session)).map(|(number, _)| *number).collect()
    }

    /// Adds a stream to its session, and returns its place.
    pub(super) fn add_stream(&mut self, number: StreamNumber, token: Token, flags: u16) -> Option<u32> {
        let session = self.sessions.get_mut(&number.session)?;
        if self.streams.len() == self.streams.capacity() {
            // By a quarter: doubling would waste half a record for each stream.
            self.streams.reserve_exact((self.streams.len() / 4).max(4));
        }
        let places = session.streams.get_or_insert_with(|| self.spare_places.take().unwrap_or_default());
        let index = self.streams.vacant_key() as u32;
        places.insert(number.stream, index, &self.streams);
        self.streams.insert(Stream { number, token, flags, urgency: Urgency::DEFAULT });
        Some(index)
    }

    pub(super) fn index(&self, number: StreamNumber) -> Option<u32> {
        self.sessions.get(&number.session)?.place(number.stream, &self.streams)
    }

    pub(super) fn stream(&mut self, index: u32) -> Option<&mut Stream> {
        self.streams.get_mut(index as usize)
    }

    pub(super) fn remove_stream(&mut self, index: u32) -> Option<Stream> {
        let number = self.streams.get(index as usize)?.number;
        if let Some(session) = self.sessions.get_mut(&number.session) {
            let places = session.remove_stream(number.stream, &self.streams);
            let short = places.filter(|places| places.0.capacity() <= SPARE_PLACES_MAX);
            self.spare_places = short.or_else(|| self.spare_places.take());
        }
        self.streams.try_remove(index as usize)
    }

    /// An endpoint without open streams keeps no memory for them from one turn to the next.
    pub(super) fn release_memory(&mut self) {
        self.spare_places = None;
        if self.streams.is_empty() {
            self.streams = Slab::new();
            (self.reads, self.writes) = Default::default();
        }
    }

    /// The stream is read in its turn, if it has bytes that its application wants.
    pub(super) fn read_later(&mut self, index: u32) {
        let Some(stream) = self.streams.get_mut(index as usize) else { return };
        let is_due = stream.flags & (Stream::READABLE | Stream::UNREAD | Stream::READ_OVER | Stream::IN_READS);
        if is_due == Stream::READABLE {
            stream.flags |= Stream::IN_READS;
            self.reads.push_back(index);
        }
    }

    /// The queue of the stream is written in its turn, if it has bytes that the protocol takes.
    pub(super) fn write_later(&mut self, index: u32) {
        let Some(stream) = self.streams.get_mut(index as usize) else { return };
        if stream.flags & (Stream::WRITABLE | Stream::BLOCKED | Stream::IN_WRITES) == Stream::WRITABLE {
            stream.flags |= Stream::IN_WRITES;
            self.writes[stream.urgency.index()].push_back(index);
        }
    }

    /// Sets the urgency of a stream, and returns whether it had another one. One that waits for its turn to write keeps that turn.
    pub(super) fn prioritize(&mut self, index: u32, urgency: u8) -> bool {
        let Some(stream) = self.streams.get_mut(index as usize) else { return false };
        stream.flags |= Stream::PRIORITIZED;
        let urgency = Urgency::new(urgency);
        std::mem::replace(&mut stream.urgency, urgency) != urgency
    }

    pub(super) fn next_read(&mut self) -> Option<u32> {
        loop {
            let index = self.reads.pop_front()?;
            if self.take_turn(index, Stream::IN_READS) {
                return Some(index);
            }
        }
    }

    pub(super) fn next_write(&mut self) -> Option<u32> {
        loop {
            let index = self.writes.iter_mut().find_map(VecDeque::pop_front)?;
            if self.take_turn(index, Stream::IN_WRITES) {
                return Some(index);
            }
        }
    }

    /// Whether a stream has this turn: one whose stream is over may have passed its place to another stream, which has a turn of
    /// its own or none.
    fn take_turn(&mut self, index: u32, turn: u16) -> bool {
        let Some(stream) = self.streams.get_mut(index as usize).filter(|stream| stream.has(turn)) else { return false };
        stream.flags &= !turn;
        true
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    pub(super) fn has_reads(&self) -> bool {
        !self.reads.is_empty()
    }

    pub(super) fn has_writes(&self) -> bool {
        self.writes.iter().any(|writes| !writes.is_empty())
    }
}

// A table that has just grown has 16/7 entries for each session, and the list of links has a few bytes more.
const _: () = assert!(size_of::<(SessionNumber, Session)>() <= 80);

/// The capacity of the places of one stream. Longer ones are not kept, so that no session gets more than it needs.
const SPARE_PLACES_MAX: usize = 4;

/// RFC 9218 §4.1.
const URGENCIES: usize = 8;

// The table has a tag for each entry that has no value to spare.
const _: () = assert!(size_of::<Option<Stream>>() == 32);

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::net::Ipv4Addr;

    use tidegate_codec::framing::Raw;

    use super::*;
    use crate::channel::Channel;

    fn streams() -> Streams {
        Streams::serve(|| Raw, |_channel: Channel<Raw>| async { Ok::<(), Infallible>(()) })
    }

    #[test]
    fn streams_are_found_by_their_numbers_in_whatever_order_they_come_and_go() {
        let mut tables = SessionTables::default();
        let session = SessionNumber(1);
        tables.add_session(session, (0, Instant::now()), SessionStreams::default(), Ipv4Addr::LOCALHOST.into());
        let at = |stream| StreamNumber { session, stream };
        let token = |stream: u64| Token { slot: stream as u32, generation: 1 };
        let mut open: Vec<u64> = Vec::new();
        // A sequence without a pattern: each step adds the stream if it is not there, and removes it otherwise.
        let mut state = 1_u64;
        for _ in 0..2000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let stream = state >> 33 & 63;
            match open.iter().position(|known| *known == stream) {
                Some(place) => {
                    open.swap_remove(place);
                    let index = tables.index(at(stream)).expect("it is open");
                    assert!(tables.remove_stream(index).is_some_and(|removed| removed.number == at(stream)));
                }
                None => {
                    open.push(stream);
                    assert!(tables.add_stream(at(stream), token(stream), 0).is_some());
                }
            }
            for number in 0..64 {
                let found = tables.index(at(number)).and_then(|index| tables.stream(index)).map(|stream| stream.token);
                assert_eq!(found, open.contains(&number).then(|| token(number)), "stream {number} of {open:?}");
            }
        }
        assert_eq!(tables.session(session).map(|session| session.places().count()), Some(open.len()));
    }

    #[test]
    fn the_memory_of_one_stream_serves_the_next_one_until_the_turn_is_over() {
        let mut tables = SessionTables::default();
        let sessions = [SessionNumber(1), SessionNumber(2)];
        for (link, session) in (0..).zip(sessions) {
            let link = (link, Instant::now());
            tables.add_session(session, link, SessionStreams::default(), Ipv4Addr::LOCALHOST.into());
        }
        let token = Token { slot: 1, generation: 1 };
        let mut places = sessions.map(|session| {
            let index = tables.add_stream(StreamNumber { session, stream: 0 }, token, 0).expect("a stream");
            let places = tables.session(session).and_then(|session| Some(session.streams.as_ref()?.0.as_ptr()));
            assert!(tables.remove_stream(index).is_some() && tables.streams.capacity() > 0);
            places
        });
        places.sort();
        assert!(places[0].is_some() && places[0] == places[1]);
        tables.release_memory();
        assert!(tables.spare_places.is_none() && tables.streams.capacity() == 0);
        // A session with many streams leaves no long list.
        let indexes = (0..=SPARE_PLACES_MAX as u64)
            .filter_map(|stream| tables.add_stream(StreamNumber { session: sessions[0], stream }, token, 0));
        let indexes: Vec<u32> = indexes.collect();
        assert!(indexes.into_iter().all(|index| tables.remove_stream(index).is_some()));
        assert!(tables.spare_places.is_none());
    }

    #[test]
    fn the_turn_of_a_stream_that_is_over_is_none_of_the_stream_in_its_place() {
        let mut tables = SessionTables::default();
        let sessions = [SessionNumber(1), SessionNumber(2)];
        for (link, session) in (0..).zip(sessions) {
            let link = (link, Instant::now());
            tables.add_session(session, link, SessionStreams::default(), Ipv4Addr::LOCALHOST.into());
        }
        let token = Token { slot: 1, generation: 1 };
        let add = |tables: &mut SessionTables, session| {
            tables.add_stream(StreamNumber { session, stream: 0 }, token, Stream::READABLE | Stream::WRITABLE)
        };
        let other = add(&mut tables, sessions[1]).expect("a stream");
        let first = add(&mut tables, sessions[0]).expect("a stream");
        tables.read_later(first);
        tables.write_later(first);
        drop(tables.remove_session(sessions[0]));
        tables.add_session(sessions[0], (2, Instant::now()), SessionStreams::default(), Ipv4Addr::LOCALHOST.into());
        let second = add(&mut tables, sessions[0]).expect("a stream");
        assert!(first == second && first != other, "the place serves another stream");
        tables.read_later(second);
        tables.write_later(second);
        assert_eq!([tables.next_read(), tables.next_read()], [Some(second), None]);
        assert_eq!([tables.next_write(), tables.next_write()], [Some(second), None]);
    }

    #[test]
    fn sessions_with_the_same_services_share_them_for_as_long_as_one_is_there() {
        let mut tables = SessionTables::default();
        let add = |tables: &mut SessionTables, link: u32, services: SessionStreams| {
            let number = SessionNumber(link.into());
            tables.add_session(number, (link, Instant::now()), services, Ipv4Addr::LOCALHOST.into());
            number
        };
        let one = SessionStreams { bidirectional: Some(streams()), unidirectional: None };
        let other = SessionStreams { bidirectional: one.bidirectional.clone(), unidirectional: Some(streams()) };
        let first = add(&mut tables, 1, one.clone());
        let second = add(&mut tables, 2, one.clone());
        add(&mut tables, 3, other);
        add(&mut tables, 4, SessionStreams::default());
        let services = |tables: &SessionTables, number| tables.session(number).unwrap().services.clone();
        let shared = services(&tables, first).unwrap();
        assert!(Rc::ptr_eq(&shared, &services(&tables, second).unwrap()));
        assert!(services(&tables, SessionNumber(3)).is_some_and(|third| !Rc::ptr_eq(&shared, &third)));
        assert!(services(&tables, SessionNumber(4)).is_none());
        let kept = Rc::downgrade(&shared);
        drop(shared);
        (1..=4).for_each(|number| drop(tables.remove_session(SessionNumber(number))));
        assert_eq!(kept.strong_count(), 0, "the table keeps no services of sessions that are over");
    }
}
