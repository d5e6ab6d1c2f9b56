//! `WebTransport`: the sessions of one connection, and the streams that belong to them.
//!
//! A stream goes through these states: its first bytes are incomplete (`starting`); its session has not begun (`waiting`); its
//! session has it, and the application has not accepted it (the queues of `OpenSession`); the application has it. A stream
//! whose session is over is `Gone` until the application has closed it.

use std::collections::VecDeque;
use std::task::{Context, Waker};
use std::time::Instant;

use foldhash::{HashMap, HashMapExt};
use tidegate_codec::{DatagramQueue, Direction, ReadEnd};

use super::preamble::Preamble;

/// The sessions of a connection.
#[derive(Debug)]
pub(crate) struct WebTransport {
    sessions: HashMap<u64, OpenSession>,
    /// Streams whose first bytes are incomplete.
    pub(super) starting: HashMap<u64, Preamble>,
    /// Bytes of request streams that were read as first bytes.
    unread: HashMap<u64, Unread>,
    /// Streams whose session has not begun.
    waiting: VecDeque<(u64, u64)>,
    /// The streams of all sessions, and their sessions.
    streams: HashMap<u64, StreamOwner>,
    /// When streams that are starting or waiting are reset, in order.
    deadlines: VecDeque<(Instant, u64)>,
    /// Bytes of datagrams in the sum of the endpoint.
    pub(crate) counted: usize,
}

/// A session that the application has.
#[derive(Debug, Default)]
struct OpenSession {
    /// Streams of the peer that the application has not accepted.
    bidirectional: VecDeque<u64>,
    unidirectional: VecDeque<u64>,
    datagrams: DatagramQueue,
    /// Tasks that wait for a stream, a datagram, or leave to open a stream.
    wakers: Vec<Waker>,
}

/// The session of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamOwner {
    Session(u64),
    /// A session that is over.
    Gone,
}

/// Bytes of a stream that were read, and are not for WebTransport.
#[derive(Debug)]
struct Unread {
    preamble: Preamble,
    taken: usize,
    /// The end of the stream behind them, if it was read.
    end: Option<ReadEnd>,
}

impl Default for WebTransport {
    fn default() -> Self {
        Self {
            sessions: HashMap::new(),
            starting: HashMap::new(),
            unread: HashMap::new(),
            waiting: VecDeque::new(),
            streams: HashMap::new(),
            deadlines: VecDeque::new(),
            counted: 0,
        }
    }
}

impl WebTransport {
    pub(super) fn sessions(&self) -> usize {
        self.sessions.len()
    }

    pub(crate) fn has_session(&self, session: u64) -> bool {
        self.sessions.contains_key(&session)
    }

    /// A session begins, with the streams that wait for it.
    pub(super) fn begin(&mut self, session: u64) {
        self.sessions.insert(session, OpenSession::default());
        let (waiting, others) = std::mem::take(&mut self.waiting).into_iter().partition(|(_, of)| *of == session);
        self.waiting = others;
        let waiting: VecDeque<(u64, u64)> = waiting;
        for (stream, _) in waiting {
            self.add_stream(stream, session);
        }
    }

    /// A stream of the peer belongs to a session that has begun.
    pub(super) fn add_stream(&mut self, stream: u64, session: u64) {
        self.streams.insert(stream, StreamOwner::Session(session));
        let Some(open) = self.sessions.get_mut(&session) else { return };
        match direction(stream) {
            Direction::Bidirectional => open.bidirectional.push_back(stream),
            Direction::Unidirectional => open.unidirectional.push_back(stream),
        }
        open.wake();
    }

    /// A stream of this side belongs to a session.
    pub(super) fn add_own(&mut self, stream: u64, session: u64) {
        self.streams.insert(stream, StreamOwner::Session(session));
    }

    /// A session is over. Returns its streams that no application has, and those that one has.
    pub(super) fn end(&mut self, session: u64) -> (Vec<u64>, Vec<u64>) {
        let mut unaccepted: Vec<u64> = Vec::new();
        let open = self.sessions.remove(&session);
        let was_open = open.is_some();
        if let Some(mut open) = open {
            unaccepted.extend(open.bidirectional.iter().chain(&open.unidirectional));
            open.wake();
        }
        let waiting = self.waiting.iter().filter(|(_, of)| *of == session).map(|(stream, _)| *stream);
        unaccepted.extend(waiting);
        self.waiting.retain(|(_, of)| *of != session);
        self.streams.retain(|stream, _| !unaccepted.contains(stream));
        let mut accepted = Vec::new();
        if was_open {
            for (stream, owner) in self.streams.iter_mut().filter(|(_, owner)| **owner == StreamOwner::Session(session))
            {
                *owner = StreamOwner::Gone;
                accepted.push(*stream);
            }
            accepted.sort_unstable();
        }
        (unaccepted, accepted)
    }

    /// A stream waits for its session. Returns whether there is room for it.
    pub(super) fn wait(&mut self, stream: u64, session: u64, waiting_max: u32) -> bool {
        let has_room = self.waiting.len() < waiting_max as usize;
        if has_room {
            self.waiting.push_back((stream, session));
        }
        has_room
    }

    pub(super) fn is_waiting(&self, stream: u64) -> bool {
        self.waiting.iter().any(|(waiting, _)| *waiting == stream)
    }

    /// A stream that is starting or waiting has to go on by then. Returns whether no other one has to before it.
    pub(super) fn set_deadline(&mut self, at: Instant, stream: u64) -> bool {
        if self.deadlines.len() >= DEADLINES_MAX {
            // Most streams go on at once. QUIC bounds the others. The endpoint has a timer for the first one, which stays.
            let Self { deadlines, starting, waiting, .. } = self;
            let first = deadlines.front().copied();
            deadlines.retain(|entry| {
                let (_, stream) = entry;
                first == Some(*entry)
                    || starting.contains_key(stream)
                    || waiting.iter().any(|(waiting, _)| waiting == stream)
            });
        }
        self.deadlines.push_back((at, stream));
        self.deadlines.len() == 1
    }

    /// When a stream that is starting or waiting is reset, if one is.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadlines.front().map(|(at, _)| *at)
    }

    /// The next stream whose first bytes, or whose session, has not come in time.
    pub(super) fn take_overdue(&mut self, now: Instant) -> Option<u64> {
        while self.deadline().is_some_and(|at| at <= now) {
            let (_, stream) = self.deadlines.pop_front()?;
            let was_starting = self.starting.remove(&stream).is_some();
            let waiting = self.waiting.len();
            self.waiting.retain(|(other, _)| *other != stream);
            if was_starting || self.waiting.len() < waiting {
                return Some(stream);
            }
        }
        None
    }

    pub(super) fn owner(&self, stream: u64) -> Option<StreamOwner> {
        self.streams.get(&stream).copied()
    }

    /// The application is done with a stream: nothing of it is left. Returns its session, if it was one of a session.
    pub(super) fn remove_stream(&mut self, stream: u64) -> Option<StreamOwner> {
        self.unread.remove(&stream);
        self.streams.remove(&stream)
    }

    /// The next stream of the peer that the application accepts.
    pub(super) fn accept(&mut self, session: u64, direction: Direction) -> Option<u64> {
        let open = self.sessions.get_mut(&session)?;
        match direction {
            Direction::Bidirectional => open.bidirectional.pop_front(),
            Direction::Unidirectional => open.unidirectional.pop_front(),
        }
    }

    /// Adds a datagram of the peer. Returns how many were dropped.
    pub(crate) fn add_datagram(&mut self, session: u64, payload: &[u8], bytes_max: u32) -> u64 {
        let Some(open) = self.sessions.get_mut(&session) else { return 1 };
        let dropped = open.datagrams.push(payload, bytes_max as usize);
        open.wake();
        dropped
    }

    /// Bytes of the datagrams that wait.
    pub(crate) fn datagram_bytes(&self) -> usize {
        self.sessions.values().map(|open| open.datagrams.bytes()).sum()
    }

    /// Drops all datagrams. Returns how many there were.
    pub(crate) fn clear_datagrams(&mut self) -> u64 {
        self.sessions.values_mut().map(|open| open.datagrams.clear()).sum()
    }

    pub(super) fn datagrams(&mut self, session: u64) -> Option<&mut DatagramQueue> {
        Some(&mut self.sessions.get_mut(&session)?.datagrams)
    }

    /// Wakes a task at the next event of a session.
    pub(super) fn register(&mut self, session: u64, cx: &Context<'_>) {
        if let Some(open) = self.sessions.get_mut(&session)
            && !open.wakers.iter().any(|waker| waker.will_wake(cx.waker()))
        {
            open.wakers.push(cx.waker().clone());
        }
    }

    pub(super) fn wake_all(&mut self) {
        self.sessions.values_mut().for_each(OpenSession::wake);
    }

    /// The first bytes of a request, which its stream yields again, and then its end if that was read.
    pub(super) fn put_back(&mut self, stream: u64, preamble: Preamble, end: Option<ReadEnd>) {
        self.unread.insert(stream, Unread { preamble, taken: 0, end });
    }

    /// Reads bytes that were put back. Returns how many, and the end that follows, if it was read as well.
    pub(super) fn read_again(&mut self, stream: u64, space: &mut [u8]) -> Option<(usize, Option<ReadEnd>)> {
        let unread = self.unread.get_mut(&stream)?;
        let rest = unread.preamble.bytes().get(unread.taken..).unwrap_or_default();
        let count = rest.len().min(space.len());
        space[..count].copy_from_slice(&rest[..count]);
        if count < rest.len() {
            unread.taken += count;
            return Some((count, Some(ReadEnd::More)));
        }
        let end = unread.end;
        if matches!(end, None | Some(ReadEnd::Ended | ReadEnd::Reset(_))) {
            self.unread.remove(&stream);
        }
        Some((count, end))
    }
}

impl OpenSession {
    fn wake(&mut self) {
        std::mem::take(&mut self.wakers).into_iter().for_each(Waker::wake);
    }
}

impl Drop for WebTransport {
    fn drop(&mut self) {
        self.wake_all();
    }
}

/// With more deadlines than that, those of streams that went on are dropped.
const DEADLINES_MAX: usize = 1024;

/// The direction of a stream, by its number (RFC 9000 §2.1).
pub(super) fn direction(stream: u64) -> Direction {
    if stream & 2 == 0 { Direction::Bidirectional } else { Direction::Unidirectional }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn deadlines_of_streams_that_went_on_have_a_bound() {
        let (mut sessions, now) = (WebTransport::default(), Instant::now());
        sessions.starting.insert(4, Preamble::new(Direction::Bidirectional));
        assert!(sessions.wait(8, 400, 1) && !sessions.wait(12, 400, 1));
        for stream in (4..40_000).step_by(4) {
            let is_first = sessions.set_deadline(now + Duration::from_millis(stream), stream);
            assert_eq!(is_first, stream == 4);
        }
        assert!(sessions.deadlines.len() <= DEADLINES_MAX);
        let overdue: Vec<_> = std::iter::from_fn(|| sessions.take_overdue(now + Duration::from_secs(40))).collect();
        assert_eq!((overdue, sessions.deadline()), (vec![4, 8], None));
    }

    #[test]
    fn a_session_that_is_over_has_no_stream_and_others_keep_theirs() {
        let mut sessions = WebTransport::default();
        assert!(sessions.wait(12, 0, 8) && sessions.wait(16, 4, 8));
        sessions.begin(0);
        sessions.begin(4);
        sessions.add_stream(2, 0);
        sessions.add_stream(20, 0);
        sessions.add_own(1, 0);
        assert_eq!(sessions.accept(0, Direction::Bidirectional), Some(12));
        let (mut unaccepted, accepted) = sessions.end(0);
        unaccepted.sort_unstable();
        assert_eq!((unaccepted, accepted), (vec![2, 20], vec![1, 12]));
        assert_eq!(sessions.owner(12), Some(StreamOwner::Gone));
        assert!(sessions.remove_stream(12).is_some() && sessions.owner(12).is_none() && !sessions.has_session(0));
        assert_eq!(sessions.accept(4, Direction::Bidirectional), Some(16));
        assert_eq!(sessions.add_datagram(0, b"late", 1_000), 1);
    }
}
